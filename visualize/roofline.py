"""The roofline: FLOPs a byte at L1, L2 and DRAM under the roofs of arithmetic and bandwidth.

A kernel's three points lie at one height, the FLOP/s that the lowest roof over it allows: a bound from peak
rates, no time is claimed. The sums are those of the report's section (gpusim/sections.py). A GPU whose L2
bandwidth is not known has no roof of L2. What a card reached may stand beside it, hollow. What it leaves out:
sustained peaks, shared memory's bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gpusim.arch import Arch
from gpusim.errors import BadOption
from gpusim.launch import Launch
from gpusim.sections import bytes_by_level, compute_roof, memory_roofs
from visualize import style
from visualize.fit import fitted
from visualize.measured_points import Reached
from visualize.run import Run, as_runs, need

POINTS = {"L1": 14, "L2": 10, "DRAM": 6}
"""Level -> size of its mark."""
LABEL_PIXELS = 150
"""Of the name of a measurement."""


@dataclass(frozen=True)
class Placed:
    """Hold a run's place: FLOP/byte by level (levels with traffic alone), attainable FLOP/s, its roof."""

    intensity: dict[str, float]
    flops_per_second: float
    precision: str
    peak: int


def does_flops(run: Run) -> bool:
    """Return whether a run does a floating-point operation."""
    return compute_roof(run.total)[0] > 0


def place(run: Run) -> Placed:
    """Return where a run lies; raise BadOption for one without a FLOP, which has no place on log axes."""
    total, precision, peak = compute_roof(run.total)
    if not total:
        raise BadOption(f"roofline: {run.title} does no floating-point operation; choose another kernel")
    moved = bytes_by_level(run.total.counters)
    intensity = {level: total / nbytes for level, nbytes in moved.items() if nbytes}
    roofs = memory_roofs(run.total.arch)
    bounds = [peak, *(intensity[level] * rate for level, rate in roofs.items() if level in intensity)]
    return Placed(intensity, min(bounds), precision, peak)


def figure(shown: Iterable[Run | Launch], measured: Sequence[Reached] = ()) -> Figure:
    """Return the roofline of runs on one GPU, and what a card reached with some of them.

    A run without a FLOP has no place on logarithmic axes: it is left out, and the title names it. Raise
    BadOption for two GPUs, n/a counters and no FLOPs at all.
    """
    runs = as_runs(shown)
    need(runs, "roofline", "arithmetic", "hierarchy")
    arch = runs[0].total.arch
    if any(run.total.arch != arch for run in runs):
        raise BadOption("roofline: the launches ran on different GPUs; draw one GPU at a time")
    without = [run for run in runs if not does_flops(run)]
    drawn = {i: place(run) for i, run in enumerate(runs) if len(without) == len(runs) or does_flops(run)}
    places = list(drawn.values())
    made = style.new_figure(8, 4.2)
    ax = made.subplots()
    ax.set_xscale("log")
    ax.set_yscale("log")
    low, high = _extent([*places, *measured], _ridges(places, arch))
    _roofs(ax, arch, places, low, high)
    handles = [_run(ax, at, i) for i, at in drawn.items()]
    for at in measured:
        _reached(ax, at)
    ax.set_xlim(low, high)
    top = max(p.peak for p in places)
    ax.set_ylim(min(top / 300, *(p.flops_per_second / 5 for p in (*places, *measured))), 4 * top)
    hollow = "; hollow: measured" if measured else ", not times"
    left_out = f"Without a floating-point operation, and so left out: {', '.join(r.title for r in without)}"
    style.title(made, f"Roofline, {arch.title}: bounds from peak rates{hollow}", left_out if without else "")
    style.axis_labels(ax, "Arithmetic intensity (FLOP/byte, log; at L2 and DRAM modelled)",
                      "FLOP/s (log): attainable; measured" if measured else "Attainable FLOP/s (log)")
    ax.grid(True, which="major", color="#eeeeee")
    ax.set_axisbelow(True)
    _legend(made, arch, handles, [runs[i].title for i in drawn])
    return made


