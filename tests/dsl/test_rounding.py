"""round(x) and round(x, n): numba.cuda's values, types and branches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.types import ArgType
from gpusim.errors import UnsupportedFeature
from tests.dsl.engine_support import assert_equal, both
from tests.dsl.frontend_support import agree, compiled, ops


def whole(o, x):
    i = cuda.threadIdx.x
    o[i] = round(x[i])


@pytest.mark.parametrize("scalar", [np.float32, np.float64])
def test_round_goes_to_the_nearest_integer_and_to_the_even_one_of_two(scalar: Any) -> None:
    x = np.array([-3, -2.5, -2.25, -1.5, 0.5, 1.5, 2.25, 2.5, 2.75], scalar)
    args = np.zeros(9, np.int64), x
    assert_equal(*both(cuda.jit(whole), (1, 1, 1), (9, 1, 1), args))
    assert agree(whole, 1, 9, *args)[0].tolist() == [-3, -2, -2, -2, 0, 2, 2, 2, 3]


def test_round_saturates_at_the_ends_of_int64_and_gives_the_smallest_for_nan() -> None:
    x = np.array([1e30, -1e30, math.inf, -math.inf, math.nan])
    top, bottom = (1 << 63) - 1, -(1 << 63)
    assert agree(whole, 1, 5, np.zeros(5, np.int64), x)[0].tolist() == [top, bottom, top, bottom, bottom]


def test_round_of_an_integer_goes_through_float64_as_in_numba() -> None:
    x = np.array([7, -7, (1 << 53) + 1])
    assert agree(whole, 1, 3, np.zeros(3, np.int64), x)[0].tolist() == [7, -7, 1 << 53]


def digits(o, x, n):
    i = cuda.threadIdx.x
    o[i] = round(x[i], n[i])


@pytest.mark.parametrize("scalar, tolerance", [(np.float32, 1e-6), (np.float64, 0)])
def test_round_to_digits_gives_what_python_gives(scalar: Any, tolerance: float) -> None:
    n = np.repeat(np.arange(-4, 12), 4).astype(np.int32)
    x = np.random.default_rng(3).uniform(-2000, 2000, 64).astype(scalar)
    args = np.zeros(64, scalar), x, n
    assert_equal(*both(cuda.jit(digits), (1, 1, 1), (64, 1, 1), args))
    got = agree(digits, 1, 64, *args, rtol=0)[0]
    expected = [round(float(a), int(k)) for a, k in zip(x, n, strict=True)]
    np.testing.assert_allclose(got, np.array(expected, scalar), rtol=tolerance)


def test_round_to_digits_of_special_values_and_where_the_scaled_number_overflows() -> None:
    x = np.array([math.inf, -math.inf, math.nan, 1.7e308, 1.234567890123e-24, 2.5, 1.0, 123.0])
    n = np.array([2, -2, 0, 12, 30, 0, 400, -400])
    args = np.zeros(8), x, n
    assert_equal(*both(cuda.jit(digits), (1, 1, 1), (8, 1, 1), args))
    got = agree(digits, 1, 8, *args)[0]
    assert got[[0, 1, 3, 5, 6]].tolist() == [math.inf, -math.inf, 1.7e308, 2.0, 1.0] and np.isnan(got[2])
    assert got[4] == pytest.approx(1.234568e-24, rel=1e-12) and np.isnan(got[7])  # 0 * 10**400


def fixed(o, x):
    o[0] = round(x, 2)


def fixed_tens(o, x):
    o[0] = round(x, -1)


def test_constant_digits_need_no_power_and_no_branch() -> None:
    places = compiled(fixed, ArgType("f32", 1), ArgType("f32"))
    assert len(places.blocks) == 1 and "pow.f64" not in ops(places)
    below = np.float32(2.675)  # 2.67499995
    assert agree(fixed, 1, 1, np.zeros(1, np.float32), below)[0][0] == np.float32(2.67)
    assert agree(fixed_tens, 1, 1, np.zeros(1), 85.0)[0][0] == 80.0


def of_constants(o):
    o[0] = round(2.5)
    o[1] = round(-7.6)


def test_round_of_a_constant_is_a_constant() -> None:
    assert not any(op.startswith("rint") for op in ops(compiled(of_constants, ArgType("s64", 1))))
    assert agree(of_constants, 1, 1, np.zeros(2, np.int64))[0].tolist() == [2, -8]


def float_digits(o, x):
    o[0] = round(x, 1.0)


def three_arguments(o, x):
    o[0] = round(x, 1, 2)


@pytest.mark.parametrize(
    "kernel, text",
    [
        (float_digits, "round.. to a float of digits; give an integer"),
        (three_arguments, "round.. of 3 arguments"),
    ],
)
def test_what_round_does_not_take_is_refused(kernel: Any, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=text):
        compiled(kernel, ArgType("f64", 1), ArgType("f64"))
