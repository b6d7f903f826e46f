"""Global memory: addresses by order and size alone, views, and hosts that give little address space."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from gpusim import memory
from gpusim.errors import LaunchRefused
from gpusim.memory import FIRST_ADDRESS, GlobalMemory, VirtualArray, owner_of


def test_allocations_are_256_bytes_aligned_and_follow_each_other():
    space = GlobalMemory(1 << 22)
    assert [space.alloc(n) for n in (1, 256, 257, 0)] == [FIRST_ADDRESS + k for k in (0, 256, 512, 1024)]


def test_release_gives_back_what_came_after_the_mark():
    space = GlobalMemory(1 << 22)
    space.alloc(100)
    mark = space.mark()
    first = space.alloc(100)
    space.release(mark)
    assert space.alloc(5000) == first


def test_a_view_shares_the_storage_of_its_address():
    space = GlobalMemory(1 << 22)
    address = space.alloc(64)
    space.view(address, (4, 4), np.float32)[1, 2] = 7
    assert space.view(address, (16,), np.float32)[6] == 7


def test_a_full_space_says_what_was_asked_and_what_is_left():
    with pytest.raises(LaunchRefused, match="4194304 bytes asked for"):
        GlobalMemory(1 << 22).alloc(1 << 22)


def test_a_virtual_array_has_the_strides_of_a_c_array_and_no_storage():
    array = VirtualArray((3, 4, 5), np.dtype("f4"))
    assert (array.strides, array.size, array.nbytes, array.ndim) == ((80, 20, 4), 60, 240, 3)


def test_the_owner_of_a_view_is_the_array_whose_storage_it_shows():
    whole = np.zeros(10)
    assert owner_of(whole[2:][::2]) is whole
    assert owner_of(whole) is whole


def test_a_host_that_limits_address_space_gives_a_smaller_arena_and_none_is_a_message(monkeypatch):
    real, asked = mmap.mmap, []

    def limited(fileno: int, nbytes: int, flags: int) -> mmap.mmap:
        asked.append(nbytes)
        if nbytes > limit:
            raise OSError(12, "Cannot allocate memory")
        return real(fileno, nbytes, flags=flags)

    monkeypatch.setattr(memory.mmap, "mmap", limited)
    limit = 1 << 30
    assert GlobalMemory(1 << 32).capacity_bytes == 1 << 30
    assert asked == [1 << 32, 1 << 31, 1 << 30]
    limit = 0
    with pytest.raises(LaunchRefused, match="ulimit"):
        GlobalMemory(1 << 32)
