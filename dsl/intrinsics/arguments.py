"""Match the arguments of a device function with its names, and say which kinds of value it takes.

It models nothing of the card; dsl/intrinsics/surface.py holds the table of device functions,
dsl/intrinsics/warp.py, dsl/intrinsics/memory.py and dsl/intrinsics/numbers.py emit them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from dsl.lowering.frame import Frame
from dsl.lowering.values import Val, Value, describe, spelled
from dsl.types import FLOATS, TYPE_NAMES

Keywords = dict[str, Value]
Emitter = Callable[[Frame, ast.Call, tuple[Value, ...], Keywords, bool], Value | None]
Body = Callable[[Frame, dict[str, Value], bool], Value | None]
"""Takes the frame, the arguments by name, and whether the result is read."""


MAX_PRINTED = 32
"""Numbers that one call of print takes: CUDA's printf formats no more."""


def matched(
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
        takes = f"it takes {', '.join(names)}" if names else "it takes none"
        raise frame.builder.mistake(f"these arguments of {spelled(path)}", takes)
    return given


def takes(path: str, names: tuple[str, ...], body: Body, required: int | None = None) -> Emitter:
    """Return the emitter of `cuda.<path>(*names)`; the first `required` names (all) have to be given."""

    def emit(
        frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool
    ) -> Value | None:
        count = len(names) if required is None else required
        return body(frame, matched(frame, path, args, keywords, names, count), used)

    return emit


def kind(value: Value) -> str:
    """Name the type of a number, or what stands in its place, for a message."""
    return TYPE_NAMES[value.type] if isinstance(value, Val) else describe(value)


def number(frame: Frame, path: str, name: str, value: Value) -> Val:
    """Return an argument that has to be a number; raises UnsupportedFeature for anything else."""
    if not isinstance(value, Val):
        raise frame.builder.mistake(f"the {name} of {spelled(path)} is {describe(value)}", "give a number")
    return value


def integer(frame: Frame, path: str, name: str, value: Value, boolean: bool = False) -> Val:
    """Return an argument that has to be an integer, or a boolean where that is allowed.

    Raises UnsupportedFeature for a float, a boolean that is not allowed, and for what is no number.
    """
    v = number(frame, path, name, value)
    if v.type in FLOATS or (v.type == "pred" and not boolean):
        wanted = "an integer or a boolean" if boolean else "an integer"
        advice = f"compare it, e.g. {name} != 0" if boolean else "convert it, e.g. int(x)"
        raise frame.builder.mistake(f"the {name} of {spelled(path)} is {kind(v)}, not {wanted}", advice)
    return v
