"""The memory hierarchy of one launch: traces of resident blocks replayed through L1, L2 and DRAM.

What it models: one wave at a time; its blocks take turns of `quantum` records, each in the order of its
program. L1 caches loads of global and local memory (fact 7 of the recorded H200 data), a miss asks L2 for
the missing sectors of a line at once, and stores go through: they fill nothing in L1, and a sector that L1
holds stays valid, as it is updated. RED and ATOM are done in L2 and end the copy in their SM's L1. L1s are
empty at the start of a launch; L2 is with l2="cold" (as ncu measures), but for dirty lines of somebody else
(fact 20), and is as the launch before left it with l2="warm". Reads of several SMs become one where they
are close in turns (gpusim/lrc.py). All of it is modelled, local stores as write-through among it. What it
leaves out: time, so the turns stand for it.
Checked by `l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_*`, `lts__t_sectors_*` and `dram__bytes_*`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np

from gpusim.arch import Arch
from gpusim.cache import (
    MAX_LINE,
    Cache,
    clear,
    dirty_sectors,
    drop,
    fetch_table,
    found_sectors,
    leave_dirty,
    load,
    new_cache,
    row_of,
)
from gpusim.counters import Hierarchy
from gpusim.gpcs import gpc_of_sm, partition_of_sm
from gpusim.l2 import COUNTS, L1_LOAD_HITS, L1_LOAD_MISSES, L2, LRC_MERGED, l2_atomic, l2_load, l2_store
from gpusim.lrc import Lrc, forget, is_merged, new_lrc
from gpusim.observer import Observer
from gpusim.runtime import jit, jit_inlined, popcount, signed
from gpusim.trace import KIND_SHIFT, LINE_BYTES, LINE_SHIFT, SECTOR_BYTES, Kind

LOAD, STORE, RED, ATOM = int(Kind.LOAD), int(Kind.STORE), int(Kind.RED), int(Kind.ATOM)
LOCAL_LOAD, LOAD_L2, FIRST_MARK = int(Kind.LOCAL_LOAD), int(Kind.LOAD_L2), int(Kind.WARP)
ONE_SECTOR = fetch_table(1)
ALL_TURNS = (1 << 63) - 1


class Caches(NamedTuple):
    """Hold what a record passes: the L1s, the request coalescers, the L2."""

    l1: Cache
    lrc: Lrc
    l2: L2


@jit_inlined
def _read(caches: Caches, counts: np.ndarray, sm: int, rank: int, line: int, mask: int, turn: int) -> None:
    """Read sectors of a line that L1 has not, in L2 or with another SM's read."""
    sectors = popcount(np.uint64(mask))
    counts[L1_LOAD_MISSES] += sectors
    if is_merged(caches.lrc, sm, rank, line, mask, turn):
        counts[LRC_MERGED] += sectors
    else:
        l2_load(caches.l2, counts, sm, line, mask)


@jit_inlined
def _load(caches: Caches, counts: np.ndarray, sm: int, rank: int, line: int, mask: int, turn: int) -> None:
    """Read sectors of a line through the L1 of an SM."""
    missing = load(caches.l1, row_of(sm, line, caches.l1.sets), line, mask, ONE_SECTOR) & 15
    counts[L1_LOAD_HITS] += popcount(np.uint64(mask)) - popcount(np.uint64(missing))
    if missing:
        _read(caches, counts, sm, rank, line, missing, turn)


@jit_inlined
def _access(caches: Caches, counts: np.ndarray, sm: int, rank: int, record: np.uint64, turn: int) -> None:
    """Replay one record that is a request."""
    mask = signed(record & np.uint64(15))
    kind = signed(record >> np.uint64(KIND_SHIFT) & np.uint64(15))
    line = signed(record >> np.uint64(LINE_SHIFT))
    if kind in (LOAD, LOCAL_LOAD):
        _load(caches, counts, sm, rank, line, mask, turn)
    elif kind == LOAD_L2:
        _read(caches, counts, sm, rank, line, mask, turn)
    elif kind in (RED, ATOM):
        drop(caches.l1, row_of(sm, line, caches.l1.sets), line, mask)
        l2_atomic(caches.l2, counts, sm, line, mask, kind == ATOM)
    else:
        l2_store(caches.l2, counts, sm, line, mask)


