"""Copies of a kernel and its device functions in which names mean the Python oracle's stand-ins.

What it models: what `cuda`, `math`, `range`, `min` and the like mean on the device. What it leaves out: the
user's module, which stays as it is. Checked by no ncu metric.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from dsl import types
from dsl.intrinsics.device_name import DeviceName
from dsl.lowering.half import numba_path
from dsl.oracle.arrays import Recorder, Tracked
from dsl.oracle.cuda import Cast, Cuda, Float, Math, maximum, minimum, rounded
from dsl.oracle.loops import loops
from dsl.oracle.numbers import element_of, literal, number
from dsl.oracle.printing import Line, Printer
from dsl.oracle.truth import comparing_truth
from dsl.oracle.ufuncs import Ufunc
from dsl.types.elements import VECTORS
from dsl.types.signature import declared


class Later:
    """Stand for an index that a module imported by itself: read anew in each thread."""

    def __init__(self, cuda: Cuda, name: str) -> None:
        self._cuda, self._name = cuda, name

    def __getattr__(self, axis: str) -> int:
        return int(getattr(getattr(self._cuda, self._name), axis))


def _device_name(cuda: Cuda, path: str) -> Any:
    """Return what a device name that was imported by itself stands for."""
    return Later(cuda, path) if path in ("threadIdx", "blockIdx") else operator.attrgetter(path)(cuda)


class Module:
    """Stand for a module other than cuda and math: its numbers, types and functions as kernels see them."""

    def __init__(self, module: ModuleType, value_of: Callable[[Any], Any]) -> None:
        self._module, self._value_of = module, value_of

    def __getattr__(self, name: str) -> Any:
        return self._value_of(getattr(self._module, name))


def _with_typed_constants(code: CodeType) -> CodeType:
    """Return the code with its constants as kernels compute with them; lines and columns stay."""
    return code.replace(co_consts=tuple(map(literal, code.co_consts)))


class Rebuilder:
    """Make copies of Python functions in which names mean the stand-ins; the originals stay as they are.

    printed: takes the lines that they print.
    """

    def __init__(self, cuda: Cuda, recorder: Recorder, printed: list[Line]) -> None:
        self.cuda, self.math, self.recorder = cuda, Math(), recorder
        numbers = {"int": Cast("s64"), "float": Float("f64")}
        self.builtins = {**loops(recorder), "min": minimum, "max": maximum, "round": rounded, **numbers}
        self.builtins["print"] = Printer(recorder, printed)
        self.codes: set[CodeType] = set()
        self._made: dict[FunctionType, FunctionType] = {}
        self._constants: dict[int, Tracked] = {}

    def function(self, original: FunctionType) -> FunctionType:
        """Return the copy of a function; functions that it names are copied too."""
        if original in self._made:
            return self._made[original]
        namespace: dict[str, Any] = {}
        cells = tuple(CellType(None) for _ in original.__closure__ or ())
        code, defaults = _with_typed_constants(comparing_truth(original)), literal(original.__defaults__)
        copy = FunctionType(code, namespace, original.__name__, defaults, cells)
        copy.__kwdefaults__ = {n: literal(v) for n, v in (original.__kwdefaults__ or {}).items()}
        self._made[original] = copy
        self.codes.add(code)
        namespace |= self._replaced(original.__globals__, original.__code__)
        names = original.__code__.co_freevars
        for cell, name, old in zip(cells, names, original.__closure__ or (), strict=True):
            cell.cell_contents = self._value(old.cell_contents, name)
        return copy

    def _replaced(self, module: dict[str, Any], code: CodeType) -> dict[str, Any]:
        """Return a module's names with stand-ins for those that the code uses."""
        used = _names(code)
        own = {name: self._value(module[name], name) for name in used if name in module}
        return {**module, **{n: f for n, f in self.builtins.items() if n not in module}, **own}

    def _constant(self, ary: np.ndarray, name: str) -> Tracked:
        """Return what stands for an array from outside the kernel: a copy in constant memory."""
        if id(ary) not in self._constants:
            copy, address = ary.copy("K"), sum(t.data.nbytes for t in self._constants.values())
            self._constants[id(ary)] = Tracked(copy, "const", name, address, self.recorder)
        return self._constants[id(ary)]

    def _value(self, value: Any, name: str = "constant") -> Any:
        """Return what stands for a value inside the kernel, where it is called `name`."""
        if isinstance(value, ModuleType) and value.__name__ == "dsl.ptx":
            return self.cuda.ptx
        if isinstance(value, ModuleType):
            is_cuda = value.__name__.rpartition(".")[2] == "cuda"
            return self.math if value is math else self.cuda if is_cuda else Module(value, self._value)
        if isinstance(value, DeviceName):
            return _device_name(self.cuda, value.path)
        if isinstance(value, np.ndarray):
            return self._constant(value, name)
        if isinstance(value, np.ufunc):
            return Ufunc(value, self.math)
        of_numba = _numba_name(self.cuda, value)
        if of_numba is not None:
            return _device_name(self.cuda, of_numba)
        inner = getattr(value, "py_func", value)
        if isinstance(inner, FunctionType):
            return _as_declared(value, self.function(inner))
        element = types.element_type(value) if value not in (bool, int, float) else None
        if element is not None and not isinstance(value, np.dtype):
            return Cast(element)
        return literal(_math_function(self.math, value))


def _as_declared(function: Any, copy: FunctionType) -> Callable[..., Any]:
    """Return a device function that converts its numbers and its result as its signature says."""
    if declared(function, ()) is None:
        return copy

    def call(*args: Any, **keywords: Any) -> Any:
        said = declared(function, tuple(map(element_of, args)))
        if said is None or len(said.arguments) != len(args) or keywords:
            return copy(*args, **keywords)
        result = copy(*(_in_type(a, t) for a, t in zip(args, said.arguments, strict=True)))
        return _in_type(result, said.result)

    return call


def _in_type(value: Any, element: str | None) -> Any:
    return number(value, element) if element and element_of(value) is not None else value


def _numba_name(cuda: Cuda, value: Any) -> str | None:
    """Return the device name of a thing that was imported from numba.cuda by itself, None for others."""
    if (path := numba_path(value)) is not None:
        return path
    owner = getattr(getattr(value, "py_func", value), "__module__", None)
    name = getattr(value, "__name__", None)
    known = isinstance(owner, str) and owner.startswith(("numba.cuda", "numba_cuda"))
    there = isinstance(name, str) and (hasattr(type(cuda), name) or name in VECTORS)
    return name if known and there else None


def _math_function(stand_in: Math, value: Any) -> Any:
    """Return the stand-in's function for one that was imported from math by name."""
    name = getattr(value, "__name__", "")
    return getattr(stand_in, name) if callable(value) and getattr(math, name, None) is value else value


def _names(code: CodeType) -> set[str]:
    """Return the names that a code object and the ones inside it look up."""
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def argument(value: Any) -> Any:
    """Return a scalar argument as kernels compute with it."""
    return literal(value)
