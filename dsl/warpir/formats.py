"""The float types narrower than 32 bits: half, bfloat16 and the two of 8 bits, as layouts of bits.

What it models: how each one spends its bits, and its codes, one at a time and in exact arithmetic. Registers
and memory of compiled code hold the codes. What it leaves out: arithmetic (dsl/codegen/narrow.py,
dsl/semantics/floats.py, dsl/oracle/numbers.py). Which ncu metric checks it: none; tests hold all codes
against numpy and ml_dtypes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Format:
    """Describe a narrow float: one sign bit, then exponent, then `mantissa` bits.

    nan is the code that every conversion and operation gives for NaN (PTX's canonical one). infinite: the
    type has an infinity; e4m3 has none, its last exponent holds numbers up to 448 and one NaN.
    """

    bits: int
    mantissa: int
    bias: int
    nan: int
    infinite: bool
    dtype: np.dtype[Any]

    @property
    def largest(self) -> int:
        """Return the code of the largest finite number."""
        return ((1 << (self.bits - 1 - self.mantissa)) - 1 << self.mantissa) - 1 if self.infinite else 0x7E

    @property
    def overflow(self) -> int:
        """Return the code of what is too large: infinity, NaN where the type has none."""
        return self.largest + 1

    @property
    def sign(self) -> int:
        """Return the code of -0."""
        return 1 << (self.bits - 1)


FORMATS = {
    "f16": Format(16, 10, 15, 0x7FFF, True, np.dtype(np.float16)),
    "bf16": Format(16, 7, 127, 0x7FFF, True, np.dtype(ml_dtypes.bfloat16)),
    "e4m3": Format(8, 3, 7, 0x7F, False, np.dtype(ml_dtypes.float8_e4m3fn)),
    "e5m2": Format(8, 2, 15, 0x7F, True, np.dtype(ml_dtypes.float8_e5m2)),
}
"""The narrow floats by their names in PTX."""


def decode(code: int, form: Format) -> float:
    """Return the number that a code stands for."""
    sign = -1.0 if code & form.sign else 1.0
    size = code & (form.sign - 1)
    if size > form.largest:
        return sign * math.inf if form.infinite and size == form.overflow else math.nan
    exponent, fraction = size >> form.mantissa, size & ((1 << form.mantissa) - 1)
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - form.bias - form.mantissa)
    return sign * math.ldexp(fraction + (1 << form.mantissa), exponent - form.bias - form.mantissa)


def encode(
    value: float | int | Fraction, form: Format, saturate: bool = False, rounding: str = "rn"
) -> int:
    """Return the code nearest to a number, the even one of two.

    What rounds past the largest finite number becomes infinity (NaN in e4m3), with `saturate` the largest
    finite number, infinities too. Of an exact zero the sign of a float counts. rounding: PTX's rn (nearest),
    rz (toward zero), rd (down) or ru (up).
    """
    if value != value:
        return form.nan
    negative = value < 0 or (value == 0 and math.copysign(1.0, value) < 0)
    whole = _whole(rounding, negative)
    size = _code(-value if negative else value, form, whole)
    if size > form.largest:
        kept = saturate or (whole is math.floor and abs(value) != math.inf)
        size = form.largest if kept else form.overflow
    return size | form.sign if negative else size


def _whole(rounding: str, negative: bool) -> Callable[[Fraction], int]:
    """Return what rounds the size of a number; round() of a Fraction takes ties to even."""
    if rounding == "rn":
        return round
    return math.ceil if rounding == ("rd" if negative else "ru") else math.floor


def _code(size: float | int | Fraction, form: Format, whole: Callable[[Fraction], int]) -> int:
    """Return the code of a size, rounded by `whole`; codes count on past the largest finite one without a
    limit.
    """
    if size == math.inf:
        return form.overflow
    exact = Fraction(size)
    if exact == 0:
        return 0
    exponent = max(_floor_log2(exact), 1 - form.bias)
    steps = whole(exact / Fraction(2) ** (exponent - form.mantissa))
    return steps + (exponent - 1 + form.bias << form.mantissa)


def _floor_log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1
