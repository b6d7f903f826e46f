"""The device between launches: its memory and caches, arrays that stay on it, and where arguments go.

What it models: one simulated GPU, from launch to launch. Arguments are placed in order, so addresses depend
on their sizes alone. What it leaves out: running anything (dsl/host/launch.py). Checked by no metric of its
own.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dsl.host.array_views import ArrayViews
from dsl.types import leaves, rebuilt
from dsl.warpir import ir
from gpusim import session
from gpusim.arch import Arch
from gpusim.errors import BadOption, LaunchRefused
from gpusim.memory import ALIGNMENT, GlobalMemory, VirtualArray, owner_of

QUANTUM_RECORDS = 32
"""Records a block replays before its neighbours take a turn (modelled): about a tile row of 32 requests."""


class Device:
    """Hold a simulated GPU between launches: its memory and its caches.

    arch: the GPU. l2: "cold" empties the caches before each launch, as ncu does; "warm" keeps L2 as the
    previous launch left it. quantum_records: how many trace records a block replays in one turn (modelled).
    threads: host threads of the compiled engine, None for one a core; counts do not depend on it.
    atomic_order: a seed; the blocks of a wave then run in an order of its own, and so do their atomics (None:
    in the order of their numbers). Counts do not depend on it either.
    """

    def __init__(
        self,
        arch: Arch,
        l2: str = "cold",
        quantum_records: int = QUANTUM_RECORDS,
        threads: int | None = None,
        atomic_order: int | None = None,
    ) -> None:
        if l2 not in ("cold", "warm"):
            raise BadOption(f"l2 is {l2!r}; it must be 'cold' or 'warm'")
        self.arch, self.l2, self.quantum_records = arch, l2, quantum_records
        self.threads = threads or host_cores()
        self.atomic_order = atomic_order
        self.memory = GlobalMemory()

    @cached_property
    def hierarchy(self) -> Any:
        """Return the caches (imported and made at the first launch that replays)."""
        from gpusim.hierarchy import MemorySystem

        return MemorySystem(self.arch, self.l2)


def host_cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class DeviceArray(ArrayViews):
    """Be an array in the device's memory: what `cuda.to_device` and `cuda.device_array` return.

    Indexing and numpy functions see the device's data directly; `copy_to_host` gives a numpy array of its
    own.
    """

    def __init__(
        self, device: Device, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None = None
    ) -> None:
        """Allocate an array; strides in bytes, of elements side by side in some order, None for C order."""
        whole, element = tuple(int(n) for n in shape), np.dtype(dtype)
        self.memory = device.memory
        address = self.memory.alloc(int(np.prod(whole, dtype=np.int64)) * element.itemsize)
        self._show(self.memory.view(address, whole, element, strides), address)

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """Return a copy as a numpy array in the same order of axes, or fill `ary` and return it."""
        if ary is None:
            return self._view.copy(order="K")
        if ary.shape != self.shape:
            raise LaunchRefused(f"copy_to_host: the array has the shape {ary.shape}, the device's "
                                f"{self.shape}")
        ary[...] = self._view
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Fill the array from a host array or another device array."""
        self._view[...] = ary._view if isinstance(ary, DeviceArray) else ary

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Let numpy read the array."""
        return self._view.astype(dtype) if dtype is not None else self._view.copy()

    def __len__(self) -> int:
        """Return the extent of the first dimension."""
        return len(self._view)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write elements from the host."""
        self._view[index] = value


@dataclass
class Placed:
    """Hold a launch's arguments on the device: parameters by name, and the host arrays to copy back."""

    params: dict[str, int | float]
    copies: list[tuple[np.ndarray, np.ndarray]]
    nonnegative: frozenset[str]


def place_arguments(
    fn: ir.Function, args: tuple[Any, ...], memory: GlobalMemory, with_data: bool = True
) -> Placed:
    """Place arguments on the device in order, and copy their data.

    One host array passed twice (or two views of it) has one place.
    """
    params: dict[str, int | float] = {}
    copies: list[tuple[np.ndarray, np.ndarray]] = []
    nonnegative = []
    owners: dict[int, tuple[int, int]] = {}
    for param, (_, value) in zip(fn.params, leaves(args), strict=True):
        if param.ndim is None:
            params[param.name] = value.item() if isinstance(value, np.generic) else value
            if param.type[0] in "su" and params[param.name] >= 0:
                nonnegative.append(param.name)
            continue
        address, strides = _place_array(value, memory, owners)
        if with_data and isinstance(value, np.ndarray):
            view = memory.view(address, value.shape, value.dtype, strides)
            view[...] = value
            if value.flags.writeable:
                copies.append((value, view))
        params[f"{param.name}.base"] = address
        params.update({f"{param.name}.shape.{k}": int(n) for k, n in enumerate(value.shape)})
        params.update({f"{param.name}.stride.{k}": int(s) for k, s in enumerate(strides)})
    return Placed(params, copies, frozenset(nonnegative))


def _place_array(
    value: Any, memory: GlobalMemory, owners: dict[int, tuple[int, int]]
) -> tuple[int, tuple[int, ...]]:
    """Return the address and byte strides of an array on the device.

    `owners` maps what is placed to (address, host address).
    """
    if isinstance(value, DeviceArray):
        if value.memory is not memory:
            raise LaunchRefused(
                "a device array belongs to another simulated GPU; "
                "make it in the session that launches the kernel"
            )
        return value.address, value.strides
    if isinstance(value, VirtualArray):
        if id(value) not in owners:
            owners[id(value)] = (memory.alloc(value.nbytes), 0)
        return owners[id(value)][0], value.strides
    owner = owner_of(value)
    low, high = np.lib.array_utils.byte_bounds(owner)
    if id(owner) not in owners:
        owners[id(owner)] = (memory.alloc(high - low), low)
    base, start = owners[id(owner)]
    return base + int(value.__array_interface__["data"][0]) - start, value.strides


def private_copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments whose arrays are copies.

    Views of one array are views of one copy, at the same places in it.
    """
    roots: dict[int, tuple[np.ndarray, int]] = {}
    return tuple(_private_copy(value, roots) for value in args)


def _private_copy(value: Any, roots: dict[int, tuple[np.ndarray, int]]) -> Any:
    """Return an argument with copies of its arrays; `roots` maps what is copied to (copy, host address)."""
    if isinstance(value, tuple):
        return rebuilt(value, [_private_copy(item, roots) for item in value])
    if isinstance(value, np.void):
        value = np.asarray(value)
    array = value._view if isinstance(value, DeviceArray) else value
    if not isinstance(array, np.ndarray):
        return array
    owner = array if isinstance(value, DeviceArray) else owner_of(array)
    low, high = np.lib.array_utils.byte_bounds(owner)
    if isinstance(value, DeviceArray):
        low -= value.address % ALIGNMENT  # a view keeps its place in a sector
    if id(owner) not in roots:
        roots[id(owner)] = np.frombuffer(bytearray(ctypes.string_at(low, high - low)), np.uint8), low
    root, start = roots[id(owner)]
    offset = int(array.__array_interface__["data"][0]) - start
    return np.ndarray(array.shape, array.dtype, root, offset, array.strides)


def session_device() -> Device:
    """Return the device of the current session, made at its first use."""
    now = session.current()
    if now.device is None:
        now.device = Device(now.arch, now.l2)
    return now.device
