"""What the attention kernels share: visible keys, the float64 reference, closed forms of bytes and FLOPs.

Shapes: Q is (heads, N, d), K (heads / group, Nk, d), V (heads / group, Nk, dv), O (heads, N, dv), L (heads,
N); `heads` is batch times query heads, and head h uses K/V head h // group. Row i stands at the absolute
position q_start + i. When causal it sees no key after its position; with a window of W it sees no key W or
more before it (its own one counts, so N = 8 and W = 3 give 1, 2, 3, 3, ... keys when causal). Everything
here is arithmetic on shapes and knows nothing of the simulator, so `counted == closed form` compares two
independent answers. What it leaves out: caches (the functions named io_* count elements asked for, or
elements needed once). Checked by l1tex__t_requests_*, l1tex__t_sectors_* and
smsp__sass_thread_inst_executed_op_*.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from gpusim.errors import BadOption
from kernels_sim.formulas import (
    ELEMENT_BYTES,
    SECTOR_BYTES,
    WARP,
    ceil_div,
    matrix_sectors,
    row_sectors,
    run_sectors,
    shared,
    space,
)

SMALL_FOOTPRINT_BYTES = 8 << 20
"""Problems up to this size stay whole in the L2 of every simulated card."""
MOST_Q_START = 1 << 40
"""No sequence is that long; positions and their sums stay far inside 64 bits."""
EXP = {"ffma": 4, "fmul": 1, "fadd": 1, "mufu": 1}
"""Machine instructions of one float32 exp, as an H200 counted them in two kernels."""
LOG = {"ffma": 11, "fmul": 1, "fadd": 1}
"""Machine instructions of one float32 log."""
LOG_OF_KEPT = {**LOG, "fmul": 2}
"""The same where the argument is read later, or in a loop before (docs/as_compiled.md)."""
DIV = {"ffma": 5, "mufu": 1}
"""Machine instructions of one float32 division, rounded to nearest."""
RCP = {"ffma": 2, "fadd": 1, "mufu": 1}
"""Machine instructions of one float32 1 / x, rounded to nearest."""
SQRT = {"ffma": 2, "fmul": 2, "mufu": 1}
"""Machine instructions of one float32 square root, rounded to nearest."""


@dataclass(frozen=True)
class Shape:
    """Hold the sizes of one attention problem; heads is batch times heads, scale multiplies the scores.

    dv: columns of V and O; 0 becomes d. group: query heads that share a K/V head. window: keys that a row
    sees up to its own position; 0: all.
    """

    N: int
    Nk: int
    d: int
    heads: int = 1
    causal: bool = False
    q_start: int = 0
    scale: float = 1.0
    dv: int = 0
    group: int = 1
    window: int = 0

    def __post_init__(self) -> None:
        if not self.dv:
            object.__setattr__(self, "dv", self.d)

    @property
    def kv_heads(self) -> int:
        """Return batch times K/V heads."""
        return self.heads // self.group


DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(bfloat16)}
"""The element types of attention kernels; a kernel says which it takes."""
TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Largest error of outputs held in a type, against a reference on inputs that were rounded to it."""


