"""Arrays between numpy and torch, bit for bit: torch takes bfloat16 and 8-bit floats as views of integers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

VIEWS: dict[Any, tuple[Any, torch.dtype]] = {
    np.dtype(ml_dtypes.bfloat16): (np.int16, torch.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn): (np.uint8, torch.float8_e4m3fn),
}
"""Types that torch does not take from numpy -> the integers of the same bits, and torch's name."""


def to_torch(array: np.ndarray, device: str) -> torch.Tensor:
    """Copy an array to a device, its bits and its shape; the copy is contiguous."""
    array = np.ascontiguousarray(array)
    bits, dtype = VIEWS.get(array.dtype, (array.dtype, None))
    tensor = torch.from_numpy(array.view(bits).copy()).to(device)
    return tensor if dtype is None else tensor.view(dtype)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Copy a tensor back to an array of the same type."""
    tensor = tensor.detach().cpu().contiguous()
    for own, (bits, dtype) in VIEWS.items():
        if tensor.dtype == dtype:
            return tensor.view(torch.from_numpy(np.empty(0, bits)).dtype).numpy().view(own)
    return tensor.numpy()


class Arrays:
    """Hold the tensors of one problem by name: inputs as they are, outputs and work arrays as made.

    What is made is filled with NaN, or with another number where launches add to it.
    """

    def __init__(self, inputs: dict[str, np.ndarray], outputs: dict[str, Any], device: str) -> None:
        self.device = device
        self._inputs = {name: to_torch(a, device) for name, a in inputs.items()}
        self._outputs = {name: (tuple(a.shape), np.dtype(a.dtype)) for name, a in outputs.items()}
        self._made: dict[str, tuple[torch.Tensor, float]] = {}

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return an input, or what was made under a name."""
        return self._inputs[name] if name in self._inputs else self._made[name][0]

    def dtype(self, output: str) -> np.dtype:
        """Return the type of one of the problem's outputs."""
        return self._outputs[output][1]

    def output(self, name: str, fill: float = np.nan) -> torch.Tensor:
        """Make one of the problem's outputs in its shape and type."""
        shape, dtype = self._outputs[name]
        return self.make(name, shape, dtype, fill)

    def make(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32, fill: float = np.nan
             ) -> torch.Tensor:  # fmt: skip
        """Make an array that launches fill."""
        tensor = to_torch(np.full(shape, fill, dtype), self.device)
        self._made[name] = tensor, fill
        return tensor

    def refill(self) -> None:
        """Fill all that was made as it was, so that the launches can run again."""
        for tensor, fill in self._made.values():
            tensor.copy_(torch.full((), fill, device=self.device).to(tensor.dtype).expand(tensor.shape))

    def outputs(self) -> dict[str, np.ndarray]:
        """Return the outputs that were made, by name, as numpy arrays."""
        return {name: to_numpy(self._made[name][0]) for name in self._outputs if name in self._made}
