"""Exact float arithmetic on arrays: one rounding per operation, as the card does it.

What it models: fused multiply-add of float32 and float64, its saturating and round-down forms, PTX min and
max, the power of two (`ex2`) as a fixed sequence of float32 operations, float to integer conversion, and
the C library's functions. What it leaves out: the last bits of the card's own approximations (MUFU.EX2 is
within 2 ulp of these values). Which ncu metric checks it: none, values are not counted; tests hold it
against `fractions.Fraction`.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from dsl.warpir.formats import Format

Array = np.ndarray[Any, np.dtype[Any]]

EX2_COEFFICIENTS = tuple(
    np.float32(float.fromhex(h))
    for h in (
        "0x1.41fbbcp-13",
        "0x1.5f3e52p-10",
        "0x1.3b2d4cp-7",
        "0x1.c6aee8p-5",
        "0x1.ebfbdcp-3",
        "0x1.62e430p-1",
        "0x1p0",
    )
)
"""c6 .. c0 of 2**f on [-0.5, 0.5]: c0 = 1 is fixed, the others are a minimax fit of the relative error
(iteratively reweighted least squares on 4,001 Chebyshev nodes: 1.98e-9 before the coefficients are rounded
to float32)."""


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return (s, e) in float64: s = a + b rounded to nearest, e the exact rest (Knuth's TwoSum)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """Add float64 arrays rounding to odd: an inexact sum gets the neighbour whose last bit is 1.

    A second rounding to 51 bits or fewer then gives what one rounding of the exact sum would.
    """
    s, e = _two_sum(a, b)
    even = (s.view(np.int64) & 1) == 0
    toward = np.where(e > 0, np.inf, -np.inf)
    return np.where(np.isfinite(s) & (e != 0) & even, np.nextafter(s, toward), s)


def to_odd32(x: Array) -> Array:
    """Return float64 as float32, rounded to odd, so that rounding once more to 22 bits or fewer is right."""
    near = x.astype(np.float32)
    bits, wide = near.view(np.int32), near.astype(np.float64)
    toward_zero = np.where(np.abs(wide) > np.abs(x), bits - 1, bits)
    return np.where((wide == x) | np.isnan(x), bits, toward_zero | 1).view(np.float32)


def narrow(x: Array, form: Format, saturate: bool = False) -> Array:
    """Return float32 or float64 in a narrow format, rounded once to nearest even; NaN is the canonical one.

    Too large a number becomes infinity (NaN in e4m3), with `saturate` the largest finite one.
    """
    with np.errstate(all="ignore"):
        single = to_odd32(x) if x.dtype == np.float64 else x
        codes = single.astype(form.dtype).view(f"u{form.bits // 8}")
    codes = np.where(np.isnan(single), form.nan, codes).astype(codes.dtype)
    if saturate:
        size = codes & (form.sign - 1)
        over = (size > form.largest) & ~np.isnan(single)
        codes = np.where(over, codes & form.sign | form.largest, codes).astype(codes.dtype)
    return codes.view(form.dtype)


def fma_to_odd(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c as float64 rounded to odd, of float32 arrays whose products float64 holds exactly."""
    return _sum_to_odd(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))


def exact_or_odd(x: Array) -> Array:
    """Return numbers as float32 or float64: floats as they are, integers exactly, or rounded to odd."""
    if x.dtype.kind == "f":
        return x
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    high, low = x >> 32, x & 0xFFFFFFFF
    return _sum_to_odd(high.astype(np.float64) * 2.0**32, low.astype(np.float64))


