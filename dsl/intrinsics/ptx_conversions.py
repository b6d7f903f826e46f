"""What the conversions of `ptx` emit: two numbers of 16 or 8 bits to a register, and back.

What it models: cvt.rn of two float32 to f16x2, bf16x2, e4m3x2 and e5m2x2, of f16x2 to the 8-bit types and
back, cvt.rna to tf32, mov.b32 between a register and its halves, ex2.approx.ftz. As in PTX the first of two
numbers goes to the upper half, and mov.b32 names the lower half first. A packed conversion is one F2FP (h200
fact 38); taking a register apart and joining it is counted as part of the instructions beside it (ptxas
reads halves in place).
What it leaves out: other roundings, .relu, f16 without a pair. Which ncu metric checks it: none; the integer
operations of WarpIR are modelled.
"""

from __future__ import annotations

from dsl.intrinsics.arguments import Body, Emitter, integer, kind, number, takes
from dsl.lowering.builder import Builder
from dsl.lowering.frame import Frame
from dsl.lowering.operations import convert
from dsl.lowering.values import Tup, Val, Value
from dsl.types import HALVES
from dsl.warpir.ir import Imm, Operand
from dsl.warpir.machine import FOLDED, PACKED

WIDTHS = {"f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8}
FROM_FLOAT32 = {
    "cvt_rn_f16x2_f32": "f16",
    "cvt_rn_bf16x2_f32": "bf16",
    "cvt_rn_satfinite_e4m3x2_f32": "e4m3",
    "cvt_rn_satfinite_e5m2x2_f32": "e5m2",
}
BETWEEN_PAIRS = {
    "cvt_rn_satfinite_e4m3x2_f16x2": ("f16", "e4m3"),
    "cvt_rn_satfinite_e5m2x2_f16x2": ("f16", "e5m2"),
    "cvt_rn_f16x2_e4m3x2": ("e4m3", "f16"),
    "cvt_rn_f16x2_e5m2x2": ("e5m2", "f16"),
}
"""Names -> the type of the numbers in the packed register, or those of source and result."""
UNPACKED = {"mov_b32_f16x2": "f16", "mov_b32_bf16x2": "bf16"}
SMALLEST_NORMAL = 2.0**-126


def _join(b: Builder, low: Operand, high: Operand, element: str) -> Val:
    """Emit the register whose lower and upper parts are two numbers."""
    width = WIDTHS[element]
    parts = [b.bitcast(part, element, f"u{width}") for part in (low, high)]
    raised = b.alu("shl", "u32", parts[1], Imm(width), tag=FOLDED)
    return Val(b.alu("or", "u32", parts[0], raised, tag=FOLDED), "u32" if width == 16 else "u16")


def _halves(b: Builder, packed: Val, element: str) -> tuple[Operand, Operand]:
    """Emit the lower and the upper number of a register."""
    width = WIDTHS[element]
    upper = b.alu("shr", "u32", packed.operand, Imm(width), tag=FOLDED)
    return b.bitcast(packed.operand, f"u{width}", element), b.bitcast(upper, f"u{width}", element)


def _both(b: Builder, low: Operand, high: Operand, source: str, target: str) -> Val:
    """Emit the conversion of two numbers to one register, an F2FP."""
    saturate = WIDTHS[target] == 8
    first = b.cvt(low, source, target, saturate, PACKED)
    return _join(b, first, b.cvt(high, source, target, saturate, FOLDED), target)


def _register(frame: Frame, path: str, name: str, value: Value) -> Val:
    """Return a packed register: the low 32 bits of an integer."""
    return convert(frame.builder, integer(frame, path, name, value), "u32")


def _single(frame: Frame, path: str, name: str, value: Value) -> Operand:
    v = number(frame, path, name, value)
    if v.type != "f32":
        what = f"the {name} of {path} is {kind(v)}"
        raise frame.builder.mistake(what, "give a float32, e.g. np.float32(x)")
    return v.operand


def _from_float32(path: str, target: str) -> Body:
    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        high, low = (_single(frame, path, n, given[n]) for n in "ab")
        return _both(frame.builder, low, high, "f32", target)

    return body


def _between(path: str, source: str, target: str) -> Body:
    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        b = frame.builder
        return _both(b, *_halves(b, _register(frame, path, "a", given["a"]), source), source, target)

    return body


def _unpack(path: str, element: str) -> Body:
    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        halves = _halves(frame.builder, _register(frame, path, "a", given["a"]), element)
        return Tup(tuple(Val(half, element) for half in halves))

    return body


def _pack(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    low, high = (number(frame, "ptx.mov_b32", n, given[n]) for n in ("low", "high"))
    if low.type != high.type or low.type not in HALVES:
        what = f"ptx.mov_b32 of {kind(low)} and {kind(high)}"
        raise frame.builder.mistake(what, "give two float16 or two bfloat16")
    return _join(frame.builder, low.operand, high.operand, low.type)


def _to_tf32(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    """Emit the nearest number of 10 fraction bits, of two the one away from zero: half a unit, then a cut."""
    b, x = frame.builder, _single(frame, "ptx.cvt_rna_tf32_f32", "a", given["a"])
    bits = b.bitcast(x, "f32", "u32")
    rounded = b.alu("and", "u32", b.alu("add", "u32", bits, Imm(0x1000)), Imm(0xFFFFE000), tag=FOLDED)
    ordinary = b.setp("lt", "u32", b.alu("and", "u32", bits, Imm(0x7FFFFFFF), tag=FOLDED), Imm(0x7F800000))
    return Val(b.selp("u32", rounded, bits, ordinary), "u32")


def _ex2(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    """Emit 2**x; a result below the normal numbers becomes 0 (.ftz)."""
    b = frame.builder
    power = b.alu("ex2", "f32", _single(frame, "ptx.ex2_approx_ftz_f32", "a", given["a"]))
    return Val(b.selp("f32", Imm(0.0), power, b.setp("lt", "f32", power, Imm(SMALLEST_NORMAL))), "f32")


def _plain(name: str, names: tuple[str, ...], body: Body) -> tuple[str, Emitter]:
    return f"ptx.{name}", takes(f"ptx.{name}", names, body)


CALLS: dict[str, Emitter] = dict(
    (
        *(_plain(n, ("a", "b"), _from_float32(f"ptx.{n}", t)) for n, t in FROM_FLOAT32.items()),
        *(_plain(n, ("a",), _between(f"ptx.{n}", *types)) for n, types in BETWEEN_PAIRS.items()),
        *(_plain(n, ("a",), _unpack(f"ptx.{n}", t)) for n, t in UNPACKED.items()),
        _plain("mov_b32", ("low", "high"), _pack),
        _plain("cvt_rna_tf32_f32", ("a",), _to_tf32),
        _plain("ex2_approx_ftz_f32", ("a",), _ex2),
    )
)
"""What a kernel may call, by its path."""
