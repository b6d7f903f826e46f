"""One kernel's part of an animation: tensors as tiles, the chip, running counters, and the clock of bytes.

A panel is one set of axes in pixels, y downwards. What does not change is drawn once; `show(k)` changes the
rest to frame k: artists in parts, so that a part without a change need not be drawn again. Tiles light up
where they are read or written in a frame, and stay grey after it. An SM's cell is as dark as its resident
blocks are many, with the share of shared memory that they hold from below. What it leaves out: the frames'
numbers (visualize/film.py), and files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from visualize import style
from visualize.film import Film, Tensor
from visualize.fit import fitted
from visualize.levels import Level
from visualize.panel_words import blocks_text, flow_text, hits_text, now_text, share_text
from visualize.placing import Box, Layout, name_text, placed_tensors, shape_text, side_of

NEVER, EARLIER, READ, WRITTEN, BOTH = range(5)
TILE_COLOURS = ListedColormap(["#ffffff", *(style.ACCESSES[k] for k in ("earlier", "read", "written",
                                                                        "both"))])  # fmt: skip
CELL, CELLS_ACROSS = 12, 12
"""Pixels of an SM's cell, and cells in a row: 132 SMs are 12 x 11."""
IDLE, BUSY, HELD = (np.array(to_rgb(c)) for c in ("#eeeeee", style.LEVELS["threads"], style.LEVELS["shared"]))
BAR, ROW, TRACK, MODELLED_ALPHA = 9, 29, "#f2f2f2", 0.4


@dataclass(frozen=True)
class Scales:
    """Hold what the panels of an animation share: bytes at the right end of bars and of clocks, the rows of
    counters, and the height of tensors in pixels.
    """

    bar_bytes: int
    clock_bytes: int
    rows: tuple[str, ...]
    side: int


def scales(shown: Sequence[Film], layout: Layout) -> Scales:
    """Return the scales of some films; a row of counters is there where a film has bytes in it."""
    every = [level for film in shown for level in film.levels]
    usual = [lv.key for lv in shown[0].levels if not lv.key.endswith("atomic")]
    rows = [lv.key for lv in shown[0].levels
            if lv.key in usual or any(x.nbytes.any() for x in every if x.key == lv.key)]  # fmt: skip
    most = max(max(int(lv.nbytes.sum()), lv.closed_form or 0) for lv in every)
    clock = max(int(film.clock[-1]) for film in shown)
    side = min(side_of(film.tensors, layout.tensors) for film in shown)
    return Scales(max(1, most), max(1, clock), tuple(rows), side)


