"""Multiply two square matrices through 16 x 16 tiles in shared memory.

What to look at in the report (N = 512):
- Memory: each block reads N / 16 tiles of A and of B, so every element is read from global memory N / 16 =
  32 times instead of 512: 67.1 MB in 524,288 requests of 4 sectors (a warp covers 2 rows of 16 elements, 64
  bytes each).
- Compute: 134,217,728 = N**3 FFMA and nothing else; a ragged N is padded with zeros to whole tiles, and the
  padding is computed too (N = 500 costs as many FFMA as N = 512).
- Shared memory: a thread reads a row of a_tile (the same word for 16 lanes) and a column of b_tile (16 words
  side by side): 32 loads a warp and tile, 8,388,608 in all, one wavefront each, no conflicts. This counts the
  loads of the source. The card's compiler merges the 16 of a_tile into 4 of 16 bytes, of 2 wavefronts each:
  it issues 5,242,880 loads and needs 6,291,456 wavefronts.
- Roofline: 4 FLOPs a byte of global memory: the tile is too small for this card. Larger tiles (or
  registers) come next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy import float32

from dsl import cuda
from kernels_sim.formulas import PER_SECTOR, WARP, ceil_div, require_at_least, run_sectors, shared, space
from kernels_sim.problem import Data, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

TILE = 16
WARPS = TILE * TILE // WARP


@cuda.jit
def matmul_tiled(a, b, product):
    """Write product = a @ b, one element a thread; all (N, N) float32. Past the edges tiles hold zeros."""
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    n = a.shape[0]
    total = float32(0)
    for first in range(0, n, TILE):
        a_tile[ty, tx] = a[y, first + tx] if y < n and first + tx < n else float32(0)
        b_tile[ty, tx] = b[first + ty, x] if first + ty < n and x < n else float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[ty, k] * b_tile[k, tx]
        cuda.syncthreads()
    if y < n and x < n:
        product[y, x] = total


@dataclass(frozen=True)
class Options:
    """Hold the options of matmul_tiled."""

    N: int = field(default=512, metadata={"help": "rows and columns of the matrices"})


def pair_sectors(start: int, cols: int, pitch: int) -> int:
    """Return the sectors of a warp's two runs of `cols` elements, the second `pitch` after the first.

    In matrices of fewer than 24 columns the end of one row and the start of the next may share a sector.
    """
    first, second = start % PER_SECTOR, start % PER_SECTOR + pitch
    in_common = (first + cols - 1) // PER_SECTOR == second // PER_SECTOR
    return run_sectors(first, cols) + run_sectors(second, cols) - in_common


def tiling_sectors(n: int) -> int:
    """Return the sectors of one pass over an n x n matrix by warps of 2 rows x 16 columns.

    Row pair p starts at element 2 * p * n, so its alignment repeats every 4 pairs; an odd n leaves one row
    alone.
    """
    widths = [TILE] * (n // TILE) + [n % TILE] * (n % TILE > 0)
    pairs = sum(
        ceil_div(n // 2 - p, 4) * pair_sectors(2 * p * n, width, n)
        for p in range(min(4, n // 2))
        for width in widths
    )
    return pairs + sum(run_sectors((n - 1) * n, width) for width in widths) * (n % 2)


def closed_form(n: int) -> dict[str, int]:
    """Return the exact counters: A and B are passed over once for each of ceil(n / 16) rows of tiles."""
    tiles = ceil_div(n, TILE)
    requests, sectors = tiles * ceil_div(n, 2), tiling_sectors(n)
    warp_tiles = WARPS * tiles**3
    stores, loads = warp_tiles * 2, warp_tiles * 2 * TILE
    return {
        **space(
            "global_load", lanes=2 * tiles * n * n, requests=2 * tiles * requests, sectors=2 * tiles * sectors
        ),
        **space("global_store", lanes=n * n, requests=requests, sectors=sectors),
        **shared("shared_store", lanes=stores * WARP, requests=stores, wavefronts=stores),
        **shared("shared_load", lanes=loads * WARP, requests=loads, wavefronts=loads),
        "arithmetic.ffma": (tiles * TILE) ** 3,
        "barriers": warp_tiles * 2,
    }


def build(options: Options, data: Data) -> Problem:
    """Return the problem of multiplying two N x N matrices of N(0, 1) numbers; raise BadOption for N < 1."""
    n = options.N
    require_at_least("matmul_tiled", "N", n, 1)
    a, b, product = data.normal(n, n), data.normal(n, n), data.filled(np.nan, n, n)
    registers, source = recorded("matmul_tiled")
    tiles = ceil_div(n, TILE)
    step = Step(
        matmul_tiled, (tiles, tiles), (TILE, TILE), (a, b, product), 0, closed_form(n), registers, source
    )
    reference = None if data.virtual else lambda: {"product": a.astype(np.float64) @ b}
    return Problem("matmul_tiled", (step,), {"product": product}, reference)


SPEC = KernelSpec(
    "matmul_tiled", "multiply two N x N matrices through 16 x 16 tiles in shared memory", Options, build
)
