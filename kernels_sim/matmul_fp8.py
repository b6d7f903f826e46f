"""Multiply matrices of 8-bit floats on the tensor cores, a scale for each matrix: product = sa sb (a @ b^T).

Both matrices run along K, as mma.sync m16n8k32 wants them (row.col): a (M, K), b (N, K), e4m3; the product
is bfloat16. This is what torch._scaled_mm(a, b.T, scale_a, scale_b, out_dtype=torch.bfloat16) computes.

- --accumulation fast: every instruction adds to the same accumulators, over all of K.
- --accumulation full: each 128 values of K are summed from 0, and the sum is added to float32 registers of
  its own. torch asks for this with use_fast_accum=False; 128 is the interval of CUTLASS and DeepSeek-V3. It
  takes a second accumulator for each result and one FADD an accumulator and 128 values.

Full accumulation is there for wgmma, whose accumulators keep fewer bits than a float32. mma.sync of 8-bit
floats on an H200 loses nothing of that kind: it adds its 32 products and then, in float32, the accumulator
(docs/h200_facts.md, fact 34). So here the option shows what full accumulation costs, and the last bits that
the order of sums decides.

What to look at in the report (M = N = K = 512):
- Compute: 32,768 mma.sync of 8,192 FLOPs, 2 M N K = 268,435,456 in all, half as many as of 16-bit numbers;
  full accumulation adds 1,048,576 FADD. A ragged edge is computed as whole tiles.
- Memory: a block of 128 x 128 results walks K in steps of 64 bytes; cp.async, two buffers, as in matmul_mma.
  4 blocks read each tile: 2,097,152 bytes in 4,096 requests of 16 sectors.
- Shared memory: ldmatrix takes pairs of 8-bit floats for 16-bit numbers. Its rows are consecutive ones of a,
  and of b {0, 1, 4, 5, 8, 9, 12, 13} or those + 2; with chunk xor row / 2 and chunk xor row / 4 both have 0
  conflicts. No .trans: b lies as a fragment wants it.
- Stores: b's rows are taken in that order so that a thread has four neighbours of a row of the product, where
  a fragment alone has two. 8 bytes a lane fill whole sectors, 8 a request.
- Each of 8 warps has 64 x 32 results: 64 accumulators a thread, 128 for full accumulation.

NaN in a row of a or b makes its results NaN; e4m3 has no infinity. Results beyond bfloat16 are infinite.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn
from numpy import float32, uint32

from dsl import cuda, ptx
from gpusim.errors import BadOption
from kernels_sim.attention import TOLERANCES, arithmetic
from kernels_sim.formulas import WARP, ceil_div, require_at_least, require_choice
from kernels_sim.matmul_mma import chunk_sectors
from kernels_sim.problem import Data, KernelSpec, Problem, Step

TILE, DEPTH = 128, 64
"""Rows and columns of results of a block, and the values of K, which are bytes, of one step."""
THREADS = 256
CHUNK = 16
"""Elements of 16 bytes, what one lane copies."""
CHUNKS = DEPTH // CHUNK
ROWS = THREADS // CHUNKS
"""Rows of a tile that the threads of a block copy at a time."""
HEIGHT, WIDTH = 64, 32
"""Rows and columns of results of a warp."""
ROW_TILES, COLUMN_TILES = HEIGHT // 16, WIDTH // 8
PROMOTED = 2
"""Steps of K after which full accumulation adds what they gave: 128 values."""


def _kernel(full):  # type: ignore[no-untyped-def]
    """Return the kernel for fast or full accumulation."""

    @cuda.jit(device=True)
    def copy_tile(matrix, tile, buffer, first_row, first_k, alike):
        """Start to copy a tile of one step, zeros past the edges; `alike` rows are permuted alike."""
        t = cuda.threadIdx.x
        for turn in range(TILE // ROWS):
            r, chunk = turn * ROWS + t // CHUNKS, t % CHUNKS
            row, k = first_row + r, first_k + chunk * CHUNK
            size = 16 if row < matrix.shape[0] and k < matrix.shape[1] else 0
            source = (min(row, matrix.shape[0] - 1), min(k, matrix.shape[1] - CHUNK))
            target = (buffer, r, (chunk ^ r // alike % CHUNKS) * CHUNK)
            ptx.cp_async_cg(tile, target, matrix, source, 16, size)

    @cuda.jit
    def matmul_fp8(a, b, product, scale_a, scale_b):
        """Write product = scale_a scale_b (a @ b^T): a (M, K), b (N, K) e4m3; product (M, N) bfloat16; scales
        (1,) float32; K and N multiples of 16.
        """
        a_tile = cuda.shared.array((2, TILE, DEPTH), float8_e4m3fn, alignment=16)
        b_tile = cuda.shared.array((2, TILE, DEPTH), float8_e4m3fn, alignment=16)
        part = cuda.local.array((ROW_TILES, COLUMN_TILES, 4), float32)
        total = cuda.local.array((ROW_TILES, COLUMN_TILES, 4), float32)
        of_b = cuda.local.array((COLUMN_TILES, 2), uint32)
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        top, left = warp // 4 * HEIGHT, warp % 4 * WIDTH
        first_row, first_column = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
        for i in range(ROW_TILES):
            for j in range(COLUMN_TILES):
                for k in range(4):
                    part[i, j, k] = float32(0)
                    if full:
                        total[i, j, k] = float32(0)
        steps = (a.shape[1] + DEPTH - 1) // DEPTH
        copy_tile(a, a_tile, 0, first_row, 0, 2)
        copy_tile(b, b_tile, 0, first_column, 0, 4)
        ptx.cp_async_commit_group()
        for step in range(steps):
            if step + 1 < steps:
                copy_tile(a, a_tile, (step + 1) % 2, first_row, (step + 1) * DEPTH, 2)
                copy_tile(b, b_tile, (step + 1) % 2, first_column, (step + 1) * DEPTH, 4)
                ptx.cp_async_commit_group()
                ptx.cp_async_wait_group(1)
            else:
                ptx.cp_async_wait_group(0)
            cuda.syncthreads()
            for k in range(0, CHUNKS, 2):
                for j in range(0, COLUMN_TILES, 2):
                    # Columns 2 t and 2 t + 1 of tiles j and j + 1 are four neighbours of the product.
                    r = left + j * 8 + lane % 8 // 2 * 4 + lane % 2 + lane // 16 * 2
                    chunk = (k + lane // 8 % 2) ^ r // 4 % CHUNKS
                    of_b[j, 0], of_b[j, 1], of_b[j + 1, 0], of_b[j + 1, 1] = ptx.ldmatrix_x4(
                        b_tile, (step % 2, r, chunk * CHUNK)
                    )
                for i in range(ROW_TILES):
                    r = top + i * 16 + lane % 16
                    chunk = (k + lane // 16) ^ r // 2 % CHUNKS
                    of_a = ptx.ldmatrix_x4(a_tile, (step % 2, r, chunk * CHUNK))
                    for j in range(COLUMN_TILES):
                        old = (part[i, j, 0], part[i, j, 1], part[i, j, 2], part[i, j, 3])
                        new = ptx.mma_sync_m16n8k32_f32_e4m3(of_a, (of_b[j, 0], of_b[j, 1]), old)
                        part[i, j, 0], part[i, j, 1], part[i, j, 2], part[i, j, 3] = new
            if full:
                if step % PROMOTED == PROMOTED - 1 or step == steps - 1:
                    for i in range(ROW_TILES):
                        for j in range(COLUMN_TILES):
                            for k in range(4):
                                total[i, j, k] += part[i, j, k]
                                part[i, j, k] = float32(0)
            cuda.syncthreads()
        scale = scale_a[0] * scale_b[0]
        sums = total if full else part
        fours = product.view(cuda.uint32x2)
        for i in range(ROW_TILES):
            for j in range(0, COLUMN_TILES, 2):
                for k in range(0, 4, 2):
                    row = first_row + top + i * 16 + lane // 4 + 4 * k
                    four = (first_column + left + j * 8) // 4 + lane % 4
                    if row < fours.shape[0] and four < fours.shape[1]:
                        fours[row, four] = cuda.uint32x2(
                            ptx.cvt_rn_bf16x2_f32(sums[i, j, k + 1] * scale, sums[i, j, k] * scale),
                            ptx.cvt_rn_bf16x2_f32(sums[i, j + 1, k + 1] * scale, sums[i, j + 1, k] * scale),
                        )

    return matmul_fp8


KERNELS = {"fast": _kernel(False), "full": _kernel(True)}
"""How sums are taken -> kernel; grid (ceil(N / 128), ceil(M / 128)), block (256,)."""


@dataclass(frozen=True)
class Options:
    """Hold the options of matmul_fp8."""

    M: int = field(default=512, metadata={"help": "rows of A and of the product"})
    N: int = field(default=512, metadata={"help": "rows of B and columns of the product, a multiple of 16"})
    K: int = field(default=512, metadata={"help": "columns of A and B, a multiple of 16"})
    accumulation: str = field(default="fast", metadata={
        "help": "fast: in the tensor cores; full: 128 values of K there, then in float32",
        "choices": tuple(KERNELS)})  # fmt: skip
    scale_a: float = field(default=1.0, metadata={"help": "what one unit of A is"})
    scale_b: float = field(default=1.0, metadata={"help": "what one unit of B is"})


def step_of(a: Any, b: Any, product: Any, scale_a: Any, scale_b: Any, accumulation: str) -> Step:
    """Return the launch that writes product = scale_a scale_b (a @ b^T), arrays as the kernel takes them."""
    (m, k), n = a.shape, b.shape[0]
    grid = (ceil_div(n, TILE), ceil_div(m, TILE))
    form = closed_form(m, n, k, accumulation)
    return Step(KERNELS[accumulation], grid, (THREADS,), (a, b, product, scale_a, scale_b), 0, form)


def closed_form(m: int, n: int, k: int, accumulation: str) -> dict[str, int]:
    """Return the exact counters: a block an output tile, a step for each 64 of K."""
    down, across, steps = ceil_div(m, TILE), ceil_div(n, TILE), ceil_div(k, DEPTH)
    blocks, warps = down * across, THREADS // WARP
    halves = blocks * steps * warps * CHUNKS // 2
    read = (across * m + down * n) * (k // CHUNK)
    promotions = ceil_div(steps, PROMOTED) if accumulation == "full" else 0
    return {
        "tensor.fp8": halves * ROW_TILES * COLUMN_TILES,
        "global_load.lanes": read + 2 * blocks * THREADS,
        "global_load.bytes": CHUNK * read + 8 * blocks * THREADS,
        "global_load.requests": (across * ceil_div(m, 8) + down * n // 8) * steps + 2 * blocks * warps,
        "global_load.sectors": across * chunk_sectors(m, k // 2) + down * chunk_sectors(n, k // 2)
            + 2 * blocks * warps,
        "global_store.lanes": m * n // 4,
        "global_store.bytes": 2 * m * n,
        "global_store.requests": ceil_div(m, 8) * (n // 16),
        "global_store.sectors": m * n // 16,
        **_shared("shared_matrix", halves * (ROW_TILES + COLUMN_TILES // 2), 4),
        **_shared("shared_async", blocks * steps * warps * 2 * (TILE // ROWS), 0),
        "barriers": 2 * blocks * steps * warps,
        **arithmetic((blocks * THREADS, {"fmul": 1, "fadd": promotions * HEIGHT * WIDTH // WARP}),
                     (m * n, {"fmul": 1})),
    }  # fmt: skip


def _shared(path: str, requests: int, wavefronts: int) -> dict[str, int]:
    """Return the counters of whole warps that move 16 bytes a lane, `wavefronts` a request."""
    return {
        f"{path}.lanes": WARP * requests,
        f"{path}.bytes": WARP * 16 * requests,
        f"{path}.requests": requests,
        f"{path}.wavefronts": wavefronts * requests,
        f"{path}.ideal_wavefronts": wavefronts * requests,
    }


def require_chunks(name: str, **sizes: int) -> None:
    """Raise BadOption where a size, by what it is called, is no multiple of 16."""
    for size, value in sizes.items():
        if value < CHUNK or value % CHUNK:
            raise BadOption(f"{name}: {size} is {value}, it must be a multiple of {CHUNK}: rows of 8-bit "
                            "floats begin at a multiple of 16 bytes, as cp.async needs")


def build(options: Options, data: Data) -> Problem:
    """Return the problem of multiplying N(0, 1) numbers rounded to e4m3; raise BadOption for bad sizes."""
    m, n, k = options.M, options.N, options.K
    require_choice("matmul_fp8", "accumulation", options.accumulation, KERNELS)
    require_at_least("matmul_fp8", "M", m, 1)
    require_chunks("matmul_fp8", **{"--N": n, "--K": k})
    a, b = data.normal(m, k, dtype=float8_e4m3fn), data.normal(n, k, dtype=float8_e4m3fn)
    product = data.filled(np.nan, m, n, dtype=bfloat16)
    scales = data.filled(options.scale_a, 1), data.filled(options.scale_b, 1)
    step = step_of(a, b, product, *scales, options.accumulation)
    reference = None if data.virtual else lambda: {"product": scaled_product(a, b, *scales)}
    inputs = {"a": a, "b": b, "scale_a": scales[0], "scale_b": scales[1]}
    return Problem("matmul_fp8", (step,), {"product": product}, reference, TOLERANCES["bfloat16"],
                   options=options, inputs=inputs)


def scaled_product(a: np.ndarray, b: np.ndarray, scale_a: np.ndarray, scale_b: np.ndarray) -> np.ndarray:
    """Return scale_a scale_b (a @ b^T) in float64, the product of the scales in float32 as the kernel's."""
    return a.astype(np.float64) @ b.astype(np.float64).T * np.float64(scale_a[0] * scale_b[0])


SPEC = KernelSpec(
    "matmul_fp8",
    "multiply matrices of 8-bit floats on the tensor cores, with scales: fast or full accumulation",
    Options,
    build,
)
