"""Divide by a power of two as NVVM does: multiply by its reciprocal.

What it models: a division of floats by a constant whose reciprocal is exact becomes a multiplication, which
gives the same bits and contracts like any other. Every other division stays one (5 FFMA and a MUFU in
float32). What it leaves out: constants that only become known when loops are unrolled. Checked by
`smsp__sass_thread_inst_executed_op_fmul_pred_on`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dsl.warpir import ir

_LEAST_EXPONENT = {"f32": -126, "f64": -1022}
"""Exponent of the smallest normal number; a reciprocal below it would not be exact in every unit."""


def multiply_by_reciprocals(fn: ir.Function) -> ir.Function:
    """Replace divisions by powers of two, in place; return the function."""
    for block in fn.blocks:
        block.instrs = [_multiplied(instr) for instr in block.instrs]
    return fn


def _multiplied(instr: ir.Instr) -> ir.Instr:
    if not isinstance(instr, ir.Alu) or instr.op != "div" or instr.tag or instr.type not in _LEAST_EXPONENT:
        return instr
    dividend, divisor = instr.srcs
    if not isinstance(divisor, ir.Imm):
        return instr
    fraction, exponent = math.frexp(divisor.value)
    least = _LEAST_EXPONENT[instr.type]
    if abs(fraction) != 0.5 or not least <= 1 - exponent <= -least:
        return instr
    return replace(instr, op="mul", srcs=(dividend, ir.Imm(1.0 / divisor.value)))
