"""Which accesses are costly, and the padding of shared arrays: what is suggested has no conflict."""

from __future__ import annotations

import pytest

from gpusim.launch import LineAccess
from gpusim.line_reasons import is_costly, padding_elements


def shared(step: int | None, size: int = 4, row: int = 0, **changes: int) -> LineAccess:
    """Return a load of a shared array, 10 requests of 32 lanes with 32 wavefronts each."""
    counts = size, 10, 320, 320, 10, step
    return LineAccess("f.py", 1, "shared_load", "tile", *counts, row_bytes=row, **changes)


@pytest.mark.parametrize(("step", "size", "row", "elements"), [
    (128, 4, 128, 1),  # 32 words a row: 33
    (256, 4, 256, 1),  # 64 words a row: 65
    (256, 8, 256, 1),  # 32 doubles a row: 33, each half of a warp in 16 banks of 8 bytes
    (256, 4, 128, None),  # two rows of 32 words: 2 (32 + n) words are even, so 2 lanes meet in a bank
    (8, 4, 0, 1),  # two words apart in one dimension: three
])  # fmt: skip
def test_the_padding_is_the_least_without_a_conflict(step, size, row, elements) -> None:
    assert padding_elements(shared(step, size, row)) == elements


def test_runs_are_padded_from_run_to_run() -> None:
    # 16 lanes on one word, then 16 on one 32 words on: rows of 32 words, 33 put them in two banks.
    assert padding_elements(shared(0, row=128, run_lanes=16, jump_bytes=128)) == 1


@pytest.mark.parametrize("step", [None, 0, 4])
def test_no_padding_is_suggested_for_unknown_equal_or_neighbouring_words(step) -> None:
    assert padding_elements(shared(step)) is None


def test_no_padding_of_a_row_is_suggested_for_lanes_inside_a_row() -> None:
    assert padding_elements(shared(8, row=128)) is None


def test_a_tenth_more_wavefronts_is_not_costly_and_more_is() -> None:
    assert not is_costly(LineAccess("f.py", 1, "shared_load", "s", 4, 10, 320, 11, 10))
    assert is_costly(LineAccess("f.py", 1, "shared_load", "s", 4, 10, 320, 12, 10))


def test_an_offset_of_an_element_is_not_costly_and_a_stride_of_two_is() -> None:
    assert not is_costly(LineAccess("f.py", 1, "global_load", "x", 4, 10, 320, 50))
    assert is_costly(LineAccess("f.py", 1, "global_load", "x", 4, 10, 320, 80))


def test_the_ideal_of_few_lanes_is_the_sectors_that_they_fill() -> None:
    # One lane a request cannot take less than a sector; 8 lanes of 4 bytes fill one.
    assert LineAccess("f.py", 1, "global_load", "x", 4, 10, 10, 10).ideal == 10
    assert LineAccess("f.py", 1, "global_load", "x", 4, 10, 90, 20).ideal == 20
