"""The reports of several launches as a list that a notebook shows, and that draws them.

What it leaves out: how they look (gpusim/report_html.py) and who draws them (gpusim/pictures.py).
"""

from __future__ import annotations

from typing import Any

from gpusim.launch import Launch


class Reports(list[Launch]):
    """Be a list of launches in order; a notebook shows their table, then each."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from gpusim.report_html import notebook

        return notebook(self)

    @property
    def plot(self) -> Any:
        """Return the pictures of these launches as one: `reports.plot.memory_chart()` is a figure."""
        from gpusim.pictures import pictures

        return pictures(self)
