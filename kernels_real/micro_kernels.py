"""Kernels that show one mechanism of the caches each: capacity, replacement, merging of reads, dirty lines.

What they leave out: shared memory and atomics (tests/data/h200_micro.csv has those of a CUDA program). Sums
that nobody needs are stored, 4 bytes a thread, so that no compiler drops the loads.
"""

from __future__ import annotations

from numpy import float32

from dsl import cuda


@cuda.jit
def read_slices(a, n, passes, out):
    """Read n elements of a block's own slice, several times: how much L1 keeps. Grid any, block any."""
    first = cuda.blockIdx.x * n
    total = float32(0)
    for _ in range(passes):
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            total += a[first + i]
    out[cuda.grid(1)] = total


@cuda.jit
def read_slices_beside_shared(a, n, passes, out):
    """Read as read_slices does, with dynamic shared memory, which takes its part of L1."""
    beside = cuda.shared.array(0, float32)
    first = cuda.blockIdx.x * n
    total = float32(0)
    for _ in range(passes):
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            total += a[first + i]
    beside[cuda.threadIdx.x] = total
    out[cuda.grid(1)] = total


@cuda.jit
def read_in_strides(a, n, passes, out):
    """Read n elements, the grid's threads side by side, several times: an SM reads the same ones again."""
    total = float32(0)
    for _ in range(passes):
        for i in range(cuda.grid(1), n, cuda.gridsize(1)):
            total += a[i]
    out[cuda.grid(1)] = total


@cuda.jit
def read_together(a, n, passes, apart, out):
    """Read the same n elements in all blocks, block b beginning at element b * apart: what SMs share."""
    start = cuda.blockIdx.x * apart % n
    total = float32(0)
    for _ in range(passes):
        for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            j = i + start
            if j >= n:
                j -= n
            total += a[j]
    out[cuda.grid(1)] = total


@cuda.jit
def write_in_strides(a, n):
    """Write n elements: how much stays dirty."""
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        a[i] = float32(i)


@cuda.jit
def copy_sums(a, b, n, reads):
    """Read `reads` elements for each one that is written: how much stays dirty beside what is read."""
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        total = float32(0)
        for r in range(reads):
            total += a[i + r * n]
        b[i] = total


@cuda.jit
def write_then_read(a, n, out):
    """Write n elements, then read them in the same threads: dirty lines that are read."""
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        a[i] = float32(i)
    total = float32(0)
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        total += a[i]
    out[cuda.grid(1)] = total


@cuda.jit
def write_in_parts(a, n, stride, count):
    """Write the first `count` of every `stride` elements: stores of parts of a sector and of a line."""
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        if i % stride < count:
            a[i] = float32(i)


@cuda.jit
def read_behind(a, n, delay, out):
    """Read the same n elements in all blocks, block b after b * delay turns of a loop without memory."""
    x = float32(1)
    for _ in range(cuda.blockIdx.x * delay):
        x = x * float32(1.0001) + float32(0.5)
    total = float32(0)
    for i in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        total += a[i]
    out[cuda.grid(1)] = total + x
