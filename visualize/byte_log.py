"""Watch launches being replayed, and keep what an animation shows: the bytes asked for, step by step.

What it models: the clock of bytes. A step is what some blocks did in a part of a turn of the replay; it has
the sectors that their requests ask for (exact), the tiles of the arrays that they touch (exact), and what L1,
L2 and DRAM did (modelled). What it leaves out: time. Steps are joined in pairs where there are too many, so
that memory stays bounded; nothing is dropped, and sums are the launch's counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpusim.l2 import COUNTS
from gpusim.observer import Place, Site
from gpusim.trace import KIND_SHIFT, LINE_SHIFT, MAX_SITES, SITE_SHIFT, Kind
from visualize.tiles import Grid, grid_of

MAX_STEPS = 2048
"""Steps of one log: 20 to 60 MB, and some more than the frames of a film."""
ASKED = ("load", "store", "atomic")
"""What a request is to the SM that makes it."""
KIND_OF = np.full(16, -1)
KIND_OF[[Kind.LOAD, Kind.LOAD_L2, Kind.LOCAL_LOAD]] = 0
KIND_OF[[Kind.STORE, Kind.LOCAL_STORE]] = 1
KIND_OF[[Kind.RED, Kind.ATOM]] = 2


@dataclass
class Step:
    """Hold what was done in one step.

    asked: int64 (3,), sectors of loads, stores and atomics. counts: int64, of gpusim.l2.COUNTS. touched:
    int32 (2, tiles of all arrays), sectors read and sectors written (by atomics too) in each tile. resident:
    int32, blocks of each SM that had something left to do as it began.
    """

    asked: np.ndarray
    counts: np.ndarray
    touched: np.ndarray
    resident: np.ndarray

    def joined(self, after: Step) -> Step:
        """Return this step and the next one as one step; the blocks are those as the next one began."""
        return Step(self.asked + after.asked, self.counts + after.counts, self.touched + after.touched,
                    after.resident)  # fmt: skip


@dataclass
class LaunchSteps:
    """Hold the steps of one launch.

    array_of: int, number of the grid that each access site touches, or -1. turns: of the replay, about. seen:
    counts of gpusim.l2.COUNTS so far.
    """

    grids: list[Grid]
    array_of: np.ndarray
    steps: list[Step] = field(default_factory=list)
    turns: float = 0.0
    seen: np.ndarray = field(default_factory=lambda: np.zeros(len(COUNTS), np.int64))

    @property
    def bounds(self) -> np.ndarray:
        """Return where the tiles of each grid begin in `touched`, and their end."""
        return np.cumsum([0, *(g.size for g in self.grids)])


class ByteLog:
    """Be an observer (gpusim/observer.py) that keeps at most max_steps steps, each `every` parts of turns."""

    parts = 16

    def __init__(self, sm_count: int, max_steps: int = MAX_STEPS) -> None:
        self.sm_count, self.max_steps = sm_count, max_steps
        self.launches: list[LaunchSteps] = []
        self.every = 1

    def begin(self, sites: Sequence[Site], places: Sequence[Place] = ()) -> None:
        """Begin a launch."""
        names = [place.array for place in places]
        found = [names.index(site.array) if site.array in names else -1 for site in sites]
        self.launches.append(LaunchSteps([grid_of(p) for p in places], np.array(found, np.int64)))

    def wave(
        self,
        records: np.ndarray,
        offsets: np.ndarray,
        sm: np.ndarray,
        turns: Iterator[tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Replay a wave and keep its steps."""
        launch = self.launches[-1]
        at, end = offsets[:-1].astype(np.int64), offsets[1:]
        parts, counts = 0, launch.seen
        for there, counts in turns:
            parts += 1
            if parts % self.every == 0:
                self._keep(_step(launch, records, at, there, self._resident(sm[at < end])), counts)
                at = there.copy()
        if (at < end).any():
            self._keep(_step(launch, records, at, end, self._resident(sm[at < end])), counts)
        launch.turns += parts / min(self.parts, max(1, len(sm)))

    def _resident(self, sm: np.ndarray) -> np.ndarray:
        return np.bincount(sm, minlength=self.sm_count).astype(np.int32)

    def _keep(self, step: Step, counts: np.ndarray) -> None:
        """Add a step to the last launch; join all steps in pairs where there are too many."""
        launch = self.launches[-1]
        step.counts = counts - launch.seen
        launch.seen = counts.copy()
        launch.steps.append(step)
        if sum(len(each.steps) for each in self.launches) > self.max_steps:
            self.every *= 2
            for each in self.launches:
                each.steps = _in_pairs(each.steps)


def _in_pairs(steps: list[Step]) -> list[Step]:
    pairs = [a.joined(b) for a, b in zip(steps[::2], steps[1::2], strict=False)]
    return pairs + steps[-1:] * (len(steps) % 2)


def _step(launch: LaunchSteps, records: np.ndarray, at: np.ndarray, there: np.ndarray,
          resident: np.ndarray) -> Step:  # fmt: skip
    """Return a step without its counts: block b did records[at[b]:there[b]]."""
    length = there - at
    before = np.cumsum(length) - length
    done = records[np.repeat(at - before, length) + np.arange(int(length.sum()))]
    kind = KIND_OF[(done >> np.uint64(KIND_SHIFT) & np.uint64(15)).astype(np.int64)]
    done, kind = done[kind >= 0], kind[kind >= 0]
    sectors = np.bitwise_count(done & np.uint64(15)).astype(np.int64)
    asked = np.bincount(kind, sectors, len(ASKED)).astype(np.int64)
    return Step(asked, np.zeros(len(COUNTS), np.int64), _touched(launch, done, kind > 0), resident)


def _touched(launch: LaunchSteps, records: np.ndarray, writes: np.ndarray) -> np.ndarray:
    """Return the sectors that requests read and write in each tile, int32 (2, tiles)."""
    bounds = launch.bounds
    found = np.zeros((2, int(bounds[-1])), np.int64)
    site = (records >> np.uint64(SITE_SHIFT)).astype(np.int64) & (MAX_SITES - 1)
    array = launch.array_of[site] if len(site) else site
    for number, grid in enumerate(launch.grids):
        own = records[array == number]
        is_write = writes[array == number].astype(np.int64)
        for bit in range(4 if len(own) else 0):
            has = own >> np.uint64(bit) & np.uint64(1) == 1
            sector = 4 * (own[has] >> np.uint64(LINE_SHIFT)).astype(np.int64) + bit
            tile = grid.tile_of(sector)
            place = (is_write[has] * grid.size + tile)[tile >= 0]
            found[:, bounds[number] : bounds[number + 1]] += np.bincount(
                place, minlength=2 * grid.size).reshape(2, -1)
    return found.astype(np.int32)
