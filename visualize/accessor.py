"""`launch.plot` and `reports.plot` in Python and in notebooks: the pictures that need nothing but launches.

What it leaves out: sweeps, heatmaps and comparisons, which run kernels of their own (`plot` on the command
line).
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from gpusim.errors import BadOption
from gpusim.launch import Launch
from visualize import banks, memory_chart, occupancy_chart, pipeline, roofline
from visualize.run import Run


class Pictures:
    """Draw some launches as one run; each method returns a figure, or raises BadOption where it cannot."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        if not launches:
            raise BadOption("there is no launch to draw; launch a kernel in a `with gpusim.profile()`")
        self.run = Run(", ".join(dict.fromkeys(launch.kernel for launch in launches)), tuple(launches))

    def memory_chart(self) -> Figure:
        """Draw threads, L1, shared memory, L2 and DRAM, with the bytes between them."""
        return memory_chart.figure([self.run])

    def roofline(self) -> Figure:
        """Draw FLOPs a byte at each level under the roofs of the GPU."""
        return roofline.figure([self.run])

    def occupancy(self) -> Figure:
        """Draw blocks an SM over threads, registers and shared memory, a row a launch."""
        return occupancy_chart.figure([self.run])

    def banks(self) -> Figure:
        """Draw the wavefronts that each line's shared accesses need of each bank."""
        return banks.figure([self.run])

    def pipeline(self) -> Figure:
        """Draw launches and arrays, with the bytes that each launch reads and writes."""
        return pipeline.figure([self.run])
