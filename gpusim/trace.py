"""The access trace: what the engine hands to the memory hierarchy, 8 bytes a record.

What it models: every request that leaves a warp for L1, one record per 128-byte line it touches, in program
order of its block, and the barriers between. What it leaves out: shared memory (it never leaves the SM), data
values, and time. Checked by `l1tex__t_requests_*` and `l1tex__t_sectors_*`.

A record is one unsigned 64-bit integer:

    bits  0- 3  sector mask in the line (bit s = bytes 32 s .. 32 s + 31)
    bits  4- 7  kind, see Kind
    bit   8     set on the first record of a request
    bits  9-23  access site (number of the memory instruction in its kernel)
    bits 24-63  line number = byte address / 128

Records of one request follow one another, ordered by the lowest lane that touches the line. A RED or ATOM
whose lanes share addresses is passed on once per collision: the k-th record of a line holds the sectors in
which some address is shared by at least k lanes, so popcounts add up to fact 18 of the card (sum over sectors
of the largest number of lanes that share one address). These extra records follow the line's first one. WARP
and BARRIER are marks, not requests: their line field holds the warp number and the barrier's count so far.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

LINE_BYTES = 128
SECTOR_BYTES = 32
KIND_SHIFT, FIRST_SHIFT, SITE_SHIFT, LINE_SHIFT = 4, 8, 9, 24
MAX_SITES = 1 << (LINE_SHIFT - SITE_SHIFT)


class Kind(IntEnum):
    """Name what a record is."""

    LOAD = 0
    STORE = 1
    RED = 2
    ATOM = 3
    LOCAL_LOAD = 4
    LOCAL_STORE = 5
    LOAD_L2 = 6
    """A load that asks L2 past L1 (ld.cg, ld.cv)."""
    WARP = 14
    BARRIER = 15


def pack(line: int, mask: int, kind: Kind, site: int = 0, first: bool = True) -> int:
    """Return one record as an integer."""
    low = mask | int(kind) << KIND_SHIFT | int(first) << FIRST_SHIFT
    return low | site << SITE_SHIFT | line << LINE_SHIFT


RECORD = np.dtype([("line", "i8"), ("mask", "u1"), ("kind", "u1"), ("first", "?"), ("site", "u2")])


def unpack(records: np.ndarray) -> np.ndarray:
    """Return the records, uint64 of shape (n,), as a structured array of the fields of RECORD."""
    out = np.empty(len(records), RECORD)
    r = records.astype(np.uint64)
    out["mask"] = r & np.uint64(15)
    out["kind"] = (r >> np.uint64(KIND_SHIFT)) & np.uint64(15)
    out["first"] = (r >> np.uint64(FIRST_SHIFT)) & np.uint64(1)
    out["site"] = (r >> np.uint64(SITE_SHIFT)) & np.uint64(MAX_SITES - 1)
    out["line"] = r >> np.uint64(LINE_SHIFT)
    return out
