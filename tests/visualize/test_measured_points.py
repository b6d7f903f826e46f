"""What a card reached on a roofline: FLOPs over bytes and over time of ncu's numbers, hollow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim.errors import BadOption
from gpusim.launch_json import dump
from gpusim.measured import Measured
from visualize import roofline
from visualize.measured_points import TIME, reached
from visualize.run import Run

SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
CARD = {
    TIME: 2_000, SASS.format("ffma"): 900, SASS.format("fadd"): 10, SASS.format("fmul"): 20,
    SECTORS.format("ld"): 100, SECTORS.format("st"): 64, "lts__t_sectors_srcunit_tex.sum": 120,
    "dram__bytes_read.sum": 1_000, "dram__bytes_write.sum": 200,
}  # fmt: skip


def card(**changes):
    return replace(Measured("k", (133, 1, 1), (64, 1, 1), dict(CARD)), **changes)


def without(*names):
    return card(values={name: value for name, value in CARD.items() if name not in names})


def test_a_measured_point_is_flops_over_bytes_at_the_flops_a_second_reached(make_launch):
    found = reached(Run("k", (make_launch(),)), 0, "numba", [card()])
    flops = 2 * 900 + 10 + 20
    assert found.flops_per_second == pytest.approx(flops / 2e-6)
    assert found.intensity == pytest.approx(
        {"L1": flops / (32 * 164), "L2": flops / (32 * 120), "DRAM": flops / 1_200})
    assert (found.run, found.label) == (0, "numba")


def test_several_launches_are_added_up(make_launch):
    found = reached(Run("two", (make_launch(), make_launch())), 0, "numba", [card(), card()])
    assert found.flops_per_second == pytest.approx(2 * 1_830 / 4e-6)
    assert found.intensity["DRAM"] == pytest.approx(1_830 / 1_200)


def test_it_is_drawn_hollow_beside_the_simulated_points(make_launch, drawn):
    run = Run("_k$", (make_launch(),))
    picture = drawn(roofline.figure([run], [reached(run, 0, "numba", [card()])]))
    point = picture.named("0-numba-DRAM")
    assert (point.get_xdata()[0], point.get_ydata()[0]) == pytest.approx((1_830 / 1_200, 1_830 / 2e-6))
    assert point.get_markerfacecolor() == "white" and picture.named("0-DRAM")
    assert {"_k$", "numba"} <= set(picture.texts) and picture.flaws == []
    assert any(text.endswith("hollow: measured") for text in picture.texts)


def test_a_level_that_was_not_measured_has_no_point(make_launch):
    found = reached(Run("k", (make_launch(),)), 0, "a.csv", [without("lts__t_sectors_srcunit_tex.sum")])
    assert sorted(found.intensity) == ["DRAM", "L1"]


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        ([without(TIME)], "a.csv does not tell gpu__time_duration.sum of k; measure it too"),
        ([without(SASS.format("fadd"))], "does not tell smsp__sass_thread_inst_executed_op_fadd"),
        ([without("dram__bytes_write.sum")], "does not tell dram__bytes_write.sum"),
        ([card(), card()], "k has 1 launches and a.csv 2 of that name"),
        ([], "nothing to compare"),
        ([card(header={"card": "NVIDIA H100"})], "on the NVIDIA H200 and measured on the NVIDIA H100"),
        ([card(header={"cache control": "none"})], "simulated with cold caches and measured with warm ones"),
    ],
)
def test_what_was_not_measured_is_never_taken_for_zero(make_launch, cards, message):
    with pytest.raises(BadOption, match=message):
        reached(Run("k", (make_launch(),)), 0, "a.csv", cards)


@pytest.mark.slow
def test_a_saved_launch_is_drawn_like_the_one_that_was_run(make_launch, tmp_path, monkeypatch):
    import cli

    monkeypatch.chdir(tmp_path)
    launch = make_launch(options={"seed": 0, "N": 64})
    (tmp_path / "a.json").write_text(dump([launch]))
    run = cli.saved_run("a.json")
    assert run.launches == (launch,) and run.title == "k N=64 (a.json)"
    for kind in ("memory-chart", "roofline", "occupancy"):
        assert cli.run(["plot", kind, "a.json"]) == 0
        assert (tmp_path / f"{kind}.png").read_bytes().startswith(b"\x89PNG")
