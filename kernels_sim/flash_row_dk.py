"""dK of attention, one thread a key: every head of its group, every row that sees it, added in registers.

dK_j = scale sum_i dS_ij q_i with dS = P (dO.v - D) and P = exp(scale q.k - L) made anew. As in flash_row_dv a
thread holds its row of the gradient alone; its rows of K and V stay in memory and are read again for every
pair.

What to look at in the report (T = 128, 4 heads over 2, d = 64):
- Loads: five rows a pair, as q is asked for twice: 5 d elements for 6 d FLOPs of products, the most of the
  five kernels. K's and V's rows are the lane's own, 32 sectors a request.
- L1 hit rate: K's and V's 32 rows take 16 KB a warp and are asked for again for every row of Q.
- With --causal lane j starts at row j, and Q and dO too are 32 rows side by side: see flash_row_dv.

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
    """Return flash_row_dk(Q, K, V, dO, L, D, dK, scale, q_start, window).

    Arrays as in flash_row.py, float32; window 0 is none. Grid (ceil(Tk / Br), HKV, B), block Br.
    """

    @cuda.jit
    def flash_row_dk(Q, K, V, dO, L, D, dK, scale, q_start, window):
        dk = cuda.local.array(d, float32)
        j = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        kv = cuda.blockIdx.y
        b = cuda.blockIdx.z
        n_rows = Q.shape[1]
        group = Q.shape[2] // K.shape[2]
        if j < K.shape[1]:
            for k in range(d):
                dk[k] = ZERO
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
                    dp = ZERO
                    for k in range(d):
                        s += Q[b, i, h, k] * K[b, j, kv, k]
                        dp += dO[b, i, h, k] * V[b, j, kv, k]
                    p = math.exp(s * scale - L[b, h, i])
                    ds = p * (dp - D[b, h, i]) * scale
                    for k in range(d):
                        dk[k] += ds * Q[b, i, h, k]

            for k in range(d):
                dK[b, j, kv, k] = dk[k]

    return flash_row_dk


def build(options: Options, data: Data) -> Problem:
    """Make the problem: L and D as forward pass and flash_row_delta leave them, dK NaN. Raises BadOption."""
    shape = flash_row.shape_of("flash_row_dk", options)
    a = flash_row.arrays(options, shape, data)
    dK = data.filled(np.nan, options.B, shape.Nk, options.HKV, shape.d)
    form = closed_form(shape, options.Br)
    registers, source = recorded("flash_row_dk", f"d={shape.d} causal={shape.causal}")
    step = Step(
        kernel=make_kernel(shape.d, shape.causal),
        grid=(flash_row.blocks_of(shape.Nk, options.Br), options.HKV, options.B),
        block=(options.Br,),
        args=(a.Q, a.K, a.V, a.dO, a.L, a.D, dK, np.float32(shape.scale), shape.q_start, shape.window),
        closed_form=form,
        registers=registers,
        registers_source=source,
    )

    def expected() -> dict[str, np.ndarray]:
        return {"dK": flash_row.expected_gradients(options, shape, a)[1]}

    d, pairs, out = shape.d, shape.heads * visible_pairs(shape), shape.kv_heads * shape.Nk * shape.d
    ideal = shape.heads * shape.N * (2 * d + 2) + 3 * out
    said = (
        pair_fact(shape),
        *element_facts(ideal, "H T (2 d + 2) + 3 HKV Tk d", pairs * (5 * d + 2) + out,
                       "(5 d + 2) pairs + HKV Tk d", (form,)),
        *flop_facts(6 * d * pairs, "6 d pairs visible", (form,)),
    )
    check, inputs = None if data.virtual else expected, a.named("Q", "K", "V", "dO", "L", "D")
    return Problem("flash_row_dk", (step,), {"dK": dK}, check, facts=said, options=options, inputs=inputs,
                   summed=lambda: {"dK": flash_row.summed_terms(shape, a)["dK"]})


def closed_form(shape: Shape, Br: int) -> dict[str, int]:
    """Return what the counters must be, by counter path.

    A pair: Q twice, dO, K and V once, L and D; 3 d FFMA, one more for scale s - L, an exponential, a
    subtraction and two multiplications.
    """
    d, heads, pairs = shape.d, shape.heads, shape.heads * visible_pairs(shape)
    rows = walk(*row_range(shape), Br)
    loads = (rows.shared_rows() * 3 + rows.own() * 2) * (heads * d)
    loads += rows.scalars_of_heads(heads, shape.N) * 2
    stores: Access = own_rows(shape.Nk, Br) * (shape.kv_heads * d)
    forms = loads.paths("global_load") | stores.paths("global_store")
    forms |= arithmetic((pairs, {"ffma": 3 * d + 1, "fmul": 2, "fadd": 1}), (pairs, EXP))
    forms["hierarchy.l2_write"] = stores.sectors
    if not flash_row.all_touched(shape):
        return forms
    q, kv, scalars = heads * shape.N * d, shape.kv_heads * shape.Nk * d, heads * shape.N
    return forms | dram(2 * q + 2 * kv + 2 * scalars, kv, (q, kv, scalars))


SUMMARY = "dK of attention, one thread a key, summed over the group in registers (from Metal)"
SPEC = KernelSpec("flash_row_dk", SUMMARY, Options, build)
