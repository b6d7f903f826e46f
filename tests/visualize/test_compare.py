"""Simulated against measured: its points are the entries."""

from __future__ import annotations

import pytest

from gpusim.accuracy import Entry
from gpusim.errors import BadOption
from visualize import compare, style


def entry(metric, simulated, measured, spills=False):
    return Entry("a", metric, simulated, measured, "exact", "equal", "", spills)


ENTRIES = [
    entry("dram__bytes_read.sum", 1000, 1100),
    entry("lts__t_sectors_srcunit_tex.sum", 64, 60),
    entry("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 128, 128),
    entry("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", 0, 40, spills=True),
    entry("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", 7, 7),
    entry("l1tex__t_sector_hit_rate.pct", 50, 60),
    entry("launch__grid_size", 12, 12),
]


def test_a_point_is_an_entry_at_its_level(drawn):
    picture = drawn(compare.figure({"_same$": ENTRIES}))
    for level, measured, simulated in (("DRAM", 1100, 1000), ("L2", 60, 64), ("L1", 128, 128),
                                       ("shared", 7, 7), ("threads", 12, 12)):  # fmt: skip
        points = picture.named(f"_same$-{level}")
        assert [list(v) for v in points.get_data()] == [[measured], [simulated]]
        assert points.get_color() == style.LEVELS[level]
    assert "_same$\n1 launch, 6 numbers, 1 zero at the edge" in "\n".join(picture.texts)
    assert picture.flaws == []


def test_a_zero_stands_at_the_edge_and_a_spill_is_a_cross(drawn):
    points = drawn(compare.figure({"same": ENTRIES})).named("same-L1-spills")
    assert [list(v) for v in points.get_data()] == [[40], [7 / 4]]
    assert points.get_marker() == "x"


def test_two_groups_are_two_panels(drawn):
    figure = compare.figure({"The same source through numba-cuda": ENTRIES, "twins": ENTRIES[:2], "none": []})
    assert len(figure.axes) == 2 and drawn(figure).flaws == []


def test_nothing_to_draw_is_refused():
    with pytest.raises(BadOption, match="no recorded launch"):
        compare.figure({"same": [ENTRIES[5]]})
