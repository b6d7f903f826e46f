"""Where the elements of a matrix lie in the registers of a warp: the fragment layouts of mma.sync.

What it models: the tables of the PTX ISA (matrix fragments for mma.m16n8k8, m16n8k16 and m16n8k32): with g =
lane / 4 and t = lane % 4, and p values packed in a 32-bit register from its low bits up, register r of A
holds row g + 8 (r % 2) and columns 4 p (r / 2) + p t onwards; register r of B holds column g and rows 4 p r +
p t onwards; register r of the accumulators is row g + 8 (r / 2), column 2 t + r % 2. What it leaves out: how
tensor cores add up (dsl/semantics/matrix_ops.py). Checked by no ncu metric; tests hold it against the tables.
"""

from __future__ import annotations

from dsl.warpir.tensor import COLUMNS, PARTS, ROWS

Place = tuple[int, int, int]
"""Lane, register of the fragment, and number of the value in the register."""


def place_in_a(row: int, k: int, type_: str) -> Place:
    """Return where element (row, k) of A (16 x k) lies."""
    parts = PARTS[type_]
    group, inside = divmod(k, 4 * parts)
    return 4 * (row % 8) + inside // parts, 2 * group + row // 8, inside % parts


def place_in_b(k: int, column: int, type_: str) -> Place:
    """Return where element (k, column) of B (k x 8) lies."""
    parts = PARTS[type_]
    group, inside = divmod(k, 4 * parts)
    return 4 * column + inside // parts, group, inside % parts


def place_in_c(row: int, column: int) -> Place:
    """Return where element (row, column) of the accumulators (16 x 8, float32) lies."""
    return 4 * (row % 8) + column // 2, 2 * (row // 8) + column % 2, 0


def places_a(type_: str) -> list[list[Place]]:
    """Return the place of every element of A, row by row."""
    return [[place_in_a(row, k, type_) for k in range(8 * PARTS[type_])] for row in range(ROWS)]


def places_b(type_: str) -> list[list[Place]]:
    """Return the place of every element of B, row by row."""
    return [[place_in_b(k, n, type_) for n in range(COLUMNS)] for k in range(8 * PARTS[type_])]


def places_c() -> list[list[Place]]:
    """Return the place of every accumulator, row by row."""
    return [[place_in_c(row, n) for n in range(COLUMNS)] for row in range(ROWS)]


def source_of_matrix(lane: int, part: int, trans: bool) -> tuple[int, int]:
    """Return the (row, column) of the 8 x 8 matrix whose element ldmatrix puts into a half of a lane's
    register.
    """
    along, across = lane // 4, 2 * (lane % 4) + part
    return (across, along) if trans else (along, across)
