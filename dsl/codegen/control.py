"""Machine code for control: branches in both forms, phis on edges, barriers and returns.

What it models: a branch on a uniform condition is a branch; one that lanes differ in sends each part of the
lanes to wait at its block, and the lowest block with waiting lanes runs next (see dsl/codegen/kernel.py). A
barrier saves what lives on and stops the warp. What it leaves out: the other warps (dsl/llvm/runtime.py).
Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsl.llvm.layout import DONE, SPLIT, Ctx, Error, Frame
from dsl.llvm.text import vector
from dsl.warpir import ir

if TYPE_CHECKING:
    from dsl.codegen.kernel import WarpCode

FLAGS = vector("i1")


def leave_block(cg: WarpCode, b: int, terminator: ir.Terminator | None) -> None:
    match terminator:
        case ir.Bra(if_true=yes, if_false=no) if yes == no:
            copy_phis(cg, b, yes, None)
            _go(cg, b, yes)
        case ir.Jmp(target=target):
            copy_phis(cg, b, target, None)
            _go(cg, b, target)
        case ir.Bra(cond=cond, if_true=yes, if_false=no) if cg.shapes.of(cond).uniform:
            _branch(cg, b, cond, yes, no)
        case ir.Bra(cond=cond, if_true=yes, if_false=no):
            _divide(cg, b, cond, yes, no)
        case ir.Bar(target=target, pred=pred):
            _barrier(cg, b, target, pred)
        case ir.Ret(at_end=at_end):
            _return(cg, b, at_end)


def _go(cg: WarpCode, b: int, target: int) -> None:
    """Continue at a block with the lanes of this one."""
    t = cg.text
    if cg.full:
        t.put(f"br label %{cg.label_of(target)}")
        return
    _wait_at(cg, target, cg.bits)
    t.put(f"br label %m{target if target <= b else cg.next_masked(b)}")


def _wait_at(cg: WarpCode, target: int, bits: str) -> None:
    t = cg.text
    place = cg.pending(target)
    old = t.do(f"load i32, ptr {place}")
    t.put(f"store i32 {t.do(f'or i32 {old}, {bits}')}, ptr {place}")


def _branch(cg: WarpCode, b: int, cond: ir.Operand, yes: int, no: int) -> None:
    """Branch on a condition that all active lanes share."""
    t = cg.text
    names = t.name("yes"), t.name("no")
    t.put(f"br i1 {cg.raw(cond, 'pred')}, label %{names[0]}, label %{names[1]}")
    for name, target in zip(names, (yes, no), strict=True):
        t.label(name)
        kept = dict(cg.values)
        copy_phis(cg, b, target, None)
        _go(cg, b, target)
        cg.values = kept


def _divide(cg: WarpCode, b: int, cond: ir.Operand, yes: int, no: int) -> None:
    """Branch on a condition that lanes may differ in."""
    t = cg.text
    if cg.full:
        _divide_full(cg, b, cond, yes, no)
        return
    holds = t.bits(cg.vector(cond, "pred"))
    taken = t.do(f"and i32 {holds}, {cg.bits}")
    other = t.do(f"xor i32 {taken}, {cg.bits}")
    _split(cg, b, yes, taken, no, other)


def _divide_full(cg: WarpCode, b: int, cond: ir.Operand, yes: int, no: int) -> None:
    """Branch where all lanes are there: in most warps all go one way.

    With a known pattern, comparing its two ends tells so.
    """
    t = cg.text
    ends = _ends_of_comparison(cg, b, cond)
    holds = "" if ends else t.bits(cg.vector(cond, "pred"))
    tests = ends or tuple(t.do(f"icmp eq i32 {holds}, {bits}") for bits in (-1, 0))
    for test, target in zip(tests, (yes, no), strict=True):
        arm, rest = t.name("arm"), t.name("rest")
        t.put(f"br i1 {test}, label %{arm}, label %{rest}")
        t.label(arm)
        kept = dict(cg.values)
        copy_phis(cg, b, target, None)
        t.put(f"br label %{cg.label_of(target)}")
        cg.values = kept
        t.label(rest)
    holds = holds or t.bits(cg.vector(cond, "pred"))
    cg.move_stack(save=True)
    _split(cg, b, yes, holds, no, t.do(f"xor i32 {holds}, -1"))


def _ends_of_comparison(cg: WarpCode, b: int, cond: ir.Operand) -> tuple[str, str] | None:
    """Return (all lanes, no lane) for `pattern < uniform` and the like of 64-bit integers, else None.

    Each is one scalar comparison, with the largest or the smallest lane.
    """
    test = cg.ssa.defs[cond.index][1] if isinstance(cond, ir.Reg) else None
    if not isinstance(test, ir.Setp) or test.type != "s64" or test.op not in ("lt", "le", "gt", "ge"):
        return None
    left, right = cg.shapes.of(test.a), cg.shapes.of(test.b)
    if left.pattern is None or not right.uniform or not _readable(cg, b, test.a, test.b):
        return None
    t, base, bound = cg.text, cg.raw(test.a, "s64"), cg.raw(test.b, "s64")
    low, high = (t.do(f"add i64 {base}, {end}") for end in (min(left.pattern), max(left.pattern)))
    if test.op in ("gt", "ge"):
        low, high = high, low
    none = {"lt": "sge", "le": "sgt", "gt": "sle", "ge": "slt"}[test.op]
    return t.do(f"icmp s{test.op} i64 {high}, {bound}"), t.do(f"icmp {none} i64 {low}, {bound}")


def _readable(cg: WarpCode, b: int, *operands: ir.Operand) -> bool:
    """Tell whether operands can be read in block b: constants, values at hand, or in a slot and live.

    After a barrier the slots hold only what lives on: not the operands of a comparison made before it.
    """
    live = cg.ssa.live_in[b] | {phi.dst.index for phi in cg.ssa.phis[b]}
    registers = [o.index for o in operands if isinstance(o, ir.Reg)]
    return all((i, False) in cg.values or i in cg.slots and i in live for i in registers)


def _split(cg: WarpCode, b: int, yes: int, taken: str, no: int, other: str) -> None:
    """Send two parts of the lanes to two blocks; the lower block runs first."""
    t = cg.text
    for target, bits in ((yes, taken), (no, other)):
        copy_phis(cg, b, target, bits)
        _wait_at(cg, target, bits)
    backward = [x for x in (yes, no) if x <= b]
    t.put(f"br label %m{backward[0] if backward else (min(yes, no) if cg.full else cg.next_masked(b))}")


def copy_phis(cg: WarpCode, b: int, target: int, part: str | None) -> None:
    """Carry values to the phis of the next block.

    `part` is the lanes that go there if not all active ones do.
    """
    t = cg.text
    phis = [p for p in cg.ssa.phis[target] if cg.wanted(p.dst.index)]
    moved = []
    for phi in phis:
        varying = cg.shapes.shape[phi.dst.index].varying
        read = cg.vector if varying else cg.raw
        moved.append((phi, varying, read(phi.incoming[b], phi.dst.type)))
    bits = part if part is not None else (None if cg.full else cg.bits)
    for phi, varying, value in moved:
        kind, slot = cg.kind(phi.dst), cg.slots[phi.dst.index]
        if varying and bits is not None and target not in cg.ssa.loops:
            lanes = t.do(f"bitcast i32 {bits} to {FLAGS}")
            old = t.do(f"load {kind}, ptr {slot}")
            value = t.do(f"select {FLAGS} {lanes}, {kind} {value}, {kind} {old}")
        elif not varying and part is not None:
            old = t.do(f"load {kind}, ptr {slot}")
            value = t.do(f"select i1 {t.do(f'icmp ne i32 {part}, 0')}, {kind} {value}, {kind} {old}")
        t.put(f"store {kind} {value}, ptr {slot}")


def _barrier(cg: WarpCode, b: int, target: int, pred: ir.Operand | None) -> None:
    t = cg.text
    if not cg.full:
        live = t.do(f"load i32, ptr {t.field('%frame', Frame.LIVE)}")
        split, fine = t.name("split"), t.name("fine")
        together = t.do(f"icmp eq i32 {live}, {cg.bits}")
        t.put(f"br i1 {together}, label %{fine}, label %{split}, !prof !0")
        t.label(split)
        _split_at_barrier(cg, b, live)
        t.label(fine)
    if pred is not None and (isinstance(pred, ir.Imm) or cg.wanted(pred.index)):
        _gather(cg, pred)
    copy_phis(cg, b, target, None)
    cg.move_saved(target, save=True)
    if cg.full:
        cg.move_stack(save=True)
    cg.leave(b + 1)


def _gather(cg: WarpCode, pred: ir.Operand) -> None:
    """Add this warp's predicates to what the block gathers at the barrier: how many hold, and how many came.
    """
    t = cg.text
    holds = t.do(f"and i32 {t.bits(cg.vector(pred, 'pred'))}, {cg.bits}")
    for word, lanes in ((Ctx.GATHERED, holds), (Ctx.GATHERED_FROM, cg.bits)):
        count = t.intrinsic("ctpop", "i32", lanes)
        t.add_to(t.field("%ctx", word), t.do(f"zext i32 {count} to i64"))


def _split_at_barrier(cg: WarpCode, b: int, live: str) -> None:
    """Count the threads that are here and those that are not.

    The launch stops when the other warps have had their turn.
    """
    t = cg.text
    elsewhere = t.do(f"xor i32 {live}, {cg.bits}")
    for word, lanes in ((Ctx.ERROR_EXTENT, cg.bits), (Ctx.ERROR_MASK, elsewhere)):
        count = t.intrinsic("ctpop", "i32", lanes)
        t.add_to(t.field("%ctx", word), t.do(f"zext i32 {count} to i64"))
    t.put(f"store i64 {b}, ptr {t.field('%ctx', Ctx.ERROR_SITE)}")
    t.put(f"store i64 {Error.BARRIER:d}, ptr {t.field('%ctx', Ctx.ERROR)}")
    cg.leave(SPLIT)


def _return(cg: WarpCode, b: int, at_end: bool) -> None:
    t = cg.text
    if at_end:
        count = t.do(f"zext i32 {t.intrinsic('ctpop', 'i32', cg.bits)} to i64")
        t.add_to(t.field("%ctx", Ctx.PAST_END), count)
    if cg.full:
        cg.leave(DONE)
        return
    place = t.field("%frame", Frame.LIVE)
    live = t.do(f"load i32, ptr {place}")
    left = t.do(f"and i32 {live}, {t.do(f'xor i32 {cg.bits}, -1')}")
    t.put(f"store i32 {left}, ptr {place}")
    t.put(f"br label %m{cg.next_masked(b)}")
