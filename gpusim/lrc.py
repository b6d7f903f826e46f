"""The request coalescer between L1 and L2 (LRC): reads of one line by SMs of one GPC become one.

What it models, from pairs of SMs that read the same data on an H200 (h200 facts 47 to 49): two SMs of a GPC
ask L2 once, two of different GPCs twice; up to 4 reads become one, so that 16 SMs of a GPC are 4 streams and
18 are 5. Reads meet while the first is on its way: here, within a number of turns of the replay. Of several
blocks an SM, those of one rank meet: an SM prefers the warps of its oldest block, so that its blocks are at
different places (products of 8 blocks an SM merge the tile that neighbours share, and not the other one,
which blocks of all ranks read). Sectors that were not asked for yet go on their own. What it leaves out:
stores and atomics, which are not merged. Checked by `lts__t_sectors_srcunit_tex_op_read.sum` and
`lrc__average_xbar2gpc_sectors_op_read.ratio`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpusim.runtime import jit_inlined

SLOTS_SHIFT = 12
"""log2 of the requests that a GPC's table holds; one that meets another in its slot takes it."""


class Lrc(NamedTuple):
    """Hold the reads on their way, a table for each GPC.

    asked, masks, merged, turns: int64 (GPCs << SLOTS_SHIFT): line << 5 | rank, the sectors that were asked
    for, how many reads they stand for, the turn in which the first asked. gpc_of_sm: int64. most: reads that
    become one, 1 for none. window: turns that a read is on its way (an array of one, as it depends on the
    launch).
    """

    asked: np.ndarray
    masks: np.ndarray
    merged: np.ndarray
    turns: np.ndarray
    gpc_of_sm: np.ndarray
    window: np.ndarray
    most: int


def new_lrc(gpc_of_sm: np.ndarray, most: int) -> Lrc:
    """Return empty tables for the GPCs of some SMs."""
    slots = (int(gpc_of_sm.max()) + 1) << SLOTS_SHIFT
    asked, masks, merged, turns = (np.full(slots, fill, np.int64) for fill in (-1, 0, 0, 0))
    return Lrc(asked, masks, merged, turns, gpc_of_sm.astype(np.int64), np.zeros(1, np.int64), most)


def forget(lrc: Lrc) -> None:
    """End all reads on their way, as between waves and launches."""
    lrc.asked.fill(-1)


@jit_inlined
def is_merged(lrc: Lrc, sm: int, rank: int, line: int, mask: int, turn: int) -> bool:
    """Say whether sectors of a line arrive with a read on its way; if not, this one is on its way now.

    rank: how many blocks of its SM stand before the one that asks.
    """
    asked = line << 5 | rank
    hashed = np.uint64(asked) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(64 - SLOTS_SHIFT)
    slot = (np.uint64(lrc.gpc_of_sm[sm]) << np.uint64(SLOTS_SHIFT)) + hashed
    if lrc.asked[slot] == asked and turn - lrc.turns[slot] <= lrc.window[0]:
        if mask & ~lrc.masks[slot]:
            lrc.masks[slot] |= mask
            return False
        if lrc.merged[slot] < lrc.most:
            lrc.merged[slot] += 1
            return True
    lrc.asked[slot], lrc.masks[slot], lrc.merged[slot], lrc.turns[slot] = asked, mask, 1, turn
    return False