@jit_inlined
def _turn(
    caches: Caches,
    counts: np.ndarray,
    sm: int,
    rank: int,
    records: np.ndarray,
    at: int,
    end: int,
    quantum: int,
    turn: int,
) -> int:
    """Replay up to `quantum` requests of one block, from `at`; return where it stops. Marks are free."""
    left = quantum
    while at < end and left > 0:
        record = records[at]
        at += 1
        if record >> np.uint64(KIND_SHIFT) & np.uint64(15) < np.uint64(FIRST_MARK):
            _access(caches, counts, sm, rank, record, turn)
            left -= 1
    return at


class Wave(NamedTuple):
    """Hold blocks that are resident together: records of all, and of each where it is, where it ends, its SM
    and how many blocks of that SM stand before it."""

    records: np.ndarray
    at: np.ndarray
    end: np.ndarray
    sm: np.ndarray
    rank: np.ndarray


@jit
def _replay(
    caches: Caches,
    counts: np.ndarray,
    wave: Wave,
    quantum: int,
    turn: int,
    turns: int,
    first: int,
    last: int,
) -> bool:
    """Give the blocks from `first` to before `last` up to `turns` turns from number `turn` on, in the order
    of their indices, while `at` moves to `end`.

    Return whether the last of them found a block that was not at its end.
    """
    running = True
    while running and turns > 0:
        running = False
        turns -= 1
        for b in range(first, last):
            at, end = wave.at[b], wave.end[b]
            if at < end:
                running = True
                sm, rank = wave.sm[b], wave.rank[b]
                wave.at[b] = _turn(caches, counts, sm, rank, wave.records, at, end, quantum, turn)
        turn += 1
    return running


