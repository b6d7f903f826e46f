"""The block scheduler: which blocks are resident together, on which SM, and what the last wave leaves idle.

What it models: waves of as many blocks as fit, dealt as gpusim/gpcs.py says; all of it is modelled. What it
leaves out: a card starts a block as soon as another ends, so its waves blur. Checked by
`launch__waves_per_multiprocessor`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpusim.arch import Arch
from gpusim.gpcs import deal


@dataclass(frozen=True)
class WaveStatistics:
    """Say how a grid fills the GPU; efficiency is used over offered block slots."""

    full_waves: int
    tail_blocks: int
    slots_per_wave: int
    efficiency: float

    @property
    def waves(self) -> int:
        """Return the number of waves, the partial one too."""
        return self.full_waves + (self.tail_blocks > 0)


def waves(n_blocks: int, blocks_per_sm: int, arch: Arch) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield (first block, blocks, SM of each as int32) of each wave."""
    slots = blocks_per_sm * arch.sm_count
    whole = deal(arch, slots, blocks_per_sm) if n_blocks >= slots else None
    for first in range(0, n_blocks, slots):
        count = min(slots, n_blocks - first)
        sms = whole if whole is not None and count == slots else deal(arch, count, blocks_per_sm)
        yield first, count, sms


def shuffled(seed: int, first: int, count: int) -> np.ndarray:
    """Return the numbers 0 to count - 1 in an order that a seed and the first block of a wave decide.

    The blocks of a wave are resident together, so their atomics may meet in any order.
    """
    return np.random.default_rng((seed, first)).permutation(count)


def wave_statistics(n_blocks: int, blocks_per_sm: int, sm_count: int) -> WaveStatistics:
    """Return how n_blocks >= 1 equal blocks fill waves: 133 on 132 SMs take 2 waves, 133 of 264 slots."""
    slots = blocks_per_sm * sm_count
    full, tail = divmod(n_blocks, slots)
    return WaveStatistics(full, tail, slots, n_blocks / (slots * (full + (tail > 0))))
