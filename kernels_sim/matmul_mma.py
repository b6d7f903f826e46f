"""Multiply matrices of 16-bit numbers on the tensor cores, as FlashAttention-2's products are written.

What to look at in the report (M = N = K = 512, float16):
- Compute: 65,536 mma.sync m16n8k16 instructions of 4,096 FLOPs, 2 M N K = 268,435,456 in all; a ragged edge
  is computed as whole tiles.
- Memory: a block of 128 x 128 results walks K in steps of 32. Its tiles come by cp.async, 16 bytes a lane,
  past L1 and past the registers: 4 blocks read each tile of A and of B, 4,194,304 bytes in 8,192 requests
  of 16 sectors. While one pair of tiles is multiplied, the next is on its way (two buffers).
- Shared memory: rows of a tile are stored with their 16-byte chunks permuted (chunk xor row), so that the
  8 rows of every matrix that ldmatrix reads lie in different banks: 0 conflicts, one wavefront a matrix.
  B is read with .trans, as its rows run along N and a fragment wants columns of K.
- Each warp of 64 x 64 results has 128 accumulators a thread in registers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from numpy import float16, float32, uint32

from dsl import cuda, ptx
from gpusim.errors import BadOption
from kernels_sim.formulas import WARP, ceil_div, require_at_least, require_choice
from kernels_sim.problem import Data, KernelSpec, Problem, Step

TILE, DEPTH = 128, 32
"""Rows and columns of results of a block, and the values of K of one step."""
THREADS = 128
CHUNK = 8
"""Elements of 16 bytes, what one lane copies."""
CHUNKS_A, CHUNKS_B = DEPTH // CHUNK, TILE // CHUNK
ROWS_A, ROWS_B = THREADS // CHUNKS_A, THREADS // CHUNKS_B
"""Rows of a tile that the threads of a block copy at a time."""
HALF = TILE // 2
"""Rows and columns of results of a warp."""
ROW_TILES, COLUMN_TILES = HALF // 16, HALF // 8


def _kernel(mma, dtype):  # type: ignore[no-untyped-def]
    """Return the kernel for one type of elements, float16 or bfloat16."""

    @cuda.jit(device=True)
    def copy_tiles(a, b, a_tile, b_tile, buffer, first_k):
        """Start to copy the tiles of one step into a buffer, and close their group; zeros past the edges."""
        t = cuda.threadIdx.x
        for turn in range(TILE // ROWS_A):
            r, chunk = turn * ROWS_A + t // CHUNKS_A, t % CHUNKS_A
            row, k = cuda.blockIdx.y * TILE + r, first_k + chunk * CHUNK
            size = 16 if row < a.shape[0] and k < a.shape[1] else 0
            source = (min(row, a.shape[0] - 1), min(k, a.shape[1] - CHUNK))
            target = (buffer, r, (chunk ^ r // 2 % CHUNKS_A) * CHUNK)
            ptx.cp_async_cg(a_tile, target, a, source, 16, size)
        for turn in range(DEPTH // ROWS_B):
            r, chunk = turn * ROWS_B + t // CHUNKS_B, t % CHUNKS_B
            k, column = first_k + r, cuda.blockIdx.x * TILE + chunk * CHUNK
            size = 16 if k < b.shape[0] and column < b.shape[1] else 0
            source = (min(k, b.shape[0] - 1), min(column, b.shape[1] - CHUNK))
            ptx.cp_async_cg(b_tile, (buffer, r, (chunk ^ r % 8) * CHUNK), b, source, 16, size)
        ptx.cp_async_commit_group()

    @cuda.jit
    def matmul_mma(a, b, product):
        """Write product = a @ b: a (M, K), b (K, N), 16 bits; product (M, N) float32; K, N multiples of 8."""
        a_tile = cuda.shared.array((2, TILE, DEPTH), dtype, alignment=16)
        b_tile = cuda.shared.array((2, DEPTH, TILE), dtype, alignment=16)
        total = cuda.local.array((ROW_TILES, COLUMN_TILES, 4), float32)
        of_b = cuda.local.array((COLUMN_TILES, 2), uint32)
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        top, left = warp // 2 * HALF, warp % 2 * HALF
        for i in range(ROW_TILES):
            for j in range(COLUMN_TILES):
                for k in range(4):
                    total[i, j, k] = float32(0)
        steps = (a.shape[1] + DEPTH - 1) // DEPTH
        copy_tiles(a, b, a_tile, b_tile, 0, 0)
        for step in range(steps):
            if step + 1 < steps:
                copy_tiles(a, b, a_tile, b_tile, (step + 1) % 2, (step + 1) * DEPTH)
                ptx.cp_async_wait_group(1)
            else:
                ptx.cp_async_wait_group(0)
            cuda.syncthreads()
            for k in range(0, DEPTH, 16):
                for j in range(0, COLUMN_TILES, 2):
                    r = k + lane % 16
                    chunk = (left // CHUNK + j + lane // 16) ^ r % 8
                    of_b[j, 0], of_b[j, 1], of_b[j + 1, 0], of_b[j + 1, 1] = ptx.ldmatrix_x4_trans(
                        b_tile, (step % 2, r, chunk * CHUNK)
                    )
                for i in range(ROW_TILES):
                    r = top + i * 16 + lane % 16
                    chunk = (k // CHUNK + lane // 16) ^ r // 2 % CHUNKS_A
                    of_a = ptx.ldmatrix_x4(a_tile, (step % 2, r, chunk * CHUNK))
                    for j in range(COLUMN_TILES):
                        old = (total[i, j, 0], total[i, j, 1], total[i, j, 2], total[i, j, 3])
                        new = mma(of_a, (of_b[j, 0], of_b[j, 1]), old)
                        total[i, j, 0], total[i, j, 1], total[i, j, 2], total[i, j, 3] = new
            cuda.syncthreads()
        pairs = product.view(cuda.float32x2)
        for i in range(ROW_TILES):
            for j in range(COLUMN_TILES):
                row = cuda.blockIdx.y * TILE + top + i * 16 + lane // 4
                pair = (cuda.blockIdx.x * TILE + left + j * 8) // 2 + lane % 4
                if row < pairs.shape[0] and pair < pairs.shape[1]:
                    pairs[row, pair] = cuda.float32x2(total[i, j, 0], total[i, j, 1])
                if row + 8 < pairs.shape[0] and pair < pairs.shape[1]:
                    pairs[row + 8, pair] = cuda.float32x2(total[i, j, 2], total[i, j, 3])

    return matmul_mma


KERNELS = {
    "float16": (_kernel(ptx.mma_sync_m16n8k16_f32_f16, float16), np.float16),
    "bfloat16": (_kernel(ptx.mma_sync_m16n8k16_f32_bf16, ml_dtypes.bfloat16), ml_dtypes.bfloat16),
}
"""Type of the elements -> kernel and numpy's name of the type."""


