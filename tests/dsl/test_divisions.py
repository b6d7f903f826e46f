"""Which integer divisions use the special function pipe, 3 warp instructions each; as in ptxas 13.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl import cuda
from tests.dsl.three_engines import agreed

WIDTH = 8


def xu(kernel: Any, threads: int = 32) -> int:
    """Return the XU instructions of one block on n = 5; engines and oracle agree."""

    def args() -> tuple[Any, ...]:
        return np.zeros(64, np.int64), np.int64(5)

    return agreed(kernel, 1, threads, args)[0].counters.arithmetic.xu_warps


@cuda.jit
def by_an_argument(o, n):
    t = cuda.threadIdx.x
    o[t] = t // n


@cuda.jit
def remainder_by_an_argument(o, n):
    t = cuda.threadIdx.x
    o[t] = t % n


@cuda.jit
def quotient_and_remainder(o, n):
    t = cuda.threadIdx.x
    o[t] = (t + n) // n + (t + n) % n


@cuda.jit
def twice_the_same(o, n):
    t = cuda.threadIdx.x
    o[t] = t // n
    o[t] += t // n


@cuda.jit
def of_a_constant(o, n):
    o[cuda.threadIdx.x] = 1000 // n


@cuda.jit
def by_a_shape(o, n):
    o[cuda.threadIdx.x] = n // o.shape[0]


@cuda.jit
def in_a_loop_of_n(o, n):
    total = 0
    for k in range(n):
        total += (k + n) // n
    o[cuda.threadIdx.x] = total


@cuda.jit
def in_one_lane(o, n):
    t = cuda.threadIdx.x
    if t == 3:
        o[t] = t // n


@pytest.mark.parametrize(("kernel", "divisions"), [
    (by_an_argument, 1), (remainder_by_an_argument, 1), (quotient_and_remainder, 2), (twice_the_same, 2),
    (of_a_constant, 1), (by_a_shape, 1), (in_a_loop_of_n, 5), (in_one_lane, 1)])
def test_a_division_by_an_unknown_number_is_3_instructions_of_xu(kernel, divisions):
    assert xu(kernel) == 3 * divisions


def test_warps_divide_one_by_one():
    assert xu(by_an_argument, threads=64) == 2 * 3


@cuda.jit
def by_a_constant(o, n):
    t = cuda.threadIdx.x
    o[t] = t // 7 + n % 10


@cuda.jit
def by_a_name_of_a_constant(o, n):
    t = cuda.threadIdx.x
    width = WIDTH
    rows = width * 3
    o[t] = t // width + t % rows


@cuda.jit
def by_the_counter_of_an_unrolled_loop(o, n):
    total = 0
    for k in range(1, 5):
        total += n // (k + 1)
    o[cuda.threadIdx.x] = total


@cuda.jit
def of_a_range_with_a_step(o, n):
    for k in range(cuda.threadIdx.x, 64, 32):
        o[k] = n


@cuda.jit
def multiplied(o, n):
    t = cuda.threadIdx.x
    o[t] = t * n + (t >> 2) + (t & 3)


@pytest.mark.parametrize("kernel", [
    by_a_constant, by_a_name_of_a_constant, by_the_counter_of_an_unrolled_loop, of_a_range_with_a_step,
    multiplied])
def test_a_division_by_a_number_that_the_compiler_knows_uses_no_xu(kernel):
    assert xu(kernel) == 0


@cuda.jit
def by_a_name_with_two_values(o, n):
    t = cuda.threadIdx.x
    width = 4
    if n > 3:
        width = 8
    o[t] = t // width


def test_a_name_that_holds_one_of_two_constants_is_an_unknown_number():
    assert xu(by_a_name_with_two_values) == 3


@cuda.jit
def over_a_range_with_an_unknown_step(o, n):
    for k in range(cuda.threadIdx.x, 64, n):
        o[k] = n


@cuda.jit
def over_a_grid_stride(o, n):
    for k in range(cuda.grid(1), 64, cuda.gridsize(1)):
        o[k] = n


@cuda.jit
def over_the_same_range_each_turn(o, n):
    for _ in range(n):
        for k in range(cuda.grid(1), o.shape[0], cuda.gridsize(1)):
            o[k] = n


@cuda.jit
def over_a_block_stride_each_turn(o, n):
    total = 0
    for _ in range(n):
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            total += o[k]
    o[cuda.grid(1)] = total


@cuda.jit
def over_another_range_each_turn(o, n):
    for first in range(n):
        for k in range(first, 64, n):
            o[k] = n


@pytest.mark.parametrize(("kernel", "divisions"), [
    (over_a_range_with_an_unknown_step, 1), (over_a_grid_stride, 1), (over_the_same_range_each_turn, 1),
    (over_another_range_each_turn, 5), (over_a_block_stride_each_turn, 5)])
def test_a_range_with_an_unknown_step_divides_once_for_all_turns_that_do_not_change_it(kernel, divisions):
    assert xu(kernel) == 3 * divisions


@cuda.jit
def over_a_range_of_unknown_length(o, n):
    for k in range(n):
        o[k] = n


def test_a_range_of_unknown_length_in_steps_of_one_uses_no_xu():
    assert xu(over_a_range_of_unknown_length) == 0
