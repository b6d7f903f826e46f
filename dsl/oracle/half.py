"""What the Python oracle puts in the place of `cuda.fp16`, `cuda.bf16` and `cuda.fp8`.

What it models: arithmetic of 16-bit floats in exact numbers, rounded once; functions in the float32 steps of
dsl/lowering/half.py. What it leaves out: payloads of NaN. Checked by no ncu metric; tests hold values against
the compiled engine and the interpreter.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from dsl.lowering.half import (
    CODES,
    CONVERSIONS,
    CORRECTIONS,
    EXP10_GIVES,
    EXP10_OF,
    LN2,
    LOG2_10,
    LOG2E,
    LOG10_2,
    NUDGE,
)
from dsl.oracle.numbers import Truth, number
from dsl.semantics import floats
from dsl.semantics.floats import Array
from dsl.warpir.formats import FORMATS, decode, encode

BF16 = FORMATS["bf16"]


def exact_fma(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c of 16-bit floats as a fraction, or as a float64 where it is zero or not finite."""
    with np.errstate(all="ignore"):
        rounded = np.float64(a) * np.float64(b) + np.float64(c)
    if rounded == 0 or not np.isfinite(rounded):
        return rounded
    return Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))


def _exp(x: Array, factor: float) -> Array:
    return floats.ex2(x * np.float32(factor))


def _exp2(x: Array, element: str) -> Array:
    power = floats.ex2(x)
    return floats.fma32(power, np.full_like(x, NUDGE), power) if element == "f16" else power


_BY_FLOAT32: dict[str, Callable[[Array, str], Array]] = {
    "exp": lambda x, element: _exp(x, LOG2E[element]),
    "exp10": lambda x, element: _exp(x, LOG2_10),
    "exp2": _exp2,
    "log": lambda x, element: floats.lg2(x) * np.float32(LN2),
    "log10": lambda x, element: floats.lg2(x) * np.float32(LOG10_2),
    "log2": lambda x, element: floats.lg2(x),
    "sqrt": lambda x, element: np.sqrt(x),
    "rsqrt": lambda x, element: floats.rsqrt(x),
    "rcp": lambda x, element: floats.reciprocal(x),
    "sin": lambda x, element: floats.library("sin", x),
    "cos": lambda x, element: floats.library("cos", x),
    "tanh": lambda x, element: floats.library("tanh", x),
    "floor": lambda x, element: np.floor(x),
    "ceil": lambda x, element: np.ceil(x),
    "trunc": lambda x, element: np.trunc(x),
    "rint": lambda x, element: np.rint(x),
    "fabs": lambda x, element: np.abs(x),
}


def _corrected(name: str, x: float, result: float) -> float:
    """Return a result of float16 with the headers' corrections (dsl.lowering.half.CORRECTIONS)."""
    for where, step in CORRECTIONS.get(name, ()):
        if name == "sin" and abs(x) == where:
            result = math.copysign(abs(result) + step, result)
        elif (abs(x) if name == "cos" else result if name == "log2" else x) == where and name != "sin":
            result += step
    return result


def _differ(a: Any, b: Any) -> bool:
    """Return whether two numbers differ; a NaN makes it false."""
    return bool(a < b or a > b)


def _or_unordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return the comparison that a NaN makes true."""
    return lambda a, b: bool(a != a or b != b or compare(a, b))


class Half:
    """Be cuda.fp16 (element f16) or the part of cuda.bf16 (bf16) that both have."""

    def __init__(self, element: str) -> None:
        self.element = element
        for op in ("eq", "gt", "ge", "lt", "le"):
            setattr(self, f"h{op}", self._comparison(getattr(operator, op)))
        self.hne = self._comparison(_differ)
        for name in _BY_FLOAT32:
            setattr(self, f"h{name}", self._function(name))
        self.habs = self._function("fabs")

    def _own(self, value: Any) -> Any:
        return number(value, self.element)

    def _plain(self, value: Any) -> Any:
        return np.float64(self._own(value))

    def _comparison(self, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
        return lambda a, b: Truth(compare(self._plain(a), self._plain(b)))

    def _function(self, name: str) -> Callable[[Any], Any]:
        return lambda a: self.function(name, a)

    def function(self, name: str, a: Any) -> Any:
        """Return a function of one number, taken in float32 and rounded."""
        x = self._plain(a)
        with np.errstate(all="ignore"):
            result = self._own(_BY_FLOAT32[name](np.array([x], np.float32), self.element)[0])
        if (self.element, name, x) == ("bf16", "exp10", EXP10_OF):
            return self._own(EXP10_GIVES)
        corrected = self.element == "f16" and math.isfinite(result)
        return self._own(_corrected(name, float(x), float(result))) if corrected else result

    def hadd(self, a: Any, b: Any) -> Any:
        """Return a + b."""
        return self._own(self._plain(a) + self._plain(b))

    def hsub(self, a: Any, b: Any) -> Any:
        """Return a - b."""
        return self._own(self._plain(a) - self._plain(b))

    def hmul(self, a: Any, b: Any) -> Any:
        """Return a * b."""
        return self._own(self._plain(a) * self._plain(b))

    def hdiv(self, a: Any, b: Any) -> Any:
        """Return a / b."""
        with np.errstate(all="ignore"):
            return self._own(self._plain(a) / self._plain(b))

    def hfma(self, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c."""
        return self._own(exact_fma(*map(self._plain, (a, b, c))))

    def hneg(self, a: Any) -> Any:
        """Return -a."""
        return self._own(-self._plain(a))

    def hmax(self, a: Any, b: Any) -> Any:
        """Return the larger; the other one where one is NaN."""
        return self._own(floats.maximum(self._plain(a), self._plain(b))[()])

    def hmin(self, a: Any, b: Any) -> Any:
        """Return the smaller; the other one where one is NaN."""
        return self._own(floats.minimum(self._plain(a), self._plain(b))[()])


