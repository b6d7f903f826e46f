"""Waves of resident blocks and what the last one leaves idle."""

from dataclasses import replace

import numpy as np
import pytest

from gpusim.arch import H200
from gpusim.scheduler import wave_statistics, waves

TWO = replace(H200, sm_count=2, sm_groups=((0, 2),))


def test_deals_the_blocks_of_a_wave_to_the_sms_in_turn():
    got = list(waves(7, 2, TWO))
    assert [(first, count) for first, count, _ in got] == [(0, 4), (4, 3)]
    assert [sm.tolist() for *_, sm in got] == [[0, 1, 0, 1], [0, 1, 0]]
    assert all(sm.dtype == np.int32 for *_, sm in got)


def test_a_grid_of_no_blocks_has_no_wave():
    assert list(waves(0, 2, H200)) == []


def test_one_block_too_many_costs_a_whole_wave():
    got = wave_statistics(133, 1, 132)
    assert (got.full_waves, got.tail_blocks, got.waves) == (1, 1, 2)
    assert got.efficiency == pytest.approx(133 / 264)  # 50.4 %


def test_a_grid_that_fills_its_waves_has_no_tail():
    got = wave_statistics(264, 2, 132)
    assert (got.full_waves, got.tail_blocks, got.waves, got.efficiency) == (1, 0, 1, 1.0)


def test_a_small_grid_is_one_partial_wave():
    got = wave_statistics(64, 2, 132)
    assert (got.full_waves, got.tail_blocks, got.waves, got.slots_per_wave) == (0, 64, 1, 264)
    assert got.efficiency == pytest.approx(64 / 264)
