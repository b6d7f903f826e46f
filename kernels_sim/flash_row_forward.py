"""FlashAttention's forward pass as a port from Metal: one thread a query row, a key at a time, K/V staged.

A block takes Br consecutive rows of one head. K and V come through shared memory in tiles of Bc keys, so each
of their elements is fetched once a block and not once a thread. A thread holds its row of Q, its row of O and
the state (m, l) in registers, rescales O for every key, and writes O and L = m + log l once. m begins at the
lowest float and not at -inf: exp(-inf - -inf) is NaN.

Causal tiles above the diagonal are not visited, and only tiles on it test each key; with a window, the tiles
before the first key that a row of the block sees are not visited either. A row that sees no key gets O = 0
and L = -inf (the Metal kernel wrote L = 0, which cannot be merged), and a key that a row does not see is not
computed, so that a NaN in it stays out.

What to look at in the report (T = 128, 4 heads over 2, d = 64):
- Sectors per request: Q comes in and O goes out with 32 sectors a request, as lanes are rows apart; K and V
  with 4. A row of Q is d loads of one element each from the same lines, so L1 has 7 of 8.
- Shared memory: every load is a broadcast, one wavefront; 2 d of them a key.
- FMUL: a key at a time rescales O d times a key; flash_forward's strips of 8 keys rescale d / 8 times.
- GQA: --HKV 1 lowers the K and V that DRAM delivers, not what the blocks ask for.

What it leaves out: 16-bit types. The Metal kernel was made for heads of 16, 32, 48, 64, 80, 96 and 128; here
any d from 16 to 128 is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from dsl import cuda
from gpusim.errors import BadOption
from kernels_sim import flash_row
from kernels_sim.attention import (
    EXP,
    LOG,
    RCP,
    Access,
    Shape,
    arithmetic,
    block_range,
    block_rows,
    dram,
    key_range,
    linear,
    reference,
    requests_of,
    visible_pairs,
)
from kernels_sim.attention_facts import element_facts, flop_facts, of_heads, pair_fact
from kernels_sim.flash_row import blocks_of, heads_first, own_rows, own_scalars, rows_first
from kernels_sim.formulas import PER_SECTOR, WARP, ceil_div
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

float32 = np.float32
ZERO, ONE = np.float32(0), np.float32(1)
LOWEST = np.finfo(np.float32).min
STATIC_SHARED_LIMIT = 49152


@cache
def make_kernel(d: int, Br: int, Bc: int, causal: bool) -> Any:
    """Return flash_row_forward(Q, K, V, O, L, scale, q_start, window) for a head dimension and a tile.

    Arrays as in flash_row.py, float32; window 0 is none. Grid (ceil(T / Br), H, B), block Br.
    """

    @cuda.jit
    def flash_row_forward(Q, K, V, O, L, scale, q_start, window):
        Ks = cuda.shared.array((Bc, d), float32)
        Vs = cuda.shared.array((Bc, d), float32)
        q = cuda.local.array(d, float32)
        o = cuda.local.array(d, float32)
        thread = cuda.threadIdx.x
        first_row = cuda.blockIdx.x * Br
        row = first_row + thread
        h = cuda.blockIdx.y
        b = cuda.blockIdx.z
        kv = h // (Q.shape[2] // K.shape[2])
        n_rows = Q.shape[1]
        n_keys = K.shape[1]

        # The keys that this row sees, and those that some row of the block sees.
        begin = 0
        some_begin = 0
        end = n_keys
        some_end = n_keys
        if causal:
            last_row = min(first_row + Br, n_rows) - 1
            end = min(n_keys, q_start + row + 1)
            some_end = min(n_keys, q_start + last_row + 1)
        if window > 0:
            begin = max(0, q_start + row + 1 - window)
            some_begin = max(0, q_start + first_row + 1 - window)

        active = row < n_rows
        if active:
            for k in range(d):
                q[k] = Q[b, row, h, k]
                o[k] = ZERO
        m = LOWEST
        l = ZERO

        first_tile = some_begin // Bc * Bc if some_begin < some_end else some_end
        for j0 in range(first_tile, some_end, Bc):
            tile_keys = min(Bc, some_end - j0)
            cuda.syncthreads()
            for e in range(thread, tile_keys * d, Br):
                r = e // d
                k = e - r * d
                Ks[r, k] = K[b, j0 + r, kv, k]
                Vs[r, k] = V[b, j0 + r, kv, k]
            cuda.syncthreads()

            if active:
                diagonal = causal and j0 + Bc > q_start + first_row + 1
                for r in range(tile_keys):
                    j = j0 + r
                    if diagonal and j >= end:
                        break  # the rest of the tile is in the future too
                    if j < begin:
                        continue
                    s = ZERO
                    for k in range(d):
                        s += q[k] * Ks[r, k]
                    s *= scale

                    m_new = max(m, s)
                    correction = math.exp(m - m_new)
                    p = math.exp(s - m_new)
                    l = l * correction + p
                    for k in range(d):
                        o[k] = cuda.fma(o[k], correction, p * Vs[r, k])
                    m = m_new

        if active:
            # No visible key: l = 0 and o = 0 give O = 0 and L = -inf.
            inverse = ONE / (ONE if l == ZERO else l)
            for k in range(d):
                O[b, row, h, k] = o[k] * inverse
            L[b, h, row] = m + math.log(l)

    return flash_row_forward


@dataclass(frozen=True)
class Options(flash_row.Options):
    """Hold the options of flash_row_forward."""

    Bc: int = field(default=16, metadata={"help": "keys of a tile in shared memory"})


def build(options: Options, data: Data) -> Problem:
    """Make the problem: Q, K, V ~ N(0, 1), O and L pre-filled with NaN. Raises BadOption."""
    shape = flash_row.shape_of("flash_row_forward", options)
    check_tile(options.Bc, shape.d)
    B, T, H, d = options.B, shape.N, options.H, shape.d
    Q, K, V = flash_row.queries_keys_values(options, shape, data)
    O, L = data.filled(np.nan, B, T, H, d), data.filled(np.nan, B, H, T)
    registers, source = recorded("flash_row_forward", f"d={shape.d} causal={shape.causal}")
    step = Step(
        kernel=make_kernel(d, options.Br, options.Bc, shape.causal),
        grid=(blocks_of(T, options.Br), H, B),
        block=(options.Br,),
        args=(Q, K, V, O, L, np.float32(shape.scale), shape.q_start, shape.window),
        closed_form=closed_form(shape, options.HKV, options.Br, options.Bc),
        registers=registers,
        registers_source=source,
    )

    def expected() -> dict[str, np.ndarray]:
        o, lse = reference(heads_first(Q), heads_first(K), heads_first(V), shape)
        return {"O": rows_first(o, B), "L": lse.reshape(B, H, T)}

    said = facts(shape, options.Br, options.Bc, step.closed_form)
    check, inputs = None if data.virtual else expected, {"Q": Q, "K": K, "V": V}
    outputs = {"O": O, "L": L}
    return Problem("flash_row_forward", (step,), outputs, check, facts=said, options=options, inputs=inputs)


def check_tile(Bc: int, d: int) -> None:
    """Raise BadOption for a tile that does not fit 48 KB of static shared memory."""
    largest = STATIC_SHARED_LIMIT // (8 * d)
    if not 1 <= Bc <= largest:
        why = f"K's and V's tile take {4 * Bc * d} bytes each, a kernel may declare {STATIC_SHARED_LIMIT}"
        raise BadOption(f"flash_row_forward: --Bc must be 1 to {largest} at --d {d}, got {Bc}: {why}")


def facts(shape: Shape, Br: int, Bc: int, form: dict[str, int]) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm: tiles, pairs, elements and FLOPs over all heads."""
    tiles = [len(keys) for keys in tiles_of(shape, Br, Bc)]
    staged = sum(sum(keys) for keys in tiles_of(shape, Br, Bc))
    all_tiles = len(tiles) * ceil_div(shape.Nk, Bc)
    q_o_l = shape.heads * shape.N * (2 * shape.d + 1)
    ideal = q_o_l + shape.kv_heads * 2 * shape.d * shape.Nk
    moved = q_o_l + shape.heads * 2 * shape.d * staged
    return (
        Fact("K/V Tiles Visited", shape.heads * sum(tiles), "tile", "some row of the block sees"),
        Fact("K/V Tiles Skipped", shape.heads * (all_tiles - sum(tiles)), "tile", "no row of the block sees"),
        pair_fact(shape),
        *element_facts(ideal, "H T (2 d + 1) + 2 HKV Tk d", moved,
                       of_heads("T (2 d + 1) + 2 d keys staged", shape), (form,)),
        *flop_facts(4 * shape.d * visible_pairs(shape) * shape.heads, "4 d pairs visible", (form,)),
    )


