"""Walk the calls of a kernel: casts, builtins, `math`, device names, and functions, which are inlined.

It models nothing of the card. numba compiles a device function apart and LLVM inlines it; here it is inlined
at once, so contraction and counting see what ptxas sees.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from dsl.frontend import operators
from dsl.frontend.expressions import as_scalar, evaluate
from dsl.intrinsics import numbers as number_calls
from dsl.intrinsics import surface
from dsl.intrinsics.arguments import MAX_PRINTED, Keywords, kind
from dsl.lowering import arrays, mathlib, operations, rounding
from dsl.lowering.frame import Frame, Returns
from dsl.lowering.operations import convert
from dsl.lowering.values import Arr, Device, Method, Static, Tup, Val, Value, describe
from dsl.syntax.source import find
from dsl.types import FLOATS, element_type
from dsl.types.signature import declared
from gpusim.errors import UnsupportedFeature
from gpusim.table import counted

PRINT_INSTEAD = "leave it to the Python oracle (--engine auto), or store the values in an array"


def call(frame: Frame, node: ast.Call, used: bool) -> Value | None:
    """Emit a call and return its value, None if it has none; `used` says whether anybody reads it."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "bit_count":
        return _bit_count(frame, node)
    callee = evaluate(frame, node.func)
    if isinstance(callee, Static) and (element := element_type(callee.obj)) is not None:
        return _cast(frame, callee.obj, element, _positional(frame, node))
    if isinstance(callee, Static) and callee.obj in _BUILTINS:
        return _BUILTINS[callee.obj](frame, _positional(frame, node))
    if callee == Device("atomic.compare_and_swap") and (start := _start_of_tail(node)) is not None:
        callee, node = Device("atomic.cas"), start
    if isinstance(callee, Device):
        return surface.call(frame, callee.path, node, *_arguments(frame, node), used)
    if isinstance(callee, Method):
        return surface.method(frame, callee, *_arguments(frame, node))
    if isinstance(callee, Static) and (found := _library(frame, callee.obj, node)) is not None:
        return found
    if callee == Static(print):
        raise _print(frame, node)
    func = _function(frame, callee)
    args, keywords = _arguments(frame, node)
    said = declared(callee.obj, tuple(map(_element, args))) if isinstance(callee, Static) else None
    if said is None or len(said.arguments) != len(args) or keywords:
        return inline(frame, func, node, args, keywords)
    converted = tuple(_converted(frame, a, t) for a, t in zip(args, said.arguments, strict=True))
    result = inline(frame, func, node, converted, {})
    return result if result is None else _converted(frame, result, said.result)


def _element(value: Value) -> str | None:
    return value.type if isinstance(value, Val) else None


def _converted(frame: Frame, value: Value, element: str | None) -> Value:
    """Return a number in the type that a signature gives it, everything else as it is."""
    return convert(frame.builder, value, element) if isinstance(value, Val) and element else value


def _start_of_tail(node: ast.Call) -> ast.Call | None:
    """Return compare_and_swap(a[i:], old, val) as cas(a, i, old, val), None for any other first argument."""
    match node.args:
        case [ast.Subscript(value=array, slice=ast.Slice(ast.expr() as first, None, None)), *rest]:
            return ast.copy_location(ast.Call(node.func, [array, first, *rest], node.keywords), node)
    return None


def _arguments(frame: Frame, node: ast.Call) -> tuple[tuple[Value, ...], Keywords]:
    b = frame.builder
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        raise b.refuse("* or ** in a call is not in the kernel language", "write the arguments out")
    return tuple(evaluate(frame, a) for a in node.args), {
        str(k.arg): evaluate(frame, k.value) for k in node.keywords
    }


def _positional(frame: Frame, node: ast.Call) -> tuple[Value, ...]:
    args, keywords = _arguments(frame, node)
    if keywords:
        raise frame.builder.refuse(
            f"a keyword argument ({', '.join(keywords)}) of {ast.unparse(node.func)}", "give it by position"
        )
    return args


def _print(frame: Frame, node: ast.Call) -> UnsupportedFeature:
    """Return what is wrong with a print: it is not compiled, or CUDA has no such print."""
    b = frame.builder
    if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        return b.mistake("print() with keywords or *", "give the items by position")
    if len(node.args) > MAX_PRINTED:
        what = f"print() of {len(node.args)} items"
        return b.mistake(what, f"CUDA prints at most {MAX_PRINTED}: print twice")
    return b.refuse("print is not compiled", PRINT_INSTEAD)


