"""Launches of Metal kernels as descriptions, whatever runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernels_real.metal_kernels import source

Size = tuple[int, int, int]


class Accesses(NamedTuple):
    """Count the elements of one buffer that all threads of a launch load and store."""

    loads: int
    stores: int


@dataclass(frozen=True)
class Launch:
    """Describe one launch: a kernel of a .metal file, its threadgroups, and the threads of one, x first.

    parameters: the kernel's struct, as a numpy record of 32-bit fields in its order. constants: macros of the
    source. A device pointer of the kernel is bound to the array of its name, what is `constant` to the
    parameters.
    """

    file: Path
    kernel: str
    grid: Size
    block: Size
    parameters: np.ndarray
    constants: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """Return the source as Metal, complete."""
        return source.metal(self.file, dict(self.constants))

    def bound(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return what each buffer of the kernel is bound to, by name and in the buffers' order."""
        buffers = source.kernels(self.text)[self.kernel].buffers
        return {p.name: self.parameters if p.is_constant else arrays[p.name] for p in buffers}
