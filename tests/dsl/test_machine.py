"""Check the table of machine counts against the formulas that a card showed."""

import pytest

from dsl.lowering.builder import Builder
from dsl.lowering.mathlib import logf
from dsl.warpir import ir
from dsl.warpir.machine import KEYS, block_counts, machine_counts

LOC = ir.Loc("k.py", 1)


def alu(op: str, type_: str = "f32", tag: str = "") -> ir.Alu:
    return ir.Alu(op, type_, ir.Reg(0, type_), (ir.Imm(3), ir.Imm(3), ir.Imm(3)), LOC, tag)


def total(*instrs: ir.Instr) -> dict[str, int]:
    return block_counts(ir.Block(list(instrs), ir.Ret(LOC)))


def exponential() -> list[ir.Instr]:
    """Return the operations that math.exp of float32 is made of on the card."""
    return [
        alu("fma_sat"),
        alu("fma_rm"),
        alu("add"),
        alu("neg"),
        alu("fma"),
        alu("fma"),
        alu("ex2"),
        alu("mul"),
    ]


@pytest.mark.parametrize("p, d, n", [(1, 0, 0), (0, 1, 1), (7, 64, 3)])
def test_flash_row_counts_are_the_measured_formula(p: int, d: int, n: int) -> None:
    """Fact 11: FFMA = 2pd + 9p + 5Nd + 11N, FMUL = pd + 3p + N, FADD = 4p + 2N."""
    pair = [alu("fma")] * d + [alu("mul"), alu("max")]
    pair += [alu("sub"), *exponential(), alu("sub"), *exponential(), alu("fma")] + [
        alu("mul"),
        alu("fma"),
    ] * d
    row = [alu("div")] * d + [alu("log"), alu("add")]
    got = total(*pair * p, *row * n)
    assert got["ffma"] == 2 * p * d + 9 * p + 5 * n * d + 11 * n
    assert got["fmul"] == p * d + 3 * p + n
    assert got["fadd"] == 4 * p + 2 * n


def test_exp_as_one_operation_counts_the_same_as_its_parts() -> None:
    assert total(alu("exp")) == total(*exponential())
    assert total(alu("exp"))["ffma"] == 4


def test_division_counts_5_ffma_and_a_mufu_but_no_fmul_and_two_instructions_on_xu() -> None:
    assert machine_counts(alu("div")) == {"ffma": 5, "mufu": 1, "xu": 2}


@pytest.mark.parametrize(("dividend", "type_", "ffma"), [(1.0, "f32", 2), (2.0, "f32", 5), (-1.0, "f32", 5)])
def test_one_over_x_is_a_reciprocal_of_2_ffma_and_an_fadd(dividend: float, type_: str, ffma: int) -> None:
    x = ir.Reg(0, type_)
    got = machine_counts(ir.Alu("div", type_, ir.Reg(1, type_), (ir.Imm(dividend), x), LOC))
    assert got["ffma"] == ffma
    if dividend == 1:
        assert got == {"ffma": 2, "fadd": 1, "mufu": 1, "xu": 1}


def test_float64_counts_as_d_operations_and_not_as_f_operations() -> None:
    got = total(alu("add", "f64"), alu("mul", "f64"), alu("fma", "f64"))
    assert (got["dadd"], got["dmul"], got["dfma"]) == (1, 1, 1)
    assert (got["fadd"], got["fmul"], got["ffma"]) == (0, 0, 0)


def test_a_predicated_operation_counts_nothing() -> None:
    assert machine_counts(alu("mul", tag="predicated")) == {}
    assert machine_counts(alu("mul")) == {"fmul": 1}


@pytest.mark.parametrize("op", ["neg", "abs", "mov"])
def test_signs_and_moves_of_floats_count_nothing(op: str) -> None:
    assert machine_counts(alu(op)) == {} and machine_counts(alu(op, "f64")) == {}


