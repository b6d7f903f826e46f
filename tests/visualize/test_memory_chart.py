"""The memory chart: its graph has the counters, its arrows and words have the graph."""

from __future__ import annotations

import pytest

from gpusim.counters import SpaceCounts
from visualize import memory_chart, style
from visualize.run import Run


def edges(graph):
    return {(s, t, k): e["bytes"] for s, t, k, e in graph.edges(keys=True, data=True)}


def test_the_edges_are_the_counters_in_bytes(make_launch):
    assert edges(memory_chart.traffic(make_launch())) == {
        ("L1", "threads", "read"): 32 * 128, ("threads", "L1", "write"): 32 * 64,
        ("L2", "L1", "read"): 32 * 96, ("L1", "L2", "write"): 32 * 64,
        ("DRAM", "L2", "read"): 1024 + 512, ("L2", "DRAM", "write"): 128,
        ("shared", "threads", "read"): 1280, ("threads", "shared", "write"): 640,
    }  # fmt: skip


def test_only_what_caches_decide_is_modelled(make_launch):
    graph = memory_chart.traffic(make_launch())
    assert {(s, t) for s, t, modelled in graph.edges(data="modelled") if modelled} == {
        ("L2", "L1"), ("DRAM", "L2"), ("L2", "DRAM")}  # fmt: skip


def test_atomics_have_edges_where_there_are_some(make_launch):
    launch = make_launch()
    launch.counters.global_red = SpaceCounts(lanes=32, bytes=128, requests=1, sectors=7)
    launch.counters.hierarchy.l2_red = 7
    found = edges(memory_chart.traffic(launch))
    assert found["threads", "L1", "atomic"] == found["L1", "L2", "atomic"] == 32 * 7


def test_arrows_and_words_say_the_numbers(make_launch, drawn):
    picture = drawn(memory_chart.figure([make_launch()]))
    for text in ("k, NVIDIA H200", "loads 4.10 kB", "stores 2.05 kB", "loads 3.07 kB", "loads 1.54 kB",
                 "stores 128 B", "loads 1.28 kB", "stores 640 B", "25.00 %", "75.00 %", "1.92 kB",
                 "133 blocks", "2.03 kFLOP", "loads: code 512 B", "325 wavefronts",
                 "310 by conflicts"):  # fmt: skip
        assert text in picture.texts
    assert picture.flaws == []
    assert picture.named("DRAM-L2-read").get_hatch() == style.MODELLED_HATCH
    assert picture.named("L1-threads-read").get_hatch() is None


def width(arrow):
    """Return the width of an arrow's shaft: the second smallest of its heights."""
    heights = sorted({round(float(y), 9) for _, y in arrow.get_xy()})
    return heights[-2] - heights[1]


def test_an_arrow_is_as_wide_as_its_bytes(make_launch, drawn):
    picture = drawn(memory_chart.figure([make_launch()]))
    most, half = width(picture.named("L1-threads-read")), width(picture.named("threads-L1-write"))
    assert most == pytest.approx(memory_chart.WIDEST)
    assert half == pytest.approx(memory_chart.WIDEST / 2)


def test_the_launches_of_a_kernel_are_added_up(make_launch, drawn):
    picture = drawn(memory_chart.figure([Run("both", (make_launch(), make_launch())), make_launch()]))
    assert {"loads 8.19 kB", "loads 4.10 kB", "2 launches", "266 blocks", "3.84 kB"} <= set(picture.texts)
    assert picture.flaws == []


def test_dirty_bytes_of_warm_launches_are_not_added_up(make_launch):
    run = Run("both", (make_launch(l2="warm"), make_launch(l2="warm")))
    assert run.total.counters.hierarchy.dirty_bytes == 1920


def test_loads_of_dram_are_data_and_code_of_all_launches(make_launch, drawn):
    run = Run("both", (make_launch(), make_launch()))
    picture = drawn(memory_chart.figure([run]))
    assert edges(memory_chart.traffic(run.total))["DRAM", "L2", "read"] == 2 * (1024 + 512)
    assert {"loads 3.07 kB", "loads: code 1.02 kB"} <= set(picture.texts)
    counted = drawn(memory_chart.figure([make_launch(engine="oracle")])).texts
    assert not any(text.startswith("loads: code") for text in counted)


def test_stores_of_dram_are_the_launches_own_and_others(make_launch, drawn):
    launch = make_launch()
    assert not any(text.startswith("stores:") for text in drawn(memory_chart.figure([launch])).texts)
    launch.counters.hierarchy.dram_found_bytes = 7_200_000
    assert edges(memory_chart.traffic(launch))["L2", "DRAM", "write"] == 128 + 7_200_000
    assert "stores: others' 7.20 MB" in drawn(memory_chart.figure([launch])).texts


def test_what_was_not_counted_is_na_and_never_0(make_launch, drawn):
    launch = make_launch(engine="oracle")
    picture = drawn(memory_chart.figure([launch]))
    assert edges(memory_chart.traffic(launch))["DRAM", "L2", "read"] is None
    assert picture.texts.count("loads n/a") == 2 and picture.texts.count("stores n/a") == 2
    assert "loads 4.10 kB" in picture.texts and "25.00 %" not in picture.texts
    assert picture.flaws == []


@pytest.mark.parametrize("name", ["_private", "a$b$c", "<lambda>", "x_{i}^2 & <b>"])
def test_names_are_drawn_letter_by_letter(make_launch, drawn, name):
    picture = drawn(memory_chart.figure([make_launch(kernel=name)]))
    text = next(t for t in picture.figure.findobj(lambda a: hasattr(a, "get_text")) if name in t.get_text())
    assert not text.get_parse_math()
