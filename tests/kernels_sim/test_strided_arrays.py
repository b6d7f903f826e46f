"""Kernels that take arrays by their dimensions, on arrays that lie otherwise: same bits, sectors by hand.

torch's projections leave heads between rows, caches keep K and V in one buffer, shared heads are expanded
with a stride of 0. A kernel sees the strides and nothing else.
"""

from dataclasses import replace

import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import KernelMistake
from kernels_sim import find
from kernels_sim.problem import Data
from kernels_sim.run import run_problem


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def heads_between_rows(x):
    """Return the same numbers where a row's heads lie side by side: (N, heads, d) seen as (heads, N, d)."""
    return np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2)


def every_second_row(x):
    """Return the same numbers in every second row of a longer array of NaN."""
    longer = np.full((x.shape[0], 2 * x.shape[1], x.shape[2]), np.nan, x.dtype)
    longer[:, ::2] = x
    return longer[:, ::2]


def every_second_column(x):
    """Return the same numbers in every second column of a wider array of NaN."""
    wider = np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan, x.dtype)
    wider[..., ::2] = x
    return wider[..., ::2]


def run(device, name, lay, **options):
    """Run a kernel with its input arrays laid out by lay(step, place, array); return (launches, outputs)."""
    problem = find(name).build(find(name).options(**options), Data(seed=7))
    problem.steps = tuple(
        replace(step, args=tuple(lay(i, at, x) if isinstance(x, np.ndarray) else x
                                 for at, x in enumerate(step.args)))
        for i, step in enumerate(problem.steps)
    )  # fmt: skip
    return run_problem(problem, device), {k: x.copy() for k, x in problem.outputs.items()}


def lay_qkv(lay):
    """Return a layout of Q, K (the first launch's) and V (the third's) alone."""
    return lambda step, at, x: lay(x) if (step, at) in ((0, 0), (0, 1), (2, 1)) else x


def plain(x):
    return x


@pytest.mark.parametrize("lay", [heads_between_rows, every_second_row])
def test_standard_attention_gives_the_same_bits_and_sectors_where_rows_lie_apart(device, lay):
    options = {"N": 40, "Nk": 33, "d": 32, "heads": 3, "causal": True, "q_start": -2}
    apart, found = run(device, "standard_attention", lay_qkv(lay), **options)
    usual, expected = run(device, "standard_attention", lay_qkv(plain), **options)
    assert np.array_equal(found["O"], expected["O"]) and np.array_equal(found["L"], expected["L"])
    # A request takes 32 neighbours of one row, 4 sectors, wherever the row lies.
    assert [x.counters.global_load for x in apart] == [x.counters.global_load for x in usual]


def test_standard_attention_gives_the_same_bits_and_twice_the_sectors_where_columns_lie_apart(device):
    options = {"N": 32, "d": 32}
    apart, found = run(device, "standard_attention", lay_qkv(every_second_column), **options)
    usual, expected = run(device, "standard_attention", lay_qkv(plain), **options)
    assert np.array_equal(found["O"], expected["O"])
    # One tile: 32 rows of Q and 32 of K, a request each, 4 sectors or 8.
    assert usual[0].counters.global_load.sectors == 64 * 4
    assert apart[0].counters.global_load.sectors == 64 * 8
    assert apart[0].counters.global_load.requests == usual[0].counters.global_load.requests == 64


def test_one_thread_a_row_gives_the_same_bits_where_the_rows_of_a_head_lie_together(device):
    def rows_together(step, at, x):
        return np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) if at in (0, 1, 2) else x

    options = {"T": 40, "d": 16, "H": 2, "HKV": 1, "causal": True, "Br": 32, "Bc": 16}
    apart, found = run(device, "flash_row_forward", rows_together, **options)
    usual, expected = run(device, "flash_row_forward", lambda step, at, x: x, **options)
    assert np.array_equal(found["O"], expected["O"]) and np.array_equal(found["L"], expected["L"])
    assert apart[0].counters.global_load.requests == usual[0].counters.global_load.requests


def test_the_tensor_core_variant_refuses_rows_that_lie_apart_as_its_copies_take_16_bytes(device):
    options = {"variant": "mma", "N": 40, "d": 32, "heads": 3, "Br": 16, "Bc": 16}
    with pytest.raises(KernelMistake, match="ptx.cp_async_cg from 'Q'.*pass a C-contiguous array"):
        run(device, "flash_forward", lambda step, at, x: heads_between_rows(x) if at == 0 else x, **options)


def test_expanded_keys_and_values_are_one_head_for_all(device):
    def expand(step, at, x):
        return np.broadcast_to(x[:1], x.shape) if (step, at) in ((0, 1), (2, 1)) else x

    def repeat(step, at, x):
        return np.repeat(x[:1], len(x), axis=0) if (step, at) in ((0, 1), (2, 1)) else x

    options = {"N": 20, "d": 16, "heads": 4}
    _, found = run(device, "standard_attention", expand, **options)
    _, expected = run(device, "standard_attention", repeat, **options)
    assert np.array_equal(found["O"], expected["O"])


def test_paged_attention_takes_keys_and_values_that_are_halves_of_one_buffer(device):
    def halves(step, at, x):
        if (step, at) not in ((0, 1), (0, 2)):
            return x
        both = np.full((len(x), 2, *x.shape[1:]), np.nan, x.dtype)
        both[:, at - 1] = x
        return both[:, at - 1]

    options = {"lens": "40,1,17", "sequences": 3, "heads": 4, "kv_heads": 2, "d": 32, "block_size": 16,
               "partition_size": 32}  # fmt: skip
    apart, found = run(device, "paged_attention_v2", halves, **options)
    usual, expected = run(device, "paged_attention_v2", lambda step, at, x: x, **options)
    assert np.array_equal(found["O"], expected["O"])
    assert [x.counters.global_load for x in apart] == [x.counters.global_load for x in usual]
