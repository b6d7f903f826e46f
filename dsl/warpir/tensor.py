"""The instructions of WarpIR that tensor-core kernels need: mma, ldmatrix and asynchronous copies.

What it models: PTX's mma.sync (row.col, float32 accumulators), ldmatrix (8 x 8 tiles of 16-bit elements) and
cp.async with its groups. They are members of the unions in dsl/warpir/ir.py and follow its rules. What it
leaves out: wgmma, TMA, mbarrier. Which ncu metric checks it: `sm__inst_executed_pipe_tensor_op_hmma`,
`smsp__inst_executed_op_ldgsts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsl.warpir.ir import Loc, Operand, Reg

PARTS = {"tf32": 1, "f16": 2, "bf16": 2, "e4m3": 4, "e5m2": 4}
"""Values of each operand type of an mma in one 32-bit register."""
ROWS, COLUMNS = 16, 8
"""Rows of A and of the accumulators, and columns of B and of the accumulators."""


@dataclass(frozen=True, slots=True)
class Mma:
    """Multiply and add on the tensor cores: d = a b + c by all 32 lanes of a warp together.

    a (16 x k, four u32 registers) and b (k x 8, two) hold packed values of `a_type` and `b_type`, c and dsts
    (16 x 8) four f32 each, in the layout of dsl/semantics/fragments.py. k is 8 for tf32, 16 for f16 and bf16,
    32 for e4m3 and e5m2. Each element adds its products in the order of k, one fused multiply-add after the
    other.
    """

    a_type: str
    b_type: str
    dsts: tuple[Reg, ...]
    a: tuple[Operand, ...]
    b: tuple[Operand, ...]
    c: tuple[Operand, ...]
    loc: Loc

    @property
    def depth(self) -> int:
        """Return k, the columns of A and rows of B."""
        return 8 * PARTS[self.a_type]


@dataclass(frozen=True, slots=True)
class LdMatrix:
    """Load as many 8 x 8 matrices of 16-bit elements from shared memory as there are dsts: 1, 2 or 4 (u32).

    Lane 8 i + r gives the byte offset of row r (16 bytes) of matrix i; lane 4 g + t receives elements 2 t and
    2 t + 1 of row g (`trans`: of column g), the first in the low half. All 32 lanes take part.
    """

    dsts: tuple[Reg, ...]
    addr: Operand
    array: str
    loc: Loc
    trans: bool = False

    @property
    def lane_bytes(self) -> int:
        """Return the bytes that a lane receives."""
        return 4 * len(self.dsts)


@dataclass(frozen=True, slots=True)
class CpAsync:
    """Copy `bytes` (4, 8 or 16) a lane from global `addr` to shared `to`, to be waited for.

    `taken` (s64, None: all) is how many bytes come from global memory; the rest of `bytes` is filled with
    zeros. cache is ca (through L1) or cg (past it, 16 bytes).
    """

    to: Operand
    to_array: str
    addr: Operand
    array: str
    bytes: int
    cache: str
    loc: Loc
    taken: Operand | None = None

    @property
    def lane_bytes(self) -> int:
        """Return the bytes that a lane writes."""
        return self.bytes


@dataclass(frozen=True, slots=True)
class CpCommit:
    """Close the thread's present group of asynchronous copies; the next copies belong to the next one."""

    loc: Loc


@dataclass(frozen=True, slots=True)
class CpWait:
    """Wait until at most `pending` of the groups that the thread has committed are not complete."""

    pending: int
    loc: Loc
