"""Arrays of the Python oracle: each access is checked, recorded with its thread and line, and done.

What it models: the addresses and bounds of global, shared and local arrays. What it leaves out: caches and
time. Which ncu metric checks it: `l1tex__t_requests_*` and `l1tex__t_sectors_*`, after dsl/oracle/run.py has
grouped the accesses into warps.
"""

from __future__ import annotations

import dis
import functools
import operator
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from dsl.oracle.numbers import KINDS, literal, same_or_computable
from dsl.oracle.threads import Site, Strand, Thread
from dsl.oracle.vectors import Vector, VectorMaker, from_record
from dsl.semantics import copy_messages, messages
from dsl.semantics.copies import Copies
from dsl.semantics.floats import Array
from dsl.semantics.messages import LANES, Wraps
from dsl.types import FLOATS, NUMPY_NAMES
from dsl.types.elements import VectorType
from dsl.warpir.ir import BYTES, SHORT_LOOP, STEP_PARTS
from gpusim.arch import Arch


class Access(NamedTuple):
    """Record one access of one thread.

    space: global, shared or local. address: bytes, in shared memory the offset in the block, in local
    memory the offset in the thread's frame. op: load, store, red (an atomic whose result is not used), atom,
    matrix (a row of ldmatrix), copy_ca or copy_cg (cp.async, at its source; copied: where in shared memory it
    goes, and how many bytes it takes from here).
    """

    space: str
    array: str
    address: int
    bytes: int
    op: str
    file: str
    line: int
    copied: tuple[int, int] | None = None


class GroupKey(NamedTuple):
    """Name one request: the accesses of one warp with equal keys are one warp instruction.

    path: site in the source, operation, barriers passed, iterations of the loops around. occurrence: how
    often the thread had been there before with the same path.
    """

    warp: int
    path: Hashable
    occurrence: int


