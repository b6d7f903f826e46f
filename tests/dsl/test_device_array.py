"""Views of device arrays: other addresses, shapes and strides of the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl.host.array_views import ArrayViews
from gpusim.errors import UnsupportedFeature
from gpusim.memory import GlobalMemory


class Held(ArrayViews):
    """Hold an array in a memory of its own."""

    def __init__(self, data: np.ndarray) -> None:
        self.memory = GlobalMemory(1 << 28)
        address = self.memory.alloc(data.nbytes)
        view = self.memory.view(address, data.shape, data.dtype)
        view[...] = data
        self._show(view, address)


def held() -> Any:
    """Return 0 .. 11 as 3 rows of 4 float64."""
    return Held(np.arange(12.0).reshape(3, 4))


def test_a_slice_stands_at_its_own_address_with_its_own_strides() -> None:
    d = held()
    part = d[1:, ::2]
    assert (part.shape, part.strides, part.address - d.address) == ((2, 2), (32, 16), 32)
    assert part._view.tolist() == [[4, 6], [8, 10]]
    assert d[1, 2] == 6.0


def test_a_view_shares_the_memory() -> None:
    d = held()
    d.T._view[3, 0] = -1
    assert d[0, 3] == -1


def test_transposed_reshaped_and_ravelled_arrays_are_views() -> None:
    d = held()
    assert (d.T.shape, d.T.strides) == ((4, 3), (8, 32))
    assert d.transpose((0, 1)).shape == (3, 4)
    assert d.reshape(4, 3).shape == d.reshape((4, 3)).shape == (4, 3)
    assert (d.ravel().shape, d.T.ravel(order="F").shape) == ((12,), (12,))
    assert d.view(np.int32).shape == (3, 8)
    assert [p.size for p in d.ravel().split(5)] == [5, 5, 2]


def test_a_reshape_that_would_move_data_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="no view of shape"):
        held().T.ravel()


def test_contiguity_and_the_cuda_array_interface_tell_the_layout() -> None:
    d = held()
    assert (d.is_c_contiguous(), d.is_f_contiguous()) == (True, False)
    assert (d.T.is_c_contiguous(), d.T.is_f_contiguous()) == (False, True)
    interface = d.T.__cuda_array_interface__
    assert interface == {"shape": (4, 3), "strides": (8, 32), "typestr": "<f8", "version": 3,
                         "data": (d.address, False)}


def test_a_gathered_index_is_a_copy_on_the_host() -> None:
    assert held()[[0, 2], 1].tolist() == [1, 9]


def test_what_a_device_array_lacks_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match=r"\.sum is not in the simulated numba.cuda; copy_to_host"):
        held().sum()
    assert not hasattr(held(), "sum")
