"""Whether a logarithm is the last to read its argument, which decides how ptxas scales denormals for it.

What it models: `log` multiplies an argument below 2**-126 by 2**23. Where nothing reads the argument later,
ptxas writes the product over it, under a predicate, so that no ordinary number executes the FMUL. Where it is
read later, or in a loop before that stays a loop, the product goes elsewhere, in every lane, and a selection
follows: one FMUL more (h200 fact 28). What it leaves out: other functions. Checked by
`smsp__sass_thread_inst_executed_op_fmul_pred_on`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import networkx as nx

from dsl.passes.ssa import Ssa, build, control_flow
from dsl.passes.unrolling import unrolled_loops
from dsl.warpir import ir
from dsl.warpir.machine import IN_EVERY_LANE, PREDICATED_IF_LAST

Place = tuple[int, int]
"""A block, and an instruction's position in it."""


def scale_in_every_lane(fn: ir.Function) -> ir.Function:
    """Mark, in place, the scaling of logarithms whose argument is read later; return the function."""
    if not any(_scales(instr) for block in fn.blocks for instr in block.instrs):
        return fn
    ssa = build(fn)
    unrolled = unrolled_loops(ssa)
    for b, block in enumerate(fn.blocks):
        found = [p for p, instr in enumerate(block.instrs) if _scales(instr)]
        in_ssa = [p for p, instr in enumerate(ssa.fn.blocks[b].instrs) if _scales(instr)]
        for position, place in zip(found, in_ssa, strict=True):
            instr = block.instrs[position]
            assert isinstance(instr, ir.Alu)
            if _outlives(ssa, unrolled, (b, place)):
                block.instrs[position] = replace(instr, tag=IN_EVERY_LANE)
    return fn


def _scales(instr: ir.Instr) -> bool:
    return isinstance(instr, ir.Alu) and instr.tag == PREDICATED_IF_LAST


def _outlives(ssa: Ssa, unrolled: dict[int, int], log: Place) -> bool:
    """Tell whether the argument of the logarithm at a place is read later, or in a loop before it."""
    b, position = log
    argument = ir.sources(ssa.fn.blocks[b].instrs[position])[0]
    later = nx.descendants(control_flow(ssa.fn), b)
    end = _end(ssa.fn.blocks[b].instrs, position, argument)
    for place, at in _reads(ssa, argument):
        if place == b and position - 1 <= at <= end:
            continue
        if place in later or (place == b and (at > end or _repeats(ssa, b))):
            return True
        if any(h <= place <= last and not h <= b <= last and h not in unrolled
               for h, last in ssa.loops.items()):
            return True
    return False


def _repeats(ssa: Ssa, b: int) -> bool:
    """Tell whether a block is in a loop."""
    return any(header <= b <= last for header, last in ssa.loops.items())


def _end(instrs: list[ir.Instr], position: int, argument: ir.Operand) -> int:
    """Return the place of the logarithm's own last read: its comparison with 0 (dsl/lowering/mathlib.py)."""
    return next(
        p for p in range(position, len(instrs))
        if isinstance(found := instrs[p], ir.Setp) and found.op == "eq" and found.a == argument
    )  # fmt: skip


def _reads(ssa: Ssa, argument: ir.Operand) -> Iterator[Place]:
    """Yield the places that read a register; a phi reads at the end of the block its value comes from."""
    for b, block in enumerate(ssa.fn.blocks):
        for position, instr in enumerate([*block.instrs, block.terminator]):
            if argument in ir.sources(instr):
                yield b, position
        for phi in ssa.phis[b]:
            for source, operand in phi.incoming.items():
                if operand == argument:
                    yield source, len(ssa.fn.blocks[source].instrs)
