"""Machine code for the narrow floats: their codes to float32 and back, and their arithmetic.

What it models: one rounding to nearest even an operation, with subnormals, and the canonical NaN as a result
(dsl/warpir/formats.py). Sums, products, minima and maxima are taken in float32, whose 24 bits are enough: a
sum or a product of numbers of p bits that is rounded to 2p + 2 bits first is rounded right afterwards
(Figueroa). A fused multiply-add has no such bound, so it goes by way of a sum in float64 that is rounded to
odd. What it leaves out: the host's own conversions (F16C); integer code gives the same on any processor.
Checked by no metric; tests hold it against dsl/semantics/floats.py and exact fractions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsl.warpir.formats import FORMATS, Format

if TYPE_CHECKING:
    from dsl.codegen.alu import Lane

MANTISSA, BIAS, INFINITY, NAN = 23, 127, 0x7F800000, 0x7FFFFFFF
"""Of float32: bits of the mantissa, bias, the codes of infinity and of the NaN that a narrow NaN becomes."""


def widen(lane: Lane, code: str) -> str:
    """Return the float32 that a code of the lane's type stands for: of bfloat16 its upper half."""
    form, wide, bits = FORMATS[lane.type], lane.other("f32"), lane.other("u32")
    raw = lane.cast("zext", code, bits)
    if lane.type == "bf16":
        return bits.cast("bitcast", bits.bin("shl", raw, bits.k(16)), wide)
    size = bits.bin("and", raw, bits.k(form.sign - 1))
    sign = bits.bin("shl", bits.bin("and", raw, bits.k(form.sign)), bits.k(32 - form.bits))
    placed = bits.bin("shl", size, bits.k(MANTISSA - form.mantissa))
    scaled = wide.bin("fmul", bits.cast("bitcast", placed, wide), wide.k(2.0 ** (BIAS - form.bias)))
    number = bits.bin("or", wide.cast("bitcast", scaled, bits), sign)
    if form.infinite:
        infinite = bits.cmp("icmp eq", size, bits.k(form.overflow))
        number = bits.select(infinite, bits.bin("or", bits.k(INFINITY), sign), number)
    nan = bits.cmp("icmp ugt", size, bits.k(form.largest + form.infinite))
    return bits.cast("bitcast", bits.select(nan, bits.k(NAN), number), wide)


def narrow(lane: Lane, value: str, to_type: str, saturate: bool = False) -> str:
    """Return the code of a narrow type nearest to a float32 (the lane's type), the even one of two.

    Too large a number becomes infinity (NaN in e4m3), with `saturate` the largest finite one.
    """
    form, bits = FORMATS[to_type], lane.other("u32")
    raw = lane.cast("bitcast", value, bits)
    size = bits.bin("and", raw, bits.k(2**31 - 1))
    is_small = bits.cmp("icmp ult", size, bits.k(BIAS + 1 - form.bias << MANTISSA))
    code = bits.select(is_small, _subnormal(lane, size, form), _normal(bits, size, form))
    above = bits.cmp("icmp ugt", code, bits.k(form.largest))
    code = bits.select(above, bits.k(form.largest if saturate else form.overflow), code)
    sign = bits.bin("and", bits.bin("lshr", raw, bits.k(32 - form.bits)), bits.k(form.sign))
    is_nan = bits.cmp("icmp ugt", size, bits.k(INFINITY))
    code = bits.select(is_nan, bits.k(form.nan), bits.bin("or", code, sign))
    return bits.cast("trunc", code, lane.other(to_type))


def _normal(bits: Lane, size: str, form: Format) -> str:
    """Cut the mantissa after adding half a unit (less one, for an even last bit); a carry moves the exponent.
    """
    cut = MANTISSA - form.mantissa
    odd = bits.bin("and", bits.bin("lshr", size, bits.k(cut)), bits.k(1))
    half = (1 << cut - 1) - 1 - (BIAS - form.bias << MANTISSA)
    return bits.bin("lshr", bits.bin("add", bits.bin("add", size, bits.k(half)), odd), bits.k(cut))


def _subnormal(lane: Lane, size: str, form: Format) -> str:
    """Add the power of two whose last bit has the worth of the narrow type's: float32 rounds there."""
    bits = lane.other("u32")
    power = lane.k(2.0 ** (1 - form.bias - form.mantissa + MANTISSA))
    total = lane.bin("fadd", bits.cast("bitcast", size, lane), power)
    return bits.bin("sub", lane.cast("bitcast", total, bits), lane.cast("bitcast", power, bits))


def to_odd32(lane: Lane, value: str) -> str:
    """Return a float64 as float32 rounded to odd, so that one more rounding gives what one alone would."""
    single, bits = lane.other("f32"), lane.other("s32")
    near = lane.cast("fptrunc", value, single)
    wide, code = single.cast("fpext", near, lane), single.cast("bitcast", near, bits)
    away = lane.cmp("fcmp ogt", lane.call("fabs", wide), lane.call("fabs", value))
    cut = bits.select(away, bits.bin("sub", code, bits.k(1)), code)
    exact = lane.cmp("fcmp ueq", wide, value)
    return bits.cast("bitcast", bits.select(exact, code, bits.bin("or", cut, bits.k(1))), single)


