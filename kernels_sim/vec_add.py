"""Add two vectors: the kernel in which nothing goes wrong, one element a thread.

What to look at in the report (n = 1,000,003):
- Memory: a warp's 32 loads of 4 bytes lie side by side, so a request takes 4 sectors: 62,502 requests read
  250,002 sectors. That is the least possible, and what "coalesced" means.
- The last warp has 3 active lanes of 32. It costs a whole request and 1 sector; the counters are of 1,000,003
  elements, not of the 1,000,192 threads launched.
- Compute: one FADD for 12 bytes moved. The roofline line puts the kernel far to the left: DRAM decides its
  speed.
- DRAM: reads are compulsory (8 bytes an element); the 4 MB written stay dirty in L2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsl import cuda
from kernels_sim.formulas import ceil_div, require_at_least, row_sectors, space
from kernels_sim.problem import Data, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

THREADS = 256


@cuda.jit
def vec_add(x, y, total):
    """Write total[i] = x[i] + y[i]; all of shape (n,), float32."""
    i = cuda.grid(1)
    if i < total.size:
        total[i] = x[i] + y[i]


@dataclass(frozen=True)
class Options:
    """Hold the options of vec_add."""

    n: int = field(default=1_000_003, metadata={"help": "elements of each vector"})


def closed_form(n: int) -> dict[str, int]:
    """Return the exact counters for n elements: 12 bytes and one FADD each."""
    requests, sectors = ceil_div(n, 32), row_sectors(0, n)
    return {
        **space("global_load", lanes=2 * n, requests=2 * requests, sectors=2 * sectors),
        **space("global_store", lanes=n, requests=requests, sectors=sectors),
        "arithmetic.fadd": n,
    }


def build(options: Options, data: Data) -> Problem:
    """Return the problem of adding two vectors of N(0, 1) numbers; raise BadOption for n < 1."""
    n = options.n
    require_at_least("vec_add", "n", n, 1)
    x, y, total = data.normal(n), data.normal(n), data.filled(np.nan, n)
    registers, source = recorded("vec_add")
    step = Step(
        vec_add, (ceil_div(n, THREADS),), (THREADS,), (x, y, total), 0, closed_form(n), registers, source
    )
    reference = None if data.virtual else lambda: {"total": x.astype(np.float64) + y}
    return Problem("vec_add", (step,), {"total": total}, reference)


SPEC = KernelSpec("vec_add", "add two vectors, one element a thread: every access coalesced", Options, build)
