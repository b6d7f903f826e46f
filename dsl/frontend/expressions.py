"""Walk the expressions of a kernel and emit what they compute.

It models nothing of the card: it decides order and branches, dsl/lowering/operations.py emits. Operands run
from left to right as in Python; the right side of `and` and `or`, and an arm of `x if c else y`, runs behind
a branch where it loads, calls or divides.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from dsl.intrinsics import surface
from dsl.lowering import arrays, members, operations, slices
from dsl.lowering.frame import Frame
from dsl.lowering.operations import convert
from dsl.lowering.values import (
    Arr,
    Chosen,
    Device,
    Group,
    Member,
    Method,
    Rec,
    Static,
    Tup,
    Val,
    Value,
    Vec,
    describe,
)
from dsl.types import TYPE_NAMES, register_type, unify
from dsl.types.elements import RecordType, VectorType, bytes_of
from dsl.warpir.ir import Imm

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
    ast.Pow: "pow",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
REFUSED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lambda: ("a lambda", "write a device function with def"),
    ast.ListComp: ("a list comprehension", "use a for loop and cuda.local.array"),
    ast.SetComp: ("a set comprehension", "use a for loop and cuda.local.array"),
    ast.DictComp: ("a dict comprehension", "use arrays"),
    ast.GeneratorExp: ("a generator expression", "use a for loop"),
    ast.Yield: ("yield", "a kernel stores into its arrays"),
    ast.YieldFrom: ("yield from", "a kernel stores into its arrays"),
    ast.Await: ("await", "a kernel has no coroutines"),
    ast.List: ("a list", "use a tuple or cuda.local.array"),
    ast.Set: ("a set", "use a tuple"),
    ast.Dict: ("a dict", "use arrays"),
    ast.JoinedStr: ("an f-string", "format text on the host"),
    ast.NamedExpr: ("an assignment expression (:=)", "assign in a statement of its own"),
    ast.Starred: ("a starred expression", "write the arguments out"),
    ast.Slice: ("a slice", "index one element at a time"),
}


def evaluate(frame: Frame, node: ast.expr) -> Value:
    """Emit an expression and return its value; raises UnsupportedFeature for what the language lacks."""
    handler = _HANDLERS.get(type(node))
    with frame.at(node):
        if handler is None:
            what, instead = REFUSED.get(
                type(node),
                (f"the expression {type(node).__name__}", "write it with numbers, tuples and arrays"),
            )
            raise frame.builder.refuse(f"{what} is not in the kernel language", instead)
        return handler(frame, node)


def scalar(frame: Frame, node: ast.expr) -> Val:
    """Emit an expression that has to be a number."""
    return as_scalar(frame, evaluate(frame, node))


def as_scalar(frame: Frame, value: Value | None) -> Val:
    """Return a value as a number; raises UnsupportedFeature if it is something else."""
    if not isinstance(value, Val):
        kind = "None" if value is None or value == Static(None) else describe(value)
        raise frame.builder.refuse(
            f"{kind} stands where a number is needed", "use a number, or index the array"
        )
    return value


def predicate(frame: Frame, node: ast.expr) -> Val:
    """Emit an expression as a condition."""
    if isinstance(node, ast.BoolOp):
        return _condition(frame, node)
    value = evaluate(frame, node)
    with frame.at(node):
        return _truth(frame, value)


def _constant(frame: Frame, node: ast.Constant) -> Value:
    if isinstance(node.value, (bool, int, float)) or node.value is None:
        return frame.static(node.value)
    raise frame.builder.refuse(
        f"the constant {node.value!r} is not in the kernel language", "use numbers; text belongs on the host"
    )


def _name(frame: Frame, node: ast.Name) -> Value:
    return surface.resolve(frame, frame.lookup(node))


def _tuple(frame: Frame, node: ast.Tuple) -> Value:
    return Tup(tuple(evaluate(frame, x) for x in node.elts))


def _attribute(frame: Frame, node: ast.Attribute) -> Value:
    base = evaluate(frame, node.value)
    match base:
        case Device(path=path):
            return surface.attribute(frame, f"{path}.{node.attr}")
        case Arr():
            return _array_attribute(frame, base, node.attr)
        case Rec():
            return field_of(frame, base, node.attr)
        case Chosen():
            return _static_attribute(frame, members.known(frame.builder, base), node.attr)
        case Static(obj=obj) | Member(member=obj):
            return _static_attribute(frame, obj, node.attr)
        case Tup(fields=fields) if node.attr in fields:
            return base.items[fields.index(node.attr)]
        case Vec(type=vector) if node.attr in [*vector.fields]:
            return base.items[vector.fields.index(node.attr)]
    raise frame.builder.refuse(
        f"{describe(base)} has no attribute {node.attr!r} in a kernel", "use arithmetic and array elements"
    )


def _static_attribute(frame: Frame, obj: Any, attr: str) -> Value:
    device = surface.member(frame, obj, attr)
    if device is not None:
        return device
    try:
        value = getattr(obj, attr)
    except AttributeError:
        kind = f"module {obj.__name__}" if isinstance(obj, ModuleType) else repr(obj)
        raise frame.builder.refuse(f"{kind} has no attribute {attr!r}", "correct its spelling") from None
    return surface.resolve(frame, frame.static(value, attr))


def _array_attribute(frame: Frame, array: Arr, attr: str) -> Value:
    b, rank = frame.builder, len(array.shape)
    match attr:
        case "shape":
            return Tup(tuple(arrays.extent(b, array, k) for k in range(rank)))
        case "strides":
            return Tup(tuple(Val(arrays.stride(b, array, k), "s64") for k in range(rank)))
        case "size":
            return arrays.size(b, array)
        case "ndim":
            return Val(Imm(rank), "s64")
        case "dtype":
            return _dtype(array)
        case "itemsize":
            return Val(Imm(bytes_of(array.type)), "s64")
        case "view":
            return Method(array, attr)
        case "T":
            return slices.transposed(b, array)
    if isinstance(array.type, RecordType):
        return field_of(frame, array, attr)
    raise b.refuse(
        f"the array attribute {array.name}.{attr}",
        "arrays have shape, size, ndim, strides, dtype, itemsize, T and view(dtype) in a kernel",
    )


def _dtype(array: Arr) -> Value:
    """Return what stands for the type of an array's elements: a dtype, or the name of a vector type."""
    if isinstance(array.type, str):
        return Static(np.dtype(TYPE_NAMES[array.type]))
    return Device(array.type.name) if isinstance(array.type, VectorType) else Static(array.type)