@dataclass(frozen=True)
class Options:
    """Hold the options of matmul_mma."""

    M: int = field(default=512, metadata={"help": "rows of A and of the product"})
    N: int = field(default=512, metadata={"help": "columns of B and of the product, a multiple of 8"})
    K: int = field(default=512, metadata={"help": "columns of A and rows of B, a multiple of 8"})
    dtype: str = field(
        default="float16", metadata={"help": "float16 or bfloat16, of A and B", "choices": tuple(KERNELS)}
    )


def chunk_sectors(rows: int, cols: int) -> int:
    """Return the sectors of copying a rows x cols matrix of 16-bit numbers once, past L1.

    Two neighbouring chunks of 16 bytes share a destination sector and are one sector, but two where a line
    of 128 bytes ends between them: at byte 112 of one, which 8 rows stand for.
    """
    pairs = ceil_div(cols // CHUNK, 2)
    whole = cols // CHUNK // 2
    crossing = sum(
        ceil_div(rows - r, 8) * sum((2 * r * cols + 32 * j) % 128 == 112 for j in range(whole))
        for r in range(min(rows, 8))
    )
    return rows * pairs + crossing


def closed_form(m: int, n: int, k: int, dtype: str) -> dict[str, int]:
    """Return the exact counters: a block an output tile, a step for each 32 of K."""
    down, across, steps = ceil_div(m, TILE), ceil_div(n, TILE), ceil_div(k, DEPTH)
    block_steps, warps = down * across * steps, THREADS // WARP
    read = across * m * (k // CHUNK) + down * k * (n // CHUNK)
    matrices = block_steps * warps * DEPTH // 16 * (ROW_TILES + COLUMN_TILES // 2)
    copies = block_steps * warps * (TILE // ROWS_A + DEPTH // ROWS_B)
    return {
        "tensor.f16" if dtype == "float16" else "tensor.bf16":
            block_steps * warps * DEPTH // 16 * ROW_TILES * COLUMN_TILES,
        "global_load.lanes": read,
        "global_load.bytes": 16 * read,
        "global_load.requests": across * ceil_div(m, 8) * steps + down * across * k // 2,
        "global_load.sectors": across * chunk_sectors(m, k) + down * chunk_sectors(k, n),
        "global_store.lanes": m * n // 2,
        "global_store.bytes": 4 * m * n,
        "global_store.requests": ceil_div(m, 8) * (n // 8),
        "global_store.sectors": m * n // 8,
        **_shared("shared_matrix", matrices, 16, 4 * matrices),
        **_shared("shared_async", copies, 16, 0),
        "barriers": 2 * block_steps * warps,
    }  # fmt: skip


def _shared(path: str, requests: int, lane_bytes: int, wavefronts: int) -> dict[str, int]:
    """Return the counters of whole warps on shared memory, free of conflicts."""
    return {
        f"{path}.lanes": WARP * requests,
        f"{path}.bytes": WARP * lane_bytes * requests,
        f"{path}.requests": requests,
        f"{path}.wavefronts": wavefronts,
        f"{path}.ideal_wavefronts": wavefronts,
    }


def build(options: Options, data: Data) -> Problem:
    """Return the problem of multiplying N(0, 1) numbers rounded to 16 bits; raise BadOption for bad sizes."""
    m, n, k, dtype = options.M, options.N, options.K, options.dtype
    require_choice("matmul_mma", "dtype", dtype, KERNELS)
    require_at_least("matmul_mma", "M", m, 1)
    for name, value in (("N", n), ("K", k)):
        if value < CHUNK or value % CHUNK:
            raise BadOption(f"matmul_mma: --{name} is {value}, it must be a multiple of {CHUNK}: rows of the "
                            "matrices begin at a multiple of 16 bytes, as cp.async needs")  # fmt: skip
    kernel, element = KERNELS[dtype]
    a, b = data.normal(m, k, dtype=element), data.normal(k, n, dtype=element)
    product = data.filled(np.nan, m, n)
    grid = (ceil_div(n, TILE), ceil_div(m, TILE))
    step = Step(kernel, grid, (THREADS,), (a, b, product), 0, closed_form(m, n, k, dtype))
    reference = None if data.virtual else lambda: {"product": a.astype(np.float64) @ b.astype(np.float64)}
    return Problem("matmul_mma", (step,), {"product": product}, reference, tolerance=2e-3)


SPEC = KernelSpec(
    "matmul_mma",
    "multiply matrices of 16-bit numbers on the tensor cores: cp.async, ldmatrix, mma.sync",
    Options,
    build,
)