def two_sum(lane: Lane, a: str, b: str) -> tuple[str, str]:
    """Return a + b rounded to nearest, and the exact rest."""
    s = lane.bin("fadd", a, b)
    t = lane.bin("fsub", s, a)
    return s, lane.bin("fadd", lane.bin("fsub", a, lane.bin("fsub", s, t)), lane.bin("fsub", b, t))


def _sum_to_odd(lane: Lane, a: str, b: str) -> str:
    """Return a + b of float64 rounded to odd: of an inexact sum the neighbour whose last bit is 1."""
    ints, flag = lane.other("s64"), lane.other("pred")
    total, rest = two_sum(lane, a, b)
    code = lane.cast("bitcast", total, ints)
    even = ints.cmp("icmp eq", ints.bin("and", code, ints.k(1)), ints.k(0))
    moves = flag.bin("and", even, lane.cmp("fcmp one", rest, lane.k(0.0)))
    apart = ints.cmp("icmp slt", ints.bin("xor", code, lane.cast("bitcast", rest, ints)), ints.k(0))
    moved = ints.bin("add", code, ints.select(apart, ints.k(-1), ints.k(1)))
    return ints.cast("bitcast", ints.select(moves, moved, code), lane)


def fma(lane: Lane, a: str, b: str, c: str) -> str:
    """Return a * b + c of the lane's narrow type, rounded once; the product is exact in float64."""
    single, double = lane.other("f32"), lane.other("f64")
    x, y, z = (single.cast("fpext", widen(lane, v), double) for v in (a, b, c))
    total = _sum_to_odd(double, double.bin("fmul", x, y), z)
    return narrow(single, to_odd32(double, total), lane.type)


def negated(lane: Lane, code: str) -> str:
    """Return a code with the other sign; NaN is the canonical one."""
    bits = lane.other(f"u{FORMATS[lane.type].bits}")
    return _or_nan(lane, code, bits.bin("xor", code, bits.k(FORMATS[lane.type].sign)))


def absolute(lane: Lane, code: str) -> str:
    """Return a code without its sign; NaN is the canonical one."""
    bits = lane.other(f"u{FORMATS[lane.type].bits}")
    return _or_nan(lane, code, bits.bin("and", code, bits.k(FORMATS[lane.type].sign - 1)))


def _or_nan(lane: Lane, code: str, result: str) -> str:
    """Return the result, the canonical NaN where the code is a NaN."""
    form, bits = FORMATS[lane.type], lane.other(f"u{FORMATS[lane.type].bits}")
    size = bits.bin("and", code, bits.k(form.sign - 1))
    return bits.select(bits.cmp("icmp ugt", size, bits.k(form.overflow)), bits.k(form.nan), result)


def from_other(lane: Lane, value: str, to_type: str, saturate: bool, rounding: str) -> str:
    """Return a value of any other type in a narrow one, rounded once as ir.Cvt says."""
    single = lane.other("f32")
    if rounding != "rn":
        return _cut(single, _in_float32(lane, value), rounding)
    return narrow(single, _in_float32(lane, value), to_type, saturate)


def _in_float32(lane: Lane, value: str) -> str:
    """Return a value as float32: exact where that holds it, else rounded to odd."""
    if lane.type in FORMATS:
        return widen(lane, value)
    if lane.type == "f32":
        return value
    double = lane.other("f64")
    return to_odd32(double, value if lane.type == "f64" else _whole(lane, value, double))


def _cut(lane: Lane, value: str, rounding: str) -> str:
    """Return a float32 as bfloat16 toward zero (rz), down (rd) or up (ru): its upper half, or the next one.

    A float32 that was rounded to odd lies on the same side of every bfloat16 as the number it stands for.
    """
    form, bits = FORMATS["bf16"], lane.other("u32")
    raw = lane.cast("bitcast", value, bits)
    size, negative = bits.bin("and", raw, bits.k(2**31 - 1)), bits.cmp("icmp ugt", raw, bits.k(2**31 - 1))
    rest = bits.k(0xFFFF if rounding != "rz" else 0)
    away = bits.select(negative, *((rest, bits.k(0)) if rounding == "rd" else (bits.k(0), rest)))
    code = bits.bin("lshr", bits.bin("add", size, away), bits.k(16))
    code = bits.bin("or", code, bits.bin("and", bits.bin("lshr", raw, bits.k(16)), bits.k(form.sign)))
    is_nan = bits.cmp("icmp ugt", size, bits.k(INFINITY))
    return bits.cast("trunc", bits.select(is_nan, bits.k(form.nan), code), lane.other("bf16"))


def _whole(lane: Lane, value: str, double: Lane) -> str:
    """Return an integer as float64: exact up to 32 bits, rounded to odd beyond."""
    if lane.scalar != "i64":
        return lane.cast("sitofp" if lane.signed else "uitofp", value, double)
    high = lane.bin("ashr" if lane.signed else "lshr", value, lane.k(32))
    upper = lane.cast("sitofp" if lane.signed else "uitofp", high, double)
    lower = lane.cast("uitofp", lane.bin("and", value, lane.k(2**32 - 1)), double)
    return _sum_to_odd(double, double.bin("fmul", upper, double.k(2.0**32)), lower)
