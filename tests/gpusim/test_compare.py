"""Comparing saved launches: differences and ratios by hand, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpusim import launch_json, metrics
from gpusim.arch import get_arch
from gpusim.compare import compare_launches, comparison
from gpusim.counters import SpaceCounts
from gpusim.errors import BadOption
from gpusim.launch import Launch, Registers
from gpusim.table import counted

Make = Callable[..., Launch]
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


def row(text: str, label: str) -> list[str]:
    """Return the words after a label on its only line."""
    found = [line for line in text.splitlines() if line.startswith(label)]
    assert len(found) == 1
    return found[0][len(label):].split()


def test_a_row_has_baseline_b_difference_and_ratio(make_launch: Make) -> None:
    a, b = make_launch(), make_launch()
    b.counters.global_load = SpaceCounts(lanes=1024, bytes=4096, requests=32, sectors=160)
    text = compare_launches([a], [b], metrics.select([SECTORS]))
    assert row(text, SECTORS) == ["sector", "128", "160", "32", "125.00", "exact"]


def test_less_than_the_baseline_is_a_negative_difference(make_launch: Make) -> None:
    a, b = make_launch(), make_launch()
    b.counters.global_load = SpaceCounts(lanes=1024, bytes=4096, requests=32, sectors=32)
    text = compare_launches([a], [b], metrics.select([SECTORS]))
    assert row(text, SECTORS) == ["sector", "128", "32", "-96", "25.00", "exact"]


def test_a_baseline_of_zero_has_no_ratio(make_launch: Make) -> None:
    a, b = make_launch(), make_launch()
    a.counters.global_load = SpaceCounts()
    text = compare_launches([a], [b], metrics.select([SECTORS]))
    assert row(text, SECTORS) == ["sector", "0", "128", "128", "n/a", "exact"]


def test_a_metric_that_needs_time_is_na_on_both_sides(make_launch: Make) -> None:
    name = "sm__warps_active.avg.pct_of_peak_sustained_active"
    text = compare_launches([make_launch()], [make_launch()], metrics.select([name]))
    assert row(text, name)[1:] == ["n/a", "n/a", "n/a", "n/a", "n/a"]


def test_metrics_that_are_zero_on_both_sides_are_left_out_unless_asked_for(make_launch: Make) -> None:
    other = make_launch()
    other.counters.global_load = SpaceCounts(lanes=1024, bytes=4096, requests=32, sectors=160)
    short = compare_launches([make_launch()], [other])
    whole = compare_launches([make_launch()], [other], every=True)
    assert "Global Load Sectors" in short
    assert "Global Atomic Sectors" not in short
    assert "Global Atomic Sectors" in whole


def test_the_number_of_metrics_that_differ_is_said(make_launch: Make) -> None:
    a, b = make_launch(), make_launch()
    assert re.search(r"^0 of \d+ metrics differ\.$", compare_launches([a], [b]), re.MULTILINE)
    b.counters.barriers = 8
    assert re.search(r"^1 of \d+ metrics differs\.$", compare_launches([a], [b]), re.MULTILINE)


def test_cold_and_warm_caches_are_refused(make_launch: Make) -> None:
    with pytest.raises(BadOption, match="cold caches in A and with warm ones in B"):
        compare_launches([make_launch()], [make_launch(l2="warm")])


def test_two_warm_launches_are_compared(make_launch: Make) -> None:
    assert compare_launches([make_launch(l2="warm")], [make_launch(l2="warm")]).startswith("A: k (133, 1, 1)")


def test_different_gpus_get_a_note_and_equal_ones_none(make_launch: Make) -> None:
    a = make_launch()
    assert "The GPUs differ (NVIDIA H200 and NVIDIA A100" in compare_launches(
        [a], [replace(a, arch=get_arch("a100"))]
    )
    assert "WRN" not in compare_launches([a], [make_launch()])


def test_registers_of_different_origin_get_a_note(make_launch: Make) -> None:
    other = make_launch(registers=Registers(40, "estimated"))
    assert "given in A and estimated in B" in " ".join(compare_launches([make_launch()], [other]).split())


def test_what_the_oracle_does_not_count_is_na_and_no_difference(make_launch: Make) -> None:
    names = ["dram__bytes_read.sum", SECTORS]
    text = compare_launches([make_launch()], [make_launch(engine="oracle")], metrics.select(names))
    assert row(text, names[0]) == ["byte", "1,536", "n/a", "n/a", "n/a", "n/a"]
    assert row(text, SECTORS) == ["sector", "128", "128", "0", "100.00", "exact"]
    assert "B ran on the engine oracle, which does not count arithmetic" in text
    assert "A ran on" not in text
    whole = compare_launches([make_launch()], [make_launch(engine="oracle")])
    assert re.search(r"^0 of \d+ metrics differ\.$", whole, re.MULTILINE)
    judges = compare_launches([make_launch(engine="oracle")], [make_launch(engine="oracle")])
    assert "DRAM Bytes Read" in whole and "DRAM Bytes Read" not in judges


def test_several_launches_are_matched_in_order(make_launch: Make) -> None:
    names = [make_launch(kernel=k) for k in ("scores", "softmax", "values")]
    text = compare_launches(names, names[:2])
    assert [line for line in text.splitlines() if line.startswith("B: ")] == [
        "B: scores (133, 1, 1)x(64, 1, 1), Device NVIDIA H200, CC 9.0",
        "B: softmax (133, 1, 1)x(64, 1, 1), Device NVIDIA H200, CC 9.0",
    ]
    said = "WRN A has 3 launches and B has 2 launches: they are paired in order, and the last one has "
    assert " ".join(text.split()).startswith(f"{said}no partner. A: ")


def test_saved_launches_are_read_back(make_launch: Make, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(launch_json.dump([make_launch()]))
    text = comparison(str(file), str(file), metrics.select([SECTORS]))
    assert row(text, SECTORS) == ["sector", "128", "128", "0", "100.00", "exact"]


def test_a_file_that_is_not_there_or_not_ours_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "b.json"
    other.write_text("[]")
    with pytest.raises(BadOption, match="cannot read"):
        comparison(str(tmp_path / "none.json"), str(other))
    with pytest.raises(BadOption, match="b.json is JSON, but not of this simulator"):
        comparison(str(other), str(other))


def test_files_without_launches_are_refused(make_launch: Make) -> None:
    with pytest.raises(BadOption, match="holds no launch"):
        compare_launches([make_launch()], [])


def test_metrics_that_are_equal_are_listed_only_with_all(make_launch: Make) -> None:
    a, b = make_launch(), make_launch()
    b.counters.barriers = 8
    assert "Section: " not in compare_launches([a], [make_launch()])
    short, whole = compare_launches([a], [b]), compare_launches([a], [b], every=True)
    assert re.findall(r"^Section: (.+)$", short, re.MULTILINE) == ["Instruction Statistics"]
    assert row(short, "Warps At Barriers")[1:] == row(whole, "Warps At Barriers")[1:]
    assert "Global Load Sectors" in whole


def test_different_kernels_are_paired_with_a_warning(make_launch: Make) -> None:
    text = compare_launches([make_launch(kernel="scores")], [make_launch(kernel="copy")])
    assert "WRN   The kernels differ (scores and copy): launches are paired in order" in text


def test_nouns_follow_their_number() -> None:
    assert [counted(n, "launch") for n in (0, 1, 2000)] == ["0 launches", "1 launch", "2,000 launches"]
    assert counted(2, "block") == "2 blocks"
