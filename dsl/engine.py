"""The compiled engine: make a kernel's machine code once, run blocks with it, and add up what it counted.

What it models: see dsl/codegen.py. Machine code is kept in memory and on disk under a hash of its text, so a
change anywhere in the way from source to text makes new code. What it leaves out: which block runs where
(gpusim/scheduler.py) and the caches. Counts of arithmetic are executions of a basic block times what the
block holds (dsl/machine.py). Judged by dsl/interpreter.py.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from dsl import ir, messages, runtime_ll
from dsl import llvm as machine
from dsl.analysis import counting_slice, estimate_registers, register_arrays_of
from dsl.codegen import CodeOptions, WarpCode
from dsl.codegen_values import parameter_words
from dsl.intervals import Intervals, Limits
from dsl.layout import LANES_ALL, Ctx, Error, Frame
from dsl.machine import machine_counts
from dsl.shapes import LANES, Shapes
from dsl.ssa import Ssa, build
from gpusim.atomics import collide_entry
from gpusim.coalescer import coalesce_entry
from gpusim.counters import Arithmetic, Counters, SharedCounts, SpaceCounts
from gpusim.errors import LaunchRefused, WarpDivergence
from gpusim.memory import GlobalMemory
from gpusim.runtime import cache_home
from gpusim.shared import (
    atomic_wavefronts,
    atomic_wavefronts_entry,
    ideal_wavefronts,
    wavefronts,
    wavefronts_entry,
)
from gpusim.trace import MAX_SITES

TRACE_RECORDS = 1 << 30
"""Records one wave may have; their pages (8 GiB) are committed only as far as they are written."""
EXCHANGES = (ir.Shfl, ir.Vote, ir.Match)
MAX_STEPS = 10_000_000
"""Passes of a warp through headers of while loops before it counts as endless; --max-steps changes it."""
_ENTRIES = {
    runtime_ll.COALESCE: coalesce_entry,
    runtime_ll.COLLIDE: collide_entry,
    runtime_ll.WAVEFRONTS: wavefronts_entry,
    runtime_ll.ATOMIC_WAVEFRONTS: atomic_wavefronts_entry,
}


@dataclass(frozen=True)
class Key:
    """Name one form of a kernel's machine code."""

    block: tuple[int, int, int]
    counts_only: bool
    strict_index: bool
    nonnegative: frozenset[str]


class Compiled:
    """Hold a kernel's machine code for one Key, and what is needed to read its counters.

    Raises DataDependent if counts_only is asked of a kernel whose branches or addresses depend on data, and
    LaunchRefused for one with more memory instructions than a trace record can number.
    """

    def __init__(self, fn: ir.Function, key: Key) -> None:
        self.fn, self.key = fn, key
        self.ssa: Ssa = build(fn)
        self.register_arrays = register_arrays_of(self.ssa)
        self.registers = estimate_registers(self.ssa, self.register_arrays)
        needed = frozenset(counting_slice(self.ssa)) if key.counts_only else None
        intervals = Intervals(self.ssa, Limits(key.block, key.nonnegative))
        self.shapes = Shapes(self.ssa, intervals)
        options = CodeOptions(key.block, key.counts_only, key.strict_index, self.register_arrays, needed)
        self.code = WarpCode(self.ssa, self.shapes, intervals, options)
        instrs = ((b, i) for b, block in enumerate(self.ssa.fn.blocks) for i in block.instrs)
        self.sites = [(b, i) for b, i in instrs if isinstance(i, ir.Access)]
        if len(self.sites) > MAX_SITES:
            many = f"kernel {fn.name} has {len(self.sites)} memory instructions"
            raise LaunchRefused(f"{many}, the limit is {MAX_SITES}; split it")
        self.text = self.code.module()

    @cached_property
    def arithmetic(self) -> list[tuple[int, ir.Loc, str, int]]:
        """List what basic blocks hold: (block, line, class of dsl/machine.py, instructions of it)."""
        held: dict[tuple[int, ir.Loc, str], int] = defaultdict(int)
        for b, block in enumerate(self.fn.blocks):
            for instr in block.instrs:
                for name, n in machine_counts(instr).items():
                    held[b, instr.loc, name] += n
        return [(*key, n) for key, n in held.items()]

    @cached_property
    def run_blocks(self) -> Any:
        """Return the entry, (context, first block, count) -> status; the code runs without the GIL."""
        for name, entry in _ENTRIES.items():
            if name in self.code.text.declared:
                llvm.add_symbol(name, entry.address)
        self._machine = machine.link(_object(self.text, self.key.counts_only))
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        return kind(self._machine.address("run_blocks"))


