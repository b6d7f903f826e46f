"""What the attention kernels share: which keys a row sees, the float64 reference, and the closed forms of bytes and FLOPs.

Shapes: Q and O are (heads, N, d), K and V (heads, Nk, d), L (heads, N); `heads` is batch times heads. Row i stands at the
absolute position q_start + i and, when causal, sees the keys 0 .. q_start + i. Everything here is arithmetic on shapes; it
knows nothing of the simulator, so `counted == closed form` compares two independent answers.
What it leaves out: caches (see the functions named io_*: a count of elements asked for, or of elements needed once).
Checked by l1tex__t_requests_*, l1tex__t_sectors_* and smsp__sass_thread_inst_executed_op_*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpusim.errors import BadOption

WARP = 32
SECTOR_ELEMENTS = 8
"""float32 elements in a 32-byte sector."""
SMALL_FOOTPRINT_BYTES = 8 << 20
"""Problems up to this size stay whole in the L2 of every simulated card (the smallest keeps 20 MB of shared data)."""
EXP = {"ffma": 4, "fmul": 1, "fadd": 1, "mufu": 1}
"""Machine instructions of one float32 exp: h200 fact, flash_row and softmax_row."""
LOG = {"ffma": 11, "fmul": 1, "fadd": 1}
"""Machine instructions of one float32 log."""
DIV = {"ffma": 5, "mufu": 1}
"""Machine instructions of one float32 division, rounded to nearest."""


@dataclass(frozen=True)
class Shape:
    """Hold the sizes of one attention problem; heads is batch times heads, scale multiplies the scores."""

    N: int
    Nk: int
    d: int
    heads: int = 1
    causal: bool = False
    q_start: int = 0
    scale: float = 1.0


def shape_of(options: Any) -> Shape:
    """Check the options that all attention kernels have and fill in the defaults; raise BadOption.

    Nk 0 or None is N; scale None is 1 / sqrt(d).
    """
    for name in ("N", "d", "heads", "batch"):
        if getattr(options, name) < 1:
            raise BadOption(f"--{name} must be at least 1, got {getattr(options, name)}")
    if options.d > 256:
        raise BadOption(f"--d must be at most 256, got {options.d}: a thread holds whole rows of d elements")
    if options.Nk is not None and options.Nk < 0:
        raise BadOption(f"--Nk must be at least 1 (or 0: as many keys as queries), got {options.Nk}")
    if max(options.heads, options.batch) > 65535:
        raise BadOption(f"--heads and --batch are grid dimensions y and z, at most 65535; got {options.heads}, {options.batch}")
    if options.dtype != "float32":
        raise BadOption(f"--dtype must be float32, got {options.dtype}: float16, bfloat16 and fp8 come with the tensor-core variants")
    if options.scale is not None and not math.isfinite(options.scale):
        raise BadOption(f"--scale must be a finite number, got {options.scale}")
    scale = 1.0 / math.sqrt(options.d) if options.scale is None else options.scale
    return Shape(options.N, options.Nk or options.N, options.d, options.heads * options.batch, options.causal, options.q_start, scale)


# Which keys a row sees


def keys_seen(shape: Shape) -> np.ndarray:
    """Return how many keys each row of a head sees, int64 of shape (N,); they are always the first ones."""
    if not shape.causal:
        return np.full(shape.N, shape.Nk, np.int64)
    return np.clip(shape.q_start + np.arange(1, shape.N + 1, dtype=np.int64), 0, shape.Nk)


def visible_pairs(shape: Shape) -> int:
    """Count the (row, key) pairs of one head in which the row sees the key."""
    return int(keys_seen(shape).sum())


def block_rows(shape: Shape, Br: int) -> np.ndarray:
    """Return the number of rows that each block of Br rows really has, int64 of shape (ceil(N / Br),)."""
    return np.diff(np.append(np.arange(0, shape.N, Br, dtype=np.int64), shape.N))


def block_keys(shape: Shape, Br: int) -> np.ndarray:
    """Return how many keys the last row of each block of Br rows sees: all that the block has to look at."""
    last = np.minimum(np.arange(Br, shape.N + Br, Br), shape.N) - 1
    return keys_seen(shape)[last]


def tiles_visited(shape: Shape, Br: int, Bc: int) -> np.ndarray:
    """Return how many K/V tiles of Bc keys each block visits; the others lie wholly in its future and are skipped."""
    return -(-block_keys(shape, Br) // Bc)


def tiles_skipped(shape: Shape, Br: int, Bc: int) -> int:
    """Count the tiles of one head that causal blocks do not load."""
    visited = tiles_visited(shape, Br, Bc)
    return int(len(visited) * -(-shape.Nk // Bc) - visited.sum())


# Closed forms over all heads: elements of global memory, and FLOPs


def io_standard(shape: Shape) -> int:
    """Count the elements that standard attention moves if each of its three kernels reads every input once.

    scores: Q, K in, S out; softmax: S in, P and L out; output: P, V in, O out.
    At N = Nk: 4 N d + 4 N^2 + N a head, whatever the tiles.
    """
    matrix = shape.N * shape.Nk
    return shape.heads * (2 * shape.N * shape.d + 2 * shape.Nk * shape.d + 4 * matrix + shape.N)


def io_flash(shape: Shape, Br: int, Bc: int) -> int:
    """Count the elements that flash attention asks for: Q, O and L once, K and V once for each tile visited.

    Without causal at N = Nk: N d (2 + 2 ceil(N / Br)) + N a head.
    """
    visits = _visits(shape, Br, Bc)
    rows = np.minimum(Bc, shape.Nk - Bc * np.arange(len(visits)))
    return shape.heads * (2 * shape.N * shape.d + shape.N + 2 * shape.d * int((visits * rows).sum()))


def io_flash_ideal(shape: Shape, Br: int, Bc: int) -> int:
    """Count the elements that flash attention moves if each K/V tile comes from DRAM once: Q, O, L, and K, V up to the last tile visited."""
    keys = min(shape.Nk, Bc * int(tiles_visited(shape, Br, Bc).max()))
    return shape.heads * (2 * shape.N * shape.d + shape.N + 2 * keys * shape.d)


def attention_flops(shape: Shape, backward: bool = False, recompute: bool = True) -> int:
    """Count the FLOPs of the matrix products over the visible pairs alone; a multiply-add is two, softmax is not counted.

    Forward: Q K^T and P V, 2 d each a pair. Backward: dV, dP, dQ, dK, 2 d each, and S again when it is recomputed.
    """
    products = (5 if recompute else 4) if backward else 2
    return 2 * products * shape.d * visible_pairs(shape) * shape.heads


def _visits(shape: Shape, Br: int, Bc: int) -> np.ndarray:
    """Return for each tile of one head how many blocks visit it."""
    tiles = np.arange(-(-shape.Nk // Bc))
    visited = np.sort(tiles_visited(shape, Br, Bc))
    return len(visited) - np.searchsorted(visited, tiles, side="right")


# Closed forms of warp accesses


@dataclass(frozen=True)
class Access:
    """Count float32 accesses: lanes, requests, sectors. Adds, and multiplies by how often it happens."""

    lanes: int = 0
    requests: int = 0
    sectors: int = 0

    def __add__(self, other: Access) -> Access:
        return Access(self.lanes + other.lanes, self.requests + other.requests, self.sectors + other.sectors)

    def __mul__(self, times: int) -> Access:
        return Access(self.lanes * times, self.requests * times, self.sectors * times)

    def paths(self, space: str) -> dict[str, int]:
        """Return the counters of a global space ("global_load") by their paths."""
        return {f"{space}.lanes": self.lanes, f"{space}.bytes": 4 * self.lanes,
                f"{space}.requests": self.requests, f"{space}.sectors": self.sectors}


def linear(start: int, count: int, threads: int) -> Access:
    """Count a block's access to `count` consecutive elements from `start`: thread t takes t, t + threads, and so on.

    start counts elements from an address that is a multiple of 32 bytes.
    """
    return _linear(start % SECTOR_ELEMENTS, count, threads)


@lru_cache(maxsize=4096)
def _linear(phase: int, count: int, threads: int) -> Access:
    warps = np.arange(0, threads, WARP)
    first = (np.arange(0, count, threads)[:, None] + warps).ravel()
    width = np.tile(np.minimum(WARP, threads - warps), len(first) // len(warps))
    first, width = first[first < count], width[first < count]
    last = phase + np.minimum(first + width, count) - 1
    sectors = last // SECTOR_ELEMENTS - (phase + first) // SECTOR_ELEMENTS + 1
    return Access(count, len(first), int(sectors.sum()))


def row_per_thread(first_row: int, rows: int, d: int) -> Access:
    """Count an access in which thread t of a block walks row first_row + t of a matrix with rows of d elements.

    Lanes lie d elements apart: with d of 8 or more each one touches a sector of its own.
    """
    warps = [min(WARP, rows - w) for w in range(0, rows, WARP)]
    if d >= SECTOR_ELEMENTS:
        return Access(rows * d, len(warps) * d, rows * d)
    sectors = sum(_strided((d * (first_row + WARP * w) + k) % SECTOR_ELEMENTS, n, d) for w, n in enumerate(warps) for k in range(d))
    return Access(rows * d, len(warps) * d, sectors)


@lru_cache(maxsize=4096)
def _strided(phase: int, lanes: int, stride: int) -> int:
    return len({(phase + lane * stride) // SECTOR_ELEMENTS for lane in range(lanes)})


def row_segments(rows: int, width: int) -> Access:
    """Count one access to each element of a matrix (rows, width) where a warp takes 32 neighbours of a row at a time."""
    first = np.arange(0, width, WARP)
    last = np.minimum(first + WARP, width) - 1
    phases = (np.arange(min(rows, SECTOR_ELEMENTS), dtype=np.int64) * width) % SECTOR_ELEMENTS
    each = [int(((p + last) // SECTOR_ELEMENTS - (p + first) // SECTOR_ELEMENTS + 1).sum()) for p in phases]
    sectors = sum(n * -(-(rows - i) // SECTOR_ELEMENTS) for i, n in enumerate(each))
    return Access(rows * width, rows * len(first), sectors)


def arithmetic(*terms: tuple[int, dict[str, int]]) -> dict[str, int]:
    """Add up (how often, instructions) pairs and return the counters by their paths."""
    names = ("ffma", "fmul", "fadd", "mufu")
    return {f"arithmetic.{name}": sum(times * ops.get(name, 0) for times, ops in terms) for name in names}


# The reference


def reference(Q: np.ndarray, K: np.ndarray, V: np.ndarray, shape: Shape, rows: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Return (O, L) in float64: O (heads, N, d) = softmax(scale Q K^T) V, L (heads, N) = log of the sum of exp of the scores.

    Works on `rows` query rows at a time, so that N = 16384 needs 32 MB and no N x N matrix. A row that sees no key gives
    O = 0 and L = -inf; NaN in a key or value that a row does not see does not reach it.
    """
    seen = keys_seen(shape)
    O = np.zeros((shape.heads, shape.N, shape.d))
    L = np.full((shape.heads, shape.N), -np.inf)
    for head in range(shape.heads):
        k, v = K[head].astype(np.float64), V[head].astype(np.float64)
        for i in range(0, shape.N, rows):
            at = slice(i, min(i + rows, shape.N))
            q = Q[head, at].astype(np.float64) * shape.scale
            O[head, at], L[head, at] = _reference_rows(q, k, v, seen[at])
    return O, L


