"""The device names a kernel may use, by their path under `cuda`, and what a call of each emits.

What it models: numba.cuda's thread indices (threadIdx and its like int32, grid and gridsize int64), shared
and local arrays; fences and nanosleep, which are no instruction here, as threads of a warp and memory are in
order and no time passes. The rest of the table is in dsl/intrinsics/warp.py, dsl/intrinsics/memory.py,
dsl/intrinsics/numbers.py and dsl/intrinsics/vectors.py; the module ptx is in dsl/intrinsics/ptx.py. What it
leaves out is refused by name (LATER). Which ncu metric checks it: none.
"""

from __future__ import annotations

import ast
from enum import EnumMeta
from types import ModuleType
from typing import Any

import ml_dtypes

from dsl.intrinsics import half_names, memory, numbers, ptx, vectors, warp
from dsl.intrinsics.arguments import Emitter, Keywords, integer, matched, takes
from dsl.intrinsics.device_name import DeviceName
from dsl.lowering import half, operations, views
from dsl.lowering.frame import DYNAMIC_ALIGNMENT_BYTES, Frame
from dsl.lowering.operations import convert
from dsl.lowering.values import Arr, Device, Method, Static, Tup, Val, Value, describe, spelled
from dsl.semantics.near import did_you_mean
from dsl.types import NUMPY_NAMES, element_type, numba_type, stored_type
from dsl.types.elements import VECTORS, Element, alignment_of
from dsl.warpir.ir import Imm

AXES = "xyz"
REGISTERS = {"threadIdx": "tid", "blockIdx": "ctaid", "blockDim": "ntid", "gridDim": "nctaid"}
WARP_SIZE = 32
LATER = {
    "cg": "end the kernel there: the next launch starts when every block is done",
    "libdevice": "use math.*",
    "random": "make the numbers on the host and pass them as an array",
}
"""Names of numba.cuda that are not in the language yet, and what to write instead."""


def member(frame: Frame, module: Any, name: str) -> Value | None:
    """Return what a member of the modules cuda and ptx is worth, None for other objects.

    Raises UnsupportedFeature for a name that the language does not have.
    """
    if isinstance(module, ModuleType) and module.__name__ == "dsl.ptx":
        return attribute(frame, f"ptx.{name}")
    if not is_cuda_module(module):
        return None
    if name == "ptx":
        raise frame.builder.mistake("cuda.ptx is a module of its own", "write `from dsl import ptx`")
    return attribute(frame, prefix(module) + name)


def is_cuda_module(obj: Any) -> bool:
    """Say whether an object is the surface: dsl.cuda, numba.cuda, or a module inside numba.cuda."""
    name = obj.__name__ if isinstance(obj, ModuleType) else ""
    return name == "dsl.cuda" or name.startswith(("numba.cuda", "numba_cuda"))


def prefix(module: Any) -> str:
    """Return what stands before the names of a module of numba.cuda: "fp16." of numba.cuda.fp16, else ""."""
    name = str(module.__name__).rpartition(".")[2]
    return f"{name}." if name in half_names.NAMESPACES else ""


def resolve(frame: Frame, value: Value) -> Value:
    """Resolve a device name that was imported by itself (`from numba.cuda import grid`); leave others."""
    if not isinstance(value, Static):
        return value
    obj = value.obj
    if isinstance(obj, EnumMeta) or element_type(obj) is not None:
        return value
    if (path := half.numba_path(obj)) is not None:
        return attribute(frame, path)
    if isinstance(obj, DeviceName):
        return attribute(frame, obj.path)
    name = getattr(obj, "__name__", type(obj).__name__)
    if _is_of_numba(getattr(obj, "py_func", obj), name) and (not hasattr(obj, "py_func") or name in CALLS):
        return attribute(frame, name)
    return value


