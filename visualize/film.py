"""What an animation shows, as plain data: bytes, tiles and resident blocks, frame by frame.

The clock counts bytes that SMs ask for (exact), the same for all films that are shown together: each frame is
as many bytes of each. Steps of the log are never cut: one belongs to the frame in which it ends. What it
leaves out: time, drawing. Sums over the frames are the counters of the launches, to the byte.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpusim.errors import UnsupportedFeature
from gpusim.l2 import COUNTS, L2_HITS, L2_MISSES
from gpusim.trace import SECTOR_BYTES
from visualize.byte_log import ASKED, ByteLog, LaunchSteps
from visualize.levels import Level, levels
from visualize.run import Run
from visualize.tiles import Grid

MOST_TENSORS = 8
Names = Sequence[Mapping[str, str]]
"""For each launch: parameter -> what the array is called."""


@dataclass(frozen=True)
class Tensor:
    """Hold the tiles of one array; reads and writes: int64 (frames, tiles), sectors."""

    name: str
    grid: Grid
    reads: np.ndarray
    writes: np.ndarray

    @property
    def touched(self) -> int:
        """Return the sectors read and written in all frames."""
        return int(self.reads.sum() + self.writes.sum())

    def joined(self, other: Tensor) -> Tensor:
        """Return this array with what another launch did to it added."""
        return replace(self, reads=self.reads + other.reads, writes=self.writes + other.writes)


@dataclass(frozen=True)
class Section:
    """Hold one launch: its name, bytes asked for before it and with it, and its blocks.

    blocks_per_sm: the most that fit an SM. shared_bytes: a block's own, without what the driver takes beside
    it (1,024 B a block).
    """

    name: str
    start_bytes: int
    end_bytes: int
    blocks: int
    blocks_per_sm: int
    shared_bytes: int


@dataclass(frozen=True)
class Film:
    """Hold the frames of one kernel's launches.

    resident: int32 (frames, SMs), blocks there as the last step of the frame began. section: int64 (frames),
    the launch that ended the frame. clock: int64 (frames), bytes asked for by the end of it. l2_hits,
    l2_misses: int64 (frames), sectors. turns: of the replay in a frame, about. others: arrays with less
    traffic, which are not among the tensors.
    """

    run: Run
    frame_bytes: float
    sections: tuple[Section, ...]
    tensors: tuple[Tensor, ...]
    others: int
    levels: tuple[Level, ...]
    resident: np.ndarray
    section: np.ndarray
    clock: np.ndarray
    l2_hits: np.ndarray
    l2_misses: np.ndarray
    turns: float

    @property
    def frames(self) -> int:
        """Return the number of frames."""
        return len(self.clock)

    @property
    def ends(self) -> int:
        """Return the first frame at whose end all is done."""
        return int(np.argmax(self.clock == self.clock[-1]))

    @property
    def shared_bytes(self) -> np.ndarray:
        """Return the shared memory of their own that resident blocks hold, int64 (frames)."""
        each = np.array([s.shared_bytes for s in self.sections])
        return self.resident.sum(1) * each[self.section]


def films(shown: Sequence[tuple[Run, ByteLog, Names]], frames: int) -> tuple[Film, ...]:
    """Return the films of some kernels on one clock, with at most so many frames each.

    Fewer where the longest has fewer steps. Raises UnsupportedFeature for a run that left no trace.
    """
    kept = [_steps_of(run, log) for run, log, _ in shown]
    totals = [sum(_bytes(launch) for launch in seen) for seen in kept]
    most = max(totals)
    longest = max(sum(len(x.steps) for x in seen) for seen, n in zip(kept, totals, strict=True) if n == most)
    count = max(1, min(frames, longest))
    frame_bytes = max(1, most) / count
    return tuple(_film(run, seen, names, frame_bytes, count)
                 for (run, _, names), seen in zip(shown, kept, strict=True))


def _steps_of(run: Run, log: ByteLog) -> list[LaunchSteps]:
    """Return what a log has seen of a run's launches: the last ones, as a warm-up comes before."""
    seen = log.launches[-len(run.launches):]
    if len(seen) != len(run.launches) or any("hierarchy" in x.not_counted for x in run.launches):
        raise UnsupportedFeature(f"there is no animation of {run.title}: no trace of its accesses was "
                                 "watched. The compiled engine and the interpreter of WarpIR make one.")
    return seen