def _ridges(places: Sequence[Placed], arch: Arch) -> list[float]:
    return [p.peak / rate for p in places for rate in memory_roofs(arch).values()]


def _extent(drawn: Sequence[Placed | Reached], ridges: Sequence[float]) -> tuple[float, float]:
    found = [*ridges, *(x for at in drawn for x in at.intensity.values())]
    return min(found) / 4, max(found) * 6


def _roofs(ax: Axes, arch: Arch, places: Sequence[Placed], low: float, high: float) -> None:
    """Draw the bandwidths up to the highest peak, and the peak of each precision in use."""
    peaks = {p.precision: p.peak for p in places}
    top = max(peaks.values())
    for level, rate in memory_roofs(arch).items():
        ax.plot([low, top / rate], [low * rate, top], color=style.LEVELS[level], linewidth=1.8,
                gid=f"roof-{level}")  # fmt: skip
    for precision, peak in peaks.items():
        first = peak / memory_roofs(arch)["L1"]
        ax.plot([first, high], [peak, peak], color=style.INK, linewidth=1.8, gid=f"roof-{precision}")
        ax.annotate(f"{precision} peak, {style.quantity(peak, 'FLOP/s')}", (high, peak), xytext=(-4, 8),
                    textcoords="offset points", ha="right", va="bottom", fontsize=style.SMALL_POINTS,
                    color=style.INK)  # fmt: skip


def _run(ax: Axes, at: Placed, index: int) -> Line2D:
    """Draw the points of a run, coloured by level and shaped by kernel, on a line; return its legend key.

    Points farther from the threads are smaller, so that all of those at one place are seen.
    """
    colour, marker = style.kernel_colour(index), style.kernel_marker(index)
    ax.plot(list(at.intensity.values()), [at.flops_per_second] * len(at.intensity), color=colour,
            linewidth=1, linestyle=":", zorder=2)  # fmt: skip
    for level, intensity in at.intensity.items():
        ax.plot([intensity], [at.flops_per_second], marker, markersize=POINTS[level],
                color=style.LEVELS[level], markeredgecolor=colour, markeredgewidth=1.3, zorder=3,
                gid=f"{index}-{level}")  # fmt: skip
    return Line2D([], [], color=colour, marker=marker, linestyle=":", markerfacecolor="white", markersize=8)


def _reached(ax: Axes, at: Reached) -> None:
    """Draw what a card reached, shaped by kernel, hollow, on a full line, with its label below."""
    colour, marker = style.kernel_colour(at.run), style.kernel_marker(at.run)
    ax.plot(list(at.intensity.values()), [at.flops_per_second] * len(at.intensity), color=colour, linewidth=1,
            zorder=2)  # fmt: skip
    for level, intensity in at.intensity.items():
        ax.plot([intensity], [at.flops_per_second], marker, markersize=POINTS[level], markerfacecolor="white",
                markeredgecolor=style.LEVELS[level], markeredgewidth=2, zorder=3,
                gid=f"{at.run}-{at.label}-{level}")  # fmt: skip
    label = fitted(ax.figure, at.label, LABEL_PIXELS, fontsize=style.SMALL_POINTS)
    style.verbatim(ax.annotate(label, (min(at.intensity.values()), at.flops_per_second), xytext=(0, -10),
                               textcoords="offset points", ha="center", va="top", color=style.INK,
                               fontsize=style.SMALL_POINTS))  # fmt: skip


def _legend(made: Figure, arch: Arch, handles: list[Line2D], titles: list[str]) -> None:
    rates = memory_roofs(arch)
    levels = [
        Line2D([], [], color=style.LEVELS[x], marker="o", linestyle="-" if x in rates else "", markersize=7)
        for x in POINTS
    ]
    names = [f"{x}, {style.quantity(rates[x], 'B/s')}" if x in rates else f"{x}, bandwidth not known"
             for x in POINTS]  # fmt: skip
    style.legend(made, [*handles, *levels], [*titles, *names], 1 if len(titles) == 1 else 2)