def ranks_of(sm: np.ndarray) -> np.ndarray:
    """Return how many blocks of its SM stand before each block, int64."""
    order = np.argsort(sm, kind="stable")
    ordered = sm[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    before = np.arange(len(sm)) - np.repeat(starts, np.diff(starts, append=len(sm)))
    found = np.empty(len(sm), np.int64)
    found[order] = before
    return found


class MemorySystem:
    """Hold the caches of one GPU from launch to launch: begin, replay wave after wave, end.

    arch: the sizes. l2: "cold" empties L2 at each begin, "warm" keeps it. observer: who watches the replay,
    turn by turn; nobody at first.
    """

    def __init__(self, arch: Arch, l2: str = "cold") -> None:
        if l2 not in ("cold", "warm"):
            raise ValueError(f'l2 is "cold" or "warm", not {l2!r}')
        if arch.l2_partitions not in (1, 2):
            raise ValueError(f"{arch.l2_partitions} L2 partitions; 1 and 2 are modelled")
        gpcs = gpc_of_sm(arch)
        if len(gpcs) != arch.sm_count:
            raise ValueError(f"{arch.sm_count} SMs, and the groups of SMs have {len(gpcs)}")
        self.arch = arch
        self.cold = l2 == "cold"
        self.observer: Observer | None = None
        cache = new_cache(arch.l2_partitions, arch.l2_bytes // arch.l2_partitions, arch.l2_ways)
        self._l2 = L2(
            cache,
            arch.l2_partitions,
            partition_of_sm(arch),
            fetch_table(arch.dram_granule_bytes // SECTOR_BYTES),
            arch.l2_max_dirty_ways,
        )
        self._lrc = new_lrc(gpcs, arch.lrc_most_reads)
        self._l1: Cache | None = None
        self._l1_bytes = 0
        self._counts = np.zeros(len(COUNTS), np.int64)
        self._code_bytes = arch.dram_code_bytes
        self._found = 0
        self._resident: set[Hashable] = set()

    def begin(self, l1_bytes: int, code: Hashable = None) -> None:
        """Start a launch with empty L1s of l1_bytes (at least one set) and, if cold, an empty L2.

        code: what names the kernel's machine code. A warm L2 still has it from an earlier launch (modelled:
        it is not evicted), and DRAM is not read for it again; None: always read.
        """
        found = not self.cold and code in self._resident
        self._code_bytes = 0 if found else self.arch.dram_code_bytes
        self._resident |= {code} - {None}
        if self._l1 is None or self._l1_bytes != l1_bytes:
            smallest = self.arch.l1_ways * LINE_BYTES
            self._l1 = new_cache(self.arch.sm_count, max(l1_bytes, smallest), self.arch.l1_ways)
            self._l1_bytes = l1_bytes
        else:
            clear(self._l1)
        if self.cold:
            clear(self._l2.cache)
            leave_dirty(self._l2.cache, self.arch.l2_found_dirty_bytes // SECTOR_BYTES)
        self._found = found_sectors(self._l2.cache)
        self._counts[:] = 0

    def replay(self, records: np.ndarray, offsets: np.ndarray, sm: np.ndarray, quantum: int) -> None:
        """Replay one wave: block b has records[offsets[b]:offsets[b + 1]] and runs on sm[b].

        records: uint64, see gpusim/trace.py. offsets: int64, one more than blocks. sm: int32. Raises
        ValueError before `begin`, for quantum < 1, an SM that the GPU does not have, and line numbers above
        2**31 - 1 (addresses from 256 GiB on).
        """
        if self._l1 is None or quantum < 1:
            raise ValueError(
                "begin a launch first" if self._l1 is None else f"a turn of {quantum} records; at least 1"
            )
        if len(sm) and not 0 <= int(sm.min()) <= int(sm.max()) < self.arch.sm_count:
            raise ValueError(f"SMs {sm.min()} to {sm.max()} on a GPU with {self.arch.sm_count}")
        if len(records) and int(records.max()) >> LINE_SHIFT > MAX_LINE:
            raise ValueError("the trace has an address of 256 GiB or more")
        wave = self._start(records, offsets, sm, quantum)
        caches = Caches(self._l1, self._lrc, self._l2)
        if self.observer is None:
            _replay(caches, self._counts, wave, quantum, 0, ALL_TURNS, 0, len(sm))
        else:
            turns = self._turns(caches, wave, quantum, self.observer.parts)
            self.observer.wave(records, offsets, sm, turns)
            deque(turns, maxlen=0)  # what is not watched counts all the same

    def _start(self, records: np.ndarray, offsets: np.ndarray, sm: np.ndarray, quantum: int) -> Wave:
        """Return a wave before its first turn, with no read on its way.

        The blocks of an SM share what it replays in a time, so the window of a read is fewer turns of theirs.
        """
        ranks = ranks_of(sm)
        resident = int(ranks.max(initial=0)) + 1
        self._lrc.window[0] = max(1, round(self.arch.lrc_window_records / quantum / resident))
        forget(self._lrc)
        return Wave(records, offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64), sm, ranks)

    def _turns(
        self, caches: Caches, wave: Wave, quantum: int, parts: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Replay a wave turn by turn; yield where the blocks are and the counts after each part of a turn."""
        blocks = len(wave.sm)
        parts = max(1, min(parts, blocks))
        edges = [blocks * k // parts for k in range(parts + 1)]
        for turn in count():
            running = False
            for first, last in pairwise(edges):
                if _replay(caches, self._counts, wave, quantum, turn, 1, first, last):
                    running = True
                    yield wave.at, self._counts
            if not running:
                return

    def end(self) -> Hierarchy:
        """Return the counts since `begin`; dirty_bytes is all that launches left dirty in L2 until now."""
        counts = dict(zip(COUNTS, self._counts.tolist(), strict=True))
        found = found_sectors(self._l2.cache)
        return Hierarchy(
            **counts,
            dram_code_bytes=self._code_bytes,
            dram_found_bytes=(self._found - found) * SECTOR_BYTES,
            dirty_bytes=(dirty_sectors(self._l2.cache) - found) * SECTOR_BYTES,
        )
