"""The simulated GPU: coalescer, banks, caches, DRAM, occupancy, counters and reports.

`gpusim.profile` is loaded when it is first asked for, so that `import gpusim.errors` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusim.profiling import profile

__all__ = ["profile"]


def __getattr__(name: str) -> Any:
    """Return `profile`, loaded now."""
    if name != "profile":
        raise AttributeError(f"module 'gpusim' has no attribute {name!r}")
    from gpusim.profiling import profile

    return profile
