"""Wavefronts of shared memory: each cell measured on an H200 (fact 17), and the rule in plain Python."""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.shared import (
    atomic_wavefronts,
    atomic_wavefronts_entry,
    ideal_wavefronts,
    wavefronts,
    wavefronts_entry,
)

LANE = np.arange(32, dtype=np.int64)
ALL = 0xFFFFFFFF
TABLE = {  # pattern: (elements, loads of 4, 8 and 16 bytes, stores of 4, 8 and 16 bytes)
    "lane": (LANE, (1, 2, 4), (1, 2, 4)),
    "lane x 2": (LANE * 2, (2, 4, 8), (2, 4, 8)),
    "lane x 4": (LANE * 4, (4, 8, 16), (4, 8, 16)),
    "lane x 8": (LANE * 8, (8, 16, 32), (8, 16, 32)),
    "lane x 16": (LANE * 16, (16, 32, 32), (16, 32, 32)),
    "lane x 32": (LANE * 32, (32, 32, 32), (32, 32, 32)),
    "lane / 2": (LANE // 2, (1, 1, 2), (1, 2, 4)),
    "lane / 8": (LANE // 8, (1, 1, 2), (1, 2, 4)),
    "lane / 16": (LANE // 16, (1, 1, 2), (1, 2, 4)),
    "all the same": (LANE * 0, (1, 1, 2), (1, 2, 4)),
    "lane % 2": (LANE % 2, (1, 1, 2), (1, 2, 4)),
    "lane % 8": (LANE % 8, (1, 2, 4), (1, 2, 4)),
    "(lane / 8) x 32": (LANE // 8 * 32, (4, 4, 4), (4, 4, 4)),
    "random of 64": ((LANE * 37 + 11) % 64, (1, 2, 4), (1, 2, 4)),
}
CELLS = [
    (elements * width, width, is_load, counted)
    for elements, loads, stores in TABLE.values()
    for is_load, row in ((True, loads), (False, stores))
    for width, counted in zip((4, 8, 16), row, strict=True)
]


@pytest.mark.parametrize(("addresses", "width", "is_load", "counted"), CELLS)
def test_counts_what_the_card_counted(addresses, width, is_load, counted):
    assert wavefronts(addresses, np.uint32(ALL), width, is_load) == counted


@pytest.mark.parametrize(("addresses", "width", "is_load", "counted"), CELLS)
def test_the_ideal_is_at_most_what_stores_take_and_only_merged_wide_loads_take_less(
    addresses, width, is_load, counted
):
    ideal = ideal_wavefronts(np.uint32(ALL), width)
    assert ideal <= counted or (is_load and width > 4 and counted == ideal // 2)


@pytest.mark.parametrize(("width", "mask", "counted"), [
    (4, 0, 0), (8, 0, 0), (16, 0, 0),
    (4, 1, 1), (8, 1, 1), (16, 1, 1),
    (8, 0x0000FFFF, 1), (8, 0x00018000, 2),
    (16, 0x000000FF, 1), (16, 0x00000180, 2), (16, 0x01010101, 4), (16, 0x80000000, 1),
])  # fmt: skip
def test_a_part_of_a_warp_without_active_lanes_takes_no_wavefront(width, mask, counted):
    assert wavefronts(LANE * width, np.uint32(mask), width, False) == counted
    assert ideal_wavefronts(np.uint32(mask), width) == counted


def test_lanes_that_are_off_conflict_with_nobody():
    assert wavefronts(LANE * 128, np.uint32(0b101), 4, True) == 2
    assert wavefronts(LANE * 128, np.uint32(0b100), 4, True) == 1


def test_bytes_and_halves_of_one_word_do_not_conflict():
    assert wavefronts(LANE, np.uint32(ALL), 1, True) == 1
    assert wavefronts(LANE * 2, np.uint32(ALL), 2, False) == 1
    assert wavefronts(LANE * 256, np.uint32(ALL), 2, False) == 32


def test_a_padded_row_has_no_conflict_and_an_unpadded_one_has_32():
    assert wavefronts(LANE * 33 * 4, np.uint32(ALL), 4, True) == 1
    assert wavefronts(LANE * 32 * 4, np.uint32(ALL), 4, True) == 32


def test_ideal_wavefronts_of_a_full_warp():
    assert [ideal_wavefronts(np.uint32(ALL), width) for width in (1, 2, 4, 8, 16)] == [1, 1, 1, 2, 4]


def test_atomics_count_banks_and_not_equal_addresses():
    assert atomic_wavefronts(LANE * 4, np.uint32(ALL), 4) == 1
    assert atomic_wavefronts(LANE * 128, np.uint32(ALL), 4) == 32
    assert atomic_wavefronts(LANE * 0, np.uint32(ALL), 4) == 1


def test_the_c_entries_give_what_the_python_calls_give():
    addresses = LANE // 2 * 8
    pointer, i64, u32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32
    call = ctypes.CFUNCTYPE(i64, pointer, u32, i64, i64)(wavefronts_entry.address)
    assert [call(addresses.ctypes.data, ALL, 8, is_load) for is_load in (1, 0)] == [1, 2]
    assert (
        ctypes.CFUNCTYPE(i64, pointer, u32, i64)(atomic_wavefronts_entry.address)(
            addresses.ctypes.data, ALL, 8
        )
        == 2
    )


def by_rule(elements, lanes, width, is_load):
    """Count wavefronts with sets: whole warps, halves or quarters, merged where partners agree."""
    banks = 128 // width

    def passes(group):
        wanted = [
            {elements[lane] for lane in group if elements[lane] % banks == bank} for bank in range(banks)
        ]
        return max(map(len, wanted))

    def agree(group, distance):
        return all(elements[lane] == elements[lane ^ distance] for lane in group if lane ^ distance in group)

    def split(group, size):
        if is_load and (agree(group, 1) or agree(group, 2)):
            return passes(group)
        return passes([x for x in group if x // size % 2 == 0]) + passes(
            [x for x in group if x // size % 2 == 1]
        )

    if width == 4:
        return passes(lanes)
    if width == 8:
        return split(lanes, 16)
    return split([x for x in lanes if x < 16], 8) + split([x for x in lanes if x >= 16], 8)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.integers(0, 100), min_size=32, max_size=32),
    st.sampled_from([ALL, 0x0F0F00FF, 0x55555555, 0xFFFF, 0x80000001]),
    st.sampled_from([4, 8, 16]),
    st.booleans(),
    st.sampled_from([1, 2, 4, 8]),
)
def test_equals_the_rule_on_any_addresses(elements, mask, width, is_load, repeat):
    elements = [elements[lane // repeat] for lane in range(32)]
    lanes = [lane for lane in range(32) if mask >> lane & 1]
    got = wavefronts(np.array(elements, np.int64) * width, np.uint32(mask), width, is_load)
    assert got == by_rule(elements, lanes, width, is_load)
