"""Closed forms that several kernels share: requests and sectors of rows of elements, in integers.

What it models: arrays that start at a 256-byte boundary and hold elements of `size` bytes, 4 if not given, so
that element number e lies in sector e size // 32, and warps whose active lanes touch consecutive elements.
What it leaves out: data-dependent addresses (each kernel derives its own). Checked by `l1tex__t_requests_*`
and `l1tex__t_sectors_*`, which equal these numbers on the card to the last sector.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusim.errors import BadOption

WARP = 32
ELEMENT_BYTES = 4
SECTOR_BYTES = 32
PER_SECTOR = SECTOR_BYTES // ELEMENT_BYTES


def ceil_div(a: int, b: int) -> int:
    """Return a / b rounded up."""
    return -(-a // b)


def run_sectors(start: int, count: int, size: int = ELEMENT_BYTES) -> int:
    """Return the sectors of `count` consecutive elements from element number `start`; 0 for none."""
    per_sector = SECTOR_BYTES // size
    return (start % per_sector + count - 1) // per_sector + 1 if count > 0 else 0


def row_sectors(start: int, cols: int, size: int = ELEMENT_BYTES) -> int:
    """Return the sectors of one row that is read 32 elements a request, from element number `start`.

    A row that starts inside a sector costs one more sector in every request of 32.
    """
    return cols // WARP * run_sectors(start, WARP, size) + run_sectors(start, cols % WARP, size)


def matrix_sectors(rows: int, cols: int, size: int = ELEMENT_BYTES) -> int:
    """Return the sectors of a C-contiguous rows x cols matrix that is read row by row, 32 elements a request.

    The alignment of row y is y * cols mod the elements of a sector (8 at 4 bytes), so 8 rows stand for all.
    """
    alike = SECTOR_BYTES // size
    return sum(
        ceil_div(rows - y, alike) * row_sectors(y * cols, cols, size) for y in range(min(rows, alike))
    )


def space(
    path: str, *, lanes: int, requests: int, sectors: int, lane_bytes: int | None = None
) -> dict[str, int]:
    """Return the four counters of one kind of access to global memory; 4 bytes a lane if not given."""
    return {
        f"{path}.lanes": lanes,
        f"{path}.bytes": lanes * ELEMENT_BYTES if lane_bytes is None else lane_bytes,
        f"{path}.requests": requests,
        f"{path}.sectors": sectors,
    }


def shared(path: str, *, lanes: int, requests: int, wavefronts: int) -> dict[str, int]:
    """Return the five counters of one kind of access to shared memory, 4 bytes a lane."""
    return {
        f"{path}.lanes": lanes,
        f"{path}.bytes": lanes * ELEMENT_BYTES,
        f"{path}.requests": requests,
        f"{path}.wavefronts": wavefronts,
        f"{path}.ideal_wavefronts": requests,
    }


def require_at_least(kernel: str, option: str, value: int, least: int) -> None:
    """Raise BadOption where an integer option is below its least value."""
    if value < least:
        raise BadOption(f"{kernel}: --{option} is {value}, it must be at least {least}")


def require_choice(kernel: str, option: str, value: str, choices: Iterable[str]) -> None:
    """Raise BadOption where an option is none of its choices."""
    names = tuple(choices)
    if value not in names:
        raise BadOption(f"{kernel}: --{option} is {value!r}, it must be one of {', '.join(names)}")
