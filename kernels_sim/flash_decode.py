"""Flash-Decoding: few queries, long K and V; the keys are split over blocks and the splits merged afterwards.

1. split:   a block takes one split of the keys of one K/V head, with a warp for each query row that shares
   the head: all query heads of the group, packed. Tiles of 32 keys pass through shared memory; a lane scores
   one key, then holds columns of the output. What a split gives is its state (m, l, o): the maximum of its
   scores, the sum of exp(score - m), and the values weighted alike, unnormalised.
2. combine: a warp a row merges the states: weights exp(m - largest m), one division at the end.

Split s of n goes from key round(Nk s / n) to round(Nk (s + 1) / n), halves to even. With more splits than
keys some are empty: their state is (-inf, 0, 0), the unit of merging. Every query sees every key, as it
stands at the end of the sequence.

What to look at in the report:
- Waves and SMs: one query row on one head is one block without splitting, on 132 SMs. --splits gives each
  head that many blocks; K and V are read once whatever the number, so DRAM's bytes stay.
- The price: the states, heads Nq splits (dv + 2) elements, are written and read once more.
- Shared K/V heads: a block reads K and V once for the group, so 8 query heads on one K/V head cost the
  traffic of one.
- Arithmetic intensity: about one FLOP a byte for one row a K/V head. Decoding is bound by memory.
- Shuffles: ten a tile and row, for the maximum and the sum; in combine one more for each split.

Registers are estimated: numba-cuda does not compile device functions without a GPU.

What it leaves out: several warps a row, masks, a choice of --splits by the number of SMs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from dsl import cuda
from gpusim.errors import BadOption
from kernels_sim.attention import (
    DIV,
    DTYPES,
    EXP,
    LOG_OF_KEPT,
    TOLERANCES,
    Access,
    Shape,
    arithmetic,
    linear,
    padded_wavefronts,
    reference,
    row_accesses,
    shape_of,
)
from kernels_sim.attention_facts import flop_facts, of_heads
from kernels_sim.formulas import ELEMENT_BYTES, WARP, ceil_div, shared
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step

float32 = np.float32
ZERO, ONE, NEG_INF = np.float32(0), np.float32(1), np.float32(-np.inf)
ALL = 0xFFFFFFFF
MOST_ROWS = 8
"""Query rows of a block, a warp each; more rows that share a K/V head get more blocks."""
COMBINE_ROWS = 4
"""Rows of a block of the second launch, a warp each."""


@cuda.jit(device=True)
def split_bound(n_keys, s, splits):
    """Return round(n_keys * s / splits) with halves to even: where split s begins and split s - 1 ends."""
    whole = n_keys * s // splits
    rest = 2 * (n_keys * s - whole * splits)
    return whole + 1 if rest > splits or (rest == splits and whole % 2 == 1) else whole


@cuda.jit(device=True)
def warp_max(x):
    """Return the largest x of the warp's lanes, in all of them."""
    for distance in (16, 8, 4, 2, 1):
        x = max(x, cuda.shfl_xor_sync(ALL, x, distance))
    return x


@cuda.jit(device=True)
def warp_sum(x):
    """Return the sum of x over the warp's lanes, in all of them."""
    for distance in (16, 8, 4, 2, 1):
        x += cuda.shfl_xor_sync(ALL, x, distance)
    return x


