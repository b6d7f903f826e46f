"""Walk the statements of a kernel: assignments, branches, loops and returns.

It models nothing of the card but the shape of loops: preheader, header with the condition alone, body, latch,
exit. A `for` over range keeps its counter apart from the user's variable only where that variable is assigned
or read elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from dsl.frontend import iteration, records
from dsl.frontend.calls import call
from dsl.frontend.expressions import branch, evaluate, operate
from dsl.frontend.subscripts import element_address
from dsl.lowering import arrays, operations
from dsl.lowering.frame import Frame, LoopLabels, NotTyped
from dsl.lowering.values import Arr, Group, Rec, Static, Tup, Val, Value, describe
from dsl.types import register_type
from dsl.warpir.ir import SHORT_LOOP, Alu, Imm, Operand, Ret

REFUSED: dict[str, tuple[str, str]] = {
    "Try": ("try", "test the condition with if"),
    "TryStar": ("try", "test the condition with if"),
    "With": ("with", "write the steps out"),
    "Raise": ("raise", "return, and check on the host"),
    "Assert": ("assert", "check on the host"),
    "Delete": ("del", "leave the variable alone"),
    "FunctionDef": ("a function inside a kernel", "define the device function outside"),
    "ClassDef": ("a class", "use numbers, tuples and arrays"),
    "Import": ("import", "import at the top of the file"),
    "ImportFrom": ("import", "import at the top of the file"),
    "Global": ("global", "pass an array and store into it"),
    "Nonlocal": ("nonlocal", "pass an array and store into it"),
    "Match": ("match", "use if and elif"),
}


def run(frame: Frame, statements: list[ast.stmt]) -> None:
    """Emit statements in order; what follows a return, break or continue is dropped."""
    for s in statements:
        if frame.builder.terminated:
            return
        try:
            with frame.at(s):
                _statement(frame, s)
        except NotTyped as name:
            frame.unit.wait(frame, s, str(name))


def _statement(frame: Frame, s: ast.stmt) -> None:
    handler = _HANDLERS.get(type(s))
    if handler is None:
        what, instead = REFUSED.get(
            type(s).__name__, (type(s).__name__, "use assignments, if, for and while")
        )
        raise frame.builder.refuse(f"{what} is not in the kernel language", instead)
    handler(frame, s)


def run_function(frame: Frame) -> Value | None:
    """Emit an inlined function's body and return its value, None if it returns nothing."""
    b, returns, body = frame.builder, frame.returns, frame.source.tree.body
    assert returns is not None
    last = body[-1]
    if (
        isinstance(last, ast.Return)
        and sum(isinstance(n, ast.Return) for n in ast.walk(frame.source.tree)) == 1
    ):
        run(frame, body[:-1])
        with frame.at(last):
            return evaluate(frame, last.value) if last.value is not None and not b.terminated else None
    run(frame, body)
    falls_through = not b.terminated
    b.jump(returns.label)
    b.start_if_reached(returns.label)
    values = [v for v in returns.values if v != Static(None)]
    if values and (falls_through or len(values) != len(returns.values)):
        raise b.refuse(
            f"{frame.func.__name__} returns a value on some paths only",
            "end every path with a return of a value",
        )
    return values[-1] if values else None


# assignments


def _assign(frame: Frame, s: ast.Assign) -> None:
    target = s.targets[0]
    frame.hint = target.id if isinstance(target, ast.Name) else ""
    value = evaluate(frame, s.value)
    frame.hint = ""
    for t in s.targets:
        _store(frame, t, value, fresh=len(s.targets) == 1)


def _annotated(frame: Frame, s: ast.AnnAssign) -> None:
    if s.value is not None:
        _assign(frame, ast.copy_location(ast.Assign([s.target], s.value), s))


