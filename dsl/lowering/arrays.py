"""Turn an index into a checked address, and emit loads, stores and atomics.

What it models: base + sum of index x stride in 64 bits, one Chk an index, as numba.cuda's code (which wraps a
negative index once). Views are in dsl/lowering/slices.py and dsl/lowering/views.py. Which ncu metric checks
it: `l1tex__t_sectors_*` through the addresses.
"""

from __future__ import annotations

from dataclasses import replace

from dsl.lowering import packed
from dsl.lowering.builder import Builder
from dsl.lowering.operations import convert
from dsl.lowering.values import Arr, Rec, Tup, Val, Value, Vec, describe
from dsl.types import FLOATS, TYPE_NAMES, register_type
from dsl.types.elements import Element, RecordType, VectorType, bytes_of
from dsl.warpir.ir import BYTES, Atom, Chk, Imm, Ld, Operand, Reg, St
from gpusim.table import counted

MAX_COPIED_BYTES = 1024
"""Bytes of a record that an assignment copies; each is a load and a store."""


def extent(b: Builder, array: Arr, dim: int) -> Val:
    """Return the extent of one dimension (s64)."""
    known = array.shape[dim]
    if isinstance(known, Reg):
        return Val(known, "s64")
    return Val(Imm(known) if known is not None else b.param(f"{array.name}.shape.{dim}", "s64"), "s64")


def stride(b: Builder, array: Arr, dim: int) -> Operand:
    """Return the byte stride of one dimension (s64)."""
    known = array.strides[dim]
    if isinstance(known, Reg):
        return known
    return Imm(known) if known is not None else b.param(f"{array.name}.stride.{dim}", "s64")


def size(b: Builder, array: Arr) -> Val:
    """Return the number of elements (s64)."""
    total = extent(b, array, 0)
    for dim in range(1, len(array.shape)):
        total = _times(b, total.operand, extent(b, array, dim).operand)
    return total


def _times(b: Builder, x: Operand, y: Operand) -> Val:
    if isinstance(x, Imm) and isinstance(y, Imm):
        return Val(Imm(x.value * y.value), "s64")
    return Val(b.alu("mul", "s64", x, y), "s64")


def origin(b: Builder, array: Arr) -> tuple[Operand | None, int]:
    """Return where an array starts: an address or None for the start of its space, and bytes to add."""
    if array.start is not None:
        return array.start, 0
    return None if array.offset is not None else b.param(f"{array.name}.base", "u64"), array.offset or 0


def address(b: Builder, array: Arr, index: Value) -> Operand:
    """Return the address (s64) of an element; index is an integer or a tuple of one a dimension."""
    return address_at(b, array, positions(b, array, index))


def positions(b: Builder, array: Arr, index: Value) -> list[Operand]:
    """Return the checked position along each dimension (s64); index as in `address`."""
    items = index.items if isinstance(index, Tup) else (index,)
    if len(items) != len(array.shape):
        refuse_rank(b, array, len(items))
    return [checked(b, array, dim, item) for dim, item in enumerate(items)]


def address_at(b: Builder, array: Arr, places: list[Operand]) -> Operand:
    """Return the address (s64) of the element at checked positions."""
    total, known_bytes = origin(b, array)
    for dim, position in enumerate(places):
        step = stride(b, array, dim)
        if isinstance(position, Imm) and isinstance(step, Imm):
            known_bytes += int(position.value * step.value)
            continue
        term = position if step == Imm(1) else b.alu("mul", "s64", position, step)
        total = term if total is None else b.alu("add", "s64", total, term)
    if total is None:
        return Imm(known_bytes)
    return b.alu("add", "s64", total, Imm(known_bytes)) if known_bytes else total


def refuse_rank(b: Builder, array: Arr, given: int) -> None:
    """Refuse an index of too many or too few numbers."""
    rank = len(array.shape)
    letters = ", ".join("ijklmnpq"[:rank]) or "()"
    raise b.refuse(
        f"{array.name!r} has {counted(rank, 'dimension')} and gets {counted(given, 'index', 'indices')}",
        f"index it with a tuple of {rank}: {array.name}[{letters}]"
        if rank > 1
        else f"index it as {array.name}[{letters}]",
    )


def checked(b: Builder, array: Arr, dim: int, item: Value) -> Operand:
    """Return an index (s64) of one dimension, checked against its extent and wrapped if it is negative.

    A uint64 is never negative: from 2^63 on it is past every end.
    """
    if not isinstance(item, Val) or item.type in FLOATS:
        kind = f"a {TYPE_NAMES[item.type]}" if isinstance(item, Val) else "not a number"
        raise b.refuse(f"index {dim} of {array.name!r} is {kind}", "use an integer, e.g. int(x)")
    known = array.shape[dim]
    value = item.constant
    if value is not None and isinstance(known, int) and 0 <= value < known:
        return Imm(int(value))
    index, limit = convert(b, item, "s64").operand, extent(b, array, dim).operand
    if item.type == "u64" and value is None:
        index = b.alu("min", "u64", index, Imm((1 << 63) - 1))
    dst = b.reg("s64")
    b.emit(Chk(dst, index, limit, array.name, dim, b.loc))
    if value is not None and isinstance(known, int) and -known <= value < 0:  # counted as wrapped, and known
        return Imm(int(value) + known)
    return dst


