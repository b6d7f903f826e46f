"""Run small kernels through the Python oracle, and hold it against the interpreter of WarpIR."""

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy import float32, int32

from dsl import cuda
from dsl.cuda import blockDim, blockIdx, shared, syncthreads, threadIdx
from dsl.oracle import run as oracle
from gpusim.errors import BarrierDivergence, EndlessLoop, OutOfBounds, UnsupportedFeature
from gpusim.memory import FIRST_ADDRESS, VirtualArray
from tests.dsl.oracle_support import hold_against_interpreter, interpret

THREADS = 64


def vec_add(x, y, total):
    i = cuda.grid(1)
    if i < total.size:
        total[i] = x[i] + y[i]


def transpose(a, b):
    tile = cuda.shared.array((32, 33), float32)
    tx = cuda.threadIdx.x
    x = cuda.blockIdx.x * 32 + tx
    y = cuda.blockIdx.y * 32 + cuda.threadIdx.y
    for j in range(0, 32, 8):
        if x < a.shape[1] and y + j < a.shape[0]:
            tile[cuda.threadIdx.y + j, tx] = a[y + j, x]
    cuda.syncthreads()
    x = cuda.blockIdx.y * 32 + tx
    y = cuda.blockIdx.x * 32 + cuda.threadIdx.y
    for j in range(0, 32, 8):
        if x < b.shape[1] and y + j < b.shape[0]:
            b[y + j, x] = tile[tx, cuda.threadIdx.y + j]


