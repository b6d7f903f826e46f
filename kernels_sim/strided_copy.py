"""Copy every stride-th element: how a stride turns one request into many sectors.

What to look at in the report (n = 1,048,576, stride = 32):
- Memory: the 32 lanes of a load lie 128 bytes apart, so each needs a sector of its own: 32,768 requests
  read 1,048,576 sectors, 32 a request where 4 would do; 4 of each 32 bytes are used. The stores are
  coalesced: 131,072 sectors.
- The bytes that lanes ask for (4,194,304 each way) do not change with the stride. Only the sectors do:
  stride 1 takes 4 a request, 2 takes 8, 4 takes 16, 8 and more take 32.
- DRAM: the card fetches 64 bytes for a lone sector, so 67.1 MB are read to use 4.2 MB.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dsl import cuda
from kernels_sim.formulas import PER_SECTOR, WARP, ceil_div, require_at_least, row_sectors, space
from kernels_sim.problem import Data, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

THREADS = 256


@cuda.jit
def strided_copy(source, copy, stride, n):
    """Write copy[i] = source[i * stride] for i < n; source has n * stride float32."""
    i = cuda.grid(1)
    if i < n:
        copy[i] = source[i * stride]


@dataclass(frozen=True)
class Options:
    """Hold the options of strided_copy."""

    n: int = field(default=1 << 20, metadata={"help": "elements copied"})
    stride: int = field(default=32, metadata={"help": "distance of two elements read, in elements"})


def strided_sectors(lanes: int, stride: int) -> int:
    """Return the sectors of a request whose lanes lie `stride` elements apart, from a sector's start.

    Up to a stride of 8 the request leaves no sector out between its first and last; from 8 on each lane has
    its own.
    """
    return min(lanes, stride * (lanes - 1) // PER_SECTOR + 1) if lanes else 0


def closed_form(n: int, stride: int) -> dict[str, int]:
    """Return the exact counters; warp w starts at element 32 * stride * w, always a sector's start."""
    requests = ceil_div(n, WARP)
    read = n // WARP * strided_sectors(WARP, stride) + strided_sectors(n % WARP, stride)
    return {
        **space("global_load", lanes=n, requests=requests, sectors=read),
        **space("global_store", lanes=n, requests=requests, sectors=row_sectors(0, n)),
    }


def build(options: Options, data: Data) -> Problem:
    """Return the problem of a strided copy; raise BadOption for n or stride below 1."""
    n, stride = options.n, options.stride
    require_at_least("strided_copy", "n", n, 1)
    require_at_least("strided_copy", "stride", stride, 1)
    source, copy = data.normal(n * stride), data.filled(np.nan, n)
    registers, origin = recorded("strided_copy")
    step = Step(
        strided_copy,
        (ceil_div(n, THREADS),),
        (THREADS,),
        (source, copy, stride, n),
        0,
        closed_form(n, stride),
        registers,
        origin,
    )
    reference = None if data.virtual else lambda: {"copy": source[::stride].astype(np.float64)}
    return Problem("strided_copy", (step,), {"copy": copy}, reference, tolerance=0.0)


SPEC = KernelSpec(
    "strided_copy", "copy every stride-th element: sectors per request grow with the stride", Options, build
)
