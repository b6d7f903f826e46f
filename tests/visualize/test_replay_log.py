"""Phases and the clock of a timeline, on small traces by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.arch import H200
from gpusim.hierarchy import MemorySystem
from gpusim.observer import Site
from gpusim.trace import Kind, pack
from visualize.phases import Arrays, phases_of, steps_of
from visualize.replay_log import BlockSlice, ReplayLog

SITES = [Site("K", "k.py", 3), Site("V", "k.py", 4), Site("O", "k.py", 9)]
K, V, O = range(3)  # noqa: E741
BAR, WARP = pack(0, 0, Kind.BARRIER, first=False), pack(0, 0, Kind.WARP, first=False)


def load(site, line=0, mask=15, first=True):
    return pack(line, mask, Kind.LOAD, site, first)


def store(line=0):
    return pack(line, 3, Kind.STORE, O)


def watched(*blocks, quantum=4, sm=None, log=None):
    """Return what a log keeps of one wave."""
    system = MemorySystem(H200)
    system.observer = log = log or ReplayLog()
    system.begin(1 << 16)
    log.begin(SITES)
    offsets = np.cumsum([0, *map(len, blocks)])
    sm = np.arange(len(blocks)) if sm is None else sm
    records = np.array([r for block in blocks for r in block], np.uint64)
    system.replay(records, offsets, np.asarray(sm, np.int32), quantum)
    return log


def spans(block: BlockSlice, log: ReplayLog):
    """Return (title, start, end) of a block's phases."""
    arrays, p = log.launches[-1].arrays, block.phases
    titles = [arrays.title(k, a)[0] for k, a in zip(p.kind.tolist(), p.arrays.tolist(), strict=True)]
    return list(zip(titles, p.start.tolist(), p.end.tolist(), strict=True))


def test_loads_in_turns_are_one_phase_that_names_its_arrays():
    records = np.array([WARP, load(K, 1), load(V, 2), WARP, load(K, 3), store()], np.uint64)
    steps = steps_of(records, np.array([0, 6]))
    p = phases_of(records, steps.of, steps.quiet, arrays := Arrays(SITES))
    assert [arrays.title(*pair) for pair in zip(p.kind, p.arrays, strict=True)] == [
        ("load K, V", "load"),
        ("store O", "store"),
    ]
    assert (p.start.tolist(), p.end.tolist()) == ([0, 3], [3, 4])
    assert (p.requests.tolist(), p.sectors.tolist(), p.site.tolist()) == ([3, 1], [12, 2], [K, O])


def test_a_request_of_several_lines_takes_a_step_a_line_and_counts_once():
    records = np.array([load(K, 1, 8), load(K, 2, 1, first=False)], np.uint64)
    steps = steps_of(records, np.array([0, 2]))
    p = phases_of(records, steps.of, steps.quiet, Arrays(SITES))
    assert (p.requests.tolist(), p.sectors.tolist(), p.end.tolist()) == ([1], [2], [2])


def test_a_stretch_without_requests_is_a_step_of_compute():
    log = watched([load(K), BAR, BAR, store(), BAR], quantum=99)
    assert spans(log.launches[0].blocks[0], log) == [
        ("load K", 0, 1), ("barrier", 1, 2), ("compute", 2, 3), ("barrier", 3, 4), ("store O", 4, 5),
        ("barrier", 5, 6), ("compute", 6, 7),
    ]  # fmt: skip


def test_a_stretch_with_a_request_has_no_step_of_compute():
    log = watched([load(K), BAR, store()])
    titles = [title for title, _, _ in spans(log.launches[0].blocks[0], log)]
    assert titles == ["load K", "barrier", "store O"]


def test_requests_of_another_block_do_not_fill_a_stretch():
    steps = steps_of(np.array([load(K), BAR, load(K)], np.uint64), np.array([0, 1, 3]))
    assert steps.quiet.tolist() == [False, True, False]


def test_a_block_without_a_record_takes_one_step():
    log = watched([], [load(K)] * 3, [])
    assert [(b.start, b.end) for b in log.launches[0].blocks] == [(0, 1), (0, 3), (0, 1)]
    only = watched([], [])
    assert (only.launches[0].end, spans(only.launches[0].blocks[1], only)) == (1, [("compute", 0, 1)])


def test_a_turn_lasts_as_long_as_its_longest_block():
    # Turns of 2 requests. Block 0: L L | L; block 1: L bar bar L | L, whose first turn is 5 steps: load,
    # barrier, compute, barrier, load. So the second turn begins at 5.
    log = watched([load(K)] * 3, [load(K), BAR, BAR, load(K), load(K)], quantum=2)
    short, long = log.launches[0].blocks
    assert spans(short, log) == [("load K", 0, 6)]
    assert spans(long, log)[-1] == ("load K", 4, 6)
    assert [(s.clock, s.blocks) for s in log.launches[0].samples] == [(0, 2), (5, 2)]


def test_waves_and_launches_follow_one_another_and_slots_are_filled_in_turn():
    log = ReplayLog()
    watched([load(K)] * 2, [load(K)], [load(K)], sm=[5, 0, 5], log=log)
    watched([store()], log=log)
    first, second = log.launches
    assert [(b.number, b.sm, b.slot) for b in first.blocks] == [(0, 5, 0), (1, 0, 0), (2, 5, 1)]
    assert (first.start, first.end, second.start, second.end) == (0, 2, 2, 3)


def test_the_samples_hold_what_was_counted_before_each_turn():
    log = watched([load(K, line) for line in range(6)], quantum=2)
    assert [s.counts[1] for s in log.launches[0].samples] == [0, 8, 16]  # misses of L1, in sectors
    assert log.launches[0].counts[1] == 24


@pytest.mark.parametrize(
    ("most", "sms", "every"), [(16, range(8), 1), (15, range(0, 8, 2), 2), (4, [0, 4], 4)]
)
def test_where_slices_are_too_many_every_second_sm_is_left_out(most, sms, every):
    log = watched(*[[load(K)]] * 8, log=ReplayLog(max_slices=most))
    assert ([b.sm for b in log.launches[0].blocks], log.every_sm) == (list(sms), every)


def test_the_last_blocks_of_one_sm_lose_their_phases_and_then_their_slices():
    log = watched(*[[load(K)]] * 5, sm=[0] * 5, log=ReplayLog(max_slices=6))
    assert [b.phases is None for b in log.launches[0].blocks] == [False, False, False]
    log = watched(*[[load(K), store()]] * 6, sm=[0] * 6, log=ReplayLog(max_slices=8))
    assert [b.phases is None for b in log.launches[0].blocks] == [False, False, True, True]
    assert log.launches[0].block_count == 6


def test_where_samples_are_too_many_every_second_turn_is_left_out():
    log = watched([load(K, line) for line in range(20)], quantum=1, log=ReplayLog(max_samples=5))
    assert ([s.clock for s in log.launches[0].samples], log.every_turn) == ([0, 4, 8, 12, 16], 4)
    assert log.launches[0].counts[1] == 80
