"""Functions of 16-bit floats in kernels: division, roots, exponentials and logarithms, by way of float32.

What it models: the steps of CUDA's own headers (cuda_fp16.hpp, cuda_bf16.hpp): the argument becomes a
float32, the special function unit does its part, the result is rounded to 16 bits, and single results are put
right. Sums, products and fused multiply-adds are instructions of their own (HADD2, HMUL2, HFMA2; h200 fact
38) and not here. What it leaves out: the card's approximations (fact 41 says how many results differ, by one
in the last place). Which ncu metric checks it: `smsp__inst_executed_pipe_xu`, and `..._op_{ffma,fmul,hfma}_`
of the functions (fact 41).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dsl.lowering.builder import Builder
from dsl.lowering.operations import convert
from dsl.lowering.values import Val
from dsl.types import FLOATS, HALVES, TYPE_NAMES, register_type
from dsl.warpir.formats import FORMATS, decode
from dsl.warpir.ir import Imm, Operand
from dsl.warpir.machine import APPROXIMATE, UNCONTRACTED

LOG2E = {"f16": float.fromhex("0x1.715476p+0"), "bf16": float.fromhex("0x1.715478p+0")}
LOG2_10, LN2, LOG10_2 = (float.fromhex(h) for h in ("0x1.a934fp+1", "0x1.62e43p-1", "0x1.344136p-2"))
"""The headers' constants, float32 each; log2(e) is rounded up for bfloat16."""
NUDGE = 2.0**-24
"""What the headers add to 2**x of a float16, relative to it, before they round it."""


def _table(**codes: tuple[tuple[int, int], ...]) -> dict[str, tuple[tuple[float, float], ...]]:
    def number(code: int) -> float:
        return decode(code, FORMATS["f16"])

    return {name: tuple((number(a), number(b)) for a, b in pairs) for name, pairs in codes.items()}


CORRECTIONS = _table(
    exp=((0x1F79, 0x9400), (0x25CF, 0x9400), (0xC13B, 0), (0xC1EF, 0)),
    exp10=((0x34DE, 0), (0x9766, 0), (0x9972, 0), (0xA5C4, 0), (0xBF0A, 0x8100)),
    log=((0x160D, 0), (0x3BFE, 0), (0x3C0B, 0), (0x6051, 0)),
    log2=((0xA2E2, 0x8080), (0xBF46, 0x9400)),
    log10=((0x338F, 0x1000), (0x33F8, 0x9000), (0x57E1, 0x9800), (0x719D, 0x9C00)),
    sin=((0x32B3, 0x0800), (0x5CB0, 0x9000)),
    cos=((0x2B7C, 0x1000),),
)
"""Of float16: where the argument (of log2 the result, of sin and cos the size) is the first number, the
headers add the second to the result (of sin to its size). Most put right that float32 rounds to a tie; where
the second is 0 they put right an approximation of the card's, which is not here: the instruction alone is."""
EXP10_OF, EXP10_GIVES = (decode(code, FORMATS["bf16"]) for code in (0xBC95, 0x3F75))
"""The one argument of bfloat16's exp10 whose result the header knows."""


def _exp(b: Builder, x: Operand, element: str, factor: float) -> Operand:
    """Emit 2**(x * factor): of float16 the product is an FFMA with -0, of bfloat16 an FMUL."""
    if element == "f16":
        return b.alu("ex2", "f32", b.alu("fma", "f32", x, Imm(factor), Imm(-0.0)))
    return b.alu("ex2", "f32", b.alu("mul", "f32", x, Imm(factor), tag=UNCONTRACTED))


def _exp2(b: Builder, x: Operand, element: str) -> Operand:
    power = b.alu("ex2", "f32", x)
    return b.alu("fma", "f32", power, Imm(NUDGE), power) if element == "f16" else power


def _scaled_log(factor: float) -> Callable[[Builder, Operand, str], Operand]:
    return lambda b, x, element: b.alu("mul", "f32", b.alu("lg2", "f32", x), Imm(factor), tag=UNCONTRACTED)


def _plain(op: str, tag: str = "", of: str = "") -> Callable[[Builder, Operand, str], Operand]:
    """Return the emitter of one operation of float32, with a tag (where it is of the type `of`, if given)."""
    return lambda b, x, element: b.alu(op, "f32", x, tag=tag if of in ("", element) else "")


