"""The device functions of numbers: popc, clz, brev, ffs, selp, fma and cbrt.

What it models: numba.cuda's result types: popc and clz give the type of their argument and count in its
width, brev works on 32 bits of everything but a uint64, ffs gives a uint32.
What it leaves out: numba also takes a float here and truncates it; that is refused.
Which ncu metric checks it: `smsp__sass_thread_inst_executed_op_integer_pred_on` (modelled; ffs is four).
"""

from __future__ import annotations

from dsl.intrinsics.arguments import Body, Emitter, integer, kind, number, takes
from dsl.lowering import mathlib, operations
from dsl.lowering.builder import Builder
from dsl.lowering.frame import Frame
from dsl.lowering.operations import constant, convert
from dsl.lowering.values import Val, Value
from dsl.types import TYPE_NAMES, bits_type
from dsl.warpir.ir import BYTES, Imm, Operand

SELECTED = ("s16", "u16", "s32", "u32", "s64", "u64", "f32", "f64")
"""Types that selp takes, as numba's cudadecl has them."""


def _unsigned(b: Builder, v: Val) -> tuple[Operand, str]:
    """Return an integer's bits, zero-extended to 32 or 64 bits, and the register type of that width."""
    wide = "u64" if BYTES[v.type] == 8 else "u32"
    if v.type in ("s8", "s16"):  # these stand sign-extended in their register
        return b.alu("and", "u32", v.operand, Imm((1 << 8 * BYTES[v.type]) - 1)), wide
    return v.operand, wide


def _popc(b: Builder, v: Val) -> Operand:
    bits, wide = _unsigned(b, v)
    return b.alu("popc", wide, bits)


def _clz(b: Builder, v: Val) -> Operand:
    bits, wide = _unsigned(b, v)
    zeros, extra = b.alu("clz", wide, bits), 8 * (BYTES[wide] - BYTES[v.type])
    return b.alu("sub", wide, zeros, Imm(extra)) if extra else zeros


def _brev(b: Builder, v: Val) -> Operand:
    return b.alu("brev", v.type, v.operand)


def _ffs(b: Builder, v: Val) -> Operand:
    """Return 1 + the place of the lowest set bit, 0 for 0: width - clz(v & -v)."""
    bits, wide = v.operand, "u64" if BYTES[v.type] == 8 else "u32"
    lowest = b.alu("and", wide, bits, b.alu("neg", wide, bits))
    place = b.alu("sub", wide, Imm(8 * BYTES[wide]), b.alu("clz", wide, lowest))
    return convert(b, Val(place, wide), "u32").operand


def _folded(name: str, bits: int, width: int) -> int:
    """Return what a function of bits gives for a constant, whose bits are an unsigned number."""
    match name:
        case "popc":
            return bits.bit_count()
        case "clz":
            return width - bits.bit_length()
        case "brev":
            return int(f"{bits:0{width}b}"[::-1], 2)
    return (bits & -bits).bit_length()


_EMITTED = {"popc": _popc, "clz": _clz, "brev": _brev, "ffs": _ffs}


def of_bits(frame: Frame, name: str, value: Value) -> Val:
    """Emit popc, clz, brev or ffs of an integer or a boolean; raises UnsupportedFeature for a float."""
    b, v = frame.builder, integer(frame, name, "x", value, boolean=True)
    result = bits_type(name, v.type)
    v = convert(b, v, v.type if name == "ffs" and v.type != "pred" else result)
    if v.constant is not None:
        width = 8 * BYTES[v.type]
        return constant(_folded(name, int(v.constant) & ((1 << width) - 1), width), result)
    return Val(_EMITTED[name](b, v), result)


def _bits(name: str) -> Emitter:
    return takes(name, ("x",), lambda frame, given, used: of_bits(frame, name, given["x"]))


def _selp(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    b, test = frame.builder, integer(frame, "selp", "test", given["test"], boolean=True)
    x, y = (number(frame, "selp", n, given[n]) for n in ("a", "b"))
    if x.type != y.type or x.type not in SELECTED:
        what = f"cuda.selp of {kind(x)} and {kind(y)}"
        raise b.mistake(what, f"give two of one type: {', '.join(TYPE_NAMES[t] for t in SELECTED)}")
    return operations.select(b, operations.truth(b, test), x, y)


def _fma(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    return mathlib.fma(frame.builder, *(number(frame, "fma", n, given[n]) for n in "abc"))


def _cbrt(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    return mathlib.cbrt(frame.builder, number(frame, "cbrt", "a", given["a"]))


def _plain(path: str, names: tuple[str, ...], body: Body) -> dict[str, Emitter]:
    return {path: takes(path, names, body)}


CALLS: dict[str, Emitter] = {
    **{name: _bits(name) for name in _EMITTED},
    **_plain("selp", ("test", "a", "b"), _selp),
    **_plain("fma", ("a", "b", "c"), _fma),
    **_plain("cbrt", ("a",), _cbrt),
}
"""What a kernel may call, by the name under `cuda`."""
