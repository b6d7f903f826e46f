"""Where a sector of an array lies in its picture: arrays as grids of at most 32 x 32 tiles.

An array is drawn as its rows (all dimensions but the last) by the bytes of a row. A vector, or an array of a
few long rows, is folded like lines of text: into lines of 8 tiles from 256 sectors on, else of fewer. So Q of
one head of 512 x 64 numbers, which a kernel may take as 1 x 32,768, and of two heads as 2 x 32,768, stands
upright in both. An array with gaps, or in another order than C's, is a vector of its bytes. What it leaves
out: which elements of a sector are meant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpusim.observer import Place
from gpusim.trace import SECTOR_BYTES

MOST_TILES, FOLDED, FOLDED_FROM = 32, 8, 256
LONG = 4
"""Sectors of a row, for each row of an array, above which its rows are folded."""


@dataclass(frozen=True)
class Grid:
    """Cut an array into down x across tiles: sectors from first_sector on, in rows of row_bytes each."""

    name: str
    shape: tuple[int, ...]
    first_sector: int
    rows: int
    row_bytes: int
    down: int
    across: int

    @property
    def size(self) -> int:
        """Return the number of tiles."""
        return self.down * self.across

    @property
    def folded(self) -> bool:
        """Return whether rows of the grid are no rows of the array."""
        return self.rows != math.prod(self.shape[:-1])

    @property
    def tile_bytes(self) -> int:
        """Return the bytes of a tile, rounded up."""
        return -(-self.rows * self.row_bytes // self.size)

    def tile_of(self, sectors: np.ndarray) -> np.ndarray:
        """Return the tile of each sector (int64, numbered from address 0), -1 for one outside the array."""
        start = SECTOR_BYTES * (sectors - self.first_sector)
        row = start // self.row_bytes
        across = start % self.row_bytes * self.across // self.row_bytes
        inside = (start >= 0) & (row < self.rows)
        return np.where(inside, row * self.down // self.rows * self.across + across, -1)


def grid_of(place: Place) -> Grid:
    """Return how an array is cut into tiles."""
    low, high = _span(place)
    first, most = low // SECTOR_BYTES, MOST_TILES
    rows, row_bytes = math.prod(place.shape[:-1]), (place.shape or (1,))[-1] * place.element_bytes
    is_long = rows < 2 or row_bytes > LONG * rows * SECTOR_BYTES and 2 * rows <= MOST_TILES
    if not _is_c_contiguous(place) or low % SECTOR_BYTES or row_bytes < SECTOR_BYTES or is_long:
        most = FOLDED
        rows, row_bytes = _folded(high - first * SECTOR_BYTES)
    down, across = min(MOST_TILES, rows), min(most, row_bytes // SECTOR_BYTES)
    return Grid(place.array, place.shape, first, rows, row_bytes, down, across)


def _folded(nbytes: int) -> tuple[int, int]:
    """Return the rows, and bytes of a row, of a vector folded into about 32 rows."""
    sectors = max(1, -(-nbytes // SECTOR_BYTES))
    least = FOLDED if sectors >= FOLDED_FROM else 1
    in_row = max(least, -(-sectors // MOST_TILES))
    return -(-sectors // in_row), in_row * SECTOR_BYTES


def _span(place: Place) -> tuple[int, int]:
    """Return the address of the lowest byte of an array, and that behind its highest."""
    if 0 in place.shape:
        return place.address, place.address
    reach = [(n - 1) * step for n, step in zip(place.shape, place.strides, strict=True)]
    low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach)
    return place.address + low, place.address + high + place.element_bytes


def _is_c_contiguous(place: Place) -> bool:
    step = place.element_bytes
    for n, stride in zip(reversed(place.shape), reversed(place.strides), strict=True):
        if n > 1 and stride != step:
            return False
        step *= n
    return True
