"""Take the gradients of Q, K and V back through rotation and norm in Triton, as 8-bit floats, twice.

The twin of kernels_sim/qkv_norm_rope_fp8_backward.py: a block takes one head of 32 tokens and writes the
packed gradient by row and transposed. The roundings are those of the simulated kernel (to the gradients'
type, bfloat16; divided by the scale; to e4m3); only the sums over a row go in another order, so that a value
next to the middle of two bytes can become the other one.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.launching import Launch
from kernels_real.triton_kernels.qk_norm_rope import rstd_of, swap_neighbours

TOKENS, WARPS = 32, 8
"""Tokens of a block: 32 bytes of a feature are a sector of the transposed layout. Warps of a block."""


@triton.jit
def store_twice(
    value, grad_row, grad_transposed, token, tokens, feature, column, width: tl.constexpr,
    QKV_DIM: tl.constexpr,
):  # fmt: skip
    """Store value (tokens of the block, columns) as features `feature` + column, by row and transposed."""
    # Columns first in both: in the shape of the loads, stores of 16 bytes would make Triton give a thread 16
    # elements there too, 32 bytes, and ask for each of their sectors twice.
    byte = tl.trans(value.to(grad_row.dtype.element_ty))
    mask = (column < width)[:, None] & (token < tokens)[None, :]
    at = (feature + column)[:, None] + token.to(tl.int64)[None, :] * QKV_DIM
    tl.store(grad_row + at, byte, mask=mask)
    at = (feature + column).to(tl.int64)[:, None] * tokens + token[None, :]
    tl.store(grad_transposed + at, byte, mask=mask)


@triton.jit
def qkv_norm_rope_fp8_backward(
    grad_q, grad_k, grad_v, qk, factor1, factor2, grad_row, grad_transposed, grad_scale, tokens, qk_stride,
    eps, HEADS: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, V_DIM: tl.constexpr, BV: tl.constexpr,
    ROTARY_DIM: tl.constexpr, PAIRED: tl.constexpr, KEY_OFFSET: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Write the packed gradient of one head of TOKENS tokens.

    grad_q, grad_k (tokens, HEADS, D), paired (2 tokens, HEADS / 2, D); grad_v (tokens, HEADS, V_DIM); qk:
    tokens of qk_stride elements, Q's heads, K's and what follows; factor1, factor2 (tokens, D), paired
    (tokens, 2 D). grad_row (tokens, qkv_dim), grad_transposed (qkv_dim, tokens), qkv_dim = HEADS (2 D +
    V_DIM). grad_scale (1,) float32. Grid (HEADS, ceil(tokens / TOKENS)).
    """
    QKV_DIM: tl.constexpr = HEADS * (2 * D + V_DIM)
    head = tl.program_id(0)
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    column = tl.arange(0, BD)
    mask = (token < tokens)[:, None] & (column < D)[None, :]
    out_row = token * HEADS + head
    factor0 = token * D
    if PAIRED:
        out_row = (2 * token + head // (HEADS // 2)) * (HEADS // 2) + head % (HEADS // 2)
        factor0 = token * 2 * D + head % 2 * D
    f1 = tl.load(factor1 + factor0[:, None] + column[None, :], mask=mask, other=0.0).to(tl.float32)
    f2 = tl.load(factor2 + factor0[:, None] + column[None, :], mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(grad_scale)
    out = out_row.to(tl.int64)[:, None] * D + column[None, :]

    for kind in tl.static_range(2):
        feature = (head + kind * HEADS) * D
        at = token.to(tl.int64)[:, None] * qk_stride + feature + column[None, :]
        x = tl.load(qk + at, mask=mask, other=0.0).to(tl.float32)
        grad = grad_k if kind == 1 else grad_q
        own = tl.load(grad + out, mask=mask, other=0.0).to(tl.float32)
        g = tl.fma(f1, own, swap_neighbours(f2 * own, TOKENS, BD))
        if KEY_OFFSET and kind == 1:
            # The elements that do not turn were the next token's; token 0 kept its own too.
            is_last = token + 1 >= tokens
            still = (column >= ROTARY_DIM)[None, :]
            later = tl.load(grad_k + out + HEADS * D, mask=mask & still & (~is_last)[:, None], other=0.0)
            later = later.to(tl.float32)
            later = tl.where((token == 0)[:, None], g + later, later)
            g = tl.where(still, later, g)
        rstd = rstd_of(x, eps, D)
        normal = x * rstd[:, None]
        correction = tl.sum(g * normal, 1) * (1.0 / D)
        dx = rstd[:, None] * (g - normal * correction[:, None])
        value = tl.div_rn(dx.to(grad_v.dtype.element_ty).to(tl.float32), scale)
        store_twice(value, grad_row, grad_transposed, token, tokens, feature, column, D, QKV_DIM)

    column = tl.arange(0, BV)
    at = (token.to(tl.int64) * HEADS + head)[:, None] * V_DIM + column[None, :]
    own = tl.load(grad_v + at, mask=(token < tokens)[:, None] & (column < V_DIM)[None, :], other=0.0)
    feature = 2 * HEADS * D + head * V_DIM
    value = tl.div_rn(own.to(tl.float32), scale)
    store_twice(value, grad_row, grad_transposed, token, tokens, feature, column, V_DIM, QKV_DIM)


def rows_launch(tensors: Any, by_row: Any, by_column: Any, options: Any) -> Launch:
    """Return the launch that writes both layouts; tensors: grad_q, grad_k, grad_v, qk, factor1, factor2 and
    grad_scale.
    """
    tokens, heads, d, v_dim = options.tokens, options.heads, options.d, tensors["grad_v"].shape[2]
    names = ("grad_q", "grad_k", "grad_v", "qk", "factor1", "factor2")
    args = (*(tensors[name] for name in names), by_row, by_column, tensors["grad_scale"], tokens,
            tensors["qk"].stride(0), options.eps)
    constants = {
        "HEADS": heads, "D": d, "BD": triton.next_power_of_2(d), "V_DIM": v_dim,
        "BV": triton.next_power_of_2(v_dim), "PAIRED": options.paired, "KEY_OFFSET": options.key_offset,
        "ROTARY_DIM": d if options.rotary_dim is None else options.rotary_dim, "TOKENS": TOKENS,
    }  # fmt: skip
    return Launch(qkv_norm_rope_fp8_backward, (heads, triton.cdiv(tokens, TOKENS)), args, constants, WARPS)


def launches(options: Any, arrays: Arrays) -> list[Launch]:
    """Return the one launch, of 8 warps."""
    by_row, by_column = arrays.output("grad_row"), arrays.output("grad_transposed")
    return [rows_launch(arrays, by_row, by_column, options)]
