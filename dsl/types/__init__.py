"""The types of kernel arguments and of expressions, by the rules of numba.cuda.

What it models: element types (the keys of `ir.BYTES`), which register type holds each, and what numba gives
for an operator: int32 + int32 is int64, int32 with float32 is float64, int / int is float64. Tests hold every
rule against numba's own tables.
What it leaves out: complex numbers and records, which are refused by name.
Which ncu metric checks it: the split between `smsp__sass_thread_inst_executed_op_f*` and `_op_d*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from dsl.types.elements import Element, Field, RecordType
from dsl.warpir import ir
from dsl.warpir.formats import FORMATS, decode, encode
from dsl.warpir.ir import BYTES
from gpusim.errors import KernelMistake, UnsupportedFeature
from gpusim.memory import owner_of

NUMPY_NAMES = {
    "bool": "pred",
    "int8": "s8",
    "uint8": "u8",
    "int16": "s16",
    "uint16": "u16",
    "int32": "s32",
    "uint32": "u32",
    "int64": "s64",
    "uint64": "u64",
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
TYPE_NAMES = {short: name for name, short in NUMPY_NAMES.items()}
NUMBA_NAMES = {"__nv_bfloat16": "bf16", "__nv_fp8_e4m3": "e4m3", "__nv_fp8_e5m2": "e5m2"}
"""How numba.cuda's own types that numba lacks print."""
HALVES = ("f16", "bf16")
STORED = ("e4m3", "e5m2")
"""Types that arrays hold and registers carry; to compute, a kernel converts them."""
FLOATS = ir.FLOATS
HALF_OPERATORS = ("add", "sub", "mul", "div")
"""Operators that numba has for 16-bit floats; the others take them in float32."""
UNSIGNED = ("u8", "u16", "u32", "u64")
EXACT_IN_F32 = ("pred", "s8", "u8", "s16", *HALVES, *STORED)
"""Types that numba turns into float32 when they meet one; every other integer makes float64."""
EXACT_IN_HALF = {"f16": ("f16", "pred", "s8"), "bf16": ("bf16", "s8", "u8")}
"""Types that numba turns into a 16-bit float when an operator has one beside it."""
HALF_FUNCTIONS = (
    "exp", "exp2", "log", "log2", "log10", "sin", "cos", "sqrt", "floor", "ceil", "trunc", "fabs",
)  # fmt: skip
"""Functions of math that numba has for float16; any other one gives float32 of it, as all do of bfloat16."""


@dataclass(frozen=True)
class ArgType:
    """Describe a kernel argument: an element type of `ir.BYTES`, or a record.

    Ndim None for a scalar; layout C, F or A (any strides). A record by itself is an array of no dimension.
    aligned: whether every element's address is a multiple of its size.
    """

    type: str | RecordType
    ndim: int | None = None
    layout: str = "C"
    aligned: bool = True


@dataclass(frozen=True)
class TupleType:
    """Describe a tuple as an argument: the types of its items, and the names of a named tuple's."""

    items: tuple[AnyType, ...]
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class MemberType:
    """Describe a member of an enum as an argument: a constant of the compilation, so each member has its own.

    owner: the enum class. name: the member's name in it.
    """

    owner: type[Enum]
    name: str

    @property
    def member(self) -> Enum:
        """Return the member itself."""
        return self.owner[self.name]


