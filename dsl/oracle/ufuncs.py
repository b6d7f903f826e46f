"""numpy's functions in kernels of the Python oracle: `np.sin(x[i])`, and `np.sin(x, result)` of whole arrays.

What it models: numba.cuda's ufuncs in a kernel. Of floats of one type they are the functions of math. Of
arrays, each thread computes every element, in numpy's type for the inputs, and stores it in an array that is
there already. What it leaves out: single numbers of other types; arrays made on the way, so the array of the
results is given; `where`, `casting` and the other keywords. Which ncu metric checks it: none; it loads and
stores as any code does.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np

from dsl.lowering import mathlib
from dsl.oracle.arrays import Tracked
from dsl.oracle.numbers import element_of, number
from dsl.semantics.lane_ops import DTYPES
from dsl.types import NUMPY_NAMES


class Ufunc:
    """Stand for one ufunc of numpy; `math` stands for the module."""

    def __init__(self, ufunc: np.ufunc, math: Any) -> None:
        self._ufunc, self._math = ufunc, math

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Compute a number, or every element of the last argument; raise TypeError for other arguments."""
        if out is None and mathlib.is_of_numpy(self._ufunc, tuple(map(element_of, args))):
            return getattr(self._math, mathlib.OF_NUMPY[self._ufunc.__name__])(*args)
        ufunc, frame = self._ufunc, sys._getframe(1)
        *inputs, result = args if out is None else (*args, out)
        if ufunc.nout != 1 or len(inputs) != ufunc.nin or not isinstance(result, Tracked):
            takes = f"numpy.{ufunc.__name__} takes {ufunc.nin} numbers or arrays"
            raise TypeError(f"{takes} and then the array of the results")
        shape = np.broadcast_shapes(*(np.shape(getattr(x, "data", x)) for x in inputs))
        if np.broadcast_shapes(shape, result.data.shape) != result.data.shape:
            raise TypeError(f"numpy.{ufunc.__name__} of shape {shape} does not fit in {result.data.shape}")
        for index in np.ndindex(result.data.shape):
            values = [_element(x, index, frame) for x in inputs]
            result.store(index, _stored(ufunc(*values), result.data.dtype), frame)
        return result


def _element(value: Any, index: tuple[int, ...], frame: FrameType) -> Any:
    """Return numpy's scalar of an input: a number, or the element of an array that stands at an index."""
    if not isinstance(value, Tracked):
        return _of_numpy(value)
    dims = zip(index[len(index) - value.data.ndim :], value.data.shape, strict=True)
    return _of_numpy(value.load(tuple(0 if n == 1 else i for i, n in dims), frame))


def _of_numpy(value: Any) -> Any:
    element = element_of(value)
    return value if element is None else DTYPES[element].type(value)


def _stored(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a result as a store takes it: a number of a kernel's type, else numpy's own."""
    if dtype.name not in NUMPY_NAMES:
        return dtype.type(value)
    return number(value.item(), NUMPY_NAMES[value.dtype.name])
