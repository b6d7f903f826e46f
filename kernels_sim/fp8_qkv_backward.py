"""Take the gradients of Q, K and V back to x, the packed weights and their common scale, in 8-bit floats.

The backward of fp8_qkv, in four launches. With g the gradient of the packed rows qkv = x (s W)^T, s the
qkv_scale:

1. qkv_norm_rope_fp8_backward (its own file): g as e4m3, by row and transposed, in units of grad_scale.
2. matmul_fp8: g^T x, (qkv_dim, model_dim): the gradient of s W. Its sums run over tokens, so both matrices
   are wanted along tokens: g transposed, and a transposed copy of x in 8 bits.
3. matmul_fp8: g (s W), (tokens, model_dim): the gradient of x. Its sums run over the features of qkv: g by
   row, and a transposed copy of the weights.
4. scale_gradient, here: s (g^T x), the gradient of W, and sum(W * (g^T x)), that of s, in one pass.

--accumulation full is the default, as gradients' sums are long and their terms small (see matmul_fp8).

What to look at in the report (1,024 tokens, model_dim = 768, 6 heads, d = v_dim = 128):
- The products take 2 x 442,368 mma.sync, twice the forward's; full accumulation adds 14,155,776 + 14,155,776
  FADD to the first and the second.
- Bytes: launches 1 and 4 have no product and move as much as they must: launch 4 reads two matrices of
  1,769,472 and writes one, 3 FLOPs an element: DRAM's bandwidth is its roof.
- Each block of launch 4 adds its part to the one gradient of s: 288 RED on one address, in the order of
  blocks; --atomic-order shows how far another one moves it.

The gradient of s is summed in float32, of the bfloat16 weights and the bfloat16 g^T x; a chain of torch's
operations rounds each product and the sum to bfloat16 too. A NaN in the gradient of a token makes its row of
grad_x NaN, and in grad_weight the rows of the features that have it, and so grad_qkv_scale.

What it leaves out: the forward pass (fp8_qkv), who transposes x and the weights, splitting the gradient of
the packed weights into those of Q K and V, which are its first 2 heads d rows and the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn
from numpy import float32

from dsl import cuda
from kernels_sim import fp8_qkv
from kernels_sim import qkv_norm_rope_fp8_backward as rows_backward
from kernels_sim.attention import TOLERANCES, Access, arithmetic, row_segments
from kernels_sim.formulas import WARP, ceil_div
from kernels_sim.fp8_qkv import make_inputs, product_facts
from kernels_sim.matmul_fp8 import KERNELS, require_chunks, scaled_product, step_of
from kernels_sim.problem import Data, KernelSpec, Problem, Step

ALL = 0xFFFFFFFF
ROWS = 8
"""Rows of a block of scale_gradient, one warp each."""


@cuda.jit
def scale_gradient(of_scaled, weight, qkv_scale, grad_weight, grad_qkv_scale):
    """Write grad_weight = qkv_scale of_scaled, add sum(of_scaled * weight) to grad_qkv_scale.

    of_scaled, weight, grad_weight (rows, columns) bfloat16; qkv_scale, grad_qkv_scale (1,) float32. Grid
    ceil(rows / 8), block (32, 8).
    """
    sums = cuda.shared.array(ROWS, float32)
    lane = cuda.threadIdx.x
    warp = cuda.threadIdx.y
    row = cuda.blockIdx.x * ROWS + warp
    scale = qkv_scale[0]
    total = float32(0)
    if row < weight.shape[0]:
        for column in range(lane, weight.shape[1], WARP):
            gradient = float32(of_scaled[row, column])
            total = cuda.fma(gradient, float32(weight[row, column]), total)
            grad_weight[row, column] = gradient * scale
    for step in range(5):
        total += cuda.shfl_xor_sync(ALL, total, 16 >> step)
    if lane == 0:
        sums[warp] = total
    cuda.syncthreads()
    if lane == 0 and warp == 0:
        for other in range(1, ROWS):
            total += sums[other]
        cuda.atomic.add(grad_qkv_scale, 0, total)


@dataclass(frozen=True)
class Options(fp8_qkv.Options):
    """Hold the options of fp8_qkv_backward: those of fp8_qkv and the unit of the 8-bit gradients."""

    accumulation: str = field(default="full", metadata={
        "help": "sums of the products; fast: in the tensor cores, full: 128 values there, then in float32",
        "choices": tuple(KERNELS)})  # fmt: skip
    grad_scale: float = field(default=2.0**-5, metadata={"help": "what one unit of the 8-bit gradients is"})


def build(options: Options, data: Data) -> Problem:
    """Make the problem: gradients of Q, K, V ~ N(0, 1), x and weights of fp8_qkv, outputs NaN. Raises
    BadOption.
    """
    name = "fp8_qkv_backward"
    rotary_dim, v_dim = fp8_qkv.check(name, options)
    rows_backward.check(name, options)
    require_chunks(name, **{"--tokens": options.tokens})
    tokens, heads, d, paired = options.tokens, options.heads, options.d, options.paired
    of_qk, width, model_dim = 2 * heads * d, heads * (2 * d + v_dim), options.model_dim
    given = make_inputs(options, width, rotary_dim, data)
    x8_t, weight8_t = (transposed(a, data) for a in (given.x8, given.weight8))
    qk = data.filled(0, tokens, of_qk if paired else width, dtype=bfloat16)
    if not data.virtual:
        qk[...] = scaled_product(given.x8, given.weight8, given.x_scale, given.weight_scale)[:, : qk.shape[1]]
    shape = (2 * tokens, heads // 2, d) if paired else (tokens, heads, d)
    grad_q, grad_k = (data.normal(*shape, dtype=bfloat16) for _ in range(2))
    grad_v = data.normal(tokens, heads, v_dim, dtype=bfloat16)
    grad_scale, qkv_scale = (data.filled(scale, 1) for scale in (options.grad_scale, options.qkv_scale))
    by_row = data.filled(np.nan, tokens, width, dtype=float8_e4m3fn)
    by_column = data.filled(np.nan, width, tokens, dtype=float8_e4m3fn)
    grad_x = data.filled(np.nan, tokens, model_dim, dtype=bfloat16)
    of_scaled, grad_weight = (data.filled(np.nan, width, model_dim, dtype=bfloat16) for _ in range(2))
    grad_qkv_scale = data.filled(0, 1)

    how = rotary_dim, paired, options.key_offset
    eps = np.float32(options.eps)
    of_rows = Step(
        rows_backward.make_kernel(d, v_dim, rotary_dim if options.key_offset else d, *how[1:]),
        (heads, ceil_div(tokens, rows_backward.TOKENS)), (WARP, rows_backward.WARPS),
        (grad_q, grad_k, grad_v, qk, *given.factors, by_row, by_column, grad_scale, eps), 0,
        rows_backward.closed_form(tokens, heads, d, v_dim, *how, qk.shape[1]),
    )  # fmt: skip
    products = [
        step_of(by_column, x8_t, of_scaled, grad_scale, given.x_scale, options.accumulation),
        step_of(by_row, weight8_t, grad_x, grad_scale, given.weight_scale, options.accumulation),
    ]
    scaled = Step(scale_gradient, (ceil_div(width, ROWS),), (WARP, ROWS),
                  (of_scaled, given.weight, qkv_scale, grad_weight, grad_qkv_scale), 0,
                  closed_form(width, model_dim))  # fmt: skip

    weight = given.weight

    def of_qkv() -> tuple[np.ndarray, np.ndarray]:
        packed = rows_backward.packed_gradient(grad_q, grad_k, grad_v, qk, *given.factors, options.eps,
                                               options.grad_scale, *how)  # fmt: skip
        return packed.astype(np.float64) * options.grad_scale, given.x8 * np.float64(given.x_scale[0])

    def expected() -> dict[str, np.ndarray]:
        used = given.weight8 * np.float64(given.weight_scale[0])
        found = gradients(*of_qkv(), used, weight.astype(np.float64), options.qkv_scale, bfloat16)
        return dict(zip(outputs, found, strict=True))

    def summed() -> dict[str, float]:
        g, x = of_qkv()
        return {"grad_qkv_scale": float(np.linalg.norm(g.T @ x * weight.astype(np.float64)))}

    outputs = {"grad_x": grad_x, "grad_weight": grad_weight, "grad_qkv_scale": grad_qkv_scale}
    reference = None if data.virtual else expected
    said = product_facts(4 * tokens * width * model_dim, "2 x 2 tokens qkv_dim model_dim", products)
    inputs = {**given.by_name, "x8_t": x8_t, "weight8_t": weight8_t, "qk": qk, "grad_q": grad_q,
              "grad_k": grad_k, "grad_v": grad_v, "grad_scale": grad_scale, "qkv_scale": qkv_scale}
    return Problem(name, (of_rows, *products, scaled), outputs, reference, TOLERANCES["bfloat16"], said,
                   options, inputs, summed)


def transposed(matrix: Any, data: Data) -> Any:
    """Return the transposed copy of an 8-bit matrix."""
    copy = data.filled(0, *matrix.shape[::-1], dtype=float8_e4m3fn)
    if not data.virtual:
        copy[...] = matrix.T
    return copy


def gradients(
    g: np.ndarray,
    x: np.ndarray,
    used: np.ndarray,
    weight: np.ndarray,
    qkv_scale: float,
    stored: Any = np.float64,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of x, of the weights and of qkv_scale, (1,), from that of qkv, all float64.

    used: the scaled weights that multiplied x, qkv_scale weight but for its 8 bits. stored: the type of g^T x
    between two launches.
    """
    of_scaled = (g.T @ x).astype(stored).astype(np.float64)
    return g @ used, qkv_scale * of_scaled, np.reshape((of_scaled * weight).sum(), 1)


def closed_form(rows: int, columns: int) -> dict[str, int]:
    """Return what the counters of scale_gradient must be: 3 FLOPs an element, and each block's sums."""
    blocks = ceil_div(rows, ROWS)
    warps = blocks * ROWS
    matrix = row_segments(rows, columns, 2)
    forms = (matrix * 2 + Access(WARP * warps, warps, warps)).paths("global_load")
    forms |= matrix.paths("global_store") | Access(blocks, blocks, blocks).paths("global_red")
    forms |= Access(warps, warps).shared_paths("shared_store")
    forms |= Access(warps - blocks, warps - blocks).shared_paths("shared_load")
    forms |= {"barriers": warps, "warp_operations": 5 * warps}
    return forms | arithmetic(
        (rows * columns, {"ffma": 1, "fmul": 1}),
        (WARP * warps, {"fadd": 5}),
        (warps - blocks, {"fadd": 1}),
    )


SUMMARY = "gradients of the packed 8-bit projection: of x, the weights and their scale, in four launches"
SPEC = KernelSpec("fp8_qkv_backward", SUMMARY, Options, build)
