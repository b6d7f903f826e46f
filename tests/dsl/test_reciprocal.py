"""Divisions by constants, by which power of two they are."""

from __future__ import annotations

import numpy as np
import pytest
from numpy import float32, float64

from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from dsl.passes.reciprocal import multiply_by_reciprocals
from dsl.warpir import ir
from gpusim.arch import H200

LOC = ir.Loc("k.py", 1)


def divided(divisor: ir.Operand, kind: str = "f32") -> tuple[str, ir.Operand]:
    """Return (operation, second operand) of a register divided by a divisor."""
    x = ir.Reg(0, kind)
    block = ir.Block([ir.Alu("div", kind, ir.Reg(1, kind), (x, divisor), LOC)], ir.Ret(LOC))
    fn = multiply_by_reciprocals(ir.Function("k", "k.py", (), [block]))
    (instr,) = fn.blocks[0].instrs
    assert isinstance(instr, ir.Alu) and instr.srcs[0] == x
    return instr.op, instr.srcs[1]


@pytest.mark.parametrize(("divisor", "factor"), [
    (2.0, 0.5), (-4.0, -0.25), (0.5, 2.0), (1.0, 1.0), (2.0**126, 2.0**-126), (2.0**-126, 2.0**126)])
def test_a_power_of_two_becomes_its_reciprocal(divisor, factor):
    assert divided(ir.Imm(divisor)) == ("mul", ir.Imm(factor))


@pytest.mark.parametrize("divisor", [
    ir.Imm(3.0), ir.Imm(0.0), ir.Imm(float("inf")), ir.Imm(float("nan")), ir.Imm(2.0**127), ir.Reg(2, "f32")])
def test_any_other_divisor_stays_one(divisor):
    assert divided(divisor)[0] == "div"


def test_float64_has_more_powers_of_two_with_an_exact_reciprocal():
    assert divided(ir.Imm(2.0**127), "f64") == ("mul", ir.Imm(2.0**-127))
    assert divided(ir.Imm(2.0**1023), "f64")[0] == "div"


@cuda.jit
def quotients(x, y, z):
    t = cuda.threadIdx.x
    y[t] = x[t] / float32(8) + float32(1)
    z[t] = x[t] / float64(3)


def test_a_division_by_8_and_an_addition_are_one_ffma_and_one_by_3_is_a_division():
    x, y, z = np.arange(32, dtype=np.float32), np.zeros(32, np.float32), np.zeros(32, np.float64)
    counted = launch(quotients, 1, 32, (x, y, z), Device(H200)).counters.arithmetic
    assert (counted.ffma, counted.fmul, counted.fadd) == (32, 0, 0)
    assert counted.dfma > 0
    np.testing.assert_array_equal(y, x / np.float32(8) + np.float32(1))
    np.testing.assert_array_equal(z, x.astype(np.float64) / 3)
