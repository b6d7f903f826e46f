"""Why the worst lines of a kernel take more sectors or wavefronts than they need, and what to try.

The reason is the distance between neighbouring lanes (LineAccess of gpusim/launch.py); where no distance is
known, the measured figure stands alone. A padded row is tried first: the one in the sentence is free of
conflicts by gpusim/shared.py. What it leaves out: the gain in time, and traffic below L1.
"""

from __future__ import annotations

import os

import numpy as np

from gpusim.advice import ENOUGH_SECTORS, ENOUGH_WAVEFRONTS
from gpusim.launch import Launch, LineAccess
from gpusim.shared import atomic_wavefronts, ideal_wavefronts, matrix_wavefronts, wavefronts

MOST = 5
"""Lines that get a sentence, those with the most to gain first."""
ENOUGH_COLLISIONS = 2.0
"""Speak of an atomic from this many times the sectors that its bytes fill, as gpusim/advice.py does."""
MOST_PADDING = 4
"""Elements of padding that are tried."""
LANES, ALL_LANES = 32, np.uint32(0xFFFFFFFF)
WORD_BYTES = 4
MATRIX = "shared_matrix"
"""The kind of an ldmatrix, whose lanes name rows of 16 bytes; its ideal is the number of matrices."""
UNKNOWN = "the addresses depend on data, or on a stride that is known only while the kernel runs"


def reasons(launch: Launch) -> tuple[str, ...]:
    """Return a sentence for each of the accesses that waste most, the worst first."""
    costly = sorted(filter(is_costly, launch.accesses), key=lambda a: -a.wasted)
    several = len({file for file, _ in launch.lines}) > 1
    said = [_sentence(access, several) for access in costly[:MOST]]
    rest = len(costly) - MOST
    if rest > 0:
        said.append(f"{rest} more access{'es' if rest > 1 else ''} with less to gain.")
    return tuple(said)


def is_costly(access: LineAccess) -> bool:
    """Return whether an access takes so much more than the ideal that a sentence is worth it."""
    if access.kind.startswith("shared"):
        enough = ENOUGH_WAVEFRONTS
    else:
        enough = ENOUGH_COLLISIONS if _is_atomic(access) else ENOUGH_SECTORS
    return access.taken > enough * access.ideal


def _is_atomic(access: LineAccess) -> bool:
    return access.kind.endswith(("red", "atom"))


def _sentence(access: LineAccess, several_files: bool) -> str:
    place = f"{os.path.basename(access.file)}:{access.line}" if several_files else f"line {access.line}"
    unit = "wavefronts" if access.kind.startswith("shared") else "sectors"
    each, ideal = (_amount(n / access.requests) for n in (access.taken, access.ideal))
    figure = f"{each} {unit} a request (ideal {ideal})"
    return f"{place}, {_verb(access)} {access.array}: {figure}: {_why(access)}."


def _verb(access: LineAccess) -> str:
    verbs = {"load": "load of", "store": "store to", "matrix": "ldmatrix of", "async": "cp.async to"}
    return verbs.get(access.kind.partition("_")[2], "atomic on")


def _amount(value: float) -> str:
    """Return a number with one decimal, or none where it is whole."""
    return f"{value:.1f}".removesuffix(".0")


def _why(access: LineAccess) -> str:
    """Return the reason and, where the distance between lanes is known, what to try."""
    space = access.kind.partition("_")[0]
    if access.step_bytes is None:
        return UNKNOWN
    if space == "shared":
        return f"{_apart(access, WORD_BYTES)}; {_unbanked(access)}"
    if space == "local":
        return "lanes use different elements of their own arrays; use one index in all lanes of a warp"
    if access.step_bytes == 0 and access.run_lanes == LANES:
        return "all lanes update one address; add up in the warp or in shared memory and send one update"
    neighbours = abs(access.step_bytes) == access.element_bytes
    if neighbours and access.run_lanes == LANES:
        return "lanes are neighbours, but a request starts inside a sector; start at a multiple of 32 B"
    if neighbours:
        return f"{_apart(access, 1)}; make the block wider in x, so that a run is longer"
    verb = {"load": "read", "store": "write"}.get(access.kind.partition("_")[2], "update")
    return f"{_apart(access, 1)}; let neighbouring lanes {verb} neighbouring elements"


def _apart(access: LineAccess, unit_bytes: int) -> str:
    """Say how far apart the lanes are, in words where the distance is whole words, else in bytes."""
    step, jump = abs(access.step_bytes or 0), abs(access.jump_bytes)
    if access.run_lanes == LANES:
        return f"lanes are {_distance(step, unit_bytes)} apart"
    inside = "on one element" if step == 0 else f"{_distance(step, unit_bytes)} apart"
    runs = f"lanes are in runs of {access.run_lanes} {inside}"
    return f"{runs}, and the runs {_distance(jump, unit_bytes)} apart"


def _distance(nbytes: int, unit_bytes: int) -> str:
    if unit_bytes == WORD_BYTES and nbytes % WORD_BYTES == 0:
        return f"{nbytes // WORD_BYTES:,} word{'' if nbytes == WORD_BYTES else 's'}"
    return f"{nbytes:,} B"


def _unbanked(access: LineAccess) -> str:
    """Say how to get the lanes of a shared access into different banks."""
    padding = padding_elements(access)
    if padding is None:
        return "let neighbouring lanes use neighbouring words, or swizzle the column with the row"
    size = access.element_bytes
    unit = "words" if size == WORD_BYTES else "elements"
    if not access.row_bytes:
        wanted = f"{_stride(access) // size + padding:,} {unit}"
        return f"make it {wanted}, or let neighbouring lanes use neighbouring words"
    return f"pad the row to {access.row_bytes // size + padding:,} {unit}"


def _stride(access: LineAccess) -> int:
    """Return the bytes that padding would change: between lanes, or between runs of neighbours."""
    step = abs(access.step_bytes or 0)
    return step if step > access.element_bytes or access.run_lanes == LANES else abs(access.jump_bytes)


def padding_elements(access: LineAccess) -> int | None:
    """Return the fewest elements more a row with which a shared access has no conflict; None if none helps.

    The distance between lanes must be whole rows, or the array have one dimension.
    """
    stride = _stride(access)
    row = access.row_bytes or stride
    if access.step_bytes is None or stride == 0 or stride % row or stride <= access.element_bytes:
        return None
    free = int(ideal_wavefronts(ALL_LANES, access.element_bytes))
    if access.kind == MATRIX:
        free = access.ideal // access.requests
    tries = range(1, MOST_PADDING + 1)
    return next((n for n in tries if _wavefronts_padded(access, row, n) <= free), None)


def _wavefronts_padded(access: LineAccess, row: int, elements: int) -> int:
    """Return the wavefronts of a full warp once every row of `row` bytes has some elements more."""
    lane = np.arange(LANES, dtype=np.int64)
    more = elements * access.element_bytes
    step, jump = (
        n + n // row * more if n % row == 0 else n for n in (access.step_bytes or 0, access.jump_bytes)
    )
    addresses = lane // access.run_lanes * jump + lane % access.run_lanes * step
    addresses -= addresses.min()
    if access.kind == MATRIX:
        return int(matrix_wavefronts(addresses, access.ideal // access.requests))
    if access.kind == "shared_atom":
        return int(atomic_wavefronts(addresses, ALL_LANES, access.element_bytes))
    return int(wavefronts(addresses, ALL_LANES, access.element_bytes, access.kind == "shared_load"))
