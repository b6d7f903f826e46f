"""What each operation of WarpIR computes, on numpy arrays with one element a lane.

What it models: IEEE arithmetic with one rounding an operation, integers that wrap at their width, PTX's
answers at the edges. What it leaves out: masks, control flow and memory (dsl/interpreter/run.py), and counts
(dsl/warpir/machine.py). Which ncu metric checks it: none; the machine code of dsl/codegen is compared with it
bit by bit.

Edges: division of integers by zero gives quotient 0 and remainder 0; the smallest integer over -1 wraps; a
shift by the width or more (a negative amount counts as large) gives 0, or the sign for a signed shift
right.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from dsl.semantics import floats
from dsl.semantics.floats import Array
from dsl.warpir import ir
from dsl.warpir.formats import FORMATS, Format, encode

DTYPES: dict[str, np.dtype[Any]] = {
    **{
        name: np.dtype(code)
        for name, code in {
            "pred": "?",
            "u8": "u1",
            "s8": "i1",
            "u16": "u2",
            "s16": "i2",
            "u32": "u4",
            "s32": "i4",
            "f32": "f4",
            "u64": "u8",
            "s64": "i8",
            "f64": "f8",
        }.items()
    },
    **{name: form.dtype for name, form in FORMATS.items()},
}
"""numpy's type of each element type."""


def constant(value: int | float | bool, type_: str) -> Any:
    """Return a constant in a type; integers wrap at the width."""
    dtype = DTYPES[type_]
    if type_ in FORMATS:
        return np.array(encode(float(value), FORMATS[type_]), f"u{dtype.itemsize}").view(dtype)[()]
    if dtype.kind in "iu" and not isinstance(value, float):
        bits = 8 * dtype.itemsize
        return np.array(int(value) & ((1 << bits) - 1), f"u{dtype.itemsize}").astype(dtype)[()]
    return dtype.type(value)


def reinterpret(x: Array, type_: str) -> Array:
    """Return the same bits as a type of the same width; raise MalformedIR where the widths differ."""
    dtype = DTYPES[type_]
    if x.dtype == dtype:
        return x
    if x.dtype.itemsize != dtype.itemsize or bool in (x.dtype, dtype):
        raise ir.MalformedIR(f"an operand of {x.dtype} stands where {type_} is needed")
    return x.view(dtype)


Op = Callable[..., Any]


def _int_div(a: Array, b: Array) -> Array:
    """Divide truncating toward zero."""
    return np.where(b == 0, b, np.floor_divide(a - np.fmod(a, b), b))


def _int_floordiv(a: Array, b: Array) -> Array:
    return np.where(b == 0, b, np.floor_divide(a, b))


def _int_floormod(a: Array, b: Array) -> Array:
    return np.where(b == 0, b, np.remainder(a, b))


def _int_rem(a: Array, b: Array) -> Array:
    """Return a - truncated(a / b) * b."""
    return np.where(b == 0, b, np.fmod(a, b))


def _amount(b: Array) -> Array:
    """Return shift amounts as unsigned numbers, a negative one as a large one."""
    return b.view(f"u{b.dtype.itemsize}").astype(np.uint64)


def _shl(a: Array, b: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    n = _amount(b)
    return np.where(n < bits, np.left_shift(a, np.minimum(n, bits - 1).astype(a.dtype)), a.dtype.type(0))


def _shr(a: Array, b: Array) -> Array:
    """Shift right: arithmetic for a signed type, logical for an unsigned one."""
    bits = 8 * a.dtype.itemsize
    n = _amount(b)
    shifted = np.right_shift(a, np.minimum(n, bits - 1).astype(a.dtype))
    return shifted if a.dtype.kind == "i" else np.where(n < bits, shifted, a.dtype.type(0))


def _by_bits(value_of: Callable[[int, int], int]) -> Op:
    """Return an operation on the bits of each element: value_of(unsigned value, width in bits)."""

    def operate(a: Array) -> Array:
        width = 8 * a.dtype.itemsize
        unsigned = a.view(f"u{a.dtype.itemsize}")
        results = [value_of(int(x), width) for x in unsigned.ravel()]
        return np.array(results, unsigned.dtype).reshape(a.shape).view(a.dtype)

    return operate


def population_count(value: int, width: int) -> int:
    """Return the number of bits set."""
    return value.bit_count()


def leading_zeros(value: int, width: int) -> int:
    """Return the number of zero bits above the highest one; the width for 0."""
    return width - value.bit_length()


def reversed_bits(value: int, width: int) -> int:
    """Return the bits in reverse order."""
    return int(f"{value:0{width}b}"[::-1], 2)


INTEGER_OPS: dict[str, Op] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _int_div,
    "rem": _int_rem,
    "floordiv": _int_floordiv,
    "floormod": _int_floormod,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": _shl,
    "shr": _shr,
    "min": np.minimum,
    "max": np.maximum,
    "neg": np.negative,
    "abs": np.abs,
    "mov": np.copy,
    "popc": _by_bits(population_count),
    "brev": _by_bits(reversed_bits),
    "clz": _by_bits(leading_zeros),
}