def field_of(frame: Frame, base: Rec | Arr, key: str | ast.expr) -> Value:
    """Return a field of a record, or of all records of an array: `r.x`, `r["x"]`, `a.x`."""
    from dsl.frontend import records

    assert isinstance(base.type, RecordType)
    field = records.named(frame, base.type, key)
    if isinstance(base, Arr):
        return records.column(frame.builder, base, base.type, field)
    return records.value(frame.builder, base, field)


def _binop(frame: Frame, node: ast.BinOp) -> Value:
    return operate(frame, node.op, evaluate(frame, node.left), evaluate(frame, node.right))


def operate(frame: Frame, op: ast.operator, x: Value, y: Value) -> Value:
    """Emit `x op y` of two numbers, or `x + y` of two tuples."""
    if isinstance(x, Tup) and isinstance(y, Tup) and isinstance(op, ast.Add):
        return Tup(x.items + y.items)
    if type(op) not in BINARY:
        raise frame.builder.refuse(
            "the operator @ is not in the kernel language", "write the loop over the inner dimension"
        )
    return operations.binary(frame.builder, BINARY[type(op)], as_scalar(frame, x), as_scalar(frame, y))


def _unary(frame: Frame, node: ast.UnaryOp) -> Value:
    if isinstance(node.op, ast.Not):
        return operations.negate(frame.builder, predicate(frame, node.operand))
    op = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "not"}[type(node.op)]
    return operations.unary(frame.builder, op, scalar(frame, node.operand))


def _comparison(frame: Frame, node: ast.Compare) -> Value:
    left = evaluate(frame, node.left)
    result: Val | None = None
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        if result is not None and result.constant is False:
            return result
        step, left = _compare_step(frame, op, left, right_node, result)
        result = step
    assert result is not None
    return result


def _compare_step(
    frame: Frame, op: ast.cmpop, left: Value, right_node: ast.expr, so_far: Val | None
) -> tuple[Val, Value]:
    """Emit one link of a comparison chain; after the first, behind a branch where it is not cheap."""
    right: list[Value] = []

    def link() -> Val:
        right.append(evaluate(frame, right_node))
        return compare(frame, op, left, right[0])

    return (link() if so_far is None else both(frame, "and", so_far, link)), right[0]


