"""The messages of mistakes that show while a kernel runs: what, where, the limit, what to do.

Both oracles and the engine build their errors here, so that one mistake reads the same whoever finds it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import cast

from dsl.warpir import ir
from gpusim.arch import Arch
from gpusim.errors import (
    BarrierDivergence,
    DivisionByZero,
    EndlessLoop,
    KernelFault,
    LaunchRefused,
    Misaligned,
    OutOfBounds,
    WarpDivergence,
)
from gpusim.table import counted

Dim3 = tuple[int, int, int]
Wraps = Counter[tuple[str, int, str]]
"""How many negative indices wrapped, by (file, line, array)."""
LANES = 32


def dim3(size: int | tuple[int, ...]) -> Dim3:
    """Fill a grid or block size up with ones to (x, y, z)."""
    x, y, z = (*((size,) if isinstance(size, int) else size), 1, 1)[:3]
    return int(x), int(y), int(z)


def unlinear(index: int, size: Dim3) -> Dim3:
    """Return (x, y, z) of a linear number x + X * (y + Y * z)."""
    return index % size[0], index // size[0] % size[1], index // (size[0] * size[1])


def linear_count(size: Dim3) -> int:
    """Return how many blocks (threads) a size has."""
    return size[0] * size[1] * size[2]


def thread_of(warp: int, lane: int, block_size: Dim3) -> Dim3:
    """Return threadIdx of a lane of a warp."""
    return unlinear(warp * LANES + lane, block_size)


def out_of_bounds(
    kernel: str,
    array: str,
    dim: int,
    index: int,
    extent: int,
    block: Dim3,
    thread: Dim3,
    file: str,
    line: int,
    strict: bool = False,
    dynamic: bool = False,
) -> OutOfBounds | DivisionByZero:
    """Say which thread used which index of which array, or which one divides by zero (ir.DIVISOR).

    strict: negative indices are errors too. dynamic: it lies in dynamic shared memory.
    """
    where = f"kernel {kernel}, block {block}, thread {thread}, {file}:{line}"
    if array == ir.DIVISOR:
        return DivisionByZero(f"{where}: division by zero, which debug=True makes an error; test the divisor")
    axis = f"index {index} in dimension {dim} of {array!r} is out of bounds: the extent is {extent}"
    if strict and -extent <= index < 0:
        advice = (
            f"a negative index wraps to {index + extent}, and --strict-index makes that an error; "
            f"use indices of 0 to {extent - 1}"
        )
    elif dynamic and index >= 0:
        advice = (
            "its length is that of the launch's dynamic shared memory: pass more, by --shared BYTES or as in "
            f"{kernel}[grid, block, stream, BYTES]"
        )
    elif index < 0:
        advice = f"a negative index wraps once, from {-extent} on; check the index expression"
    else:
        advice = f"guard the access, as in `if i < {array}.shape[{dim}]:`"
    return OutOfBounds(f"{where}: {axis}; {advice}")


def wrap_notes(wraps: Wraps) -> tuple[str, ...]:
    """Return a sentence for each array and line at which negative indices wrapped."""
    return tuple(
        f"{counted(n, 'negative index', 'negative indices')} of {array!r} wrapped once at {file}:{line} "
        "(numba.cuda does the same; --strict-index refuses)"
        for (file, line, array), n in sorted(wraps.items())
        if n
    )


def outside_memory(
    kernel: str,
    space: str,
    array: str,
    address: int,
    limit: int,
    block: Dim3,
    thread: Dim3,
    file: str,
    line: int,
) -> OutOfBounds:
    """Say which thread used an address that its space does not have (an index that nobody checked)."""
    return OutOfBounds(
        f"kernel {kernel}, block {block}, thread {thread}, {file}:{line}: address {address} of {array!r} is "
        f"outside {space} memory ({limit} bytes); check the index expression"
    )


def start_of(fn: ir.Function, params: Mapping[str, int | float], instr: ir.Access) -> int:
    """Return where the array of an access starts in its space, in bytes."""
    placed: list[ir.SharedArray | ir.LocalArray | ir.ConstantArray] = [*fn.shared, *fn.local, *fn.constants]
    offsets = {a.name: a.offset for a in placed}
    return int(params[f"{instr.array}.base"] if instr.space == "global" else offsets[instr.array])


def misaligned(
    kernel: str,
    array: str,
    size: int,
    element_bytes: int,
    address: int,
    start: int,
    block: Dim3,
    thread: Dim3,
    file: str,
    line: int,
) -> Misaligned:
    """Say which thread asks for `size` bytes at an address that the card faults at; start: of the array."""
    index = f"index {(address - start) // size}" if (address - start) % size == 0 else "an element"
    return Misaligned(
        f"kernel {kernel}, block {block}, thread {thread}, {file}:{line}: {index} of {array!r}, byte "
        f"{address - start} of the array, is at address {address}, which is no multiple of {size}: an access "
        f"of {size} bytes a thread has to be aligned to them; start the array, and each of its rows, at a "
        f"multiple of {size} bytes, or use elements of {element_bytes} bytes"
    )


def no_whole_view(
    kernel: str, array: str, row: int, old_bytes: int, view: str, new_bytes: int, file: str, line: int
) -> LaunchRefused:
    """Say that the rows of an array are no whole number of what a view takes them as."""
    return LaunchRefused(
        f"kernel {kernel}, {file}:{line}: {array}.view({view}): the last dimension of {array!r} is {row} "
        f"elements of {old_bytes} bytes, no whole number of {view} ({new_bytes} bytes); pass an array whose "
        "last dimension is a multiple, or index it element by element"
    )


def capability_missing(
    kernel: str, instruction: str, needed: tuple[int, int], arch: Arch, file: str, line: int
) -> LaunchRefused:
    """Say which instruction a GPU's compute capability does not have, and from which on there is one."""
    return LaunchRefused(
        f"kernel {kernel}, {file}:{line}: {instruction} needs compute capability {needed[0]}.{needed[1]} or "
        f"above, and {arch.title} has {arch.compute_capability}; choose a GPU that has it (`gpus` lists "
        "them), or compute in float16"
    )


