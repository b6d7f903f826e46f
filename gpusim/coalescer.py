"""The coalescer: 32 addresses of a warp instruction to 128-byte lines and 32-byte sectors.

What it models: the tag stage of L1/TEX; each lane's element is aligned and at most 32 bytes long, so it
lies in one sector. What it leaves out: time, and the order in which the card takes the lines of a request.
Checked by `l1tex__t_requests_*` and `l1tex__t_sectors_*`, which equal it to the last sector on a real card.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.np.numpy_support import carray

from gpusim.runtime import c_entry, jit, popcount, signed, trailing_zeros
from gpusim.trace import FIRST_SHIFT, KIND_SHIFT, LINE_SHIFT, SITE_SHIFT

POINTERS = types.int64(
    types.CPointer(types.int64), types.uint32, types.int64, types.int64, types.CPointer(types.uint64)
)
"""C signature of coalesce and collide: addresses, mask, kind, site, out -> records | sectors << 32."""


@jit
def lanes_of_line(addresses: np.ndarray, mask: np.uint32, line: int) -> np.uint64:
    """Return the active lanes of a line and the sectors they touch, as sectors << 32 | lanes.

    One pass over all 32 lanes without a branch, which LLVM turns into vector code: 8 ns.
    """
    lanes = np.uint32(0)
    sectors = np.uint32(0)
    for lane in range(32):
        address = addresses[lane]
        bit = np.uint32(1) << np.uint32(lane)
        inside = (address >> 7) == line
        lanes |= bit if inside else np.uint32(0)
        sector = np.uint32(1) << (np.uint32(address >> 5) & np.uint32(3))
        sectors |= sector if inside and (mask & bit) != 0 else np.uint32(0)
    return np.uint64(lanes & mask) | np.uint64(sectors) << np.uint64(32)


@jit
def header(kind: int, site: int) -> np.uint64:
    """Return the bits of a record that all records of a request share."""
    return np.uint64(kind) << np.uint64(KIND_SHIFT) | np.uint64(site) << np.uint64(SITE_SHIFT)


@jit
def coalesce(addresses: np.ndarray, mask: np.uint32, kind: int, site: int, out: np.ndarray) -> int:
    """Write one trace record a line touched, ordered by lowest active lane; return records | sectors << 32.

    addresses: int64, shape (32,), of the first byte of each lane's element; those of lanes that are off are
    not looked at. mask: the active lanes. kind, site: see gpusim/trace.py. out: uint64, room for 32. No
    lane active: 0 records.
    """
    rest = np.uint32(mask)
    bits = header(kind, site) | np.uint64(1) << np.uint64(FIRST_SHIFT)
    records = 0
    sectors = 0
    while rest != 0:
        line = addresses[trailing_zeros(rest)] >> 7
        found = lanes_of_line(addresses, rest, line)
        touched = found >> np.uint64(32)
        rest &= ~np.uint32(found)
        out[records] = bits | touched | np.uint64(line) << np.uint64(LINE_SHIFT)
        bits = header(kind, site)
        records += 1
        sectors += popcount(touched)
    return records | sectors << 32


@jit
def coalesce_words(
    addresses: np.ndarray, mask: np.uint32, words: int, kind: int, site: int, out: np.ndarray
) -> int:
    """Do the same for local memory, where the `words` 4-byte words of one lane lie 128 bytes apart.

    out: uint64, room for 32 x words. Lines are ordered by lowest lane, then by word.
    """
    records = 0
    sectors = 0
    for lane in range(32):
        for word in range(words if mask >> np.uint32(lane) & np.uint32(1) else 0):
            address = addresses[lane] + 128 * word
            at = 0
            while at < records and signed(out[at] >> np.uint64(LINE_SHIFT)) != address >> 7:
                at += 1
            if at == records:
                out[at] = header(kind, site) | np.uint64(address >> 7) << np.uint64(LINE_SHIFT)
                records += 1
            sector = np.uint64(1) << (np.uint64(address >> 5) & np.uint64(3))
            sectors += 1 if out[at] & sector == 0 else 0
            out[at] |= sector
    if records > 0:
        out[0] |= np.uint64(1) << np.uint64(FIRST_SHIFT)
    return records | sectors << 32


@c_entry(POINTERS)
def coalesce_two_words_entry(addresses, mask, kind, site, out):  # type: ignore[no-untyped-def]
    """Call `coalesce_words` for 8 bytes a lane with raw pointers."""
    return coalesce_words(carray(addresses, 32), mask, 2, kind, site, carray(out, 64))


@c_entry(POINTERS)
def coalesce_four_words_entry(addresses, mask, kind, site, out):  # type: ignore[no-untyped-def]
    """Call `coalesce_words` for 16 bytes a lane with raw pointers."""
    return coalesce_words(carray(addresses, 32), mask, 4, kind, site, carray(out, 128))


@c_entry(POINTERS)
def coalesce_entry(addresses, mask, kind, site, out):  # type: ignore[no-untyped-def]
    """Call `coalesce` with raw pointers."""
    return coalesce(carray(addresses, 32), mask, kind, site, carray(out, 32))


@jit
def _same_sector(source: np.ndarray, target: np.ndarray, a: int, b: int) -> bool:
    """Return whether two lanes have the same source line and the same destination sector."""
    return (source[a] ^ source[b]) >> 7 == 0 and (target[a] ^ target[b]) >> 5 == 0


@jit
def _seen_before(source: np.ndarray, target: np.ndarray, mask: np.uint32, lane: int) -> bool:
    """Return whether an active lane below `lane` has the same source line and destination sector."""
    same = np.uint32(0)
    for other in range(32):
        active = mask >> np.uint32(other) & np.uint32(other < lane)
        same |= active if _same_sector(source, target, other, lane) else np.uint32(0)
    return same & np.uint32(1) != 0


@jit
def copy_sectors(source: np.ndarray, target: np.ndarray, mask: np.uint32) -> int:
    """Return the sectors of a cp.async that bypasses L1: pairs of a source line and a destination sector.

    source, target: int64, shape (32,), byte addresses; mask: the lanes that read (h200 fact 37).
    """
    lanes = np.uint32(mask)
    count = 0
    places = np.uint64(0)
    for lane in range(0, 32, 2):  # neighbours mostly share a sector
        first, second = lanes >> np.uint32(lane) & np.uint32(1), lanes >> np.uint32(lane + 1) & np.uint32(1)
        if first and second and not _same_sector(source, target, lane, lane + 1):
            count = 64
        some = lane if first else lane + 1
        count += 1 if first or second else 0
        bit = np.uint64(1) << np.uint64((target[some] >> 5) & 63)
        places |= bit if first or second else np.uint64(0)
    if count == popcount(places):
        return count
    count = 0
    for lane in range(32):
        if lanes >> np.uint32(lane) & np.uint32(1) == 0:
            continue
        count += 0 if _seen_before(source, target, lanes, lane) else 1
    return count


@c_entry(types.int64(types.CPointer(types.int64), types.CPointer(types.int64), types.uint32))
def copy_sectors_entry(source, target, mask):  # type: ignore[no-untyped-def]
    """Call `copy_sectors` with raw pointers."""
    return copy_sectors(carray(source, 32), carray(target, 32), mask)
