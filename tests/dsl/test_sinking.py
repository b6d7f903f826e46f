"""How many lanes make the last sum of a reduction over a warp; each case as in the code of ptxas 13.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl import cuda
from tests.dsl.three_engines import agreed

ALL = 0xFFFFFFFF


def fadd(kernel: Any) -> int:
    """Return the FADD of a warp on x = 0..63; engines and oracle agree on the rest and on the result."""

    def args() -> tuple[Any, ...]:
        return np.zeros(64, np.float32), np.arange(64, dtype=np.float32), np.int64(32)

    return agreed(kernel, 1, 32, args)[0].counters.arithmetic.fadd


@cuda.jit
def stored_at_the_end(o, x, n):
    t = cuda.threadIdx.x
    v = x[t]
    for distance in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(ALL, v, distance)
    if t == 0:
        o[t] = v


@cuda.jit
def stored_within_a_guard(o, x, n):
    t = cuda.threadIdx.x
    if t < n:
        v = x[t]
        for distance in (16, 8, 4, 2, 1):
            v += cuda.shfl_xor_sync(ALL, v, distance)
        if t == 0:
            o[t] = v


@cuda.jit
def added_by_an_atomic(o, x, n):
    t = cuda.threadIdx.x
    v = x[t]
    for distance in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(ALL, v, distance)
    if t == 0:
        cuda.atomic.add(o, 0, v)


@pytest.mark.parametrize("kernel", [stored_at_the_end, stored_within_a_guard, added_by_an_atomic])
def test_the_last_sum_before_the_store_that_ends_a_kernel_is_made_by_the_lane_that_stores(kernel):
    assert fadd(kernel) == 4 * 32 + 1


@cuda.jit
def more_code_follows(o, x, n):
    t = cuda.threadIdx.x
    v = x[t]
    for distance in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(ALL, v, distance)
    if t == 0:
        o[t] = v
    cuda.syncthreads()
    o[t + 32] = x[t]


@cuda.jit
def stored_by_all_lanes_too(o, x, n):
    t = cuda.threadIdx.x
    v = x[t]
    for distance in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(ALL, v, distance)
    o[t + 32] = v
    if t == 0:
        o[t] = v


@pytest.mark.parametrize("kernel", [more_code_follows, stored_by_all_lanes_too])
def test_a_sum_is_made_by_all_lanes_where_more_code_follows_or_reads_it(kernel):
    assert fadd(kernel) == 5 * 32
