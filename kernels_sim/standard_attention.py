"""Standard attention in three launches, with the N x N matrices S and P in global memory.

1. scores: S = scale Q K^T, tiles of 32 x 32, -inf where a causal row does not see the key.
2. softmax: P = softmax(S) by rows, L = log of the sum of exp; one block a row, three passes over it.
3. output: O = P V, tiles of 32 x 32.

What to look at in the report, next to flash_forward on the same shape:
- The totals. Even if every kernel read each input once, S and P would be written and read once each: 4 N d +
  4 N^2 + N elements (`io_standard`), against 4 N d + N for flash attention with its tiles in L2. The launches
  ask for more: each tile of Q, K, P and V is fetched by every block that needs it.
- DRAM and L2. While S fits L2 the softmax reads it from there within a launch; cold caches make each launch
  start from DRAM. At N = 4096 S alone has 67 MB and is written back while the first launch runs.
- Shared memory: K's tile is padded to rows of 33 words, because a warp reads a column of it; without the
  padding each of those loads would take 32 wavefronts. Q's and P's tiles are read as broadcasts.
- Causal saves nothing here: the masked half of S is computed, written, read and weighed with 0.

With --dtype float16 or bfloat16, Q, K, V, P and O are held in 16 bits; products and sums are float32, and so
are S and L. What it leaves out: skipping masked tiles, fusing any two of the three steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
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
    dram_of_bytes,
    each_row,
    io_standard,
    reference,
    row_segments,
    shape_of,
)
from kernels_sim.attention_facts import element_facts, flop_facts, of_heads, pair_fact
from kernels_sim.formulas import ceil_div
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step
from kernels_sim.registers import recorded

float32 = np.float32
ZERO, ONE, NEG_INF = np.float32(0), np.float32(1), np.float32(-np.inf)

TILE = 32
"""Rows and columns of a tile of the two products: a warp spans its width."""
TILE_WARPS = 8
"""Warps of a block of the products; each thread has TILE / TILE_WARPS = 4 elements, one under another."""
PER_THREAD = TILE // TILE_WARPS
PADDED = TILE + 1
"""Words of a row of K's tile, so that the 32 words of a column lie in 32 banks."""
ROW_THREADS = 128


@cache
def make_scores(d: int, causal: bool) -> Any:
    """Return the kernel scores(Q, K, S, scale, q_start).

    Q (heads, N, d), K (heads, Nk, d) of any float type, S (heads, N, Nk) float32. Grid (ceil(Nk / 32), ceil(N
    / 32), heads), block (32, 8).
    """

    @cuda.jit
    def scores(Q, K, S, scale, q_start):
        Qs = cuda.shared.array((TILE, TILE), float32)
        Ks = cuda.shared.array((TILE, PADDED), float32)
        acc = cuda.local.array(PER_THREAD, float32)
        x = cuda.threadIdx.x
        y = cuda.threadIdx.y
        head = cuda.blockIdx.z
        col0 = cuda.blockIdx.x * TILE
        row0 = cuda.blockIdx.y * TILE
        n_rows = Q.shape[1]
        n_keys = K.shape[1]
        for r in range(PER_THREAD):
            acc[r] = ZERO

        for k0 in range(0, d, TILE):
            for r in range(PER_THREAD):
                i = y + TILE_WARPS * r
                Qs[i, x] = float32(Q[head, row0 + i, k0 + x]) if row0 + i < n_rows and k0 + x < d else ZERO
                Ks[i, x] = float32(K[head, col0 + i, k0 + x]) if col0 + i < n_keys and k0 + x < d else ZERO
            cuda.syncthreads()
            for k in range(min(TILE, d - k0)):
                key = Ks[x, k]
                for r in range(PER_THREAD):
                    acc[r] += Qs[y + TILE_WARPS * r, k] * key
            cuda.syncthreads()

        col = col0 + x
        for r in range(PER_THREAD):
            row = row0 + y + TILE_WARPS * r
            if row < n_rows and col < n_keys:
                score = acc[r] * scale
                if causal:
                    score = score if col <= q_start + row else NEG_INF
                S[head, row, col] = score

    return scores


