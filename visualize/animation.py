"""An animation as a figure that changes: one kernel over the whole width, or several side by side.

All panels share the clock, bytes that SMs ask for, and the scale of the counters' bars. The legend says what
is modelled, and how far the picture is a sample: frames sum steps of the replay, tiles sum sectors; bytes
are never left out. What it leaves out: files (visualize/movie.py, visualize/animation_page.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpusim.table import number
from visualize import style
from visualize.film import Film
from visualize.fit import fitted
from visualize.panel import Panel, busy, scales
from visualize.placing import WIDE, column, name_text

MOST_FILMS, LEGEND_HEIGHT = 4, 54
BUSY = "SM with few to all blocks"


class Animation:
    """Draw films into one figure; `show(k)` changes it to frame k, from 0 to frames - 1.

    progress: called with (frames drawn, frames in all) by `pictures`.
    """

    def __init__(self, shown: Sequence[Film],
                 progress: Callable[[int, int], object] = lambda *_: None) -> None:  # fmt: skip
        self.progress = progress
        self.layout = layout = WIDE if len(shown) == 1 else column(shown)
        width, height = layout.width * len(shown), layout.height + LEGEND_HEIGHT
        self.films, self.frames = tuple(shown), shown[0].frames
        inches = width / style.DPI, height / style.DPI
        self.figure = Figure(figsize=inches, dpi=style.DPI, facecolor="white")
        self.canvas = FigureCanvasAgg(self.figure)
        shared = scales(shown, layout)
        high = layout.height / height
        self.panels = [
            Panel(self._axes(k / len(shown), 1 - high, 1 / len(shown), high), film, layout, shared)
            for k, film in enumerate(shown)
        ]
        legend(self._axes(0, 0, 1, 1 - high), width, sample_text(shown))
        self.show(0)

    def _axes(self, *place: float) -> Axes:
        return self.figure.add_axes(place)

    def show(self, k: int) -> None:
        """Change the figure to frame k."""
        for panel in self.panels:
            panel.show(k)

    def pictures(self) -> Iterator[np.ndarray]:
        """Yield every frame as pixels, uint8 (height, width, 3), of one array; only what changes is drawn.
        """
        self.canvas.draw()
        live = np.asarray(self.canvas.buffer_rgba())
        still = live.copy()
        for _, artists in self._parts():
            artists[0].stale = True
        for k in range(self.frames):
            self.progress(k, self.frames)
            self.show(k)
            for place, artists in self._parts():
                if any(artist.stale for artist in artists):
                    live[place] = still[place]
                    for artist in artists:
                        self.figure.draw_artist(artist)
                        artist.stale = False
            yield live[:, :, :3]

    def _parts(self) -> Iterator[tuple[tuple[slice, slice], list[Artist]]]:
        """Yield the parts of all panels, each with its place in the pixels."""
        for k, panel in enumerate(self.panels):
            left = k * self.layout.width
            for box, artists in panel.parts:
                across = slice(int(left + box.x), int(left + box.right))
                yield (slice(int(box.y), int(box.bottom)), across), artists


def legend(ax: Axes, width: int, sample: str) -> None:
    """Draw what colours mean, in one line, and below it what a frame and a tile sum up."""
    ax.set_xlim(0, width)
    ax.set_ylim(LEGEND_HEIGHT, 0)
    ax.set_axis_off()
    accesses = ("read in this frame", "written", "both", "earlier")
    words = [(said, style.ACCESSES[said.split()[0]]) for said in accesses]
    words += [(BUSY, "none"), ("their shared memory", style.LEVELS["shared"])]
    x = 14.0
    for said, colour in [*words, ("modelled*", "#dddddd")]:
        mark = ax.add_patch(Rectangle((x, 8), 12, 10, facecolor=colour, linewidth=0.5))
        if said == "modelled*":
            mark.set(hatch=style.MODELLED_HATCH, edgecolor="#777777")
        for part in range(4 if said == BUSY else 0):  # an SM with a quarter of its blocks to all
            ax.add_patch(Rectangle((x + 3 * part, 8), 3, 10, facecolor=busy((part + 1) / 4), linewidth=0))
        style.verbatim(ax.text(x + 17, 13, said, va="center", fontsize=style.SMALL_POINTS, color=style.INK))
        x += 17 + 6.1 * len(said) + 14
    ax.add_patch(Rectangle((x, 7), 2, 12, facecolor=style.INK))
    ax.text(x + 8, 13, "closed form", va="center", fontsize=style.SMALL_POINTS, color=style.INK)
    figure = ax.get_figure(root=True)
    assert figure is not None
    sample = fitted(figure, sample, width - 28, 2, fontsize=7.5)
    style.verbatim(ax.text(14, 26, sample, va="top", fontsize=7.5, color=style.INK))


def sample_text(shown: Sequence[Film]) -> str:
    """Say what a frame and a tile sum up; a sample where a frame is more than a turn of the replay."""
    most = max(film.turns for film in shown)
    sampled = "Sampled: a" if most >= 2 else "A"
    tiles = [(t.grid.tile_bytes, name_text(t)) for film in shown for t in film.tensors]
    largest, name = max(tiles, default=(0, "no array"))
    rest = sum(film.others for film in shown)
    left_out = f" {rest} arrays with less traffic are not drawn." if rest else ""
    folded = any(t.grid.folded for film in shown for t in film.tensors)
    fold = " Vectors and long rows are folded like lines of text." if folded else ""
    turns = f" (up to {number(most)} turns of the replay)" if most >= 2 else ""
    return (f"{sampled} frame sums {style.quantity(shown[0].frame_bytes, 'B')} of requests{turns}, a tile up "
            f"to {style.quantity(largest, 'B')} ({name}); every byte is counted. The clock is no "
            f"time.{fold}{left_out}")
