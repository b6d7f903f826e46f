"""A launch from `kernel[grid, block](*args)` to a `Launch` with every counter.

What it models: what the driver and the hardware do around a kernel: arguments are copied to the device and
back, blocks run in waves, a wave's traces go through the caches of the SMs it runs on. What it leaves out:
time. Checked by what it counts; see dsl/engine/run.py and gpusim/hierarchy.py.

Engines: "compiled" (dsl/codegen/kernel.py), "ir" (dsl/interpreter/run.py), "oracle" (the Python source, a
thread at a time). "auto" is the compiled one, and the oracle for a kernel that it does not take
(dsl/host/by_source.py).
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dsl.host.by_source import NOTE, SourceLaunch, copy_back, run_source
from dsl.host.device import Device, Placed, place_arguments, private_copies, session_device
from dsl.host.dispatcher import Dispatcher, dimensions
from dsl.host.overloads import registers_of
from dsl.passes.as_compiled import IssueCount
from dsl.passes.stretches import LaunchStretches
from dsl.semantics import messages
from dsl.types import AnyType, arg_type, leaves
from dsl.types.signature import cast_scalars
from dsl.warpir import ir
from gpusim import session
from gpusim.arch import Arch
from gpusim.block_lengths import BlockTally
from gpusim.counters import AsCompiled, Counters, Hierarchy
from gpusim.errors import BadOption, KernelMistake, LaunchRefused, UnsupportedFeature, UserError
from gpusim.launch import Launch, LineAccess, Registers
from gpusim.memory import VirtualArray
from gpusim.observer import Place
from gpusim.occupancy import check_launch, occupancy, opt_in_note
from gpusim.scheduler import shuffled, waves
from gpusim.table import counted
from gpusim.work import Work

ENGINES = ("auto", "compiled", "ir", "oracle")
LOCAL_BYTES_LIMIT = 512 * 1024
"""Local memory a thread can have: 512 KB, of every compute capability so far (CUDA programming guide)."""
Progress = Callable[[int, int], None]
_Wave = Callable[[int, int, Callable[[int], None] | None], tuple[np.ndarray, np.ndarray]]
"""(first block, count, call after so many blocks) -> (records, offsets) of one wave, as
dsl.engine.run.EngineRun.wave.
"""


@dataclass
class _Counted:
    """Hold what an engine gave: counters, sentences for the reader, and counters apart by (file, line)."""

    counters: Counters
    notes: tuple[str, ...] = ()
    lines: dict[tuple[str, int], Counters] = field(default_factory=dict)
    accesses: Sequence[LineAccess] = ()
    as_compiled: AsCompiled | None = None
    work: Work | None = None


def launch_in_session(
    kernel: Dispatcher, grid: Any, block: Any, args: tuple[Any, ...], shared_bytes: int
) -> None:
    """Launch a kernel on the current session's GPU, through the kernel's extensions; keep a wanted report."""
    now = session.current()
    wanted = now.wants(kernel.__name__)
    args, after = kernel.extended(args)
    try:
        result = launch(
            kernel, grid, block, args, session_device(), shared_bytes=shared_bytes, registers=now.registers,
            counts_only=now.counts_only, engine=now.engine, max_steps=now.max_steps,
            strict_index=now.strict_index, progress=now.progress,
        )  # fmt: skip
    except UserError:
        now.failed += wanted
        raise
    for call in after:
        call()
    if wanted:
        now.record(result)


# ------------------------------------------------------------------------------------------ checks


def _check_arguments(kernel: Dispatcher, args: tuple[Any, ...], counts_only: bool) -> None:
    code = kernel.py_func.__code__
    names = code.co_varnames[: code.co_argcount]
    who = f"kernel {kernel.__name__}"
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise UnsupportedFeature(f"{who}: *args and **kwargs are not in the kernel language; name the "
                                 "arguments")
    if len(args) != len(names):
        wanted = counted(len(names), "argument") + (f" ({', '.join(names)})" if names else "")
        raise LaunchRefused(f"{who} takes {wanted}, {len(args)} {'was' if len(args) == 1 else 'were'} given")
    for name, value in (leaf for pair in zip(names, args, strict=True) for leaf in leaves(pair[1], pair[0])):
        if isinstance(value, VirtualArray) and not counts_only:
            raise LaunchRefused(f"argument {name} of {who} has no data; only --counts-only can run it")
        _check_array(f"argument {name} of {who}", value)


def _check_array(what: str, value: Any) -> None:
    """Refuse arrays that the device cannot hold as they are."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and not value.dtype.fields:
        raise LaunchRefused(f"{what} is an array without dimensions; pass a scalar, or an array of shape "
                            "(1,)")
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        native = value.dtype.newbyteorder("=")
        raise LaunchRefused(f"{what} has bytes in the other order; pass it as .astype({str(native)!r})")


