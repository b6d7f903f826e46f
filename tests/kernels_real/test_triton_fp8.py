"""The kernels of 8-bit floats in Triton, under its interpreter with every number held in float32.

The interpreter's bfloat16 and 8-bit floats are wrong, so the same numbers go in wider: what the kernels read,
multiply, sum and where they put it is then tested without their roundings. test_triton_on_gpu.py has those.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the Triton versions take torch's tensors; torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

import torch

import kernels_real
from kernels_real.triton_kernels import interpreter
from kernels_real.triton_kernels.packed_fp8_qkv import Given, Projection, packed_fp8_qkv
from kernels_sim.check import largest_error
from kernels_sim.problem import Problem
from tests.kernels_real.triton_support import problem_of
from tests.kernels_sim.qkv_autograd import CASES, EPS, recorded

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not interpreter.IS_ON, reason="a GPU is here and runs the types as they are"),
]

HOWS = pytest.mark.parametrize("how", [{}, {"paired": True}, {"key_offset": True, "rotary_dim": 8}], ids=str)


def widened(problem: Problem) -> Problem:
    """Return the problem with its 16- and 8-bit arrays as float32."""
    def wide(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {n: a.astype(np.float32) if a.dtype.itemsize < 4 else a for n, a in arrays.items()}

    return dataclasses.replace(problem, inputs=wide(problem.inputs), outputs=wide(problem.outputs))


def errors(problem: Problem) -> dict[str, float]:
    """Run a widened problem and return the largest error of each output."""
    found = kernels_real.run(widened(problem), "triton")
    return {name: largest_error(found[name], x) for name, x in problem.reference().items()}


@pytest.mark.parametrize("accumulation", ["fast", "full"])
def test_matmul_fp8_multiplies_ragged_matrices(accumulation: str) -> None:
    sizes = {"M": 150, "N": 144, "K": 208, "scale_a": 0.5, "scale_b": 0.25}
    problem = problem_of("matmul_fp8", accumulation=accumulation, **sizes)
    assert errors(problem)["product"] < 1e-5


@HOWS
def test_fp8_qkv_is_right_but_for_the_rounding_of_qkv(how: dict[str, Any]) -> None:
    found = errors(problem_of("fp8_qkv", tokens=10, model_dim=48, heads=2, d=24, v_dim=16, **how))
    assert set(found) == {"Q", "K", "V"}
    assert max(found.values()) < 2**-8  # the reference's qkv is bfloat16, half a step of which is 2^-9


@HOWS
def test_the_packed_gradient_lies_within_half_a_step_of_its_bytes(how: dict[str, Any]) -> None:
    problem = problem_of("qkv_norm_rope_fp8_backward", tokens=40, heads=2, d=24, v_dim=13, **how)
    found = kernels_real.run(widened(problem), "triton")
    for name, bytes_ in problem.reference().items():
        # e4m3: half a step is at most 2^-4 of a number, 2^-10 of the smallest ones; bfloat16 comes before it.
        far = np.abs(np.clip(found[name], -448, 448) - bytes_)
        assert (far <= (2**-4 + 2**-8) * np.abs(bytes_) + 2**-10 * (1 + 2**-3)).all(), name


@pytest.mark.parametrize("i", range(len(CASES)))
def test_the_autograd_function_gives_the_gradients_of_torch(i: int) -> None:
    case, given = CASES[i], recorded(i)

    def t(name: str) -> Any:
        return torch.tensor(np.atleast_1d(given[name]), dtype=torch.float32)

    x, weight, scale = (t(name).requires_grad_() for name in ("x", "weight", "qkv_scale"))
    x8, weight8, one = t("x"), t("weight"), torch.ones(1)
    transposed = x8.T.contiguous(), weight8.T.contiguous()
    fixed = Given(x8, transposed[0], weight8, transposed[1], one, one, one, t("factor1"), t("factor2"))
    how = Projection(case.tokens, case.heads, case.d, case.rotary_dim, case.paired, case.key_offset, EPS)
    q, k, v = packed_fp8_qkv(x, weight, scale, fixed, how)
    v = v.reshape(t("grad_v").shape)
    sum((y * t(f"grad_{name}")).sum() for name, y in (("q", q), ("k", k), ("v", v))).backward()
    found = {"q": q, "k": k, "v": v, "grad_x": x.grad, "grad_weight": weight.grad,
             "grad_qkv_scale": scale.grad}
    for name, y in found.items():
        assert largest_error(y.detach().numpy(), np.atleast_1d(given[name])) < 1e-5, name


def test_resources_come_without_a_gpu() -> None:
    # Three stages of two tiles of 128 x 64 bytes; a thread of 256 holds 64 of the 128 x 128 accumulators.
    program = """
from kernels_real.triton_kernels import matmul_fp8
from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.resources import resources
from tests.kernels_real.triton_support import problem_of
problem = problem_of("matmul_fp8", M=256, N=256, K=256)
(launch,) = matmul_fp8.launches(problem.options, Arrays.of_problem(problem, "cpu"), num_warps=8, num_stages=3)
found = resources(launch)
assert (found.kernel, found.shared_bytes, found.spill_bytes) == ("matmul_fp8", 3 * 2 * 128 * 64, 0), found
assert 64 < found.registers < 128, found
"""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
