"""What the flash_row kernels share: their options, their arrays, and the accesses of lanes that walk rows.

The five kernels give one thread one row: of Q in the forward pass and for dQ, of K for dK and dV. Nothing is
added atomically, so the results are the same whatever the order, and nothing of size T x Tk is written.

Arrays lie as the projections leave them, heads beside one another: Q, O, dO and dQ are (B, T, H, d), K, V, dK
and dV (B, Tk, HKV, d), L and D (B, H, T). So a row is H d elements from the next one of its head, and 32
lanes that read element k of their own rows touch 32 sectors.

Which keys a row sees is attention.py's rule. What it leaves out: time; what L1 keeps between accesses.
Checked by l1tex__t_requests_* and l1tex__t_sectors_*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusim.errors import BadOption
from kernels_sim.attention import MOST_Q_START, Access, Shape, key_range, linear, reference
from kernels_sim.attention_gradients import gradients, summed
from kernels_sim.formulas import PER_SECTOR, WARP, ceil_div, require_at_least
from kernels_sim.problem import Data

LEAST_D, MOST_D = 16, 128
"""Head dimensions: below 16, two rows could share a sector; above 128, a thread cannot hold its rows."""
GRID_LIMIT = 65535


@dataclass(frozen=True)
class Options:
    """Hold the options of the flash_row kernels."""

    B: int = field(default=1, metadata={"help": "sequences, grid dimension z"})
    T: int = field(default=128, metadata={"help": "query rows of a sequence"})
    H: int = field(default=4, metadata={"help": "query heads"})
    HKV: int = field(default=2, metadata={"help": "K/V heads; H / HKV query heads share one"})
    d: int = field(default=64, metadata={"help": f"head dimension, {LEAST_D} to {MOST_D}"})
    causal: bool = field(default=False, metadata={"help": "a row sees no key after its own position"})
    window: int = field(default=0, metadata={"help": "keys up to its own position that a row sees; 0: all"})
    Tk: int | None = field(default=None, metadata={"help": "keys of a sequence; not given: T"})
    q_start: int = field(default=0, metadata={"help": "position of row 0; may be negative"})
    scale: float | None = field(default=None, metadata={"help": "factor of the scores; else 1 / sqrt(d)"})
    Br: int = field(default=64, metadata={"help": "threads of a block, one a row: 1 to 1024"})


def shape_of(kernel: str, options: Options) -> Shape:
    """Check the options and fill in the defaults; heads are B x H. Raises BadOption."""
    for name in ("B", "T", "H", "HKV"):
        require_at_least(kernel, name, getattr(options, name), 1)
    Tk = options.T if options.Tk is None else options.Tk
    require_at_least(kernel, "Tk", Tk, 0)
    require_at_least(kernel, "window", options.window, 0)
    if not LEAST_D <= options.d <= MOST_D:
        raise BadOption(f"{kernel}: --d must be {LEAST_D} to {MOST_D}, got {options.d}: a thread holds whole "
                        "rows of d elements")
    if options.H % options.HKV:
        raise BadOption(f"{kernel}: --H {options.H} is not a multiple of --HKV {options.HKV}: each K/V head "
                        "serves the same number of query heads")
    if max(options.B, options.H) > GRID_LIMIT:
        raise BadOption(f"{kernel}: --H and --B are grid dimensions y and z, at most {GRID_LIMIT}; got "
                        f"{options.H} and {options.B}")
    if not 1 <= options.Br <= 1024:
        raise BadOption(f"{kernel}: --Br must be 1 to 1024, got {options.Br}: a block is one thread a row")
    if max(abs(options.q_start), options.window) > MOST_Q_START:
        raise BadOption(f"{kernel}: --q-start and --window must lie within 2**40; got {options.q_start} and "
                        f"{options.window}")
    if options.scale is not None and not math.isfinite(options.scale):
        raise BadOption(f"{kernel}: --scale must be a finite number, got {options.scale}")
    scale = 1.0 / math.sqrt(options.d) if options.scale is None else options.scale
    return Shape(options.T, Tk, options.d, options.B * options.H, options.causal, options.q_start, scale,
                 group=options.H // options.HKV, window=options.window)


# Arrays


def heads_first(x: np.ndarray) -> np.ndarray:
    """Return (B, rows, heads, d) as (B heads, rows, d), the order of the references."""
    B, rows, heads, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B * heads, rows, d)


def rows_first(x: np.ndarray, B: int) -> np.ndarray:
    """Return (B heads, rows, d) as (B, rows, heads, d), the order of the kernels."""
    return x.reshape(B, len(x) // B, *x.shape[1:]).transpose(0, 2, 1, 3)


@dataclass(frozen=True)
class Arrays:
    """Hold Q, K, V and dO of N(0, 1), and O, L and D as a forward pass leaves them: float64's, rounded."""

    Q: Any
    K: Any
    V: Any
    dO: Any
    O: Any
    L: Any
    D: Any

    def named(self, *names: str) -> dict[str, Any]:
        """Return some of them by name."""
        return {name: getattr(self, name) for name in names}


def arrays(options: Options, shape: Shape, data: Data) -> Arrays:
    """Make the inputs of a backward kernel; without storage where the data are virtual."""
    B, T, H = options.B, shape.N, options.H
    Q, K, V = queries_keys_values(options, shape, data)
    dO, O = data.normal(B, T, H, shape.d), data.filled(0, B, T, H, shape.d)
    L, D = data.filled(0, B, H, T), data.filled(0, B, H, T)
    if not data.virtual:
        o, lse = reference(heads_first(Q), heads_first(K), heads_first(V), shape)
        O[...], L[...] = rows_first(o, B), lse.reshape(B, H, T)
        D[...] = (o * heads_first(dO)).sum(axis=-1).reshape(B, H, T)
    return Arrays(Q, K, V, dO, O, L, D)


