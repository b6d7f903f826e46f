"""A kernel that does nothing: what a launch itself costs, the baseline of every measurement."""

from __future__ import annotations

from dsl import cuda


@cuda.jit
def empty():
    """Return at once."""
