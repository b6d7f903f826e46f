"""print in a kernel: the text of a line, and the order of the lines of a launch.

What it models: numba.cuda's print of numbers, text and tuples: items with a space between, floats with 6
decimals as CUDA's printf has them, booleans as True and False; at most 32 items a call, CUDA's limit. What it
leaves out: the card's order of lines, which no program decides, and its buffer, which drops the oldest lines
when it is full. Here the lines of a launch come when it has ended, well or by an error, by block, then
thread, then in the thread's own order. Checked by no ncu metric: what printing costs on the card is not
counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from dsl.intrinsics.arguments import MAX_PRINTED
from dsl.oracle.arrays import Recorder
from dsl.oracle.numbers import element_of
from dsl.warpir import ir


class Line(NamedTuple):
    """Hold one printed line: the linear numbers of its block and thread, and the text."""

    block: int
    thread: int
    text: str


class Printer:
    """Stand for `print` in a kernel: a call is added to `lines` as a line of the thread that runs."""

    def __init__(self, recorder: Recorder, lines: list[Line]) -> None:
        self.recorder, self.lines = recorder, lines

    def __call__(self, *items: Any) -> None:
        """Keep one line; raise TypeError for what numba.cuda does not print."""
        thread = self.recorder.thread
        if sum(map(_numbers, items)) > MAX_PRINTED:
            raise TypeError(f"print of more than {MAX_PRINTED} numbers, CUDA's limit; print twice")
        self.lines.append(Line(thread.block, thread.linear, " ".join(map(shown, items))))


def _numbers(item: Any) -> int:
    return sum(map(_numbers, item)) if isinstance(item, tuple) else int(not isinstance(item, str))


def shown(item: Any) -> str:
    """Return an item of print as text; raise TypeError for what is no number, text or tuple."""
    if isinstance(item, str):
        return item
    if isinstance(item, tuple):
        return f"({', '.join(map(shown, item))}{',' if len(item) == 1 else ''})"
    element = element_of(item)
    if element is None:
        raise TypeError(f"print of {type(item).__name__}; print numbers, text and tuples")
    if element == "pred":
        return str(bool(item))
    return f"{float(item):f}" if element in ir.FLOATS else str(int(item))


def in_order(lines: Iterable[Line]) -> str:
    """Return the text of a launch's lines by block, then thread, each thread's in the order given."""
    ordered = sorted(lines, key=lambda found: (found.block, found.thread))
    return "".join(f"{found.text}\n" for found in ordered)
