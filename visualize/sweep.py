"""A metric over an option such as N, Br or Bc: one line a kernel.

Solid lines and full marks are exact, dashed lines and hollow marks modelled. What it leaves out: running the
launches, one run for each value; cli.py does (--over).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from gpusim import metrics
from gpusim.errors import BadOption
from visualize import style
from visualize.run import Run, as_runs

Points = dict[float, float | int]
LOG_FROM = 10
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
BESIDE = 0.05
"""Of the height of an axis, above and below its values."""


def series(runs: Iterable[Run], over: str, metric: str) -> dict[str, Points]:
    """Return title -> (value of the option -> value of the metric); runs of one title make one line.

    Raise BadOption for a run without that option, or whose metric is n/a; UnknownName for the metric.
    """
    found: dict[str, Points] = {}
    for run in runs:
        x = run.launches[0].options.get(over)
        if isinstance(x, bool) or not isinstance(x, (int, float)):
            raise BadOption(f"sweep: {run.title} has no number called {over} among its options")
        y = run.value(metric)
        if y is None:
            raise BadOption(f"sweep: {metric} is n/a for {run.title} at {over}={x}; choose another metric")
        found.setdefault(run.title, {})[x] = y
    return {name: dict(sorted(points.items())) for name, points in found.items()}


def figure(shown: Iterable[Run], over: str, metric: str) -> Figure:
    """Return a metric of runs over an option; see `series` for what is refused."""
    runs = as_runs(shown)
    lines = series(runs, over, metric)
    found = metrics.find(metric)
    modelled = any(metrics.kind(x, found) == metrics.MODELLED for run in runs for x in run.launches)
    made = style.new_figure(8, 4)
    ax = made.subplots()
    handles = [_line(ax, points, i, modelled) for i, points in enumerate(lines.values())]
    x_log = _axis(ax, [x for points in lines.values() for x in points], "x")
    y_log = _axis(ax, [y for points in lines.values() for y in points.values()], "y")
    _values(ax, sorted({x for points in lines.values() for x in points}))
    words = [found.unit or "number", *(["modelled"] if modelled else []), *(["log"] if y_log else [])]
    style.axis_labels(ax, f"{over}{' (log)' if x_log else ''}", f"{found.label} ({', '.join(words)})")
    zero = not any(y for points in lines.values() for y in points.values())
    style.title(made, f"{found.name}, {runs[0].launches[0].arch.title}", f"0 at every {over}" if zero else "")
    ax.grid(True, which="major", color="#eeeeee")
    style.legend(made, handles, list(lines))
    return made


def _line(ax: Axes, points: Points, index: int, modelled: bool) -> Line2D:
    colour = style.kernel_colour(index)
    (line,) = ax.plot(list(points), list(points.values()), marker=style.kernel_marker(index), color=colour,
                      linestyle="--" if modelled else "-", markerfacecolor="white" if modelled else colour,
                      gid=f"line-{index}")  # fmt: skip
    return line


def _axis(ax: Axes, values: Sequence[float], axis: str) -> bool:
    """Choose the scale of an axis and its numbers; return whether it is logarithmic."""
    log = min(values) > 0 and max(values) >= LOG_FROM * min(values)
    if axis == "x":
        log = min(values) > 0 and max(values) >= 4 * min(values)
        if log:
            ax.set_xscale("log", base=2)
        return log
    if log:
        ax.set_yscale("log")
    else:
        low, high = min(0, *values), max(0, *values) or 1
        beside = BESIDE * (high - low)  # a mark at 0 does not lie on the frame
        ax.set_ylim(low - beside, high + beside)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: style.quantity(y, "").strip()))
    return log


def _values(ax: Axes, values: Sequence[float]) -> None:
    """Number the x axis at the values that were run, as long as they are few enough to be read."""
    if len(values) <= 12:
        ax.xaxis.set_major_locator(FixedLocator(list(values)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
