"""The occupancy chart: its stairs are gpusim.occupancy's answers, its point is the launch."""

from __future__ import annotations

import pytest

from gpusim.errors import BadOption
from gpusim.launch import Registers
from gpusim.occupancy import occupancy
from visualize import occupancy_chart, style
from visualize.run import Run


def margins(point):
    """Return the pixels between the edge of a point and the frame: left, right, below, above."""
    ax, radius = point.axes, point.get_markersize() / 2 * point.get_figure().dpi / 72
    (x, y), frame = ax.transData.transform(point.get_xydata())[0], ax.get_window_extent()
    return x - radius - frame.x0, frame.x1 - x - radius, y - radius - frame.y0, frame.y1 - y - radius


@pytest.mark.parametrize("threads", [32, 1024])
def test_the_point_touches_no_frame_and_the_panels_are_of_one_width(make_launch, drawn, threads):
    arch = make_launch().arch
    edge = make_launch(kernel="k" * 90, block=(threads, 1, 1), registers=Registers(16, "given"),
                       occupancy=occupancy(arch, threads, 16, 0, 0))  # fmt: skip
    picture = drawn(occupancy_chart.figure([edge]))
    for name in ("threads", "registers", "shared"):
        assert min(margins(picture.named(f"{name}-here"))) > 1
    widths = [ax.get_window_extent().width for ax in picture.figure.axes]
    assert max(widths) - min(widths) < 0.1 * min(widths)


def test_the_stairs_are_the_limits_of_the_h200(make_launch, drawn):
    picture = drawn(occupancy_chart.figure([make_launch()]))
    threads = dict(zip(*picture.named("threads-curve").get_data(), strict=True))
    assert (threads[64], threads[128], threads[1024]) == (32, 16, 2)
    registers = dict(zip(*picture.named("registers-curve").get_data(), strict=True))
    assert (registers[32], registers[64], registers[255]) == (32, 16, 4)
    shared = dict(zip(*picture.named("shared-curve").get_data(), strict=True))
    assert (shared[0], shared[65.536], shared[232.448]) == (32, 3, 1)


def test_the_point_is_the_launch(make_launch, drawn):
    picture = drawn(occupancy_chart.figure([make_launch()]))
    for name, x in (("threads", 64), ("registers", 32), ("shared", 0)):
        assert [list(v) for v in picture.named(f"{name}-here").get_data()] == [[x], [32]]
    assert "k\n32 blocks an SM, 100.0 % of its warps, limited by" in "\n".join(picture.texts)
    assert picture.flaws == []


def test_registers_that_are_estimated_are_said_to_be_modelled(make_launch, drawn):
    launch = make_launch(registers=Registers(32, "estimated"))
    figure = occupancy_chart.figure([launch])
    assert "registers estimated (modelled)" in " ".join(drawn(figure).texts)
    assert {c.get_hatch() for ax in figure.axes for c in ax.collections} == {style.MODELLED_HATCH}
    sure = occupancy_chart.figure([make_launch()])
    assert {c.get_hatch() for ax in sure.axes for c in ax.collections} == {None}


def test_every_launch_of_a_run_has_a_row(make_launch, drawn):
    figure = occupancy_chart.figure([Run("two", (make_launch(kernel="_a$"), make_launch())), make_launch()])
    picture = drawn(figure)
    assert len(figure.axes) == 9
    assert any(text.startswith("two: _a$\n") for text in picture.texts) and picture.flaws == []


def test_what_cannot_be_drawn_is_refused(make_launch):
    with pytest.raises(BadOption, match="the registers of k are not known"):
        occupancy_chart.figure([make_launch(registers=Registers(0, "unknown"))])
    with pytest.raises(BadOption, match="7 launches; one picture holds 6"):
        occupancy_chart.figure([make_launch()] * 7)


def test_a_stair_is_filled_by_its_corners():
    assert occupancy_chart.corners([1, 2, 3, 4, 5], [9, 9, 9, 4, 4]) == ([1, 3, 5], [9, 9, 4])
    assert occupancy_chart.corners([1, 2], [9, 4]) == ([1, 2], [9, 4])
