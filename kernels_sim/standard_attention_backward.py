"""Standard attention's backward pass in five launches, with P, dP and dS (N x N) in global memory.

P is what the forward pass wrote. Every product is one of tiles of 32 x 32, every matrix goes out and comes
back:

1. value_gradient: dV = P^T dO.
2. weight_gradient: dP = dO V^T.
3. score_gradient: dS = scale P (dP - rowsum(P dP)), the gradient of softmax; one block a row, two passes.
4. query_gradient: dQ = dS K.
5. key_gradient: dK = dS^T Q.

What to look at in the report, next to flash_backward on the same shape:
- The totals: 8 N d + 7 N^2 elements if every launch read each input once (`io_standard_backward`), where
  flash attention has no N^2 at all; the launches ask for more, each tile once for every block that needs it.
- DRAM and L2: launch 3 finds in L2 what launch 2 wrote only with --l2 warm; the caches are cold before each
  launch.
- Shared memory: the two transposed products read P and dS as they lie. A warp takes one row of a tile as
  broadcasts, column by column of the result, and needs no padding; launch 2 pads V's tile to rows of 33
  words.
- Causal saves nothing here: hidden pairs are computed, written as 0, read and weighed with 0.

A row that sees no key has P = 0 and gets and gives no gradient. A NaN in a key, a value or a row reaches what
sees it and nothing else: hidden pairs are left out by their place, as 0 * NaN is NaN. What it leaves out:
dropout, fusing any two of the five steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from dsl import cuda
from gpusim.errors import BadOption
from kernels_sim.attention import (
    DTYPES,
    TOLERANCES,
    Access,
    Shape,
    arithmetic,
    each_row,
    io_standard_backward,
    key_range,
    reference,
    row_segments,
    shape_of,
)
from kernels_sim.attention_facts import element_facts, flop_facts, of_heads, pair_fact
from kernels_sim.attention_gradients import gradients
from kernels_sim.formulas import ceil_div
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step
from kernels_sim.standard_attention import (
    PADDED,
    PER_THREAD,
    ROW_THREADS,
    TILE,
    TILE_WARPS,
    key_tiles,
    make_weighted_rows,
    once,
    product_form,
    recorded_of,
    weighted_rows_form,
)

NAME = "standard_attention_backward"
float32 = np.float32
ZERO = np.float32(0)


@cache
def make_weight_gradient(dv: int) -> Any:
    """Return the kernel weight_gradient(dO, V, dP).

    dO (heads, N, dv), V (heads, Nk, dv), dP (heads, N, Nk); dP float32, the others of any float type. Grid
    (ceil(Nk / 32), ceil(N / 32), heads), block (32, 8).
    """

    @cuda.jit
    def weight_gradient(dO, V, dP):
        Os = cuda.shared.array((TILE, TILE), float32)
        Vs = cuda.shared.array((TILE, PADDED), float32)
        acc = cuda.local.array(PER_THREAD, float32)
        x = cuda.threadIdx.x
        y = cuda.threadIdx.y
        head = cuda.blockIdx.z
        col0 = cuda.blockIdx.x * TILE
        row0 = cuda.blockIdx.y * TILE
        n_rows = dO.shape[1]
        n_keys = V.shape[1]
        for r in range(PER_THREAD):
            acc[r] = ZERO

        for k0 in range(0, dv, TILE):
            for r in range(PER_THREAD):
                i = y + TILE_WARPS * r
                Os[i, x] = float32(dO[head, row0 + i, k0 + x]) if row0 + i < n_rows and k0 + x < dv else ZERO
                Vs[i, x] = float32(V[head, col0 + i, k0 + x]) if col0 + i < n_keys and k0 + x < dv else ZERO
            cuda.syncthreads()
            for k in range(min(TILE, dv - k0)):
                value = Vs[x, k]
                for r in range(PER_THREAD):
                    acc[r] += Os[y + TILE_WARPS * r, k] * value
            cuda.syncthreads()

        col = col0 + x
        for r in range(PER_THREAD):
            row = row0 + y + TILE_WARPS * r
            if row < n_rows and col < n_keys:
                dP[head, row, col] = acc[r]

    return weight_gradient


@cache
def make_score_gradient(causal: bool) -> Any:
    """Return the kernel score_gradient(P, dP, dS, scale, q_start).

    P, dP, dS (heads, N, Nk); dP float32, P and dS of any float type. Grid (N, heads), block 128.
    """

    @cuda.jit
    def score_gradient(P, dP, dS, scale, q_start):
        part = cuda.shared.array(ROW_THREADS, float32)
        thread = cuda.threadIdx.x
        row = cuda.blockIdx.x
        head = cuda.blockIdx.y
        n_keys = P.shape[2]

        total = ZERO
        for first in range(0, n_keys, ROW_THREADS):  # all lanes take all turns: see softmax
            col = first + thread
            if col < n_keys:
                gradient = dP[head, row, col]
                if causal:
                    gradient = gradient if col <= q_start + row else ZERO
                total += float32(P[head, row, col]) * gradient
        part[thread] = total
        cuda.syncthreads()
        half = ROW_THREADS // 2
        while half > 0:
            if thread < half:
                part[thread] = part[thread] + part[thread + half]
            cuda.syncthreads()
            half //= 2
        total = part[0]

        for first in range(0, n_keys, ROW_THREADS):
            col = first + thread
            if col < n_keys:
                gradient = float32(P[head, row, col]) * (dP[head, row, col] - total) * scale
                if causal:
                    gradient = gradient if col <= q_start + row else ZERO
                dS[head, row, col] = gradient

    return score_gradient


def make_query_gradient(d: int, causal: bool) -> Any:
    """Return the kernel query_gradient(dS, K, dQ, q_start), dQ = dS K; see standard_attention.py."""
    return make_weighted_rows("query_gradient", d, causal)


def make_value_gradient(dv: int, causal: bool) -> Any:
    """Return the kernel value_gradient(P, dO, dV, q_start), dV = P^T dO; see make_transposed."""
    return make_transposed("value_gradient", dv, causal)


def make_key_gradient(d: int, causal: bool) -> Any:
    """Return the kernel key_gradient(dS, Q, dK, q_start), dK = dS^T Q; see make_transposed."""
    return make_transposed("key_gradient", d, causal)


@cache
def make_transposed(name: str, width: int, causal: bool) -> Any:
    """Return a kernel name(W, rows, keys, q_start): keys = W^T rows, a key's sum over the rows that see it.

    W (heads, N, Nk), rows (heads, N, width), keys (heads, Nk, width), of any float type. Grid (ceil(width /
    32), ceil(Nk / 32), heads), block (32, 8).
    """

    def transposed(W, rows, keys, q_start):
        Ws = cuda.shared.array((TILE, TILE), float32)
        Rs = cuda.shared.array((TILE, TILE), float32)
        acc = cuda.local.array(PER_THREAD, float32)
        x = cuda.threadIdx.x
        y = cuda.threadIdx.y
        head = cuda.blockIdx.z
        col = cuda.blockIdx.x * TILE + x
        key0 = cuda.blockIdx.y * TILE
        n_rows = W.shape[1]
        n_keys = W.shape[2]
        for r in range(PER_THREAD):
            acc[r] = ZERO

        for i0 in range(0, n_rows, TILE):
            for r in range(PER_THREAD):
                i = y + TILE_WARPS * r
                inside = i0 + i < n_rows and key0 + x < n_keys
                Ws[i, x] = float32(W[head, i0 + i, key0 + x]) if inside else ZERO
                Rs[i, x] = float32(rows[head, i0 + i, col]) if i0 + i < n_rows and col < width else ZERO
            cuda.syncthreads()
            for i in range(min(TILE, n_rows - i0)):
                row = Rs[i, x]
                for r in range(PER_THREAD):
                    if causal:
                        # 0 * NaN is NaN: a row that does not see the key must not get in with weight 0.
                        sees = row if key0 + y + TILE_WARPS * r <= q_start + i0 + i else ZERO
                        acc[r] += Ws[i, y + TILE_WARPS * r] * sees
                    else:
                        acc[r] += Ws[i, y + TILE_WARPS * r] * row
            cuda.syncthreads()

        for r in range(PER_THREAD):
            key = key0 + y + TILE_WARPS * r
            if key < n_keys and col < width:
                keys[head, key, col] = acc[r]

    transposed.__name__ = name
    return cuda.jit(transposed)


@dataclass(frozen=True)
class Options:
    """Hold the options of standard_attention_backward."""

    N: int = field(default=512, metadata={"help": "query rows"})
    Nk: int | None = field(default=None, metadata={"help": "keys; not given: N"})
    d: int = field(default=64, metadata={"help": "head dimension of Q and K, 1 to 256"})
    dv: int | None = field(default=None, metadata={"help": "columns of V and dO; not given: d"})
    heads: int = field(default=1, metadata={"help": "heads"})
    batch: int = field(default=1, metadata={"help": "sequences; heads x batch is a grid dimension"})
    causal: bool = field(default=False, metadata={"help": "a row sees no key after its own position"})
    q_start: int = field(default=0, metadata={"help": "position of row 0 for causal; may be negative"})
    scale: float | None = field(default=None, metadata={"help": "factor of the scores; else 1 / sqrt(d)"})
    dtype: str = field(default="float32", metadata={
        "help": "type of all but dP, which is float32", "choices": tuple(DTYPES)})


def build(options: Options, data: Data) -> Problem:
    """Make the five launches: Q, K, V, dO ~ N(0, 1), P as the forward pass leaves it, the rest NaN.

    Raises BadOption.
    """
    shape, causal = shape_of(options, DTYPES), options.causal
    H, N, Nk, d, dv, dtype = shape.heads, shape.N, shape.Nk, shape.d, shape.dv, DTYPES[options.dtype]
    if H > 65535:
        raise BadOption(f"{NAME}: --heads x --batch is grid dimension z, at most 65535; got {H}")
    Q, K, V, dO = (data.normal(H, *of, dtype=dtype) for of in ((N, d), (Nk, d), (Nk, dv), (N, dv)))
    P = data.filled(0, H, N, Nk, dtype=dtype)
    if not data.virtual:
        fill_weights(P, Q, K, V, shape)
    dP, dS = data.filled(np.nan, H, N, Nk), data.filled(np.nan, H, N, Nk, dtype=dtype)
    dQ, dK, dV = (data.filled(np.nan, *x.shape, dtype=dtype) for x in (Q, K, V))
    rows, keys, scale, at = ceil_div(N, TILE), key_tiles(shape), np.float32(shape.scale), shape.q_start
    wide, narrow, block = ceil_div(dv, TILE), ceil_div(d, TILE), (TILE, TILE_WARPS)
    forms = closed_forms(shape, dtype.itemsize)
    launches: tuple[tuple[Any, ...], ...] = (
        (make_value_gradient(dv, causal), (wide, keys, H), block, (P, dO, dV, at), dv),
        (make_weight_gradient(dv), (keys, rows, H), block, (dO, V, dP), dv),
        (make_score_gradient(causal), (N, H), (ROW_THREADS,), (P, dP, dS, scale, at), d),
        (make_query_gradient(d, causal), (narrow, rows, H), block, (dS, K, dQ, at), d),
        (make_key_gradient(d, causal), (narrow, keys, H), block, (dS, Q, dK, at), d),
    )
    steps = tuple(
        Step(kernel, grid, block, args, 0, form, *recorded_of(NAME, kernel, width, options))
        for (kernel, grid, block, args, width), form in zip(launches, forms, strict=True)
    )

    def expected() -> dict[str, np.ndarray]:
        return dict(zip(("dQ", "dK", "dV"), gradients(Q, K, V, dO, shape), strict=True))

    outputs, check = {"dQ": dQ, "dK": dK, "dV": dV}, None if data.virtual else expected
    said, tolerance = facts(shape, forms, dtype.itemsize), TOLERANCES[options.dtype]
    inputs = {"Q": Q, "K": K, "V": V, "dO": dO, "P": P}
    return Problem(NAME, steps, outputs, check, tolerance, said, options, inputs)


def fill_weights(P: np.ndarray, Q: np.ndarray, K: np.ndarray, V: np.ndarray, shape: Shape) -> None:
    """Set P to softmax(scale Q K^T) of float64, rounded to P's type; 0 where a row does not see the key."""
    first, end = key_range(shape)
    key = np.arange(shape.Nk)
    visible = (key >= first[:, None]) & (key < end[:, None])
    _, L = reference(Q, K, V, shape)
    for head in range(shape.heads):
        scores = shape.scale * Q[head].astype(np.float64) @ K[head].T.astype(np.float64)
        P[head] = np.exp(scores - L[head, :, None], where=visible, out=np.zeros(scores.shape))