def tiles_of(shape: Shape, Br: int, Bc: int) -> list[list[int]]:
    """List, for each block of one head, the keys of each tile that it stages."""
    return [
        [min(Bc, int(end) - j0) for j0 in range(int(begin) // Bc * Bc, int(end), Bc) if begin < end]
        for begin, end in zip(*block_range(shape, Br), strict=True)
    ]


def closed_form(shape: Shape, HKV: int, Br: int, Bc: int) -> dict[str, int]:
    """Return what the counters must be, by counter path."""
    rows = own_rows(shape.N, Br) * (shape.heads * shape.d)
    stores = rows + own_scalars(shape.heads, shape.N, Br)
    forms = (rows + _staged(shape, HKV, Br, Bc)).paths("global_load") | stores.paths("global_store")
    forms |= _shared(shape, Br, Bc) | _arithmetic(shape)
    tiles = sum(len(keys) for keys in tiles_of(shape, Br, Bc))
    forms["barriers"] = 2 * shape.heads * tiles * ceil_div(Br, WARP)
    forms["hierarchy.l2_write"] = stores.sectors
    return forms | _dram(shape)


def _staged(shape: Shape, HKV: int, Br: int, Bc: int) -> Access:
    """Count the global loads of K and V: rows of d elements, HKV d apart, by threads that take every Br-th.

    A head begins at a multiple of d elements; d or 8 elements further, the alignment repeats.
    """
    total = Access()
    for head in range(shape.heads):
        sequence, kv = divmod(head // shape.group, HKV)
        for begin, keys in zip(block_range(shape, Br)[0], tiles_of(shape, Br, Bc), strict=True):
            for i, count in enumerate(keys):
                first = sequence * shape.Nk + int(begin) // Bc * Bc + i * Bc
                total += _tile((first * HKV + kv) * shape.d % PER_SECTOR, count, shape.d, HKV, Br) * 2
    return total


@cache
def _tile(phase: int, keys: int, d: int, HKV: int, Br: int) -> Access:
    """Count the load of `keys` rows that begin `phase` elements behind a sector's start."""
    e = np.arange(keys * d)
    sector = (phase + e // d * (HKV * d) + e % d) // PER_SECTOR
    runs = requests_of(keys * d, Br)
    return Access(keys * d, len(runs), sum(len(np.unique(sector[i : i + n])) for i, n in runs))


def _shared(shape: Shape, Br: int, Bc: int) -> dict[str, int]:
    """Count shared memory: staged tiles, and for each key that a warp computes 2 d broadcasts.

    The ranges of 32 neighbouring rows overlap or touch, so a warp computes the keys from its first row's
    first to its last row's last.
    """
    stored = sum((linear(0, n * shape.d, Br) for keys in tiles_of(shape, Br, Bc) for n in keys), Access())
    begin, end = key_range(shape)
    computed = 0
    for first, count in zip(range(0, shape.N, Br), block_rows(shape, Br), strict=True):
        for warp in range(first, first + int(count), WARP):
            last = min(warp + WARP, first + int(count)) - 1
            computed += int(end[last] - begin[warp])
    each = 2 * shape.d * shape.heads
    loaded = Access(visible_pairs(shape) * each, computed * each)
    return (stored * (2 * shape.heads)).shared_paths("shared_store") | loaded.shared_paths("shared_load")


def _arithmetic(shape: Shape) -> dict[str, int]:
    """Count float instructions.

    A pair: d FFMA of the score, d FMUL and d FFMA of the output, the scale, two exponentials of differences,
    and the FFMA of l. A row: one reciprocal, d FMUL, a logarithm and an FADD.
    """
    pairs, rows, d = shape.heads * visible_pairs(shape), shape.heads * shape.N, shape.d
    return arithmetic(
        (pairs, {"ffma": 2 * d + 1, "fmul": d + 1, "fadd": 2}),
        (2 * pairs, EXP),
        (rows, {"fmul": d, "fadd": 1}),
        (rows, RCP),
        (rows, LOG),
    )


def _dram(shape: Shape) -> dict[str, int]:
    """Give DRAM's figures where every row and every key is needed: Q, K and V once, O and L stay in L2."""
    if not flash_row.all_touched(shape):
        return {}
    q, kv, lse = shape.heads * shape.N * shape.d, shape.kv_heads * shape.Nk * shape.d, shape.heads * shape.N
    return dram(q + 2 * kv, q + lse, (q, kv, lse))


SUMMARY = "FlashAttention forward, one thread a row, a key at a time (from Metal): GQA, causal, window"
SPEC = KernelSpec("flash_row_forward", SUMMARY, Options, build)
