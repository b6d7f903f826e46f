"""Tiled products of attention's matrices in Triton, for the kernels that keep P (N x Nk) in global memory.

Device functions: a block makes one tile of 32 x 32 results, in steps of 32, as kernels_sim's standard
attention does. Operands may be of 16 or 32 bits; sums are float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

TILE = 32
"""Rows and columns of a tile, and the depth of a step."""
PRODUCT_WARPS, ROW_THREADS = 8, 128
"""Warps of a block of a product; columns that a block of a launch over rows takes at a time."""


@triton.jit
def rows_by_rows(A, B, row0, col0, n_rows, n_cols, D: tl.constexpr, TILE: tl.constexpr):
    """Return a tile of A B^T: A (n_rows, D), B (n_cols, D)."""
    rows = row0 + tl.arange(0, TILE)
    cols = col0 + tl.arange(0, TILE)
    acc = tl.zeros([TILE, TILE], tl.float32)
    for k0 in range(0, D, TILE):
        k = k0 + tl.arange(0, TILE)
        a = tl.load(A + rows[:, None] * D + k[None, :], mask=(rows < n_rows)[:, None] & (k < D)[None, :],
                    other=0.0)
        b = tl.load(B + cols[None, :] * D + k[:, None], mask=(cols < n_cols)[None, :] & (k < D)[:, None],
                    other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    return acc


@triton.jit
def weighted_rows(W, B, row0, col0, n_rows, n_keys, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Return a tile of W B: W (n_rows, n_keys), B (n_keys, WIDTH); offsets in W are 64-bit."""
    rows = row0 + tl.arange(0, TILE)
    cols = col0 + tl.arange(0, TILE)
    acc = tl.zeros([TILE, TILE], tl.float32)
    for j0 in range(0, n_keys, TILE):
        j = j0 + tl.arange(0, TILE)
        # Its columns first: Triton gives accesses of one shape and order one layout, and rows of W, which
        # need not begin at a multiple of 16 bytes, would be asked for four times with that of B.
        w = tl.load(W + rows.to(tl.int64)[None, :] * n_keys + j[:, None],
                    mask=(rows < n_rows)[None, :] & (j < n_keys)[:, None], other=0.0)
        b = tl.load(B + j[:, None] * WIDTH + cols[None, :],
                    mask=(j < n_keys)[:, None] & (cols < WIDTH)[None, :], other=0.0)
        acc += tl.dot(tl.trans(w), b, input_precision="ieee")
    return acc


@triton.jit
def weighted_keys(W, B, key0, col0, n_rows, n_keys, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """Return a tile of W^T B: W (n_rows, n_keys), B (n_rows, WIDTH); offsets in W are 64-bit."""
    keys = key0 + tl.arange(0, TILE)
    cols = col0 + tl.arange(0, TILE)
    acc = tl.zeros([TILE, TILE], tl.float32)
    for i0 in range(0, n_rows, TILE):
        i = i0 + tl.arange(0, TILE)
        w = tl.load(W + i.to(tl.int64)[None, :] * n_keys + keys[:, None],
                    mask=(i < n_rows)[None, :] & (keys < n_keys)[:, None], other=0.0)
        b = tl.load(B + i[:, None] * WIDTH + cols[None, :],
                    mask=(i < n_rows)[:, None] & (cols < WIDTH)[None, :], other=0.0)
        acc += tl.dot(w, b, input_precision="ieee")
    return acc


@triton.jit
def store_tile(OUT, tile, row0, col0, n_rows, n_cols, TILE: tl.constexpr):
    """Store a tile of OUT (n_rows, n_cols) in its type; offsets are 64-bit."""
    rows = row0 + tl.arange(0, TILE)
    cols = col0 + tl.arange(0, TILE)
    at = rows.to(tl.int64)[:, None] * n_cols + cols[None, :]
    tl.store(OUT + at, tile, mask=(rows < n_rows)[:, None] & (cols < n_cols)[None, :])
