"""The atomics of the Python oracle: one thread at a time changes an element and takes its old value.

What it models: numba.cuda's `cuda.atomic`, in Python's own numbers; each counts as a RED where nobody uses
the old value, else as an ATOM. What it leaves out: the order of lanes within one instruction: a thread runs
on to its next barrier or warp operation, so in a loop of `cas` each thread succeeds at once, where lockstep
lanes try again. Which ncu metric checks it: `l1tex__t_requests_*_op_red` and `_op_atom`.
"""

from __future__ import annotations

import bisect
import dis
import functools
import operator
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np

from dsl.oracle.arrays import Tracked, from_storage, to_storage


@functools.cache
def _instructions(code: CodeType) -> list[dis.Instruction]:
    return list(dis.get_instructions(code))


def instruction_after(frame: FrameType) -> dis.Instruction | None:
    """Return the instruction after the call a frame is in; f_lasti is on the call or in its cache."""
    instructions = _instructions(frame.f_code)
    at = bisect.bisect_right(instructions, frame.f_lasti, key=operator.attrgetter("offset"))
    return instructions[at] if at < len(instructions) else None


def _result_is_used(frame: FrameType) -> bool:
    """Say whether the value of the call that a frame is in goes anywhere."""
    after = instruction_after(frame)
    return after is None or after.opname != "POP_TOP"


def _operand(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return an operand in the array's type: a numpy float, or a Python integer wrapped at the width."""
    return dtype.type(value) if dtype.kind == "f" else int(to_storage(value, dtype))


def _is_nan(value: Any) -> bool:
    return bool(value != value)


def _larger(old: Any, value: Any) -> Any:
    """Return the larger; a NaN that is given loses, one that is in memory stays (numba's atomic.max)."""
    return old if _is_nan(old) or _is_nan(value) or old >= value else value


def _smaller(old: Any, value: Any) -> Any:
    return old if _is_nan(old) or _is_nan(value) or old <= value else value


def _larger_number(old: Any, value: Any) -> Any:
    """Return the larger; any NaN loses (numba's atomic.nanmax)."""
    return value if _is_nan(old) else _larger(old, value)


def _smaller_number(old: Any, value: Any) -> Any:
    return value if _is_nan(old) else _smaller(old, value)


Change = Callable[[Any, Any], Any]


def _change(ary: Tracked, idx: Any, change: Callable[[Any], Any], frame: FrameType) -> Any:
    """Do one atomic on an element and return its old value."""
    where = ary.locate(idx, frame)
    op = "atom" if _result_is_used(frame) else "red"
    ary.recorder.touch(ary, where, "atomic on", frame)
    ary.recorder.record(ary, ary.address_of(where), op, frame, ary.data.itemsize)
    old = ary.data[where]
    ary.data[where] = to_storage(change(from_storage(old)), ary.data.dtype)
    return from_storage(old)


def _swap(ary: Tracked, idx: Any, old: Any, val: Any, frame: FrameType) -> Any:
    """Write val where the element's bits are those of old."""
    dtype = ary.data.dtype
    expected, new = _operand(old, dtype), _operand(val, dtype)
    bits = dtype.type(expected).tobytes()
    return _change(ary, idx, lambda now: new if dtype.type(now).tobytes() == bits else now, frame)


def _method(name: str, change: Change) -> Callable[[Atomic, Tracked, Any, Any], Any]:
    """Return atomic.<name>(ary, idx, val)."""

    def method(self: Atomic, ary: Tracked, idx: Any, val: Any) -> Any:
        value = _operand(val, ary.data.dtype)
        return _change(ary, idx, lambda old: change(old, value), sys._getframe(1))

    method.__name__, method.__doc__ = name, f"Do atomic.{name} on an element and return its old value."
    return method


class Atomic:
    """Be cuda.atomic."""

    add = _method("add", lambda old, value: old + value)
    sub = _method("sub", lambda old, value: old - value)
    and_ = _method("and_", lambda old, value: old & value)
    or_ = _method("or_", lambda old, value: old | value)
    xor = _method("xor", lambda old, value: old ^ value)
    exch = _method("exch", lambda old, value: value)
    inc = _method("inc", lambda old, value: 0 if old >= value else old + 1)
    dec = _method("dec", lambda old, value: value if old == 0 or old > value else old - 1)
    max = _method("max", _larger)
    min = _method("min", _smaller)
    nanmax = _method("nanmax", _larger_number)
    nanmin = _method("nanmin", _smaller_number)

    def cas(self, ary: Tracked, idx: Any, old: Any, val: Any) -> Any:
        """Write val where the element equals old, bit by bit, and return what was there."""
        return _swap(ary, idx, old, val, sys._getframe(1))

    def compare_and_swap(self, ary: Tracked, old: Any, val: Any) -> Any:
        """Do cas on the first element."""
        return _swap(ary, (0,) * ary.ndim, old, val, sys._getframe(1))


