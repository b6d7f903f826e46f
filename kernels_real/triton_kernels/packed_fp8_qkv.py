"""The packed FP8 projection with norm and rotation as a differentiable function of torch.

    q, k, v = packed_fp8_qkv(x, weight, qkv_scale, given, projection)

Forward it makes the launches of fp8_qkv, backward those of fp8_qkv_backward, on the same tensors. x, weight
and qkv_scale receive gradients; that of x8 and weight8, which are roundings of them, goes straight through.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from kernels_real.triton_kernels import fp8_qkv, fp8_qkv_backward
from kernels_real.triton_kernels.arrays import Arrays


@dataclass(frozen=True)
class Projection:
    """Hold the sizes and switches of a projection, under the names that fp8_qkv's options have.

    rotary_dim None: d. accumulation: of the forward product; the gradients' are always full.
    """

    tokens: int
    heads: int
    d: int
    rotary_dim: int | None = None
    paired: bool = False
    key_offset: bool = False
    eps: float = 2.0**-23
    accumulation: str = "fast"


@dataclass(frozen=True)
class Given:
    """Hold what has no gradient: x and the weights in 8 bits, as they are and transposed, the scales (1,) of
    x8, weight8 (without qkv_scale) and of the 8-bit gradients, and the factors of the positions.
    """

    x8: torch.Tensor
    x8_t: torch.Tensor
    weight8: torch.Tensor
    weight8_t: torch.Tensor
    x_scale: torch.Tensor
    weight_scale: torch.Tensor
    grad_scale: torch.Tensor
    factor1: torch.Tensor
    factor2: torch.Tensor


class PackedFP8QKV(torch.autograd.Function):
    """Map x (tokens, model_dim), weight (qkv_dim, model_dim) and qkv_scale (1,) to Q, K and V."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, qkv_scale: torch.Tensor, given: Given,
                projection: Projection) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
        """Return Q and K, (tokens, heads, d) or paired (2 tokens, heads / 2, d), and V (tokens, heads v_dim).
        """
        p, dtype = projection, x.dtype
        used = given.weight_scale * qkv_scale
        shape = (2 * p.tokens, p.heads // 2, p.d) if p.paired else (p.tokens, p.heads, p.d)
        outputs = {"Q": (shape, dtype), "K": (shape, dtype),
                   "V": ((p.tokens, weight.shape[0] - 2 * p.heads * p.d), dtype)}  # fmt: skip
        arrays = Arrays({**vars(given), "weight_scale": used}, outputs, x.device.type)
        for launch in fp8_qkv.launches(p, arrays):
            launch.run()
        ctx.save_for_backward(weight, qkv_scale, used, arrays["qk" if p.paired else "qkv"])
        ctx.given, ctx.projection = given, p
        return arrays["Q"], arrays["K"], arrays["V"]

    @staticmethod
    def backward(ctx: Any, grad_q: torch.Tensor, grad_k: torch.Tensor, grad_v: torch.Tensor
                 ) -> tuple[torch.Tensor | None, ...]:  # fmt: skip
        """Return the gradients of x, weight and qkv_scale."""
        weight, qkv_scale, used, qk = ctx.saved_tensors
        p = replace(ctx.projection, accumulation="full")
        inputs = {
            **vars(ctx.given), "weight": weight, "qkv_scale": qkv_scale, "weight_scale": used, "qk": qk,
            "grad_q": grad_q.contiguous(), "grad_k": grad_k.contiguous(),
            "grad_v": grad_v.reshape(p.tokens, p.heads, -1).contiguous(),
        }  # fmt: skip
        outputs = {
            "grad_x": ((p.tokens, weight.shape[1]), weight.dtype), "grad_qkv_scale": ((1,), torch.float32),
            "grad_weight": (tuple(weight.shape), weight.dtype),
        }  # fmt: skip
        arrays = Arrays(inputs, outputs, weight.device.type)
        for launch in fp8_qkv_backward.launches(p, arrays):
            launch.run()
        return arrays["grad_x"], arrays["grad_weight"], arrays["grad_qkv_scale"], None, None


def packed_fp8_qkv(
    x: torch.Tensor, weight: torch.Tensor, qkv_scale: torch.Tensor, given: Given, projection: Projection
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return Q, K and V, differentiable in x, weight and qkv_scale, contiguous tensors on one device."""
    return PackedFP8QKV.apply(x, weight, qkv_scale, given, projection)
