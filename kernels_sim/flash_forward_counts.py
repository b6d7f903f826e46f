"""Closed forms of flash_forward: what each counter must be, from the shape and the tile alone.

What it models: requests, sectors, words of shared memory, barriers and float instructions over all heads, and
DRAM where it follows. What it leaves out: hits of L1 and L2. Checked by the same metrics as
kernels_sim/attention.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache

import numpy as np

from kernels_sim.attention import (
    DIV,
    EXP,
    LOG_OF_KEPT,
    Access,
    Shape,
    arithmetic,
    block_range,
    block_rows,
    dram_of_bytes,
    keys_needed,
    linear,
    requests_of,
    tile_keys,
    tile_visits,
    tiles_visited,
)
from kernels_sim.formulas import ceil_div, shared

STRIP = 8
"""Keys that a thread scores between two rescalings of its accumulator."""


def closed_form(shape: Shape, Br: int, Bc: int, stats: bool = False, size: int = 4) -> dict[str, int]:
    """Return what the counters must be, by counter path; every number follows from the shape alone.

    size: bytes of an element of Q, K, V and O.

    Cache figures are given where they follow too: a problem that fits L2 reads each sector from DRAM once
    (cold caches) and leaves its output dirty; other shapes have no hierarchy.dram_read_bytes and
    hierarchy.dirty_bytes here.
    """
    q, o = (_staged(shape, Br, Bc, width, size) for width in (shape.d, shape.dv))
    stores = o + _lse(shape, Br) * (1 + stats)
    forms = (q + _tiles(shape, Br, Bc, size)).paths("global_load") | stores.paths("global_store")
    forms |= _shared(shape, Br, Bc, q, o) | _arithmetic(shape, Br)
    visited = tiles_visited(shape, Br, Bc)
    barriers = 4 * ceil_div(Br, Bc) * len(visited) + 2 * int(visited.sum())
    forms["barriers"] = shape.heads * barriers * ceil_div(Br, 32)
    forms["hierarchy.l2_write"] = stores.sectors
    return forms | _dram(shape, Br, Bc, stats, size)


def _passes(shape: Shape, Br: int, rows: int) -> list[tuple[int, int, int]]:
    """List (first row in its block, rows, first row over all heads) of the passes over all blocks' rows."""
    return [
        (r0, int(min(rows, n - r0)), h * shape.N + i * Br + r0)
        for h in range(shape.heads)
        for i, n in enumerate(block_rows(shape, Br))
        for r0 in range(0, int(n), rows)
    ]


def _staged(shape: Shape, Br: int, Bc: int, width: int, size: int) -> Access:
    """Count the global accesses of Q, or of O: each block's rows once, contiguous, Bc rows a pass."""
    passes = _passes(shape, Br, Bc)
    return sum((linear(row * width, n * width, Br, size) for _, n, row in passes), Access())


