"""Requests and sectors of rows of 4-byte elements, against sets of sectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import BadOption
from kernels_sim.formulas import (
    ceil_div,
    matrix_sectors,
    require_at_least,
    require_choice,
    row_sectors,
    run_sectors,
    shared,
    space,
)


def sectors_by_set(rows: int, cols: int) -> int:
    """Count the sectors of every request of 32 neighbours in a row, by listing its elements."""
    starts = [(y, x) for y in range(rows) for x in range(0, cols, 32)]
    return sum(len({(y * cols + c) // 8 for c in range(x, min(x + 32, cols))}) for y, x in starts)


def test_32_aligned_elements_take_4_sectors():
    assert run_sectors(0, 32) == 4


def test_32_elements_one_element_late_take_5_sectors():
    assert run_sectors(1, 32) == 5


def test_8_elements_that_straddle_a_boundary_take_2_sectors():
    assert run_sectors(4, 8) == 2


def test_no_element_takes_no_sector():
    assert run_sectors(5, 0) == 0


def test_a_row_of_33_takes_a_fifth_sector_for_its_last_element():
    assert row_sectors(0, 33) == 5


def test_rows_of_33_start_one_element_later_each():
    # Starts 0, 33, 66 mod 8 = 0, 1, 2: the requests of 32 take 4, 5, 5 sectors, the lone elements 1 each.
    assert matrix_sectors(3, 33) == 4 + 5 + 5 + 3


@given(st.integers(1, 40), st.integers(1, 100))
def test_a_matrix_takes_the_sectors_that_its_elements_lie_in(rows, cols):
    assert matrix_sectors(rows, cols) == sectors_by_set(rows, cols)


def test_ceil_div_rounds_up():
    assert [ceil_div(n, 32) for n in (0, 1, 32, 33)] == [0, 1, 1, 2]


def test_space_gives_bytes_of_4_a_lane():
    assert space("global_load", lanes=3, requests=1, sectors=1)["global_load.bytes"] == 12


def test_shared_is_free_of_conflicts_at_a_wavefront_a_request():
    form = shared("shared_load", lanes=64, requests=2, wavefronts=64)
    assert form["shared_load.wavefronts"] - form["shared_load.ideal_wavefronts"] == 62


def test_an_option_below_its_least_value_names_kernel_option_and_limit():
    with pytest.raises(BadOption, match=r"vec_add: --n is 0, it must be at least 1"):
        require_at_least("vec_add", "n", 0, 1)


def test_an_unknown_choice_lists_the_choices():
    with pytest.raises(BadOption, match=r"'fast', it must be one of naive, tiled"):
        require_choice("transpose", "variant", "fast", ("naive", "tiled"))


def test_elements_of_2_bytes_lie_16_in_a_sector():
    assert run_sectors(0, 32, 2) == 2
    assert run_sectors(15, 2, 2) == 2
    assert row_sectors(0, 40, 2) == 2 + 1
    assert matrix_sectors(3, 24, 2) == 2 + 2 + 2  # bytes 0 to 48, 48 to 96, 96 to 144
