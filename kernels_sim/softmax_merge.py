"""Merge softmax states: from what several blocks found in parts of a row of scores to what one would find.

The state of some scores s is m = max s, l = sum exp(s - m) and, for attention, o = sum exp(s - m) v, not yet
divided by l. Merging takes the larger maximum and measures both sums from it; it is associative and
commutative, so the parts may be cut and joined in any order, and the state of no scores (-inf, 0, 0) is its
unit. This is the last step of every attention whose keys are split over blocks.

What to look at in the report (8 parts, 4,096 rows, d = 64):
- Global loads: each of the d threads of a row asks for m and l of every part. They are the same for a warp,
  so a request touches one sector: m and l take two thirds of the requests and a third of the sectors.
- Sectors per request: 2.00, between the 4 of o and the 1 of m and l.
- FLOPs: 28 a state and column, 20 of them in two exponentials. DRAM's bandwidth is the roof all the same.
- --d 0 merges (m, l) alone, a thread a row: neighbouring threads take neighbouring rows, 4 sectors a request.

A part that saw no key may hold anything in l and o: it is left out by its m = -inf, and not by a weight of 0,
as 0 * NaN is NaN. A NaN in a part that is not empty shows. The result may overwrite one of the parts: a row's
m and l are written after all threads have read them. What it leaves out: dividing o by l.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from dsl import cuda
from gpusim.errors import BadOption
from kernels_sim.attention import EXP, Access, arithmetic, dram, each_row
from kernels_sim.attention_facts import element_facts
from kernels_sim.formulas import WARP, ceil_div, require_at_least
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

ZERO, NEG_INF = np.float32(0), np.float32(-np.inf)

ROW_THREADS = 128
"""Threads of a block, one a row, where there is no o."""
WIDEST = 1024
"""Columns of o: a block is one thread a column."""


@cache
def make_kernel(with_o: bool) -> Any:
    """Return softmax_merge(m, l, o, m_out, l_out, o_out), or softmax_merge(m, l, m_out, l_out) without o.

    m, l (parts, rows), o (parts, rows, d); m_out, l_out (rows,), o_out (rows, d); all float32. With o: grid
    rows, block d. Without: grid ceil(rows / 128), block 128.
    """
    return _merge_with_o() if with_o else _merge()


def _merge_with_o() -> Any:
    @cuda.jit
    def softmax_merge(m, l, o, m_out, l_out, o_out):
        row = cuda.blockIdx.x
        column = cuda.threadIdx.x
        top = NEG_INF
        total = ZERO
        acc = ZERO
        for part in range(m.shape[0]):
            m_part = m[part, row]
            l_part = l[part, row]
            o_part = o[part, row, column]
            empty = m_part == NEG_INF
            l_part = ZERO if empty else l_part
            o_part = ZERO if empty else o_part

            new_top = max(top, m_part)
            # Two empty states: -inf - -inf is NaN, so measure from 0.
            shift = new_top if new_top > NEG_INF else ZERO
            old = math.exp(top - shift)
            new = math.exp(m_part - shift)
            total = total * old + l_part * new
            acc = acc * old + o_part * new
            top = new_top

        o_out[row, column] = acc
        cuda.syncthreads()
        if column == 0:
            m_out[row] = top
            l_out[row] = total

    return softmax_merge


def _merge() -> Any:
    @cuda.jit
    def softmax_merge(m, l, m_out, l_out):
        row = cuda.grid(1)
        if row < m.shape[1]:
            top = NEG_INF
            total = ZERO
            for part in range(m.shape[0]):
                m_part = m[part, row]
                l_part = l[part, row]
                l_part = ZERO if m_part == NEG_INF else l_part

                new_top = max(top, m_part)
                shift = new_top if new_top > NEG_INF else ZERO
                old = math.exp(top - shift)
                new = math.exp(m_part - shift)
                total = total * old + l_part * new
                top = new_top

            m_out[row] = top
            l_out[row] = total

    return softmax_merge


@dataclass(frozen=True)
class Options:
    """Hold the options of softmax_merge."""

    parts: int = field(default=8, metadata={"help": "states of a row to merge"})
    rows: int = field(default=4096, metadata={"help": "rows, each merged on its own"})
    d: int = field(default=64, metadata={"help": f"columns of o, at most {WIDEST}; 0: merge m and l alone"})


def build(options: Options, data: Data) -> Problem:
    """Make states of N(0, 1) numbers, some of them empty with NaN in their l and o; raise BadOption."""
    parts, rows, d = options.parts, options.rows, options.d
    require_at_least("softmax_merge", "parts", parts, 1)
    require_at_least("softmax_merge", "rows", rows, 1)
    require_at_least("softmax_merge", "d", d, 0)
    if d > WIDEST:
        why = "a block is one thread a column"
        raise BadOption(f"softmax_merge: --d must be at most {WIDEST}, got {d}: {why}")
    m, l, o = data.normal(parts, rows), data.normal(parts, rows), data.normal(parts, rows, d)
    if not data.virtual:
        np.abs(l, out=l)
        _empty_some(m, l, o)
    m_out, l_out = data.filled(np.nan, rows), data.filled(np.nan, rows)
    o_out = data.filled(np.nan, rows, d)
    grid, block = ((rows,), (d,)) if d else ((ceil_div(rows, ROW_THREADS),), (ROW_THREADS,))
    args = (m, l, o, m_out, l_out, o_out) if d else (m, l, m_out, l_out)
    form = closed_form(parts, rows, d)
    registers, source = recorded("softmax_merge", f"d={d}" if not d else "")
    step = Step(make_kernel(d > 0), grid, block, args, 0, form, registers, source)

    def expected() -> dict[str, np.ndarray]:
        return dict(zip(outputs, merge(m, l, o), strict=False))

    outputs = {"m": m_out, "l": l_out} | ({"o": o_out} if d else {})
    reference = None if data.virtual else expected
    return Problem("softmax_merge", (step,), outputs, reference, facts=facts(parts, rows, d, form),
                   options=options, inputs={"m": m, "l": l, "o": o})


def _empty_some(m: np.ndarray, l: np.ndarray, o: np.ndarray) -> None:
    """Make part r % (parts + 1) of row r empty, where there is such a part; l and o of it become NaN."""
    rows = np.arange(m.shape[1])
    part = rows % (len(m) + 1)
    at = part[part < len(m)], rows[part < len(m)]
    m[at], l[at], o[at] = -np.inf, np.nan, np.nan


def merge(m: np.ndarray, l: np.ndarray, o: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return m, l (rows,) and o (rows, d) of all parts together in float64; parts with m = -inf are empty."""
    full = m != -np.inf
    top = m.astype(np.float64).max(axis=0)
    weight = np.where(full, np.exp(np.where(full, m - np.where(top == -np.inf, 0.0, top), 0.0)), 0.0)
    total = (weight * np.where(full, l, 0.0)).sum(axis=0)
    return top, total, (weight[..., None] * np.where(full[..., None], o, 0.0)).sum(axis=0)


