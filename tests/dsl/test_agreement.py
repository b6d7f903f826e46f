"""One answer from the compiled engine, the interpreter and numba, at the edges of Python's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import gpusim
from dsl import cuda

ENGINES = ("compiled", "ir")


def everywhere(kernel: Any, threads: int, *args: Any, engines: tuple[str, ...] = ENGINES) -> np.ndarray:
    """Run a kernel with each engine on copies; assert that the last argument ends up the same; return it."""
    results = []
    for engine in engines:
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        with gpusim.profile(engine=engine):
            kernel[1, threads](*given)
        results.append(given[-1])
    for engine, result in zip(engines, results, strict=True):
        np.testing.assert_array_equal(results[0], result, err_msg=f"{engines[0]} and {engine}")
    return results[0]


def numbas(function: Callable[..., Any], out: np.ndarray, *columns: Any) -> np.ndarray:
    """Return what numba makes of a function on the CPU, element by element, stored into a copy of `out`."""
    compiled, result = numba.njit(function), out.copy()
    for i, values in enumerate(zip(*columns, strict=True)):
        result[i] = np.asarray(compiled(*values)).astype(out.dtype)  # a large uint64 wraps
    return result


@cuda.jit
def deciding_operands(n, out):
    i = cuda.grid(1)
    out[i, 0] = i and 5
    out[i, 1] = i or 9
    out[i, 2] = n or 4
    out[i, 3] = i and n or 7
    out[i, 4] = (i > 1) and i
    out[i, 5] = (i > 1) or i
    out[i, 6] = i // 2 and 9 // i
    out[i, 7] = 0 or i
    out[i, 8] = i and 2.5


def test_and_and_or_give_the_operand_that_decides() -> None:
    got = everywhere(deciding_operands, 4, 0, np.zeros((4, 9)))
    expected = [
        (i and 5, i or 9, 4, 7, i if i > 1 else 0, (i > 1) or i, i // 2 and 9 // i, i, i and 2.5)
        for i in range(4)
    ]
    assert got.tolist() == [[float(x) for x in row] for row in expected]


@cuda.jit
def either_of_two(x, y, out):
    i = cuda.grid(1)
    out[i, 0] = (x[i] and y[i]) / 3
    out[i, 1] = (x[i] or y[i]) / 3


@pytest.mark.parametrize(
    ("x", "y"), [("u1", "i4"), ("i4", "f4"), ("f4", "i1"), ("u8", "i8"), ("?", "f4"), ("f8", "?")]
)
def test_and_and_or_have_numbas_common_type(x: str, y: str) -> None:
    a, b = np.array([0, 1, 7, 0], x), np.array([5, 0, 1, 0], y)
    got = everywhere(either_of_two, 4, a, b, np.zeros((4, 2)))
    assert got[:, 0].tolist() == numbas(lambda p, q: (p and q) / 3, np.zeros(4), a, b).tolist()
    assert got[:, 1].tolist() == numbas(lambda p, q: (p or q) / 3, np.zeros(4), a, b).tolist()


@cuda.jit
def conditions(x, out):
    i = cuda.grid(1)
    if x[i] and i or not (i and x[i] > 0.0):
        out[i] += 1
    while out[i] < 3 and (i or x[i]):
        out[i] += 1
    out[i] += 10 if x[i] or i else 20


def test_and_and_or_in_a_condition_count_as_true_or_false() -> None:
    x = np.array([0, 0, 1, -1], np.float32)
    # Lane 0: 1, no loop, 20. Lane 1: 1, then 3, 10. Lanes 2 and 3: 1, then 3, 10.
    assert everywhere(conditions, 4, x, np.zeros(4, np.int32)).tolist() == [21, 13, 13, 13]


@cuda.jit
def signs(x, out, bits):
    i = cuda.grid(1)
    out[i, 0] = -x[i]
    out[i, 1] = +x[i]
    bits[i, 0] = -x[i]
    bits[i, 1] = ~x[i]


@pytest.mark.parametrize("code", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
def test_minus_and_inversion_are_done_in_the_numbers_own_width(code: str) -> None:
    limits = np.iinfo(code)
    x = np.array([limits.min, limits.max, 0, 1, 62, limits.max - 5], code)
    floats, bits = np.zeros((6, 2)), np.zeros((6, 2), np.int64)
    got = everywhere(signs, 6, x, floats, bits)
    assert got[:, 0].tolist() == numbas(lambda n: -n, np.zeros(6, np.int64), x).tolist()
    assert got[:, 1].tolist() == numbas(lambda n: ~n, np.zeros(6, np.int64), x).tolist()


@cuda.jit
def literal_signs(out):
    out[0] = -np.uint8(194)
    out[1] = ~np.uint8(0)
    out[2] = -np.int8(-128)
    out[3] = -(cuda.threadIdx.x > 5)
    out[4] = -(cuda.threadIdx.x < 5)


def test_minus_of_constants_is_that_of_variables() -> None:
    assert everywhere(literal_signs, 1, np.zeros(5)).tolist() == [62, 255, -128, 0, -1]
