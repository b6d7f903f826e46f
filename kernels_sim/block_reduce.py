"""Sum a vector: a tree in shared memory in each block, one atomic add a block at its end.

What to look at in the report (n = 1,000,003: 3,907 blocks of 256 threads):
- Compute: 255 FADDs a block, 996,285 in all: a tree of 256 leaves. Halving the active threads each time
  keeps them in the lowest warps: 4, 2, 1, 1, 1, 1, 1, 1 warps work in the 8 steps.
- Shared memory: 25 loads and 20 stores a block, all free of conflicts (97,675 and 78,140 wavefronts).
- Atomics: one RED of one lane a block: 3,907 requests, 3,907 sectors, though 1,000,003 elements were added.
  An atomic add for each element instead would take 32 sectors a request (see histogram).
- Barriers: 9 a block; every warp passes all of them, also the ones that have run out of work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt

import numpy as np
from numpy import float32

from dsl import cuda
from kernels_sim.formulas import WARP, ceil_div, require_at_least, row_sectors, shared, space
from kernels_sim.problem import Data, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

THREADS = 256
TREE_STEPS = 8
TREE_WARPS = 12
"""Warps with work, summed over the steps of the tree: 4 + 2 + 1 + 1 + 1 + 1 + 1 + 1."""


@cuda.jit
def block_reduce(x, total):
    """Add all elements of x, shape (n,) float32, to total[0]."""
    partial = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        cuda.atomic.add(total, 0, partial[0])


@dataclass(frozen=True)
class Options:
    """Hold the options of block_reduce."""

    n: int = field(default=1_000_003, metadata={"help": "elements to add"})


def closed_form(n: int) -> dict[str, int]:
    """Return the exact counters; a ragged last block works as a whole one, on zeros."""
    blocks, warps = ceil_div(n, THREADS), THREADS // WARP
    loads, stores = 2 * TREE_WARPS + 1, warps + TREE_WARPS
    return {
        **space("global_load", lanes=n, requests=ceil_div(n, WARP), sectors=row_sectors(0, n)),
        **space("global_red", lanes=blocks, requests=blocks, sectors=blocks),
        **shared(
            "shared_load",
            lanes=blocks * (2 * (THREADS - 1) + 1),
            requests=blocks * loads,
            wavefronts=blocks * loads,
        ),
        **shared(
            "shared_store",
            lanes=blocks * (2 * THREADS - 1),
            requests=blocks * stores,
            wavefronts=blocks * stores,
        ),
        "arithmetic.fadd": blocks * (THREADS - 1),
        "barriers": blocks * warps * (1 + TREE_STEPS),
    }


def build(options: Options, data: Data) -> Problem:
    """Return the problem of a sum; raise BadOption for n < 1.

    The numbers are integers below 8, so that float32 holds every partial sum exactly up to 2**24 and the
    result does not depend on the order of the blocks. Beyond, the tolerance grows as the rounding error of
    `blocks` additions does.
    """
    n = options.n
    require_at_least("block_reduce", "n", n, 1)
    x, total = data.integers(0, 8, n, dtype=np.float32), data.filled(0, 1)
    blocks = ceil_div(n, THREADS)
    registers, source = recorded("block_reduce")
    step = Step(block_reduce, (blocks,), (THREADS,), (x, total), 0, closed_form(n), registers, source)
    reference = None if data.virtual else lambda: {"total": x.sum(dtype=np.float64, keepdims=True)}
    tolerance = 1e-5 if 7 * n <= 1 << 24 else max(1e-5, 4 * sqrt(blocks) * 2.0**-24)
    return Problem("block_reduce", (step,), {"total": total}, reference, tolerance)


SPEC = KernelSpec(
    "block_reduce", "sum a vector: a tree in shared memory, one atomic add a block", Options, build
)
