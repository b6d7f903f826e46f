"""The functions of Python's module `operator`, called in a kernel: each is the operator it is named after.

What it models: numba's operators under their function names, the in-place ones like the others, as numbers
and tuples cannot be changed. What it leaves out: getitem, setitem and the rest, which are refused by name.
Which ncu metric checks it: those of the operators.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from dsl.frontend.expressions import as_scalar, compare, operate
from dsl.lowering import operations
from dsl.lowering.frame import Frame
from dsl.lowering.values import Value
from gpusim.table import counted

Emit = Callable[[Frame, tuple[Value, ...]], Value]

_BINARY: dict[Any, ast.operator] = {
    operator.add: ast.Add(),
    operator.sub: ast.Sub(),
    operator.mul: ast.Mult(),
    operator.truediv: ast.Div(),
    operator.floordiv: ast.FloorDiv(),
    operator.mod: ast.Mod(),
    operator.pow: ast.Pow(),
    operator.lshift: ast.LShift(),
    operator.rshift: ast.RShift(),
    operator.and_: ast.BitAnd(),
    operator.or_: ast.BitOr(),
    operator.xor: ast.BitXor(),
    operator.iadd: ast.Add(),
    operator.isub: ast.Sub(),
    operator.imul: ast.Mult(),
    operator.itruediv: ast.Div(),
    operator.ifloordiv: ast.FloorDiv(),
    operator.imod: ast.Mod(),
    operator.ipow: ast.Pow(),
    operator.ilshift: ast.LShift(),
    operator.irshift: ast.RShift(),
    operator.iand: ast.BitAnd(),
    operator.ior: ast.BitOr(),
    operator.ixor: ast.BitXor(),
}
_COMPARE: dict[Any, ast.cmpop] = {
    operator.lt: ast.Lt(),
    operator.le: ast.LtE(),
    operator.gt: ast.Gt(),
    operator.ge: ast.GtE(),
    operator.eq: ast.Eq(),
    operator.ne: ast.NotEq(),
}
_UNARY = {operator.neg: "neg", operator.pos: "pos", operator.invert: "not"}


def _taking(count: int, function: Any, emit: Callable[..., Value]) -> Emit:
    """Check the number of arguments, then emit."""

    def checked(frame: Frame, args: tuple[Value, ...]) -> Value:
        if len(args) != count:
            what = f"operator.{function.__name__} of {counted(len(args), 'argument')}"
            raise frame.builder.refuse(what, f"it takes {count}")
        return emit(frame, *args)

    return checked


def _binary(op: ast.operator) -> Callable[..., Value]:
    return lambda frame, x, y: operate(frame, op, x, y)


def _comparison(op: ast.cmpop) -> Callable[..., Value]:
    return lambda frame, x, y: compare(frame, op, x, y)


def _unary(op: str) -> Callable[..., Value]:
    return lambda frame, x: operations.unary(frame.builder, op, as_scalar(frame, x))


def _not(frame: Frame, x: Value) -> Value:
    return operations.negate(frame.builder, operations.truth(frame.builder, as_scalar(frame, x)))


CALLS: dict[Any, Emit] = {
    **{f: _taking(2, f, _binary(op)) for f, op in _BINARY.items()},
    **{f: _taking(2, f, _comparison(op)) for f, op in _COMPARE.items()},
    **{f: _taking(1, f, _unary(op)) for f, op in _UNARY.items()},
    operator.not_: _taking(1, operator.not_, _not),
}
"""What a call of each function emits."""
