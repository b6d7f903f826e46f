"""Closed forms of paged_attention_v2: what each counter must be, from the sizes and the block table.

What it models: requests, sectors, words of shared memory, shuffles and float instructions over all blocks.
Sectors of K and V follow from the pages in the table, as pages of an odd size may begin inside a sector. What
it leaves out: hits of L1 and L2, DRAM. Checked by the same metrics as kernels_sim/attention.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels_sim.attention import DIV, EXP, LOG_OF_KEPT, Access, arithmetic, linear, requests_of, row_accesses
from kernels_sim.formulas import SECTOR_BYTES, WARP, ceil_div

THREADS = 128
WARPS = THREADS // WARP


@dataclass(frozen=True)
class Pages:
    """Hold the sizes of a problem: lengths of the sequences, of pages and partitions, heads, and K's x."""

    lens: tuple[int, ...]
    block_size: int
    partition_size: int
    heads: int
    kv_heads: int
    d: int
    x: int
    element_bytes: int
    alibi: bool

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of an element of the cache."""
        return 16 // self.x

    @property
    def group(self) -> int:
        """Return the query heads that share a K/V head."""
        return self.heads // self.kv_heads

    @property
    def pages(self) -> int:
        """Return the pages of all sequences."""
        return sum(ceil_div(n, self.block_size) for n in self.lens)

    @property
    def columns(self) -> int:
        """Return the pages of the longest sequence."""
        return ceil_div(max(self.lens), self.block_size)

    @property
    def partitions(self) -> int:
        """Return the partitions of the longest sequence; a grid has at least one block."""
        return max(1, ceil_div(max(self.lens), self.partition_size))


def partitions_of(size: Pages) -> Iterator[tuple[int, int, int]]:
    """Yield (sequence, first token, tokens) of each partition that has tokens."""
    for seq, n in enumerate(size.lens):
        for start in range(0, n, size.partition_size):
            yield seq, start, min(size.partition_size, n - start)


def partition_form(size: Pages, table: np.ndarray) -> dict[str, int]:
    """Return the counters of the first launch.

    A token costs d FFMA in each product, a multiplication by the scale, an exponential, and FADD for its
    argument and the sum; with alibi one FFMA more. A block exchanges its maximum and its sum by five shuffles
    a warp each, and each column by five more.
    """
    d, blocks, rows = size.d, list(partitions_of(size)), size.heads * len(size.lens)
    length = Access(THREADS, WARPS, WARPS) * (rows * size.partitions)
    loads, words = length, {"load": Access(), "store": Access()}
    tokens = scans = 0
    for seq, start, n in blocks:
        first = start // size.block_size
        pages = (start + n - 1) // size.block_size - first + 1
        loads += linear(seq * table.shape[1] + first, pages, THREADS) * size.heads
        loads += _cache(size, table[seq], start, n)
        runs = len(requests_of(n, THREADS))
        if size.alibi:
            loads += Access(n, runs, runs) * size.heads
        for way, used in _words(size, n, pages, runs).items():
            words[way] += used * size.heads
        tokens, scans = tokens + n * size.heads, scans + size.heads
    for seq in {seq for seq, _, _ in blocks}:
        of_seq = sum(s == seq for s, _, _ in blocks)
        for head in range(size.heads):
            loads += linear((seq * size.heads + head) * d, d, THREADS, size.element_bytes) * of_seq
    empty = rows * size.partitions - scans
    written = np.array([
        (seq * size.heads + head) * size.partitions + start // size.partition_size
        for seq, start, _ in blocks for head in range(size.heads)
    ], np.int64)  # fmt: skip
    stores = Access(1, 1, 1) * (2 * (scans + empty)) + row_accesses(written, d)
    forms = loads.paths("global_load") | stores.paths("global_store")
    forms |= words["load"].shared_paths("shared_load") | words["store"].shared_paths("shared_store")
    forms |= arithmetic(
        (tokens, {"ffma": 2 * d + size.alibi, "fmul": 1, "fadd": 2}),
        (tokens, EXP),
        (scans * THREADS * 5, {"fadd": 1}),
        (scans * WARPS, {"fadd": 1}),
        (scans * d * WARP * 5, {"fadd": 1}),
        (scans * d, {"fmul": 1}),
    )
    moved = scans * (2 * 5 * WARPS + 5 * d)
    return forms | {"warp_operations": moved, "barriers": 5 * WARPS * scans,
                    "hierarchy.l2_write": stores.sectors}  # fmt: skip


def _cache(size: Pages, row: np.ndarray, start: int, n: int) -> Access:
    """Count the loads of K and V by all query heads for n tokens of one sequence.

    K: a thread a token, its x elements one after another from the same 16 bytes. V: 32 tokens a request.
    """
    token = start + np.arange(n)
    slot = token % size.block_size
    heads = np.arange(size.kv_heads)
    base = row[token // size.block_size].astype(np.int64) * size.kv_heads + heads[:, None]
    total = Access()
    pieces = size.d // size.x
    k = (base[:, None] * pieces + np.arange(pieces)[:, None]) * size.block_size + slot
    v = (base[:, None] * size.d + np.arange(size.d)[:, None]) * size.block_size + slot
    per_sector = SECTOR_BYTES // size.cache_bytes
    for sectors, times in ((k // 2, size.x), (v // per_sector, 1)):
        for first, count in requests_of(n, THREADS):
            part = np.sort(sectors[..., first : first + count], axis=-1)
            lines = part.size // count
            distinct = lines + int((np.diff(part, axis=-1) > 0).sum())
            total += Access(lines * count, lines, distinct, lines * count * size.cache_bytes) * times
    return total * size.group


def _words(size: Pages, n: int, pages: int, runs: int) -> dict[str, Access]:
    """Count the words of shared memory of one block with n tokens; runs: warp requests that cover them.

    Neighbours load neighbours, or all the same word, but the pages of tokens: those of 32 tokens are
    neighbours, too.
    """
    d, lines = size.d, Access(1, 1)
    each = Access(n, runs)
    query = linear(0, d, THREADS)
    load = each * (1 + d) + each + (each * 2) * d + Access(THREADS, WARPS) * WARPS + lines * WARPS + query
    store = linear(0, pages, THREADS) + query + each * 2 + lines * (2 * WARPS + d)
    return {"load": load, "store": store}


def reduce_form(size: Pages) -> dict[str, int]:
    """Return the counters of the second launch: m twice, l and o once for each partition with tokens."""
    d, H = size.d, size.heads
    rows = H * len(size.lens)
    loads, work = Access(WARP, 1, 1) * rows, arithmetic()
    moved = 10 * rows
    for seq, n in enumerate(size.lens):
        parts = ceil_div(n, size.partition_size)
        for head in range(H):
            first = (seq * H + head) * size.partitions
            loads += linear(first, parts, parts or 1) * 3 + row_accesses(first + np.arange(parts), d)
        more = arithmetic(
            (H * parts, {"fadd": 1, "ffma": 1 + d}),
            (H * parts, EXP),
        )
        work = {path: work[path] + more[path] for path in work}
        moved += H * parts
    stores = row_accesses(np.arange(rows), d, size.element_bytes) + row_accesses(np.arange(rows), 1)
    fadd = rows * 5 * WARP + rows
    more = arithmetic((fadd, {"fadd": 1}), (rows * d, DIV), (rows, LOG_OF_KEPT))
    work = {path: work[path] + more[path] for path in work}
    forms = loads.paths("global_load") | stores.paths("global_store") | work
    return forms | {"warp_operations": moved, "hierarchy.l2_write": stores.sectors}
