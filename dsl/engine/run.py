"""The compiled engine: make a kernel's machine code once, run blocks with it, and add up what it counted.

What it models: see dsl/codegen/kernel.py. Machine code is kept in memory and on disk under a hash of its
text, so a change anywhere in the way from source to text makes new code. What it leaves out: which block runs
where (gpusim/scheduler.py) and the caches. Counts of arithmetic are executions of a basic block times what
the block holds (dsl/warpir/machine.py). Judged by dsl/interpreter/run.py.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from dsl.codegen.kernel import CodeOptions, WarpCode
from dsl.codegen.values import parameter_words
from dsl.engine.host_thread import HostThread
from dsl.engine.tally import Tally
from dsl.llvm import runtime
from dsl.llvm import text as machine
from dsl.passes.as_compiled import shared_issues, wide_rows
from dsl.passes.divisions import range_divisions
from dsl.passes.intervals import Intervals, Limits
from dsl.passes.needs import counting_slice, estimate_registers, register_arrays_of
from dsl.passes.shapes import Shapes
from dsl.passes.ssa import Ssa, build
from dsl.passes.stretches import Plan, plans
from dsl.semantics import messages
from dsl.semantics.lane_ops import DTYPES
from dsl.warpir import ir
from dsl.warpir.machine import INTEGER_DIVISION, machine_counts
from gpusim.atomics import collide_entry
from gpusim.coalescer import (
    coalesce_entry,
    coalesce_four_words_entry,
    coalesce_two_words_entry,
    copy_sectors_entry,
)
from gpusim.constant import different_addresses_entry
from gpusim.errors import LaunchRefused, UserError
from gpusim.memory import GlobalMemory
from gpusim.observer import Site
from gpusim.runtime import cache_home
from gpusim.scheduler import shuffled
from gpusim.shared import (
    atomic_wavefronts_entry,
    copy_wavefronts_entry,
    matrix_wavefronts_entry,
    wavefronts_entry,
)
from gpusim.trace import MAX_SITES

MAX_STEPS = 10_000_000
"""Steps of a warp before it counts as endless, a pass through the header of a while loop or 1,000 through
those of `for` loops (ir.STEP_PARTS); --max-steps changes it.
"""
_SHARES = 4
"""Pieces of a wave for each host thread; causal blocks differ in length, so the shares are not fixed."""
_STEPS_SHOWN = 64
"""Pieces of a wave where progress is shown."""
DIGEST_BYTES = hashlib.sha256().digest_size
CODE_LEVEL = 1
"""Of LLVM's code generator. At 0 it takes a third of the time for longer code with the same bits and counts;
tests of many kernels set it."""
Advance = Callable[[int], None]
_Trace = tuple[np.ndarray, np.ndarray]
_ENTRIES = {
    runtime.COALESCE: coalesce_entry,
    runtime.COALESCE_WORDS[2]: coalesce_two_words_entry,
    runtime.COALESCE_WORDS[4]: coalesce_four_words_entry,
    runtime.DIFFERENT_ADDRESSES: different_addresses_entry,
    runtime.COLLIDE: collide_entry,
    runtime.WAVEFRONTS: wavefronts_entry,
    runtime.ATOMIC_WAVEFRONTS: atomic_wavefronts_entry,
    runtime.MATRIX_WAVEFRONTS: matrix_wavefronts_entry,
    runtime.COPY_SECTORS: copy_sectors_entry,
    runtime.COPY_WAVEFRONTS: copy_wavefronts_entry,
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
        self.issues = shared_issues(self.ssa)
        self.wide = wide_rows(self.ssa, self.issues)
        options = CodeOptions(
            key.block, key.counts_only, key.strict_index, self.register_arrays, needed, self.wide)
        self.code = WarpCode(self.ssa, self.shapes, intervals, options)
        instrs = ((b, i) for b, block in enumerate(self.ssa.fn.blocks) for i in block.instrs)
        everything = list(instrs)
        self.sites = [(b, i) for b, i in everything if isinstance(i, ir.Access)]
        self.moves = [(b, i) for b, i in everything if isinstance(i, ir.Move)]
        if (count := len(self.sites) + len(self.moves)) > MAX_SITES:
            many = f"kernel {fn.name} has {count} memory instructions"
            raise LaunchRefused(f"{many}, the limit is {MAX_SITES}; split it")
        self.text = self.code.module()

    @property
    def count_rows(self) -> int:
        """Return the rows of counts: one a memory instruction, then those of merged instructions."""
        return len(self.sites) + sum(map(len, self.wide.values()))

    @property
    def named_sites(self) -> list[Site]:
        """Return what the access sites of trace records are, by their numbers."""
        return [Site(i.array, i.loc.file, i.loc.line) for _, i in (*self.sites, *self.moves)]

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """Return the stretches of the kernel, for the time estimate."""
        return plans(self.ssa, self.register_arrays)

    @cached_property
    def orders_blocks(self) -> bool:
        """Tell whether blocks have to run one after another: they do atomics on global memory."""
        return any(isinstance(i, ir.Atom) and i.space == "global" for _, i in self.sites)

    @cached_property
    def arithmetic(self) -> list[tuple[int, ir.Loc, str, int]]:
        """List what basic blocks hold: (block, line, class of dsl/warpir/machine.py, instructions of it)."""
        held: dict[tuple[int, ir.Loc, str], int] = defaultdict(int)
        for b, block in enumerate(self.fn.blocks):
            for instr in block.instrs:
                for name, n in machine_counts(instr).items():
                    held[b, instr.loc, name] += n
        for b, loc in range_divisions(self.ssa):
            held[b, loc, "xu"] += INTEGER_DIVISION["xu"]
        return [(*key, n) for key, n in held.items()]

    @cached_property
    def run_blocks(self) -> Any:
        """Return the entry, (context, first block, count) -> status; the code runs without the GIL."""
        for name, entry in _ENTRIES.items():
            if name in self.code.text.declared:
                llvm.add_symbol(name, entry.address)
        self._machine = machine.link(object_code(self.text, self.key.counts_only))
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        return kind(self._machine.address("run_blocks"))


def object_code(text: str, counts_only: bool) -> bytes:
    """Return the object code of a module, from the disk cache where it has it whole."""
    cpu = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    who = f"{version('llvmlite')} {cpu} {counts_only} {CODE_LEVEL} {inspect.getsource(machine)}\n"
    name = hashlib.sha256((who + text).encode()).hexdigest()[:32]
    file = cache_home() / "kernels" / f"{name}.o"
    kept = _kept(file)
    if kept is not None:
        return kept
    obj = machine.to_object(text, counts_only, CODE_LEVEL)
    _keep(file, obj)
    return obj


def _kept(file: Path) -> bytes | None:
    """Return what `_keep` wrote, None where there is no such file or its digest says that it is damaged."""
    try:
        digest, obj = (data := file.read_bytes())[:DIGEST_BYTES], data[DIGEST_BYTES:]
    except OSError:
        return None
    if hashlib.sha256(obj).digest() != digest:
        return None
    with suppress(OSError):
        os.utime(file)
    return obj


def _keep(file: Path, obj: bytes) -> None:
    """Write a cache file, digest first, whole or not at all; one that cannot be written is no mistake."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(hashlib.sha256(obj).digest() + obj)
        os.replace(temporary, file)
    except OSError:
        pass


