"""Machine code for values: arithmetic, conversions, selections, special registers and parameters of one warp.

What it models: each result in the form its lane shape allows: a scalar, the scalar base of a known lane
pattern, or a vector. What it leaves out: memory (dsl/codegen/memory.py) and control (dsl/codegen/control.py).
Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsl.codegen.alu import Lane, compare, convert, emit
from dsl.llvm.layout import Ctx
from dsl.llvm.text import LANES, TYPES, lanes_constant, vector
from dsl.passes.shapes import Shape
from dsl.types import register_type
from dsl.warpir import ir

if TYPE_CHECKING:
    from dsl.codegen.kernel import WarpCode

Computing = (
    ir.Alu | ir.Cvt | ir.Bitcast | ir.Setp | ir.Selp | ir.Sreg | ir.LdParam | ir.ActiveMask | ir.BarResult
)
"""Instructions that neither touch memory nor check an index nor speak to other lanes."""


def value_of(cg: WarpCode, instr: Computing) -> str:
    """Return the value of an instruction without memory, in the representation of its destination."""
    shape = cg.shapes.shape[instr.dst.index]
    read = cg.vector if shape.varying else cg.raw
    match instr:
        case ir.Alu():
            return _alu(cg, instr, shape)
        case ir.Cvt(to_type=to_type, src=src, from_type=from_type):
            lane = Lane(cg.text, from_type, shape.varying)
            value = convert(lane, read(src, from_type), to_type, instr.saturate, instr.rounding)
            return cg.reinterpreted(value, to_type, instr.dst.type, shape.varying)
        case ir.Bitcast(to_type=to_type, src=src, from_type=from_type):
            return _reinterpreted(cg, read(src, register_type(from_type)), instr, shape.varying)
        case ir.Setp(op=op, type=type_, a=a, b=b):
            return compare(Lane(cg.text, type_, shape.varying), op, read(a, type_), read(b, type_))
        case ir.Selp():
            return _select(cg, instr, shape.varying)
        case ir.Sreg(name=name):
            return _special(cg, name, shape)
        case ir.LdParam(dst=dst, name=name):
            return _parameter(cg, dst, name)
        case ir.ActiveMask():
            return cg.bits
        case ir.BarResult(op=op):
            return _gathered(cg, op)


def _reinterpreted(cg: WarpCode, value: str, instr: ir.Bitcast, varying: bool) -> str:
    """Return the bits of a value as another type; integers narrower than a register are its low bits."""
    held, source, target = (Lane(cg.text, t, varying) for t in (
        register_type(instr.from_type), instr.from_type, instr.to_type))
    if held.scalar != source.scalar:
        value = held.cast("trunc", value, source)
    value = cg.reinterpreted(value, instr.from_type, instr.to_type, varying)
    result = Lane(cg.text, register_type(instr.to_type), varying)
    if result.scalar != target.scalar:
        value = target.cast("zext", value, result)
    return cg.reinterpreted(value, result.type, instr.dst.type, varying)


def _alu(cg: WarpCode, instr: ir.Alu, shape: Shape) -> str:
    op, type_ = instr.op, instr.type
    lane = Lane(cg.text, type_, shape.varying)
    imms = [s.value if isinstance(s, ir.Imm) else None for s in instr.srcs]
    read = cg.vector if shape.varying else cg.raw
    args = [read(s, type_) for s in instr.srcs]
    small = False
    if op in ("div", "rem", "floordiv", "floormod") and type_[0] in "su":
        lo, hi = cg.intervals.at(instr.srcs[0], cg.block)
        small = lo >= 0 and hi < 2**31
    patterned = not shape.uniform or (type_[0] in "su" and _from_patterns(cg, instr.srcs))
    if not shape.varying and patterned:
        op, lane = _on_base(op, lane)
        small = False
    return cg.reinterpreted(emit(lane, op, args, imms, small), type_, instr.dst.type, shape.varying)


def _from_patterns(cg: WarpCode, srcs: tuple[ir.Operand, ...]) -> bool:
    return any(not cg.shapes.of(s).uniform for s in srcs)


def _on_base(op: str, lane: Lane) -> tuple[str, Lane]:
    """Return the operation on a pattern's base: it rounds down, whatever the sign of the base."""
    floor = {"div": "floordiv", "rem": "floormod"}
    signed = Lane(lane.text, lane.type.replace("u", "s"), False)
    return floor.get(op, op), signed


