"""What a `for` statement of a kernel runs over: range, the elements of an array, zip, enumerate, or a tuple.

What it models: numba.cuda's iterators, as a length that is known when the loop starts and an item for each
count from 0. Tuples alone are unrolled. What it leaves out: rows of an array with several dimensions, as they
are views, and a tuple beside an array in one zip. Which ncu metric checks it: none.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import reduce

from dsl.frontend.expressions import evaluate, scalar
from dsl.lowering import arrays, operations
from dsl.lowering.builder import Builder
from dsl.lowering.frame import Frame, NotTyped
from dsl.lowering.operations import binary, constant, convert
from dsl.lowering.values import Arr, Static, Tup, Val, Value, describe
from dsl.types import FLOATS, range_type
from dsl.warpir.ir import Imm


@dataclass(frozen=True)
class Range:
    """Count from start to below (or above) stop; all three in the counter's type."""

    start: Val
    stop: Val
    step: Val

    def length(self, b: Builder) -> Val:
        """Return how many numbers there are: the rounded-up quotient of way and step, at least 0."""
        start, stop, step = (convert(b, v, "s64") for v in (self.start, self.stop, self.step))
        if step.constant == 1:
            way = stop if start.constant == 0 else binary(b, "sub", stop, start)
        else:
            way = operations.unary(b, "neg", binary(b, "floordiv", binary(b, "sub", start, stop), step))
        return operations.extremum(b, "max", way, constant(0, "s64"))

    def item(self, b: Builder, k: Val) -> Value:
        """Return the number after k steps."""
        steps = binary(b, "mul", convert(b, k, self.start.type), self.step)
        return convert(b, binary(b, "add", self.start, steps), self.start.type)

    def unrolled(self) -> Tup | None:
        """Return all numbers, None where one of the three is not known when the kernel is compiled."""
        limits = [int(v.constant) for v in (self.start, self.stop, self.step) if v.constant is not None]
        if len(limits) < 3:
            return None
        return Tup(tuple(constant(k, self.start.type) for k in range(*limits)))


@dataclass(frozen=True)
class Elements:
    """Go over the elements of an array with one dimension."""

    array: Arr

    def length(self, b: Builder) -> Val:
        """Return the array's extent."""
        return arrays.extent(b, self.array, 0)

    def item(self, b: Builder, k: Val) -> Value:
        """Load element k."""
        return arrays.load(b, self.array, arrays.address(b, self.array, k))


@dataclass(frozen=True)
class Zip:
    """Go over several things side by side, to the end of the shortest."""

    parts: tuple[Sequence, ...]

    def length(self, b: Builder) -> Val:
        """Return the smallest of the lengths."""
        return reduce(lambda x, y: operations.extremum(b, "min", x, y), (p.length(b) for p in self.parts))

    def item(self, b: Builder, k: Val) -> Value:
        """Return the k-th item of each part."""
        return Tup(tuple(p.item(b, k) for p in self.parts))


@dataclass(frozen=True)
class Enumerate:
    """Go over something with a count (int64) beside each item."""

    first: Val
    part: Sequence

    def length(self, b: Builder) -> Val:
        """Return the length of what is counted."""
        return self.part.length(b)

    def item(self, b: Builder, k: Val) -> Value:
        """Return the count and the item."""
        count = k if self.first.constant == 0 else binary(b, "add", self.first, k)
        return Tup((count, self.part.item(b, k)))


Sequence = Range | Elements | Zip | Enumerate
Items = Sequence | Tup


def items(frame: Frame, node: ast.expr) -> Items:
    """Return what a `for` runs over; raises UnsupportedFeature for what is no tuple, range, zip, enumerate
    or array of one dimension.
    """
    if isinstance(node, ast.Call):
        callee = evaluate(frame, node.func)
        for python, emit in ((range, _range), (zip, _zip), (enumerate, _enumerate)):
            if callee == Static(python):
                _plain(frame, python.__name__, node)
                return emit(frame, node)
    value = evaluate(frame, node)
    if isinstance(value, Tup):
        return value
    if isinstance(value, Arr) and len(value.shape) == 1:
        return Elements(value)
    raise frame.builder.refuse(
        f"a for loop over {describe(value)}",
        "loop over range(...) and index, over an array of one dimension, or over a tuple",
    )


def _plain(frame: Frame, name: str, node: ast.Call) -> None:
    if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        raise frame.builder.refuse(f"these arguments of {name}()", "give them by position, without *")


def _range(frame: Frame, node: ast.Call) -> Range:
    if not 1 <= len(node.args) <= 3:
        raise frame.builder.refuse(
            "these arguments of range()", "give a stop, or a start, a stop and a step"
        )
    given = [_bound(frame, "range", a) for a in node.args]
    element = range_type([v.type for v in given])
    zero, one = Val(Imm(0), element), Val(Imm(1), element)
    found = {1: (zero, *given, one), 2: (*given, one), 3: tuple(given)}[len(given)]
    start, stop, step = (convert(frame.builder, v, element) for v in found)
    if step.constant == 0:
        raise frame.builder.mistake("range() with step 0", "give a step that is not 0")
    return Range(start, stop, step)


def _bound(frame: Frame, name: str, node: ast.expr) -> Val:
    """Emit an argument of range() or enumerate(), as it is when the loop starts."""
    try:
        value = scalar(frame, node)
    except NotTyped as missing:  # typed on a later pass; an int32 changes nothing meanwhile
        frame.unit.wait(frame, node, str(missing))
        return Val(frame.builder.reg("s32"), "s32")
    if value.type in FLOATS:
        raise frame.builder.mistake(f"{name}() of a float", "give integers, e.g. int(x)")
    return frame.builder.copy(value)


def _zip(frame: Frame, node: ast.Call) -> Items:
    parts = [items(frame, a) for a in node.args]
    known = [p.unrolled() if isinstance(p, Range) else p for p in parts]
    tuples = [p for p in known if isinstance(p, Tup)]
    if len(tuples) == len(parts):
        return Tup(tuple(Tup(x) for x in zip(*(t.items for t in tuples), strict=False)))
    sequences = tuple(p for p in parts if not isinstance(p, Tup))
    if len(sequences) < len(parts):
        raise frame.builder.refuse(
            "zip() of a tuple and something whose length the launch decides",
            "loop over enumerate(the tuple) and index the array",
        )
    return Zip(sequences)


def _enumerate(frame: Frame, node: ast.Call) -> Items:
    if not 1 <= len(node.args) <= 2:
        what = "these arguments of enumerate()"
        raise frame.builder.refuse(what, "give what to count, and the first number")
    b, part = frame.builder, items(frame, node.args[0])
    starts = [_bound(frame, "enumerate", a) for a in node.args[1:]]
    first = convert(b, starts[0], "s64") if starts else constant(0, "s64")
    if isinstance(part, Tup):
        counts = [binary(b, "add", first, constant(k, "s64")) for k in range(len(part.items))]
        return Tup(tuple(Tup(pair) for pair in zip(counts, part.items, strict=True)))
    return Enumerate(first, part)
