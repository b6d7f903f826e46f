"""Machine code for the tensor cores: mma of a whole warp, through fragments in memory.

What it models: all 32 lanes have to be there; anything else stops the launch. What it leaves out: the
multiplication itself (dsl/tensor_ll.py). Checked by dsl/interpreter.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsl import ir, tensor_ll
from dsl.layout import Ctx, Error
from dsl.llvm import TYPES, vector
from dsl.tensor_ll import A_BYTES, B_BYTES, C_BYTES, D_BYTES, FRAGMENT_BYTES, REGISTER_BYTES

if TYPE_CHECKING:
    from dsl.codegen import WarpCode


def require_whole_warp(cg: WarpCode, instr: ir.Collective) -> None:
    """Stop the launch unless all 32 lanes are here; in the full form they are."""
    if cg.full:
        return
    t = cg.text
    bad, on = t.name("partial"), t.name("whole")
    t.put(f"br i1 {t.do(f'icmp eq i32 {cg.bits}, -1')}, label %{on}, label %{bad}")
    t.label(bad)
    number = next(n for n, i in enumerate(cg.collectives) if i is instr)
    t.put(f"store i64 {number}, ptr {t.field('%ctx', Ctx.ERROR_SITE)}")
    t.put(f"store i64 {t.do(f'zext i32 {cg.bits} to i64')}, ptr {t.field('%ctx', Ctx.ERROR_MASK)}")
    cg.fail(Error.WARP_PARTIAL)
    t.label(on)


def multiply(cg: WarpCode, instr: ir.Mma) -> None:
    """Emit an mma: write the fragments, call the function of its types, read the result."""
    require_whole_warp(cg, instr)
    if cg.options.counts_only:
        return
    t = cg.text
    name, functions = tensor_ll.mma(instr.a_type, instr.b_type)
    cg.helpers |= functions
    t.declared |= tensor_ll.DECLARED
    place = cg.fragments()
    for start, operands, type_ in (
        (A_BYTES, instr.a, "u32"), (B_BYTES, instr.b, "u32"), (C_BYTES, instr.c, "f32"),
    ):  # fmt: skip
        for k, operand in enumerate(operands):
            at = t.do(f"getelementptr i8, ptr {place}, i64 {start + k * REGISTER_BYTES}")
            t.put(f"store {vector(TYPES[type_])} {cg.vector(operand, type_)}, ptr {at}, align 64")
    t.put(f"call void @{name}(ptr {place})")
    for k, dst in enumerate(instr.dsts):
        at = t.do(f"getelementptr i8, ptr {place}, i64 {D_BYTES + k * REGISTER_BYTES}")
        cg.define(dst, t.do(f"load {vector('float')}, ptr {at}, align 64"))


def fragment_memory(cg: WarpCode) -> str:
    """Reserve the memory that the fragments of an mma pass through."""
    return cg.text.alloca(f"[{FRAGMENT_BYTES} x i8]", None)
