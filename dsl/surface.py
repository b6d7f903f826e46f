"""The device names a kernel may use, by their path under `cuda`, and what a call of each emits.

What it models: numba.cuda's thread indices, shared and local arrays, barrier, atomics and fma. threadIdx and
its like are int32, grid and gridsize int64. What it leaves out, and refuses by name: warp shuffles and votes,
fp16, cooperative groups, other atomics. A fence is no instruction here: threads of a warp and memory are in
order. Which ncu metric checks it: `l1tex__t_*_op_red`, `_op_atom`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dsl import arrays, lowering, mathlib
from dsl.cuda import DeviceName
from dsl.frame import DYNAMIC_ALIGNMENT_BYTES, Frame
from dsl.ir import BYTES, Imm
from dsl.lowering import convert
from dsl.types import NUMPY_NAMES, element_type
from dsl.values import Arr, Device, Static, Tup, Val, Value, describe

AXES = "xyz"
REGISTERS = {"threadIdx": "tid", "blockIdx": "ctaid", "blockDim": "ntid", "gridDim": "nctaid"}
WARP_SIZE = 32
Keywords = dict[str, Value]
Emitter = Callable[[Frame, ast.Call, tuple[Value, ...], Keywords, bool], Value | None]


def is_cuda_module(obj: Any) -> bool:
    """Say whether an object is the surface: dsl.cuda, numba.cuda, or a module inside numba.cuda."""
    name = obj.__name__ if isinstance(obj, ModuleType) else ""
    return name == "dsl.cuda" or name.startswith(("numba.cuda", "numba_cuda"))


def resolve(frame: Frame, value: Value) -> Value:
    """Resolve a device name that was imported by itself (`from numba.cuda import grid`); leave others."""
    if not isinstance(value, Static):
        return value
    obj = value.obj
    if isinstance(obj, DeviceName):
        return attribute(frame, obj.path)
    owner = getattr(obj, "__module__", None) or ""
    if (
        isinstance(owner, str)
        and owner.startswith(("numba.cuda", "numba_cuda"))
        and not hasattr(obj, "py_func")
    ):
        return attribute(frame, getattr(obj, "__name__", type(obj).__name__))
    return value


def attribute(frame: Frame, path: str) -> Value:
    """Return what `cuda.<path>` is worth.

    Raises UnsupportedFeature for a name that the language does not have.
    """
    head, _, tail = path.partition(".")
    if head in REGISTERS and tail in (*AXES, ""):
        return Val(frame.builder.special(f"{REGISTERS[head]}.{tail}"), "s32") if tail else Device(path)
    if path == "laneid":
        return Val(frame.builder.special("laneid"), "s32")
    if path == "warpsize":
        return Val(Imm(WARP_SIZE), "s32")
    if path in CALLS or any(name.startswith(f"{path}.") for name in CALLS):
        return Device(path)
    known = ", ".join(sorted((*REGISTERS, "laneid", "warpsize", *CALLS)))
    raise frame.builder.refuse(f"cuda.{path} is not in the kernel language", f"it has {known}")


def call(
    frame: Frame, path: str, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool
) -> Value | None:
    """Emit a call of `cuda.<path>`; `used` says whether the result is read."""
    if path not in CALLS:
        raise frame.builder.refuse(
            f"cuda.{path} is not a function", "read its members, e.g. cuda.threadIdx.x"
        )
    return CALLS[path](frame, node, args, keywords, used)


def _arguments(
    frame: Frame,
    path: str,
    args: tuple[Value, ...],
    keywords: Keywords,
    names: tuple[str, ...],
    required: int,
) -> dict[str, Value]:
    """Match positional and keyword arguments with names; raises UnsupportedFeature where they do not fit."""
    given = dict(zip(names, args, strict=False)) | keywords
    wrong = (
        len(args) > len(names) or set(keywords) - set(names) or any(n not in given for n in names[:required])
    )
    if wrong:
        raise frame.builder.refuse(f"these arguments of cuda.{path}", f"it takes {', '.join(names)}")
    return given


def _ndim(frame: Frame, path: str, args: tuple[Value, ...], keywords: Keywords) -> int:
    value = _arguments(frame, path, args, keywords, ("ndim",), 1)["ndim"]
    n = value.constant if isinstance(value, Val) else None
    if n not in (1, 2, 3):
        raise frame.builder.refuse(
            f"cuda.{path} of something that is not 1, 2 or 3", "give the constant 1, 2 or 3"
        )
    return int(n)


def _axis_product(frame: Frame, axis: str, x: str, y: str) -> Val:
    b = frame.builder
    wide = [convert(b, Val(b.special(f"{name}.{axis}"), "s32"), "s64") for name in (x, y)]
    return lowering.binary(b, "mul", *wide)


def _grid(frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool) -> Value:
    b = frame.builder
    positions = []
    for axis in AXES[: _ndim(frame, "grid", args, keywords)]:
        first = _axis_product(frame, axis, "ctaid", "ntid")
        positions.append(lowering.binary(b, "add", first, Val(b.special(f"tid.{axis}"), "s32")))
    return positions[0] if len(positions) == 1 else Tup(tuple(positions))


def _gridsize(frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool) -> Value:
    sizes = [
        _axis_product(frame, axis, "nctaid", "ntid")
        for axis in AXES[: _ndim(frame, "gridsize", args, keywords)]
    ]
    return sizes[0] if len(sizes) == 1 else Tup(tuple(sizes))


def _syncthreads(
    frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool
) -> None:
    _arguments(frame, "syncthreads", args, keywords, (), 0)
    frame.builder.barrier()


def _fence(frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool) -> None:
    """Emit nothing: accesses take effect in order."""


def _fma(frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool) -> Value:
    values = _arguments(frame, "fma", args, keywords, ("a", "b", "c"), 3).values()
    if not all(isinstance(v, Val) for v in values):
        raise frame.builder.refuse("cuda.fma of something that is no number", "give three numbers")
    return mathlib.fma(frame.builder, *(v for v in values if isinstance(v, Val)))


def _array(space: str) -> Emitter:
    def emit(frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool) -> Value:
        path = f"{space}.array"
        given = _arguments(frame, path, args, keywords, ("shape", "dtype", "alignment"), 2)
        shape = _shape(frame, path, given["shape"], dynamic_allowed=space == "shared")
        element = _dtype(frame, path, given["dtype"])
        align = (
            DYNAMIC_ALIGNMENT_BYTES
            if shape == (0,)
            else _alignment(frame, path, given.get("alignment"), BYTES[element])
        )
        return frame.allocate(node, space, shape, element, align)

    return emit


def _shape(frame: Frame, path: str, value: Value, dynamic_allowed: bool) -> tuple[int, ...]:
    items = value.items if isinstance(value, Tup) else (value,)
    shape = tuple(v.constant if isinstance(v, Val) else None for v in items)
    if not shape or not all(isinstance(n, int) and not isinstance(n, bool) for n in shape):
        raise frame.builder.refuse(
            f"the shape of cuda.{path} is not known when the kernel is compiled",
            "use constants, globals or closure variables; shape 0 is dynamic shared memory",
        )
    sizes = tuple(int(n) for n in shape if n is not None)
    if any(n <= 0 for n in sizes) and not (dynamic_allowed and sizes == (0,)):
        raise frame.builder.refuse(
            f"cuda.{path} of shape {sizes}",
            "every extent is at least 1; shape 0 alone is dynamic shared memory",
        )
    return sizes


def _dtype(frame: Frame, path: str, value: Value) -> str:
    element = element_type(value.obj) if isinstance(value, Static) else None
    if element is None:
        raise frame.builder.refuse(
            f"the dtype of cuda.{path} is {describe(value)}", f"it has to be one of {', '.join(NUMPY_NAMES)}"
        )
    return element


def _alignment(frame: Frame, path: str, value: Value | None, itemsize: int) -> int:
    if value is None or value == Static(None):
        return itemsize
    n = value.constant if isinstance(value, Val) else None
    if not isinstance(n, int) or n < 1 or n & (n - 1):
        raise frame.builder.refuse(f"the alignment of cuda.{path}", "give a constant power of two in bytes")
    return max(n, itemsize)


def _atomic(op: str) -> Emitter:
    def emit(
        frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool
    ) -> Value | None:
        given = _arguments(frame, f"atomic.{op}", args, keywords, ("ary", "idx", "val"), 3)
        array, value = given["ary"], given["val"]
        if not isinstance(array, Arr):
            raise frame.builder.refuse(
                f"cuda.atomic.{op} of {describe(array)}", "give an array, an index and a value"
            )
        if op == "sub" and isinstance(value, Val):
            value = lowering.unary(frame.builder, "neg", convert(frame.builder, value, array.type))
        return arrays.atomic(frame.builder, "add" if op == "sub" else op, array, given["idx"], value, used)

    return emit


CALLS: dict[str, Emitter] = {
    "grid": _grid,
    "gridsize": _gridsize,
    "syncthreads": _syncthreads,
    "fma": _fma,
    "threadfence": _fence,
    "threadfence_block": _fence,
    "threadfence_system": _fence,
    "shared.array": _array("shared"),
    "local.array": _array("local"),
    "atomic.add": _atomic("add"),
    "atomic.sub": _atomic("sub"),
    "atomic.max": _atomic("max"),
    "atomic.min": _atomic("min"),
}
