"""The messages of mistakes with ldmatrix and cp.async: what, where, the limit and what to do.

It models nothing; dsl/semantics/messages.py has the other mistakes of a running kernel.
"""

from __future__ import annotations

import numpy as np

from dsl.semantics.messages import Dim3, collective_name
from dsl.warpir import ir
from gpusim.errors import KernelFault, Misaligned, PendingCopy

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
