"""The heatmap: how often each part of each tensor is read and written, in sectors of 32 bytes.

A tensor is cut into tiles as in an animation (visualize/tiles.py): its rows by the bytes of a row, a vector
or very long rows folded like lines of text. A tile's colour is the mean number of times that one of its
sectors is asked for, over all launches: exact, before any cache. What it leaves out: which level answers;
arrays that lie apart in memory (views with steps).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from gpusim.errors import BadOption
from gpusim.observer import Place, Site
from gpusim.trace import KIND_SHIFT, LINE_SHIFT, SECTOR_BYTES, Kind
from visualize import style
from visualize.fit import fitted
from visualize.tiles import grid_of

KINDS = {"reads": (Kind.LOAD, Kind.LOAD_L2), "writes": (Kind.STORE, Kind.RED, Kind.ATOM)}
"""Row of the picture -> kinds of records in it."""
MOST_TENSORS = 8
GAP = 30
"""Pixels of a tensor's column that its name does not have."""
COLOURS = LinearSegmentedColormap.from_list("touches", ["#d6edfa", style.LEVELS["L1"], "#0b3a5c"])


class Touches:
    """Be an observer (gpusim/observer.py) that counts how often each sector is read and written.

    counts: "reads" and "writes" -> int64, one number a sector of global memory from address 0 on.
    """

    parts = 1

    def __init__(self) -> None:
        self.counts = {what: np.zeros(0, np.int64) for what in KINDS}

    def begin(self, sites: Sequence[Site], places: Sequence[Place] = ()) -> None:
        """Hear that a launch begins; its arrays are told apart by their addresses."""

    def wave(self, records: np.ndarray, offsets: np.ndarray, sm: np.ndarray,
             turns: Iterator[tuple[np.ndarray, np.ndarray]]) -> None:  # fmt: skip
        """Count the sectors of one wave; the replay itself goes on without being watched."""
        kind = (records >> np.uint64(KIND_SHIFT)) & np.uint64(15)
        for what, kinds in KINDS.items():
            chosen = records[np.isin(kind, kinds)]
            first = 4 * (chosen >> np.uint64(LINE_SHIFT)).astype(np.int64)
            for bit in range(4):
                self._add(what, first[(chosen >> np.uint64(bit)) & np.uint64(1) == 1] + bit)

    def _add(self, what: str, sectors: np.ndarray) -> None:
        more, before = np.bincount(sectors), self.counts[what]
        if len(more) > len(before):
            more, before = before, more
        before[: len(more)] += more
        self.counts[what] = before


@dataclass(frozen=True)
class Tensor:
    """Hold one tensor: name, shape, bytes of an element, and how often each of its sectors was touched."""

    name: str
    shape: tuple[int, ...]
    element_bytes: int
    reads: np.ndarray
    writes: np.ndarray

    def total(self, what: str) -> int:
        """Return the sectors asked for: "reads" or "writes"."""
        return int(getattr(self, what).sum())


@dataclass(frozen=True)
class Touched:
    """Hold the tensors of one problem, and what a picture calls it."""

    title: str
    tensors: tuple[Tensor, ...]