_BY_FLOAT32: dict[str, Callable[[Builder, Operand, str], Operand]] = {
    "exp": lambda b, x, element: _exp(b, x, element, LOG2E[element]),
    "exp10": lambda b, x, element: _exp(b, x, element, LOG2_10),
    "exp2": _exp2,
    "log": _scaled_log(LN2),
    "log10": _scaled_log(LOG10_2),
    "log2": _plain("lg2"),
    "sqrt": _plain("sqrt", APPROXIMATE),
    "rsqrt": _plain("rsqrt"),
    "rcp": _plain("rcp"),
    "sin": _plain("sin", of="f16", tag=APPROXIMATE),
    "cos": _plain("cos", of="f16", tag=APPROXIMATE),
    "tanh": _plain("tanh", of="bf16", tag=APPROXIMATE),
}
_DIRECT = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "fabs": "abs"}
"""Functions whose results are numbers of 16 bits as they are."""
FUNCTIONS = (*_BY_FLOAT32, *_DIRECT)


def function(b: Builder, name: str, x: Val) -> Val:
    """Emit one of FUNCTIONS of a 16-bit float, in its type."""
    if name in _DIRECT:
        return Val(b.alu(_DIRECT[name], x.type, x.operand), x.type)
    wide = convert(b, x, "f32")
    result = convert(b, Val(_BY_FLOAT32[name](b, wide.operand, x.type), "f32"), x.type).operand
    if x.type == "f16" and name in CORRECTIONS:
        return Val(_corrected(b, name, x.operand, result), "f16")
    if (x.type, name) == ("bf16", "exp10"):
        known = b.setp("eq", "bf16", x.operand, Imm(EXP10_OF))
        return Val(b.selp("bf16", Imm(EXP10_GIVES), result, known), "bf16")
    return Val(result, x.type)


def _corrected(b: Builder, name: str, x: Operand, result: Operand) -> Operand:
    """Emit a result with the headers' corrections, each a fused multiply-add by 1 or by 0."""
    compared = result if name == "log2" else b.alu("abs", "f16", x) if name in ("sin", "cos") else x
    size = b.alu("abs", "f16", result) if name == "sin" else result
    for where, step in CORRECTIONS[name]:
        hit = b.selp("f16", Imm(1.0), Imm(0.0), b.setp("eq", "f16", compared, Imm(where)))
        size = b.alu("fma", "f16", hit, Imm(step), size)
        compared = size if name == "log2" else compared
    if name != "sin":
        return size
    signed = b.selp("f16", b.alu("neg", "f16", size), size, b.setp("lt", "f16", result, Imm(0.0)))
    return b.selp("f16", result, signed, b.setp("eq", "f16", result, Imm(0.0)))


def arithmetic(b: Builder, op: str, args: tuple[Val, ...], exact: bool = False) -> Val:
    """Emit add, sub, mul, fma, min or max of 16-bit floats of one type; `exact` keeps it from contraction."""
    assert args[0].type in HALVES and len({a.type for a in args}) == 1
    operands = (a.operand for a in args)
    return Val(b.alu(op, args[0].type, *operands, tag=UNCONTRACTED if exact else ""), args[0].type)


def nan_extremum(b: Builder, op: str, x: Val, y: Val) -> Val:
    """Emit min or max where a NaN wins (PTX min.NaN)."""
    plain = b.alu(op, x.type, x.operand, y.operand)
    either = b.alu("or", "pred", *(b.setp("ne", x.type, v.operand, v.operand) for v in (x, y)))
    return Val(b.selp(x.type, Imm(math.nan), plain, either), x.type)


def clamped(b: Builder, x: Val) -> Val:
    """Emit x clamped to [0, 1], NaN to 0 (PTX .sat)."""
    positive = b.alu("max", x.type, x.operand, Imm(0.0))
    return Val(b.alu("min", x.type, positive, Imm(1.0)), x.type)


def rectified(b: Builder, x: Val) -> Val:
    """Emit x, but 0 for what is below it; NaN stays (PTX .relu)."""
    return Val(b.selp(x.type, Imm(0.0), x.operand, b.setp("lt", x.type, x.operand, Imm(0.0))), x.type)