def shape_of(options: Any, dtypes: Iterable[str] = ("float32",)) -> Shape:
    """Check the options that all attention kernels have and fill in the defaults; raise BadOption.

    dtypes: the element types that the kernel takes.

    Nk None is N; scale None is 1 / sqrt(d). dv, kv_heads and window are looked at where a kernel has them: 0
    or None is d, heads and no window.
    """
    dv, kv_heads, window = (getattr(options, name, None) or 0 for name in ("dv", "kv_heads", "window"))
    for name in ("N", "d", "heads", "batch"):
        if getattr(options, name) < 1:
            raise BadOption(f"--{name} must be at least 1, got {getattr(options, name)}")
    for name, width in (("d", options.d), ("dv", dv)):
        if width > 256:
            why = f"a thread holds whole rows of {name} elements"
            raise BadOption(f"--{name} must be at most 256, got {width}: {why}")
    for name, value, default in (("dv", dv, "d"), ("kv-heads", kv_heads, "heads"), ("window", window, "all")):
        if value < 0:
            raise BadOption(f"--{name} must be at least 1 (or 0: {default}), got {value}")
    if kv_heads and options.heads % kv_heads:
        raise BadOption(f"--heads {options.heads} is not a multiple of --kv-heads {kv_heads}: each K/V head "
                        "serves the same number of query heads")
    if options.Nk is not None and options.Nk < 0:
        raise BadOption(f"--Nk must be at least 0, got {options.Nk}")
    if max(options.heads, options.batch) > 65535:
        got = f"{options.heads} and {options.batch}"
        raise BadOption(f"--heads and --batch are grid dimensions y and z, at most 65535; got {got}")
    if abs(options.q_start) > MOST_Q_START:
        raise BadOption(f"--q-start must lie between -2**40 and 2**40 ({MOST_Q_START:,}), got "
                        f"{options.q_start}")
    if options.dtype not in dtypes:
        raise BadOption(f"--dtype must be {' or '.join(dtypes)}, got {options.dtype}")
    if options.scale is not None and not math.isfinite(options.scale):
        raise BadOption(f"--scale must be a finite number, got {options.scale}")
    scale = 1.0 / math.sqrt(options.d) if options.scale is None else options.scale
    heads = options.heads * options.batch
    group = options.heads // kv_heads if kv_heads else 1
    Nk = options.N if options.Nk is None else options.Nk
    return Shape(options.N, Nk, options.d, heads, options.causal, options.q_start, scale, dv, group, window)


# Which keys a row sees


