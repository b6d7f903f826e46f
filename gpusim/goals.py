"""How far the modelled numbers lie apart in two sets of launches, and how far they may: goals of the model.

Parameters are fitted on the fit set alone, and the test set judges them. The rows differ from those of the
accuracy table in what they divide by. Only launches of over 20 us stand here, and none whose threads spill. A
twin of other machine code says nothing of L1 and of reductions. What it leaves out: who belongs to which set
(kernels_real/recorded_launches.py), and the exact numbers (gpusim/accuracy.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpusim.table import Cell, Table, counted, render

SHORTEST_NS = 20_000
"""Below this launch overhead is most of a launch (h200 fact 24)."""
LARGE_BYTES = 8_000_000
"""From here on code and constants, some 100 KB, are no part of DRAM reads worth a goal."""
LEFT_BYTES = 3_000_000
"""Dirty bytes that other launches left in L2, which DRAM is written with."""
DURATION = "gpu__time_duration.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
READS = "lts__t_sectors_srcunit_tex_op_read.sum"
WRITES = "lts__t_sectors_srcunit_tex_op_write.sum"
REDUCTIONS = "lts__t_sectors_srcunit_tex_op_red.sum"
L1_HITS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum"
L1_LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
L2_HITS = "lts__t_sectors_srcunit_tex_lookup_hit.sum"
L2_LOOKUPS = "lts__t_sectors_srcunit_tex.sum"
DRAM_READ, DRAM_WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
STORED = tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("st", "red", "atom"))
SECTOR_BYTES = 32


@dataclass(frozen=True)
class Case:
    """Hold a launch: its set, and the numbers of both sides by ncu's name. same_code: no twin."""

    subset: str
    simulated: Mapping[str, float]
    measured: Mapping[str, float]
    same_code: bool = True

    def more(self, name: str) -> float | None:
        """Return simulated - measured, None where a side lacks the number."""
        ours, theirs = self.simulated.get(name), self.measured.get(name)
        return None if ours is None or theirs is None else ours - theirs


def _beyond(reached: float, goal: float) -> str:
    """Return a number above its goal with one decimal, with more where it would read as the goal."""
    return next(text for n in range(1, 18) if float(text := f"{reached:,.{n}f}".replace(",", "")) > goal)


Error = Callable[[Case], float | None]
"""How far a launch lies off; None where the row says nothing of it."""


@dataclass(frozen=True)
class Row:
    """Describe a row: what it is of and in which unit, and the goals of the median, the 90th percentile and
    the largest error, None where there is none."""

    label: str
    unit: str
    error: Error
    median: float | None = None
    most: float | None = None
    largest: float | None = None

    @property
    def goals(self) -> str:
        """Return the goals in words."""
        return ", ".join(f"{name} {goal:g}" for name, goal in self._named if goal is not None)

    @property
    def _named(self) -> tuple[tuple[str, float | None], ...]:
        return ("median", self.median), ("90th", self.most), ("largest", self.largest)

    def verdict(self, reached: Sequence[Cell]) -> str:
        """Return "met" or what missed its goal, of median, 90th percentile and largest; "n/a" where a set
        has no launch for the row."""
        if None in reached:
            return "n/a"
        missed = [f"{name} {_beyond(float(x), goal)}"  # type: ignore[arg-type]
                  for (name, goal), x in zip(self._named, reached, strict=True)
                  if goal is not None and float(x) > goal]  # type: ignore[arg-type]
        return f"missed: {', '.join(missed)}" if missed else "met"


def percent(name: str) -> Error:
    """Return the error of a number in percent of the measured one; 100 where that alone is 0."""
    def error(case: Case) -> float | None:
        more, theirs = case.more(name), case.measured.get(name)
        if more is None or not theirs:
            return 100.0 if more else None
        return 100 * abs(more) / theirs
    return error


def points(part: str, whole: str) -> Error:
    """Return the error of a share in points: part / whole of each side."""
    def error(case: Case) -> float | None:
        sides = [(side.get(part), side.get(whole)) for side in (case.simulated, case.measured)]
        if any(some is None or not every for some, every in sides):
            return None
        ours, theirs = (100 * some / every for some, every in sides)  # type: ignore[operator]
        return abs(ours - theirs)
    return error


