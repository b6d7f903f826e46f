"""Standard attention in three launches, with the N x N matrices S and P in global memory.

1. scores:  S = scale Q K^T, tiles of 32 x 32, -inf where a causal row does not see the key.
2. softmax: P = softmax(S) by rows, L = log of the sum of exp; one block a row, three passes over it.
3. output:  O = P V, tiles of 32 x 32.

What to look at in the report, next to flash_forward on the same shape:
- The totals. Even if every kernel read each input once, S and P would be written and read once each: 4 N d
  + 4 N^2 + N elements (`io_standard`), against 4 N d + N for flash attention with its tiles in L2. The
  launches ask for more: each tile of Q, K, P and V is fetched by every block that needs it.
- DRAM and L2. While S fits L2 the softmax reads it from there within a launch; cold caches make each launch
  start from DRAM. At N = 4096 S alone has 67 MB and is written back while the first launch runs.
- Shared memory: K's tile is padded to rows of 33 words, because a warp reads a column of it; without the
  padding each of those loads would take 32 wavefronts. Q's and P's tiles are read as broadcasts.
- Causal saves nothing here: the masked half of S is computed, written, read and weighed with 0.

What it leaves out: skipping masked tiles, fusing any two of the three steps.
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
    EXP,
    LOG,
    Access,
    Shape,
    arithmetic,
    dram,
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

    Q (heads, N, d), K (heads, Nk, d), S (heads, N, Nk), float32. Grid (ceil(Nk / 32), ceil(N / 32), heads),
    block (32, 8).
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
                Qs[i, x] = Q[head, row0 + i, k0 + x] if row0 + i < n_rows and k0 + x < d else ZERO
                Ks[i, x] = K[head, col0 + i, k0 + x] if col0 + i < n_keys and k0 + x < d else ZERO
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

    S, P (heads, N, Nk), L (heads, N), float32. Grid (N, heads), block 128.
    """

    @cuda.jit
    def softmax(S, P, L):
        part = cuda.shared.array(ROW_THREADS, float32)
        thread = cuda.threadIdx.x
        row = cuda.blockIdx.x
        head = cuda.blockIdx.y
        n_keys = S.shape[2]

        m = NEG_INF
        for col in range(thread, n_keys, ROW_THREADS):
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
        for col in range(thread, n_keys, ROW_THREADS):
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
        for col in range(thread, n_keys, ROW_THREADS):
            P[head, row, col] = math.exp(S[head, row, col] - shift) / divisor
        if thread == 0:
            L[head, row] = m + math.log(divisor)

    return softmax


@cache
def make_output(dv: int, causal: bool) -> Any:
    """Return the kernel output(P, V, O, q_start).

    P (heads, N, Nk), V (heads, Nk, dv), O (heads, N, dv), float32. Grid (ceil(dv / 32), ceil(N / 32), heads),
    block (32, 8).
    """

    @cuda.jit
    def output(P, V, O, q_start):
        Ps = cuda.shared.array((TILE, TILE), float32)
        Vs = cuda.shared.array((TILE, TILE), float32)
        acc = cuda.local.array(PER_THREAD, float32)
        x = cuda.threadIdx.x
        y = cuda.threadIdx.y
        head = cuda.blockIdx.z
        col = cuda.blockIdx.x * TILE + x
        row0 = cuda.blockIdx.y * TILE
        n_rows = P.shape[1]
        n_keys = P.shape[2]
        for r in range(PER_THREAD):
            acc[r] = ZERO

        for j0 in range(0, n_keys, TILE):
            for r in range(PER_THREAD):
                i = y + TILE_WARPS * r
                Ps[i, x] = P[head, row0 + i, j0 + x] if row0 + i < n_rows and j0 + x < n_keys else ZERO
                Vs[i, x] = V[head, j0 + i, col] if j0 + i < n_keys and col < dv else ZERO
            cuda.syncthreads()
            for j in range(min(TILE, n_keys - j0)):
                v = Vs[j, x]
                for r in range(PER_THREAD):
                    if causal:
                        # 0 * NaN is NaN: a value that the row does not see must not get in with weight 0.
                        seen = v if j0 + j <= q_start + row0 + y + TILE_WARPS * r else ZERO
                        acc[r] += Ps[y + TILE_WARPS * r, j] * seen
                    else:
                        acc[r] += Ps[y + TILE_WARPS * r, j] * v
            cuda.syncthreads()

        for r in range(PER_THREAD):
            row = row0 + y + TILE_WARPS * r
            if row < n_rows and col < dv:
                O[head, row, col] = acc[r]

    return output


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
    dtype: str = field(default="float32", metadata={"help": "element type: float32"})


def build(options: Options, data: Data) -> Problem:
    """Make the three launches: Q, K, V ~ N(0, 1); S, P, O and L pre-filled with NaN. Raises BadOption."""
    shape = shape_of(options)
    H, N, Nk, d, dv = shape.heads, shape.N, shape.Nk, shape.d, shape.dv
    if H > 65535:
        raise BadOption(f"standard_attention: --heads x --batch is grid dimension z, at most 65535; got {H}")
    Q, K, V = data.normal(H, N, d), data.normal(H, Nk, d), data.normal(H, Nk, dv)
    S, P = data.filled(np.nan, H, N, Nk), data.filled(np.nan, H, N, Nk)
    O, L = data.filled(np.nan, H, N, dv), data.filled(np.nan, H, N)
    rows, keys, columns = ceil_div(N, TILE), key_tiles(shape), ceil_div(dv, TILE)
    block, causal = (TILE, TILE_WARPS), shape.causal
    qk = (Q, K, S, np.float32(shape.scale), shape.q_start)
    pv = (P, V, O, shape.q_start)
    steps = (
        _step("scores", make_scores(d, causal), (keys, rows, H), block, qk, scores_form(shape), d, causal),
        _step("softmax", make_softmax(), (N, H), (ROW_THREADS,), (S, P, L), softmax_form(shape), d, causal),
        _step("output", make_output(dv, causal), (columns, rows, H), block, pv, output_form(shape), dv,
              causal),
    )

    def expected() -> dict[str, np.ndarray]:
        o, lse = reference(Q, K, V, shape)
        return {"O": o, "L": lse}

    outputs, check = {"O": O, "L": L}, None if data.virtual else expected
    said = facts(shape, [step.closed_form for step in steps])
    return Problem("standard_attention", steps, outputs, check, facts=said)


