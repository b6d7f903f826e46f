"""Hold dsl.semantics.floats against exact rational arithmetic, and against values that a reader can derive.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from dsl.semantics import floats

F32, F64 = np.float32, np.float64
RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Overflow and invalid operations are part of what is tested."""
    with np.errstate(all="ignore"):
        yield


def random_bits32(n: int) -> np.ndarray:
    """Return float32 numbers of every exponent, NaN and infinities left out."""
    x = RNG.integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32).view(F32)
    return np.where(np.isfinite(x), x, F32(1.5))


def round32(exact: Fraction) -> np.float32:
    """Round a fraction to float32 (nearest, ties to even) by comparing it with the neighbours of a first
    guess."""
    if abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103:
        return F32(np.inf if exact > 0 else -np.inf)
    guess = F32(float(exact))
    if not np.isfinite(guess):
        guess = np.copysign(np.finfo(F32).max, guess)
    near = {np.nextafter(guess, F32(-np.inf)), guess, np.nextafter(guess, F32(np.inf))}

    def key(v: np.float32) -> tuple[Fraction, int]:
        return abs(Fraction(float(v)) - exact), int(v.view(np.uint32) & 1)

    return min((v for v in near if np.isfinite(v)), key=key)


def test_fma32_rounds_once_over_all_exponents() -> None:
    a, b = random_bits32(3000), random_bits32(3000)
    c = random_bits32(3000)
    c[:1500] = -(a[:1500].astype(F64) * b[:1500]).astype(F32) * F32(1 + 2**-20)
    c = np.where(np.isfinite(c), c, F32(1))
    got = floats.fma32(a, b, c)
    for i in range(3000):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        assert got[i] == round32(exact), (a[i], b[i], c[i])


def test_fma32_differs_from_two_roundings_and_from_a_float64_sum() -> None:
    e = F32(1 + 2**-12)
    # e*e = 1 + 2^-11 + 2^-24 exactly; minus its float32 rounding 1 + 2^-11 leaves 2^-24.
    assert floats.fma32(np.array([e]), np.array([e]), np.array([F32(-(1 + 2**-11))]))[0] == F32(2**-24)
    # 2^-24 + 1 is a tie in float32 that the 2^-80 breaks upward; a float64 sum loses the 2^-80.
    a, b, c = np.array([F32(2**-24 + 2**-40)]), np.array([F32(1)]), np.array([F32(1)])
    assert floats.fma32(a, b, c)[0] == F32(1 + 2**-23)
    tie = np.array([F32(1 + 2**-23)]), np.array([F32(1 - 2**-23)])
    assert floats.fma32(*tie, np.array([F32(2**-24)]))[0] == F32(1)


def test_fma32_keeps_infinity_nan_and_signed_zero() -> None:
    inf, nan = F32(np.inf), F32(np.nan)
    got = floats.fma32(
        np.array([inf, inf, nan, F32(3e38), F32(-0.0)]),
        np.array([F32(1), F32(0), F32(1), F32(2), F32(1)]),
        np.array([F32(1), F32(1), F32(1), F32(0), F32(-0.0)]),
    )
    assert got[0] == inf and np.isnan(got[1]) and np.isnan(got[2]) and got[3] == inf
    assert got[4] == 0 and np.signbit(got[4])


def test_fma32_rm_rounds_down() -> None:
    a, b, c = random_bits32(3000), random_bits32(3000), random_bits32(3000)
    got = floats.fma32_rm(a, b, c)
    for i in range(3000):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        if got[i] == -np.inf:
            assert exact < -Fraction(float(np.finfo(F32).max))
            continue
        above = np.nextafter(got[i], F32(np.inf))
        assert Fraction(float(got[i])) <= exact
        assert above == np.inf or exact < Fraction(float(above))


def test_fma32_rm_cancels_to_minus_zero() -> None:
    got = floats.fma32_rm(np.array([F32(2), F32(0)]), np.array([F32(3), F32(1)]), np.array([F32(-6), F32(0)]))
    assert list(np.signbit(got)) == [True, False]


