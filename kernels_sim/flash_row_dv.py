"""dV of attention, one thread a key: every head of its group, every row that sees it, added in registers.

dV_j = sum_i P_ij dO_i with P = exp(scale q.k - L) made anew. A thread holds nothing but its row of the
gradient and adds to it alone, so there are no atomics and the sum has one order. dK has a kernel of its own:
both gradients in one thread would take 3 d registers and spill, and computing q.k in both costs less.

What to look at in the report (T = 128, 4 heads over 2, d = 64):
- Sectors per request: K's row is the lane's own, 32 sectors a request, read once and kept. Q and dO are one
  row for the whole warp without --causal; with it lane j starts at row j, so that 32 lanes read 32 rows side
  by side.
- L1 hit rate: a sector of Q or dO serves 8 elements in turn, and the other warp of the block again.
- GQA: the thread walks the rows of H / HKV heads, so the sum over the group costs no memory traffic of its
  own.
- Load balance: with --causal key 0 is seen by all rows and the last by one; blocks of late keys end early.

A key that no row sees gets 0. What it leaves out: 16-bit types.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from dsl import cuda
from kernels_sim import flash_row
from kernels_sim.attention import EXP, Access, Shape, arithmetic, dram, visible_pairs
from kernels_sim.attention_facts import element_facts, flop_facts, pair_fact
from kernels_sim.flash_row import Options, own_rows, row_range, walk
from kernels_sim.problem import Data, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

float32 = np.float32
ZERO = np.float32(0)


@cache
def make_kernel(d: int, causal: bool) -> Any:
    """Return flash_row_dv(Q, K, dO, L, dV, scale, q_start, window).

    Arrays as in flash_row.py, float32; window 0 is none. Grid (ceil(Tk / Br), HKV, B), block Br.
    """

    @cuda.jit
    def flash_row_dv(Q, K, dO, L, dV, scale, q_start, window):
        dv = cuda.local.array(d, float32)
        key = cuda.local.array(d, float32)
        j = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        kv = cuda.blockIdx.y
        b = cuda.blockIdx.z
        n_rows = Q.shape[1]
        group = Q.shape[2] // K.shape[2]
        if j < K.shape[1]:
            for k in range(d):
                key[k] = K[b, j, kv, k]
                dv[k] = ZERO
            begin = 0
            end = n_rows
            if causal:
                begin = max(0, j - q_start)
            if window > 0:
                end = min(n_rows, j - q_start + window)

            for r in range(group):
                h = kv * group + r
                for i in range(begin, end):
                    s = ZERO
                    for k in range(d):
                        s += Q[b, i, h, k] * key[k]
                    p = math.exp(s * scale - L[b, h, i])
                    for k in range(d):
                        dv[k] += p * dO[b, i, h, k]

            for k in range(d):
                dV[b, j, kv, k] = dv[k]

    return flash_row_dv


def build(options: Options, data: Data) -> Problem:
    """Make the problem: L as the forward pass leaves it, dV pre-filled with NaN. Raises BadOption."""
    shape = flash_row.shape_of("flash_row_dv", options)
    a = flash_row.arrays(options, shape, data)
    dV = data.filled(np.nan, options.B, shape.Nk, options.HKV, shape.d)
    form = closed_form(shape, options.Br)
    registers, source = recorded("flash_row_dv", f"d={shape.d} causal={shape.causal}")
    step = Step(
        kernel=make_kernel(shape.d, shape.causal),
        grid=(flash_row.blocks_of(shape.Nk, options.Br), options.HKV, options.B),
        block=(options.Br,),
        args=(a.Q, a.K, a.dO, a.L, dV, np.float32(shape.scale), shape.q_start, shape.window),
        closed_form=form,
        registers=registers,
        registers_source=source,
    )

    def expected() -> dict[str, np.ndarray]:
        return {"dV": flash_row.expected_gradients(options, shape, a)[2]}

    d, pairs, out = shape.d, shape.heads * visible_pairs(shape), shape.kv_heads * shape.Nk * shape.d
    ideal = shape.heads * shape.N * (2 * d + 1) + 2 * out
    said = (
        pair_fact(shape),
        *element_facts(ideal, "H T (2 d + 1) + 2 HKV Tk d", pairs * (2 * d + 1) + 2 * out,
                       "(2 d + 1) pairs + 2 HKV Tk d", (form,)),
        *flop_facts(4 * d * pairs, "4 d pairs visible", (form,)),
    )
    check, inputs = None if data.virtual else expected, a.named("Q", "K", "dO", "L")
    return Problem("flash_row_dv", (step,), {"dV": dV}, check, facts=said, options=options, inputs=inputs)


def closed_form(shape: Shape, Br: int) -> dict[str, int]:
    """Return what the counters must be, by counter path.

    A key: d elements of K in, d of dV out. A pair: Q, dO and L; 2 d FFMA, one more for scale s - L, and an
    exponential.
    """
    d, heads, pairs = shape.d, shape.heads, shape.heads * visible_pairs(shape)
    rows = walk(*row_range(shape), Br)
    own: Access = own_rows(shape.Nk, Br) * (shape.kv_heads * d)
    loads = rows.shared_rows() * (2 * heads * d) + own + rows.scalars_of_heads(heads, shape.N)
    forms = loads.paths("global_load") | own.paths("global_store")
    forms |= arithmetic((pairs, {"ffma": 2 * d + 1}), (pairs, EXP))
    forms["hierarchy.l2_write"] = own.sectors
    if not flash_row.all_touched(shape):
        return forms
    q, kv, scalars = heads * shape.N * d, shape.kv_heads * shape.Nk * d, heads * shape.N
    return forms | dram(2 * q + kv + scalars, kv, (q, kv, scalars))


SUMMARY = "dV of attention, one thread a key, summed over the group in registers (from Metal)"
SPEC = KernelSpec("flash_row_dv", SUMMARY, Options, build)
