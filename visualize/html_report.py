"""A report as one HTML page that needs nothing beside it: sections, pictures as SVG, light and dark, print.

Numbers are those of the text report, pictures those of `plot`; several launches get a section each and their
total before. A picture that a launch has no numbers for is one sentence. What it leaves out: scripts, and
anything that would be loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from gpusim.errors import BadOption
from gpusim.launch import Launch
from gpusim.report import pipeline, pipeline_note
from gpusim.report_html import environment
from visualize import memory_chart, occupancy_chart, roofline, style
from visualize.inline_svg import inline
from visualize.run import Run

MOST_DRAWN = 12
"""Launches that get pictures of their own; a page of hundreds would take minutes and many megabytes."""


@dataclass(frozen=True)
class Chart:
    """Hold one picture of a page: its caption, and the svg, or why there is none."""

    caption: str
    svg: Markup = Markup()
    refusal: str = ""


@dataclass(frozen=True)
class Kind:
    """Hold a kind of picture: its figure, what it says in words, and its caption."""

    figure: Callable[[Sequence[Run]], Figure]
    words: Callable[[Run], str]
    caption: str


def memory_words(run: Run) -> str:
    """Return the arrows of a run's memory chart in words."""
    edges = memory_chart.traffic(run.total).edges(keys=True, data=True)
    code = run.total.counters.hierarchy.dram_code_bytes
    part = f"; {style.quantity(code, 'B')} of the loads of DRAM are code" if code else ""
    moved = (f"{source} to {target}, {memory_chart.VERBS[kind]} {style.quantity(edge['bytes'], 'B')}"
             f"{' (modelled)' if edge['modelled'] else ''}" for source, target, kind, edge in edges)
    return "; ".join(moved) + part


def roofline_words(run: Run) -> str:
    """Return the place of a run under the roofs in words."""
    at = roofline.place(run)
    levels = (f"{level} {intensity:.3g} FLOP/byte{'' if level == 'L1' else ' (modelled)'}"
              for level, intensity in at.intensity.items())
    return f"{', '.join(levels)}; attainable {style.quantity(at.flops_per_second, 'FLOP/s')}"


def occupancy_words(run: Run) -> str:
    """Return the occupancy of a run's one launch in words."""
    return ": ".join(occupancy_chart.heading(run, run.launches[0]))


KINDS = {
    "MemoryWorkloadAnalysis": Kind(memory_chart.figure, memory_words,
                                   "Memory chart: what moves between the levels; hatched is modelled."),
    "SpeedOfLight_RooflineChart": Kind(roofline.figure, roofline_words,
                                       "Roofline: bounds from peak rates; no time is claimed."),
    "Occupancy": Kind(occupancy_chart.figure, occupancy_words,
                      "Blocks an SM as one resource varies; the point is this launch."),
}
"""Section -> the picture that stands in it."""
OF_ALL = ("MemoryWorkloadAnalysis", "SpeedOfLight_RooflineChart")
"""Pictures of several launches as one; occupancy is of one launch alone."""


def chart(section: str, run: Run, prefix: str) -> Chart:
    """Return the picture of a section of a run, or why there is none; prefix: of the ids in it."""
    kind = KINDS[section]
    try:
        label = f"{run.title}: {kind.words(run)}"
        return Chart(kind.caption, inline(kind.figure([run]), f"{prefix}-{section}-", label))
    except BadOption as refusal:
        return Chart(kind.caption, refusal=str(refusal))


def charts(launches: Sequence[Launch]) -> list[dict[str, Chart]]:
    """Return section -> picture for each launch; none for launches beyond the first MOST_DRAWN."""
    drawn = [{section: chart(section, Run(launch.kernel, (launch,)), f"launch-{i}") for section in KINDS}
             for i, launch in enumerate(launches[:MOST_DRAWN])]
    return drawn + [{}] * (len(launches) - len(drawn))


def page(launches: Sequence[Launch], title: str) -> str:
    """Return the page of some launches; title: what the page is called."""
    several = len(launches) > 1
    whole = Run(title, tuple(launches)) if several else None
    of_all = [chart(section, whole, "all") for section in OF_ALL] if whole else []
    return environment(Path(__file__).with_name("templates")).get_template("report.html").render(
        title=title, launches=list(zip(launches, charts(launches), strict=True)), of_all=of_all,
        total=pipeline(launches) if several else None, note=pipeline_note(launches) if several else "",
        undrawn=max(0, len(launches) - MOST_DRAWN), drawn=MOST_DRAWN)
