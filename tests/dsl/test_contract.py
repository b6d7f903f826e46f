"""Contraction of mul + add to fma: where it happens, where it does not, and the counts that a card showed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numba import float32

from dsl import cuda
from dsl.passes.contract import contract
from dsl.types import ArgType
from dsl.warpir import ir
from dsl.warpir.machine import block_counts
from tests.dsl.frontend_support import compiled, interpret, ops

F32, F64, A = ArgType("f32"), ArgType("f64"), ArgType("f32", 1)
LOC = ir.Loc("k.py", 1)


def product_plus(o, a, b, c):
    o[0] = a * b + c


def plus_product(o, a, b, c):
    o[0] = c + a * b


def product_minus(o, a, b, c):
    o[0] = a * b - c


def minus_product(o, a, b, c):
    o[0] = c - a * b


@pytest.mark.parametrize(
    "kernel, value", [(product_plus, 11), (plus_product, 11), (product_minus, 1), (minus_product, -1)]
)
@pytest.mark.parametrize("scalar", [np.float32, np.float64])
def test_a_product_in_a_sum_becomes_one_fma(kernel: Any, value: float, scalar: Any) -> None:
    args = (np.zeros(1, scalar), scalar(2), scalar(3), scalar(5))
    count = ops(compiled(kernel, *args))
    short = "f32" if scalar is np.float32 else "f64"
    assert (
        count[f"fma.{short}"] == 1
        and not count[f"mul.{short}"] + count[f"add.{short}"] + count[f"sub.{short}"]
    )
    assert interpret(kernel, 1, 1, *args)[0][0] == value


def test_an_fma_rounds_once() -> None:
    x = np.float32(1 + 2**-12)
    assert interpret(product_plus, 1, 1, np.zeros(1, np.float32), x, x, -np.float32(1 + 2**-11))[0][
        0
    ] == np.float32(2**-24)


def two_products(o, a, b, c):
    o[0] = a * b + b * c


def test_of_two_products_the_first_is_fused() -> None:
    (fma,) = [
        i
        for b in compiled(two_products, A, F32, F32, F32).blocks
        for i in b.instrs
        if isinstance(i, ir.Alu) and i.op == "fma"
    ]
    assert [getattr(s, "name", "") for s in fma.srcs] == ["a", "b", ""]


def used_twice(o, a, b, c):
    p = a * b
    o[0] = p + c
    o[1] = p


def across_blocks(o, a, b, c):
    p = a * b
    if c > 0:
        o[0] = p + c


def mixed_types(o, a, b, c):
    o[0] = a * b + 1.0


@pytest.mark.parametrize("kernel", [used_twice, across_blocks, mixed_types])
def test_a_product_read_twice_or_in_another_block_or_type_is_not_fused(kernel: Any) -> None:
    count = ops(compiled(kernel, A, F32, F32, F32))
    assert count["mul.f32"] == 1 and not count["fma.f32"]


def integers(o, a, b, c):
    o[0] = a * b + c


def test_integer_products_are_not_fused() -> None:
    assert not ops(compiled(integers, ArgType("s64", 1), *[ArgType("s64")] * 3))["fma.s64"]


def function(*instrs: ir.Instr) -> ir.Function:
    return ir.Function("k", "k.py", (), [ir.Block(list(instrs), ir.Ret(LOC))], n_regs=10)


def test_a_factor_assigned_in_between_or_a_tag_keeps_the_product() -> None:
    a, b, p, s = (ir.Reg(k, "f32") for k in range(4))
    mul, change, add = (
        ir.Alu("mul", "f32", p, (a, b), LOC),
        ir.Alu("mov", "f32", a, (ir.Imm(1.0),), LOC),
        ir.Alu("add", "f32", s, (p, b), LOC),
    )
    tagged = ir.Alu("mul", "f32", p, (a, b), LOC, "nocontract")
    assert [i.op for i in contract(function(mul, add)).blocks[0].instrs] == ["fma"]
    assert [i.op for i in contract(function(mul, change, add)).blocks[0].instrs] == ["mul", "mov", "add"]
    assert [i.op for i in contract(function(tagged, add)).blocks[0].instrs] == ["mul", "add"]


def counts(kernel: Any, *args: ArgType) -> dict[str, int]:
    """Count machine instructions of one pass through every block."""
    total: dict[str, int] = {}
    for block in compiled(kernel, *args).blocks:
        for key, n in block_counts(block).items():
            total[key] = total.get(key, 0) + n
    return total


def sum_of_exp(o, s, m):
    z = float32(0)
    for j in range(o.size):
        z += math.exp(s[j] - m)
    o[0] = z


def exp_over_sum(o, s, m, z):
    for j in range(o.size):
        o[j] = math.exp(s[j] - m) / z


def test_an_exponential_that_is_added_up_costs_5_ffma_and_2_fadd() -> None:
    got = counts(sum_of_exp, A, A, F32)
    assert (got["ffma"], got["fmul"], got["fadd"], got["mufu"]) == (5, 0, 2, 1)


def test_an_exponential_over_a_sum_costs_4_ffma_1_fmul_2_fadd_and_a_division() -> None:
    got = counts(exp_over_sum, A, A, F32, F32)
    assert (got["ffma"], got["fmul"], got["fadd"], got["mufu"]) == (4 + 5, 1, 2, 2)


def online_softmax_row(q, k, v, o, lse, scale):
    i = cuda.grid(1)
    acc = cuda.local.array(4, float32)
    top, total = float32(-3e38), float32(0)
    for r in range(k.shape[0]):
        s = float32(0)
        for c in range(4):
            s += q[i, c] * k[r, c]
        s *= scale
        above = max(top, s)
        shrink = math.exp(top - above)
        p = math.exp(s - above)
        total = total * shrink + p
        for c in range(4):
            acc[c] = acc[c] * shrink + p * v[r, c]
        top = above
    for c in range(4):
        o[i, c] = acc[c] / total
    lse[i] = top + math.log(total)


def test_online_softmax_counts_are_those_of_the_card() -> None:
    """Fact 11, one pass through each block: FFMA = 2d + 9 a pair and 5d + 11 a row (d = 1 here, as loops are
    rolled).
    """
    matrix = ArgType("f32", 2)
    got = counts(online_softmax_row, matrix, matrix, matrix, matrix, A, F32)
    assert got["ffma"] == 2 + 9 + 5 + 11
    assert got["fmul"] == 1 + 3 + 1
    assert got["fadd"] == 4 + 2
    assert got["dfma"] == got["dmul"] == got["dadd"] == 0
