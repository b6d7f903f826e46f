"""What a block does, step by step, from its trace records: the phases that a timeline shows.

What it models: each record of a request is one step, each barrier is one step, and a stretch between two
barriers in which no request leaves the SM (arithmetic and shared memory alone) is one step. A phase is a run
of steps of one kind: loads of K and V that take turns are one phase. What it leaves out: time, the arithmetic
between the requests of one stretch, of which a trace tells nothing, and warps, whose requests follow one
another. Checked by the sums of requests and sectors, which are those of the launch's counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpusim.observer import Site
from gpusim.trace import FIRST_SHIFT, KIND_SHIFT, MAX_SITES, SITE_SHIFT, Kind

BARRIER = int(Kind.BARRIER)
COMPUTE = BARRIER + 1
"""The kind of steps that no record stands for."""
NAMES = {
    Kind.LOAD: ("load", "load"),
    Kind.STORE: ("store", "store"),
    Kind.RED: ("red", "atomic"),
    Kind.ATOM: ("atom", "atomic"),
    Kind.LOCAL_LOAD: ("local load", "load"),
    Kind.LOCAL_STORE: ("local store", "store"),
    Kind.LOAD_L2: ("load past L1", "load"),
    BARRIER: ("barrier", "barrier"),
    COMPUTE: ("compute", "compute"),
}
"""Kind of a phase -> what it is called, and its category."""
MOST_ARRAYS = 62
"""Arrays of a launch that are told apart, a bit each; the rest share one bit."""


class Steps(NamedTuple):
    """Hold the steps of a wave's records.

    of: int64 (n,), steps that each record takes. before: int64 (n + 1,), those of all records before it.
    quiet: bool (n,), barriers with no request since the barrier before or the block's start.
    """

    of: np.ndarray
    before: np.ndarray
    quiet: np.ndarray


class Phases(NamedTuple):
    """Hold the phases of one block in order, int64 each; start and end are steps of the block, end is behind.

    kind: of NAMES. arrays: a bit for each array that it touches. site: access site of its first record, -1
    where it is no request.
    """

    kind: np.ndarray
    arrays: np.ndarray
    start: np.ndarray
    end: np.ndarray
    requests: np.ndarray
    sectors: np.ndarray
    site: np.ndarray


class Arrays:
    """Number the arrays of a launch's access sites, so that a phase can say which ones it touches."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = sites
        self.names = list(dict.fromkeys(site.array for site in sites))
        self.bit = np.array([1 << min(self.names.index(s.array), MOST_ARRAYS) for s in sites], np.int64)

    def title(self, kind: int, bits: int) -> tuple[str, str]:
        """Return what a phase is called, "load K, V", and its category."""
        name, category = NAMES[kind]
        touched = [array for k, array in enumerate(self.names[:MOST_ARRAYS]) if bits >> k & 1]
        others = ["others"] if bits >> MOST_ARRAYS else []
        return " ".join(filter(None, [name, ", ".join(touched + others)])), category


def _kinds(records: np.ndarray) -> np.ndarray:
    return (records >> np.uint64(KIND_SHIFT) & np.uint64(15)).astype(np.int64)


def steps_of(records: np.ndarray, offsets: np.ndarray) -> Steps:
    """Return the steps of one wave's records; block b has records[offsets[b]:offsets[b + 1]]."""
    kinds = _kinds(records)
    of = (kinds < Kind.WARP).astype(np.int64)
    requests = np.concatenate([[0], np.cumsum(of)])
    barriers = np.flatnonzero(kinds == Kind.BARRIER)
    starts = offsets[np.searchsorted(offsets, barriers, "right") - 1]
    since = np.maximum(np.concatenate([[0], barriers[:-1]])[: len(barriers)], starts)
    quiet = np.zeros(len(records), bool)
    quiet[barriers] = requests[barriers] == requests[since]
    of[barriers] = 1 + quiet[barriers]
    last = offsets[1:][np.diff(offsets) > 0] - 1
    of[last[kinds[last] == Kind.BARRIER]] += 1  # what follows the last barrier is a quiet stretch too
    return Steps(of, np.concatenate([[0], np.cumsum(of)]), quiet)


def phases_of(records: np.ndarray, of: np.ndarray, quiet: np.ndarray, arrays: Arrays) -> Phases:
    """Return the phases of one block from its part of a wave's records and Steps; [compute] without any."""
    if not len(records):
        nothing = np.zeros(1, np.int64)
        return Phases(nothing + COMPUTE, nothing, nothing, nothing + 1, nothing, nothing, nothing - 1)
    owner = np.repeat(np.arange(len(records)), of)
    owned, kinds = records[owner], _step_kinds(records, of, quiet, owner)
    start = np.flatnonzero(np.concatenate([[True], kinds[1:] != kinds[:-1]]))
    is_request = kinds < Kind.WARP
    site = (owned >> np.uint64(SITE_SHIFT)).astype(np.int64) & (MAX_SITES - 1)
    bits = np.zeros(len(owned), np.int64)
    bits[is_request] = arrays.bit[site[is_request]]
    first = (owned >> np.uint64(FIRST_SHIFT) & np.uint64(1)).astype(np.int64) * is_request
    sectors = np.bitwise_count(owned & np.uint64(15)).astype(np.int64) * is_request
    return Phases(
        kinds[start],
        np.bitwise_or.reduceat(bits, start),
        start,
        np.append(start[1:], len(kinds)),
        np.add.reduceat(first, start),
        np.add.reduceat(sectors, start),
        np.where(is_request, site, -1)[start],
    )


def _step_kinds(records: np.ndarray, of: np.ndarray, quiet: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Return the kind of every step; owner: the record that each step belongs to.

    A barrier after a quiet stretch has a step of that before its own; what is behind its own is one too.
    """
    kinds = _kinds(records)[owner]
    within = np.arange(len(owner)) - (np.cumsum(of) - of)[owner]
    return np.where((kinds == BARRIER) & (within != quiet[owner]), COMPUTE, kinds)