# casts and builtins


def _cast(frame: Frame, target: Any, element: str, args: tuple[Value, ...]) -> Val:
    b = frame.builder
    if len(args) != 1:
        given = counted(len(args), "argument")
        raise b.refuse(f"{getattr(target, '__name__', target)}() of {given}", "give one number")
    v = as_scalar(frame, args[0])
    if element == "pred":
        return operations.truth(b, v)
    if (target is float and v.type in FLOATS) or (
        target is int and v.type not in FLOATS and v.type != "pred"
    ):
        return v  # numba: float(float32) stays float32, int(int32) stays int32
    return operations.cast(b, v, element)


def _extremum(op: str) -> Callable[[Frame, tuple[Value, ...]], Value]:
    def emit(frame: Frame, args: tuple[Value, ...]) -> Value:
        items = args[0].items if len(args) == 1 and isinstance(args[0], Tup) else args
        if len(items) < (1 if len(args) == 1 and items is not args else 2):
            raise frame.builder.refuse(f"{op}() of one number", "give two numbers or more, or a tuple")
        result = as_scalar(frame, items[0])
        for x in items[1:]:
            result = operations.extremum(frame.builder, op, result, as_scalar(frame, x))
        return result

    return emit


def _abs(frame: Frame, args: tuple[Value, ...]) -> Value:
    return operations.absolute(frame.builder, as_scalar(frame, _one(frame, "abs", args)))


def _len(frame: Frame, args: tuple[Value, ...]) -> Value:
    value = _one(frame, "len", args)
    if isinstance(value, Tup):
        return operations.constant(len(value.items), "s64")
    if isinstance(value, Arr):
        return arrays.extent(frame.builder, value, 0)
    raise frame.builder.refuse(f"len() of {describe(value)}", "arrays and tuples have a length")


def _pow(frame: Frame, args: tuple[Value, ...]) -> Value:
    if len(args) != 2:
        raise frame.builder.refuse(f"pow() of {len(args)} arguments", "give two numbers")
    return operations.binary(frame.builder, "pow", as_scalar(frame, args[0]), as_scalar(frame, args[1]))


def _round(frame: Frame, args: tuple[Value, ...]) -> Value:
    if len(args) not in (1, 2):
        what = f"round() of {len(args)} arguments"
        raise frame.builder.refuse(what, "give a number, or a number and digits")
    numbers = [as_scalar(frame, a) for a in args]
    if len(numbers) == 1:
        return rounding.nearest(frame.builder, numbers[0])
    return rounding.to_digits(frame.builder, *numbers)


def _tuple(frame: Frame, args: tuple[Value, ...]) -> Value:
    value = _one(frame, "tuple", args) if args else Tup(())
    if not isinstance(value, Tup):
        raise frame.builder.refuse(f"tuple() of {describe(value)}", "give a tuple")
    return Tup(value.items)


def _only_in_for(name: str) -> Callable[[Frame, tuple[Value, ...]], Value]:
    def refuse(frame: Frame, args: tuple[Value, ...]) -> Value:
        raise frame.builder.refuse(f"{name}() outside a for statement", f"write `for i in {name}(...)`")

    return refuse


def _one(frame: Frame, name: str, args: tuple[Value, ...]) -> Value:
    if len(args) != 1:
        raise frame.builder.refuse(f"{name}() of {len(args)} arguments", "give one")
    return args[0]


class _ByIdentity(dict[Any, Callable[[Frame, tuple[Value, ...]], Value]]):
    """Look objects up by identity, as some (numpy arrays, dtypes) compare or hash in their own way."""

    def __contains__(self, key: object) -> bool:
        return any(key is k for k in self)


_BUILTINS = _ByIdentity(
    {
        abs: _abs,
        min: _extremum("min"),
        max: _extremum("max"),
        len: _len,
        pow: _pow,
        range: _only_in_for("range"),
        zip: _only_in_for("zip"),
        enumerate: _only_in_for("enumerate"),
        **operators.CALLS,
        round: _round,
        tuple: _tuple,
    }
)


def _bit_count(frame: Frame, node: ast.Call) -> Value:
    assert isinstance(node.func, ast.Attribute)
    value = as_scalar(frame, evaluate(frame, node.func.value))
    if node.args or node.keywords or value.type in (*FLOATS, "pred"):
        raise frame.builder.refuse(f"bit_count of a {kind(value)} number", "write n.bit_count() with n whole")
    return number_calls.of_bits(frame, "popc", value)


