"""Constant memory: numpy arrays that kernels find in globals and closures, in all three engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim import metrics, report
from gpusim.arch import H200
from gpusim.errors import LaunchRefused, OutOfBounds, UnsupportedFeature
from tests.dsl.three_engines import agreed

LINE = np.arange(10, dtype=np.float64) / 2
SQUARE = np.asfortranarray(np.arange(100, dtype=np.int32).reshape(10, 10))
BYTES = np.arange(3, dtype=np.uint8)
NONE = np.array([])
STRIDED = np.arange(20, dtype=np.int16)[::2]
LARGE = np.zeros(20_000, np.float32)


@cuda.jit
def look_up(out):
    table = cuda.const.array_like(LINE)
    i = cuda.threadIdx.x
    out[i] = table[i % 5] + LINE[9] + table.shape[0]


def test_a_global_array_is_the_same_table_with_and_without_array_like():
    run, (out,) = agreed(look_up, 1, 32, lambda: (np.zeros(32),))
    assert out.tolist() == [i % 5 / 2 + 4.5 + 10 for i in range(32)]
    constant = run.counters.const_load
    assert (constant.requests, constant.lanes, constant.bytes) == (2, 64, 512)
    assert constant.addresses == 5 + 1
    assert run.counters.global_load.requests == 0


@cuda.jit
def several(out):
    i, j = cuda.grid(2)
    out[i, j] = SQUARE[i, j] + BYTES[i % 3] + STRIDED[j] + len(NONE)


def test_every_order_and_element_type_is_read_where_it_lies():
    run, (out,) = agreed(several, (5, 5), (2, 2), lambda: (np.zeros((10, 10)),))
    assert out.tolist() == [[10 * i + j + i % 3 + 2 * j for j in range(10)] for i in range(10)]
    assert run.counters.const_load.requests == 3 * 25
    # Two rows and two columns a block: 4 places of SQUARE; 2 of BYTES, by row; 2 of STRIDED, by column.
    assert run.counters.const_load.addresses == 25 * (4 + 2 + 2)


def scaled_by(table: np.ndarray) -> Any:
    @cuda.jit
    def kernel(x, out):
        i = cuda.threadIdx.x
        if x[i] > 0:
            pair = table.view(cuda.float2)[x[i]]
            out[i] = pair.x * pair.y

    return kernel


def test_a_closures_array_is_read_by_the_lanes_of_a_branch_and_as_vectors():
    kernel, x = scaled_by(np.arange(8, dtype=np.float32)), np.arange(32) % 4
    run, (_, out) = agreed(kernel, 1, 32, lambda: (x, np.zeros(32)))
    assert out.tolist() == [[0.0, 2 * 3, 4 * 5, 6 * 7][i % 4] for i in range(32)]
    constant = run.counters.const_load
    assert (constant.requests, constant.lanes, constant.bytes, constant.addresses) == (1, 24, 192, 3)


@cuda.jit(device=True)
def weight(k):
    return LINE[k]


@cuda.jit
def through_a_function(out):
    total = 0.0
    for k in range(LINE.size):
        total += weight(k)
    out[0] = total


def test_a_table_in_a_device_function_is_one_array_and_a_loop_over_it_reads_one_place_at_a_time():
    run, (out,) = agreed(through_a_function, 1, 32, lambda: (np.zeros(1),))
    assert out[0] == LINE.sum()
    assert (run.counters.const_load.requests, run.counters.const_load.addresses) == (10, 10)


@cuda.jit
def where_to(out):
    i = cuda.threadIdx.x
    out[SQUARE[0, i]] = i


def test_counts_alone_know_constants_so_addresses_may_depend_on_them():
    counted = launch(where_to, 1, 10, (np.zeros(10),), Device(H200), counts_only=True).counters
    assert counted == launch(where_to, 1, 10, (np.zeros(10),), Device(H200)).counters
    assert counted.const_load.addresses == 10


def test_the_table_is_frozen_when_the_kernel_is_compiled():
    table = np.ones(4, np.float32)
    kernel, out = scaled_by(table), np.zeros(1)
    for _ in range(2):
        kernel[1, 1](np.array([1]), out)
        assert out[0] == 1
        table[:] = 7


@cuda.jit
def outside(out):
    out[0] = LINE[cuda.threadIdx.x]


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_an_index_outside_a_table_is_an_error_with_its_name(engine: str):
    with pytest.raises(OutOfBounds, match="index 10 in dimension 0 of 'LINE' is out of bounds"):
        launch(outside, 1, 11, (np.zeros(1),), Device(H200), engine=engine)


@cuda.jit
def too_large(out):
    out[0] = LARGE[cuda.threadIdx.x] + LINE[cuda.threadIdx.x]


@cuda.jit
def of_an_argument(out):
    out[0] = cuda.const.array_like(out)[0]


@cuda.jit
def written(out):
    LINE[0] = 1


@cuda.jit
def added(out):
    cuda.atomic.add(LINE, 0, 1)


@cuda.jit
def large_shape_alone(out):
    out[0] = LARGE.shape[0]


def test_more_constants_than_the_card_has_are_refused_with_their_sizes():
    sizes = r"80,080 bytes \(LARGE 80,000, LINE 80\)"
    with pytest.raises(LaunchRefused, match=f"its constant arrays take {sizes}, the limit is 65,536"):
        too_large[1, 1](np.zeros(1))


def test_an_array_of_which_only_the_shape_is_read_takes_no_constant_memory():
    _, (out,) = agreed(large_shape_alone, 1, 1, lambda: (np.zeros(1),))
    assert out[0] == 20_000


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (of_an_argument, "cuda.const.array_like of the array 'out'; give a numpy array that is a global"),
        (written, "a write to 'LINE', which is in constant memory; pass the array as an argument"),
        (added, "a write to 'LINE', which is in constant memory"),
    ],
)
def test_what_constant_memory_cannot_do_is_refused(kernel: Any, message: str):
    with pytest.raises(UnsupportedFeature, match=message):
        kernel[1, 1](np.zeros(1))


def test_the_report_and_the_metrics_show_requests_and_addresses():
    run = launch(look_up, 1, 32, (np.zeros(32),), Device(H200))
    assert metrics.value(run, "smsp__inst_executed_op_ldc.sum") == 2
    assert metrics.value(run, "gpusim__constant_load_addresses.sum") == 6
    (row,) = (line for line in report.text([run]).splitlines() if line.startswith("load ") and "512" in line)
    assert row.split() == ["load", "2", "512", "6", "3.00", "exact"]


@cuda.jit
def copied(out):
    table = STRIDED.copy()
    table[0] = 5
    for k in range(table.size):
        out[k] = table[k] + STRIDED[0]


def test_a_copy_of_a_table_is_the_threads_own_and_runs_as_python_source():
    out = np.zeros(10)
    run = launch(copied, 1, 1, (out,), Device(H200))
    assert out.tolist() == [5, 2, 4, 6, 8, 10, 12, 14, 16, 18]
    assert (run.engine, run.counters.const_load.requests) == ("oracle", 10 + 10)


@cuda.jit
def first_of_none(out):
    out[0] = NONE[0]


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_an_element_of_an_empty_constant_array_is_out_of_bounds(engine):
    with pytest.raises(OutOfBounds, match="NONE"):
        launch(first_of_none, 1, 1, (np.zeros(1),), Device(H200), engine=engine)
