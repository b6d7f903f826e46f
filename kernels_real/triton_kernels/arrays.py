"""Arrays between numpy and torch, bit for bit: torch takes bfloat16 and 8-bit floats as views of integers."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
            return tensor.view(_torch_type(bits)).numpy().view(own)
    return tensor.numpy()


def _torch_type(dtype: Any) -> torch.dtype:
    """Return torch's type of a numpy type."""
    known = VIEWS.get(np.dtype(dtype))
    return known[1] if known else torch.from_numpy(np.empty(0, dtype)).dtype


class Arrays:
    """Hold the tensors of one problem by name: inputs as they are, outputs and work arrays as made.

    What is made is filled with NaN, or with another number where launches add to it.
    """

    def __init__(
        self, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
        device: str,
    ) -> None:  # fmt: skip
        """Take the inputs, and shape and type of each output."""
        self.device = device
        self._inputs = dict(inputs)
        self._outputs = dict(outputs)
        self._made: dict[str, tuple[torch.Tensor, float]] = {}

    @classmethod
    def of_problem(cls, problem: Any, device: str) -> Arrays:
        """Copy a problem's inputs to a device."""
        outputs = {name: (tuple(a.shape), _torch_type(a.dtype)) for name, a in problem.outputs.items()}
        return cls({name: to_torch(a, device) for name, a in problem.inputs.items()}, outputs, device)

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return an input, or what was made under a name."""
        return self._inputs[name] if name in self._inputs else self._made[name][0]

    def type_of(self, output: str) -> torch.dtype:
        """Return the type of one of the problem's outputs."""
        return self._outputs[output][1]

    def output(self, name: str, fill: float = math.nan) -> torch.Tensor:
        """Make one of the problem's outputs in its shape and type."""
        return self.make(name, *self._outputs[name], fill)

    def make(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32,
             fill: float = math.nan) -> torch.Tensor:  # fmt: skip
        """Make an array that launches fill."""
        tensor = torch.empty(shape, dtype=dtype, device=self.device)
        self._made[name] = tensor, fill
        _fill(tensor, fill)
        return tensor

    def name(self, name: str, view: torch.Tensor) -> None:
        """Give a part of what was made a name of its own, that of an output."""
        self._made[name] = view, math.nan

    def refill(self) -> None:
        """Fill all that was made as it was, so that the launches can run again."""
        for tensor, fill in self._made.values():
            _fill(tensor, fill)

    def outputs(self) -> dict[str, np.ndarray]:
        """Return the outputs that were made, by name, as numpy arrays."""
        return {name: to_numpy(self._made[name][0]) for name in self._outputs if name in self._made}


def _fill(tensor: torch.Tensor, value: float) -> None:
    """Fill a tensor of any type; torch fills 8-bit floats by a copy."""
    one = torch.tensor(value, dtype=torch.float32).to(tensor.dtype)
    tensor.copy_(one.to(tensor.device).expand(tensor.shape))
