"""Constant memory: how many times the constant cache has to answer one warp instruction.

What it models: the cache gives one address to all lanes that want it; lanes with other addresses wait, so a
request takes as many turns as it has different addresses. What it leaves out: hits and misses of the
constant caches. Checked by no metric of its own; requests are `smsp__inst_executed_op_ldc`.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.np.numpy_support import carray

from gpusim.runtime import c_entry, jit


@jit
def different_addresses(addresses: np.ndarray, mask: np.uint32) -> int:
    """Return how many different addresses the active lanes want (int64, shape (32,)); 0 for no lane."""
    count = 0
    for lane in range(32):
        fresh = mask >> np.uint32(lane) & np.uint32(1)
        for before in range(lane):
            active = mask >> np.uint32(before) & np.uint32(1)
            if active and addresses[before] == addresses[lane]:
                fresh = np.uint32(0)
        count += 1 if fresh else 0
    return count


@c_entry(types.int64(types.CPointer(types.int64), types.uint32))
def different_addresses_entry(addresses, mask):  # type: ignore[no-untyped-def]
    """Call `different_addresses` with a raw pointer."""
    return different_addresses(carray(addresses, 32), mask)
