"""The contract of every shipped kernel: counted == closed form, result == reference, and the engines agree.

A kernel that is added to kernels_sim needs shapes here, whole and ragged ones:
`test_every_kernel_has_shapes` asks for them. Counts are compared for each counter that a closed form names;
a space that it does not name at all must not be touched.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import pytest

from dsl.host.device import Device
from gpusim.arch import H200
from gpusim.launch import Launch, counter
from kernels_sim import find, names
from kernels_sim.problem import Data, Problem
from kernels_sim.run import run_problem

SHAPES: dict[str, list[dict[str, Any]]] = {
    "vec_add": [{"n": 1}, {"n": 256}, {"n": 1003}],
    "strided_copy": [
        {"n": 1, "stride": 5},
        {"n": 300, "stride": 1},
        {"n": 333, "stride": 3},
        {"n": 256, "stride": 32},
    ],
    "offset_copy": [{"n": 1, "offset": 7}, {"n": 300, "offset": 0}, {"n": 333, "offset": 13}],
    "transpose": [
        {"rows": rows, "cols": cols, "variant": variant}
        for rows, cols in ((1, 1), (64, 32), (5, 70), (33, 65))
        for variant in ("naive", "tiled", "padded")
    ],
    "matmul_tiled": [{"N": 1}, {"N": 16}, {"N": 21}, {"N": 40}],
    "matmul_mma": [
        {"M": 128, "N": 128, "K": 32},
        {"M": 100, "N": 72, "K": 40, "dtype": "bfloat16"},
        {"M": 130, "N": 136, "K": 8},
        {"M": 1, "N": 8, "K": 16},
    ],
    "matmul_fp8": [
        {"M": 9, "N": 16, "K": 16},
        {"M": 1, "N": 32, "K": 48, "accumulation": "full"},
    ],
    "softmax_rows": [
        {"rows": 1, "cols": 1},
        {"rows": 2, "cols": 128},
        {"rows": 3, "cols": 77},
        {"rows": 2, "cols": 301},
    ],
    "softmax_merge": [
        {"parts": 1, "rows": 1, "d": 1},
        {"parts": 3, "rows": 9, "d": 20},
        {"parts": 2, "rows": 4, "d": 64},
        {"parts": 5, "rows": 131, "d": 0},
    ],
    "qk_norm_rope": [
        {"tokens": 3, "heads": 2, "d": 40, "rotary_dim": 8},
        {"tokens": 3, "heads": 2, "d": 32, "paired": True},
        {"tokens": 4, "heads": 1, "d": 34, "rotary_dim": 10, "key_offset": True, "dtype": "bfloat16"},
    ],
    "qkv_norm_rope_fp8_backward": [
        {"tokens": 3, "heads": 2, "d": 10, "v_dim": 7, "rotary_dim": 4, "key_offset": True},
        {"tokens": 2, "heads": 2, "d": 34, "v_dim": 3, "paired": True},
    ],
    "fp8_qkv": [
        {"tokens": 3, "model_dim": 16, "heads": 2, "d": 6, "v_dim": 4, "rotary_dim": 2, "key_offset": True},
        {"tokens": 2, "model_dim": 16, "heads": 2, "d": 8, "v_dim": 8, "paired": True},
    ],
    "fp8_qkv_backward": [
        {"tokens": 16, "model_dim": 16, "heads": 2, "d": 6, "v_dim": 4, "rotary_dim": 2, "key_offset": True},
        {"tokens": 16, "model_dim": 16, "heads": 2, "d": 8, "v_dim": 8, "paired": True},
    ],
    "histogram": [
        {"n": n, "bins": bins, "variant": variant}
        for n, bins in ((1, 1), (512, 256), (1003, 37), (70_000, 256))
        for variant in ("global", "shared")
    ],
    "block_reduce": [{"n": 1}, {"n": 512}, {"n": 1003}],
    "flash_forward": [
        {"N": 64, "d": 4, "Br": 32, "Bc": 32},
        {"N": 65, "d": 8, "Br": 32, "Bc": 16, "causal": True},
        {"N": 33, "Nk": 50, "d": 20, "Br": 16, "Bc": 32},
        {"N": 40, "d": 8, "Br": 32, "Bc": 16, "causal": True, "q_start": -5},
        {"N": 20, "d": 16, "Br": 16, "Bc": 16, "heads": 2, "batch": 2},
        {"N": 17, "Nk": 29, "d": 4, "dv": 6, "Br": 12, "Bc": 8, "heads": 4, "kv_heads": 2, "causal": True,
         "window": 7, "q_start": 12},
        {"N": 20, "d": 16, "Br": 16, "Bc": 16, "variant": "mma"},
        {"N": 18, "Nk": 21, "d": 24, "dv": 8, "Br": 32, "Bc": 16, "variant": "mma", "dtype": "bfloat16",
         "causal": True, "q_start": 5, "window": 7},
    ],
    "flash_backward": [
        {"N": 20, "d": 4, "Br": 8, "Bc": 16},
        {"N": 17, "Nk": 21, "d": 3, "dv": 5, "Br": 8, "Bc": 9, "causal": True, "q_start": 4, "heads": 2,
         "kv_heads": 1},
        {"N": 12, "Nk": 18, "d": 4, "Br": 8, "Bc": 8, "window": 5, "q_start": 6, "deterministic": True},
        {"N": 33, "Nk": 20, "d": 16, "dv": 32, "Br": 32, "Bc": 16, "causal": True, "q_start": 3,
         "variant": "mma"},
        {"N": 24, "d": 16, "Br": 32, "Bc": 32, "window": 5, "deterministic": True, "dtype": "bfloat16",
         "variant": "mma"},
    ],
    "flash_decode": [
        {"Nq": 1, "Nk": 40, "d": 4, "splits": 2, "heads": 2},
        {"Nq": 2, "Nk": 5, "d": 5, "dv": 7, "splits": 7, "heads": 2, "kv_heads": 1},
    ],
    "flash_row_forward": [
        {"T": 16, "H": 1, "HKV": 1, "d": 16, "Br": 32},
        {"T": 21, "Tk": 30, "q_start": 9, "H": 2, "HKV": 1, "d": 20, "causal": True, "window": 7, "Bc": 5},
    ],
    **{
        f"flash_row_{part}": [
            {"T": 16, "H": 1, "HKV": 1, "d": 16, "Br": 32},
            {"T": 11, "Tk": 14, "q_start": 3, "H": 2, "HKV": 1, "d": 20, "causal": True, "window": 7},
        ]
        for part in ("delta", "dq", "dv", "dk")
    },
    "paged_attention_v2": [
        {"lens": "9,0,4", "d": 4, "block_size": 4, "partition_size": 8, "heads": 2, "kv_heads": 1},
        {"lens": "7", "d": 8, "block_size": 3, "partition_size": 5, "heads": 1, "kv_heads": 1, "alibi": True,
         "dtype": "float16"},
    ],
    "standard_attention": [
        {"N": 5, "d": 4},
        {"N": 9, "Nk": 40, "d": 8, "dtype": "bfloat16"},
        {"N": 11, "d": 4, "dv": 9, "causal": True, "heads": 2},
    ],
    "standard_attention_backward": [
        {"N": 5, "d": 4},
        {"N": 5, "Nk": 7, "d": 3, "dv": 5, "causal": True, "q_start": 2, "dtype": "float16"},
    ],
}
CASES = [(name, options) for name, shapes in SHAPES.items() for options in shapes]
SLOW_BY_THREAD = ("standard_attention", "matmul_mma", "matmul_fp8", "fp8_qkv")
"""Kernels that take the Python source some seconds a case: for `make test-full`."""


def slow_by_thread(case: tuple[str, dict[str, Any]]) -> bool:
    """Return whether a case takes the Python source so long."""
    return case[0].startswith(SLOW_BY_THREAD) or case[1].get("variant") == "mma"


BY_THREAD = [
    pytest.param(*case, marks=pytest.mark.full) if slow_by_thread(case) else case for case in CASES
]
"""The cases of the Python source."""
DATA_DEPENDENT = {"histogram": "its bins are the data", "paged_attention_v2": "its pages are"}
"""Kernels whose addresses are data, and which."""
SLOW = 5000
"""Elements from which a case is left to the compiled engine alone."""
SPACES = (
    "global_load",
    "global_store",
    "global_red",
    "global_atom",
    "local_load",
    "local_store",
    "shared_load",
    "shared_store",
    "shared_atom",
    "shared_matrix",
    "shared_async",
)


def title(case: Any) -> str:
    """Name a case in the test's title."""
    return case if isinstance(case, str) else ",".join(f"{name}={value}" for name, value in case.items())


