"""Names that a user chose fit every picture: broken, then cut, and nothing lies upon another or leaves it."""

from __future__ import annotations

import pytest

from gpusim.accuracy import Entry
from gpusim.launch import LineAccess
from gpusim.trace import Kind, pack
from tests.visualize.test_heatmap import seen
from visualize import banks, compare, heatmap, memory_chart, occupancy_chart, pipeline, roofline, style, sweep
from visualize.fit import fitted
from visualize.measured_points import Reached
from visualize.run import Run

LONG = "kernel_of_a_very_long_name " + " ".join(f"arg{i}=float32[1024,1024]=randn" for i in range(12))
WORD = "W" * 150
NAMES = [LONG, WORD, "_$a_{$" + WORD]


@pytest.fixture
def figure():
    return style.new_figure(4, 1)


def width(figure, words):
    return figure.text(0, 0, words, fontsize=9).get_window_extent().width


def test_what_fits_stays_as_it_is(figure):
    assert fitted(figure, "vec_add n=1000", 300, fontsize=9) == "vec_add n=1000"
    assert fitted(figure, "", 300, 2, fontsize=9) == ""


def test_a_line_ends_behind_a_space_or_a_sign(figure):
    words = "first_part of=it"
    assert fitted(figure, words, width(figure, "first_part "), 2, fontsize=9) == "first_part\nof=it"
    assert fitted(figure, words, width(figure, "first_pa"), 3, fontsize=9) == "first_\npart\nof=it"


def test_a_word_without_a_line_of_its_own_is_broken_anywhere(figure):
    assert fitted(figure, "mmmmmm", width(figure, "mmmm"), 2, fontsize=9) == "mmmm\nmm"


def test_the_end_is_cut_where_the_lines_are_too_many(figure):
    assert fitted(figure, "mmmmmmmm", width(figure, "mmm..."), fontsize=9) == "mmm..."
    assert fitted(figure, "mm mm mm mm", width(figure, "mm mm"), 2, fontsize=9).startswith("mm mm\nm")


@pytest.fixture
def launch(make_launch):
    def access(kind, array):
        return LineAccess(f"/a/{WORD}.py", 12345, kind, array, 4, requests=9, lanes=288, taken=9,
                          ideal_wavefronts=9, step_bytes=4)  # fmt: skip

    def made(name):
        return make_launch(kernel=name, options={"N": 64}, accesses=(
            access("global_load", name), access("global_load", "x"), access("global_store", "y" + name),
            access("shared_load", name), access("shared_store", name)))  # fmt: skip

    return made


def of_heatmap(runs):
    touches = seen(pack(0, 0b1111, Kind.LOAD), pack(2, 0b0001, Kind.STORE))
    tensors = [heatmap.tensor(touches, f"{i}{runs[0].title}", 256 * (i % 2), (2, 1, 1, 1, 1, 1, 8), 4)
               for i in range(8)]  # fmt: skip
    return heatmap.figure([heatmap.Touched(run.title, tuple(tensors)) for run in runs])


def of_compare(runs):
    entry = Entry("a", "dram__bytes_read.sum", 1000, 1100, "exact", "equal", "", False)
    return compare.figure({f"{i}{run.title}": [entry] for i, run in enumerate(runs)})


def measured(runs):
    return [Reached(0, runs[0].title, {"L1": 1e-3, "L2": 2.0}, 1e9)]


KINDS = {
    "memory-chart": memory_chart.figure,
    "roofline": roofline.figure,
    "roofline, measured": lambda runs: roofline.figure(runs, measured(runs)),
    "occupancy": occupancy_chart.figure,
    "sweep": lambda runs: sweep.figure(runs, "N", "dram__bytes_read.sum"),
    "pipeline": pipeline.figure,
    "banks": banks.figure,
    "heatmap": of_heatmap,
    "compare": of_compare,
}


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
@pytest.mark.parametrize("name", NAMES, ids=["words", "a word", "signs"])
@pytest.mark.parametrize("kind", KINDS)
def test_long_names_stay_inside_every_kind_of_picture(launch, drawn, kind, name, several):
    runs = [Run(f"{k}{name}", (launch(name), launch(name))) for k in ("", "b")]
    runs = runs if several else [Run(name, (launch(name),))]
    picture = drawn(KINDS[kind](runs))
    assert picture.flaws == []
    assert any("..." in text for text in picture.texts)


def test_a_legend_makes_its_figure_higher_by_its_own_height():
    few, many = (roofline_of(n) for n in (1, 12))
    axes = [figure.axes[0].get_window_extent().height for figure in (few, many) if not figure.canvas.draw()]
    assert axes[1] == pytest.approx(axes[0], rel=0.1)


def roofline_of(n):
    from tests.visualize.conftest import make

    return roofline.figure([Run(f"{i} {LONG}", (make(),)) for i in range(n)])
