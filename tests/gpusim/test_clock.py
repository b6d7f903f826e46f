"""The time estimate: cycles that a reader can derive by hand, and what bounds a launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpusim.arch import ARCHES, H200, get_arch
from gpusim.block_lengths import BlockTally, block_lengths
from gpusim.clock import estimate, machine_instructions
from gpusim.counters import Counters, Hierarchy, SharedCounts, SpaceCounts
from gpusim.launch import Launch, Registers
from gpusim.metrics import find, kind, value
from gpusim.occupancy import occupancy
from gpusim.timing import HOPPER, Timing
from gpusim.trace import Kind, pack
from gpusim.work import BlockLengths, Stretch, Work

ROUND = replace(
    HOPPER, alu_cycles=4, shared_cycles=30, l1_cycles=40, l2_cycles=200, dram_cycles=500, line_cycles=2,
    barrier_cycles=20, gap_cycles=2, integer_gap_cycles=3, integers_each=1, checks_each=2,
    integers_on_alu=0.5, issue_share=1, lines_per_cycle=1, l2_share=0.5, dram_share=0.5, collision_cycles=3,
    launch_ns=1000, block_cycles=0, lockstep=0, overlap=1000, tail_blocks=0.5, turnaround_cycles=100)
"""Times in round numbers; the power 1,000 lets the longest part hide all others."""


def one_block(stretch: Stretch, **changes: object) -> Launch:
    """Return a launch of one block of 32 threads whose warp does one stretch."""
    arch = replace(H200, timing=ROUND)
    launch = Launch(
        kernel="one", grid=(1, 1, 1), block=(32, 1, 1), arch=arch, registers=Registers(32, "given"),
        static_shared_bytes=0, dynamic_shared_bytes=0, shared_buffers=(),
        occupancy=occupancy(arch, 32, 32, 0, 0), counters=Counters.zero(),
        work=Work((stretch,), BlockLengths(1.0, 1.0, 1.0), 0))
    return replace(launch, **changes)  # type: ignore[arg-type]


def cycles(launch: Launch) -> float:
    """Return the estimated cycles without the 1,000 ns of a launch, which are 1,980 cycles."""
    found = estimate(launch)
    assert found is not None
    return found.cycles - 1980


def test_a_chain_of_a_hundred_additions_takes_four_cycles_each() -> None:
    assert cycles(one_block(Stretch({"fp32": 100}, {"alu": 100}))) == pytest.approx(400)


def test_a_hundred_independent_additions_take_the_gap_between_two_instructions() -> None:
    assert cycles(one_block(Stretch({"fp32": 100}, {"alu": 1}))) == pytest.approx(200)


def test_integers_of_one_warp_have_a_gap_of_their_own() -> None:
    # 10 operations and 5 steps of checks, of two machine instructions each: 20 x 3 cycles.
    assert cycles(one_block(Stretch({"integer": 10, "index": 5}))) == pytest.approx(60)
    assert machine_instructions({"index": 5, "fp32": 1}, ROUND) == {"index": 10, "fp32": 1}


def test_a_load_that_misses_everything_takes_l1_l2_and_dram() -> None:
    launch = one_block(Stretch({}, {"global": 1}))
    launch.counters.global_load = SpaceCounts(lanes=32, bytes=128, requests=1, sectors=4)
    launch.counters.hierarchy = Hierarchy(l1_load_misses=4, l2_read=4, dram_read_bytes=128)
    assert cycles(replace(launch, work=replace(launch.work, lines=1))) == pytest.approx(40 + 200 + 500)


def test_a_load_that_hits_l1_takes_no_more_than_l1() -> None:
    launch = one_block(Stretch({}, {"global": 1}))
    launch.counters.global_load = SpaceCounts(lanes=32, bytes=128, requests=1, sectors=4)
    launch.counters.hierarchy = Hierarchy(l1_load_hits=4)
    assert cycles(replace(launch, work=replace(launch.work, lines=1))) == pytest.approx(40)


def test_a_load_of_32_lines_takes_two_cycles_for_each_after_the_first() -> None:
    launch = one_block(Stretch({}, {"global": 1}))
    launch.counters.global_load = SpaceCounts(lanes=32, bytes=128, requests=1, sectors=32)
    launch.counters.hierarchy = Hierarchy(l1_load_hits=32)
    assert cycles(replace(launch, work=replace(launch.work, lines=32))) == pytest.approx(40 + 31 * 2)


def test_bank_conflicts_bound_a_launch_by_their_wavefronts() -> None:
    launch = one_block(Stretch({"access": 10}, {"shared": 1}))
    launch.counters.shared_load = SharedCounts(320, 1280, 10, 320, 10)
    found = estimate(launch)
    assert found is not None
    assert (found.bound, found.parts["l1"]) == ("l1", 320)
    # One load waits 30 cycles and 2 for each of its 31 further wavefronts; it does not bound the launch.
    assert found.parts["latency"] == pytest.approx(30 + 31 * 2)


def test_dram_bounds_a_launch_by_its_bytes() -> None:
    launch = one_block(Stretch({"access": 1}))
    launch.counters.hierarchy = Hierarchy(dram_read_bytes=2_400_000)
    found = estimate(launch)
    assert found is not None
    # Half of 4.8 TB/s: 2.4 MB take a microsecond, after the one of the launch.
    assert (found.bound, found.ns) == ("dram", pytest.approx(2000))
    assert found.bound_share == pytest.approx(0.5)


def test_atomics_on_one_line_wait_for_one_another() -> None:
    launch = one_block(Stretch({"access": 1}))
    assert launch.work is not None
    hot = replace(launch, work=replace(launch.work, hot_line_sectors=1000))
    assert cycles(hot) == pytest.approx(3000)


def test_blocks_in_one_slot_follow_one_another() -> None:
    # 133 blocks of 1,024 threads: two fit an SM, so all are resident and no block waits for another.
    stretch = Stretch({"fp32": 32 * 133 * 100}, {"alu": 32 * 133 * 100})
    lengths = block_lengths(np.full(133, 5), H200, 2)
    assert lengths == BlockLengths(1.0, 2.0, 132.0)
    alone = block_lengths(np.full(133, 5), H200, 1)
    assert (alone.longest_slot, alone.fullest_sm) == (2.0, 133 / 132)
    launch = one_block(stretch, grid=(133, 1, 1), block=(1024, 1, 1), occupancy=occupancy(
        H200, 1024, 32, 0, 0), work=Work((stretch,), alone, 0))
    found = estimate(launch)
    assert found is not None and found.parts["latency"] == pytest.approx(2 * 400)


def test_the_longest_block_decides_how_long_its_slot_is_busy() -> None:
    lengths = block_lengths(np.array([1, 1, 1, 5]), H200, 1)
    assert lengths == BlockLengths(2.5, 2.5, 4.0)  # of a mean of 2: 0.5, 0.5, 0.5 and 2.5, on four SMs


def test_blocks_without_requests_are_equal() -> None:
    assert block_lengths(np.zeros(4, np.int64), H200, 1) == BlockLengths(1.0, 1.0, 4.0)


def test_achieved_occupancy_is_the_warps_of_the_busy_sms() -> None:
    # One warp of 64, on one SM of 132 for all of its time: idle SMs do not count.
    found = estimate(one_block(Stretch({"fp32": 1})))
    assert found is not None and found.occupancy_pct == pytest.approx(100 / 64)


def test_achieved_occupancy_falls_where_an_sm_waits_for_its_longest_block() -> None:
    # Two blocks on one SM, of lengths 0.5 and 1.5: 2 warps' lengths over 1.5.
    lengths = BlockLengths(1.5, 2.0, 1.5)
    stretch = Stretch({"fp32": 2})
    launch = one_block(stretch, grid=(2, 1, 1), work=Work((stretch,), lengths, 0))
    found = estimate(launch)
    assert found is not None and found.occupancy_pct == pytest.approx(100 / 64 * 2 / 1.5)


def test_a_launch_that_no_engine_timed_has_no_time(sample: Launch) -> None:
    assert estimate(sample) is None and value(sample, "gpu__time_duration.sum") is None
    timed = one_block(Stretch({"fp32": 1}))
    assert estimate(replace(timed, engine="oracle")) is None
    assert kind(replace(timed, engine="oracle"), find("gpu__time_duration.sum")) == "n/a"


def test_times_are_modelled_and_follow_from_registers() -> None:
    launch = one_block(Stretch({"fp32": 100}, {"alu": 100}))
    assert value(launch, "sm__cycles_elapsed.max") == 1980 + 400
    assert value(launch, "gpu__time_duration.sum") == round((1980 + 400) / 1.98)
    assert kind(launch, find("gpu__time_duration.sum")) == "modelled"
    unknown = replace(launch, registers=Registers(0, "unknown"))
    assert value(unknown, "gpu__time_duration.sum") is None


@pytest.mark.parametrize("arch", ARCHES.values(), ids=ARCHES)
def test_every_time_has_a_source_and_no_source_is_of_nothing(arch) -> None:
    assert set(arch.timing.sources) == set(arch.timing.values())
    assert all(number > 0 for number in arch.timing.values().values())


def test_only_the_h200_was_fitted() -> None:
    said = {text for name in ("h100", "a100") for text in get_arch(name).timing.sources.values()}
    assert not [text for text in said if "fitted" in text]


def test_the_tally_counts_requests_of_blocks_and_lines_but_no_marks() -> None:
    records = np.array([
        pack(0, 0, Kind.WARP), pack(7, 15, Kind.LOAD), pack(8, 15, Kind.LOAD, first=False),
        pack(9, 1, Kind.STORE)], np.uint64)
    tally = BlockTally(has_atomics=False)
    tally.wave(records, np.array([0, 3, 4]))
    assert tally.lines == 3
    assert tally.lengths(H200, 1) == BlockLengths(1.0, 1.0, 2.0)  # one request each


def test_the_hot_line_is_the_one_with_most_atomic_sectors_of_all_waves() -> None:
    tally = BlockTally(has_atomics=True)
    for _ in range(2):
        tally.wave(np.array([pack(5, 0b11, Kind.RED), pack(6, 0b1, Kind.ATOM), pack(5, 15, Kind.LOAD)],
                            np.uint64), np.array([0, 3]))
    assert tally.hot_line_sectors == 4


def test_parameters_that_are_not_the_gpu_s_can_be_tried() -> None:
    launch = one_block(Stretch({"fp32": 100}, {"alu": 100}))
    slow: Timing = replace(ROUND, alu_cycles=8)
    found = estimate(launch, slow)
    assert found is not None and found.cycles == pytest.approx(1980 + 800)