class Recorder:
    """Hold the launch that runs: its present thread, the present block's requests, and the sites seen."""

    def __init__(self, kernel: str, code: CodeType, strict_index: bool) -> None:
        self.kernel, self.code, self.strict_index = kernel, code, strict_index
        self.max_steps: int | None = None
        self.arch: Arch | None = None
        self.block: messages.Dim3 = (1, 1, 1)
        self.strand: Strand
        self.groups: dict[GroupKey, dict[int, Access]] = defaultdict(dict)
        self.wraps: Wraps = Counter()
        self.dynamic_arrays: set[str] = set()
        """Names of arrays in dynamic shared memory."""
        self.untyped_spaces: set[str] = set()
        self.copies = Copies()
        self._sites: dict[Hashable, Site] = {}
        self._numbers: dict[Hashable, int] = {}

    @property
    def thread(self) -> Thread:
        """Return the CUDA thread that runs."""
        return self.strand.thread

    def see(self, frame: FrameType | None) -> None:
        """Remember the kernel's frame of the present thread, which is `frame` or one of its callers."""
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        self.thread.frame = frame

    def site(self, frame: FrameType) -> Site:
        """Return the place in the source, calls of device functions included, that a frame stands at.

        Copies that Python's compiler makes of one expression (a while condition) have the same position and
        so the same number.
        """
        outer = 0 if frame.f_code is self.code or frame.f_back is None else self.site(frame.f_back).number
        key = (id(frame.f_code), frame.f_lasti, outer)
        site = self._sites.get(key)
        if site is None:
            position = (id(frame.f_code), *_position(frame), outer)
            number = self._numbers.setdefault(position, len(self._numbers) + 1)
            site = self._sites[key] = Site(number, frame.f_code.co_filename, frame.f_lineno)
        return site

    def lines(self, frame: FrameType | None) -> tuple[int, ...]:
        """Return the lines at which the kernel and the device functions down to a frame stand."""
        found: list[int] = []
        while frame is not None:
            found.append(frame.f_lineno)
            if frame.f_code is self.code:
                break
            frame = frame.f_back
        return tuple(reversed(found))

    def record(
        self,
        array: Tracked,
        address: int,
        op: str,
        frame: FrameType,
        size: int,
        copied: tuple[int, int] | None = None,
    ) -> None:
        """Add one access of the present thread, of `size` bytes, to its list and to its request."""
        thread = self.thread
        if thread.frame is None:
            self.see(frame)
        site = self.site(frame)
        path = (site.number, op, array.name, thread.region, *thread.loops)
        occurrence = thread.occurrences.get(path, 0)
        thread.occurrences[path] = occurrence + 1
        dtype = array.data.dtype
        if stored_element(dtype) is None and array.vector is None and not dtype.fields:
            self.untyped_spaces.add(array.space)
        access = Access(array.space, array.name, address, size, op, site.file, site.line, copied)
        thread.accesses.append(access)
        self.groups[GroupKey(thread.warp, path, occurrence)][thread.linear % LANES] = access

    def require_complete(
        self,
        array: Tracked,
        where: tuple[int, ...],
        address: int,
        nbytes: int,
        access: str,
        thread: Thread,
        place: tuple[str, int],
    ) -> None:
        """Raise PendingCopy where a thread touches bytes of shared memory that a copy is still filling."""
        mark = self.copies.blocking(address, nbytes)
        if mark is not None:
            issuer = messages.unlinear(mark.thread, self.block)
            raise copy_messages.pending_copy(
                self.kernel, access, array.name, where, thread.ctaid, thread.tid, place, issuer,
                (mark.file, mark.line),
            )  # fmt: skip

    def touch(self, array: Tracked, where: tuple[int, ...], access: str, frame: FrameType) -> None:
        """Check an access to shared memory of the present thread against copies under way."""
        if array.space == "shared" and self.copies.marks:
            site, address = self.site(frame), array.address_of(where)
            place = site.file, site.line
            self.require_complete(array, where, address, array.data.itemsize, access, self.thread, place)

    def vector(self, array: Tracked, address: int, op: str, frame: FrameType) -> None:
        """Add the accesses of one vector; raise Misaligned where one does not start at a multiple."""
        type_, thread = array.vector, self.thread
        assert type_ is not None
        element_bytes = BYTES[type_.element]
        size = type_.numbers_an_access * element_bytes
        for at in range(address, address + type_.bytes, size):
            if at % size and type_.numbers_an_access > 1:
                raise messages.misaligned(
                    self.kernel, array.name, size, element_bytes, at, array.start, thread.ctaid, thread.tid,
                    frame.f_code.co_filename, frame.f_lineno,
                )  # fmt: skip
            self.record(array, at, op, frame, size)

    def step(self, file: str, line: int, parts: int = STEP_PARTS) -> None:
        """Count an iteration of a loop, in parts of a step; raise EndlessLoop after max_steps."""
        thread, limit = self.thread, self.max_steps
        thread.step_parts += parts
        if limit is not None and thread.step_parts > limit * STEP_PARTS:
            who = f"thread {thread.tid}"
            raise messages.endless_loop(self.kernel, thread.ctaid, who, limit, file, line)

    def wrap(self, array: Tracked, dim: int, index: int, frame: FrameType) -> int:
        """Return a negative index wrapped once and count it; raise OutOfBounds where it is outside."""
        extent, thread = array.data.shape[dim], self.thread
        if not -extent <= index < extent or self.strict_index:
            raise messages.out_of_bounds(
                self.kernel,
                array.name,
                dim,
                index,
                extent,
                thread.ctaid,
                thread.tid,
                frame.f_code.co_filename,
                frame.f_lineno,
                self.strict_index,
                array.name in self.dynamic_arrays,
            )
        if not _stores_again(frame):
            self.wraps[frame.f_code.co_filename, frame.f_lineno, array.name] += 1
        return index + extent


@functools.cache
def _augmented_stores(code: CodeType) -> frozenset[int]:
    """Return the offsets of the stores of `a[i] += x`, which bring the array and the index back on top."""
    pairs = pairwise(dis.get_instructions(code))
    swaps = ("SWAP", "ROT_THREE")
    return frozenset(b.offset for a, b in pairs if b.opname == "STORE_SUBSCR" and a.opname in swaps)


def _stores_again(frame: FrameType) -> bool:
    """Say whether a frame stores where it has just loaded from; its index was worked out, and wrapped, once.
    """
    return frame.f_lasti in _augmented_stores(frame.f_code)