def queries_keys_values(options: Options, shape: Shape, data: Data) -> tuple[Any, Any, Any]:
    """Make Q, K and V of N(0, 1) numbers."""
    kv = options.B, shape.Nk, options.HKV, shape.d
    return data.normal(options.B, shape.N, options.H, shape.d), data.normal(*kv), data.normal(*kv)


def expected_gradients(
    options: Options, shape: Shape, a: Arrays
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return dQ, dK and dV in float64, in the order of the kernels."""
    found = gradients(heads_first(a.Q), heads_first(a.K), heads_first(a.V), heads_first(a.dO), shape)
    dQ, dK, dV = (rows_first(x, options.B) for x in found)
    return dQ, dK, dV


def summed_terms(shape: Shape, a: Arrays) -> dict[str, float]:
    """Return how large the terms are that dQ and dK add up; see kernels_sim.attention_gradients.summed."""
    heads = (heads_first(x) for x in (a.Q, a.K, a.V, a.dO))
    return dict(zip(("dQ", "dK"), summed(*heads, shape), strict=True))


def blocks_of(rows: int, Br: int) -> int:
    """Return the blocks for `rows` rows, at least one, as a grid has."""
    return max(1, ceil_div(rows, Br))


# Who sees a key


def row_range(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row that sees each key of a head and the row after the last, int64 of shape (Nk,)."""
    at = np.arange(shape.Nk, dtype=np.int64) - shape.q_start
    first = np.clip(at, 0, shape.N) if shape.causal else np.zeros(shape.Nk, np.int64)
    end = np.full(shape.Nk, shape.N, np.int64)
    return first, np.clip(at + shape.window, first, end) if shape.window else end


def all_touched(shape: Shape) -> bool:
    """Return whether every row sees a key and every key is seen, so that every array is read whole."""
    ranges = (*key_range(shape), *row_range(shape))
    return bool(shape.Nk and (ranges[0] < ranges[1]).all() and (ranges[2] < ranges[3]).all())


# Closed forms


def by_warps(values: np.ndarray, Br: int) -> np.ndarray:
    """Return one value a row as (warps, 32): blocks of Br threads, filled up with zeros to whole warps."""
    blocks = ceil_div(len(values), Br)
    table = np.zeros((blocks, ceil_div(Br, WARP) * WARP), np.int64)
    whole = np.zeros(blocks * Br, np.int64)
    whole[: len(values)] = values
    table[:, :Br] = whole.reshape(blocks, Br)
    return table.reshape(-1, WARP)


def own_rows(rows: int, Br: int) -> Access:
    """Count one access of every thread to its own row: a sector a lane, as rows are 64 bytes apart."""
    active = by_warps(np.ones(rows, np.int64), Br)
    return Access(rows, int(active.any(axis=1).sum()), rows)


def own_scalars(heads: int, rows: int, Br: int) -> Access:
    """Count one access of every thread of every head to its element of an array (heads, rows)."""
    starts = ((head * rows + i, min(Br, rows - i)) for head in range(heads) for i in range(0, rows, Br))
    return sum((linear(start, count, Br) for start, count in starts), Access())


@dataclass(frozen=True)
class Walk:
    """Hold the ranges of rows that the lanes of one head walk side by side, (warps, 32) each.

    In turn t a lane is at row first + t until its range ends; lanes that began at the same row stay together.
    """

    first: np.ndarray
    turns: np.ndarray

    def shared_rows(self) -> Access:
        """Count one access a turn to the row where a lane is: a sector for each row that is being read."""
        changes = np.ones(self.first.shape, bool)
        changes[:, 1:] = self.first[:, 1:] != self.first[:, :-1]
        together = np.maximum.reduceat(self.turns.ravel(), np.flatnonzero(changes)) if self.turns.size else 0
        return Access(self._lanes, self._requests, int(np.sum(together)))

    def own(self) -> Access:
        """Count one access a turn to the lane's own row: a sector a lane."""
        return Access(self._lanes, self._requests, self._lanes)

    def scalars(self, start: int) -> Access:
        """Count one access a turn to element first + t of a vector that begins at element `start`."""
        sectors = 0
        for t in range(int(self.turns.max(initial=0))):
            active = self.turns > t
            low = np.where(active, self.first, np.iinfo(np.int64).max).min(axis=1)
            high = np.where(active, self.first, -1).max(axis=1)
            some = high >= 0
            low, high = low[some] + start + t, high[some] + start + t
            sectors += int((high // PER_SECTOR - low // PER_SECTOR + 1).sum())
        return Access(self._lanes, self._requests, sectors)

    def scalars_of_heads(self, heads: int, length: int) -> Access:
        """Count the same over vectors of `length` elements that lie one after another, one a head."""
        total = Access()
        for i in range(min(heads, PER_SECTOR)):  # the alignment repeats after 8 heads
            total += self.scalars(i * length % PER_SECTOR) * ceil_div(heads - i, PER_SECTOR)
        return total

    @property
    def _lanes(self) -> int:
        return int(self.turns.sum())

    @property
    def _requests(self) -> int:
        return int(self.turns.max(axis=1, initial=0).sum())


def walk(first: np.ndarray, end: np.ndarray, Br: int) -> Walk:
    """Return the walk of one head's lanes, lane i over the rows first[i] to before end[i]."""
    return Walk(by_warps(first, Br), by_warps(end - first, Br))
