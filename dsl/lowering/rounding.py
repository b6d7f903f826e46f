"""round(x) and round(x, n) in kernels, as numba.cuda computes them.

What it models: llrint of a float64 (ties to even, saturating at the ends of int64), and CPython's fallback
for digits: scale by a power of ten, round to an int64, scale back. What it leaves out: the exact decimal
rounding of CPython's usual build, which differs in the last bit of some results. Which ncu metric checks
it: none; the counts are those of the operations it is written in (modelled).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dsl.lowering.builder import Builder
from dsl.lowering.operations import binary, compare, constant, convert
from dsl.lowering.values import Val
from dsl.types import FLOATS, exact_type
from dsl.warpir.ir import Imm, Operand

EXACT_POWER = 22
"""10**22 is the largest power of ten that a float64 holds exactly."""


def nearest(b: Builder, x: Val) -> Val:
    """Emit the integer nearest to x as an int64, the even one of two; an integer goes through float64."""
    v = x if x.type in FLOATS else convert(b, x, "f64")
    if v.constant is not None:
        return constant(float(np.rint(v.constant)), "s64")
    return convert(b, Val(b.alu("rint", v.type, v.operand), v.type), "s64")


def to_digits(b: Builder, x: Val, n: Val) -> Val:
    """Emit x rounded to n decimal places, to tens and more for n below 0; the result has x's float type."""
    if n.type in FLOATS:
        raise b.mistake("round() to a float of digits", "give an integer, e.g. int(n)")
    element = exact_type(x.type)
    wide, n = convert(b, convert(b, x, element), "f64"), convert(b, n, "s64")
    to_places = compare(b, "ge", n, constant(0, "s64"))
    result = _fork(b, to_places, lambda: _places(b, wide, n), lambda: _tens(b, wide, n))
    return convert(b, _or_itself(b, result, wide), element)


def _places(b: Builder, x: Val, n: Val) -> Val:
    """Round to n >= 0 places; x itself where x * 10**n overflows."""
    limit = constant(EXACT_POWER, "s64")
    big = compare(b, "gt", n, limit)
    rest = _fork(b, big, lambda: _power(b, binary(b, "sub", n, limit)), lambda: _power(b, n))
    factor = _fork(b, big, lambda: constant(10.0**EXACT_POWER, "f64"), lambda: constant(1.0, "f64"))
    y = binary(b, "mul", binary(b, "mul", x, rest), factor)
    z = convert(b, nearest(b, y), "f64")
    return _or_itself(b, binary(b, "div", binary(b, "div", z, factor), rest), x, y)


def _tens(b: Builder, x: Val, n: Val) -> Val:
    """Round to a multiple of 10**-n, n < 0."""
    power = _power(b, binary(b, "sub", constant(0, "s64"), n))
    return binary(b, "mul", convert(b, nearest(b, binary(b, "div", x, power)), "f64"), power)


def _power(b: Builder, n: Val) -> Val:
    """Emit 10**n in float64."""
    if n.constant is not None:
        return constant(math.pow(10.0, n.constant) if n.constant <= 308 else math.inf, "f64")
    return Val(b.alu("pow", "f64", Imm(10.0), convert(b, n, "f64").operand), "f64")


def _or_itself(b: Builder, result: Val, x: Val, tested: Val | None = None) -> Val:
    """Return result where `tested` (x, if None) is a finite number, else x."""
    size = b.alu("abs", "f64", (tested or x).operand)
    finite = b.setp("lt", "f64", size, Imm(math.inf))
    return Val(b.selp("f64", result.operand, x.operand, finite), "f64")


def _fork(b: Builder, cond: Val, then: Callable[[], Val], otherwise: Callable[[], Val]) -> Val:
    """Emit a float64 behind a branch on each side; a constant condition leaves one side."""
    if cond.constant is not None:
        return then() if cond.constant else otherwise()
    result, join = b.reg("f64", "rounded"), b.label()
    sides = b.label(), b.label()
    b.branch(cond, *sides)
    for label, side in zip(sides, (then, otherwise), strict=True):
        b.start(label)
        operand: Operand = side().operand
        b.assign(result, operand)
        b.jump(join)
    b.start(join)
    return Val(result, "f64")
