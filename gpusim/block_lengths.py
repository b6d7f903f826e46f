"""How unequal the blocks of a launch are, and how its requests crowd: counted on the trace as it passes.

What it models: a block is as long as it has requests, the only thing of a block that the trace tells (blocks
without any are equal). Where all blocks of a wave have as many records, all are as the first. Blocks start in
the order of their numbers, each in the first slot that is free. What it leaves out: blocks that differ in
arithmetic alone. Read by gpusim/clock.py; all of it is modelled.
"""

from __future__ import annotations

import heapq
from collections import Counter

import numpy as np

from gpusim.arch import Arch
from gpusim.gpcs import deal
from gpusim.runtime import jit
from gpusim.trace import FIRST_SHIFT, KIND_SHIFT, LINE_SHIFT, Kind
from gpusim.work import BlockLengths

FIRST_MARK, RED, ATOM = int(Kind.WARP), int(Kind.RED), int(Kind.ATOM)


@jit
def _requests(records: np.ndarray, offsets: np.ndarray, requests: np.ndarray) -> int:
    """Count the requests of each block; return the lines they touch."""
    lines = 0
    for b in range(len(requests)):
        found = np.int64(0)
        for at in range(offsets[b], offsets[b + 1]):
            record = records[at]
            if record >> np.uint64(KIND_SHIFT) & np.uint64(15) < np.uint64(FIRST_MARK):
                lines += 1
                found += np.int64(record >> np.uint64(FIRST_SHIFT) & np.uint64(1))
        requests[b] = found
    return lines


class BlockTally:
    """Add up requests wave by wave: `wave` for each, then `lengths`, `lines` and `hot_line_sectors`."""

    def __init__(self, has_atomics: bool) -> None:
        self.has_atomics = has_atomics
        self.lines = 0
        self._requests: list[np.ndarray] = []
        self._atomics: Counter[int] = Counter()

    def wave(self, records: np.ndarray, offsets: np.ndarray) -> None:
        """Count one wave; records and offsets as in MemorySystem.replay."""
        lengths = np.diff(offsets)
        alike = len(lengths) > 0 and int(lengths.min()) == int(lengths.max())
        requests = np.zeros(1 if alike else len(lengths), np.int64)
        lines = _requests(records, offsets, requests)
        self.lines += lines * len(lengths) if alike else lines
        self._requests.append(np.repeat(requests, len(lengths)) if alike else requests)
        if self.has_atomics:
            self._count_atomics(records)

    def _count_atomics(self, records: np.ndarray) -> None:
        kinds = records >> np.uint64(KIND_SHIFT) & np.uint64(15)
        atomics = records[(kinds == RED) | (kinds == ATOM)]
        masks = atomics & np.uint64(15)
        sectors = sum((masks >> np.uint64(k) & np.uint64(1)).astype(np.int64) for k in range(4))
        lines, which = np.unique(atomics >> np.uint64(LINE_SHIFT), return_inverse=True)
        found = np.bincount(which, sectors, len(lines)).astype(np.int64)
        self._atomics.update(dict(zip(lines.tolist(), found.tolist(), strict=True)))

    @property
    def hot_line_sectors(self) -> int:
        """Return the RED and ATOM sectors of the line that has the most."""
        return max(self._atomics.values(), default=0)

    def lengths(self, arch: Arch, blocks_per_sm: int) -> BlockLengths:
        """Return how the blocks fill the slots of a GPU."""
        requests = np.concatenate([np.zeros(0, np.int64), *self._requests])
        return block_lengths(requests, arch, blocks_per_sm)


def block_lengths(requests: np.ndarray, arch: Arch, blocks_per_sm: int) -> BlockLengths:
    """Return how blocks with so many requests each fill the slots of a GPU, blocks_per_sm on an SM."""
    blocks, slots = len(requests), blocks_per_sm * arch.sm_count
    if not blocks or not slots:
        return BlockLengths(0.0, 0.0, 0.0)
    length = requests / requests.mean() if requests.any() else np.ones(blocks)
    if blocks > slots:
        longest = _longest_slot(length, slots)
        fullest = max(blocks / arch.sm_count, float(length.max()))
        return BlockLengths(longest, fullest, longest * arch.sm_count)
    sms = deal(arch, blocks, blocks_per_sm)
    spans = np.zeros(arch.sm_count)
    np.maximum.at(spans, sms, length)
    return BlockLengths(float(length.max()), float(np.bincount(sms, length).max()), float(spans.sum()))


def _longest_slot(length: np.ndarray, slots: int) -> float:
    """Return when the last block ends, each in the slot that is free first."""
    if length.min() == length.max():
        return float(-(-len(length) // slots))
    busy = length[:slots].tolist()
    heapq.heapify(busy)
    for more in length[slots:].tolist():
        heapq.heapreplace(busy, busy[0] + more)
    return float(max(busy))
