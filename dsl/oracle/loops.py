"""What the Python oracle puts in the place of `range`, `zip` and `enumerate` in a kernel.

What it models: loops whose length is known when they start, so that `zip` loads no element past the end of
the shortest, as in compiled code. What it leaves out: iterators of other kinds. Checked by no ncu metric.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from dsl import types
from dsl.oracle.arrays import Item, Recorder, Tracked, counted
from dsl.oracle.numbers import element_of, number


class Loop:
    """Hold what a `for` runs over: a length, and an item for each count from 0."""

    def __init__(self, recorder: Recorder, length: int, item: Item) -> None:
        self.recorder, self.length, self.item = recorder, length, item

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return counted(self.recorder, self.length, self.item)


def _part(value: Any) -> tuple[int, Item]:
    """Return the length of something and how to get its items."""
    if isinstance(value, Loop):
        return value.length, value.item
    if isinstance(value, Tracked):
        return len(value), value.load
    return len(value), _of(value)


def _of(values: Sequence[Any]) -> Item:
    def item(k: int, frame: FrameType) -> Any:
        return values[k]

    return item


def _endless(recorder: Recorder, start: Any) -> Loop:
    """Return the loop of a range with step 0: its start, again and again, up to max_steps."""
    return Loop(recorder, sys.maxsize, lambda k, frame: start)


def loops(recorder: Recorder) -> dict[str, Callable[..., Loop]]:
    """Return the stand-ins; each tells the recorder which iteration a thread is in."""

    def range_(*limits: Any) -> Loop:
        element = types.range_type([element_of(n) or "s64" for n in limits])
        plain = [int(number(n, element)) for n in limits]
        if len(plain) == 3 and not plain[2]:  # counted downwards: no iteration, or no end
            return _endless(recorder, number(limits[0], element)) if plain[0] > plain[1] else zip_()
        numbers = range(*plain)
        length = min(max(0, -((numbers.start - numbers.stop) // numbers.step)), sys.maxsize)
        return Loop(recorder, length, lambda k, frame: number(numbers[k], element))

    def zip_(*values: Any) -> Loop:
        parts = [_part(v) for v in values]
        length = min((n for n, _ in parts), default=0)
        return Loop(recorder, length, lambda k, frame: tuple(item(k, frame) for _, item in parts))

    def enumerate_(values: Any, start: Any = 0) -> Loop:
        length, item = _part(values)
        return Loop(recorder, length, lambda k, frame: (number(int(start) + k, "s64"), item(k, frame)))

    return {"range": range_, "zip": zip_, "enumerate": enumerate_}
