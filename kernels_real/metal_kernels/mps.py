"""Metal kernels on an Apple GPU, through torch.mps.compile_shader. Never run yet: see README.md.

From PyTorch's documentation: a tensor binds to a buffer by position, `threads` counts all threads of the grid
and `group_size` those of a threadgroup. The parameters go as a tensor that holds the bytes of the struct.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from gpusim.errors import LaunchRefused
from kernels_real.metal_kernels.launching import Launch


def torch_with_metal() -> Any:
    """Return torch; raise LaunchRefused where it is not installed, too old, or finds no Apple GPU."""
    try:
        import torch
    except ModuleNotFoundError:
        raise LaunchRefused("Metal kernels run through torch, which is not installed: pip install torch. On "
                            'Linux executor="shim" runs them on the CPU') from None
    if not torch.backends.mps.is_available():
        raise LaunchRefused("torch finds no Apple GPU here; on Linux "
                            'executor="shim" runs Metal kernels on the CPU')
    if not hasattr(torch.mps, "compile_shader"):
        raise LaunchRefused(f"torch {torch.__version__} has no torch.mps.compile_shader; install 2.7 or "
                            "later")
    return torch


@cache
def _library(text: str) -> Any:
    return torch_with_metal().mps.compile_shader(text)


class Prepared:
    """Hold a problem's launches and their tensors on the Apple GPU."""

    def __init__(
        self, launches: tuple[Launch, ...], arrays: dict[str, np.ndarray], results: tuple[str, ...]
    ) -> None:
        self._torch = torch_with_metal()
        self._launches, self._arrays, self._results = launches, arrays, results
        self._tensors = {name: self._tensor(array) for name, array in arrays.items()}

    def launch(self) -> None:
        """Run all launches in order, and wait for the last one."""
        for x in self._launches:
            words = self._tensor(np.frombuffer(x.parameters.tobytes(), np.int32))
            arguments = (self._tensors.get(name, words) for name in x.bound(self._arrays))
            threads = [g * b for g, b in zip(x.grid, x.block, strict=True)]
            kernel = getattr(_library(x.text), x.kernel)
            kernel(*arguments, threads=threads, group_size=list(x.block))
        self._torch.mps.synchronize()

    def outputs(self) -> dict[str, np.ndarray]:
        """Copy the outputs back, by name."""
        return {name: self._tensors[name].cpu().numpy() for name in self._results}

    def _tensor(self, array: np.ndarray) -> Any:
        return self._torch.from_numpy(array.copy()).to("mps")