def compare(frame: Frame, op: ast.cmpop, x: Value, y: Value) -> Val:
    """Emit `x op y` of two numbers, tuples or enum members, and `is` of what is known when compiling."""
    b = frame.builder
    if isinstance(op, (ast.Is, ast.IsNot)):
        same = _is(frame, x, y)
        return same if isinstance(op, ast.Is) else operations.negate(b, same)
    if isinstance(op, (ast.In, ast.NotIn)):
        raise b.refuse("`in` is not in the kernel language", "compare with == and or")
    if isinstance(x, Tup) and isinstance(y, Tup) and isinstance(op, (ast.Eq, ast.NotEq)):
        return _compare_tuples(frame, op, x, y)
    if isinstance(x, Chosen) and isinstance(y, Chosen) and isinstance(op, (ast.Eq, ast.NotEq)):
        same = members.equal(b, x, y)
        return same if isinstance(op, ast.Eq) else operations.negate(b, same)
    return operations.compare(b, COMPARE[type(op)], as_scalar(frame, x), as_scalar(frame, y))


def _is(frame: Frame, x: Value, y: Value) -> Val:
    """Emit whether two values are one object: for a boolean beside True or False, whether they are equal."""
    if isinstance(x, Chosen) and isinstance(y, Chosen):
        return members.equal(frame.builder, x, y)
    if not (isinstance(x, Val) and isinstance(y, Val)):
        return Val(Imm(x == y), "pred")
    if isinstance(x, Member) and isinstance(y, Member):
        return Val(Imm(x.member is y.member), "pred")
    for v, known in ((x, y.constant), (y, x.constant)):
        if isinstance(known, bool) and v.type == "pred":
            return v if known else operations.negate(frame.builder, v)
    raise frame.builder.refuse("`is` between numbers", "use ==")


def _compare_tuples(frame: Frame, op: ast.cmpop, x: Tup, y: Tup) -> Val:
    equal = Val(Imm(len(x.items) == len(y.items)), "pred")
    for p, q in zip(x.items, y.items, strict=False):
        equal = operations.logical(frame.builder, "and", equal, compare(frame, ast.Eq(), p, q))
    return equal if isinstance(op, ast.Eq) else operations.negate(frame.builder, equal)


def both(frame: Frame, op: str, left: Val, right: Callable[[], Val]) -> Val:
    """Emit `left and right` ("and") or `left or right` ("or"); right if cheap or deciding."""
    b = frame.builder
    if left.constant is not None:
        return right() if bool(left.constant) == (op == "and") else left
    before, after = b.current, b.label()
    b.start(after)
    value = right()
    if b.is_cheap(after):
        b.splice(after, before)
        return operations.logical(b, op, left, value)
    result, join = b.reg("pred"), b.label()
    b.assign(result, value.operand)
    b.jump(join)
    b.resume(before)
    b.assign(result, Imm(op == "or"))
    b.branch(left, *((after, join) if op == "and" else (join, after)))
    b.start(join)
    return Val(result, "pred")


def _condition(frame: Frame, node: ast.BoolOp) -> Val:
    """Emit `and` or `or` where only the truth of the result counts."""
    op = "and" if isinstance(node.op, ast.And) else "or"
    result = predicate(frame, node.values[0])
    for x in node.values[1:]:
        result = both(frame, op, result, lambda x=x: predicate(frame, x))  # type: ignore[misc]
    return result


def _boolop(frame: Frame, node: ast.BoolOp) -> Value:
    """Emit `and` or `or` as a value: the operand that decides, in the common type of both (numba's rule).

    An operand that is a constant decides when the kernel is compiled, and leaves the other its own type.
    """
    op = "and" if isinstance(node.op, ast.And) else "or"
    result = evaluate(frame, node.values[0])
    for x in node.values[1:]:
        result = _either(frame, op, result, x)
    return result


def _either(frame: Frame, op: str, left: Value, node: ast.expr) -> Value:
    """Emit `left and node` or `left or node`; the right side behind a branch where it is not cheap."""
    b, cond = frame.builder, _truth(frame, left)
    if cond.constant is not None:
        return evaluate(frame, node) if bool(cond.constant) == (op == "and") else left
    before, after, join = b.current, b.label(), b.label()
    b.start(after)
    right = evaluate(frame, node)
    if b.is_cheap(after):
        b.splice(after, before)
        return _merge(frame, left, right, lambda x, y: _chosen(frame, op, cond, x, y))
    end = b.current
    known = Val(Imm(op == "or"), "pred")  # what a predicate on the left is worth where it decides
    kept = known if isinstance(left, Val) and left.type == "pred" else left
    value = _merge(frame, kept, right, lambda x, y: _joined(frame, x, y, before, end))
    b.resume(end)
    b.jump(join)
    b.resume(before)
    b.branch(cond, *((after, join) if op == "and" else (join, after)))
    b.start(join)
    return value


