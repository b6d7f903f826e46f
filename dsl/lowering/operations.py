"""Emit typed operations: conversion, arithmetic, comparison and selection, with constants folded.

What it models: the operations of numba.cuda, in the types that dsl/types gives. The walker
(dsl/frontend/expressions.py) decides what is computed and in which order; nothing here knows Python's syntax.
Which ncu metric checks it: `smsp__sass_thread_inst_executed_op_{fadd,fmul,dadd,dmul,integer}_pred_on`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from dsl.lowering.builder import Builder
from dsl.lowering.values import Val
from dsl.types import (
    FLOATS,
    HALVES,
    STORED,
    TYPE_NAMES,
    UNSIGNED,
    binary_type,
    cast_value,
    comparison_type,
    register_type,
    unary_type,
    unify,
)
from dsl.warpir.ir import BYTES, DIVISOR, Chk, Imm, Operand, Reg
from dsl.warpir.machine import APPROXIMATE

SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "floormod": "%",
    "pow": "**",
    "shl": "<<",
    "shr": ">>",
    "and": "&",
    "or": "|",
    "xor": "^",
}
FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "pow": math.pow,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "min": min,
    "max": max,
}
COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
SAME_BITS = ({"s32", "u32"}, {"s64", "u64"})
"""Register types that need no instruction between them: the instruction that reads decides."""
LARGEST_EXPONENT = 64
"""x ** n with a constant n up to this is multiplications; beyond, and for other exponents, it is the
library's pow.
"""


def constant(value: Any, element: str) -> Val:
    """Return a constant of an element type, converted as the machine converts."""
    return Val(Imm(cast_value(value, element)), element)


def convert(b: Builder, v: Val, element: str) -> Val:
    """Convert a scalar to an element type.

    Constants convert at compile time, equal register types cost nothing.
    """
    if v.type == element:
        return v
    if v.type in STORED or element in STORED:
        raise b.mistake(*_unconverted(v.type, element))
    return cast(b, v, element)


def _unconverted(source: str, element: str) -> tuple[str, str]:
    """Say that numbers of 8 bits are converted where the kernel asks for it, and how."""
    what = f"a {TYPE_NAMES[source]} where a {TYPE_NAMES[element]} is needed"
    if element not in STORED:
        return what, "convert it first, e.g. np.float32(x): float8 is stored and not computed with"
    saturating = {"e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2"}[element]
    overflow = "NaN" if element == "e4m3" else "infinity"
    return what, (f"say how it overflows: cuda.fp8.{saturating}(x) gives the largest finite number, "
                  f"ml_dtypes.{TYPE_NAMES[element]}(x) {overflow}")


def cast(b: Builder, v: Val, element: str, saturate: bool = False) -> Val:
    """Convert a scalar where the kernel asks for it: as `convert`, and from and to 8-bit floats too.

    saturate: too large a number for an 8-bit float becomes the largest finite one.
    """
    if v.type == element:
        return v
    if isinstance(v.operand, Imm):
        return Val(Imm(cast_value(v.operand.value, element, saturate, v.type)), element)
    saturate = saturate and element in STORED
    source, target = register_type(v.type), register_type(element)
    operand: Operand = v.operand
    if source != target and {source, target} not in SAME_BITS:
        operand = b.cvt(operand, source, target, saturate)
        _keep_sign(b, v.operand, operand, source, target)
    return Val(_narrow(b, operand, v.type, element), element)


def _keep_sign(b: Builder, before: Operand, after: Operand, source: str, target: str) -> None:
    widens = source not in FLOATS and target not in FLOATS and BYTES[target] >= BYTES[source]
    if widens and isinstance(before, Reg) and isinstance(after, Reg) and before.index in b.positive:
        b.positive.add(after.index)


def _narrow(b: Builder, operand: Operand, source: str, element: str) -> Operand:
    """Wrap a 32-bit register to an 8- or 16-bit element type, unless the value came from a type that fits.

    What a float was converted to saturates instead.
    """
    if element in (*FLOATS, "pred") or source == "pred" or BYTES[element] >= 4:
        return operand
    if source in FLOATS:
        top = (1 << 8 * BYTES[element] - (element not in UNSIGNED)) - 1
        below = b.alu("min", register_type(element), operand, Imm(top))
        return below if element in UNSIGNED else b.alu("max", "s32", below, Imm(-top - 1))
    if unify(source, element) == element:
        return operand
    if element in UNSIGNED:
        return b.alu("and", "u32", operand, Imm((1 << 8 * BYTES[element]) - 1))
    shift = Imm(32 - 8 * BYTES[element])
    return b.alu("shr", "s32", b.alu("shl", "s32", operand, shift), shift)


def truth(b: Builder, v: Val) -> Val:
    """Return the predicate v != 0."""
    if v.type == "pred":
        return v
    if isinstance(v.operand, Imm):
        return Val(Imm(bool(v.operand.value)), "pred")
    return Val(b.setp("ne", register_type(v.type), v.operand, Imm(0.0 if v.type in FLOATS else 0)), "pred")


def negate(b: Builder, v: Val) -> Val:
    """Return `not v` as a predicate."""
    p = truth(b, v)
    if isinstance(p.operand, Imm):
        return Val(Imm(not p.operand.value), "pred")
    return Val(b.alu("not", "pred", p.operand), "pred")


def unary(b: Builder, op: str, v: Val) -> Val:
    """Return -v ("neg"), +v ("pos") or ~v ("not"), in numba's type for it.

    numba computes in v's own type and widens afterwards: -uint8(194) is 62, as a uint64.
    """
    if op == "not" and v.type in FLOATS:
        raise b.mistake("~ of a float", "use it on integers")
    if op == "not" and v.type == "pred":
        return negate(b, v)
    result = unary_type(v.type)
    element = result if v.type == "pred" else v.type
    x = convert(b, v, element)
    if op == "pos":
        return convert(b, x, result)
    if isinstance(x.operand, Imm):
        value = constant(-x.operand.value if op == "neg" else ~int(x.operand.value), element)
    else:
        register = register_type(element)
        value = Val(_narrow(b, b.alu(op, register, x.operand), register, element), element)
    return convert(b, value, result)


def binary(b: Builder, op: str, x: Val, y: Val) -> Val:
    """Return `x op y` (op as in SYMBOLS) in numba's type for it."""
    element = binary_type(op, x.type, y.type)
    if op in ("and", "or", "xor", "shl", "shr") and (x.type in FLOATS or y.type in FLOATS):
        raise b.mistake(f"{SYMBOLS[op]} of a float", "use it on integers")
    if op == "pow":
        return _power(b, x, y, element)
    x, y = convert(b, x, element), convert(b, y, element)
    folded = _fold(op, x, y, element)
    if folded is not None:
        return folded
    if b.debug and op in ("div", "floordiv", "floormod"):
        _check_divisor(b, y)
    if op == "div" and element in HALVES:
        wide = (convert(b, v, "f32").operand for v in (x, y))
        return convert(b, Val(b.alu("div", "f32", *wide, tag=APPROXIMATE), "f32"), element)
    if op in ("floordiv", "floormod") and element in FLOATS:
        return _floor_divide(b, op, x.operand, y.operand, element)
    dst = b.alu(op, element, x.operand, y.operand)
    if op in ("add", "mul", "min", "max") and _positive(b, x) and _positive(b, y):
        b.positive.add(dst.index)
    return Val(dst, element)


