"""Where sectors lie in the picture of an array, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.observer import Place
from visualize.tiles import grid_of


def place(address, shape, element_bytes=4, strides=None):
    if strides is None:
        strides = np.empty(shape, np.dtype(f"V{element_bytes}")).strides
    return Place("x", address, shape, element_bytes, strides)


def test_a_matrix_has_tiles_of_its_rows_and_sectors():
    grid = grid_of(place(256, (64, 16)))  # 64 rows of two sectors, from sector 8 on
    assert (grid.down, grid.across, grid.tile_bytes) == (32, 2, 64)
    assert grid.tile_of(np.arange(8, 16)).tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert grid.tile_of(np.array([7, 8 + 127, 8 + 128])).tolist() == [-1, 63, -1]


def test_dimensions_but_the_last_are_rows():
    grid = grid_of(place(0, (2, 3, 8)))
    assert (grid.rows, grid.row_bytes, grid.down, grid.across) == (6, 32, 6, 1)


def test_a_short_vector_is_one_column():
    grid = grid_of(place(0, (64,)))  # 8 sectors
    assert (grid.down, grid.across) == (8, 1)
    assert grid.tile_of(np.arange(9)).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, -1]


def test_a_long_vector_is_folded_into_rows_of_eight_tiles():
    grid = grid_of(place(0, (1 << 15,)))  # 4096 sectors, in 32 rows of 128
    assert (grid.down, grid.across, grid.row_bytes) == (32, 8, 4096)
    assert grid.tile_of(np.array([0, 15, 16, 127, 128, 4095])).tolist() == [0, 0, 1, 7, 8, 255]


def test_an_array_with_gaps_is_a_vector_of_its_bytes():
    grid = grid_of(place(64, (4, 8), strides=(64, 4)))  # 3 * 64 + 32 bytes from sector 2 on
    assert (grid.down, grid.across) == (7, 1)
    assert grid.tile_of(np.array([1, 2, 4, 8, 9])).tolist() == [-1, 0, 2, 6, -1]


def test_an_array_that_runs_backwards_begins_at_its_last_element():
    grid = grid_of(place(64 + 28, (16,), strides=(-4,)))  # bytes 32 to 95
    assert grid.tile_of(np.array([0, 1, 2, 3])).tolist() == [-1, 0, 1, -1]


@pytest.mark.parametrize("shape", [(), (0,), (5, 0), (1, 1)])
def test_every_shape_has_a_tile(shape):
    assert grid_of(place(0, shape)).size == 1


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_a_few_long_rows_are_folded_as_one_is(heads):
    grid = grid_of(place(0, (heads, 512 * 64)))
    assert (grid.down, grid.across, grid.folded) == (32, 8, True)
    line = 128 * heads  # sectors: a 32nd of all
    assert grid.row_bytes == 32 * line and grid.tile_of(np.array([line - 1, line])).tolist() == [7, 8]


@pytest.mark.parametrize("shape", [(32, 4096), (64, 64), (4, 128), (2, 3, 8), (1, 2, 64)])
def test_rows_that_are_many_or_short_are_not_folded(shape):
    assert not grid_of(place(0, shape)).folded
