"""The constructors of vector types: cuda.float32x4(a, b, c, d), from numbers and shorter vectors.

What it models: numba.cuda's constructors: numbers are converted to the vector's, vectors of the same numbers
are taken apart. What it leaves out: vectors of other numbers, which numba.cuda refuses too. Which ncu metric
checks it: none; no instruction but conversions.
"""

from __future__ import annotations

import ast

from dsl.intrinsics.arguments import Emitter, Keywords, kind
from dsl.lowering.frame import Frame
from dsl.lowering.operations import convert
from dsl.lowering.values import Val, Value, Vec
from dsl.types import TYPE_NAMES
from dsl.types.elements import VECTORS, VectorType


def _made(path: str, vector: VectorType) -> Emitter:
    """Return the emitter of `cuda.<path>(...)`."""

    def emit(frame: Frame, node: ast.Call, args: tuple[Value, ...], keywords: Keywords, used: bool) -> Value:
        b, numbers = frame.builder, []
        for value in args:
            numbers += _numbers(frame, path, vector, value)
        if keywords or len(numbers) != vector.count:
            raise b.mistake(
                f"cuda.{path} of {len(numbers)} numbers{', and keywords' if keywords else ''}",
                f"give {vector.count}, as numbers or in shorter vectors: {path}({', '.join(vector.fields)})",
            )
        return Vec(tuple(b.copy(convert(b, v, vector.element)) for v in numbers), vector)

    return emit


def _numbers(frame: Frame, path: str, vector: VectorType, value: Value) -> list[Val]:
    if isinstance(value, Val):
        return [value]
    if isinstance(value, Vec) and value.type.element == vector.element:
        return [v for v in value.items if isinstance(v, Val)]
    raise frame.builder.mistake(
        f"cuda.{path} of {kind(value)}", f"give numbers, or vectors of {TYPE_NAMES[vector.element]}"
    )


CALLS: dict[str, Emitter] = {path: _made(path, vector) for path, vector in VECTORS.items()}
"""What a kernel may call, by the name under `cuda`."""
