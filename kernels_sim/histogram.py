"""Count integers into bins, with atomics in global memory or in shared memory first.

What to look at in the report (n = 1,048,576 uniform numbers, 256 bins):
- global: every element is a RED. Lanes that add to one address are served one after another, so the sectors
  of a request are, over the sectors touched, the largest number of lanes on one address: 22.25 a request
  for uniform numbers, 729,138 in all with the default seed, and 32 where all lanes hit one bin. They all go
  to L2, across the chip. (An H200 counted 740,881 for another draw, 1.6 % more than this rule gives for any.)
- shared: 256 blocks count privately and add their 256 bins to the result at the end: 2,048 RED requests and
  8,192 sectors in place of 32,768 and 729,138. The atomics inside the SM cost wavefronts where lanes hit
  different bins of one bank (103,255 of 32,768 requests); lanes on one bin cost nothing more.
- Both read the input once: 131,072 sectors in 32,768 requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy import int32

from dsl import cuda
from gpusim.errors import BadOption
from kernels_sim.formulas import (
    PER_SECTOR,
    WARP,
    ceil_div,
    require_at_least,
    require_choice,
    row_sectors,
    shared,
    space,
)
from kernels_sim.problem import Data, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

THREADS = 256
MAX_BLOCKS = 256
"""Blocks of the shared variant; with more elements each thread takes several, a grid apart."""
WARPS_A_PIECE = 1 << 12
BANKS = 32


@cuda.jit
def histogram_global(values, bins):
    """Add 1 to bins[values[i]] for each i, in global memory; values (n,), bins (bins,), int32."""
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(bins, values[i], 1)


@cuda.jit
def histogram_shared(values, bins):
    """Count into 256 private bins a block, then add all of them to bins; values (n,), bins (256,), int32."""
    private = cuda.shared.array(THREADS, int32)
    t = cuda.threadIdx.x
    private[t] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    step = cuda.gridsize(1)
    while i < values.size:
        cuda.atomic.add(private, values[i], 1)
        i += step
    cuda.syncthreads()
    cuda.atomic.add(bins, t, private[t])


KERNELS = {"global": histogram_global, "shared": histogram_shared}


@dataclass(frozen=True)
class Options:
    """Hold the options of histogram."""

    n: int = field(default=1 << 20, metadata={"help": "numbers to count, uniform in [0, bins)"})
    bins: int = field(default=256, metadata={"help": "number of bins (the shared variant holds up to 256)"})
    variant: str = field(default="global", metadata={"help": "global or shared", "choices": tuple(KERNELS)})


def warps_of(values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the values in pieces of whole warps, so that a table of all their bins fits in memory."""
    piece = WARP * WARPS_A_PIECE
    return (values[i : i + piece] for i in range(0, len(values), piece))


def lanes_by_bin(values: np.ndarray, bins: int, bins_a_row: int) -> np.ndarray:
    """Count each warp's lanes on each bin: int64 of shape (warps, rows of bins, bins_a_row)."""
    warps, rows = ceil_div(len(values), WARP), ceil_div(bins, bins_a_row)
    cells = np.arange(len(values)) // WARP * (rows * bins_a_row) + values
    return np.bincount(cells, minlength=warps * rows * bins_a_row).reshape(warps, rows, bins_a_row)


def red_sectors(values: np.ndarray, bins: int) -> int:
    """Return the sectors of all REDs: summed over the sectors touched, the most lanes on one bin of it."""
    return sum(int(lanes_by_bin(some, bins, PER_SECTOR).max(axis=2).sum()) for some in warps_of(values))


def atomic_wavefronts(values: np.ndarray, bins: int) -> int:
    """Return the wavefronts of all shared atomics: of each warp, the most different bins in one bank."""
    used = (lanes_by_bin(some, bins, BANKS) > 0 for some in warps_of(values))
    return sum(int(bins_used.sum(axis=1).max(axis=1).sum()) for bins_used in used)


def closed_form_global(n: int, bins: int, values: np.ndarray | None) -> dict[str, int]:
    """Return the exact counters of the global variant; without values, all but the sectors of the RED."""
    requests = ceil_div(n, WARP)
    form = {
        **space("global_load", lanes=n, requests=requests, sectors=row_sectors(0, n)),
        "global_red.lanes": n,
        "global_red.bytes": 4 * n,
        "global_red.requests": requests,
    }
    return form if values is None else {**form, "global_red.sectors": red_sectors(values, bins)}


def closed_form_shared(n: int, values: np.ndarray | None) -> dict[str, int]:
    """Return the exact counters of the shared variant; without values, all but the atomics' wavefronts."""
    blocks = blocks_of("shared", n)
    lanes, warps, requests = blocks * THREADS, blocks * THREADS // WARP, ceil_div(n, WARP)
    form = {
        **space("global_load", lanes=n, requests=requests, sectors=row_sectors(0, n)),
        **space("global_red", lanes=lanes, requests=warps, sectors=lanes // PER_SECTOR),
        **shared("shared_store", lanes=lanes, requests=warps, wavefronts=warps),
        **shared("shared_load", lanes=lanes, requests=warps, wavefronts=warps),
        "shared_atom.lanes": n,
        "shared_atom.bytes": 4 * n,
        "shared_atom.requests": requests,
        "barriers": 2 * warps,
    }
    return form if values is None else {**form, "shared_atom.wavefronts": atomic_wavefronts(values, THREADS)}


def blocks_of(variant: str, n: int) -> int:
    """Return the blocks that a variant launches for n elements."""
    blocks = ceil_div(n, THREADS)
    return blocks if variant == "global" else min(MAX_BLOCKS, blocks)


def check(options: Options) -> None:
    """Raise BadOption for n or bins below 1, an unknown variant, or more bins than the shared variant has."""
    require_at_least("histogram", "n", options.n, 1)
    require_at_least("histogram", "bins", options.bins, 1)
    require_choice("histogram", "variant", options.variant, KERNELS)
    if options.variant == "shared" and options.bins > THREADS:
        raise BadOption(
            f"histogram: --bins is {options.bins}, the shared variant holds at most {THREADS}, one a thread; "
            "take --variant global"
        )


def build(options: Options, data: Data) -> Problem:
    """Return the problem of counting n uniform numbers; raise BadOption, see `check`."""
    check(options)
    n, bins, variant = options.n, options.bins, options.variant
    held = bins if variant == "global" else THREADS
    values, counts = data.integers(0, bins, n), data.filled(0, held, dtype=np.int32)
    known = None if data.virtual else values
    form = closed_form_global(n, bins, known) if variant == "global" else closed_form_shared(n, known)
    registers, source = recorded("histogram", variant)
    grid, arguments = (blocks_of(variant, n),), (values, counts)
    step = Step(KERNELS[variant], grid, (THREADS,), arguments, 0, form, registers, source)

    def reference() -> dict[str, np.ndarray]:
        return {"counts": np.bincount(values, minlength=held).astype(np.float64)}

    wanted = None if data.virtual else reference
    return Problem(f"histogram {variant}", (step,), {"counts": counts}, wanted, tolerance=0.0)


SPEC = KernelSpec(
    "histogram", "count integers into bins: global atomics, or shared ones first", Options, build
)