def cut(x: Array, form: Format, rounding: str) -> Array:
    """Return float32 or float64 as bfloat16, rounded toward zero (rz), down (rd) or up (ru).

    It is the nearest code, or the one before it where that lies past the number.
    """
    with np.errstate(all="ignore"):
        single = to_odd32(x) if x.dtype == np.float64 else x
        near = narrow(single, form)
        back, code = near.astype(np.float32), near.view(np.uint16)
    negative, one = np.signbit(single), np.uint16(1)
    past, smaller = {
        "rz": (np.abs(back) > np.abs(single), np.full(x.shape, True)),
        "rd": (back > single, ~negative),
        "ru": (back < single, negative),
    }[rounding]
    return np.where(past, np.where(smaller, code - one, code + one), code).view(form.dtype)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c of float32 arrays, rounded once; the float64 product is exact (48 of 53 bits)."""
    return fma_to_odd(a, b, c).astype(np.float32)


def fma32_sat(a: Array, b: Array, c: Array) -> Array:
    """Return fma32 clamped to [0, 1]; NaN and -0 give +0 (PTX fma.rn.sat.f32)."""
    r = fma32(a, b, c)
    return np.where(r > 0, np.minimum(r, np.float32(1)), np.float32(0))


def fma32_rm(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c of float32 arrays rounded down (PTX fma.rm.f32); an exact cancellation gives -0."""
    p, c64 = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    exact = _sum_to_odd(p, c64)
    r = exact.astype(np.float32)
    down = np.where(np.isfinite(exact) & (r > exact), np.nextafter(r, np.float32(-np.inf)), r)
    return np.where((exact == 0) & (np.signbit(p) | np.signbit(c64)), np.float32(-0.0), down)