@cache
def make_split(d: int, dv: int, warps: int) -> Any:
    """Return split(Q, K, V, m, l, o, scale) for head dimensions and so many query rows a block.

    Q: (kv_heads, rows, d), the rows of all query heads that share a K/V head; K: (kv_heads, Nk * d); V:
    (kv_heads, Nk * dv); of 32 or 16 bits; m, l: (kv_heads * rows, splits); o: (kv_heads * rows, splits, dv);
    float32. Grid
    (splits, ceil(rows / warps) * kv_heads, batch), block 32 * warps; `shared_bytes` of dynamic shared memory.
    """
    k_row, columns, threads = d | 1, ceil_div(dv, WARP), warps * WARP
    V_AT = WARP * k_row
    Q_AT = V_AT + WARP * dv
    P_AT = Q_AT + warps * d

    @cuda.jit
    def split(Q, K, V, m, l, o, scale):
        # One dynamic array: a K tile with rows of odd length, a V tile, a query and 32 weights for each warp.
        sm = cuda.shared.array(0, float32)
        acc = cuda.local.array(columns, float32)

        thread = cuda.threadIdx.x
        lane = thread % WARP
        warp = thread // WARP
        s = cuda.blockIdx.x
        splits = cuda.gridDim.x
        rows = Q.shape[1]
        row_blocks = (rows + warps - 1) // warps
        kv_head = cuda.blockIdx.y // row_blocks + cuda.gridDim.y // row_blocks * cuda.blockIdx.z
        row = cuda.blockIdx.y % row_blocks * warps + warp
        n_keys = K.shape[1] // d
        begin = split_bound(n_keys, s, splits)
        end = split_bound(n_keys, s + 1, splits)

        if row < rows:
            for k in range(lane, d, WARP):
                sm[Q_AT + warp * d + k] = float32(Q[kv_head, row, k])
        for c in range(columns):
            acc[c] = ZERO
        top = NEG_INF
        total = ZERO

        for j0 in range(begin, end, WARP):
            keys = min(WARP, end - j0)
            for e in range(thread, keys * d, threads):
                j = e // d
                sm[j * k_row + e - j * d] = float32(K[kv_head, j0 * d + e])
            for e in range(thread, keys * dv, threads):
                sm[V_AT + e] = float32(V[kv_head, j0 * dv + e])
            cuda.syncthreads()

            if row < rows:
                score = NEG_INF
                if lane < keys:
                    score = ZERO
                    for k in range(d):
                        score += sm[Q_AT + warp * d + k] * sm[lane * k_row + k]
                    score *= scale
                new_top = max(top, warp_max(score))
                # -inf - -inf is NaN: scores that are all -inf measure from 0.
                shift = new_top if new_top > NEG_INF else ZERO
                alpha = math.exp(top - shift)
                p = math.exp(score - shift)
                top = new_top
                total = total * alpha + warp_sum(p)
                sm[P_AT + thread] = p
                cuda.syncwarp()
                for c in range(columns):
                    column = lane + c * WARP
                    if column < dv:
                        a = acc[c] * alpha
                        for j in range(keys):
                            a += sm[P_AT + warp * WARP + j] * sm[V_AT + j * dv + column]
                        acc[c] = a
            cuda.syncthreads()

        if row < rows:
            if lane == 0:
                m[kv_head * rows + row, s] = top
                l[kv_head * rows + row, s] = total
            for c in range(columns):
                column = lane + c * WARP
                if column < dv:
                    o[kv_head * rows + row, s, column] = acc[c]

    return split


@cache
def make_combine(dv: int) -> Any:
    """Return combine(m, l, o, O, L): merge the states of each row.

    m, l: (rows, splits); o: (rows, splits, dv); L: (rows,); float32; O: (rows, dv), of any type. Grid
    ceil(rows / 4), block 128. A state with l = 0 is ignored whatever its o holds; NaN in l or o of another
    one shows.
    """
    columns = ceil_div(dv, WARP)

    @cuda.jit
    def combine(m, l, o, O, L):
        acc = cuda.local.array(columns, float32)
        lane = cuda.threadIdx.x % WARP
        row = cuda.blockIdx.x * COMBINE_ROWS + cuda.threadIdx.x // WARP
        splits = m.shape[1]
        if row < m.shape[0]:
            top = NEG_INF
            for s in range(lane, splits, WARP):
                top = max(top, m[row, s])
            top = warp_max(top)
            shift = top if top > NEG_INF else ZERO
            total = ZERO
            for c in range(columns):
                acc[c] = ZERO

            # A lane weighs one split; then all lanes go through the 32 splits, each for its columns.
            for s0 in range(0, splits, WARP):
                own_m = NEG_INF
                own_l = ZERO
                if s0 + lane < splits:
                    own_m = m[row, s0 + lane]
                    own_l = l[row, s0 + lane]
                weight = math.exp(own_m - shift)
                total += weight * own_l
                used = cuda.ballot_sync(ALL, own_l != ZERO)
                for t in range(min(WARP, splits - s0)):
                    w = cuda.shfl_sync(ALL, weight, t)
                    for c in range(columns):
                        column = lane + c * WARP
                        if column < dv:
                            x = o[row, s0 + t, column]
                            acc[c] += w * (x if (used >> t) & 1 else ZERO)

            total = warp_sum(total)
            # No key in any split: top = -inf, total = 0 and acc = 0 give L = -inf and O = 0.
            divisor = ONE if total == ZERO else total
            if lane == 0:
                L[row] = top + math.log(divisor)
            for c in range(columns):
                column = lane + c * WARP
                if column < dv:
                    O[row, column] = acc[c] / divisor

    return combine


