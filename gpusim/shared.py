"""Shared memory: the wavefronts that one warp access takes through the 32 banks of 4 bytes.

What it models: lanes that want different words of one bank wait for one another, lanes that want the same
word do not. 8-byte accesses go by halves of a warp, 16-byte ones by quarters. Two halves of a load (two
quarters of one half) go together when all lanes l and l ^ 1, or all lanes l and l ^ 2, read the same
element; a lane that is off agrees with any. Stores never go together (measured on an H200, every pattern of
h200 fact 17 is a test). What it leaves out: the card's arbitration, up to 6 % more. Checked by
`l1tex__data_pipe_lsu_wavefronts_mem_shared_op_*`.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.np.numpy_support import carray

from gpusim.runtime import c_entry, jit, popcount, signed, trailing_zeros

ROW_SHIFT = 7
"""log2 of the bytes that all banks hold side by side."""


@jit
def _width_shift(bytes_per_lane: int) -> int:
    """Return log2 of what one lane takes of the banks: at least one of them, at most four."""
    return 4 if bytes_per_lane >= 16 else 3 if bytes_per_lane == 8 else 2


@jit
def _lanes_of_bank(addresses: np.ndarray, shift: int, bank: int) -> np.uint32:
    """Return the lanes whose element lies in a bank (of elements of 1 << shift bytes)."""
    lanes = np.uint32(0)
    last = (1 << (ROW_SHIFT - shift)) - 1
    for lane in range(32):
        same = (addresses[lane] >> shift) & last == bank
        lanes |= np.uint32(1) << np.uint32(lane) if same else np.uint32(0)
    return lanes


@jit
def _lanes_of_element(addresses: np.ndarray, shift: int, element: int) -> np.uint32:
    """Return the lanes that want one element."""
    lanes = np.uint32(0)
    for lane in range(32):
        same = addresses[lane] >> shift == element
        lanes |= np.uint32(1) << np.uint32(lane) if same else np.uint32(0)
    return lanes


@jit
def _banks_used(addresses: np.ndarray, mask: np.uint32, shift: int) -> np.uint32:
    """Return the banks that active lanes want, as bits."""
    used = np.uint32(0)
    last = (1 << (ROW_SHIFT - shift)) - 1
    for lane in range(32):
        bank = np.uint32((addresses[lane] >> shift) & last)
        active = mask >> np.uint32(lane) & np.uint32(1)
        used |= active << bank
    return used


@jit
def _distinct(addresses: np.ndarray, lanes: np.uint32, shift: int) -> int:
    """Return how many different elements some lanes want."""
    count = 0
    while lanes != 0:
        lanes &= ~_lanes_of_element(addresses, shift, addresses[trailing_zeros(lanes)] >> shift)
        count += 1
    return count


@jit
def _without_repeats(addresses: np.ndarray, mask: np.uint32, shift: int) -> np.uint32:
    """Drop lanes that want what an active lane 1, 2, 4, 8 or 16 before them wants: lane / k and lane % k."""
    repeats = np.uint32(0)
    for distance in (1, 2, 4, 8, 16):
        for lane in range(32):
            before = lane - distance if lane >= distance else 0
            both = mask >> np.uint32(lane) & mask >> np.uint32(before) & np.uint32(lane >= distance)
            repeats |= (
                both << np.uint32(lane)
                if addresses[lane] >> shift == addresses[before] >> shift
                else np.uint32(0)
            )
    return mask & ~repeats


@jit
def _passes(addresses: np.ndarray, mask: np.uint32, shift: int) -> int:
    """Return the largest number of different elements of one bank that active lanes want; 0 for no lane."""
    banks = popcount(_banks_used(addresses, mask, shift))
    if banks == popcount(mask):
        return signed(mask != 0)
    mask = _without_repeats(addresses, mask, shift)
    if banks == popcount(mask):
        return 1
    most = 0
    while mask != 0:
        bank = (addresses[trailing_zeros(mask)] >> shift) & ((1 << (ROW_SHIFT - shift)) - 1)
        lanes = mask & _lanes_of_bank(addresses, shift, bank)
        mask &= ~lanes
        most = max(most, _distinct(addresses, lanes, shift) if popcount(lanes) > most else 0)
    return most


@jit
def _partners_agree(addresses: np.ndarray, mask: np.uint32, shift: int, distance: int) -> bool:
    """Say whether each active lane and its partner lane ^ distance, if active, want the same element."""
    differ = np.uint32(0)
    for lane in range(32):
        partner = lane ^ distance
        both = mask >> np.uint32(lane) & mask >> np.uint32(partner) & np.uint32(1)
        differ |= both if addresses[lane] >> shift != addresses[partner] >> shift else np.uint32(0)
    return differ == 0


@jit
def _split(addresses: np.ndarray, mask: np.uint32, shift: int, low: np.uint32, is_load: bool) -> int:
    """Return the wavefronts of the lanes in `mask`, which go in two groups unless a load merges them.

    low: the lanes of the first group.
    """
    if is_load:
        for distance in (1, 2):
            if _partners_agree(addresses, mask, shift, distance):
                return _passes(addresses, mask, shift)
    first, second = np.uint32(mask & low), np.uint32(mask & ~low)
    return _passes(addresses, first, shift) + _passes(addresses, second, shift)


@jit
def wavefronts(addresses: np.ndarray, mask: np.uint32, bytes_per_lane: int, is_load: bool) -> int:
    """Return the wavefronts of one shared load or store; 0 where no lane is active.

    addresses: int64, shape (32,), byte offsets of aligned elements. bytes_per_lane: 1, 2, 4, 8 or 16.
    """
    lanes = np.uint32(mask)
    shift = _width_shift(bytes_per_lane)
    if shift == 2:
        return _passes(addresses, lanes, shift)
    if shift == 3:
        return _split(addresses, lanes, shift, np.uint32(0x0000FFFF), is_load)
    # numba makes 64 bits of lanes & mask: as such each function below would be compiled a second time.
    first, second = np.uint32(lanes & np.uint32(0x0000FFFF)), np.uint32(lanes & np.uint32(0xFFFF0000))
    low = np.uint32(0x00FF00FF)
    return _split(addresses, first, shift, low, is_load) + _split(addresses, second, shift, low, is_load)


@jit
def ideal_wavefronts(mask: np.uint32, bytes_per_lane: int) -> int:
    """Return the wavefronts of these lanes at consecutive addresses: parts of a warp with an active lane.

    A load whose parts merge takes fewer, as `wavefronts` says: all lanes on one element of 8 bytes take 1,
    and 2 here. gpusim/metric.py clamps the difference (bank conflicts) at 0.
    """
    lanes = np.uint32(mask)
    shift = _width_shift(bytes_per_lane)
    parts, width = 1 << (shift - 2), 32 >> (shift - 2)
    count = 0
    for part in range(parts):
        group = np.uint32(0xFFFFFFFF) >> np.uint32(32 - width) << np.uint32(part * width)
        count += 1 if lanes & group else 0
    return count


@jit
def atomic_wavefronts(addresses: np.ndarray, mask: np.uint32, bytes_per_lane: int) -> int:
    """Return the wavefronts of one shared atomic: banks decide, equal addresses are free (fact 18)."""
    return wavefronts(addresses, mask, bytes_per_lane, False)


@jit
def matrix_wavefronts(addresses: np.ndarray, matrices: int) -> int:
    """Return the wavefronts of one ldmatrix: those of each matrix's 8 rows of 16 bytes (h200 fact 36).

    addresses: int64, shape (32,); lanes 8 i to 8 i + 7 give the rows of matrix i.
    """
    total = 0
    for matrix in range(matrices):
        total += _passes(addresses, np.uint32(0xFF) << np.uint32(8 * matrix), 4)
    return total


@c_entry(types.int64(types.CPointer(types.int64), types.int64))
def matrix_wavefronts_entry(addresses, matrices):  # type: ignore[no-untyped-def]
    """Call `matrix_wavefronts` with a raw pointer."""
    return matrix_wavefronts(carray(addresses, 32), matrices)


@c_entry(types.int64(types.CPointer(types.int64), types.uint32, types.int64, types.int64))
def wavefronts_entry(addresses, mask, bytes_per_lane, is_load):  # type: ignore[no-untyped-def]
    """Call `wavefronts` with a raw pointer."""
    return wavefronts(carray(addresses, 32), mask, bytes_per_lane, is_load != 0)


@c_entry(types.int64(types.CPointer(types.int64), types.uint32, types.int64))
def atomic_wavefronts_entry(addresses, mask, bytes_per_lane):  # type: ignore[no-untyped-def]
    """Call `atomic_wavefronts` with a raw pointer."""
    return atomic_wavefronts(carray(addresses, 32), mask, bytes_per_lane)


@jit
def copy_wavefronts(
    source: np.ndarray, target: np.ndarray, mask: np.uint32, reading: np.uint32, bytes_per_lane: int
) -> int:
    """Return wavefronts | ideal ones << 32 of a cp.async through L1 (h200 fact 37).

    Each half or quarter of the warp takes as many as lanes meet in a bank, at `target` those in `mask`, at
    `source` those in `reading`, whichever is more; both int64, shape (32,). Equal addresses do not merge.
    """
    shift = _width_shift(bytes_per_lane)
    width, taken = 32 >> (shift - 2), 0
    for first in range(0, 32, width):
        group = np.uint32(0xFFFFFFFF) >> np.uint32(32 - width) << np.uint32(first)
        taken += max(_crowd(target, mask & group, shift), _crowd(source, reading & group, shift))
    return taken | min(taken, ideal_wavefronts(mask, bytes_per_lane)) << 32


@jit
def _crowd(addresses: np.ndarray, mask: np.uint32, shift: int) -> int:
    """Return the largest number of active lanes whose elements lie in one bank."""
    most, rest = 0, np.uint32(mask)
    while rest != 0:
        bank = (addresses[trailing_zeros(rest)] >> shift) & ((1 << (ROW_SHIFT - shift)) - 1)
        lanes = rest & _lanes_of_bank(addresses, shift, bank)
        rest &= ~lanes
        most = max(most, popcount(lanes))
    return most


@c_entry(
    types.int64(
        types.CPointer(types.int64), types.CPointer(types.int64), types.uint32, types.uint32, types.int64
    )
)
def copy_wavefronts_entry(source, target, mask, reading, bytes_per_lane):  # type: ignore[no-untyped-def]
    """Call `copy_wavefronts` with raw pointers."""
    return copy_wavefronts(carray(source, 32), carray(target, 32), mask, reading, bytes_per_lane)