def _check_divisor(b: Builder, y: Val) -> None:
    """Make zero an error, unless the divisor is a constant that is none."""
    zero = compare(b, "eq", y, constant(0, y.type))
    if zero.constant is not False:
        index = b.selp("s64", Imm(1), Imm(0), zero.operand)
        b.emit(Chk(b.reg("s64"), index, Imm(1), DIVISOR, 0, b.loc))


def _positive(b: Builder, v: Val) -> bool:
    return v.operand.index in b.positive if isinstance(v.operand, Reg) else v.operand.value > 0


def known_positive(b: Builder, v: Val) -> bool:
    """Say whether a value is known to be above zero.

    A positive constant, blockDim, gridDim, and sums and products of such.
    """
    return _positive(b, v)


def _fold(op: str, x: Val, y: Val, element: str) -> Val | None:
    """Return x op y of two constants; None where one is a variable, or Python's answer is not the machine's.

    Python's %, //, min and max of floats differ from the machine's in the sign of a zero and for NaN.
    """
    if not (isinstance(x.operand, Imm) and isinstance(y.operand, Imm)):
        return None
    if element in FLOATS and op in ("floordiv", "floormod", "min", "max"):
        return None
    try:
        return constant(FOLDS[op](x.operand.value, y.operand.value), element)
    except (ArithmeticError, ValueError):  # 1 / 0, 1 << -1: left to the machine, as in numba.cuda
        return None


def _power(b: Builder, x: Val, y: Val, element: str) -> Val:
    n = y.constant
    if isinstance(n, int) and abs(n) <= LARGEST_EXPONENT and (n >= 0 or element in FLOATS):
        return _repeated(b, convert(b, x, element), int(n))
    if element not in FLOATS:
        raise b.refuse(
            "an integer power whose exponent is not a small constant", "use float(x) ** n or a loop"
        )
    x, y = convert(b, x, element), convert(b, y, element)
    folded = _fold("pow", x, y, element)
    return folded or Val(b.alu("pow", element, x.operand, y.operand), element)


def _repeated(b: Builder, x: Val, n: int) -> Val:
    """Raise to a constant power by squaring, as numba does: x ** 2 is one multiplication."""
    result: Val | None = None
    square, left = x, abs(n)
    while left:
        if left & 1:
            result = square if result is None else binary(b, "mul", result, square)
        left >>= 1
        if left:
            square = binary(b, "mul", square, square)
    one = constant(1, x.type)
    if result is None:
        return one
    return binary(b, "div", one, result) if n < 0 else result


