"""The published figures that the project counts again, found by name.

Each is a module of its own with `simulate(batch) -> launches` and `report(launches, batch) -> text`. What it
leaves out: the figures themselves.
"""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from gpusim.errors import UnknownName

SUMMARIES = {
    "flash-attention-figure-2": "GFLOPs and memory traffic of attention in GPT-2 medium, standard and "
    "FlashAttention (Dao et al. 2022)",
}


def find(name: str) -> Any:
    """Return the module of a published figure; raise UnknownName with near names."""
    if name not in SUMMARIES:
        near = difflib.get_close_matches(name, SUMMARIES, n=3, cutoff=0.5)
        known = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(SUMMARIES)}"
        raise UnknownName(f"unknown figure {name!r}; {known}")
    return importlib.import_module(f"kernels_sim.{name.replace('-', '_')}")


def overview() -> str:
    """Return one line for each figure: its name and what it shows."""
    return "\n".join(f"{name}: {said}" for name, said in SUMMARIES.items())