def _store(frame: Frame, target: ast.expr, value: Value, fresh: bool) -> None:
    """Assign a value to a name, an array element or a tuple of targets."""
    b = frame.builder
    match target:
        case ast.Name(id=name):
            frame.assign(target, name, value, fresh)
        case ast.Subscript() | ast.Attribute():
            _store_inside(frame, target, value)
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            _unpack(frame, elts, value, fresh)
        case _:
            raise b.refuse(
                f"an assignment to {ast.unparse(target)}", "assign to a variable or an array element"
            )


def _store_inside(frame: Frame, target: ast.Subscript | ast.Attribute, value: Value) -> None:
    """Assign a value to an element of an array, or to a field of a record."""
    base = evaluate(frame, target.value)
    if isinstance(base, Rec):
        key = target.attr if isinstance(target, ast.Attribute) else target.slice
        return records.assign(frame.builder, base, records.named(frame, base.type, key), value)
    array = _array(frame, target, base)
    assert isinstance(target, ast.Subscript), "_array refuses attributes"
    return arrays.store(frame.builder, array, element_address(frame, array, target), value)


def _unpack(frame: Frame, targets: list[ast.expr], value: Value, fresh: bool) -> None:
    b = frame.builder
    if (
        not isinstance(value, Tup)
        or any(isinstance(t, ast.Starred) for t in targets)
        or len(targets) != len(value.items)
    ):
        raise b.refuse(
            f"{len(targets)} targets for {describe(value)}", "unpack a tuple of the same length, without *"
        )
    snapshots = [_snapshot(frame, v) for v in value.items]  # a, b = b, a
    for t, v in zip(targets, snapshots, strict=True):
        _store(frame, t, v, fresh)


def _snapshot(frame: Frame, value: Value) -> Value:
    if isinstance(value, Val):
        return frame.builder.copy(value)
    return value.of(_snapshot(frame, v) for v in value.items) if isinstance(value, Group) else value


def _array(frame: Frame, target: ast.Subscript | ast.Attribute, base: Value) -> Arr:
    """Return the array that an assignment writes to; raises UnsupportedFeature for anything else."""
    if isinstance(target, ast.Attribute):
        raise frame.builder.refuse(
            f"an assignment to {ast.unparse(target)}", "assign to a variable or an array element"
        )
    if not isinstance(base, Arr):
        raise frame.builder.refuse(
            f"an assignment to an element of {describe(base)}", "only arrays have elements to assign"
        )
    return base


def _place(frame: Frame, target: ast.Subscript | ast.Attribute) -> tuple[Arr, Operand]:
    """Return the array and the address of the number that an augmented assignment changes."""
    base = evaluate(frame, target.value)
    if isinstance(base, Rec):
        key = target.attr if isinstance(target, ast.Attribute) else target.slice
        return records.spot(frame.builder, base, records.named(frame, base.type, key))
    array = _array(frame, target, base)
    assert isinstance(target, ast.Subscript), "_array refuses attributes"
    return array, element_address(frame, array, target)


def _augmented(frame: Frame, s: ast.AugAssign) -> None:
    if isinstance(s.target, ast.Name):
        before = frame.lookup(s.target)
        after = operate(frame, s.op, before, evaluate(frame, s.value))
        return frame.assign(s.target, s.target.id, after)
    b = frame.builder
    array, addr = _place(frame, s.target)
    old = arrays.load(b, array, addr)
    return arrays.store(b, array, addr, operate(frame, s.op, old, evaluate(frame, s.value)))


def _expression(frame: Frame, s: ast.Expr) -> None:
    if isinstance(s.value, ast.Call):
        call(frame, s.value, used=False)
    elif not isinstance(s.value, ast.Constant):  # a docstring or `...` is nothing
        evaluate(frame, s.value)


# branches


def _condition(frame: Frame, test: ast.expr, if_true: int, if_false: int) -> None:
    """Branch on a condition.

    Where a variable of it is not typed yet, go on as if it were, as this pass is not the last.
    """
    try:
        branch(frame, test, if_true, if_false)
    except NotTyped as name:
        frame.unit.wait(frame, test, str(name))
        frame.builder.branch(Val(frame.builder.reg("pred"), "pred"), if_true, if_false)


