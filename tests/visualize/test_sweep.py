"""The sweep: its points are the metric at the values of the option."""

from __future__ import annotations

import pytest

from gpusim.counters import SpaceCounts
from gpusim.errors import BadOption
from visualize import sweep
from visualize.run import Run

SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


def at(make_launch, title, n, sectors=128):
    launch = make_launch(options={"N": n, "causal": True})
    launch.counters.global_load = SpaceCounts(sectors * 8, sectors * 32, sectors // 4, sectors)
    return Run(title, (launch,))


def test_a_line_has_the_metric_at_every_value(make_launch, drawn):
    shapes = (("_a$", 512, 400), ("_a$", 128, 100), ("b", 128, 9000))
    runs = [at(make_launch, *shape) for shape in shapes]
    picture = drawn(sweep.figure(runs, "N", SECTORS))
    first, second = picture.named("line-0"), picture.named("line-1")
    assert (list(first.get_xdata()), list(first.get_ydata())) == ([128, 512], [100, 400])
    assert (list(second.get_xdata()), list(second.get_ydata())) == ([128], [9000])
    assert {"_a$", "b", "N (log)", "Global Load Sectors (sector, log)", "128", "512"} <= set(picture.texts)
    assert first.get_linestyle() == "-" and picture.flaws == []


def test_a_modelled_metric_is_dashed_and_says_so(make_launch, drawn):
    picture = drawn(sweep.figure([at(make_launch, "a", n) for n in (1, 2, 3)], "N", "dram__bytes_read.sum"))
    assert picture.named("line-0").get_linestyle() == "--"
    assert "DRAM Bytes Read (byte, modelled)" in picture.texts and "N" in picture.texts


def test_a_sweep_of_zeros_says_so_on_an_axis_up_to_one(make_launch, drawn):
    picture = drawn(sweep.figure([at(make_launch, "a", n, sectors=0) for n in (1, 2, 3)], "N", SECTORS))
    assert "\n0 at every N" in "\n".join(picture.texts)
    low, high = picture.figure.axes[0].get_ylim()
    assert (low, high) == pytest.approx((-0.05, 1.05))
    some = drawn(sweep.figure([at(make_launch, "a", n, sectors=4 * n) for n in (0, 1)], "N", SECTORS))
    assert "0 at every N" not in "\n".join(some.texts)


@pytest.mark.parametrize("sectors", [(0, 0, 0), (0, 4, 8), (4, 5, 6), (4, 400, 40000)])
def test_no_mark_touches_the_frame(make_launch, drawn, sectors):
    runs = [at(make_launch, "a", n, each) for n, each in zip((1, 2, 16), sectors, strict=True)]
    picture = drawn(sweep.figure(runs, "N", SECTORS))
    line, frame = picture.named("line-0"), picture.figure.axes[0].get_window_extent()
    radius = line.get_markersize() / 2 * picture.figure.dpi / 72
    for x, y in line.axes.transData.transform(line.get_xydata()):
        assert min(x - frame.x0, frame.x1 - x, y - frame.y0, frame.y1 - y) > radius + 1
    assert picture.flaws == []


def test_several_launches_are_added_up_and_rates_are_made_of_the_sums(make_launch):
    launch, other = make_launch(options={"N": 1}), make_launch(options={"N": 1})
    other.counters.hierarchy.l1_load_hits = 96
    run = Run("a", (launch, other))
    assert sweep.series([run], "N", SECTORS) == {"a": {1: 256}}
    assert run.value("l1tex__t_sector_hit_rate.pct") == pytest.approx(100 * 128 / 320)


@pytest.mark.parametrize(
    ("over", "metric", "message"),
    [
        ("Br", SECTORS, "a has no number called Br"),
        ("causal", SECTORS, "a has no number called causal"),
        ("N", "sm__cycles_active.avg", "is n/a for a at N=4"),
    ],
)
def test_what_cannot_be_drawn_is_refused(make_launch, over, metric, message):
    with pytest.raises(BadOption, match=message):
        sweep.figure([at(make_launch, "a", 4)], over, metric)


def test_an_occupancy_of_several_launches_is_refused(make_launch):
    with pytest.raises(BadOption, match="a has 2 launches, and launch__occupancy_limit_warps is of one"):
        Run("a", (make_launch(), make_launch())).value("launch__occupancy_limit_warps")