def is_infinite(b: Builder, x: Val) -> Val:
    """Emit 1 for +infinity, -1 for -infinity and 0 for any other number, as an int32."""
    above = b.setp("eq", x.type, x.operand, Imm(math.inf))
    below = b.setp("eq", x.type, x.operand, Imm(-math.inf))
    return Val(b.selp("s32", Imm(1), b.selp("s32", Imm(-1), Imm(0), below), above), "s32")


_HEADERS_NAMES = {
    "f32": "float", "f64": "double", "s8": "char", "u8": "uchar", "s16": "short", "u16": "ushort",
    "s32": "int", "u32": "uint", "s64": "ll", "u64": "ull",
}  # fmt: skip


ROUNDINGS = {"rn": "rint", "rz": "trunc", "rd": "floor", "ru": "ceil"}
"""PTX's roundings, to nearest even, toward zero, down and up, and the functions that round so."""
_GIVEN = {"f32": ("", *ROUNDINGS), "f64": ("",), "s8": (), "u8": ()}
"""The roundings in which an element becomes a bfloat16, where not all of ROUNDINGS; "" is rn."""


def _conversions() -> dict[str, tuple[str, str, str]]:
    found = dict.fromkeys(("bfloat16_to_float32", "bfloat162float"), ("bf16", "f32", "rn"))
    for element, header in _HEADERS_NAMES.items():
        numbas = TYPE_NAMES[element]
        for way in _GIVEN.get(element, ROUNDINGS):
            names = (f"{numbas}_to_bfloat16_{way}", f"{header}2bfloat16_{way}")
            found |= {name.rstrip("_"): (element, "bf16", way or "rn") for name in names}
        if element not in FLOATS:
            for way in ("rz",) if element in ("s8", "u8") else ROUNDINGS:
                names = (f"bfloat16_to_{numbas}_{way}", f"bfloat162{header}_{way}")
                found |= dict.fromkeys(names, ("bf16", element, way))
    return found


CONVERSIONS = _conversions()
"""Conversions of cuda.bf16 by the names of numba and of CUDA's headers: what they take and give, and how they
round."""
CODES = {
    **{f"bfloat16_as_{name}": ("bf16", element) for name, element in (("int16", "s16"), ("uint16", "u16"))},
    **{f"{name}_as_bfloat16": (element, "bf16") for name, element in (("int16", "s16"), ("uint16", "u16"))},
    "bfloat16_as_short": ("bf16", "s16"), "bfloat16_as_ushort": ("bf16", "u16"),
    "short_as_bfloat16": ("s16", "bf16"), "ushort_as_bfloat16": ("u16", "bf16"),
}  # fmt: skip
"""Reinterpretations of cuda.bf16: what they take and give."""


def conversion(b: Builder, v: Val, source: str, target: str, rounding: str) -> Val:
    """Emit one of CONVERSIONS; the number becomes a `source` first."""
    v = convert(b, v, source)
    if rounding == "rn" and target not in ("f32", "bf16"):
        return convert(b, function(b, "rint", v), target)
    if rounding in ("rd", "ru") and source == "bf16":
        return convert(b, function(b, ROUNDINGS[rounding], v), target)
    if rounding == "rn" or source == "bf16":
        return convert(b, v, target)
    return Val(b.cvt(v.operand, register_type(source), "bf16", rounding=rounding), "bf16")


def code(b: Builder, v: Val, source: str, target: str) -> Val:
    """Emit one of CODES: the bits of a bfloat16 as an integer, or the other way."""
    if source == "bf16":
        return convert(b, Val(b.bitcast(convert(b, v, source).operand, "bf16", "u16"), "u16"), target)
    return Val(b.bitcast(convert(b, convert(b, v, source), "u16").operand, "u16", "bf16"), "bf16")


_HOMES = {"cuda_fp16": "fp16", "cuda_bf16": "bf16", "cuda_fp8": "fp8"}


def numba_path(obj: Any) -> str | None:
    """Return the path under `cuda` of one of numba.cuda's bindings of CUDA's headers, None for other things.
    """
    space = _HOMES.get(str(getattr(obj, "__module__", "")).rpartition(".")[2])
    name = getattr(obj, "__name__", None)
    return f"{space}.{name.lstrip('_')}" if space and isinstance(name, str) else None
