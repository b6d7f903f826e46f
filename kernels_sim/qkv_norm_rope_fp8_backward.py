"""Take the gradients of Q, K and V back through rotation and norm, and write them as 8-bit floats, twice.

The backward of qk_norm_rope with what the two fp8 products after it need: the gradient of the packed rows
[Q | K | V] as e4m3, row by row (tokens, qkv_dim) for the gradient of the input, and transposed (qkv_dim,
tokens) for the gradient of the weights. Everything comes from bfloat16. With n = x rstd, rstd = 1 /
sqrt(mean(x^2) + eps) and g the gradient of n:

    g = f1 dy + swap(f2 dy)             the rotation, transposed: the swap comes after the product
    dx = rstd (g - n mean(g n))         the norm's gradient
    byte = e4m3(bfloat16(dx) / scale)   saturates at 448; V's gradient is divided and rounded, no more

- --paired: the gradient of head h of token t comes from token 2 t + h // (heads / 2), as qk_norm_rope put it.
- --key-offset: elements from rotary_dim on were the key's of the next token, so their gradient is there.
  Token 0 also kept its own; nobody took the last token's, whose gradient is 0.

A block takes one head of 32 tokens, head by head first, so that neighbouring blocks share their factors. A
warp takes a token's rows, 32 neighbours at a time, and stores each byte to its row and to a tile in shared
memory. After the barrier a warp reads the tile down its columns: 32 tokens of one feature, side by side in
the transposed layout.

What to look at in the report (1,024 tokens, 6 heads, d = v_dim = 128):
- Loads: x and dy of Q and K, dv, and two rows of factors that Q and K of a head share: 7 rows a head and
  token, 2 sectors a request. Stores are 1 byte a lane: 1 sector a request, whole in both layouts.
- Shared memory: rows of the tile are padded to an odd number of words. Rows are written and columns read
  without a conflict.
- FLOPs: 27 an element of Q and K, of which 10 are the division and 6 what all lanes do alike for the row's
  sums, root and reciprocal; 10 an element of V, the division alone.

Rounding is part of the result, so it is written out: each fma is one, no other sum contracts. NaN in a row of
Q or K, or in its gradient, makes all its bytes NaN (0x7F); in V one byte. An infinite dv becomes +-448; in
rows of Q and K it meets inf - inf or inf x 0 on the way and gives NaN. A scale of 0 is refused as an option;
in memory it gives +-448, and NaN for 0.

What it leaves out: other types of inputs, NeoX's order of pairs, a scale that follows the gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn

from dsl import cuda
from dsl.semantics.floats import fma32
from gpusim.errors import BadOption
from kernels_sim.attention import DIV, RCP, SQRT, Access, arithmetic, dram_of_bytes, row_segments
from kernels_sim.attention_facts import element_facts
from kernels_sim.formulas import WARP, ceil_div, require_at_least
from kernels_sim.formulas import shared as shared_space
from kernels_sim.problem import Data, Fact, KernelSpec, Problem, Step
from kernels_sim.qk_norm_rope import EPS, require_shape, rotation, runs

float32 = np.float32
ZERO, ONE = np.float32(0), np.float32(1)
ALL = 0xFFFFFFFF

TOKENS, WARPS = 32, 8
"""Tokens of a block: 32 bytes of a feature are a sector of the transposed layout. Warps that share them."""
WIDEST = 1532
"""Bytes of a row of the tile, padding included: 32 rows of 383 words are 49,024 of the 49,152 that fit."""
LARGEST = 448.0
"""The largest e4m3."""
SCALE_BYTES = 64
"""What DRAM reads for the one number of grad_scale."""


@cache
def make_kernel(d: int, v_dim: int, rotary_dim: int, paired: bool, key_offset: bool) -> Any:
    """Return qkv_norm_rope_fp8_backward(grad_q, grad_k, grad_v, qk, factor1, factor2, grad_row,
    grad_transposed, grad_scale, eps).

    grad_q, grad_k (tokens, heads, d), paired (2 tokens, heads / 2, d); grad_v (tokens, heads, v_dim); qk
    (tokens, at least 2 heads d): Q's heads, K's and what follows; factor1, factor2 (tokens, d), paired
    (tokens, 2 d): bfloat16. grad_row (tokens, qkv_dim), grad_transposed (qkv_dim, tokens): e4m3, qkv_dim =
    heads (2 d + v_dim). grad_scale (1,) float32. Grid (heads, ceil(tokens / 32)), block (32, 8).
    """
    per_lane, per_lane_v = ceil_div(d, WARP), ceil_div(v_dim, WARP)
    pitch = row_bytes(d, v_dim)
    inverse_d = np.float32(1 / d)

    @cuda.jit
    def qkv_norm_rope_fp8_backward(
        grad_q, grad_k, grad_v, qk, factor1, factor2, grad_row, grad_transposed, grad_scale, eps
    ):
        tile = cuda.shared.array((TOKENS, pitch), float8_e4m3fn)
        f1 = cuda.local.array(per_lane, float32)
        f2 = cuda.local.array(per_lane, float32)
        normal = cuda.local.array(per_lane, float32)
        g = cuda.local.array(per_lane, float32)
        lane = cuda.threadIdx.x
        warp = cuda.threadIdx.y
        head = cuda.blockIdx.x
        first = cuda.blockIdx.y * TOKENS
        tokens = grad_v.shape[0]
        heads = grad_v.shape[1]
        scale = grad_scale[0]

        for t in range(warp, TOKENS, WARPS):
            token = first + t
            if token < tokens:
                out_token = token
                out_head = head
                factor0 = 0
                if paired:
                    out_token = 2 * token + head // (heads // 2)
                    out_head = head % (heads // 2)
                    factor0 = (head % 2) * d
                for r in range(per_lane):
                    e = lane + WARP * r
                    if e < d:
                        f1[r] = float32(factor1[token, factor0 + e])
                        f2[r] = float32(factor2[token, factor0 + e])

                for kind in range(2):
                    feature = (head + kind * heads) * d
                    total = ZERO
                    for r in range(per_lane):
                        e = lane + WARP * r
                        normal[r] = ZERO
                        own = ZERO
                        turned = ZERO
                        if e < d:
                            normal[r] = float32(qk[token, feature + e])
                            total = cuda.fma(normal[r], normal[r], total)
                            if kind == 0:
                                own = float32(grad_q[out_token, out_head, e])
                            else:
                                own = float32(grad_k[out_token, out_head, e])
                            turned = f2[r] * own
                        swapped = cuda.shfl_xor_sync(ALL, turned, 1)
                        if e < d:
                            g[r] = cuda.fma(f1[r], own, swapped)
                    for step in range(5):
                        total += cuda.shfl_xor_sync(ALL, total, 16 >> step)
                    rstd = ONE / math.sqrt(cuda.fma(total, inverse_d, eps))

                    if key_offset and kind == 1:
                        for r in range(per_lane):
                            e = lane + WARP * r
                            if rotary_dim <= e and e < d:
                                later = ZERO
                                if token + 1 < tokens:
                                    later = float32(grad_k[token + 1, head, e])
                                g[r] = g[r] + later if token == 0 else later

                    dot = ZERO
                    for r in range(per_lane):
                        if lane + WARP * r < d:
                            normal[r] = normal[r] * rstd
                            dot = cuda.fma(g[r], normal[r], dot)
                    for step in range(5):
                        dot += cuda.shfl_xor_sync(ALL, dot, 16 >> step)
                    correction = dot * inverse_d
                    for r in range(per_lane):
                        e = lane + WARP * r
                        if e < d:
                            dx = bfloat16(rstd * cuda.fma(-normal[r], correction, g[r]))
                            byte = cuda.fp8.fp8_e4m3(float32(dx) / scale)
                            grad_row[token, feature + e] = byte
                            tile[t, kind * d + e] = byte

                feature = 2 * heads * d + head * v_dim
                for r in range(per_lane_v):
                    e = lane + WARP * r
                    if e < v_dim:
                        byte = cuda.fp8.fp8_e4m3(float32(grad_v[token, head, e]) / scale)
                        grad_row[token, feature + e] = byte
                        tile[t, 2 * d + e] = byte

        cuda.syncthreads()
        token = first + lane
        for column in range(warp, 2 * d + v_dim, WARPS):
            feature = head * d + column
            if column >= d:
                feature += (heads - 1) * d
            if column >= 2 * d:
                feature = 2 * heads * d + head * v_dim + column - 2 * d
            if token < tokens:
                grad_transposed[feature, token] = tile[lane, column]

    return qkv_norm_rope_fp8_backward


def row_bytes(d: int, v_dim: int) -> int:
    """Return the bytes of a row of the tile: Q, K and V of a head, padded to an odd number of words."""
    return 4 * (ceil_div(2 * d + v_dim, 4) | 1)


@dataclass(frozen=True)
class Options:
    """Hold the options of qkv_norm_rope_fp8_backward."""

    tokens: int = field(default=1024, metadata={"help": "tokens, at positions 0, 1, ..."})
    heads: int = field(default=6, metadata={"help": "heads of Q, and as many of K and V"})
    d: int = field(default=128, metadata={"help": "elements of a head of Q and K, even"})
    v_dim: int | None = field(default=None, metadata={"help": "elements of a head of V; not given: d"})
    rotary_dim: int | None = field(default=None, metadata={"help": "elements that turn, even; not given: d"})
    paired: bool = field(default=False, metadata={"help": "neighbouring heads shared their keys"})
    key_offset: bool = field(
        default=False, metadata={"help": "a key's elements that do not turn came from the token before"}
    )
    eps: float = field(default=EPS, metadata={"help": "added to the mean of squares"})
    grad_scale: float = field(default=2.0**-6, metadata={"help": "what one unit of the 8-bit gradients is"})


def check(name: str, options: Any) -> tuple[int, int]:
    """Raise BadOption for options that the kernel does not take; return rotary_dim and v_dim.

    options: has tokens, heads, d, v_dim, rotary_dim, paired, key_offset, eps and grad_scale.
    """
    rotary_dim = require_shape(name, options)
    v_dim = options.d if options.v_dim is None else options.v_dim
    require_at_least(name, "v-dim", v_dim, 1)
    if row_bytes(options.d, v_dim) > WIDEST:
        raise BadOption(f"{name}: 2 d + v_dim must be at most {WIDEST}, got {2 * options.d + v_dim}: 32 rows "
                        "of that many bytes are a block's tile, and shared memory holds 49,152")
    if not (math.isfinite(options.grad_scale) and options.grad_scale > 0):
        raise BadOption(f"{name}: --grad-scale must be a finite number above 0, got {options.grad_scale}: "
                        "gradients are divided by it")
    return rotary_dim, v_dim


def build(options: Options, data: Data) -> Problem:
    """Make the problem: all inputs ~ N(0, 1), factors of the positions, outputs NaN. Raises BadOption."""
    name = "qkv_norm_rope_fp8_backward"
    rotary_dim, v_dim = check(name, options)
    tokens, heads, d, paired = options.tokens, options.heads, options.d, options.paired
    shape = (2 * tokens, heads // 2, d) if paired else (tokens, heads, d)
    grad_q, grad_k = (data.normal(*shape, dtype=bfloat16) for _ in range(2))
    grad_v = data.normal(tokens, heads, v_dim, dtype=bfloat16)
    qk = data.normal(tokens, 2 * heads * d, dtype=bfloat16)
    factors = [data.filled(0, tokens, 2 * d if paired else d, dtype=bfloat16) for _ in range(2)]
    if not data.virtual:
        factors[0][...], factors[1][...] = rotation(tokens, d, rotary_dim, paired)
    scale = data.filled(options.grad_scale, 1)
    width = heads * (2 * d + v_dim)
    row = data.filled(np.nan, tokens, width, dtype=float8_e4m3fn)
    transposed = data.filled(np.nan, width, tokens, dtype=float8_e4m3fn)
    form = closed_form(tokens, heads, d, v_dim, rotary_dim, paired, options.key_offset)
    step = Step(
        make_kernel(d, v_dim, rotary_dim if options.key_offset else d, paired, options.key_offset),
        (heads, ceil_div(tokens, TOKENS)), (WARP, WARPS),
        (grad_q, grad_k, grad_v, qk, *factors, row, transposed, scale, np.float32(options.eps)), 0, form,
    )  # fmt: skip

    def expected() -> dict[str, np.ndarray]:
        found = packed_gradient(grad_q, grad_k, grad_v, qk, *factors, options.eps, options.grad_scale,
                                rotary_dim, paired, options.key_offset)
        return {"grad_row": found.astype(np.float64), "grad_transposed": found.T.astype(np.float64)}

    def unrounded() -> dict[str, np.ndarray]:
        dx = norm_rope_gradient(grad_q, grad_k, qk, *factors, options.eps, rotary_dim, paired,
                                options.key_offset)
        rows = np.concatenate([x.reshape(tokens, -1) for x in (dx, grad_v.astype(np.float64))], axis=1)
        rows = np.clip(rows / options.grad_scale, -LARGEST, LARGEST)
        return {"grad_row": rows, "grad_transposed": rows.T}

    outputs = {"grad_row": row, "grad_transposed": transposed}
    reference = None if data.virtual else expected
    inputs = {"grad_q": grad_q, "grad_k": grad_k, "grad_v": grad_v, "qk": qk, "factor1": factors[0],
              "factor2": factors[1], "grad_scale": scale}
    return Problem(name, (step,), outputs, reference, 0.0, facts(options, v_dim, rotary_dim, form), options,
                   inputs, unrounded=unrounded)


# The reference


def packed_gradient(
    grad_q: np.ndarray,
    grad_k: np.ndarray,
    grad_v: np.ndarray,
    qk: np.ndarray,
    f1: np.ndarray,
    f2: np.ndarray,
    eps: float,
    scale: float,
    rotary_dim: int,
    paired: bool,
    key_offset: bool,
) -> np.ndarray:
    """Return the bytes, (tokens, qkv_dim) of e4m3: float32 in the order of the kernel, so that none differs.
    """
    tokens = len(qk)
    dx = norm_rope_gradient(grad_q, grad_k, qk, f1, f2, eps, rotary_dim, paired, key_offset, np.float32)
    rows = np.concatenate([x.reshape(tokens, -1) for x in (dx.astype(bfloat16), grad_v)], axis=1)
    return quantised(rows.astype(np.float32), scale)


def quantised(x: np.ndarray, scale: float) -> np.ndarray:
    """Return float32 numbers / scale as e4m3, saturated at +-448; NaN as 0x7F."""
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.clip(x / np.float32(scale), -LARGEST, LARGEST)
    return np.where(np.isnan(y), np.float32(np.nan), y).astype(float8_e4m3fn)


def norm_rope_gradient(
    grad_q: np.ndarray,
    grad_k: np.ndarray,
    qk: np.ndarray,
    f1: np.ndarray,
    f2: np.ndarray,
    eps: float,
    rotary_dim: int,
    paired: bool,
    key_offset: bool,
    real: Any = np.float64,
) -> np.ndarray:
    """Return the gradient of the rows of Q and K, (tokens, 2 heads, d), computed in the type `real`.

    Sums in the order of the kernel's lanes, and its fused multiply-adds where `real` is float32.
    """
    tokens, width = len(qk), grad_q.shape[2]
    dy = np.concatenate([x.astype(real).reshape(tokens, -1, width) for x in (grad_q, grad_k)], axis=1)
    heads = dy.shape[1] // 2
    x = qk[:, : 2 * heads * width].astype(real).reshape(dy.shape)
    half = np.tile(np.arange(heads) % (2 if paired else 1), 2)
    a, b = (f.astype(real).reshape(tokens, -1, width)[:, half] for f in (f1, f2))
    with np.errstate(all="ignore"):
        rstd = 1 / np.sqrt(_fma(_lane_sum(x, x), real(1 / width), real(np.float32(eps))))
        normal = x * rstd
        g = _fma(a, dy, (b * dy).reshape(tokens, -1, width // 2, 2)[..., ::-1].reshape(dy.shape))
        if key_offset:
            later = np.zeros_like(dy[:, heads:, rotary_dim:])
            later[:-1] = dy[1:, heads:, rotary_dim:]
            later[0] += g[0, heads:, rotary_dim:]
            g[:, heads:, rotary_dim:] = later
        return rstd * _fma(-normal, _lane_sum(g, normal) * real(1 / width), g)


def _fma(a: np.ndarray, b: Any, c: Any) -> np.ndarray:
    """Return a * b + c, in float32 rounded once."""
    a, b, c = np.broadcast_arrays(a, b, c)
    return fma32(a, b, c) if a.dtype == np.float32 else a * b + c


def _lane_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sums of a * b along rows, (..., 1): each of 32 lanes its elements, then lanes by halves."""
    short = [(0, 0)] * (a.ndim - 1) + [(0, -a.shape[-1] % WARP)]
    a, b = (np.pad(x, short).reshape(*x.shape[:-1], -1, WARP) for x in (a, b))
    total = np.zeros_like(a[..., 0, :])
    for r in range(a.shape[-2]):
        total = _fma(a[..., r, :], b[..., r, :], total)
    while total.shape[-1] > 1:
        total = sum(np.split(total, 2, axis=-1))
    return total


