"""Subscripts of kernels: elements and views of arrays, fields of records, items of tuples, enum members.

It models nothing of the card; addresses are in dsl/lowering/arrays.py and views in dsl/lowering/slices.py.
What it leaves out: tuples indexed by what only the running kernel knows.
"""

from __future__ import annotations

import ast
from enum import EnumMeta

from dsl.frontend.expressions import evaluate, field_of
from dsl.lowering import arrays, slices
from dsl.lowering.frame import Frame
from dsl.lowering.values import Arr, Rec, Static, Tup, Val, Value, describe
from dsl.types.elements import RecordType
from dsl.warpir.ir import Imm, Reg


def subscript(frame: Frame, node: ast.Subscript) -> Value:
    """Emit `x[...]`: an element, a view, a field, an item of a tuple or a member of an enum."""
    base = evaluate(frame, node.value)
    if isinstance(base, Static) and isinstance(base.obj, EnumMeta):
        return _named_member(frame, base.obj, node.slice)
    text = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    if isinstance(base, Rec) or (isinstance(base, Arr) and isinstance(base.type, RecordType) and text):
        return field_of(frame, base, node.slice)
    if isinstance(base, Arr):
        return _of_array(frame, base, node)
    if isinstance(base, Tup):
        return _tuple_element(frame, base, node)
    raise frame.builder.refuse(
        f"{describe(base)} cannot be indexed", "index tuples, and arrays that are arguments, shared or local"
    )


def _named_member(frame: Frame, owner: EnumMeta, name: ast.expr) -> Value:
    """Return the member that `Class["member"]` names."""
    text = name.value if isinstance(name, ast.Constant) else None
    if text not in owner.__members__:
        what = f"{owner.__name__} has no member {ast.unparse(name)}"
        raise frame.builder.refuse(what, "correct its spelling")
    return frame.static(owner.__members__[str(text)])


def _of_array(frame: Frame, array: Arr, node: ast.Subscript) -> Value:
    """Load an element, or make a view where there are slices or fewer indices than dimensions."""
    if _slices(node):
        return slices.part(frame.builder, array, _cuts(frame, array, node))
    index = evaluate(frame, node.slice)
    items = index.items if isinstance(index, Tup) else (index,)
    if len(items) < len(array.shape):
        return slices.part(frame.builder, array, items)
    return arrays.load(frame.builder, array, arrays.address(frame.builder, array, index))


def _slices(node: ast.Subscript) -> bool:
    return any(isinstance(n, ast.Slice) for n in (node.slice, *getattr(node.slice, "elts", ())))


def _cuts(frame: Frame, array: Arr, node: ast.Subscript) -> slices.Index:
    """Evaluate an index that has slices in it."""
    nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if len(nodes) > len(array.shape):
        arrays.refuse_rank(frame.builder, array, len(nodes))
    return tuple(_cut(frame, array, n) if isinstance(n, ast.Slice) else evaluate(frame, n) for n in nodes)


def _cut(frame: Frame, array: Arr, node: ast.Slice) -> slices.Cut:
    parts = [None if n is None else evaluate(frame, n) for n in (node.lower, node.upper, node.step)]
    return slices.cut(frame.builder, array, (parts[0], parts[1], parts[2]))


def element_address(frame: Frame, array: Arr, node: ast.Subscript) -> Imm | Reg:
    """Emit the index of `array[...]` and return the address of the element that is assigned."""
    if _slices(node):
        what = f"an assignment to a slice of {array.name!r}"
        raise frame.builder.refuse(what, "assign one element at a time")
    return arrays.address(frame.builder, array, evaluate(frame, node.slice))


def _tuple_element(frame: Frame, base: Tup, node: ast.Subscript) -> Value:
    value = evaluate(frame, node.slice)
    k = value.constant if isinstance(value, Val) else None
    if not isinstance(k, int):
        raise frame.builder.refuse(
            "a tuple is indexed by something that is not known when the kernel is compiled",
            "use a constant index, a for loop over the tuple, or cuda.local.array",
        )
    if not -len(base.items) <= k < len(base.items):
        raise frame.builder.refuse(
            f"index {k} of a tuple of {len(base.items)}", f"use 0 to {len(base.items) - 1}"
        )
    return base.items[k]
