"""Methods of arrays that a kernel may call: view.

What it models: the same bytes as elements of another type; no byte moves, and no access is counted. What it
leaves out: any last dimension that is not contiguous. Which ncu metric checks it: none; what is loaded by
way of a view of vectors shows in `l1tex__t_requests_*`.
"""

from __future__ import annotations

from dataclasses import replace

from dsl.lowering import arrays
from dsl.lowering.builder import Builder
from dsl.lowering.frame import Frame
from dsl.lowering.values import Arr
from dsl.types import name_of
from dsl.types.elements import Element, RecordType, bytes_of, number_of
from dsl.warpir.ir import BYTES, Imm, Multiple, Reg


def view(frame: Frame, array: Arr, element: Element) -> Arr:
    """Return the array with its rows taken as elements of another type (`a.view(cuda.float32x4)`).

    Raises UnsupportedFeature where the last dimension is not contiguous, or is known not to hold a whole
    number of them; what only the launch knows becomes one of `ir.Function.multiples`.
    """
    b, old, new = frame.builder, bytes_of(array.type), bytes_of(element)
    if not array.shape or array.strides[-1] != old:
        raise b.refuse(
            f"a view of {array.name!r}, whose last dimension is not known to be contiguous",
            "pass an array in C order, not a slice or a transposed one",
        )
    if isinstance(array.type, RecordType) or isinstance(element, RecordType) or array.packed:
        raise b.refuse(f"a view of {array.name!r} as {name_of(element)}", "take the fields of the records")
    if array.space == "local" and BYTES[number_of(array.type)] != BYTES[number_of(element)]:
        raise b.refuse(
            f"a view of the local array {array.name!r} as numbers of another size", "use a shared array"
        )
    row = array.shape[-1]
    if isinstance(row, int) and row * old % new:
        raise b.refuse(
            f"a view of {array.name!r} as {name_of(element)}, whose last dimension of {row} x {old} bytes is "
            f"no whole number of {new}",
            "make the dimension a multiple",
        )
    if isinstance(row, Reg) and old % new:
        raise b.refuse(f"a view of a view of {array.name!r} as longer elements", "view the array itself")
    if row is None and old % new:
        extent = f"{array.name}.shape.{len(array.shape) - 1}"
        frame.unit.multiples.append(Multiple(array.name, extent, old, new, name_of(element), b.loc))
    length = row * old // new if isinstance(row, int) else _length(b, array, old, new)
    return replace(
        array, type=element, shape=(*array.shape[:-1], length), strides=(*array.strides[:-1], new)
    )


def _length(b: Builder, array: Arr, old: int, new: int) -> int | Reg | None:
    """Emit the length of a row in elements of `new` bytes; None where it stays the launch's own number."""
    if old == new:
        return array.shape[-1]
    length = arrays.extent(b, array, len(array.shape) - 1).operand
    if old % new == 0:
        length = b.alu("mul", "s64", length, Imm(old // new))
    else:
        if new % old:
            length = b.alu("mul", "s64", length, Imm(old))
        length = b.alu("div", "s64", length, Imm(new // old if new % old == 0 else new))
    b.pinned.add(length.index)  # the array stands for it
    return length
