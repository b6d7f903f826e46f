"""Tables of numbers as aligned plain text: what the report, the comparison and the lists of the command line
print.

A table is data (headers, rows, alignment); `render` makes the lines. Numbers are never cut: a table that is
too wide gets narrower gaps, then longer lines. A missing number (None or NaN) is n/a, never 0.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

WIDTH = 100

Cell = int | float | str | None


@dataclass(frozen=True)
class Table:
    """Hold one table: align has one letter a column, "l" or "r".

    `ruled_rows` last rows (totals) stand below a rule.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    align: str
    title: str = ""
    ruled_rows: int = 0


def number(value: Cell) -> str:
    """Return a cell as text: thousands separators, two decimals, three digits for the very small, n/a for a
    missing one.
    """
    if value is None or isinstance(value, float) and math.isnan(value):
        return "n/a"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return f"{value:,}"
    if math.isinf(value) or value != 0 and abs(value) < 0.01:
        return f"{value:.3g}"
    return f"{value:,.2f}"


def counted(n: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 launch", "2 launches", "1,024 blocks"; plural: an unusual one."""
    plural = plural or (f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s")
    return f"{n:,} {noun if n == 1 else plural}"


def render(table: Table, width: int = WIDTH) -> list[str]:
    """Return the lines of a table: its title if any, a rule, the headers, a rule, the rows, a rule."""
    cells = [table.headers, *(tuple(map(number, row)) for row in table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.headers))]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= width else 1
    rule = " ".join("-" * w for w in widths) if gap == 1 else "  ".join("-" * w for w in widths)
    lines = [_line(row, widths, table.align, gap) for row in cells]
    body = lines[1:]
    if table.ruled_rows:
        body.insert(len(body) - table.ruled_rows, rule)
    return [*([table.title] if table.title else []), rule, lines[0], rule, *body, rule]


def _line(row: tuple[str, ...], widths: list[int], align: str, gap: int) -> str:
    padded = (
        cell.rjust(w) if a == "r" else cell.ljust(w) for cell, w, a in zip(row, widths, align, strict=True)
    )
    return (" " * gap).join(padded).rstrip()


def paragraph(text: str, first: str = "", width: int = WIDTH) -> list[str]:
    """Return prose as lines of at most `width`, the first after a mark such as "OPT", the others set in below
    it.
    """
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first),
                         break_long_words=False, break_on_hyphens=False)