def shared_bytes(d: int, dv: int, warps: int) -> int:
    """Return the bytes of dynamic shared memory of a block of the first launch."""
    return ELEMENT_BYTES * (WARP * ((d | 1) + dv) + warps * (d + WARP))


@dataclass(frozen=True)
class Options:
    """Hold the options of flash_decode."""

    Nq: int = field(default=1, metadata={"help": "query rows of a head"})
    Nk: int = field(default=8192, metadata={"help": "keys"})
    splits: int = field(default=16, metadata={"help": "pieces of the keys, a block each"})
    d: int = field(default=64, metadata={"help": "head dimension of Q and K, 1 to 256"})
    dv: int | None = field(default=None, metadata={"help": "head dimension of V and O; 0 or not given: d"})
    heads: int = field(default=8, metadata={"help": "query heads"})
    kv_heads: int | None = field(default=None, metadata={"help": "K/V heads; 0 or not given: --heads"})
    batch: int = field(default=1, metadata={"help": "sequences, grid dimension z"})
    scale: float | None = field(default=None, metadata={"help": "factor of the scores; else 1 / sqrt(d)"})
    dtype: str = field(default="float32", metadata={
        "help": "type of Q, K, V and O; states are float32", "choices": tuple(DTYPES)})


def checked(options: Options) -> Shape:
    """Return the shape of the problem; raise BadOption."""
    if options.Nq < 1:
        raise BadOption(f"flash_decode: --Nq must be at least 1, got {options.Nq}")
    if not 1 <= options.splits < 1 << 31:
        raise BadOption(f"flash_decode: --splits is grid dimension x, 1 to 2**31 - 1; got {options.splits}")
    given = {name: getattr(options, name) for name in Options.__dataclass_fields__}
    shape = shape_of(SimpleNamespace(**given, N=options.Nq, causal=False, q_start=0), DTYPES)
    blocks = ceil_div(options.Nq * shape.group, MOST_ROWS) * (options.heads // shape.group)
    if blocks > 65535:
        raise BadOption(f"flash_decode: --Nq and --heads make {blocks} blocks in grid dimension y, at most "
                        "65535 fit")
    return shape


def build(options: Options, data: Data) -> Problem:
    """Make the problem: Q, K, V ~ N(0, 1); the states, O and L pre-filled with NaN. Raises BadOption."""
    shape, splits, dtype = checked(options), options.splits, DTYPES[options.dtype]
    Hk, rows, d, dv = shape.kv_heads, shape.group * shape.N, shape.d, shape.dv
    sizes = (Hk, rows, d), (Hk, shape.Nk * d), (Hk, shape.Nk * dv)
    Q, K, V = (data.normal(*of, dtype=dtype) for of in sizes)
    states = [data.filled(np.nan, Hk * rows, splits, *more) for more in ((), (), (dv,))]
    O, L = data.filled(np.nan, Hk * rows, dv, dtype=dtype), data.filled(np.nan, Hk * rows)
    warps = min(rows, MOST_ROWS)
    split = Step(
        make_split(d, dv, warps),
        (splits, ceil_div(rows, warps) * (options.heads // shape.group), options.batch), (warps * WARP,),
        (Q, K, V, *states, np.float32(shape.scale)), shared_bytes(d, dv, warps),
        split_form(shape, splits, dtype.itemsize),
    )  # fmt: skip
    combine = Step(
        make_combine(dv), (ceil_div(Hk * rows, COMBINE_ROWS),), (COMBINE_ROWS * WARP,),
        (*states, O, L), 0, combine_form(shape, splits, dtype.itemsize),
    )  # fmt: skip
    said = facts(shape, splits, [split.closed_form, combine.closed_form])
    outputs = dict(zip("OLmlo", (O, L, *states), strict=True))
    inputs = {"Q": Q, "K": K, "V": V}
    if data.virtual:
        return Problem("flash_decode", (split, combine), outputs, facts=said, options=options, inputs=inputs)
    by_head = shape.heads, shape.N
    outputs = {name: x.reshape(*by_head, *x.shape[1:]) for name, x in outputs.items()}
    q, k, v = Q.reshape(*by_head, d), K.reshape(Hk, -1, d), V.reshape(Hk, -1, dv)
    return Problem("flash_decode", (split, combine), outputs,
                   lambda: expected(q, k, v, shape, splits), TOLERANCES[options.dtype], said, options, inputs)


def facts(shape: Shape, splits: int, forms: list[dict[str, int]]) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm: blocks with keys, what the states cost, FLOPs."""
    keys, rows = np.diff(bounds(shape.Nk, splits)), shape.heads * shape.N
    row_blocks = ceil_div(shape.group * shape.N, MOST_ROWS) * shape.kv_heads
    needed = rows * (shape.d + shape.dv + 1) + shape.kv_heads * shape.Nk * (shape.d + shape.dv)
    asked = sum(form[f"global_{way}.lanes"] for form in forms for way in ("load", "store"))
    pairs, each = rows * shape.Nk, "4 d" if shape.dv == shape.d else "2 (d + dv)"
    return (
        Fact("Blocks", splits * row_blocks, "block", "splits x K/V heads x row blocks"),
        Fact("Blocks With Keys", int((keys > 0).sum()) * row_blocks, "block", "splits that are not empty"),
        Fact("Largest Split", int(keys.max()), "key", "ceil(Nk / splits) at most"),
        Fact("Pairs Visible", pairs, "pair", of_heads("Nq Nk", shape)),
        Fact("States", rows * splits * (shape.dv + 2), "element", of_heads("Nq splits (dv + 2)", shape)),
        Fact("Needed At DRAM", needed, "element", "Q, K, V, O and L once"),
        Fact("Moved At SM-L1", asked, "element", "and the states out and in, m twice",
             {"global_load.lanes": 1, "global_store.lanes": 1}, base="Needed At DRAM"),
        *flop_facts(2 * (shape.d + shape.dv) * pairs, f"{each} pairs visible", forms),
    )  # fmt: skip


def bounds(n_keys: int, splits: int) -> list[int]:
    """Return where each split begins, and at last where all end: n_keys s / splits, halves to even."""
    return [round(n_keys * s / splits) for s in range(splits + 1)]


def expected(Q: np.ndarray, K: np.ndarray, V: np.ndarray, shape: Shape, splits: int) -> dict[str, np.ndarray]:
    """Return O, L and the states m, l and o of every split in float64."""
    O, L = reference(Q, K, V, shape)
    m, l = np.full((shape.heads, shape.N, splits), -np.inf), np.zeros((shape.heads, shape.N, splits))
    o = np.zeros((*l.shape, shape.dv))
    for s, (begin, end) in enumerate(pairwise(bounds(shape.Nk, splits))):
        if begin < end:
            part = replace(shape, Nk=end - begin)
            normal, lse = reference(Q, K[:, begin:end], V[:, begin:end], part)
            keys = K[:, begin:end].astype(float).repeat(shape.group, 0)
            scores = shape.scale * Q.astype(float) @ keys.swapaxes(1, 2)
            m[..., s] = scores.max(axis=2)
            l[..., s] = np.exp(lse - m[..., s])
            o[:, :, s] = normal * l[..., s, None]
    return {"O": O, "L": L, "m": m, "l": l, "o": o}


# Closed forms


def split_form(shape: Shape, splits: int, size: int = 4) -> dict[str, int]:
    """Return the counters of the first launch: a block loads its split's keys and values once for its rows.

    A row and a tile cost two words a column and key for each product, ten shuffles, two exponentials, a
    rescaling of its dv columns, and one word a lane for the weights.
    """
    d, dv, rows = shape.d, shape.dv, shape.group * shape.N
    warps = min(rows, MOST_ROWS)
    threads, row_blocks, lines = warps * WARP, ceil_div(rows, warps), shape.kv_heads * rows
    tiles = [
        (j0, min(WARP, end - j0))
        for begin, end in pairwise(bounds(shape.Nk, splits))
        for j0 in range(begin, end, WARP)
    ]
    loads, passed, wavefronts = row_accesses(np.arange(lines), d, size) * splits, Access(), 0
    for head in range(shape.kv_heads):
        for j0, n in tiles:
            for width in (d, dv):
                loads += linear((head * shape.Nk + j0) * width, n * width, threads, size) * row_blocks
    for _, n in tiles:
        passed += (linear(0, n * d, threads) + linear(0, n * dv, threads)) * (row_blocks * shape.kv_heads)
        wavefronts += (padded_wavefronts(n, d, threads) + linear(0, n * dv, threads).requests) * (
            row_blocks * shape.kv_heads
        )
    states = np.arange(lines * splits)
    stores = row_accesses(states, 1) * 2 + row_accesses(states, dv)
    forms = loads.paths("global_load") | stores.paths("global_store")
    each = lines * len(tiles)
    stored = Access(lines * splits * d, lines * splits * ceil_div(d, WARP)) + Access(each * WARP, each)
    pairs = lines * shape.Nk
    loaded = Access(2 * pairs * (d + dv), 2 * each * d + 2 * pairs * ceil_div(dv, WARP))
    forms |= loaded.shared_paths("shared_load")
    forms |= shared("shared_store", lanes=stored.lanes + passed.lanes,
                    requests=stored.requests + passed.requests, wavefronts=stored.requests + wavefronts)
    forms |= arithmetic(
        (pairs, {"ffma": d + dv, "fmul": 1}),
        (each * WARP, {"fadd": 2 + 5, "ffma": 1}),
        (2 * each * WARP, EXP),
        (each * dv, {"fmul": 1}),
    )
    barriers = 2 * len(tiles) * row_blocks * shape.kv_heads * warps
    return forms | {"warp_operations": 10 * each, "barriers": barriers, "hierarchy.l2_write": stores.sectors}


def combine_form(shape: Shape, splits: int, size: int = 4) -> dict[str, int]:
    """Return the counters of the second launch: m twice, l and o once in; O and L out.

    A row weighs 32 splits at a time, one a lane: an exponential and a vote; each split is shuffled to all.
    """
    lines, chunks = shape.heads * shape.N, ceil_div(splits, WARP)
    loads = row_accesses(np.arange(lines), splits) * 3 + row_accesses(np.arange(lines * splits), shape.dv)
    stores = row_accesses(np.arange(lines), shape.dv, size) + row_accesses(np.arange(lines), 1)
    lanes = lines * chunks * WARP
    forms = loads.paths("global_load") | stores.paths("global_store")
    forms |= arithmetic(
        (lanes, {"fadd": 1, "ffma": 1}),
        (lanes, EXP),
        (lines * 5 * WARP, {"fadd": 1}),
        (lines * splits * shape.dv, {"ffma": 1}),
        (lines * shape.dv, DIV),
        (lines, LOG_OF_KEPT),
        (lines, {"fadd": 1}),
    )
    moved = lines * (10 + chunks + splits)
    return forms | {"warp_operations": moved, "hierarchy.l2_write": stores.sectors}


SUMMARY = "Flash-Decoding: keys split over blocks, a combine launch merges (m, l, o)"
SPEC = KernelSpec("flash_decode", SUMMARY, Options, build)
