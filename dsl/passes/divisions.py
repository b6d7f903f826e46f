"""Which integer divisions stay divisions in machine code, and which are by a number that the compiler knows.

What it models: a quotient or a remainder by a known number becomes a multiplication and shifts; by any other
it is I2F, MUFU.RCP and F2I and some integer code, for 32 bits and for 64 (dsl/warpir/machine.py counts it). Known is
a constant, a variable that holds one, and what follows from the counter of a loop that is unrolled. NVVM
guards each division by a test for zero, so two equal ones stay two. What it leaves out: the few that become
one (by an unsigned 32-bit number, one after the other) or move out of a loop, and the division that gives the
length of a range with an unknown step. Checked by `smsp__inst_executed_pipe_xu`.
"""

from __future__ import annotations

from dataclasses import replace

from dsl.passes.ssa import Ssa, build
from dsl.passes.unrolling import known_in_turns, unrolled_loops
from dsl.warpir import ir
from dsl.warpir.machine import BY_A_NUMBER, INTEGER_DIVISIONS


def mark_known_divisors(fn: ir.Function) -> ir.Function:
    """Mark, in place, the integer divisions by a register that the compiler knows; return the function."""
    if not any(isinstance(instr.srcs[1], ir.Reg) for block in fn.blocks for _, instr in _divisions(block)):
        return fn
    ssa = build(fn)
    known = _known(ssa)
    for block, in_ssa in zip(fn.blocks, ssa.fn.blocks, strict=True):
        for (position, instr), (_, renamed) in zip(_divisions(block), _divisions(in_ssa), strict=True):
            divisor = renamed.srcs[1]
            if isinstance(divisor, ir.Imm) or divisor.index in known:
                block.instrs[position] = replace(instr, tag=BY_A_NUMBER)
    return fn


def _divisions(block: ir.Block) -> list[tuple[int, ir.Alu]]:
    """List the integer divisions of a block, with their positions."""
    return [
        (position, instr)
        for position, instr in enumerate(block.instrs)
        if isinstance(instr, ir.Alu) and instr.op in INTEGER_DIVISIONS and instr.type not in ir.FLOATS
    ]


def _known(ssa: Ssa) -> set[int]:
    """Return the SSA registers that are numbers once loops are unrolled."""
    return {reg for header in unrolled_loops(ssa) for reg in known_in_turns(ssa, header)}
