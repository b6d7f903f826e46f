"""Closed forms of flash_forward --variant mma: what each counter must be, from the shape and the tile alone.

What it models: copies and stores of 16-byte chunks, ldmatrix and mma instructions, barriers, shuffles and
float instructions over all heads, and DRAM where it follows. What it leaves out: hits of L1 and L2. Checked
by the same metrics as kernels_sim/attention.py, by sm__ops_path_tensor_src_* and smsp__inst_executed_op_ldsm.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np

from kernels_sim.attention import (
    LOG_OF_KEPT,
    RCP,
    Access,
    Shape,
    arithmetic,
    block_range,
    block_rows,
    block_tiles,
    dram_of_bytes,
    key_range,
    tiles_visited,
)
from kernels_sim.formulas import WARP, ceil_div, run_sectors, shared

CHUNK = 8
"""Elements of 16 bytes: what a lane copies, and the part of a row that ldmatrix takes."""
LINE_CHUNKS, SECTOR_CHUNKS = 8, 2
"""Chunks of a line of 128 bytes and of a sector."""


def padded(width: int) -> int:
    """Return a head dimension in whole steps of an mma; columns beyond it are zeros in shared memory."""
    return 16 * ceil_div(width, 16)


def closed_form(shape: Shape, Br: int, Bc: int, dtype: str, stats: bool = False) -> dict[str, int]:
    """Return what the counters must be, by counter path; every number follows from the shape alone."""
    blocks = shape.heads * len(block_rows(shape, Br))
    tiles = shape.heads * int(tiles_visited(shape, Br, Bc).sum())
    warps = Br // 16
    copies = _rows(shape, Br, shape.d, True) + _keys(shape, Br, Bc, shape.d) + _keys(shape, Br, Bc, shape.dv)
    stores = _rows(shape, Br, shape.dv, False) + _lse(shape) * (1 + stats)
    steps, width, keys = padded(shape.d) // 16, padded(shape.dv) // 16, Bc // 16
    products = tiles * warps * 2 * keys * (steps + width)
    matrices = blocks * warps * steps + tiles * warps * keys * (steps + width)
    lines = blocks * Br * 2 * width
    moved = blocks * Br * 2 * steps + tiles * Bc * 2 * (steps + width)
    return {
        "tensor.f16" if dtype == "float16" else "tensor.bf16": products,
        **copies.paths("global_load"),
        **stores.paths("global_store"),
        **_wide("shared_matrix", WARP * matrices, matrices, 4 * matrices),
        **_wide("shared_async", moved, moved // WARP, 0),
        **_wide("shared_load", lines, lines // WARP, lines // 8),
        **_words("shared_store", blocks * warps * 4 * width),
        "barriers": warps * (2 * blocks + 2 * tiles),
        "warp_operations": warps * (4 * blocks + 4 * tiles),
        **_arithmetic(WARP * warps * blocks, WARP * warps * tiles, Bc, padded(shape.dv)),
        "hierarchy.l2_write": stores.sectors,
        **_dram(shape, stats),
    }


def keys_loaded(shape: Shape, Br: int) -> int:
    """Count the keys of a head that blocks copy: those that one of their rows sees."""
    first, end = block_range(shape, Br)
    return int(np.maximum(end - first, 0).sum())


def keys_needed(shape: Shape) -> tuple[int, int]:
    """Return the first key of a head that some row sees, and how many keys are seen: they have no gap."""
    first, end = key_range(shape)
    seen = end > first
    if not seen.any():
        return 0, 0
    return int(first[seen].min()), int(end.max() - first[seen].min())


@lru_cache(maxsize=4096)
def _chunks(phase: int, low: int, high: int, chunks: int, by_source_line: bool) -> Access:
    """Count the access of 16 bytes a lane to rows `low` to `high` of a tile in global memory.

    A row has `chunks` chunks in memory, and lanes for an even number of them. phase: chunks from a line's
    start to the tile's row 0. A store takes the sectors of each request; a copy past L1 those of shared
    memory, each as often as lines of its source fill it (by_source_line).
    """
    row, chunk = (x.ravel() for x in np.mgrid[low:high, 0:chunks])
    lane = row * 2 * ceil_div(chunks, 2) + chunk
    place = phase + row * chunks + chunk
    sector = np.stack((row, chunk // SECTOR_CHUNKS, place // LINE_CHUNKS) if by_source_line else
                      (lane // WARP, place // SECTOR_CHUNKS))  # fmt: skip
    requests, sectors = (np.unique(x, axis=-1).shape[-1] for x in (lane // WARP, sector))
    return Access(len(lane), requests, sectors, 16 * len(lane))


def _phases(heads: int, rows: int, chunks: int) -> Counter[int]:
    """Count heads by where in a line of memory the first of their rows begins."""
    return Counter(head * rows * chunks % LINE_CHUNKS for head in range(heads))


def _rows(shape: Shape, Br: int, width: int, by_source_line: bool) -> Access:
    """Count the copies of Q, or the stores of O: each block's rows once.

    Blocks begin where their head does in a line, as they have a multiple of 16 rows.
    """
    blocks = Counter(block_rows(shape, Br).tolist())
    return sum((_chunks(phase, 0, rows, width // CHUNK, by_source_line) * (heads * times)
                for phase, heads in _phases(shape.heads, shape.N, width // CHUNK).items()
                for rows, times in blocks.items()), Access())  # fmt: skip


def _keys(shape: Shape, Br: int, Bc: int, width: int) -> Access:
    """Count the copies of K, or of V: of each tile that a block visits the keys that one of its rows sees."""
    parts: Counter[tuple[int, int]] = Counter()
    for first, end, tile, last in zip(*block_range(shape, Br), *block_tiles(shape, Br, Bc), strict=True):
        for j0 in range(int(tile) * Bc, int(last) * Bc, Bc):
            parts[max(0, int(first) - j0), min(Bc, int(end) - j0)] += 1
    return sum((_chunks(phase, low, high, width // CHUNK, True) * (heads * shape.group * tiles)
                for phase, heads in _phases(shape.kv_heads, shape.Nk, width // CHUNK).items()
                for (low, high), tiles in parts.items()), Access())  # fmt: skip


def _lse(shape: Shape) -> Access:
    """Count the stores of L: eight rows a request, from one lane in four."""
    whole, rest = divmod(shape.N, 8)
    sectors = sum(whole * run_sectors(head * shape.N, 8) + run_sectors(head * shape.N, rest)
                  for head in range(shape.heads))  # fmt: skip
    return Access(shape.heads * shape.N, shape.heads * ceil_div(shape.N, 8), sectors)


def _wide(path: str, lanes: int, requests: int, wavefronts: int) -> dict[str, int]:
    """Return the counters of accesses of 16 bytes a lane to shared memory, free of conflicts."""
    return {
        f"{path}.lanes": lanes,
        f"{path}.bytes": 16 * lanes,
        f"{path}.requests": requests,
        f"{path}.wavefronts": wavefronts,
        f"{path}.ideal_wavefronts": wavefronts,
    }


def _words(path: str, requests: int) -> dict[str, int]:
    """Return the counters of whole warps' accesses of 4 bytes a lane, free of conflicts."""
    return shared(path, lanes=WARP * requests, requests=requests, wavefronts=requests)


