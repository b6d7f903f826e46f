"""Merge softmax states in Triton: parts (m, l, o) of a row become one.

The twin of kernels_sim/softmax_merge.py: with o a block takes one row and all its columns, and all its
threads ask for the same m and l; without o (--d 0) a block takes 128 rows.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.launching import Launch

ROW_THREADS = 128


@triton.jit
def softmax_merge(
    m, l, o, m_out, l_out, o_out, parts, rows,
    D: tl.constexpr, BD: tl.constexpr, BLOCK: tl.constexpr, WITH_O: tl.constexpr,
):  # fmt: skip
    """Merge `parts` states of BLOCK rows: m, l (parts, rows), o (parts, rows, D), outputs without parts;
    float32. Grid ceil(rows / BLOCK); BLOCK is 1 with o.
    """
    if WITH_O:
        row = tl.program_id(0).to(tl.int64)
        inside = row < rows
        column = tl.arange(0, BD)
        acc = tl.zeros([BD], tl.float32)
        top = float("-inf")
        total = 0.0
    else:
        row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = row < rows
        top = tl.full([BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
    at = row
    for _ in range(0, parts):
        m_part = tl.load(m + at, mask=inside, other=float("-inf"))
        l_part = tl.load(l + at, mask=inside, other=0.0)
        # A part that saw no key may hold anything in l and o: 0 * NaN is NaN.
        empty = m_part == float("-inf")
        l_part = tl.where(empty, 0.0, l_part)
        new_top = tl.maximum(top, m_part)
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        old = tl.exp(top - shift)
        new = tl.exp(m_part - shift)
        total = total * old + l_part * new
        if WITH_O:
            o_part = tl.load(o + at * D + column, mask=column < D, other=0.0)
            acc = acc * old + tl.where(empty, 0.0, o_part) * new
        top = new_top
        at += rows
    if WITH_O:
        tl.store(o_out + row * D + column, acc, mask=column < D)
    tl.store(m_out + row, top, mask=inside)
    tl.store(l_out + row, total, mask=inside)


def launches(options: Any, arrays: Arrays, num_warps: int | None = None) -> list[Launch]:
    """Return the one launch. num_warps: not given, a thread a column, or 4 without o."""
    parts, rows, d = options.parts, options.rows, options.d
    block, width = (1, triton.next_power_of_2(d)) if d else (ROW_THREADS, 1)
    m_out, l_out = arrays.output("m"), arrays.output("l")
    o_out = arrays.output("o") if d else m_out
    args = (arrays["m"], arrays["l"], arrays["o"], m_out, l_out, o_out, parts, rows)
    constants = {"D": d, "BD": width, "BLOCK": block, "WITH_O": d > 0}
    warps = num_warps or max(1, (width if d else ROW_THREADS) // 32)
    return [Launch(softmax_merge, (triton.cdiv(rows, block),), args, constants, warps)]
