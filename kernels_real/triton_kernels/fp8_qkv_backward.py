"""Take the gradients of Q, K and V back to x, the packed weights and their scale in Triton, in 8-bit floats.

The twin of kernels_sim/fp8_qkv_backward.py, launch by launch: qkv_norm_rope_fp8_backward, two products of
matmul_fp8, and scale_gradient, here.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.launching import Launch
from kernels_real.triton_kernels.matmul_fp8 import product_launch
from kernels_real.triton_kernels.qkv_norm_rope_fp8_backward import rows_launch

ROWS, COLUMNS = 8, 32
"""Rows of a block of scale_gradient, a warp each, and the columns that it takes at a time."""


@triton.jit
def scale_gradient(
    of_scaled, weight, qkv_scale, grad_weight, grad_qkv_scale, rows, columns,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write grad_weight = qkv_scale of_scaled, add sum(of_scaled * weight) to grad_qkv_scale.

    of_scaled, weight, grad_weight (rows, columns); qkv_scale, grad_qkv_scale (1,) float32. Grid ceil(rows /
    ROWS).
    """
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    scale = tl.load(qkv_scale)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for c0 in range(0, columns, COLUMNS):
        column = c0 + tl.arange(0, COLUMNS)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        at = row[:, None] * columns + column[None, :]
        gradient = tl.load(of_scaled + at, mask=mask, other=0.0).to(tl.float32)
        sums += gradient * tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(grad_weight + at, gradient * scale, mask=mask)
    tl.atomic_add(grad_qkv_scale, tl.sum(tl.sum(sums, 1), 0), sem="relaxed")


def scale_launch(
    of_scaled: Any, weight: Any, qkv_scale: Any, grad_weight: Any, grad_qkv_scale: Any
) -> Launch:
    """Return the launch that ends a backward pass; grad_qkv_scale holds 0 before it."""
    rows, columns = weight.shape
    args = (of_scaled, weight, qkv_scale, grad_weight, grad_qkv_scale, rows, columns)
    constants = {"ROWS": ROWS, "COLUMNS": COLUMNS}
    return Launch(scale_gradient, (triton.cdiv(rows, ROWS),), args, constants, ROWS)


def launches(options: Any, arrays: Arrays, num_warps: int = 8, num_stages: int = 3) -> list[Launch]:
    """Return the four launches. num_warps, num_stages: of the products; the others have 8 warps."""
    width = arrays["weight8"].shape[0]
    by_row = arrays.make("by_row", (options.tokens, width), arrays["x8"].dtype)
    by_column = arrays.make("by_column", (width, options.tokens), arrays["x8"].dtype)
    grad_x, grad_weight = arrays.output("grad_x"), arrays.output("grad_weight")
    grad_qkv_scale = arrays.output("grad_qkv_scale", fill=0)
    of_scaled = arrays.make("of_scaled", tuple(grad_weight.shape), arrays.type_of("grad_weight"))
    unit, how = arrays["grad_scale"], (options.accumulation, num_warps, num_stages)
    return [
        rows_launch(arrays, by_row, by_column, options),
        product_launch(by_column, arrays["x8_t"], of_scaled, unit, arrays["x_scale"], *how),
        product_launch(by_row, arrays["weight8_t"], grad_x, unit, arrays["weight_scale"], *how),
        scale_launch(of_scaled, arrays["weight"], arrays["qkv_scale"], grad_weight, grad_qkv_scale),
    ]
