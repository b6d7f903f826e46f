"""The numpy interpreter of WarpIR: slow, obviously right, and the judge of the machine code.

What it models: blocks one after another, the warps of a block one after another from barrier to barrier
(warp 0 first), 32 lanes under a mask inside a warp. Every request gives the trace records of
gpusim/trace.py and adds to gpusim/counters.py. What it leaves out: caches (`counters.hierarchy` stays 0),
time, and lanes that are off: their values are never looked at. Which ncu metric checks it: the requests,
sectors and wavefronts named in dsl/semantics/request_rules.py.

Sites number the memory instructions (Ld, St, Atom of any space) in program order from 0. A barrier is
passed when every live thread of the block waits at the same Bar; one that has got to the end of the kernel
meanwhile has gone past it, one that has returned before has not. A front end must put a Ret where a thread
returns: a lane that has yet to run a later block that only returns is live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsl.interpreter import exchange, tensor
from dsl.interpreter import memory as warp_memory
from dsl.interpreter import moves as warp_moves
from dsl.interpreter.warp import COMPUTE, Warp, make_warps, special_registers
from dsl.passes.as_compiled import IssueCount
from dsl.passes.divisions import range_divisions
from dsl.passes.ssa import build
from dsl.semantics import lane_ops, messages, request_rules
from dsl.semantics.copies import Copies
from dsl.semantics.floats import Array
from dsl.semantics.messages import LANES, Dim3, Wraps, dim3, linear_count, thread_of, unlinear
from dsl.warpir import ir
from dsl.warpir.machine import INTEGER_DIVISION, block_counts, count_mma
from gpusim.counters import ConstantCounts, Counters, SharedCounts, SpaceCounts
from gpusim.memory import LOCAL_BASE, GlobalMemory
from gpusim.trace import Kind, pack

"""Byte address of local memory, above every global address (gpusim.memory.CAPACITY_BYTES)."""

MemoryInstr = ir.Ld | ir.St | ir.Atom
PAST_L1 = ("cg", "cv")
"""Cache hints of loads that L1 does not serve."""


@dataclass
class IrRun:
    """Hold what a run gave: traces (uint64, one a block), counters without `hierarchy`, and executions.

    block_execs: int64, shape (blocks of the IR, 2): warps and lanes that ran it. wraps: negative indices.
    """

    trace: list[np.ndarray]
    counters: Counters
    block_execs: np.ndarray
    wraps: Wraps


@dataclass(frozen=True)
class _Launch:
    """Hold what all blocks of a launch share."""

    fn: ir.Function
    grid: Dim3
    block: Dim3
    params: Mapping[str, Any]
    memory: Array
    constants: Array
    shared_bytes: int
    max_steps: int | None
    strict_index: bool
    in_registers: frozenset[str]
    sites: Mapping[int, int]
    """Site of each memory instruction, by the identity of the object."""
    counters: Counters
    block_execs: np.ndarray
    issued: IssueCount
    wraps: Wraps


@dataclass
class BlockRun:
    """Hold one block of threads while it runs."""

    launch: _Launch
    linear: int
    ctaid: Dim3
    shared: Array
    trace: list[int] = field(default_factory=list)
    barriers: int = 0
    gathered: tuple[int, int] = (0, 0)
    """At the last barrier: threads whose predicate held, and threads that arrived."""
    copies: Copies = field(default_factory=Copies)


def _number_sites(fn: ir.Function) -> dict[int, int]:
    """Number the memory instructions of a function in program order, then ldmatrix and cp.async."""
    instrs = [i for block in fn.blocks for i in block.instrs]
    memory = [i for i in instrs if isinstance(i, MemoryInstr)]
    moves = [i for i in instrs if isinstance(i, ir.Move)]
    return {id(instr): site for site, instr in enumerate([*memory, *moves])}


def _thread(run: BlockRun, warp: Warp, lane: int) -> Dim3:
    return thread_of(warp.number, lane, run.launch.block)


def _first(mask: Array) -> int:
    return int(np.flatnonzero(mask)[0])


def _check_index(run: BlockRun, warp: Warp, instr: ir.Chk, mask: Array) -> None:
    """Run a Chk: wrap negative indices once and count them; raise OutOfBounds for the lowest lane outside."""
    index, extent = warp.read(instr.index, "s64"), warp.read(instr.extent, "s64")
    negative = mask & (index < 0)
    bad = mask & ((index < -extent) | (index >= extent) | (negative & run.launch.strict_index))
    if bad.any():
        lane = _first(bad)
        raise messages.out_of_bounds(
            run.launch.fn.name,
            instr.array,
            instr.dim,
            int(index[lane]),
            int(extent[lane]),
            run.ctaid,
            _thread(run, warp, lane),
            instr.loc.file,
            instr.loc.line,
            run.launch.strict_index,
            ir.is_dynamic(run.launch.fn, instr.array),
        )
    run.launch.counters.wrapped_indices += int(negative.sum())
    run.launch.wraps[(*instr.loc, instr.array)] += int(negative.sum())
    warp.write(instr.dst, np.where(index < 0, index + extent, index), mask)


def _emit(run: BlockRun, warp: Warp, counts: SpaceCounts, records: list[int], lanes: int, size: int) -> None:
    """Count one request and append its records, after the warp's mark if they are its first in the region."""
    warp.trace(records, run.trace)
    counts.lanes += lanes
    counts.bytes += lanes * size
    counts.requests += 1
    counts.sectors += request_rules.sectors(records)


