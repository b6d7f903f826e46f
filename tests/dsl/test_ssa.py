"""SSA form: phis where assignments meet, at loop headers, and at the exits of loops."""

from __future__ import annotations

import pytest

from dsl.passes.intervals import Intervals, Limits
from dsl.passes.shapes import Shapes, thread_index
from dsl.passes.ssa import build
from dsl.warpir import ir
from dsl.warpir.ir import Alu, Block, Bra, Function, Imm, Jmp, Reg, Ret, Setp, Sreg

L = ir.Loc("k.py", 1)
X, Y, C = Reg(0, "s64", "x"), Reg(1, "s64", "y"), Reg(2, "pred", "c")
T = Reg(3, "s32", "t")


def function(*blocks: Block) -> Function:
    return Function("k", "k.py", (), list(blocks), n_regs=8)


def diamond(divergent: bool) -> Function:
    test = Setp("lt", "s32", C, T if divergent else Imm(1), Imm(5), L)
    return function(
        Block([Sreg(T, "tid.x", L), test], Bra(C, 1, 2, L)),
        Block([Alu("add", "s64", X, (Imm(1), Imm(0)), L)], Jmp(3, L)),
        Block([Alu("add", "s64", X, (Imm(2), Imm(0)), L)], Jmp(3, L)),
        Block([Alu("add", "s64", Y, (X, X), L)], Ret(L)),
    )


def counted_loop(bound: ir.Operand, divergent: bool = False) -> Function:
    limit = T if divergent else bound
    return function(
        Block([Sreg(T, "tid.x", L), Alu("mov", "s64", X, (Imm(0),), L)], Jmp(1, L)),
        Block([Setp("lt", "s64", C, X, limit, L)], Bra(C, 2, 3, L)),
        Block([Alu("add", "s64", X, (X, Imm(8)), L)], Jmp(1, L)),
        Block([Alu("add", "s64", Y, (X, Imm(1)), L)], Ret(L)),
    )


def analysed(fn: Function, block=(64, 1, 1)):
    ssa = build(fn)
    intervals = Intervals(ssa, Limits(block))
    return ssa, intervals, Shapes(ssa, intervals)


def test_a_value_assigned_in_both_arms_meets_in_one_phi():
    ssa, _, shapes = analysed(diamond(divergent=False))
    (phi,) = ssa.phis[3]
    assert set(phi.incoming) == {1, 2}
    assert shapes.shape[phi.dst.index].uniform


def test_the_phi_of_a_divergent_branch_varies_though_both_arms_are_uniform():
    ssa, _, shapes = analysed(diamond(divergent=True))
    (phi,) = ssa.phis[3]
    assert shapes.divergent == {0}
    assert shapes.shape[phi.dst.index].varying


def test_copies_disappear_and_a_constant_start_reaches_the_loop_phi():
    ssa, _, _ = analysed(counted_loop(Imm(64)))
    (header,) = ssa.phis[1]
    assert header.incoming[0] == Imm(0)


def test_a_value_that_leaves_a_loop_gets_a_phi_at_the_exit():
    ssa, _, shapes = analysed(counted_loop(Imm(64)))
    (exit_phi,) = ssa.phis[3]
    assert set(exit_phi.incoming) == {1}
    assert shapes.shape[exit_phi.dst.index].uniform


def test_lanes_that_leave_a_loop_at_different_times_make_the_exit_phi_vary_but_not_the_counter():
    ssa, _, shapes = analysed(counted_loop(Imm(64), divergent=True))
    (header,), (exit_phi,) = ssa.phis[1], ssa.phis[3]
    assert shapes.shape[header.dst.index].uniform
    assert shapes.shape[exit_phi.dst.index].varying


def test_the_counter_of_a_loop_is_bounded_by_its_condition_and_rounded_to_its_step():
    ssa, intervals, _ = analysed(counted_loop(Imm(61)))
    (header,) = ssa.phis[1]
    assert intervals.at(header.dst, 2) == (0, 56)
    assert intervals.at(header.dst, 1)[0] == 0


def test_a_second_back_edge_is_refused():
    fn = counted_loop(Imm(64))
    fn.blocks[2].terminator = Bra(C, 1, 3, L)
    fn.blocks[3].terminator = Jmp(1, L)
    with pytest.raises(ir.MalformedIR, match="two back edges"):
        build(fn)


@pytest.mark.parametrize(
    ("axis", "block", "pattern"),
    [
        ("x", (64, 1, 1), tuple(range(32))),
        ("x", (16, 4, 1), tuple(lane % 16 for lane in range(32))),
        ("y", (16, 4, 1), tuple(lane // 16 for lane in range(32))),
        ("y", (32, 4, 1), (0,) * 32),
        ("z", (8, 8, 2), (0,) * 32),
        ("x", (33, 3, 1), None),
        ("y", (33, 3, 1), None),
    ],
)
def test_the_lanes_of_a_warp_see_thread_index_as_a_known_pattern_where_rows_fit_warps(axis, block, pattern):
    assert thread_index(axis, block).pattern == pattern
