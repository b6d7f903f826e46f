"""The summary of a launch: the metric table's numbers, what does not occur left out, the verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpusim.counters import Arithmetic
from gpusim.launch import Check, Launch, Registers
from gpusim.summary import summary, verdicts

Make = Callable[..., Launch]


def rows(launch: Launch) -> dict[str, tuple[object, ...]]:
    """Map the labels of the summary to unit, value and source."""
    return {str(row[0]): row[1:] for row in summary(launch).rows}


def test_each_row_has_value_unit_and_source_of_the_metric_table(make_launch: Make) -> None:
    found = rows(make_launch())
    assert found["DRAM Bytes Read"] == ("byte", 1_536, "modelled")  # 1,024 of data and 512 of code
    assert found["Global Load Sectors Per Request"] == ("sector/request", 4.0, "exact")  # 128 / 32
    assert found["FP32 FLOPs"] == ("FLOP", 2_030, "exact")  # 2 * 1,000 + 20 + 10


def test_kinds_that_do_not_occur_have_no_row_and_zero_bytes_have_one(make_launch: Make) -> None:
    launch = make_launch()
    launch.counters.arithmetic = Arithmetic(dfma=3)
    found = rows(launch)
    assert "FP32 FLOPs" not in found and "Tensor FLOPs" not in found
    assert found["FP64 FLOPs"] == ("FLOP", 6, "exact")
    launch.counters.hierarchy.dram_write_bytes = 0
    assert rows(launch)["DRAM Bytes Written"] == ("byte", 0, "modelled")


def test_what_was_not_counted_is_na_and_not_left_out(make_launch: Make) -> None:
    launch = replace(make_launch(), engine="oracle", registers=Registers(0, "unknown"))
    found = rows(launch)
    assert found["FP32 FLOPs"][1] is None and found["DRAM Bytes Read"][1] is None
    assert found["Theoretical Occupancy"][1] is None


def test_the_verdicts_count_what_is_equal_and_name_what_is_not(make_launch: Make) -> None:
    launch = make_launch(closed_form={"arithmetic.ffma": 1_000, "arithmetic.fadd": 11},
                         checks=(Check("y", 0.5, 1.0), Check("z", float("nan"), 1.0)))
    assert verdicts(launch) == (
        "1 of 2 counters equal the closed form; DIFFERENT: arithmetic.fadd.",
        "1 of 2 outputs within tolerance of the reference; FAILED: z.")
    assert verdicts(make_launch(closed_form={"arithmetic.ffma": 1_000}, checks=())) == (
        "1 of 1 counter equal the closed form.",)
    assert verdicts(make_launch(closed_form={}, checks=())) == ()
