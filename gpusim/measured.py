"""Launches that a real GPU ran under ncu, read from any CSV that ncu prints.

Three shapes: `--page raw` (a column a metric), `--page details` (a row a metric, by label) and `--metrics`
(a row a metric, by name). Scaled units come back in base units, with what the rounding of the print leaves
open; names of older versions become those of gpusim/metrics.py. Lines "# key: value" before the table are
the file's header. What it leaves out: the source page, and values that are no numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from gpusim import metrics
from gpusim.errors import BadOption, reason
from gpusim.ncu_csv import IDENTITY, cut_off, parse_number, scale_of, table

Number = int | float
Shape = tuple[int, int, int]

OLDER = (
    (r"sm__(sass_thread_inst_executed_op_\w+\.sum)", r"smsp__\1"),
    (r"sm__(inst_executed_pipe_xu\.sum|inst_executed\.sum)", r"smsp__\1"),
    (r"dram__bytes_op_(read|write)\.sum", r"dram__bytes_\1.sum"),
    (r"dram__sectors_op_(read|write)\.sum", r"dram__sectors_\1.sum"),
    (r"dram__(read|write)_(bytes|sectors)\.sum", r"dram__\2_\1.sum"),
    (r"gpu__time_duration\.(avg|max)", "gpu__time_duration.sum"),
    (r"(l1tex|lts)__t_(requests|sectors)_lookup_(hit|miss)_(.+)", r"\1__t_\2_\4_lookup_\3"),
)
"""Names of other versions of ncu, as patterns -> the name of the same number here."""
BASE_WORDS = {"nsecond": "ns", "usecond": "ns", "msecond": "ns", "us": "ns", "ms": "ns", "s": "ns",
              "second": "ns"}


@dataclass(frozen=True)
class Measured:
    """Hold one launch: its kernel, shape and the numbers that ncu gave, by name and in base units.

    rounding: name -> how far the number may lie from the counter, half of the last digit printed; only
    where that is not 0. units: name -> base unit as printed, "" where the page has none. header: the lines
    "# key: value" of the file, such as card, driver and cache control.
    """

    kernel: str
    grid: Shape | None
    block: Shape | None
    values: dict[str, Number]
    rounding: dict[str, float] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    header: dict[str, str] = field(default_factory=dict)
    source: str = ""

    @property
    def l2(self) -> str:
        """Return how the caches began: cold, as ncu flushes them unless told not to, or warm."""
        return "warm" if self.header.get("cache control", "all") == "none" else "cold"

    @property
    def is_twin(self) -> bool:
        """Return whether other machine code than the simulated kernel's ran: the file names another backend
        than numba, such as triton."""
        return self.header.get("backend", "numba") != "numba"


def read_measured(path: str | Path) -> list[Measured]:
    """Return the launches of a file, in ncu's order; raise BadOption for what is no CSV of ncu's."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"cannot read {path}: {reason(error)}") from None
    return parse_measured(text, str(path))


def parse_measured(text: str, name: str = "the text") -> list[Measured]:
    """Return the launches of a text in any of the three shapes; raise BadOption."""
    rows = table(text, name)
    made = _long(rows, name) if "Metric Name" in rows[0] else _wide(rows, name)
    said = header_of(text)
    return [_measured(cells, numbers, said, name) for cells, numbers in made]


