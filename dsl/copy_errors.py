"""The messages of mistakes with ldmatrix and cp.async, from what machine code noted or an oracle found.

What it models: nothing; each message says what, where, the limit and what to do. dsl/messages.py has the
others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dsl import ir
from dsl.copies_ll import GROUP_SHIFT, SITE_BITS, THREAD_BITS, THREAD_SHIFT
from dsl.layout import MOVE_SITE, Ctx, Error
from dsl.messages import Dim3, collective_name, thread_of, unlinear
from gpusim.errors import KernelFault, Misaligned, PendingCopy

if TYPE_CHECKING:
    from dsl.engine import Compiled

ROW_BYTES = 16


def move_name(instr: ir.Move) -> str:
    """Return what the kernel language calls an ldmatrix or a cp.async."""
    return collective_name(instr) if isinstance(instr, ir.LdMatrix) else f"ptx.cp_async_{instr.cache}"


def access_name(instr: ir.Access | ir.Move) -> str:
    """Say what an instruction does to shared memory, up to the name of the array."""
    match instr:
        case ir.Ld():
            return "load of"
        case ir.St():
            return "store to"
        case ir.Atom():
            return "atomic on"
        case ir.LdMatrix():
            return f"{collective_name(instr)} of"
    return f"{move_name(instr)} to"


def misaligned_move(
    kernel: str, name: str, what: str, array: str, address: int, nbytes: int,
    block: Dim3, thread: Dim3, file: str, line: int,
) -> Misaligned:  # fmt: skip
    """Say whose row, source or destination is no multiple of its bytes; what: "row", "source" ..."""
    return Misaligned(
        f"kernel {kernel}, block {block}, thread {thread}, {file}:{line}: {name}: the {what} in {array!r} "
        f"lies {address % nbytes} bytes past a multiple of {nbytes}, and has to be at one; begin the array "
        f"(alignment={nbytes} of cuda.shared.array) and each of its rows at a multiple of {nbytes} bytes"
    )


def copy_size(
    kernel: str, name: str, array: str, taken: int, nbytes: int,
    block: Dim3, thread: Dim3, file: str, line: int,
) -> KernelFault:  # fmt: skip
    """Say which thread wants fewer than no bytes, or more than the copy has."""
    return KernelFault(
        f"kernel {kernel}, block {block}, thread {thread}, {file}:{line}: {name}: src_bytes is {taken}, of "
        f"{array!r}; it is 0 to {nbytes}, and the rest of the {nbytes} bytes is filled with zeros"
    )


def pending_copy(
    kernel: str, access: str, array: str, index: tuple[int, ...], block: Dim3, thread: Dim3,
    place: tuple[str, int], issuer: Dim3, issued: tuple[str, int],
) -> PendingCopy:  # fmt: skip
    """Say which thread touches what another (or itself) is still copying, and where both lines are."""
    element = f"{array}[{', '.join(map(str, index))}]"
    return PendingCopy(
        f"kernel {kernel}, block {block}, thread {thread}, {place[0]}:{place[1]}: {access} {element}: the "
        f"asynchronous copy of thread {issuer} at {issued[0]}:{issued[1]} may still be filling it; let that "
        "thread wait for its group (ptx.cp_async_commit_group, then ptx.cp_async_wait_group or "
        "ptx.cp_async_wait_all), and put cuda.syncthreads() before other threads come to it"
    )


def element_index(array: ir.SharedArray, address: int) -> tuple[int, ...]:
    """Return the index of the element of a shared array at a byte offset of the block's shared memory."""
    flat = (address - array.offset) // ir.BYTES[array.type]
    if not array.bytes:  # dynamic: one dimension, as long as the launch says
        return (flat,)
    return tuple(int(i) for i in np.unravel_index(flat, array.shape))


def shared_array(fn: ir.Function, name: str) -> ir.SharedArray:
    """Return the shared array of a name."""
    return next(a for a in fn.shared if a.name == name)


def target_of(instr: ir.Access | ir.Move) -> str:
    """Return the name of the shared array that an instruction touches."""
    return instr.to_array if isinstance(instr, ir.CpAsync) else instr.array


def _thread(compiled: Compiled, ctx: np.ndarray, lane: int) -> tuple[Dim3, Dim3]:
    """Return the block and the thread that machine code stopped in."""
    x, y, z = (int(v) for v in ctx[Ctx.CTAID_X : Ctx.CTAID_Z + 1])
    return (x, y, z), thread_of(int(ctx[Ctx.WARP]), lane, compiled.key.block)


def misaligned(compiled: Compiled, ctx: np.ndarray, kind: Error) -> Misaligned:
    """Return the error of machine code that met an address which is no multiple."""
    instr = compiled.moves[int(ctx[Ctx.ERROR_SITE])][1]
    mask = int(ctx[Ctx.ERROR_MASK])
    lane = (mask & -mask).bit_length() - 1
    what, array = {
        Error.ROW_MISALIGNED: ("row", instr.array),
        Error.SOURCE_MISALIGNED: ("source", instr.array),
        Error.TARGET_MISALIGNED: ("destination", target_of(instr)),
    }[kind]
    nbytes = instr.bytes if isinstance(instr, ir.CpAsync) else ROW_BYTES
    address = int(ctx[Ctx.ERROR_INDEX + lane])
    block, thread = _thread(compiled, ctx, lane)
    return misaligned_move(
        compiled.fn.name, move_name(instr), what, array, address, nbytes, block, thread, *instr.loc
    )


def of_copy(compiled: Compiled, ctx: np.ndarray, kind: Error) -> Exception:
    """Return the error of machine code that met a wrong src_bytes, or bytes that are not there yet."""
    fn, site, mask = compiled.fn, int(ctx[Ctx.ERROR_SITE]), int(ctx[Ctx.ERROR_MASK])
    if kind is Error.COPY_SIZE:
        lane = (mask & -mask).bit_length() - 1
        copy = compiled.moves[site][1]
        assert isinstance(copy, ir.CpAsync)
        block, thread = _thread(compiled, ctx, lane)
        taken = int(ctx[Ctx.ERROR_INDEX + lane])
        return copy_size(fn.name, move_name(copy), copy.array, taken, copy.bytes, block, thread, *copy.loc)
    found = compiled.moves[site - MOVE_SITE] if site >= MOVE_SITE else compiled.sites[site]
    instr: ir.Access | ir.Move = found[1]
    block, thread = _thread(compiled, ctx, mask)
    mark = int(ctx[Ctx.ERROR_EXTENT])
    issuer = unlinear(mark >> THREAD_SHIFT & THREAD_BITS, compiled.key.block)
    assert mark >> GROUP_SHIFT, "a mark that stops a launch has a group"
    issued = compiled.moves[mark & SITE_BITS][1].loc
    array = shared_array(fn, target_of(instr))
    index = element_index(array, int(ctx[Ctx.ERROR_INDEX]))
    return pending_copy(
        fn.name, access_name(instr), array.name, index, block, thread,
        (instr.loc.file, instr.loc.line), issuer, (issued.file, issued.line),
    )  # fmt: skip