def _floor_divide(b: Builder, op: str, x: Operand, y: Operand, element: str) -> Val:
    """Divide floats as numba does.

    The remainder, a zero too, has the divisor's sign; the quotient is rounded down from (x - remainder) / y,
    and a zero has the sign of x / y. By zero the remainder is NaN and the quotient x / y.
    """
    rem = b.alu("fmod", element, x, y)
    signs = b.alu("xor", "pred", b.setp("lt", element, rem, Imm(0.0)), b.setp("lt", element, y, Imm(0.0)))
    fix = b.alu("and", "pred", b.setp("ne", element, rem, Imm(0.0)), signs)
    if op == "floormod":
        signed = b.alu("copysign", element, rem, y)
        return Val(b.selp(element, b.alu("add", element, rem, y), signed, fix), element)
    multiple = b.alu("copysign", element, b.alu("sub", element, x, rem), x)
    multiple = b.selp(element, x, multiple, b.setp("eq", element, y, Imm(0.0)))
    quotient = b.alu("div", element, multiple, y)
    quotient = b.selp(element, b.alu("sub", element, quotient, Imm(1.0)), quotient, fix)
    down = b.alu("floor", element, quotient)
    above = b.setp("gt", element, b.alu("sub", element, quotient, down), Imm(0.5))
    return Val(b.selp(element, b.alu("add", element, down, Imm(1.0)), down, above), element)


def extremum(b: Builder, op: str, x: Val, y: Val) -> Val:
    """Return min or max of two values in their common type."""
    element = unify(x.type, y.type)
    x, y = convert(b, x, element), convert(b, y, element)
    if element == "pred":
        return logical(b, "or" if op == "max" else "and", x, y)
    folded = _fold(op, x, y, element)
    if folded is not None:
        return folded
    dst = b.alu(op, register_type(element), x.operand, y.operand)
    if _positive(b, x) and _positive(b, y):
        b.positive.add(dst.index)
    return Val(dst, element)


def absolute(b: Builder, v: Val) -> Val:
    """Return |v| in v's own type."""
    if v.type in UNSIGNED or v.type == "pred":
        return v
    if isinstance(v.operand, Imm):
        return constant(abs(v.operand.value), v.type)
    return Val(
        _narrow(b, b.alu("abs", register_type(v.type), v.operand), register_type(v.type), v.type), v.type
    )


def compare(b: Builder, op: str, x: Val, y: Val) -> Val:
    """Return the predicate `x op y` (lt le gt ge eq ne)."""
    if isinstance(x.operand, Imm) and isinstance(y.operand, Imm):
        return Val(Imm(COMPARES[op](x.operand.value, y.operand.value)), "pred")
    x, y = _match_constant(x, y), _match_constant(y, x)
    element = comparison_type(x.type, y.type)
    if element == "mixed":
        return _compare_mixed(b, op, x, y)
    return Val(b.setp(op, element, convert(b, x, element).operand, convert(b, y, element).operand), "pred")


def _match_constant(v: Val, other: Val) -> Val:
    """Give an integer constant the other side's type where it fits, so that `t < 4` compares in 32 bits."""
    value, target = v.constant, register_type(other.type)
    whole = isinstance(value, int) and not isinstance(value, bool) and target not in ("pred", *FLOATS)
    return Val(Imm(value), target) if whole and cast_value(value, target) == value else v


def _compare_mixed(b: Builder, op: str, x: Val, y: Val) -> Val:
    """Compare a signed with a 64-bit unsigned integer by value: negatives are below all others."""
    swap = x.type in UNSIGNED
    signed, unsigned = (y, x) if swap else (x, y)
    if swap:
        op = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(op, op)
    s = convert(b, signed, "s64")
    negative = b.setp("lt", "s64", s.operand, Imm(0))
    usual = b.setp(op, "u64", convert(b, s, "u64").operand, convert(b, unsigned, "u64").operand)
    if op in ("lt", "le", "ne"):
        return Val(b.alu("or", "pred", negative, usual), "pred")
    return Val(b.alu("and", "pred", b.alu("not", "pred", negative), usual), "pred")


def logical(b: Builder, op: str, x: Val, y: Val) -> Val:
    """Return the predicate `x op y` (and, or) of two predicates, both computed."""
    for first, second in ((x, y), (y, x)):
        if first.constant is not None:
            return second if bool(first.constant) == (op == "and") else first
    return Val(b.alu(op, "pred", x.operand, y.operand), "pred")


def select(b: Builder, cond: Val, x: Val, y: Val) -> Val:
    """Return x where cond holds, else y, in their common type; both are computed."""
    element = unify(x.type, y.type)
    x, y = convert(b, x, element), convert(b, y, element)
    if cond.constant is not None:
        return x if cond.constant else y
    if element == "pred":
        return _select_predicate(b, cond, x, y)
    return Val(b.selp(register_type(element), x.operand, y.operand, cond.operand), element)


def _select_predicate(b: Builder, cond: Val, x: Val, y: Val) -> Val:
    """Select between predicates with and, or, not: the machine has no selp of predicates."""
    return logical(b, "or", logical(b, "and", cond, x), logical(b, "and", negate(b, cond), y))
