"""Who draws the pictures of a launch: named here, loaded when the first picture is asked for.

This package draws nothing and imports nothing that stands above it. The module of DRAWN_BY has a class
`Pictures` of launches, whose methods return matplotlib figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpusim.launch import Launch

DRAWN_BY = "visualize.accessor"


def pictures(launches: Sequence[Launch]) -> Any:
    """Return the pictures of launches, each a method that returns a figure."""
    return import_module(DRAWN_BY).Pictures(launches)
