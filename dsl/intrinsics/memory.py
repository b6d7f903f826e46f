"""The device functions on one array element: atomics, and loads and stores with a cache hint.

What it models: numba.cuda's atomics on its element types, each giving the old value back (ATOM), or nothing
where the call is a statement (RED). numba's max and min of floats leave a NaN that is in memory, its nanmax
and nanmin replace it; all four ignore a NaN that is given. What it leaves out: the loop of compare-and-swap
that the card runs for max, min and sub of floats and for 64-bit inc and dec; here each is one operation.
Which ncu metric checks it: `l1tex__t_*_op_red`, `_op_atom`.
"""

from __future__ import annotations

from dsl.intrinsics.arguments import Emitter, number, takes
from dsl.lowering import arrays, operations
from dsl.lowering.frame import Frame
from dsl.lowering.operations import convert
from dsl.lowering.values import Arr, Val, Value, describe
from dsl.types import FLOATS, TYPE_NAMES
from dsl.warpir.ir import Imm

INTEGERS = ("s32", "u32", "s64", "u64")
ATOMIC_TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "sub", "max", "min", "nanmax", "nanmin"), (*INTEGERS, "f32", "f64")),
    **dict.fromkeys(("and_", "or_", "xor", "exch", "cas", "compare_and_swap"), INTEGERS),
    **dict.fromkeys(("inc", "dec"), ("u32", "u64")),
}
"""The element types of each atomic, as numba's cudadecl has them."""
OPS = {"sub": "add", "and_": "and", "or_": "or", "nanmax": "max", "nanmin": "min", "compare_and_swap": "cas"}
"""WarpIR's operation where its name is another."""


def _operation(name: str, element: str) -> str:
    """Return WarpIR's operation of an atomic on an element type."""
    if name in ("max", "min") and element in FLOATS:
        return f"{name}_nan"
    return OPS.get(name, name)


def _atomic_array(frame: Frame, name: str, value: Value) -> tuple[Arr, str]:
    """Return an array that has this atomic, and the type of its elements."""
    if not isinstance(value, Arr):
        raise frame.builder.mistake(f"cuda.atomic.{name} of {describe(value)}", "give an array")
    allowed, element = ATOMIC_TYPES[name], arrays.plain(frame.builder, value, f"cuda.atomic.{name}")
    if element not in allowed:
        what = f"cuda.atomic.{name} on {TYPE_NAMES[element]} elements ({value.name!r})"
        raise frame.builder.mistake(what, f"numba has it for {', '.join(TYPE_NAMES[t] for t in allowed)}")
    return value, element


def _operand(frame: Frame, name: str, argument: str, value: Value, element: str) -> Val:
    return convert(frame.builder, number(frame, f"atomic.{name}", argument, value), element)


def _atomic(name: str) -> Emitter:
    """Return atomic.<name>(ary, idx, val)."""

    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value | None:
        array, element = _atomic_array(frame, name, given["ary"])
        value = _operand(frame, name, "val", given["val"], element)
        if name == "sub":
            value = convert(frame.builder, operations.unary(frame.builder, "neg", value), element)
        return arrays.atomic(
            frame.builder, _operation(name, element), array, given["idx"], value.operand, used
        )

    return takes(f"atomic.{name}", ("ary", "idx", "val"), body)


def _swap(name: str, names: tuple[str, ...]) -> Emitter:
    """Return atomic.cas(ary, idx, old, val), or compare_and_swap(ary, old, val) of the first element."""

    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value | None:
        array, element = _atomic_array(frame, name, given["ary"])
        if "idx" not in names and len(array.shape) != 1:
            what = f"cuda.atomic.{name} of {array.name!r}, which has {len(array.shape)} dimensions"
            raise frame.builder.mistake(what, "use cuda.atomic.cas with an index")
        old, value = (_operand(frame, name, n, given[n], element).operand for n in ("old", "val"))
        index = given.get("idx", Val(Imm(0), "s64"))
        return arrays.atomic(frame.builder, "cas", array, index, value, used, compare=old)

    return takes(f"atomic.{name}", names, body)


def _hinted_array(frame: Frame, path: str, value: Value) -> Arr:
    if not isinstance(value, Arr):
        raise frame.builder.mistake(f"cuda.{path} of {describe(value)}", "give an array")
    if value.space != "global" or value.type == "pred":
        what = f"the {value.space} array {value.name!r}" if value.space != "global" else "a boolean array"
        raise frame.builder.mistake(
            f"cuda.{path} of {what}", "index it: the hint is for global memory and numbers"
        )
    return value


def _load(path: str) -> Emitter:
    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        array = _hinted_array(frame, path, given["array"])
        addr = arrays.address(frame.builder, array, given["i"])
        return arrays.load(frame.builder, array, addr, cache=path[2:])

    return takes(path, ("array", "i"), body)


def _store(path: str) -> Emitter:
    def body(frame: Frame, given: dict[str, Value], used: bool) -> None:
        array = _hinted_array(frame, path, given["array"])
        addr = arrays.address(frame.builder, array, given["i"])
        arrays.store(frame.builder, array, addr, given["value"], cache=path[2:])

    return takes(path, ("array", "i", "value"), body)


SWAPS = {"cas": ("ary", "idx", "old", "val"), "compare_and_swap": ("ary", "old", "val")}
CALLS: dict[str, Emitter] = {
    **{f"atomic.{name}": _atomic(name) for name in ATOMIC_TYPES if name not in SWAPS},
    **{f"atomic.{name}": _swap(name, names) for name, names in SWAPS.items()},
    **{path: _load(path) for path in ("ldca", "ldcg", "ldcs", "ldlu", "ldcv")},
    **{path: _store(path) for path in ("stcg", "stcs", "stwb", "stwt")},
}
"""What a kernel may call, by the name under `cuda`."""