def plain(b: Builder, array: Arr, what: str) -> str:
    """Return the type of an array's elements, which have to be numbers; raises UnsupportedFeature."""
    if not isinstance(array.type, str):
        raise b.refuse(
            f"{what} of {array.name!r}, whose elements are {array.type.name}", "take an array of numbers"
        )
    return array.type


def load(b: Builder, array: Arr, addr: Operand, cache: str = "") -> Value:
    """Load one element, with PTX's cache hint if one is given; a vector in as few accesses as may be.

    A record is not loaded: it is the place where it lies.
    """
    if isinstance(array.type, RecordType):
        return Rec((Val(addr, "s64"),), array.name, array.space, array.type)
    if isinstance(array.type, str):
        return _load_numbers(b, array, array.type, addr, 1, cache)[0]
    vector, items = array.type, []
    for first in range(0, vector.count, vector.numbers_an_access):
        at = packed.beyond(b, addr, first * BYTES[vector.element])
        items += _load_numbers(b, array, vector.element, at, vector.numbers_an_access, cache)
    return Vec(tuple(items), vector)


def _load_numbers(b: Builder, array: Arr, element: str, addr: Operand, count: int, cache: str) -> list[Val]:
    """Load numbers that lie side by side, as one access."""
    if array.packed:
        return [packed.load(b, array, element, addr)]
    dsts = tuple(b.reg(register_type(element)) for _ in range(count))
    b.emit(Ld(array.space, element, dsts, addr, array.name, b.loc, cache))
    return [Val(dst, element) for dst in dsts]


def _refuse_constant(b: Builder, array: Arr) -> None:
    if array.space == "const":
        raise b.mistake(
            f"a write to {array.name!r}, which is in constant memory", "pass the array as an argument"
        )


def store(b: Builder, array: Arr, addr: Operand, value: Value, cache: str = "") -> None:
    """Store one element, with PTX's cache hint if one is given.

    A number is converted to the array's type; a vector and a record have to be of it.
    """
    _refuse_constant(b, array)
    if isinstance(array.type, RecordType):
        _store_record(b, array, array.type, addr, value)
    elif isinstance(array.type, VectorType):
        _store_vector(b, array, array.type, addr, value, cache)
    elif not isinstance(value, Val):
        raise b.mistake(f"{array.name!r} is assigned {describe(value)}", "store one number at a time")
    else:
        operand = convert(b, value, array.type).operand
        if array.packed:
            packed.store(b, array, array.type, addr, operand)
        else:
            b.emit(St(array.space, array.type, (operand,), addr, array.name, b.loc, cache))


def _store_vector(
    b: Builder, array: Arr, vector: VectorType, addr: Operand, value: Value, cache: str
) -> None:
    if not isinstance(value, Vec) or value.type != vector:
        raise b.mistake(
            f"{array.name!r}, an array of {vector.name}, is assigned {describe(value)}",
            f"make one with cuda.{vector.name}({', '.join(vector.fields)})",
        )
    values, step = tuple(v.operand for v in value.items if isinstance(v, Val)), vector.numbers_an_access
    for first in range(0, vector.count, step):
        at = packed.beyond(b, addr, first * BYTES[vector.element])
        part = values[first : first + step]
        b.emit(St(array.space, vector.element, part, at, array.name, b.loc, cache))


def _store_record(b: Builder, array: Arr, record: RecordType, addr: Operand, value: Value) -> None:
    """Copy a record byte by byte, as numba.cuda does."""
    if not isinstance(value, Rec) or (value.type.fields, value.type.bytes) != (record.fields, record.bytes):
        raise b.mistake(
            f"{array.name!r}, an array of {record.name}, is assigned {describe(value)}",
            "assign a record of the same type, or field by field",
        )
    if "local" in (array.space, value.space) or record.bytes > MAX_COPIED_BYTES:
        raise b.refuse(
            f"a copy of a whole record of {record.bytes} bytes from {value.space} to {array.space} memory",
            "assign field by field",
        )
    (at,) = value.items
    assert isinstance(at, Val)
    source = replace(array, name=value.name, space=value.space)
    packed.copy(b, source, at.operand, array, addr, record.bytes)


def atomic(
    b: Builder,
    op: str,
    array: Arr,
    index: Value,
    value: Operand,
    used: bool,
    compare: Operand | None = None,
) -> Val | None:
    """Emit an atomic of WarpIR on operands of the array's type.

    The old value if it is used (ATOM), else None (RED). Raises UnsupportedFeature for a local array.
    """
    if array.space == "local":
        raise b.mistake(
            f"an atomic on the local array {array.name!r}", "a thread's own array needs none: use +="
        )
    _refuse_constant(b, array)
    element = plain(b, array, "an atomic")
    if array.packed:
        raise b.mistake(f"an atomic on a field of packed records of {array.name!r}", "use align=True")
    addr = address(b, array, index)
    dst: Reg | None = b.reg(element) if used else None
    b.emit(Atom(op, array.space, element, dst, addr, value, array.name, b.loc, compare))
    return Val(dst, element) if dst is not None else None


def row_major(shape: tuple[int, ...], element: Element) -> tuple[int, ...]:
    """Return the byte strides of a C-contiguous array."""
    strides, step = [], bytes_of(element)
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))