def _arithmetic(rows: int, tiles: int, Bc: int, width: int) -> dict[str, int]:
    """Count float instructions of lanes: `rows` end with two rows each, `tiles` pass a tile with them.

    A tile: Bc / 2 weights, each an FFMA, a MUFU and an FADD; two rows' factors, an FFMA and a MUFU, with FMUL
    for the maximum in units of log 2, FFMA for the denominator; width / 2 FMUL to rescale. The end: two FADD
    a row over the quad, 1 / x, a logarithm, an FFMA for L; width / 2 FMUL.
    """
    return arithmetic(
        (tiles, {"ffma": Bc // 2 + 4, "mufu": Bc // 2 + 2, "fadd": Bc // 2, "fmul": 2 + width // 2}),
        (rows, {"fadd": 4, "ffma": 2, "fmul": width // 2}),
        (2 * rows, RCP),
        (2 * rows, LOG_OF_KEPT),
    )


def _dram(shape: Shape, stats: bool) -> dict[str, int]:
    """Give DRAM's figures: Q and each key that is seen are read once, O and L stay in L2."""
    H, N, d, dv, (before, keys) = shape.heads, shape.N, shape.d, shape.dv, keys_needed(shape)
    pieces = [2 * n * width for n in (N, shape.Nk, before, keys) for width in (d, dv)]
    read = 2 * (H * N * d + shape.kv_heads * keys * (d + dv))
    return dram_of_bytes(read, H * N * (2 * dv + 4 * (1 + stats)), (*pieces, 4 * H * N))