def barrier_divergence(
    kernel: str, block: Dim3, arrived: int, missing: int, file: str, line: int
) -> BarrierDivergence:
    """Say at which barrier how many threads wait and how many are elsewhere; exited ones are neither."""
    here = f"{counted(arrived, 'thread')} arrived and {missing} {'is' if missing == 1 else 'are'} missing"
    return BarrierDivergence(
        f"kernel {kernel}, block {block}, {file}:{line}: barrier divergence, {here}; every thread of the "
        "block that has not returned must reach the same syncthreads(): move it out of the branch or loop "
        "that some threads skip"
    )


def endless_loop(kernel: str, block: Dim3, who: str, steps: int, file: str, line: int) -> EndlessLoop:
    """Say which warp or thread took more steps than it may."""
    return EndlessLoop(
        f"kernel {kernel}, block {block}, {who}, {file}:{line}: no end after {counted(steps, 'step')}; "
        "check the condition of the loop, or raise --max-steps"
    )


def kernel_fault(
    kernel: str, block: Dim3, thread: Dim3, error: Exception, file: str, line: int
) -> KernelFault:
    """Say which thread of the Python source met an exception, and which variable it had not assigned."""
    where = f"kernel {kernel}, block {block}, thread {thread}, {file}:{line}"
    unassigned = re.search(r"variable '(\w+)'", str(error)) if isinstance(error, NameError) else None
    if unassigned is not None:
        return KernelFault(
            f"{where}: variable {unassigned[1]!r} is read before this thread has assigned it; a card gives "
            "no defined value; assign it on every path that leads here"
        )
    return KernelFault(f"{where}: {type(error).__name__}: {error}; correct this line")


def raised_by_kernel(block: Dim3, thread: Dim3, error: Exception, file: str, line: int) -> KernelFault:
    """Return an exception that a line of a kernel made (raise, assert, an index), as numba names the thread.

    It is a KernelFault and an exception of the class that was raised, where Python can make one of both.
    """
    who = f"tid={list(thread)} ctaid={list(block)}"
    fault = _fault(type(error), f"{file}:{line}: {type(error).__name__}, {who}: {error}")
    fault.by_kernel = True
    return fault


def _fault(kind: type[Exception], said: str) -> KernelFault:
    try:
        return cast("KernelFault", type(kind.__name__, (KernelFault, kind), {})(said))
    except TypeError:  # two layouts, or arguments of its own
        return KernelFault(said)


def operation_name(instr: ir.WarpOp) -> str:
    """Return what the kernel language calls a warp operation."""
    match instr:
        case ir.Shfl(mode=mode):
            return {"idx": "shfl_sync", "bfly": "shfl_xor_sync"}.get(mode, f"shfl_{mode}_sync")
        case ir.Vote(mode=mode):
            return f"{mode}_sync"
        case ir.Match(mode=mode):
            return f"match_{mode}_sync"
    return "syncwarp"


def collective_name(instr: ir.Collective) -> str:
    """Return what the kernel language calls an instruction of a whole warp."""
    if isinstance(instr, ir.LdMatrix):
        return f"ptx.ldmatrix_x{len(instr.dsts)}{'_trans' if instr.trans else ''}"
    types = instr.a_type if instr.a_type == instr.b_type else f"{instr.a_type}_{instr.b_type}"
    return f"ptx.mma_sync_m16n8k{instr.depth}_f32_{types}"