def _truth(frame: Frame, value: Value) -> Val:
    """Emit whether a value counts as true."""
    if isinstance(value, Tup):
        return Val(Imm(bool(value.items)), "pred")
    if isinstance(value, Chosen):
        return Val(Imm(True), "pred")
    if isinstance(value, Static):
        return Val(Imm(bool(value.obj)), "pred")
    return operations.truth(frame.builder, as_scalar(frame, value))


def _chosen(frame: Frame, op: str, cond: Val, left: Val, right: Val) -> Val:
    """Return left or right, both computed; `cond` is the truth of left."""
    if left.type == right.type == "pred":
        return operations.logical(frame.builder, op, left, right)
    return operations.select(frame.builder, cond, *((right, left) if op == "and" else (left, right)))


def branch(frame: Frame, node: ast.expr, if_true: int, if_false: int) -> None:
    """End the current block with a branch on a condition.

    Operands that are not cheap get blocks of their own.
    """
    b = frame.builder
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return branch(frame, node.operand, if_false, if_true)
    if not isinstance(node, ast.BoolOp):
        return b.branch(predicate(frame, node), if_true, if_false)
    is_and = isinstance(node.op, ast.And)
    so_far = predicate(frame, node.values[0])
    for operand in node.values[1:]:
        if so_far.constant is not None:
            if bool(so_far.constant) != is_and:
                break
            so_far = predicate(frame, operand)
            continue
        before, here = b.current, b.label()
        b.start(here)
        value = predicate(frame, operand)
        if b.is_cheap(here):
            b.splice(here, before)
            so_far = operations.logical(b, "and" if is_and else "or", so_far, value)
            continue
        end = b.current
        b.resume(before)
        b.branch(so_far, *((here, if_false) if is_and else (if_true, here)))
        b.resume(end)
        so_far = value
    return b.branch(so_far, if_true, if_false)


def _conditional(frame: Frame, node: ast.IfExp) -> Value:
    b = frame.builder
    cond = predicate(frame, node.test)
    if cond.constant is not None:
        return evaluate(frame, node.body if cond.constant else node.orelse)
    before, first, second, join = b.current, b.label(), b.label(), b.label()
    b.start(first)
    x = evaluate(frame, node.body)
    x_end, x_cheap = b.current, b.is_cheap(first)
    b.start(second)
    y = evaluate(frame, node.orelse)
    if x_cheap and b.is_cheap(second):
        b.splice(second, first)
        b.splice(first, before)
        return _merge(frame, x, y, lambda p, q: operations.select(b, cond, p, q))
    y_end = b.current
    value = _merge(frame, x, y, lambda p, q: _joined(frame, p, q, x_end, y_end))
    for end in (x_end, y_end):
        b.resume(end)
        b.jump(join)
    b.resume(before)
    b.branch(cond, first, second)
    b.start(join)
    return value


def _joined(frame: Frame, x: Val, y: Val, x_end: int, y_end: int) -> Val:
    """Return a register that holds x at the end of one block and y at the end of another."""
    b = frame.builder
    element = unify(x.type, y.type)
    result = b.reg(register_type(element))
    for value, end in ((x, x_end), (y, y_end)):
        b.resume(end)
        b.assign(result, convert(b, value, element).operand)
    return Val(result, element)


def _merge(frame: Frame, x: Value, y: Value, merge: Callable[[Val, Val], Val]) -> Value:
    """Merge the two arms of a conditional expression, tuples element by element."""
    if isinstance(x, Val) and isinstance(y, Val):
        return merge(x, y)
    if isinstance(x, Group) and isinstance(y, Group) and x.alike(y):
        return x.of(_merge(frame, p, q, merge) for p, q in zip(x.items, y.items, strict=True))
    if x == y:
        return x
    raise frame.builder.refuse(f"an expression gives {describe(x)} or {describe(y)}", "use an if statement")


def _subscript(frame: Frame, node: ast.Subscript) -> Value:
    from dsl.frontend.subscripts import subscript

    return subscript(frame, node)


def _call(frame: Frame, node: ast.Call) -> Value:
    from dsl.frontend.calls import call

    value = call(frame, node, used=True)
    return Static(None) if value is None else value


_HANDLERS: dict[type[ast.AST], Callable[[Frame, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Tuple: _tuple,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.BinOp: _binop,
    ast.UnaryOp: _unary,
    ast.Compare: _comparison,
    ast.BoolOp: _boolop,
    ast.IfExp: _conditional,
    ast.Call: _call,
}
