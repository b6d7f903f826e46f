"""Machine code for mma and ldmatrix: a whole warp at once, through fragments in memory.

What it models: all 32 lanes have to be there, and rows of matrices to be aligned; anything else stops the
launch. What it leaves out: the multiplication itself (dsl/llvm/tensor.py). Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsl.codegen import copies
from dsl.llvm import matrix, runtime
from dsl.llvm import tensor as tensor_ll
from dsl.llvm.layout import Ctx, Error, Moved
from dsl.llvm.tensor import A_BYTES, B_BYTES, C_BYTES, D_BYTES, FRAGMENT_BYTES, REGISTER_BYTES, TAG_BYTES
from dsl.llvm.text import TYPES, vector
from dsl.warpir import ir

if TYPE_CHECKING:
    from dsl.codegen.kernel import WarpCode


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
    """Reserve the memory that the fragments of an mma pass through, with no A in it that was widened."""
    place = cg.text.alloca(f"[{FRAGMENT_BYTES} x i8]", None)
    cg.text.head += [
        f"  {place}.tag = getelementptr i8, ptr {place}, i64 {TAG_BYTES}",
        f"  store i64 0, ptr {place}.tag",
    ]
    return place


def load_matrix(cg: WarpCode, instr: ir.LdMatrix) -> None:
    """Emit an ldmatrix: its checks, its wavefronts, its data."""
    require_whole_warp(cg, instr)
    t, number, matrices = cg.text, cg.number_of_move(instr), len(instr.dsts)
    addresses = cg.vector(instr.addr, "s64")
    lanes = str((1 << 8 * matrices) - 1 if matrices < 4 else -1)
    copies.require_multiple(cg, addresses, lanes, matrix.ROW_BYTES, Error.ROW_MISALIGNED, number)
    t.put(f"store {vector('i64')} {addresses}, ptr %scratch, align 64")
    _count_wavefronts(cg, number, matrices)
    if cg.options.counts_only:
        return
    copies.require_complete(cg, "%scratch", lanes, matrix.ROW_BYTES, number, is_move=True)
    name, cg.helpers[name] = matrix.load(instr.trans)
    place = cg.fragments()
    t.put(f"call void @{name}(ptr %scratch, ptr %shared, ptr {place}, i64 {matrices})")
    for k, dst in enumerate(instr.dsts):
        at = t.do(f"getelementptr i8, ptr {place}, i64 {k * matrix.MATRIX_BYTES}")
        cg.define(dst, t.do(f"load {vector('i32')}, ptr {at}, align 64"))


def _count_wavefronts(cg: WarpCode, number: int, matrices: int) -> None:
    """Count one wavefront a matrix, or ask the rule of the banks where rows share some."""
    t = cg.text
    cg.helpers["matrix_rows_clean"] = matrix.rows_clean()
    t.declared |= matrix.DECLARED
    clean = t.do(f"call i1 @matrix_rows_clean(ptr %scratch, i64 {matrices})")
    before, clash, on = t.name("rows"), t.name("clash"), t.name("on")
    t.put(f"br label %{before}")
    t.label(before)
    t.put(f"br i1 {clean}, label %{on}, label %{clash}")
    t.label(clash)
    slow = t.call("i64", runtime.MATRIX_WAVEFRONTS, ("ptr", "%scratch"), ("i64", str(matrices)))
    t.put(f"br label %{on}")
    t.label(on)
    taken = t.do(f"phi i64 [ {matrices}, %{before} ], [ {slow}, %{clash} ]")
    cg.count_move(number, Moved.WAVEFRONTS, taken)
    ideal = t.intrinsic("umin", "i64", taken, str(matrices))
    cg.count_move(number, Moved.IDEAL, ideal)
