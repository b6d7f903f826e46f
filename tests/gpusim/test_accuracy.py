"""The accuracy table: errors, what is kept, and what stands apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim.accuracy import Entry, accuracy_text, correlation, entries
from gpusim.beside import DIFFERS, EQUAL, TWIN, WITHIN
from gpusim.measured import Measured
from gpusim.metrics import METRICS

LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
OCCUPANCY = "sm__maximum_warps_per_active_cycle_pct"
LOCAL = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"


def entry(simulated: float, measured: float, launch: str = "a", metric: str = LOADS, spills: bool = False,
          verdict: str = DIFFERS) -> Entry:  # fmt: skip
    return Entry(launch, metric, simulated, measured, "exact", verdict, "as compiled", spills)


@pytest.mark.parametrize(("simulated", "measured", "metric", "error"), [
    (110, 100, LOADS, 10), (90, 100, LOADS, 10), (5, 0, LOADS, 100), (0, 8, LOADS, 100),
    (50, 75, OCCUPANCY, 25)])
def test_errors_are_percent_of_the_card_and_points_of_a_percentage(
    simulated: float, measured: float, metric: str, error: float
) -> None:
    assert entry(simulated, measured, metric=metric).error == pytest.approx(error)


def test_what_rounding_hides_is_no_error() -> None:
    assert entry(3.7023, 3.70, verdict=EQUAL).error == 0


def test_every_launch_is_kept_and_the_worst_is_named() -> None:
    found = [entry(100, 100, f"k{i}", verdict=EQUAL) for i in range(9)] + [entry(300, 100, "bad one")]
    (row,) = [x for x in accuracy_text({"Title": found}).splitlines() if "Global Load Sectors" in x]
    assert row.split() == [
        *"Global Load Sectors exact 10 9".split(), *"0.00 % 20.00 % 200.00 % n/a bad one".split()]


def test_launches_with_spills_stand_apart() -> None:
    text = accuracy_text({"Title": [entry(1, 1, "a", verdict=EQUAL), entry(1, 9, "b", spills=True)]})
    assert "Title: 1 launch" in text and "Title, launches with spills: 1 launch" in text
    assert text.index("1 of 1 numbers lie beyond their tolerance: as compiled 1.") > text.index("spills")


def test_numbers_beyond_their_tolerance_are_listed_on_demand() -> None:
    found = [entry(10, 20, "far"), entry(10, 10.1, "near", verdict=WITHIN)]
    assert [line for line in accuracy_text({"T": found}, every=True).splitlines() if LOADS in line] == [
        line for line in accuracy_text({"T": found[:1]}, every=True).splitlines() if LOADS in line]


def test_correlation_needs_three_launches_that_differ() -> None:
    assert correlation([entry(1, 1), entry(2, 2)]) is None
    assert correlation([entry(5, 5)] * 3) is None
    assert correlation([entry(9, 99), entry(99, 999), entry(999, 9999)]) == pytest.approx(1)
    assert correlation([entry(9, 999), entry(99, 99), entry(999, 9)]) == pytest.approx(-1)


def test_zeros_on_both_sides_say_nothing_and_a_twin_shares_little(sample) -> None:
    nothing = next(m.name for m in METRICS if m.kind == "exact" and sample[m.name] == 0)
    counted = {LOADS: sample[LOADS] + 5, FFMA: sample[FFMA], OCCUPANCY: 50.0, nothing: 0}
    card = Measured("sample", None, None, counted)
    found = {e.metric: e for e in entries("sample", sample, card)}
    assert set(found) == {LOADS, FFMA, OCCUPANCY}
    twin = replace(card, header={"backend": "triton"})
    assert [e.metric for e in entries("sample", sample, twin)] == [LOADS]
    assert FFMA not in TWIN


def test_local_sectors_beyond_the_simulated_ones_are_spills(sample) -> None:
    card = Measured("sample", None, None, {LOADS: 5, LOCAL: (sample[LOCAL] or 0) + 1})
    assert {e.spills for e in entries("sample", sample, card)} == {True}
