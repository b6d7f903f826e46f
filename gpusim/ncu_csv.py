"""CSV as `ncu --csv --page raw` prints it, written and read: one parser for simulated and measured files.

The shape: a row of names (eleven identity columns, then one a metric), a row of units, one row a launch,
every cell quoted. Values are in base units; n/a stands for a value that is missing. What it leaves out: the
pages with one row a metric (gpusim/measured.py reads them too) and the source page.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from gpusim.errors import BadOption, reason
from gpusim.launch import Launch
from gpusim.metric import Metric, Value, evaluate
from gpusim.metrics import METRICS

IDENTITY = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC")
MISSING = "n/a"

Cell = int | float | str | None
Row = dict[str, Cell]

PREFIXES = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
"""ncu scales by thousands: 65,536 bytes are 65.54 Kbyte."""
TIMES = {"n": 1, "u": 10**3, "m": 10**6, "": 10**9}
"""To nanoseconds, ncu's base unit of time."""
WORDS = frozenset({
    "byte", "hz", "sector", "request", "inst", "block", "warp", "thread", "register", "cycle",
    "wavefront", "SM", "TPC", "FLOP", "pass", "tag", "bank", "op", "slot", "node", "page", "cluster",
    "context", "stream", "device", "launch", "event", "count"})


def raw_csv(launches: Sequence[Launch], metrics: Sequence[Metric] = METRICS) -> str:
    """Return the launches as text in ncu's raw shape: row of names, row of units, one row a launch."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*IDENTITY, *(m.name for m in metrics)])
    writer.writerow([*([""] * len(IDENTITY)), *(m.unit for m in metrics)])
    for number, launch in enumerate(launches):
        values = (evaluate(m, launch) for m in metrics)
        writer.writerow([*_identity(number, launch), *map(_text, values)])
    return out.getvalue()


def _identity(number: int, launch: Launch) -> list[str]:
    """Return the identity cells; context 1 and stream 7 are what ncu shows for a program's default stream."""
    return [
        str(number),
        "1",
        "gpusim",
        "localhost",
        launch.kernel,
        "1",
        "7",
        _dims(launch.block),
        _dims(launch.grid),
        "0",
        launch.arch.compute_capability,
    ]


def _dims(extents: tuple[int, int, int]) -> str:
    return f"({extents[0]}, {extents[1]}, {extents[2]})"


def _text(value: Value) -> str:
    return MISSING if value is None else repr(value)


def read_raw(path: str | Path) -> list[Row]:
    """Return one dict a launch, column -> value in base units (None for n/a, text for text); raise
    BadOption for another shape."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"cannot read {path}: {reason(error)}") from None
    return parse_raw(text, str(path))


def parse_raw(text: str, name: str = "the text") -> list[Row]:
    """Return the launches of a text in ncu's raw shape; lines before the one that begins with "ID"
    (program output) are skipped."""
    rows = table(text, name)
    names = rows[0]
    if "Metric Name" in names:
        raise BadOption(f"{name} is ncu's details page, one row a metric; use `ncu --csv --page raw`.")
    if len(rows) < 2:
        raise cut_off(name, names)
    scales = [scale_of(unit, column, name) for unit, column in zip(rows[1], names, strict=True)]
    return [_row(names, scales, row) for row in rows[2:]]


def table(text: str, name: str) -> list[list[str]]:
    """Return the rows of cells from the one that begins with "ID" on, all of one length; raise BadOption."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if start is None:
        raise BadOption(
            f'{name} has no line that begins with "ID": it is not what `ncu --csv --page raw` prints.')
    reader = csv.reader(lines[start:])
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row and not row[0].startswith("=="):
                rows.append(row)
                if len(row) != len(rows[0]):
                    raise cut_off(f"{name} line {start + reader.line_num}", rows[0])
    except csv.Error as error:
        raise BadOption(f"{name} line {start + reader.line_num} is damaged: {error}") from None
    return rows


def cut_off(name: str, names: list[str]) -> BadOption:
    """Return the mistake of a file that lacks rows or of a line that lacks cells."""
    return BadOption(
        f"{name} is cut off: each row needs {len(names)} cells, and there are a row of units and one row "
        "a launch.")


def _row(names: list[str], scales: list[int | float], cells: list[str]) -> Row:
    made: Row = {}
    for column, scale, cell in zip(names, scales, cells, strict=True):
        made[column] = _identity_value(column, cell) if column in IDENTITY else _value(cell, scale)
    return made


def _identity_value(column: str, cell: str) -> Cell:
    return int(cell) if column in ("ID", "Process ID") and cell.isdigit() else cell


def _value(cell: str, scale: int | float) -> Cell:
    """Return a number in base units; text stays text, n/a, an empty cell, NaN and inf are None."""
    if is_missing(cell):
        return None
    number = parse_number(cell)
    if number is None:
        return cell
    return number if scale == 1 else number * scale


def is_missing(cell: str) -> bool:
    """Return whether a cell says that nothing was measured: it is empty or n/a, or a number that is not
    finite."""
    if cell.strip() in (MISSING, ""):
        return True
    try:
        return not math.isfinite(float(cell))
    except ValueError:
        return False


def parse_number(text: str) -> int | float | None:
    """Return the number that ncu printed ("8,003,584", "37.06", or "9,00" in some locales), or None for
    text and for what is not finite."""
    text = text.strip()
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    elif re.fullmatch(r"-?\d+,\d+", text):
        text = text.replace(",", ".")
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(text) if re.fullmatch(r"-?\d+", text) else number


def scale_of(unit: str, column: str, name: str) -> int | float:
    """Return the factor to base units: the numerator's over those of the denominator; raise BadOption."""
    if unit in ("", "%"):
        return 1
    scale = Fraction(1)
    for i, word in enumerate(unit.split("/")):
        factor = _seconds(word) if i else _factor(word)
        if factor is None:
            raise BadOption(
                f"{name}: column {column} has the unknown unit {unit!r}; with `--print-units base` ncu "
                "prints plain ones.")
        scale = scale / factor if i else scale * factor
    return int(scale) if scale.denominator == 1 else float(scale)


def _factor(word: str) -> Fraction | None:
    """Return the factor of one word to its base unit, nanoseconds for a time; None for an unknown one."""
    time = re.fullmatch(r"([num]?)(s|second)", word)
    if time:
        return Fraction(TIMES[time[1]])
    if word in WORDS:
        return Fraction(1)
    return Fraction(PREFIXES[word[0]]) if word[:1] in PREFIXES and word[1:] in WORDS else None


def _seconds(word: str) -> Fraction | None:
    """Return the factor of a word of the denominator: a rate is by the second, not by the nanosecond."""
    factor = _factor(word)
    return (
        factor / 10**9
        if factor is not None and word.endswith(("s", "second")) and word not in WORDS
        else factor
    )