def _if(frame: Frame, s: ast.If) -> None:
    b = frame.builder
    then, otherwise, join = b.label(), b.label(), b.label()
    _condition(frame, s.test, then, otherwise if s.orelse else join)
    for label, body in ((then, s.body), (otherwise, s.orelse)):
        if body and b.start_if_reached(label):
            run(frame, body)
            b.jump(join)
    b.start_if_reached(join)


def _while(frame: Frame, s: ast.While) -> None:
    b = frame.builder
    _refuse_else(frame, s)
    header, body, latch, end = (b.label() for _ in range(4))
    b.jump(header)
    b.start(header)
    b.drafts[header].may_spin = True
    _condition(frame, s.test, body, end)
    if b.start_if_reached(body):
        _loop_body(frame, s.body, LoopLabels(end, latch))
        b.jump(latch)
        if b.start_if_reached(latch):
            b.jump(header)
    b.start_if_reached(end)


def _loop_body(frame: Frame, statements: list[ast.stmt], labels: LoopLabels) -> None:
    frame.loops.append(labels)
    run(frame, statements)
    frame.loops.pop()


def _refuse_else(frame: Frame, s: ast.For | ast.While) -> None:
    if s.orelse:
        raise frame.builder.refuse(
            "else after a loop is not in the kernel language",
            "set a flag before `break` and test it after the loop",
        )


def _break(frame: Frame, s: ast.Break) -> None:
    frame.builder.jump(frame.loops[-1].break_to)


def _continue(frame: Frame, s: ast.Continue) -> None:
    frame.builder.jump(frame.loops[-1].continue_to)


# for


def _for(frame: Frame, s: ast.For) -> None:
    _refuse_else(frame, s)
    items = iteration.items(frame, s.iter)
    if isinstance(items, Tup):
        return _for_tuple(frame, s, items)
    if isinstance(items, iteration.Range) and isinstance(s.target, ast.Name):
        return _for_range(frame, s, items.start, items.stop, items.step)
    return _for_each(frame, s, items)


def _for_each(frame: Frame, s: ast.For, items: iteration.Sequence) -> None:
    """Emit a loop that counts from 0 and sets its targets from the count."""
    b = frame.builder
    counter = Val(b.reg("s64", "count"), "s64")
    b.assign(counter.operand, Imm(0))  # type: ignore[arg-type]
    stop = items.length(b)

    def begin() -> None:
        _store(frame, s.target, items.item(b, counter), fresh=False)

    one = Val(Imm(1), "s64")
    _loop(frame, s, counter, stop, one, False, begin, _may_be_long(Val(Imm(0), "s64"), stop, one))


def _for_tuple(frame: Frame, s: ast.For, items: Tup) -> None:
    """Unroll a loop over a tuple."""
    b, end = frame.builder, frame.builder.label()
    for item in [_snapshot(frame, v) for v in items.items]:
        if b.terminated:
            break
        following = b.label()
        _store(frame, s.target, item, fresh=False)
        _loop_body(frame, s.body, LoopLabels(end, following))
        b.jump(following)
        b.start_if_reached(following)
    b.jump(end)
    b.start_if_reached(end)


def _for_range(frame: Frame, s: ast.For, start: Val, stop: Val, step: Val) -> None:
    b = frame.builder
    if step.constant is not None or operations.known_positive(b, step):
        return _counted(frame, s, start, stop, step)
    return _of_unknown_sign(frame, s, start, stop, step)


