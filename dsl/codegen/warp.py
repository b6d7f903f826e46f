"""Machine code for warp operations: shuffles, votes, matches and syncwarp.

What it models: lanes of one warp exchange registers. The lanes that the mask names must be the lanes that run
the instruction, and a source lane must be one of them; anything else stops the launch. What it leaves out:
lanes that would wait for one another at different instructions. Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsl.llvm.layout import Ctx, Error, Frame
from dsl.llvm.text import LANES, TYPES, lanes_constant, vector
from dsl.warpir import ir

if TYPE_CHECKING:
    from dsl.codegen.kernel import WarpCode

FLAGS, INTS, WORDS = vector("i1"), vector("i32"), vector("i64")


def operation(cg: WarpCode, instr: ir.WarpOp) -> None:
    """Emit a warp operation: who takes part, then what it gives."""
    if cg.options.counts_only and not any(cg.wanted(dst.index) for dst in ir.destinations(instr)):
        return
    number = next(n for n, i in enumerate(cg.warp_ops) if i is instr)
    _check_mask(cg, instr.mask, number)
    match instr:
        case ir.Shfl():
            cg.define(instr.dst, _shuffle(cg, instr, number))
        case ir.Vote():
            cg.define(instr.dst, _vote(cg, instr))
        case ir.Match(mode="all"):
            cg.define(instr.dst, _match_all(cg, instr))
        case ir.Match():
            cg.define(instr.dst, _match_any(cg, instr))


def _check_mask(cg: WarpCode, mask: ir.Operand, number: int) -> None:
    """Stop the launch unless every active lane names exactly the active lanes, those that returned aside."""
    t = cg.text
    if cg.full and isinstance(mask, ir.Imm) and int(mask.value) & 0xFFFFFFFF == 0xFFFFFFFF:
        return
    live = "-1" if cg.full else t.do(f"load i32, ptr {t.field('%frame', Frame.LIVE)}")
    if cg.shapes.of(mask).uniform:
        named = t.do(f"and i32 {cg.raw(mask, 'u32')}, {live}")
        same = t.do(f"icmp eq i32 {named}, {cg.bits}")
    else:
        lanes = t.do(f"and {INTS} {cg.vector(mask, 'u32')}, {t.splat(live, 'i32')}")
        equal = t.do(f"icmp eq {INTS} {lanes}, {t.splat(cg.bits, 'i32')}")
        among = t.do(f"and i32 {t.bits(equal)}, {cg.bits}")
        same = t.do(f"icmp eq i32 {among}, {cg.bits}")
    masks = t.do(f"zext {INTS} {cg.vector(mask, 'u32')} to {WORDS}")
    _stop_unless(cg, same, Error.WARP_MASK, number, masks)


def _stop_unless(cg: WarpCode, fine: str, error: Error, number: int, lanes: str) -> None:
    t = cg.text
    bad, on = t.name("apart"), t.name("fine")
    t.put(f"br i1 {fine}, label %{on}, label %{bad}, !prof !0")
    t.label(bad)
    t.put(f"store {WORDS} {lanes}, ptr {t.field('%ctx', Ctx.ERROR_INDEX)}, align 8")
    t.put(f"store i64 {number}, ptr {t.field('%ctx', Ctx.ERROR_SITE)}")
    active = t.do(f"zext i32 {cg.bits} to i64")
    t.put(f"store i64 {active}, ptr {t.field('%ctx', Ctx.ERROR_MASK)}")
    cg.fail(error)
    t.label(on)


def _shuffle(cg: WarpCode, instr: ir.Shfl, number: int) -> str:
    """Return src of another lane: through memory, one store and one gather, in the widest element."""
    t, scalar = cg.text, TYPES[instr.type]
    own = lanes_constant(tuple(range(LANES)), "i32")
    lane = cg.vector(instr.lane, "s32")
    source = _source_lanes(cg, instr.mode, own, lane)
    if not cg.full:
        _check_sources(cg, source, number)
    if cg.shapes.of(instr.src).uniform:
        return cg.raw(instr.src, instr.type)
    value = cg.vector(instr.src, instr.type)
    if cg.shapes.of(instr.dst).uniform:
        first = t.do(f"extractelement {INTS} {source}, i32 {_first_lane(cg)}")
        return t.do(f"extractelement {vector(scalar)} {value}, i32 {first}")
    t.put(f"store {vector(scalar)} {value}, ptr %scratch, align 64")
    size = ir.BYTES[instr.type]
    offsets = t.do(f"mul {INTS} {source}, splat (i32 {size})")
    pointers = t.do(f"getelementptr i8, ptr %scratch, {INTS} {offsets}")
    kind = vector(scalar)
    suffix = {"float": "f32", "double": "f64"}.get(scalar, scalar)
    args = [(vector("ptr"), pointers), ("i32", str(size)), (FLAGS, cg.mask), (kind, "zeroinitializer")]
    return t.call(kind, f"llvm.masked.gather.v{LANES}{suffix}.v{LANES}p0", *args)


def _first_lane(cg: WarpCode) -> str:
    return "0" if cg.full else cg.text.call("i32", "llvm.cttz.i32", ("i32", cg.bits), ("i1", "true"))


def _source_lanes(cg: WarpCode, mode: str, own: str, lane: str) -> str:
    """Return the lane each lane reads.

    A lane past the warp's ends reads itself (idx takes lane modulo 32).
    """
    t = cg.text
    if mode == "idx":
        return t.do(f"and {INTS} {lane}, splat (i32 31)")
    op = {"up": "sub", "down": "add", "bfly": "xor"}[mode]
    other = t.do(f"{op} {INTS} {own}, {lane}")
    inside = t.do(f"icmp ult {INTS} {other}, splat (i32 {LANES})")
    return t.do(f"select {FLAGS} {inside}, {INTS} {other}, {INTS} {own}")


def _check_sources(cg: WarpCode, source: str, number: int) -> None:
    """Stop the launch if an active lane reads one that does not take part."""
    t = cg.text
    taking = t.do(f"lshr {INTS} {t.splat(cg.bits, 'i32')}, {source}")
    there = t.do(f"trunc {INTS} {taking} to {FLAGS}")
    good = t.do(f"and i32 {t.bits(there)}, {cg.bits}")
    fine = t.do(f"icmp eq i32 {good}, {cg.bits}")
    _stop_unless(cg, fine, Error.WARP_SOURCE, number, t.do(f"zext {INTS} {source} to {WORDS}"))


def _vote(cg: WarpCode, instr: ir.Vote) -> str:
    t = cg.text
    holds = t.do(f"and i32 {t.bits(cg.vector(instr.pred, 'pred'))}, {cg.bits}")
    if instr.mode == "ballot":
        return holds
    every = t.do(f"icmp eq i32 {holds}, {cg.bits}")
    some = t.do(f"icmp ne i32 {holds}, 0")
    if instr.mode == "eq":
        return t.do(f"or i1 {every}, {t.do(f'xor i1 {some}, true')}")
    return every if instr.mode == "all" else some


def _raw_bits(cg: WarpCode, instr: ir.Match) -> tuple[str, str]:
    """Return (integer type, vector) of the compared bits."""
    integer = "u64" if ir.BYTES[instr.type] == 8 else "u32"
    value = cg.vector(instr.src, instr.type)
    return TYPES[integer], cg.reinterpreted(value, instr.type, integer, True)


def _lanes_with(cg: WarpCode, scalar: str, value: str, lane: str) -> str:
    """Return the active lanes whose bits are those of one lane."""
    t, kind = cg.text, vector(scalar)
    one = t.do(f"extractelement {kind} {value}, i32 {lane}")
    equal = t.do(f"icmp eq {kind} {value}, {t.splat(one, scalar)}")
    return t.do(f"and i32 {t.bits(equal)}, {cg.bits}")


def _match_all(cg: WarpCode, instr: ir.Match) -> str:
    t = cg.text
    scalar, value = _raw_bits(cg, instr)
    same = _lanes_with(cg, scalar, value, _first_lane(cg))
    return t.do(f"select i1 {t.do(f'icmp eq i32 {same}, {cg.bits}')}, i32 {cg.bits}, i32 0")


def _match_any(cg: WarpCode, instr: ir.Match) -> str:
    """Return, for each lane, the lanes with the same bits: one round for each distinct value."""
    t = cg.text
    scalar, value = _raw_bits(cg, instr)
    before, loop, after = t.name("match"), t.name("value"), t.name("after")
    t.put(f"br label %{before}")
    t.label(before)
    t.put(f"br label %{loop}")
    t.label(loop)
    rest, found, next_rest, next_found = (f"%{t.name()}" for _ in range(4))
    t.put(f"{rest} = phi i32 [ {cg.bits}, %{before} ], [ {next_rest}, %{loop} ]")
    t.put(f"{found} = phi {INTS} [ zeroinitializer, %{before} ], [ {next_found}, %{loop} ]")
    lane = t.call("i32", "llvm.cttz.i32", ("i32", rest), ("i1", "true"))
    same = _lanes_with(cg, scalar, value, lane)
    flags = t.do(f"bitcast i32 {same} to {FLAGS}")
    t.put(f"{next_found} = select {FLAGS} {flags}, {INTS} {t.splat(same, 'i32')}, {INTS} {found}")
    t.put(f"{next_rest} = and i32 {rest}, {t.do(f'xor i32 {same}, -1')}")
    t.put(f"br i1 {t.do(f'icmp eq i32 {next_rest}, 0')}, label %{after}, label %{loop}")
    t.label(after)
    return next_found
