"""Machine code for atomics: the lanes of a warp one after another, in ascending order.

What it models: the operations of `ir.Atom`, each lane finding what the one before it left. What it leaves
out: what is counted (dsl/codegen/memory.py). Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsl.codegen import data
from dsl.codegen.alu import Lane, emit
from dsl.llvm.text import vector
from dsl.warpir import ir

if TYPE_CHECKING:
    from dsl.codegen.kernel import WarpCode


def _after_atomic(cg: WarpCode, instr: ir.Atom, old: str, value: str, number: str) -> str:
    """Return what one lane's atomic leaves in memory."""
    lane = Lane(cg.text, instr.type, False)
    match instr.op:
        case "exch":
            return value
        case "cas":
            assert instr.compare is not None, "the front end gives cas its comparand"
            expected = cg.vector(instr.compare, instr.type)
            one = cg.text.do(f"extractelement {vector(lane.scalar)} {expected}, i32 {number}")
            return lane.select(_same_bits(lane, old, one), value, old)
        case "inc":
            wraps = lane.cmp("icmp uge", old, value)
            return lane.select(wraps, lane.k(0), lane.bin("add", old, lane.k(1)))
        case "dec":
            outside = lane.other("pred").bin(
                "or", lane.cmp("icmp eq", old, lane.k(0)), lane.cmp("icmp ugt", old, value)
            )
            return lane.select(outside, value, lane.bin("sub", old, lane.k(1)))
        case "max_nan" | "min_nan":
            larger = emit(lane, instr.op.removesuffix("_nan"), [value, old], [None, None])
            return lane.select(lane.cmp("fcmp uno", old, old), old, larger)
    return emit(lane, instr.op, [value, old], [None, None])  # of equals (0 and -0), max and min keep the last


def _same_bits(lane: Lane, a: str, b: str) -> str:
    """Compare as a compare-and-swap does: bits, of floats too."""
    if lane.type[0] != "f":
        return lane.cmp("icmp eq", a, b)
    ints = lane.other("u32" if lane.type == "f32" else "u64")
    return ints.cmp("icmp eq", lane.cast("bitcast", a, ints), lane.cast("bitcast", b, ints))


def atomic(cg: WarpCode, instr: ir.Atom) -> None:
    """Do an atomic a lane at a time, in ascending order."""
    t = cg.text
    memory, values = data.narrowed(cg, instr.value, instr.type, True)
    kind, pointers = vector(memory), data.pointers(cg, instr)
    size = ir.BYTES[instr.type]
    if instr.compare is not None:
        cg.vector(instr.compare, instr.type)  # before the loop, so that its lanes are at hand inside
    before, loop, after = t.name("atom"), t.name("lane"), t.name("after")
    t.put(f"br label %{before}")
    t.label(before)
    t.put(f"br label %{loop}")
    t.label(loop)
    rest, olds, next_rest, next_olds = (f"%{t.name()}" for _ in range(4))
    t.put(f"{rest} = phi i32 [ {cg.bits}, %{before} ], [ {next_rest}, %{loop} ]")
    t.put(f"{olds} = phi {kind} [ zeroinitializer, %{before} ], [ {next_olds}, %{loop} ]")
    lane = t.call("i32", "llvm.cttz.i32", ("i32", rest), ("i1", "true"))
    pointer = t.do(f"extractelement {vector('ptr')} {pointers}, i32 {lane}")
    value = t.do(f"extractelement {kind} {values}, i32 {lane}")
    old = t.do(f"load {memory}, ptr {pointer}, align {size}")
    new = _after_atomic(cg, instr, old, value, lane)
    t.put(f"store {memory} {new}, ptr {pointer}, align {size}")
    t.put(f"{next_olds} = insertelement {kind} {olds}, {memory} {old}, i32 {lane}")
    less = t.do(f"sub i32 {rest}, 1")
    t.put(f"{next_rest} = and i32 {rest}, {less}")
    t.put(f"br i1 {t.do(f'icmp eq i32 {next_rest}, 0')}, label %{after}, label %{loop}")
    t.label(after)
    if instr.dst is not None:
        cg.define(instr.dst, cg.reinterpreted(next_olds, instr.type, instr.dst.type, True))