def _is_of_numba(obj: Any, name: str) -> bool:
    """Say whether an object is numba.cuda's, or the one name outside it that kernels use."""
    owner = getattr(obj, "__module__", None)
    homes = ("numba.cuda", "numba_cuda", *(("numba.",) if name == "literal_unroll" else ()))
    return isinstance(owner, str) and owner.startswith(homes)


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
    if path == "bf16.bfloat16":
        return Static(ml_dtypes.bfloat16)
    if path in CALLS or any(name.startswith(f"{path}.") for name in CALLS):
        return Device(path)
    if path == "types":
        return Device(path)
    if (named := numba_type(path.removeprefix("types."))) is not None:
        return Static(named)
    if head == "ptx":  # nobody else has these names
        raise frame.builder.mistake(*_unknown(path, head))
    raise frame.builder.refuse(*_unknown(path, head))


def _unknown(path: str, head: str) -> tuple[str, str]:
    """Say that a name is not in the language, and what to write or which names of its kind there are."""
    if head in LATER:
        return f"cuda.{path} is not in the kernel language yet", LATER[head]
    hidden = (*VECTORS, *ptx.CALLS)
    names = {*REGISTERS, "laneid", "warpsize", *(n.partition(".")[0] for n in CALLS if n not in hidden)}
    said = f"{spelled(path)} is not in the kernel language"
    family = [n for n in CALLS if "." in path and n.startswith(f"{head}.")]
    if family:
        return said, f"it has {', '.join(sorted(family))}"
    near = did_you_mean(path, names)
    return said, near or f"it has {', '.join(sorted(names))} and the vector types int8x1 to float64x4"


def call(
    frame: Frame, path: str, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool
) -> Value | None:
    """Emit a call of `cuda.<path>`; `used` says whether the result is read."""
    if path not in CALLS:
        raise frame.builder.mistake(
            f"{spelled(path)} is not a function", "read its members, e.g. cuda.threadIdx.x"
        )
    return CALLS[path](frame, node, args, keywords, used)


def _ndim(frame: Frame, path: str, args: tuple[Value, ...], keywords: Keywords) -> int:
    value = matched(frame, path, args, keywords, ("ndim",), 1)["ndim"]
    n = value.constant if isinstance(value, Val) else None
    if n not in (1, 2, 3):
        raise frame.builder.mistake(
            f"cuda.{path} of something that is not 1, 2 or 3", "give the constant 1, 2 or 3"
        )
    return int(n)


def _axis_product(frame: Frame, axis: str, x: str, y: str) -> Val:
    b = frame.builder
    wide = [convert(b, Val(b.special(f"{name}.{axis}"), "s32"), "s64") for name in (x, y)]
    return operations.binary(b, "mul", *wide)


def _grid(frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool) -> Value:
    b = frame.builder
    positions = []
    for axis in AXES[: _ndim(frame, "grid", args, keywords)]:
        first = _axis_product(frame, axis, "ctaid", "ntid")
        positions.append(operations.binary(b, "add", first, Val(b.special(f"tid.{axis}"), "s32")))
    return positions[0] if len(positions) == 1 else Tup(tuple(positions))


def _gridsize(frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool) -> Value:
    sizes = [
        _axis_product(frame, axis, "nctaid", "ntid")
        for axis in AXES[: _ndim(frame, "gridsize", args, keywords)]
    ]
    return sizes[0] if len(sizes) == 1 else Tup(tuple(sizes))


def _fence(frame: Frame, given: dict[str, Value], used: bool) -> None:
    """Emit nothing: accesses take effect in order."""


def _nanosleep(frame: Frame, given: dict[str, Value], used: bool) -> None:
    """Emit nothing: no time passes here."""
    integer(frame, "nanosleep", "ns", given["ns"])


