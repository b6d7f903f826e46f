"""How many FMUL a logarithm is, by who reads its argument too; each case as in ptxas 13.0's code for sm_90.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy import float32

from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim.arch import H200


@cuda.jit
def alone(x, y, n):
    t = cuda.threadIdx.x
    y[t] = x[t] + math.log(x[t + 32])


@cuda.jit
def read_later(x, y, n):
    t = cuda.threadIdx.x
    v = x[t]
    y[t] = math.log(v) * v


@cuda.jit
def read_before(x, y, n):
    t = cuda.threadIdx.x
    v = x[t]
    y[t + 32] = x[t + 32] * v
    y[t] = math.log(v)


@cuda.jit
def selected(x, y, n):
    t = cuda.threadIdx.x
    v = float32(1) if x[t] == float32(0) else x[t]
    if t < n:
        y[t] = math.log(v)


@cuda.jit
def read_in_a_loop_before(x, y, n):
    t = cuda.threadIdx.x
    v = x[t]
    for i in range(n):
        y[i + 32] = x[i] + v
    y[t] = math.log(v)


@cuda.jit
def read_in_an_unrolled_loop_before(x, y, n):
    t = cuda.threadIdx.x
    v = x[t]
    for i in range(8):
        y[i + 32] = x[i] + v
    y[t] = math.log(v)


@cuda.jit
def of_a_new_value_each_turn(x, y, n):
    t = cuda.threadIdx.x
    total = float32(0)
    for i in range(n):
        total += math.log(x[t + i])
    y[t] = total


@cuda.jit
def of_two(x, y, n):
    t = cuda.threadIdx.x
    v = x[t]
    y[t] = math.log(v) + math.log(x[t + 32])
    y[t + 32] = v


@pytest.mark.parametrize(("kernel", "multiplications"), [
    (alone, 1), (read_later, 2 + 1), (read_before, 1 + 1), (selected, 1), (read_in_a_loop_before, 2),
    (read_in_an_unrolled_loop_before, 1), (of_a_new_value_each_turn, 2 * 1), (of_two, 2 + 1)])
def test_a_logarithm_multiplies_once_more_where_its_argument_is_read_later_or_in_a_loop(
    kernel, multiplications
):
    lanes = 2 if kernel is selected else 32
    assert fmul(kernel) == multiplications * lanes


def fmul(kernel: Any) -> int:
    """Return the FMUL of a warp on numbers from 1 on; both engines count the same."""
    args = np.arange(1, 65, dtype=np.float32), np.zeros(64, np.float32), np.int64(2)
    counted = [launch(kernel, 1, 32, args, Device(H200), engine=engine).counters.arithmetic.fmul
               for engine in ("compiled", "ir")]
    assert counted[0] == counted[1]
    return counted[0]


def test_denormals_have_a_logarithm_in_both_forms():
    tiny = np.full(64, 2.0**-140, np.float32)
    for kernel in (alone, read_later):
        y = np.zeros(64, np.float32)
        launch(kernel, 1, 32, (tiny, y, np.int64(2)), Device(H200))
        expected = -140 * math.log(2) * (1 if kernel is alone else float(tiny[0]))
        assert y[0] == pytest.approx(expected, rel=1e-5, abs=1e-44)
