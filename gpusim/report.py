"""The text report: one launch as its sections, a pipeline of launches as a table with totals and then each
launch.

What it leaves out: counting (gpusim/counters.py) and the metrics with ncu's names (gpusim/metrics.py). The
same text goes to a terminal and to a file; on a terminal rich adds weight and colour, and never cuts a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpusim.counters import Counters
from gpusim.launch import Launch
from gpusim.sections import Section, bytes_by_level, flops, replayed, sections
from gpusim.table import Cell, Table, paragraph, render

if TYPE_CHECKING:
    from rich.console import Console


def header(launch: Launch) -> str:
    """Return ncu's header line: kernel, grid, block, device, compute capability."""
    arch = launch.arch
    return f"{launch.kernel} {launch.grid}x{launch.block}, Device {arch.title}, CC {arch.compute_capability}"


def text(launches: Sequence[Launch], only: str | None = None, by_line: bool = False) -> str:
    """Return the whole report as plain text that ends with a newline.

    `only` names one section; by_line adds the counters of each source line. Raises UnknownName.
    """
    return "\n".join(lines(launches, only, by_line)).rstrip("\n") + "\n"


def lines(launches: Sequence[Launch], only: str | None = None, by_line: bool = False) -> Iterator[str]:
    """Yield the lines of a report."""
    if not launches:
        yield "No kernels were profiled."
    if len(launches) > 1 and only is None:
        yield from (*render(pipeline(launches)), *paragraph(pipeline_note(launches)), "")
    for launch in launches:
        yield header(launch)
        yield from options(launch)
        for section in sections(launch, only, by_line):
            yield from (*section_lines(section), "")


def options(launch: Launch) -> list[str]:
    """Return the lines that say what the user asked for; none where nothing was."""
    said = "  ".join(option_words(launch))
    return [*paragraph(said, "  "), ""] if said else [""]


def option_words(launch: Launch) -> list[str]:
    """Return what the user asked for, NAME=VALUE each."""
    return [f"{name}={_said(value)}" for name, value in launch.options.items() if value is not None]


def _said(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def section_lines(section: Section) -> list[str]:
    """Return the lines of one section: its title, tables, sentences and advice."""
    out = [f"Section: {section.title}"]
    for i, table in enumerate(section.tables):
        out += [*([""] if i else []), *render(table)]
    for sentence in section.prose:
        out += paragraph(sentence)
    for advice in section.advice:
        out += paragraph(f"{advice.heading}: {advice.text}", f"{advice.tag:<6}")
    return out


PIPELINE_HEADERS = (
    "ID",
    "Kernel",
    "Requests",
    "Bytes L1",
    "Bytes L2",
    "DRAM Read",
    "DRAM Write",
    "Dirty",
    "FLOPs",
    "Occ. %",
)


def pipeline(launches: Sequence[Launch]) -> Table:
    """Return a row a launch and a row of totals, which is their sum (occupancy has none).

    Dirty bytes are a state of L2 and not a count: `pipeline_note` says what their total is.
    """
    rows: list[tuple[Cell, ...]] = []
    total = Counters.zero()
    for i, launch in enumerate(launches):
        dirty = launch.counters.hierarchy.dirty_bytes
        amounts = _amounts(launch.counters, replayed(launch), dirty)
        rows.append((str(i), launch.kernel, *amounts, float(launch.occupancy.theoretical_pct)))
        total = total + launch.counters
    left, _ = _dirty_total(launches)
    rows.append(("", "Total", *_amounts(total, all(map(replayed, launches)), left), ""))
    return Table(PIPELINE_HEADERS, tuple(rows), "ll" + "r" * 8, f"{len(launches)} launches", ruled_rows=1)


def pipeline_note(launches: Sequence[Launch]) -> str:
    """Return what stands below the table of a pipeline: how sure its columns are, and what Total Dirty is."""
    meaning = _dirty_total(launches)[1]
    return f"Requests, L1 bytes and FLOPs are exact, L2 and DRAM bytes modelled. {meaning}."


def _dirty_total(launches: Sequence[Launch]) -> tuple[int | None, str]:
    """Return the total of dirty bytes and what it is, so that no line that L2 keeps is in it twice."""
    each = [launch.counters.hierarchy.dirty_bytes for launch in launches]
    starts = {launch.l2 for launch in launches}
    if starts == {"cold"}:
        return sum(each), "Total Dirty: sum of what each launch leaves, as each starts with an empty L2"
    if starts == {"warm"}:
        return each[-1], "Total Dirty: what the last launch leaves, as L2 stays warm"
    return None, "Total Dirty: n/a, as some launches start with an empty L2 and some with a warm one"


def _amounts(counters: Counters, whole: bool, dirty: int | None) -> tuple[Cell, ...]:
    """Return the numbers of a row; what was not counted (`whole` is False) is n/a."""
    c, h, moved = counters, counters.hierarchy, bytes_by_level(counters)
    spaces = (c.global_load, c.global_store, c.global_red, c.global_atom, c.local_load, c.local_store)
    dram = (h.dram_read_bytes + h.dram_code_bytes, h.dram_write_bytes + h.dram_found_bytes, dirty)
    below = (moved["L2"], *dram, sum(flops(c.arithmetic)))
    return (sum(s.requests for s in spaces), moved["L1"], *(below if whole else (None,) * len(below)))


STYLES = (("Section: ", "bold cyan"), ("OPT ", "green"), ("INF ", "blue"), ("WRN ", "bold red"))


def show(report: str, console: Console) -> None:
    """Print a report on a terminal: titles and advice in colour, lines whole (a narrow terminal wraps them
    itself).
    """
    from rich.text import Text

    for line in report.splitlines():
        style = next((s for start, s in STYLES if line.startswith(start)), "")
        styled = Text(line, style=style)
        styled.highlight_words(["DIFFERENT", "FAILED"], "bold red")
        console.print(styled, soft_wrap=True, highlight=False)