def key_range(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Return the first key that each row of a head sees and the key after the last, int64 of shape (N,).

    The two are equal for a row that sees none; neither falls from a row to the next.
    """
    after = shape.q_start + np.arange(1, shape.N + 1, dtype=np.int64)
    end = np.clip(after, 0, shape.Nk) if shape.causal else np.full(shape.N, shape.Nk, np.int64)
    first = np.clip(after - shape.window, 0, end) if shape.window else np.zeros(shape.N, np.int64)
    return first, end


def keys_seen(shape: Shape) -> np.ndarray:
    """Return how many keys each row of a head sees, int64 of shape (N,)."""
    first, end = key_range(shape)
    return end - first


def visible_pairs(shape: Shape) -> int:
    """Count the (row, key) pairs of one head in which the row sees the key."""
    return int(keys_seen(shape).sum())


def block_rows(shape: Shape, Br: int) -> np.ndarray:
    """Return the number of rows that each block of Br rows really has, int64 of shape (ceil(N / Br),)."""
    return np.diff(np.append(np.arange(0, shape.N, Br, dtype=np.int64), shape.N))


def block_range(shape: Shape, Br: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first key that some row of each block of Br rows sees, and the key after the last."""
    first, end = key_range(shape)
    starts = np.arange(0, shape.N, Br)
    return first[starts], end[np.minimum(starts + Br, shape.N) - 1]


def block_keys(shape: Shape, Br: int) -> np.ndarray:
    """Return the key after the last one that each block of Br rows sees: without a window, how many."""
    return block_range(shape, Br)[1]


def block_tiles(shape: Shape, Br: int, Bc: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first K/V tile of Bc keys that each block of Br rows visits, and the one after the last.

    A block visits the tiles that hold a key which one of its rows sees.
    """
    first, end = block_range(shape, Br)
    some = end > first
    return np.where(some, first // Bc, 0), np.where(some, -(-end // Bc), 0)


def tiles_visited(shape: Shape, Br: int, Bc: int) -> np.ndarray:
    """Return how many K/V tiles of Bc keys each block visits; no row of it sees the others."""
    first, end = block_tiles(shape, Br, Bc)
    return end - first


def tile_visits(shape: Shape, Br: int, Bc: int) -> np.ndarray:
    """Return for each K/V tile of one head how many blocks of Br rows visit it."""
    tiles = -(-shape.Nk // Bc)
    steps = np.zeros(tiles + 1, np.int64)
    for change, bounds in zip((1, -1), block_tiles(shape, Br, Bc), strict=True):
        np.add.at(steps, bounds, change)
    return np.cumsum(steps)[:tiles]


def tiles_skipped(shape: Shape, Br: int, Bc: int) -> int:
    """Count the tiles of one head that blocks do not load, as none of their rows sees a key in them."""
    visited = tiles_visited(shape, Br, Bc)
    return int(len(visited) * -(-shape.Nk // Bc) - visited.sum())


# Closed forms over all heads: elements of global memory, and FLOPs


def io_standard(shape: Shape) -> int:
    """Count the elements that standard attention moves if each of its three kernels reads every input once.

    scores: Q, K in, S out; softmax: S in, P and L out; output: P, V in, O out.
    At N = Nk: 4 N d + 4 N^2 + N a head, whatever the tiles. K and V count once for the heads that share them.
    """
    matrix, width = shape.N * shape.Nk, shape.d + shape.dv
    return shape.heads * (shape.N * width + 4 * matrix + shape.N) + shape.kv_heads * shape.Nk * width


def io_standard_backward(shape: Shape) -> int:
    """Count the elements that the backward pass moves if each of its five launches reads every input once.

    dV: P, dO in, dV out; dP: dO, V in, dP out; dS: P, dP in, dS out; dQ: dS, K in, dQ out; dK: dS, Q in, dK
    out. At N = Nk and d = dv: 8 N d + 7 N^2 a head.
    """
    return shape.heads * (2 * (shape.N + shape.Nk) * (shape.d + shape.dv) + 7 * shape.N * shape.Nk)


def io_flash(shape: Shape, Br: int, Bc: int) -> int:
    """Count the elements that flash attention asks for: Q, O and L once, K and V once for each tile visited.

    Without causal at N = Nk: N d (2 + 2 ceil(N / Br)) + N a head.
    """
    loaded = int((tile_visits(shape, Br, Bc) * tile_keys(shape, Bc)).sum())
    width = shape.d + shape.dv
    return shape.heads * (shape.N * width + shape.N + width * loaded)


def io_flash_ideal(shape: Shape, Br: int, Bc: int) -> int:
    """Count the elements that flash attention moves if each visited K/V tile comes from DRAM once."""
    width = shape.d + shape.dv
    needed = shape.kv_heads * keys_needed(shape, Br, Bc) * width
    return shape.heads * (shape.N * width + shape.N) + needed


def tile_keys(shape: Shape, Bc: int) -> np.ndarray:
    """Return the number of keys that each K/V tile of a head really has, int64 of shape (ceil(Nk / Bc),)."""
    return np.minimum(Bc, shape.Nk - Bc * np.arange(-(-shape.Nk // Bc), dtype=np.int64))


def keys_needed(shape: Shape, Br: int, Bc: int) -> int:
    """Count the keys of one head in tiles that some block visits."""
    return int(tile_keys(shape, Bc)[tile_visits(shape, Br, Bc) > 0].sum())


def attention_flops(shape: Shape, backward: bool = False, recompute: bool = True) -> int:
    """Count the FLOPs of the matrix products over the visible pairs; does not count softmax.

    A multiply-add is two. Forward: Q K^T and P V, 2 d and 2 dv a pair. Backward: dV and dP, 2 dv each, dQ and
    dK, 2 d each, and S again if it is recomputed.
    """
    width = (2 + recompute) * shape.d + 2 * shape.dv if backward else shape.d + shape.dv
    return 2 * width * visible_pairs(shape) * shape.heads


# Closed forms of warp accesses


@dataclass(frozen=True)
class Access:
    """Count accesses: lanes, requests, sectors (0 in shared memory), bytes; they add, and scale by a number.

    Bytes that are not given are 4 a lane.
    """

    lanes: int = 0
    requests: int = 0
    sectors: int = 0
    bytes: int | None = None

    def __post_init__(self) -> None:
        if self.bytes is None:
            object.__setattr__(self, "bytes", ELEMENT_BYTES * self.lanes)

    def __add__(self, other: Access) -> Access:
        return Access(self.lanes + other.lanes, self.requests + other.requests, self.sectors + other.sectors,
                      self.bytes + other.bytes)

    def __mul__(self, times: int) -> Access:
        return Access(self.lanes * times, self.requests * times, self.sectors * times, self.bytes * times)

    def paths(self, name: str) -> dict[str, int]:
        """Return the counters of a global space ("global_load") by their paths."""
        return space(name, lanes=self.lanes, requests=self.requests, sectors=self.sectors,
                     lane_bytes=self.bytes)

    def shared_paths(self, name: str) -> dict[str, int]:
        """Return the counters of a shared space ("shared_load") where no two words of a request share a
        bank.
        """
        return shared(name, lanes=self.lanes, requests=self.requests, wavefronts=self.requests)


def linear(start: int, count: int, threads: int, size: int = ELEMENT_BYTES) -> Access:
    """Count a block's access to `count` consecutive elements: thread t takes t, t + threads, and so on.

    start: elements of `size` bytes between a multiple of 32 bytes and the first of them.
    """
    return _linear(start % (SECTOR_BYTES // size), count, threads, size)


def requests_of(count: int, threads: int) -> list[tuple[int, int]]:
    """List (first element, elements) of each warp request by which a block accesses `count` elements."""
    return [
        (first, min(WARP, turn + threads - first, count - first))
        for turn in range(0, count, threads)
        for first in range(turn, min(turn + threads, count), WARP)
    ]


@lru_cache(maxsize=4096)
def _linear(phase: int, count: int, threads: int, size: int) -> Access:
    runs = requests_of(count, threads)
    sectors = sum(run_sectors(phase + first, n, size) for first, n in runs)
    return Access(count, len(runs), sectors, size * count)


def row_segments(rows: int, width: int, size: int = ELEMENT_BYTES) -> Access:
    """Count one access to each element of a matrix (rows, width), 32 neighbours of a row a request."""
    sectors = matrix_sectors(rows, width, size)
    return Access(rows * width, rows * ceil_div(width, WARP), sectors, size * rows * width)


def each_row(rows: int, width: int, threads: int, size: int = ELEMENT_BYTES) -> Access:
    """Count the accesses to `rows` rows of `width` elements in a run, each row by a block of `threads`."""
    alike = SECTOR_BYTES // size
    phases = ((i * width, ceil_div(rows - i, alike)) for i in range(min(rows, alike)))
    return sum((linear(phase, width, threads, size) * n for phase, n in phases), Access())


def row_accesses(rows: np.ndarray, width: int, size: int = ELEMENT_BYTES) -> Access:
    """Count one access to each of these rows of a matrix, by their numbers, 32 neighbours a request."""
    alike = SECTOR_BYTES // size
    sectors = np.array([row_sectors(phase, width, size) for phase in range(alike)])
    total = int(sectors[rows * width % alike].sum())
    return Access(len(rows) * width, len(rows) * ceil_div(width, WARP), total, size * len(rows) * width)


@lru_cache(maxsize=4096)
def padded_wavefronts(rows: int, width: int, threads: int) -> int:
    """Count the wavefronts of a block's access to rows of `width` words that are padded to an odd length."""
    return sum(
        max(Counter((e // width * (width | 1) + e % width) % 32 for e in range(first, first + n)).values())
        for first, n in requests_of(rows * width, threads)
    )


def arithmetic(*terms: tuple[int, dict[str, int]]) -> dict[str, int]:
    """Add up (how often, instructions) pairs and return the counters by their paths."""
    names = ("ffma", "fmul", "fadd", "mufu")
    return {f"arithmetic.{name}": sum(times * ops.get(name, 0) for times, ops in terms) for name in names}


# The reference


def reference(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, shape: Shape, rows: int = 256
) -> tuple[np.ndarray, np.ndarray]:
    """Return O (heads, N, dv) = softmax(scale Q K^T) V and L (heads, N) = log sum exp(scale Q K^T), float64.

    Works on `rows` query rows at a time, so that N = 16384 needs 32 MB a matrix of scores. A row that sees
    no key gives O = 0 and L = -inf; NaN in a key or a value that a row does not see does not reach it.
    """
    first, end = key_range(shape)
    O = np.zeros((shape.heads, shape.N, shape.dv))
    L = np.full((shape.heads, shape.N), -np.inf)
    for head in range(shape.heads):
        k, v = (x[head // shape.group].astype(np.float64) for x in (K, V))
        for i in range(0, shape.N, rows):
            at = slice(i, min(i + rows, shape.N))
            q = Q[head, at].astype(np.float64) * shape.scale
            O[head, at], L[head, at] = _reference_rows(q, k, v, first[at], end[at])
    return O, L


def _reference_rows(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, first: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return O and L of some rows; q is scaled, each row sees the keys from `first` to before `end`."""
    low, high = int(first[0]), int(end[-1])
    if low >= high:
        return np.zeros((len(q), v.shape[1])), np.full(len(q), -np.inf)
    scores = q @ k[low:high].T
    keys = np.arange(low, high)
    visible = (keys >= first[:, None]) & (keys < end[:, None])
    scores[~visible] = -np.inf
    top = scores.max(axis=1)
    shift = np.where(top == -np.inf, 0.0, top)
    p = np.exp(scores - shift[:, None])
    total = p.sum(axis=1)
    total[first == end] = 1.0
    return weigh(p, v[low:high], visible) / total[:, None], top + np.log(total)


def weigh(p: np.ndarray, v: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Return p @ v, where NaN and infinities in v reach the rows that see them and no other (0 * NaN is
    NaN).
    """
    finite = np.isfinite(v).all(axis=1)
    if finite.all():
        return p @ v
    out = p @ np.where(finite[:, None], v, 0.0)
    for key in np.flatnonzero(~finite):
        out[visible[:, key]] += p[visible[:, key], key, None] * v[key]
    return out


def rescalings(Q: np.ndarray, K: np.ndarray, shape: Shape, strip: int) -> np.ndarray:
    """Return how often each row's accumulator is rescaled, int64 of shape (heads, N), in float64.

    That is the strips of so many keys in which the row's maximum rises above an earlier finite one. Q:
    (heads, N, d); K: (heads / group, Nk, d).
    """
    first, end = key_range(shape)
    keys = np.arange(shape.Nk)
    visible = (keys >= first[:, None]) & (keys < end[:, None])
    found = np.zeros((shape.heads, shape.N), np.int64)
    for head in range(shape.heads if shape.Nk else 0):
        scores = shape.scale * Q[head].astype(np.float64) @ K[head // shape.group].astype(np.float64).T
        scores = np.where(visible, scores, -np.inf)
        top = np.maximum.reduceat(scores, keys[::strip], axis=1)
        top = np.maximum.accumulate(top, axis=1)
        found[head] = ((top[:, 1:] > top[:, :-1]) & (top[:, :-1] > -np.inf)).sum(axis=1)
    return found


def dram(read: int, written: int, sizes: tuple[int, ...]) -> dict[str, int]:
    """Return DRAM's counters for `read` and `written` distinct elements of 4 bytes, if they follow.

    sizes: elements of the pieces of arrays. See dram_of_bytes.
    """
    return dram_of_bytes(4 * read, 4 * written, tuple(4 * n for n in sizes))


def dram_of_bytes(read: int, written: int, sizes: tuple[int, ...]) -> dict[str, int]:
    """Return DRAM's counters for `read` and `written` distinct bytes with cold caches, if they follow.

    They do where all fits L2 by far and the pieces of arrays in `sizes` (bytes) end on 64-byte boundaries:
    each sector is read once, nothing is written back, what was stored is dirty at the end. Else the answer is
    empty.
    """
    if any(n % (2 * SECTOR_BYTES) for n in sizes) or read + written > SMALL_FOOTPRINT_BYTES:
        return {}
    return {"hierarchy.dram_read_bytes": read, "hierarchy.dram_write_bytes": 0,
            "hierarchy.dirty_bytes": written}
