"""Take the softmax of each row, one block of 128 threads a row, in three passes over the row.

What to look at in the report (rows = cols = 1024):
- Memory: the row is read three times (maximum, sum, result): 98,304 requests, 393,216 sectors. The second
  and third pass find it in L1 (262,144 hits), so L2 and DRAM see 4.2 MB once: 131,072 sectors.
- Compute: an element costs 14 FFMA, 1 FMUL and 4 FADD. An exponential is 4 FFMA, 1 FMUL, 1 FADD and a MUFU;
  the FMUL that ends the first one contracts with the sum into an FFMA; the division is 5 FFMA and a MUFU.
  The tree adds 127 FADD a row: 4,324,352 = 1024 * (4 * 1024 + 127).
- Shared memory: the two trees leave most warps idle: 40 loads and 24 stores a row reach the banks (40,960
  and 24,576).
- The reader's question: could one pass do? The online softmax of flash_forward keeps a running maximum and
  rescales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy import float32

from dsl import cuda
from kernels_sim.formulas import WARP, ceil_div, matrix_sectors, require_at_least, shared, space
from kernels_sim.problem import Data, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

THREADS = 128
LOWEST = -3.0e38
TREE_STEPS = 7
TREE_WARPS = 8
"""Warps with work, summed over the steps of one tree: 2 + 1 + 1 + 1 + 1 + 1 + 1."""


@cuda.jit
def softmax_rows(scores, weights):
    """Write weights[r] = exp(scores[r] - max) / sum; both (rows, cols) float32, one block a row."""
    partial = cuda.shared.array(THREADS, float32)
    r = cuda.blockIdx.x
    t = cuda.threadIdx.x
    cols = scores.shape[1]
    largest = float32(LOWEST)
    # All lanes take all turns: a loop that some leave earlier is unrolled so that the lanes of a warp are at
    # different columns, and a card reads 3 % more sectors of 777 columns.
    for first in range(0, cols, THREADS):
        c = first + t
        if c < cols:
            largest = max(largest, scores[r, c])
    partial[t] = largest
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] = max(partial[t], partial[t + half])
        cuda.syncthreads()
        half //= 2
    largest = partial[0]
    cuda.syncthreads()
    total = float32(0)
    for first in range(0, cols, THREADS):
        c = first + t
        if c < cols:
            total += math.exp(scores[r, c] - largest)
    partial[t] = total
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    total = partial[0]
    for first in range(0, cols, THREADS):
        c = first + t
        if c < cols:
            weights[r, c] = math.exp(scores[r, c] - largest) / total


@dataclass(frozen=True)
class Options:
    """Hold the options of softmax_rows."""

    rows: int = field(default=1024, metadata={"help": "rows, one block each"})
    cols: int = field(default=1024, metadata={"help": "columns: the softmax runs along them"})


def closed_form(rows: int, cols: int) -> dict[str, int]:
    """Return the exact counters; the trees cost the same whatever the number of columns."""
    elements, requests, sectors = rows * cols, rows * ceil_div(cols, WARP), matrix_sectors(rows, cols)
    warps = THREADS // WARP
    loads, stores = rows * 2 * (2 * TREE_WARPS + warps), rows * 2 * (TREE_WARPS + warps)
    lanes_in_tree = THREADS - 1
    return {
        **space("global_load", lanes=3 * elements, requests=3 * requests, sectors=3 * sectors),
        **space("global_store", lanes=elements, requests=requests, sectors=sectors),
        **shared(
            "shared_load", lanes=rows * 2 * (2 * lanes_in_tree + THREADS), requests=loads, wavefronts=loads
        ),
        **shared(
            "shared_store", lanes=rows * 2 * (lanes_in_tree + THREADS), requests=stores, wavefronts=stores
        ),
        "arithmetic.ffma": 14 * elements,
        "arithmetic.fmul": elements,
        "arithmetic.fadd": 4 * elements + lanes_in_tree * rows,
        "arithmetic.mufu": 3 * elements,
        "barriers": rows * warps * (2 * (1 + TREE_STEPS) + 1),
    }


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return the softmax of each row in float64."""
    shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    return weights / weights.sum(axis=1, keepdims=True)


def build(options: Options, data: Data) -> Problem:
    """Return the problem of a row softmax of N(0, 1) numbers; raise BadOption for an empty matrix."""
    rows, cols = options.rows, options.cols
    require_at_least("softmax_rows", "rows", rows, 1)
    require_at_least("softmax_rows", "cols", cols, 1)
    scores, weights = data.normal(rows, cols), data.filled(np.nan, rows, cols)
    registers, source = recorded("softmax_rows")
    step = Step(
        softmax_rows, (rows,), (THREADS,), (scores, weights), 0, closed_form(rows, cols), registers, source
    )
    reference = None if data.virtual else lambda: {"weights": softmax(scores)}
    return Problem("softmax_rows", (step,), {"weights": weights}, reference)


SPEC = KernelSpec("softmax_rows", "softmax of each row, three passes: what L1 saves", Options, build)
