"""What an expression of a kernel is worth while compiling: a number in a register, or structure.

It models nothing of the card. Scalars become registers; tuples, arrays, modules, functions and dtypes are
structure that the walker takes apart, so nothing of Python reaches WarpIR.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

from dsl.types import TYPE_NAMES
from dsl.types.elements import Element, RecordType, VectorType
from dsl.warpir.ir import Imm, Operand, Reg


@dataclass(frozen=True)
class Val:
    """Hold a scalar.

    A register or a constant, and its element type (numba's idea of it, so int8 stays "s8" in a 32-bit
    register).
    """

    operand: Operand
    type: str

    @property
    def constant(self) -> int | float | bool | None:
        """Return the value if it is known at compile time, else None."""
        return self.operand.value if isinstance(self.operand, Imm) else None


@dataclass(frozen=True)
class Member(Val):
    """Hold a member of an IntEnum: a constant that still knows which member it is."""

    member: IntEnum


@dataclass(frozen=True)
class Group:
    """Hold values that are one value to the kernel; a variable of it is a variable for each item."""

    items: tuple[Value, ...]

    def of(self, items: Iterable[Value]) -> Self:
        """Return a group of the same kind with other items."""
        return replace(self, items=tuple(items))

    def alike(self, other: Value | None) -> bool:
        """Say whether another value is a group of this kind, so that a variable can hold either."""
        return isinstance(other, Group) and type(other) is type(self) and len(other.items) == len(self.items)


@dataclass(frozen=True)
class Tup(Group):
    """Hold a tuple: structure known at compile time, elements any values, named in a named tuple."""

    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chosen(Group):
    """Hold a member of an enum: its place in the class `owner`, which may be known only at run time."""

    owner: type[Enum]

    def alike(self, other: Value | None) -> bool:
        """Say whether another value is a member of the same class."""
        return isinstance(other, Chosen) and other.owner is self.owner


@dataclass(frozen=True)
class Vec(Group):
    """Hold a vector such as a float32x4: a number for each member, all of the type's element."""

    type: VectorType

    def alike(self, other: Value | None) -> bool:
        """Say whether another value is a vector of the same type."""
        return isinstance(other, Vec) and other.type == self.type


@dataclass(frozen=True)
class Rec(Group):
    """Hold a record: the address (s64) where it lies, in the array `name` of a space."""

    name: str
    space: str
    type: RecordType

    def alike(self, other: Value | None) -> bool:
        """Say whether another value is a record of the same array."""
        return isinstance(other, Rec) and other.of(self.items) == self


@dataclass(frozen=True)
class Arr:
    """Hold an array: where it lives and how an index becomes an address.

    type: of an element. shape: extents, None where the launch knows it (LdParam), a register (s64) where a
    view computes it. strides: bytes, as in shape. offset: byte offset in shared, local or constant memory;
    None for a global array, whose base is a parameter. start: of a view whose place is known while the kernel
    runs, the address of its first element; offset is None then. packed: elements may lie anywhere, and are
    moved byte by byte.
    """

    name: str
    space: str
    type: Element
    shape: tuple[int | Reg | None, ...]
    strides: tuple[int | Reg | None, ...]
    offset: int | None = None
    start: Reg | None = None
    packed: bool = False


@dataclass(frozen=True, eq=False)
class Static:
    """Hold a Python object that is a constant of the compilation: a module, a function, a dtype, None.

    Equal if it is the same object.
    """

    obj: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self.obj is other.obj

    def __hash__(self) -> int:
        return id(self.obj)


@dataclass(frozen=True)
class Method:
    """Name a method of an array, which a call calls."""

    array: Arr
    name: str


@dataclass(frozen=True)
class Device:
    """Name a thing of the device surface by its path under `cuda`, "threadIdx" or "shared.array", or under
    the module `ptx`: "ptx.ldmatrix_x4".
    """

    path: str


Value = Val | Group | Arr | Static | Device | Method


def spelled(path: str) -> str:
    """Return how a kernel writes a name of the device surface: cuda.threadIdx, ptx.ldmatrix_x4."""
    return path if path.startswith("ptx.") else f"cuda.{path}"


def describe(value: Value) -> str:
    """Name a value's kind for a message."""
    match value:
        case Tup(items=items):
            return f"a tuple of {len(items)}"
        case Chosen(owner=owner):
            return f"a member of {owner.__name__}"
        case Vec(type=type_):
            return f"a {type_.name}"
        case Rec(name=name):
            return f"a record of {name!r}"
        case Arr(name=name):
            return f"the array {name!r}"
        case Method(array=array, name=name):
            return f"the method {name} of the array {array.name!r}"
        case Device(path=path):
            return spelled(path)
        case Static(obj=obj):
            return str(getattr(obj, "__name__", f"a {type(obj).__name__}"))
    assert isinstance(value, Val)
    name = TYPE_NAMES[value.type]
    return f"{'an' if name[0] == 'i' else 'a'} {name}"
