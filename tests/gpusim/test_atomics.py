"""RED and ATOM sectors: measured patterns of fact 18, and the rule in plain Python."""

import ctypes
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.atomics import collide, collide_entry
from gpusim.trace import Kind, unpack

LANE = np.arange(32, dtype=np.int64)
BASE = 1 << 20
ALL = 0xFFFFFFFF


def run(words, mask=ALL, width=4):
    out = np.zeros(32, np.uint64)
    packed = collide(BASE + width * np.asarray(words, np.int64), np.uint32(mask), int(Kind.RED), 1, out)
    return unpack(out[: packed & 0xFFFFFFFF]), packed >> 32


@pytest.mark.parametrize(
    ("words", "sectors"),
    [
        (LANE, 4),
        (2 * LANE, 8),
        (4 * LANE, 16),
        (8 * LANE, 32),
        (16 * LANE, 32),
        (32 * LANE, 32),
        (LANE // 2, 4),
        (LANE // 4, 4),
        (LANE // 8, 8),
        (LANE // 16, 16),
        (0 * LANE, 32),
        (LANE % 2, 16),
        (LANE % 8, 4),
        (LANE % 16, 4),
    ],
)
def test_counts_the_sectors_that_the_card_counted(words, sectors):
    assert run(words)[1] == sectors


def test_counts_no_collision_of_a_lane_that_is_off():
    assert run(0 * LANE, mask=0b11)[1] == 2
    assert run(0 * LANE, mask=0b10)[1] == 1
    assert run(0 * LANE, mask=0)[1] == 0


def test_the_kth_record_holds_the_sectors_shared_by_k_lanes():
    words = 100 * 32 + LANE  # one line, all words once
    words[1] = words[0]  # word 0 twice
    words[9] = words[10] = words[8]  # word 8, in sector 1, three times
    got, sectors = run(words)
    assert got["mask"].tolist() == [0b1111, 0b0011, 0b0010]
    assert got["first"].tolist() == [True, False, False]
    assert sectors == 7


def test_the_extra_records_follow_the_first_of_their_line():
    words = np.where(LANE < 2, 0, 64 + LANE)
    got, _ = run(words, mask=0b1111)
    assert (got["line"] - BASE // 128).tolist() == [0, 0, 2]
    assert got["mask"].tolist() == [1, 1, 1]


def test_eight_byte_atomics_follow_the_same_rule():
    assert run(LANE, width=8)[1] == 8
    assert run(LANE // 2, width=8)[1] == 8
    assert run(0 * LANE, width=8)[1] == 32


def test_the_c_entry_gives_what_the_python_call_gives():
    out = np.zeros(32, np.uint64)
    addresses = BASE + 4 * (LANE // 8)
    call = ctypes.CFUNCTYPE(
        ctypes.c_int64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
    )
    assert call(collide_entry.address)(addresses.ctypes.data, ALL, 3, 0, out.ctypes.data) == 8 | 8 << 32
    assert set(unpack(out[:8])["kind"]) == {Kind.ATOM}


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 90), min_size=32, max_size=32), st.integers(0, ALL))
def test_equals_the_rule_on_any_addresses(words, mask):
    shared = Counter(words[lane] for lane in range(32) if mask >> lane & 1)
    most: dict[int, int] = {}
    for word, lanes in shared.items():
        most[word // 8] = max(most.get(word // 8, 0), lanes)
    got, sectors = run(words, mask)
    assert sectors == sum(most.values())
    for sector, lanes in most.items():
        here = got[got["line"] == BASE // 128 + sector // 4]
        assert (here["mask"] >> (sector % 4) & 1).sum() == lanes
