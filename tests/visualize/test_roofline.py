"""The roofline: its points are FLOPs over the counters' bytes, its roofs are the GPU's peaks."""

from __future__ import annotations

import pytest

from gpusim.arch import get_arch
from gpusim.counters import Arithmetic
from gpusim.errors import BadOption
from gpusim.occupancy import occupancy
from visualize import roofline, style
from visualize.run import Run

FLOPS = 2 * 1000 + 10 + 20
BYTES = {"L1": 32 * (128 + 64), "L2": 32 * (96 + 64), "DRAM": 1024 + 512 + 128}


def test_the_points_are_flops_over_bytes_at_the_height_of_the_lowest_roof(make_launch, drawn):
    picture = drawn(roofline.figure([make_launch()]))
    h200 = get_arch("h200")
    rates = {"DRAM": 4.8e12, "L2": 94 * 64 * 1.71e9, "L1": 132 * 128 * h200.sm_clock_hz}
    lowest = min(FLOPS / BYTES[level] * rate for level, rate in rates.items())
    for level, nbytes in BYTES.items():
        point = picture.named(f"0-{level}")
        assert point.get_xdata()[0] == pytest.approx(FLOPS / nbytes)
        assert point.get_ydata()[0] == pytest.approx(lowest)
        assert point.get_color() == style.LEVELS[level]
    assert picture.flaws == []


def test_the_roofs_are_the_peaks_of_the_gpu(make_launch, drawn):
    picture = drawn(roofline.figure([make_launch()]))
    x, y = picture.named("roof-DRAM").get_data()
    assert [b / a for a, b in zip(x, y, strict=True)] == pytest.approx([4.8e12, 4.8e12])
    assert set(picture.named("roof-32-bit").get_ydata()) == {get_arch("h200").fp32_flops_per_second}
    assert "DRAM, 4.80 TB/s" in picture.texts


def test_l2_has_a_roof_where_its_bandwidth_is_known(make_launch, drawn):
    picture = drawn(roofline.figure([make_launch()]))
    x, y = picture.named("roof-L2").get_data()
    assert [b / a for a, b in zip(x, y, strict=True)] == pytest.approx([94 * 64 * 1.71e9] * 2)
    h100 = get_arch("h100")
    picture = drawn(roofline.figure([make_launch(arch=h100, occupancy=occupancy(h100, 64, 32, 0, 0))]))
    assert not picture.figure.findobj(lambda artist: artist.get_gid() == "roof-L2")
    assert "L2, bandwidth not known" in picture.texts and picture.flaws == []


def test_a_run_without_flops_is_left_out_and_named(make_launch, drawn):
    copy = make_launch(kernel="_copy$")
    copy.counters.arithmetic = Arithmetic()
    picture = drawn(roofline.figure([copy, make_launch(kernel="other")]))
    assert "\nWithout a floating-point operation, and so left out: _copy$" in "".join(picture.texts)
    assert "other" in picture.texts and picture.flaws == []
    assert picture.named("1-L1").get_marker() == style.kernel_marker(1)  # as in another picture of both
    assert not picture.figure.findobj(lambda artist: artist.get_gid() == "0-L1")
    with pytest.raises(BadOption, match=r"_copy\$ does no floating-point operation; choose another kernel"):
        roofline.figure([copy, copy])


def test_kernels_of_two_precisions_have_a_roof_each(make_launch, drawn):
    double = make_launch(kernel="_double$")
    double.counters.arithmetic = Arithmetic(dfma=500)
    picture = drawn(roofline.figure([make_launch(), double]))
    assert set(picture.named("roof-64-bit").get_ydata()) == {get_arch("h200").fp64_flops_per_second}
    assert picture.named("1-L1").get_xdata()[0] == pytest.approx(1000 / BYTES["L1"])
    assert "_double$" in picture.texts and picture.flaws == []


def test_a_launch_without_flops_is_refused(make_launch):
    idle = make_launch(kernel="copy")
    idle.counters.arithmetic = Arithmetic()
    with pytest.raises(BadOption, match="copy does no floating-point operation"):
        roofline.figure([idle])


def test_counters_that_are_not_there_are_named(make_launch):
    with pytest.raises(BadOption, match="k ran on the engine oracle, which does not count arith"):
        roofline.figure([make_launch(engine="oracle")])


def test_two_gpus_are_refused(make_launch):
    a100 = get_arch("a100")
    with pytest.raises(BadOption, match="one GPU at a time"):
        roofline.figure([make_launch(), make_launch(arch=a100, occupancy=occupancy(a100, 64, 32, 0, 0))])


def test_no_launch_is_refused():
    with pytest.raises(BadOption, match="no launch to draw"):
        roofline.figure([])


def test_long_titles_have_a_column_of_their_own(make_launch, drawn):
    runs = [Run(f"{name} {'an_option=1 ' * 7}", (make_launch(),)) for name in ("one", "two")]
    assert drawn(roofline.figure(runs)).flaws == []