@cache
def make_softmax() -> Any:
    """Return the kernel softmax(S, P, L).

    S, P (heads, N, Nk), L (heads, N); S and L float32, P of any float type. Grid (N, heads), block 128.
    """

    @cuda.jit
    def softmax(S, P, L):
        part = cuda.shared.array(ROW_THREADS, float32)
        thread = cuda.threadIdx.x
        row = cuda.blockIdx.x
        head = cuda.blockIdx.y
        n_keys = S.shape[2]

        m = NEG_INF
        # All lanes take all turns: where some leave earlier, compilers unroll the loop so that the lanes of a
        # warp are at different columns, and a card makes up to 16 % more requests of the same accesses.
        for first in range(0, n_keys, ROW_THREADS):
            col = first + thread
            if col < n_keys:
                m = max(m, S[head, row, col])
        part[thread] = m
        cuda.syncthreads()
        half = ROW_THREADS // 2
        while half > 0:
            if thread < half:
                part[thread] = max(part[thread], part[thread + half])
            cuda.syncthreads()
            half //= 2
        m = part[0]
        # A row that sees no key has m = -inf, and -inf - -inf is NaN: measure from 0.
        shift = m if m > NEG_INF else ZERO
        cuda.syncthreads()

        total = ZERO
        for first in range(0, n_keys, ROW_THREADS):
            col = first + thread
            if col < n_keys:
                total += math.exp(S[head, row, col] - shift)
        part[thread] = total
        cuda.syncthreads()
        half = ROW_THREADS // 2
        while half > 0:
            if thread < half:
                part[thread] = part[thread] + part[thread + half]
            cuda.syncthreads()
            half //= 2
        total = part[0]

        divisor = ONE if total == ZERO else total
        for first in range(0, n_keys, ROW_THREADS):
            col = first + thread
            if col < n_keys:
                P[head, row, col] = math.exp(S[head, row, col] - shift) / divisor
        if thread == 0:
            L[head, row] = m + math.log(divisor)

    return softmax


def make_output(dv: int, causal: bool) -> Any:
    """Return the kernel output(P, V, O, q_start), O = P V; see make_weighted_rows."""
    return make_weighted_rows("output", dv, causal)


@cache
def make_weighted_rows(name: str, width: int, causal: bool) -> Any:
    """Return a kernel name(W, keys, rows, q_start): rows = W keys, a row's sum over the keys that it sees.

    W (heads, N, Nk), keys (heads, Nk, width), rows (heads, N, width), of any float type. Grid (ceil(width /
    32), ceil(N / 32), heads), block (32, 8).
    """

    def weighted(W, keys, rows, q_start):
        Ws = cuda.shared.array((TILE, TILE), float32)
        Ks = cuda.shared.array((TILE, TILE), float32)
        acc = cuda.local.array(PER_THREAD, float32)
        x = cuda.threadIdx.x
        y = cuda.threadIdx.y
        head = cuda.blockIdx.z
        col = cuda.blockIdx.x * TILE + x
        row0 = cuda.blockIdx.y * TILE
        n_rows = W.shape[1]
        n_keys = W.shape[2]
        for r in range(PER_THREAD):
            acc[r] = ZERO

        for j0 in range(0, n_keys, TILE):
            for r in range(PER_THREAD):
                i = y + TILE_WARPS * r
                inside = row0 + i < n_rows and j0 + x < n_keys
                Ws[i, x] = float32(W[head, row0 + i, j0 + x]) if inside else ZERO
                Ks[i, x] = float32(keys[head, j0 + i, col]) if j0 + i < n_keys and col < width else ZERO
            cuda.syncthreads()
            for j in range(min(TILE, n_keys - j0)):
                key = Ks[j, x]
                for r in range(PER_THREAD):
                    if causal:
                        # 0 * NaN is NaN: a key that the row does not see must not get in with weight 0.
                        seen = key if j0 + j <= q_start + row0 + y + TILE_WARPS * r else ZERO
                        acc[r] += Ws[y + TILE_WARPS * r, j] * seen
                    else:
                        acc[r] += Ws[y + TILE_WARPS * r, j] * key
            cuda.syncthreads()

        for r in range(PER_THREAD):
            row = row0 + y + TILE_WARPS * r
            if row < n_rows and col < width:
                rows[head, row, col] = acc[r]

    weighted.__name__ = name
    return cuda.jit(weighted)


@dataclass(frozen=True)
class Options:
    """Hold the options of standard_attention."""

    N: int = field(default=1024, metadata={"help": "query rows"})
    Nk: int | None = field(default=None, metadata={"help": "keys; not given: N"})
    d: int = field(default=64, metadata={"help": "head dimension of Q and K, 1 to 256"})
    dv: int | None = field(default=None, metadata={"help": "columns of V and O; not given: d"})
    heads: int = field(default=1, metadata={"help": "heads"})
    batch: int = field(default=1, metadata={"help": "sequences; heads x batch is a grid dimension"})
    causal: bool = field(default=False, metadata={"help": "a row sees no key after its own position"})
    q_start: int = field(default=0, metadata={"help": "position of row 0 for causal; may be negative"})
    scale: float | None = field(default=None, metadata={"help": "factor of the scores; else 1 / sqrt(d)"})
    dtype: str = field(default="float32", metadata={
        "help": "type of Q, K, V, P and O; S and L are float32", "choices": tuple(DTYPES)})


