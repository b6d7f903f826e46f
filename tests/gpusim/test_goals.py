"""The goals of the model: what a row divides by, which launches it is of, and both sets side by side."""

from __future__ import annotations

import pytest

from gpusim.goals import (
    DRAM_READ,
    DRAM_WRITTEN,
    DURATION,
    L1_HITS,
    L1_LOADS,
    L2_HITS,
    L2_LOOKUPS,
    OCCUPANCY,
    READS,
    REDUCTIONS,
    ROWS,
    STORED,
    WRITES,
    Case,
    goals_text,
)
from gpusim.metrics import find

MB = 1_000_000
NAMES = (
    READS, WRITES, REDUCTIONS, L1_HITS, L1_LOADS, L2_HITS, L2_LOOKUPS, DRAM_READ, DRAM_WRITTEN, DURATION,
    OCCUPANCY, *STORED)
READ, WRITE, REDUCE, HIT_L1, HIT_L2, LARGE, SMALL, WRITTEN, APART, TIME, WARPS = ROWS


def case(simulated: dict[str, float], measured: dict[str, float], subset: str = "test", ns: float = 20_001,
         same_code: bool = True) -> Case:  # fmt: skip
    return Case(subset, simulated, {DURATION: ns, **measured}, same_code)


@pytest.mark.parametrize(("row", "name"), [(READ, READS), (WRITE, WRITES), (REDUCE, REDUCTIONS)])
def test_sectors_at_l2_are_off_in_percent_of_the_card(row, name: str) -> None:
    assert row.error(case({name: 110}, {name: 100})) == 10
    assert row.error(case({name: 90}, {name: 100})) == 10
    assert row.error(case({name: 7}, {name: 0})) == 100
    assert row.error(case({name: 0}, {name: 0})) is None
    assert row.error(case({}, {name: 100})) is None
    assert row.error(case({name: 100}, {})) is None


@pytest.mark.parametrize(
    ("row", "part", "whole"), [(HIT_L1, L1_HITS, L1_LOADS), (HIT_L2, L2_HITS, L2_LOOKUPS)])
def test_hits_are_off_in_points_of_what_was_looked_up_on_each_side(row, part: str, whole: str) -> None:
    assert row.error(case({part: 30, whole: 100}, {part: 50, whole: 200})) == 5  # 30 % and 25 %
    assert row.error(case({part: 0, whole: 0}, {part: 50, whole: 200})) is None
    assert row.error(case({whole: 100}, {part: 50, whole: 200})) is None


def test_time_is_off_in_percent_and_occupancy_in_points() -> None:
    assert TIME.error(case({DURATION: 30_000}, {}, ns=40_000)) == 25
    assert WARPS.error(case({OCCUPANCY: 40}, {OCCUPANCY: 50})) == 10
    assert WARPS.error(case({}, {OCCUPANCY: 50})) is None


def test_a_twin_says_nothing_of_hits_reductions_and_time_but_of_traffic() -> None:
    numbers = dict.fromkeys(NAMES, 1.0)
    silent = [r for r in ROWS if r.error(case(numbers, numbers, same_code=False)) is None]
    assert silent == [REDUCE, HIT_L1, HIT_L2, LARGE, APART, TIME, WARPS]
    assert [r for r in ROWS if r.error(case(numbers, numbers)) is None] == [LARGE, APART]


def test_dram_reads_are_off_in_percent_from_8_mb_on_and_in_kb_below() -> None:
    at, below = case({DRAM_READ: 9 * MB}, {DRAM_READ: 8 * MB}), case({DRAM_READ: 4096}, {DRAM_READ: 1024})
    assert (LARGE.error(at), SMALL.error(at)) == (12.5, None)
    assert (LARGE.error(below), SMALL.error(below)) == (None, 3)


def test_dram_writes_are_off_in_percent_of_the_sectors_stored_reduced_and_swapped() -> None:
    stores, reductions, atomics = STORED
    stored = {stores: 50_000, reductions: 30_000, atomics: 20_000}  # 3.2 MB
    near = case({DRAM_WRITTEN: 0}, {DRAM_WRITTEN: 3 * MB, **stored})
    far = case({DRAM_WRITTEN: 0}, {DRAM_WRITTEN: 4 * MB, **stored})
    assert (WRITTEN.error(near), APART.error(near)) == (93.75, None)
    assert (WRITTEN.error(far), APART.error(far)) == (125, 125)
    assert WRITTEN.error(case({DRAM_WRITTEN: 0}, {DRAM_WRITTEN: 3 * MB})) is None


def cells(text: str, row) -> list[str]:
    """Return the numbers of a row of the table."""
    (line,) = [x for x in text.splitlines() if x.startswith(f"{row.label}  ")]
    return line.removeprefix(row.label).split()[len(row.unit.split()) :]


def test_both_sets_stand_side_by_side_with_the_goals() -> None:
    fit = [case({READS: 100 + n}, {READS: 100}, "fit") for n in range(11)]
    text = goals_text([*fit, case({READS: 50}, {READS: 100})])
    assert "11 launches of the fit set and 1 launch of the test set" in text
    assert cells(text, READ) == (
        "11 5.00 9.00 10.00 1 50.00 50.00 50.00 median 3, 90th 10 missed: median 50.0, 90th 50.0".split())
    assert cells(text, WRITE) == "0 n/a n/a n/a 0 n/a n/a n/a largest 1 n/a".split()


def test_one_set_alone_has_no_columns_of_the_other() -> None:
    text = goals_text([case({READS: 50}, {READS: 100})])
    assert "Test: n" in text and "Fit" not in text
    assert cells(text, READ) == (
        "1 50.00 50.00 50.00 median 3, 90th 10 missed: median 50.0, 90th 50.0".split())
    alone = goals_text([case({READS: 50}, {READS: 100}, "fit")])
    assert "Fit: n" in alone and "Test Set" not in alone  # the fit set judges nothing
    assert cells(alone, READ) == "1 50.00 50.00 50.00 median 3, 90th 10".split()


def test_the_test_set_meets_a_goal_that_it_reaches_and_misses_one_by_a_little_more() -> None:
    assert READ.verdict((3.0, 10.0, 99.0)) == "met"  # the largest has no goal
    assert READ.verdict((7.31, 10.0, 99.0)) == "missed: median 7.3"
    assert READ.verdict((3.0, 10.004, 99.0)) == "missed: 90th 10.004"
    assert READ.verdict((7.0, 11.0, 11.0)) == "missed: median 7.0, 90th 11.0"
    assert WRITE.verdict((0.5, 0.9, 1234.5)) == "missed: largest 1234.5"
    assert READ.verdict((None, None, None)) == "n/a"


def test_launches_of_20_us_and_less_do_not_count() -> None:
    assert goals_text([case({READS: 50}, {READS: 100}, ns=20_000)]) == ""
    assert goals_text([case({READS: 50}, {READS: 100}, ns=20_001)]) != ""
    assert goals_text([]) == ""


def test_every_number_of_a_row_is_one_of_the_simulator_s_metrics() -> None:
    assert [name for name in NAMES if find(name).formula is None] == []