def block_reduce(x, total):
    partial = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    partial[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            partial[t] += partial[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        cuda.atomic.add(total, 0, partial[0])


def histogram(x, bins):
    own = cuda.shared.array(16, int32)
    t = cuda.threadIdx.x
    if t < 16:
        own[t] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    step = cuda.gridsize(1)
    while i < x.size:
        cuda.atomic.add(own, x[i], 1)
        i += step
    cuda.syncthreads()
    if t < 16:
        cuda.atomic.add(bins, t, own[t])


def test_vec_add_adds_and_counts_its_ragged_tail() -> None:
    x = np.arange(100, dtype=np.float32)
    total = np.full(100, np.nan, np.float32)
    got = oracle.run(vec_add, 2, 64, (x, x, total))
    assert (total == 2 * x).all()
    assert got.counters.global_load.__dict__ == {"lanes": 200, "bytes": 800, "requests": 8, "sectors": 26}
    assert got.counters.global_store.__dict__ == {"lanes": 100, "bytes": 400, "requests": 4, "sectors": 13}
    assert got.counters.shared_load.requests == 0 and got.counters.barriers == 0


def test_each_thread_lists_its_accesses_in_order_with_addresses_and_lines() -> None:
    x = np.zeros(100, np.float32)
    got = oracle.run(vec_add, 2, 64, (x, x.copy(), x.copy()))
    assert len(got.accesses) == 128 and got.accesses[100] == []
    line = vec_add.__code__.co_firstlineno + 3
    # The arrays of 400 bytes lie 512 apart (allocations are 256-byte aligned).
    expected = [
        ("x", FIRST_ADDRESS + 12, "load"),
        ("y", FIRST_ADDRESS + 524, "load"),
        ("total", FIRST_ADDRESS + 1036, "store"),
    ]
    assert [(a.array, a.address, a.op) for a in got.accesses[3]] == expected
    assert {(a.space, a.bytes, a.line, a.file) for a in got.accesses[3]} == {("global", 4, line, __file__)}


def test_one_array_passed_twice_has_one_address_and_two_arrays_have_two() -> None:
    x, total = np.zeros(1, np.float32), np.zeros(1, np.float32)
    addresses = [a.address for a in oracle.run(vec_add, 1, 1, (x, x, total)).accesses[0]]
    assert addresses == [FIRST_ADDRESS, FIRST_ADDRESS, FIRST_ADDRESS + 256]


def test_only_the_blocks_asked_for_run() -> None:
    x, total = np.ones(64, np.float32), np.zeros(64, np.float32)
    got = oracle.run(vec_add, 2, 32, (x, x, total), blocks=[1])
    assert total.tolist() == [0] * 32 + [2] * 32 and {r.block for r in got.requests} == {1}


def test_the_kernel_of_a_dispatcher_and_the_users_module_stay_as_they_are() -> None:
    before = vec_add.__globals__["cuda"]
    x, total = np.ones(4, np.float32), np.zeros(4, np.float32)
    oracle.run(cuda.jit(vec_add), 1, 4, (x, x, total))
    assert total.tolist() == [2] * 4 and vec_add.__globals__["cuda"] is before


def uneven(x, total):
    i = cuda.threadIdx.x
    for k in range(i % 3):
        total[i] += x[k]
    j = 0
    while j < i % 2:
        total[i] += x[j]
        j += 1


def test_requests_of_loops_group_by_iteration() -> None:
    got = oracle.run(uneven, 1, 32, (np.ones(4, np.float32), np.zeros(32, np.float32)))
    loads = [r for r in got.requests if r.array == "x" and r.op == "load"]
    # The for loop: 21 lanes in iteration 0, 10 in iteration 1; the while loop: 16 lanes once.
    found = sorted((len(r.lanes), set(r.lanes.values())) for r in loads)
    assert found == [(10, {FIRST_ADDRESS + 4}), (16, {FIRST_ADDRESS}), (21, {FIRST_ADDRESS})]


def inner_while(x, total):
    i = cuda.threadIdx.x
    for _outer in range(2):
        j = 0
        while j < i + 1:
            total[i] += x[j]
            j += 1


def test_a_while_loop_inside_a_for_loop_starts_anew_in_each_iteration() -> None:
    got = oracle.run(inner_while, 1, 2, (np.ones(2, np.float32), np.zeros(2, np.float32)))
    # Lane 0 runs once, lane 1 twice, in each of two outer iterations.
    assert sorted(len(r.lanes) for r in got.requests if r.array == "x") == [1, 1, 2, 2]


def while_on_array(x, total):
    i = 0
    while x[i] > 0:
        i += 1
    total[cuda.threadIdx.x] = i


def test_the_two_copies_that_python_makes_of_a_while_condition_are_one_site() -> None:
    x = np.array([1, 1, 0], np.float32)
    got = oracle.run(while_on_array, 1, 2, (x, np.zeros(2, np.float32)))
    assert [len(r.lanes) for r in got.requests if r.array == "x"] == [2, 2, 2]
    assert len({r.line for r in got.requests if r.array == "x"}) == 1


def half_waits(out):
    i = cuda.threadIdx.x
    if i < 16:
        cuda.syncthreads()
    out[i] = 1


def half_waits_at_the_end(out):
    i = cuda.threadIdx.x
    out[i] = 1
    if i < 16:
        cuda.syncthreads()


def some_return_first(out):
    i = cuda.threadIdx.x
    if i >= 40:
        return
    cuda.syncthreads()
    out[i] = 1


def returns_in_a_loop(out):
    i = cuda.threadIdx.x
    for k in range(3):
        cuda.syncthreads()
        if i == k:
            return
        out[i] = k


def some_leave_a_loop_of_barriers(out):
    i = cuda.threadIdx.x
    k = 0
    while k < 1 + i % 2:
        cuda.syncthreads()
        k += 1
    out[i] = 1


def two_barriers(out):
    i = cuda.threadIdx.x
    if i < 32:
        cuda.syncthreads()
    else:
        cuda.syncthreads()
    out[i] = 1


def a_warp_skips(out):
    i = cuda.threadIdx.x
    if i < 32:
        cuda.syncthreads()
    out[i] = 1


def a_warp_skips_and_returns_last(out):
    i = cuda.threadIdx.x
    if i < 32:
        cuda.syncthreads()
    out[i] = 1
    return


def a_warp_leaves_a_loop_of_barriers(out):
    i = cuda.threadIdx.x
    for k in range(1 + i // 32):
        cuda.syncthreads()
        out[i] = k


def a_warp_returns_first(out):
    i = cuda.threadIdx.x
    if i >= 32:
        return
    cuda.syncthreads()
    out[i] = 1


def a_warp_returns_behind(out):
    i = cuda.threadIdx.x
    if i < 32:
        cuda.syncthreads()
    else:
        return
    out[i] = 1


@pytest.mark.parametrize(
    ("kernel", "threads", "counts"),
    [
        (a_warp_skips, 64, "32 threads arrived and 32 are missing"),
        (a_warp_skips_and_returns_last, 70, "32 threads arrived and 38 are missing"),
        (a_warp_leaves_a_loop_of_barriers, 96, "64 threads arrived and 32 are missing"),
        (half_waits, 32, "16 threads arrived and 16 are missing"),
        (half_waits_at_the_end, 32, "16 threads arrived and 16 are missing"),
        (some_leave_a_loop_of_barriers, 32, "16 threads arrived and 16 are missing"),
        (two_barriers, 96, "32 threads arrived and 64 are missing"),
    ],
)
def test_a_barrier_that_some_threads_skip_is_an_error_in_every_engine(
    kernel: Callable[..., None], threads: int, counts: str
) -> None:
    out = np.zeros(threads, np.float32)
    with pytest.raises(BarrierDivergence, match=counts) as by_source:
        oracle.run(kernel, 1, threads, (out,))
    with pytest.raises(BarrierDivergence) as by_ir:
        interpret(kernel, 1, threads, (out,))
    with pytest.raises(BarrierDivergence) as by_engine:
        cuda.jit(kernel)[1, threads](out)
    assert str(by_source.value) == str(by_ir.value) == str(by_engine.value)


@pytest.mark.parametrize(
    ("kernel", "barriers"),
    [(some_return_first, 2), (returns_in_a_loop, 6), (a_warp_returns_first, 1), (a_warp_returns_behind, 1)],
)
def test_threads_that_have_returned_are_not_missing_in_any_engine(
    kernel: Callable[..., None], barriers: int
) -> None:
    out, same = np.full(64, -1, np.float32), np.full(64, -1, np.float32)
    got = oracle.run(kernel, 1, 64, (out,))
    assert got.counters.barriers == barriers
    assert interpret(kernel, 1, 64, (same,)).counters.barriers == barriers
    compiled = np.full(64, -1, np.float32)
    cuda.jit(kernel)[1, 64](compiled)
    assert (out == same).all() and (out == compiled).all() and (out == -1).any()


def test_a_failing_thread_ends_the_launch_and_leaves_no_python_thread() -> None:
    import threading

    def kernel(x, out):
        i = cuda.threadIdx.x
        out[i] = x[i]
        cuda.syncthreads()

    with pytest.raises(
        OutOfBounds,
        match=r"kernel kernel, block \(0, 0, 0\), thread \(16, 0, 0\), .*test_oracle.py:\d+: "
        r"index 16 in dimension 0 of 'x'",
    ):
        oracle.run(kernel, 1, 32, (np.zeros(16, np.float32), np.zeros(32, np.float32)))
    assert not [t for t in threading.enumerate() if t.name.startswith("cuda thread")]


def test_an_index_outside_reads_the_same_in_both_oracles() -> None:
    args = (np.zeros(40, np.float32), np.zeros(32, np.float32), np.zeros(40, np.float32))
    with pytest.raises(OutOfBounds) as by_source:
        oracle.run(vec_add, 1, 64, args)
    with pytest.raises(OutOfBounds) as by_ir:
        interpret(vec_add, 1, 64, args)
    assert str(by_source.value) == str(by_ir.value)
    assert "thread (32, 0, 0)" in str(by_ir.value) and "'y'" in str(by_ir.value)


def shifted(out):
    out[cuda.threadIdx.x - 2] = cuda.threadIdx.x


def test_a_negative_index_wraps_once_unless_indices_are_strict() -> None:
    out = np.zeros(8, np.int32)
    assert oracle.run(shifted, 1, 4, (out,)).counters.wrapped_indices == 2
    assert out.tolist() == [2, 3, 0, 0, 0, 0, 0, 1]
    with pytest.raises(OutOfBounds, match="--strict-index"):
        oracle.run(shifted, 1, 4, (out,), strict_index=True)
    with pytest.raises(OutOfBounds, match="index -2 in dimension 0 .* extent is 1"):
        oracle.run(shifted, 1, 4, (out[:1],))


def endless(out):
    i = 0
    while i >= 0:
        i += 1
    out[0] = i


def endless_constant(out):
    while True:
        pass


def bounded(out):
    i = 0
    while i < 50:
        i += 1
    for k in range(1000):
        i += k
    out[0] = i


def test_a_loop_without_end_stops_after_max_steps_and_one_that_fits_does_not() -> None:
    out = np.zeros(1, np.int32)
    for kernel in (endless, endless_constant):
        with pytest.raises(EndlessLoop, match=r"thread \(0, 0, 0\), .*no end after 100 steps.*--max-steps"):
            oracle.run(kernel, 1, 1, (out,), max_steps=100)
    # 50 iterations of the while loop and the last test; the for loop is not counted.
    oracle.run(bounded, 1, 1, (out,), max_steps=51)
    assert out[0] == 50 + 499500
    with pytest.raises(EndlessLoop):
        oracle.run(bounded, 1, 1, (out,), max_steps=50)


def unwritten(out):
    s = cuda.shared.array(2, float32)
    w = cuda.shared.array(2, int32)
    q = cuda.local.array(2, float32)
    out[0] = s[0]
    out[1] = w[1]
    out[2] = q[1]


def test_shared_and_local_memory_start_as_nan_or_minus_one() -> None:
    out = np.zeros(3, np.float32)
    oracle.run(unwritten, 1, 1, (out,))
    assert np.isnan(out[0]) and out[1] == -1 and np.isnan(out[2])


def dynamic(out):
    a = cuda.shared.array(0, float32)
    b = cuda.shared.array(0, int32)
    a[0] = 1.0
    out[0] = b[0]
    out[1] = a.size


def test_dynamic_shared_arrays_are_one_piece_of_memory() -> None:
    out = np.zeros(2, np.int32)
    oracle.run(dynamic, 1, 1, (out,), shared_bytes=20)
    assert out.tolist() == [0x3F800000, 5]


def atomics(out, old):
    old[0] = cuda.atomic.add(out, 0, 5)
    cuda.atomic.nanmax(out, 1, float32(7))
    cuda.atomic.min(out, 2, float32(-7))


def test_atomics_change_memory_return_the_old_value_and_are_red_where_nobody_uses_it() -> None:
    out, old = np.array([1, np.nan, 3], np.float32), np.zeros(1, np.float32)
    got = oracle.run(atomics, 1, 1, (out, old))
    assert out.tolist() == [6, 7, -7] and old[0] == 1
    assert got.counters.global_atom.requests == 1 and got.counters.global_red.requests == 2


def collide(out):
    cuda.atomic.add(out, 0, 1)


def test_colliding_reds_take_a_sector_each() -> None:
    out = np.zeros(1, np.int32)
    got = oracle.run(collide, 1, 32, (out,))
    assert out[0] == 32 and got.counters.global_red.__dict__ == {
        "lanes": 32,
        "bytes": 128,
        "requests": 1,
        "sectors": 32,
    }


@cuda.jit(device=True)
def read_twice(x, i):
    return x[i] + x[i]


def plain_helper(x, i):
    return read_twice(x, i) * cuda.blockDim.x


def calls(x, out):
    i = cuda.threadIdx.x
    out[i] = plain_helper(x, i) + plain_helper(x, i)


def test_device_functions_run_and_their_calls_are_sites_of_their_own() -> None:
    out = np.zeros(2, np.float32)
    got = oracle.run(calls, 1, 2, (np.array([1, 2], np.float32), out))
    assert out.tolist() == [8, 16]
    assert [len(r.lanes) for r in got.requests if r.op == "load"] == [2, 2, 2, 2]


def typed(x, out):
    t = x[0] * x[1]
    out[0] = math.exp(t)
    out[1] = max(x[2], x[0])
    out[2] = math.log(x[3])
    out[3] = x[0] / x[3]
    out[4] = math.inf


def test_float32_stays_float32_and_ieee_answers_replace_exceptions() -> None:
    x = np.array([1.1, 1.3, np.nan, 0], np.float32)
    out = np.zeros(5, np.float32)
    oracle.run(typed, 1, 1, (x, out))
    product = np.float32(x[0] * x[1])
    assert out.tolist() == [np.float32(math.exp(product)), x[0], -np.inf, np.inf, np.inf]


def by_name(x, out):
    i = blockIdx.x * blockDim.x + threadIdx.x
    s = shared.array(4, int)
    s[threadIdx.x] = int(x[i])
    syncthreads()
    out[i] = float(x[i]) + s[threadIdx.x]


def test_names_imported_from_cuda_by_themselves_mean_the_present_thread() -> None:
    x, out = np.array([0.5, 1.5, np.inf, -2.5], np.float32), np.zeros(4, np.float32)
    oracle.run(by_name, 2, 2, (x, out))
    assert out.tolist() == [0.5, 2.5, np.inf, -4.5]


def test_stores_of_integers_wrap_and_of_floats_saturate() -> None:
    def kernel(out, n, f):
        out[0] = n + 1
        out[1] = f
        out[2] = -f

    out = np.zeros(3, np.int32)
    oracle.run(kernel, 1, 1, (out, 2**31 - 1, 3e9))
    assert out.tolist() == [-(2**31), 2**31 - 1, -(2**31)]


def spilled(out):
    q = cuda.local.array(3, float32)
    i = cuda.threadIdx.x
    q[i % 3] = i
    out[i] = q[i % 3]


def test_local_arrays_make_requests_only_where_they_are_not_in_registers() -> None:
    out = np.zeros(32, np.float32)
    assert oracle.run(spilled, 1, 32, (out,)).counters.local_store.requests == 0
    got = oracle.run(spilled, 1, 32, (out,), register_arrays=frozenset())
    # Each of three words of the frame is a line of its own; every sector of it has a lane.
    assert got.counters.local_store.__dict__ == {"lanes": 32, "bytes": 128, "requests": 1, "sectors": 12}
    assert out.tolist() == list(range(32))


def test_an_array_without_data_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="argument 'y' is a VirtualArray without data"):
        oracle.run(
            vec_add,
            1,
            1,
            (np.zeros(1, np.float32), VirtualArray((1,), np.dtype("f4")), np.zeros(1, np.float32)),
        )


def test_a_debugger_stops_in_the_thread_that_reaches_the_breakpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(sys._getframe(1).f_locals["i"]))

    def kernel(out):
        i = cuda.threadIdx.x
        if i == 5:
            breakpoint()
        cuda.syncthreads()
        out[i] = i

    oracle.run(kernel, 1, 8, (np.zeros(8, np.int32),))
    assert stops == [5]


# ----------------------------------------------------------------------------- against the interpreter


RNG = np.random.default_rng(5)
X = RNG.standard_normal(300).astype(np.float32)
CASES: dict[str, tuple[Callable[..., None], Any, Any, tuple[Any, ...]]] = {
    "vec_add": (vec_add, 5, 64, (X, X[::-1].copy(), np.zeros(300, np.float32))),
    "transpose": (transpose, (2, 2), (32, 8), (X.reshape(6, 50), np.zeros((50, 6), np.float32))),
    "block_reduce": (block_reduce, 5, 64, (X, np.zeros(1, np.float32))),
    "histogram": (histogram, 2, 64, (RNG.integers(0, 16, 300, dtype=np.int32), np.zeros(16, np.int32))),
    "uneven": (uneven, 1, 40, (X[:4].copy(), np.zeros(40, np.float32))),
    "inner_while": (inner_while, 1, 40, (np.ones(64, np.float32), np.zeros(40, np.float32))),
    "while_on_array": (while_on_array, 1, 40, (np.array([1, 1, 0], np.float32), np.zeros(40, np.float32))),
    "calls": (calls, 1, 40, (X[:40].copy(), np.zeros(40, np.float32))),
}


@pytest.mark.parametrize("name", CASES)
def test_the_source_and_its_warp_ir_agree_in_values_and_every_memory_counter(name: str) -> None:
    hold_against_interpreter(*CASES[name])
