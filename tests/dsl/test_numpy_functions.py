"""numpy's functions of single numbers in kernels: of floats of one type they are those of math."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from dsl.lowering import mathlib
from gpusim.arch import get_arch
from gpusim.errors import UnsupportedFeature
from tests.dsl.three_engines import agreed

ONE = sorted(name for name in mathlib.OF_NUMPY if getattr(np, name).nin == 1)
TWO = sorted(set(mathlib.OF_NUMPY) - set(ONE))


def of_one(f: Any) -> Any:
    @cuda.jit
    def kernel(x, y, out):
        i = cuda.threadIdx.x
        out[i] = f(x[i])

    return kernel


def of_two(f: Any) -> Any:
    @cuda.jit
    def kernel(x, y, out):
        i = cuda.threadIdx.x
        out[i] = f(x[i], y[i])

    return kernel


def inputs(dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x, y = rng.uniform(0.1, 0.9, (2, 32)).astype(dtype)
    x[:4] = 0.0, -0.5, np.inf, np.nan
    return x, y, np.zeros(32, dtype)


def result(kernel: Any, dtype: str) -> np.ndarray:
    x, y, out = inputs(dtype)
    launch(kernel, 1, 32, (x, y, out), Device(get_arch("h200")))
    return out


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_numpys_function_is_that_of_math_and_right(name, dtype):
    make = of_one if name in ONE else of_two
    kernel, twin = make(getattr(np, name)), make(getattr(math, mathlib.OF_NUMPY[name]))
    found = result(kernel, dtype)
    assert np.array_equal(found, result(twin, dtype), equal_nan=True)
    x, y, _ = inputs(dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*((x,) if name in ONE else (x, y)))
    assert np.allclose(found, expected, rtol=4e-7 if dtype == "f4" else 1e-14, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["sqrt", "absolute", "arcsin", "isnan", "arctan2"])
def test_the_three_engines_agree(name):
    kernel = (of_one if name in ONE else of_two)(getattr(np, name))
    agreed(kernel, 1, 32, lambda: inputs("f4"))


@cuda.jit
def of_an_integer(x, y, out):
    out[0] = np.sqrt(x[0])


@cuda.jit
def of_two_types(x, y, out):
    out[0] = np.hypot(out[0], y[0])


@pytest.mark.parametrize(("kernel", "twin"), [(of_an_integer, "math.sqrt"), (of_two_types, "math.hypot")])
def test_other_numbers_are_refused_with_the_function_of_math(kernel, twin):
    with pytest.raises(UnsupportedFeature, match=f"use {twin}"):
        args = np.ones(1, "i4"), np.ones(1, "f4"), np.ones(1, "f8")
        launch(kernel, 1, 1, args, Device(get_arch("h200")), engine="compiled")
