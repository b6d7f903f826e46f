"""Banks: the wavefronts that one request of each source line needs of each of the 32 shared-memory banks.

A cell is the number of different 4-byte words that the 32 lanes of a full warp ask of a bank, from the
distance between lanes (gpusim.launch.LineAccess): as many passes that bank takes. A row of ones is free of
conflicts. The first lane's word is put in bank 0; another place turns the row. Accesses are as written. What
it leaves out: lines without one distance between lanes (grey); a compiler's merging.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Rectangle

from gpusim.errors import BadOption
from gpusim.launch import Launch, LineAccess
from visualize import style
from visualize.fit import fitted
from visualize.run import Run, as_runs

BANKS, WORD_BYTES, LANES = 32, 4, 32
NAME_PIXELS = 160
"""Of the name of a file, and of that of an array."""
MOST_ROWS = 16
"""Lines of one run in a picture; those with most wavefronts."""
VERBS = {"shared_load": "load", "shared_store": "store", "shared_atom": "atomic", "shared_matrix": "ldmatrix",
         "shared_async": "cp.async"}  # fmt: skip
LANE_STEPS = ("shared_load", "shared_store")
"""Kinds whose passes follow from the words of the lanes alone."""
COLOURS = LinearSegmentedColormap.from_list("banks", ["#fbe0a8", style.LEVELS["shared"], "#7a2e00"])


def words(access: LineAccess) -> np.ndarray | None:
    """Return how many different words a full warp asks of each bank, int64 of shape (32,); None where the
    distance between lanes is not known."""
    if access.step_bytes is None or access.kind not in LANE_STEPS:
        return None
    lane = np.arange(LANES)
    first = lane // access.run_lanes * access.jump_bytes + lane % access.run_lanes * access.step_bytes
    asked = np.unique((first[:, None] + np.arange(access.element_bytes)) // WORD_BYTES)
    return np.bincount(asked % BANKS, minlength=BANKS)


def rows(run: Run) -> list[LineAccess]:
    """Return the shared accesses of a run's launches, equal ones of one line joined, most wavefronts first.

    Raise BadOption where there are none, or the engine does not tell them.
    """
    found: dict[LineAccess, LineAccess] = {}
    for launch in run.launches:
        if not launch.accesses and _touches(launch):
            raise BadOption(f"banks: {run.title} ran on the engine {launch.engine}, which does not tell "
                            "accesses apart (n/a); use --engine compiled")  # fmt: skip
        for a in launch.accesses:
            if a.kind in VERBS:
                key = replace(a, requests=0, lanes=0, taken=0, ideal_wavefronts=None)
                found[key] = found[key].with_counts_of(a) if key in found else a
    if not found:
        raise BadOption(f"banks: {run.title} does not use shared memory; choose another kernel")
    return sorted(found.values(), key=lambda a: -a.taken)


def _touches(launch: Launch) -> bool:
    """Return whether a launch asks for anything in shared memory, or does not tell."""
    c = launch.counters
    parts = (c.shared_load, c.shared_store, c.shared_atom)
    return launch.engine != "compiled" or any(p.requests for p in parts)


def figure(shown: Iterable[Run | Launch]) -> Figure:
    """Return the banks of runs, one below the other, on one scale of colours."""
    runs = as_runs(shown)
    found = [rows(run) for run in runs]
    tables = [sorted(own[:MOST_ROWS], key=lambda a: (a.file, a.line)) for own in found]
    heights = [0.3 * len(table) + 0.75 for table in tables]
    heights[-1] += 0.2  # the numbers and the name of the axis
    made = style.new_figure(10, sum(heights) + 0.7)
    *parts, last = made.subfigures(len(runs) + 1, 1, height_ratios=[*heights, 0.7])
    for part, run, table, own in zip(parts, runs, tables, found, strict=True):
        more = f"{len(table)} of {len(own)} accesses, those with most wavefronts" if own[MOST_ROWS:] else ""
        style.title(part, run.title, more)
        ax = part.subplots()
        _grid(ax, table)
    ax.set_xlabel("Bank (4 bytes wide; the first lane is put at bank 0)", fontsize=style.TEXT_POINTS)
    bar = made.colorbar(ax.images[0], cax=last.subplots(), orientation="horizontal",
                        ticks=[1, 2, 4, 8, 16, 32])  # fmt: skip
    bar.ax.set_xticklabels(["1", "2", "4", "8", "16", "32"], fontsize=style.SMALL_POINTS)
    bar.ax.minorticks_off()
    bar.set_label("Wavefronts of one full request at a bank (exact, log); white: none",
                  fontsize=style.SMALL_POINTS)  # fmt: skip
    return made


def _grid(ax: Axes, table: Sequence[LineAccess]) -> None:
    found = [words(a) for a in table]
    cells = np.array([np.zeros(BANKS) if w is None else w for w in found], float)
    ax.imshow(np.ma.masked_equal(cells, 0), cmap=COLOURS, norm=LogNorm(1, LANES), aspect="auto")
    for i, (access, known) in enumerate(zip(table, found, strict=True)):
        if known is None:
            ax.add_patch(Rectangle((-0.5, i - 0.5), BANKS, 1, facecolor="#eeeeee", linewidth=0))
            ax.text(BANKS / 2 - 0.5, i, "n/a: no one distance between lanes", ha="center", va="center",
                    fontsize=style.SMALL_POINTS, color=style.INK)  # fmt: skip
        style.verbatim(ax.text(BANKS - 0.2, i, cost(access), va="center", fontsize=style.SMALL_POINTS))
    ax.set_xticks([0, 8, 16, 24, 31])
    ax.set_yticks(range(len(table)), [name(ax.figure, a) for a in table], fontsize=style.SMALL_POINTS,
                  parse_math=False)  # fmt: skip
    ax.tick_params(axis="x", labelsize=style.SMALL_POINTS)
    ax.set_yticks(np.arange(0.5, len(table) - 1), minor=True)
    ax.tick_params(which="minor", length=0)
    ax.grid(which="minor", color="white", linewidth=2)


def name(figure: FigureBase, access: LineAccess) -> str:
    """Return what a row is called: file and line, array, kind of access; names are cut to their place."""
    file, array = (fitted(figure, words, NAME_PIXELS, fontsize=style.SMALL_POINTS)
                   for words in (Path(access.file).name, access.array))  # fmt: skip
    return f"{file}:{access.line} {array} {VERBS[access.kind]}"


def cost(access: LineAccess) -> str:
    """Return what stands behind a row: all its wavefronts, and how many are conflicts."""
    more = style.quantity(access.wasted, "").strip()
    conflicts = f"{more} by conflicts" if access.wasted else "no conflicts"
    return f" {style.quantity(access.taken, '').strip()} wavefronts, {conflicts}"
