"""Closed forms of flash_backward's launches on the tensor cores: each counter, from the shape and the tile.

Head dimensions are multiples of 16: rows of 16-bit numbers are whole sectors, and two neighbouring lanes that
copy 16 bytes each take one. What it models and leaves out, and the metrics that check it: as
kernels_sim/flash_backward_counts.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels_sim.attention import Access, Shape, arithmetic, block_rows, key_range, linear, tile_keys
from kernels_sim.formulas import WARP

if TYPE_CHECKING:
    from kernels_sim.flash_backward_mma import Tile

CHUNK, STRIP = 8, 16
"""Elements of a chunk of 16 bytes; rows and keys of what a warp works on at a time."""
PAIRS = STRIP * STRIP
"""(row, key) pairs of what a warp works on at a time, a unit."""


def rows_seen(shape: Shape, tile: Tile) -> tuple[np.ndarray, np.ndarray]:
    """Return for each tile of keys and each tile of rows the first of its rows that sees a key, and the end.

    Two int64 arrays (tiles of keys, tiles of rows), both counted from the first row of the tile; a tile whose
    end is not behind its first row is not visited.
    """
    first, end = key_range(shape)
    starts = np.arange(0, shape.Nk, tile.Bc)
    some_first = np.searchsorted(end, starts, "right")
    some_end = np.searchsorted(first, np.minimum(starts + tile.Bc, shape.Nk), "left")
    rows = np.arange(0, shape.N, tile.Br)
    low, high = (np.clip(x[:, None] - rows, 0, tile.Br) for x in (some_first, some_end))
    return low, high


def units(shape: Shape, tile: Tile) -> int:
    """Count what warps work on over all heads: 16 rows x 16 keys of visited tiles, ragged ones whole."""
    low, high = rows_seen(shape, tile)
    of_rows, of_keys = -(-block_rows(shape, tile.Br) // STRIP), -(-tile_keys(shape, tile.Bc) // STRIP)
    return shape.heads * int(((high > low) * of_rows * of_keys[:, None]).sum())


def instructions(shape: Shape, tile: Tile) -> int:
    """Count the mma.sync of all heads: each of five products takes 1 a unit for 8 columns of d or dv."""
    return units(shape, tile) * (3 * shape.d + 2 * shape.dv) // 8


def closed_form(shape: Shape, tile: Tile, deterministic: bool, dtype: str) -> dict[str, int]:
    """Return the counters of the main launch."""
    warps, keys = tile.threads // WARP, tile_keys(shape, tile.Bc)
    low, high = rows_seen(shape, tile)
    visited = shape.heads * int((high > low).sum())
    tiles = _key_tiles(shape, keys)
    sums = _sums(shape, tile, deterministic)
    forms = (tiles + _row_tiles(shape, tile, low, high)).paths("global_load")
    stores = tiles + sums if deterministic else tiles
    forms |= stores.paths("global_store") | {"hierarchy.l2_write": stores.sectors}
    if not deterministic:
        forms |= sums.paths("global_red") | {"hierarchy.l2_red": sums.sectors}
    blocks = shape.kv_heads * len(keys)
    forms |= _shared(shape, tile, visited) | _arithmetic(shape, tile)
    forms["tensor.f16" if dtype == "float16" else "tensor.bf16"] = instructions(shape, tile)
    return forms | {"barriers": warps * 2 * (blocks + visited)}


def convert_form(shape: Shape) -> dict[str, int]:
    """Return the counters of the last launch: two sums a lane in, two elements of 16 bits out."""
    pairs, requests = shape.heads * shape.N * shape.d // 2, shape.heads * shape.N * -(-shape.d // (2 * WARP))
    loads, stores = (Access(pairs, requests, pairs * size // 32, pairs * size) for size in (8, 4))
    forms = loads.paths("global_load") | stores.paths("global_store")
    return forms | arithmetic((2 * pairs, {"fmul": 1})) | {"hierarchy.l2_write": stores.sectors}


def _chunks(rows: int, width: int) -> Access:
    """Count 16 bytes a lane of rows side by side; in full warps but for the last one."""
    lanes = rows * width // CHUNK
    return Access(lanes, -(-lanes // WARP), lanes // 2, 16 * lanes)


def _key_tiles(shape: Shape, keys: np.ndarray) -> Access:
    """Count K and V in, or dK and dV out: each once a K/V head."""
    each = (_chunks(n, width) for n in keys.tolist() for width in (shape.d, shape.dv))
    return sum(each, Access()) * shape.kv_heads


def _row_tiles(shape: Shape, tile: Tile, low: np.ndarray, high: np.ndarray) -> Access:
    """Count the tiles of Q and dO, of which the rows low to high - 1 are read, and those of L and D."""
    visited, total = high > low, Access()
    for width in (shape.d, shape.dv):
        chunks = width // CHUNK
        lanes = int(((high - low) * visited).sum()) * chunks
        requests = int(((-(-high * chunks // WARP) - low * chunks // WARP) * visited).sum())
        total += Access(lanes, requests, lanes // 2, 16 * lanes)
    total = total * shape.heads
    rows = list(zip(block_rows(shape, tile.Br).tolist(), visited.sum(axis=0).tolist(), strict=True))
    for head in range(shape.heads):
        for i, (n, times) in enumerate(rows):
            total += linear(head * shape.N + i * tile.Br, n, tile.threads) * (2 * times)
    return total


def _sums(shape: Shape, tile: Tile, deterministic: bool) -> Access:
    """Count the adds to dQ, one a request of 8 rows x 4 of 8 neighbours; or the stores of two of them a lane.

    A row's 8 neighbours are a sector: each request touches 8 sectors.
    """
    low, high = rows_seen(shape, tile)
    rows, times = block_rows(shape, tile.Br), shape.heads * (high > low).sum(axis=0)
    elements = int((rows * times).sum()) * shape.d
    requests = int((-(-rows // 8) * times).sum()) * shape.d // 8
    if deterministic:
        return Access(elements // 2, requests, elements // 8, 4 * elements)
    return Access(elements, 2 * requests, elements // 4)


def _shared(shape: Shape, tile: Tile, visited: int) -> dict[str, int]:
    """Count shared memory, all of it free of conflicts.

    ldmatrix: for 16 columns of d or dv both operands of S, dP and dQ, and the second one of dV and dK.
    Stores: dS in 4 requests a unit. Loads: L and D of the 4 rows that a lane has of a unit. dK and dV go out
    through the tiles: stored in pairs, loaded in chunks.
    """
    d, dv, keys = shape.d, shape.dv, tile_keys(shape, tile.Bc)
    blocks = shape.kv_heads * len(keys)
    strips, work = shape.kv_heads * int((-(-keys // STRIP)).sum()), units(shape, tile)
    matrices = work * (5 * d + 3 * dv) // 16
    copied = blocks * ((tile.Bc + STRIP) * d + tile.Bc * dv) + visited * tile.Br * (d + dv)
    words, small = Access(WARP * 8 * work, 8 * work), 2 * visited * tile.Br
    chunks = _key_tiles(shape, keys)
    quarters = shape.kv_heads * sum(-(-n * w // (8 * CHUNK)) for n in keys.tolist() for w in (d, dv))
    stored = 4 * work + strips * (d + dv) // 4
    return {
        **_counts("shared_matrix", Access(WARP * matrices, matrices, 0, 16 * WARP * matrices), 4 * matrices),
        **_counts(
            "shared_async",
            Access(copied // CHUNK + small, (copied // CHUNK + small) // WARP, 0, 2 * copied + 4 * small),
            small // WARP,
        ),
        **_counts("shared_store", Access(WARP * stored, stored), stored),
        **_counts("shared_load", words + chunks, words.requests + quarters),
    }


def _counts(space: str, access: Access, wavefronts: int) -> dict[str, int]:
    """Return the counters of a shared space by their paths, where no two words of a request share a bank."""
    return {
        f"{space}.lanes": access.lanes,
        f"{space}.bytes": int(access.bytes or 0),
        f"{space}.requests": access.requests,
        f"{space}.wavefronts": wavefronts,
        f"{space}.ideal_wavefronts": wavefronts,
    }


def _arithmetic(shape: Shape, tile: Tile) -> dict[str, int]:
    """Count float instructions outside the tensor cores.

    A pair takes one FFMA and one MUFU for P, one FADD and one FMUL for dS; a lane one FMUL for each of its 4
    rows of a unit, L log2(e); and dK one an element, scale.
    """
    work, strips = units(shape, tile), -(-tile_keys(shape, tile.Bc) // STRIP)
    return arithmetic(
        (PAIRS * work, {"ffma": 1, "mufu": 1, "fadd": 1, "fmul": 1}),
        (4 * WARP * work, {"fmul": 1}),
        (shape.kv_heads * int(strips.sum()) * STRIP * shape.d, {"fmul": 1}),
    )
