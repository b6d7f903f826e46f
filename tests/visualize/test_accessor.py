"""`launch.plot` and `reports.plot`: figures from Python, which a notebook shows by itself."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from gpusim.errors import BadOption
from gpusim.reports import Reports


@pytest.mark.slow
def test_each_picture_of_a_launch_is_a_figure_that_shows_itself(make_launch):
    for name in ("memory_chart", "roofline", "occupancy"):
        figure = getattr(make_launch().plot, name)()
        assert isinstance(figure, Figure)
        assert figure._repr_png_().startswith(b"\x89PNG")


def test_several_launches_are_drawn_as_one_under_their_names(make_launch, drawn):
    picture = drawn(Reports([make_launch(), make_launch(kernel="second"), make_launch()]).plot.memory_chart())
    assert "k, second, NVIDIA H200" in picture.texts
    assert "loads 12.3 kB" in picture.texts  # 3 x 128 sectors


def test_pictures_need_a_launch_and_what_they_draw(make_launch):
    with pytest.raises(BadOption, match="there is no launch to draw"):
        _ = Reports().plot
    with pytest.raises(BadOption, match="does not tell accesses apart"):
        make_launch().plot.banks()
    with pytest.raises(BadOption, match="does not tell arrays apart"):
        make_launch().plot.pipeline()
