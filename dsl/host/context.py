"""The device and its context as host code sees them, under numba.cuda's names.

What it models: what `cuda.get_current_device()` answers for the GPU of the current session, from its `Arch`.
What it leaves out: a second device, and attributes that no `Arch` holds; each is refused by name. Checked by
no metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dsl.host.missing import missing
from gpusim import session
from gpusim.arch import Arch
from gpusim.errors import BadOption

KHZ = 1000
CONSTANT_BYTES = 65536
"""CUDA C++ Programming Guide, table Technical Specifications: 64 KB of constant memory, all capabilities."""

ATTRIBUTES: dict[str, Callable[[Arch], int]] = {
    "MAX_THREADS_PER_BLOCK": lambda a: a.max_threads_per_block,
    "MAX_BLOCK_DIM_X": lambda a: a.max_block_dim[0],
    "MAX_BLOCK_DIM_Y": lambda a: a.max_block_dim[1],
    "MAX_BLOCK_DIM_Z": lambda a: a.max_block_dim[2],
    "MAX_GRID_DIM_X": lambda a: a.max_grid_dim[0],
    "MAX_GRID_DIM_Y": lambda a: a.max_grid_dim[1],
    "MAX_GRID_DIM_Z": lambda a: a.max_grid_dim[2],
    "MAX_SHARED_MEMORY_PER_BLOCK": lambda a: a.shared_bytes_static_limit,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": lambda a: a.shared_bytes_per_block_optin,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": lambda a: a.shared_bytes_per_sm,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": lambda a: a.shared_reserved_bytes,
    "MAX_REGISTERS_PER_BLOCK": lambda a: a.registers_per_sm,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": lambda a: a.registers_per_sm,
    "MAX_THREADS_PER_MULTI_PROCESSOR": lambda a: a.max_threads_per_sm,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": lambda a: a.max_blocks_per_sm,
    "MULTIPROCESSOR_COUNT": lambda a: a.sm_count,
    "WARP_SIZE": lambda a: a.warp_size,
    "CLOCK_RATE": lambda a: a.sm_clock_hz // KHZ,
    "MEMORY_CLOCK_RATE": lambda a: a.memory_clock_hz // KHZ,
    "GLOBAL_MEMORY_BUS_WIDTH": lambda a: a.memory_bus_bits,
    "L2_CACHE_SIZE": lambda a: a.l2_bytes,
    "TOTAL_CONSTANT_MEMORY": lambda a: CONSTANT_BYTES,
    "COMPUTE_CAPABILITY_MAJOR": lambda a: int(a.compute_capability.split(".")[0]),
    "COMPUTE_CAPABILITY_MINOR": lambda a: int(a.compute_capability.split(".")[1]),
}
"""The driver's name of a device attribute -> what an `Arch` says; clocks are in kHz."""


class MemoryInfo(NamedTuple):
    """Hold the free and all bytes of the simulated address space."""

    free: int
    total: int


class SimulatedDevice:
    """Be the session's GPU: `cuda.get_current_device()`; also a context manager, as `cuda.gpus[0]` is."""

    id = 0

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        self.name = arch.title
        self.compute_capability = tuple(map(int, arch.compute_capability.split(".")))

    def __getattr__(self, name: str) -> int:
        """Return a device attribute by the driver's name; raise MissingName for one that no Arch holds."""
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in ATTRIBUTES:
            raise missing(f"get_current_device().{name}", f"there are {', '.join(ATTRIBUTES)}")
        return ATTRIBUTES[name](self._arch)

    def get_primary_context(self) -> Context:
        """Return the context."""
        return Context(self)

    def reset(self) -> None:
        """Return at once; arrays stay where they are."""

    def __enter__(self) -> SimulatedDevice:
        """Enter a block that uses this device, the only one there is."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the block."""

    def __repr__(self) -> str:
        return f"<simulated CUDA device 0 '{self.name}'>"


class Context:
    """Be the context of the simulated device."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device

    def get_memory_info(self) -> MemoryInfo:
        """Return the free and all bytes of the simulated address space (not of the card's HBM)."""
        from dsl.host.device import session_device

        memory = session_device().memory
        return MemoryInfo(memory.capacity_bytes - memory.mark(), memory.capacity_bytes)

    def synchronize(self) -> None:
        """Return at once: every launch is done when it returns."""

    def reset(self) -> None:
        """Return at once; arrays stay where they are."""


class Gpus:
    """Be the list of devices, `cuda.gpus`: the one that the session simulates."""

    def __getitem__(self, number: int) -> SimulatedDevice:
        """Return device 0; raise BadOption for another number."""
        if number not in (0, -1):
            raise BadOption(f"there is one simulated GPU, number 0; device {number!r} was asked for")
        return SimulatedDevice(session.current().arch)

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[SimulatedDevice]:
        return iter([self[0]])

    @property
    def lst(self) -> list[SimulatedDevice]:
        """Return the devices as a list."""
        return list(self)

    @property
    def current(self) -> SimulatedDevice:
        """Return the device."""
        return self[0]

    def __repr__(self) -> str:
        return ", ".join(map(repr, self))


gpus = Gpus()


def get_current_device() -> SimulatedDevice:
    """Return the GPU of the current session."""
    return gpus[0]


def list_devices() -> Gpus:
    """Return the devices."""
    return gpus


def select_device(device_id: int) -> Context:
    """Return the context of device 0; raise BadOption for another number."""
    return Context(gpus[device_id])


def current_context(devnum: int | None = None) -> Context:
    """Return the context of the session's GPU; raise BadOption for another device than 0."""
    return Context(gpus[devnum or 0])


def close() -> None:
    """Return at once; arrays stay where they are."""


def is_float16_supported() -> bool:
    """Tell whether the current device computes with float16 (compute capability 5.3 and later)."""
    return get_current_device().compute_capability >= (5, 3)


def is_bfloat16_supported() -> bool:
    """Tell whether the current device computes with bfloat16 (compute capability 8.0 and later)."""
    return get_current_device().compute_capability >= (8, 0)


def is_fp8_supported() -> bool:
    """Tell whether the current device converts 8-bit floats (compute capability 8.9 and later)."""
    return get_current_device().compute_capability >= (8, 9)


def detect() -> bool:
    """Print the devices there are and return True."""
    device: Any = gpus[0]
    major, minor = device.compute_capability
    print(f"Found 1 CUDA device\nid 0    {device.name} (simulated)    [SUPPORTED]\n"
          f"        Compute Capability: {major}.{minor}")
    return True
