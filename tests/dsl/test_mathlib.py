"""Mathematical functions: accuracy of the float32 sequences, special values, and what each becomes in WarpIR.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.types import ArgType
from dsl.warpir.machine import block_counts
from gpusim.errors import UnsupportedFeature
from tests.dsl.engine_support import assert_equal, both
from tests.dsl.frontend_support import agree, compiled, interpret, ops

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


def rarer(o, x, y, n):
    i = cuda.grid(1)
    o[0, i] = math.acos(x[i])
    o[1, i] = math.asin(x[i])
    o[2, i] = math.atan(x[i])
    o[3, i] = math.acosh(x[i])
    o[4, i] = math.asinh(x[i])
    o[5, i] = math.atanh(x[i])
    o[6, i] = math.cosh(x[i])
    o[7, i] = math.sinh(x[i])
    o[8, i] = math.degrees(x[i])
    o[9, i] = math.radians(x[i])
    o[10, i] = math.erfc(x[i])
    o[11, i] = math.gamma(x[i])
    o[12, i] = math.lgamma(x[i])
    o[13, i] = math.hypot(x[i], y[i])
    o[14, i] = math.remainder(x[i], y[i])
    o[15, i], o[16, i] = math.modf(x[i])
    o[17, i], o[18, i] = math.frexp(x[i])
    o[19, i] = math.ldexp(x[i], n[i])
    o[20, i] = math.nextafter(x[i], y[i])


def rarer_by_python(x: float, y: float, n: int) -> list[float]:
    above_one = x >= 1
    return [
        math.nan if abs(x) > 1 else math.acos(x),
        math.nan if abs(x) > 1 else math.asin(x),
        math.atan(x),
        math.acosh(x) if above_one else math.nan,
        math.asinh(x),
        math.nan if abs(x) > 1 else math.atanh(x),
        *(f(x) for f in (math.cosh, math.sinh, math.degrees, math.radians, math.erfc, math.gamma)),
        math.lgamma(x),
        math.hypot(x, y),
        math.remainder(x, y),
        *math.modf(x),
        *math.frexp(x),
        math.ldexp(x, n),
    ]


@pytest.mark.parametrize("scalar, tolerance", [(np.float32, 1e-6), (np.float64, 1e-14)])
def test_rarer_functions_give_what_math_gives_in_every_engine(scalar: Any, tolerance: float) -> None:
    x = np.array([0.25, -0.75, 0.5, 1.5, 2.75, -3.25, 8.0, 1e-3], scalar)
    y = np.array([1.0, 0.5, -2.0, 4.0, -1.25, 7.0, 3.0, 1.0], scalar)
    n = np.array([0, 1, -3, 10, 20, -20, 100, -100], np.int32)
    args = (np.zeros((21, 8), scalar), x, y, n)
    engine, ir_oracle = both(cuda.jit(rarer), (1, 1, 1), (8, 1, 1), args)
    assert_equal(engine, ir_oracle)
    got = agree(rarer, 1, 8, *args, rtol=tolerance)[0]
    expected = [rarer_by_python(float(a), float(b), int(k)) for a, b, k in zip(x, y, n, strict=True)]
    np.testing.assert_allclose(got[:20].T, expected, rtol=tolerance)
    assert got[20].tolist() == np.nextafter(x, y).tolist()


@pytest.mark.parametrize("scalar", [np.float32, np.float64])
def test_rarer_functions_of_special_values_agree_in_every_engine(scalar: Any) -> None:
    tiny = float(np.finfo(scalar).smallest_subnormal)
    x = np.array([0, -0.0, math.inf, -math.inf, math.nan, tiny, -5 * tiny, 200, -1, -2, 1, 3e38], scalar)
    n = np.array([0, 5, -5, 3, 1, 40, 149, 5000, -5000, -149, -150, 1 << 30], np.int32)
    args = (np.zeros((21, 12), scalar), x, np.roll(x, 5), n)
    assert_equal(*both(cuda.jit(rarer), (1, 1, 1), (12, 1, 1), args))
    got = agree(rarer, 1, 12, *args)[0]
    assert got[11, :2].tolist() == [math.inf, -math.inf] and np.isnan(got[11, 9])  # gamma(0), (-0), (-2)
    assert got[15:17, 3].tolist() == [-0.0, -math.inf] and got[17:19, 2].tolist() == [math.inf, 0]
    exact = np.float32 if scalar == np.float32 else np.float64
    assert got[17:19, 5].tolist() == [0.5, math.frexp(tiny)[1]]
    assert got[19, 5] == exact(tiny) * exact(2**40) and got[19, 7] == math.inf and got[19, 8] == 0


def parts(o, e, x):
    o[0], e[0] = math.frexp(x)


def test_frexp_and_modf_are_no_library_calls() -> None:
    emitted = ops(compiled(parts, ArgType("f32", 1), ArgType("s32", 1), ArgType("f32")))
    assert emitted["mul.f32"] == 1 and emitted["Bitcast"] == 2 and not any("frexp" in op for op in emitted)


def rarer_of_constants(o):
    o[0] = math.hypot(3.0, 4.0) + math.acos(1.0) + math.gamma(5)
    o[1] = math.degrees(math.pi)
    o[2] = math.remainder(5.0, 3.0)


def test_rarer_functions_of_constants_are_constants() -> None:
    addressing = {"LdParam", "Chk", "St", "mul.s64", "add.s64"}
    assert set(ops(compiled(rarer_of_constants, ArgType("f64", 1)))) <= addressing
    assert agree(rarer_of_constants, 1, 1, np.zeros(3))[0].tolist() == [29.0, 180.0, -1.0]


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
    o[0] = math.factorial(x)


def scale_by_a_float(o, x):
    o[0] = math.ldexp(x, x)


@pytest.mark.parametrize(
    "kernel, text",
    [
        (log_with_a_base, "math.log with 2 arguments; it takes 1"),
        (unknown_function, "math.factorial is not in"),
        (scale_by_a_float, r"math.ldexp by a float; give an integer, e.g. int\(n\)"),
    ],
)
def test_what_math_does_not_have_here_is_refused(kernel: Any, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=text):
        compiled(kernel, ArgType("f64", 1), ArgType("f64"))
