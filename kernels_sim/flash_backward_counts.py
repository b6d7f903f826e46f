"""Closed forms of flash_backward's launches: what each counter must be, from the shape and the tile alone.

What it models: requests, sectors, atomics, words of shared memory, barriers and float instructions, over all
heads. What it leaves out: L1, L2 and DRAM reads, which depend on the order of blocks. Checked by the same
metrics as kernels_sim/attention.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels_sim.attention import (
    EXP,
    Access,
    Shape,
    arithmetic,
    block_rows,
    block_tiles,
    linear,
    padded_wavefronts,
    row_accesses,
    tile_keys,
    tiles_visited,
)
from kernels_sim.formulas import ELEMENT_BYTES, WARP, ceil_div, shared

if TYPE_CHECKING:
    from kernels_sim.flash_backward import Tile
    from kernels_sim.flash_backward_mma import Tile as TensorTile


def atomic_adds(shape: Shape, tile: Tile | TensorTile) -> int:
    """Count the elements added to dQ over all heads: d a row of each visited tile."""
    visited = tiles_visited(shape, tile.Br, tile.Bc)
    return shape.heads * shape.d * int((visited * block_rows(shape, tile.Br)).sum())


def workspace_bytes(shape: Shape, Bc: int) -> int:
    """Return the bytes that the deterministic variant needs besides its outputs: one dQ a tile of keys."""
    return ELEMENT_BYTES * ceil_div(shape.Nk, Bc) * shape.heads * shape.N * shape.d


def delta_form(shape: Shape, zeroed: bool, size: int = 4) -> dict[str, int]:
    """Return the counters of the first launch: O, dO in once, D and a zero dQ out, five shuffles a row.

    The last of a row's five sums is made by the one lane that stores it where nothing follows the store
    (dsl/passes/sinking.py).
    """
    rows = np.arange(shape.heads * shape.N)
    loads = row_accesses(rows, shape.dv, size) * 2
    stores = row_accesses(rows, 1) + (row_accesses(rows, shape.d) if zeroed else Access())
    forms = loads.paths("global_load") | stores.paths("global_store")
    sums = 5 * WARP if zeroed else 4 * WARP + 1
    forms |= arithmetic((loads.lanes // 2, {"ffma": 1}), (len(rows) * sums, {"fadd": 1}))
    return forms | {"warp_operations": 5 * len(rows), "hierarchy.l2_write": stores.sectors}


def reduce_form(shape: Shape, tile: Tile | TensorTile) -> dict[str, int]:
    """Return the counters of the last launch: each element loads and adds one number a visited tile."""
    loads = row_accesses(_rows_by_tile(shape, tile), shape.d)
    stores = row_accesses(np.arange(shape.heads * shape.N), shape.d)
    forms = loads.paths("global_load") | stores.paths("global_store")
    return forms | arithmetic((loads.lanes, {"fadd": 1})) | {"hierarchy.l2_write": stores.sectors}


def closed_form(shape: Shape, tile: Tile, deterministic: bool, size: int = 4) -> dict[str, int]:
    """Return the counters of the main launch; every number follows from the shape and the tile alone.

    size: bytes of an element of Q, K, V, dO, dK and dV.
    """
    d, dv, threads = tile.d, tile.dv, tile.threads
    keys, visited = tile_keys(shape, tile.Bc), tiles_visited(shape, tile.Br, tile.Bc)
    tiles = keys_io = Access()
    for head in range(shape.kv_heads):
        for t, n in enumerate(keys.tolist()):
            key = head * shape.Nk + t * tile.Bc
            keys_io += linear(key * d, n * d, threads, size) + linear(key * dv, n * dv, threads, size)
    for head in range(shape.heads):
        rows = zip(block_rows(shape, tile.Br).tolist(), visited.tolist(), strict=True)
        for i, (n, times) in enumerate(rows):
            row = head * shape.N + i * tile.Br
            tiles += (linear(row * d, n * d, threads, size) + linear(row * dv, n * dv, threads, size)
                      + linear(row, n, threads) * 2) * times  # fmt: skip
    written = _rows_by_tile(shape, tile)
    sums = row_accesses(written if deterministic else written % (shape.heads * shape.N), d)
    stores = keys_io + sums if deterministic else keys_io
    forms = (keys_io + tiles).paths("global_load") | stores.paths("global_store")
    if not deterministic:
        forms |= sums.paths("global_red") | {"hierarchy.l2_red": sums.sectors}
    barriers = 2 * shape.kv_heads * len(keys) + 3 * shape.heads * int(visited.sum())
    forms |= {"barriers": barriers * (threads // WARP), "hierarchy.l2_write": stores.sectors}
    return forms | _shared(shape, tile) | _arithmetic(shape, tile)


def _rows_by_tile(shape: Shape, tile: Tile | TensorTile) -> np.ndarray:
    """List the rows of the workspace (tiles of keys, heads, N) that are written: those of visited tiles."""
    first, end = (np.repeat(x, block_rows(shape, tile.Br)) for x in block_tiles(shape, tile.Br, tile.Bc))
    tiles = np.arange(ceil_div(shape.Nk, tile.Bc))[:, None, None]
    rows = (tiles * shape.heads + np.arange(shape.heads)[:, None]) * shape.N + np.arange(shape.N)
    return rows[np.broadcast_to((tiles >= first) & (tiles < end), rows.shape)]


def strips(shape: Shape, tile: Tile) -> tuple[int, int]:
    """Count (strip of rows, key) pairs of visited tiles over all heads, and (strip, warp of keys) pairs."""
    first, end = block_tiles(shape, tile.Br, tile.Bc)
    groups, keys = -(-block_rows(shape, tile.Br) // tile.strip), tile_keys(shape, tile.Bc)
    sums = (np.concatenate([[0], np.cumsum(n)]) for n in (keys, -(-keys // WARP)))
    by_key, by_warp = (shape.heads * int((groups * (total[end] - total[first])).sum()) for total in sums)
    return by_key, by_warp


def _shared(shape: Shape, tile: Tile) -> dict[str, int]:
    """Count shared memory.

    Loads: a thread's strip takes 5 words a column for each of S and dP, 4 for each of dV and dK, and 8 of L
    and D; a lane's strip of dQ 5 a key. Stores: whole tiles of rows, and 4 words of dS a strip. K, V, dK and
    dV pass through padded rows, which cost a second wavefront where a request crosses the end of a row.
    """
    d, dv, keys = tile.d, tile.dv, tile_keys(shape, tile.Bc)
    visits = shape.heads * int(tiles_visited(shape, tile.Br, tile.Bc).sum())
    by_key, by_warp = strips(shape, tile)
    words = (2 * tile.strip + 1) * (d + dv) + 2 * tile.strip
    loaded = Access(by_key * words, by_warp * words)
    loaded += Access(by_key * (tile.strip + 1) * d, by_key * (tile.strip + 1) * ceil_div(d, WARP))
    whole = linear(0, tile.Br, tile.threads) * 2
    for width in (d, dv):
        whole += linear(0, tile.Br * width, tile.threads)
    stored = whole * visits + Access(by_key * tile.strip, by_warp * tile.strip)
    passed, wavefronts = Access(), 0
    for n in map(int, keys):
        stored += Access(n * (d + dv), ceil_div(n, WARP) * (d + dv)) * shape.kv_heads
        for width in (d, dv):
            passed += linear(0, n * width, tile.threads) * shape.kv_heads
            wavefronts += padded_wavefronts(n, width, tile.threads) * shape.kv_heads
    forms = {}
    for space, plain in (("shared_load", loaded), ("shared_store", stored)):
        requests = plain.requests + passed.requests
        forms |= shared(space, lanes=plain.lanes + passed.lanes, requests=requests,
                        wavefronts=plain.requests + wavefronts)
    return forms


def _arithmetic(shape: Shape, tile: Tile) -> dict[str, int]:
    """Count float instructions: 3 d + 2 dv FFMA a pair for the five products.

    P = exp(s scale - L) takes one FFMA before the exponential; dS = P (dP - D) scale one FADD and two FMUL.
    Under a mask the d products of dQ and their sums stay two instructions (dsl/passes/joined_sums.py).
    """
    pairs = tile.strip * strips(shape, tile)[0]
    apart = tile.d if shape.causal or shape.window else 0
    each = {"ffma": 3 * tile.d + 2 * tile.dv + 1 - apart, "fadd": 1 + apart, "fmul": 2 + apart}
    return arithmetic((pairs, each), (pairs, EXP))
