"""What a device array can do besides holding data: views of it, under the names of numba.cuda's arrays.

What it models: `.T`, slices, `reshape`, `ravel`, `view` and `split` give arrays at other addresses, shapes or
strides of the same memory, and no byte moves. What it leaves out: arithmetic on the host; `copy_to_host()`
comes first. Which ncu metric checks it: none; strides of a view decide `l1tex__t_sectors_*`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dsl.host.missing import missing
from gpusim.errors import UnsupportedFeature


class ArrayViews:
    """Give a class that has `_view` (its data as a numpy array), `address` and `memory` its views."""

    _view: np.ndarray
    address: int
    memory: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    nbytes: int
    ndim: int
    size: int

    def _show(self, view: np.ndarray, address: int) -> None:
        """Take the data, and what follows from it: shape, strides in bytes, sizes."""
        self._view, self.address = view, address
        self.shape, self.dtype, self.strides = view.shape, view.dtype, view.strides
        self.ndim, self.size, self.nbytes = view.ndim, view.size, view.nbytes

    def _other(self, view: np.ndarray) -> Any:
        """Return a device array of the same memory that shows a view of the data."""
        array = object.__new__(type(self))
        array.memory = self.memory
        array._show(view, self.address + _pointer(view) - _pointer(self._view))
        return array

    def __getitem__(self, index: Any) -> Any:
        """Return an element, or a slice as a device array; what numpy has to gather comes as a copy on the
        host.
        """
        found = self._view[index]
        shown = isinstance(found, np.ndarray) and found.size and np.may_share_memory(found, self._view)
        return self._other(found) if shown else found

    @property
    def flags(self) -> Any:
        """Return numpy's flags of the array: flags["C_CONTIGUOUS"] and its like."""
        return self._view.flags

    @property
    def T(self) -> Any:  # noqa: N802 - numpy's name
        """Return the array with its axes in reverse order, a view."""
        return self.transpose()

    def transpose(self, axes: Any = None) -> Any:
        """Return the array with its axes in another order, a view."""
        return self._other(self._view.transpose(axes))

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        """Return a view of another shape; raise UnsupportedFeature where the data would have to move."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        other = self._view.reshape(wanted, order=order)  # type: ignore[call-overload]
        if self.size and not np.may_share_memory(other, self._view):
            raise UnsupportedFeature(f"a device array of shape {self.shape} and strides {self.strides} has "
                                     f"no view of shape {wanted}; copy_to_host(), reshape, and to_device")
        return self._other(other)

    def ravel(self, order: str = "C", stream: Any = 0) -> Any:
        """Return a view of one dimension; raise UnsupportedFeature where the data would have to move."""
        return self.reshape(-1, order=order)

    def view(self, dtype: Any) -> Any:
        """Return a view of the same bytes with another element type."""
        return self._other(self._view.view(dtype))

    def split(self, section: int, stream: Any = 0) -> Iterator[Any]:
        """Yield consecutive pieces of `section` elements, views, the last one shorter."""
        for start in range(0, self.size, section):
            yield self[start : start + section]

    def is_c_contiguous(self) -> bool:
        """Return whether the last axis is the densest and nothing lies between elements."""
        return bool(self._view.flags.c_contiguous)

    def is_f_contiguous(self) -> bool:
        """Return whether the first axis is the densest and nothing lies between elements."""
        return bool(self._view.flags.f_contiguous)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the array's description; its address is the simulated one."""
        strides = None if self.is_c_contiguous() else self.strides
        return {"shape": self.shape, "strides": strides, "typestr": self.dtype.str, "version": 3,
                "data": (self.address, False)}

    def __getattr__(self, name: str) -> Any:
        """Refuse a name that device arrays do not have here."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise missing(f"to_device(...).{name}", "copy_to_host() gives a numpy array")


def _pointer(view: np.ndarray) -> int:
    return int(view.__array_interface__["data"][0])
