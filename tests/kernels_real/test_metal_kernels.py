"""The Metal kernels, run by the shim: the references of the simulated kernels, and the same loads and stores.

What runs here is the .metal source itself, compiled as C++; no Apple GPU has seen it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import kernels_real
import kernels_sim
from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption, LaunchRefused, UnknownName
from gpusim.launch import counter
from kernels_real import metal_kernels
from kernels_sim.check import largest_error
from kernels_sim.problem import Data, Problem
from kernels_sim.run import run_problem
from tests.kernels_real.metal_support import needs_shim

FLASH_ROW = tuple(f"flash_row_{part}" for part in ("forward", "delta", "dq", "dv", "dk"))
SPREAD = [
    {"T": 33, "H": 4, "HKV": 2, "causal": True, "window": 7},
    {"T": 40, "Tk": 70, "q_start": 30, "H": 3, "HKV": 1, "causal": True, "window": 5, "B": 2},
    {"T": 70, "Tk": 33, "q_start": -20, "causal": True, "window": 12, "Br": 48},
    {"T": 65, "H": 4, "HKV": 2, "d": 64, "window": 1, "causal": True},
    {"T": 50, "H": 2, "HKV": 2, "causal": True},
    {"T": 20, "Tk": 50, "q_start": -45, "window": 40, "Br": 32},
    {"T": 37, "Tk": 0, "window": 3},
]
"""First four with causal, a window and shared heads, of one and of more tiles and threadgroups; then causal
alone, rows and keys that see nothing, no key at all.
"""
STANDARD = [
    {"N": 33, "d": 40, "causal": True, "heads": 2},
    {"N": 5, "Nk": 2, "d": 4, "causal": True, "q_start": -3},
    {"N": 34, "Nk": 20, "d": 8, "dv": 45, "heads": 2, "causal": True, "q_start": 3},
    {"N": 9, "Nk": 200, "d": 7, "batch": 3},
    {"N": 40, "Nk": 0, "d": 16},
]


@pytest.fixture(scope="module")
def device() -> Device:
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def problem_of(kernel: str, virtual: bool = False, **options: Any) -> Problem:
    """Build a problem; heads of flash_row are small where nothing is said."""
    small = {"d": 16, "H": 2, "HKV": 1} if kernel in FLASH_ROW else {}
    spec = kernels_sim.find(kernel)
    return spec.build(spec.options(**small | options), Data(seed=5, virtual=virtual))


def require_right(kernel: str, **options: Any) -> None:
    """Run a kernel by the shim and hold every output to its reference."""
    problem = problem_of(kernel, **options)
    found = kernels_real.run(problem, "metal", executor="shim")
    errors = {name: largest_error(found[name], x) for name, x in problem.reference().items()}
    assert {name: error for name, error in errors.items() if not error <= problem.tolerance} == {}, options


def simulated(kernel: str, device: Device, **options: Any) -> list[tuple[int, int]]:
    """Return the lanes of global loads and stores of each simulated launch."""
    launches = run_problem(problem_of(kernel, virtual=True, **options), device, counts_only=True)
    return [tuple(counter(x.counters, f"global_{way}.lanes") for way in ("load", "store")) for x in launches]


def counted(kernel: str, **options: Any) -> list[tuple[int, int]]:
    """Return the element loads and stores of each launch of the Metal source."""
    launches = metal_kernels.accesses(problem_of(kernel, **options))
    return [(sum(a.loads for a in x.values()), sum(a.stores for a in x.values())) for x in launches]


# Values


@needs_shim
@pytest.mark.parametrize("kernel", FLASH_ROW)
@pytest.mark.parametrize("options", SPREAD, ids=str)
def test_every_flash_row_kernel_is_right(kernel: str, options: dict[str, Any]) -> None:
    require_right(kernel, **options)


@needs_shim
@pytest.mark.parametrize("kernel", FLASH_ROW)
@pytest.mark.parametrize("causal", [False, True])
def test_the_product_of_windows_lengths_shared_heads_and_threads_is_right(kernel: str, causal: bool) -> None:
    lengths = [(1, 1, 0), (33, 33, 0), (40, 70, 30), (70, 33, -20), (20, 50, -45)]
    for window, (T, Tk, q_start), (H, HKV), Br in product((0, 1, 5, 40), lengths, ((2, 2), (3, 1)), (32, 48)):
        require_right(kernel, causal=causal, window=window, T=T, Tk=Tk, q_start=q_start, H=H, HKV=HKV, Br=Br)


@needs_shim
@pytest.mark.full
@pytest.mark.parametrize("kernel", FLASH_ROW)
@pytest.mark.parametrize("d", [16, 32, 48, 63, 64, 72, 80, 96, 128])
def test_every_head_dimension_is_right(kernel: str, d: int) -> None:
    require_right(kernel, T=65, d=d, causal=True)


@needs_shim
@pytest.mark.parametrize("options", STANDARD, ids=str)
def test_standard_attention_is_right(options: dict[str, Any]) -> None:
    require_right("standard_attention", **options)


@needs_shim
@pytest.mark.parametrize("kernel", [*FLASH_ROW, "standard_attention"])
def test_the_order_of_threads_between_barriers_changes_no_bit(kernel: str) -> None:
    problem = problem_of(kernel, causal=True, **{"N": 70} if kernel == "standard_attention" else {})
    found = [kernels_real.run(problem, "metal", executor="shim", backwards=b) for b in (False, True)]
    for name, values in found[0].items():
        assert np.array_equal(values, found[1][name]), name


@needs_shim
@pytest.mark.parametrize(("kernel", "output"), [("flash_row_forward", "O"), ("flash_row_dq", "dQ")])
def test_a_nan_in_an_invisible_key_or_value_stays_out(kernel: str, output: str) -> None:
    problem = problem_of(kernel, T=10, causal=True, window=2)
    problem.inputs["K"][0, 5] = np.nan
    problem.inputs["V"][0, 7] = np.nan
    rows = np.isnan(kernels_real.run(problem, "metal", executor="shim")[output][0]).any(axis=(1, 2))
    assert rows.tolist() == [False] * 5 + [True] * 4 + [False]


@needs_shim
def test_a_nan_in_an_invisible_value_does_not_leak_into_standard_attention() -> None:
    problem = problem_of("standard_attention", N=8, d=4, causal=True)
    problem.inputs["V"][0, 3] = np.nan
    rows = np.isnan(kernels_real.run(problem, "metal", executor="shim")["O"][0]).any(axis=1)
    assert rows.tolist() == [False] * 3 + [True] * 5


@needs_shim
def test_outputs_are_nan_until_a_launch_writes_them() -> None:
    prepared = kernels_real.prepare(problem_of("flash_row_forward"), "metal", executor="shim")
    assert all(np.isnan(values).all() for values in prepared.outputs().values())
    prepared.launch()
    assert not any(np.isnan(values).any() for values in prepared.outputs().values())


@pytest.mark.full
@pytest.mark.parametrize("kernel", [*FLASH_ROW, "standard_attention"])
def test_an_apple_gpu_gives_the_same(kernel: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.backends.mps.is_available():
        pytest.skip("no Apple GPU here")
    problem = problem_of(kernel, causal=True)
    found = kernels_real.run(problem, "metal", executor="mps")
    for name, expected in problem.reference().items():
        assert largest_error(found[name], expected) <= problem.tolerance, name


# Loads and stores


@needs_shim
@pytest.mark.parametrize("kernel", FLASH_ROW)
@pytest.mark.parametrize("options", SPREAD, ids=str)
def test_the_source_loads_and_stores_what_the_simulated_lanes_do(
    device: Device, kernel: str, options: dict[str, Any]
) -> None:
    assert counted(kernel, **options) == simulated(kernel, device, **options)


@needs_shim
@pytest.mark.parametrize("options", STANDARD, ids=str)
def test_each_launch_of_standard_attention_does_too(device: Device, options: dict[str, Any]) -> None:
    found = counted("standard_attention", **options)
    assert len(found) == 3
    assert found == simulated("standard_attention", device, **options)


@needs_shim
def test_the_loads_and_stores_of_each_buffer_are_those_worked_out_by_hand() -> None:
    # 2 heads of 4 rows and 16 columns share 4 keys; causal rows see 1 + 2 + 3 + 4 = 10 keys.
    rows, keys, pairs, d = 2 * 4, 4, 2 * 10, 16
    found = {name: metal_kernels.accesses(problem_of(name, T=4, causal=True))[0] for name in FLASH_ROW}
    assert found["flash_row_forward"] == {
        "Q": (rows * d, 0), "K": (2 * keys * d, 0), "V": (2 * keys * d, 0),  # staged once for each head
        "O": (0, rows * d), "L": (0, rows),
    }
    assert found["flash_row_delta"] == {"O": (rows * d, 0), "dO": (rows * d, 0), "D": (0, rows)}
    assert found["flash_row_dq"] == {
        "Q": (rows * d, 0), "K": (pairs * d, 0), "V": (pairs * d, 0), "dO": (rows * d, 0),
        "L": (rows, 0), "D": (rows, 0), "dQ": (0, rows * d),
    }
    assert found["flash_row_dv"] == {
        "Q": (pairs * d, 0), "K": (keys * d, 0), "dO": (pairs * d, 0), "L": (pairs, 0), "dV": (0, keys * d),
    }
    assert found["flash_row_dk"] == {
        "Q": (2 * pairs * d, 0), "K": (pairs * d, 0), "V": (pairs * d, 0), "dO": (pairs * d, 0),
        "L": (pairs, 0), "D": (pairs, 0), "dK": (0, keys * d),
    }


# What they refuse


@pytest.mark.parametrize(("kernel", "options", "words"), [
    ("flash_row_forward", {"d": 128, "Bc": 33}, "--Bc must be at most 32 at --d 128, got 33"),
    ("flash_row_dq", {"q_start": 2**31 - 256}, "together come to 2,147,483,648"),
    ("standard_attention", {"dtype": "float16"}, "takes --dtype float32, got float16"),
    ("standard_attention", {"q_start": -(2**31)}, "32-bit integers"),
])
def test_options_that_do_not_fit_metal_are_refused(kernel: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        metal_kernels.prepare(problem_of(kernel, **options), executor="shim")


def test_a_kernel_without_a_metal_version_an_executor_and_a_problem_without_data_are_refused() -> None:
    with pytest.raises(UnknownName, match="softmax_rows has no Metal version; there are: flash_row_delta"):
        metal_kernels.prepare(problem_of("softmax_rows"))
    with pytest.raises(BadOption, match="executor must be auto or shim or mps, got 'gpu'"):
        metal_kernels.prepare(problem_of("flash_row_dq"), executor="gpu")
    with pytest.raises(LaunchRefused, match="no data to run with"):
        metal_kernels.prepare(problem_of("flash_row_dq", virtual=True))
