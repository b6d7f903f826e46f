"""The instructions of WarpIR that tensor-core kernels need: mma.

What it models: PTX's mma.sync (row.col, float32 accumulators). They are members of the unions in dsl/ir.py
and follow its rules. What it leaves out: wgmma, integer and sparse mma. Which ncu metric checks it:
`sm__inst_executed_pipe_tensor_op_hmma`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsl.ir import Loc, Operand, Reg

PARTS = {"tf32": 1, "f16": 2, "bf16": 2, "e4m3": 4, "e5m2": 4}
"""Values of each operand type of an mma in one 32-bit register."""
ROWS, COLUMNS = 16, 8
"""Rows of A and of the accumulators, and columns of B and of the accumulators."""


@dataclass(frozen=True, slots=True)
class Mma:
    """Multiply and add on the tensor cores: d = a b + c by all 32 lanes of a warp together.

    a (16 x k, four u32 registers) and b (k x 8, two) hold packed values of `a_type` and `b_type`, c and dsts
    (16 x 8) four f32 each, in the layout of dsl/fragments.py. k is 8 for tf32, 16 for f16 and bf16, 32 for
    e4m3 and e5m2. Each element adds its products in the order of k, one fused multiply-add after the other.
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
