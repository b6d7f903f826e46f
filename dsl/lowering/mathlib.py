"""The functions of `math` in kernels: float32 exp and log as the card's code, the rest one operation each.

What it models: libdevice's expf and logf for sm_90, instruction by instruction in kind and number, so that a
multiplication at the end of exp contracts with an addition that follows, as ptxas does it. Measured (h200
fact 11): exp is 4 FFMA, 1 FMUL, 1 FADD and a MUFU; log is 11 FFMA, 1 FMUL and 1 FADD. What it leaves out: the
sequences of the other functions, which dsl/warpir/machine.py counts as a whole (modelled). Which ncu metric
checks it: `smsp__sass_thread_inst_executed_op_{ffma,fmul,fadd}_pred_on`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dsl.lowering import half
from dsl.lowering.builder import Builder
from dsl.lowering.operations import binary, constant, convert, extremum
from dsl.lowering.values import Tup, Val
from dsl.types import FLOATS, HALF_FUNCTIONS, exact_type, hypot_type, math_type, modf_type
from dsl.warpir.ir import Imm, Operand
from dsl.warpir.machine import PREDICATED, PREDICATED_IF_LAST
from gpusim.table import counted

LARGEST_SCALE = 2200
"""A float64 is 0 or infinite after 2**2200 or 2**-2200, whatever it was."""


class _Form(NamedTuple):
    """Describe a float type's bits: its integer type, bits of the mantissa, the exponent field's mask."""

    bits: str
    mantissa: int
    exponents: int
    bias: int
    smallest_normal: float


_FORMS = {
    "f32": _Form("s32", 23, 0xFF, 126, 2.0**-126),
    "f64": _Form("s64", 52, 0x7FF, 1022, 2.0**-1022),
}
"""The bias is that of a mantissa in [0.5, 1)."""

LOG2E = 1.4426950216293335
LOG2E_LOW = 1.925963033500011e-08
"""log2(e) in two float32 pieces: their sum is right to 2**-50."""
LOG2E_OVER_252 = 0.005724980030208826
MAGIC = 12582913.0
"""1.5 * 2**23 + 1: adding it leaves a whole number in the low bits of the mantissa."""
LN2 = 0.6931471824645996
SMALLEST_NORMAL = 1.1754943508222875e-38
LOG_POLYNOMIAL = (
    -0.12948833405971527,
    0.14004762470722198,
    -0.12167185544967651,
    0.14001159369945526,
    -0.16682302951812744,
    0.20010747015476227,
    -0.24999716877937317,
    0.3333320915699005,
    -0.5,
)
"""(log(1 + m) - m) / m**2 for m in [-1/3, 1/3], highest power first. Fitted by weighted least squares at
20,001 Chebyshev points, the weight m**2 / log(1 + m) (relative error) sharpened in 60 rounds (Lawson),
then rounded to float32; the whole log is right to 0.93 ulp.
"""

DIRECT: dict[str, Callable[[Any], Any]] = {
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "tanh": math.tanh,
    "erf": math.erf,
    "log1p": math.log1p,
    "expm1": math.expm1,
    "log2": math.log2,
    "log10": math.log10,
    "exp": math.exp,
    "log": math.log,
    "exp2": lambda x: 2.0**x,
    "floor": lambda x: math.copysign(math.floor(x), x),
    "ceil": lambda x: math.copysign(math.ceil(x), x),
    "trunc": lambda x: math.copysign(math.trunc(x), x),
    "fabs": math.fabs,
    "acos": math.acos,
    "asin": math.asin,
    "atan": math.atan,
    "acosh": math.acosh,
    "asinh": math.asinh,
    "atanh": math.atanh,
    "cosh": math.cosh,
    "sinh": math.sinh,
    "erfc": math.erfc,
    "gamma": math.gamma,
    "lgamma": math.lgamma,
}
PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "pow": math.pow,
    "fmod": math.fmod,
    "atan2": math.atan2,
    "copysign": math.copysign,
    "hypot": math.hypot,
    "remainder": math.remainder,
}
TESTS = {"isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite}
CALLED = {"fabs": "abs", "gamma": "tgamma"}
"""Operations of WarpIR that have another name in Python."""


OF_NUMPY = {
    **{name: name for name in (
        "sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh",
        "tanh", "fabs", "hypot", "copysign", "fmod", "isnan", "isinf", "isfinite", "degrees", "radians")},
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "arctan2": "atan2", "rad2deg": "degrees", "deg2rad": "radians", "absolute": "fabs",
}  # fmt: skip
"""numpy's functions of one number or two -> the function of math that gives the same of floats."""


def is_of_numpy(ufunc: np.ufunc, types: tuple[str | None, ...]) -> bool:
    """Say whether numpy's function of numbers of these types is that of OF_NUMPY: floats of one type."""
    return ufunc.__name__ in OF_NUMPY and len(types) == ufunc.nin and set(types) in ({"f32"}, {"f64"})