def _staging(shape: Shape, Br: int, Bc: int, width: int) -> tuple[int, int, int]:
    """Count the shared accesses of Q's way through the K tile, or of O's through the V tile.

    Returns the wavefronts on the side of global memory, 32 neighbours a request, and the requests and
    wavefronts by which threads take or leave their rows. The words' places in the rotated tile decide them.
    """
    by_run = requests = by_row = 0
    for (r0, n), times in Counter((r0, n) for r0, n, _ in _passes(shape, Br, Bc)).items():
        by_run += times * _run_wavefronts(n * width, width, Br)
        for warp in range(r0 // 32 * 32, r0 + n, 32):
            first, last = max(warp, r0) - r0, min(warp + 32, r0 + n) - r0
            requests += times * width
            by_row += times * _row_wavefronts(first, last, width)
    return by_run, requests, by_row


def _bank_passes(places: Iterable[tuple[int, int]], d: int) -> int:
    """Return the wavefronts of one request to (row, column) places of the tile: most words in one bank."""
    return max(Counter((row * d + (column + row) % d) % 32 for row, column in places).values())


@cache
def _run_wavefronts(count: int, d: int, threads: int) -> int:
    """Count the wavefronts of a block's access to `count` consecutive elements from row 0."""
    runs = requests_of(count, threads)
    return sum(_bank_passes((divmod(e, d) for e in range(first, first + n)), d) for first, n in runs)


@cache
def _row_wavefronts(first: int, last: int, d: int) -> int:
    """Count the wavefronts of one warp whose lanes walk the rows first to last - 1."""
    return sum(_bank_passes(((row, k) for row in range(first, last)), d) for k in range(d))


def _tiles(shape: Shape, Br: int, Bc: int, size: int) -> Access:
    """Count the global loads of K and V: of each tile that a block visits the rows below Nk."""
    total, visits, keys = Access(), tile_visits(shape, Br, Bc), tile_keys(shape, Bc)
    for head in range(shape.kv_heads):
        for t in map(int, np.flatnonzero(visits)):
            first = head * shape.Nk + t * Bc
            for width in (shape.d, shape.dv):
                tile = linear(first * width, int(keys[t]) * width, Br, size)
                total += tile * (shape.group * int(visits[t]))
    return total


def _lse(shape: Shape, Br: int) -> Access:
    """Count the global stores of L: one element a thread."""
    return sum((linear(row, n, Br) for _, n, row in _passes(shape, Br, Br)), Access())


def strips(shape: Shape, Br: int) -> tuple[int, int]:
    """Count (thread, strip) and (warp, strip) pairs over all heads; threads of rows beyond N have no strip.
    """
    first, end = block_range(shape, Br)
    taken, rows = np.where(end > first, -(-end // STRIP) - first // STRIP, 0), block_rows(shape, Br)
    return shape.heads * int((taken * rows).sum()), shape.heads * int((taken * ceil_div(rows, 32)).sum())


def _shared(shape: Shape, Br: int, Bc: int, q: Access, o: Access) -> dict[str, int]:
    """Count shared memory: whole tiles stored (zeros beyond Nk), keys and values loaded as broadcasts.

    Q and O pass through once each: on one side as in global memory, 32 neighbours a request, on the other by
    rows.
    """
    tiles = shape.heads * int(tiles_visited(shape, Br, Bc).sum())
    threads, warps = strips(shape, Br)
    each = STRIP * (shape.d + shape.dv)
    stored = (linear(0, Bc * shape.d, Br) + linear(0, Bc * shape.dv, Br)) * tiles
    loaded = Access(threads * each, warps * each)
    forms = {}
    for space, plain, in_runs, in_rows in (
        ("shared_store", stored, (q, shape.d), shape.dv), ("shared_load", loaded, (o, shape.dv), shape.d)
    ):  # fmt: skip
        by_run, _, _ = _staging(shape, Br, Bc, in_runs[1])
        _, requests, by_row = _staging(shape, Br, Bc, in_rows)
        forms |= shared(
            space,
            lanes=plain.lanes + q.lanes + o.lanes,
            requests=plain.requests + in_runs[0].requests + requests,
            wavefronts=plain.requests + by_run + by_row,
        )
    return forms


def _arithmetic(shape: Shape, Br: int) -> dict[str, int]:
    """Count float instructions, by strips of a thread and by rows.

    A strip: STRIP (d + dv) FFMA for scores and output, dv FMUL to rescale, STRIP + 1 exponentials; their
    arguments and the sum of the weights are FADD, the denominator is one FFMA. A row: d FMUL to scale q, dv
    divisions, one logarithm, and one FADD for L.
    """
    threads, _ = strips(shape, Br)
    rows, d, dv = shape.heads * shape.N, shape.d, shape.dv
    return arithmetic(
        (threads, {"ffma": STRIP * (d + dv) + 1, "fmul": dv, "fadd": 2 * STRIP + 1}),
        (threads * (STRIP + 1), EXP),
        (rows, {"fmul": d, "fadd": 1}),
        (rows * dv, DIV),
        (rows, LOG_OF_KEPT),
    )


def _dram(shape: Shape, Br: int, Bc: int, stats: bool, size: int) -> dict[str, int]:
    """Give DRAM's figures: Q and each visited tile are read once, O and L stay in L2."""
    H, N, d, dv, keys = shape.heads, shape.N, shape.d, shape.dv, keys_needed(shape, Br, Bc)
    before = Bc * int(np.argmax(tile_visits(shape, Br, Bc) > 0)) if keys else 0
    pieces = [size * n * width for n in (N, shape.Nk, before, keys) for width in (d, dv)]
    read = size * (H * N * d + shape.kv_heads * keys * (d + dv))
    return dram_of_bytes(read, H * N * (size * dv + 4 * (1 + stats)), (*pieces, 4 * H * N))
