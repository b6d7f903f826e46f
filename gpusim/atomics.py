"""ATOM and RED: what a warp's atomics cost in sectors when lanes share an address.

What it models: lanes with different addresses of one sector go together, lanes that share an address go one
after another; the sectors of a request are the sum over the sectors touched of the largest number of lanes
that share one address in it (measured on an H200: lane and lane / 2 give 4, lane / 8 gives 8, all the same
32). What it leaves out: the values (the engine computes them) and the order of lanes. Checked by
`l1tex__t_sectors_pipe_lsu_mem_global_op_red` and `..._op_atom`.
"""

from __future__ import annotations

import numpy as np
from numba.np.numpy_support import carray

from gpusim.coalescer import POINTERS, header, lanes_of_line
from gpusim.runtime import c_entry, jit, popcount, trailing_zeros
from gpusim.trace import FIRST_SHIFT, LINE_SHIFT


@jit
def _one_lane_an_address(addresses: np.ndarray, lanes: np.uint32) -> np.uint64:
    """Take the first lane of each address among lanes of one line; return the others | sectors touched << 32.

    An atomic's address is a multiple of 4, so the 32 words of the line are the bits of one word.
    """
    words = np.uint32(0)
    sectors = np.uint64(0)
    others = np.uint64(0)
    while lanes != 0:
        lane = trailing_zeros(lanes)
        lanes &= lanes - np.uint32(1)
        word = np.uint32(addresses[lane] >> 2) & np.uint32(31)
        sectors |= np.uint64(1) << np.uint64(word >> np.uint32(3))
        if words >> word & np.uint32(1):
            others |= np.uint64(1) << np.uint64(lane)
        words |= np.uint32(1) << word
    return others | sectors << np.uint64(32)


@jit
def collide(addresses: np.ndarray, mask: np.uint32, kind: int, site: int, out: np.ndarray) -> int:
    """Write the records of one RED or ATOM, one more a collision; return records | sectors << 32.

    The k-th record of a line holds the sectors in which some address is shared by at least k lanes.
    Addresses are multiples of 4 (4- and 8-byte atomics). At most 32 records in all, as a line has no more
    records than lanes.
    """
    rest = np.uint32(mask)
    bits = header(kind, site) | np.uint64(1) << np.uint64(FIRST_SHIFT)
    records = 0
    sectors = 0
    while rest != 0:
        line = addresses[trailing_zeros(rest)] >> 7
        lanes = np.uint32(lanes_of_line(addresses, rest, line))
        rest &= ~lanes
        while lanes != 0:
            found = _one_lane_an_address(addresses, lanes)
            touched = found >> np.uint64(32)
            lanes = np.uint32(found)
            out[records] = bits | touched | np.uint64(line) << np.uint64(LINE_SHIFT)
            bits = header(kind, site)
            records += 1
            sectors += popcount(touched)
    return records | sectors << 32


@c_entry(POINTERS)
def collide_entry(addresses, mask, kind, site, out):  # type: ignore[no-untyped-def]
    """Call `collide` with raw pointers."""
    return collide(carray(addresses, 32), mask, kind, site, carray(out, 32))
