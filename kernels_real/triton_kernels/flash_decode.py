"""Decoding attention in Triton: few query rows, the keys split over blocks, states merged by a second launch.

The twin of kernels_sim/flash_decode.py. split: a block takes up to 8 query rows that share a K/V head, and
one split of the keys, 32 at a time; it leaves the state (m, l, o) of each row. combine: 4 rows a block merge
their states and divide once. Rows fill a tile of 16, as tl.dot has; the empty ones are neither read nor
written.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.attention import sizes_of
from kernels_real.triton_kernels.launching import Launch
from kernels_real.triton_kernels.per_row import store_by_warp

MOST_ROWS, TILE_ROWS, KEYS = 8, 16, 32
"""Query rows of a block of split, rows of its tile, keys of a tile."""
COMBINE_ROWS = 4
MOST_STATES = 32
"""Splits that combine takes at a time, fewer where o is wide: a tile of rows x splits x columns is held."""
TILE_ELEMENTS = 16384


@triton.jit
def split_bound(n_keys, s, splits):
    """Return round(n_keys s / splits) with halves to even: where split s begins and split s - 1 ends."""
    product = s.to(tl.int64) * n_keys
    whole = product // splits
    rest = 2 * (product - whole * splits)
    up = (rest > splits) | ((rest == splits) & (whole % 2 == 1))
    return (whole + up.to(tl.int64)).to(tl.int32)


@triton.jit
def split(
    Q, K, V, m, l, o, rows, n_keys, scale,
    D: tl.constexpr, DV: tl.constexpr, BD: tl.constexpr, BDV: tl.constexpr, ROWS: tl.constexpr,
    TILE_ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Write the states of ROWS rows over one split: Q (kv_heads, rows, D), K (kv_heads, n_keys, D), V
    (kv_heads, n_keys, DV); m, l (kv_heads rows, splits), o (kv_heads rows, splits, DV), float32. Grid
    (splits, ceil(rows / ROWS) kv_heads, batch).
    """
    s = tl.program_id(0)
    splits = tl.num_programs(0)
    row_blocks = (rows + ROWS - 1) // ROWS
    kv_head = tl.program_id(1) // row_blocks + tl.num_programs(1) // row_blocks * tl.program_id(2)
    kv_head = kv_head.to(tl.int64)
    slot = tl.arange(0, TILE_ROWS)
    row = tl.program_id(1) % row_blocks * ROWS + slot
    inside = (slot < ROWS) & (row < rows)
    own = tl.arange(0, KEYS)
    column = tl.arange(0, BD)
    v_column = tl.arange(0, BDV)
    first = split_bound(n_keys, s, splits)
    end = split_bound(n_keys, s + 1, splits)

    q = tl.load(Q + (kv_head * rows + row)[:, None] * D + column[None, :],
                mask=inside[:, None] & (column < D)[None, :], other=0.0)
    K += kv_head * n_keys * D
    V += kv_head * n_keys * DV
    top = tl.full([TILE_ROWS], float("-inf"), tl.float32)
    total = tl.zeros([TILE_ROWS], tl.float32)
    acc = tl.zeros([TILE_ROWS, BDV], tl.float32)
    for j0 in range(first, end, KEYS):
        keys = j0 + own
        there = keys < end
        k = tl.load(K + keys[None, :] * D + column[:, None], mask=there[None, :] & (column < D)[:, None],
                    other=0.0)
        score = tl.where(there[None, :], tl.dot(q, k, input_precision="ieee") * scale, float("-inf"))
        new_top = tl.maximum(top, tl.max(score, 1))
        # -inf - -inf is NaN: scores that are all -inf measure from 0.
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        alpha = tl.exp(top - shift)
        p = tl.exp(score - shift[:, None])
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(V + keys[:, None] * DV + v_column[None, :],
                    mask=there[:, None] & (v_column < DV)[None, :], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        top = new_top

    at = (kv_head * rows + row) * splits + s
    store_by_warp(m, at, top, inside, TILE_ROWS)
    store_by_warp(l, at, total, inside, TILE_ROWS)
    tl.store(o + at[:, None] * DV + v_column[None, :], acc, mask=inside[:, None] & (v_column < DV)[None, :])


@triton.jit
def combine(
    m, l, o, O, L, rows, splits,
    DV: tl.constexpr, BDV: tl.constexpr, ROWS: tl.constexpr, STATES: tl.constexpr,
):  # fmt: skip
    """Merge the states of ROWS rows: m, l (rows, splits), o (rows, splits, DV), L (rows,), float32; O (rows,
    DV). Grid ceil(rows / ROWS). A state with l = 0 is ignored whatever its o holds.
    """
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = row < rows
    state = tl.arange(0, STATES)
    column = tl.arange(0, BDV)
    tops = tl.full([ROWS, STATES], float("-inf"), tl.float32)
    for s0 in range(0, splits, STATES):
        at = row[:, None] * splits + s0 + state[None, :]
        mask = inside[:, None] & (s0 + state < splits)[None, :]
        tops = tl.maximum(tops, tl.load(m + at, mask=mask, other=float("-inf")))
    top = tl.max(tops, 1)
    shift = tl.where(top == float("-inf"), 0.0, top)
    totals = tl.zeros([ROWS, STATES], tl.float32)
    acc = tl.zeros([ROWS, BDV], tl.float32)
    for s0 in range(0, splits, STATES):
        at = row[:, None] * splits + s0 + state[None, :]
        mask = inside[:, None] & (s0 + state < splits)[None, :]
        own = tl.load(l + at, mask=mask, other=0.0)
        weight = tl.exp(tl.load(m + at, mask=mask, other=float("-inf")) - shift[:, None])
        totals += weight * own
        part = tl.load(o + at[:, :, None] * DV + column[None, None, :],
                       mask=mask[:, :, None] & (column < DV)[None, None, :], other=0.0)
        acc += tl.sum(tl.where(own[:, :, None] == 0.0, 0.0, weight[:, :, None] * part), 1)
    total = tl.sum(totals, 1)
    # No key in any split: top = -inf, total = 0 and acc = 0 give L = -inf and O = 0.
    divisor = tl.where(total == 0.0, 1.0, total)
    store_by_warp(L, row, top + tl.log(divisor), inside, ROWS)
    tl.store(O + row[:, None] * DV + column[None, :], acc / divisor[:, None],
             mask=inside[:, None] & (column < DV)[None, :])


def launches(options: Any, arrays: Arrays, num_warps: int = 4, num_stages: int = 2) -> list[Launch]:
    """Return the two launches. num_warps, num_stages: of split; combine has 4 warps."""
    size = sizes_of(options)
    rows, states = size.group * size.N, size.kv_heads * size.batch * size.group * size.N
    m, l, o, O, L = (arrays.output(name) for name in "mloOL")
    tile_rows = min(rows, MOST_ROWS)
    grid = options.splits, triton.cdiv(rows, tile_rows) * size.kv_heads, size.batch
    columns = {"DV": size.dv, "BDV": size.columns["BDV"]}
    taken = max(1, min(MOST_STATES, TILE_ELEMENTS // (COMBINE_ROWS * columns["BDV"])))
    return [
        Launch(split, grid,
               (arrays["Q"], arrays["K"], arrays["V"], m, l, o, rows, size.Nk, size.scale),
               {**size.columns, "ROWS": tile_rows, "TILE_ROWS": TILE_ROWS, "KEYS": KEYS}, num_warps,
               num_stages),
        Launch(combine, (triton.cdiv(states, COMBINE_ROWS),), (m, l, o, O, L, states, options.splits),
               {**columns, "ROWS": COMBINE_ROWS, "STATES": taken}),
    ]  # fmt: skip
