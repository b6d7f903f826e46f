"""The closed forms, the reference and the options of the three transposes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import BadOption
from kernels_sim.problem import Data
from kernels_sim.transpose import KERNELS, Options, build, closed_form, column_sectors


def test_a_tile_of_32_by_32_reads_4_sectors_a_row():
    form = closed_form(32, 32, "naive")
    assert (form["global_load.requests"], form["global_load.sectors"]) == (32, 128)


def test_the_naive_store_takes_a_sector_a_lane():
    form = closed_form(32, 32, "naive")
    assert (form["global_store.requests"], form["global_store.sectors"]) == (32, 1024)


def test_the_naive_variant_counts_no_shared_memory_and_no_barrier():
    assert not [path for path in closed_form(32, 32, "naive") if path.startswith(("shared", "barriers"))]


def test_a_column_of_the_tile_takes_32_wavefronts():
    form = closed_form(32, 32, "tiled")
    assert (form["shared_load.requests"], form["shared_load.wavefronts"]) == (32, 1024)
    assert form["shared_load.ideal_wavefronts"] == 32


def test_a_column_of_the_padded_tile_takes_one_wavefront():
    form = closed_form(32, 32, "padded")
    assert (form["shared_load.requests"], form["shared_load.wavefronts"]) == (32, 32)


def test_padding_changes_nothing_but_the_wavefronts_of_loads():
    tiled, padded = closed_form(45, 70, "tiled"), closed_form(45, 70, "padded")
    assert [path for path in tiled if tiled[path] != padded[path]] == ["shared_load.wavefronts"]


def test_stores_through_a_tile_are_coalesced():
    form = closed_form(64, 32, "tiled")
    assert (form["global_store.requests"], form["global_store.sectors"]) == (64, 256)


def test_a_row_of_33_needs_a_second_block_of_8_warps_at_its_barrier():
    assert closed_form(32, 33, "padded")["barriers"] == 16


@given(st.integers(1, 40), st.integers(1, 70))
def test_stores_down_columns_take_the_sectors_that_their_lanes_lie_in(rows, cols):
    requests = [(r, c) for r in range(rows) for c in range(0, cols, 32)]
    expected = sum(len({(x * rows + r) // 8 for x in range(c, min(c + 32, cols))}) for r, c in requests)
    assert column_sectors(rows, cols) == expected


@pytest.mark.parametrize("variant", KERNELS)
def test_the_reference_is_the_transpose(variant):
    problem = build(Options(rows=2, cols=3, variant=variant), Data())
    a, at = problem.steps[0].args
    assert at.shape == (3, 2)
    assert problem.reference()["at"][2, 1] == a[1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "--rows is 0"),
        ({"cols": -4}, "--cols is -4"),
        ({"variant": "best"}, "one of naive, tiled, padded"),
    ],
)
def test_empty_matrices_and_unknown_variants_are_refused(options, message):
    with pytest.raises(BadOption, match=message):
        build(Options(**options), Data())
