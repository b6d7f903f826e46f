"""What a kernel of this package gives to the rest: options, launches, a reference and closed forms.

A kernel file ends with `SPEC = KernelSpec(...)`; kernels_sim/__init__.py finds it by its name. The command
line makes its options from the fields of `Options`, and a test walks the registry: counted == closed form,
result == reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusim.errors import LaunchRefused
from gpusim.launch import Fact
from gpusim.memory import CAPACITY_BYTES, VirtualArray


@dataclass(frozen=True)
class Step:
    """Describe one launch of a problem: kernel[grid, block, 0, shared_bytes](*args).

    closed_form: counter path -> exact integer (paths as in gpusim.launch.Launch). registers: from ptxas, None
    if not recorded; registers_source says which compiler, version and target.
    """

    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Any, ...]
    shared_bytes: int = 0
    closed_form: dict[str, int] = field(default_factory=dict)
    registers: int | None = None
    registers_source: str = ""


@dataclass
class Problem:
    """Hold one problem ready to run: its launches in order, its outputs by name, and how to check them.

    outputs: the arrays that the launches fill (pre-filled with NaN, or zero for accumulators). reference:
    returns the same names in float64; None where the data are virtual. tolerance: of the error
    max|x - ref| / max(1, max|ref|). facts: what the algorithm says of itself, over all launches together.
    options and inputs: what it was built from, and the arrays that the launches read, by name, so that
    another backend can run the same problem. summed: how large the terms are that outputs add up, by name,
    where they cancel; asked where an error is beyond the tolerance, and the error is relative to them then.
    unrounded: 8-bit outputs by name before they were rounded, in float64; asked likewise, for what another
    order of a sum rounds to the neighbour.
    """

    name: str
    steps: tuple[Step, ...]
    outputs: dict[str, Any]
    reference: Callable[[], dict[str, np.ndarray]] | None = None
    tolerance: float = 1e-5
    facts: tuple[Fact, ...] = ()
    options: Any = None
    inputs: dict[str, Any] = field(default_factory=dict)
    summed: Callable[[], dict[str, float]] | None = None
    unrounded: Callable[[], dict[str, np.ndarray]] | None = None


@dataclass(frozen=True)
class KernelSpec:
    """Register a kernel: its name, a sentence for `list`, the frozen dataclass of its options, its builder.

    Each field of `options` has a default and metadata {"help": sentence}; its name is the option's name.
    `build(options, data)` raises gpusim.errors.BadOption for values that the kernel cannot take.
    """

    name: str
    summary: str
    options: type
    build: Callable[[Any, Data], Problem]


class Data:
    """Make a problem's arrays: seeded random numbers, or arrays without storage where counts are enough.

    Raises LaunchRefused, before anything is made, for arrays that together exceed the simulated memory.
    """

    def __init__(self, seed: int = 0, virtual: bool = False) -> None:
        self.virtual = virtual
        self._rng = np.random.default_rng(seed)
        self._nbytes = 0

    def normal(self, *shape: int, dtype: Any = np.float32) -> Any:
        """Return N(0, 1) numbers of a shape."""
        return self._made(shape, dtype, lambda: self._rng.standard_normal(shape).astype(dtype))

    def integers(self, low: int, high: int, *shape: int, dtype: Any = np.int32) -> Any:
        """Return integers in [low, high)."""
        return self._made(shape, dtype, lambda: self._rng.integers(low, high, shape).astype(dtype))

    def filled(self, value: float, *shape: int, dtype: Any = np.float32) -> Any:
        """Return an array filled with one value (NaN for an output that must be written whole)."""
        return self._made(shape, dtype, lambda: np.full(shape, value, dtype))

    def _made(self, shape: tuple[int, ...], dtype: Any, make: Callable[[], np.ndarray]) -> Any:
        """Return the array, or one without storage, if it fits beside those made before."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        self._nbytes += nbytes
        if self._nbytes > CAPACITY_BYTES:
            raise LaunchRefused(
                f"an array of shape {shape} takes {nbytes:,} bytes, with those before it {self._nbytes:,}; "
                f"the simulated memory has {CAPACITY_BYTES:,}. Make the problem smaller.")
        return VirtualArray(shape, np.dtype(dtype)) if self.virtual else make()
