"""Which integer divisions stay divisions in machine code, and which are by a number that the compiler knows.

What it models: a quotient or a remainder by a known number becomes a multiplication and shifts; by any other
it is I2F, MUFU.RCP and F2I and some integer code, for 32 bits and for 64 (dsl/warpir/machine.py counts it).
Known is a constant, a variable that holds one, and what follows from the counter of a loop that is unrolled.
NVVM guards each division by a test for zero, so two equal ones stay two. A range with an unknown step
divides too: numba counts its numbers before the loop, once for all turns of a loop around it that do not
change it, unless the step is blockDim. What it leaves out: the few divisions that become one (by an unsigned
32-bit number, one after the other) or move out of a loop, that an empty range does not divide, and while
loops whose turns NVVM counts. Checked by `smsp__inst_executed_pipe_xu`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dsl.passes.ssa import Ssa, build
from dsl.passes.unrolling import known_in_turns, range_of, unrolled_loops
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


def range_divisions(ssa: Ssa) -> Iterator[tuple[int, ir.Loc]]:
    """Yield where ranges with an unknown step divide: the block before the loop, and the loop's line."""
    for header in ssa.loops:
        found, branch = range_of(ssa, header), ssa.fn.blocks[header].terminator
        if found is not None and branch is not None and isinstance(found[-1], ir.Reg):
            outermost = _outermost(ssa, header, found)
            yield next(p for p in ssa.preds[outermost] if p < outermost), branch.loc


def _outermost(ssa: Ssa, header: int, operands: tuple[ir.Operand, ...]) -> int:
    """Return the header of the outermost loop around a range's that changes neither start, stop nor step.

    A step that is a special register (blockDim.x) keeps the division in every turn; gridsize is computed.
    """
    if _is_special_register(ssa, operands[-1]):
        return header
    around = sorted((h for h, last in ssa.loops.items() if h < header <= last), reverse=True)
    for outer in around:
        if not all(_is_invariant(ssa, o, range(outer, ssa.loops[outer] + 1)) for o in operands):
            break
        header = outer
    return header


def _is_special_register(ssa: Ssa, operand: ir.Operand) -> bool:
    found = ssa.defs[operand.index][1] if isinstance(operand, ir.Reg) else None
    return isinstance(found, ir.Sreg) or (isinstance(found, ir.Cvt) and _is_special_register(ssa, found.src))


def _is_invariant(ssa: Ssa, operand: ir.Operand, blocks: range) -> bool:
    """Tell whether a loop of some blocks computes an operand, if at all, from what it does not change."""
    if isinstance(operand, ir.Imm):
        return True
    b, found = ssa.defs[operand.index]
    if b not in blocks or isinstance(found, ir.Sreg | ir.LdParam):
        return True
    pure = isinstance(found, ir.Alu | ir.Cvt | ir.Setp | ir.Selp)
    return pure and all(_is_invariant(ssa, o, blocks) for o in ir.sources(found))  # type: ignore[arg-type]
