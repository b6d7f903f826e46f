"""The module `ptx` of the Python oracle: tensor cores, one thread at a time.

What it models: the threads of a warp wait for all 32 of them at an mma, which then multiplies their fragments
(dsl/matrix_ops.py); memory is in dsl/oracle_moves.py. What it leaves out: machine code. Checked by no ncu
metric; tests hold it against the interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from dsl import matrix_ops
from dsl.messages import LANES
from dsl.oracle_moves import PtxMemory
from dsl.oracle_numbers import number
from dsl.oracle_ptx_conversions import Conversions
from dsl.oracle_warp import FULL_MASK, Lanes, WarpOperations
from dsl.ptx_calls import MMA_TYPES


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


def _mma(name: str, a_type: str, b_type: str) -> Callable[..., Any]:
    def method(self: Ptx, a: Any, b: Any, c: Any) -> Any:
        frame = sys._getframe(1)
        values = tuple(map(bits32, a)), tuple(map(bits32, b)), tuple(map(np.float32, c))
        return self.warp.meet_all(
            f"ptx.{name}", frame, lambda lanes: _multiply(a_type, b_type, lanes), values
        )

    method.__name__, method.__doc__ = name, f"Return the four accumulators of ptx.{name}."
    return method


class Ptx(PtxMemory, Conversions):
    """Stand for the module `ptx` inside a kernel."""

    def __init__(self, warp: WarpOperations) -> None:
        super().__init__()
        self.warp = warp


for _name, _types in MMA_TYPES.items():
    setattr(Ptx, f"mma_sync_{_name}", _mma(f"mma_sync_{_name}", *_types))