def test_integer_comparison_selection_and_conversion_count_as_integer() -> None:
    r, p = ir.Reg(0, "s32"), ir.Reg(1, "pred")
    assert machine_counts(alu("add", "s64")) == {"integer": 1}
    assert machine_counts(ir.Setp("lt", "f32", p, ir.Imm(1), ir.Imm(2), LOC)) == {"integer": 1}
    assert machine_counts(ir.Selp("s32", r, r, r, p, LOC)) == {"integer": 1}
    assert machine_counts(ir.Cvt(r, "s64", r, "s32", LOC)) == {"integer": 1}
    assert machine_counts(alu("max")) == {"integer": 1}


def test_a_conversion_between_float_and_integer_uses_xu_and_one_from_a_predicate_does_not() -> None:
    f, r, p = ir.Reg(0, "f32"), ir.Reg(1, "s64"), ir.Reg(2, "pred")
    assert machine_counts(ir.Cvt(f, "f32", r, "s64", LOC)) == {"integer": 1, "xu": 1}
    assert machine_counts(ir.Cvt(r, "s64", f, "f32", LOC)) == {"integer": 1, "xu": 1}
    assert machine_counts(ir.Cvt(f, "f32", p, "pred", LOC)) == {"integer": 1}


@pytest.mark.parametrize("type_", ["s32", "u32"])
def test_a_32_bit_integer_becomes_a_float32_without_xu_but_not_a_float64_and_not_the_other_way(
    type_: str,
) -> None:
    """Fact 25: I2FP runs on the integer pipe; I2F.F64 and F2I run on XU."""
    r, f, wide = ir.Reg(0, type_), ir.Reg(1, "f32"), ir.Reg(2, "f64")
    assert machine_counts(ir.Cvt(f, "f32", r, type_, LOC)) == {"integer": 1}
    assert machine_counts(ir.Cvt(wide, "f64", r, type_, LOC)) == {"integer": 1, "xu": 1}
    assert machine_counts(ir.Cvt(r, type_, f, "f32", LOC)) == {"integer": 1, "xu": 1}


def test_a_float32_logarithm_does_not_use_xu() -> None:
    """Its exponent, an s32, becomes a float32: one I2FP."""
    builder = Builder("k", LOC)
    logf(builder, ir.Imm(2.0))
    (draft,) = builder.drafts
    assert any(isinstance(i, ir.Cvt) and i.to_type == "f32" for i in draft.instrs)
    assert total(*draft.instrs)["xu"] == 0


def test_counting_bits_uses_xu_once_for_each_32_bits_and_other_integer_operations_do_not() -> None:
    for op in ("popc", "brev", "clz"):
        assert machine_counts(alu(op, "u32")) == {"integer": 1, "xu": 1}
        assert machine_counts(alu(op, "s64")) == {"integer": 1, "xu": 2}
    assert machine_counts(alu("xor", "u32")) == {"integer": 1}


def test_memory_checks_special_registers_and_warp_operations_count_no_arithmetic() -> None:
    r = ir.Reg(0, "s64")
    for instr in (
        ir.Chk(r, r, r, "a", 0, LOC),
        ir.Sreg(ir.Reg(1, "s32"), "tid.x", LOC),
        ir.Ld("global", "f32", (ir.Reg(2, "f32"),), r, "a", LOC),
        alu("and", "pred"),
        alu("mov", "s32"),
        ir.SyncWarp(ir.Imm(0xFFFFFFFF), LOC),
        ir.Shfl("idx", "s32", ir.Reg(1, "s32"), ir.Imm(1), ir.Imm(0), ir.Imm(0xFFFFFFFF), LOC),
    ):
        assert machine_counts(instr) == {}


@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize("op", ["div", "sqrt", "rsqrt", "rcp", *ir.MATH_CALLS])
def test_every_library_call_counts_something_known(op: str, type_: str) -> None:
    counts = machine_counts(alu(op, type_))
    assert counts and set(counts) <= set(KEYS)
