"""Variables that some path leaves without a value: accepted inside branches as in numba, refused outside."""

from __future__ import annotations

import numpy as np
import pytest

from dsl import cuda
from dsl.oracle import run as oracle
from dsl.types import ArgType
from gpusim.errors import UnsupportedFeature, UserError
from tests.dsl.engine_support import both
from tests.dsl.frontend_support import agree, compiled

A1 = ArgType("s64", 1)


def in_one_arm(o, n):
    if n:
        if n > 0:
            c = 7
        o[0] = c
    else:
        c += 1
        o[0] = c


def test_a_variable_without_a_value_on_another_path_is_accepted() -> None:
    assert agree(in_one_arm, 1, 1, np.zeros(1, np.int64), 1)[0][0] == 7


def test_the_python_oracle_says_so_only_where_such_a_path_runs() -> None:
    with pytest.raises((UnboundLocalError, UserError), match="variable 'c'"):
        oracle.run(in_one_arm, 1, 1, (np.zeros(1, np.int64), 0))


def read_first(o, n):
    for i in range(n):
        if i > 0:
            o[i] = last  # noqa: F821
        last = i * 10  # noqa: F841


def read_above(o, n):
    if n < 0:
        o[0] = later  # noqa: F821
    later = 2.5
    o[1] = later


def test_a_read_above_the_assignment_has_its_type() -> None:
    assert agree(read_first, 1, 1, np.zeros(4, np.int64), 4)[0].tolist() == [0, 0, 10, 20]
    assert agree(read_above, 1, 1, np.zeros(2), 1)[0].tolist() == [0, 2.5]


def divergent(o, n):
    t = cuda.threadIdx.x
    if t % 2:
        v = t * n
        o[t] = v
    elif t > 1000:
        o[t] = v


def test_lanes_that_assign_do_not_share_with_lanes_that_do_not() -> None:
    engine, ir_oracle = both(cuda.jit(divergent), (1, 1, 1), (8, 1, 1), (np.zeros(8, np.int64), 3))
    assert np.array_equal(engine.memory, ir_oracle.memory)
    assert agree(divergent, 1, 8, np.zeros(8, np.int64), 3)[0].tolist() == [0, 3, 0, 9, 0, 15, 0, 21]


def never_assigned_before(o, n):
    o[0] = v  # noqa: F821
    v = n  # noqa: F841


def never_assigned_at_all(o, n):
    if n:
        o[0] = nowhere  # noqa: F821


@pytest.mark.parametrize(
    "kernel, text",
    [
        (never_assigned_before, "the variable 'v' is read before it is assigned"),
        (never_assigned_at_all, "the name 'nowhere' is not defined"),
    ],
)
def test_a_read_that_every_thread_makes_too_early_is_refused(kernel: object, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=text):
        compiled(kernel, A1, ArgType("s64"))
