"""What a replay tells whoever watches it: the seam between the memory hierarchy and a timeline.

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


class Observer(Protocol):
    """Watch launches being replayed."""

    def begin(self, sites: Sequence[Site]) -> None:
        """Hear that a launch begins; sites[k] is access site k of its records (gpusim/trace.py)."""

    def wave(
        self,
        records: np.ndarray,
        offsets: np.ndarray,
        sm: np.ndarray,
        turns: Iterator[tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Watch one wave: the arguments of MemorySystem.replay, and an iterator that replays it.

        Each item is what there is after every block has had a turn: (at, counts), int64. Block b has replayed
        its records before records[at[b]]; counts are those of gpusim.l2.COUNTS since the launch began. Both
        are views that the next item overwrites, and so are the records after the wave.
        """
