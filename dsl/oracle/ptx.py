"""The module `ptx` of the Python oracle: tensor cores, one thread at a time.

What it models: the threads of a warp wait for all 32 of them at an mma, which then multiplies their fragments
(dsl/semantics/matrix_ops.py); memory is in dsl/oracle/moves.py. What it leaves out: machine code. Checked by
no ncu metric; tests hold it against the interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from dsl.intrinsics.ptx import ACCUMULATORS, MMA_TYPES, PACKED_VALUES, numbers_for_bits, wrong_fragment
from dsl.oracle.arrays import Recorder, Tracked
from dsl.oracle.moves import PtxMemory
from dsl.oracle.numbers import element_of, number
from dsl.oracle.ptx_conversions import Conversions, check_capability
from dsl.oracle.warp import FULL_MASK, Lanes, WarpOperations
from dsl.semantics import matrix_ops
from dsl.semantics.messages import LANES
from dsl.types import FLOATS, TYPE_NAMES
from gpusim.errors import KernelMistake


def bits32(value: Any) -> int:
    """Return the low 32 bits of an integer."""
    return int(value) & FULL_MASK


def _multiply(a_type: str, b_type: str, lanes: Lanes) -> Lanes:
    """Return the accumulators of each lane, from (a, b, c) of all 32."""
    order = range(LANES)
    a, b = (np.array([lanes[lane][part] for lane in order], np.uint32).T for part in range(2))
    c = np.array([lanes[lane][2] for lane in order], np.float32).T
    found = matrix_ops.multiply(a_type, b_type, a, b, c)
    return {lane: tuple(number(value, "f32") for value in found[:, lane]) for lane in order}


def _described(value: Any) -> str:
    """Name what stands in the place of a fragment, as dsl.lowering.values.describe does."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, Tracked):
        return f"the array {value.name!r}"
    name = TYPE_NAMES.get(element_of(value) or "", type(value).__name__)
    return f"{'an' if name[0] == 'i' else 'a'} {name}"


def _check_fragment(
    recorder: Recorder, frame: FrameType, path: str, name: str, value: Any, count: int, of: str
) -> None:
    """Raise KernelMistake for a fragment of another length than the instruction's."""
    if not isinstance(value, (tuple, list)) or len(value) != count:
        _refuse(recorder, frame, *wrong_fragment(path, name, _described(value), count, of))


def _check_bits(
    recorder: Recorder, frame: FrameType, path: str, name: str, values: tuple[Any, ...], type_: str
) -> None:
    """Raise KernelMistake where numbers of a float type stand for packed bits."""
    for value in values:
        if (element := element_of(value)) in FLOATS:
            _refuse(recorder, frame, *numbers_for_bits(path, name, TYPE_NAMES[element], type_))


def _refuse(recorder: Recorder, frame: FrameType, what: str, instead: str) -> NoReturn:
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}: in {recorder.kernel}"
    raise KernelMistake(f"{place}: {what}; {instead}")


def _mma(name: str, a_type: str, b_type: str) -> Callable[..., Any]:
    path = f"ptx.{name}"

    def method(self: Ptx, a: Any, b: Any, c: Any) -> Any:
        frame = sys._getframe(1)
        check_capability(self.recorder, path, frame)
        _check_fragment(self.recorder, frame, path, "a", a, 4, PACKED_VALUES)
        _check_bits(self.recorder, frame, path, "a", a, a_type)
        _check_fragment(self.recorder, frame, path, "b", b, 2, PACKED_VALUES)
        _check_bits(self.recorder, frame, path, "b", b, b_type)
        _check_fragment(self.recorder, frame, path, "c", c, 4, ACCUMULATORS)
        values = tuple(map(bits32, a)), tuple(map(bits32, b)), tuple(map(np.float32, c))
        return self.warp.meet_all(path, frame, lambda lanes: _multiply(a_type, b_type, lanes), values)

    method.__name__, method.__doc__ = name, f"Return the four accumulators of ptx.{name}."
    return method


class Ptx(PtxMemory, Conversions):
    """Stand for the module `ptx` inside a kernel."""

    def __init__(self, warp: WarpOperations) -> None:
        super().__init__(warp.recorder)
        self.warp = warp


for _name, _types in MMA_TYPES.items():
    setattr(Ptx, f"mma_sync_{_name}", _mma(f"mma_sync_{_name}", *_types))