def build(options: Options, data: Data) -> Problem:
    """Make the three launches: Q, K, V ~ N(0, 1); S, P, O and L pre-filled with NaN. Raises BadOption."""
    shape = shape_of(options, DTYPES)
    H, N, Nk, d, dv, dtype = shape.heads, shape.N, shape.Nk, shape.d, shape.dv, DTYPES[options.dtype]
    if H > 65535:
        raise BadOption(f"standard_attention: --heads x --batch is grid dimension z, at most 65535; got {H}")
    Q, K, V = (data.normal(H, *of, dtype=dtype) for of in ((N, d), (Nk, d), (Nk, dv)))
    S, P = data.filled(np.nan, H, N, Nk), data.filled(np.nan, H, N, Nk, dtype=dtype)
    O, L = data.filled(np.nan, H, N, dv, dtype=dtype), data.filled(np.nan, H, N)
    rows, keys, columns = ceil_div(N, TILE), key_tiles(shape), ceil_div(dv, TILE)
    block, causal, at = (TILE, TILE_WARPS), shape.causal, shape.q_start
    forms = closed_forms(shape, dtype.itemsize)
    launches: tuple[tuple[Any, ...], ...] = (
        (make_scores(d, causal), (keys, rows, H), block, (Q, K, S, np.float32(shape.scale), at), d),
        (make_softmax(), (N, H), (ROW_THREADS,), (S, P, L), d),
        (make_output(dv, causal), (columns, rows, H), block, (P, V, O, at), dv),
    )
    steps = tuple(
        Step(kernel, grid, block, args, 0, form, *recorded_of("standard_attention", kernel, width, options))
        for (kernel, grid, block, args, width), form in zip(launches, forms, strict=True)
    )

    def expected() -> dict[str, np.ndarray]:
        o, lse = reference(Q, K, V, shape)
        return {"O": o, "L": lse}

    outputs, check = {"O": O, "L": L}, None if data.virtual else expected
    said, tolerance = facts(shape, forms, dtype.itemsize), TOLERANCES[options.dtype]
    inputs = {"Q": Q, "K": K, "V": V}
    return Problem("standard_attention", steps, outputs, check, tolerance, said, options, inputs)


def recorded_of(name: str, kernel: Any, width: int, options: Any) -> tuple[int | None, str]:
    """Return the registers recorded for a launch of a width, and where they come from."""
    if options.dtype != "float32":
        return None, ""
    return recorded(name, f"{kernel.py_func.__name__} d={width} causal={options.causal}")