def lanes_missing(
    kernel: str, operation: str, block: Dim3, block_size: Dim3, warp: int, active: int, file: str, line: int
) -> WarpDivergence:
    """Say which lanes of a warp do not come to an instruction that needs all 32; active: those that do."""
    missing = [lane for lane in range(LANES) if not active >> lane & 1]
    first = thread_of(warp, missing[0], block_size)
    exist = warp * LANES + missing[0] < linear_count(block_size)
    who = f"thread {first}" if exist else "no thread: the block has too few"
    return WarpDivergence(
        f"kernel {kernel}, block {block}, warp {warp}, {file}:{line}: {operation} needs all 32 lanes of the "
        f"warp together; missing: {_spans(missing)} (lane {missing[0]} is {who}); move it out of the branch "
        "or loop that some lanes skip, and launch whole warps"
    )


def _spans(lanes: list[int]) -> str:
    """Return ascending lanes as text: "lane 3", "lanes 0-7, 9"."""
    starts = [lane for lane in lanes if lane - 1 not in lanes]
    ends = [lane for lane in lanes if lane + 1 not in lanes]
    pieces = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
    return f"lane{'s' if len(lanes) > 1 else ''} {', '.join(pieces)}"


def _warp_place(kernel: str, block: Dim3, warp: int, lane: int, thread: Dim3) -> str:
    return f"kernel {kernel}, block {block}, warp {warp}, lane {lane} (thread {thread})"


def warp_divergence(
    kernel: str,
    operation: str,
    block: Dim3,
    warp: int,
    lane: int,
    thread: Dim3,
    named: bool,
    file: str,
    line: int,
) -> WarpDivergence:
    """Say which lane the mask of a warp operation names that is elsewhere (named), or leaves out."""
    place = f"{_warp_place(kernel, block, warp, lane, thread)}, {file}:{line}"
    if not named:
        what = "an active lane is not named in the mask"
        advice = "name every lane that runs this line, e.g. with ballot_sync before the branch"
    else:
        what = "a lane named in the mask does not take part: it has not returned, and is in another branch"
        advice = (
            "move the operation out of the branch or loop that some lanes skip, or name only the lanes that "
            "run it (ballot_sync before the branch)"
        )
    return WarpDivergence(f"{place}: {operation}: {what}; {advice}")


def warp_masks_differ(
    kernel: str,
    operation: str,
    block: Dim3,
    warp: int,
    lane: int,
    thread: Dim3,
    mask: int,
    first: int,
    file: str,
    line: int,
) -> WarpDivergence:
    """Say which lane brings another mask than the first active lane to the same warp operation."""
    return WarpDivergence(
        f"{_warp_place(kernel, block, warp, lane, thread)}, {file}:{line}: {operation}: its mask is "
        f"0x{mask:08x}, the warp's first active lane has 0x{first:08x}; all lanes that run one warp "
        "operation together need the same mask: split it into branches, one for each mask"
    )


def shuffle_source(
    kernel: str,
    operation: str,
    block: Dim3,
    warp: int,
    lane: int,
    thread: Dim3,
    source: int,
    file: str,
    line: int,
) -> WarpDivergence:
    """Say which lane of a shuffle reads a lane that does not take part in it."""
    return WarpDivergence(
        f"{_warp_place(kernel, block, warp, lane, thread)}, {file}:{line}: {operation}: it reads lane "
        f"{source}, which does not take part: it is not named, has returned or does not exist, and a card "
        "gives no defined value; read a lane that runs this line"
    )


def check_warp_masks(
    kernel: str,
    operation: str,
    block: Dim3,
    block_size: Dim3,
    warp: int,
    masks: Mapping[int, int],
    live: int,
    file: str,
    line: int,
) -> None:
    """Raise WarpDivergence unless every active lane names exactly the active lanes, of those that live.

    masks: active lane -> its mask. live: the lanes that exist and have not returned, lane 0 in bit 0; CUDA
    asks only for them, so a mask may name others. The lowest lane with another mask than the first is named;
    where all are the same, the lowest lane that is named and not active, or active and not named.
    """
    first = masks[min(masks)]
    for lane in sorted(masks):
        if (masks[lane] ^ first) & live:
            thread = thread_of(warp, lane, block_size)
            raise warp_masks_differ(
                kernel, operation, block, warp, lane, thread, masks[lane], first, file, line
            )
    for lane in range(LANES):
        named = bool(first & live & 1 << lane)
        if named != (lane in masks):
            thread = thread_of(warp, lane, block_size)
            raise warp_divergence(kernel, operation, block, warp, lane, thread, named, file, line)


def check_shuffle_sources(
    kernel: str,
    operation: str,
    block: Dim3,
    block_size: Dim3,
    warp: int,
    sources: Mapping[int, int],
    file: str,
    line: int,
) -> None:
    """Raise WarpDivergence for the lowest active lane that reads a lane which is not active.

    sources: active lane -> the lane it reads.
    """
    for lane in sorted(sources):
        if sources[lane] not in sources:
            thread = thread_of(warp, lane, block_size)
            raise shuffle_source(kernel, operation, block, warp, lane, thread, sources[lane], file, line)