def _fma64_lane(a: float, b: float, c: float) -> float:
    """Return one float64 fused multiply-add through exact fractions."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return (
            c
            if math.isfinite(a) and math.isfinite(b)
            else float(np.float64(a) * np.float64(b) + np.float64(c))
        )
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        # -0 only as -0 + -0; a cancellation of two numbers is +0 when rounding to nearest.
        sign = math.copysign(1.0, a) * math.copysign(1.0, b)
        return c if c == 0 and math.copysign(1.0, c) == sign else 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def fma64(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c of float64 arrays, rounded once."""
    flat = [
        _fma64_lane(*lane)
        for lane in zip(a.ravel().tolist(), b.ravel().tolist(), c.ravel().tolist(), strict=True)
    ]
    return np.array(flat, np.float64).reshape(np.shape(a))


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c rounded once in the type of `a` (float32 or float64)."""
    return fma32(a, b, c) if a.dtype == np.float32 else fma64(a, b, c)


def maximum(a: Array, b: Array) -> Array:
    """Return the larger; the other operand where one is NaN; b where neither is larger (PTX max.f32)."""
    return np.where(np.isnan(b), a, np.where(np.isnan(a), b, np.where(a > b, a, b)))


def minimum(a: Array, b: Array) -> Array:
    """Return the smaller; the other operand where one is NaN; b where neither is smaller."""
    return np.where(np.isnan(b), a, np.where(np.isnan(a), b, np.where(a < b, a, b)))


def _power_of_two(n: Array) -> Array:
    """Return 2**n in float32 for integers n in [-126, 127], made from its bits."""
    return ((n.astype(np.int32) + np.int32(127)) << np.int32(23)).view(np.float32)


def ex2(x: Array) -> Array:
    """Return 2**x of float32 within 1.5 ulp, denormal results included.

    Machine code repeats these steps, one float32 operation each:

    1. n = rint(x) (ties to even), taken as 0 where x is NaN, and clamped to [-150, 128];
    2. f = x - n (exact; in [-0.5, 0.5] wherever the result of step 6 is kept);
    3. p = c6; then p = fma(p, f, c) for c in c5, c4, c3, c2, c1, c0 (EX2_COEFFICIENTS);
    4. h = n >> 1 as an int32 (arithmetic shift);
    5. r = (p * 2**h) * 2**(n - h); the first product is exact, the second rounds once (to a denormal if
       need be);
    6. x >= 128 gives +inf, x < -150 gives 0, NaN gives x itself.
    """
    n = np.clip(np.where(np.isnan(x), np.float32(0), np.rint(x)), np.float32(-150), np.float32(128))
    f = x - n
    p = np.full_like(x, EX2_COEFFICIENTS[0])
    for c in EX2_COEFFICIENTS[1:]:
        p = fma32(p, f, np.full_like(x, c))
    whole = n.astype(np.int32)
    half = whole >> 1
    r = (p * _power_of_two(half)) * _power_of_two(whole - half)
    r = np.where(x >= 128, np.float32(np.inf), np.where(x < -150, np.float32(0), r))
    return np.where(np.isnan(x), x, r)


def lg2(x: Array) -> Array:
    """Return log2 of float32, computed in float64 and rounded (MUFU.LG2 is an approximation of it)."""
    return np.log2(x.astype(np.float64)).astype(np.float32)


def reciprocal(x: Array) -> Array:
    """Return 1 / x, correctly rounded."""
    return np.divide(x.dtype.type(1), x)


def rsqrt(x: Array) -> Array:
    """Return 1 / sqrt(x) with two roundings."""
    return reciprocal(np.sqrt(x))


def to_int(x: Array, dtype: Any) -> Array:
    """Convert floats to integers: truncate, saturate at the ends of the type (PTX cvt.rzi).

    NaN gives 0; of a float64, and as 64 bits, the highest bit alone.
    """
    target, info = np.dtype(dtype), np.iinfo(dtype)
    highest = x.dtype == np.float64 or target.itemsize == 8
    of_nan = np.array(1 << 8 * target.itemsize - 1 if highest else 0, f"u{target.itemsize}").view(target)
    v = np.trunc(x.astype(np.float64))
    above, below = v >= float(info.max), v <= float(info.min)
    inside = np.where(np.isnan(v) | above | below, 0.0, v).astype(target)
    saturated = np.where(above, target.type(info.max), np.where(below, target.type(info.min), inside))
    return np.where(np.isnan(v), of_nan, saturated)


_NUMPY_NAMES = {
    "pow": "power",
    "atan2": "arctan2",
    **{f"a{name}": f"arc{name}" for name in ("cos", "sin", "tan", "cosh", "sinh", "tanh")},
}
_C_NAMES = ("tgamma", "lgamma", "hypot")
"""Functions for which Python's math has code of its own, with other last bits than the C library's."""


@cache
def _c_function(name: str) -> Callable[..., float]:
    """Return a function of the C library that takes and gives float64."""
    function = getattr(ctypes.CDLL("ucrtbase" if os.name == "nt" else None), name)
    function.restype, function.argtypes = ctypes.c_double, (ctypes.c_double,) * (1 + (name == "hypot"))
    return function


def _or_ieee(name: str) -> Callable[..., float]:
    """Return a function of Python's math that gives IEEE's answer where Python raises an error."""
    fallback = getattr(np, _NUMPY_NAMES.get(name, name), None) or getattr(math, name)

    def lane(*args: float) -> float:
        try:
            return float(getattr(math, name)(*args))
        except (ValueError, OverflowError, AttributeError):
            return float(fallback(*args))

    return lane


def _ldexp(x: Array, n: Array) -> Array:
    """Return x * 2**n rounded once."""
    with np.errstate(all="ignore"):
        return np.ldexp(x.astype(np.float64), n.astype(np.int32)).astype(x.dtype)


_EXACT: dict[str, Callable[..., Array]] = {"nextafter": np.nextafter, "ldexp": _ldexp}


def library(name: str, *args: Array) -> Array:
    """Call a function of ir.MATH_CALLS: in float64 by the host's C library, then rounded.

    Nextafter takes its step in the type of the arguments.
    """
    if name in _EXACT:
        return _EXACT[name](*args)
    function = _c_function(name) if name in _C_NAMES else _or_ieee(name)
    lanes = zip(*(a.astype(np.float64).ravel().tolist() for a in args), strict=True)
    with np.errstate(all="ignore"):
        return (
            np.array([function(*lane) for lane in lanes]).reshape(args[0].shape).astype(args[0].dtype)
        )
