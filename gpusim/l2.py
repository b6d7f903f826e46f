"""The L2: two write-back partitions joined by a fabric, and the DRAM behind them.

What it models, with the number of the fact of the recorded H200 data each rule rests on:
- A line has a home partition, which talks to DRAM. An SM asks its own partition first; for a line of the
  other one (half of the lines) a miss goes through the fabric to the home, and the line then stays in both
  (facts 3 and 14). Sectors at the SM's own partition are what ncu calls srcunit_tex, sectors through the
  fabric srcunit_ltcfabric.
- A miss brings the whole DRAM granule, 64 bytes (fact 6); the card counts the sector that came along as one
  more miss, here it is apart: `l2_promoted`.
- A store is a hit and fetches nothing (fact 4). It is dirty at home; the partition of a far SM keeps a
  clean copy (fact 15).
- A set holds at most max_dirty_lines dirty lines (fact 15), then writes its oldest one back.
- RED and ATOM are done at the home, count as hits, and fetch a sector that is absent (facts 3, 8 and 18).
- No partition gives old data: a write drops the copy of its sectors in the partition that does not take part.
Modelled: the home of a line is the parity of its 4 KB chunk's number (on the card, of some of its bits: fact
48). What it leaves out: the request coalescer before L2 (gpusim/lrc.py), compression, and any
state of the card before the launch (fact 20). Checked by `lts__t_sectors_*`, `dram__bytes_read.sum` and
`dram__bytes_write.sum`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpusim.cache import Cache, drop, load, row_of, store
from gpusim.runtime import jit_inlined, popcount
from gpusim.trace import SECTOR_BYTES

CHUNK_SHIFT = 5
"""log2 of the lines of one chunk, 32 of 128 bytes: chunks 2 k and 2 k + 1 have different homes."""

# fmt: off
COUNTS = (
    "l1_load_hits", "l1_load_misses", "lrc_merged", "l2_read", "l2_write", "l2_red", "l2_atom", "l2_hits",
    "l2_misses", "l2_promoted", "l2_fabric_read", "l2_fabric_write", "l2_fabric_red", "l2_fabric_atom",
    "dram_read_bytes", "dram_write_bytes",
)
"""Names of the counts array, fields of gpusim.counters.Hierarchy."""
(
    L1_LOAD_HITS, L1_LOAD_MISSES, LRC_MERGED, L2_READ, L2_WRITE, L2_RED, L2_ATOM, L2_HITS, L2_MISSES,
    L2_PROMOTED, L2_FABRIC_READ, L2_FABRIC_WRITE, L2_FABRIC_RED, L2_FABRIC_ATOM,
    DRAM_READ_BYTES, DRAM_WRITE_BYTES,
) = range(len(COUNTS))
# fmt: on


class L2(NamedTuple):
    """Hold the partitions (units of one Cache), the one that each SM asks first (int64), what a DRAM granule
    brings, and the bound on dirty lines."""

    cache: Cache
    partitions: int
    partition_of_sm: np.ndarray
    granule: np.uint64
    max_dirty_lines: int


@jit_inlined
def home_of(l2: L2, line: int) -> int:
    """Return the partition that a line belongs to."""
    return (popcount(np.uint32(line >> CHUNK_SHIFT)) & 1) * (l2.partitions - 1)


@jit_inlined
def l2_row(l2: L2, unit: int, line: int) -> np.uint64:
    """Return a line's row in a partition; both chunks of a pair have the same, one at home, one as copies."""
    offset = line & ((1 << CHUNK_SHIFT) - 1)
    key = line >> (CHUNK_SHIFT + 1) << CHUNK_SHIFT | offset if l2.partitions == 2 else line
    return row_of(unit, key, l2.cache.sets)


@jit_inlined
def _home_fetch(l2: L2, counts: np.ndarray, home: int, line: int, mask: int) -> int:
    """Read sectors at a line's home, from DRAM where they are absent; return missing | fetched << 4."""
    got = load(l2.cache, l2_row(l2, home, line), line, mask, l2.granule)
    missing = np.uint64(got & 15)
    granules = l2.granule >> (missing * np.uint64(4)) & np.uint64(15)
    counts[DRAM_READ_BYTES] += SECTOR_BYTES * popcount(granules)
    counts[DRAM_WRITE_BYTES] += SECTOR_BYTES * (got >> 8)
    return got


@jit_inlined
def l2_load(l2: L2, counts: np.ndarray, sm: int, line: int, mask: int) -> None:
    """Read sectors of a line for an SM."""
    own, home = l2.partition_of_sm[sm], home_of(l2, line)
    if own == home:
        got = _home_fetch(l2, counts, home, line, mask)
    else:
        got = load(l2.cache, l2_row(l2, own, line), line, mask, l2.granule)
        counts[DRAM_WRITE_BYTES] += SECTOR_BYTES * (got >> 8)
        fetched = got >> 4 & 15
        if fetched:
            counts[L2_FABRIC_READ] += popcount(np.uint64(fetched))
            _home_fetch(l2, counts, home, line, fetched)
    asked, missing = popcount(np.uint64(mask)), popcount(np.uint64(got & 15))
    counts[L2_READ] += asked
    counts[L2_HITS] += asked - missing
    counts[L2_MISSES] += missing
    counts[L2_PROMOTED] += popcount(np.uint64(got >> 4 & 15)) - missing


@jit_inlined
def l2_store(l2: L2, counts: np.ndarray, sm: int, line: int, mask: int) -> None:
    """Write sectors of a line for an SM."""
    own, home = l2.partition_of_sm[sm], home_of(l2, line)
    sectors = popcount(np.uint64(mask))
    counts[L2_WRITE] += sectors
    counts[L2_HITS] += sectors
    written = store(l2.cache, l2_row(l2, home, line), line, mask, l2.max_dirty_lines)
    if own != home:
        counts[L2_FABRIC_WRITE] += sectors
        written += store(l2.cache, l2_row(l2, own, line), line, mask, 0)
    elif l2.partitions == 2:
        drop(l2.cache, l2_row(l2, 1 - home, line), line, mask)
    counts[DRAM_WRITE_BYTES] += SECTOR_BYTES * written


@jit_inlined
def l2_atomic(l2: L2, counts: np.ndarray, sm: int, line: int, mask: int, returns: bool) -> None:
    """Do a RED (or, where the old value returns, an ATOM) on sectors of a line, at its home."""
    home = home_of(l2, line)
    sectors = popcount(np.uint64(mask))
    counts[L2_ATOM if returns else L2_RED] += sectors
    counts[L2_HITS] += sectors
    if l2.partition_of_sm[sm] != home:
        counts[L2_FABRIC_ATOM if returns else L2_FABRIC_RED] += sectors
    _home_fetch(l2, counts, home, line, mask)
    written = store(l2.cache, l2_row(l2, home, line), line, mask, l2.max_dirty_lines)
    counts[DRAM_WRITE_BYTES] += SECTOR_BYTES * written
    if l2.partitions == 2:
        drop(l2.cache, l2_row(l2, 1 - home, line), line, mask)