AnyType = ArgType | TupleType | MemberType


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for each number and array of an argument, as kernels are passed them in order.

    A record is an array of no dimension.

    Those of a tuple `p` are named `p[0]`, or `p.x` in a named one. A member of an enum has none.
    """
    if isinstance(value, tuple):
        for label, item in zip(labels(name, value), value, strict=True):
            yield from leaves(item, label)
    elif not isinstance(value, Enum):
        yield name, np.asarray(value) if isinstance(value, np.void) else value


def rebuilt(value: Any, items: Iterable[Any]) -> Any:
    """Return a tuple like `value`, named if it is, with other items."""
    return value._make(items) if hasattr(value, "_make") else tuple(items)


def labels(name: str, value: Any) -> list[str]:
    """Return the names of the items of a tuple (or of a TupleType's `items`) that is called `name`."""
    fields = getattr(value, "_fields", getattr(value, "fields", ()))
    count = len(value) if isinstance(value, tuple) else len(value.items)
    return [f"{name}.{field}" for field in fields] or [f"{name}[{k}]" for k in range(count)]


def leaf_types(name: str, type_: AnyType) -> Iterator[tuple[str, ArgType]]:
    """Yield (name, type) for each number and array of an argument's type, as `leaves` does for its value."""
    if isinstance(type_, TupleType):
        for label, item in zip(labels(name, type_), type_.items, strict=True):
            yield from leaf_types(label, item)
    elif isinstance(type_, ArgType):
        yield name, type_


def element_type(obj: Any) -> str | None:
    """Return the element type that a dtype of numpy, numba or Python names, None if it names none."""
    for python_type, element in ((bool, "pred"), (int, "s64"), (float, "f64")):
        if obj is python_type:
            return element
    if isinstance(obj, np.dtype):
        return NUMPY_NAMES.get(obj.name)
    if isinstance(obj, type):
        return (
            NUMPY_NAMES.get(np.dtype(obj).name)
            if issubclass(obj, np.generic) and obj.__name__ != "generic"
            else None
        )
    if not type(obj).__module__.startswith(("numba.core.types", "numba.cuda")):
        return None
    return NUMPY_NAMES.get(str(obj)) or NUMBA_NAMES.get(str(obj))


def numba_type(name: str) -> Any:
    """Return numba's type of a name that is an element type too (float32, i4, boolean); None for others."""
    import numba.types

    found = getattr(numba.types, name, None)
    return None if found is None or element_type(found) is None else found


def arg_type(value: Any) -> AnyType:
    """Return the type of a kernel argument: as `plain_type`, a tuple of arguments, or a member of an enum."""
    if isinstance(value, Enum):
        return MemberType(type(value), value.name)
    if isinstance(value, tuple):
        return TupleType(tuple(map(arg_type, value)), getattr(value, "_fields", ()))
    return plain_type(value)


def plain_type(value: Any) -> ArgType:
    """Return the type of a number or an array.

    Array (anything with shape, strides and dtype), numpy scalar, int, float or bool.
    Raises UnsupportedFeature for element types that the language does not have, and KernelMistake for objects
    that no kernel takes.
    """
    if isinstance(value, (bool, np.bool_)):
        return ArgType("pred")
    if isinstance(value, int):
        return ArgType(_int_type(value))
    if isinstance(value, float) and not isinstance(value, np.generic):
        return ArgType("f64")
    dtype = getattr(value, "dtype", None)
    if isinstance(value, complex):
        raise UnsupportedFeature("complex numbers are not in the kernel language; pass two floats")
    if dtype is None:
        raise KernelMistake(
            f"a kernel argument is a {type(value).__name__}; "
            "pass numpy arrays, numpy scalars, int, float, bool, members of enums, or tuples of those"
        )
    dtype = np.dtype(dtype)
    if dtype.fields:
        record = record_type(dtype)
        return ArgType(record, len(value.shape), layout(value.shape, value.strides, record.bytes))
    element = element_type(dtype)
    if element is None:
        raise UnsupportedFeature(
            f"element type {dtype} is not in the kernel language; it has {', '.join(NUMPY_NAMES)}"
        )
    if isinstance(value, np.generic):
        return ArgType(element)
    order = layout(value.shape, value.strides, BYTES[element])
    return ArgType(element, len(value.shape), order, is_aligned(value, BYTES[element]))


def is_aligned(array: Any, size: int) -> bool:
    """Return whether every element of an array, of `size` bytes, has an aligned address on the device.

    An array on the host is placed with the array that owns its storage, which starts at a multiple of 256.
    """
    steps = [s for n, s in zip(array.shape, array.strides, strict=True) if n > 1]
    start = getattr(array, "address", 0)
    if isinstance(array, np.ndarray):
        start = array.__array_interface__["data"][0] - np.lib.array_utils.byte_bounds(owner_of(array))[0]
    return start % size == 0 and all(step % size == 0 for step in steps)


def record_type(dtype: np.dtype[Any]) -> RecordType:
    """Return the type of the records that a structured dtype describes."""
    fields = []
    for name, (kind, offset, *_) in (dtype.fields or {}).items():
        base, shape = kind.base, kind.shape
        element = record_type(base) if base.fields else element_type(base)
        fields.append(Field(name, element, shape, offset, str(base)))
    return RecordType(tuple(fields), dtype.itemsize, dtype.alignment, dtype.isalignedstruct)


def of_record(obj: Any) -> Any:
    """Return numpy's dtype of numba's type of a record (`numba.from_dtype`), anything else as it is."""
    if type(obj).__name__ != "Record" or not type(obj).__module__.startswith("numba.core.types"):
        return obj
    from numba.np.numpy_support import as_dtype

    return as_dtype(obj)


def stored_type(obj: Any) -> str | RecordType | None:
    """Return the type of what an array of a dtype holds, a number or a record; None for no dtype."""
    obj = of_record(obj)
    return record_type(obj) if isinstance(obj, np.dtype) and obj.fields else element_type(obj)


def name_of(element: Element) -> str:
    """Return the name of an element type, for people."""
    return TYPE_NAMES[element] if isinstance(element, str) else element.name


def _int_type(value: int) -> str:
    if -(1 << 63) <= value < 1 << 63:
        return "s64"
    if 0 <= value < 1 << 64:
        return "u64"
    raise UnsupportedFeature(f"the integer {value} does not fit in 64 bits; pass a float or split it")


def layout(shape: tuple[int, ...], strides: tuple[int, ...], itemsize_bytes: int) -> str:
    """Return "C", "F" or "A" (neither) for an array's shape and byte strides.

    Dimensions of extent 1 do not matter.
    """

    def contiguous(dims: range) -> bool:
        step = itemsize_bytes
        for k in dims:
            if shape[k] != 1 and strides[k] != step:
                return False
            step *= shape[k]
        return True

    if 0 in shape or contiguous(range(len(shape) - 1, -1, -1)):
        return "C"
    return "F" if contiguous(range(len(shape))) else "A"


def register_type(element: str) -> str:
    """Return the type of the register that holds an element: sub-word integers widen to 32 bits."""
    return {"s8": "s32", "s16": "s32", "u8": "u32", "u16": "u32"}.get(element, element)


def unify(a: str, b: str) -> str:
    """Return the type of a variable that is assigned an `a` and a `b` (also of max and min)."""
    if a == b or b == "pred":
        return a
    if a == "pred":
        return b
    if (half := half_type(a, b, (*EXACT_IN_F32[1:3], *HALVES))) is not None:
        return half
    if a in FLOATS or b in FLOATS:
        return "f32" if all(t == "f32" or BYTES[t] <= 2 for t in (a, b)) else "f64"
    if (a in UNSIGNED) == (b in UNSIGNED):
        return a if BYTES[a] > BYTES[b] else b
    unsigned, signed = (a, b) if a in UNSIGNED else (b, a)
    bits = 8 * max(BYTES[signed], 2 * BYTES[unsigned])
    return f"s{bits}" if bits <= 64 else "f64"


def binary_type(op: str, a: str, b: str) -> str:
    """Return the type in which `a op b` is computed and given back.

    op: add sub mul div floordiv floormod pow and or xor shl shr. Float operands of a bitwise operator are the
    caller's error.
    """
    if op in ("shl", "shr"):
        return "u64" if a in UNSIGNED else "s64"
    if op in ("and", "or", "xor") and a == b == "pred":
        return "pred"
    if a in FLOATS or b in FLOATS:
        if op == "pow" and a in ("f32", *HALVES) and b not in FLOATS:
            return "f32"
        half = half_type(a, b)
        if half is not None and op in HALF_OPERATORS:
            return half
        return "f32" if all(t == "f32" or t in EXACT_IN_F32 for t in (a, b)) else "f64"
    if op == "div":
        return "f64"
    return "u64" if a in UNSIGNED and b in UNSIGNED else "s64"


def half_type(a: str, b: str, exact: tuple[str, ...] | None = None) -> str | None:
    """Return the 16-bit float in which an `a` and a `b` are computed, None where it is no 16-bit float.

    exact: the types that turn into one (EXACT_IN_HALF).
    """
    for half in HALVES:
        if half in (a, b) and {a, b} - {half} <= set(exact or EXACT_IN_HALF[half]) - set(HALVES):
            return half
    return None


def unary_type(a: str) -> str:
    """Return the type of -a, +a and ~a."""
    if a in FLOATS:
        return a
    return "u64" if a in UNSIGNED else "s64"


def comparison_type(a: str, b: str) -> str:
    """Return the register type in which two values are compared.

    "s64" and "u64" together come back as "mixed".
    """
    ra, rb = register_type(a), register_type(b)
    if ra in FLOATS or rb in FLOATS:
        return binary_type("add", a, b)
    if ra == rb:
        return "s32" if ra == "pred" else ra
    if "u64" in (ra, rb):
        return "u64" if {ra, rb} <= {"u64", "u32", "pred"} else "mixed"
    return "u32" if {ra, rb} == {"u32", "pred"} else "s32" if {ra, rb} == {"s32", "pred"} else "s64"


def math_type(*types: str) -> str:
    """Return the type of a math.* call but HALF_FUNCTIONS of a float16.

    Float32 for a float of up to 32 bits alone, and float64 where an integer or a float64 is in it.
    """
    if len(types) == 1:
        return "f32" if types[0] in ("f32", *HALVES) else "f64"
    return "f32" if all(t == "f32" or t in EXACT_IN_F32 for t in types) else "f64"


def modf_type(a: str) -> str:
    """Return the type of both parts of math.modf: float32 of a float32 alone, else float64."""
    return "f32" if a == "f32" else "f64"


def hypot_type(a: str, b: str) -> str:
    """Return the type of math.hypot and atan2, which are float64 for two integers of any width."""
    return math_type(a, b) if a in FLOATS or b in FLOATS else "f64"


def exact_type(a: str) -> str:
    """Return the type of cuda.cbrt, math.frexp and ldexp, and round(x, n): float32 where it holds an `a`."""
    return "f32" if a == "f32" or a in EXACT_IN_F32 else "f64"


def bits_type(name: str, a: str) -> str:
    """Return the type of cuda.popc, clz, brev or ffs of an integer or a boolean."""
    if name in ("popc", "clz"):
        return "s8" if a == "pred" else a
    return "u64" if name == "brev" and a == "u64" else "u32"


def range_type(types: list[str]) -> str:
    """Return the type of the counter of range(...).

    32-bit where every argument is a signed integer of at most 32 bits.
    """
    if all(t in UNSIGNED for t in types):
        return "u64"
    return "s32" if all(register_type(t) in ("s32", "pred") for t in types) else "s64"


def cast_value(
    value: Any, element: str, saturate: bool = False, source: str = "f64"
) -> int | float | bool:
    """Convert a Python number to an element type as the machine does.

    Floats round, integers wrap, float to int truncates and saturates (what NaN gives depends on `source`, the
    float's type); `saturate` as in dsl.warpir.formats.encode.
    """
    if element == "pred":
        return bool(value)
    if element in FORMATS:
        return decode(encode(value, FORMATS[element], saturate), FORMATS[element])
    if element in FLOATS:
        with np.errstate(over="ignore"):
            return float(np.float32(value)) if element == "f32" else float(value)
    bits = 8 * BYTES[element]
    if isinstance(value, float):
        return _saturate(value, element in UNSIGNED, bits, source)
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped - (1 << bits) if element not in UNSIGNED and wrapped >> (bits - 1) else wrapped


def _saturate(value: float, unsigned: bool, bits: int, source: str) -> int:
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if value != value:
        return _of_nan(low, high, bits, source)
    return (
        int(min(max(value, float(low)), float(high)))
        if low < value < high
        else (low if value <= low else high)
    )


def _of_nan(low: int, high: int, bits: int, source: str) -> int:
    """Return what NaN becomes: 0, of an f64 and as 64 bits the highest bit alone, cut to a smaller type."""
    if source != "f64" and bits < 64:
        return 0
    return low or min(1 << max(bits, 32) - 1, high)
