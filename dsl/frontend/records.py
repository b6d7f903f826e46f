"""Records in a kernel: elements of numpy's structured arrays, their fields, and records as arguments.

What it models: numba.cuda's records. A record is the place where it lies: `r = a[i]` loads nothing, `r.x`
loads one field, `a[i] = r` copies the record byte by byte. numba aligns records made with align=True; those
of a packed dtype may lie anywhere, so the machine code reads and writes their fields byte by byte, and each
byte is a request. What it leaves out: fields of text and complex numbers. Which ncu metric checks it:
`l1tex__t_requests_*`, `l1tex__t_sectors_*`.
"""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from itertools import product

from dsl.frontend.expressions import evaluate
from dsl.lowering import arrays, packed, slices
from dsl.lowering.builder import Builder
from dsl.lowering.frame import Frame
from dsl.lowering.values import Arr, Rec, Static, Tup, Val, Value, describe
from dsl.types.elements import Field, RecordType
from dsl.warpir.ir import Imm, Operand

MAX_COPIED_ELEMENTS = 1024
"""Elements of an array in a record that an assignment copies; each is a load and a store."""


def named(frame: Frame, record: RecordType, key: str | ast.expr) -> Field:
    """Return the field that `r.key` or `r["key"]` names, or `r[k]` by its place.

    Raises UnsupportedFeature where there is none, or none of a type that the language has.
    """
    b = frame.builder
    name = key if isinstance(key, str) else _key(frame, record, key)
    found = next((f for f in record.fields if f.name == name), None)
    if found is None:
        have = ", ".join(f.name for f in record.fields)
        raise b.mistake(f"a record has no field {name!r}", f"it has {have}")
    if found.element is None:
        raise b.refuse(f"the field {name!r} holds {found.holds}", "use fields of numbers")
    return found


def _key(frame: Frame, record: RecordType, node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    key = evaluate(frame, node)
    if isinstance(key, Static) and isinstance(key.obj, str):
        return key.obj
    place = key.constant if isinstance(key, Val) else None
    if isinstance(place, int) and -len(record.fields) <= place < len(record.fields):
        return record.fields[place].name
    raise frame.builder.refuse(
        f"a field of a record, named by {describe(key)}", 'name it: r.x, r["x"], or r[0] by its place'
    )


def spot(b: Builder, record: Rec, field: Field) -> tuple[Arr, Operand]:
    """Return where a field lies: as the array it is in (of no dimension for one element), and its address."""
    assert field.element is not None, "records.named refuses fields of other types"
    (at,) = record.items
    assert isinstance(at, Val)
    addr = packed.beyond(b, at.operand, field.offset)
    strides = arrays.row_major(field.shape, field.element)
    found = Arr(
        record.name, record.space, field.element, field.shape, strides, packed=not record.type.aligned
    )
    if isinstance(addr, Imm):
        return slices.placed(b, found, None, int(addr.value)), addr
    return slices.placed(b, found, addr, 0), addr


def value(b: Builder, record: Rec, field: Field) -> Value:
    """Return a field: loaded if it is a number, the place of a record or of an array in the record."""
    array, addr = spot(b, record, field)
    return array if field.shape else arrays.load(b, array, addr)


def column(b: Builder, array: Arr, record: RecordType, field: Field) -> Arr:
    """Return one field of all records of an array, as an array with the records' strides: `a.x`, `a["x"]`."""
    assert field.element is not None, "records.named refuses fields of other types"
    found = replace(
        array,
        type=field.element,
        shape=(*array.shape, *field.shape),
        strides=(*array.strides, *arrays.row_major(field.shape, field.element)),
        packed=not record.aligned,
    )
    at, known_bytes = arrays.origin(b, array)
    return slices.placed(b, found, at, known_bytes + field.offset)


def assign(b: Builder, record: Rec, field: Field, given: Value) -> None:
    """Emit `r.x = given`: of a number, or of an array that has the field's shape, element by element."""
    array, addr = spot(b, record, field)
    if not field.shape:
        return arrays.store(b, array, addr, given)
    if not isinstance(given, Arr) or len(given.shape) != len(field.shape):
        raise b.refuse(
            f"the field {field.name!r}, an array of shape {field.shape}, is assigned {describe(given)}",
            f'store its elements: r["{field.name}"][{", ".join("i" * len(field.shape))}] = x',
        )
    if math.prod(field.shape) > MAX_COPIED_ELEMENTS:
        raise b.refuse(f"a copy of {math.prod(field.shape)} elements", "copy them in a loop")
    for place in product(*map(range, field.shape)):
        index = Tup(tuple(Val(Imm(k), "s64") for k in place))
        loaded = arrays.load(b, given, arrays.address(b, given, index))
        arrays.store(b, array, arrays.address(b, array, index), loaded)
    return None