def facts(shape: Shape, forms: Sequence[dict[str, int]], size: int = 4) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm: pairs, elements and FLOPs of the five launches, all heads.

    forms: the closed forms of the launches. The FLOPs of the products are the executed ones: tiles are
    multiplied whole, the masked half too. size: bytes of an element of all but dP.
    """
    rows, keys = ceil_div(shape.N, TILE), key_tiles(shape)
    wide, narrow = ceil_div(shape.dv, TILE), ceil_div(shape.d, TILE)
    deep = rows * keys * shape.dv + keys * shape.N * (wide + narrow) + rows * narrow * shape.Nk
    square = shape.N == shape.Nk and shape.d == shape.dv
    ideal = "8 N d + 7 N^2" if square else "2 (N + Nk) (d + dv) + 7 N Nk"
    in_4_bytes = shape.heads * 2 * shape.N * shape.Nk  # dP out and in
    ideal_bytes = None if size == 4 else size * io_standard_backward(shape) + (4 - size) * in_4_bytes
    return (
        Fact("Launches", len(forms), "launch", "dV, dP, dS, dQ, dK"),
        pair_fact(shape),
        *element_facts(io_standard_backward(shape), of_heads(ideal, shape), moved(shape),
                       "inputs again for each tile", forms, ideal_bytes),
        *flop_facts(2 * shape.heads * TILE * TILE * deep, f"2 a product, {TILE} x {TILE} tiles", forms),
    )


def moved(shape: Shape) -> int:
    """Count the elements that the five launches ask for: their inputs once for each tile that needs them.

    dV: P for each 32 columns, dO for each 32 keys, dV out. dP: dO for each 32 keys, V for each 32 rows, dP
    out. dS: P and dP twice, dS out. dQ: dS for each 32 columns, K for each 32 rows, dQ out. dK: as dV.
    """
    rows, keys = ceil_div(shape.N, TILE), key_tiles(shape)
    wide, narrow = ceil_div(shape.dv, TILE), ceil_div(shape.d, TILE)
    N, Nk, d, dv, matrix = shape.N, shape.Nk, shape.d, shape.dv, shape.N * shape.Nk
    values = wide * matrix + keys * N * dv + Nk * dv
    weight = keys * N * dv + rows * Nk * dv + matrix
    queries = narrow * matrix + rows * Nk * d + N * d
    key = narrow * matrix + keys * N * d + Nk * d
    return shape.heads * (values + weight + 5 * matrix + queries + key)


def closed_forms(shape: Shape, size: int = 4) -> tuple[dict[str, int], ...]:
    """Return the counters of the five launches; size: bytes of an element of all but dP."""
    return (
        transposed_form(shape, shape.dv, size),
        weight_form(shape, size),
        score_form(shape, size),
        weighted_rows_form(shape, shape.d, size),
        transposed_form(shape, shape.d, size),
    )


def transposed_form(shape: Shape, width: int, size: int = 4) -> dict[str, int]:
    """Return the counters of dV or dK: a block loads 32 columns of P or dS, whole, and 32 of dO or Q."""
    H, N, Nk, keys, columns = shape.heads, shape.N, shape.Nk, key_tiles(shape), ceil_div(width, TILE)
    loads = row_segments(H * N, Nk, size) * columns + row_segments(H * N, width, size) * keys
    stores = row_segments(H * Nk, width, size)
    forms = _tiled(H * keys * columns, N, loads, stores)
    return forms | once(H, (size * N * Nk, size * N * width), (size * Nk * width,))


def weight_form(shape: Shape, size: int = 4) -> dict[str, int]:
    """Return the counters of dP: a block loads 32 rows of dO and 32 of V."""
    H, N, Nk, dv = shape.heads, shape.N, shape.Nk, shape.dv
    rows, keys = ceil_div(N, TILE), key_tiles(shape)
    loads = row_segments(H * N, dv, size) * keys + row_segments(H * Nk, dv, size) * rows
    forms = _tiled(H * rows * keys, dv, loads, row_segments(H * N, Nk))
    return forms | once(H, (size * N * dv, size * Nk * dv), (4 * N * Nk,))


def _tiled(blocks: int, depth: int, loads: Access, stores: Access) -> dict[str, int]:
    """Return the counters of a tiled product: one FFMA for each element of a tile and level of its depth."""
    products = arithmetic((blocks * TILE * TILE * depth, {"ffma": 1}))
    return product_form(blocks, depth, loads, stores) | products


def score_form(shape: Shape, size: int = 4) -> dict[str, int]:
    """Return the counters of dS.

    An element costs two loads each of P and dP and a store, one FFMA of the sum, then a subtraction and two
    multiplications; the tree is that of softmax.
    """
    H, N, Nk = shape.heads, shape.N, shape.Nk
    rows, elements, warps = H * N, H * N * Nk, ROW_THREADS // 32
    narrow = each_row(rows, Nk, ROW_THREADS, size)
    loads = (narrow + each_row(rows, Nk, ROW_THREADS)) * 2
    forms = loads.paths("global_load") | narrow.paths("global_store")
    forms |= (Access(ROW_THREADS + 127, warps + 8) * rows).shared_paths("shared_store")
    forms |= (Access(2 * 127 + ROW_THREADS, 2 * 8 + warps) * rows).shared_paths("shared_load")
    forms |= arithmetic((elements, {"ffma": 1, "fadd": 1, "fmul": 2}), (rows, {"fadd": 127}))
    forms |= {"barriers": 8 * warps * rows, "hierarchy.l2_write": narrow.sectors}
    return forms | once(H, (size * N * Nk, 4 * N * Nk), (size * N * Nk,))


SUMMARY = "Attention's gradients in five launches, with P, dP and dS (N x N) in global memory"
SPEC = KernelSpec("standard_attention_backward", SUMMARY, Options, build)
