"""Compare simulated launches, metric by metric: a baseline A, B, the difference and the ratio.

Launches are matched in order. Cold and warm caches are not comparable and refused; different GPUs or kernels,
and numbers of launches that differ, get a note. What it leaves out: measured launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gpusim import launch_json, metrics
from gpusim.errors import BadOption, reason
from gpusim.launch import Launch
from gpusim.metric import Metric, Value, ratio
from gpusim.report import header
from gpusim.table import Cell, Table, counted, paragraph, render

LEAST_SURE_LAST = (metrics.EXACT, metrics.MODELLED, metrics.UNAVAILABLE)
PART_WORDS = {"arithmetic": "arithmetic", "hierarchy": "the traffic of L1, L2 and DRAM"}
"""What each part of Counters that an engine may not count is called in a sentence."""
HEADERS = ("Metric", "Unit", "A (baseline)", "B", "B - A", "B/A %", "Source")


def comparison(baseline: str, other: str, chosen: Sequence[Metric] = (), every: bool = False) -> str:
    """Return the comparison of two files as text.

    See `compare_launches`. Raises BadOption for files that are no saved launches.
    """
    return compare_launches(read_launches(baseline), read_launches(other), chosen, every)


def read_launches(path: str) -> list[Launch]:
    """Return the launches of a file that `simulate --format json` wrote; raise BadOption for another."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"cannot read {path}: {reason(error)}") from None
    return launch_json.load(text, path)


def compare_launches(
    a: Sequence[Launch], b: Sequence[Launch], chosen: Sequence[Metric] = (), every: bool = False
) -> str:
    """Return the comparison as text, a section for each pair of launches.

    chosen: only these metrics, by ncu's names; else those that differ, by label (`every`: the equal ones
    too). Raises BadOption where one side has cold caches and the other warm ones, and where
    there is nothing to compare.
    """
    if not a or not b:
        raise BadOption("there is nothing to compare: a file holds no launch")
    for one, two in zip(a, b, strict=False):
        if one.l2 != two.l2:
            raise BadOption(f"{one.kernel} started with {one.l2} caches in A and with {two.l2} ones in B: "
                            "their traffic is not "
                            "comparable; simulate both with the same --l2")
    lines = list(without_partner(len(a), len(b)))
    for one, two in zip(a, b, strict=False):
        lines += [*pair_lines(one, two, chosen, every), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def without_partner(a: int, b: int) -> Iterator[str]:
    """Yield the warning that one file has more launches than the other, if it has."""
    if a != b:
        last = "the last one has" if abs(a - b) == 1 else f"the last {abs(a - b)} have"
        numbers = f"A has {counted(a, 'launch')} and B has {counted(b, 'launch')}"
        yield from paragraph(f"{numbers}: they are paired in order, and {last} no partner.", "WRN   ")
        yield ""


def pair_lines(a: Launch, b: Launch, chosen: Sequence[Metric] = (), every: bool = False) -> Iterator[str]:
    """Yield the lines of one pair: both headers, notes on what differs, a table for each section."""
    yield from (f"A: {header(a)}", f"B: {header(b)}")
    for note in notes(a, b):
        yield from paragraph(note, "WRN   ")
    if chosen:
        yield from render(Table(HEADERS, tuple(row(m, a, b, m.name) for m in chosen), "llrrrrl"))
        return
    said = [m for m in metrics.METRICS if every or _says_something(m, a, b)]
    differing = sum(_differs(m, a, b) for m in said)
    yield f"{differing} of {len(said)} metrics {'differs' if differing == 1 else 'differ'}."
    shown = [m for m in said if every or metrics.value(a, m.name) != metrics.value(b, m.name)]
    for identifier, title in metrics.SECTIONS.items():
        names = metrics.row_names(m for m in shown if m.section == identifier)
        rows = tuple(row(m, a, b, name) for m, name in names.items())
        if rows:
            yield from ("", *render(Table(HEADERS, rows, "llrrrrl", f"Section: {title}")))


def notes(a: Launch, b: Launch) -> Iterator[str]:
    """Yield a sentence for each thing that makes two launches more than two versions of one."""
    if a.kernel != b.kernel:
        yield (f"The kernels differ ({a.kernel} and {b.kernel}): launches are paired in order, whatever they "
               "run.")
    if a.arch.fingerprint() != b.arch.fingerprint():
        names = f"{a.arch.title} and {b.arch.title}"
        yield f"The GPUs differ ({names}): so do carve-outs, caches and occupancy, whatever the kernels do."
    if a.registers.source != b.registers.source:
        sources = f"{a.registers.source} in A and {b.registers.source} in B"
        yield f"Registers are {sources}; the two occupancies are not equally sure."
    if a.quantum_records != b.quantum_records:
        quanta = f"{a.quantum_records} records in A and {b.quantum_records} in B"
        yield f"The replay quantum is {quanta}; hits and DRAM bytes depend on it."
    for name, launch in (("A", a), ("B", b)):
        if launch.not_counted:
            parts = " and ".join(PART_WORDS.get(part, part.replace("_", " ")) for part in launch.not_counted)
            yield f"{name} ran on the engine {launch.engine}, which does not count {parts}: n/a."


def _says_something(metric: Metric, a: Launch, b: Launch) -> bool:
    return any(metrics.value(launch, metric.name) not in (None, 0) for launch in (a, b))


def _differs(metric: Metric, a: Launch, b: Launch) -> bool:
    """Return whether both launches have a value, and not the same one."""
    return _difference(metrics.value(a, metric.name), metrics.value(b, metric.name)) not in (None, 0)


def row(metric: Metric, a: Launch, b: Launch, name: str) -> tuple[Cell, ...]:
    """Return one row: name, unit, A, B, B - A, 100 B / A, and how sure the less sure of the two is."""
    one, two = metrics.value(a, metric.name), metrics.value(b, metric.name)
    sure = max((metrics.kind(launch, metric) for launch in (a, b)), key=LEAST_SURE_LAST.index)
    return (name, metric.unit, one, two, _difference(one, two), _percent(one, two), sure)


def _difference(a: Value, b: Value) -> Value:
    return None if a is None or b is None else b - a


def _percent(a: Value, b: Value) -> Value:
    return None if a is None or b is None else ratio(b, a, 100)
