"""RMS norm and rotary embedding of the heads of Q and K in Triton, in one pass.

The twin of kernels_sim/qk_norm_rope.py: a block takes 4 rows, a head of a token each; neighbours turn in
pairs, exchanged in registers; options, layouts and rounding are the same.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.launching import Launch

ROWS = 4
"""Rows of a block."""


@triton.jit
def swap_neighbours(x, R: tl.constexpr, C: tl.constexpr):
    """Return x (R, C) with the two elements of each pair exchanged."""
    even, odd = tl.split(tl.reshape(x, (R, C // 2, 2)))
    return tl.reshape(tl.join(odd, even), (R, C))


@triton.jit
def rstd_of(x, eps, D: tl.constexpr):
    """Return 1 / sqrt(mean(x^2) + eps) of rows of D elements, rounded as IEEE has it."""
    return tl.div_rn(1.0, tl.sqrt_rn(tl.sum(x * x, 1) * (1.0 / D) + eps))


@triton.jit
def qk_norm_rope(
    qk, factor1, factor2, out_q, out_k, rows, heads, qk_stride, eps,
    D: tl.constexpr, BD: tl.constexpr, ROTARY_DIM: tl.constexpr, ROWS: tl.constexpr,
    PAIRED: tl.constexpr, KEY_OFFSET: tl.constexpr,
):  # fmt: skip
    """Write ROWS rows of out_q and out_k.

    qk: tokens of qk_stride elements, Q's heads, K's and what follows; factor1, factor2 (tokens, D), paired
    (tokens, 2 D); out_q, out_k (tokens, heads, D), paired (2 tokens, heads / 2, D). Grid ceil(rows / ROWS) of
    rows = 2 tokens heads.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BD)
    mask = (row < rows)[:, None] & (column < D)[None, :]
    token = row // (2 * heads)
    input_head = row % (2 * heads)
    is_key = input_head >= heads
    head = input_head % heads
    out_row = token * heads + head
    factor0 = token * D
    if PAIRED:
        out_row = (2 * token + head // (heads // 2)) * (heads // 2) + head % (heads // 2)
        factor0 = token * 2 * D + head % 2 * D

    at = token.to(tl.int64) * qk_stride + input_head * D
    x = tl.load(qk + at[:, None] + column[None, :], mask=mask, other=0.0).to(tl.float32)
    normal = x * rstd_of(x, eps, D)[:, None]
    f1 = tl.load(factor1 + factor0[:, None] + column[None, :], mask=mask, other=0.0).to(tl.float32)
    f2 = tl.load(factor2 + factor0[:, None] + column[None, :], mask=mask, other=0.0).to(tl.float32)
    y = f1 * normal + f2 * swap_neighbours(normal, ROWS, BD)
    if KEY_OFFSET:
        shifted = is_key & (token > 0)
        before = tl.load(qk + (at - qk_stride)[:, None] + column[None, :], mask=mask & shifted[:, None],
                         other=0.0).to(tl.float32)
        y = tl.where(shifted[:, None] & (column >= ROTARY_DIM)[None, :],
                     before * rstd_of(before, eps, D)[:, None], y)

    out = out_row.to(tl.int64)[:, None] * D + column[None, :]
    tl.store(out_q + out, y, mask=mask & (input_head < heads)[:, None])
    tl.store(out_k + out, y, mask=mask & is_key[:, None])


def norm_launch(qk: Any, factors: tuple[Any, Any], out: tuple[Any, Any], options: Any, num_warps: int
                ) -> Launch:  # fmt: skip
    """Return the launch that makes Q and K of qk (tokens, its stride), with options as qk_norm_rope has."""
    rows, d = 2 * options.tokens * options.heads, options.d
    constants = {
        "D": d, "BD": triton.next_power_of_2(d), "ROWS": ROWS, "PAIRED": options.paired,
        "ROTARY_DIM": d if options.rotary_dim is None else options.rotary_dim,
        "KEY_OFFSET": options.key_offset,
    }  # fmt: skip
    args = (qk, *factors, *out, rows, options.heads, qk.stride(0), options.eps)
    return Launch(qk_norm_rope, (triton.cdiv(rows, ROWS),), args, constants, num_warps)


def launches(options: Any, arrays: Arrays, num_warps: int = ROWS) -> list[Launch]:
    """Return the one launch."""
    factors = arrays["factor1"], arrays["factor2"]
    out = arrays.output("Q"), arrays.output("K")
    return [norm_launch(arrays["qk"], factors, out, options, num_warps)]
