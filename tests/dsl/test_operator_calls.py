"""The functions of `operator` in kernels: each gives what its operator gives."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.types import ArgType
from gpusim.errors import UnsupportedFeature
from tests.dsl.engine_support import assert_equal, both
from tests.dsl.frontend_support import agree, compiled, ops


def arithmetic(o, a, b):
    i = cuda.threadIdx.x
    o[0, i] = operator.add(a[i], b[i])
    o[1, i] = operator.sub(a[i], b[i])
    o[2, i] = operator.mul(a[i], b[i])
    o[3, i] = operator.truediv(a[i], b[i])
    o[4, i] = operator.floordiv(a[i], b[i])
    o[5, i] = operator.mod(a[i], b[i])
    o[6, i] = operator.neg(a[i]) + operator.pos(b[i])
    o[7, i] = operator.iadd(a[i], b[i]) - operator.isub(a[i], b[i])
    o[8, i] = operator.lt(a[i], b[i]) + 2 * operator.ge(a[i], b[i]) + 4 * operator.ne(a[i], b[i])
    o[9, i] = operator.not_(a[i])


def test_arithmetic_and_comparisons_by_name() -> None:
    args = np.zeros((10, 3)), np.array([7.0, -7.5, 0.0]), np.array([2.0, 2.0, -4.0])
    assert_equal(*both(cuda.jit(arithmetic), (1, 1, 1), (3, 1, 1), args))
    assert agree(arithmetic, 1, 3, *args)[0].T.tolist() == [
        [9, 5, 14, 3.5, 3, 1, -5, 4, 6, 0],
        [-5.5, -9.5, -15, -3.75, -4, 0.5, 9.5, 4, 5, 0],
        [-4, 4, 0, 0, 0, 0, -4, -8, 6, 1],
    ]


def bits(o, a, b):
    o[0] = operator.and_(a, b)
    o[1] = operator.or_(a, b)
    o[2] = operator.xor(a, b)
    o[3] = operator.lshift(a, b)
    o[4] = operator.rshift(a, b)
    o[5] = operator.invert(a)
    o[6] = operator.ior(a, b) + operator.ipow(b, 2)


def test_operations_on_bits_by_name() -> None:
    assert agree(bits, 1, 1, np.zeros(7, np.int64), 12, 10)[0].tolist() == [8, 14, 6, 12288, 0, -13, 114]


OP = operator.mul


def of_a_global(o, a, b):
    o[0] = OP(a, b) + operator.add((1, 2), (3,))[2]


def test_a_function_in_a_global_has_its_operators_type() -> None:
    f32 = ArgType("f32", 1), ArgType("f32"), ArgType("f32")
    assert ops(compiled(of_a_global, *f32))["mul.f32"] == 1
    assert agree(of_a_global, 1, 1, np.zeros(1), 3.0, 4.0)[0][0] == 15


def too_few(o):
    o[0] = operator.add(1)


def no_operator(o):
    o[0] = operator.itemgetter(0)


def matrices(o):
    o[0] = operator.matmul(o, o)


@pytest.mark.parametrize(
    "kernel, text",
    [
        (too_few, "operator.add of 1 argument; it takes 2"),
        (no_operator, "a call of itemgetter is not in the kernel language"),
        (matrices, "a call of matmul is not in the kernel language"),
    ],
)
def test_other_functions_and_numbers_of_arguments_are_refused(kernel: Any, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=text):
        compiled(kernel, ArgType("f64", 1))
