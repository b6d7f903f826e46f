"""Copy a vector from a shifted start: what misalignment costs.

What to look at in the report (n = 1,048,576, offset = 1):
- Memory: a warp reads 128 bytes as ever, but from 4 bytes past a sector's start, so it touches 5 sectors:
  163,840 in 32,768 requests, a quarter more than the 131,072 of the stores. Any offset that is a multiple
  of 8 elements (32 bytes) brings 4 back; every other one costs 5.
- L1: the fifth sector of a warp is the first one of its neighbour. On the card 28,672 of the 163,840
  sectors hit in L1, so L2 and DRAM see little of the waste: misalignment is cheap, a stride is not.
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
def offset_copy(source, copy, offset, n):
    """Write copy[i] = source[i + offset] for i < n; source has n + offset float32."""
    i = cuda.grid(1)
    if i < n:
        copy[i] = source[i + offset]


@dataclass(frozen=True)
class Options:
    """Hold the options of offset_copy."""

    n: int = field(default=1 << 20, metadata={"help": "elements copied"})
    offset: int = field(default=1, metadata={"help": "first element read"})


def closed_form(n: int, offset: int) -> dict[str, int]:
    """Return the exact counters; every warp starts offset mod 8 elements into a sector."""
    requests = ceil_div(n, 32)
    return {
        **space("global_load", lanes=n, requests=requests, sectors=row_sectors(offset, n)),
        **space("global_store", lanes=n, requests=requests, sectors=row_sectors(0, n)),
    }


def build(options: Options, data: Data) -> Problem:
    """Return the problem of a shifted copy; raise BadOption for n < 1 or a negative offset."""
    n, offset = options.n, options.offset
    require_at_least("offset_copy", "n", n, 1)
    require_at_least("offset_copy", "offset", offset, 0)
    source, copy = data.normal(n + offset), data.filled(np.nan, n)
    registers, origin = recorded("offset_copy")
    step = Step(
        offset_copy,
        (ceil_div(n, THREADS),),
        (THREADS,),
        (source, copy, offset, n),
        0,
        closed_form(n, offset),
        registers,
        origin,
    )
    reference = None if data.virtual else lambda: {"copy": source[offset:].astype(np.float64)}
    return Problem("offset_copy", (step,), {"copy": copy}, reference, tolerance=0.0)


SPEC = KernelSpec(
    "offset_copy", "copy from a shifted start: a misaligned request takes a fifth sector", Options, build
)
