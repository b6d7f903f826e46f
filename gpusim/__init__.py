"""The simulated GPU: coalescer, banks, caches, DRAM, occupancy, counters and reports.

`gpusim.profile`, and what IPython wants at `%load_ext gpusim`, are loaded when they are first asked for:
`import gpusim.errors` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusim.notebook import load_ipython_extension
    from gpusim.profiling import profile

__all__ = ["load_ipython_extension", "profile"]
PLACES = {"profile": "gpusim.profiling", "load_ipython_extension": "gpusim.notebook"}


def __getattr__(name: str) -> Any:
    """Return one of the names of PLACES, loaded now."""
    if name not in PLACES:
        raise AttributeError(f"module 'gpusim' has no attribute {name!r}")
    return getattr(import_module(PLACES[name]), name)
