"""Simulated against measured: every number of recorded launches on logarithmic axes, with bands of error.

A point is one metric of one launch, coloured by the level that it counts at; crosses are of launches whose
threads spilled registers on the card. Percentages are left out, as they have no place on such axes; zeros
stand at the edge. What it leaves out: causes (`validate --all`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from gpusim import metrics
from gpusim.accuracy import Entry
from gpusim.errors import BadOption
from gpusim.table import counted
from visualize import style

BANDS = ((2.0, "#e6e6e6", "within a factor of 2"), (1.1, "#bbbbbb", "within 10 %"))
"""Factor either way, the grey of its band and its name, the widest first."""
PREFIX_LEVELS = (("dram__", "DRAM"), ("lts__", "L2"), ("l1tex__", "L1"))


def level(metric: str) -> str:
    """Return the level of LEVELS that a metric counts at; "threads" for instructions and the rest."""
    if "_shared" in metric:
        return "shared"
    return next((name for prefix, name in PREFIX_LEVELS if metric.startswith(prefix)), "threads")


def points(entries: Sequence[Entry]) -> dict[str, list[tuple[float, float]]]:
    """Return level -> (measured, simulated) of all entries that are no percentages."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in style.LEVELS}
    for e in entries:
        if metrics.find(e.metric).unit != "%":
            found[level(e.metric)].append((e.measured, e.simulated))
    return {name: own for name, own in found.items() if own}


def figure(groups: Mapping[str, Sequence[Entry]]) -> Figure:
    """Return a panel for each group of entries, by its title; raise BadOption where there are none."""
    drawn = {title: own for title, own in groups.items() if points(own)}
    if not drawn:
        raise BadOption("compare: there is no recorded launch to draw")
    made = style.new_figure(5.2 * len(drawn) + 0.6, 5.1)
    parts = made.subfigures(1, len(drawn), squeeze=False)[0]
    for part, (title, entries) in zip(parts, drawn.items(), strict=True):
        _panel(part, title, entries)
    _legend(made, [name for name in style.LEVELS if any(name in points(own) for own in drawn.values())])
    return made


def _panel(part: FigureBase, title: str, entries: Sequence[Entry]) -> None:
    ax = part.subplots()
    every = np.array([p for own in points(entries).values() for p in own])
    edge, high = float(every[every > 0].min()) / 4, float(every.max()) * 4
    line = np.array([edge / 2, high])
    ax.set_xscale("log")
    ax.set_yscale("log")
    for factor, grey, _ in BANDS:
        ax.fill_between(line, line / factor, line * factor, color=grey, linewidth=0)
    for spills in (True, False):
        for name, own in points([e for e in entries if e.spills is spills]).items():
            measured, simulated = np.maximum(np.array(own), edge).T
            ax.plot(measured, simulated, rasterized=True, color=style.LEVELS[name],
                    gid=f"{title}-{name}{'-spills' if spills else ''}", **MARKS[spills])  # fmt: skip
    ax.set_xlim(edge / 2, high)
    ax.set_ylim(edge / 2, high)
    ax.set_aspect("equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())  # of a few launches they lie upon each other
    launches = counted(len({e.launch for e in entries}), "launch")
    style.title(part, title, f"{launches}, {counted(len(every), 'number')}{_zeros(every)}")
    style.axis_labels(ax, "Measured by ncu (each metric's unit, log)", "Simulated (each metric's unit, log)")


def _zeros(every: np.ndarray) -> str:
    """Say how many numbers are 0 on one side alone, if any are."""
    zeros = int((every == 0).any(axis=1).sum())
    return f", {counted(zeros, 'zero')} at the edge" if zeros else ""


SPILLED = "the card spilled registers (not simulated)"
MARKS: dict[bool, dict[str, Any]] = {
    False: {"marker": "o", "linestyle": "", "markersize": 3.5, "alpha": 0.55, "markeredgewidth": 0},
    True: {"marker": "x", "linestyle": "", "markersize": 3, "alpha": 0.5, "markeredgewidth": 0.7}}
"""Whether the launch spilled -> how its numbers are drawn."""
NAMES = {"threads": "instructions and launch", "shared": "shared memory (modelled as compiled)", "L1": "L1",
         "L2": "L2 (modelled)", "DRAM": "DRAM (modelled)"}  # fmt: skip


def _legend(made: Figure, levels: Sequence[str]) -> None:
    marks = [Line2D([], [], color=style.LEVELS[name], marker="o", linestyle="") for name in levels]
    spilled = Line2D([], [], color=style.INK, linestyle="", marker="x", markersize=4)
    bands = [Patch(color=grey) for _, grey, _ in BANDS]
    names = [*(NAMES[name] for name in levels), SPILLED, *(name for *_, name in BANDS)]
    style.legend(made, [*marks, spilled, *bands], names, 2 if len(made.axes) == 1 else 3)
