"""One host thread's share of the compiled engine: what machine code works in, and what its errors mean.

What it models: nothing of a GPU. Each host thread runs whole blocks with a context, frames, shared memory and
a trace of its own; counts are sums, so they do not depend on how many threads there are. Checked by no
metric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dsl.codegen.values import parameter_words
from dsl.engine import copy_errors
from dsl.llvm.copies import group_words
from dsl.llvm.layout import Ctx, Error, Frame, Moved
from dsl.passes.shapes import LANES
from dsl.semantics import messages
from dsl.warpir import ir
from gpusim.errors import LaunchRefused, WarpDivergence
from gpusim.memory import GlobalMemory

if TYPE_CHECKING:
    from dsl.engine.run import Compiled

_MOST = (1 << 63) - 1
TRACE_RECORDS = 1 << 28
"""Records of a wave on one host thread; their pages (2 GiB) are committed only as far as they are written."""


class TraceBuffer:
    """Hold the records of one host thread; reused from wave to wave."""

    def __init__(self, records: int = TRACE_RECORDS) -> None:
        self._arena = GlobalMemory(8 * records)
        self.records = self._arena.view(0, (records,), np.uint64)


_buffers: list[TraceBuffer] = []


def trace_buffer(number: int) -> TraceBuffer:
    """Return the trace buffer of a host thread; the process keeps it for later launches."""
    while len(_buffers) <= number:
        _buffers.append(TraceBuffer())
    return _buffers[number]


class HostThread:
    """Run blocks on one host thread: `run` gives their trace; execs, site_counts and wraps count along.

    number: of the thread, from 0. params: the parameter area. shared_bytes: static and dynamic.
    """

    def __init__(
        self,
        number: int,
        compiled: Compiled,
        grid: messages.Dim3,
        params: np.ndarray,
        memory: GlobalMemory,
        shared_bytes: int,
        max_steps: int,
    ) -> None:
        self.compiled, self.max_steps, self.buffer = compiled, max_steps, trace_buffer(number)
        fn, code = compiled.fn, compiled.code
        self.used_records = 0
        self.execs = np.zeros((len(fn.blocks), 3), np.int64)
        self.site_counts = np.zeros((max(1, compiled.count_rows), 3), np.int64)
        self.wraps = np.zeros(max(1, len(code.checks)), np.int64)
        self.move_counts = np.zeros((max(1, len(compiled.moves)), len(Moved)), np.int64)
        self._shadow = _aligned(2 * shared_bytes + 64 if code.copies else 0)
        self._groups = np.zeros(group_words(code.n_warps) if code.copies else 0, np.int64)
        self.frames = _aligned(code.frame_bytes * code.n_warps)
        self._scratch, self._shared, self._params = _aligned(4 * 32 * 8), _aligned(shared_bytes + 64), params
        self.ctx = np.zeros(Ctx.WORDS, np.int64)
        pointers = {
            Ctx.SHARED: self._shared, Ctx.PARAMS: params, Ctx.FRAMES: self.frames, Ctx.SCRATCH: self._scratch,
            Ctx.EXECS: self.execs, Ctx.SITES: self.site_counts, Ctx.WRAPS: self.wraps,
            Ctx.MOVES: self.move_counts, Ctx.SHADOW: self._shadow, Ctx.GROUPS: self._groups,
        }  # fmt: skip
        for word, array in pointers.items():
            self.ctx[word] = array.ctypes.data
        self.ctx[Ctx.GLOBAL] = memory.base_pointer
        self.ctx[Ctx.NCTAID_X : Ctx.NCTAID_Z + 1] = grid
        self.ctx[Ctx.SHARED_BYTES] = 0 if compiled.key.counts_only else shared_bytes

    def run(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Run blocks first .. first + count - 1; return (records, offsets) as EngineRun.wave does.

        The records lie behind those of the runs before, until used_records is set back to 0. Raises
        OutOfBounds, BarrierDivergence, WarpDivergence, EndlessLoop, and LaunchRefused where the trace is
        full.
        """
        records = self.buffer.records
        ends = np.zeros(count, np.int64)
        start = records.ctypes.data + 8 * self.used_records
        self.ctx[Ctx.TRACE] = start
        self.ctx[Ctx.TRACE_END] = records.ctypes.data + records.nbytes
        self.ctx[Ctx.ENDS] = ends.ctypes.data
        self.ctx[Ctx.STEPS] = min(self.max_steps * ir.STEP_PARTS, _MOST)
        self.ctx[Ctx.ERROR : Ctx.ERROR_EXTENT + 1] = 0
        if self.compiled.run_blocks(self.ctx.ctypes.data, first, count) != 0:
            raise self._error()
        offsets = np.concatenate([[0], (ends - start) // 8])
        begin, self.used_records = self.used_records, self.used_records + int(offsets[-1])
        return records[begin : self.used_records], offsets

    def _error(self) -> Exception:
        fn, ctx = self.compiled.fn, self.ctx
        x, y, z = (int(v) for v in ctx[Ctx.CTAID_X : Ctx.CTAID_Z + 1])
        site = int(ctx[Ctx.ERROR_SITE])
        match Error(int(ctx[Ctx.ERROR])):
            case Error.OUT_OF_BOUNDS:
                return self._out_of_bounds((x, y, z), site)
            case Error.MISALIGNED:
                return self._misaligned((x, y, z), site)
            case Error.BARRIER | Error.BARRIER_MIXED as kind:
                return self._barrier((x, y, z), site, kind)
            case Error.WARP_MASK | Error.WARP_SOURCE as kind:
                return self._warp_apart((x, y, z), site, kind)
            case Error.WARP_PARTIAL:
                return self._lanes_missing((x, y, z), site)
            case Error.PENDING_COPY | Error.COPY_SIZE as kind:
                return copy_errors.of_copy(self.compiled, ctx, kind)
            case Error.ROW_MISALIGNED | Error.SOURCE_MISALIGNED | Error.TARGET_MISALIGNED as kind:
                return copy_errors.misaligned(self.compiled, ctx, kind)
            case Error.STEPS:
                loc = self._end_of(site)
                who = f"warp {int(ctx[Ctx.WARP])}"
                return messages.endless_loop(fn.name, (x, y, z), who, self.max_steps, loc.file, loc.line)
            case Error.TRACE_FULL:
                return self._trace_full((x, y, z), site - 1)

    def _trace_full(self, block: messages.Dim3, site: int) -> Exception:
        """Name the memory instruction that the trace has no room for, if it is not a barrier's mark (-1)."""
        fn, limit = self.compiled.fn, len(self.buffer.records)
        loc = self.compiled.sites[site][1].loc if site >= 0 else None
        where = f", block {block}, {loc.file}:{loc.line}" if loc is not None else ""
        return LaunchRefused(
            f"kernel {fn.name}{where}: the blocks that run together make more than {limit} requests; "
            "check that the loops around this line end, or let each block do less, as by a larger grid"
        )

    def stop(self) -> None:
        """Let the code that runs on another thread end at the next loop pass or block."""
        self.ctx[Ctx.STOP] = _MOST

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
        thread = messages.thread_of(int(ctx[Ctx.WARP]), lane, key.block)
        index, extent = int(ctx[Ctx.ERROR_INDEX + lane]), int(ctx[Ctx.ERROR_EXTENT])
        place = chk.loc.file, chk.loc.line
        dynamic = ir.is_dynamic(fn, chk.array)
        return messages.out_of_bounds(
            fn.name, chk.array, chk.dim, index, extent, block, thread, *place, key.strict_index, dynamic
        )

    def _misaligned(self, block: messages.Dim3, site: int) -> Exception:
        fn, ctx, (_, instr) = self.compiled.fn, self.ctx, self.compiled.sites[site]
        mask = int(ctx[Ctx.ERROR_MASK])
        lane = (mask & -mask).bit_length() - 1
        thread = messages.thread_of(int(ctx[Ctx.WARP]), lane, self.compiled.key.block)
        # The code knows parameters by their place; the array's base is the word of that name.
        words = dict(zip(parameter_words(fn), self._params.view(np.int64).tolist(), strict=False))
        start = messages.start_of(fn, words, instr)
        sizes, address = (ir.access_bytes(instr), ir.BYTES[instr.type]), int(ctx[Ctx.ERROR_INDEX + lane])
        return messages.misaligned(
            fn.name, instr.array, *sizes, address, start, block, thread, *instr.loc
        )

    def _warp_apart(self, block: messages.Dim3, site: int, kind: Error) -> Exception:
        """Say which lane of a warp operation is not where its mask, or another lane, wants it."""
        instr = self.compiled.code.warp_ops[site]
        active = int(self.ctx[Ctx.ERROR_MASK])
        lanes = {k: int(self.ctx[Ctx.ERROR_INDEX + k]) for k in range(LANES) if active >> k & 1}
        where = self.compiled.fn.name, messages.operation_name(instr), block, self.compiled.key.block
        warp = int(self.ctx[Ctx.WARP])
        try:
            if kind is Error.WARP_MASK:
                live = int(
                    self.frames.view(np.int64).reshape(self.compiled.code.n_warps, -1)[warp, Frame.LIVE]
                )
                messages.check_warp_masks(*where, warp, lanes, live, *instr.loc)
            messages.check_shuffle_sources(*where, warp, lanes, *instr.loc)
        except WarpDivergence as error:
            return error
        raise AssertionError(f"{instr} stopped a launch whose lanes agree")

    def _lanes_missing(self, block: messages.Dim3, site: int) -> Exception:
        """Say which lanes did not come to an instruction that needs all 32."""
        instr, key = self.compiled.code.collectives[site], self.compiled.key
        active, warp = int(self.ctx[Ctx.ERROR_MASK]), int(self.ctx[Ctx.WARP])
        name = messages.collective_name(instr)
        return messages.lanes_missing(
            self.compiled.fn.name, name, block, key.block, warp, active, *instr.loc
        )

    def _barrier(self, block: messages.Dim3, site: int, kind: Error) -> Exception:
        """Name the barrier, with the threads that wait there and those elsewhere that have not returned."""
        fn, ctx, n_warps = self.compiled.fn, self.ctx, self.compiled.code.n_warps
        frames = self.frames.view(np.int64).reshape(n_warps, -1)
        resumes = [int(f[Frame.RESUME]) for f in frames]
        live = [int(f[Frame.LIVE]).bit_count() for f in frames]
        waiting = [(r, n) for r, n in zip(resumes, live, strict=True) if r > 0]
        here = site + 1 if kind is Error.BARRIER else waiting[0][0]
        # A warp that is split at the barrier has counted its own threads in these two words.
        arrived = int(ctx[Ctx.ERROR_EXTENT]) + sum(n for r, n in waiting if r == here)
        missing = int(ctx[Ctx.ERROR_MASK]) + sum(n for r, n in waiting if r != here)
        missing += int(ctx[Ctx.PAST_END])
        loc = self._end_of(here - 1)
        return messages.barrier_divergence(fn.name, block, arrived, missing, loc.file, loc.line)


def _aligned(nbytes: int) -> np.ndarray:
    """Return zeroed bytes at a 64-byte boundary."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]
