"""The launch of each flash_row kernel: grid and threads as the kernel of its name in kernels_sim has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpusim.errors import BadOption
from kernels_real.metal_kernels.launching import Launch
from kernels_real.metal_kernels.source import FOLDER

KERNELS = ("flash_row_forward", "flash_row_delta", "flash_row_dq", "flash_row_dv", "flash_row_dk")
OF_KEYS = {"flash_row_dv", "flash_row_dk"}
"""Kernels with a thread a key; the others have a thread a query row."""
PARAMETERS = np.dtype([(name, np.int32) for name in ("T", "Tk", "H", "HKV", "causal", "q_start", "window")]
                      + [("scale", np.float32)])
"""struct Params of flash_row.h."""
THREADGROUP_BYTES = 32768
"""Threadgroup memory of an Apple GPU: Apple, Metal Feature Set Tables, maximum total allocation."""


def launches(kernel: str, options: Any) -> list[Launch]:
    """Return the one launch of a kernel; raise BadOption for what does not fit an Apple GPU."""
    Tk = options.T if options.Tk is None else options.Tk
    _check_positions(kernel, options, Tk)
    scale = 1.0 / math.sqrt(options.d) if options.scale is None else options.scale
    fields = (options.T, Tk, options.H, options.HKV, options.causal, options.q_start, options.window, scale)
    rows, heads = (Tk, options.HKV) if kernel in OF_KEYS else (options.T, options.H)
    grid = max(1, -(-rows // options.Br)), heads, options.B
    constants = {"HEAD_DIM": options.d}
    if kernel == "flash_row_forward":
        _check_tile(options.Bc, options.d)
        constants["TILE_KEYS"] = options.Bc
    file, parameters = FOLDER / f"{kernel}.metal", np.array(fields, PARAMETERS)
    return [Launch(file, kernel, grid, (options.Br, 1, 1), parameters, constants)]


def _check_positions(kernel: str, options: Any, Tk: int) -> None:
    """Raise BadOption where a position may not fit 32 bits."""
    largest = abs(options.q_start) + options.window + options.T + Tk
    if largest >= 2**31:
        raise BadOption(f"{kernel} in Metal: positions are 32-bit integers, and --q-start, --window, --T and "
                        f"--Tk together come to {largest:,}; they may come to {2**31 - 1:,}")


def _check_tile(Bc: int, d: int) -> None:
    """Raise BadOption for tiles of K and V that do not fit threadgroup memory."""
    most = THREADGROUP_BYTES // (8 * d)
    if Bc > most:
        raise BadOption(f"flash_row_forward in Metal: --Bc must be at most {most} at --d {d}, got {Bc}: K's "
                        f"and V's tiles take {8 * Bc * d:,} bytes of threadgroup memory, and an Apple GPU "
                        f"has {THREADGROUP_BYTES:,}")