def call(b: Builder, name: str, args: tuple[Val, ...]) -> Val | Tup:
    """Emit math.<name>(*args); raises UnsupportedFeature for a wrong number of arguments."""
    arity = 3 if name == "fma" else 2 if name in (*PAIRS, "nextafter", "ldexp") else 1
    if len(args) != arity:
        raise b.mistake(f"math.{name} with {counted(len(args), 'argument')}", f"it takes {arity} here")
    if name in HALF_FUNCTIONS and args[0].type == "f16":
        return half.function(b, name, args[0])
    if name in _SPECIAL:
        return _SPECIAL[name](b, *args)
    element = _TYPES.get(name, math_type)(*(a.type for a in args))
    values = tuple(convert(b, a, element) for a in args)
    if name in TESTS:
        return _test(b, name, values[0])
    folded = _fold(PAIRS[name] if name in PAIRS else DIRECT[name], values)
    if folded is not None:
        return folded
    return Val(_emit(b, name, element, tuple(v.operand for v in values)), element)


def function_type(name: str, x: str) -> str:
    """Return the type of a function of math of one number."""
    return "f16" if name in HALF_FUNCTIONS and x == "f16" else math_type(x)


def _power_type(x: str, n: str) -> str:
    """Give float32 for math.pow(float32, int32) too: numba calls powi there."""
    return "f32" if x == "f32" and n in ("s32", "u16") else math_type(x, n)


_TYPES: dict[str, Callable[..., str]] = {"pow": _power_type, "hypot": hypot_type, "atan2": hypot_type}


def _fold(f: Callable[..., Any], values: tuple[Val, ...]) -> Val | None:
    if any(v.constant is None for v in values):
        return None
    try:
        return constant(f(*(v.constant for v in values)), values[0].type)
    except (
        ArithmeticError,
        ValueError,
    ):  # log(0), an overflow, floor(inf): the machine has an answer, Python has none
        return None


def _emit(b: Builder, name: str, element: str, args: tuple[Operand, ...]) -> Operand:
    if element == "f32" and name in ("exp", "log"):
        return expf(b, args[0]) if name == "exp" else logf(b, args[0])
    if element == "f32" and name == "exp2":
        return b.alu("ex2", "f32", args[0])
    return b.alu(CALLED.get(name, name), element, *args)


def _scaled(factor: float) -> Callable[[Builder, Val], Val]:
    """Return the emitter of degrees or radians: a multiplication in the argument's type, as in numba."""

    def emit(b: Builder, x: Val) -> Val:
        element = math_type(x.type)
        return binary(b, "mul", constant(factor, element), convert(b, x, element))

    return emit


def nextafter(b: Builder, x: Val, y: Val) -> Val:
    """Emit the next number of the common float type from x toward y."""
    element = math_type(x.type, y.type)
    return Val(b.alu("nextafter", element, *(convert(b, v, element).operand for v in (x, y))), element)


def ldexp(b: Builder, x: Val, n: Val) -> Val:
    """Emit x * 2**n, rounded once; n is an int32 as in numba. A scale beyond LARGEST_SCALE makes no odds."""
    if n.type in FLOATS:
        raise b.mistake("math.ldexp by a float", "give an integer, e.g. int(n)")
    element = exact_type(x.type)
    whole = extremum(b, "min", convert(b, n, "s32"), Val(Imm(LARGEST_SCALE), "s32"))
    whole = extremum(b, "max", whole, Val(Imm(-LARGEST_SCALE), "s32"))
    operands = (convert(b, v, element).operand for v in (x, whole))
    return Val(b.alu("ldexp", element, *operands), element)


def modf(b: Builder, x: Val) -> Tup:
    """Emit the fractional part and the whole part of x, both floats with x's sign."""
    element = modf_type(x.type)
    v = convert(b, x, element).operand
    whole = b.alu("trunc", element, v)
    infinite = b.setp("eq", element, b.alu("abs", element, v), Imm(math.inf))
    rest = b.selp(element, Imm(0.0), b.alu("sub", element, v, whole), infinite)
    return Tup((Val(b.alu("copysign", element, rest, v), element), Val(whole, element)))


def frexp(b: Builder, x: Val) -> Tup:
    """Emit m and an int32 e with x = m * 2**e and 0.5 <= |m| < 1; x itself and 0 for 0, inf and NaN."""
    element = exact_type(x.type)
    v = convert(b, x, element).operand
    form = _FORMS[element]
    size = b.alu("abs", element, v)
    small = b.setp("lt", element, size, Imm(form.smallest_normal))
    scaled = b.selp(element, b.alu("mul", element, v, Imm(2.0**form.mantissa), tag=PREDICATED), v, small)
    bits = b.bitcast(scaled, element, form.bits)
    field = b.alu("and", form.bits, b.alu("shr", form.bits, bits, Imm(form.mantissa)), Imm(form.exponents))
    offset = b.selp("s32", Imm(form.bias + form.mantissa), Imm(form.bias), small)
    exponent = b.alu("sub", "s32", convert(b, Val(field, form.bits), "s32").operand, offset)
    kept = b.alu("and", form.bits, bits, Imm(~(form.exponents << form.mantissa)))
    half = b.alu("or", form.bits, kept, Imm(form.bias << form.mantissa))
    finite, nonzero = b.setp("lt", element, size, Imm(math.inf)), b.setp("ne", element, v, Imm(0.0))
    usual = b.alu("and", "pred", finite, nonzero)
    m = b.selp(element, b.bitcast(half, form.bits, element), v, usual)
    return Tup((Val(m, element), Val(b.selp("s32", exponent, Imm(0), usual), "s32")))


