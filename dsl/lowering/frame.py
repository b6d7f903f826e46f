"""The state of one compilation: the unit (one kernel), and a frame for each function being walked.

It models nothing of the card but the placement of shared and local arrays: each starts at the next multiple
of its alignment, dynamic ones after the static ones at a multiple of 16. Checked by
`launch__shared_mem_per_block_static`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import FunctionType
from typing import Any

import numpy as np

from dsl.lowering.arrays import row_major
from dsl.lowering.builder import Builder
from dsl.lowering.constants import Bank
from dsl.lowering.members import chosen
from dsl.lowering.operations import constant, convert
from dsl.lowering.values import Arr, Group, Member, Rec, Static, Tup, Val, Value, describe
from dsl.syntax.source import Source
from dsl.types import (
    AnyType,
    ArgType,
    MemberType,
    TupleType,
    labels,
    plain_type,
    register_type,
    stored_type,
    unify,
)
from dsl.types.elements import Element, RecordType, bytes_of, number_of
from dsl.warpir.ir import Imm, Loc, LocalArray, Multiple, Need, Reg, SharedArray
from gpusim.errors import UnsupportedFeature

DYNAMIC_ALIGNMENT_BYTES = 16
Key = tuple[object, ...]


class NotTyped(Exception):
    """Say that a variable is read before any assignment to it has been typed; a later pass knows more."""


@dataclass
class Layout:
    """Place the arrays of one space: `at` is the first free byte."""

    at: int = 0
    arrays: dict[Key, SharedArray | LocalArray] = field(default_factory=dict)

    def place(
        self, key: Key, name: str, element: Element, shape: tuple[int, ...], align: int, loc: Loc, kind: type
    ) -> SharedArray | LocalArray:
        """Return the array of a call site, placed at its first call."""
        if key not in self.arrays:
            step = bytes_of(element)
            nbytes = step * int(np.prod(shape, dtype=np.int64))
            offset = -(-self.at // align) * align
            self.arrays[key] = kind(name, number_of(element), shape, offset, nbytes, loc, step)
            self.at = offset + nbytes
        return self.arrays[key]


@dataclass
class Unit:
    """Hold one compilation.

    types, groups: the type of each variable of a number, and the kind of each variable of a tuple (its items
    have keys of their own), learned over passes. A pass ends the search when it changes nothing.
    """

    kernel: str
    parameters: tuple[str, ...] = ()
    debug: bool = False
    types: dict[Key, str] = field(default_factory=dict)
    groups: dict[Key, Group] = field(default_factory=dict)
    dynamic_offset: int = 0
    changed: bool = False
    waiting: list[str] = field(default_factory=list)
    multiples: list[Multiple] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)
    builder: Builder = field(init=False)
    constants: Bank = field(init=False)
    shared: Layout = field(init=False)
    dynamic: Layout = field(init=False)
    local: Layout = field(init=False)
    registers: dict[Key, Reg] = field(init=False)
    stack: list[FunctionType] = field(init=False)

    def begin(self, loc: Loc) -> None:
        """Start a pass with nothing but the types of the last one."""
        self.changed = False
        self.waiting = []
        self.multiples, self.needs = [], []
        self.builder = Builder(self.kernel, loc, self.debug)
        self.shared, self.dynamic, self.local = Layout(), Layout(), Layout()
        self.constants = Bank()
        self.registers = {}
        self.stack = []

    def names(self, but: Key | None = None) -> set[str]:
        """Return the names of parameters and of arrays, but of one call site."""
        layouts = (self.shared, self.dynamic, self.local)
        taken = {a.name for layout in layouts for k, a in layout.arrays.items() if k != but}
        return {*taken, *self.parameters, *(a.name for a, _ in self.constants.found.values())}

    def wait(self, frame: Frame, node: ast.AST, name: str) -> None:
        """Note that a statement was left out of this pass, as a variable that it reads has no type yet."""
        place = f"{frame.source.file}:{getattr(node, 'lineno', 0)}: in {self.kernel}"
        self.waiting.append(f"{place}: the variable {name!r} is read before it is assigned; assign it first")

    def variable(self, key: Key, name: str, type_: str) -> tuple[Reg, str]:
        """Return a variable's register and type after an assignment of `type_` unified with it."""
        known = self.types.get(key)
        element = type_ if known is None else unify(known, type_)
        if element != known:
            self.types[key] = element
            self.changed = True
            self.registers.pop(key, None)
        return self._register(key, name, element), element

    def _register(self, key: Key, name: str, element: str) -> Reg:
        if key not in self.registers:
            self.registers[key] = self.builder.reg(register_type(element), name)
        return self.registers[key]

    def remembered(self, key: Key, name: str) -> Value | None:
        """Return a variable that an earlier pass typed and that is assigned further down, or None."""
        if key in self.types:
            return Val(self._register(key, name, self.types[key]), self.types[key])
        group = self.groups.get(key)
        if group is None:
            return None
        items = [self.remembered((*key, k), f"{name}.{k}") for k in range(len(group.items))]
        return group.of(new or old for new, old in zip(items, group.items, strict=True))