def _types_of(kernel: Dispatcher, args: tuple[Any, ...]) -> tuple[AnyType, ...]:
    """Return the arguments' types; say which argument has none."""
    names = kernel.py_func.__code__.co_varnames
    whose = [f"kernel {kernel.__name__}, argument {name}" for name in names[: len(args)]]
    return tuple(map(_type_of, whose, args))


def _type_of(whose: str, value: Any) -> AnyType:
    try:
        return arg_type(value)
    except UnsupportedFeature as error:
        raise type(error)(f"{whose}: {error}") from error


def _check_function(fn: ir.Function, args: tuple[Any, ...]) -> None:
    """Refuse a kernel that writes to a read-only array, and one whose threads have too much local memory."""
    written = {
        instr.array
        for block in fn.blocks
        for instr in block.instrs
        if isinstance(instr, (ir.St, ir.Atom)) and instr.space == "global"
    }
    for param, (_, value) in zip(fn.params, leaves(args), strict=True):
        if isinstance(value, np.ndarray) and not value.flags.writeable and param.name in written:
            raise LaunchRefused(
                f"kernel {fn.name} writes to {param.name}, which is a read-only array; pass a copy of it"
            )
    if fn.local_bytes > LOCAL_BYTES_LIMIT:
        raise LaunchRefused(
            f"kernel {fn.name} has {fn.local_bytes:,} bytes of local arrays a thread, the limit is "
            f"{LOCAL_BYTES_LIMIT:,}; make them smaller, or use global memory"
        )


# ------------------------------------------------------------------------------------------ a launch


def launch(
    kernel: Dispatcher,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    args: tuple[Any, ...],
    device: Device,
    *,
    shared_bytes: int = 0,
    registers: Registers | None = None,
    counts_only: bool = False,
    engine: str = "auto",
    max_steps: int | None = None,
    strict_index: bool = False,
    progress: Progress | None = None,
) -> Launch:
    """Run one launch and return what it counted; arrays are changed in place, as by numba.cuda.

    shared_bytes: dynamic shared memory. registers: a thread's (given or recorded); None: the kernel's
    max_registers, else an estimate. counts_only: no float work and no data, the same counts. max_steps: steps
    of a warp in loops before it counts as endless (None: dsl.engine.run.MAX_STEPS). progress: called with
    (blocks done, blocks in all). Raises the UserErrors of a mistaken launch or kernel; arrays are unchanged
    then.
    """
    if engine not in ENGINES:
        raise BadOption(f"engine {engine!r} is unknown; there are {', '.join(ENGINES)}")
    if counts_only and engine == "oracle":
        raise BadOption("--counts-only needs an engine that counts without values, and the Python oracle "
                        "computes them; leave --engine out, or --counts-only")
    name = kernel.__name__
    size, shape = dimensions(grid, "griddim", name), dimensions(block, "blockdim", name)
    _check_arguments(kernel, args, counts_only)
    args = cast_scalars(kernel.__name__, kernel.options.get("signature"), args)
    if max_steps is None:
        from dsl.engine.run import MAX_STEPS

        max_steps = MAX_STEPS
    try:
        arg_types = _types_of(kernel, args)
        fn = kernel.function(arg_types)
    except UnsupportedFeature as refusal:
        if engine not in ("auto", "oracle") or counts_only or isinstance(refusal, KernelMistake):
            raise
        source = SourceLaunch(
            kernel, size, shape, args, device, shared_bytes, registers, max_steps, strict_index
        )
        return run_source(source, refusal)
    _check_function(fn, args)
    _check_needs(fn, device.arch)
    buffers = _buffers(fn)
    check_launch(device.arch, size, shape, fn.static_shared_bytes, shared_bytes, 1, buffers, name)
    mark = device.memory.mark()
    try:
        placed = place_arguments(fn, args, device.memory, with_data=not counts_only)
        placed.params.update(_dynamic_extents(fn, shared_bytes))
        _check_views(fn, placed.params)
        run = _Run(
            kernel, fn, args, arg_types, size, shape, placed, device,
            shared_bytes, registers, counts_only, max_steps, strict_index,
        )  # fmt: skip
        result = run.by_engine("compiled" if engine == "auto" else engine, progress)
        for host, view in placed.copies:
            if engine != "oracle":
                host[...] = view
    finally:
        device.memory.release(mark)
    return result


def _check_needs(fn: ir.Function, arch: Arch) -> None:
    """Refuse a kernel with an instruction that the GPU's compute capability does not have."""
    for n in fn.needs:
        if arch.capability < n.capability:
            raise messages.capability_missing(fn.name, n.instruction, n.capability, arch, *n.loc)


