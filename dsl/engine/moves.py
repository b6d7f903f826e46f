"""From what ldmatrix and cp.async counted while they ran to counters.

What it models: requests, bytes and wavefronts of ldmatrix; of cp.async what it reads as loads of global
memory, and what it writes to shared memory apart. What it leaves out: when copies arrive. Checked by
`smsp__inst_executed_op_ldsm`, `smsp__inst_executed_op_ldgsts`, `l1tex__t_requests_pipe_lsu_mem_global_op_ld`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsl.llvm.layout import Moved
from dsl.warpir import ir
from gpusim.counters import Counters


def add(counters: Counters, instr: ir.Move, warps: int, lanes: int, row: np.ndarray) -> None:
    """Add a move that some warps ran; row: int64 (len(Moved),), what was found at run time."""
    found = {name: int(row[name]) for name in Moved}
    counts = counters.shared_matrix if isinstance(instr, ir.LdMatrix) else counters.shared_async
    counts.lanes += lanes
    counts.bytes += lanes * instr.lane_bytes
    counts.requests += warps
    counts.wavefronts += found[Moved.WAVEFRONTS]
    counts.ideal_wavefronts += found[Moved.IDEAL]
    counters.async_requests += found[Moved.REQUESTS]
    loads = counters.global_load
    loads.lanes += found[Moved.LANES]
    loads.bytes += found[Moved.BYTES]
    loads.requests += found[Moved.REQUESTS]
    loads.sectors += found[Moved.SECTORS]


def parts(instr: ir.Move) -> Iterator[tuple[str, str, ir.Operand, int]]:
    """Yield the kind (a field of Counters), array, address and bytes a lane of each side of a move."""
    if isinstance(instr, ir.LdMatrix):
        yield "shared_matrix", instr.array, instr.addr, ROW_BYTES
    else:
        yield "global_load", instr.array, instr.addr, instr.bytes
        yield "shared_async", instr.to_array, instr.to, instr.bytes


ROW_BYTES = 16
"""What a lane of ldmatrix gives the address of."""