# The closed form


def facts(options: Options, v_dim: int, rotary_dim: int, form: dict[str, int]) -> tuple[Fact, ...]:
    """Say what the report shows of the algorithm: rows, and elements that move."""
    tokens, heads, d = options.tokens, options.heads, options.d
    width, factors = heads * (2 * d + v_dim), 2 * tokens * d * (2 if options.paired else 1)
    taken, shifted = 2 * tokens * heads * d, (tokens - 1) * heads * (d - rotary_dim) * options.key_offset
    ideal = 3 * tokens * width + taken + factors
    moved = 3 * tokens * width + 2 * taken + shifted + WARP * WARPS * heads * ceil_div(tokens, TOKENS)
    ideal_bytes = 2 * (tokens * width + taken + factors) + 2 * tokens * width + SCALE_BYTES
    return (
        Fact("Rows", 3 * tokens * heads, "row", "3 tokens heads"),
        *element_facts(ideal, "dy, x, dx twice + factors", moved, "and factors by head, scales, later keys",
                       (form,), ideal_bytes),
    )  # fmt: skip


def closed_form(
    tokens: int,
    heads: int,
    d: int,
    v_dim: int,
    rotary_dim: int,
    paired: bool,
    key_offset: bool,
    qk_width: int | None = None,
) -> dict[str, int]:
    """Return what the counters must be; qk_width: elements of qk from a token to the next, not given: 2 heads
    d.

    A row of Q or K: a multiplication and 4 FFMA an element of the rotation, the squares, the dot product and
    the gradient, 2 multiplications more, and in all 32 lanes 10 additions, the mean with eps, a root, a
    reciprocal and the mean of the dot product. A division for each byte.
    """
    rows, width = tokens * heads, heads * (2 * d + v_dim)
    blocks = heads * ceil_div(tokens, TOKENS)
    shifted = (tokens - 1) * heads * (d - rotary_dim) if key_offset else 0
    qk_width = 2 * heads * d if qk_width is None else qk_width
    loads = row_segments(rows, d, 2) * 2 + row_segments(rows, v_dim, 2)
    of_qk = (token * qk_width + head * d for token in range(tokens) for head in range(2 * heads))
    loads += runs(of_qk, 0, d, 2)
    loads += row_segments((2 if paired else 1) * tokens, d, 2) * (2 * (1 if paired else 2) * heads // 2)
    if shifted:
        loads += runs((row * d for row in range(heads, rows)), rotary_dim, d, 2)
    loads += Access(WARP * WARPS * blocks, WARPS * blocks, WARPS * blocks)
    begins, of_v = range(0, tokens * width, width), 2 * heads * d
    by_row = runs((begin + head * d for begin in begins for head in range(2 * heads)), 0, d, 1)
    by_row += runs((begin + of_v + head * v_dim for begin in begins for head in range(heads)), 0, v_dim, 1)
    by_column = row_segments(width, tokens, 1)
    forms = loads.paths("global_load") | (by_row + by_column).paths("global_store")
    forms |= _bytes("shared_store", by_row) | _bytes("shared_load", by_column)
    forms |= {"barriers": WARPS * blocks, "warp_operations": 2 * rows * (10 + ceil_div(d, WARP))}
    forms |= arithmetic(
        (2 * rows * d, {"fmul": 3, "ffma": 4}),
        (2 * rows * WARP, {"fadd": 10, "ffma": 1, "fmul": 1}),
        (2 * rows * WARP, SQRT),
        (2 * rows * WARP, RCP),
        (heads * (d - rotary_dim) if key_offset else 0, {"fadd": 1}),
        (tokens * width, DIV),
    )
    forms["hierarchy.l2_write"] = (by_row + by_column).sectors
    wide, factor = 2 * rows * d, 2 * tokens * d * (2 if paired else 1)
    read = 2 * (2 * wide + rows * v_dim + factor)
    apart = (2 * qk_width, 4 * heads * d) if qk_width > 2 * heads * d else ()
    pieces = 2 * wide, wide, 2 * rows * v_dim, factor, tokens * width, *apart
    return forms | dram_of_bytes(read + SCALE_BYTES, 2 * tokens * width, pieces)


def _bytes(path: str, access: Access) -> dict[str, int]:
    """Return the counters of accesses of a byte a lane to shared memory, none of which conflicts."""
    found = shared_space(path, lanes=access.lanes, requests=access.requests, wavefronts=access.requests)
    return found | {f"{path}.bytes": access.lanes}


SUMMARY = "gradients of Q, K, V through rotary embedding and RMS norm, as e4m3 rows and transposed"
SPEC = KernelSpec("qkv_norm_rope_fp8_backward", SUMMARY, Options, build)