def _reference_rows(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return O and L of some rows; q is scaled, seen is the number of keys of each row, in ascending order."""
    most = int(seen[-1])
    if most == 0:
        return np.zeros_like(q), np.full(len(q), -np.inf)
    scores = q @ k[:most].T
    hidden = np.arange(most) >= seen[:, None]
    scores[hidden] = -np.inf
    top = scores.max(axis=1)
    shift = np.where(top == -np.inf, 0.0, top)
    p = np.exp(scores - shift[:, None])
    total = p.sum(axis=1)
    with np.errstate(divide="ignore"):
        lse = top + np.log(np.where(seen > 0, total, 1.0))
    return _weigh(p, v[:most], ~hidden) / np.where(seen > 0, total, 1.0)[:, None], lse


def _weigh(p: np.ndarray, v: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Return p @ v in which a value that is not finite counts only for the rows that see it (0 * NaN is NaN)."""
    finite = np.isfinite(v).all(axis=1)
    if finite.all():
        return p @ v
    out = p @ np.where(finite[:, None], v, 0.0)
    for key in np.flatnonzero(~finite):
        out[visible[:, key]] += p[visible[:, key], key, None] * v[key]
    return out


def fits_small(shape: Shape, elements: int) -> bool:
    """Return whether all arrays, `elements` float32 in sum, stay in L2 and each starts and ends on a 64-byte boundary of DRAM."""
    aligned = all(count * shape.d * shape.heads % 16 == 0 for count in (shape.N, shape.Nk))
    return aligned and 4 * elements <= SMALL_FOOTPRINT_BYTES