def problem_of(name: str, options: dict[str, Any], virtual: bool = False, seed: int = 0) -> Problem:
    """Build the problem of a case."""
    spec = find(name)
    return spec.build(spec.options(**options), Data(seed=seed, virtual=virtual))


def simulate(name: str, options: dict[str, Any], seed: int = 0, **settings: Any) -> list[Launch]:
    """Run a case on a fresh H200."""
    problem = problem_of(name, options, virtual=settings.get("counts_only", False), seed=seed)
    return run_problem(problem, Device(H200), **settings)


@cache
def compiled(name: str, items: tuple[tuple[str, Any], ...]) -> tuple[Launch, ...]:
    """Run a case once on the compiled engine; several tests look at it."""
    return tuple(simulate(name, dict(items), engine="compiled"))


def launches(name: str, options: dict[str, Any]) -> tuple[Launch, ...]:
    """Return the launches of a case on the compiled engine."""
    return compiled(name, tuple(options.items()))


def skip_if_long(options: dict[str, Any]) -> None:
    """Leave large cases to the compiled engine."""
    if options.get("n", 0) > SLOW:
        pytest.skip("too large for an engine that runs one thread or one warp at a time")


def test_every_kernel_has_shapes():
    assert sorted(SHAPES) == names()


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
def test_counted_equals_the_closed_form(name, options):
    for launch in launches(name, options):
        counted = {path: counter(launch.counters, path) for path in launch.closed_form}
        assert counted == launch.closed_form


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
def test_a_closed_form_names_bytes_of_global_memory(name, options):
    for launch in launches(name, options):
        assert {"global_load.bytes", "global_load.sectors"} <= set(launch.closed_form)


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
def test_a_space_that_the_closed_form_does_not_name_is_not_touched(name, options):
    for launch in launches(name, options):
        named = {path.split(".")[0] for path in launch.closed_form}
        assert [
            space for space in SPACES if space not in named and counter(launch.counters, f"{space}.lanes")
        ] == []


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
def test_the_result_is_the_reference(name, options):
    checks = launches(name, options)[-1].checks
    assert checks
    assert [check for check in checks if not check.error <= check.tolerance] == []


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
def test_the_interpreter_of_the_ir_counts_everything_the_same(name, options):
    skip_if_long(options)
    for launch, judge in zip(launches(name, options), simulate(name, options, engine="ir"), strict=True):
        assert asdict(launch.counters) == asdict(judge.counters)


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
def test_counts_do_not_depend_on_the_numbers_unless_the_kernel_says_so(name, options):
    if name in DATA_DEPENDENT:
        pytest.skip(DATA_DEPENDENT[name])
    for launch, other in zip(launches(name, options), simulate(name, options, seed=1), strict=True):
        assert asdict(launch.counters) == asdict(other.counters)


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
def test_counts_without_data_are_the_same(name, options):
    if name in DATA_DEPENDENT:
        pytest.skip(DATA_DEPENDENT[name])
    for launch, other in zip(launches(name, options), simulate(name, options, counts_only=True), strict=True):
        assert asdict(launch.counters) == asdict(other.counters)
