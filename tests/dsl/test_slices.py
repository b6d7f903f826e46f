"""Rows and slices are views: the elements and the addresses are numpy's, in each engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim.arch import H200
from gpusim.errors import DataDependent, KernelMistake, OutOfBounds, UnsupportedFeature
from tests.dsl.three_engines import agreed


@cuda.jit
def rows(o, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        row = x[i]
        total = np.float32(0)
        for value in row:
            total += value
        o[i] = total


def test_a_row_is_read_where_it_lies():
    x = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
    run, (o, _) = agreed(rows, 1, 32, lambda: (np.zeros(8, np.float32), x.copy()))
    assert o.tolist() == x.sum(axis=1).tolist()
    # Rows are 64 bytes apart: each of the 16 loads of the warp touches 8 sectors.
    assert (run.counters.global_load.requests, run.counters.global_load.sectors) == (16, 128)


@cuda.jit
def last_rows(o, x, k):
    for i in range(2):
        part = x[i, :, k]
        o[i, cuda.threadIdx.x] = part[cuda.threadIdx.x] + part.size


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_index_among_slices_drops_its_dimension(order):
    x = np.arange(2 * 5 * 3, dtype=np.float64).reshape(2, 5, 3).copy(order=order)
    _, (o, _) = agreed(last_rows, 1, 5, lambda: (np.zeros((2, 5)), x.copy(order=order), 1))
    assert o.tolist() == (x[:, :, 1] + 5).tolist()


BOUNDS = [None, 0, 2, 7, 9, 12, -1, -4, -9, -12]


@cuda.jit
def cut(o, x, lo, hi):
    for step, part in enumerate((x[lo:hi], x[lo:hi:3], x[lo:hi:-1], x[lo:hi:-2])):
        o[step, 0] = part.size
        for k in range(part.size):
            o[step, k + 1] = part[k]


@cuda.jit
def cut_from(o, x, lo):
    for step, part in enumerate((x[lo:], x[lo::3], x[lo::-1], x[:lo:-2])):
        o[step, 0] = part.size
        for k in range(part.size):
            o[step, k + 1] = part[k]


def expected(parts: list[np.ndarray]) -> list[list[int]]:
    return [[p.size, *p.tolist(), *[0] * (9 - p.size)] for p in parts]


@pytest.mark.parametrize("lo", [0, 2, 9, 12, -1, -9, -12])
def test_bounds_are_cut_to_the_array_as_in_python(lo):
    x = np.arange(1, 10)
    for hi in (0, 5, 9, 40, -2, -30):
        _, (o, _) = agreed(cut, 1, 1, lambda hi=hi: (np.zeros((4, 10), np.int64), x.copy(), lo, hi))
        assert o.tolist() == expected([x[lo:hi], x[lo:hi:3], x[lo:hi:-1], x[lo:hi:-2]])
    _, (o, _) = agreed(cut_from, 1, 1, lambda: (np.zeros((4, 10), np.int64), x.copy(), lo))
    assert o.tolist() == expected([x[lo:], x[lo::3], x[lo::-1], x[:lo:-2]])


@cuda.jit
def shared_parts(o):
    s = cuda.shared.array((4, 32), np.float32)
    t = cuda.threadIdx.x
    low, high = s[:2], s[2:]
    mirrored = s[3][::-1]
    low[1, t] = t
    high[1, t] = 100 + t
    cuda.syncthreads()
    o[t] = s[1, t] + mirrored[t]
    cuda.atomic.add(o[1:], 31, np.float32(1))


def test_parts_of_shared_memory_share_its_banks():
    run, (o,) = agreed(shared_parts, 1, 32, lambda: (np.zeros(33, np.float32),))
    assert o.tolist() == [131] * 32 + [32]
    assert run.counters.shared_load.wavefronts == 2 and run.counters.shared_store.wavefronts == 2


@cuda.jit
def dynamic_parts(o, n):
    whole = cuda.shared.array(0, np.int32)
    first, second = whole[:n], whole[n : 2 * n]
    t = cuda.threadIdx.x
    if t < n:
        first[t] = t
        second[t] = 10 * t
    cuda.syncthreads()
    if t < n:
        o[t] = first[t] + second[n - 1 - t]
    o[n] = whole[n + 3 :].size


def test_dynamic_shared_memory_is_cut_in_pieces():
    _, (o,) = agreed(dynamic_parts, 1, 32, lambda: (np.zeros(9, np.int32), 8), shared_bytes=4 * 16)
    assert o.tolist() == [k + 10 * (7 - k) for k in range(8)] + [5]


@cuda.jit
def transposed(o, x):
    i, j = cuda.grid(2)
    if i < o.shape[0] and j < o.shape[1]:
        o[i, j] = x.T[i, j]


def test_the_transpose_has_the_dimensions_in_reverse_order():
    x = np.arange(12.0).reshape(3, 4)
    _, (o, _) = agreed(transposed, 1, (4, 3), lambda: (np.zeros((4, 3)), x.copy()))
    assert o.tolist() == x.T.tolist()


@cuda.jit(device=True)
def largest(values):
    best = values[0]
    for v in values[1:]:
        best = max(best, v)
    return best


@cuda.jit
def by_function(o, x):
    t = cuda.threadIdx.x
    o[t] = largest(x[t, ::2])


def test_a_device_function_takes_a_view():
    x = np.random.default_rng(3).integers(0, 99, (4, 7))
    _, (o, _) = agreed(by_function, 1, 4, lambda: (np.zeros(4, np.int64), x.copy()))
    assert o.tolist() == x[:, ::2].max(axis=1).tolist()


@cuda.jit
def moving(o, x):
    t = cuda.threadIdx.x
    for i in range(t, 4):
        row = x[i]
        if t != 1:
            o[t] += row[t]
    o[t] += 1000 * row[0]


def test_a_view_that_lanes_make_in_a_loop_is_each_lanes_own():
    x = np.arange(16.0).reshape(4, 4)
    _, (o, _) = agreed(moving, 1, 4, lambda: (np.zeros(4), x.copy()))
    want = [x[t:, t].sum() * (t != 1) + 1000 * x[3, 0] for t in range(4)]
    assert o.tolist() == want


@cuda.jit
def beyond(o, x):
    row = x[1]
    o[cuda.threadIdx.x] = row[cuda.threadIdx.x + 2]


@cuda.jit
def no_row(o, x):
    o[cuda.threadIdx.x] = x[cuda.threadIdx.x][0]


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_an_index_outside_a_view_is_an_error_as_in_an_array(engine):
    args: Any = (np.zeros(4), np.zeros((3, 4)))
    with pytest.raises(OutOfBounds, match=r"thread \(2, 0, 0\).*index 4 in dimension 0 of 'x'.* 4"):
        launch(beyond, 1, 3, args, Device(H200), engine=engine)
    with pytest.raises(OutOfBounds, match=r"thread \(3, 0, 0\).*index 3 in dimension 0 of 'x'"):
        launch(no_row, 1, 4, args, Device(H200), engine=engine)


@cuda.jit
def ragged(o, x, k):
    t = cuda.threadIdx.x
    part = x[: t + 1]
    o[t] = part[t] + part[-1] + part[min(k, t)] + 100 * part.size


def test_each_lane_has_a_view_of_its_own_length():
    x = np.arange(1.0, 9)
    _, (o, _) = agreed(ragged, 1, 8, lambda: (np.zeros(8), x.copy(), 2))
    assert o.tolist() == [2 * x[t] + x[min(2, t)] + 100 * (t + 1) for t in range(8)]


@cuda.jit
def too_short(o, x):
    t = cuda.threadIdx.x
    part = x[t:]
    o[t] = part[2]


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_the_error_names_the_extent_of_the_lane_that_is_outside(engine):
    with pytest.raises(OutOfBounds, match=r"thread \(6, 0, 0\).*index 2 in dimension 0 of 'x'.*extent is 2"):
        launch(too_short, 1, 8, (np.zeros(8), np.zeros(8)), Device(H200), engine=engine)


@cuda.jit
def assigned(o):
    o[1:3] = 5


@cuda.jit
def any_step(o, k):
    part = o[::k]
    part[0] = 1


@cuda.jit
def no_step(o):
    part = o[::0]
    part[0] = 1


@cuda.jit
def by_a_float(o, x):
    part = o[x:]
    part[0] = 1


@pytest.mark.parametrize(
    ("kernel", "more", "said"),
    [
        (assigned, (), "an assignment to a slice of 'o'; assign one element at a time"),
        (any_step, (2,), "a slice of 'o' with a step that is not constant"),
        (no_step, (), "a slice of 'o' with step 0"),
        (by_a_float, (1.0,), "a float64 in a slice of 'o'; use integers"),
    ],
)
def test_what_a_slice_cannot_be_is_said(kernel, more, said):
    with pytest.raises(UnsupportedFeature, match=said):
        launch(kernel, 1, 1, (np.zeros(4), *more), Device(H200), engine="compiled")


def test_a_step_of_0_is_a_mistake_on_every_engine():
    with pytest.raises(KernelMistake):
        no_step[1, 1](np.zeros(4))


@cuda.jit
def doubled(values, k):
    return 2 * values[k]


@cuda.jit
def by_kernel(o, x):
    t = cuda.threadIdx.x
    o[t] = doubled(x[t], 1)


def test_what_cuda_jit_made_is_a_device_function_where_a_kernel_calls_it():
    x = np.arange(8.0).reshape(4, 2)
    _, (o, _) = agreed(by_kernel, 1, 4, lambda: (np.zeros(4), x.copy()))
    assert o.tolist() == [2.0, 6.0, 10.0, 14.0]


def test_counting_alone_counts_the_same_in_views():
    def run(counts_only):
        args = np.zeros(8), np.arange(1.0, 9), 2
        return launch(ragged, 1, 8, args, Device(H200), counts_only=counts_only).counters

    assert run(True) == run(False)


@cuda.jit
def bound_from_memory(o, x):
    t = cuda.threadIdx.x
    part = x[x[t] :]
    o[t] = part[0]


def test_a_bound_that_depends_on_data_is_each_lanes_own():
    _, (o, _) = agreed(bound_from_memory, 1, 4, lambda: (np.zeros(4), np.array([3, 1, 2, 0])))
    assert o.tolist() == [0, 1, 2, 3]
    with pytest.raises(DataDependent):
        launch(bound_from_memory, 1, 4, (np.zeros(4), np.zeros(4, int)), Device(H200), counts_only=True)


@cuda.jit
def vectors(o, x):
    t = cuda.threadIdx.x
    part = x.view(cuda.float32x4)[1:]
    if t < part.size:
        v = part[t]
        o[t] = v.x + v.w


def test_a_slice_of_a_view_of_vectors_loads_vectors():
    x = np.arange(36, dtype=np.float32)
    run, (o, _) = agreed(vectors, 1, 8, lambda: (np.zeros(8, np.float32), x.copy()))
    assert o.tolist() == (x[4::4] + x[7::4]).tolist()
    # 8 lanes of 16 bytes from byte 16 on are one request of 5 sectors.
    load = run.counters.global_load
    assert (load.requests, load.lanes, load.bytes, load.sectors) == (1, 8, 128, 5)