PREDICATE_OPS: dict[str, Op] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "mov": np.copy,
}

FLOAT_OPS: dict[str, Op] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "fma": floats.fma,
    "fma_sat": floats.fma32_sat,
    "fma_rm": floats.fma32_rm,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rsqrt": floats.rsqrt,
    "rcp": floats.reciprocal,
    "ex2": floats.ex2,
    "lg2": floats.lg2,
    "neg": np.negative,
    "abs": np.abs,
    "min": floats.minimum,
    "max": floats.maximum,
    "mov": np.copy,
    "copysign": np.copysign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
}

NARROW_OPS = ("add", "sub", "mul", "min", "max", "floor", "ceil", "trunc", "rint")
"""Operations of float16 and bfloat16 that are taken in float32, which is right (dsl/codegen/narrow.py)."""


def _narrow_operation(op: str, form: Format) -> Op:
    """Return the function of an operation of float16 or bfloat16."""
    bits = np.dtype(f"u{form.bits // 8}")

    def of_codes(f: Callable[[Array], Array]) -> Op:
        return lambda a: np.where(np.isnan(a), form.nan, f(a.view(bits))).astype(bits).view(form.dtype)

    match op:
        case "mov":
            return np.copy
        case "neg":
            return of_codes(lambda code: code ^ form.sign)
        case "abs":
            return of_codes(lambda code: code & (form.sign - 1))
        case "fma":
            return lambda a, b, c: floats.narrow(floats.fma_to_odd(*map(widen, (a, b, c))), form)
    if op not in NARROW_OPS:
        raise ir.MalformedIR(f"WarpIR has no operation {op!r} on {form.dtype}")
    return lambda *args: floats.narrow(FLOAT_OPS[op](*map(widen, args)), form)


def widen(x: Array) -> Array:
    """Return narrow floats as float32: of bfloat16 the upper half, of others any NaN becomes 0x7FFFFFFF."""
    if x.dtype == FORMATS["bf16"].dtype:
        return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    single = x.astype(np.float32)
    return np.where(np.isnan(single), np.array(0x7FFFFFFF, np.uint32).view(np.float32), single)


COMPARISONS: dict[str, Op] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def operation(op: str, type_: str) -> Op:
    """Return the function of an Alu operation in a type; raise MalformedIR for an unknown one."""
    if type_ in FORMATS:
        return _narrow_operation(op, FORMATS[type_])
    kind = DTYPES[type_].kind
    table = PREDICATE_OPS if kind == "b" else FLOAT_OPS if kind == "f" else INTEGER_OPS
    if op in table:
        return table[op]
    if kind == "f" and op in ir.MATH_CALLS:
        return lambda *args: floats.library(op, *args)
    raise ir.MalformedIR(f"WarpIR has no operation {op!r} on {type_}")


def convert(
    x: Array, to_type: str, from_type: str, saturate: bool = False, rounding: str = "rn"
) -> Array:
    """Convert between element types; the result has the dtype of `to_type`."""
    target = DTYPES[to_type]
    if from_type in FORMATS:
        x = widen(x)
    if from_type not in ir.REGISTER_TYPES:
        x = x.astype(DTYPES[from_type])
    if to_type == "pred":
        return x != 0
    if rounding != "rn":
        return floats.cut(floats.exact_or_odd(x), FORMATS[to_type], rounding)
    if to_type in FORMATS:
        return floats.narrow(floats.exact_or_odd(x), FORMATS[to_type], saturate)
    if target.kind in "iu" and x.dtype.kind == "f":
        return floats.to_int(x, target)
    return x.astype(target)


def _larger(old: Any, value: Any) -> Any:
    """Return the larger of the two; old where they are equal, as 0 and -0 are (numba swaps only if less)."""
    return (floats.maximum if old.dtype.kind == "f" else np.maximum)(value, old)[()]


def _smaller(old: Any, value: Any) -> Any:
    return (floats.minimum if old.dtype.kind == "f" else np.minimum)(value, old)[()]


ATOMIC_OPS: dict[str, Op] = {
    "add": operator.add,
    "max": _larger,
    "min": _smaller,
    "max_nan": lambda old, value: old if old != old else _larger(old, value),
    "min_nan": lambda old, value: old if old != old else _smaller(old, value),
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "exch": lambda old, value: value,
    "inc": lambda old, value: old.dtype.type(0) if old >= value else old + old.dtype.type(1),
    "dec": lambda old, value: value if old == 0 or old > value else old - old.dtype.type(1),
}
"""What each atomic but cas leaves in memory, from the old value and the operand, scalars of one type."""


def atomic(op: str, old: Any, value: Any, compare: Any = None) -> Any:
    """Return what an atomic leaves in memory: integers wrap, floats round, max and min of floats ignore NaN.

    max_nan and min_nan leave a NaN that is in memory. cas compares bits, so that a float NaN can be swapped
    and -0 is not 0.
    """
    if op == "cas":
        return value if old.tobytes() == compare.tobytes() else old
    return ATOMIC_OPS[op](old, value)
