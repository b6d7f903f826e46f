"""The Python oracle: a kernel's own source, one thread at a time; slow, obviously right, open to a debugger.

What it models: values, the accesses of each thread, and the requests they make: accesses of one warp at one
place in the source, in one barrier region and one iteration of the loops around, the k-th of each thread
together. What it leaves out: arithmetic counts and caches. Which ncu metric checks it:
`l1tex__t_requests_*`, `l1tex__t_sectors_*` and the shared wavefronts, as sums over requests.

`breakpoint()` in a kernel stops in the thread that reaches it; `n`, `s`, `p i` work as usual, all other
threads wait.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np

from dsl.intrinsics.ptx import MMA_TYPES
from dsl.oracle import numbers
from dsl.oracle.arrays import Access, Recorder, Tracked
from dsl.oracle.cuda import Cuda, SharedMemory
from dsl.oracle.iterations import Iterations
from dsl.oracle.printing import Line
from dsl.oracle.rebuild import Rebuilder, argument
from dsl.oracle.records import Record
from dsl.oracle.threads import Strand, Thread, check_barrier, raise_lines
from dsl.oracle.warp import let_go
from dsl.semantics import messages, request_rules
from dsl.semantics.copies import Copies
from dsl.semantics.messages import Dim3, Wraps, dim3, kernel_fault, linear_count, raised_by_kernel, unlinear
from dsl.types import is_aligned, labels, rebuilt
from dsl.warpir import ir
from dsl.warpir.machine import count_mma
from gpusim.arch import Arch
from gpusim.counters import ConstantCounts, Counters, SharedCounts, SpaceCounts
from gpusim.errors import UnsupportedFeature, UserError
from gpusim.memory import GlobalMemory, owner_of
from gpusim.trace import Kind

MISTAKES = (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError)
"""What Python raises where a line of a kernel has no answer in it."""

NOT_COUNTED = ("syncwarp", "activemask")
"""Warp operations that `warp_operations` does not count."""
MMA = "ptx.mma_sync_"


@dataclass(frozen=True)
class Request:
    """Hold one request of a warp: what each active lane accessed, lane -> byte address."""

    space: str
    array: str
    op: str
    block: int
    warp: int
    file: str
    line: int
    bytes_per_lane: int
    lanes: dict[int, int]


@dataclass
class OracleRun:
    """Hold what a run gave.

    accesses: one list a thread, blocks in the order they ran, threads in linear order. requests: in no
    order that the card would know. counters: of memory, barriers, warp operations and wrapped
    indices; `arithmetic` and `hierarchy` stay 0. shared_buffers: name and bytes of each static shared array
    of a block. untyped_spaces: where elements lie that dsl/types has no type for, so that their requests
    are not the card's. has_local: a thread has a local array. wraps: negative indices.
    """

    accesses: list[list[Access]]
    requests: list[Request]
    counters: Counters
    static_shared_bytes: int = 0
    shared_buffers: tuple[tuple[str, int], ...] = ()
    untyped_spaces: frozenset[str] = frozenset()
    has_local: bool = False
    wraps: Wraps = field(default_factory=Counter)


def as_counters(run: OracleRun) -> Counters:
    """Return the counters of a run: memory, barriers and wrapped indices."""
    return run.counters


@dataclass(frozen=True)
class _Launch:
    """Hold what all blocks of a launch share."""

    kernel: FunctionType
    args: tuple[Any, ...]
    grid: Dim3
    block: Dim3
    cuda: Cuda
    recorder: Recorder
    codes: set[CodeType]
    """The code of the kernel and of its device functions."""
    tracer: Any
    shared_bytes: int
    in_registers: frozenset[str] | None
    result: OracleRun


def count_operation(counters: Counters, name: str) -> None:
    """Count one operation that the threads of a warp met at."""
    if name.startswith(MMA):
        count_mma(counters.tensor, MMA_TYPES[name.removeprefix(MMA)][0])
    elif name not in NOT_COUNTED and not name.startswith("ptx."):
        counters.warp_operations += 1


def _count_space(counts: SpaceCounts, request: Request, records: list[int]) -> None:
    counts.lanes += len(request.lanes)
    counts.bytes += len(request.lanes) * request.bytes_per_lane
    counts.requests += 1
    counts.sectors += request_rules.sectors(records)


def _count_shared(counts: SharedCounts, request: Request) -> None:
    size, lanes = request.bytes_per_lane, request.lanes
    taken = request_rules.wavefronts(lanes, size, request.op == "load")
    _add_shared(counts, request, taken, min(taken, request_rules.ideal_wavefronts(lanes, size)))


def _add_shared(counts: SharedCounts, request: Request, taken: int, ideal: int) -> None:
    counts.lanes += len(request.lanes)
    counts.bytes += len(request.lanes) * request.bytes_per_lane
    counts.requests += 1
    counts.wavefronts += taken
    counts.ideal_wavefronts += ideal


def count_copy(
    counters: Counters, cache: str, source: dict[int, int], accesses: dict[int, Access]
) -> None:
    """Count a cp.async of a warp; source: the addresses of the lanes that read."""
    size = next(iter(accesses.values())).bytes
    copied = {lane: a.copied for lane, a in accesses.items() if a.copied is not None}
    target = {lane: to for lane, (to, _) in copied.items()}
    if source:
        counters.async_requests += 1
        loads = counters.global_load
        loads.lanes += len(source)
        loads.bytes += sum(taken for _, taken in copied.values())
        loads.requests += 1
        sectors = request_rules.sectors(request_rules.records(source, size, Kind.LOAD, 0))
        loads.sectors += request_rules.copy_sectors(source, target) if cache == "cg" else sectors
    taken, ideal = request_rules.copy_wavefronts(source, target, size, cache)
    writes = counters.shared_async
    writes.lanes += len(target)
    writes.bytes += len(target) * size
    writes.requests += 1
    writes.wavefronts += taken
    writes.ideal_wavefronts += ideal


def _count_constant(counts: ConstantCounts, request: Request) -> None:
    counts.lanes += len(request.lanes)
    counts.bytes += len(request.lanes) * request.bytes_per_lane
    counts.requests += 1
    counts.addresses += len(set(request.lanes.values()))


def _count(counters: Counters, request: Request) -> None:
    """Add one request to the counters of its space and operation."""
    size, lanes, op = request.bytes_per_lane, request.lanes, request.op
    if request.space == "const":
        _count_constant(counters.const_load, request)
    elif op == "matrix":
        matrices = size // 4
        taken = request_rules.matrix_wavefronts(lanes, matrices)
        _add_shared(counters.shared_matrix, request, taken, min(taken, matrices))
    elif request.space == "shared":
        _count_shared(getattr(counters, f"shared_{'atom' if op == 'red' else op}"), request)
    elif request.space == "local":
        words = request_rules.local_words(lanes, size)
        kind = Kind.LOCAL_LOAD if op == "load" else Kind.LOCAL_STORE
        _count_space(
            getattr(counters, f"local_{op}"), request, request_rules.records(words, min(size, 4), kind, 0)
        )
    else:
        rule = request_rules.atomic_records if op in ("red", "atom") else request_rules.records
        _count_space(getattr(counters, f"global_{op}"), request, rule(lanes, size, Kind[op.upper()], 0))


def _collect(launch: _Launch, block: int) -> None:
    """Turn the accesses of a block into requests and count them; local arrays in registers make none."""
    for key, accesses in launch.recorder.groups.items():
        first = next(iter(accesses.values()))
        if first.space == "local" and (launch.in_registers is None or first.array in launch.in_registers):
            continue
        lanes = {lane: a.address for lane, a in sorted(accesses.items()) if a.copied is None or a.copied[1]}
        if first.copied is not None:
            count_copy(launch.result.counters, first.op.removeprefix("copy_"), lanes, accesses)
        if not lanes:
            continue
        request = Request(
            first.space, first.array, first.op, block, key.warp, first.file, first.line, first.bytes, lanes
        )
        launch.result.requests.append(request)
        if first.copied is None:
            _count(launch.result.counters, request)
    launch.recorder.groups.clear()


def _strands(launch: _Launch, block: int) -> list[Strand]:
    """Make the threads of a block, none of them started."""
    ctaid = unlinear(block, launch.grid)
    threads = [Thread(block, ctaid, t, unlinear(t, launch.block)) for t in range(linear_count(launch.block))]
    return [Strand(thread, lambda: launch.kernel(*launch.args), launch.tracer) for thread in threads]


def _is_raised_at(error: Exception, file: str, line: int) -> bool:
    """Return whether a line makes an exception itself: by raise or assert, or an index past a tuple."""
    return line in raise_lines(file) or isinstance(error, IndexError)


def _resume(launch: _Launch, strand: Strand) -> None:
    """Let a thread run on; every exception that its source ends by becomes a KernelFault."""
    try:
        strand.resume()
    except UserError:
        raise
    except Exception as error:
        steps = list(walk_tb(error.__traceback__))
        lines = [(f, n) for f, n in steps if f.f_code in launch.codes]
        thread = strand.thread
        if lines:
            frame, line = lines[-1]
            file = frame.f_code.co_filename
            innermost = frame is steps[-1][0]
            if not isinstance(error, MISTAKES) or (innermost and _is_raised_at(error, file, line)):
                raise raised_by_kernel(thread.ctaid, thread.tid, error, file, line) from error
            kernel = launch.recorder.kernel
            raise kernel_fault(kernel, thread.ctaid, thread.tid, error, file, line) from error
        raise


def _run_warp(launch: _Launch, warp: list[Strand]) -> None:
    """Run the threads of a warp until each is at a barrier or at its end, through their warp operations."""
    running = warp
    while True:
        for strand in running:
            launch.recorder.strand = strand
            _resume(launch, strand)
        gone_on = let_go(launch.recorder.kernel, launch.block, warp)
        if gone_on is None:
            return
        name, running = gone_on
        count_operation(launch.result.counters, name)


def _run_region(launch: _Launch, live: list[Strand], region_line: int) -> tuple[list[Strand], int]:
    """Run each live thread to its barrier or end; return those at the barrier and its line."""
    for _, warp in groupby(live, key=lambda s: s.thread.warp):
        _run_warp(launch, list(warp))
    waiting = [s for s in live if not s.done]
    if waiting:
        region_line = check_barrier(launch.recorder.kernel, waiting, [s for s in live if s.done], region_line)
        launch.result.counters.barriers += len({s.thread.warp for s in waiting})
    gathered = sum(s.thread.predicate for s in waiting), len(waiting)
    for strand in waiting:
        strand.thread.gathered, strand.thread.passed_line = gathered, region_line
    return waiting, region_line


def _run_block(launch: _Launch, block: int) -> None:
    """Run one block of threads; whatever happens, no Python thread of it goes on."""
    launch.cuda.shared.memory = SharedMemory(launch.shared_bytes)
    launch.recorder.copies = Copies()
    strands = _strands(launch, block)
    live, line = strands, 0
    try:
        while live:
            live, line = _run_region(launch, live, line)
    finally:
        for strand in strands:
            strand.cancel()
            strand.thread.frame = None
    _collect(launch, block)
    memory, result = launch.cuda.shared.memory, launch.result
    result.static_shared_bytes, result.shared_buffers = memory.static_bytes, tuple(memory.buffers)
    result.untyped_spaces = frozenset(launch.recorder.untyped_spaces)
    result.has_local |= any(s.thread.local_arrays for s in strands)
    launch.result.accesses.extend(s.thread.accesses for s in strands)


def _bounds(array: np.ndarray) -> tuple[int, int]:
    """Return the host addresses of an array's first byte and of the byte after its last."""
    start = array.__array_interface__["data"][0]
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    end = start + sum(s for s in steps if s > 0) + array.itemsize
    return start + sum(s for s in steps if s < 0), end if array.size else start


