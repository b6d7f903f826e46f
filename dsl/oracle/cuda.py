"""What the Python oracle puts in the place of `cuda`, `math`, `min`, `max` and `round` in a kernel.

What it models: numba.cuda's surface for one thread at a time; atomics and warp operations are in
dsl/oracle/atomics.py and dsl/oracle/warp.py, and what its numbers compute in dsl/oracle/numbers.py. Checked
by no ncu metric; tests hold values against the compiled engine and the interpreter.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from dsl import types
from dsl.oracle.arrays import Recorder, Tracked
from dsl.oracle.atomics import Atomic, instruction_after
from dsl.oracle.half import BFloat, Float8, Half
from dsl.oracle.numbers import FLOAT_BASES, element_of, extremum, literal, number, sized
from dsl.oracle.ptx import Ptx
from dsl.oracle.vectors import VectorMaker
from dsl.oracle.warp import WarpOperations
from dsl.semantics import floats
from dsl.semantics.lane_ops import DTYPES
from dsl.semantics.messages import LANES, Dim3
from dsl.types.elements import VECTORS, VectorType

SHARED_ALIGNMENT = 16


def _int32(value: int) -> int:
    return sized(value, DTYPES["s32"])


class Index(NamedTuple):
    """Hold threadIdx, blockIdx, blockDim or gridDim."""

    x: int
    y: int
    z: int

    def __repr__(self) -> str:
        return f"({self.x}, {self.y}, {self.z})"


class Cast:
    """Stand for a type that a kernel calls to convert a number, such as numba.float32 or numpy.int32."""

    def __init__(self, element: str) -> None:
        self.element, self.dtype = element, DTYPES[element]

    def __call__(self, value: Any) -> Any:
        """Return the number in this type."""
        return number(value, self.element)


class Float(Cast):
    """Stand for `float`, which leaves a float32 as it is (numba's rule)."""

    def __call__(self, value: Any) -> Any:
        """Return a float64, or the value itself if it is a float."""
        return value if isinstance(value, np.floating) else number(value, self.element)


def dtype_of(obj: Any) -> np.dtype[Any]:
    """Return the numpy type that the dtype argument of shared.array or local.array names."""
    if isinstance(obj, VectorMaker):
        return obj.dtype
    obj = types.of_record(obj)
    element = None if isinstance(obj, Cast) else types.element_type(obj)
    return np.dtype(obj.dtype) if isinstance(obj, Cast) else DTYPES[element] if element else np.dtype(obj)


def vector_of(obj: Any) -> VectorType | None:
    """Return the vector type that a dtype argument names, None for a number's."""
    return obj.type if isinstance(obj, VectorMaker) else None


def _assigned_name(frame: FrameType, otherwise: str) -> str:
    """Return the variable that the value of the call a frame is in is assigned to."""
    after = instruction_after(frame)
    if after is None or not after.opname.startswith("STORE_"):
        return otherwise
    return str(after.argval[0] if isinstance(after.argval, tuple) else after.argval)


class SharedMemory:
    """Hold the shared memory of one block: static arrays side by side, dynamic ones at one place."""

    def __init__(self, dynamic_bytes: int) -> None:
        self.arrays: dict[int, Tracked] = {}
        self.buffers: list[tuple[str, int]] = []
        self.end = self.static_bytes = 0
        self.dynamic = np.full(dynamic_bytes, 0xFF, np.uint8)
        self.dynamic_address: int | None = None

    def keep(self, name: str, nbytes: int, align: int) -> None:
        """Count a static array at its alignment, as the compiler lays arrays out."""
        self.buffers.append((name, nbytes))
        self.static_bytes = -(-self.static_bytes // align) * align + nbytes

    def place(self, nbytes: int) -> int:
        """Return the byte offset of the next static array."""
        address = -(-self.end // SHARED_ALIGNMENT) * SHARED_ALIGNMENT
        self.end = address + nbytes
        return address

    def place_dynamic(self) -> int:
        """Return the byte offset of dynamic shared memory: behind the static arrays known by then."""
        if self.dynamic_address is None:
            self.dynamic_address = self.place(len(self.dynamic))
        return self.dynamic_address


def _poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return an array of bytes 0xFF: NaN in floats, -1 in integers; False for booleans."""
    if dtype.kind == "b":
        return np.zeros(shape, dtype)
    return np.full(int(np.prod(shape)) * dtype.itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in shape) if isinstance(shape, tuple) else (int(shape),)


class _Shared:
    """Be cuda.shared."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.memory = recorder, SharedMemory(0)

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Tracked:
        """Return the block's array of this place in the source; shape 0 is dynamic shared memory."""
        frame, memory = sys._getframe(1), self.memory
        self.recorder.see(frame)
        site = self.recorder.site(frame).number
        if site not in memory.arrays:
            name, type_ = _assigned_name(frame, "shared"), dtype_of(dtype)
            if _shape(shape) == (0,):
                whole = len(memory.dynamic) // type_.itemsize * type_.itemsize
                self.recorder.dynamic_arrays.add(name)
                data, address = memory.dynamic[:whole].view(type_), memory.place_dynamic()
            else:
                data = _poisoned(_shape(shape), type_)
                address = memory.place(data.nbytes)
                memory.keep(name, data.nbytes, max(alignment or 1, type_.alignment))
            memory.arrays[site] = Tracked(data, "shared", name, address, self.recorder, vector_of(dtype))
            memory.arrays[site].dynamic = _shape(shape) == (0,)
        return memory.arrays[site]


class _Const:
    """Be cuda.const."""

    def array_like(self, ary: Tracked) -> Tracked:
        """Return the array itself: arrays from outside the kernel are in constant memory."""
        return ary


class _Local:
    """Be cuda.local."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Tracked:
        """Return the thread's array of this place in the source."""
        frame, thread = sys._getframe(1), self.recorder.thread
        self.recorder.see(frame)
        site = self.recorder.site(frame).number
        if site not in thread.local_arrays:
            data = _poisoned(_shape(shape), dtype_of(dtype))
            address = -(-thread.local_bytes // data.itemsize) * data.itemsize
            thread.local_bytes = address + data.nbytes
            thread.local_arrays[site] = Tracked(
                data, "local", _assigned_name(frame, "local"), address, self.recorder, vector_of(dtype)
            )
        return thread.local_arrays[site]


def integer_type(value: int) -> np.dtype[Any]:
    """Return the type in which functions of bits take an integer: int8 of a boolean."""
    element = element_of(value)
    return DTYPES["s8" if element == "pred" else element or "s64"]


class BitFunctions:
    """Be the part of `cuda` that works on the bits of integers."""

    def popc(self, x: Any) -> Any:
        """Return how many bits are set."""
        dtype = integer_type(x)
        return sized((int(x) & _all_bits(dtype)).bit_count(), dtype)

    def clz(self, x: Any) -> Any:
        """Return how many bits above the highest one are zero, in the width of the type."""
        dtype = integer_type(x)
        return sized(8 * dtype.itemsize - (int(x) & _all_bits(dtype)).bit_length(), dtype)

    def brev(self, x: Any) -> Any:
        """Return the bits in reverse order: 64 of a uint64, the low 32 of any other integer (uint32)."""
        dtype = integer_type(x)
        dtype = dtype if dtype == np.uint64 else np.dtype(np.uint32)
        width = 8 * dtype.itemsize
        return sized(int(f"{int(x) & _all_bits(dtype):0{width}b}"[::-1], 2), dtype)

    def ffs(self, x: Any) -> Any:
        """Return the place of the lowest bit set, from 1; 0 for 0 (uint32)."""
        bits = int(x) & _all_bits(integer_type(x))
        return sized((bits & -bits).bit_length(), np.dtype(np.uint32))


def _all_bits(dtype: np.dtype[Any]) -> int:
    return (1 << 8 * dtype.itemsize) - 1


class Cached:
    """Be the part of `cuda` that loads and stores with a cache hint, of which values know nothing."""

    def ldcg(self, array: Tracked, i: Any) -> Any:
        """Return an element."""
        return array.load(i, sys._getframe(1))

    def stcg(self, array: Tracked, i: Any, value: Any) -> None:
        """Write an element."""
        array.store(i, value, sys._getframe(1))

    ldca = ldcs = ldlu = ldcv = ldcg
    stcs = stwb = stwt = stcg


class Cuda(WarpOperations, BitFunctions, Cached):
    """Stand for the module `cuda` inside a kernel."""

    warpsize = sized(LANES, DTYPES["s32"])

    def __getattr__(self, name: str) -> Any:
        """Return a vector type by its name."""
        if name not in VECTORS:
            raise AttributeError(f"cuda.{name} is not there in the Python oracle")
        return VectorMaker(VECTORS[name])

    def __init__(self, recorder: Recorder, grid: Dim3, block: Dim3) -> None:
        self.recorder = recorder
        self.gridDim, self.blockDim = Index(*map(_int32, grid)), Index(*map(_int32, block))
        self.shared, self.local, self.atomic = _Shared(recorder), _Local(recorder), Atomic()
        self.ptx = Ptx(self)
        self.const = _Const()
        self.fp16, self.bf16, self.fp8 = Half("f16"), BFloat(), Float8()
        self.bf16.bfloat16 = Cast("bf16")

    @property
    def threadIdx(self) -> Index:
        """Return the thread's place in its block."""
        if self.recorder.thread.frame is None:
            self.recorder.see(sys._getframe(1))
        return Index(*map(_int32, self.recorder.thread.tid))

    @property
    def blockIdx(self) -> Index:
        """Return the block's place in the grid."""
        if self.recorder.thread.frame is None:
            self.recorder.see(sys._getframe(1))
        return Index(*map(_int32, self.recorder.thread.ctaid))

    @property
    def laneid(self) -> int:
        """Return the thread's lane."""
        return _int32(self.recorder.thread.linear % LANES)

    def grid(self, ndim: int) -> Any:
        """Return the thread's place in the whole grid: a number for ndim 1, else a tuple."""
        if self.recorder.thread.frame is None:
            self.recorder.see(sys._getframe(1))
        thread = self.recorder.thread
        place = literal(
            tuple(b * int(n) + t for b, n, t in zip(thread.ctaid, self.blockDim, thread.tid, strict=True))
        )
        return place[0] if ndim == 1 else place[:ndim]

    def gridsize(self, ndim: int) -> Any:
        """Return the threads of the whole grid along each axis."""
        size = literal(tuple(int(g) * int(b) for g, b in zip(self.gridDim, self.blockDim, strict=True)))
        return size[0] if ndim == 1 else size[:ndim]

    def _wait(self, frame: FrameType, predicate: Any = False) -> tuple[int, int]:
        """Wait at a barrier; return how many threads brought a true predicate, and how many arrived."""
        thread, strand = self.recorder.thread, self.recorder.strand
        if thread.frame is None:
            self.recorder.see(frame)
        thread.barrier, thread.predicate = self.recorder.site(frame), bool(predicate)
        strand.pause()
        thread.barrier = None
        thread.region += 1
        return thread.gathered

    def syncthreads(self) -> None:
        """Wait for the other threads of the block."""
        self._wait(sys._getframe(1))

    def syncthreads_count(self, predicate: Any) -> int:
        """Wait for the block; return how many of its threads have a true predicate (int32)."""
        return _int32(self._wait(sys._getframe(1), predicate)[0])

    def syncthreads_and(self, predicate: Any) -> int:
        """Wait for the block; return 1 if all of its threads have a true predicate (int32)."""
        holding, arrived = self._wait(sys._getframe(1), predicate)
        return _int32(holding == arrived)

    def syncthreads_or(self, predicate: Any) -> int:
        """Wait for the block; return 1 if one of its threads has a true predicate (int32)."""
        return _int32(self._wait(sys._getframe(1), predicate)[0] > 0)

    def threadfence(self) -> None:
        """Do nothing: memory is in order here."""

    threadfence_block = threadfence_system = threadfence

    def literal_unroll(self, container: Any) -> Any:
        """Return the tuple that a loop runs over."""
        return container

    def nanosleep(self, ns: Any) -> None:
        """Do nothing: there is no time here."""

    def cbrt(self, a: Any) -> Any:
        """Return the cube root, in float32 of a float32."""
        dtype = FLOAT_BASES[types.exact_type(element_of(a) or "f64")]
        return _typed(floats.library("cbrt", np.atleast_1d(np.asarray(a, dtype)))[0])

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c rounded once."""
        dtype = FLOAT_BASES[types.math_type(*(element_of(v) or "f64" for v in (a, b, c)))]
        return _typed(floats.fma(*(np.atleast_1d(np.asarray(v, dtype)) for v in (a, b, c)))[0])

    def selp(self, test: Any, a: Any, b: Any) -> Any:
        """Return a where the test holds, else b."""
        return a if test else b


def _typed(value: Any) -> Any:
    """Return what a library gave, a number or a tuple of them, as kernels compute with it."""
    if isinstance(value, tuple):
        return tuple(map(_typed, value))
    element = element_of(value)
    return value if element is None else number(value, element)


def maximum(*values: Any) -> Any:
    """Return the largest value; NaN loses."""
    items = values[0] if len(values) == 1 else values
    return functools.reduce(lambda a, b: extremum(a, b, operator.gt), items)


def minimum(*values: Any) -> Any:
    """Return the smallest value; NaN loses."""
    items = values[0] if len(values) == 1 else values
    return functools.reduce(lambda a, b: extremum(a, b, operator.lt), items)


def rounded(x: Any, ndigits: Any = None) -> Any:
    """Return the nearest int64, the even one of two; or x rounded to digits by numba.cuda's steps."""
    with np.errstate(all="ignore"):
        wide = np.float64(x)
        if ndigits is None:
            return number(np.rint(wide), "s64")
        result = _to_digits(wide, int(ndigits)) if np.isfinite(wide) else wide
        return number(result, types.exact_type(element_of(x) or "f64"))


def _to_digits(x: Any, ndigits: int) -> Any:
    """Return x scaled by a power of ten (two, where 10**ndigits is not exact), rounded and scaled back."""
    if ndigits < 0:
        power = np.float64(10.0) ** -ndigits
        return rounded(x / power) * power
    factor, left = (1e22, ndigits - 22) if ndigits > 22 else (1.0, ndigits)
    power = np.float64(10.0) ** left
    y = x * power * factor
    return x if np.isinf(y) else rounded(y) / factor / power


def _float_type(name: str, args: Sequence[Any]) -> Any:
    """Return numpy's type in which a function of math takes its arguments."""
    elements = [element_of(a) or "" for a in args]
    if name in ("frexp", "ldexp"):
        return FLOAT_BASES[types.exact_type(elements[0])]
    if name == "modf":
        return FLOAT_BASES[types.modf_type(elements[0])]
    if name == "pow" and elements[0] == "f32" and elements[1] in ("s32", "u16"):
        return np.float32  # numba calls powi there
    rule = types.hypot_type if name in ("hypot", "atan2") else types.math_type
    return FLOAT_BASES[rule(*elements)]


_BY_NUMPY: dict[str, Any] = {
    name: getattr(np, name) for name in ("floor", "ceil", "trunc", "isnan", "isinf", "isfinite")
}


def _parts(name: str, x: Any) -> tuple[Any, Any]:
    """Return what math.modf or math.frexp gives, its floats in the type of x."""
    first, second = getattr(math, name)(x)
    return type(x)(first), type(x)(second) if name == "modf" else sized(second, DTYPES["s32"])


class Math:
    """Stand for the module `math`: IEEE answers instead of exceptions, and float32 in gives float32 out."""

    _half = Half("f16")

    def __getattr__(self, name: str) -> Any:
        known = getattr(math, name)
        if not callable(known):
            return _typed(known)
        return lambda *args: _typed(self._call(name, *args))

    def _call(self, name: str, *args: Any) -> Any:
        if name in types.HALF_FUNCTIONS and element_of(args[0]) == "f16":
            return self._half.function(name, args[0])
        dtype = _float_type(name, args)
        if name in _BY_NUMPY:
            return _BY_NUMPY[name](dtype(args[0]))
        if name in ("modf", "frexp"):
            return _parts(name, dtype(args[0]))
        if name == "ldexp":
            args = (args[0], sized(args[1], DTYPES["s32"]))
        if name in ("degrees", "radians"):
            factor = 180.0 / math.pi if name == "degrees" else math.pi / 180.0
            return dtype(factor) * dtype(args[0])
        name = "tgamma" if name == "gamma" else name
        arrays = [np.atleast_1d(np.asarray(a, dtype)) for a in args]
        return floats.fma(*arrays)[0] if name == "fma" else floats.library(name, *arrays)[0]
