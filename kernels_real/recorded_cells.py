"""The cells of recorded measurements, read: each column before the metrics with what it may hold.

What it leaves out: rows, files and what a launch is (kernels_real/recordings.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpusim.errors import BadOption
from gpusim.measured import canonical
from gpusim.ncu_csv import is_missing, parse_number


def about_launch(cells: Sequence[str], where: str) -> dict[str, Any]:
    """Return column -> value of what stands before the metrics; raise BadOption for a cell that its column
    cannot hold."""
    return {column: _value(column, cell, where) for column, cell in zip(COLUMNS, cells, strict=False)}


def _value(column: str, cell: str, where: str) -> Any:
    read, needed = CELLS[column]
    try:
        return read(cell)
    except ValueError:
        raise BadOption(f"{where}: {column} is {_short(cell)}, and must be {needed}") from None


def numbers(names: Sequence[str], cells: Sequence[str], where: str) -> Iterator[tuple[str, int | float]]:
    """Yield name and number of each metric that was measured; raise BadOption for a cell of other text."""
    for name, cell in zip(names, cells, strict=True):
        if not is_missing(cell):
            number = parse_number(cell)
            if number is None or number < 0:
                raise BadOption(f"{where}: {name} is {_short(cell)}, and must be a number from 0 on, or "
                                "empty where it was not measured")
            yield canonical(name), number


def _short(cell: str, most: int = 60) -> str:
    return repr(cell if len(cell) <= most else f"{cell[:most]}...")


def _some(cell: str) -> str:
    if not cell:
        raise ValueError
    return cell


def _backend(cell: str) -> str:
    if cell not in BACKENDS:
        raise ValueError
    return cell


def _object(cell: str) -> dict[str, Any]:
    found = json.loads(cell)
    if not isinstance(found, dict):
        raise ValueError
    return found


def _whole(cell: str, least: int = 0) -> int:
    number = int(cell)
    if number < least:
        raise ValueError
    return number


def _shape(cell: str) -> tuple[int, ...] | None:
    extents = tuple(_whole(word, 1) for word in cell.split())
    if len(extents) not in (0, 3):
        raise ValueError
    return extents or None


BACKENDS = ("numba", "triton")
CELLS: dict[str, tuple[Callable[[str], Any], str]] = {
    "kernel": (_some, "the name of a kernel"),
    "backend": (_backend, " or ".join(BACKENDS)),
    "options": (_object, 'a JSON object, such as {"n": 1003}'),
    "configuration": (_object, 'a JSON object, such as {"num_warps": 4} or {}'),
    "step": (_whole, "a whole number from 0 on"),
    "launch": (_some, "the name of a launch"),
    "grid": (_shape, "three whole numbers from 1 on with spaces between, or empty"),
    "block": (_shape, "three whole numbers from 1 on with spaces between, or empty"),
    "local_bytes": (lambda cell: _whole(cell) if cell else None, "a whole number from 0 on, or empty"),
    "error": (lambda cell: float(cell) if cell else None, "a number, or empty"),
    "rounded": (lambda cell: _whole(cell or "0") or None, "a whole number from 0 on, or empty"),
}
"""Column before the metrics -> what reads its cells (ValueError: it cannot), and what they must be."""
COLUMNS = tuple(CELLS)
