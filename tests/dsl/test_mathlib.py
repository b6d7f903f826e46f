"""Mathematical functions: accuracy of the float32 sequences, special values, and what each becomes in WarpIR.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.machine import block_counts
from dsl.types import ArgType
from gpusim.errors import UnsupportedFeature
from tests.dsl.frontend_support import compiled, interpret, ops

BLOCK = 1024


def exp_kernel(o, x):
    i = cuda.grid(1)
    if i < x.size:
        o[i] = math.exp(x[i])


def log_kernel(o, x):
    i = cuda.grid(1)
    if i < x.size:
        o[i] = math.log(x[i])


def run(kernel: Any, x: np.ndarray) -> np.ndarray:
    return interpret(kernel, -(-x.size // BLOCK), BLOCK, np.zeros_like(x), x)[0]


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    """Return the largest distance in units of the last place of the float32 result."""
    return float(
        np.max(
            np.abs(got.astype(np.float64) - exact)
            / np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
        )
    )


def test_float32_exp_is_right_to_2_ulp_from_minus_87_to_88() -> None:
    x = np.random.default_rng(1).uniform(-87, 88, 20_000).astype(np.float32)
    assert ulps(run(exp_kernel, x), np.exp(x.astype(np.float64))) < 2


def test_float32_log_is_right_to_1_ulp_over_all_exponents() -> None:
    rng = np.random.default_rng(2)
    anywhere = rng.integers(1, 0x7F800000, 20_000).astype(np.uint32).view(np.float32)
    near_one = rng.uniform(0.6, 1.4, 20_000).astype(np.float32)
    x = np.concatenate([anywhere, near_one[near_one != 1]])
    assert ulps(run(log_kernel, x), np.log(x.astype(np.float64))) < 1


@pytest.mark.parametrize(
    "x, y",
    [
        (0, 1),
        (-math.inf, 0),
        (-200, 0),
        (-1e30, 0),
        (math.inf, math.inf),
        (89, math.inf),
        (math.nan, math.nan),
    ],
)
def test_float32_exp_of_special_values(x: float, y: float) -> None:
    assert np.array_equal(run(exp_kernel, np.float32([x])), np.float32([y]), equal_nan=True)


@pytest.mark.parametrize(
    "x, y",
    [
        (1, 0),
        (0, -math.inf),
        (-0.0, -math.inf),
        (math.inf, math.inf),
        (-1, math.nan),
        (-math.inf, math.nan),
        (math.nan, math.nan),
    ],
)
def test_float32_log_of_special_values(x: float, y: float) -> None:
    assert np.array_equal(run(log_kernel, np.float32([x])), np.float32([y]), equal_nan=True)


def test_float32_log_of_denormals_is_scaled_first() -> None:
    x = np.float32([1e-45, 1e-40, 1.17e-38])
    assert ulps(run(log_kernel, x), np.log(x.astype(np.float64))) < 1


def machine(kernel: Any) -> dict[str, int]:
    arrays = (ArgType("f32", 1), ArgType("f32", 1))
    blocks = [block_counts(b) for b in compiled(kernel, *arrays).blocks]
    return {key: sum(b[key] for b in blocks) for key in ("ffma", "fmul", "fadd", "mufu")}


def test_exp_and_log_count_as_on_the_card() -> None:
    assert machine(exp_kernel) == {"ffma": 4, "fmul": 1, "fadd": 1, "mufu": 1}
    assert machine(log_kernel) == {"ffma": 11, "fmul": 1, "fadd": 1, "mufu": 0}


def every(o, x, y):
    o[0] = math.sqrt(x)
    o[1] = math.sin(x) + math.cos(x)
    o[2] = math.tan(x) + math.tanh(x)
    o[3] = math.pow(x, y)
    o[4] = math.fabs(-x)
    o[5] = math.floor(x) + math.ceil(x) * 10 + math.trunc(-x) * 100
    o[6] = math.erf(x)
    o[7] = math.log2(x) + math.log10(x)
    o[8] = math.fmod(-x, y)
    o[9] = math.atan2(x, y)
    o[10] = math.copysign(x, -y)
    o[11] = math.log1p(x) + math.expm1(x)
    o[12] = math.exp(x) + math.log(x)
    o[13] = cuda.fma(x, y, x)
    o[14] = math.exp2(x)


def expected(x: float, y: float) -> list[float]:
    return [
        math.sqrt(x),
        math.sin(x) + math.cos(x),
        math.tan(x) + math.tanh(x),
        x**y,
        x,
        math.floor(x) + math.ceil(x) * 10 + math.trunc(-x) * 100,
        math.erf(x),
        math.log2(x) + math.log10(x),
        math.fmod(-x, y),
        math.atan2(x, y),
        -x,
        math.log1p(x) + math.expm1(x),
        math.exp(x) + math.log(x),
        x * y + x,
        2.0**x,
    ]


@pytest.mark.skipif(not hasattr(math, "exp2"), reason="math.exp2 is from Python 3.11 on")
@pytest.mark.parametrize("scalar, tolerance", [(np.float32, 2e-6), (np.float64, 1e-14)])
def test_functions_of_math_give_what_math_gives(scalar: Any, tolerance: float) -> None:
    got = interpret(every, 1, 1, np.zeros(15, scalar), scalar(1.75), scalar(0.5))[0]
    np.testing.assert_allclose(got, expected(1.75, 0.5), rtol=tolerance)


def kinds(o, x):
    i = cuda.grid(1)
    o[i] = math.isnan(x[i]) + 2 * math.isinf(x[i]) + 4 * math.isfinite(x[i])


def test_isnan_isinf_and_isfinite_tell_the_kinds_apart() -> None:
    x = np.array([0.0, math.inf, -math.inf, math.nan, 1e308, -1.0])
    assert list(interpret(kinds, 1, 6, np.zeros(6, np.int64), x)[0]) == [4, 2, 2, 1, 4, 4]


def of_an_integer(o, n):
    o[0] = math.sqrt(n)


def test_a_function_of_an_integer_is_float64() -> None:
    assert ops(compiled(of_an_integer, ArgType("f32", 1), ArgType("s32")))["sqrt.f64"] == 1


def of_constants(o):
    o[0] = math.exp(1) + math.sqrt(2.0) * math.pi
    o[1] = math.inf if math.isnan(math.nan) else math.e


def test_functions_of_constants_are_constants() -> None:
    fn = compiled(of_constants, ArgType("f64", 1))
    assert not any("f64" in op for op in ops(fn))
    assert interpret(of_constants, 1, 1, np.zeros(2))[0] == pytest.approx(
        [math.e + math.sqrt(2) * math.pi, math.inf]
    )


def log_with_a_base(o, x):
    o[0] = math.log(x, 2)


def unknown_function(o, x):
    o[0] = math.gamma(x)


@pytest.mark.parametrize(
    "kernel, text",
    [(log_with_a_base, "math.log with 2 arguments; it takes 1"), (unknown_function, "math.gamma is not in")],
)
def test_what_math_does_not_have_here_is_refused(kernel: Any, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=text):
        compiled(kernel, ArgType("f64", 1), ArgType("f64"))
