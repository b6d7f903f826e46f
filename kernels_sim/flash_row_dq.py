"""dQ of attention, one thread a query row: P again from L, no shared memory, no atomics.

A thread holds its rows of Q and dO and the gradient, walks the keys that its row sees, and makes P =
exp(scale q.k - L) anew: nothing of size T x Tk was kept. dS = P (dO.v - D), dQ = scale sum dS k. A row that
sees no key has L = -inf; it walks no key and gets 0. The gradient is written, not added: the Metal kernel
added to what the buffer held.

What to look at in the report (T = 128, 4 heads over 2, d = 64):
- Sectors per request: without a window all lanes of a warp start at key 0 and read the same row, one sector a
  request. With --window each lane starts at the first key of its own row: 32 rows side by side, 32 sectors.
- L1 hit rate: K and V of a head are walked by every warp of every block. There is no tile: L1 is the tile.
- Loads: a pair's row of K is read once and kept, for the score and for dQ.
- Registers: q, dO, dQ and K's row take 4 d registers a thread; at d = 64 a compiler spills.

What it leaves out: 16-bit types.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from dsl import cuda
from kernels_sim import flash_row
from kernels_sim.attention import EXP, Access, Shape, arithmetic, dram, key_range, visible_pairs
from kernels_sim.attention_facts import element_facts, flop_facts, of_heads, pair_fact
from kernels_sim.flash_row import Options, own_rows, own_scalars, walk
from kernels_sim.problem import Data, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

float32 = np.float32
ZERO = np.float32(0)


@cache
def make_kernel(d: int, causal: bool) -> Any:
    """Return flash_row_dq(Q, K, V, dO, L, D, dQ, scale, q_start, window).

    Arrays as in flash_row.py, float32; window 0 is none. Grid (ceil(T / Br), H, B), block Br.
    """

    @cuda.jit
    def flash_row_dq(Q, K, V, dO, L, D, dQ, scale, q_start, window):
        q = cuda.local.array(d, float32)
        do = cuda.local.array(d, float32)
        dq = cuda.local.array(d, float32)
        key = cuda.local.array(d, float32)
        row = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        h = cuda.blockIdx.y
        b = cuda.blockIdx.z
        kv = h // (Q.shape[2] // K.shape[2])
        n_keys = K.shape[1]
        if row < Q.shape[1]:
            for k in range(d):
                q[k] = Q[b, row, h, k]
                do[k] = dO[b, row, h, k]
                dq[k] = ZERO
            lse = L[b, h, row]
            delta = D[b, h, row]

            begin = 0
            end = n_keys
            if causal:
                end = min(n_keys, q_start + row + 1)
            if window > 0:
                begin = max(0, q_start + row + 1 - window)
            for j in range(begin, end):
                s = ZERO
                dp = ZERO
                for k in range(d):
                    key[k] = K[b, j, kv, k]
                    s += q[k] * key[k]
                    dp += do[k] * V[b, j, kv, k]
                p = math.exp(s * scale - lse)
                ds = p * (dp - delta) * scale
                for k in range(d):
                    dq[k] += ds * key[k]

            for k in range(d):
                dQ[b, row, h, k] = dq[k]

    return flash_row_dq


def build(options: Options, data: Data) -> Problem:
    """Make the problem: L and D as forward pass and flash_row_delta leave them, dQ NaN. Raises BadOption."""
    shape = flash_row.shape_of("flash_row_dq", options)
    a = flash_row.arrays(options, shape, data)
    dQ = data.filled(np.nan, options.B, shape.N, options.H, shape.d)
    form = closed_form(shape, options.Br)
    registers, source = recorded("flash_row_dq", f"d={shape.d} causal={shape.causal}")
    step = Step(
        kernel=make_kernel(shape.d, shape.causal),
        grid=(flash_row.blocks_of(shape.N, options.Br), options.H, options.B),
        block=(options.Br,),
        args=(a.Q, a.K, a.V, a.dO, a.L, a.D, dQ, np.float32(shape.scale), shape.q_start, shape.window),
        closed_form=form,
        registers=registers,
        registers_source=source,
    )

    def expected() -> dict[str, np.ndarray]:
        return {"dQ": flash_row.expected_gradients(options, shape, a)[0]}

    d, pairs = shape.d, shape.heads * visible_pairs(shape)
    rows = shape.heads * shape.N * (3 * d + 2)
    ideal = rows + shape.kv_heads * 2 * d * shape.Nk
    said = (
        pair_fact(shape),
        *element_facts(ideal, "H T (3 d + 2) + 2 HKV Tk d", rows + 2 * d * pairs,
                       of_heads("T (3 d + 2) + 2 d pairs", shape), (form,)),
        *flop_facts(6 * d * pairs, "6 d pairs visible", (form,)),
    )
    check, inputs = None if data.virtual else expected, a.named("Q", "K", "V", "dO", "L", "D")
    return Problem("flash_row_dq", (step,), {"dQ": dQ}, check, facts=said, options=options, inputs=inputs,
                   summed=lambda: {"dQ": flash_row.summed_terms(shape, a)["dQ"]})


def closed_form(shape: Shape, Br: int) -> dict[str, int]:
    """Return what the counters must be, by counter path.

    A row: d elements of Q and dO in, d of dQ out, L and D. A pair: K and V; 3 d FFMA, one more for
    scale s - L, an exponential, a subtraction and two multiplications.
    """
    d, heads, pairs = shape.d, shape.heads, shape.heads * visible_pairs(shape)
    rows = own_rows(shape.N, Br) * (heads * d)
    keys = walk(*key_range(shape), Br).shared_rows() * (2 * d * heads)
    loads: Access = rows * 2 + keys + own_scalars(heads, shape.N, Br) * 2
    forms = loads.paths("global_load") | rows.paths("global_store")
    forms |= arithmetic((pairs, {"ffma": 3 * d + 1, "fmul": 2, "fadd": 1}), (pairs, EXP))
    forms["hierarchy.l2_write"] = rows.sectors
    if not flash_row.all_touched(shape):
        return forms
    q, kv, scalars = heads * shape.N * d, shape.kv_heads * shape.Nk * d, heads * shape.N
    return forms | dram(2 * q + 2 * kv + 2 * scalars, q, (q, kv, scalars))


SUMMARY = "dQ of attention, one thread a row, P recomputed from L, no atomics (from Metal)"
SPEC = KernelSpec("flash_row_dq", SUMMARY, Options, build)
