"""The closed forms, the reference and the options of the two histograms."""

import numpy as np
import pytest

from gpusim.errors import BadOption
from kernels_sim.histogram import (
    Options,
    atomic_wavefronts,
    build,
    closed_form_global,
    closed_form_shared,
    red_sectors,
)
from kernels_sim.problem import Data


def lanes(*pattern: int) -> np.ndarray:
    return np.array(pattern, np.int32)


def test_32_lanes_on_one_bin_take_32_sectors():
    assert red_sectors(np.zeros(32, np.int32), 256) == 32


def test_32_lanes_on_32_bins_side_by_side_take_4_sectors():
    assert red_sectors(np.arange(32), 256) == 4


def test_8_bins_of_one_sector_with_4_lanes_each_take_4_sectors():
    assert red_sectors(np.arange(32) % 8, 256) == 4


def test_each_sector_counts_its_own_most_shared_bin():
    # Bins 0, 0, 1 in sector 0: two lanes on bin 0. Bin 9 in sector 1: one.
    assert red_sectors(lanes(0, 0, 1, 9), 16) == 3


def test_lanes_of_different_warps_do_not_collide():
    assert red_sectors(np.zeros(33, np.int32), 8) == 33
    assert red_sectors(np.repeat(lanes(0, 8), 32), 16) == 64


def test_pieces_of_a_long_input_add_up():
    long = np.tile(np.arange(32), (1 << 12) + 1)
    assert red_sectors(long, 32) == 4 * ((1 << 12) + 1)


def test_lanes_on_one_bin_take_one_wavefront():
    assert atomic_wavefronts(np.zeros(32, np.int32), 256) == 1


def test_bins_32_apart_share_a_bank():
    assert atomic_wavefronts(lanes(0, 32, 64, 64), 256) == 3


def test_bins_in_different_banks_do_not_wait():
    assert atomic_wavefronts(np.arange(32), 256) == 1


def test_a_red_a_lane_and_no_shared_memory_in_the_global_variant():
    form = closed_form_global(33, 8, np.zeros(33, np.int32))
    assert (form["global_red.lanes"], form["global_red.requests"]) == (33, 2)
    assert not [path for path in form if path.startswith("shared")]


def test_a_block_of_the_shared_variant_adds_its_256_bins_in_8_requests():
    form = closed_form_shared(256, np.zeros(256, np.int32))
    assert (form["global_red.requests"], form["global_red.sectors"]) == (8, 32)


def test_the_shared_variant_stops_at_256_blocks():
    assert build(Options(n=256 * 256 + 1, variant="shared"), Data()).steps[0].grid == (256,)
    assert build(Options(n=257, variant="shared"), Data()).steps[0].grid == (2,)


@pytest.mark.parametrize(
    ("variant", "unknown"), [("global", "global_red.sectors"), ("shared", "shared_atom.wavefronts")]
)
def test_without_values_only_the_counter_that_depends_on_them_is_left_out(variant, unknown):
    options = Options(n=100, bins=10, variant=variant)
    real, virtual = (build(options, Data(virtual=v)).steps[0].closed_form for v in (False, True))
    assert {path: real[path] for path in real if path != unknown} == virtual
    assert unknown in real


def test_the_reference_counts_every_number_once():
    problem = build(Options(n=1000, bins=7), Data())
    assert problem.reference()["counts"].sum() == 1000
    assert problem.outputs["counts"].shape == (7,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "--n is 0"),
        ({"bins": 0}, "--bins is 0"),
        ({"variant": "both"}, "one of global, shared"),
        ({"bins": 257, "variant": "shared"}, "at most 256, one a thread; take --variant global"),
    ],
)
def test_what_the_kernels_cannot_count_is_refused(options, message):
    with pytest.raises(BadOption, match=message):
        build(Options(**options), Data())


def test_the_global_variant_takes_any_number_of_bins():
    assert build(Options(n=10, bins=1000), Data()).outputs["counts"].shape == (1000,)
