"""What a replay tells whoever watches it: the seam between the memory hierarchy and timelines and animations.

What it models: nothing of its own; `gpusim.hierarchy.MemorySystem.observer` is None unless somebody asks, and
a launch that nobody watches is replayed as if this file were not there. What it leaves out: values, and time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np


class Site(NamedTuple):
    """Say what the access site of a trace record is: the array it touches, and its source line."""

    array: str
    file: str
    line: int


class Place(NamedTuple):
    """Say where an array of a launch lies: its parameter, address, shape, bytes of an element and strides."""

    array: str
    address: int
    shape: tuple[int, ...]
    element_bytes: int
    strides: tuple[int, ...]


class Observer(Protocol):
    """Watch launches being replayed.

    parts: in how many parts it wants to see each turn; the blocks of a part follow one another.
    """

    parts: int

    def begin(self, sites: Sequence[Site], places: Sequence[Place] = ()) -> None:
        """Hear that a launch begins; sites[k] is access site k of its records (gpusim/trace.py), and places
        are its arrays in global memory."""

    def wave(
        self,
        records: np.ndarray,
        offsets: np.ndarray,
        sm: np.ndarray,
        turns: Iterator[tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Watch one wave: the arguments of MemorySystem.replay, and an iterator that replays it.

        Each item is what there is after a part of the blocks have had a turn: (at, counts), int64. A turn is
        over after `parts` items, or fewer where blocks are at their end. Block b has replayed
        its records before records[at[b]]; counts are those of gpusim.l2.COUNTS since the launch began. Both
        are views that the next item overwrites, and so are the records after the wave.
        """
