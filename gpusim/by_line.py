"""The counters of one launch apart by source line: a table, and the check that its lines add up.

What it leaves out: L1 hits, L2 and DRAM, which belong to no line, and why a line costs what it does
(gpusim/line_reasons.py). Exact as the launch's own counters are. ncu's page of this kind is Source Counters.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable

from gpusim.counters import AccessCounts, Counters, SharedCounts, SpaceCounts
from gpusim.launch import Launch, counted_paths
from gpusim.metric import bank_conflicts, ratio
from gpusim.sections import flops
from gpusim.table import Cell, Table, counted, number
from gpusim.tensor_metrics import tensor_flops

WIDTH = 110
LEAST_SOURCE = 16
"""Characters of source text that stay, even where the numbers leave less."""
LINE_DIGITS = 5
"""Columns kept for the line number."""
LEVELS = 2
"""Levels of indentation that are shown."""

LineKey = tuple[str, int]


def global_spaces(c: Counters) -> tuple[SpaceCounts, ...]:
    """Return the counts of global memory, one a kind."""
    return c.global_load, c.global_store, c.global_red, c.global_atom


def shared_kinds(c: Counters) -> tuple[SharedCounts, ...]:
    """Return the counts of shared memory, one a kind."""
    return c.shared_load, c.shared_store, c.shared_atom, c.shared_matrix, c.shared_async


def _requests(c: Counters) -> Cell:
    return sum(s.requests for s in global_spaces(c)) or None


def _sectors(c: Counters) -> Cell:
    return sum(s.sectors for s in global_spaces(c)) or None


def _sectors_each(c: Counters) -> Cell:
    spaces = global_spaces(c)
    return ratio(sum(s.sectors for s in spaces), sum(s.requests for s in spaces))


def _shared_requests(c: Counters) -> Cell:
    return sum(s.requests for s in shared_kinds(c)) or None


def _conflicts(c: Counters) -> Cell:
    """Return the bank conflicts; 0 is worth a cell where there are shared requests."""
    return sum(map(bank_conflicts, shared_kinds(c))) if _shared_requests(c) else None


def _lanes_each(c: Counters) -> Cell:
    spaces: list[AccessCounts] = [*global_spaces(c), c.local_load, c.local_store, c.const_load]
    spaces += shared_kinds(c)
    return ratio(sum(s.lanes for s in spaces), sum(s.requests for s in spaces))


def _flops(c: Counters) -> Cell:
    return sum(flops(c.arithmetic)) + tensor_flops(c.tensor) or None


COLUMNS: tuple[tuple[str, Callable[[Counters], Cell]], ...] = (
    ("Requests", _requests),
    ("Sectors", _sectors),
    ("Sect/Req", _sectors_each),
    ("Local Req", lambda c: c.local_load.requests + c.local_store.requests or None),
    ("Local Sect", lambda c: c.local_load.sectors + c.local_store.sectors or None),
    ("Shared Req", _shared_requests),
    ("Wavefronts", lambda c: sum(s.wavefronts for s in shared_kinds(c)) or None),
    ("Conflicts", _conflicts),
    ("Const Req", lambda c: c.const_load.requests or None),
    ("Const Addr", lambda c: c.const_load.addresses or None),
    ("Lanes/Req", _lanes_each),
    ("FLOPs", _flops),
)
"""Requests and sectors are of global memory; lanes of every memory request, 32 at most.

