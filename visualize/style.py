"""The one visual language of all pictures: a colour a memory level, marks for kernels, modelled is hatched.

Colours are those of Okabe and Ito (levels) and Tol's muted scheme (kernels), which people with any colour
vision tell apart. What it leaves out: what a picture shows, which is each kind's own file. Figures are made
without pyplot: no window, no state that pictures share.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, FigureBase
from matplotlib.text import Text

from visualize.fit import fitted

LEVELS = {
    "threads": "#6b6b6b", "registers": "#7a5c8e", "shared": "#e69f00", "L1": "#56b4e9", "L2": "#009e73",
    "DRAM": "#d55e00"}  # fmt: skip
"""Where data are -> its colour, the same in every picture."""
ACCESSES = {"read": "#0072b2", "written": "#cc79a7", "both": "#222222", "earlier": "#d9d9d9"}
"""What happens to a part of a tensor -> its colour: hues that no level has."""
KERNELS = ("#332288", "#aa4499", "#882255", "#777711", "#117777", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P")
MODELLED_HATCH = "////"
INK, FAINT = "#222222", "#bbbbbb"
TITLE_POINTS, TEXT_POINTS, SMALL_POINTS = 11, 9, 8
DPI = 100
MARGIN, KEY = 8, 62
"""Pixels beside a title, and those that a name in a legend does not have: its mark and the gaps."""
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


class Picture(Figure):
    """Be a figure that a notebook shows by itself, with no pyplot and no magic."""

    def _repr_png_(self) -> bytes:
        """Return the picture as a PNG."""
        out = io.BytesIO()
        self.savefig(out, format="png")
        return out.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, which lays its axes out by itself."""
    figure = Picture(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def kernel_colour(index: int) -> str:
    """Return the colour of the kernel of a number; the first six differ."""
    return KERNELS[index % len(KERNELS)]


def kernel_marker(index: int) -> str:
    """Return the marker of the kernel of a number; the first six differ."""
    return MARKERS[index % len(MARKERS)]


def verbatim(text: Text) -> Text:
    """Let a text be drawn letter by letter: $ begins no formula."""
    text.set_parse_math(False)
    return text


def title(part: FigureBase, text: str, more: str = "") -> Text:
    """Set the title of a figure or of a part of one, on the left, letter by letter, in at most two lines.

    more: what stands below it, in two lines at most, too.
    """
    pixels = part.bbox.width - 2 * MARGIN
    lines = [fitted(part, words, pixels, 2, fontsize=TITLE_POINTS) for words in (text, more) if words]
    made = part.suptitle("\n".join(lines), x=MARGIN / part.bbox.width, ha="left", fontsize=TITLE_POINTS,
                         color=INK)  # fmt: skip
    return verbatim(made)


def axis_labels(ax: Axes, x: str, y: str) -> None:
    """Set the labels of both axes, each with its unit, and the size of the numbers on them."""
    for set_label, text in ((ax.set_xlabel, x), (ax.set_ylabel, y)):
        verbatim(set_label(text, fontsize=TEXT_POINTS))
    ax.tick_params(labelsize=SMALL_POINTS)


def legend(figure: Figure, handles: Sequence[Any], names: Sequence[str], columns: int = 2) -> None:
    """Add a legend below a figure, in one column where a name needs it; the figure grows by its height.

    Names stand as they are (matplotlib drops those that begin with _ otherwise), in at most two lines.
    """
    if not handles:
        return
    wide = figure.bbox.width - 2 * MARGIN
    apart = [fitted(figure, name, wide / columns - KEY, fontsize=SMALL_POINTS) for name in names]
    columns = columns if apart == list(names) else 1
    said = [fitted(figure, name, wide / columns - KEY, 2, fontsize=SMALL_POINTS) for name in names]
    made = figure.legend(handles, ["name"] * len(handles), fontsize=SMALL_POINTS, ncols=columns,
                         loc="outside lower center")  # fmt: skip
    for text, name in zip(made.get_texts(), said, strict=True):
        verbatim(text).set_text(name)
    figure.set_figheight(figure.get_figheight() + made.get_window_extent().height / figure.dpi)


def quantity(value: float | None, unit: str) -> str:
    """Return a number with its unit at three digits and a decimal prefix: "135 MB"; n/a for None."""
    if value is None:
        return "n/a"
    for size, prefix in PREFIXES:
        if abs(value) >= 0.9995 * size:
            return f"{_three_digits(value / size)} {prefix}{unit}"
    return f"{_three_digits(value)} {unit}"


def _three_digits(value: float) -> str:
    if value == int(value) and abs(value) < 1000:
        return f"{int(value)}"
    return f"{value:.{max(0, 2 - (abs(value) >= 9.995) - (abs(value) >= 99.95))}f}"