def facts(shape: Shape, forms: Sequence[dict[str, int]], size: int = 4) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm: pairs, elements and FLOPs of the three launches and all
    heads together.

    forms: the closed forms of the launches. size: bytes of an element of Q, K, V, P and O. The FLOPs of the
    products are the executed ones: tiles are multiplied whole, the masked half too.
    """
    rows, keys, columns = ceil_div(shape.N, TILE), key_tiles(shape), ceil_div(shape.dv, TILE)
    products = 2 * shape.heads * TILE * TILE * rows * (keys * shape.d + columns * shape.Nk)
    square = shape.N == shape.Nk and shape.d == shape.dv
    ideal = "4 N d + 4 N^2 + N" if square else "(d + dv) (N + Nk) + 4 N Nk + N"
    wide = shape.heads * (2 * shape.N * shape.Nk + shape.N)  # S out and in, L out: always 4 bytes
    ideal_bytes = None if size == 4 else size * (io_standard(shape) - wide) + 4 * wide
    return (
        Fact("Launches", len(forms), "launch", "scores, softmax, output"),
        pair_fact(shape),
        *element_facts(
            io_standard(shape), of_heads(ideal, shape), moved(shape), "inputs again for each tile", forms,
            ideal_bytes,
        ),
        *flop_facts(products, f"2 a product, {TILE} x {TILE} tiles", forms),
    )


def moved(shape: Shape) -> int:
    """Count the elements that the three launches ask for: their inputs once for each tile that needs them.

    scores: Q for each 32 keys, K for each 32 rows, S out. softmax: S three times, P and L out. output: P for
    each 32 columns of V, V for each 32 rows, O out.
    """
    rows, keys, columns = ceil_div(shape.N, TILE), key_tiles(shape), ceil_div(shape.dv, TILE)
    N, Nk, matrix = shape.N, shape.Nk, shape.N * shape.Nk
    scores = shape.d * (keys * N + rows * Nk) + matrix
    softmax = 4 * matrix + N
    output = columns * matrix + shape.dv * (rows * Nk + N)
    return shape.heads * (scores + softmax + output)


def closed_forms(shape: Shape, size: int = 4) -> tuple[dict[str, int], ...]:
    """Return the counters of the three launches; size: bytes of an element of Q, K, V, P and O."""
    return scores_form(shape, size), softmax_form(shape, size), weighted_rows_form(shape, shape.dv, size)


def scores_form(shape: Shape, size: int = 4) -> dict[str, int]:
    """Return the counters of the scores launch: a block loads 32 rows of Q and 32 of K."""
    H, N, Nk, d = shape.heads, shape.N, shape.Nk, shape.d
    rows, keys = ceil_div(N, TILE), key_tiles(shape)
    loads = row_segments(H * N, d, size) * keys + row_segments(H * Nk, d, size) * rows
    stores = row_segments(H * N, Nk)
    forms = product_form(H * rows * keys, d, loads, stores)
    forms |= arithmetic((H * rows * keys * TILE * TILE * d, {"ffma": 1}), (stores.lanes, {"fmul": 1}))
    return forms | once(H, (size * N * d, size * Nk * d), (4 * N * Nk,))


def weighted_rows_form(shape: Shape, width: int, size: int = 4) -> dict[str, int]:
    """Return the counters of O = P V or dQ = dS K: a block loads 32 rows of P, whole, and 32 columns of V.

    width: columns of V or K.
    """
    H, N, Nk = shape.heads, shape.N, shape.Nk
    rows, columns = ceil_div(N, TILE), ceil_div(width, TILE)
    loads = row_segments(H * N, Nk, size) * columns + row_segments(H * Nk, width, size) * rows
    stores = row_segments(H * N, width, size)
    forms = product_form(H * rows * columns, Nk, loads, stores)
    forms |= arithmetic((H * rows * columns * TILE * TILE * Nk, {"ffma": 1}))
    return forms | once(H, (size * N * Nk, size * Nk * width), (size * N * width,))


def softmax_form(shape: Shape, size: int = 4) -> dict[str, int]:
    """Return the counters of the softmax launch.

    An element costs three loads, one store, two exponentials and a division. The sum's exponential ends in
    a multiplication that contracts into the addition. The two trees over 128 partial results take 127
    steps, of 2 loads and a store, in 8 warp requests each; the first one compares, the second one adds.
    """
    H, N, Nk = shape.heads, shape.N, shape.Nk
    rows, elements, warps = H * N, H * N * Nk, ROW_THREADS // 32
    stores = each_row(rows, Nk, ROW_THREADS, size) + Access(rows, rows, rows)
    forms = (each_row(rows, Nk, ROW_THREADS) * 3).paths("global_load") | stores.paths("global_store")
    stored = Access(ROW_THREADS + 127, warps + 8) * (2 * rows)
    loaded = Access(2 * 127 + ROW_THREADS, 2 * 8 + warps) * (2 * rows)
    forms |= stored.shared_paths("shared_store") | loaded.shared_paths("shared_load")
    forms |= arithmetic(
        (2 * elements, EXP),
        (elements, {"fadd": 2, "ffma": 1, "fmul": -1}),
        (elements, DIV),
        (rows, LOG_OF_KEPT),
        (rows, {"fadd": 1 + 127}),
    )
    forms |= {"barriers": 17 * warps * rows, "hierarchy.l2_write": stores.sectors}
    return forms | once(H, (4 * N * Nk,), (size * N * Nk, 4 * N))


def once(heads: int, read: tuple[int, ...], written: tuple[int, ...]) -> dict[str, int]:
    """Return DRAM's counters of a launch that reads and writes whole arrays once, if they follow.

    read, written: bytes of one head of each array.
    """
    return dram_of_bytes(heads * sum(read), heads * sum(written), (*read, *written))


def key_tiles(shape: Shape) -> int:
    """Return the tiles of 32 keys; one without a key where there are none, as a grid has at least one block.
    """
    return max(1, ceil_div(shape.Nk, TILE))


def product_form(blocks: int, depth: int, loads: Access, stores: Access) -> dict[str, int]:
    """Return the counters of a tiled product but for its arithmetic: `blocks` tiles, `depth` deep.

    A step of 32 stores two whole tiles; each multiply-add level loads one word of the right tile and 4
    broadcasts a thread.
    """
    steps = ceil_div(depth, TILE)
    forms = loads.paths("global_load") | stores.paths("global_store")
    forms |= Access(2 * blocks * steps * TILE * TILE, 2 * blocks * steps * TILE).shared_paths("shared_store")
    loaded = blocks * depth * TILE_WARPS * (1 + PER_THREAD)
    forms |= Access(32 * loaded, loaded).shared_paths("shared_load")
    return forms | {"barriers": 2 * blocks * steps * TILE_WARPS, "hierarchy.l2_write": stores.sectors}


SUMMARY = "Attention in three launches, with S and P (N x N) in global memory"
SPEC = KernelSpec("standard_attention", SUMMARY, Options, build)
