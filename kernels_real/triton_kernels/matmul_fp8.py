"""Multiply matrices of 8-bit floats in Triton, a scale for each: product = scale_a scale_b (a @ b^T).

The twin of kernels_sim/matmul_fp8.py: tiles of 128 x 128 results, K in steps of 64. --accumulation fast adds
every product to the same accumulators; full sums 128 values of K from 0 and adds them to float32 registers.
On an H200 the products are wgmma, whose own accumulators keep fewer bits than a float32, so that fast and
full differ by more than in the simulated mma.sync. With full, K is walked in steps of 128: where it is no
multiple of 128, the last one multiplies up to 64 zeros more.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels_real.triton_kernels.arrays import Arrays
from kernels_real.triton_kernels.launching import Launch

TILE, DEPTH = 128, 64
"""Rows and columns of results of a block; values of K of one step."""
PROMOTED = 2
"""Steps of K after which full accumulation adds what they gave."""


@triton.jit
def matmul_fp8(
    a, b, product, scale_a, scale_b, M, N, K,
    TILE: tl.constexpr, DEPTH: tl.constexpr, PROMOTED: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Write a tile of the product: a (M, K), b (N, K) e4m3, product (M, N), scales (1,) float32. Grid (ceil(N
    / TILE), ceil(M / TILE)).
    """
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(0) * TILE + tl.arange(0, TILE)
    depth = tl.arange(0, DEPTH)
    a += rows.to(tl.int64)[:, None] * K + depth[None, :]
    b += columns.to(tl.int64)[None, :] * K + depth[:, None]
    total = tl.zeros([TILE, TILE], tl.float32)
    if FULL:
        for k0 in range(0, K, DEPTH * PROMOTED):
            part = tl.zeros([TILE, TILE], tl.float32)
            for step in tl.static_range(PROMOTED):
                k = k0 + step * DEPTH
                x = tl.load(a + k, mask=(rows < M)[:, None] & (k + depth < K)[None, :], other=0.0)
                y = tl.load(b + k, mask=(columns < N)[None, :] & (k + depth < K)[:, None], other=0.0)
                part = tl.dot(x, y, part, input_precision="ieee")
            total += part
    else:
        for k in range(0, K, DEPTH):
            x = tl.load(a + k, mask=(rows < M)[:, None] & (k + depth < K)[None, :], other=0.0)
            y = tl.load(b + k, mask=(columns < N)[None, :] & (k + depth < K)[:, None], other=0.0)
            total = tl.dot(x, y, total, input_precision="ieee")
    total *= tl.load(scale_a) * tl.load(scale_b)
    at = rows.to(tl.int64)[:, None] * N + columns[None, :]
    tl.store(product + at, total, mask=(rows < M)[:, None] & (columns < N)[None, :])


def product_launch(
    a: Any, b: Any, product: Any, scale_a: Any, scale_b: Any, accumulation: str, num_warps: int,
    num_stages: int,
) -> Launch:  # fmt: skip
    """Return the launch that writes product = scale_a scale_b (a @ b^T), tensors as the kernel takes them."""
    (m, k), n = a.shape, b.shape[0]
    constants = {"TILE": TILE, "DEPTH": DEPTH, "PROMOTED": PROMOTED, "FULL": accumulation == "full"}
    grid = triton.cdiv(n, TILE), triton.cdiv(m, TILE)
    args = a, b, product, scale_a, scale_b, m, n, k
    return Launch(matmul_fp8, grid, args, constants, num_warps, num_stages)


def launches(options: Any, arrays: Arrays, num_warps: int = 8, num_stages: int = 3) -> list[Launch]:
    """Return the one launch."""
    a, b, scale_a, scale_b = (arrays[name] for name in ("a", "b", "scale_a", "scale_b"))
    product = arrays.output("product")
    return [product_launch(a, b, product, scale_a, scale_b, options.accumulation, num_warps, num_stages)]