class BFloat(Half):
    """Be cuda.bf16."""

    def __init__(self) -> None:
        super().__init__("bf16")
        self.hadd_rn, self.hsub_rn, self.hmul_rn = self.hadd, self.hsub, self.hmul
        self.bfloat16: Any = None
        for op in ("eq", "ne", "gt", "ge", "lt", "le"):
            setattr(self, f"h{op}u", self._comparison(_or_unordered(getattr(operator, op))))
        for name, how in CONVERSIONS.items():
            setattr(self, name, functools.partial(_converted, *how))
        for name, types in CODES.items():
            setattr(self, name, functools.partial(_recoded, *types))

    def _saturated(self, value: Any) -> Any:
        """Return a number clamped to [0, 1]; NaN gives 0."""
        return self._own(min(max(value, 0.0), 1.0) if value > 0 else 0.0)

    def hadd_sat(self, a: Any, b: Any) -> Any:
        """Return a + b clamped to [0, 1]."""
        return self._saturated(self.hadd(a, b))

    def hsub_sat(self, a: Any, b: Any) -> Any:
        """Return a - b clamped to [0, 1]."""
        return self._saturated(self.hsub(a, b))

    def hmul_sat(self, a: Any, b: Any) -> Any:
        """Return a * b clamped to [0, 1]."""
        return self._saturated(self.hmul(a, b))

    def hfma_sat(self, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c clamped to [0, 1]."""
        return self._saturated(self.hfma(a, b, c))

    def hfma_relu(self, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c, 0 for what is below it; NaN stays."""
        value = self.hfma(a, b, c)
        return self._own(0.0) if value < 0 else value

    def hmax_nan(self, a: Any, b: Any) -> Any:
        """Return the larger; NaN where one is NaN."""
        return self._own(math.nan) if a != a or b != b else self.hmax(a, b)

    def hmin_nan(self, a: Any, b: Any) -> Any:
        """Return the smaller; NaN where one is NaN."""
        return self._own(math.nan) if a != a or b != b else self.hmin(a, b)

    def hisnan(self, a: Any) -> Any:
        """Return whether a is NaN."""
        return Truth(math.isnan(a))

    def hisinf(self, a: Any) -> Any:
        """Return 1 for infinity, -1 for -infinity, else 0 (int32)."""
        return number(0 if not math.isinf(a) else 1 if a > 0 else -1, "s32")


def _converted(source: str, target: str, rounding: str, value: Any) -> Any:
    """Return a number as `source` and then, rounded, as `target`."""
    given = number(value, source)
    if target == "bf16":
        exact = float(given) if source in ("f32", "f64") else int(given)
        return number(decode(encode(exact, BF16, rounding=rounding), BF16), target)
    if source != "bf16" or target == "f32" or not math.isfinite(given):
        return number(given, target)
    with np.errstate(all="ignore"):
        whole = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}[rounding](np.float64(given))
    return number(whole, target)


def _recoded(source: str, target: str, value: Any) -> Any:
    """Return the bits of a bfloat16 as an integer, or the other way; NaN has the canonical bits."""
    if source == "bf16":
        return number(encode(float(number(value, source)), BF16), target)
    return number(decode(int(value) & 0xFFFF, BF16), target)


class Float8:
    """Be cuda.fp8: the constructors, which saturate."""

    def fp8_e4m3(self, a: Any) -> Any:
        """Return the nearest number up to 448."""
        return number(a, "e4m3", saturate=True)

    def fp8_e5m2(self, a: Any) -> Any:
        """Return the nearest number up to 57344."""
        return number(a, "e5m2", saturate=True)
