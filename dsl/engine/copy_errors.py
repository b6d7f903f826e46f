"""The errors of ldmatrix and cp.async, from what machine code noted when it stopped.

What it models: nothing; dsl/semantics/copy_messages.py has the texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dsl.llvm.copies import GROUP_SHIFT, SITE_BITS, THREAD_BITS, THREAD_SHIFT
from dsl.llvm.layout import MOVE_SITE, Ctx, Error
from dsl.semantics.copy_messages import (
    ROW_BYTES,
    access_name,
    copy_size,
    element_index,
    misaligned_move,
    move_name,
    pending_copy,
    shared_array,
    target_of,
)
from dsl.semantics.messages import Dim3, thread_of, unlinear
from dsl.warpir import ir
from gpusim.errors import Misaligned

if TYPE_CHECKING:
    from dsl.engine.run import Compiled


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
