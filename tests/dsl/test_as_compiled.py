"""What shared accesses become as compiled, a rule at a time, in numbers that follow by hand.

Each kernel went through NVVM and ptxas 13.0 for sm_90; the instructions are those of the machine code. One
warp runs each: as written every access is a request. `agreed` holds the interpreter's counts against the
compiled engine's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy import float32, float64, int16

from dsl import cuda
from gpusim.counters import AsCompiled, Issued
from gpusim.launch import Launch
from tests.dsl.three_engines import agreed


def warp(kernel: Any, *more: Any, threads: int = 32, shared_bytes: int = 0) -> Launch:
    """Return a launch of one warp on x = 0..1023 and 64 outputs; `more` are arguments after those."""

    def args() -> tuple[Any, ...]:
        return np.arange(1024, dtype=np.float32), np.zeros(64, np.float32), *more

    return agreed(kernel, 1, threads, args, shared_bytes)[0]


def loads(launch: Launch) -> tuple[int, int]:
    """Return (instructions, wavefronts) of shared loads as compiled."""
    assert launch.as_compiled is not None
    return launch.as_compiled.shared_load.instructions, launch.as_compiled.shared_load.wavefronts


def stores(launch: Launch) -> tuple[int, int]:
    """Return (instructions, wavefronts) of shared stores as compiled, without the first, which fills s."""
    assert launch.as_compiled is not None
    store = launch.as_compiled.shared_store
    return store.instructions - 1, store.wavefronts - 1


def make_sum(*words: int) -> Any:
    """Return a kernel in which every lane adds two or three words of shared memory."""
    first, second, last = words[0], words[1], words[-1]
    three = len(words) == 3

    @cuda.jit
    def add_words(x, y):
        s = cuda.shared.array(32, float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        cuda.syncthreads()
        total = s[first] + s[second]
        if three:
            total += s[last]
        y[t] = total

    return add_words


@pytest.mark.parametrize("words", [(4, 6, 7), (5, 6, 7), (4, 5, 7), (4, 5, 6)])
def test_three_words_of_a_piece_of_16_bytes_are_one_load_of_2_wavefronts(words):
    assert loads(warp(make_sum(*words))) == (1, 2)


@pytest.mark.parametrize("words", [(4, 5), (6, 7)])
def test_two_words_of_a_piece_of_8_bytes_are_one_load_of_1_wavefront(words):
    assert loads(warp(make_sum(*words))) == (1, 1)


@pytest.mark.parametrize("words", [(5, 6), (4, 7), (5, 7), (4, 6), (7, 8)])
def test_two_words_of_different_pieces_of_8_bytes_stay_two_loads(words):
    assert loads(warp(make_sum(*words))) == (2, 2)


def test_one_word_that_is_read_twice_is_one_load():
    assert loads(warp(make_sum(4, 4))) == (1, 1)


def make_row(columns: int, pitch: int, start: int = 0) -> Any:
    """Return a kernel in which lane t adds up `columns` words of row t % 4, rows `pitch` words apart."""

    @cuda.jit
    def add_row(x, y):
        s = cuda.shared.array((4, pitch), float32)
        t = cuda.threadIdx.x
        s[t % 4, t // 4] = x[t]
        cuda.syncthreads()
        total = float32(0)
        for k in range(columns):
            total += s[t % 4, start + k]
        y[t] = total

    return add_row


@pytest.mark.parametrize(("columns", "start", "instructions"), [
    (16, 0, 4), (7, 0, 2), (6, 0, 2), (3, 0, 1), (2, 0, 1), (15, 1, 4), (14, 2, 4), (1, 0, 1)])
def test_a_row_that_starts_at_16_bytes_is_read_in_pieces(columns, start, instructions):
    # 18 words: 4 of 16 bytes, 1 of 8. From word 2 on: 8 bytes, then 3 x 16.
    assert loads(warp(make_row(columns, 16, start)))[0] == instructions


def test_the_wavefronts_of_merged_loads_are_those_of_wide_lanes():
    # Lane t wants row t % 4 of 64 bytes: a quarter warp wants 4 pieces of 16 bytes, 64 bytes apart. Rows 0
    # and 2, and 1 and 3, lie 128 bytes apart: the same banks, so 2 wavefronts a quarter. No two quarters
    # merge, as neighbours l and l ^ 1, l and l ^ 2 differ. 4 loads x 4 quarters x 2.
    launch = warp(make_row(16, 16))
    assert launch.counters.shared_load.wavefronts == 16 * 2
    assert launch.as_compiled == AsCompiled(
        Issued(4, 32, 16), Issued(1, launch.counters.shared_store.wavefronts, 1))


@pytest.mark.parametrize(("pitch", "instructions"), [(16, 4), (17, 16), (18, 8), (20, 4)])
def test_rows_that_start_at_8_bytes_give_loads_of_8_and_other_rows_loads_of_4(pitch, instructions):
    assert loads(warp(make_row(16, pitch)))[0] == instructions


@cuda.jit
def with_barrier(x, y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = s[0] + s[1]
    cuda.syncthreads()
    y[t] = total + s[2] + s[3]


@cuda.jit
def with_syncwarp(x, y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = s[0] + s[1]
    cuda.syncwarp()
    y[t] = total + s[2] + s[3]


@cuda.jit
def with_store(x, y):
    s = cuda.shared.array(32, float32)
    other = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = s[0] + s[1]
    other[t] = total
    y[t] = total + s[2] + s[3]


@cuda.jit
def with_shared_atomic(x, y):
    s = cuda.shared.array(32, float32)
    other = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    other[t] = x[t]
    cuda.syncthreads()
    total = s[0] + s[1]
    cuda.atomic.add(other, t, total)
    y[t] = total + s[2] + s[3]


@pytest.mark.parametrize("kernel", [with_barrier, with_syncwarp, with_store, with_shared_atomic])
def test_loads_on_two_sides_of_a_barrier_or_of_a_change_of_shared_memory_stay_apart(kernel):
    assert loads(warp(kernel))[0] == 2


@cuda.jit
def with_global_work(x, y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = s[0] + s[1]
    y[32 + t] = total
    cuda.atomic.add(y, t, total)
    total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 1)
    y[t] = total + s[2] + s[3]


def test_global_stores_atomics_and_shuffles_between_loads_keep_nothing_apart():
    assert loads(warp(with_global_work)) == (1, 2)


@cuda.jit
def in_branches(x, y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = float32(0)
    for k in range(16):
        if k <= t:
            total += s[k]
    y[t] = total


def test_loads_of_an_unrolled_loop_that_lie_in_branches_stay_apart():
    assert loads(warp(in_branches)) == (16, 16)


@cuda.jit
def in_eight_lanes(x, y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = float32(0)
    if t < y.shape[0] // 8:
        for k in range(16):
            total += s[k]
    y[t] = total


def test_a_merged_broadcast_to_half_a_warp_takes_1_wavefront_and_to_more_lanes_2():
    # Fact 29: a broadcast of 16 bytes takes a wavefront for each half of the warp that has an active lane.
    for outputs, wavefronts in ((64, 4), (128, 4), (136, 8), (256, 8)):
        launch, _ = agreed(
            in_eight_lanes, 1, 32,
            lambda n=outputs: (np.arange(32, dtype=np.float32), np.zeros(n, np.float32)))
        assert loads(launch) == (4, wavefronts)


def make_stores(*words: int) -> Any:
    """Return a kernel in which every lane stores to two to four words of shared memory."""
    a, b, c, d = (*words, -1, -1)[:4]
    third, fourth = c >= 0, d >= 0

    @cuda.jit
    def store_words(x, y):
        s = cuda.shared.array(32, float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        cuda.syncthreads()
        s[a] = x[a]
        s[b] = x[b]
        if third:
            s[c] = x[c]
        if fourth:
            s[d] = x[d]
        cuda.syncthreads()
        y[t] = s[t]

    return store_words


@pytest.mark.parametrize(("words", "instructions"), [
    ((4, 5, 6, 7), 1), ((4, 6, 7), 2), ((5, 6, 7), 2), ((4, 5, 7), 2), ((4, 5), 1), ((6, 7), 1),
    ((5, 6), 2), ((4, 7), 2), ((4, 6), 2), ((7, 8), 2)])
def test_stores_merge_where_they_fill_a_piece_and_write_no_word_too_many(words, instructions):
    assert stores(warp(make_stores(*words)))[0] == instructions


def test_a_merged_store_of_16_bytes_takes_4_wavefronts_as_stores_never_go_together():
    assert stores(warp(make_stores(4, 5, 6, 7))) == (1, 4)


@cuda.jit
def two_streams(x, y):
    s = cuda.shared.array((2, 16), float32)
    t = cuda.threadIdx.x
    s[t // 16, t % 16] = x[t]
    cuda.syncthreads()
    for k in range(4):
        s[0, k] = x[k]
        s[1, k] = x[k + 4]
    cuda.syncthreads()
    y[t] = s[0, t % 4]


def test_stores_that_take_turns_between_two_pieces_stay_apart():
    assert stores(warp(two_streams))[0] == 8


@cuda.jit
def doubles(x, y):
    s = cuda.shared.array(32, float64)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    y[t] = float32(s[2] + s[3] + s[5] + s[6])


def test_two_doubles_of_a_piece_are_one_load_of_16_bytes_and_neighbours_of_two_pieces_are_two():
    assert loads(warp(doubles))[0] == 3


def make_shorts(columns: int) -> Any:
    """Return a kernel that reads 8 and stores `columns` words of 2 bytes."""

    @cuda.jit
    def shorts(x, y):
        s = cuda.shared.array(32, int16)
        t = cuda.threadIdx.x
        s[t] = int16(t)
        cuda.syncthreads()
        total = float32(0)
        for k in range(8):
            total += float32(s[8 + k])
        cuda.syncthreads()
        for k in range(columns):
            s[k] = int16(t)
        y[t] = total

    return shorts


@pytest.mark.parametrize(("columns", "instructions"), [(4, 1), (2, 1), (3, 2), (1, 1)])
def test_words_of_2_bytes_merge_by_four_and_stores_by_two_as_well(columns, instructions):
    launch = warp(make_shorts(columns))
    assert (loads(launch)[0], stores(launch)[0]) == (2, instructions)


def make_flat(extent: int, factor: int) -> Any:
    """Return a kernel that reads s[n * factor + k] for k = 0..3 of an array of `extent` words."""

    @cuda.jit
    def flat(x, y, n):
        s = cuda.shared.array(extent, float32)
        t = cuda.threadIdx.x
        s[t] = x[t]
        cuda.syncthreads()
        total = float32(0)
        for k in range(4):
            total += s[n * factor + k]
        y[t] = total

    return flat


@pytest.mark.parametrize(("extent", "factor", "instructions"), [
    (1024, 16, 1), (1000, 16, 1), (1024, 4, 1), (1001, 16, 4), (1024, 2, 3), (1024, 1, 4)])
def test_flat_indices_merge_where_the_row_and_a_wrapped_index_start_at_16_bytes(extent, factor, instructions):
    # A negative index is wrapped by the extent: with 1,001 words the address may then be anything. With a
    # factor of 2 the sign of n * 2 + k is that of n * 2 for k = 0 and 1, a pair; 2 and 3 stay alone.
    assert loads(warp(make_flat(extent, factor), 1))[0] == instructions


@cuda.jit
def flat_in_a_loop(x, y, n):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = float32(0)
    for r in range(n):
        for k in range(4):
            total += s[r * 4 + k]
    y[t] = total


@cuda.jit
def rows_in_a_loop(x, y, n):
    s = cuda.shared.array((8, 4), float32)
    t = cuda.threadIdx.x
    s[t // 4, t % 4] = x[t]
    cuda.syncthreads()
    total = float32(0)
    for r in range(n):
        for k in range(4):
            total += s[r, k]
    y[t] = total


@cuda.jit
def flat_in_a_range_from_a_variable(x, y, n):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = float32(0)
    first = int(x[0])
    for r in range(first, n):
        for k in range(4):
            total += s[r * 4 + k]
    y[t] = total


@cuda.jit
def flat_in_steps_of_four(x, y, n):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = float32(0)
    for r in range(0, n, 4):
        for k in range(16):
            total += s[r * 16 + k]
    y[t] = total


@cuda.jit
def flat_in_a_while_loop(x, y, n):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = float32(0)
    r = 0
    while r < n:
        for k in range(4):
            total += s[r * 4 + k]
        r += 1
    y[t] = total


@cuda.jit
def flat_in_a_long_range(x, y):
    s = cuda.shared.array(1024, float32)
    t = cuda.threadIdx.x
    for r in range(32):
        s[r * 32 + t] = x[r * 32 + t]
    cuda.syncthreads()
    total = float32(0)
    for r in range(256):
        for k in range(4):
            total += math.exp(s[r * 4 + k])
    y[t] = total


def test_rows_of_a_loop_that_stays_a_loop_merge():
    assert loads(warp(rows_in_a_loop, 3))[0] == 3
    assert loads(warp(flat_in_a_loop, 3))[0] == 3
    assert loads(warp(flat_in_a_range_from_a_variable, 3))[0] == 3
    assert loads(warp(flat_in_a_long_range))[0] == 256


def test_rows_with_one_index_do_not_merge_where_a_loop_steps_them():
    assert loads(warp(flat_in_steps_of_four, 4))[0] == 16
    assert loads(warp(flat_in_a_while_loop, 3))[0] == 12


@cuda.jit
def dynamic(x, y):
    s = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = float32(0)
    for k in range(4):
        total += s[k] + s[(t % 2) * 4 + k]
    y[t] = total


def test_dynamic_shared_memory_merges_with_constant_indices_alone():
    # What a negative index is wrapped by is not known, nor whether 4 divides it.
    assert loads(warp(dynamic, shared_bytes=256))[0] == 1 + 4


@cuda.jit
def row_from_data(x, y):
    s = cuda.shared.array((4, 8), float32)
    t = cuda.threadIdx.x
    s[t // 8, t % 8] = x[t]
    cuda.syncthreads()
    total = float32(0)
    for k in range(8):
        total += s[int(x[1]), k]
    y[t] = total


def test_a_row_that_data_decide_is_one_row_while_nothing_is_stored():
    assert loads(warp(row_from_data))[0] == 2


@cuda.jit
def varying_rows(x, y, rows):
    s = cuda.shared.array((32, 4), float32)
    t = cuda.threadIdx.x
    for k in range(4):
        s[t, k] = x[4 * t + k]
    cuda.syncthreads()
    total = float32(0)
    row = rows[t]
    for k in range(4):
        total += s[row, k]
    y[t] = total


def test_wide_wavefronts_of_addresses_that_data_decide_are_found_at_run_time():
    # Rows of 16 bytes. Lane t reads row t: a quarter warp reads 128 bytes side by side, 4 wavefronts. All on
    # row 8 t: 8 lanes want 8 rows of one bank, 8 wavefronts a quarter. The stores are the first case.
    for rows, wavefronts in ((np.arange(32), 4), (np.arange(32) * 8 % 32, 4 * 4)):
        launch = warp(varying_rows, rows.astype(np.int64))
        assert launch.as_compiled is not None
        assert launch.as_compiled.shared_load.wavefronts == wavefronts
        assert launch.as_compiled.shared_store == Issued(1, 4, 4)


@cuda.jit
def partly(x, y, n):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    total = float32(0)
    for k in range(n):
        total += s[k]
    y[t] = total


def test_a_loop_of_turns_that_the_launch_decides_keeps_its_loads():
    assert loads(warp(partly, 16)) == (16, 16)
