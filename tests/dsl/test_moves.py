"""ldmatrix and cp.async: values, requests, wavefronts, groups, and the copies that are not there yet."""

from __future__ import annotations

import numpy as np
import pytest
from numpy import int32, uint8, uint16, uint32

from dsl import cuda, ptx
from dsl.host.device import Device
from dsl.host.launch import Dispatcher, launch
from gpusim.arch import H200
from gpusim.errors import (
    DataDependent,
    KernelFault,
    KernelMistake,
    Misaligned,
    OutOfBounds,
    PendingCopy,
    WarpDivergence,
)
from gpusim.shared import copy_wavefronts, matrix_wavefronts
from tests.dsl.three_engines import agreed

ENGINES = ("compiled", "ir", "oracle")
ROWS = 32


def matrix() -> np.ndarray:
    """Return 32 rows of 64 numbers: 100 x row + column, as uint16."""
    return (100 * np.arange(ROWS)[:, None] + np.arange(64)).astype(np.uint16)


@cuda.jit
def load_all(a, out):
    tile = cuda.shared.array((32, 64), uint16, alignment=16)
    lane = cuda.threadIdx.x
    for k in range(64):
        tile[lane, k] = a[lane, k]
    cuda.syncthreads()
    out[0, lane] = ptx.ldmatrix_x1(tile, (lane % 8, 0))
    out[1, lane], out[2, lane] = ptx.ldmatrix_x2(tile, (lane % 16, 8))
    out[3, lane], out[4, lane], out[5, lane], out[6, lane] = ptx.ldmatrix_x4(tile, (lane, 16))
    out[7, lane] = ptx.ldmatrix_x1_trans(tile, (lane % 8, 0))
    out[8, lane], out[9, lane] = ptx.ldmatrix_x2_trans(tile, (lane % 16, 8))
    out[10, lane], out[11, lane], out[12, lane], out[13, lane] = ptx.ldmatrix_x4_trans(tile, (lane, 16))


def test_lane_4g_plus_t_of_ldmatrix_gets_elements_2t_and_2t_plus_1_of_row_g():
    ran, (_, out) = agreed(load_all, 1, 32, lambda: (matrix(), np.zeros((14, 32), np.uint32)))
    halves = out.view(np.uint16).reshape(14, 32, 2)
    # Lane 13: g = 3, t = 1, elements 2 and 3. Rows of matrix i are 8 i onwards.
    first = [100 * 3 + 2, 100 * 3 + 10, 100 * 11 + 10, 318, 318 + 800, 318 + 1600, 318 + 2400]
    assert halves[:7, 13, 0].tolist() == first
    assert halves[:7, 13, 1].tolist() == [n + 1 for n in first]
    # Transposed, lane 13 gets column 3, of rows 2 and 3.
    assert halves[7:, 13].tolist() == [
        [203, 303], [211, 311], [1011, 1111], [219, 319], [1019, 1119], [1819, 1919], [2619, 2719]
    ]  # fmt: skip
    assert ran.counters.shared_matrix.requests == 6


@pytest.mark.parametrize(
    ("pitch_bytes", "each"), [(16, 1), (32, 2), (64, 4), (128, 8), (144, 1), (256, 8), (0, 1)]
)
def test_a_matrix_takes_the_wavefronts_that_an_h200_takes(pitch_bytes, each):
    # h200 fact 36: rows 16 or 144 bytes apart 1, 32: 2, 64: 4, 128: 8; equal rows are one.
    addresses = pitch_bytes * np.arange(32, dtype=np.int64)
    assert [matrix_wavefronts(addresses, n) for n in (1, 2, 4)] == [each, 2 * each, 4 * each]


@cuda.jit
def rows_apart(out):
    tile = cuda.shared.array((32, 64), uint16, alignment=16)
    lane = cuda.threadIdx.x
    swizzled = lane % 8 * 8
    out[0, lane] = ptx.ldmatrix_x4(tile, (lane, 0))[0]
    out[1, lane] = ptx.ldmatrix_x4(tile, (lane, swizzled))[0]