def _library(frame: Frame, function: Any, node: ast.Call) -> Value | None:
    """Emit a function of math, or numpy's of floats of one type; return None for others."""
    if _is_math(function):
        return _math(frame, function.__name__, _positional(frame, node))
    if isinstance(function, np.ufunc) and not node.keywords:
        args = _positional(frame, node)
        if mathlib.is_of_numpy(function, tuple(map(_element, args))):
            return _math(frame, mathlib.OF_NUMPY[function.__name__], args)
    return None


def _is_math(obj: Any) -> bool:
    return isinstance(obj, BuiltinFunctionType) and getattr(math, obj.__name__, None) is obj


def _math(frame: Frame, name: str, args: tuple[Value, ...]) -> Value:
    if name not in mathlib.NAMES:
        raise frame.builder.refuse(
            f"math.{name} is not in the kernel language", f"it has {', '.join(sorted(mathlib.NAMES))}"
        )
    return mathlib.call(frame.builder, name, tuple(as_scalar(frame, a) for a in args))


# functions


def _function(frame: Frame, callee: Value) -> FunctionType:
    """Return the Python function behind a callee; raises UnsupportedFeature for what cannot be inlined."""
    obj = callee.obj if isinstance(callee, Static) else None
    func = getattr(obj, "py_func", obj)
    if isinstance(func, FunctionType) and not _is_foreign(func):
        return func
    name = getattr(obj, "__name__", None) or describe(callee)
    if (getattr(obj, "__module__", None) or "").startswith("numpy") or isinstance(obj, np.ufunc):
        twin = mathlib.OF_NUMPY.get(name, name)
        instead = f"math.{twin} or a loop" if twin in mathlib.NAMES else "a loop"
        raise frame.builder.refuse(
            f"the numpy function {name}",
            f"use {instead}: numpy works on whole arrays, a thread on numbers",
        )
    raise frame.builder.refuse(
        f"a call of {name} is not in the kernel language",
        "call math.*, cuda.*, min, max, abs, len, a dtype or a device function",
    )


def _is_foreign(func: FunctionType) -> bool:
    return (func.__module__ or "").partition(".")[0] in ("numpy", "math", "numba")


def inline(
    frame: Frame, func: FunctionType, node: ast.Call, args: tuple[Value, ...], keywords: Keywords
) -> Value | None:
    """Walk the body of a function with its parameters bound to values, and return what it returns."""
    from dsl.frontend.statements import run_function

    b = frame.builder
    if func in frame.unit.stack:
        raise b.refuse(f"{func.__name__} calls itself", "write the recursion as a loop")
    inner = Frame(
        frame.unit,
        find(func),
        func,
        (*frame.path, f"{node.lineno}:{node.col_offset}"),
        returns=Returns(b.label()),
    )
    bind(inner, func, args, keywords)
    saved = b.loc
    frame.unit.stack.append(func)
    try:
        return run_function(inner)
    finally:
        frame.unit.stack.pop()
        b.loc = saved


def bind(inner: Frame, func: FunctionType, args: tuple[Value, ...], keywords: Keywords) -> None:
    """Bind the parameters of an inlined function; one that is never assigned is the argument itself."""
    spec = inner.source.tree.args
    if spec.vararg or spec.kwarg:
        raise inner.builder.refuse(f"{func.__name__} takes * or ** arguments", "give it named parameters")
    positional = [*spec.posonlyargs, *spec.args]
    given = dict(zip((p.arg for p in positional), args, strict=False)) | keywords
    defaults = dict(zip((p.arg for p in positional[::-1]), (func.__defaults__ or ())[::-1], strict=False)) | (
        func.__kwdefaults__ or {}
    )
    parameters = [*positional, *spec.kwonlyargs]
    unknown = set(given) - {p.arg for p in parameters}
    missing = [p.arg for p in parameters if p.arg not in given and p.arg not in defaults]
    if (
        unknown
        or missing
        or len(args) > len(positional)
        or any(p.arg in keywords for p in positional[: len(args)])
    ):
        raise inner.builder.mistake(
            f"{func.__name__} is called with the wrong arguments",
            f"it takes {', '.join(p.arg for p in parameters)}",
        )
    for p in parameters:
        value = given[p.arg] if p.arg in given else inner.static(defaults[p.arg], p.arg)
        inner.bind_parameter(p, value)
