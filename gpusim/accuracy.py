"""How far simulated numbers lie from measured ones over many launches: one row a metric, every launch kept.

The error is |simulated - measured| / measured, for a percentage the difference in points. Where the card
counted 0 and the simulator did not, it is 100 %. The correlation is Pearson's, of log10(1 + value), as values
span nine decades. Launches whose threads spill stand in a table of their own: the simulator has no spills.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpusim import metrics
from gpusim.beside import DIFFERS, EQUAL, NOT_COMPARABLE, rows
from gpusim.causes import spilled_sectors
from gpusim.launch import Launch
from gpusim.measured import Measured
from gpusim.table import Table, counted, paragraph, render

HEADERS = ("Metric", "Class", "n", "Equal", "Median", "90th", "Largest", "Correlation", "Largest in")
GIVEN = (
    "launch__registers", "launch__sm_count", "launch__tpc_count", "launch__block_dim", "launch__grid_dim")
"""Metrics that a replay is given or that are the GPU's, and those that the sizes of grid and block repeat."""


@dataclass(frozen=True)
class Entry:
    """Hold one metric of one launch: both values, class, verdict and cause; spills: on the card."""

    launch: str
    metric: str
    simulated: float
    measured: float
    kind: str
    verdict: str
    cause: str
    spills: bool

    @property
    def error(self) -> float:
        """Return the error in percent, or for a percentage in points; 0 where ncu's rounding hides it."""
        more = abs(self.simulated - self.measured)
        if self.verdict == EQUAL:
            return 0.0
        if metrics.find(self.metric).unit == "%":
            return more
        return 100.0 * more / self.measured if self.measured else 100.0


def entries(title: str, launch: Launch, card: Measured) -> list[Entry]:
    """Return the entries of one pair: comparable metrics that are not 0 on both sides."""
    spills = spilled_sectors(card, launch) > 0
    return [
        Entry(title, r.metric.name, float(r.simulated), float(r.measured), r.kind, r.verdict, r.cause, spills)
        for r in rows(launch, card)
        if r.kind != NOT_COMPARABLE and r.simulated is not None and r.measured is not None
        and (r.simulated or r.measured) and not r.metric.name.startswith(GIVEN)
    ]  # fmt: skip


def accuracy_text(found: dict[str, Sequence[Entry]], every: bool = False) -> str:
    """Return the tables of each group of entries, launches with spills apart.

    every: after each table the rows beyond their tolerance, with the cause of each.
    """
    lines: list[str] = []
    for group, all_of_it in found.items():
        for spills in (False, True):
            part = [e for e in all_of_it if e.spills is spills]
            if part:
                lines += [*_part(f"{group}{', launches with spills' if spills else ''}", part, every), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _part(title: str, part: Sequence[Entry], every: bool) -> Iterator[str]:
    launches = len({e.launch for e in part})
    beyond = [e for e in part if e.verdict == DIFFERS]
    by_metric = [(m, [e for e in part if e.metric == m.name]) for m in metrics.METRICS]
    names = metrics.row_names(m for m, own in by_metric if own)
    table = tuple(_row(names[m], own) for m, own in by_metric if own)
    yield from render(Table(HEADERS, table, "llrrrrrrl", f"{title}: {counted(launches, 'launch')}"))
    causes = Counter(e.cause for e in beyond)
    said = ", ".join(f"{cause} {n}" for cause, n in causes.most_common())
    yield from paragraph(f"{len(beyond):,} of {len(part):,} numbers lie beyond their tolerance"
                         f"{f': {said}' if said else ''}.")  # fmt: skip
    if every and beyond:
        yield from ("", *render(Table(("Launch", "Metric", "Simulated", "Measured", "Error", "Cause"),
                                      tuple(_beyond(e) for e in beyond), "llrrrl")))  # fmt: skip


def _row(name: str, own: Sequence[Entry]) -> tuple[str | int | float | None, ...]:
    errors = np.array([e.error for e in own])
    worst = own[int(errors.argmax())]
    kinds = {e.kind for e in own}
    median, most = np.percentile(errors, [50, 90])
    unit = " points" if metrics.find(own[0].metric).unit == "%" else " %"
    said = [f"{x:.2f}{unit}" for x in (median, most, errors.max())]
    return (name, " and ".join(sorted(kinds)), len(own), sum(e.error == 0 for e in own), *said,
            correlation(own), worst.launch if worst.error else "")


def correlation(own: Iterable[Entry]) -> float | None:
    """Return Pearson's correlation of log10(1 + value); None for fewer than three launches or equal values.
    """
    pairs = [(math.log10(1 + e.simulated), math.log10(1 + e.measured)) for e in own]
    if len(pairs) < 3 or any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        return None
    return float(np.corrcoef(np.array(pairs).T)[0, 1])


def _beyond(e: Entry) -> tuple[str | float, ...]:
    return (e.launch, e.metric, e.simulated, e.measured, e.error, e.cause)
