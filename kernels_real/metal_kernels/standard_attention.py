"""The three launches of standard attention, in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpusim.errors import BadOption
from kernels_real.metal_kernels.launching import Launch
from kernels_real.metal_kernels.source import FOLDER

KERNELS = ("standard_attention",)
TILE, TILE_ROWS, ROW_THREADS = 32, 8, 128
"""As in standard_attention.metal."""
PARAMETERS = np.dtype([(name, np.int32) for name in ("N", "Nk", "d", "dv", "causal", "q_start")]
                      + [("scale", np.float32)])
"""struct Params of standard_attention.metal."""


def launches(kernel: str, options: Any) -> list[Launch]:
    """Return scores, softmax and output; raise BadOption for types and positions that they do not take."""
    if options.dtype != "float32":
        raise BadOption(f"{kernel} in Metal takes --dtype float32, got {options.dtype}")
    N, Nk, d, dv = options.N, _keys(options), options.d, options.dv or options.d
    if abs(options.q_start) + N >= 2**31:
        raise BadOption(f"{kernel} in Metal: positions are 32-bit integers, and --q-start "
                        f"{options.q_start:,} with --N {N:,} leaves them")
    scale = 1.0 / math.sqrt(d) if options.scale is None else options.scale
    parameters = np.array((N, Nk, d, dv, options.causal, options.q_start, scale), PARAMETERS)
    heads, rows, keys, columns = options.heads * options.batch, _tiles(N), max(1, _tiles(Nk)), _tiles(dv)
    tile, row = (TILE, TILE_ROWS, 1), (ROW_THREADS, 1, 1)
    file = FOLDER / f"{kernel}.metal"
    return [
        Launch(file, "scores", (keys, rows, heads), tile, parameters),
        Launch(file, "softmax", (N, heads, 1), row, parameters),
        Launch(file, "output", (columns, rows, heads), tile, parameters),
    ]


def work_arrays(options: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what one launch leaves for the next, by name."""
    return dict.fromkeys(("S", "P"), (options.heads * options.batch, options.N, _keys(options)))


def _keys(options: Any) -> int:
    return options.N if options.Nk is None else options.Nk


def _tiles(length: int) -> int:
    return -(-length // TILE)
