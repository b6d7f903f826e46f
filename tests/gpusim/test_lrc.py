"""Reads that become one on their way to L2: by hand, and as an H200 merged them (h200 facts 47 to 49)."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusim.arch import H200
from gpusim.counters import Hierarchy
from gpusim.gpcs import deal
from gpusim.hierarchy import MemorySystem
from gpusim.trace import Kind, pack

L1 = 224 << 10
SAME_GPC, OTHER_GPC = 15, 16
RECORDED = Path(__file__).parents[1] / "data" / "h200_micro.csv"
LINES = 16_384
"""Of 2 MB, which every block reads."""


def read(lines, kind=Kind.LOAD_L2, mask=15) -> np.ndarray:
    return np.asarray(lines).astype(np.uint64) << np.uint64(24) | np.uint64(pack(0, mask, kind))


def run(blocks, sms, arch=H200, quantum=8) -> Hierarchy:
    system = MemorySystem(arch)
    system.begin(L1)
    offsets = np.cumsum([0, *map(len, blocks)])
    system.replay(np.concatenate(blocks), offsets, np.asarray(sms, np.int32), quantum)
    return system.end()


def test_two_sms_of_a_gpc_ask_once_and_two_of_different_gpcs_twice() -> None:
    together = run([read(range(10))] * 2, [0, SAME_GPC])
    assert (together.l1_load_misses, together.lrc_merged, together.l2_read) == (80, 40, 40)
    apart = run([read(range(10))] * 2, [0, OTHER_GPC])
    assert (apart.lrc_merged, apart.l2_read, apart.l2_hits) == (0, 80, 0)  # each fills its own partition


def test_four_reads_become_one_and_the_fifth_asks_again() -> None:
    assert [run([read([1])] * n, range(n)).l2_read for n in (1, 4, 5, 8)] == [4, 4, 8, 8]


def test_a_read_that_is_back_is_not_met() -> None:
    arch = replace(H200, lrc_window_records=8)
    late = [np.concatenate([read(range(100, 100 + before)), read([1])]) for before in (0, 16, 17)]
    assert run([late[0], late[0]], [0, 1], arch, quantum=1).lrc_merged == 4
    merged = [run([late[0], x], [0, 1], arch, quantum=1).lrc_merged for x in late[1:]]
    assert merged == [0, 0]


def test_sectors_that_nobody_asked_for_yet_go_on_their_own() -> None:
    got = run([read([1], mask=0b0011), read([1], mask=0b0111), read([1], mask=0b0110)], [0, 1, 2])
    assert (got.l2_read, got.lrc_merged) == (2 + 3, 2)


@pytest.mark.parametrize("kind", [Kind.STORE, Kind.RED, Kind.ATOM])
def test_stores_and_atomics_are_not_merged(kind: Kind) -> None:
    got = run([read([1], kind)] * 4, range(4))
    assert got.lrc_merged == 0 and got.l2_write + got.l2_red + got.l2_atom == 16


def test_a_hit_in_l1_asks_nobody() -> None:
    got = run([read([1, 1], Kind.LOAD), read([1], Kind.LOAD)], [0, 1])
    assert (got.l1_load_hits, got.l1_load_misses, got.lrc_merged, got.l2_read) == (4, 8, 4, 4)


def test_of_several_blocks_an_sm_those_of_one_rank_meet() -> None:
    assert run([read(range(10))] * 4, [0, 1, 0, 1]).l2_read == 80
    assert run([read(range(10))] * 4, [0, 1, 2, 3]).l2_read == 40


def card(blocks: int) -> float:
    """Return the streams of 2 MB that arrived at L2 when so many blocks read them together."""
    with RECORDED.open(newline="") as file:
        row = next(r for r in csv.DictReader(file) if r["case"] == f"lrc together blocks={blocks}")
    return float(row["lts__t_sectors_srcunit_tex_op_read.sum"]) / (4 * LINES)


STREAMS = {1: 1, 2: 1, 4: 1, 8: 2, 16: 10, 32: 10, 66: 17, 132: 34}
"""By the rule: the 8 blocks of the first group 2; one block in each of 8 groups 8, 3 in each 8; 8, 8, 8, 8,
7, 7, 4 and 8 in them 2, 2, 2, 2, 2, 2, 1 and 2; and 132 blocks 2 + 4 x 4 + 2 x 5 + 2 + 4."""


@pytest.mark.parametrize("blocks", STREAMS)
def test_blocks_that_read_the_same_data_are_as_many_streams_as_on_the_card(blocks: int) -> None:
    ours = run([read(range(LINES))] * blocks, deal(H200, blocks, 1)).l2_read / (4 * LINES)
    assert ours == STREAMS[blocks]
    assert ours == pytest.approx(card(blocks), rel=0.03)  # 132: 34.9 on the card
