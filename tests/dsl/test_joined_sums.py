"""Which products contract where both arms of an if add one; as in the code of NVVM and ptxas 13.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy import float32

from dsl import cuda
from tests.dsl.three_engines import agreed


def counted(kernel: Any) -> tuple[int, int, int]:
    """Return (FFMA, FMUL, FADD) a lane of 32, of which 16 go each way, on x = 0..127; engines agree."""

    def args() -> tuple[Any, ...]:
        return np.zeros(128, np.float32), np.arange(128, dtype=np.float32), np.int64(16)

    got = agreed(kernel, 1, 32, args)[0].counters.arithmetic
    return got.ffma // 32, got.fmul // 32, got.fadd // 32


@cuda.jit
def masked(o, x, n):
    s = cuda.shared.array((4, 32), float32)
    t = cuda.threadIdx.x
    p = cuda.local.array(4, float32)
    for u in range(4):
        p[u] = float32(0)
        s[u, t] = x[t + u]
    cuda.syncthreads()
    for j in range(n):
        v = x[t + j]
        if t < 16:
            for u in range(4):
                p[u] += s[u, j] * (v if u + j <= t else float32(0))
        else:
            for u in range(4):
                p[u] += s[u, j] * v
    for u in range(4):
        o[t * 4 + u] = p[u]


def test_sums_with_a_masked_factor_in_one_arm_stand_behind_both_and_the_products_stay_alone():
    assert counted(masked) == (0, 16 * 4, 16 * 4)


@cuda.jit
def other_elements_in_each_arm(o, x, n):
    t = cuda.threadIdx.x
    p = cuda.local.array(4, float32)
    for u in range(4):
        p[u] = float32(0)
    if t < n:
        for u in range(4):
            p[u] += x[t] * x[t + u]
    else:
        for u in range(4):
            p[u] += x[t] * x[2 * t + u]
    for u in range(4):
        o[t * 4 + u] = p[u]


@cuda.jit
def one_arm(o, x, n):
    t = cuda.threadIdx.x
    p = cuda.local.array(4, float32)
    for u in range(4):
        p[u] = float32(0)
    if t < n:
        for u in range(4):
            p[u] += x[t] * x[t + u]
            p[u] += x[t] * x[t + u]
    for u in range(4):
        o[t * 4 + u] = p[u]


@cuda.jit
def equal_products(o, x, n):
    t = cuda.threadIdx.x
    v = x[t]
    p = cuda.local.array(4, float32)
    for u in range(4):
        p[u] = float32(0)
    if t < n:
        for u in range(4):
            p[u] += x[u] * (v if u < 4 else float32(0))
    else:
        for u in range(4):
            p[u] += x[u] * v
    for u in range(4):
        o[t * 4 + u] = p[u]


@cuda.jit
def elements_of_their_own(o, x, n):
    t = cuda.threadIdx.x
    p = cuda.local.array(8, float32)
    for u in range(8):
        p[u] = float32(0)
    if t < n:
        for u in range(4):
            p[u] += x[t] * x[t + u]
    else:
        for u in range(4):
            p[u + 4] += x[t] * x[2 * t + u]
    for u in range(4):
        o[t * 4 + u] = p[u] - p[u + 4]


@cuda.jit
def loops_that_stay(o, x, n):
    t = cuda.threadIdx.x
    p = cuda.local.array(1, float32)
    p[0] = float32(0)
    if t < n:
        for u in range(n // 4):
            p[0] += x[t] * x[t + u]
    else:
        for u in range(n // 4):
            p[0] += x[t] * x[2 * t + u]
    o[t] = p[0]


@pytest.mark.parametrize(("kernel", "more_additions"), [
    (other_elements_in_each_arm, 0), (one_arm, 0), (equal_products, 0), (elements_of_their_own, 4),
    (loops_that_stay, 0)])
def test_other_products_contract(kernel, more_additions):
    assert counted(kernel) == (4, 0, more_additions)
