"""The Triton versions against the same references as the simulated kernels.

Without a GPU they run under Triton's interpreter (tests/conftest.py), which is right for float32 and float16;
what needs bfloat16 or 8-bit floats waits for a GPU, where all of this runs compiled.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

pytest.importorskip("torch", reason="the Triton versions take torch's tensors; torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

import kernels_real
import kernels_sim
from gpusim.errors import BadOption, LaunchRefused, UnknownName
from kernels_real import triton_kernels
from kernels_sim.problem import Data, Problem
from kernels_sim.run import largest_error

pytestmark = pytest.mark.full


def problem_of(kernel: str, seed: int = 5, virtual: bool = False, **options: Any) -> Problem:
    spec = kernels_sim.find(kernel)
    return spec.build(spec.options(**options), Data(seed, virtual))


def require_right(kernel: str, configuration: dict[str, int] | None = None, **options: Any) -> None:
    """Run a kernel in Triton and hold every output that the reference names to its tolerance."""
    problem = problem_of(kernel, **options)
    found = kernels_real.run(problem, "triton", **configuration or {})
    expected = problem.reference()
    errors = {name: largest_error(found[name], x) for name, x in expected.items()}
    assert {n: e for n, e in errors.items() if not e <= problem.tolerance} == {}, options
    assert {n: found[n].dtype for n in expected} == {n: problem.outputs[n].dtype for n in expected}


HALVES = ("float32", "float16")
MASKS = [{"causal": c, "window": w, "q_start": q} for c in (False, True) for w in (None, 20) for q in (0, -9)]
HEADS = ({"heads": 2}, {"heads": 4, "kv_heads": 2, "batch": 2})


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("heads", HEADS, ids=("mha", "gqa"))
def test_flash_forward_is_right_for_every_mask(dtype: str, heads: dict[str, int]) -> None:
    for mask in MASKS:
        require_right("flash_forward", N=37, Nk=43, d=16, dv=24, Br=16, Bc=32, dtype=dtype, **heads, **mask)


@pytest.mark.parametrize(("Br", "Bc"), itertools.product((16, 64), (16, 64)))
def test_flash_forward_that_reads_seen_keys_alone_is_right_for_every_tile(Br: int, Bc: int) -> None:
    require_right("flash_forward", N=70, d=48, Br=Br, Bc=Bc, variant="mma", causal=True, window=30)


def test_a_row_that_sees_no_key_gives_0_and_minus_infinity() -> None:
    require_right("flash_forward", N=20, Nk=5, d=16, Br=16, Bc=16, causal=True, q_start=-12)


# The interface


def test_every_kernel_has_the_name_of_a_simulated_one() -> None:
    assert set(triton_kernels.names()) <= set(kernels_sim.names())


def test_preparing_launches_nothing_and_outputs_start_as_nan() -> None:
    import numpy as np

    prepared = kernels_real.prepare(problem_of("flash_forward", N=20, d=16, Br=16, Bc=16))
    assert all(np.isnan(x).all() for x in prepared.outputs().values())
    prepared.launch()
    assert not any(np.isnan(x).any() for x in prepared.outputs().values())
    prepared.refill()
    assert all(np.isnan(x).all() for x in prepared.outputs().values())


@pytest.mark.parametrize(
    ("kernel", "options", "configuration", "message"),
    [
        ("flash_forward", {"stats": True}, {}, "does not count rescalings"),
        ("flash_forward", {"Br": 24}, {}, "--Br must be a power of 2 of at least 16, got 24"),
        ("flash_forward", {"q_start": 1 << 31}, {}, "positions are 32-bit integers"),
        ("flash_forward", {}, {"warps": 4}, "no 'warps' to configure; there are: num_warps, num_stages"),
        ("flash_forward", {}, {"num_warps": 0}, "num_warps must be a whole number of at least 1, got 0"),
    ],
)
def test_what_a_version_does_not_take_is_refused_by_name(
    kernel: str, options: dict[str, Any], configuration: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadOption, match=message):
        kernels_real.run(problem_of(kernel, N=20, **options), "triton", **configuration)


def test_unknown_backends_and_kernels_are_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="unknown backend 'cl'; there are: .*triton"):
        kernels_real.run(problem_of("flash_forward", N=20), "cl")
    with pytest.raises(UnknownName, match="transpose padded has no Triton version; there are: .*flash_f"):
        kernels_real.run(problem_of("transpose", variant="padded"), "triton")


def test_a_problem_without_data_is_refused() -> None:
    with pytest.raises(LaunchRefused, match="no data to run with"):
        kernels_real.run(problem_of("flash_forward", N=20, virtual=True), "triton")
