"""Global memory: one byte-addressed space, 256-byte aligned allocations, and views of it as arrays.

What it models: the addresses that kernels use; they depend on the order and sizes of allocations alone, never
on the host. What it leaves out: paging, and any limit but the capacity. Addresses feed `l1tex__t_sectors_*`
(alignment decides sectors).
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.errors import LaunchRefused

ALIGNMENT = 256
MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
"""Python names the flag from 3.13 on; without it Linux refuses an arena larger than its memory."""
FIRST_ADDRESS = 1 << 20
CAPACITY_BYTES = 1 << 37
"""128 GiB of address space; pages are committed when first touched, so untouched arrays cost nothing."""

LEAST_BYTES = 1 << 28
"""256 MiB: with less address space nothing worth simulating fits."""
LOCAL_BASE = CAPACITY_BYTES
"""Where the addresses of threads' local memory begin: above every global address."""


@dataclass(frozen=True)
class VirtualArray:
    """Stand for a C-contiguous array without storage: it decides addresses, and nothing can read it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Return the bytes the array would take."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the byte strides of the C-contiguous layout."""
        steps, step = [], self.dtype.itemsize
        for extent in reversed(self.shape):
            steps.append(step)
            step *= extent
        return tuple(reversed(steps))


def _reserve(nbytes: int) -> mmap.mmap:
    """Return lazily committed pages; half as many as long as the host refuses (a limit on address space)."""
    least = min(nbytes, LEAST_BYTES)
    while nbytes >= least:
        with suppress(OSError):
            return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        nbytes //= 2
    raise LaunchRefused(f"the host gives less than {least} bytes of address space; raise ulimit -v")


class GlobalMemory:
    """Hold the device's memory: an arena of lazily committed pages, addressed from FIRST_ADDRESS."""

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self._arena = _reserve(capacity_bytes)
        self._bytes = np.frombuffer(self._arena, np.uint8)
        self._next = FIRST_ADDRESS

    @property
    def base_pointer(self) -> int:
        """Return the host pointer of address 0."""
        return int(self._bytes.ctypes.data)

    @property
    def capacity_bytes(self) -> int:
        """Return the size of the address space."""
        return len(self._bytes)

    def alloc(self, nbytes: int) -> int:
        """Return the address of a new allocation; raise LaunchRefused when the space is used up."""
        address = self._next
        self._next += max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        if self._next > len(self._bytes):
            left = f"{len(self._bytes) - address} left of {len(self._bytes)}"
            raise LaunchRefused(f"global memory is full: {nbytes} bytes asked for, {left}")
        return address

    def mark(self) -> int:
        """Return the present end of the allocations, for `release`."""
        return self._next

    def release(self, mark: int) -> None:
        """Give back everything allocated since `mark`, in one step."""
        self._next = mark

    def view(
        self, address: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None
    ) -> np.ndarray:
        """Return the array that lies at an address, sharing its storage."""
        return np.ndarray(shape, dtype, self._bytes, address, strides)


def owner_of(array: np.ndarray) -> np.ndarray:
    """Return the array whose storage a view shows (itself if it is none)."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
