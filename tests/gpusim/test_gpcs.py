"""Which SMs get the blocks of a grid, as an H200 dealt them (h200 fact 50)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gpusim.arch import ARCHES, H200
from gpusim.gpcs import deal, gpc_of_sm, partition_of_sm, shares

DEALT = {
    6: [6, 0, 0, 0, 0, 0, 0, 0, 0],
    12: [8, 1, 1, 1, 1, 0, 0, 0, 0],
    16: [8, 1, 1, 1, 1, 1, 1, 1, 1],
    40: [8, 4, 4, 4, 4, 4, 4, 4, 4],
    60: [8, 4, 7, 7, 7, 7, 7, 7, 6],
    64: [8, 4, 8, 8, 8, 7, 7, 7, 7],
    66: [8, 4, 8, 8, 8, 8, 8, 7, 7],
    80: [8, 6, 10, 9, 9, 9, 9, 10, 10],
    100: [8, 8, 12, 12, 12, 12, 12, 12, 12],
    124: [8, 8, 16, 15, 15, 15, 15, 16, 16],
    128: [8, 8, 16, 16, 16, 16, 16, 16, 16],
    132: [8, 8, 16, 16, 16, 16, 16, 18, 18],
}
"""Blocks of a grid -> how many of them %smid showed in each group of the card."""


@pytest.mark.parametrize("blocks", DEALT)
def test_groups_get_the_blocks_that_they_got_on_the_card(blocks: int) -> None:
    assert shares(H200, blocks) == DEALT[blocks]


def test_blocks_that_follow_one_another_go_to_one_group() -> None:
    gpcs = gpc_of_sm(H200)[deal(H200, 132, 1)]
    assert gpcs[:16].tolist() == [0] * 16 and gpcs[16:32].tolist() == [1] * 16
    assert len(set(deal(H200, 132, 1).tolist())) == 132


def test_few_blocks_of_a_group_are_on_pairs_of_sms_of_their_own() -> None:
    assert deal(H200, 40, 1)[12:16].tolist() == [16, 18, 20, 22]  # every other SM: a TPC has two
    assert deal(H200, 12, 1).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 48]


def test_a_second_round_begins_where_the_first_did() -> None:
    sms = deal(H200, 264, 2)
    assert sms[132:].tolist() == sms[:132].tolist()
    assert set(Counter(sms.tolist()).values()) == {2}
    assert deal(H200, 0, 2).tolist() == []
    with pytest.raises(ValueError, match="265 blocks on 132 SMs with 2 each"):
        deal(H200, 265, 2)


@pytest.mark.parametrize("arch", ARCHES.values(), ids=lambda arch: arch.name)
def test_every_sm_is_in_a_group_and_gets_a_block(arch) -> None:
    assert len(gpc_of_sm(arch)) == arch.sm_count == sum(shares(arch, arch.sm_count))
    assert sorted(deal(arch, arch.sm_count, 1).tolist()) == list(range(arch.sm_count))
    assert set(np.unique(partition_of_sm(arch)).tolist()) == {0, 1}
