"""Numbers of which a row has one, in Triton: loaded once a block, or moved by a warp for each row.

Left to itself Triton repeats a load of fewer elements than a block has threads in each of its warps, and
stores neighbouring rows by one request, where a kernel with a warp a row has a request for each.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_once(pointer, first, end, SIZE: tl.constexpr, THREADS: tl.constexpr):
    """Return SIZE numbers from pointer[first] on, 0 from pointer[end] on, loaded once a block."""
    at = tl.arange(0, SIZE if SIZE > THREADS else THREADS)
    values = tl.load(pointer + first + at, mask=(at < SIZE) & (first + at < end), other=0)
    return tl.gather(values, tl.arange(0, SIZE), 0)


@triton.jit
def load_by_warp(pointer, at, mask, ROWS: tl.constexpr):
    """Return pointer[at] of ROWS rows, 0 where the mask (ROWS,) is not set, a request a row."""
    lane = tl.arange(0, 32 * ROWS)
    row = lane // 32
    own = (lane % 32 == 0) & (tl.gather(mask.to(tl.int32), row, 0) > 0)
    return tl.gather(tl.load(pointer + tl.gather(at, row, 0), mask=own, other=0), 32 * tl.arange(0, ROWS), 0)


@triton.jit
def store_by_warp(pointer, at, values, mask, ROWS: tl.constexpr):
    """Store values of ROWS rows to pointer[at] where the mask (ROWS,) is set, a request a row."""
    lane = tl.arange(0, 32 * ROWS)
    row = lane // 32
    own = (lane % 32 == 0) & (tl.gather(mask.to(tl.int32), row, 0) > 0)
    tl.store(pointer + tl.gather(at, row, 0), tl.gather(values, row, 0), mask=own)