def _counted(frame: Frame, s: ast.For, start: Val, stop: Val, step: Val) -> None:
    """Emit the loop of a range whose step has a known sign.

    The user's variable is the counter where nothing else assigns or reads it.
    """
    b, element = frame.builder, start.type
    assert isinstance(s.target, ast.Name)
    down, long = step.constant is not None and step.constant < 0, _may_be_long(start, stop, step)
    if id(s) in frame.source.webs.plain_counters:
        counter = frame.variable(s.target, s.target.id, start)
        return _loop(frame, s, counter, stop, step, down, None, long)
    counter = Val(b.reg(register_type(element), f"{s.target.id}.next"), element)
    b.assign(counter.operand, start.operand)  # type: ignore[arg-type]

    def begin() -> None:
        _store(frame, s.target, counter, fresh=True)

    return _loop(frame, s, counter, stop, step, down, begin, long)


def _may_be_long(start: Val, stop: Val, step: Val) -> bool:
    """Tell whether a range is not known to have at most SHORT_LOOP numbers."""
    limits = [v.constant for v in (start, stop, step)]
    known = [int(n) for n in limits if n is not None]
    return len(known) < 3 or bool(range(*known)[SHORT_LOOP:])


def _of_unknown_sign(frame: Frame, s: ast.For, start: Val, stop: Val, step: Val) -> None:
    """Emit the loop of a range whose step may be negative.

    Count sign * i upwards by |step|, so that one comparison serves both.
    """
    b = frame.builder
    up = operations.compare(b, "gt", step, Val(Imm(0), step.type))
    sign = operations.select(b, up, Val(Imm(1), start.type), Val(Imm(-1), start.type))
    start, stop, step = (
        Val(b.alu("mul", sign.type, v.operand, sign.operand), sign.type) for v in (start, stop, step)
    )
    counter = Val(b.reg(register_type(sign.type), "count"), sign.type)
    b.assign(counter.operand, start.operand)  # type: ignore[arg-type]

    def begin() -> None:
        shown = Val(b.alu("mul", counter.type, counter.operand, sign.operand), counter.type)
        _store(frame, s.target, shown, fresh=True)

    _loop(frame, s, counter, stop, step, False, begin, long=True)  # a step of 0 never ends


def _loop(
    frame: Frame,
    s: ast.For,
    counter: Val,
    stop: Val,
    step: Val,
    down: bool,
    begin: Callable[[], None] | None,
    long: bool,
) -> None:
    """Emit header, body and latch; `begin` sets the user's variable in the body where that is no counter."""
    b, register = frame.builder, counter.operand
    header, body, latch, end = (b.label() for _ in range(4))
    b.jump(header)
    b.start(header)
    b.branch(
        Val(b.setp("gt" if down else "lt", register_type(counter.type), register, stop.operand), "pred"),
        body,
        end,
    )
    b.drafts[header].may_be_long = long
    b.start(body)
    if begin is not None:
        begin()
    _loop_body(frame, s.body, LoopLabels(end, latch))
    b.jump(latch)
    if b.start_if_reached(latch):
        b.emit(Alu("add", register_type(counter.type), register, (register, step.operand), b.loc))  # type: ignore[arg-type]
        b.jump(header)
    b.start(end)


# return


def _return(frame: Frame, s: ast.Return) -> None:
    b = frame.builder
    value = evaluate(frame, s.value) if s.value is not None else Static(None)
    if frame.returns is not None:
        if value != Static(None):
            kept = next((v for v in reversed(frame.returns.values) if v != Static(None)), None)
            value = frame.keep((*frame.path, "return"), f"{frame.func.__name__}.return", value, kept)
        frame.returns.values.append(value)
        return b.jump(frame.returns.label)
    if value != Static(None):
        raise b.mistake(
            "a kernel returns a value", "store the result in an array; only device functions return values"
        )
    return b.end(Ret(b.loc, at_end=s is frame.source.tree.body[-1]))


def _pass(frame: Frame, s: ast.Pass) -> None:
    """Emit nothing."""


_HANDLERS: dict[type[ast.stmt], Callable[[Frame, Any], None]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Expr: _expression,
    ast.If: _if,
    ast.While: _while,
    ast.For: _for,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.Return: _return,
    ast.Pass: _pass,
}