def test_fma32_sat_clamps_and_turns_nan_to_zero() -> None:
    one, zero = np.full(4, F32(1)), np.zeros(4, F32)
    got = floats.fma32_sat(np.array([F32(0.25), F32(7), F32(-2), F32(np.nan)]), one, zero)
    assert got.tolist() == [0.25, 1.0, 0.0, 0.0]
    assert not np.signbit(floats.fma32_sat(np.array([F32(-0.0)]), one[:1], np.array([F32(-0.0)])))[0]


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        (1 + 2**-30, 1 + 2**-30, -(1 + 2**-29), 2**-60),
        (1e300, 1e300, -np.inf, -np.inf),
        (1e300, 1e300, 0.0, np.inf),
        (-1e300, 1e300, 1e308, -np.inf),
        (2.0**512, 2.0**512, -(2.0**1023), 2.0**1023),
        (-(2.0**-1000), 2.0**-1000, 0.0, -0.0),
        (2.0**-600, -(2.0**-600), 0.0, -0.0),
        (0.0, -1.0, 0.0, 0.0),
        (0.0, -1.0, -0.0, -0.0),
        (3.0, 2.0, -6.0, 0.0),
    ],
)
def test_fma64_rounds_once(a: float, b: float, c: float, expected: float) -> None:
    got = floats.fma64(np.array([a]), np.array([b]), np.array([c]))[0]
    assert got == expected and np.signbit(got) == np.signbit(expected)


def test_fma64_of_nan_and_zero_times_infinity_is_nan() -> None:
    assert np.isnan(
        floats.fma64(np.array([np.inf, np.nan, 1.0]), np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, np.nan]))
    ).all()


def test_max_and_min_return_the_other_operand_of_a_nan_and_the_second_of_equal_zeros() -> None:
    a, b = (
        np.array([F32(np.nan), F32(2), F32(-0.0), F32(0.0), F32(5)]),
        np.array([F32(1), F32(np.nan), F32(0.0), F32(-0.0), F32(3)]),
    )
    assert floats.maximum(a, b).tolist() == [1, 2, 0, 0, 5]
    assert np.signbit(floats.maximum(a, b)).tolist() == [False, False, False, True, False]
    assert floats.minimum(a, b).tolist() == [1, 2, 0, 0, 3]
    assert np.signbit(floats.minimum(a, b)).tolist() == [False, False, False, True, False]


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return the distance of float32 results from float64 truths in units of the last place of the truth."""
    unit = np.spacing(np.abs(exact).astype(F32)).astype(F64)
    return np.abs(got.astype(F64) - exact) / unit


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.5), (-126, 127.9), (-150, -126), (-1e-3, 1e-3)])
def test_ex2_is_within_one_and_a_half_ulp(low: float, high: float) -> None:
    x = RNG.uniform(low, high, 200_000).astype(F32)
    assert ulps(floats.ex2(x), np.exp2(x.astype(F64))).max() < 1.5


def test_ex2_of_integers_is_exact_down_to_the_smallest_denormal() -> None:
    n = np.arange(-149, 128)
    assert (floats.ex2(n.astype(F32)).astype(F64) == 2.0**n).all()


def test_ex2_at_its_ends() -> None:
    x = np.array([128, 1000, np.inf, np.nextafter(F32(128), F32(0)), -150, -151, -np.inf, np.nan], F32)
    got = floats.ex2(x)
    assert got[:3].tolist() == [np.inf] * 3 and np.isfinite(got[3])
    assert got[4:7].tolist() == [0, 0, 0] and np.isnan(got[7])


def test_to_int_truncates_saturates_and_takes_nan_of_float32_as_zero() -> None:
    x = np.array([2.9, -2.9, 3e9, -3e9, np.nan, np.inf, 2147483520.0], F32)
    assert floats.to_int(x, np.int32).tolist() == [2, -2, 2147483647, -2147483648, 0, 2147483647, 2147483520]
    assert floats.to_int(np.array([-1.0, 300.0]), np.uint8).tolist() == [0, 255]
    assert floats.to_int(np.array([9.3e18, -9.3e18, 2.0**62]), np.int64).tolist() == [
        2**63 - 1,
        -(2**63),
        2**62,
    ]
    assert floats.to_int(np.array([2.0**63, 2.0**64, -1.0]), np.uint64).tolist() == [2**63, 2**64 - 1, 0]


def test_library_calls_give_ieee_answers_outside_their_domain() -> None:
    assert floats.library("log", np.array([0.0, -1.0, 1.0], F32)).tolist()[0] == -np.inf
    assert np.isnan(floats.library("log", np.array([-1.0], F32)))[0]
    assert floats.library("exp", np.array([1000.0, -1000.0])).tolist() == [np.inf, 0.0]
    assert floats.library("exp", np.array([1.0], F32)).dtype == F32
    assert floats.library("pow", np.array([2.0], F32), np.array([10.0], F32)).tolist() == [1024.0]
    assert floats.library("erf", np.array([0.0, np.inf])).tolist() == [0.0, 1.0]


def test_rsqrt_rounds_twice_and_reciprocal_once() -> None:
    x = np.array([3.0], F32)
    assert floats.rsqrt(x)[0] == F32(1) / np.sqrt(F32(3))
    assert floats.reciprocal(x)[0] == F32(1) / F32(3)
