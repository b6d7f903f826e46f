"""Standard attention in Triton, in three launches with S and P (N x Nk) in global memory.

The twin of kernels_sim/standard_attention.py: the same tiles of 32 x 32, grids and passes. Triton overlaps
the steps of a product (num_stages) where the simulated kernel loads, waits and multiplies.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.attention import sizes_of
from kernels_real.triton_kernels.launching import Launch
from kernels_real.triton_kernels.tiled_products import (
    PRODUCT_WARPS,
    ROW_THREADS,
    TILE,
    rows_by_rows,
    store_tile,
    weighted_rows,
)


@triton.jit
def scores(Q, K, S, N, Nk, scale, q_start, D: tl.constexpr, CAUSAL: tl.constexpr, TILE: tl.constexpr):
    """Write S = scale Q K^T, -inf where a row does not see the key: Q (heads, N, D), K (heads, Nk, D), S
    (heads, N, Nk) float32. Grid (ceil(Nk / TILE), ceil(N / TILE), heads).
    """
    head = tl.program_id(2).to(tl.int64)
    col0 = tl.program_id(0) * TILE
    row0 = tl.program_id(1) * TILE
    s = rows_by_rows(Q + head * N * D, K + head * Nk * D, row0, col0, N, Nk, D, TILE) * scale
    if CAUSAL:
        rows = row0 + tl.arange(0, TILE)
        cols = col0 + tl.arange(0, TILE)
        s = tl.where(cols[None, :] <= q_start + rows[:, None], s, float("-inf"))
    store_tile(S + head * N * Nk, s, row0, col0, N, Nk, TILE)


@triton.jit
def softmax(S, P, L, N, Nk, BLOCK: tl.constexpr):
    """Write P and L of one row of S, in three passes: S, P (heads, N, Nk), L (heads, N). Grid (N, heads)."""
    row = tl.program_id(1).to(tl.int64) * N + tl.program_id(0)
    column = tl.arange(0, BLOCK)
    S += row * Nk
    P += row * Nk
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    for j in range(0, Nk, BLOCK):
        m = tl.maximum(m, tl.load(S + j + column, mask=j + column < Nk, other=float("-inf")))
    top = tl.max(m, 0)
    # A row that sees no key has top = -inf, and -inf - -inf is NaN: measure from 0.
    shift = tl.where(top == float("-inf"), 0.0, top)
    weights = tl.zeros([BLOCK], tl.float32)
    for j in range(0, Nk, BLOCK):
        weights += tl.exp(tl.load(S + j + column, mask=j + column < Nk, other=float("-inf")) - shift)
    total = tl.sum(weights, 0)
    divisor = tl.where(total == 0.0, 1.0, total)
    for j in range(0, Nk, BLOCK):
        mask = j + column < Nk
        weight = tl.exp(tl.load(S + j + column, mask=mask, other=float("-inf")) - shift)
        tl.store(P + j + column, weight / divisor, mask=mask)
    tl.store(L + row, top + tl.log(divisor))


@triton.jit
def output(P, V, O, N, Nk, DV: tl.constexpr, TILE: tl.constexpr):
    """Write O = P V: P (heads, N, Nk), V (heads, Nk, DV), O (heads, N, DV). Grid (ceil(DV / TILE), ceil(N /
    TILE), heads).
    """
    head = tl.program_id(2).to(tl.int64)
    col0 = tl.program_id(0) * TILE
    row0 = tl.program_id(1) * TILE
    o = weighted_rows(P + head * N * Nk, V + head * Nk * DV, row0, col0, N, Nk, DV, TILE)
    store_tile(O + head * N * DV, o, row0, col0, N, DV, TILE)


def launches(
    options: Any, arrays: Arrays, num_warps: int = PRODUCT_WARPS, num_stages: int = 2
) -> list[Launch]:
    """Return the three launches. num_warps, num_stages: of the products; a row's launch has 4 warps."""
    size = sizes_of(options)
    H, N, Nk = size.heads * size.batch, size.N, size.Nk
    S = arrays.make("S", (H, N, Nk))
    O, L = arrays.output("O"), arrays.output("L")
    P = arrays.make("P", (H, N, Nk), arrays.type_of("O"))
    rows, keys, columns = triton.cdiv(N, TILE), max(1, triton.cdiv(Nk, TILE)), triton.cdiv(size.dv, TILE)
    how = num_warps, num_stages
    return [
        Launch(scores, (keys, rows, H),
               (arrays["Q"], arrays["K"], S, N, Nk, size.scale, size.q_start),
               {"D": size.d, "CAUSAL": size.causal, "TILE": TILE}, *how),
        Launch(softmax, (N, H), (S, P, L, N, Nk), {"BLOCK": ROW_THREADS}, ROW_THREADS // 32),
        Launch(output, (columns, rows, H), (P, arrays["V"], O, N, Nk), {"DV": size.dv, "TILE": TILE}, *how),
    ]  # fmt: skip
