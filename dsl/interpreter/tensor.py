"""mma of the interpreter: registers of a whole warp in, registers of a whole warp out.

What it models: the values of dsl/semantics/matrix_ops.py. What it leaves out: counts and checks
(dsl/interpreter/run.py). Which ncu metric checks it: none, values are not counted.
"""

from __future__ import annotations

import numpy as np

from dsl.interpreter.warp import Warp
from dsl.semantics import matrix_ops
from dsl.semantics.floats import Array
from dsl.semantics.messages import LANES
from dsl.warpir import ir

ALL = np.ones(LANES, bool)


def _registers(warp: Warp, operands: tuple[ir.Operand, ...], type_: str) -> Array:
    return np.stack([warp.read(o, type_) for o in operands])


def multiply(warp: Warp, instr: ir.Mma) -> None:
    """Run an mma in all 32 lanes."""
    a, b = _registers(warp, instr.a, "u32"), _registers(warp, instr.b, "u32")
    found = matrix_ops.multiply(instr.a_type, instr.b_type, a, b, _registers(warp, instr.c, "f32"))
    for dst, values in zip(instr.dsts, found, strict=True):
        warp.write(dst, values, ALL)
