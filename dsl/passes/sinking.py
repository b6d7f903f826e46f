"""Which sum of a reduction over lanes is left to the lanes that store it.

What it models: where a kernel ends with `if lane == 0: out[row] = total`, and the last addition of `total`
waits for a shuffle, ptxas lets the other lanes end first and adds after that: 1 FADD a warp and not 32
(flash_backward --deterministic, delta: 4 x 32 + 1 a row). Not where more code follows the if. What it leaves
out: other operations and loads that are read in one arm alone, some of which move there too. Checked by
`smsp__sass_thread_inst_executed_op_fadd_pred_on`.
"""

from __future__ import annotations

from dsl.passes.contract import CONTRACTED
from dsl.passes.ssa import liveness, predecessors
from dsl.warpir import ir


def sink_last_sums(fn: ir.Function) -> ir.Function:
    """Move, in place, the last sum after a shuffle behind the condition of its store; return the function."""
    live, preds = liveness(fn), predecessors(fn)
    for b, block in enumerate(fn.blocks):
        branch = block.terminator
        if not isinstance(branch, ir.Bra) or preds[branch.if_true] != [b]:
            continue
        if not fn.blocks[branch.if_false].instrs and _ends(fn, branch.if_false) and _ends(fn, branch.if_true):
            position = _last_sum(block, live[branch.if_false])
            if position is not None:
                fn.blocks[branch.if_true].instrs.insert(0, block.instrs.pop(position))
    return fn


def _ends(fn: ir.Function, b: int) -> bool:
    """Tell whether the kernel ends behind a block, through empty blocks at most."""
    match fn.blocks[b].terminator:
        case ir.Ret():
            return True
        case ir.Jmp(target=target) if target > b:
            return not fn.blocks[target].instrs and _ends(fn, target)
    return False


def _last_sum(block: ir.Block, live: set[int]) -> int | None:
    """Return the place of a sum with what a shuffle brought, where the block's first target alone reads it.

    live: the registers that the other target reads.
    """
    brought = {i.dst for i in block.instrs if isinstance(i, ir.Shfl)}
    for position in reversed(range(len(block.instrs))):
        instr = block.instrs[position]
        if isinstance(instr, ir.Alu) and instr.op in ("add", "sub") and brought & set(instr.srcs):
            later = [*block.instrs[position + 1 :], block.terminator]
            read = {s for other in later for s in ir.sources(other)}
            written = {d for other in later for d in ir.destinations(other)}
            free = instr.dst not in read and not written & {instr.dst, *instr.srcs}
            return position if instr.type in CONTRACTED and free and instr.dst.index not in live else None
    return None
