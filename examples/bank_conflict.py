"""A kernel with a bank conflict that the report lets you find, and the same kernel without it.

`column_sum` adds up the columns of a matrix. A block stages 32 x 32 elements in shared memory and, as one
would for the cache of a CPU, turns each column into a row of the tile, so that a thread then reads along a
row. Global loads are perfect: 4 sectors a request. But the 32 lanes of a warp now stand 32 words apart in
shared memory, in one bank of the 32.

    python cli.py simulate examples/bank_conflict.py:column_sum ...   (whole command: README.md)

What to look at: Shared Load and Shared Store Bank Conflicts. `column_sum_padded` differs by one number: rows
of 33 words. Then lane l stands in bank (l * 33 + j) % 32 = (l + j) % 32, all different.
"""

import numpy as np

from dsl import cuda


@cuda.jit
def column_sum(a, sums):
    """Write the sum of each column of a (rows x columns) to sums; block (32, 8), grid ceil(columns / 32)."""
    tile = cuda.shared.array((32, 32), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column = cuda.blockIdx.x * 32 + x
    total = np.float32(0)
    for top in range(0, a.shape[0], 32):
        for j in range(y, 32, 8):
            inside = top + j < a.shape[0] and column < a.shape[1]
            tile[x, j] = a[top + j, column] if inside else np.float32(0)
        cuda.syncthreads()
        if y == 0:
            for j in range(32):
                total += tile[x, j]
        cuda.syncthreads()
    if y == 0 and column < a.shape[1]:
        sums[column] = total


@cuda.jit
def column_sum_padded(a, sums):
    """Do what column_sum does with rows of 33 words: no two lanes of a warp meet in a bank."""
    tile = cuda.shared.array((32, 33), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column = cuda.blockIdx.x * 32 + x
    total = np.float32(0)
    for top in range(0, a.shape[0], 32):
        for j in range(y, 32, 8):
            inside = top + j < a.shape[0] and column < a.shape[1]
            tile[x, j] = a[top + j, column] if inside else np.float32(0)
        cuda.syncthreads()
        if y == 0:
            for j in range(32):
                total += tile[x, j]
        cuda.syncthreads()
    if y == 0 and column < a.shape[1]:
        sums[column] = total
