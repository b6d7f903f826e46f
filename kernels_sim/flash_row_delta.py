"""D = rowsum(dO * O), one thread a row: what the backward pass of attention needs of the output.

D_i = sum_j P_ij dP_ij = dO_i . O_i, so the gradient of softmax, dS = P (dP - D), needs no sum over the keys.

What to look at in the report (T = 128, 4 heads, d = 64):
- Sectors per request: 32 for O and dO. Each lane walks its own row, and a request takes one element of 32
  rows.
- L1 hit rate: the 8 elements of a sector are asked for in 8 turns, so 7 of 8 hit while 64 rows' sectors stay
  in L1. The bytes moved at L1 are 8 times the bytes asked for; a warp a row with a sum over its lanes would
  ask for 4 sectors a request.
- FLOPs: one FFMA for two elements loaded, 0.25 FLOP a byte.

What it leaves out: 16-bit types.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dsl import cuda
from kernels_sim import flash_row
from kernels_sim.attention import Shape, arithmetic, dram
from kernels_sim.attention_facts import element_facts, of_heads
from kernels_sim.flash_row import Options, own_rows, own_scalars
from kernels_sim.problem import Data, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

ZERO = np.float32(0)


@cache
def make_kernel(d: int) -> Any:
    """Return flash_row_delta(O, dO, D); arrays as in flash_row.py. Grid (ceil(T / Br), H, B), block Br."""

    @cuda.jit
    def flash_row_delta(O, dO, D):
        row = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        h = cuda.blockIdx.y
        b = cuda.blockIdx.z
        if row < O.shape[1]:
            total = ZERO
            for k in range(d):
                total += dO[b, row, h, k] * O[b, row, h, k]
            D[b, h, row] = total

    return flash_row_delta


def build(options: Options, data: Data) -> Problem:
    """Make the problem: dO ~ N(0, 1), O as the forward pass leaves it, D NaN. Raises BadOption."""
    shape = flash_row.shape_of("flash_row_delta", options)
    a = flash_row.arrays(options, shape, data)
    D = data.filled(np.nan, options.B, options.H, shape.N)
    form = closed_form(shape, options.Br)
    grid = (flash_row.blocks_of(shape.N, options.Br), options.H, options.B)
    registers, source = recorded("flash_row_delta", f"d={shape.d}")
    step = Step(make_kernel(shape.d), grid, (options.Br,), (a.O, a.dO, D), 0, form, registers, source)

    def expected() -> dict[str, np.ndarray]:
        return {"D": (a.O.astype(np.float64) * a.dO).sum(axis=-1).transpose(0, 2, 1)}

    elements = shape.heads * shape.N * (2 * shape.d + 1)
    said = element_facts(elements, of_heads("T (2 d + 1)", shape), elements, "each once", (form,))
    check, inputs = None if data.virtual else expected, a.named("O", "dO")
    return Problem("flash_row_delta", (step,), {"D": D}, check, facts=said, options=options, inputs=inputs)


def closed_form(shape: Shape, Br: int) -> dict[str, int]:
    """Return what the counters must be: a row of O and of dO a thread, d FFMA, one store."""
    rows, elements = shape.heads * shape.N, shape.heads * shape.N * shape.d
    stores = own_scalars(shape.heads, shape.N, Br)
    forms = (own_rows(shape.N, Br) * (2 * shape.heads * shape.d)).paths("global_load")
    forms |= stores.paths("global_store") | arithmetic((elements, {"ffma": 1}))
    forms["hierarchy.l2_write"] = stores.sectors
    return forms | dram(2 * elements, rows, (elements, rows))


SUMMARY = "D = rowsum(dO * O) for the backward pass of attention, one thread a row (from Metal)"
SPEC = KernelSpec("flash_row_delta", SUMMARY, Options, build)
