"""Watch launches being replayed, and keep what a timeline shows: blocks, phases, counts turn by turn.

What it models: the clock of the replay. In a turn every resident block replays up to so many requests
(`quantum_records`); a block's place in a turn is the steps it has made (visualize/phases.py), and the next
turn begins when the block with most steps has made them. What it leaves out: time; the card knows no turns.
A large launch is sampled as it runs, so that memory stays bounded; `ReplayLog` says how. Checked by the
launch's counters, which the last counts are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gpusim.l2 import COUNTS
from gpusim.observer import Place, Site
from visualize.phases import Arrays, Phases, phases_of, steps_of

MAX_SLICES = 100_000
"""Slices of blocks and phases in one timeline: about 1 MB as .json.gz."""
MAX_SAMPLES = 2_000
"""Samples of each counter track in one timeline."""


class Sample(NamedTuple):
    """Hold the state as a turn begins: its number in the log, the clock, counts of gpusim.l2.COUNTS since the
    launch began, and blocks that are resident and not at their end.
    """

    turn: int
    clock: int
    counts: np.ndarray
    blocks: int


@dataclass
class BlockSlice:
    """Hold one block: where it ran, from when to when, and its phases in steps of the clock, if kept."""

    number: int
    wave: int
    sm: int
    slot: int
    start: int
    end: int
    phases: Phases | None

    @property
    def slices(self) -> int:
        """Return the slices it takes: its own and those of its phases."""
        return 1 + (len(self.phases.kind) if self.phases else 0)


@dataclass
class LaunchLog:
    """Hold what was seen of one launch; counts are its last ones."""

    arrays: Arrays
    start: int
    end: int
    counts: np.ndarray
    waves: int = 0
    block_count: int = 0
    blocks: list[BlockSlice] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)


class ReplayLog:
    """Be an observer (gpusim/observer.py) that keeps at most max_slices slices and max_samples samples.

    Where there are more, every second, fourth, ... SM is kept (`every_sm`), and where one SM alone has too
    many, its last blocks lose first their phases and then their slices. Of the turns every second, fourth,
    ... is sampled (`every_turn`).
    """

    parts = 1

    def __init__(self, max_slices: int = MAX_SLICES, max_samples: int = MAX_SAMPLES) -> None:
        self.max_slices, self.max_samples = max_slices, max_samples
        self.launches: list[LaunchLog] = []
        self.every_sm = self.every_turn = 1
        self._slices = self._turns = self._last_sm = 0
        self._is_full = False

    def begin(self, sites: Sequence[Site], places: Sequence[Place] = ()) -> None:
        """Begin a launch where the one before ended."""
        now = self.launches[-1].end if self.launches else 0
        self.launches.append(LaunchLog(Arrays(sites), now, now, np.zeros(len(COUNTS), np.int64)))

    def wave(
        self,
        records: np.ndarray,
        offsets: np.ndarray,
        sm: np.ndarray,
        turns: Iterator[tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Replay a wave and keep its blocks."""
        launch = self.launches[-1]
        self._last_sm = max(self._last_sm, int(sm.max()))
        steps = steps_of(records, offsets)
        kept = np.flatnonzero(sm % self.every_sm == 0)
        begins, places = self._clock(turns, steps.before, offsets, kept)
        slots = _slots(sm)
        for column, b in enumerate(kept.tolist()):
            if sm[b] % self.every_sm:
                continue  # the blocks before were already too many
            own = slice(int(offsets[b]), int(offsets[b + 1]))
            phases = _on_clock(
                phases_of(records[own], steps.of[own], steps.quiet[own], launch.arrays),
                begins, places[:, column],
            )  # fmt: skip
            end = int(phases.end[-1])
            block = BlockSlice(
                launch.block_count + b, launch.waves, int(sm[b]), int(slots[b]), int(begins[0]), end, phases)
            self._keep(launch, block)
        launch.block_count += len(sm)
        launch.waves += 1

    def _clock(
        self,
        turns: Iterator[tuple[np.ndarray, np.ndarray]],
        before: np.ndarray,
        offsets: np.ndarray,
        kept: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Replay a wave; return when each turn begins, and the steps that each kept block has made by then.

        Shapes (turns + 1,) and (turns + 1, kept blocks); a wave without a record has one turn of one step.
        """
        launch, first, end = self.launches[-1], before[offsets[:-1]], offsets[1:]
        counts = launch.counts
        here, running = first, len(first)
        begins, places = [launch.end], [first[kept] - first[kept]]
        for at, after in turns:
            self._sample(launch, Sample(self._turns, begins[-1], counts, running))
            there, counts = before[at], after.copy()
            begins.append(begins[-1] + max(1, int((there - here).max())))
            places.append(there[kept] - first[kept])
            here, running = there, int((at < end).sum())
        if len(begins) == 1:
            self._sample(launch, Sample(self._turns, begins[-1], counts, running))
            begins.append(begins[-1] + 1)
            places.append(places[-1])
        launch.counts, launch.end = counts, begins[-1]
        return np.array(begins), np.array(places)

    def _sample(self, launch: LaunchLog, sample: Sample) -> None:
        """Keep a sample if its turn is one of those kept."""
        self._turns += 1
        if sample.turn % self.every_turn:
            return
        launch.samples.append(sample)
        if sum(len(each.samples) for each in self.launches) > self.max_samples:
            self.every_turn *= 2
            for each in self.launches:
                each.samples = [s for s in each.samples if s.turn % self.every_turn == 0]

    def _keep(self, launch: LaunchLog, block: BlockSlice) -> None:
        """Keep a block, and make room where there are too many slices."""
        if self._is_full:
            block.phases = None
        launch.blocks.append(block)
        self._slices += block.slices
        while self._slices > self.max_slices and self.every_sm <= self._last_sm:
            self.every_sm *= 2
            for each in self.launches:
                each.blocks = [b for b in each.blocks if b.sm % self.every_sm == 0]
            self._slices = sum(b.slices for each in self.launches for b in each.blocks)
        if self._slices > self.max_slices:  # of one SM; without this block they were few enough
            self._is_full = True
            self._slices -= block.slices
            launch.blocks.pop()
            if self._slices < self.max_slices:
                block.phases = None
                launch.blocks.append(block)
                self._slices += 1


def _slots(sm: np.ndarray) -> np.ndarray:
    """Return the slot of each block on its SM: how many blocks of the wave before it are there."""
    order = np.argsort(sm, kind="stable")
    there = sm[order]
    slots = np.empty(len(sm), np.int64)
    slots[order] = np.arange(len(sm)) - np.searchsorted(there, there)
    return slots


def _on_clock(phases: Phases, begins: np.ndarray, places: np.ndarray) -> Phases:
    """Return a block's phases with start and end on the clock.

    begins: when each turn begins. places: the steps that the block has made by then.
    """
    if not places[-1]:  # a block without a record
        return phases._replace(start=begins[:1], end=begins[:1] + 1)

    def clock(step: np.ndarray) -> np.ndarray:
        turn = np.searchsorted(places, step, "right") - 1
        return begins[turn] + step - places[turn]

    return phases._replace(start=clock(phases.start), end=clock(phases.end - 1) + 1)