def _position(frame: FrameType) -> tuple[int | None, ...]:
    """Return where in the source a frame stands: lines and columns, before Python 3.11 the offset."""
    if sys.version_info >= (3, 11):
        return list(frame.f_code.co_positions())[frame.f_lasti // 2]
    return frame.f_lineno, frame.f_lasti


@functools.cache
def stored_element(dtype: np.dtype[Any]) -> str | None:
    """Return the element type of an array's dtype, None where dsl/types has none."""
    return NUMPY_NAMES.get(dtype.name)


@functools.cache
def _loaded(dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    """Return what makes a number of a kernel of an element of an array."""
    element = stored_element(dtype)
    if element is None:
        return lambda value: value
    kind = KINDS[element]
    return kind if element in FLOATS else lambda value: kind(value.item())


def from_storage(value: Any) -> Any:
    """Return an element as kernels compute with it; one without a type of dsl/types as numpy has it."""
    return _loaded(value.dtype)(value)


def to_storage(value: Any, dtype: np.dtype[Any]) -> Any:
    """Convert what a kernel writes to an element type: integers wrap, floats truncate and saturate."""
    element = stored_element(dtype)
    return value if element is None else same_or_computable(value, element)


Item = Callable[[int, FrameType], Any]
"""Gives the k-th item of a loop; the frame is the place in the kernel that reads it."""


def counted(recorder: Recorder, length: int, item: Item) -> Iterator[Any]:
    """Yield the items of a loop, and tell the recorder which iteration a thread is in; count a long one."""
    frame, loops, places = sys._getframe(1), recorder.thread.loops, recorder.thread.loop_lines
    parts = int(length > SHORT_LOOP)
    depth = len(loops)
    loops.append(-1)
    places.append(recorder.lines(frame))
    try:
        for k in range(length):
            if parts:
                recorder.step(frame.f_code.co_filename, frame.f_lineno, parts)
            loops[depth] += 1
            yield item(k, frame)
        recorder.step(frame.f_code.co_filename, frame.f_lineno, parts)
    finally:
        del loops[depth:], places[depth:]


class Tracked:
    """Stand for one array of a kernel, or for a part of it.

    address: of its first byte in its space. start: of the first byte of the whole array. vector: the type of
    its elements if they are vectors. packed: they are fields of packed records, moved byte by byte. dynamic:
    it is dynamic shared memory.
    """

    __slots__ = ("address", "data", "dynamic", "name", "packed", "recorder", "space", "start", "vector")

    def __init__(
        self,
        data: Array,
        space: str,
        name: str,
        address: int,
        recorder: Recorder,
        vector: VectorType | None = None,
        start: int | None = None,
        packed: bool = False,
    ) -> None:
        self.data, self.space, self.name, self.address, self.recorder = data, space, name, address, recorder
        self.vector, self.start, self.packed = vector, address if start is None else start, packed
        self.dynamic = False

    shape = property(lambda self: literal(self.data.shape))
    strides = property(lambda self: literal(self.data.strides))
    size = property(lambda self: literal(self.data.size))
    ndim = property(lambda self: literal(self.data.ndim))
    dtype = property(lambda self: self.data.dtype)
    itemsize = property(lambda self: literal(self.data.itemsize))

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Any]:
        return counted(self.recorder, len(self.data), self.load)

    def locate(self, index: Any, frame: FrameType) -> tuple[Any, ...]:
        """Return the index as a tuple of checked numbers (and slices); raise OutOfBounds."""
        checked = []
        for dim, item in enumerate(index if isinstance(index, tuple) else (index,)):
            if not isinstance(item, slice):
                item = int(operator.index(item))
                if not 0 <= item < self.data.shape[dim]:
                    item = self.recorder.wrap(self, dim, item, frame)
            checked.append(item)
        return tuple(checked)

    def address_of(self, index: tuple[int, ...]) -> int:
        """Return the byte address of an element."""
        address = self.address
        for i, stride in zip(index, self.data.strides, strict=True):
            address += i * stride
        return address

    def _part(self, index: Any, packed: bool | None = None) -> Tracked:
        """Return a row, a slice or a field of all records, sharing the storage."""
        part = self.data[index]
        offset = part.__array_interface__["data"][0] - self.data.__array_interface__["data"][0]
        address, packed = self.address + offset, self.packed if packed is None else packed
        return Tracked(
            part, self.space, self.name, address, self.recorder, self.vector, self.start, packed
        )

    def _of(self, data: Array) -> Tracked:
        """Return another view of the same first element."""
        return Tracked(
            data, self.space, self.name, self.address, self.recorder, self.vector, self.start, self.packed
        )

    @property
    def T(self) -> Tracked:  # noqa: N802 - numpy's name
        """Return the array with its dimensions in reverse order."""
        return self._of(self.data.T)

    @property
    def real(self) -> Tracked:
        """Return the real parts of complex numbers, a view."""
        return self._of(self.data.real)

    @property
    def imag(self) -> Tracked:
        """Return the imaginary parts of complex numbers, a view behind the real ones."""
        data, offset = self.data.imag, self.data.itemsize // 2
        return Tracked(data, self.space, self.name, self.address + offset, self.recorder, None, self.start)

    def copy(self) -> Tracked:
        """Return an array of the thread's own with the same elements, each of them loaded."""
        frame, thread = sys._getframe(1), self.recorder.thread
        for index in np.ndindex(self.data.shape):
            self.load(index, frame)
        place, address = self.recorder.site(frame).number, thread.local_bytes
        made = Tracked(self.data.copy(), "local", self.name, address, self.recorder, self.vector)
        thread.local_bytes += made.data.nbytes
        thread.local_arrays[place] = made
        return made

    def reshape(self, *shape: Any) -> Tracked:
        """Return a view of another shape, which numpy finds without moving data."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        data = self.data.reshape(tuple(map(int, wanted)))
        if data.size and not np.shares_memory(data, self.data):
            raise ValueError(f"{self.name!r} has no view of shape {data.shape}: its data would have to move")
        return self._of(data)

    def column(self, name: str) -> Tracked:
        """Return one field of all records."""
        return self._part(name, packed=not self.data.dtype.isalignedstruct)

    def __getattr__(self, name: str) -> Tracked:
        if self.vector is None and name in (self.data.dtype.names or ()):
            return self.column(name)
        raise AttributeError(f"the array {self.name!r} has no attribute {name!r}")

    def view(self, dtype: Any) -> Tracked:
        """Return the same bytes as elements of another type; raise LaunchRefused where they do not fit."""
        vector = dtype.type if isinstance(dtype, VectorMaker) else None
        wanted = np.dtype(getattr(dtype, "dtype", dtype))
        row = self.data.shape[-1]
        if row * self.data.itemsize % wanted.itemsize:
            frame, name = sys._getframe(1), vector.name if vector else wanted.name
            raise messages.no_whole_view(
                self.recorder.kernel, self.name, row, self.data.itemsize, name, wanted.itemsize,
                frame.f_code.co_filename, frame.f_lineno,
            )  # fmt: skip
        data = self.data.view(wanted)
        return Tracked(data, self.space, self.name, self.address, self.recorder, vector, self.start)

    def record_bytes(self, address: int, op: str, frame: FrameType) -> None:
        """Record an access of each byte of an element."""
        for at in range(address, address + self.data.itemsize):
            self.recorder.record(self, at, op, frame, 1)

    def _record(self, where: tuple[int, ...], op: str, frame: FrameType) -> None:
        self.recorder.touch(self, where, "load of" if op == "load" else "store to", frame)
        if self.packed or (self.data.dtype.fields and self.vector is None):
            self.record_bytes(self.address_of(where), op, frame)
        elif self.vector is None:
            self.recorder.record(self, self.address_of(where), op, frame, self.data.itemsize)
        else:
            self.recorder.vector(self, self.address_of(where), op, frame)

    def load(self, index: Any, frame: FrameType) -> Any:
        """Return an element (a part, for an index of slices) and record the access at a place."""
        if isinstance(index, str):
            return self.column(index)
        where = self.locate(index, frame)
        value = self.data[where]
        if isinstance(value, np.ndarray):
            return self._part(where)
        if self.vector is None and self.data.dtype.fields:
            from dsl.oracle.records import Record

            return Record(self._part((*where, ...)))
        self._record(where, "load", frame)
        return from_storage(value) if self.vector is None else from_record(self.vector, value)

    def store(self, index: Any, value: Any, frame: FrameType) -> None:
        """Write an element and record the access at a place."""
        where = self.locate(index, frame)
        if self.space == "const":
            raise TypeError(f"{self.name!r} is in constant memory, which nobody writes")
        contents = self._stored(value, frame)
        self._record(where, "store", frame)
        self.data[where] = contents

    def _stored(self, value: Any, frame: FrameType) -> Any:
        """Return what is written of a number, or of a vector or record, which has to be of the array's type.
        """
        if self.vector is None and self.data.dtype.fields:
            from dsl.oracle.records import Record, bytes_of

            if not isinstance(value, Record) or value.place.data.dtype.fields != self.data.dtype.fields:
                raise TypeError(f"an element of {self.name!r}, an array of records, is no {value!r}")
            return bytes_of(value, frame)
        if self.vector is None:
            return to_storage(value, self.data.dtype)
        if not isinstance(value, Vector) or value.type != self.vector:
            raise TypeError(f"an element of {self.name!r}, an array of {self.vector.name}, is no {value!r}")
        return value.numbers

    def __getitem__(self, index: Any) -> Any:
        return self.load(index, sys._getframe(1))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.store(index, value, sys._getframe(1))