def _object(text: str, counts_only: bool) -> bytes:
    """Return the object code of a module, from the disk cache where it has it."""
    cpu = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    who = f"{version('llvmlite')} {cpu} {counts_only} {inspect.getsource(machine)}\n"
    name = hashlib.sha256((who + text).encode()).hexdigest()[:32]
    file = cache_home() / "kernels" / f"{name}.o"
    try:
        return file.read_bytes()
    except OSError:
        pass
    obj = machine.to_object(text, counts_only)
    _keep(file, obj)
    return obj


def _keep(file: Path, obj: bytes) -> None:
    """Write a cache file whole or not at all; a cache that cannot be written is no mistake."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(obj)
        os.replace(temporary, file)
    except OSError:
        pass


class TraceBuffer:
    """Hold the records of one wave; reused from wave to wave."""

    def __init__(self, records: int = TRACE_RECORDS) -> None:
        self._arena = GlobalMemory(8 * records)
        self.records = self._arena.view(0, (records,), np.uint64)


_buffer: TraceBuffer | None = None


def trace_buffer() -> TraceBuffer:
    """Return the process's trace buffer."""
    global _buffer
    if _buffer is None:
        _buffer = TraceBuffer()
    return _buffer


class EngineRun:
    """Run the blocks of one launch: `wave` gives the trace of some blocks, `counters` what was counted."""

    def __init__(
        self,
        compiled: Compiled,
        grid: messages.Dim3,
        params: dict[str, int | float],
        memory: GlobalMemory,
        shared_bytes: int,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self.compiled, self.grid, self.max_steps = compiled, grid, max_steps
        fn, code = compiled.fn, compiled.code
        self.execs = np.zeros((len(fn.blocks), 3), np.int64)
        self.site_counts = np.zeros((max(1, len(compiled.sites)), 3), np.int64)
        self.wraps = np.zeros(max(1, len(code.checks)), np.int64)
        self._scratch = _aligned(32 * 8)
        self._frames = _aligned(code.frame_bytes * code.n_warps)
        self._shared = _aligned(max(64, shared_bytes) + 64)
        self._params = pack_parameters(fn, params)
        self.ctx = np.zeros(Ctx.WORDS, np.int64)
        pointers = {
            Ctx.SHARED: self._shared, Ctx.PARAMS: self._params, Ctx.FRAMES: self._frames,
            Ctx.SCRATCH: self._scratch,
            Ctx.EXECS: self.execs, Ctx.SITES: self.site_counts, Ctx.WRAPS: self.wraps,
        }  # fmt: skip
        for word, array in pointers.items():
            self.ctx[word] = array.ctypes.data
        self.ctx[Ctx.GLOBAL] = memory.base_pointer
        self.ctx[Ctx.NCTAID_X : Ctx.NCTAID_Z + 1] = grid
        self.ctx[Ctx.SHARED_BYTES] = 0 if compiled.key.counts_only else shared_bytes

    def wave(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Run blocks first .. first + count - 1.

        Return (records, offsets): block k has records[offsets[k]:offsets[k + 1]]. The records are a view that
        the next call overwrites. Raises OutOfBounds, BarrierDivergence, EndlessLoop, and LaunchRefused where
        the trace is full.
        """
        records = trace_buffer().records
        ends = np.zeros(count, np.int64)
        start = records.ctypes.data
        self.ctx[Ctx.TRACE] = start
        self.ctx[Ctx.TRACE_END] = start + records.nbytes
        self.ctx[Ctx.ENDS] = ends.ctypes.data
        self.ctx[Ctx.STEPS] = self.max_steps
        self.ctx[Ctx.ERROR : Ctx.ERROR_EXTENT + 1] = 0
        if self.compiled.run_blocks(self.ctx.ctypes.data, first, count) != 0:
            raise self._error()
        offsets = np.concatenate([[0], (ends - start) // 8])
        return records[: offsets[-1]], offsets

    def _error(self) -> Exception:
        fn, ctx = self.compiled.fn, self.ctx
        x, y, z = (int(v) for v in ctx[Ctx.CTAID_X : Ctx.CTAID_Z + 1])
        site = int(ctx[Ctx.ERROR_SITE])
        match Error(int(ctx[Ctx.ERROR])):
            case Error.OUT_OF_BOUNDS:
                return self._out_of_bounds((x, y, z), site)
            case Error.BARRIER | Error.BARRIER_MIXED as kind:
                return self._barrier((x, y, z), site, kind)
            case Error.WARP_MASK | Error.WARP_SOURCE as kind:
                return self._warp_apart((x, y, z), site, kind)
            case Error.STEPS:
                loc = self._end_of(site)
                who = f"warp {int(ctx[Ctx.WARP])}"
                return messages.endless_loop(fn.name, (x, y, z), who, self.max_steps, loc.file, loc.line)
        limit = len(trace_buffer().records)
        return LaunchRefused(
            f"kernel {fn.name}: one wave of blocks makes more than {limit} trace records; "
            "launch a smaller grid"
        )

    def _end_of(self, b: int) -> ir.Loc:
        """Return the source line of a block's terminator."""
        terminator = self.compiled.ssa.fn.blocks[b].terminator
        assert terminator is not None, "ir.verify refuses a block without a terminator"
        return terminator.loc

    def _out_of_bounds(self, block: messages.Dim3, site: int) -> Exception:
        fn, ctx, key = self.compiled.fn, self.ctx, self.compiled.key
        chk = self.compiled.code.checks[site]
        mask = int(ctx[Ctx.ERROR_MASK])
        lane = (mask & -mask).bit_length() - 1
        thread = messages.unlinear(int(ctx[Ctx.WARP]) * LANES + lane, key.block)
        index, extent = int(ctx[Ctx.ERROR_INDEX + lane]), int(ctx[Ctx.ERROR_EXTENT])
        place = chk.loc.file, chk.loc.line
        return messages.out_of_bounds(
            fn.name, chk.array, chk.dim, index, extent, block, thread, *place, key.strict_index
        )

    def _warp_apart(self, block: messages.Dim3, site: int, kind: Error) -> Exception:
        """Say which lane of a warp operation is not where its mask, or another lane, wants it."""
        instr = self.compiled.code.warp_ops[site]
        active = int(self.ctx[Ctx.ERROR_MASK])
        lanes = {k: int(self.ctx[Ctx.ERROR_INDEX + k]) for k in range(LANES) if active >> k & 1}
        check = messages.check_warp_masks if kind is Error.WARP_MASK else messages.check_shuffle_sources
        where = self.compiled.fn.name, messages.operation_name(instr), block, self.compiled.key.block
        try:
            check(*where, int(self.ctx[Ctx.WARP]), lanes, *instr.loc)
        except WarpDivergence as error:
            return error
        raise AssertionError(f"{instr} stopped a launch whose lanes agree")

    def _barrier(self, block: messages.Dim3, site: int, kind: Error) -> Exception:
        """Name the barrier, with the threads that wait there and those elsewhere that have not returned."""
        fn, ctx, n_warps = self.compiled.fn, self.ctx, self.compiled.code.n_warps
        frames = self._frames.view(np.int64).reshape(n_warps, -1)
        resumes = [int(f[Frame.RESUME]) for f in frames]
        live = [int(f[Frame.LIVE]).bit_count() for f in frames]
        waiting = [(r, n) for r, n in zip(resumes, live, strict=True) if r > 0]
        here = site + 1 if kind is Error.BARRIER else waiting[0][0]
        # A warp that is split at the barrier has counted its own threads in these two words.
        arrived = int(ctx[Ctx.ERROR_EXTENT]) + sum(n for r, n in waiting if r == here)
        missing = int(ctx[Ctx.ERROR_MASK]) + sum(n for r, n in waiting if r != here)
        loc = self._end_of(here - 1)
        return messages.barrier_divergence(fn.name, block, arrived, missing, loc.file, loc.line)

    @property
    def block_execs(self) -> np.ndarray:
        """Return int64 (blocks of the IR, 2): warps and lanes that ran each basic block."""
        warps = self.execs[:, 0] + self.execs[:, 1]
        return np.stack([warps, LANES * self.execs[:, 0] + self.execs[:, 2]], axis=1)

    def counters(self) -> Counters:
        """Return everything counted so far, but for `hierarchy`."""
        total = Counters.zero()
        self._count_into(lambda loc: total)
        return total

    def by_line(self) -> dict[ir.Loc, Counters]:
        """Return the same counters apart by source line; they add up to `counters()`, field by field."""
        lines: dict[ir.Loc, Counters] = {}
        self._count_into(lambda loc: lines.setdefault(loc, Counters.zero()))
        return lines

    def _count_into(self, at: Callable[[ir.Loc], Counters]) -> None:
        """Add every count to the counters that `at` gives for the line it belongs to."""
        execs = self.block_execs
        for b, loc, name, n in self.compiled.arithmetic:
            _add_arithmetic(at(loc).arithmetic, name, n, *execs[b].tolist())
        for number, (b, instr) in enumerate(self.compiled.sites):
            if instr.space != "local" or instr.array not in self.compiled.register_arrays:
                self._add_access(at(instr.loc), number, instr, b)
        for b, block in enumerate(self.compiled.fn.blocks):
            warps = int(execs[b, 0])
            for exchange in block.instrs:
                if isinstance(exchange, EXCHANGES):
                    at(exchange.loc).warp_operations += warps
            if isinstance(block.terminator, ir.Bar):
                at(block.terminator.loc).barriers += warps
        for n, chk in zip(self.wraps.tolist(), self.compiled.code.checks, strict=False):
            if n:
                at(chk.loc).wrapped_indices += n

    def _add_access(self, counters: Counters, number: int, instr: ir.Access, b: int) -> None:
        warps, lanes = (int(v) for v in self.block_execs[b])
        counts = getattr(counters, _counted_in(instr))
        counts.lanes += lanes
        counts.bytes += lanes * ir.BYTES[instr.type]
        counts.requests += warps
        self._add_traffic(counts, number, instr, int(self.execs[b, 0]))

    def _add_traffic(self, counts: SpaceCounts | SharedCounts, n: int, instr: ir.Access, full: int) -> None:
        """Add what the requests of memory instruction n moved; `full` of them ran in the full form."""
        sectors, taken, ideal = (int(v) for v in self.site_counts[n])
        if isinstance(counts, SpaceCounts):
            counts.sectors += sectors
            return
        known, known_ideal = self._static_wavefronts(instr)
        counts.wavefronts += taken + known * full
        counts.ideal_wavefronts += ideal + known_ideal * full

    def _static_wavefronts(self, instr: ir.Access) -> tuple[int, int]:
        """Return (wavefronts, ideal wavefronts) of a full warp; zeros where they were found at run time."""
        pattern = self.compiled.shapes.of(instr.addr).pattern
        if pattern is None:
            return 0, 0
        addresses, size = np.array(pattern, np.int64), ir.BYTES[instr.type]
        addresses -= addresses.min()
        if isinstance(instr, ir.Atom):
            taken = atomic_wavefronts(addresses, LANES_ALL, size)
        else:
            taken = wavefronts(addresses, LANES_ALL, size, isinstance(instr, ir.Ld))
        return int(taken), int(min(taken, ideal_wavefronts(LANES_ALL, size)))

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each index check that wrapped a negative index."""
        return tuple(
            f"{n} negative indices of {c.array!r} were wrapped once at {c.loc.file}:{c.loc.line} "
            "(numba.cuda does the same; --strict-index refuses)"
            for n, c in zip(self.wraps.tolist(), self.compiled.code.checks, strict=False)
            if n
        )


def _counted_in(instr: ir.Access) -> str:
    """Return the field of Counters that counts an instruction; shared memory has one for RED and ATOM."""
    match instr:
        case ir.Ld():
            kind = "load"
        case ir.St():
            kind = "store"
        case ir.Atom(space=space, dst=dst):
            kind = "red" if dst is None and space != "shared" else "atom"
    return f"{instr.space}_{kind}"


def _add_arithmetic(total: Arithmetic, name: str, n: int, warps: int, lanes: int) -> None:
    """Add n instructions of a class for each lane that ran them; those of the XU pipe, for each warp."""
    if name == "xu":
        total.xu_warps += n * warps
    else:
        setattr(total, name, getattr(total, name) + n * lanes)


def _aligned(nbytes: int) -> np.ndarray:
    """Return zeroed bytes at a 64-byte boundary."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def pack_parameters(fn: ir.Function, params: dict[str, int | float]) -> np.ndarray:
    """Return the parameter area: a 64-bit word for each of `parameter_words`; a float at its word's start."""
    words = parameter_words(fn)
    area = np.zeros(max(1, len(words)), np.uint64)
    types = {p.name: p.type for p in fn.params if p.ndim is None}
    for k, name in enumerate(words):
        kind = {"f32": np.float32, "f64": np.float64}.get(types.get(name, "s64"))
        if kind is not None:
            area[k : k + 1].view(kind)[0] = params[name]
        else:
            area[k] = np.uint64(int(params[name]) & 0xFFFFFFFFFFFFFFFF)
    return area
