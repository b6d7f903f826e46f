"""Replay through L1, L2 and DRAM: small traces by hand, and the recorded facts of an H200."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusim.arch import H200
from gpusim.gpcs import deal, partition_of_sm
from gpusim.hierarchy import MemorySystem
from gpusim.l2 import L1_LOAD_MISSES, home_of
from gpusim.trace import Kind, pack

KB, MB = 1 << 10, 1 << 20
LOAD, STORE, RED, ATOM = Kind.LOAD, Kind.STORE, Kind.RED, Kind.ATOM
L1 = 224 * KB
TINY_L1 = 512
ALONE = replace(H200, lrc_most_reads=1)
"""An H200 that merges no reads."""
ONE = replace(ALONE, l2_partitions=1)
"""And has one partition, for traces that are followed by hand."""
SMALL = replace(ONE, sm_count=1, sm_groups=((0, 1),))
HOME0, HOME1 = 0, 32
"""The first lines of chunks 0 and 1, whose homes are partitions 0 and 1."""
NEAR, FAR = 0, 16
"""SMs of partitions 0 and 1."""


def stream(lines, kind=LOAD, mask=15):
    lines = np.asarray(lines).astype(np.uint64)
    return lines << np.uint64(24) | np.uint64(pack(0, mask, kind))


def run(blocks, sm=None, *, arch=ALONE, l1=L1, quantum=8, system=None):
    system = system or MemorySystem(arch)
    system.begin(l1)
    offsets = np.cumsum([0, *map(len, blocks)])
    sm = np.arange(len(blocks)) % arch.sm_count if sm is None else np.asarray(sm)
    system.replay(np.concatenate(blocks), offsets, sm.astype(np.int32), quantum)
    return system.end()


def grid_stride(lines, blocks=1056, first=1 << 14):
    """Return the lines of each block of 256 threads that walk an array of floats together: 8 lines a turn."""
    turns = np.arange(-(-lines // (blocks * 8)))[:, None] * blocks * 8 + np.arange(8)
    each = ((turns + 8 * b).ravel() for b in range(blocks))
    return [lines_of[lines_of < lines] + first for lines_of in each]


def test_a_stream_read_once_misses_everywhere():
    got = run([stream(range(1000))])
    assert (got.l1_load_hits, got.l1_load_misses) == (0, 4000)
    assert (got.l2_read, got.l2_hits, got.l2_misses, got.l2_promoted) == (4000, 0, 4000, 0)
    assert (got.dram_read_bytes, got.dram_write_bytes, got.dirty_bytes) == (128_000, 0, 0)
    assert got.dram_code_bytes == H200.dram_code_bytes


def test_a_second_read_by_the_same_sm_hits_l1_and_does_not_reach_l2():
    got = run([stream([1, 2, 1, 2])])
    assert (got.l1_load_hits, got.l1_load_misses, got.l2_read) == (8, 8, 8)


def test_a_second_read_by_another_sm_hits_l2_and_not_dram():
    got = run([stream([1]), stream([1])], [0, 1])
    assert (got.l1_load_hits, got.l1_load_misses) == (0, 8)
    assert (got.l2_read, got.l2_hits, got.l2_misses, got.dram_read_bytes) == (8, 4, 4, 128)


def test_the_hand_trace_of_two_lines_read_and_one_written():
    got = run([np.concatenate([stream([1, 2]), stream([2], STORE)])], arch=ONE)
    assert got.l1_load_misses == 8
    assert got.l2_read + got.l2_write == 12
    assert (got.l2_misses, got.l2_hits) == (8, 4)
    assert (got.dram_read_bytes, got.dirty_bytes) == (256, 128)


def test_l1_asks_l2_only_for_the_missing_sectors():
    got = run([np.concatenate([stream([5], mask=0b0011), stream([5], mask=0b1111)])], arch=ONE)
    assert (got.l1_load_hits, got.l1_load_misses, got.l2_read) == (2, 4, 4)


def test_a_missing_sector_brings_its_64_bytes():  # fact 6
    got = run([stream(range(100), mask=0b0100)], arch=ONE)
    assert (got.l2_read, got.l2_misses, got.l2_promoted, got.dram_read_bytes) == (100, 100, 100, 6400)


def test_the_sector_that_came_along_is_a_hit_afterwards():
    got = run([np.concatenate([stream([3], mask=0b0100), stream([3], mask=0b1000)])], arch=ONE)
    assert (got.l2_hits, got.l2_misses, got.dram_read_bytes) == (1, 1, 64)


def test_a_granule_of_32_bytes_brings_nothing_along():
    got = run([stream(range(100), mask=0b0100)], arch=replace(ONE, dram_granule_bytes=32))
    assert (got.l2_promoted, got.dram_read_bytes) == (0, 3200)


def test_a_store_is_a_hit_fetches_nothing_and_stays_dirty():  # fact 4
    got = run([stream(range(100), STORE)], arch=ONE)
    assert (got.l2_write, got.l2_hits, got.l2_misses) == (400, 400, 0)
    assert (got.dram_read_bytes, got.dram_write_bytes, got.dirty_bytes) == (0, 0, 12_800)


def test_a_store_fills_nothing_in_l1_and_leaves_a_valid_sector_valid():  # fact 7
    got = run([np.concatenate([stream([1], STORE), stream([1]), stream([1], STORE), stream([1])])], arch=ONE)
    assert (got.l1_load_misses, got.l1_load_hits) == (4, 4)
    assert (got.l2_misses, got.dram_read_bytes) == (0, 0)


def test_local_memory_takes_the_same_way():
    got = run([np.concatenate([stream([1], Kind.LOCAL_STORE), stream([1, 1], Kind.LOCAL_LOAD)])], arch=ONE)
    assert (got.l1_load_misses, got.l1_load_hits, got.l2_write, got.l2_read) == (4, 4, 4, 4)


@pytest.mark.parametrize(("kind", "red", "atom"), [(RED, 8, 0), (ATOM, 0, 8)])
def test_atomics_are_done_in_l2_end_the_copy_in_l1_and_fetch_an_absent_sector(kind, red, atom):
    block = np.concatenate([stream([1], mask=1), stream([1, 2], kind), stream([1], mask=1)])
    got = run([block], arch=ONE)
    assert (got.l2_red, got.l2_atom) == (red, atom)
    assert (got.l1_load_misses, got.l1_load_hits) == (2, 0)
    assert (got.l2_misses, got.l2_hits) == (1, 8 + 1)
    assert (got.dram_read_bytes, got.dirty_bytes) == (64 + 64 + 128, 256)


def test_marks_are_no_requests():
    marks = np.array([pack(3, 15, Kind.WARP), pack(1, 15, Kind.BARRIER)], np.uint64)
    got = run([np.concatenate([marks, stream([1]), marks])], quantum=1)
    assert (got.l1_load_misses, got.l2_read, got.l2_write) == (4, 4, 0)


def test_marks_take_no_part_of_a_turn():
    mark = np.array([pack(0, 0, Kind.BARRIER)], np.uint64)
    small = replace(SMALL, l2_bytes=128, l2_ways=1)
    plain = run([stream([1, 2, 1]), stream([1, 3])], [0, 0], arch=small, l1=TINY_L1, quantum=1)
    marked = run(
        [np.concatenate([stream([1]), mark, stream([2]), mark, stream([1])]), stream([1, 3])],
        [0, 0],
        arch=small,
        l1=TINY_L1,
        quantum=1,
    )
    assert marked == plain


def test_homes_and_sms_are_halved():
    l2 = MemorySystem(H200)._l2
    assert [home_of(l2, line) for line in (0, 31, 32, 63, 64, 96)] == [0, 0, 1, 1, 1, 0]
    assert sum(home_of(l2, line) for line in range(4096)) == 2048
    partition = partition_of_sm(H200)
    assert partition[[0, 15, 16, 63, 64, 113, 114]].tolist() == [0, 0, 1, 1, 0, 0, 1]
    assert partition.sum() == 66


def test_half_of_a_stream_goes_through_the_fabric():  # fact 3: op_read = 1.5 x the reads
    got = run([stream(range(4096))])
    assert (got.l2_read, got.l2_fabric_read) == (16384, 8192)
    got = run([stream(range(4096), STORE)])
    assert (got.l2_write, got.l2_fabric_write) == (16384, 8192)
    got = run([stream(range(4096), RED)])
    assert (got.l2_red, got.l2_fabric_red, got.l2_fabric_atom) == (16384, 8192, 0)
    got = run([stream(range(4096), ATOM)])
    assert (got.l2_atom, got.l2_fabric_atom, got.l2_fabric_red) == (16384, 8192, 0)


def test_a_far_line_is_kept_and_the_second_read_needs_no_fabric():
    got = run([stream([HOME1]), stream([HOME1])], [NEAR, NEAR + 1])
    assert (got.l2_read, got.l2_hits, got.l2_misses, got.l2_fabric_read) == (8, 4, 4, 4)


def test_a_far_line_that_its_home_holds_is_a_miss_and_reads_no_dram():
    got = run([stream([HOME1]), stream([HOME1])], [FAR, NEAR])
    assert (got.l2_hits, got.l2_misses, got.l2_fabric_read, got.dram_read_bytes) == (0, 8, 4, 128)


def test_a_near_line_needs_no_fabric():
    got = run([stream([HOME0], kind) for kind in (LOAD, STORE, RED, ATOM)], [NEAR] * 4)
    assert got.l2_fabric_read + got.l2_fabric_write + got.l2_fabric_red + got.l2_fabric_atom == 0


def test_a_far_store_keeps_a_clean_copy_that_its_writer_reads():  # fact 15
    got = run([np.concatenate([stream([HOME1], STORE), stream([HOME1])])], [NEAR])
    assert (got.l2_fabric_write, got.l2_fabric_read, got.l2_misses) == (4, 0, 0)
    assert got.dirty_bytes == 128


@pytest.mark.parametrize("kind", [STORE, RED])
def test_a_write_at_home_ends_the_copy_of_the_other_partition(kind):
    got = run([stream([HOME0]), stream([HOME0], kind), stream([HOME0])], [FAR, NEAR, FAR + 1])
    assert (got.l2_misses, got.l2_fabric_read, got.dram_read_bytes) == (8, 8, 128)


def test_a_far_red_keeps_no_copy():
    got = run([stream([HOME1], RED), stream([HOME1])], [NEAR, NEAR])
    assert (got.l2_misses, got.l2_fabric_red, got.l2_fabric_read) == (4, 4, 4)


def test_interleaved_blocks_share_what_blocks_one_after_another_read_again():
    arch = replace(ONE, l2_bytes=MB)  # 2 MB of data, 1 MB of cache, 16 blocks
    blocks = [stream(np.arange(2 * MB // 128))] * 16
    assert run(blocks, arch=arch, quantum=64).dram_read_bytes == 2 * MB
    assert run(blocks, arch=arch, quantum=1 << 30).dram_read_bytes == 16 * 2 * MB


def test_turns_go_round_in_the_order_of_the_blocks():
    small = replace(SMALL, l2_bytes=256, l2_ways=2)
    blocks = [stream([1, 2, 3]), stream([1, 2, 3])]
    assert run(blocks, [0, 0], arch=small, l1=TINY_L1, quantum=1).l2_read == 12  # L1 of 4 lines
    apart = replace(small, sm_count=2, sm_groups=((0, 2),))
    assert run(blocks, [0, 1], arch=apart, l1=TINY_L1, quantum=1).dram_read_bytes == 3 * 128  # 1 1 2 2 3 3
    assert run(blocks, [0, 1], arch=apart, l1=TINY_L1, quantum=3).dram_read_bytes == 6 * 128  # 1 2 3 1 2 3


def test_l1_lasts_from_wave_to_wave_and_not_from_launch_to_launch():
    system = MemorySystem(H200, l2="warm")
    one = (stream([1]), np.array([0, 1]), np.array([0], np.int32), 8)
    system.begin(L1)
    system.replay(*one)
    system.replay(*one)
    assert (system.end().l1_load_hits, system.end().l1_load_misses) == (4, 4)
    system.begin(L1)
    system.replay(*one)
    assert (system.end().l1_load_hits, system.end().l1_load_misses) == (0, 4)


@pytest.mark.parametrize(("l2", "misses", "dirty"), [("cold", 4, 0), ("warm", 0, 128)])
def test_l2_lasts_from_launch_to_launch_where_it_is_warm(l2, misses, dirty):
    system = MemorySystem(ONE, l2=l2)
    run([stream([1]), stream([7], STORE)], system=system)
    got = run([stream([1])], system=system)
    assert (got.l2_misses, got.dirty_bytes) == (misses, dirty)


def test_the_size_of_l1_may_change_between_launches():
    system = MemorySystem(H200)
    block = [stream(np.tile(np.arange(100), 2))]
    assert run(block, l1=L1, system=system).l1_load_hits == 400
    assert run(block, l1=TINY_L1, system=system).l1_load_hits == 0
    assert run(block, l1=0, system=system).l1_load_misses == 800  # at least one set


def test_every_stored_sector_is_dirty_or_written_back_when_each_is_stored_once():
    got = run([stream(x, STORE) for x in grid_stride(48 * MB // 128)])
    assert got.dram_write_bytes + got.dirty_bytes == 48 * MB


def test_a_pure_write_stream_leaves_27_megabytes_dirty():  # fact 15: 27 of 64 MB on the card
    got = run([stream(x, STORE) for x in grid_stride(64 * MB // 128)])
    assert got.dirty_bytes == 27_525_120  # 7 of the 16 ways of every set
    assert run([stream(x, STORE) for x in grid_stride(16 * MB // 128)]).dram_write_bytes == 0


def test_a_copy_leaves_20_megabytes_dirty():  # fact 15: 19.8 on the card
    blocks = []
    for lines in grid_stride(64 * MB // 128):
        turns = [stream(lines).reshape(-1, 8), stream(lines + MB, STORE).reshape(-1, 8)]
        blocks.append(np.stack(turns, 1).ravel())
    assert 19e6 < run(blocks).dirty_bytes < 22.5e6


@pytest.mark.parametrize(
    ("megabytes", "least", "most"), [(28, 0.0, 0.01), (40, 0.02, 0.2), (48, 0.5, 0.8), (60, 0.9, 1.0)]
)
def test_data_that_one_sm_reads_twice_fits_up_to_40_megabytes(
    megabytes, least, most
):  # fact 14: 0, 0.07, 0.69, 1
    got = run([stream(np.tile(x, 2)) for x in grid_stride(megabytes * MB // 128)])
    assert least <= got.dram_read_bytes / (megabytes * MB) - 1 <= most


@pytest.mark.parametrize(("megabytes", "least", "most"), [(28, 0.0, 0.01), (32, 0.4, 0.8), (36, 0.95, 1.0)])
def test_data_that_all_sms_read_twice_fits_up_to_30_megabytes(megabytes, least, most):  # fact 14: 0, 0.72, 1
    blocks = [stream(np.tile(np.arange(megabytes * MB // 128), 2))] * 16
    got = run(blocks, deal(H200, 16, 1), l1=TINY_L1, quantum=32)
    assert least <= got.dram_read_bytes / (megabytes * MB) - 1 <= most


def second_pass_hits(kilobytes, l1=L1, arch=H200):
    """Return the hit rate of the second pass where each of 16 SMs reads a slice of its own twice."""
    lines = kilobytes * KB // 128
    blocks = [stream(np.tile(np.arange(lines), 2) + 100 + b * lines) for b in range(16)]
    return run(blocks, l1=l1, arch=arch).l1_load_hits / (16 * 4 * lines)


RECORDED_L1 = Path(__file__).parents[1] / "data" / "h200_micro.csv"
LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld"


def recorded_second_pass_hits():
    """Return (KB of a slice, bytes of L1, hit rate of the second pass on the card) of each recorded case."""
    with RECORDED_L1.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["case"].startswith("l1cap")]
    return [(int(row["case"].rpartition("KB=")[2]),
             256 * KB - int(row["launch__shared_mem_config_size"]),
             2 * float(row[f"{LOADS}_lookup_hit.sum"]) / float(row[f"{LOADS}.sum"])) for row in rows]


@pytest.mark.parametrize(("kilobytes", "l1", "card"), recorded_second_pass_hits())
def test_data_that_an_sm_reads_twice_hits_as_on_the_card(kilobytes, l1, card):  # fact 13
    assert second_pass_hits(kilobytes, l1) == pytest.approx(card, abs=0.12)


def test_data_that_an_sm_reads_twice_fits_up_to_the_size_of_l1_and_fades_out_beyond():
    assert second_pass_hits(128) == 1.0
    assert [round(second_pass_hits(kb), 2) for kb in (208, 224, 240, 256)] == [0.97, 0.72, 0.42, 0.07]
    assert second_pass_hits(320) == 0.0


def test_fewer_ways_fade_out_too_slowly():
    assert second_pass_hits(256, arch=replace(H200, l1_ways=4)) > 0.4  # 0.08 on the card


def test_refuses_what_cannot_be_replayed():
    system = MemorySystem(H200)
    one = np.array([0, 1]), np.array([0], np.int32)
    with pytest.raises(ValueError, match="begin"):
        system.replay(stream([1]), *one, 8)
    system.begin(L1)
    with pytest.raises(ValueError, match="0 records"):
        system.replay(stream([1]), *one, 0)
    with pytest.raises(ValueError, match="132"):
        system.replay(stream([1]), one[0], np.array([132], np.int32), 8)
    with pytest.raises(ValueError, match="256 GiB"):
        system.replay(stream([1 << 31]), *one, 8)
    with pytest.raises(ValueError, match="hot"):
        MemorySystem(H200, l2="hot")
    with pytest.raises(ValueError, match="3 L2 partitions"):
        MemorySystem(replace(H200, l2_partitions=3))


class Watching:
    """Keep where the blocks are after each part of a turn, of the first `turns` of them."""

    def __init__(self, turns=1 << 30, parts=1):
        self.turns, self.parts, self.places, self.misses = turns, parts, [], []

    def wave(self, records, offsets, sm, turns):
        for _, (at, counts) in zip(range(self.turns), turns, strict=False):
            self.places.append(at.tolist())
            self.misses.append(int(counts[L1_LOAD_MISSES]))


def test_an_observer_sees_where_every_block_is_after_each_turn():
    system = MemorySystem(H200)
    system.observer = watching = Watching()
    run([stream(range(5)), stream(range(9, 11))], quantum=2, system=system)
    assert watching.places == [[2, 7], [4, 7], [5, 7]]
    assert watching.misses == [16, 24, 28]


def test_an_observer_sees_a_turn_in_as_many_parts_as_it_asks_for():
    system = MemorySystem(H200)
    system.observer = watching = Watching(parts=2)
    run([stream(range(3)), stream(range(1)), stream(range(2))], quantum=2, system=system)
    assert watching.places == [[2, 3, 4], [2, 4, 6], [3, 4, 6]]  # block 0, then 1 and 2; then block 0 alone


def test_there_are_no_more_parts_than_blocks():
    system = MemorySystem(H200)
    system.observer = watching = Watching(parts=16)
    run([stream(range(2)), stream(range(1))], quantum=2, system=system)
    assert watching.places == [[2, 2], [2, 3]]


@pytest.mark.parametrize("parts", [1, 4, 100])
@pytest.mark.parametrize("turns", [0, 1, 1 << 30])
def test_what_is_watched_is_what_would_have_been_counted(turns, parts):
    blocks = [stream([b, 40 + b, 7, b], kind) for b in range(9) for kind in (LOAD, STORE, ATOM)]
    alone, watched = MemorySystem(H200), MemorySystem(H200)
    watched.observer = Watching(turns, parts)
    assert run(blocks, quantum=1, system=watched) == run(blocks, quantum=1, system=alone)


def test_an_empty_wave_counts_nothing():
    system = MemorySystem(H200)
    system.begin(L1)
    system.replay(np.zeros(0, np.uint64), np.zeros(1, np.int64), np.zeros(0, np.int32), 8)
    assert system.end().l2_read == 0


def test_a_warm_l2_still_has_the_code_of_a_kernel_that_ran_before():
    def code_bytes(l2, *kernels):
        system = MemorySystem(H200, l2)
        found = []
        for kernel in kernels:
            system.begin(L1, kernel)
            found.append(system.end().dram_code_bytes)
        return found

    once = H200.dram_code_bytes
    assert code_bytes("warm", "a", "b", "a", "b") == [once, once, 0, 0]
    assert code_bytes("warm", None, None) == [once, once]
    assert code_bytes("cold", "a", "a") == [once, once]


def test_a_launch_that_sweeps_l2_drives_out_what_was_dirty_before_and_counts_it_apart():  # fact 20
    got = run([stream(x) for x in grid_stride(120 * MB // 128)])
    assert (got.dram_found_bytes, got.dram_write_bytes, got.dirty_bytes) == (2_400_000, 0, 0)
    small = run([stream(x, STORE) for x in grid_stride(MB // 128)])
    assert (small.dram_found_bytes, small.dram_write_bytes, small.dirty_bytes) == (0, 0, MB)
    clean = replace(ALONE, l2_found_dirty_bytes=0)
    assert run([stream(x) for x in grid_stride(120 * MB // 128)], arch=clean).dram_found_bytes == 0
