"""ldmatrix and cp.async of the Python oracle.

What it models: threads of a warp wait for all 32 at an ldmatrix, which then reads the rows they name; a copy
is done at once by its thread, and dsl/semantics/copies.py remembers whom it is not there for yet. What it
leaves out: requests, which dsl/oracle/run.py makes of what is recorded here. Checked by no ncu metric; tests
hold it against the interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from dsl.intrinsics.ptx_memory import LDMATRIX
from dsl.oracle.arrays import Recorder, Tracked
from dsl.oracle.numbers import number
from dsl.oracle.threads import Thread
from dsl.oracle.warp import Lanes, WarpOperations
from dsl.semantics import copy_messages, matrix_ops
from dsl.semantics.copy_messages import ROW_BYTES
from dsl.semantics.floats import Array
from dsl.semantics.messages import LANES

Row = tuple[Tracked, tuple[int, ...], int, Thread]
"""What a lane brings to an ldmatrix: array, index of the row's first element, its address, itself."""


def _bytes(array: Tracked) -> Array:
    """Return the bytes of a whole shared array."""
    return array.data.reshape(-1).view(np.uint8)


def _end(array: Tracked, where: tuple[int, ...], count: int, frame: FrameType) -> None:
    """Raise OutOfBounds unless `count` elements from an index on lie in the last dimension."""
    array.locate((*where[:-1], where[-1] + count - 1), frame)


def _read_rows(name: str, matrices: int, trans: bool, place: tuple[str, int], lanes: Lanes) -> Lanes:
    """Return the registers of each lane; raise Misaligned or PendingCopy for a row that cannot be read."""
    rows = np.zeros((8 * matrices, ROW_BYTES), np.uint8)
    for lane in range(8 * matrices):
        array, _, address, thread = lanes[lane]
        if address % ROW_BYTES:
            raise copy_messages.misaligned_move(
                array.recorder.kernel, name, "row", array.name, address, ROW_BYTES, thread.ctaid, thread.tid,
                *place,
            )  # fmt: skip
    for lane in range(8 * matrices):
        array, where, address, thread = lanes[lane]
        array.recorder.require_complete(array, where, address, ROW_BYTES, f"{name} of", thread, place)
        start = address - array.address
        rows[lane] = _bytes(array)[start : start + ROW_BYTES]
    found = matrix_ops.spread(rows.view(np.uint16).reshape(matrices, 8, 8), trans)
    registers = {lane: tuple(number(int(r), "u32") for r in found[:, lane]) for lane in range(LANES)}
    return registers if matrices > 1 else {lane: r[0] for lane, r in registers.items()}


def _ldmatrix(name: str, matrices: int, trans: bool) -> Callable[..., Any]:
    def method(self: PtxMemory, array: Tracked, index: Any) -> Any:
        frame, recorder = sys._getframe(1), self.recorder
        where = array.locate(index, frame)
        if array.dynamic:
            _end(array, where, ROW_BYTES // array.data.itemsize, frame)
        address = array.address_of(where)
        recorder.record(array, address, "matrix", frame, 4 * matrices)
        site = recorder.site(frame)

        def finish(lanes: Lanes) -> Lanes:
            return _read_rows(f"ptx.{name}", matrices, trans, (site.file, site.line), lanes)

        return self.warp.meet_all(f"ptx.{name}", frame, finish, (array, where, address, recorder.thread))

    method.__name__, method.__doc__ = name, f"Return the registers that ptx.{name} gives."
    return method


def _copy(cache: str) -> Callable[..., None]:
    name = f"ptx.cp_async_{cache}"

    def method(
        self: PtxMemory,
        dst: Tracked,
        dst_index: Any,
        src: Tracked,
        src_index: Any,
        nbytes: Any,
        src_bytes: Any = None,
    ) -> None:
        frame, size = sys._getframe(1), src.data.itemsize
        taken = int(nbytes if src_bytes is None else src_bytes)
        to = dst.locate(dst_index, frame)
        _end(dst, to, int(nbytes) // size, frame)
        start = src.locate(src_index, frame)
        count = max(-(-taken // size), 1)
        _end(src, start, count, frame)
        self._check(name, dst, to, src, start, int(nbytes), taken, frame)
        address, recorder = dst.address_of(to), self.recorder
        copied = (address, taken)
        recorder.record(src, src.address_of(start), f"copy_{cache}", frame, int(nbytes), copied)
        site, thread = recorder.site(frame), recorder.thread
        place = site.file, site.line
        recorder.require_complete(dst, to, address, int(nbytes), f"{name} to", thread, place)
        data = src.data[(*start[:-1], slice(start[-1], start[-1] + count))].tobytes()[:taken]
        filled = np.frombuffer(data.ljust(int(nbytes), b"\0"), np.uint8)
        _bytes(dst)[address - dst.address : address - dst.address + int(nbytes)] = filled
        recorder.copies.issue(thread.linear, address, int(nbytes), *place)

    method.__name__, method.__doc__ = name, f"Do {name}."
    return method


class PtxMemory:
    """Be the part of `ptx` that moves memory."""

    warp: WarpOperations

    @property
    def recorder(self) -> Recorder:
        """Return the recorder of the launch."""
        return self.warp.recorder

    def _check(
        self, name: str, dst: Tracked, to: tuple[int, ...], src: Tracked, start: tuple[int, ...],
        nbytes: int, taken: int, frame: FrameType,
    ) -> None:  # fmt: skip
        """Raise for a wrong number of bytes, and for a source or a destination that is no multiple of it."""
        site, thread = self.recorder.site(frame), self.recorder.thread
        at = (thread.ctaid, thread.tid, site.file, site.line)
        kernel = self.recorder.kernel
        if not 0 <= taken <= nbytes:
            raise copy_messages.copy_size(kernel, name, src.name, taken, nbytes, *at)
        source, target = src.address_of(start), dst.address_of(to)
        if taken and source % nbytes:
            raise copy_messages.misaligned_move(kernel, name, "source", src.name, source, nbytes, *at)
        if target % nbytes:
            raise copy_messages.misaligned_move(kernel, name, "destination", dst.name, target, nbytes, *at)

    cp_async_ca = _copy("ca")
    cp_async_cg = _copy("cg")

    def cp_async_commit_group(self) -> None:
        """Close the thread's present group."""
        self.recorder.copies.commit(self.recorder.thread.linear)

    def cp_async_wait_group(self, n: Any) -> None:
        """Wait for all but the last n groups."""
        self.recorder.copies.wait(self.recorder.thread.linear, int(n))

    def cp_async_wait_all(self) -> None:
        """Close the present group and wait for all."""
        self.cp_async_commit_group()
        self.cp_async_wait_group(0)


for _name, _kind in LDMATRIX.items():
    setattr(PtxMemory, _name, _ldmatrix(_name, *_kind))