def _bytes(launch: LaunchSteps) -> int:
    return SECTOR_BYTES * sum(int(step.asked.sum()) for step in launch.steps)


def _film(run: Run, seen: list[LaunchSteps], names: Names, frame_bytes: float, count: int) -> Film:
    steps = [step for launch in seen for step in launch.steps]
    asked = SECTOR_BYTES * np.array([step.asked for step in steps], np.int64).reshape(-1, len(ASKED))
    ends = np.cumsum(asked.sum(1))
    frame_of = np.clip(np.ceil(ends / frame_bytes - 1e-9).astype(np.int64) - 1, 0, count - 1)
    moved = _summed(asked, frame_of, count)
    counts = np.array([step.counts for step in steps], np.int64).reshape(-1, len(COUNTS))
    counts = _summed(counts, frame_of, count)
    tensors = _tensors(seen, names, frame_of, count)
    most = sorted(tensors, key=lambda t: -t.touched)[:MOST_TENSORS]
    resident, section = _at_the_end_of(frame_of, seen, count, run.launches[0].arch.sm_count)
    return Film(
        run, frame_bytes, _sections(run, seen), tuple(t for t in tensors if t in most),
        len(tensors) - len(most), levels(run.launches, moved, counts), resident,
        section, np.cumsum(moved.sum(1)), counts[:, L2_HITS], counts[:, L2_MISSES],
        sum(launch.turns for launch in seen) * frame_bytes / max(1, int(moved.sum())),
    )  # fmt: skip


def _summed(values: np.ndarray, frame_of: np.ndarray, count: int) -> np.ndarray:
    """Return the sums of the rows of each frame, int64."""
    out = np.zeros((count, *values.shape[1:]), np.int64)
    np.add.at(out, frame_of, values)
    return out


def _at_the_end_of(frame_of: np.ndarray, seen: list[LaunchSteps], count: int,
                   sm_count: int) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return the resident blocks and the launch of the last step of each frame; no blocks after the last."""
    resident, section = np.zeros((count, sm_count), np.int32), np.zeros(count, np.int64)
    if not len(frame_of):
        return resident, section
    last = np.maximum(np.searchsorted(frame_of, np.arange(count), "right") - 1, 0)
    running = np.arange(count) <= frame_of[-1]
    resident[running] = np.array([step.resident for launch in seen for step in launch.steps])[last[running]]
    section[:] = np.repeat(np.arange(len(seen)), [len(launch.steps) for launch in seen])[last]
    return resident, section


def _sections(run: Run, seen: list[LaunchSteps]) -> tuple[Section, ...]:
    ends = np.cumsum([0, *map(_bytes, seen)]).tolist()
    return tuple(
        Section(x.kernel, start, end, math.prod(x.grid), x.occupancy.blocks_per_sm,
                x.static_shared_bytes + x.dynamic_shared_bytes)
        for x, start, end in zip(run.launches, ends, ends[1:], strict=False)
    )  # fmt: skip


def _tensors(seen: list[LaunchSteps], names: Names, frame_of: np.ndarray, count: int) -> list[Tensor]:
    """Return the arrays that are touched, in the order in which launches take them."""
    found: dict[tuple[str, tuple[int, ...], int], Tensor] = {}
    first = 0
    for launch, called in zip(seen, names, strict=True):
        of_launch = frame_of[first : first + len(launch.steps)]
        first += len(launch.steps)
        touched = np.zeros((count, 2, int(launch.bounds[-1])), np.int64)
        for frame, step in zip(of_launch, launch.steps, strict=True):
            touched[frame] += step.touched
        for grid, start, end in zip(launch.grids, launch.bounds, launch.bounds[1:], strict=False):
            own = touched[:, :, start:end]
            name = called.get(grid.name, grid.name)
            if own.any():
                key = (name, grid.shape, grid.size)
                before = found.get(key)
                more = Tensor(name, grid, own[:, 0], own[:, 1])
                found[key] = more if before is None else before.joined(more)
    return list(found.values())