def _literal_unroll(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    """Return the tuple itself: a loop over a tuple is unrolled."""
    container = given["container"]
    if not isinstance(container, Tup):
        raise frame.builder.mistake(f"literal_unroll of {describe(container)}", "give a tuple")
    return container


def _const_array_like(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    """Return a constant array itself: arrays from outside the kernel are in constant memory."""
    ary = given["ary"]
    if not isinstance(ary, Arr) or ary.space != "const":
        raise frame.builder.mistake(
            f"cuda.const.array_like of {describe(ary)}", "give a numpy array that is a global or a closure's"
        )
    return ary


def _array(space: str) -> Emitter:
    def emit(frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool) -> Value:
        path = f"{space}.array"
        given = matched(frame, path, args, keywords, ("shape", "dtype", "alignment"), 2)
        shape = _shape(frame, path, given["shape"], dynamic_allowed=space == "shared")
        element = _dtype(frame, f"cuda.{path}", given["dtype"])
        align = (
            DYNAMIC_ALIGNMENT_BYTES
            if shape == (0,)
            else _alignment(frame, path, given.get("alignment"), alignment_of(element))
        )
        return frame.allocate(node, space, shape, element, align)

    return emit


def _shape(frame: Frame, path: str, value: Value, dynamic_allowed: bool) -> tuple[int, ...]:
    items = value.items if isinstance(value, Tup) else (value,)
    shape = tuple(v.constant if isinstance(v, Val) else None for v in items)
    if not shape or not all(isinstance(n, int) and not isinstance(n, bool) for n in shape):
        raise frame.builder.mistake(
            f"the shape of cuda.{path} is not known when the kernel is compiled",
            "use constants, globals or closure variables; shape 0 is dynamic shared memory",
        )
    sizes = tuple(int(n) for n in shape if n is not None)
    if any(n <= 0 for n in sizes) and not (dynamic_allowed and sizes == (0,)):
        raise frame.builder.mistake(
            f"cuda.{path} of shape {sizes}",
            "every extent is at least 1; shape 0 alone is dynamic shared memory",
        )
    return sizes


def _dtype(frame: Frame, path: str, value: Value) -> Element:
    """Return the type that a dtype argument names; raises UnsupportedFeature where it names none."""
    if isinstance(value, Device) and value.path in VECTORS:
        return VECTORS[value.path]
    element = stored_type(value.obj) if isinstance(value, Static) else None
    if element is None:
        raise frame.builder.refuse(
            f"the dtype of {path} is {describe(value)}",
            f"it has to be one of {', '.join(NUMPY_NAMES)}, or a vector type such as cuda.float32x4",
        )
    return element


def method(frame: Frame, callee: Method, args: tuple[Value, ...], keywords: Keywords) -> Value:
    """Emit a call of an array's method."""
    path = f"{callee.array.name}.{callee.name}"
    (dtype,) = matched(frame, path, args, keywords, ("dtype",), 1).values()
    return views.view(frame, callee.array, _dtype(frame, path, dtype))


def _alignment(frame: Frame, path: str, value: Value | None, itemsize: int) -> int:
    if value is None or value == Static(None):
        return itemsize
    n = value.constant if isinstance(value, Val) else None
    if not isinstance(n, int) or n < 1 or n & (n - 1):
        raise frame.builder.mistake(f"the alignment of cuda.{path}", "give a constant power of two in bytes")
    return max(n, itemsize)


CALLS: dict[str, Emitter] = {
    "grid": _grid,
    "gridsize": _gridsize,
    "shared.array": _array("shared"),
    "local.array": _array("local"),
    "const.array_like": takes("const.array_like", ("ary",), _const_array_like),
    **{name: takes(name, (), _fence) for name in ("threadfence", "threadfence_block", "threadfence_system")},
    "nanosleep": takes("nanosleep", ("ns",), _nanosleep),
    "literal_unroll": takes("literal_unroll", ("container",), _literal_unroll),
    **warp.CALLS,
    **memory.CALLS,
    **numbers.CALLS,
    **vectors.CALLS,
    **ptx.CALLS,
    **half_names.CALLS,
}
"""What a kernel may call, by the name under `cuda`, or ptx.<name>."""
