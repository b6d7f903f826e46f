"""Rows and slices of arrays: `a[i]` of more dimensions, `a[lo:hi]`, `a[:, k]`, `a[::-1]`, `a.T`.

What it models: a view, another start, extents and strides of the same memory; no byte moves and no access is
counted. Bounds of a slice are cut to the array as in Python. What it leaves out: steps that are not known
when the kernel is compiled, `...`, and assignments to a slice. Which ncu metric checks it: none; strides of a
view show in `l1tex__t_sectors_*`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dsl.lowering import arrays, operations
from dsl.lowering.builder import Builder
from dsl.lowering.operations import compare, constant, convert
from dsl.lowering.values import Arr, Val, Value, describe
from dsl.types import FLOATS
from dsl.warpir.ir import Imm, Operand, Reg


@dataclass(frozen=True)
class Cut:
    """Hold a slice: its bounds, None where it has none, and its step."""

    lower: Val | None = None
    upper: Val | None = None
    step: int = 1


Index = tuple[Value | Cut, ...]
WHOLE = Cut()


def cut(b: Builder, array: Arr, parts: tuple[Value | None, Value | None, Value | None]) -> Cut:
    """Return a slice of an array from its evaluated bounds and step; raise for what is no integer."""
    wrong = next((p for p in parts if p is not None and not _whole(p)), None)
    if wrong is not None:
        raise b.refuse(f"{describe(wrong)} in a slice of {array.name!r}", "use integers")
    lower, upper, step = (p if isinstance(p, Val) else None for p in parts)
    every = 1 if step is None else step.constant
    if every is None:
        raise b.refuse(f"a slice of {array.name!r} with a step that is not constant", "index one at a time")
    if every == 0:
        raise b.mistake(f"a slice of {array.name!r} with step 0", "give a step that is not 0")
    return Cut(lower, upper, int(every))


def _whole(value: Value) -> bool:
    return isinstance(value, Val) and value.type not in FLOATS


def part(b: Builder, array: Arr, index: Index) -> Arr:
    """Return the view that an index of numbers and slices names; dimensions without an index stay whole."""
    shape: list[int | Reg | None] = []
    strides: list[int | Reg | None] = []
    at, known_bytes = arrays.origin(b, array)
    for dim in range(len(array.shape)):
        item = index[dim] if dim < len(index) else WHOLE
        stride = Val(arrays.stride(b, array, dim), "s64")
        if isinstance(item, Cut):
            first, length = _limits(b, item, arrays.extent(b, array, dim))
            shape.append(_held(b, length))
            strides.append(_held(b, operations.binary(b, "mul", stride, constant(item.step, "s64"))))
        else:
            first = Val(arrays.checked(b, array, dim, item), "s64")
        moved = operations.binary(b, "mul", first, stride)
        if moved.constant is not None:
            known_bytes += int(moved.constant)
        else:
            at = moved.operand if at is None else b.alu("add", "s64", at, moved.operand)
    return placed(b, replace(array, shape=tuple(shape), strides=tuple(strides)), at, known_bytes)


def transposed(b: Builder, array: Arr) -> Arr:
    """Return the view with the dimensions in reverse order."""
    rank = len(array.shape)
    shape = tuple(_held(b, arrays.extent(b, array, k)) for k in reversed(range(rank)))
    strides = tuple(_held(b, Val(arrays.stride(b, array, k), "s64")) for k in reversed(range(rank)))
    return placed(b, replace(array, shape=shape, strides=strides), *arrays.origin(b, array))


def placed(b: Builder, array: Arr, at: Operand | None, known_bytes: int) -> Arr:
    """Return an array that starts some bytes behind `at`, None for the start of the space."""
    if at is None:
        return replace(array, offset=known_bytes, start=None)
    start = b.alu("add", "s64", at, Imm(known_bytes)) if known_bytes else at
    held = _held(b, Val(start, "s64"))
    assert isinstance(held, Reg)
    return replace(array, offset=None, start=held)


def _held(b: Builder, value: Val) -> int | Reg:
    """Return a number that a view keeps: known, or in a register of its own that nothing changes."""
    if value.constant is not None:
        return int(value.constant)
    kept = b.copy(value).operand
    assert isinstance(kept, Reg)
    b.pinned.add(kept.index)
    return kept


def _limits(b: Builder, item: Cut, extent: Val) -> tuple[Val, Val]:
    """Return the first index of a slice and how many there are, as Python's slice.indices."""
    zero, one = constant(0, "s64"), constant(1, "s64")
    if item.step > 0:
        low, high = zero, extent
        first = _bound(b, item.lower, extent, low, high, low)
        span = operations.binary(b, "sub", _bound(b, item.upper, extent, low, high, high), first)
    else:
        low, high = constant(-1, "s64"), operations.binary(b, "sub", extent, one)
        first = _bound(b, item.lower, extent, low, high, high)
        span = operations.binary(b, "sub", first, _bound(b, item.upper, extent, low, high, low))
    every = abs(item.step)
    if every > 1:
        up = operations.binary(b, "add", span, constant(every - 1, "s64"))
        span = operations.binary(b, "floordiv", up, constant(every, "s64"))
    return first, operations.extremum(b, "max", span, zero)


def _bound(b: Builder, value: Val | None, extent: Val, low: Val, high: Val, default: Val) -> Val:
    """Return a bound counted from the end if it is negative, and cut to what there is."""
    if value is None:
        return default
    value = convert(b, value, "s64")
    wrapped = operations.binary(b, "add", value, extent)
    value = operations.select(b, compare(b, "lt", value, constant(0, "s64")), wrapped, value)
    return operations.extremum(b, "max", operations.extremum(b, "min", value, high), low)