def tensor(touches: Touches, name: str, address: int, shape: tuple[int, ...], element_bytes: int) -> Tensor:
    """Return the tensor at an address (bytes, at the start of a sector) with what was counted there."""
    first = address // SECTOR_BYTES
    sectors = -(-math.prod(shape) * element_bytes // SECTOR_BYTES)
    found = []
    for what in KINDS:
        own = touches.counts[what][first : first + sectors]
        found.append(np.pad(own, (0, sectors - len(own))))
    return Tensor(name, shape, element_bytes, *found)


def tiles(of: Tensor, what: str) -> np.ndarray:
    """Return the mean touches of a sector in each tile, float64 of at most 32 x 32; a tile in which no sector
    begins is NaN."""
    counts = getattr(of, what)
    steps = (of.element_bytes * math.prod(of.shape[i + 1 :]) for i in range(len(of.shape)))
    grid = grid_of(Place(of.name, 0, of.shape, of.element_bytes, tuple(steps)))
    place = grid.tile_of(np.arange(len(counts)))
    held = np.bincount(place, minlength=grid.size)
    touched = np.bincount(place, counts, minlength=grid.size)
    with np.errstate(invalid="ignore"):
        return (touched / held).reshape(grid.down, grid.across)


def figure(shown: Sequence[Touched]) -> Figure:
    """Return two rows of tensors for each problem, reads above writes, on one scale of colours."""
    chosen = [_most_touched(of) for of in shown]
    if not chosen or not all(chosen):
        raise BadOption("heatmap: no access to an array was seen: the kernel has none, or the engine was "
                        "oracle, which has no trace")
    columns = max(map(len, chosen))
    heights = [3.6] * len(shown) + [0.6]
    made = style.new_figure(max(6.0, 1.35 * columns + 0.9), sum(heights))
    *blocks, last = made.subfigures(len(heights), 1, height_ratios=heights)
    wide = made.bbox.width / columns - GAP
    most = max(float(np.nanmax(tiles(t, what))) for own in chosen for t in own for what in KINDS)
    norm = LogNorm(1, max(2.0, most))
    for block, of, own in zip(blocks, shown, chosen, strict=True):
        part = f"The {len(own)} tensors with most traffic" if len(own) < len(_touched(of)) else ""
        style.title(block, of.title, part)
        axes = block.subplots(2, columns, squeeze=False)
        for i, row in enumerate(axes):
            for k, ax in enumerate(row):
                _panel(ax, own[k] if k < len(own) else None, list(KINDS)[i], norm)
                if k < len(own) and i == 0:
                    _name(ax, own[k], wide)
                if k == 0:
                    ax.set_ylabel(list(KINDS)[i], fontsize=style.TEXT_POINTS)
    image = next(ax.images[0] for ax in made.axes if ax.images)
    bar = made.colorbar(image, cax=last.subplots(), orientation="horizontal")
    bar.ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    bar.ax.minorticks_off()
    bar.ax.tick_params(labelsize=style.SMALL_POINTS)
    bar.set_label("Times that a sector of the tile is asked for (mean, exact, log); white: never",
                  fontsize=style.SMALL_POINTS)  # fmt: skip
    return made


def _touched(of: Touched) -> list[Tensor]:
    return [t for t in of.tensors if t.total("reads") or t.total("writes")]


def _most_touched(of: Touched) -> list[Tensor]:
    """Return the tensors that were touched, at most as many as a picture holds, in their order."""
    touched = _touched(of)
    kept = sorted(touched, key=lambda t: -t.total("reads") - t.total("writes"))[:MOST_TENSORS]
    return [t for t in touched if t in kept]


def _name(ax: Axes, of: Tensor, pixels: float) -> None:
    """Write the name and the shape of a tensor above its panel."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    words = [fitted(figure, of.name, pixels, 2, fontsize=style.TEXT_POINTS),
             fitted(figure, " x ".join(map(str, of.shape)), pixels, fontsize=style.TEXT_POINTS)]  # fmt: skip
    style.verbatim(ax.set_title("\n".join(words), fontsize=style.TEXT_POINTS))


def _panel(ax: Axes, of: Tensor | None, what: str, norm: LogNorm) -> None:
    if of is None:
        ax.set_axis_off()
        return
    ax.set_xticks([])
    ax.set_yticks([])
    total = of.total(what)
    ax.set_xlabel(f"{style.quantity(total, '').strip()} sectors", fontsize=style.SMALL_POINTS)
    cells = tiles(of, what)
    ax.set_gid(f"{of.name}-{what}")
    ax.imshow(np.ma.masked_less(np.ma.masked_invalid(cells), 1e-9), cmap=COLOURS, norm=norm, aspect="auto",
              interpolation="nearest")  # fmt: skip