class Panel:
    """Draw one film into axes: all that stands still at once, then frame after frame."""

    def __init__(self, ax: Axes, film: Film, layout: Layout, shared: Scales) -> None:
        self.film, self.scales, self.ax = film, shared, ax
        self.parts: list[tuple[Box, list[Artist]]] = []
        ax.set_xlim(0, layout.width)
        ax.set_ylim(layout.height, 0)
        ax.set_axis_off()
        bold: dict[str, Any] = {"fontsize": style.TEXT_POINTS, "fontweight": "bold"}
        title = fitted(ax.figure, film.run.title, layout.width - 2 * layout.tensors.x, **bold)
        style.verbatim(ax.text(layout.tensors.x, 14, title, va="center", color=style.INK, **bold))
        self._part(Box(0, 23, layout.width, 16))
        self._now = self._text(layout.tensors.x, 31, "", moving=True)
        self._states = [states(tensor) for tensor in film.tensors]
        placed = placed_tensors(film.tensors, layout.tensors, shared.side)
        self._tiles = [self._tensor(tensor, box) for tensor, box in placed]
        self._chip(layout.chip)
        self._counters(layout.counters)
        self._clock(layout.clock)

    # -------------------------------------------------------------------------------------- drawing once

    def _text(self, x: float, y: float, words: str, size: float = style.SMALL_POINTS, align: str = "left",
              moving: bool = False, **how: Any) -> Any:  # fmt: skip
        made = self.ax.text(x, y, words, ha=align, va="center", fontsize=size, **{"color": style.INK} | how)
        return self._moves(style.verbatim(made)) if moving else style.verbatim(made)

    def _box(self, box: Box, face: str, edge: str = "none", moving: bool = False, **how: Any) -> Rectangle:
        made = Rectangle((box.x, box.y), box.width, box.height, facecolor=face, edgecolor=edge, **how)
        made.set_linewidth(0.8)
        self.ax.add_patch(made)
        return self._moves(made) if moving else made

    def _part(self, box: Box) -> None:
        """Begin a part: what moves from here on lies in this box."""
        self.parts.append((box, []))

    def _moves(self, artist: Any) -> Any:
        artist.set_animated(True)
        self.parts[-1][1].append(artist)
        return artist

    def _image(self, box: Box, pixels: np.ndarray, name: str, **how: Any) -> Any:
        extent = (box.x, box.right, box.bottom, box.y)
        made = self.ax.imshow(pixels, extent=extent, interpolation="nearest", aspect="auto", gid=name, **how)
        return self._moves(made)

    def _tensor(self, tensor: Tensor, box: Box) -> Any:
        grid = tensor.grid
        middle = (box.x + box.right) / 2
        self._text(middle, box.y - 8, name_text(tensor), align="center", weight="bold")
        self._text(middle, box.bottom + 8, shape_text(tensor), size=7, align="center")
        self._box(Box(box.x - 2, box.y - 2, box.width + 4, box.height + 4), "none", "#888888")
        self._part(Box(box.x - 1, box.y - 1, box.width + 2, box.height + 2))
        return self._image(box, np.zeros((grid.down, grid.across)), f"tiles-{tensor.name}", cmap=TILE_COLOURS,
                           vmin=-0.5, vmax=BOTH + 0.5)  # fmt: skip

    def _chip(self, box: Box) -> None:
        """Draw L2 with what goes in and out, and the SMs below."""
        arch = self.film.run.launches[0].arch
        green = style.LEVELS["L2"]
        above, below = box.y + 8, box.y + 74
        self._flows = {"DRAM": self._flow(box.x, above, "DRAM"), "L2": self._flow(box.x, below, "L2")}
        self._box(Box(box.x, box.y + 18, box.width, 44), green + "26", green)
        self._text(box.x + box.width / 2, box.y + 30, f"L2, {arch.l2_bytes >> 20} MB", align="center",
                   weight="bold")  # fmt: skip
        self._part(Box(box.x + 3, box.y + 40, box.width - 6, 16))
        self._hits = self._text(box.x + box.width / 2, box.y + 48, "", size=7.5, align="center", moving=True)
        cells = sm_cells(np.zeros(arch.sm_count), 1, np.zeros(arch.sm_count))
        high, wide = cells.shape[:2]
        self._part(Box(box.x, box.y + 85, box.width, high + 30))
        self._sms = self._image(Box(box.x + 3, box.y + 86, wide, high), cells, "SMs")
        self._blocks = self._text(box.x, box.y + 96 + high, "", size=7.5, moving=True)

    def _flow(self, x: float, y: float, level: str) -> Any:
        self._part(Box(x - 4, y - 8, 166, 16))
        return self._text(x, y, "", size=7.5, moving=True, gid=f"flow-{level}")

    def _counters(self, box: Box) -> None:
        """Draw a row for each kind of traffic: name, bytes so far, share of the closed form, a bar."""
        self._text(box.x, box.y + 2, "Bytes so far", weight="bold")
        self._text(box.right, box.y + 2, "of closed form", align="right")
        self._bars: list[tuple[Level, Rectangle, Any]] = []
        self._width = box.width
        every = {level.key: level for level in self.film.levels}
        for row, key in enumerate(self.scales.rows):
            level, y = every[key], box.y + 22 + ROW * row
            self._text(box.x, y, level.label + ("*" if level.modelled else ""))
            track = Box(box.x, y + 8, box.width, BAR)
            self._box(track, TRACK)
            self._part(Box(box.x + 105, y - 8, box.width - 104, 16))
            value = self._text(box.right, y, "", align="right", moving=True)
            self._part(Box(track.x - 1, track.y - 1, track.width + 3, BAR + 3))
            self._bars.append((level, self._bar(track, level), value))
            if level.closed_form is not None:
                at = track.x + track.width * level.closed_form / self.scales.bar_bytes
                self._box(Box(at - 1, track.y - 1, 2, BAR + 2), style.INK, moving=True)

    def _bar(self, track: Box, level: Level) -> Rectangle:
        colour = style.LEVELS[level.box]
        made = self._box(Box(track.x, track.y, 0, track.height), colour, moving=True, gid=f"bar-{level.key}")
        if level.modelled:
            made.set(facecolor=(colour, MODELLED_ALPHA), edgecolor=colour, hatch=style.MODELLED_HATCH)
        return made

    def _clock(self, box: Box) -> None:
        """Draw the launches along the clock, whose unit is bytes that SMs ask for."""
        self._per_byte = box.width / self.scales.clock_bytes
        line = Box(box.x, box.y + 14, box.width, 14)
        self._box(line, "#f7f7f7", style.FAINT)
        self._text(box.x, box.y + 4, "Clock: bytes that SMs ask for (exact)", size=7.5)
        self._part(Box(box.right - 180, box.y - 4, 182, 16))
        self._done = self._text(box.right, box.y + 4, "", size=7.5, align="right", moving=True)
        self._part(Box(line.x - 2, line.y - 2, line.width + 5, line.height + 5))
        self._passed = self._box(Box(line.x, line.y, 0, line.height), "#9a9a9a", moving=True, gid="clock")
        for section in self.film.sections:
            x, end = (line.x + self._per_byte * at for at in (section.start_bytes, section.end_bytes))
            self._box(Box(x, line.y, end - x, line.height), "none", style.INK, moving=True)
            if end - x > 7 * len(section.name):
                self._text((x + end) / 2, line.y + 7, section.name, size=7.5, align="center", moving=True)
        for at in MaxNLocator(5).tick_values(0, self.scales.clock_bytes):
            if 0 <= at <= self.scales.clock_bytes:
                self._tick(line, at)

    def _tick(self, line: Box, at: float) -> None:
        x = line.x + self._per_byte * at
        self._box(Box(x - 0.5, line.bottom, 1, 3), style.INK)
        align = "left" if at == 0 else "right" if x > line.right - 12 else "center"
        self._text(x, line.bottom + 9, style.quantity(at, "B"), size=7, align=align)

    # -------------------------------------------------------------------------------------- frame by frame

    def show(self, k: int) -> None:
        """Change the panel to frame k."""
        film, section = self.film, self.film.sections[self.film.section[k]]
        for image, state in zip(self._tiles, self._states, strict=True):
            if image.get_array() is None or (image.get_array() != state[k]).any():
                image.set_data(state[k])
        self._now.set_text(now_text(film, k))
        shared = film.resident[k] * section.shared_bytes / film.run.launches[0].arch.shared_bytes_per_sm
        cells = sm_cells(film.resident[k], section.blocks_per_sm, shared)
        if (self._sms.get_array() != cells).any():
            self._sms.set_data(cells)
        self._blocks.set_text(blocks_text(film, k))
        self._hits.set_text(hits_text(film, k))
        for name, text in self._flows.items():
            text.set_text(flow_text(film, name, k))
        for level, bar, value in self._bars:
            so_far = int(level.nbytes[: k + 1].sum())
            _set_width(bar, self._width * so_far / self.scales.bar_bytes)
            value.set_text(share_text(so_far, level.closed_form))
        _set_width(self._passed, self._per_byte * film.clock[k])
        self._done.set_text(f"{style.quantity(int(film.clock[k]), 'B')} of "
                            f"{style.quantity(int(film.clock[-1]), 'B')}")  # fmt: skip


