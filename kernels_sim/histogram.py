"""Count integers into bins, with atomics in global memory or in shared memory first.

What to look at in the report (n = 1,048,576 uniform numbers, 256 bins):
- global: every element is a RED. Lanes that add to one address are served one after another, so the sectors
  of a request are, over the sectors touched, the largest number of lanes on one address: about 22.6 a
  request here (740,881 measured for one draw), and 32 where all lanes hit one bin. All of them go to L2,
  the far end of the chip.
- shared: 256 blocks count privately and add their 256 bins to the result at the end: 2,048 RED requests and
  8,192 sectors in place of 32,768 and 740,881. The atomics inside the SM cost wavefronts where lanes hit
  different bins of one bank; lanes on one bin cost nothing more.
- Both read the input once: 131,072 sectors in 32,768 requests.
"""

from __future__ import annotations

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
WARPS_A_CHUNK = 1 << 12
VARIANTS = ("global", "shared")


@cuda.jit
def histogram_global(values, bins):
    """Add 1 to bins[values[i]] for each i, in global memory; values (n,), bins (bins,), int32."""
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(bins, values[i], 1)


@cuda.jit
def histogram_shared(values, bins):
    """Count into 256 private bins a block, then add them to bins (at most 256 of them), int32."""
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
    if t < bins.size:
        cuda.atomic.add(bins, t, private[t])


@dataclass(frozen=True)
class Options:
    """Hold the options of histogram."""

    n: int = field(default=1 << 20, metadata={"help": "numbers to count, uniform in [0, bins)"})
    bins: int = field(default=256, metadata={"help": "number of bins (the shared variant holds up to 256)"})
    variant: str = field(default="global", metadata={"help": "global or shared", "choices": VARIANTS})


def lanes_by_bin(values: np.ndarray, bins: int, bins_a_row: int) -> np.ndarray:
    """Count each warp's lanes on each bin: int64 of shape (warps, rows of bins, bins_a_row)."""
    warps, rows = ceil_div(len(values), WARP), ceil_div(bins, bins_a_row)
    cells = np.arange(len(values)) // WARP * (rows * bins_a_row) + values
    return np.bincount(cells, minlength=warps * rows * bins_a_row).reshape(warps, rows, bins_a_row)


def red_sectors(values: np.ndarray, bins: int) -> int:
    """Return the sectors of all REDs: summed over the sectors touched, the most lanes on one bin of it."""
    chunks = (values[i : i + WARP * WARPS_A_CHUNK] for i in range(0, len(values), WARP * WARPS_A_CHUNK))
    return sum(int(lanes_by_bin(chunk, bins, PER_SECTOR).max(axis=2).sum()) for chunk in chunks)


def atomic_wavefronts(values: np.ndarray, bins: int) -> int:
    """Return the wavefronts of all shared atomics: of each warp, the most different bins in one bank."""
    chunks = (values[i : i + WARP * WARPS_A_CHUNK] for i in range(0, len(values), WARP * WARPS_A_CHUNK))
    return sum(int((lanes_by_bin(chunk, bins, WARP) > 0).sum(axis=1).max(axis=1).sum()) for chunk in chunks)


def closed_form_global(n: int, bins: int, values: np.ndarray | None) -> dict[str, int]:
    """Return the exact counters of the global variant; without values, all but the sectors of the RED."""
    requests = ceil_div(n, WARP)
    form = {
        **space("global_load", lanes=n, requests=requests, sectors=row_sectors(0, n)),
        **space(
            "global_red",
            lanes=n,
            requests=requests,
            sectors=0 if values is None else red_sectors(values, bins),
        ),
    }
    return (
        form
        if values is not None
        else {path: count for path, count in form.items() if path != "global_red.sectors"}
    )


def closed_form_shared(n: int, bins: int, blocks: int, values: np.ndarray | None) -> dict[str, int]:
    """Return the exact counters of the shared variant; without values, all but the atomics' wavefronts."""
    warps, used = blocks * THREADS // WARP, blocks * ceil_div(bins, WARP)
    requests = ceil_div(n, WARP)
    atomics = shared(
        "shared_atom",
        lanes=n,
        requests=requests,
        wavefronts=0 if values is None else atomic_wavefronts(values, bins),
    )
    unknown = () if values is not None else ("shared_atom.wavefronts",)
    return {
        **space("global_load", lanes=n, requests=requests, sectors=row_sectors(0, n)),
        **space(
            "global_red", lanes=blocks * bins, requests=used, sectors=blocks * ceil_div(bins, PER_SECTOR)
        ),
        **shared("shared_store", lanes=blocks * THREADS, requests=warps, wavefronts=warps),
        **shared("shared_load", lanes=blocks * bins, requests=used, wavefronts=used),
        **{path: count for path, count in atomics.items() if path not in unknown},
        "barriers": 2 * warps,
    }


def build(options: Options, data: Data) -> Problem:
    """Return the problem of counting n uniform numbers; raise BadOption for n or bins out of range."""
    n, bins, variant = options.n, options.bins, options.variant
    require_at_least("histogram", "n", n, 1)
    require_at_least("histogram", "bins", bins, 1)
    require_choice("histogram", "variant", variant, VARIANTS)
    if variant == "shared" and bins > THREADS:
        raise BadOption(
            f"histogram: --bins is {bins}, the shared variant holds at most {THREADS}; take --variant global"
        )
    values, counts = data.integers(0, bins, n), data.filled(0, bins, dtype=np.int32)
    known = None if data.virtual else values
    registers, source = recorded("histogram", variant)
    if variant == "global":
        blocks, kernel, form = ceil_div(n, THREADS), histogram_global, closed_form_global(n, bins, known)
    else:
        blocks, kernel = min(MAX_BLOCKS, ceil_div(n, THREADS)), histogram_shared
        form = closed_form_shared(n, bins, blocks, known)
    step = Step(kernel, (blocks,), (THREADS,), (values, counts), 0, form, registers, source)
    reference = (
        None if data.virtual else lambda: {"counts": np.bincount(values, minlength=bins).astype(np.float64)}
    )
    return Problem(f"histogram {variant}", (step,), {"counts": counts}, reference, tolerance=0.0)


SPEC = KernelSpec(
    "histogram",
    "count integers into bins: atomics in global memory, or in shared memory first",
    Options,
    build,
)