def _local_records(
    run: BlockRun, warp: Warp, offsets: Mapping[int, int], size: int, kind: Kind, site: int
) -> list[int]:
    """Return the records of a local access; each warp of a launch has a frame of its own."""
    warps = -(-linear_count(run.launch.block) // LANES)
    base = LOCAL_BASE + (run.linear * warps + warp.number) * LANES * warp.frame.shape[1]
    return request_rules.records(request_rules.local_words(offsets, size, base), min(size, 4), kind, site)


def _count_shared(counts: SharedCounts, lanes: Mapping[int, int], size: int, is_load: bool) -> None:
    counts.lanes += len(lanes)
    counts.bytes += len(lanes) * size
    counts.requests += 1
    taken = request_rules.wavefronts(lanes, size, is_load)
    counts.wavefronts += taken
    counts.ideal_wavefronts += min(taken, request_rules.ideal_wavefronts(lanes, size))


def _count_issued(issued: IssueCount, instr: MemoryInstr, site: int, lanes: Mapping[int, int]) -> None:
    """Count a shared load or store as the machine instructions that it is a part of."""
    if isinstance(instr, ir.Atom):
        return
    for width, share in issued.shares(site, instr).items():
        pieces = {lane: address // width * width for lane, address in lanes.items()}
        taken = request_rules.wavefronts(pieces, width, isinstance(instr, ir.Ld))
        issued.add(instr, share, (1, taken, min(taken, request_rules.ideal_wavefronts(lanes, width))))


def _count_constant(counts: ConstantCounts, lanes: Mapping[int, int], size: int) -> None:
    counts.lanes += len(lanes)
    counts.bytes += len(lanes) * size
    counts.requests += 1
    counts.addresses += len(set(lanes.values()))


def _count_access(
    run: BlockRun, warp: Warp, instr: MemoryInstr, lanes: Mapping[int, int], size: int
) -> None:
    """Add one request to the counters and to the trace; a local array that lives in registers has none."""
    c, site = run.launch.counters, run.launch.sites[id(instr)]
    if instr.space == "shared":
        _count_issued(run.launch.issued, instr, site, lanes)
        _count_shared(
            {ir.Ld: c.shared_load, ir.St: c.shared_store, ir.Atom: c.shared_atom}[type(instr)],
            lanes,
            size,
            isinstance(instr, ir.Ld),
        )
    elif instr.space == "const":
        _count_constant(c.const_load, lanes, size)
    elif instr.space == "local":
        if instr.array not in run.launch.in_registers:
            is_load = isinstance(instr, ir.Ld)
            records = _local_records(
                run, warp, lanes, size, Kind.LOCAL_LOAD if is_load else Kind.LOCAL_STORE, site
            )
            _emit(run, warp, c.local_load if is_load else c.local_store, records, len(lanes), size)
    elif isinstance(instr, ir.Atom):
        kind, counts = (Kind.RED, c.global_red) if instr.dst is None else (Kind.ATOM, c.global_atom)
        _emit(run, warp, counts, request_rules.atomic_records(lanes, size, kind, site), len(lanes), size)
    elif isinstance(instr, ir.Ld):
        kind = Kind.LOAD_L2 if instr.cache in PAST_L1 else Kind.LOAD
        _emit(run, warp, c.global_load, request_rules.records(lanes, size, kind, site), len(lanes), size)
    else:
        records = request_rules.records(lanes, size, Kind.STORE, site)
        _emit(run, warp, c.global_store, records, len(lanes), size)


def _storage(
    run: BlockRun, warp: Warp, instr: MemoryInstr, lanes: Mapping[int, int], size: int
) -> tuple[Array, Array]:
    """Return a space's bytes and, shape (lanes, size), where each element lies; raise OutOfBounds outside."""
    spaces = {"global": run.launch.memory, "shared": run.shared, "local": warp.frame}
    space = {**spaces, "const": run.launch.constants}[instr.space]
    limit = space.shape[-1]
    for lane, address in lanes.items():
        if not 0 <= address <= limit - size:
            raise messages.outside_memory(
                run.launch.fn.name,
                instr.space,
                instr.array,
                address,
                limit,
                run.ctaid,
                _thread(run, warp, lane),
                instr.loc.file,
                instr.loc.line,
            )
    start = np.array(
        [address + (lane * limit if instr.space == "local" else 0) for lane, address in lanes.items()],
        np.int64,
    )
    return space.reshape(-1), start[:, None] + np.arange(size)


def _check_aligned(
    run: BlockRun, warp: Warp, instr: MemoryInstr, lanes: Mapping[int, int], size: int
) -> None:
    """Raise Misaligned for the lowest lane whose vector does not start at a multiple of its bytes."""
    if ir.elements(instr) == 1:
        return
    for lane, address in lanes.items():
        if address % size:
            start = messages.start_of(run.launch.fn, run.launch.params, instr)
            thread = _thread(run, warp, lane)
            raise messages.misaligned(
                run.launch.fn.name, instr.array, size, ir.BYTES[instr.type], address, start, run.ctaid,
                thread, *instr.loc,
            )  # fmt: skip


def _access(run: BlockRun, warp: Warp, instr: MemoryInstr, mask: Array) -> None:
    """Run one memory instruction: count it, then move the data."""
    size = ir.access_bytes(instr)
    addresses = warp.read(instr.addr, "s64")
    lanes = {int(lane): int(addresses[lane]) for lane in np.flatnonzero(mask)}
    _check_aligned(run, warp, instr, lanes, size)
    storage, where = _storage(run, warp, instr, lanes, size)
    _count_access(run, warp, instr, lanes, size)
    if instr.space == "shared":
        warp_moves.require_complete(run, warp, instr, lanes, size)
    if isinstance(instr, ir.Ld):
        warp_memory.load(warp, instr, storage, where, mask)
    elif isinstance(instr, ir.St):
        warp_memory.store(warp, instr, storage, where, mask)
    else:
        warp_memory.atomic(warp, instr, storage, where, mask)


def _barrier_result(run: BlockRun, warp: Warp, instr: ir.BarResult, mask: Array) -> None:
    """Read what the last barrier gathered."""
    holding, arrived = run.gathered
    value = {"count": holding, "and": holding == arrived, "or": holding > 0}[instr.op]
    warp.write(instr.dst, np.full(LANES, value, np.int32), mask)


def _whole_warp(run: BlockRun, warp: Warp, instr: ir.Collective, mask: Array) -> None:
    """Run an instruction of a whole warp; raise WarpDivergence unless all 32 lanes are here."""
    if not mask.all():
        raise messages.lanes_missing(
            run.launch.fn.name, messages.collective_name(instr), run.ctaid, run.launch.block, warp.number,
            exchange.bits_of(mask), *instr.loc,
        )  # fmt: skip
    if isinstance(instr, ir.LdMatrix):
        warp_moves.load_matrix(run, warp, instr)
    else:
        tensor.multiply(warp, instr)
        count_mma(run.launch.counters.tensor, instr.a_type)


def _exchange(run: BlockRun, warp: Warp, instr: ir.WarpOp, mask: Array) -> None:
    """Run a warp operation; syncwarp is not counted."""
    place = exchange.Place(run.launch.fn.name, run.ctaid, run.launch.block)
    exchange.execute(place, warp, instr, mask)
    run.launch.counters.warp_operations += not isinstance(instr, ir.SyncWarp)


def _execute(run: BlockRun, warp: Warp, instr: ir.Instr, mask: Array) -> None:
    """Run one instruction in the lanes of a mask."""
    if isinstance(instr, MemoryInstr):
        _access(run, warp, instr, mask)
    elif isinstance(instr, ir.WarpOp):
        _exchange(run, warp, instr, mask)
    elif isinstance(instr, ir.Collective):
        _whole_warp(run, warp, instr, mask)
    elif isinstance(instr, ir.CpAsync | ir.CpCommit | ir.CpWait):
        warp_moves.asynchronous(run, warp, instr, mask)
    elif isinstance(instr, ir.ActiveMask):
        exchange.active_mask(warp, instr, mask)
    elif isinstance(instr, ir.BarResult):
        _barrier_result(run, warp, instr, mask)
    elif isinstance(instr, ir.Chk):
        _check_index(run, warp, instr, mask)
    elif isinstance(instr, ir.LdParam):
        warp.write(
            instr.dst, np.full(LANES, lane_ops.constant(run.launch.params[instr.name], instr.dst.type)), mask
        )
    elif isinstance(instr, ir.Sreg):
        value = special_registers(warp, run.ctaid, run.launch.grid, run.launch.block)[instr.name]
        warp.write(instr.dst, np.broadcast_to(value, LANES).astype(np.int32), mask)
    else:
        COMPUTE[type(instr)](warp, instr, mask)


def _count_step(run: BlockRun, warp: Warp, block: ir.Block) -> None:
    """Count a pass through the header of a loop; raise EndlessLoop after max_steps."""
    warp.step_parts += block.step_parts
    limit = run.launch.max_steps
    if limit is not None and warp.step_parts > limit * ir.STEP_PARTS and block.terminator is not None:
        loc = block.terminator.loc
        raise messages.endless_loop(
            run.launch.fn.name, run.ctaid, f"warp {warp.number}", limit, loc.file, loc.line
        )


def _run_block(run: BlockRun, warp: Warp, index: int, mask: Array) -> None:
    """Run the instructions of one block of the IR and count the execution."""
    block = run.launch.fn.blocks[index]
    run.launch.block_execs[index] += (1, int(mask.sum()))
    _count_step(run, warp, block)
    for instr in block.instrs:
        _execute(run, warp, instr, mask)


def _run_region(run: BlockRun, warp: Warp) -> tuple[int, Array] | None:
    """Run a warp to its end (None) or to a barrier: the block that ends in it and the lanes there."""
    warp.marked = False
    while warp.pending:
        index, mask = warp.take_lowest()
        _run_block(run, warp, index, mask)
        match run.launch.fn.blocks[index].terminator:
            case ir.Bar():
                return index, mask
            case ir.Jmp(target=target):
                warp.send(target, mask)
            case ir.Bra(cond=cond, if_true=if_true, if_false=if_false):
                taken = warp.read(cond, "pred")
                warp.send(if_true, mask & taken)
                warp.send(if_false, mask & ~taken)
            case ir.Ret(at_end=True):
                warp.past_end += int(mask.sum())
    return None


def _check_barrier(run: BlockRun, waiting: list[tuple[Warp, int, Array]], past_end: int) -> None:
    """Raise BarrierDivergence unless every live lane of the block waits at the same barrier.

    past_end: lanes of the block that have got to the end of the kernel since the last barrier.
    """
    split = [index for warp, index, _ in waiting if warp.elsewhere()]
    where = split[0] if split else waiting[0][1]
    arrived = sum(int(mask.sum()) for _, index, mask in waiting if index == where)
    missing = sum(int(mask.sum()) for _, index, mask in waiting if index != where) + sum(
        warp.elsewhere() for warp, _, _ in waiting
    )
    missing += past_end
    if missing:
        loc = run.launch.fn.blocks[where].terminator.loc  # type: ignore[union-attr]
        raise messages.barrier_divergence(run.launch.fn.name, run.ctaid, arrived, missing, loc.file, loc.line)


def _gather(run: BlockRun, waiting: list[tuple[Warp, int, Array]]) -> tuple[int, int]:
    """Return how many threads at the barrier hold its predicate (0 without one), and how many there are."""
    holding = arrived = 0
    for warp, index, mask in waiting:
        terminator = run.launch.fn.blocks[index].terminator
        arrived += int(mask.sum())
        if isinstance(terminator, ir.Bar) and terminator.pred is not None:
            holding += int((mask & warp.read(terminator.pred, "pred")).sum())
    return holding, arrived


def _pass_barrier(run: BlockRun, waiting: list[tuple[Warp, int, Array]], past_end: int) -> None:
    """Let every waiting warp go on behind the barrier, and mark it in the trace."""
    _check_barrier(run, waiting, past_end)
    run.gathered = _gather(run, waiting)
    run.barriers += 1
    run.launch.counters.barriers += len(waiting)
    run.trace.append(pack(run.barriers, 0, Kind.BARRIER, first=False))
    for warp, index, mask in waiting:
        warp.send(ir.successors(run.launch.fn.blocks[index].terminator)[0], mask)


def _run_thread_block(launch: _Launch, linear: int) -> np.ndarray:
    """Run one block of threads and return its trace."""
    run = BlockRun(
        launch, linear, unlinear(linear, launch.grid), np.full(launch.shared_bytes, 0xFF, np.uint8)
    )
    warps = list(make_warps(launch.fn, launch.block))
    while warps:
        stops = [(warp, _run_region(run, warp)) for warp in warps]
        waiting = [(warp, *stop) for warp, stop in stops if stop is not None]
        if waiting:
            _pass_barrier(run, waiting, sum(warp.past_end for warp in warps))
        warps = [warp for warp, _, _ in waiting]
    return np.array(run.trace, np.uint64)


def _count_arithmetic(launch: _Launch) -> None:
    """Add the arithmetic of all executed blocks: lanes times what dsl/warpir/machine.py says, XU in warps."""
    arithmetic = launch.counters.arithmetic
    for block, (warps, lanes) in zip(launch.fn.blocks, launch.block_execs.tolist(), strict=True):
        for key, n in block_counts(block).items():
            name, times = ("xu_warps", warps) if key == "xu" else (key, lanes)
            setattr(arithmetic, name, getattr(arithmetic, name) + n * times)
    for b, _ in range_divisions(build(launch.fn)):
        arithmetic.xu_warps += INTEGER_DIVISION["xu"] * int(launch.block_execs[b, 0])


def run(
    fn: ir.Function,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    params: Mapping[str, Any],
    memory: GlobalMemory,
    shared_bytes: int = 0,
    blocks: Iterable[int] | None = None,
    max_steps: int | None = None,
    strict_index: bool = False,
    register_arrays: frozenset[str] | None = None,
    issued: IssueCount | None = None,
) -> IrRun:
    """Run a kernel on `memory` and return traces and counts.

    params: the value of each LdParam by its name. shared_bytes: dynamic shared memory. blocks: linear block
    numbers (x + X * (y + Y * z)), None for all. max_steps: passes of one warp through headers of loops that
    may spin. register_arrays: local arrays that live in registers and cause no traffic, None for all.
    issued: what shared accesses are as machine instructions is added to it.
    Raises OutOfBounds, BarrierDivergence, WarpDivergence, EndlessLoop.
    """
    ir.verify(fn)
    size = dim3(grid)
    local = frozenset(a.name for a in fn.local) if register_arrays is None else register_arrays
    storage = memory.view(0, (memory.capacity_bytes,), np.uint8)
    execs = np.zeros((len(fn.blocks), 2), np.int64)
    launch = _Launch(
        fn,
        size,
        dim3(block),
        params,
        storage,
        np.frombuffer(fn.constant_data, np.uint8),
        fn.static_shared_bytes + shared_bytes,
        max_steps,
        strict_index,
        local,
        _number_sites(fn),
        Counters.zero(),
        execs,
        issued or IssueCount({}),
        Counter(),
    )
    with np.errstate(all="ignore"):
        trace = [
            _run_thread_block(launch, b) for b in (range(linear_count(size)) if blocks is None else blocks)
        ]
    _count_arithmetic(launch)
    return IrRun(trace, launch.counters, execs, launch.wraps)
