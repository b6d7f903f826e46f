"""Occupancy: blocks an SM over threads, registers and shared memory of a block, with the launch's place.

One row a launch; in each panel one resource varies and the others stay as launched. The limits are those of
gpusim/occupancy.py, which are exact for a register count that is sure; else the panels are hatched. What it
leaves out: achieved occupancy, which is an estimate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gpusim.errors import BadOption
from gpusim.launch import Launch
from gpusim.occupancy import occupancy
from gpusim.table import counted
from visualize import style
from visualize.run import Run, as_runs

MOST_ROWS, BESIDE = 6, 0.04
WORDS = {
    "registers": "registers", "shared_mem": "shared memory", "warps": "warp slots",
    "blocks": "block slots"}  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """Hold one panel: its axis, the values that a resource takes, the blocks an SM holds, and the launch."""

    label: str
    name: str
    values: Sequence[float]
    blocks: Sequence[int]
    here: tuple[float, int]
    colour: str


def curves(launch: Launch) -> tuple[Curve, Curve, Curve]:
    """Return the three panels of a launch: threads a block, registers a thread, shared memory in kB."""
    arch, registers = launch.arch, launch.registers.per_thread
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    shared = launch.static_shared_bytes + launch.dynamic_shared_bytes
    here = launch.occupancy.blocks_per_sm

    def blocks(t: int = threads, r: int = registers, s: int = shared) -> int:
        return occupancy(arch, t, r, 0, s).blocks_per_sm

    by_threads = range(arch.warp_size, arch.max_threads_per_block + 1, arch.warp_size)
    by_registers = range(arch.min_registers, arch.max_registers_per_thread + 1)
    by_shared = range(0, arch.shared_bytes_per_block_optin + 1, arch.shared_granularity_bytes)
    return (
        Curve("Threads of a block", "threads", by_threads, [blocks(t=t) for t in by_threads], (threads, here),
              style.LEVELS["threads"]),
        Curve("Registers of a thread", "registers", by_registers, [blocks(r=r) for r in by_registers],
              (max(registers, arch.min_registers), here), style.LEVELS["registers"]),
        Curve("Shared memory of a block (kB)", "shared", [s / 1000 for s in by_shared],
              [blocks(s=s) for s in by_shared], (shared / 1000, here), style.LEVELS["shared"]),
    )  # fmt: skip


def figure(shown: Iterable[Run | Launch]) -> Figure:
    """Return the occupancy of every launch; raise BadOption for unknown registers and too many launches."""
    launches = [(run, x) for run in as_runs(shown) for x in run.launches]
    if len(launches) > MOST_ROWS:
        raise BadOption(f"occupancy: {counted(len(launches), 'launch')}; one picture holds {MOST_ROWS}")
    for run, launch in launches:
        if not launch.registers.is_known:
            raise BadOption(f"occupancy: the registers of {run.title} are not known (n/a); give --regs N")
    made = style.new_figure(10, 2.5 * len(launches) + 0.3)
    parts = made.subfigures(len(launches), 1, squeeze=False)[:, 0]
    for part, (run, launch) in zip(parts, launches, strict=True):
        axes, panels = part.subplots(1, 3, sharey=True), curves(launch)
        for i, (ax, curve) in enumerate(zip(axes, panels, strict=True)):
            _panel(ax, curve, launch, "Blocks an SM" if i == 0 else "")
        axes[0].set_ylim(0, 1.12 * max(max(curve.blocks) for curve in panels))
        style.title(part, *heading(run, launch))
    return made


def heading(run: Run, launch: Launch) -> tuple[str, str]:
    """Return what stands above a launch: its kernel; its occupancy, limit, and how sure its registers are."""
    o = launch.occupancy
    name = run.title if len(run.launches) == 1 else f"{run.title}: {launch.kernel}"
    sure = "" if launch.registers.is_sure else f"; registers {launch.registers.source} (modelled)"
    limits = " and ".join(WORDS[name] for name in o.limiters)
    return name, (
        f"{counted(o.blocks_per_sm, 'block')} an SM, {o.theoretical_pct:.1f} % of its warps, "
        f"limited by {limits}{sure}")  # fmt: skip


def corners(x: Sequence[float], y: Sequence[int]) -> tuple[list[float], list[int]]:
    """Return the first point of a stair and the last of each step: of 1,800 points of an SVG, some 20."""
    kept = [i for i in range(len(x)) if i in (0, len(x) - 1) or y[i] != y[i + 1]]
    return [x[i] for i in kept], [y[i] for i in kept]


def _panel(ax: Axes, curve: Curve, launch: Launch, label: str) -> None:
    """Draw the blocks as a stair: the value at an x holds from the one before it up to this one."""
    x, y = list(curve.values), list(curve.blocks)
    hatch = None if launch.registers.is_sure else style.MODELLED_HATCH
    ax.fill_between(*corners(x, y), step="pre", facecolor=curve.colour + "33", edgecolor=curve.colour + "66",
                    hatch=hatch, linewidth=0)  # fmt: skip
    ax.plot(x, y, drawstyle="steps-pre", color=curve.colour, linewidth=1.5, gid=f"{curve.name}-curve")
    ax.plot([curve.here[0]], [curve.here[1]], "o", color=style.INK, markersize=7, zorder=3,
            gid=f"{curve.name}-here")  # fmt: skip
    style.axis_labels(ax, curve.label, label)
    beside = BESIDE * (x[-1] - x[0])  # half the point, which may lie on the first or the last value
    ax.set_xlim(x[0] - beside, x[-1] + beside)
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.grid(True, color="#eeeeee")
    ax.set_axisbelow(True)
