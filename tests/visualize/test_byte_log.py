"""What is kept of a replay: sectors, tiles and resident blocks of steps, by hand and against counters."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.arch import H200
from gpusim.hierarchy import MemorySystem
from gpusim.launch import counter
from gpusim.observer import Place, Site
from gpusim.trace import Kind, pack
from tests.visualize.film_support import FLASH, STANDARD, watched
from visualize.byte_log import ByteLog

SITES = [Site("x", "k.py", 1), Site("y", "k.py", 2), Site("mine", "k.py", 3)]
PLACES = [Place("x", 0, (64,), 4, (4,)), Place("y", 256, (64,), 4, (4,))]
X, Y, MINE = range(3)


def seen(*blocks, quantum=1, most=2048):
    """Return the one launch of a log that watched blocks on SMs 0, 1, ..."""
    system = MemorySystem(H200)
    system.observer = log = ByteLog(H200.sm_count, most)
    system.begin(1 << 16)
    log.begin(SITES, PLACES)
    records = np.array([r for block in blocks for r in block], np.uint64)
    offsets = np.cumsum([0, *map(len, blocks)])
    system.replay(records, offsets, np.arange(len(blocks), dtype=np.int32), quantum)
    return log.launches[0], log


def test_a_step_has_the_sectors_and_tiles_of_its_requests():
    launch, _ = seen([pack(1, 0b1011, Kind.LOAD, X), pack(2, 0b0110, Kind.STORE, Y)])
    load, store = launch.steps
    assert (load.asked.tolist(), store.asked.tolist()) == ([3, 0, 0], [0, 2, 0])
    assert load.touched.tolist() == [[0, 0, 0, 0, 1, 1, 0, 1] + [0] * 8, [0] * 16]
    assert store.touched.tolist() == [[0] * 16, [0] * 8 + [0, 1, 1, 0, 0, 0, 0, 0]]


def test_atomics_are_writes_of_their_own_kind_and_local_memory_touches_no_array():
    local = pack(1 << 24, 15, Kind.LOCAL_LOAD, MINE)
    launch, _ = seen([pack(0, 1, Kind.RED, X), pack(0, 3, Kind.ATOM, X), local])
    assert sum(s.asked for s in launch.steps).tolist() == [4, 0, 3]
    assert sum(s.touched for s in launch.steps).sum(1).tolist() == [0, 3]


def test_marks_are_not_asked_for():
    launch, _ = seen([pack(0, 0, Kind.WARP), pack(0, 0, Kind.BARRIER), pack(0, 15, Kind.LOAD, X)])
    assert sum(s.asked for s in launch.steps).tolist() == [4, 0, 0]


def test_a_step_is_a_part_of_a_turn_and_has_the_blocks_that_had_work_left():
    load = pack(0, 1, Kind.LOAD, X)
    launch, _ = seen([load], [load, load])
    assert [s.resident[:3].tolist() for s in launch.steps] == [[1, 1, 0], [0, 1, 0], [0, 1, 0]]
    assert launch.turns == 1.5  # two blocks, two parts a turn; block 0 has nothing to do in the second


def test_steps_are_joined_where_there_are_too_many_and_nothing_is_lost():
    load = pack(0, 1, Kind.LOAD, X)
    launch, log = seen([load] * 37, most=8)
    assert log.every == 8 and len(launch.steps) <= 8
    assert sum(s.asked for s in launch.steps).tolist() == [37, 0, 0]
    assert sum(s.counts for s in launch.steps)[:2].tolist() == [36, 1]  # one miss, then hits


CASES = [FLASH, STANDARD, ("histogram", (("counts_only", False),)), ("vec_add", (("n", 5000),)),
         ("flash_forward", (("N", 64), ("variant", "mma"), ("dtype", "float16")))]  # fmt: skip
SUMS = (("global_load.sectors", "local_load.sectors"), ("global_store.sectors", "local_store.sectors"),
        ("global_red.sectors", "global_atom.sectors"))  # fmt: skip


@pytest.mark.parametrize("most", [2048, 16])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_sums_of_all_steps_are_the_counters_of_each_launch(case, most):
    run, log, _ = watched(*case, most=most)
    for launch, kept in zip(run.launches, log.launches, strict=True):
        asked = sum(s.asked for s in kept.steps).tolist()
        assert asked == [sum(counter(launch.counters, p) for p in paths) for paths in SUMS]
        touched = sum(s.touched for s in kept.steps).sum(1).tolist()
        assert touched == [asked[0], asked[1] + asked[2]]
