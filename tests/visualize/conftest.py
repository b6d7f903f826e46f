"""Launches to draw, and what a picture holds: its texts, its artists by name, and what lies upon another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any
from unittest.mock import patch

import pytest
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.text import Text

from gpusim.arch import get_arch
from gpusim.counters import Arithmetic, Counters, Hierarchy, SharedCounts, SpaceCounts
from gpusim.launch import Launch, Registers
from gpusim.occupancy import occupancy


def make(**changes: Any) -> Launch:
    """Return a launch of 133 blocks of 64 threads with another number in every counter that is drawn."""
    c = Counters.zero()
    c.global_load = SpaceCounts(lanes=1024, bytes=4096, requests=32, sectors=128)
    c.global_store = SpaceCounts(lanes=512, bytes=2048, requests=16, sectors=64)
    c.shared_load = SharedCounts(lanes=320, bytes=1280, requests=10, wavefronts=320, ideal_wavefronts=10)
    c.shared_store = SharedCounts(lanes=160, bytes=640, requests=5, wavefronts=5, ideal_wavefronts=5)
    c.arithmetic = Arithmetic(fadd=10, fmul=20, ffma=1000)
    c.hierarchy = Hierarchy(l1_load_hits=32, l1_load_misses=96, l2_read=96, l2_write=64, l2_hits=120,
                            l2_misses=40, dram_read_bytes=1024, dram_code_bytes=512, dram_write_bytes=128,
                            dirty_bytes=1920)  # fmt: skip
    arch = get_arch("h200")
    made = Launch("k", (133, 1, 1), (64, 1, 1), arch, Registers(32, "given"), 0, 0, (),
                  occupancy(arch, 64, 32, 0, 0), c)  # fmt: skip
    return replace(made, **changes)


@pytest.fixture
def make_launch() -> Callable[..., Launch]:
    """Return a function that makes a launch; its arguments replace fields of it."""
    return make


def shown_texts(figure: Figure) -> list[Text]:
    """Return the texts that matplotlib draws; ticks beyond the limits of their axis are none of them."""
    found, draw = [], Text.draw

    def noted(text: Text, renderer: Any, *rest: Any) -> None:
        found.append(text)
        draw(text, renderer, *rest)

    with patch.object(Text, "draw", noted):
        figure.canvas.draw()
    return [t for t in dict.fromkeys(found) if t.get_text().strip() and t.get_visible()]


def flaws(figure: Figure) -> Iterator[str]:
    """Yield the texts that lie upon another or are cut by the edge of the figure."""
    boxes = [(t.get_text(), t.get_window_extent()) for t in shown_texts(figure)]
    for text, box in boxes:
        if not (figure.bbox.containsx(box.x0) and figure.bbox.containsx(box.x1)
                and figure.bbox.containsy(box.y0) and figure.bbox.containsy(box.y1)):  # fmt: skip
            yield f"{text!r} is cut"
    for (one, a), (two, b) in combinations(boxes, 2):
        if a.shrunk(0.9, 0.8).overlaps(b.shrunk(0.9, 0.8)):
            yield f"{one!r} lies upon {two!r}"


class Drawn:
    """Hold a drawn figure for assertions: its texts, its artists by name, its flaws."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.texts = [t.get_text() for t in shown_texts(figure)]
        self.flaws = list(flaws(figure))

    def named(self, gid: str) -> Artist:
        """Return the one artist of a name."""
        (found,) = self.figure.findobj(lambda artist: artist.get_gid() == gid)
        return found


@pytest.fixture
def drawn() -> Callable[[Figure], Drawn]:
    """Return a function that draws a figure and returns what it holds."""
    return Drawn
