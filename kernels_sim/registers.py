"""Registers a thread takes in each shipped kernel, as recorded from ptxas.

What it models: launch__registers_per_thread of the kernels of this package, compiled by numba-cuda for
sm_90. What it leaves out: other compilers, versions and targets, and option values that are not in the
table.
"""

from __future__ import annotations

SOURCE = "ptxas 13.0.88 on numba-cuda 0.30.4 (NVVM 13.0.88), sm_90"
LEAST = 16
"""ncu shows 16 where ptxas says fewer; the allocation of a warp, whole units of 256, is the same."""

RECORDED: dict[tuple[str, str], int] = {
    ("vec_add", ""): 15,
}
"""(kernel, variant) -> registers as ptxas prints them."""


def recorded(kernel: str, variant: str = "") -> tuple[int | None, str]:
    """Return the registers of a kernel and where they come from, (None, "") if they were not recorded."""
    registers = RECORDED.get((kernel, variant))
    return (None, "") if registers is None else (max(LEAST, registers), SOURCE)
