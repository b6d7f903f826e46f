"""What the attention kernels share in Triton: sizes from a problem's options, and widths of tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import triton

from gpusim.errors import BadOption

MOST_POSITION = 1 << 29
"""Positions, and sums of a few of them, are 32-bit integers here."""
MOST_ELEMENTS = 1 << 31
"""Offsets within a head are 32-bit integers."""


@dataclass(frozen=True)
class Sizes:
    """Hold the sizes of one problem; heads and kv_heads are those of one sequence, window 0 is none."""

    N: int
    Nk: int
    d: int
    dv: int
    heads: int
    kv_heads: int
    batch: int
    scale: float
    causal: bool
    window: int
    q_start: int

    @property
    def group(self) -> int:
        """Return the query heads that share a K/V head."""
        return self.heads // self.kv_heads

    @property
    def columns(self) -> dict[str, int]:
        """Return the constants of both head dimensions: elements, and columns of the tile that holds them."""
        return {"D": self.d, "DV": self.dv, "BD": tile_width(self.d), "BDV": tile_width(self.dv)}

    @property
    def mask(self) -> dict[str, bool]:
        """Return the constants that say which tests of a mask there are."""
        return {"CAUSAL": self.causal, "WINDOWED": self.window > 0}


def sizes_of(options: Any) -> Sizes:
    """Return the sizes that options of an attention kernel give, as its builder has checked them.

    Raises BadOption for positions and heads that 32-bit integers do not hold.
    """
    def given(name: str, default: Any) -> Any:
        return getattr(options, name, None) or default

    N = getattr(options, "N", None) or options.Nq
    scale = 1 / math.sqrt(options.d) if options.scale is None else options.scale
    size = Sizes(
        N, N if options.Nk is None else options.Nk, options.d, given("dv", options.d), options.heads,
        given("kv_heads", options.heads), options.batch, scale, bool(getattr(options, "causal", False)),
        given("window", 0), getattr(options, "q_start", 0),
    )  # fmt: skip
    for name, value in (("--q-start", abs(size.q_start)), ("--window", size.window)):
        if value > MOST_POSITION:
            raise BadOption(f"in Triton {name} must be at most 2**29 ({MOST_POSITION:,}), got {value}: "
                            "positions are 32-bit integers")
    largest = max(size.N, size.Nk) * max(size.d, size.dv)
    if largest >= MOST_ELEMENTS:
        raise BadOption(f"in Triton a head must have fewer than 2**31 elements, got {largest:,}: offsets "
                        "within a head are 32-bit integers; make --N or --Nk smaller")
    return size


def tile_width(width: int) -> int:
    """Return the columns of a tile that holds rows of `width`: a power of 2 of at least 16, for tl.dot."""
    return max(16, triton.next_power_of_2(width))