def header_of(text: str) -> dict[str, str]:
    """Return the lines "# key: value" that stand before the table."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith('"ID",'):
            break
        key, colon, value = line.removeprefix("# ").partition(": ")
        if line.startswith("# ") and colon:
            found[key.strip().lower()] = value.strip()
    return found


Cells = dict[str, str]
Printed = list[tuple[str, str, str]]
"""(name, unit, cell) of each metric."""


def _wide(rows: list[list[str]], name: str) -> Iterator[tuple[Cells, Printed]]:
    """Yield identity cells and metrics of each launch of the raw page."""
    names = rows[0]
    if len(rows) < 2:
        raise cut_off(name, names)
    for row in rows[2:]:
        cells = dict(zip(names, row, strict=True))
        printed = [
            (column, unit, cell)
            for column, unit, cell in zip(names, rows[1], row, strict=True)
            if column not in IDENTITY
        ]
        yield cells, printed


def _long(rows: list[list[str]], name: str) -> Iterator[tuple[Cells, Printed]]:
    """Yield identity cells and metrics of each launch of a page with one row a metric."""
    launches: dict[tuple[str, str], tuple[Cells, Printed]] = {}
    for row in rows[1:]:
        cells = dict(zip(rows[0], row, strict=True))
        key = cells["ID"], cells.get("Process ID", "")
        _, printed = launches.setdefault(key, (cells, []))
        if cells["Metric Name"]:  # rows of rules have none
            metric = by_label(cells["Metric Name"], cells.get("Section Name", ""), cells["Metric Unit"])
            printed.append((metric, cells["Metric Unit"], cells["Metric Value"]))
    if not launches:
        raise BadOption(f"{name} is cut off: it has a row of names and no metric")
    yield from launches.values()


def by_label(label: str, section: str = "", unit: str = "") -> str:
    """Return the name of the metric that the details page calls so; the label itself where none is known."""
    if "__" in label:
        return label
    found = [m for m in metrics.METRICS if m.label.lower() == label.strip().lower()]
    for keep in (lambda m: section in (m.section, metrics.SECTIONS[m.section]),
                 lambda m: m.unit == base_unit(unit)):
        found = [m for m in found if keep(m)] if len(found) > 1 else found
    return found[0].name if len(found) == 1 else label


@cache
def canonical(name: str) -> str:
    """Return the name that gpusim/metrics.py has for a metric, from an alias or an older name."""
    for pattern, instead in OLDER:
        if re.fullmatch(pattern, name):
            name = re.sub(pattern, instead, name)
    found = metrics.named(name) if "__" in name else None
    return found.name if found else name


def base_unit(unit: str) -> str:
    """Return the unit that base values have: Kbyte -> byte, us -> ns, Gbyte/second -> byte/second."""
    first, *rest = unit.split("/")
    first = BASE_WORDS.get(first, re.sub(r"^[KMGTP](?=byte|hz|[a-z]{3})", "", first))
    return "/".join([first, *({"s": "second", "ns": "second", "nsecond": "second"}.get(w, w) for w in rest)])


def _measured(cells: Cells, printed: Printed, said: dict[str, str], name: str) -> Measured:
    values: dict[str, Number] = {}
    rounding: dict[str, float] = {}
    units: dict[str, str] = {}
    for metric, unit, cell in printed:
        number = parse_number(cell)
        if number is None:
            continue
        known, scale = canonical(metric), scale_of(unit, metric, name)
        values[known] = number if scale == 1 else number * scale
        units[known] = base_unit(unit)
        if open_part := scale * last_digit(cell) / 2:
            rounding[known] = open_part
    shapes = _shape(cells, values, "grid"), _shape(cells, values, "block")
    return Measured(cells.get("Kernel Name", ""), *shapes, values, rounding, units, said, name)


def last_digit(cell: str) -> float:
    """Return what the last digit of a printed number stands for: 0.01 for 37.06, 0 for a whole number."""
    decimals = re.search(r"[.,](\d+)$", cell) if not re.fullmatch(r"-?\d{1,3}(,\d{3})+", cell) else None
    return 10.0 ** -len(decimals[1]) if decimals else 0.0


def _shape(cells: Cells, values: dict[str, Number], what: str) -> Shape | None:
    """Return the grid or the block of a launch, from its cell or its metrics."""
    found = re.findall(r"\d+", cells.get(f"{what.capitalize()} Size", ""))
    if len(found) != 3:
        found = [str(values.get(f"launch__{what}_dim_{axis}", "")) for axis in "xyz"]
    return (int(found[0]), int(found[1]), int(found[2])) if all(map(str.isdigit, found)) else None
