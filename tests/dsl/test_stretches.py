"""What a warp issues and waits for in the stretches of a kernel, derived by hand from small kernels."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy import float32

from dsl import cuda
from dsl.frontend.compile import compile_function
from dsl.host.device import Device
from dsl.host.launch import launch
from dsl.passes.ssa import build
from dsl.passes.stretches import ENTRY, Plan, plans
from dsl.types import arg_type
from gpusim.arch import H200
from gpusim.launch import Launch

FLOATS = np.zeros(1024, np.float32)


def plans_of(kernel: Any, *args: Any) -> tuple[Plan, ...]:
    """Return the stretches of a kernel for such arguments."""
    return plans(build(compile_function(kernel, tuple(map(arg_type, args)))), frozenset())


def steps(found: tuple[Plan, ...]) -> list[Counter[str]]:
    """Return the steps of each stretch's chain by class, of all its blocks."""
    made = []
    for plan in found:
        total: Counter[str] = Counter()
        for (_, kind), n in plan.chain.items():
            total[kind] += n
        made.append(total)
    return made


def run(kernel: Any, *args: Any, engine: str = "compiled") -> Launch:
    """Launch a kernel on one block of 64 threads."""
    return launch(cuda.jit(kernel), 1, 64, args, Device(H200), engine=engine)


def total(launched: Launch, what: str, kind: str) -> float:
    """Return the instructions or steps of a class, over all stretches and warps."""
    assert launched.work is not None
    return sum(getattr(s, what).get(kind, 0) for s in launched.work.stretches)


def test_a_chain_of_multiplications_is_as_long_as_they_are() -> None:
    def kernel(x):
        t = cuda.threadIdx.x
        v = x[t]
        x[t] = v * v * v * v  # a load, then three multiplications, one after another

    (found,) = [s for s in steps(plans_of(kernel, FLOATS)) if s["global"]]
    assert found["global"] == 1
    assert found["alu"] - index_steps() == 3


def index_steps() -> int:
    """Return the integer steps of an index check and of its address."""
    def kernel(x):
        x[cuda.threadIdx.x] += float32(0)

    (found,) = [s for s in steps(plans_of(kernel, FLOATS)) if s["global"]]
    return found["alu"] - 1  # the addition


def test_products_side_by_side_do_not_lengthen_the_chain() -> None:
    def kernel(x):
        t = cuda.threadIdx.x
        v = x[t]
        x[t] = (v * v) * (v * float32(3))

    (found,) = [s for s in steps(plans_of(kernel, FLOATS)) if s["global"]]
    assert found["alu"] - index_steps() == 2


def test_each_barrier_ends_a_stretch_and_is_a_step() -> None:
    def kernel(x):
        cuda.syncthreads()
        cuda.syncthreads()
        x[cuda.threadIdx.x] = float32(1)

    assert total(run(kernel, FLOATS.copy()), "chain", "barrier") == 4  # two warps


def test_a_loop_of_unknown_length_counts_in_64_bits() -> None:
    def kernel(x, n):
        v = x[0]
        for _ in range(n):
            v = v * float32(2)
        x[cuda.threadIdx.x] = v

    launched = run(kernel, FLOATS.copy(), 40)
    assert total(launched, "issued", "turn") == 2 * 40 * 5  # two warps, five instructions a turn
    assert total(launched, "issued", "entry") == 2 * ENTRY
    assert total(launched, "issued", "fp32") == 2 * 40


def test_turns_of_a_loop_with_a_barrier_are_counted_too() -> None:
    def kernel(x, n):
        for _ in range(n):
            cuda.syncthreads()
            x[cuda.threadIdx.x] *= float32(2)

    launched = run(kernel, FLOATS.copy(), 7)
    assert total(launched, "issued", "turn") == 2 * 7 * 5
    assert total(launched, "issued", "fp32") == 2 * 7


def test_a_while_loop_does_not_count_in_64_bits() -> None:
    def kernel(x, n):
        v = x[0]
        i = 0
        while i < n:
            v = v * float32(2)
            i += 1
        x[cuda.threadIdx.x] = v

    launched = run(kernel, FLOATS.copy(), 40)
    assert total(launched, "issued", "turn") == total(launched, "issued", "entry") == 0
    assert total(launched, "issued", "fp32") == 2 * 40


def test_four_loads_of_an_unrolled_loop_wait_together_and_those_of_the_rest_one_by_one() -> None:
    def kernel(x, n):
        v = float32(0)
        for i in range(n):
            v += x[i]
        x[cuda.threadIdx.x] = v

    assert total(run(kernel, FLOATS.copy(), 40), "chain", "global") == 2 * 10
    assert total(run(kernel, FLOATS.copy(), 3), "chain", "global") == 2 * 3


def test_what_does_not_vary_in_a_loop_is_computed_before_it() -> None:
    def kernel(x, n, m):
        v = x[0]
        for _ in range(n):
            v = v * (float32(m) + float32(1))
        x[cuda.threadIdx.x] = v

    launched = run(kernel, FLOATS.copy(), 40, 3)
    assert total(launched, "issued", "fp32") == 2 * 40  # the additions are not among them


def test_constants_of_an_unrolled_loop_cost_nothing() -> None:
    def kernel(x):
        s = cuda.shared.array(64, float32)
        v = float32(0)
        for k in range(8):
            v += s[k]
        x[cuda.threadIdx.x] = v

    found = plans_of(kernel, FLOATS)
    issued: Counter[str] = Counter()
    for plan in found:
        for (_, kind), n in plan.issued.items():
            issued[kind] += n
    assert (issued["fp32"], issued["access"]) == (8, 9)  # eight loads and a store
    assert issued["index"] == 2  # of the store's index alone


def test_the_interpreter_of_warpir_tells_the_same_work() -> None:
    def kernel(x, n):
        v = float32(0)
        for i in range(n):
            if i < cuda.threadIdx.x:
                v += x[i]
        x[cuda.threadIdx.x] = v

    compiled, interpreted = (run(kernel, FLOATS.copy(), 9, engine=e) for e in ("compiled", "ir"))
    assert compiled.work == interpreted.work and compiled.work is not None
    assert len(compiled.work.stretches) > 2
    assert compiled["gpu__time_duration.sum"] == interpreted["gpu__time_duration.sum"]


def test_the_oracle_has_no_time() -> None:
    def kernel(x):
        x[cuda.threadIdx.x] = float32(1)

    launched = run(kernel, FLOATS.copy(), engine="oracle")
    assert launched.work is None and launched["gpu__time_duration.sum"] is None