def _step(
    name: str,
    kernel: Any,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    args: tuple[Any, ...],
    form: dict[str, int],
    width: int,
    causal: bool,
) -> Step:
    """Return one launch, with the registers recorded for its kernel and its width."""
    variant = f"{name} d={width} causal={causal}"
    registers, source = recorded("standard_attention", variant)
    return Step(kernel, grid, block, args, closed_form=form, registers=registers, registers_source=source)


def facts(shape: Shape, forms: Sequence[dict[str, int]]) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm: pairs, elements and FLOPs of the three launches and all
    heads together.

    forms: the closed forms of the launches. The FLOPs of the products are the executed ones: tiles are
    multiplied whole, the masked half too.
    """
    rows, keys, columns = ceil_div(shape.N, TILE), key_tiles(shape), ceil_div(shape.dv, TILE)
    products = 2 * shape.heads * TILE * TILE * rows * (keys * shape.d + columns * shape.Nk)
    square = shape.N == shape.Nk and shape.d == shape.dv
    ideal = "4 N d + 4 N^2 + N" if square else "(d + dv) (N + Nk) + 4 N Nk + N"
    return (
        Fact("Launches", len(forms), "launch", "scores, softmax, output"),
        pair_fact(shape),
        *element_facts(
            io_standard(shape), of_heads(ideal, shape), moved(shape), "inputs again for each tile", forms
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


def scores_form(shape: Shape) -> dict[str, int]:
    """Return the counters of the scores launch: a block loads 32 rows of Q and 32 of K."""
    H, rows, keys = shape.heads, ceil_div(shape.N, TILE), key_tiles(shape)
    loads = row_segments(H * shape.N, shape.d) * keys + row_segments(H * shape.Nk, shape.d) * rows
    stores = row_segments(H * shape.N, shape.Nk)
    forms = product_form(H * rows * keys, shape.d, loads, stores)
    forms |= arithmetic((H * rows * keys * TILE * TILE * shape.d, {"ffma": 1}), (stores.lanes, {"fmul": 1}))
    return forms | dram(H * shape.d * (shape.N + shape.Nk), stores.lanes, _sizes(shape))


def output_form(shape: Shape) -> dict[str, int]:
    """Return the counters of the output launch: a block loads 32 rows of P, whole, and 32 columns of V."""
    H, rows, columns = shape.heads, ceil_div(shape.N, TILE), ceil_div(shape.dv, TILE)
    loads = row_segments(H * shape.N, shape.Nk) * columns + row_segments(H * shape.Nk, shape.dv) * rows
    stores = row_segments(H * shape.N, shape.dv)
    forms = product_form(H * rows * columns, shape.Nk, loads, stores)
    forms |= arithmetic((H * rows * columns * TILE * TILE * shape.Nk, {"ffma": 1}))
    return forms | dram(H * shape.Nk * (shape.N + shape.dv), stores.lanes, _sizes(shape))


def softmax_form(shape: Shape) -> dict[str, int]:
    """Return the counters of the softmax launch.

    An element costs three loads, one store, two exponentials and a division. The sum's exponential ends in
    a multiplication that contracts into the addition. The two trees over 128 partial results take 127
    steps, of 2 loads and a store, in 8 warp requests each; the first one compares, the second one adds.
    """
    rows = shape.heads * shape.N
    elements = rows * shape.Nk
    each = each_row(rows, shape.Nk, ROW_THREADS)
    stores = each + Access(rows, rows, rows)
    warps = ROW_THREADS // 32
    forms = (each * 3).paths("global_load") | stores.paths("global_store")
    stored = Access(ROW_THREADS + 127, warps + 8) * (2 * rows)
    loaded = Access(2 * 127 + ROW_THREADS, 2 * 8 + warps) * (2 * rows)
    forms |= stored.shared_paths("shared_store") | loaded.shared_paths("shared_load")
    forms |= arithmetic(
        (2 * elements, EXP),
        (elements, {"fadd": 2, "ffma": 1, "fmul": -1}),
        (elements, DIV),
        (rows, LOG),
        (rows, {"fadd": 1 + 127}),
    )
    forms |= {"barriers": 17 * warps * rows, "hierarchy.l2_write": stores.sectors}
    return forms | dram(elements, elements + rows, (shape.N * shape.Nk, rows))


def key_tiles(shape: Shape) -> int:
    """Return the tiles of 32 keys; one without a key where there are none, as a grid has at least one block.
    """
    return max(1, ceil_div(shape.Nk, TILE))


def _sizes(shape: Shape) -> tuple[int, ...]:
    """Return the elements of one head of Q, O, K, V, and of S and P."""
    return (shape.N * shape.d, shape.N * shape.dv, shape.Nk * shape.d, shape.Nk * shape.dv,
            shape.N * shape.Nk)


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