def fma(b: Builder, x: Val, y: Val, z: Val) -> Val:
    """Emit x * y + z with one rounding, in the common float type."""
    element = math_type(x.type, y.type, z.type)
    return Val(b.alu("fma", element, *(convert(b, v, element).operand for v in (x, y, z))), element)


def cbrt(b: Builder, x: Val) -> Val:
    """Emit the cube root of x, in float32 where that holds x exactly."""
    element = exact_type(x.type)
    v = convert(b, x, element)
    if v.constant is not None:
        return constant(float(np.cbrt(v.constant)), element)
    return Val(b.alu("cbrt", element, v.operand), element)


_SPECIAL: dict[str, Callable[..., Val | Tup]] = {
    "fma": fma,
    "degrees": _scaled(180.0 / math.pi),
    "radians": _scaled(math.pi / 180.0),
    "nextafter": nextafter,
    "ldexp": ldexp,
    "modf": modf,
    "frexp": frexp,
}
NAMES = frozenset((*DIRECT, *PAIRS, *TESTS, *_SPECIAL))
"""What a kernel may call on `math`."""


def _test(b: Builder, name: str, v: Val) -> Val:
    if v.constant is not None:
        return Val(Imm(TESTS[name](v.constant)), "pred")
    if name == "isnan":
        return Val(b.setp("ne", v.type, v.operand, v.operand), "pred")
    size = b.alu("abs", v.type, v.operand)
    return Val(b.setp("eq" if name == "isinf" else "lt", v.type, size, Imm(math.inf)), "pred")


def expf(b: Builder, x: Operand) -> Operand:
    """Emit exp(x) in float32: 2**k * ex2(x * log2(e) - k), k from a saturated x / 252.

    0 for x below -104 and for -inf, inf for x above 88.73, NaN for NaN. Error below 2 ulp.
    """
    share = b.alu("fma_sat", "f32", x, Imm(LOG2E_OVER_252), Imm(0.5))
    shifted = b.alu("fma_rm", "f32", share, Imm(252.0), Imm(MAGIC))
    k = b.alu("add", "f32", shifted, Imm(-(MAGIC + 126.0)))
    rest = b.alu("fma", "f32", x, Imm(LOG2E), b.alu("neg", "f32", k))
    rest = b.alu("fma", "f32", x, Imm(LOG2E_LOW), rest)
    power = b.alu("shl", "u32", b.bitcast(shifted, "f32", "u32"), Imm(23))
    return b.alu("mul", "f32", b.alu("ex2", "f32", rest), b.bitcast(power, "u32", "f32"))


def logf(b: Builder, x: Operand) -> Operand:
    """Emit log(x) in float32: exponent * ln 2 + a polynomial of degree 10 in m, 1 + m in [2/3, 4/3).

    -inf for 0, NaN below 0 and for NaN, inf for inf. Denormals are scaled by 2**23; dsl/passes/last_reads.py
    says whether that multiplication runs in their lanes only, and is not counted, or in every lane.
    """
    small = b.setp("lt", "f32", x, Imm(SMALLEST_NORMAL))
    scaled = b.selp("f32", b.alu("mul", "f32", x, Imm(8388608.0), tag=PREDICATED_IF_LAST), x, small)
    start = b.selp("f32", Imm(-23.0), Imm(0.0), small)
    bits = b.bitcast(scaled, "f32", "s32")
    exponent = b.alu("and", "s32", b.alu("sub", "s32", bits, Imm(0x3F2AAAAB)), Imm(-0x800000))
    mantissa = b.bitcast(b.alu("sub", "s32", bits, exponent), "s32", "f32")
    whole = b.alu("fma", "f32", b.cvt(exponent, "s32", "f32"), Imm(2.0**-23), start)
    m = b.alu("add", "f32", mantissa, Imm(-1.0))
    r: Operand = Imm(LOG_POLYNOMIAL[0])
    for coefficient in LOG_POLYNOMIAL[1:]:
        r = b.alu("fma", "f32", r, m, Imm(coefficient))
    r = b.alu("fma", "f32", b.alu("mul", "f32", r, m), m, m)
    r = b.alu("fma", "f32", whole, Imm(LN2), r)
    return _log_special(b, x, r)


def _log_special(b: Builder, x: Operand, r: Operand) -> Operand:
    r = b.selp("f32", r, x, b.setp("lt", "f32", x, Imm(math.inf)))  # inf and NaN pass through
    r = b.selp("f32", Imm(math.nan), r, b.setp("lt", "f32", x, Imm(0.0)))
    return b.selp("f32", Imm(-math.inf), r, b.setp("eq", "f32", x, Imm(0.0)))
