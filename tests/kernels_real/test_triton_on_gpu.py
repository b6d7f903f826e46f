"""The Triton versions compiled, on a GPU: bfloat16, 8-bit floats, and sizes beyond an interpreter's.

    python -m pytest tests/kernels_real        on a machine with a GPU runs these and the tests beside them
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the Triton versions take torch's tensors; torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

import torch

import kernels_real
from kernels_real.triton_kernels.arrays import to_torch
from kernels_real.triton_kernels.packed_fp8_qkv import Given, Projection, packed_fp8_qkv
from kernels_sim.check import largest_error
from tests.kernels_real.triton_support import problem_of, require_right

pytestmark = [pytest.mark.full, pytest.mark.gpu]

TYPES = ("float32", "float16", "bfloat16")
HALVES = TYPES[1:]
MASK = {"causal": True, "window": 200, "q_start": -30}
HOWS = [{}, {"paired": True}, {"key_offset": True, "rotary_dim": 32}]


@pytest.mark.parametrize("mask", [{}, {"causal": True}, MASK], ids=str)
@pytest.mark.parametrize("d", [64, 80, 128])
def test_flash_is_right_in_both_directions(d: int, mask: dict[str, Any]) -> None:
    small = {"N": 300, "Nk": 400, "d": d, "heads": 4, "kv_heads": 2, "batch": 2, **mask}
    require_right("flash_forward", Bc=32, dtype="float32", **small)
    require_right("flash_backward", Br=32, Bc=32, dtype="float32", **small)
    for dtype in HALVES:
        require_right("flash_forward", variant="mma", dtype=dtype, **small)
        require_right("flash_backward", variant="mma", dtype=dtype, **small)
        require_right("flash_backward", variant="mma", dtype=dtype, deterministic=True, **small)


@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize("num_stages", [1, 2, 3])
def test_flash_forward_is_right_in_every_configuration(num_warps: int, num_stages: int) -> None:
    how = {"num_warps": num_warps, "num_stages": num_stages}
    require_right("flash_forward", how, N=1000, causal=True, variant="mma")


@pytest.mark.parametrize("dtype", TYPES)
def test_the_other_attention_kernels_are_right(dtype: str) -> None:
    for kernel in ("standard_attention", "standard_attention_backward"):
        require_right(kernel, N=300, Nk=333, d=64, heads=2, causal=True, dtype=dtype)
    require_right("flash_decode", Nq=3, Nk=5000, splits=40, d=128, heads=8, kv_heads=2, batch=2, dtype=dtype)
    require_right("softmax_merge", parts=9, rows=1000, d=64)
    for alibi in (False, True):
        require_right("paged_attention_v2", lens="2000,1200,513,0", d=128, alibi=alibi, dtype=dtype)
    for how in HOWS:
        require_right("qk_norm_rope", tokens=1000, heads=6, d=64, dtype=dtype, **how)


def test_paged_attention_reads_an_8_bit_cache() -> None:
    require_right("paged_attention_v2", dtype="float16", kv_cache_dtype="fp8_e4m3", k_scale=0.5, v_scale=2.0)


@pytest.mark.parametrize("accumulation", ["fast", "full"])
def test_products_of_8_bit_floats_are_right(accumulation: str) -> None:
    require_right("matmul_fp8", M=500, N=528, K=720, accumulation=accumulation)
    for how in HOWS:
        sizes = {"tokens": 512, "model_dim": 256, "heads": 4, "d": 64, "accumulation": accumulation}
        require_right("fp8_qkv", **sizes, **how)
        require_right("fp8_qkv_backward", **sizes, **how)


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_bytes_differ_by_one_step_where_a_sum_in_another_order_rounds_elsewhere(how: dict[str, Any]) -> None:
    problem = problem_of("qkv_norm_rope_fp8_backward", tokens=1000, heads=6, d=64, v_dim=128, **how)
    found = kernels_real.run(problem, "triton")
    v_columns = slice(2 * 6 * 64, None)
    expected = problem.reference()["grad_row"]
    ours = found["grad_row"].astype(np.float64)
    assert (ours[:, v_columns] == expected[:, v_columns]).all()  # no sum in V's gradient
    differ = ours != expected
    assert differ.mean() < 1e-3
    assert (np.abs(ours - expected)[differ] <= np.maximum(2**-3 * np.abs(expected[differ]), 2**-9)).all()
    assert (found["grad_transposed"].T.view(np.uint8) == found["grad_row"].view(np.uint8)).all()


def test_the_autograd_function_gives_the_gradients_in_8_bits() -> None:
    problem = problem_of("fp8_qkv_backward", tokens=512, model_dim=256, heads=4, d=64)
    t = {name: to_torch(a, "cuda") for name, a in problem.inputs.items()}
    names = (field.name for field in dataclasses.fields(Given))
    t["weight_scale"] = t["weight_scale"] / t["qkv_scale"]  # the problem's has it in it
    x = (t["x8"].float() * t["x_scale"]).bfloat16().requires_grad_()
    weight, scale = t["weight"].requires_grad_(), t["qkv_scale"].requires_grad_()
    q, k, v = packed_fp8_qkv(x, weight, scale, Given(*(t[n] for n in names)), Projection(512, 4, 64))
    grads = t["grad_q"], t["grad_k"], t["grad_v"].reshape(v.shape)
    torch.autograd.backward((q, k, v), grads)
    expected = problem.reference()
    for name, leaf in (("grad_x", x), ("grad_weight", weight)):
        assert largest_error(leaf.grad.float().cpu().numpy(), expected[name]) < 2 * problem.tolerance, name
    # What multiplies the scale is the gradient of the scaled weights, summed with them.
    terms = (weight.grad.float() / scale * weight.float()).detach()
    assert (scale.grad - terms.sum()).abs().item() < 2**-7 * terms.abs().sum().item() / terms.numel() ** 0.5
