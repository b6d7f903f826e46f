"""What a picture starts from: the launches of one kernel or problem under one title.

What it leaves out: running them; cli.py and notebooks hand launches over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gpusim.counters import Counters
from gpusim.errors import BadOption
from gpusim.launch import Launch
from gpusim.metric import Value, evaluate
from gpusim.metrics import find

OF_THE_SHAPE = ("LaunchStats", "Occupancy")
"""Sections of metrics that are no counts, so that several launches have no total of them."""


@dataclass(frozen=True)
class Run:
    """Hold the launches of one kernel, in order, and what a picture calls them."""

    title: str
    launches: tuple[Launch, ...]

    @cached_property
    def total(self) -> Launch:
        """Return the launches as one: counters added up; n/a in one of them is n/a in all.

        dirty_bytes is a state: what all launches leave where each starts with an empty L2, else the last.
        """
        first, last = self.launches[0], self.launches[-1]
        counters = sum((x.counters for x in self.launches), Counters.zero())
        if last.l2 == "warm":
            counters.hierarchy.dirty_bytes = last.counters.hierarchy.dirty_bytes
        missing = tuple(dict.fromkeys(part for x in self.launches for part in x.not_counted))
        compiled = first.as_compiled if len(self.launches) == 1 else None
        return replace(first, counters=counters, uncounted=missing, as_compiled=compiled)

    def value(self, metric: str) -> Value:
        """Return a metric over all launches; None is n/a.

        Raise UnknownName, and BadOption where several launches have no total of it.
        """
        found = find(metric)
        if len(self.launches) == 1:
            return evaluate(found, self.launches[0])
        if found.section in OF_THE_SHAPE:
            raise BadOption(f"{self.title} has {len(self.launches)} launches, and {found.name} is of one "
                            "alone; choose a metric that adds up, such as dram__bytes_read.sum")
        values = [evaluate(found, launch) for launch in self.launches]
        if found.name.endswith(".sum"):
            return None if None in values else sum(v for v in values if v is not None)
        return evaluate(found, self.total)


def as_runs(shown: Iterable[Run | Launch]) -> tuple[Run, ...]:
    """Return runs as they are and each launch as a run of its own; raise BadOption for none at all."""
    runs = tuple(s if isinstance(s, Run) else Run(s.kernel, (s,)) for s in shown)
    if not runs or not all(run.launches for run in runs):
        raise BadOption("there is no launch to draw")
    return runs


def need(runs: Sequence[Run], picture: str, *parts: str) -> None:
    """Raise BadOption where a launch did not count parts of Counters that a picture cannot do without."""
    for run in runs:
        missing = [part for part in parts if part in run.total.not_counted]
        if missing:
            raise BadOption(
                f"{picture}: {run.title} ran on the engine {run.launches[0].engine}, which does not count "
                f"{' and '.join(missing)} (n/a); use --engine compiled or ir")