@dataclass
class Returns:
    """Say where `return` goes in an inlined function, and under which key its value is kept."""

    label: int
    values: list[Value] = field(default_factory=list)


@dataclass(frozen=True)
class LoopLabels:
    """Say where `break` and `continue` go."""

    break_to: int
    continue_to: int


@dataclass
class Frame:
    """Hold the walk of one function body.

    Its names, the values bound to its webs, and where control leaves to.
    """

    unit: Unit
    source: Source
    func: FunctionType
    path: Key
    bound: dict[int, Value] = field(default_factory=dict)
    returns: Returns | None = None
    loops: list[LoopLabels] = field(default_factory=list)
    hint: str = ""

    @property
    def builder(self) -> Builder:
        """Return the builder of the unit."""
        return self.unit.builder

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Give the instructions emitted inside the line of a syntax node."""
        saved = self.builder.loc
        self.builder.loc = Loc(self.source.file, getattr(node, "lineno", saved.line))
        try:
            yield
        finally:
            self.builder.loc = saved

    # names

    def lookup(self, node: ast.Name) -> Value:
        """Return the value of a name: local, then closure, then global, then builtin."""
        name = node.id
        if name in self.source.webs.names:
            return self._local(node)
        code = self.func.__code__
        if name in code.co_freevars:
            cell = (self.func.__closure__ or ())[code.co_freevars.index(name)]
            try:
                return self.static(cell.cell_contents, name)
            except ValueError:
                raise self.builder.mistake(
                    f"the closure variable {name!r} has no value yet", "assign it before the launch"
                ) from None
        if name in self.func.__globals__:
            return self.static(self.func.__globals__[name], name)
        if hasattr(builtins, name):
            return Static(getattr(builtins, name))
        raise self.builder.mistake(
            f"the name {name!r} is not defined",
            "define it before the kernel is launched, or correct its spelling",
        )

    def _local(self, node: ast.Name) -> Value:
        web = self.source.webs.read.get(id(node))
        if web is None:
            raise self.builder.mistake(
                f"the variable {node.id!r} is read before it is assigned",
                "assign it on every path that comes here",
            )
        if web not in self.bound:
            known = self.unit.remembered((*self.path, web), node.id)
            if known is None:
                raise NotTyped(node.id)
            self.bound[web] = known
        return self.bound[web]

    def static(self, obj: Any, name: str = "") -> Value:
        """Turn a Python object into a value.

        Numbers and tuples are constants, the rest is for the compiler's eyes only.
        """
        if isinstance(obj, IntEnum):
            return Member(Imm(int(obj)), "s64", obj)
        if isinstance(obj, Enum):
            return chosen(obj)
        if isinstance(obj, (bool, int, float, np.generic)) and not isinstance(obj, np.void):
            try:
                element = str(plain_type(obj).type)
                return constant(obj.item() if isinstance(obj, np.generic) else obj, element)
            except UnsupportedFeature as error:
                raise self.builder.refuse(
                    f"the constant {name or obj!r}: {error}", "use a number of another type"
                ) from None
        if isinstance(obj, np.ndarray):
            return self._constant_array(obj, name)
        if isinstance(obj, tuple):
            return Tup(tuple(self.static(x, name) for x in obj), getattr(obj, "_fields", ()))
        return Static(obj)

    def _constant_array(self, ary: np.ndarray, name: str) -> Value:
        """Return a numpy array that the kernel finds outside as an array in constant memory."""
        element = stored_type(ary.dtype)
        if element is None or ary.ndim == 0:
            what = "has no dimensions" if element else f"holds {ary.dtype}"
            raise self.builder.refuse(
                f"the array {name or 'outside'!r} {what}", "take an array of numbers that the language has"
            )
        return self.unit.constants.array(
            ary, element, name or "constant", self.unit.names(), self.builder.loc
        )

    # variables

    def assign(self, target: ast.AST, name: str, value: Value, fresh: bool = True) -> None:
        """Bind a value to the web that a Name (or arg) node writes.

        Scalars go to the web's register, the rest stays structure.
        """
        web = self.source.webs.written[id(target)]
        single = self.source.webs.definitions[web] == 1
        if single and (
            isinstance(value, (Static, Arr)) or (isinstance(value, Val) and value.constant is not None)
        ):
            self.bound[web] = value
            return
        self.bound[web] = kept = self.keep(
            (*self.path, web), name, value, None if single else self.bound.get(web), fresh
        )
        if single:
            self._fix(kept, value)

    def _fix(self, kept: Value, value: Value) -> None:
        """Note that a variable is assigned once.

        It needs no snapshot, and what is known of its value stays true.
        """
        if isinstance(kept, Group) and isinstance(value, Group):
            for k, v in zip(kept.items, value.items, strict=True):
                self._fix(k, v)
        if isinstance(kept, Val) and isinstance(kept.operand, Reg) and isinstance(value, Val):
            self.builder.once.add(kept.operand.index)
            if isinstance(value.operand, Reg) and value.operand.index in self.builder.positive:
                self.builder.positive.add(kept.operand.index)

    def bind_parameter(self, arg: ast.arg, value: Value) -> None:
        """Bind a parameter.

        To the argument itself where the function never assigns it, else to a variable that starts with it.
        """
        web = self.source.webs.written[id(arg)]
        if self.source.webs.definitions[web] == 1:
            self._pin(value)
            self.bound[web] = value
        else:
            self.bound[web] = self.keep((*self.path, web), arg.arg, value, fresh=False)

    def _pin(self, value: Value) -> None:
        if isinstance(value, Group):
            for item in value.items:
                self._pin(item)
        elif isinstance(value, Val) and isinstance(value.operand, Reg):
            self.builder.pinned.add(value.operand.index)

    def variable(self, target: ast.Name, name: str, start: Val) -> Val:
        """Return the register of a loop's own counter, set to its start; the loop alone changes it."""
        web = self.source.webs.written[id(target)]
        kept = self.keep((*self.path, web), name, start)
        assert isinstance(kept, Val)
        self.bound[web] = kept
        return kept

    def keep(
        self, key: Key, name: str, value: Value, before: Value | None = None, fresh: bool = True
    ) -> Value:
        """Store a value in the variable `key` and return what a later read gives."""
        b = self.builder
        if isinstance(value, Val):
            self._same_kind(name, value, before)
            reg, element = self.unit.variable(key, name, value.type)
            operand = convert(b, value, element).operand
            if not fresh and isinstance(operand, Reg):
                b.pinned.add(operand.index)
            b.assign(reg, operand)
            return Val(reg, element)
        if isinstance(value, Group):
            self._same_kind(name, value, before)
            self.unit.groups[key] = value
            olds = before.items if isinstance(before, Group) else (None,) * len(value.items)
            return value.of(
                self.keep((*key, k), f"{name}.{k}", x, old, fresh)
                for k, (x, old) in enumerate(zip(value.items, olds, strict=True))
            )
        if before is not None and before != value:
            raise b.refuse(
                f"{name!r} stands for {describe(before)} and for {describe(value)}", "use two names"
            )
        return value

    def _same_kind(self, name: str, value: Value, before: Value | None) -> None:
        alike = value.alike(before) if isinstance(value, Group) else isinstance(before, Val)
        if before is not None and not alike:
            raise self.builder.refuse(
                f"{name!r} stands for {describe(before)} and for {describe(value)}", "use two names"
            )

    # arrays

    def parameter(self, name: str, arg: AnyType) -> Value:
        """Return the value of a kernel parameter."""
        if isinstance(arg, TupleType):
            items = zip(labels(name, arg), arg.items, strict=True)
            return Tup(tuple(self.parameter(label, item) for label, item in items), arg.fields)
        if isinstance(arg, MemberType):
            return self.static(arg.member, name)
        return self._plain_parameter(name, arg)

    def _plain_parameter(self, name: str, arg: ArgType) -> Value:
        if isinstance(arg.type, RecordType) and not arg.ndim:
            base = Val(self.builder.param(f"{name}.base", "u64"), "s64")
            return Rec((base,), name, "global", arg.type)
        if arg.ndim is None and isinstance(arg.type, str):
            return Val(self.builder.param(name, register_type(arg.type)), arg.type)
        rank = arg.ndim or 0
        strides: list[int | None] = [None] * rank
        if rank and arg.layout in "CF":
            strides[-1 if arg.layout == "C" else 0] = bytes_of(arg.type)
        return Arr(name, "global", arg.type, (None,) * rank, tuple(strides), packed=not arg.aligned)

    def allocate(
        self, node: ast.Call, space: str, shape: tuple[int, ...], element: Element, align: int
    ) -> Arr:
        """Return the shared or local array that a call makes.

        Shape (0,) of shared memory is the dynamic part.
        """
        name = self.hint or f"{space}_line{node.lineno}"
        loc = self.builder.loc
        dynamic = space == "shared" and shape == (0,)
        site: Key = (self.source.file, node.lineno, node.col_offset, shape, element)
        key = (*self.path, *site) if space == "local" else site
        layout = self.unit.local if space == "local" else self.unit.dynamic if dynamic else self.unit.shared
        if dynamic:
            layout.at = self.unit.dynamic_offset
        placed = layout.place(
            key,
            self._unlike_others(key, name),
            element,
            shape,
            align,
            loc,
            LocalArray if space == "local" else SharedArray,
        )
        if dynamic:
            return Arr(placed.name, space, element, (None,), (bytes_of(element),), placed.offset)
        return Arr(placed.name, space, element, shape, row_major(shape, element), placed.offset)

    def _unlike_others(self, key: Key, name: str) -> str:
        """Return a name that no parameter and no other array has, as LdParam and messages go by names."""
        taken = self.unit.names(key)
        return (
            name
            if name not in taken
            else next(n for k in range(1, len(taken) + 2) if (n := f"{name}_{k}") not in taken)
        )