class EngineRun:
    """Run the blocks of one launch: `wave` gives the trace of some blocks, `counters` what was counted.

    threads: host threads. A kernel with atomics on global memory gets one, so that they take place in the
    order of blocks, or in the order of a wave's blocks that the seed atomic_order gives.
    """

    def __init__(
        self,
        compiled: Compiled,
        grid: messages.Dim3,
        params: dict[str, int | float],
        memory: GlobalMemory,
        shared_bytes: int,
        max_steps: int = MAX_STEPS,
        threads: int = 1,
        atomic_order: int | None = None,
    ) -> None:
        self.compiled = compiled
        self._order = atomic_order if compiled.orders_blocks else None
        area = pack_parameters(compiled.fn, params)
        threads = 1 if compiled.orders_blocks else min(threads, messages.linear_count(grid))
        self._threads = [
            HostThread(n, compiled, grid, area, memory, shared_bytes, max_steps) for n in range(threads)
        ]
        self._pool = ThreadPoolExecutor(threads)  # never this thread, which has to hear Ctrl-C

    def wave(self, first: int, count: int, advance: Advance | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Run blocks first .. first + count - 1.

        Return (records, offsets): block k has records[offsets[k]:offsets[k + 1]]. The records are a view that
        the next call overwrites. advance: called with the number of blocks each time some are done. Raises
        what HostThread.run raises, for the lowest block in error.
        """
        for thread in self._threads:
            thread.used_records = 0
        if self._order is not None:
            order = shuffled(self._order, first, count)
            pieces = [(first + int(b), 1) for b in order]
            found = self._run_pieces(pieces, advance or _ignored)
            return _joined([found[k] for k in np.argsort(order)])
        if len(self._threads) == 1 and advance is None:
            return self._run_pieces([(first, count)], _ignored)[0]
        shares = min(count, max(_SHARES * len(self._threads), _STEPS_SHOWN if advance else 0))
        bounds = np.linspace(0, count, shares + 1).astype(np.int64).tolist()
        pieces = [(first + a, b - a) for a, b in pairwise(bounds)]
        return _joined(self._run_pieces(pieces, advance or _ignored))

    def _run_pieces(self, pieces: list[tuple[int, int]], advance: Advance) -> list[_Trace]:
        """Run pieces of a wave on all host threads, each taking the next when it is free; in their order."""
        assert self.compiled.run_blocks, "compiled here, before the threads would each do so"
        waiting = iter(enumerate(pieces))
        taking = threading.Lock()
        found: dict[int, _Trace] = {}
        errors: dict[int, BaseException] = {}

        def work(thread: HostThread) -> None:
            while not errors:
                with taking:
                    number, piece = next(waiting, (-1, (0, 0)))
                if number < 0:
                    return
                try:
                    found[number] = thread.run(*piece)
                except UserError as error:
                    errors[number] = error
                    return
                with taking:
                    advance(piece[1])

        working = [self._pool.submit(work, thread) for thread in self._threads]
        try:
            for done in working:
                done.result()
        except BaseException as error:  # Ctrl-C reaches this thread alone
            errors[-1] = error
            for thread in self._threads:
                thread.stop()
            wait(working)
        if errors:
            raise errors[min(errors)]
        return [found[n] for n in range(len(pieces))]

    def tally(self) -> Tally:
        """Return what all host threads have counted so far."""
        return Tally(
            self.compiled,
            np.sum([t.execs for t in self._threads], axis=0),
            np.sum([t.site_counts for t in self._threads], axis=0),
            np.sum([t.wraps for t in self._threads], axis=0),
            np.sum([t.move_counts for t in self._threads], axis=0),
        )


def _ignored(blocks: int) -> None:
    """Do nothing with the number of blocks that are done."""


def _joined(found: list[_Trace]) -> _Trace:
    """Return the traces of pieces of a wave as one."""
    starts = np.cumsum([0, *(len(records) for records, _ in found)])
    offsets = [o[:-1] + start for (_, o), start in zip(found, starts, strict=False)]
    return np.concatenate([r for r, _ in found]), np.concatenate([*offsets, starts[-1:]])


def pack_parameters(fn: ir.Function, params: dict[str, int | float]) -> np.ndarray:
    """Return the parameter area: a 64-bit word for each of `parameter_words`; a float at its word's start."""
    words = parameter_words(fn)
    area = np.zeros(max(1, len(words)), np.uint64)
    types = {p.name: p.type for p in fn.params if p.ndim is None}
    for k, name in enumerate(words):
        type_ = types.get(name, "s64")
        if type_ in ir.FLOATS:
            kind = DTYPES[type_]
            area[k : k + 1].view(kind)[0] = params[name]
        else:
            area[k] = np.uint64(int(params[name]) & 0xFFFFFFFFFFFFFFFF)
    return area
