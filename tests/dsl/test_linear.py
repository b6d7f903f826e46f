"""Linear forms of integer registers, worked out by hand."""

from __future__ import annotations

import pytest

from dsl.passes.linear import Form, Forms
from dsl.warpir import ir

LOC = ir.Loc("k.py", 1)


def reg(n: int, kind: str = "s64") -> ir.Reg:
    return ir.Reg(n, kind)


def alu(op: str, dst: int, *srcs: ir.Operand | int) -> ir.Alu:
    return ir.Alu(op, "s64", reg(dst), tuple(ir.Imm(s) if isinstance(s, int) else s for s in srcs), LOC)


def with_thread() -> tuple[Forms, Form]:
    """Return forms in which register 0 is threadIdx.x, and its form."""
    forms = Forms()
    forms.define(ir.Sreg(reg(0, "s32"), "tid.x", LOC))
    return forms, forms.of(reg(0, "s32"))


def test_sums_and_multiples_of_one_atom_are_linear():
    forms, thread = with_thread()
    (atom, _), = thread.terms
    forms.define(alu("mul", 1, reg(0), 64))
    forms.define(alu("add", 2, reg(1), 12))
    forms.define(alu("shl", 3, reg(2), 2))
    forms.define(alu("sub", 4, reg(3), reg(0)))
    assert forms.of(reg(2)) == Form(12, ((atom, 64),))
    assert forms.of(reg(3)) == Form(48, ((atom, 256),))
    assert forms.of(reg(4)) == Form(48, ((atom, 255),))
    assert (forms.divisor(forms.of(reg(3))), forms.divisor(Form(5))) == (256, 0)


@pytest.mark.parametrize(("op", "a", "b", "value"), [
    ("floordiv", -7, 2, -4), ("floormod", -7, 2, 1), ("div", -7, 2, -3), ("rem", -7, 2, -1), ("min", 3, 5, 3),
    ("max", 3, 5, 5), ("and", 6, 3, 2), ("or", 6, 3, 7), ("xor", 6, 3, 5), ("mul", 6, 3, 18)])
def test_operations_on_numbers_are_folded(op, a, b, value):
    forms = Forms()
    forms.define(alu(op, 1, a, b))
    assert forms.of(reg(1)) == Form(value)


def test_the_same_computation_of_the_same_operands_is_one_atom_and_another_is_not():
    forms, _ = with_thread()
    forms.define(alu("floordiv", 1, reg(0), 8))
    forms.define(alu("floordiv", 2, reg(0), 8))
    forms.define(alu("floordiv", 3, reg(0), 4))
    assert forms.of(reg(1)) == forms.of(reg(2)) != forms.of(reg(3))


def test_a_load_is_the_same_value_until_something_is_stored():
    forms, _ = with_thread()
    for dst in (1, 2):
        forms.define(ir.Ld("global", "s64", (reg(dst),), ir.Imm(8), "x", LOC))
    forms.epoch += 1
    forms.define(ir.Ld("global", "s64", (reg(3),), ir.Imm(8), "x", LOC))
    assert forms.of(reg(1)) == forms.of(reg(2)) != forms.of(reg(3))


def test_a_comparison_of_numbers_decides_a_selection():
    forms, thread = with_thread()
    forms.define(ir.Setp("lt", "s64", reg(1, "pred"), ir.Imm(3), ir.Imm(4), LOC))
    forms.define(ir.Selp("s64", reg(2), reg(0), ir.Imm(9), reg(1, "pred"), LOC))
    assert forms.of(reg(2)) == thread


def checked(forms: Forms, dst: int, index: int, extent: ir.Operand) -> Form:
    forms.define(ir.Chk(reg(dst), reg(index), extent, "s", 0, LOC))
    return forms.of(reg(dst))


def test_a_checked_number_is_a_number_and_a_negative_one_wraps():
    forms = Forms()
    forms.define(alu("add", 1, -3, 0))
    assert checked(forms, 2, 1, ir.Imm(16)) == Form(13)


def test_checked_multiples_of_8_share_a_wrap_up_to_7_words_further():
    forms, _ = with_thread()
    forms.define(alu("mul", 1, reg(0), 8))
    for dst, further in ((2, 7), (3, 8)):
        forms.define(alu("add", dst, reg(1), further))
    first, within, beyond = (checked(forms, 10 + k, k, ir.Imm(1000)) for k in (1, 2, 3))
    assert within == Form(7, first.terms) and beyond.terms != first.terms
    assert forms.divisor(first) == 8  # 8 divides 1,000 as well


def test_a_wrap_by_an_unknown_extent_leaves_no_divisor():
    forms, _ = with_thread()
    forms.define(ir.LdParam(reg(5), "s.shape.0", LOC))
    forms.define(alu("mul", 1, reg(0), 8))
    assert forms.divisor(checked(forms, 2, 1, reg(5))) == 1


def test_a_multiple_of_a_sum_of_two_atoms_is_a_multiple_of_one():
    forms, _ = with_thread()
    forms.define(ir.Sreg(reg(1, "s32"), "tid.y", LOC))
    forms.define(alu("add", 2, reg(0), reg(1)))
    forms.define(alu("mul", 3, reg(2), 16))
    assert [factor for _, factor in forms.of(reg(3)).terms] == [16]
    assert len(forms.of(reg(2)).terms) == 2
