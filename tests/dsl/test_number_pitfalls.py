"""Mistakes with number types that people have met in other simulators, each a case with its right value."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpusim
from dsl import cuda

bfloat16, float8_e4m3fn = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
ENGINES = ("compiled", "ir", "oracle")


def launch(engine: str, kernel: Any, threads: Any, *args: Any) -> None:
    with gpusim.profile(engine=engine):
        kernel[1, threads](*args)


@cuda.jit
def product(a, b, c):
    row, column = cuda.threadIdx.y, cuda.threadIdx.x
    total = np.float32(0)
    for k in range(16):
        total += np.float32(a[row, k]) * np.float32(b[k, column])
    c[row, column] = total


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [np.float16, bfloat16, float8_e4m3fn])
def test_a_product_of_narrow_floats_multiplies_numbers_and_not_bit_patterns(engine: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (16, 16)) for _ in range(2))
    c = np.zeros((16, 16), np.float32)
    launch(engine, product, (16, 16), a.astype(dtype), b.astype(dtype), c)
    np.testing.assert_array_equal(c, a @ b)


@cuda.jit
def total_of(x, out):
    total = x[0]
    for i in range(1, x.size):
        total += x[i]
    out[0] = total


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_a_sum_of_16_bit_floats_adds_numbers_and_keeps_nan(engine: str, dtype: Any) -> None:
    x, out = np.arange(1, 9).astype(dtype), np.zeros(1, np.float32)
    launch(engine, total_of, 1, x, out)
    assert out[0] == 36.0
    x[3] = np.nan
    launch(engine, total_of, 1, x, out)
    assert np.isnan(out[0])


@cuda.jit
def to_8_bits(x, saturated, plain):
    i = cuda.grid(1)
    if i < x.size:
        saturated[i] = cuda.fp8.fp8_e4m3(x[i])
        plain[i] = float8_e4m3fn(x[i])


@pytest.mark.parametrize("engine", ENGINES)
def test_float32_to_e4m3_overflows_to_448_or_to_nan_as_the_kernel_says(engine: str) -> None:
    cases = {
        464.0: (448.0, 448.0), 464.01: (448.0, math.nan), 465.0: (448.0, math.nan), 1000.0: (448.0, math.nan),
        1e9: (448.0, math.nan), math.inf: (448.0, math.nan), -1000.0: (-448.0, math.nan),
        math.nan: (math.nan, math.nan), 17.0: (16.0, 16.0), 19.0: (20.0, 20.0), 2.0**-10: (0.0, 0.0),
        1.5 * 2.0**-10: (2.0**-9, 2.0**-9),
    }  # fmt: skip
    x = np.array(list(cases), np.float32)
    saturated, plain = (np.zeros(x.size, float8_e4m3fn) for _ in range(2))
    launch(engine, to_8_bits, 32, x, saturated, plain)
    np.testing.assert_array_equal(saturated.astype(np.float32), [a for a, _ in cases.values()])
    np.testing.assert_array_equal(plain.astype(np.float32), [b for _, b in cases.values()])


@cuda.jit
def square(x, out):
    out[0] = x[0] * x[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_float32_product_is_not_rounded_to_tf32(engine: str) -> None:
    x, out = np.array([1 + 2.0**-12], np.float32), np.zeros(1, np.float32)
    launch(engine, square, 1, x, out)
    assert out[0] == np.float32(1 + 2.0**-11)  # the tf32 of x is 1


@cuda.jit
def largest(x, out):
    best = propagated = x[0]
    for i in range(1, x.size):
        best = max(best, x[i])
        propagated = cuda.bf16.hmax_nan(propagated, x[i])
    out[0] = best
    out[1] = propagated


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("place", range(4))
def test_max_drops_a_nan_and_hmax_nan_keeps_it_wherever_it_stands(engine: str, place: int) -> None:
    x = np.array([1, 2, 3], bfloat16)
    x = np.insert(x, place, np.nan)
    out = np.zeros(2, bfloat16)
    launch(engine, largest, 1, x, out)
    assert float(out[0]) == 3.0 and np.isnan(out[1])


@cuda.jit
def one_way_and_the_other(x, direct, by_bfloat16):
    i = cuda.grid(1)
    if i < x.size:
        direct[i] = cuda.fp8.fp8_e4m3(x[i])
        by_bfloat16[i] = cuda.fp8.fp8_e4m3(bfloat16(x[i]))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_order_of_two_roundings_is_that_of_the_kernel(engine: str) -> None:
    x = np.array([6.250491], np.float32)
    direct, by_bfloat16 = (np.zeros(1, float8_e4m3fn) for _ in range(2))
    launch(engine, one_way_and_the_other, 32, x, direct, by_bfloat16)
    assert (direct.view(np.uint8)[0], by_bfloat16.view(np.uint8)[0]) == (77, 76)
    assert (float(direct[0]), float(by_bfloat16[0])) == (6.5, 6.0)


def test_three_in_a_hundred_normal_numbers_come_out_otherwise_by_way_of_bfloat16() -> None:
    x = np.random.default_rng(0).normal(0, 8, 1 << 16).astype(np.float32)
    direct, by_bfloat16 = (np.zeros(x.size, float8_e4m3fn) for _ in range(2))
    with gpusim.profile():
        one_way_and_the_other[256, 256](x, direct, by_bfloat16)
    changed = np.count_nonzero(direct.view(np.uint8) != by_bfloat16.view(np.uint8))
    assert 0.028 < changed / x.size < 0.034  # 6,206 of 200,000 in a report