def own(error: Error) -> Error:
    """Return an error of launches alone whose source the card ran too."""
    return lambda case: error(case) if case.same_code else None


def apart(name: str) -> Error:
    """Return how many points a percentage lies off."""
    def error(case: Case) -> float | None:
        more = case.more(name)
        return None if more is None else abs(more)
    return error


def read_large(case: Case) -> float | None:
    """Return the error of DRAM reads in percent, from LARGE_BYTES on."""
    return percent(DRAM_READ)(case) if case.measured.get(DRAM_READ, 0) >= LARGE_BYTES else None


def read_small(case: Case) -> float | None:
    """Return the error of DRAM reads in units of 1,024 bytes, below LARGE_BYTES."""
    more = case.more(DRAM_READ)
    return None if more is None or case.measured[DRAM_READ] >= LARGE_BYTES else abs(more) / 1024


def written(case: Case) -> float | None:
    """Return the error of DRAM writes in percent of the bytes of sectors that the launch stores to."""
    more = case.more(DRAM_WRITTEN)
    stored = SECTOR_BYTES * sum(case.measured.get(name, 0) for name in STORED)
    return None if more is None or not stored else 100 * abs(more) / stored


def written_apart(case: Case) -> float | None:
    """Return the same where the two lie over LEFT_BYTES apart."""
    return written(case) if abs(case.more(DRAM_WRITTEN) or 0) > LEFT_BYTES else None


ROWS = (
    Row("L2 Read Sectors From SMs", "%", percent(READS), median=3, most=10),
    Row("L2 Write Sectors From SMs", "%", percent(WRITES), largest=1),
    Row("L2 Reduction Sectors From SMs", "%", own(percent(REDUCTIONS)), largest=2),
    Row("Load Sectors That Hit L1", "points", own(points(L1_HITS, L1_LOADS)), median=2, largest=5),
    Row("Sectors From SMs That Hit L2", "points", own(points(L2_HITS, L2_LOOKUPS)), median=2, largest=5),
    Row("DRAM Bytes Read, 8 MB And More", "%", read_large, median=2, largest=5),
    Row("DRAM Bytes Read, Below 8 MB", "KB", read_small, largest=64),
    Row("DRAM Bytes Written", "% of stored", written, median=5),
    Row("DRAM Bytes Written, Over 3 MB Apart", "% of stored", written_apart, largest=12),
    Row("Duration", "%", own(percent(DURATION)), largest=35),
    Row("Achieved Occupancy", "points", own(apart(OCCUPANCY)), median=3, largest=8),
)
FIT, TEST = "fit", "test"


def goals_text(cases: Sequence[Case]) -> str:
    """Return the table of the sets that the cases belong to, side by side; "" where no launch is long enough.
    """
    long = [c for c in cases if c.measured.get(DURATION, 0) > SHORTEST_NS]
    subsets = [name for name in (FIT, TEST) if any(c.subset == name for c in long)]
    if not subsets:
        return ""
    headers = [h for name in subsets for h in (f"{name.title()}: n", "Median", "90th", "Largest")]
    judged = ("Test Set",) if TEST in subsets else ()
    made = [(r, tuple(_cells(r, long, subsets))) for r in ROWS]
    rows = tuple((r.label, r.unit, *cells, r.goals, *(r.verdict(cells[-3:]) for _ in judged))
                 for r, cells in made)
    sizes = " and ".join(
        f"{counted(sum(c.subset == name for c in long), 'launch')} of the {name} set" for name in subsets)
    table = Table(("Modelled", "Error In", *headers, "Goals", *judged), rows,
                  f"ll{'r' * len(headers)}l{'l' * len(judged)}",
                  f"What is modelled, over 20 us and without spills: {sizes}")
    return "\n".join(render(table)) + "\n"


def _cells(row: Row, cases: Sequence[Case], subsets: Sequence[str]) -> Iterator[Cell]:
    for name in subsets:
        found = [e for c in cases if c.subset == name and (e := row.error(c)) is not None]
        yield len(found)
        yield from (map(float, np.percentile(found, [50, 90, 100])) if found else [None] * 3)
