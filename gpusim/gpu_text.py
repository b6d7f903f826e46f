"""Text about a GPU without a launch: the list of GPUs, and the occupancy of a block of a given size.

What it leaves out: any kernel. The numbers are those of gpusim/arch.py and gpusim/occupancy.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusim.arch import Arch
from gpusim.occupancy import check_launch, occupancy
from gpusim.sections import block_limits, metrics_table
from gpusim.table import Table, render


def gpu_table(arches: Iterable[Arch]) -> str:
    """Return a row for each GPU: what it has, and whether the model was held against a card."""
    headers = (
        "GPU",
        "Title",
        "CC",
        "SMs",
        "Shared/SM, byte",
        "L2, byte",
        "DRAM, GB/s",
        "FP32, TFLOP/s",
        "Validated",
    )
    rows = tuple(
        (
            a.name,
            a.title,
            a.compute_capability,
            a.sm_count,
            a.shared_bytes_per_sm,
            a.l2_bytes,
            a.dram_bytes_per_second // 10**9,
            a.fp32_flops_per_second / 1e12,
            "yes" if a.validated else "no",
        )
        for a in arches
    )
    return "\n".join(render(Table(headers, rows, "lllrrrrrl"))) + "\n"


def occupancy_text(arch: Arch, threads: int, registers: int, shared_bytes: int) -> str:
    """Return the occupancy of blocks of this size; raise LaunchRefused where none fits an SM."""
    check_launch(arch, (1, 1, 1), (threads, 1, 1), 0, shared_bytes, registers)
    rows = block_limits(occupancy(arch, threads, registers, 0, shared_bytes))
    title = (
        f"{arch.title}: {threads:,} threads a block, {registers} registers a thread, "
        f"{shared_bytes:,} bytes of shared memory a block"
    )
    return "\n".join(render(metrics_table(rows, title))) + "\n"