def _check_views(fn: ir.Function, params: Mapping[str, int | float]) -> None:
    """Refuse an array whose rows are no whole number of what the kernel takes them as."""
    for m in fn.multiples:
        row = int(params[m.extent])
        if row * m.element_bytes % m.of:
            raise messages.no_whole_view(fn.name, m.array, row, m.element_bytes, m.view, m.of, *m.loc)


def _buffers(fn: ir.Function) -> tuple[tuple[str, int], ...]:
    """Return the name and bytes of each static shared array."""
    return tuple((a.name, a.bytes) for a in fn.shared if a.bytes)


def _dynamic_extents(fn: ir.Function, shared_bytes: int) -> dict[str, int]:
    return {f"{a.name}.shape.0": shared_bytes // a.element_bytes for a in fn.shared if a.bytes == 0}


@dataclass
class _Run:
    """Hold what the engines need to run one launch."""

    kernel: Dispatcher
    fn: ir.Function
    args: tuple[Any, ...]
    arg_types: tuple[AnyType, ...]
    grid: messages.Dim3
    block: messages.Dim3
    placed: Placed
    device: Device
    shared_bytes: int
    registers: Registers | None
    counts_only: bool
    max_steps: int
    strict_index: bool

    @cached_property
    def compiled(self) -> Any:
        """Return the machine code; its analyses serve every engine."""
        from dsl.engine.run import Key

        key = Key(self.block, self.counts_only, self.strict_index, self.placed.nonnegative)
        return self.kernel.compiled(self.arg_types, key)

    @cached_property
    def taken(self) -> Registers:
        """Return the registers of a thread and where the number comes from."""
        if self.registers is not None:
            return self.registers
        limit = self.kernel.options.get("max_registers")
        return registers_of(self.compiled.registers, limit, self.device.arch)

    @cached_property
    def occupancy(self) -> Any:
        """Return the launch's occupancy; raise LaunchRefused where not one block fits an SM."""
        threads = self.block[0] * self.block[1] * self.block[2]
        arch, static, dynamic = self.device.arch, self.fn.static_shared_bytes, self.shared_bytes
        registers, buffers = self.taken.per_thread, _buffers(self.fn)
        check_launch(
            arch, self.grid, self.block, static, dynamic, registers, buffers, self.fn.name, self.taken.source
        )
        return occupancy(arch, threads, registers, static, dynamic)

    def by_engine(self, engine: str, progress: Progress | None) -> Launch:
        """Run the launch with one engine."""
        runs = {"compiled": self.run_compiled, "ir": self.run_ir, "oracle": self.run_oracle}
        counted = runs[engine](progress)
        return Launch(
            kernel=self.fn.name,
            grid=self.grid,
            block=self.block,
            arch=self.device.arch,
            registers=self.taken,
            static_shared_bytes=self.fn.static_shared_bytes,
            dynamic_shared_bytes=self.shared_bytes,
            shared_buffers=_buffers(self.fn),
            occupancy=self.occupancy,
            counters=counted.counters,
            lines=counted.lines,
            accesses=counted.accesses,
            as_compiled=counted.as_compiled,
            work=counted.work,
            l2=self.device.l2,
            engine=engine,
            counts_only=self.counts_only,
            quantum_records=self.device.quantum_records,
            notes=(*counted.notes, *self._opt_in()),
        )

    def _opt_in(self) -> tuple[str, ...]:
        note = opt_in_note(self.device.arch, self.fn.static_shared_bytes, self.shared_bytes)
        return (note,) if note else ()

    def _waves(self) -> Iterator[tuple[int, int, np.ndarray]]:
        blocks = messages.linear_count(self.grid)
        return waves(blocks, self.occupancy.blocks_per_sm, self.device.arch)

    def _order(self, first: int, count: int) -> np.ndarray:
        """Return the order in which the blocks of a wave run, as numbers from its first one."""
        seed = self.device.atomic_order
        return np.arange(count) if seed is None else shuffled(seed, first, count)

    def run_compiled(self, progress: Progress | None) -> _Counted:
        """Run machine code (dsl/engine/run.py)."""
        from dsl.engine.lane_steps import LineAccesses
        from dsl.engine.run import EngineRun

        shared_bytes = self.fn.static_shared_bytes + self.shared_bytes
        params, memory = self.placed.params, self.device.memory
        run = EngineRun(
            self.compiled, self.grid, params, memory, shared_bytes, self.max_steps, self.device.threads,
            self.device.atomic_order,
        )  # fmt: skip
        blocks = BlockTally(self.compiled.orders_blocks)
        hierarchy = self._replayed(run.wave, progress, blocks)
        tally = run.tally()
        counters = _with_hierarchy(tally.counters(), hierarchy)
        lines = {(loc.file, loc.line): c for loc, c in tally.by_line().items()}
        work = self._work(tally.block_execs, blocks)
        accesses = LineAccesses(tally, params)
        return _Counted(counters, tally.notes(), lines, accesses, tally.as_compiled(), work)

    def run_ir(self, progress: Progress | None) -> _Counted:
        """Run the numpy interpreter (dsl/interpreter/run.py)."""
        from dsl.interpreter import run as interpreter

        total, issued = Counters.zero(), IssueCount(self.compiled.issues)
        wraps: messages.Wraps = Counter()
        execs = np.zeros((len(self.fn.blocks), 2), np.int64)
        tally = BlockTally(self.compiled.orders_blocks)

        def wave(
            first: int, count: int, advance: Callable[[int], None] | None
        ) -> tuple[np.ndarray, np.ndarray]:
            nonlocal total, execs
            order = self._order(first, count)
            blocks = [first + int(b) for b in order]
            run = interpreter.run(
                self.fn, self.grid, self.block, self.placed.params, self.device.memory, self.shared_bytes,
                blocks, self.max_steps, self.strict_index, self.compiled.register_arrays, issued,
            )  # fmt: skip
            total, execs = total + run.counters, execs + run.block_execs
            wraps.update(run.wraps)
            if advance is not None:
                advance(count)
            traces = [run.trace[k] for k in np.argsort(order)]
            offsets = np.cumsum([0, *(len(t) for t in traces)])
            return np.concatenate([np.zeros(0, np.uint64), *traces]), offsets

        hierarchy = self._replayed(wave, progress, tally)
        notes = messages.wrap_notes(wraps)
        return _Counted(_with_hierarchy(total, hierarchy), notes, as_compiled=issued.result(),
                        work=self._work(execs, tally))

    def run_oracle(self, progress: Progress | None) -> _Counted:
        """Run the Python source a thread at a time (dsl/oracle/run.py), on copies; it has no progress to
        tell.
        """
        from dsl.oracle import run as oracle

        copies = private_copies(self.args)
        blocks = [first + int(b) for first, count, _ in self._waves() for b in self._order(first, count)]
        run = oracle.run(
            self.kernel.py_func, self.grid, self.block, copies, self.shared_bytes, self.max_steps,
            self.strict_index, blocks, register_arrays=self.compiled.register_arrays,
            debug=bool(self.kernel.options.get("debug")),
        )  # fmt: skip
        copy_back(self.args, copies)
        return _Counted(oracle.as_counters(run), (NOTE, *messages.wrap_notes(run.wraps)))

    def _places(self) -> list[Place]:
        """Return where the array arguments lie."""
        values, params = [value for _, value in leaves(self.args)], self.placed.params
        arrays = [(p.name, a) for p, a in zip(self.fn.params, values, strict=True) if p.ndim is not None]
        return [
            Place(name, int(params[f"{name}.base"]), a.shape, a.dtype.itemsize,
                  tuple(int(params[f"{name}.stride.{k}"]) for k in range(len(a.shape))))
            for name, a in arrays
        ]  # fmt: skip

    def _work(self, execs: np.ndarray, blocks: BlockTally) -> Work:
        """Return what the time estimate needs; execs: warps and lanes that ran each basic block."""
        made = LaunchStretches(lambda: self.compiled.plans, execs)
        lengths = blocks.lengths(self.device.arch, self.occupancy.blocks_per_sm)
        return Work(made, lengths, blocks.lines, blocks.hot_line_sectors)

    def _replayed(self, wave: _Wave, progress: Progress | None, blocks: BlockTally) -> Hierarchy:
        """Run the grid wave by wave and replay each wave's trace; return the hierarchy's counters."""
        caches = self.device.hierarchy
        caches.begin(self.occupancy.l1_bytes, self.kernel)
        if caches.observer is not None:
            caches.observer.begin(self.compiled.named_sites, self._places())
        advance = _advance(progress, messages.linear_count(self.grid))
        for first, count, sm in self._waves():
            records, offsets = wave(first, count, advance)
            blocks.wave(records, offsets)
            caches.replay(records, offsets, sm, self.device.quantum_records)
        return caches.end()


def _advance(progress: Progress | None, blocks: int) -> Callable[[int], None] | None:
    """Return a function that adds to the blocks done and shows them, or None where nothing is shown."""
    if progress is None:
        return None
    progress(0, blocks)
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        progress(done, blocks)

    return advance


def _with_hierarchy(counters: Counters, hierarchy: Hierarchy) -> Counters:
    counters.hierarchy = hierarchy
    return counters