def _set_width(bar: Rectangle, width: float) -> None:
    if bar.get_width() != width:
        bar.set_width(width)


def states(tensor: Tensor) -> np.ndarray:
    """Return what each tile shows in each frame, (frames, down, across): NEVER to BOTH."""
    reads, writes = tensor.reads > 0, tensor.writes > 0
    earlier = np.logical_or.accumulate(reads | writes)
    shown = np.where(earlier, EARLIER, NEVER)
    shown = np.where(reads, READ, shown)
    shown = np.where(writes, np.where(reads, BOTH, WRITTEN), shown)
    return shown.reshape(-1, tensor.grid.down, tensor.grid.across)


def busy(share: float) -> np.ndarray:
    """Return the colour of an SM with a share of the blocks that fit it, three floats from 0 to 1."""
    return IDLE + (BUSY - IDLE) * (0.35 + 0.65 * share if share else 0.0)


def sm_cells(resident: np.ndarray, blocks_per_sm: int, shared: np.ndarray) -> np.ndarray:
    """Return the cells of all SMs as an image, (height, width, 3), floats from 0 to 1.

    resident: blocks of each SM. shared: the share of its shared memory that they hold.
    """
    lines = -(-len(resident) // CELLS_ACROSS)
    image = np.ones((lines, CELL, CELLS_ACROSS, CELL, 3))
    for sm, (blocks, held) in enumerate(zip(resident, shared, strict=True)):
        cell = image[sm // CELLS_ACROSS, :, sm % CELLS_ACROSS]
        cell[:-1, :-1] = busy(blocks / blocks_per_sm)
        high = round(held * (CELL - 1)) if held <= 0 else max(1, round(held * (CELL - 1)))
        cell[CELL - 1 - high : CELL - 1, :-1] = HELD
    return image.reshape(lines * CELL, CELLS_ACROSS * CELL, 3)
