"""The conversions of the module `ptx` for the Python oracle: registers of two numbers, split and joined.

What it models: the codes of dsl/warpir/formats.py, one number at a time, in exact arithmetic. What it leaves
out: payloads of NaN. Checked by no ncu metric; tests hold it against the interpreter.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from dsl.intrinsics.ptx import capability_of
from dsl.intrinsics.ptx_conversions import BETWEEN_PAIRS, FROM_FLOAT32, SMALLEST_NORMAL, UNPACKED
from dsl.oracle.arrays import Recorder
from dsl.oracle.numbers import element_of, number
from dsl.semantics import floats
from dsl.semantics.messages import capability_missing
from dsl.warpir.formats import FORMATS, decode, encode


def _joined(low: float, high: float, element: str) -> Any:
    """Return the register of two numbers: a uint32 of 16-bit ones, a uint16 of 8-bit ones."""
    form = FORMATS[element]
    codes = [encode(float(v), form, saturate=form.bits == 8) for v in (low, high)]
    return number(codes[0] | codes[1] << form.bits, "u32" if form.bits == 16 else "u16")


def _parts(register: Any, element: str) -> tuple[float, float]:
    """Return the lower and the upper number of a register."""
    form, bits = FORMATS[element], int(register)
    mask = (1 << form.bits) - 1
    return decode(bits & mask, form), decode(bits >> form.bits & mask, form)


def _from_float32(element: str, a: Any, b: Any) -> Any:
    return _joined(b, a, element)


def _between(source: str, target: str, a: Any) -> Any:
    return _joined(*_parts(a, source), target)


def _unpacked(element: str, a: Any) -> Any:
    return tuple(number(part, element) for part in _parts(a, element))


def check_capability(recorder: Recorder, path: str, frame: FrameType) -> None:
    """Raise LaunchRefused where the GPU does not have an instruction of `ptx`; frame: its caller's."""
    needed, arch = capability_of(path), recorder.arch
    if needed is not None and arch is not None and arch.capability < needed:
        file, line = frame.f_code.co_filename, frame.f_lineno
        raise capability_missing(recorder.kernel, path, needed, arch, file, line)


def _checked(recorder: Recorder, name: str, convert: Callable[..., Any]) -> Callable[..., Any]:
    """Return a conversion that the GPU has to have."""

    def checked(*args: Any, **named: Any) -> Any:
        check_capability(recorder, f"ptx.{name}", sys._getframe(1))
        return convert(*args, **named)

    return checked


class Conversions:
    """Be the part of `ptx` that converts."""

    def __init__(self, recorder: Recorder) -> None:
        for name, element in FROM_FLOAT32.items():
            setattr(self, name, _checked(recorder, name, functools.partial(_from_float32, element)))
        for name, types in BETWEEN_PAIRS.items():
            setattr(self, name, _checked(recorder, name, functools.partial(_between, *types)))
        for name, element in UNPACKED.items():
            setattr(self, name, functools.partial(_unpacked, element))

    def mov_b32(self, low: Any, high: Any) -> Any:
        """Return the register of two 16-bit floats."""
        return _joined(low, high, element_of(low) or "")

    def cvt_rna_tf32_f32(self, a: Any) -> Any:
        """Return the bits of the nearest tf32, of two the one away from zero."""
        bits = int(np.float32(a).view(np.uint32))
        return number(bits if bits & 0x7FFFFFFF >= 0x7F800000 else bits + 0x1000 & 0xFFFFE000, "u32")

    def ex2_approx_ftz_f32(self, a: Any) -> Any:
        """Return 2**a, 0 where that is below the normal numbers."""
        with np.errstate(all="ignore"):
            power = floats.ex2(np.array([a], np.float32))[0]
        return number(np.float32(0) if power < SMALLEST_NORMAL else power, "f32")
