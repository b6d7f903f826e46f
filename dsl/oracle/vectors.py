"""Vectors of the Python oracle: what stands for cuda.float32x4 and its like in a kernel.

What it models: numbers x, y, z, w of one type; an array of vectors is a numpy array of records of them. What
it leaves out: what is counted (dsl/oracle/arrays.py). Checked by no ncu metric.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dsl.oracle.numbers import number
from dsl.semantics.lane_ops import DTYPES
from dsl.types.elements import VectorType


class Vector:
    """Be a vector: its numbers are attributes, and nothing changes them."""

    __slots__ = ("numbers", "type")

    def __init__(self, type_: VectorType, numbers: tuple[Any, ...]) -> None:
        self.type, self.numbers = type_, numbers

    def __getattr__(self, name: str) -> Any:
        if name not in [*self.type.fields]:
            raise AttributeError(f"a {self.type.name} has no member {name!r}")
        return self.numbers[self.type.fields.index(name)]


class VectorMaker:
    """Stand for a vector type: a kernel calls it, or names it as a dtype."""

    def __init__(self, type_: VectorType) -> None:
        self.type, self.dtype = type_, storage(type_)

    def __call__(self, *values: Any) -> Vector:
        """Return a vector of numbers and of the numbers in other vectors."""
        numbers: list[Any] = []
        for value in values:
            numbers += value.numbers if isinstance(value, Vector) else (value,)
        if len(numbers) != self.type.count:
            raise TypeError(f"{self.type.name} of {len(numbers)} numbers")
        return Vector(self.type, tuple(number(n, self.type.element) for n in numbers))


def storage(type_: VectorType) -> np.dtype[Any]:
    """Return numpy's type of an array of vectors."""
    return np.dtype([(axis, DTYPES[type_.element]) for axis in type_.fields])


def from_record(type_: VectorType, record: Any) -> Vector:
    """Return the vector that an element of an array holds."""
    return Vector(type_, tuple(number(record[axis].item(), type_.element) for axis in type_.fields))
