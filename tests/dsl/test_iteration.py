"""Loops over arrays, zip and enumerate: values, types, requests, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.types import ArgType
from gpusim.errors import UnsupportedFeature
from tests.dsl.engine_support import assert_equal, both
from tests.dsl.frontend_support import agree, compiled, interpret, ops
from tests.dsl.oracle_support import hold_against_interpreter

A1 = ArgType("f64", 1)


def sums(o, x):
    total = 0.0
    for v in x:
        if v < 0:
            continue
        if v > 100:
            break
        total += v
    o[cuda.threadIdx.x] = total


def test_a_loop_over_an_array_reads_its_elements_in_order_and_can_break_and_continue() -> None:
    x = np.array([1.0, -5.0, 2.0, 4.0, 200.0, 8.0])
    assert_equal(*both(cuda.jit(sums), (1, 1, 1), (32, 1, 1), (np.zeros(32), x)))
    run, (o, _) = hold_against_interpreter(sums, 1, 32, (np.zeros(32), x))
    assert set(o) == {7.0} and run.counters.global_load.requests == 5  # the break is at the fifth


def test_a_loop_over_an_empty_array_runs_no_iteration() -> None:
    assert agree(sums, 1, 1, np.ones(1), np.zeros(0))[0].tolist() == [0]


def both_ways(o, x, y):
    for i, (a, b) in enumerate(zip(x, y)):  # noqa: B905
        o[0, i] = 10 * a + b
    for (i, a), b in zip(enumerate(x, 1), y):  # noqa: B905
        o[1, i] = a - b


def test_enumerate_and_zip_nest_and_stop_at_the_shortest() -> None:
    args = np.zeros((2, 4)), np.array([1.0, 2, 3]), np.array([4.0, 5])
    assert_equal(*both(cuda.jit(both_ways), (1, 1, 1), (1, 1, 1), args))
    run, (o, *_) = hold_against_interpreter(both_ways, 1, 1, args)
    assert o.tolist() == [[14, 25, 0, 0], [0, -3, -3, 0]]
    assert run.counters.global_load.requests == 8  # no load of the third element, which has no partner


def ranges(o, n, step):
    for i, k in enumerate(range(n, -n, step)):
        o[0, i] = k
    for k, j in zip(range(5), range(n, 100, 7)):  # noqa: B905
        o[1, k] = j


@pytest.mark.parametrize("n, step", [(5, -3), (-5, 3), (4, -2), (3, 4), (0, 1)])
def test_ranges_in_zip_and_enumerate_have_pythons_numbers(n: int, step: int) -> None:
    o = agree(ranges, 1, 1, np.full((2, 20), 99), n, step)[0]
    down = list(range(n, -n, step))
    assert o[0].tolist() == down + [99] * (20 - len(down))
    assert o[1].tolist() == [n + 7 * k for k in range(5)] + [99] * 15


WHOLE, HALVES = (1, 2, 3), (4.5, 5.5, 6.5, 7.5)


def of_tuples(o):
    c = 0
    for i, j in zip(WHOLE, HALVES):  # noqa: B905
        c += i * j
    o[0] = c
    for i, v in enumerate(HALVES):
        o[1 + i] = v
    for i, v in zip(range(1, 9, 2), WHOLE):  # noqa: B905
        o[i] += v


def test_zip_and_enumerate_of_tuples_are_unrolled() -> None:
    assert len(compiled(of_tuples, A1).blocks) == 1
    expected = [35, 4.5 + 1, 5.5, 6.5 + 2, 7.5, 3]
    assert agree(of_tuples, 1, 1, np.zeros(6))[0].tolist() == expected


def types_of_items(o, x, n):
    for i, (a, k) in enumerate(zip(x, range(n))):  # noqa: B905
        o[i] = cuda.popc(i) + 100 * cuda.popc(a) + 10000 * cuda.popc(k)


def test_a_count_is_int64_an_element_has_its_own_type_and_a_range_its_counters() -> None:
    emitted = ops(compiled(types_of_items, ArgType("s64", 1), ArgType("u32", 1), ArgType("s32")))
    assert (emitted["popc.u64"], emitted["popc.u32"]) == (1, 2)


def of_shared(o):
    t = cuda.threadIdx.x
    tile = cuda.shared.array(4, np.float32)
    tile[t] = t
    cuda.syncthreads()
    for i, v in enumerate(tile):
        o[t, i] = v


def test_a_loop_over_a_shared_array_loads_from_shared_memory() -> None:
    run, (o,) = hold_against_interpreter(of_shared, 1, 4, (np.ones((4, 4), np.float32),))
    assert o.tolist() == [[0, 1, 2, 3]] * 4
    assert (run.counters.shared_load.requests, run.counters.global_load.requests) == (4, 0)


def one_name(o, x):
    for pair in zip(x, range(1, 4)):  # noqa: B905
        o[pair[1]] = pair[0]


def test_a_pair_may_stay_a_tuple() -> None:
    assert interpret(one_name, 1, 1, np.zeros(4), np.array([5.0, 6, 7]))[0].tolist() == [0, 5, 6, 7]


def mixed(o, x):
    for i, v in zip(WHOLE, x):  # noqa: B905
        o[i] = v


def strict(o, x):
    for i, v in zip(x, x, strict=True):
        o[i] = v


def outside(o, x):
    o[0] = enumerate(x)


def no_arguments(o, x):
    for i in enumerate():
        o[i] = 1


@pytest.mark.parametrize(
    "kernel, text",
    [
        (mixed, r"zip\(\) of a tuple and something whose length the launch decides; loop over enumerate"),
        (strict, r"these arguments of zip\(\); give them by position"),
        (outside, r"enumerate\(\) outside a for statement; write `for i in enumerate"),
        (no_arguments, r"these arguments of enumerate\(\); give what to count"),
    ],
)
def test_other_loops_are_refused(kernel: Any, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=text):
        compiled(kernel, A1, A1)
