"""The codes of float16, bfloat16 and the 8-bit floats, against numpy and ml_dtypes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dsl.semantics.floats import narrow
from dsl.warpir.formats import FORMATS, decode, encode

NAMES = tuple(FORMATS)


def codes_of(values: np.ndarray) -> np.ndarray:
    return values.view(f"u{values.dtype.itemsize}")


@pytest.mark.parametrize("name", NAMES)
def test_every_code_is_the_number_that_its_library_says(name: str) -> None:
    form = FORMATS[name]
    codes = np.arange(1 << form.bits, dtype=f"u{form.bits // 8}")
    with np.errstate(invalid="ignore"):
        wanted = codes.view(form.dtype).astype(np.float64)
    np.testing.assert_array_equal([decode(int(c), form) for c in codes], wanted)
    kept = ~np.isnan(wanted)
    np.testing.assert_array_equal([encode(float(x), form) for x in wanted[kept]], codes[kept])


@pytest.mark.parametrize("name", NAMES)
def test_every_half_has_the_code_that_its_library_gives_and_nan_the_canonical_one(name: str) -> None:
    form = FORMATS[name]
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        wanted = codes_of(halves.astype(form.dtype)).copy()
    wanted[np.isnan(halves)] = form.nan
    np.testing.assert_array_equal([encode(float(x), form) for x in halves], wanted)
    np.testing.assert_array_equal(codes_of(narrow(halves.astype(np.float64), form)), wanted)


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_arrays_round_as_exact_arithmetic_does(name: str, saturate: bool) -> None:
    form, rng = FORMATS[name], np.random.default_rng(3)
    exponents = rng.integers(-140, 130, 4000) if name == "bf16" else rng.integers(-28, 20, 4000)
    steps = rng.integers(0, 1 << form.mantissa + 2, 4000) / (1 << form.mantissa + 1)  # ties among them
    x = np.ldexp(1 + steps, exponents) * rng.choice([-1, 1], 4000)
    nudged = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf), [np.inf, -np.inf, -0.0]])
    wanted = [encode(float(v), form, saturate) for v in nudged]
    np.testing.assert_array_equal(codes_of(narrow(nudged, form, saturate)), wanted)


@pytest.mark.parametrize(
    ("x", "plain", "saturated"),
    [
        (464.0, 448.0, 448.0),
        (464.01, math.nan, 448.0),
        (465.0, math.nan, 448.0),
        (1e5, math.nan, 448.0),
        (-1000.0, math.nan, -448.0),
        (math.inf, math.nan, 448.0),
        (math.nan, math.nan, math.nan),
        (17.0, 16.0, 16.0),
        (19.0, 20.0, 20.0),
        (2.0**-10, 0.0, 0.0),
        (1.5 * 2.0**-10, 2.0**-9, 2.0**-9),
    ],
)
def test_e4m3_overflows_to_nan_or_448_as_it_is_told(x: float, plain: float, saturated: float) -> None:
    form = FORMATS["e4m3"]
    for saturate, wanted in ((False, plain), (True, saturated)):
        np.testing.assert_equal(decode(encode(x, form, saturate), form), wanted)


def test_whole_numbers_and_fractions_are_rounded_once() -> None:
    assert encode(2**60 + 2**52 + 1, FORMATS["bf16"]) == encode(2.0**60 + 2.0**53, FORMATS["bf16"])
    assert encode(2**60 + 2**52, FORMATS["bf16"]) == encode(2.0**60, FORMATS["bf16"])
    assert decode(encode(Fraction(1, 3), FORMATS["f16"]), FORMATS["f16"]) == float(np.float16(1 / 3))


def test_bfloat16_before_8_bits_rounds_twice_and_gives_another_number() -> None:
    bf16, e4m3 = FORMATS["bf16"], FORMATS["e4m3"]
    x = 6.250491
    assert (encode(x, e4m3), encode(decode(encode(x, bf16), bf16), e4m3)) == (77, 76)


@pytest.mark.parametrize(
    ("x", "down", "up"),
    [
        (1.0, 1.0, 1.0),
        (1.00001, 1.0, 1.0078125),
        (-1.00001, -1.0078125, -1.0),
        (1e39, 2.0**128 - 2.0**120, math.inf),
    ],
)
def test_codes_round_to_the_side_that_is_asked_for(x: float, down: float, up: float) -> None:
    form = FORMATS["bf16"]
    by_way = {way: decode(encode(x, form, rounding=way), form) for way in ("rz", "rd", "ru")}
    assert by_way == {"rz": down if x > 0 else up, "rd": down, "ru": up}
