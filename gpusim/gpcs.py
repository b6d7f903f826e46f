"""The GPCs: which SMs belong together, which L2 partition they ask first, in which order they get blocks.

What it models: the dealing that an H200 showed under a profiler for grids of 6 to 4,096 blocks of 64 to 1,024
threads (h200 fact 50). Blocks go, in the order of their numbers, to one group of SMs after the other, one for
each SM of it. Where a grid has fewer blocks than the GPU has SMs, the first 8 go to the first group, and the
others get equal shares, one block a pair of SMs (a TPC) first. SMs are numbered in the order of dealing. All
of it is modelled: cards of one name differ in which SMs are switched off. What it leaves out: a block that
starts where another one has just ended (gpusim/scheduler.py deals whole waves).
"""

from __future__ import annotations

import numpy as np

from gpusim.arch import Arch

FIRST = 8
"""Blocks of a small grid that the first group gets before any other."""


def gpc_of_sm(arch: Arch) -> np.ndarray:
    """Return the GPC of each SM, int64."""
    return np.repeat([gpc for gpc, _ in arch.sm_groups], [sms for _, sms in arch.sm_groups]).astype(np.int64)


def partition_of_sm(arch: Arch) -> np.ndarray:
    """Return the L2 partition that each SM asks first, int64."""
    return np.array(arch.gpc_partitions, np.int64)[gpc_of_sm(arch)] % arch.l2_partitions


def deal(arch: Arch, count: int, blocks_per_sm: int) -> np.ndarray:
    """Return the SM of each of `count` blocks that are resident together, int32.

    Raise ValueError for more than fit.
    """
    if count > blocks_per_sm * arch.sm_count:
        raise ValueError(f"{count} blocks on {arch.sm_count} SMs with {blocks_per_sm} each")
    rounds = [min(arch.sm_count, count - done) for done in range(0, count, arch.sm_count)]
    dealt = {n: _one_each(arch, n) for n in set(rounds)}
    return np.concatenate([dealt[n] for n in rounds] or [np.zeros(0, np.int32)])


def _one_each(arch: Arch, count: int) -> np.ndarray:
    """Return the SMs of at most sm_count blocks, one for an SM."""
    found: list[int] = []
    first_sm = 0
    for (_, size), blocks in zip(arch.sm_groups, shares(arch, count), strict=True):
        step = 2 if blocks <= (size + 1) // 2 else 1
        found += range(first_sm, first_sm + size, step)[:blocks]
        first_sm += size
    return np.array(found, np.int32)


def shares(arch: Arch, count: int) -> list[int]:
    """Return how many of `count` blocks each group gets, one for an SM at most."""
    sizes = [size for _, size in arch.sm_groups]
    given = [0] * len(sizes)
    given[0] = min(count, FIRST, sizes[0])
    order = (*range(1, len(sizes)), 0)
    for most in ([(size + 1) // 2 for size in sizes], sizes):
        while sum(given) < count and any(n < m for n, m in zip(given, most, strict=True)):
            for group in order:
                if given[group] < most[group] and sum(given) < count:
                    given[group] += 1
    return given
