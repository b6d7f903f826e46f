"""The traffic of an animation by level: bytes a frame, exact or modelled, and what the closed form says.

What it leaves out: bytes of code that DRAM is read for (a constant of the card), and shared memory, which a
trace does not have. Sums over the frames are the counters of the launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpusim.l2 import COUNTS
from gpusim.launch import Launch, counter
from gpusim.trace import SECTOR_BYTES

LABELS = {
    "L1-load": "SM-L1 loads", "L1-store": "SM-L1 stores", "L1-atomic": "SM-L1 atomics",
    "L2-read": "L1-L2 reads", "L2-write": "L1-L2 writes", "L2-atomic": "L1-L2 atomics",
    "DRAM-read": "DRAM reads, data", "DRAM-write": "DRAM writes, own",
}  # fmt: skip
MODELLED = ("L2-read", "DRAM-read", "DRAM-write")
PATHS: dict[str, tuple[str, ...]] = {
    "L1-load": ("global_load.sectors", "local_load.sectors"),
    "L1-store": ("global_store.sectors", "local_store.sectors"),
    "L1-atomic": ("global_red.sectors", "global_atom.sectors"),
    "L2-read": ("hierarchy.l2_read",), "L2-write": ("hierarchy.l2_write",),
    "L2-atomic": ("hierarchy.l2_red", "hierarchy.l2_atom"),
    "DRAM-read": ("hierarchy.dram_read_bytes",), "DRAM-write": ("hierarchy.dram_write_bytes",),
}  # fmt: skip
"""Level -> the counters that add up to it."""


@dataclass(frozen=True)
class Level:
    """Hold the traffic of one kind at one level.

    key: "L1-load". box: of style.LEVELS, for its colour. nbytes: int64, of each frame. closed_form: bytes
    that the kernel's formula gives, None without one.
    """

    key: str
    label: str
    box: str
    modelled: bool
    nbytes: np.ndarray
    closed_form: int | None


def levels(launches: Sequence[Launch], moved: np.ndarray, counts: np.ndarray) -> tuple[Level, ...]:
    """Return the traffic of each kind at each level.

    moved: bytes of loads, stores and atomics, int64 (frames, 3). counts: of gpusim.l2.COUNTS, int64 (frames,
    counts).
    """
    sectors = {name: counts[:, k] for k, name in enumerate(COUNTS)}
    atomics = sectors["l2_red"] + sectors["l2_atom"]
    nbytes = {
        "L1-load": moved[:, 0], "L1-store": moved[:, 1], "L1-atomic": moved[:, 2],
        "L2-read": SECTOR_BYTES * sectors["l2_read"], "L2-write": SECTOR_BYTES * sectors["l2_write"],
        "L2-atomic": SECTOR_BYTES * atomics,
        "DRAM-read": sectors["dram_read_bytes"], "DRAM-write": sectors["dram_write_bytes"],
    }  # fmt: skip
    return tuple(
        Level(key, LABELS[key], key.partition("-")[0], key in MODELLED, own, _closed_form(launches, key))
        for key, own in nbytes.items()
    )


def _closed_form(launches: Sequence[Launch], key: str) -> int | None:
    """Return what formulas say of a level over all launches, None where one does not say what it did."""
    said = [(x, path) for x in launches for path in PATHS[key]]
    known = [x.closed_form[path] for x, path in said if path in x.closed_form]
    silent = [x for x, path in said if path not in x.closed_form and counter(x.counters, path)]
    unit = 1 if key.startswith("DRAM") else SECTOR_BYTES
    return unit * sum(known) if known and not silent else None
