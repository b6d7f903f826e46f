"""Transpose a matrix three ways: uncoalesced, through shared memory with bank conflicts, and without them.

The ladder, and what to look at in the report (rows = cols = 2048; every variant moves 16.8 MB each way):
- naive: a warp reads a row (4 sectors a request) and writes a column: its 32 stores lie in 32 sectors.
  131,072 requests store 4,194,304 sectors, eight times the least.
- tiled: a block turns a 32 x 32 tile in shared memory, so loads and stores both take 4 sectors a request:
  524,288. The price is inside: the 32 lanes that read a column of the tile all fall in one bank, 32
  wavefronts a request, 4,194,304 in all for 131,072 requests.
- padded: the same code with rows of 33 words. Column neighbours are then 33 words apart, in 32 different
  banks: 131,072 wavefronts. 128 bytes of shared memory a block buy a factor of 32.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy import float32

from dsl import cuda
from kernels_sim.formulas import (
    PER_SECTOR,
    WARP,
    ceil_div,
    matrix_sectors,
    require_at_least,
    require_choice,
    shared,
    space,
)
from kernels_sim.problem import Data, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

TILE = 32
PADDED = TILE + 1
TILE_ROWS = 8
"""Rows of threads in a block: each thread moves TILE / TILE_ROWS = 4 elements."""
WARPS = TILE * TILE_ROWS // WARP


@cuda.jit
def transpose_naive(a, at):
    """Write at[c, r] = a[r, c], loads coalesced, stores not; a (rows, cols), at (cols, rows), float32."""
    c = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    r = cuda.blockIdx.y * TILE + cuda.threadIdx.y
    for step in range(0, TILE, TILE_ROWS):
        if c < a.shape[1] and r + step < a.shape[0]:
            at[c, r + step] = a[r + step, c]


@cuda.jit
def transpose_tiled(a, at):
    """Write at[c, r] = a[r, c] by way of a 32 x 32 tile whose columns each lie in one bank."""
    tile = cuda.shared.array((TILE, TILE), float32)
    lane = cuda.threadIdx.x
    row = cuda.threadIdx.y
    c = cuda.blockIdx.x * TILE + lane
    r = cuda.blockIdx.y * TILE + row
    for step in range(0, TILE, TILE_ROWS):
        if c < a.shape[1] and r + step < a.shape[0]:
            tile[row + step, lane] = a[r + step, c]
    cuda.syncthreads()
    r = cuda.blockIdx.y * TILE + lane
    c = cuda.blockIdx.x * TILE + row
    for step in range(0, TILE, TILE_ROWS):
        if r < at.shape[1] and c + step < at.shape[0]:
            at[c + step, r] = tile[lane, row + step]


@cuda.jit
def transpose_padded(a, at):
    """Write at[c, r] = a[r, c] by way of a tile with rows of 33 words: a column spreads over all banks."""
    tile = cuda.shared.array((TILE, PADDED), float32)
    lane = cuda.threadIdx.x
    row = cuda.threadIdx.y
    c = cuda.blockIdx.x * TILE + lane
    r = cuda.blockIdx.y * TILE + row
    for step in range(0, TILE, TILE_ROWS):
        if c < a.shape[1] and r + step < a.shape[0]:
            tile[row + step, lane] = a[r + step, c]
    cuda.syncthreads()
    r = cuda.blockIdx.y * TILE + lane
    c = cuda.blockIdx.x * TILE + row
    for step in range(0, TILE, TILE_ROWS):
        if r < at.shape[1] and c + step < at.shape[0]:
            at[c + step, r] = tile[lane, row + step]


KERNELS = {"naive": transpose_naive, "tiled": transpose_tiled, "padded": transpose_padded}


@dataclass(frozen=True)
class Options:
    """Hold the options of transpose."""

    rows: int = field(default=2048, metadata={"help": "rows of the input"})
    cols: int = field(default=2048, metadata={"help": "columns of the input"})
    variant: str = field(
        default="tiled", metadata={"help": "naive, tiled or padded", "choices": tuple(KERNELS)}
    )


def column_sectors(rows: int, cols: int) -> int:
    """Return the sectors of stores down the columns of the transposed matrix (cols x rows), 32 lanes each.

    Lanes are `rows` elements apart. From 8 on, each has a sector of its own; below, request s of column r <
    8 starts in sector 4 * rows * s and leaves none out.
    """
    if rows >= PER_SECTOR:
        return rows * cols
    full, tail = divmod(cols, WARP)
    requests = ((full, WARP), (1 if tail else 0, tail))
    return sum(
        times * (((lanes - 1) * rows + r) // PER_SECTOR + 1) for r in range(rows) for times, lanes in requests
    )


def closed_form(rows: int, cols: int, variant: str) -> dict[str, int]:
    """Return the exact counters of one variant for a rows x cols input."""
    elements = rows * cols
    by_row, by_column = rows * ceil_div(cols, WARP), cols * ceil_div(rows, WARP)
    load = space("global_load", lanes=elements, requests=by_row, sectors=matrix_sectors(rows, cols))
    if variant == "naive":
        return {
            **load,
            **space("global_store", lanes=elements, requests=by_row, sectors=column_sectors(rows, cols)),
        }
    return {
        **load,
        **space("global_store", lanes=elements, requests=by_column, sectors=matrix_sectors(cols, rows)),
        **shared("shared_store", lanes=elements, requests=by_row, wavefronts=by_row),
        **shared(
            "shared_load",
            lanes=elements,
            requests=by_column,
            wavefronts=elements if variant == "tiled" else by_column,
        ),
        "barriers": WARPS * ceil_div(rows, TILE) * ceil_div(cols, TILE),
    }


def build(options: Options, data: Data) -> Problem:
    """Return the problem of a transpose of N(0, 1) numbers; raise BadOption for bad sizes or variants."""
    rows, cols, variant = options.rows, options.cols, options.variant
    require_at_least("transpose", "rows", rows, 1)
    require_at_least("transpose", "cols", cols, 1)
    require_choice("transpose", "variant", variant, KERNELS)
    a, at = data.normal(rows, cols), data.filled(np.nan, cols, rows)
    registers, source = recorded("transpose", variant)
    grid = (ceil_div(cols, TILE), ceil_div(rows, TILE))
    step = Step(
        KERNELS[variant],
        grid,
        (TILE, TILE_ROWS),
        (a, at),
        0,
        closed_form(rows, cols, variant),
        registers,
        source,
    )
    reference = None if data.virtual else lambda: {"at": a.T.astype(np.float64)}
    return Problem(f"transpose {variant}", (step,), {"at": at}, reference, tolerance=0.0)


SPEC = KernelSpec(
    "transpose", "transpose a matrix: naive, tiled (bank conflicts) or padded (none)", Options, build
)