None stands for what a line does not do at all.
"""


def cells(counters: Counters) -> tuple[Cell, ...]:
    """Return the numbers of one row; what a line does not do is an empty cell, never 0."""
    found = (value(counters) for _, value in COLUMNS)
    return tuple("" if cell is None else cell for cell in found)


def total(launch: Launch) -> Counters:
    """Return the sum of the counters of all lines."""
    return sum(launch.lines.values(), start=Counters.zero())


def differing(launch: Launch) -> list[str]:
    """Return the paths of counters for which the lines do not add up to the launch, but for the hierarchy.

    Empty where the engine does not tell lines apart.
    """
    if not launch.lines:
        return []
    lines, whole = counted_paths(total(launch)), counted_paths(launch.counters)
    return [path for path, n in whole.items() if not path.startswith("hierarchy.") and lines[path] != n]


def verdict(launch: Launch) -> str:
    """Return the sentence that says whether the lines add up."""
    wrong = differing(launch)
    lines_add = f"{counted(len(launch.lines), 'line')} {'adds' if len(launch.lines) == 1 else 'add'}"
    what = f"{lines_add} up to the kernel's counters, all but L1 hits, L2 and DRAM"
    if not wrong:
        return f"{what}: equal."
    lines, whole = counted_paths(total(launch)), counted_paths(launch.counters)
    listed = ", ".join(f"{path} {lines[path]:,} for {whole[path]:,}" for path in wrong)
    return f"{what}: DIFFERENT, {listed}."


def table(launch: Launch, width: int = WIDTH) -> Table:
    """Return a row for each line with a memory access or a FLOP, in order of file and line, and the total.

    Columns with nothing in them are left out. Source text is cut so that a row fits `width` columns.
    """
    last = cells(total(launch))
    used = [i for i, cell in enumerate(last) if cell != ""]
    numbers = {key: tuple(cells(launch.lines[key])[i] for i in used) for key in sorted(launch.lines)}
    numbers = {key: row for key, row in numbers.items() if any(cell != "" for cell in row)}
    end = ("", "Total", *(last[i] for i in used))
    headers = ("Line", "Source", *(COLUMNS[i][0] for i in used))
    room = _room(headers, [*numbers.values(), end[2:]], width)
    texts = sources(list(numbers), room)
    files = list(dict.fromkeys(file for file, _ in numbers))
    body: list[tuple[Cell, ...]] = []
    for file in files:
        heading = [("", _end_of(shown_file(file), room), *("" for _ in used))] if len(files) > 1 else []
        body += [*heading, *((str(k[1]), texts[k], *row) for k, row in numbers.items() if k[0] == file)]
    title = shown_file(files[0]) if len(files) == 1 else ""
    return Table(headers, (*body, end), "rl" + "r" * len(used), title, ruled_rows=1)


def _room(headers: tuple[str, ...], rows: list[tuple[Cell, ...]], width: int) -> int:
    """Return the characters that the numbers leave for source text, with one space between columns."""
    columns = zip(headers[2:], *rows, strict=True)
    taken = sum(1 + max(len(number(cell)) for cell in column) for column in columns)
    return max(LEAST_SOURCE, width - taken - LINE_DIGITS - 1)


def sources(keys: list[LineKey], width: int) -> dict[LineKey, str]:
    """Return the source text of lines: two levels of indentation at most, and `width` characters.

    The text is empty where the file or the line is gone.
    """
    for file in {file for file, _ in keys}:
        linecache.checkcache(file)
    raw = {key: linecache.getline(*key).rstrip().expandtabs() for key in keys}
    levels = {file: _levels([text for key, text in raw.items() if key[0] == file]) for file, _ in keys}
    return {key: _cut("  " * levels[key[0]].get(_indent(t), 0) + t.lstrip(), width) for key, t in raw.items()}


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _levels(texts: list[str]) -> dict[int, int]:
    """Map the indentations of a file's lines to levels from 0."""
    return {n: min(level, LEVELS) for level, n in enumerate(sorted({_indent(t) for t in texts if t}))}


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def _end_of(path: str, width: int) -> str:
    """Return a path that fits a column: its end, where the file's name is, if it is longer."""
    return path if len(path) <= width else f"...{path[3 - width:]}"


def shown_file(file: str) -> str:
    """Return a file's path as people know it: from here, where it lies below."""
    below = os.path.relpath(file) if os.path.isabs(file) and os.path.splitdrive(file)[0] == "" else file
    return file if below.startswith(os.pardir) else below