def facts(parts: int, rows: int, d: int, form: dict[str, int]) -> tuple[Fact, ...]:
    """Say how many states are merged, and what moves."""
    states = parts * rows
    ideal = (states + rows) * (2 + d)
    moved = states * (3 * d or 2) + rows * (2 + d)
    return (
        Fact("States Merged", states, "state", "parts rows"),
        *element_facts(ideal, "(parts + 1) rows (2 + d)", moved,
                       "m and l again for each column" if d else "each once", (form,)),
    )


def closed_form(parts: int, rows: int, d: int) -> dict[str, int]:
    """Return the exact counters.

    A state costs a thread two subtractions, two exponentials and, for l and for o, a multiplication and an
    FFMA.
    """
    loads, stores, threads = _with_o(parts, rows, d) if d else _without_o(parts, rows)
    sums, times = 2 if d else 1, threads * parts
    forms = loads.paths("global_load") | stores.paths("global_store")
    forms |= arithmetic((times, {"fadd": 2, "fmul": sums, "ffma": sums}), (2 * times, EXP))
    forms |= {"barriers": ceil_div(d, WARP) * rows, "hierarchy.l2_write": stores.sectors}
    states = parts * rows
    return forms | dram(states * (2 + d), rows * (2 + d), (states, states * d, rows, rows * d))


def _with_o(parts: int, rows: int, d: int) -> tuple[Access, Access, int]:
    """Return loads, stores and threads: a warp's lanes share m and l, thread 0 stores them."""
    warps = ceil_div(d, WARP)
    loads = each_row(parts * rows, d, d) + Access(d, warps, warps) * (2 * parts * rows)
    return loads, each_row(rows, d, d) + Access(1, 1, 1) * (2 * rows), rows * d


def _without_o(parts: int, rows: int) -> tuple[Access, Access, int]:
    """Return loads, stores and threads: neighbouring threads take neighbouring rows."""
    return each_row(parts, rows, ROW_THREADS) * 2, each_row(1, rows, ROW_THREADS) * 2, rows


SUMMARY = "merging softmax states (m, l, o) of parts of a row, with and without o"
SPEC = KernelSpec("softmax_merge", SUMMARY, Options, build)
