"""Standard attention's backward pass in Triton, in five launches with P, dP and dS (N x Nk) in global memory.

The twin of kernels_sim/standard_attention_backward.py: dV = P^T dO, dP = dO V^T, dS = scale P (dP - rowsum(P
dP)), dQ = dS K, dK = dS^T Q, with the same tiles of 32 x 32, grids and passes.
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
    weighted_keys,
    weighted_rows,
)


@triton.jit
def value_gradient(P, dO, dV, N, Nk, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Write dV = P^T dO: P (heads, N, Nk), dO (heads, N, WIDTH), dV (heads, Nk, WIDTH). Grid (ceil(WIDTH /
    TILE), ceil(Nk / TILE), heads).
    """
    _of_keys(P, dO, dV, N, Nk, WIDTH, TILE)


@triton.jit
def weight_gradient(dO, V, dP, N, Nk, DV: tl.constexpr, TILE: tl.constexpr):
    """Write dP = dO V^T: dO (heads, N, DV), V (heads, Nk, DV), dP (heads, N, Nk) float32. Grid (ceil(Nk /
    TILE), ceil(N / TILE), heads).
    """
    head = tl.program_id(2).to(tl.int64)
    col0 = tl.program_id(0) * TILE
    row0 = tl.program_id(1) * TILE
    dp = rows_by_rows(dO + head * N * DV, V + head * Nk * DV, row0, col0, N, Nk, DV, TILE)
    store_tile(dP + head * N * Nk, dp, row0, col0, N, Nk, TILE)


@triton.jit
def score_gradient(P, dP, dS, N, Nk, scale, q_start, CAUSAL: tl.constexpr, BLOCK: tl.constexpr):
    """Write dS of one row, in two passes: P, dP, dS (heads, N, Nk). Grid (N, heads)."""
    position = q_start + tl.program_id(0)
    row = tl.program_id(1).to(tl.int64) * N + tl.program_id(0)
    column = tl.arange(0, BLOCK)
    P += row * Nk
    dP += row * Nk
    dS += row * Nk
    products = tl.zeros([BLOCK], tl.float32)
    for j in range(0, Nk, BLOCK):
        mask = j + column < Nk
        gradient = tl.load(dP + j + column, mask=mask, other=0.0)
        if CAUSAL:
            gradient = tl.where(j + column <= position, gradient, 0.0)
        products += tl.load(P + j + column, mask=mask, other=0.0).to(tl.float32) * gradient
    total = tl.sum(products, 0)
    for j in range(0, Nk, BLOCK):
        mask = j + column < Nk
        gradient = tl.load(dP + j + column, mask=mask, other=0.0) - total
        gradient = tl.load(P + j + column, mask=mask, other=0.0).to(tl.float32) * gradient * scale
        if CAUSAL:
            gradient = tl.where(j + column <= position, gradient, 0.0)
        tl.store(dS + j + column, gradient, mask=mask)


@triton.jit
def query_gradient(dS, K, dQ, N, Nk, D: tl.constexpr, TILE: tl.constexpr):
    """Write dQ = dS K: dS (heads, N, Nk), K (heads, Nk, D), dQ (heads, N, D). Grid (ceil(D / TILE), ceil(N /
    TILE), heads).
    """
    head = tl.program_id(2).to(tl.int64)
    col0 = tl.program_id(0) * TILE
    row0 = tl.program_id(1) * TILE
    dq = weighted_rows(dS + head * N * Nk, K + head * Nk * D, row0, col0, N, Nk, D, TILE)
    store_tile(dQ + head * N * D, dq, row0, col0, N, D, TILE)


@triton.jit
def key_gradient(dS, Q, dK, N, Nk, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Write dK = dS^T Q: dS (heads, N, Nk), Q (heads, N, WIDTH), dK (heads, Nk, WIDTH). Grid as dV's."""
    _of_keys(dS, Q, dK, N, Nk, WIDTH, TILE)


@triton.jit
def _of_keys(W, ROWS, KEYS, N, Nk, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Write a tile of KEYS = W^T ROWS."""
    head = tl.program_id(2).to(tl.int64)
    col0 = tl.program_id(0) * TILE
    key0 = tl.program_id(1) * TILE
    tile = weighted_keys(W + head * N * Nk, ROWS + head * N * WIDTH, key0, col0, N, Nk, WIDTH, TILE)
    store_tile(KEYS + head * Nk * WIDTH, tile, key0, col0, Nk, WIDTH, TILE)


def launches(
    options: Any, arrays: Arrays, num_warps: int = PRODUCT_WARPS, num_stages: int = 2
) -> list[Launch]:
    """Return the five launches. num_warps, num_stages: of the products; a row's launch has 4 warps."""
    size = sizes_of(options)
    H, N, Nk = size.heads * size.batch, size.N, size.Nk
    P, dO, Q, K, V = (arrays[name] for name in ("P", "dO", "Q", "K", "V"))
    dQ, dK, dV = (arrays.output(name) for name in ("dQ", "dK", "dV"))
    dP, dS = arrays.make("dP", (H, N, Nk)), arrays.make("dS", (H, N, Nk), arrays.type_of("dQ"))
    rows, keys = triton.cdiv(N, TILE), max(1, triton.cdiv(Nk, TILE))
    wide, narrow = triton.cdiv(size.dv, TILE), triton.cdiv(size.d, TILE)
    how = num_warps, num_stages
    of_row = {"CAUSAL": size.causal, "BLOCK": ROW_THREADS}
    return [
        Launch(value_gradient, (wide, keys, H), (P, dO, dV, N, Nk), {"WIDTH": size.dv, "TILE": TILE}, *how),
        Launch(weight_gradient, (keys, rows, H), (dO, V, dP, N, Nk), {"DV": size.dv, "TILE": TILE}, *how),
        Launch(score_gradient, (N, H), (P, dP, dS, N, Nk, size.scale, size.q_start), of_row,
               ROW_THREADS // 32),
        Launch(query_gradient, (narrow, rows, H), (dS, K, dQ, N, Nk), {"D": size.d, "TILE": TILE}, *how),
        Launch(key_gradient, (narrow, keys, H), (dS, Q, dK, N, Nk), {"WIDTH": size.d, "TILE": TILE}, *how),
    ]  # fmt: skip