def _select(cg: WarpCode, instr: ir.Selp, varying: bool) -> str:
    type_, read = instr.type, cg.vector if varying else cg.raw
    flag, a, b = read(instr.cond, "pred"), read(instr.a, type_), read(instr.b, type_)
    value = Lane(cg.text, type_, varying).select(flag, a, b)
    return cg.reinterpreted(value, type_, instr.dst.type, varying)


def _special(cg: WarpCode, name: str, shape: Shape) -> str:
    kind, _, axis = name.partition(".")
    if kind == "ntid":
        return str(cg.options.block["xyz".index(axis)])
    if kind in ("ctaid", "nctaid"):
        word = (Ctx.CTAID_X if kind == "ctaid" else Ctx.NCTAID_X) + "xyz".index(axis)
        return _context_word(cg, word)
    if kind in ("laneid", "lanemask_lt"):
        return "0"
    return _thread_index(cg, axis, shape)


def _context_word(cg: WarpCode, word: int) -> str:
    t = cg.text
    value = t.do(f"load i64, ptr {t.field('%ctx', word)}")
    return t.do(f"trunc i64 {value} to i32")


def _thread_index(cg: WarpCode, axis: str, shape: Shape) -> str:
    """Return threadIdx: its base for a known pattern, else computed from the linear thread number."""
    t = cg.text
    nx, ny, _ = cg.options.block
    first = t.do(f"mul i32 {_context_word(cg, Ctx.WARP)}, {LANES}")
    if shape.varying:
        lanes = lanes_constant(tuple(range(LANES)), "i32")
        first = t.do(f"add {vector('i32')} {t.splat(first, 'i32')}, {lanes}")
    lane = Lane(t, "u32", shape.varying)
    if axis == "x":
        return lane.bin("urem", first, lane.k(nx))
    rows = lane.bin("udiv", first, lane.k(nx))
    return lane.bin("urem", rows, lane.k(ny)) if axis == "y" else lane.bin("udiv", rows, lane.k(ny))


def _gathered(cg: WarpCode, op: str) -> str:
    """Return what the barrier just passed gathered: a count, or 1 or 0."""
    t = cg.text
    held = _context_word(cg, Ctx.BARRIER_HELD)
    if op == "count":
        return held
    arrived = _context_word(cg, Ctx.BARRIER_ARRIVED)
    test = f"icmp eq i32 {held}, {arrived}" if op == "and" else f"icmp ne i32 {held}, 0"
    return t.do(f"zext i1 {t.do(test)} to i32")


def _parameter(cg: WarpCode, dst: ir.Reg, name: str) -> str:
    """Load a launch parameter: word n of the parameter area, in the order of `parameter_words`."""
    t = cg.text
    place = t.field("%params", parameter_words(cg.fn).index(name))
    if dst.type == "pred":
        return t.do(f"icmp ne i64 {t.do(f'load i64, ptr {place}')}, 0")
    return t.do(f"load {TYPES[dst.type]}, ptr {place}")


def parameter_words(fn: ir.Function) -> list[str]:
    """List the names of a kernel's 64-bit parameter words in order.

    A scalar has one, an array its base, shapes and strides; dynamic shared arrays' shapes follow.
    """
    words: list[str] = []
    for p in fn.params:
        if p.ndim is None:
            words.append(p.name)
        else:
            words.append(f"{p.name}.base")
            words += [f"{p.name}.{what}.{k}" for what in ("shape", "stride") for k in range(p.ndim)]
    words += [f"{a.name}.shape.0" for a in fn.shared if a.bytes == 0]
    return words