class _Placer:
    """Give array arguments their addresses, in order; views of one host array share its place."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.memory = recorder, GlobalMemory()
        self.owners: dict[int, tuple[int, int]] = {}

    def address(self, array: np.ndarray) -> int:
        """Return the address of an array, allocated with the array that owns its storage."""
        owner = owner_of(array)
        low, high = _bounds(owner)
        if id(owner) not in self.owners:
            self.owners[id(owner)] = (self.memory.alloc(high - low), low)
        base, start = self.owners[id(owner)]
        return base + int(array.__array_interface__["data"][0]) - start

    def argument(self, value: Any, name: str) -> Any:
        """Return an argument as kernels see it, in a tuple item by item."""
        if isinstance(value, tuple):
            return rebuilt(value, map(self.argument, value, labels(name, value)))
        if isinstance(value, np.void) or (isinstance(value, np.ndarray) and value.ndim == 0):
            return Record(self.tracked(np.asarray(value), name))
        if hasattr(value, "shape") and not isinstance(value, np.generic):
            return self.tracked(value, name)
        return argument(value)

    def tracked(self, value: Any, name: str) -> Tracked:
        """Return what stands for an array argument; one that is on the device already keeps its address."""
        if not hasattr(value, "__getitem__"):
            raise UnsupportedFeature(
                f"kernel {self.recorder.kernel}: argument {name!r} is a {type(value).__name__} without data, "
                "and the Python oracle computes values; pass a numpy array, or count only with the "
                "compiled engine"
            )
        data = value if isinstance(value, np.ndarray) else value[...]
        address = value.address if hasattr(value, "address") else self.address(data)
        packed = not data.dtype.fields and not is_aligned(data, data.itemsize)
        return Tracked(data, "global", name, address, self.recorder, packed=packed)


def _arguments(function: FunctionType, args: Sequence[Any], recorder: Recorder) -> tuple[Any, ...]:
    """Return the arguments as kernels see them."""
    placer, names = _Placer(recorder), function.__code__.co_varnames
    return tuple(placer.argument(value, name) for name, value in zip(names, args, strict=False))


@contextmanager
def checked_divisions(recorder: Recorder, codes: Container[CodeType]) -> Iterator[None]:
    """Make divisions by zero in kernel code a mistake that names its thread and line."""
    def refuse() -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code not in codes:
            frame = frame.f_back
        assert frame is not None, "a division that no kernel made"
        place, thread = (frame.f_code.co_filename, frame.f_lineno), recorder.thread
        raise messages.out_of_bounds(
            recorder.kernel, ir.DIVISOR, 0, 1, 1, thread.ctaid, thread.tid, *place
        )  # fmt: skip

    numbers.on_zero.append(refuse)
    try:
        yield
    finally:
        numbers.on_zero.pop()


def run(
    py_func: Any,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    args: Sequence[Any],
    shared_bytes: int = 0,
    max_steps: int | None = None,
    strict_index: bool = False,
    blocks: Iterable[int] | None = None,
    register_arrays: frozenset[str] | None = None,
    printed: list[Line] | None = None,
    arch: Arch | None = None,
    debug: bool = False,
) -> OracleRun:
    """Run a kernel (a Python function, or what cuda.jit made of one) on numpy arrays, in place.

    shared_bytes: dynamic shared memory. max_steps: iterations of while loops of one thread. blocks: linear
    block numbers, None for all. register_arrays: local arrays that cause no traffic, None for all.
    printed: takes each line that the kernel prints, also where the run raises.
    arch: the GPU, which refuses what its compute capability has not; None: one that has everything.
    debug: division by zero raises DivisionByZero.
    Addresses are as GlobalMemory.alloc gives them to the array arguments in order. Raises OutOfBounds,
    BarrierDivergence, WarpDivergence, EndlessLoop, KernelFault, LaunchRefused.
    """
    original: FunctionType = getattr(py_func, "py_func", py_func)
    recorder = Recorder(original.__name__, original.__code__, strict_index)
    cuda = Cuda(recorder, dim3(grid), dim3(block))
    rebuilder = Rebuilder(cuda, recorder, [] if printed is None else printed)
    kernel = rebuilder.function(original)
    recorder.code, recorder.block = kernel.__code__, dim3(block)
    recorder.max_steps, recorder.arch = max_steps, arch
    values = _arguments(original, args, recorder)
    result = OracleRun([], [], Counters.zero())
    launch = _Launch(
        kernel,
        values,
        dim3(grid),
        dim3(block),
        cuda,
        recorder,
        rebuilder.codes,
        Iterations(recorder, rebuilder.codes),
        shared_bytes,
        register_arrays,
        result,
    )
    with checked_divisions(recorder, rebuilder.codes) if debug else nullcontext():
        for number in range(linear_count(launch.grid)) if blocks is None else blocks:
            _run_block(launch, number)
    result.wraps = recorder.wraps
    result.counters.wrapped_indices = recorder.wraps.total()
    return result