def test_rows_of_128_bytes_conflict_8_times_and_swizzled_ones_not():
    ran, _ = agreed(rows_apart, 1, 32, lambda: (np.zeros((2, 32), np.uint32),))
    counts = ran.counters.shared_matrix
    assert (counts.requests, counts.wavefronts, counts.ideal_wavefronts) == (2, 4 * 8 + 4, 8)
    assert (counts.lanes, counts.bytes) == (64, 2 * 512)
    assert ran["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == 28
    assert ran["smsp__inst_executed_op_ldsm.sum"] == 2
    assert ran["smsp__inst_executed_op_shared_ld.sum"] == 0


def test_the_line_of_a_conflicting_ldmatrix_says_so():
    ran = launch(rows_apart, 1, 32, (np.zeros((2, 32), np.uint32),), Device(H200))
    from gpusim.line_reasons import reasons

    assert [text for text in reasons(ran) if "ldmatrix of tile: 32 wavefronts a request (ideal 4)" in text]


# ------------------------------------------------------------------------------------------ cp.async


@cuda.jit
def copies(a, out, size):
    tile = cuda.shared.array((32, 64), uint16, alignment=16)
    lane = cuda.threadIdx.x
    for k in range(64):
        tile[lane, k] = 7
    cuda.syncthreads()
    ptx.cp_async_cg(tile, (lane // 8, lane % 8 * 8), a, (lane // 8, lane % 8 * 8), 16)
    ptx.cp_async_ca(tile, (4 + lane // 16, lane % 16 * 4), a, (4 + lane // 16, lane % 16 * 4), 8)
    ptx.cp_async_ca(tile, (6, lane * 2), a, (6, lane * 2), 4, size if lane % 2 else 4)
    ptx.cp_async_cg(tile, (8 + lane // 8, lane % 8 * 8), a, (8, 0), 16, lane // 16 * 16)
    ptx.cp_async_wait_all()
    cuda.syncthreads()
    for k in range(64):
        out[lane, k] = tile[lane, k]


def test_copies_arrive_and_what_is_not_taken_is_zero():
    ran, (_, out) = agreed(copies, 1, 32, lambda: (matrix(), np.zeros((32, 64), np.uint16), int32(2)))
    expected = np.full((32, 64), 7, np.uint16)
    expected[:6] = matrix()[:6]
    expected[6] = matrix()[6]
    expected[6, 3::4] = 0  # odd lanes take 2 of 4 bytes
    expected[8:10], expected[10:12] = 0, np.tile(matrix()[8, :8], 8)
    assert (out == expected).all()
    loads, writes = ran.counters.global_load, ran.counters.shared_async
    assert (writes.requests, writes.lanes, writes.bytes) == (4, 128, 32 * (16 + 8 + 4 + 16))
    # 512, 256 and 128 bytes side by side; one line from which half of the lanes fill 8 sectors.
    assert loads.sectors == 16 + 8 + 4 + 8
    assert (loads.requests, loads.lanes, ran.counters.async_requests) == (4, 32 * 3 + 16, 4)
    assert ran["smsp__inst_executed_op_global_ld.sum"] == 0
    assert loads.bytes == 512 + 256 + 16 * 4 + 16 * 2 + 16 * 16
    assert ran["smsp__inst_executed_op_ldgsts.sum"] == 4


def addresses(*values: int) -> np.ndarray:
    """Return 32 lanes' addresses: step, or step and divisor of the lane."""
    step, divisor = (*values, 1)[:2]
    return step * (np.arange(32, dtype=np.int64) // divisor)


@pytest.mark.parametrize(
    ("source", "target", "mask", "sectors"),
    [
        (addresses(16), addresses(16), 0xFFFFFFFF, 16),
        (addresses(16), addresses(32), 0xFFFFFFFF, 32),
        (addresses(32), addresses(16), 0xFFFFFFFF, 16),
        (addresses(128), addresses(16), 0xFFFFFFFF, 32),
        (addresses(0), addresses(16), 0xFFFFFFFF, 16),
        (addresses(0), addresses(0), 0xFFFFFFFF, 1),
        (addresses(16), addresses(16), 0x0000FFFF, 8),
        (addresses(16), addresses(16), 0x55555555, 16),
        (addresses(16), addresses(16), 0, 0),
        (addresses(128), addresses(4096), 0xFFFFFFFF, 32),
    ],
)
def test_sectors_past_l1_are_pairs_of_a_source_line_and_a_destination_sector(source, target, mask, sectors):
    # h200 fact 37, but for the last three, which follow from it.
    from dsl.semantics import request_rules
    from gpusim.coalescer import copy_sectors

    assert copy_sectors(source, target, np.uint32(mask)) == sectors
    lanes = [k for k in range(32) if mask >> k & 1]
    by_sets = [{k: int(x[k]) for k in lanes} for x in (source, target)]
    assert request_rules.copy_sectors(*by_sets) == sectors


@pytest.mark.parametrize(
    ("source", "target", "size", "taken"),
    [
        (addresses(4), addresses(4), 4, 1),
        (addresses(8), addresses(8), 8, 2),
        (addresses(16), addresses(16), 16, 4),
        (addresses(16), addresses(32), 16, 8),
        (addresses(16), addresses(128), 16, 32),
        (addresses(128), addresses(16), 16, 32),
        (addresses(144), addresses(16), 16, 4),
        (addresses(0), addresses(16), 16, 32),
        (addresses(32), addresses(128), 16, 32),
    ],
)
def test_a_copy_through_l1_takes_as_many_wavefronts_as_lanes_meet_in_a_bank(source, target, size, taken):
    # h200 fact 37.
    full = np.uint32(0xFFFFFFFF)
    assert copy_wavefronts(source, target, full, full, size) & 0xFFFFFFFF == taken


def _read_too_early(a, out, kind):
    tile = cuda.shared.array(128, uint16, alignment=16)
    t = cuda.threadIdx.x
    if t < 16:
        ptx.cp_async_cg(tile, 8 * t, a, 8 * t, 16)
    if kind == 1:
        ptx.cp_async_commit_group()
    if kind == 2:
        ptx.cp_async_wait_group(0)
    if kind == 3:
        ptx.cp_async_commit_group()
        ptx.cp_async_wait_group(1)
    if kind == 4:
        ptx.cp_async_wait_all()
    cuda.syncthreads()
    if t == 5:
        out[0] = tile[9]


read_too_early = cuda.jit(_read_too_early)
FIRST = _read_too_early.__code__.co_firstlineno


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_a_read_of_bytes_that_are_still_being_copied_names_both_lines(engine, kind):
    # 0: neither committed nor waited for; 1: committed; 2: waited without a commit; 3: waited for too few.
    args = np.arange(128, dtype=np.uint16), np.zeros(1, np.uint16), int32(kind)
    with pytest.raises(PendingCopy, match=r"thread \(5, 0, 0\), .*: load of tile\[9\]") as error:
        launch(read_too_early, 1, 32, args, Device(H200), engine=engine)
    assert error.match(rf"test_moves\.py:{FIRST + 16}: .*copy of thread \(1, 0, 0\) at .*:{FIRST + 4} may")


def test_after_the_wait_the_bytes_may_be_read():
    _, arrays = agreed(
        read_too_early, 1, 32, lambda: (np.arange(128, dtype=np.uint16), np.zeros(1, np.uint16), int32(4))
    )
    assert arrays[1].tolist() == [9]


@cuda.jit
def two_groups(a, out, last):
    tile = cuda.shared.array((2, 32), uint32, alignment=16)
    t = cuda.threadIdx.x
    for k in range(2):
        ptx.cp_async_ca(tile, (k, t), a, (k, t), 4)
        ptx.cp_async_commit_group()
    ptx.cp_async_wait_group(1)
    cuda.syncthreads()
    out[t] = tile[last, 31 - t]


@pytest.mark.parametrize("engine", ENGINES)
def test_waiting_for_all_but_one_group_frees_the_first_and_not_the_second(engine):
    a = np.arange(64, dtype=np.uint32).reshape(2, 32)
    out = np.zeros(32, np.uint32)
    launch(two_groups, 1, 32, (a, out, int32(0)), Device(H200), engine=engine)
    assert out.tolist() == list(range(31, -1, -1))
    with pytest.raises(PendingCopy, match=r"load of tile\[1, 31\]"):
        launch(two_groups, 1, 32, (a, out, int32(1)), Device(H200), engine=engine)


@cuda.jit
def touches(a, out, kind):
    tile = cuda.shared.array((32, 8), uint16, alignment=16)
    sums = cuda.shared.array(32, int32, alignment=16)
    t = cuda.threadIdx.x
    ptx.cp_async_cg(tile, (t, 0), a, (t, 0), 16)
    if kind == 4:
        ptx.cp_async_ca(sums, t, out, t, 4)
    if kind == 0:
        tile[t, 3] = 1
    elif kind == 1:
        out[t] = ptx.ldmatrix_x4(tile, (t, 0))[0]
    elif kind == 2:
        ptx.cp_async_cg(tile, (t, 0), a, (t, 0), 16)
    elif kind == 3:
        out[t] = ptx.ldmatrix_x1(tile, (31 - t, 0))
    else:
        cuda.atomic.add(sums, t, 1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (0, r"thread \(0, 0, 0\), .*store to tile\[0, 3\]"),
        (1, r"thread \(0, 0, 0\), .*ptx.ldmatrix_x4 of tile\[0, 0\]"),
        (2, r"thread \(0, 0, 0\), .*ptx.cp_async_cg to tile\[0, 0\]"),
        (3, r"thread \(0, 0, 0\), .*ptx.ldmatrix_x1 of tile\[31, 0\]: .* of thread \(31, 0, 0\)"),
        (4, r"thread \(0, 0, 0\), .*atomic on sums\[0\]"),
    ],
)
def test_everything_that_touches_a_pending_copy_is_an_error(engine, kind, what):
    args = np.zeros((32, 8), np.uint16), np.zeros(32, np.int32), int32(kind)
    with pytest.raises(PendingCopy, match=what):
        launch(touches, 1, 32, args, Device(H200), engine=engine)


def test_other_bytes_of_the_array_may_be_touched_meanwhile():
    @cuda.jit
    def beside(a, out):
        tile = cuda.shared.array(64, uint32, alignment=16)
        t = cuda.threadIdx.x
        ptx.cp_async_ca(tile, t, a, t, 4)
        tile[32 + t] = t
        out[t] = tile[32 + t]

    _, arrays = agreed(beside, 1, 32, lambda: (np.zeros(32, np.uint32), np.zeros(32, np.uint32)))
    assert arrays[1].tolist() == list(range(32))


def test_a_new_block_starts_without_pending_copies():
    @cuda.jit
    def leaves_one(a, out):
        tile = cuda.shared.array(32, uint32, alignment=16)
        t = cuda.threadIdx.x
        if cuda.blockIdx.x == 0:
            ptx.cp_async_ca(tile, t, a, t, 4)
        else:
            tile[t] = t
            out[t] = tile[t]

    _, arrays = agreed(leaves_one, 2, 32, lambda: (np.zeros(32, np.uint32), np.zeros(32, np.uint32)))
    assert arrays[1].tolist() == list(range(32))


# ------------------------------------------------------------------------------------------ mistakes


@cuda.jit
def astray(a, out, kind):
    tile = cuda.shared.array((32, 16), uint16, alignment=16)
    t = cuda.threadIdx.x
    if kind == 0:
        out[t] = ptx.ldmatrix_x4(tile, (t, 4 if t == 9 else 0))[0]
    elif kind == 1:
        ptx.cp_async_cg(tile, (t, 0), a, (t, 4), 16)
    elif kind == 2:
        ptx.cp_async_ca(tile, (t, 2), a, (t, 4), 8)
    elif kind == 3:
        ptx.cp_async_ca(tile, (t, 0), a, (t, 0), 8, 9)
    elif kind == 4:
        ptx.cp_async_ca(tile, (t, 0), a, (t, 0), 8, -1)
    elif kind == 5:
        ptx.cp_async_cg(tile, (t, 8), a, (t, 16), 16)
    else:
        ptx.cp_async_cg(tile, (t, 12), a, (t, 0), 16)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        (0, Misaligned, r"thread \(9, 0, 0\), .*ldmatrix_x4: the row in 'tile' lies 8 bytes past .* 16"),
        (1, Misaligned, r"thread \(0, 0, 0\), .*cp_async_cg: the source in 'a' lies 8 bytes past .* 16"),
        (2, Misaligned, r"thread \(0, 0, 0\), .*cp_async_ca: the destination in 'tile' lies 4 bytes past"),
        (3, KernelFault, r"thread \(0, 0, 0\), .*cp_async_ca: src_bytes is 9, of 'a'; it is 0 to 8"),
        (4, KernelFault, r"src_bytes is -1, of 'a'; it is 0 to 8"),
        (5, OutOfBounds, "index 23 in dimension 1 of 'a' is out of bounds: the extent is 20"),
        (6, OutOfBounds, "index 19 in dimension 1 of 'tile' is out of bounds: the extent is 16"),
    ],
)
def test_what_the_card_faults_at_is_an_error_with_thread_array_and_line(engine, kind, error, text):
    args = np.zeros((32, 20), np.uint16), np.zeros(32, np.uint32), int32(kind)
    if kind != 5:
        args = np.zeros((32, 16), np.uint16), *args[1:]
    with pytest.raises(error, match=text):
        launch(astray, 1, 32, args, Device(H200), engine=engine)


@cuda.jit
def in_a_branch(out):
    tile = cuda.shared.array((32, 8), uint16, alignment=16)
    t = cuda.threadIdx.x
    if t != 6:
        out[t] = ptx.ldmatrix_x1(tile, (t, 0))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_ldmatrix_that_a_lane_misses_is_an_error_that_names_it(engine):
    with pytest.raises(WarpDivergence, match="ptx.ldmatrix_x1 needs all 32 lanes .* missing: lane 6"):
        launch(in_a_branch, 1, 32, (np.zeros(32, np.uint32),), Device(H200), engine=engine)


@cuda.jit
def from_dynamic_memory(out):
    tile = cuda.shared.array(0, uint8)
    t = cuda.threadIdx.x
    for k in range(16):
        if 16 * t + k < tile.size:
            tile[16 * t + k] = t
    cuda.syncthreads()
    out[t] = ptx.ldmatrix_x4(tile, 16 * t)[1]


@pytest.mark.parametrize("engine", ENGINES)
def test_dynamic_shared_memory_is_read_by_rows_too_and_its_end_is_checked(engine):
    out = np.zeros(32, np.uint32)
    launch(from_dynamic_memory, 1, 32, (out,), Device(H200), shared_bytes=512, engine=engine)
    assert out[0] == 0x08080808 and out[31] == 0x0F0F0F0F
    with pytest.raises(OutOfBounds, match="index 511 in dimension 0 of 'tile' is out of bounds"):
        launch(from_dynamic_memory, 1, 32, (out,), Device(H200), shared_bytes=504, engine=engine)


@cuda.jit
def of_global_memory(a, out):
    out[0] = ptx.ldmatrix_x1(a, (0, 0))


@cuda.jit
def of_an_odd_array(a, out):
    tile = cuda.shared.array((3, 5), uint16, alignment=16)
    out[0] = ptx.ldmatrix_x1(tile, (0, 0))


@cuda.jit
def of_12_bytes(a, out):
    tile = cuda.shared.array((3, 8), uint16, alignment=16)
    ptx.cp_async_ca(tile, (0, 0), a, (0, 0), 12)


@cuda.jit
def of_8_bytes_past_l1(a, out):
    tile = cuda.shared.array((3, 8), uint16, alignment=16)
    ptx.cp_async_cg(tile, (0, 0), a, (0, 0), 8)


@cuda.jit
def of_other_elements(a, out):
    tile = cuda.shared.array((3, 8), uint32, alignment=16)
    ptx.cp_async_ca(tile, (0, 0), a, (0, 0), 4)


@cuda.jit
def for_a_number_of_groups(a, out):
    ptx.cp_async_wait_group(cuda.threadIdx.x)


@cuda.jit
def along_columns(a, out):
    tile = cuda.shared.array((3, 8), uint16, alignment=16)
    ptx.cp_async_ca(tile, (0, 0), a, (0, 0), 4)


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (of_global_memory, "the array of ptx.ldmatrix_x1 is the global array 'a'; give an array in shared"),
        (of_an_odd_array, "ptx.ldmatrix_x1 of 'tile', which does not begin or end at a multiple of 16 bytes"),
        (of_12_bytes, "the nbytes of ptx.cp_async_ca; give a constant, 4, 8, 16"),
        (of_8_bytes_past_l1, "the nbytes of ptx.cp_async_cg; give a constant, 16"),
        (of_other_elements, "ptx.cp_async_ca from 'a' to 'tile'; give arrays of one type"),
        (for_a_number_of_groups, "the n of ptx.cp_async_wait_group is not known"),
    ],
)
def test_what_they_do_not_take_is_refused_with_its_line(kernel: Dispatcher, text: str):
    args = np.zeros((32, 16), np.uint16), np.zeros(32, np.uint32)
    with pytest.raises(KernelMistake, match=r"test_moves\.py:\d+: in ") as error:
        launch(kernel, 1, 32, args, Device(H200))
    assert error.match(text)


def test_a_copy_along_columns_is_refused():
    args = np.asfortranarray(np.zeros((32, 16), np.uint16)), np.zeros(32, np.uint32)
    with pytest.raises(KernelMistake, match="from 'a', whose last dimension is not known to be contiguous"):
        launch(along_columns, 1, 32, args, Device(H200))


def test_counts_only_counts_moves_without_data_and_refuses_addresses_from_them():
    a, out = matrix(), np.zeros((32, 64), np.uint16)
    full = launch(copies, 1, 32, (a, out, int32(2)), Device(H200))
    counted = launch(copies, 1, 32, (a, out, int32(2)), Device(H200), counts_only=True)
    assert counted.counters == full.counters

    @cuda.jit
    def indexed_by_a_matrix(out):
        tile = cuda.shared.array((32, 8), uint16, alignment=16)
        out[ptx.ldmatrix_x1(tile, (cuda.threadIdx.x, 0)) % 32] = 1

    with pytest.raises(DataDependent, match="depends on data read from tile"):
        launch(indexed_by_a_matrix, 1, 32, (np.zeros(32, np.uint32),), Device(H200), counts_only=True)


def test_a_copy_through_l1_can_hit_and_one_past_it_cannot():
    @cuda.jit
    def twice(a, past):
        tile = cuda.shared.array((2, 32), uint32, alignment=16)
        t = cuda.threadIdx.x
        for k in range(2):
            if past:
                if t < 8:
                    ptx.cp_async_cg(tile, (k, 4 * t), a, 4 * t, 16)
            else:
                ptx.cp_async_ca(tile, (k, t), a, t, 4)
        ptx.cp_async_wait_all()

    a = np.zeros(32, np.uint32)
    hits = [launch(twice, 1, 32, (a, p), Device(H200)).counters.hierarchy for p in (False, True)]
    assert [(h.l1_load_hits, h.l1_load_misses) for h in hits] == [(4, 4), (0, 8)]
