"""One sectored cache: small ones by hand, any stream against a model made of a dict and a list."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.cache import (
    FRESH_ORDER,
    clear,
    dirty_sectors,
    drop,
    fetch_table,
    found_sectors,
    leave_dirty,
    load,
    new_cache,
    row_of,
    store,
)

ALONE, PAIRS, LINES = fetch_table(1), fetch_table(2), fetch_table(4)
ROW = np.uint64(0)


def read(cache, line, mask=15, table=ALONE, row=ROW):
    """Return (missing, fetched, sectors written back)."""
    got = load(cache, row, line, mask, table)
    return got & 15, got >> 4 & 15, got >> 8


def test_two_ways_keep_the_two_lines_used_last():
    cache = new_cache(1, 256, 2)
    assert (cache.sets, cache.ways) == (1, 2)
    assert [read(cache, line)[0] for line in (7, 8, 7, 9, 7, 8, 9)] == [15, 15, 0, 15, 0, 15, 15]


def test_a_line_holds_only_the_sectors_that_were_asked_for():
    cache = new_cache(1, 256, 2)
    assert read(cache, 5, 0b0001) == (0b0001, 0b0001, 0)
    assert read(cache, 5, 0b0011) == (0b0010, 0b0010, 0)
    assert read(cache, 5, 0b0011) == (0, 0, 0)


@pytest.mark.parametrize(("table", "fetched"), [(ALONE, 0b0010), (PAIRS, 0b0011), (LINES, 0b1111)])
def test_a_miss_brings_the_rest_of_its_granule(table, fetched):
    cache = new_cache(1, 256, 2)
    assert read(cache, 5, 0b0010, table) == (0b0010, fetched, 0)
    assert read(cache, 5, fetched, table) == (0, 0, 0)


def test_a_hit_brings_nothing():
    cache = new_cache(1, 256, 2)
    store(cache, ROW, 5, 0b0001, 2)
    assert read(cache, 5, 0b0001, PAIRS) == (0, 0, 0)
    assert read(cache, 5, 0b0010, PAIRS) == (
        0b0010,
        0b0010,
        0,
    )  # sector 0 is valid, and stays as it was written
    assert dirty_sectors(cache) == 1


def test_a_store_fetches_nothing_and_is_written_back_when_its_line_goes():
    cache = new_cache(1, 256, 2)
    assert store(cache, ROW, 1, 0b0111, 2) == 0
    assert read(cache, 1, 15) == (0b1000, 0b1000, 0)
    assert read(cache, 2, 15)[2] == 0
    assert read(cache, 3, 15)[2] == 3  # line 1 was used before line 2
    assert dirty_sectors(cache) == 0


def test_a_clean_copy_is_valid_and_never_written_back():
    cache = new_cache(1, 128, 1)
    assert store(cache, ROW, 1, 15, 0) == 0
    assert read(cache, 1) == (0, 0, 0)
    assert store(cache, ROW, 2, 15, 0) == 0
    assert dirty_sectors(cache) == 0


def test_the_bound_on_dirty_lines_writes_the_oldest_one_back_and_keeps_it_valid():
    cache = new_cache(1, 512, 4)
    written = [
        store(cache, ROW, line, mask, 2)
        for line, mask in ((1, 0b0001), (2, 0b0011), (1, 0b0010), (3, 0b1111))
    ]
    assert written == [0, 0, 0, 2]  # line 2 is the oldest
    assert dirty_sectors(cache) == 2 + 4
    assert read(cache, 2, 0b0011) == (0, 0, 0)


def test_what_somebody_else_left_dirty_goes_first_and_is_not_counted():
    cache = new_cache(1, 512, 4)  # one set of four lines
    leave_dirty(cache, 3)
    assert (found_sectors(cache), dirty_sectors(cache)) == (3, 3)
    assert [store(cache, ROW, line, 0b0011, 3) for line in (1, 2)] == [0, 0]
    assert (found_sectors(cache), dirty_sectors(cache)) == (3, 3 + 4)
    assert store(cache, ROW, 3, 0b0011, 3) == 0  # a fourth dirty line: the oldest is written, and is not ours
    assert (found_sectors(cache), dirty_sectors(cache)) == (0, 6)
    assert store(cache, ROW, 4, 0b0011, 3) == 2


def test_a_read_drives_out_what_somebody_else_left_dirty():
    cache = new_cache(1, 512, 4)
    leave_dirty(cache, 3)
    assert [read(cache, line, 1)[2] for line in (1, 2, 3)] == [0, 0, 0]
    assert found_sectors(cache) == 3
    assert read(cache, 4, 1)[2] == 0
    assert (found_sectors(cache), dirty_sectors(cache)) == (0, 0)


def test_dirty_sectors_of_somebody_else_are_spread_over_all_sets_as_far_as_they_fit():
    cache = new_cache(2, 1024, 4)  # four sets
    leave_dirty(cache, 10)
    assert found_sectors(cache) == 10
    assert np.bitwise_count(cache.words.reshape(-1, 4)[:, 1]).tolist() == [2, 3, 2, 3]
    clear(cache)
    leave_dirty(cache, 99)
    assert found_sectors(cache) == 16


def test_drop_ends_some_sectors_of_a_line_and_ignores_other_lines():
    cache = new_cache(1, 256, 2)
    read(cache, 1)
    read(cache, 2)
    drop(cache, ROW, 1, 0b0101)
    drop(cache, ROW, 9, 15)
    assert read(cache, 1)[0] == 0b0101
    assert read(cache, 2)[0] == 0


def test_clear_empties():
    cache = new_cache(1, 256, 2)
    store(cache, ROW, 1, 15, 2)
    clear(cache)
    assert dirty_sectors(cache) == 0
    assert read(cache, 1)[0] == 15


def test_sixteen_ways_hold_sixteen_lines_and_not_seventeen():
    cache = new_cache(1, 16 * 128, 16)
    assert [read(cache, line)[0] for line in list(range(16)) * 2] == [15] * 16 + [0] * 16
    cache = new_cache(1, 16 * 128, 16)
    assert [read(cache, line)[0] for line in list(range(17)) * 2] == [15] * 34


def test_the_largest_line_number_is_found_again():
    cache = new_cache(1, 256, 2)
    assert [read(cache, 2**31 - 1)[0], read(cache, 2**31 - 1)[0]] == [15, 0]


@pytest.mark.parametrize("sets", [1, 7, 448, 15360])
def test_a_stream_visits_every_set_once_a_run(sets):
    for run in (0, 1, 5, 1000):
        rows = {int(row_of(2, run * sets + i, sets)) for i in range(sets)}
        assert rows == set(range(2 * sets, 3 * sets))


@pytest.mark.parametrize("stride", [448, 896, 1056, 1344])
def test_lines_far_apart_do_not_meet_in_one_set(stride):
    rows = [int(row_of(0, stride * i, 448)) for i in range(448)]
    assert len(set(rows)) > 200  # at random 283; plain modulo: 1 set for 448
    assert max(rows.count(row) for row in set(rows)) <= 10


@pytest.mark.parametrize(("size", "ways"), [(0, 4), (256, 4), (1024, 0), (4096, 17)])
def test_refuses_shapes_that_cannot_be(size, ways):
    with pytest.raises(ValueError, match=f"{size} bytes with {ways} ways"):
        new_cache(1, size, ways)


def test_one_row_takes_96_bytes():
    cache = new_cache(3, 1024, 4)
    assert cache.tags.nbytes + cache.words.nbytes == 96 * 3 * cache.sets
    assert int(cache.words[2]) == FRESH_ORDER


class Model:
    """The same cache: a list of [line, valid set, dirty set], the one used last at the end."""

    def __init__(self, ways):
        self.ways, self.lines = ways, []

    def _use(self, line):
        found = next((entry for entry in self.lines if entry[0] == line), None)
        written = 0
        if found is None:
            found = [line, set(), set()]
            if len(self.lines) == self.ways:
                written = len(self.lines.pop(0)[2])
        else:
            self.lines.remove(found)
        self.lines.append(found)
        return found, written

    def load(self, line, sectors, granule):
        entry, written = self._use(line)
        missing = sectors - entry[1]
        brought = {s for s in range(4) if any(s // granule == m // granule for m in missing)} - entry[1]
        entry[1] |= brought
        return missing, brought, written

    def store(self, line, sectors, bound):
        entry, written = self._use(line)
        entry[1] |= sectors
        entry[2] |= sectors if bound else set()
        dirty = [e for e in self.lines if e[2]]
        if bound and len(dirty) > bound:
            written += len(dirty[0][2])
            dirty[0][2] = set()
        return written


def sectors_of(mask):
    return {s for s in range(4) if mask >> s & 1}


STEP = st.tuples(st.sampled_from(["load", "load", "store", "copy"]), st.integers(0, 23), st.integers(1, 15))


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 16), st.integers(1, 16), st.sampled_from([1, 2, 4]), st.lists(STEP, max_size=150))
def test_equals_the_model_on_any_stream(ways, bound, granule, steps):
    cache, model = new_cache(1, ways * 128, ways), Model(ways)
    for what, line, mask in steps:
        if what == "load":
            missing, brought, written = read(cache, line, mask, fetch_table(granule))
            assert (sectors_of(missing), sectors_of(brought), written) == model.load(
                line, sectors_of(mask), granule
            )
        elif what == "store":
            assert store(cache, ROW, line, mask, bound) == model.store(line, sectors_of(mask), bound)
        elif not any(entry[0] == line and entry[2] for entry in model.lines):
            assert store(cache, ROW, line, mask, 0) == model.store(line, sectors_of(mask), 0)
    assert dirty_sectors(cache) == sum(len(entry[2]) for entry in model.lines)
