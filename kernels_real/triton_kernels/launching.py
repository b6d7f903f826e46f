"""Launches of Triton kernels as descriptions, and a problem that is ready to run them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gpusim.errors import BadOption, LaunchRefused
from kernels_real.triton_kernels import interpreter
from kernels_real.triton_kernels.arrays import Arrays

if interpreter.IS_ON:
    interpreter.mend()


@dataclass(frozen=True)
class Launch:
    """Describe one launch: kernel[grid](*args, **constants) with so many warps a block and stages a loop.

    args: tensors and numbers by position; constants: the kernel's tl.constexpr parameters.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    constants: dict[str, Any] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 1

    @property
    def name(self) -> str:
        """Return the kernel's name, as a profiler shows it."""
        return self.kernel.fn.__name__

    @property
    def settings(self) -> dict[str, Any]:
        """Return what goes to the kernel by name."""
        return {**self.constants, "num_warps": self.num_warps, "num_stages": self.num_stages}

    def run(self) -> None:
        """Launch it, and do not wait."""
        self.kernel[self.grid](*self.args, **self.settings)


@dataclass(frozen=True)
class Prepared:
    """Hold a problem's launches and the tensors they work on."""

    launches: tuple[Launch, ...]
    arrays: Arrays

    def compile(self) -> list[Any]:
        """Compile all kernels without launching one, so that a profiler sees launches alone; return what
        Triton made of each. The interpreter has nothing to compile.
        """
        if interpreter.IS_ON:
            return []
        return [x.kernel.warmup(*x.args, grid=x.grid, **x.settings) for x in self.launches]

    def launch(self) -> None:
        """Run all launches in order, and wait for the last one. See `refill` for a second time."""
        for x in self.launches:
            x.run()
        if self.arrays.device == "cuda":
            torch.cuda.synchronize()

    def refill(self) -> None:
        """Fill outputs and work arrays as they were before the first launch."""
        self.arrays.refill()

    def outputs(self) -> dict[str, np.ndarray]:
        """Return the outputs by name, as numpy arrays in the problem's types."""
        return self.arrays.outputs()


def prepare(problem: Any, make: Callable[..., list[Launch]], configuration: dict[str, Any]) -> Prepared:
    """Copy a problem's arrays to the device and describe its launches by `launches` of a kernel's file."""
    arrays = Arrays.of_problem(problem, device())
    return Prepared(tuple(make(problem.options, arrays, **configuration)), arrays)


def device() -> str:
    """Return where kernels run: cpu for the interpreter, else cuda; raise LaunchRefused without a GPU."""
    if interpreter.IS_ON:
        return "cpu"
    if not torch.cuda.is_available():
        raise LaunchRefused("no GPU that torch can use is here; to run Triton kernels on the CPU set "
                            "TRITON_INTERPRET=1 before Python starts (float32 and float16 only)")
    return "cuda"


def defaults(make: Callable[..., Any]) -> dict[str, int]:
    """Return a kernel's configuration where none is given: {"num_warps": 4, ...}."""
    return {name: p.default for name, p in list(inspect.signature(make).parameters.items())[2:]}


def require_power_of_2(kernel: str, **sizes: int) -> None:
    """Raise BadOption where a tile's size is no power of 2 from 16 on, as the sides of tl.dot are."""
    for name, size in sizes.items():
        if size < 16 or size & (size - 1):
            raise BadOption(f"{kernel} in Triton: --{name} must be a power of 2 of at least 16, got {size}: "
                            "a tile of tl.dot has such sides")
