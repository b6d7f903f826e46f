"""ldmatrix and cp.async of the interpreter: checks, counts, and data.

What it models: the rows of matrices and the bytes of copies, in the order of lanes; copies arrive at once,
and dsl/semantics/copies.py remembers for whom they are not there yet. What it leaves out: who takes part in
an ldmatrix (dsl/interpreter/run.py). Which ncu metric checks it: `smsp__inst_executed_op_ldsm`,
`smsp__inst_executed_op_ldgsts`, `l1tex__t_sectors_pipe_lsu_mem_global_op_ld`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dsl.interpreter.tensor import ALL
from dsl.interpreter.warp import Warp
from dsl.semantics import copy_messages, matrix_ops, messages, request_rules
from dsl.semantics.copy_messages import ROW_BYTES
from dsl.semantics.floats import Array
from dsl.semantics.messages import LANES, thread_of
from dsl.warpir import ir
from gpusim.counters import SharedCounts
from gpusim.trace import Kind

if TYPE_CHECKING:
    from dsl.interpreter.run import BlockRun

Lanes = Mapping[int, int]


def _lanes(values: Array, mask: Array) -> dict[int, int]:
    """Map each lane of a mask to its number."""
    return {int(lane): int(values[lane]) for lane in np.flatnonzero(mask)}


def require_complete(
    run: BlockRun, warp: Warp, instr: ir.Access | ir.Move, lanes: Lanes, nbytes: int
) -> None:
    """Raise PendingCopy for the lowest lane that touches bytes which a copy is still filling."""
    for lane, address in lanes.items():
        mark = run.copies.blocking(address, nbytes)
        if mark is not None:
            fn, block = run.launch.fn, run.launch.block
            array = copy_messages.shared_array(fn, copy_messages.target_of(instr))
            raise copy_messages.pending_copy(
                fn.name, copy_messages.access_name(instr), array.name,
                copy_messages.element_index(array, address), run.ctaid, thread_of(warp.number, lane, block),
                (instr.loc.file, instr.loc.line), messages.unlinear(mark.thread, block),
                (mark.file, mark.line),
            )  # fmt: skip


def _require_multiple(
    run: BlockRun, warp: Warp, instr: ir.Move, what: str, array: str, lanes: Lanes, nbytes: int
) -> None:
    for lane, address in lanes.items():
        if address % nbytes:
            thread = thread_of(warp.number, lane, run.launch.block)
            raise copy_messages.misaligned_move(
                run.launch.fn.name, copy_messages.move_name(instr), what, array, address, nbytes, run.ctaid,
                thread, *instr.loc,
            )  # fmt: skip


def _add_shared(counts: SharedCounts, lanes: int, nbytes: int, wavefronts: int, ideal: int) -> None:
    counts.lanes += lanes
    counts.bytes += lanes * nbytes
    counts.requests += 1
    counts.wavefronts += wavefronts
    counts.ideal_wavefronts += ideal


def load_matrix(run: BlockRun, warp: Warp, instr: ir.LdMatrix) -> None:
    """Run an ldmatrix in all 32 lanes."""
    matrices = len(instr.dsts)
    rows = _lanes(warp.read(instr.addr, "s64"), np.arange(LANES) < 8 * matrices)
    _require_multiple(run, warp, instr, "row", instr.array, rows, ROW_BYTES)
    taken = request_rules.matrix_wavefronts(rows, matrices)
    counts = run.launch.counters.shared_matrix
    _add_shared(counts, LANES, instr.lane_bytes, taken, min(taken, matrices))
    require_complete(run, warp, instr, rows, ROW_BYTES)
    where = np.array(list(rows.values()))[:, None] + np.arange(ROW_BYTES)
    values = run.shared[where].view(np.uint16).reshape(matrices, 8, 8)
    for dst, registers in zip(instr.dsts, matrix_ops.spread(values, instr.trans), strict=True):
        warp.write(dst, registers, ALL)


def copy(run: BlockRun, warp: Warp, instr: ir.CpAsync, mask: Array) -> None:
    """Run a cp.async in the lanes of a mask."""
    target = _lanes(warp.read(instr.to, "s64"), mask)
    taken = _taken(run, warp, instr, mask)
    reading = mask & np.isin(np.arange(LANES), [lane for lane, n in taken.items() if n])
    source = _lanes(warp.read(instr.addr, "s64"), reading)
    _require_multiple(run, warp, instr, "source", instr.array, source, instr.bytes)
    _require_multiple(run, warp, instr, "destination", instr.to_array, target, instr.bytes)
    _count_copy(run, warp, instr, source, target, sum(taken.values()))
    require_complete(run, warp, instr, target, instr.bytes)
    for lane, address in target.items():
        data = np.zeros(instr.bytes, np.uint8)
        if taken[lane]:
            data[: taken[lane]] = run.launch.memory[source[lane] : source[lane] + taken[lane]]
        run.shared[address : address + instr.bytes] = data
        run.copies.issue(warp.number * LANES + lane, address, instr.bytes, *instr.loc)


def _taken(run: BlockRun, warp: Warp, instr: ir.CpAsync, mask: Array) -> dict[int, int]:
    """Return the bytes that each lane takes from global memory; raise KernelFault for what cannot be."""
    if instr.taken is None:
        return dict.fromkeys(map(int, np.flatnonzero(mask)), instr.bytes)
    taken = _lanes(warp.read(instr.taken, "s64"), mask)
    for lane, n in taken.items():
        if not 0 <= n <= instr.bytes:
            raise copy_messages.copy_size(
                run.launch.fn.name, copy_messages.move_name(instr), instr.array, n, instr.bytes, run.ctaid,
                thread_of(warp.number, lane, run.launch.block), *instr.loc,
            )  # fmt: skip
    return taken


def _count_copy(
    run: BlockRun, warp: Warp, instr: ir.CpAsync, source: Lanes, target: Lanes, nbytes: int
) -> None:
    """Count a copy's request to global memory, unless no lane reads, and what it writes."""
    counters, past_l1 = run.launch.counters, instr.cache == "cg"
    if source:
        kind = Kind.LOAD_L2 if past_l1 else Kind.LOAD
        records = request_rules.records(source, instr.bytes, kind, run.launch.sites[id(instr)])
        warp.trace(records, run.trace)
        counters.async_requests += 1
        loads = counters.global_load
        loads.lanes += len(source)
        loads.bytes += nbytes
        loads.requests += 1
        own = request_rules.copy_sectors(source, target)
        loads.sectors += own if past_l1 else request_rules.sectors(records)
    taken, ideal = request_rules.copy_wavefronts(source, target, instr.bytes, instr.cache)
    _add_shared(counters.shared_async, len(target), instr.bytes, taken, ideal)


def asynchronous(
    run: BlockRun, warp: Warp, instr: ir.CpAsync | ir.CpCommit | ir.CpWait, mask: Array
) -> None:
    """Run a copy, a commit or a wait in the lanes of a mask."""
    if isinstance(instr, ir.CpAsync):
        copy(run, warp, instr, mask)
    for lane in np.flatnonzero(mask):
        thread = warp.number * LANES + int(lane)
        if isinstance(instr, ir.CpCommit):
            run.copies.commit(thread)
        elif isinstance(instr, ir.CpWait):
            run.copies.wait(thread, instr.pending)
