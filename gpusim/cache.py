"""One sectored set-associative cache, as arrays and functions; L1 and each partition of L2 are made of it.

What it models: lines of 128 bytes with one tag, a valid and a dirty bit for each of their four sectors, and
replacement of the least recently used line of a set. Several caches of one level (132 L1s, 2 partitions)
share the arrays; each has its own rows. What it leaves out: data, time, and misses under way. Checked by
`l1tex__t_sectors_*_lookup_*`, `lts__t_sectors_*_lookup_*`.

A row (one set) is 16 tags of 4 bytes and 4 words of 8 bytes: the valid nibbles of its ways, the dirty
nibbles, the order of use (nibble 0 is the way used last) and the number of dirty lines. 96 bytes a set keep
the 60 MB L2 of an H200 in 2.9 MB.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpusim.runtime import jit_inlined, popcount, signed
from gpusim.trace import LINE_BYTES

MAX_WAYS = 16
MAX_LINE = (1 << 31) - 1
"""The largest line number that a tag holds: addresses below 256 GiB."""
FRESH_ORDER = 0xFEDCBA9876543210
WORDS = 4
VALID, DIRTY, ORDER, DIRTY_LINES = (np.uint64(i) for i in range(WORDS))
ONES = np.uint64(0x1111111111111111)
EIGHTS = np.uint64(0x8888888888888888)
NIBBLE = np.uint64(15)
U0, U1, U3, U4 = (np.uint64(i) for i in (0, 1, 3, 4))


FOUND_TAG = np.int32(-2)
"""The tag of a line that somebody else left dirty: nobody reads it, and its write-back is not counted."""
FREE_TAG = np.int32(-1)


class Cache(NamedTuple):
    """Hold `units` caches of one shape: tags int32 (units * sets * 16), words uint64 (units * sets * 4)."""

    tags: np.ndarray
    words: np.ndarray
    sets: int
    ways: int


def new_cache(units: int, size_bytes: int, ways: int) -> Cache:
    """Return empty caches of size_bytes each; raise ValueError for ways outside 1..16 or under one set."""
    sets = size_bytes // LINE_BYTES // ways if 1 <= ways <= MAX_WAYS else 0
    if sets < 1:
        limits = f"ways must be 1 to {MAX_WAYS}, and one set must fit"
        raise ValueError(f"a cache of {size_bytes} bytes with {ways} ways: {limits}")
    rows = units * sets
    cache = Cache(np.empty(rows * MAX_WAYS, np.int32), np.empty(rows * WORDS, np.uint64), sets, ways)
    clear(cache)
    return cache


def clear(cache: Cache) -> None:
    """Empty the caches; dirty sectors are dropped. 0.5 ms for the L2 of an H200."""
    cache.tags.fill(FREE_TAG)
    cache.words.reshape(-1, WORDS)[:] = (0, 0, FRESH_ORDER, 0)


def leave_dirty(cache: Cache, sectors: int) -> None:
    """Put so many dirty sectors of somebody else into empty caches, as far as they fit.

    Evenly: one line a set, in the way that is given away last.
    """
    words = cache.words.reshape(-1, WORDS)
    places = np.arange(len(words) + 1) * min(sectors, 4 * len(words)) // len(words)
    nibbles = (np.uint64(1) << np.diff(places).astype(np.uint64)) - np.uint64(1)
    words[:, int(VALID)] = words[:, int(DIRTY)] = nibbles
    words[:, int(DIRTY_LINES)] = nibbles > 0
    cache.tags.reshape(-1, MAX_WAYS)[:, 0] = np.where(nibbles > 0, FOUND_TAG, FREE_TAG)


def found_sectors(cache: Cache) -> int:
    """Return the dirty sectors of somebody else that are still there."""
    there = cache.tags.reshape(-1, MAX_WAYS)[:, 0] == FOUND_TAG
    dirty = cache.words.reshape(-1, WORDS)[there, int(DIRTY)] & NIBBLE
    return int(np.bitwise_count(dirty).sum())


def dirty_sectors(cache: Cache) -> int:
    """Return the number of dirty sectors of all units, those of `leave_dirty` too."""
    return int(np.bitwise_count(cache.words.reshape(-1, WORDS)[:, int(DIRTY)]).sum())


@jit_inlined
def _mixed(x: np.uint64) -> np.uint64:
    """Return 32 mixed bits of x: after one multiplication evenly spaced lines still met in few sets."""
    x *= np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93)
    return x >> np.uint64(32)


@jit_inlined
def row_of(unit: int, key: int, sets: int) -> np.uint64:
    """Return the row of a line number (or another running number) in one unit.

    Each run of `sets` consecutive keys visits every set once, so a stream fills the cache evenly; each run
    starts at a hashed set, as with plain modulo lines that are a multiple of `sets` apart would all meet in
    one set. 0 <= key < 2**31.
    """
    run = np.uint64(np.uint32(key) // np.uint32(sets))
    start = (_mixed(run) * np.uint64(sets)) >> np.uint64(32)
    index = np.uint64(key) - run * np.uint64(sets) + start
    if index >= np.uint64(sets):
        index -= np.uint64(sets)
    return np.uint64(unit * sets) + index


@jit_inlined
def find(cache: Cache, row: np.uint64, line: int) -> int:
    """Return the way of a row that holds a line, -1 for none."""
    base = row * np.uint64(MAX_WAYS)
    tag = np.int32(line)
    last_used = cache.words[row * np.uint64(WORDS) + ORDER] & NIBBLE
    if cache.tags[base + last_used] == tag:
        return signed(last_used)
    way = np.int32(-1)
    for w in range(MAX_WAYS):
        way = np.int32(w) if cache.tags[base + np.uint64(w)] == tag else way
    return signed(way)


@jit_inlined
def touch(cache: Cache, row: np.uint64, way: int) -> None:
    """Make a way the one used last.

    The xor turns the nibble of this way to 0; the lowest bit of the subtraction's borrow marks it (Hacker's
    Delight).
    """
    at = row * np.uint64(WORDS) + ORDER
    order = cache.words[at]
    x = order ^ (np.uint64(way) * ONES)
    mark = (x - ONES) & ~x & EIGHTS
    below = ((mark & (U0 - mark)) >> U3) - U1
    moved = (order & below) << U4 | np.uint64(way)
    cache.words[at] = order & ~(below << U4 | NIBBLE) | moved


@jit_inlined
def _clean(cache: Cache, row: np.uint64, way: np.uint64, sectors: int) -> int:
    """Make a dirty way clean; return its sectors, 0 for a line of `leave_dirty`."""
    at = row * np.uint64(WORDS)
    cache.words[at + DIRTY] &= ~(NIBBLE << (way * U4))
    cache.words[at + DIRTY_LINES] -= U1
    return 0 if cache.tags[row * np.uint64(MAX_WAYS) + way] == FOUND_TAG else sectors


@jit_inlined
def allocate(cache: Cache, row: np.uint64, line: int) -> int:
    """Give a line the way used least recently, no sector valid; return way | sectors written back << 8."""
    at = row * np.uint64(WORDS)
    way = cache.words[at + ORDER] >> np.uint64(4 * (cache.ways - 1)) & NIBBLE
    touch(cache, row, way)
    nibble = NIBBLE << (way * U4)
    written = popcount(cache.words[at + DIRTY] & nibble)
    cache.words[at + VALID] &= ~nibble
    if written:
        written = _clean(cache, row, way, written)
    cache.tags[row * np.uint64(MAX_WAYS) + way] = np.int32(line)
    return signed(way) | written << 8


@jit_inlined
def load(cache: Cache, row: np.uint64, line: int, mask: int, pairs: np.uint64) -> int:
    """Read sectors of a line; return missing | fetched << 4 | sectors written back << 8.

    missing: those of `mask` that were absent. fetched: those and the ones that come with them: nibble m of
    `pairs` is the set of sectors that a miss of the set m brings (see `fetch_table`), less what was valid.
    """
    way, written = find(cache, row, line), 0
    if way >= 0:
        touch(cache, row, way)
    else:
        given = allocate(cache, row, line)
        way, written = given & 15, given >> 8
    at, shift = row * np.uint64(WORDS) + VALID, np.uint64(4 * way)
    valid = cache.words[at] >> shift & NIBBLE
    missing = np.uint64(mask) & ~valid
    fetched = (pairs >> (missing * U4) & NIBBLE) & ~valid
    cache.words[at] |= fetched << shift
    return signed(missing | fetched << U4) | written << 8


@jit_inlined
def clean_oldest(cache: Cache, row: np.uint64) -> int:
    """Write back the dirty line of a row that was used least recently; return the sectors written."""
    at = row * np.uint64(WORDS)
    order = cache.words[at + ORDER]
    for place in range(cache.ways - 1, -1, -1):
        way = order >> np.uint64(4 * place) & NIBBLE
        written = popcount(cache.words[at + DIRTY] & NIBBLE << (way * U4))
        if written:
            return _clean(cache, row, way, written)
    return 0


@jit_inlined
def store(cache: Cache, row: np.uint64, line: int, mask: int, max_dirty_lines: int) -> int:
    """Write sectors of a line without fetching; return the sectors written back.

    They become valid and dirty; where the row then has more than max_dirty_lines dirty lines, its oldest
    one is written back. max_dirty_lines 0 keeps a clean copy: valid, not dirty.
    """
    way, written = find(cache, row, line), 0
    if way >= 0:
        touch(cache, row, way)
    else:
        given = allocate(cache, row, line)
        way, written = given & 15, given >> 8
    at, shift = row * np.uint64(WORDS), np.uint64(4 * way)
    cache.words[at + VALID] |= np.uint64(mask) << shift
    if max_dirty_lines == 0:
        return written
    if cache.words[at + DIRTY] >> shift & NIBBLE == U0:
        cache.words[at + DIRTY_LINES] += U1
    cache.words[at + DIRTY] |= np.uint64(mask) << shift
    if cache.words[at + DIRTY_LINES] > np.uint64(max_dirty_lines):
        written += clean_oldest(cache, row)
    return written


@jit_inlined
def drop(cache: Cache, row: np.uint64, line: int, mask: int) -> None:
    """Make sectors of a line invalid where it is held; for clean copies only, nothing is written back."""
    way = find(cache, row, line)
    if way >= 0:
        cache.words[row * np.uint64(WORDS) + VALID] &= ~(np.uint64(mask) << np.uint64(4 * way))


def fetch_table(granule_sectors: int) -> np.uint64:
    """Return, as nibble m of a word, what arrives when m is missing and memory gives 1, 2 or 4 sectors."""
    group = (1 << granule_sectors) - 1
    groups = [group << i for i in range(0, 4, granule_sectors)]
    return np.uint64(sum(sum(g for g in groups if g & m) << 4 * m for m in range(16)))
