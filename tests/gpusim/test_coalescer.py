"""One warp's addresses to lines and sectors; the numbers follow from 128-byte lines and 32-byte sectors."""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.semantics import request_rules
from gpusim.coalescer import coalesce, coalesce_entry, coalesce_words
from gpusim.trace import Kind, unpack

LANE = np.arange(32, dtype=np.int64)
BASE = 1 << 20
ALL = 0xFFFFFFFF


def run(addresses, mask=ALL, kind=Kind.LOAD, site=3):
    out = np.zeros(32, np.uint64)
    packed = coalesce(np.asarray(addresses, np.int64), np.uint32(mask), int(kind), site, out)
    return unpack(out[: packed & 0xFFFFFFFF]), packed >> 32


@pytest.mark.parametrize(
    ("addresses", "records", "sectors"),
    [
        (BASE + 4 * LANE, 1, 4),
        (BASE + 4 * LANE + 4, 2, 5),  # the first row of vec_add with an offset of one element
        (BASE + 8 * LANE, 2, 8),
        (BASE + 16 * LANE, 4, 16),
        (BASE + 2 * LANE, 1, 2),
        (BASE + LANE, 1, 1),
        (BASE + 0 * LANE, 1, 1),
        (BASE + 32 * LANE, 8, 32),
        (BASE + 128 * LANE, 32, 32),
        (BASE + 4096 * LANE, 32, 32),
        (BASE + 4 * LANE[::-1], 1, 4),
    ],
)
def test_counts_lines_and_sectors_of_full_warps(addresses, records, sectors):
    got, n = run(addresses)
    assert (len(got), n) == (records, sectors)


def test_does_not_count_lanes_that_are_off():
    got, sectors = run(BASE + 128 * LANE, mask=0b1001)
    assert sectors == 2
    assert got["line"].tolist() == [BASE // 128, BASE // 128 + 3]


def test_no_active_lane_gives_no_record():
    assert run(BASE + 4 * LANE, mask=0) == (pytest.approx([]), 0)


def test_lines_come_in_the_order_of_their_lowest_lane():
    addresses = BASE + 128 * np.where(LANE % 2 == 0, 7, 2)
    got, sectors = run(addresses, mask=ALL)
    assert got["line"].tolist() == [BASE // 128 + 7, BASE // 128 + 2]
    assert sectors == 2
    got, _ = run(addresses, mask=ALL & ~1 & ~4)  # lane 1 is now the lowest
    assert got["line"].tolist() == [BASE // 128 + 2, BASE // 128 + 7]


def test_only_the_first_record_of_a_request_is_marked_first():
    got, _ = run(BASE + 16 * LANE, kind=Kind.STORE, site=32767)
    assert got["first"].tolist() == [True, False, False, False]
    assert set(got["kind"]) == {Kind.STORE}
    assert set(got["site"]) == {32767}
    assert got["mask"].tolist() == [15, 15, 15, 15]


def test_the_mask_names_the_sectors():
    addresses = np.full(32, BASE)
    addresses[5], addresses[9] = BASE + 96, BASE + 64 + 28
    got, sectors = run(addresses)
    assert (got["mask"].tolist(), sectors) == ([0b1101], 3)


def test_the_c_entry_gives_what_the_python_call_gives():
    addresses = BASE + 12 * LANE
    want = np.zeros(32, np.uint64)
    packed = coalesce(addresses, np.uint32(0xFFFF), 1, 9, want)
    got = np.zeros(32, np.uint64)
    call = ctypes.CFUNCTYPE(
        ctypes.c_int64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )
    assert call(coalesce_entry.address)(addresses.ctypes.data, 0xFFFF, 1, 9, got.ctypes.data) == packed
    assert got.tolist() == want.tolist()


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 400), min_size=32, max_size=32), st.integers(0, ALL))
def test_equals_a_dict_of_sets_on_any_addresses(words, mask):
    addresses = BASE + 4 * np.array(words, np.int64)
    lines = {}
    for lane in range(32):
        if mask >> lane & 1:
            lines.setdefault(addresses[lane] // 128, set()).add(addresses[lane] % 128 // 32)
    got, sectors = run(addresses, mask)
    assert got["line"].tolist() == list(lines)
    assert got["mask"].tolist() == [sum(1 << s for s in found) for found in lines.values()]
    assert sectors == sum(map(len, lines.values()))


@pytest.mark.parametrize("words", [1, 2, 4])
@settings(deadline=None, max_examples=100)
@given(offsets=st.lists(st.integers(0, 12), min_size=32, max_size=32), mask=st.integers(0, ALL))
def test_words_of_local_memory_are_one_request_in_the_order_of_lanes(words, offsets, mask):
    size = 4 * words
    lanes = {lane: size * offsets[lane] for lane in range(32) if mask >> lane & 1}
    want = request_rules.records(request_rules.local_words(lanes, size, BASE), 4, Kind.LOCAL_LOAD, 7)
    addresses = np.array([BASE + 32 * size * o + 4 * k for k, o in enumerate(offsets)], np.int64)
    out = np.zeros(128, np.uint64)
    packed = coalesce_words(addresses, np.uint32(mask), words, int(Kind.LOCAL_LOAD), 7, out)
    assert out[: packed & 0xFFFFFFFF].tolist() == want
    assert packed >> 32 == request_rules.sectors(want)
