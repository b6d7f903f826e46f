"""The memory chart, after ncu's: threads, L1, shared memory, L2 and DRAM, with what moves between them.

Bytes are sectors of 32 bytes, those of shared memory what the threads ask for. One chart a run, all on one
scale: an arrow is as wide as its bytes, at shared memory on a scale of its own. What L1 and L2 do about
requests is modelled, so reads beyond L1 and all of DRAM are hatched. Loads of DRAM are data and code (what
instruction fetches ask for), stores also what somebody else left dirty in L2; the box says how much. What
it leaves out: time, constant memory, and the fabric between the halves of L2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrow, FancyBboxPatch, Patch

from gpusim.launch import Launch, is_counted
from gpusim.sections import flops
from gpusim.table import counted, number
from gpusim.tensor_metrics import tensor_flops
from gpusim.trace import SECTOR_BYTES
from visualize import style
from visualize.run import Run, as_runs

BOXES = {"threads": (0.0, 0.0, 4.7), "shared": (4.9, 0.0, 1.9), "L1": (4.9, 2.3, 2.4), "L2": (9.8, 2.3, 2.4),
         "DRAM": (14.7, 2.3, 2.4)}  # fmt: skip
"""Node -> left, bottom and height of its box, in units of the chart."""
BOX_WIDTH, CHART_WIDTH, CHART_HEIGHT = 2.3, 17.0, 4.7
WIDEST, THINNEST, HEAD = 0.26, 0.03, 0.42
LANES = {"read": 0.5, "write": 1.2, "atomic": 1.85}
"""Kind of traffic -> how far below the top of a box its arrow lies."""
VERBS = {"read": "loads", "write": "stores", "atomic": "atomics"}


def traffic(launch: Launch) -> nx.MultiDiGraph:
    """Return the chart as a graph: an edge a kind of traffic, in the direction in which its data go.

    Nodes: threads, shared, L1, L2, DRAM. Edges have a key ("read", "write", "atomic"), `bytes` (None is n/a)
    and `modelled`; edges of atomics are there only where there are some.
    """
    c, h = launch.counters, launch.counters.hierarchy
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(BOXES)
    known = is_counted(launch, "hierarchy")
    atomics = c.global_red.sectors + c.global_atom.sectors

    def add(source: str, target: str, kind: str, nbytes: int, modelled: bool, there: bool = True) -> None:
        graph.add_edge(source, target, kind, bytes=nbytes if there else None, modelled=modelled)

    add("L1", "threads", "read", SECTOR_BYTES * (c.global_load.sectors + c.local_load.sectors), False)
    add("threads", "L1", "write", SECTOR_BYTES * (c.global_store.sectors + c.local_store.sectors), False)
    add("L2", "L1", "read", SECTOR_BYTES * h.l2_read, True, known)
    add("L1", "L2", "write", SECTOR_BYTES * h.l2_write, False, known)
    if atomics:
        add("threads", "L1", "atomic", SECTOR_BYTES * atomics, False)
        add("L1", "L2", "atomic", SECTOR_BYTES * (h.l2_red + h.l2_atom), False, known)
    add("DRAM", "L2", "read", h.dram_read_bytes + h.dram_code_bytes, True, known)
    add("L2", "DRAM", "write", h.dram_write_bytes + h.dram_found_bytes, True, known)
    add("shared", "threads", "read", c.shared_load.bytes + c.shared_matrix.bytes, False)
    add("threads", "shared", "write", c.shared_store.bytes + c.shared_async.bytes, False)
    if c.shared_atom.requests:
        add("threads", "shared", "atomic", c.shared_atom.bytes, False)
    return graph


def figure(shown: Iterable[Run | Launch]) -> Figure:
    """Return the memory charts of runs, one below the other; each launch alone is a run of its own."""
    runs = as_runs(shown)
    graphs = [traffic(run.total) for run in runs]
    most = {shared: widest(graphs, shared) for shared in (False, True)}
    made = style.new_figure(10, 3.3 * len(runs) + 0.4)
    parts = made.subfigures(len(runs), 1, squeeze=False)[:, 0]
    for part, run, graph in zip(parts, runs, graphs, strict=True):
        style.title(part, f"{run.title}, {run.launches[0].arch.title}")
        _draw(part.subplots(), run, graph, most)
    _explain(made, most)
    return made


def widest(graphs: Iterable[nx.MultiDiGraph], shared: bool) -> int:
    """Return the most bytes of an edge, of those at shared memory or of the others; at least 1."""
    edges = ((s, t, n or 0) for g in graphs for s, t, n in g.edges(data="bytes"))
    return max(1, *(n for s, t, n in edges if ("shared" in (s, t)) is shared))


def _draw(ax: Axes, run: Run, graph: nx.MultiDiGraph, most: dict[bool, int]) -> None:
    ax.set_xlim(-0.1, CHART_WIDTH + 0.1)
    ax.set_ylim(-0.15, CHART_HEIGHT + 0.1)
    ax.set_axis_off()
    for name in graph:
        _box(ax, name, words(run)[name])
    for source, target, kind, edge in graph.edges(keys=True, data=True):
        _arrow(ax, source, target, kind, edge, most["shared" in (source, target)])


def _box(ax: Axes, name: str, lines: list[str]) -> None:
    left, bottom, height = BOXES[name]
    colour = style.LEVELS[name]
    ax.add_patch(FancyBboxPatch((left, bottom), BOX_WIDTH, height, boxstyle="round,pad=0,rounding_size=0.15",
                                facecolor=colour + "26", edgecolor=colour, linewidth=1.5))  # fmt: skip
    middle = left + BOX_WIDTH / 2
    step = 0.34
    top = bottom + height / 2 + step * len(lines) / 2
    for i, line in enumerate(lines):
        size, weight = (style.TEXT_POINTS, "bold") if i == 0 else (7.5, "normal")
        style.verbatim(ax.text(middle, top - step * (i + 0.5), line, ha="center", va="center", fontsize=size,
                               fontweight=weight, color=style.INK))  # fmt: skip


def words(run: Run) -> dict[str, list[str]]:
    """Return the lines in each box: its name, then what the level is and how it served the run."""
    launch, arch = run.total, run.total.arch
    h = launch.counters.hierarchy
    known = is_counted(launch, "hierarchy")
    blocks = sum(x.grid[0] * x.grid[1] * x.grid[2] for x in run.launches)
    done = None
    if is_counted(launch, "arithmetic"):
        done = sum(flops(launch.counters.arithmetic)) + tensor_flops(launch.counters.tensor)
    return {
        "threads": [f"{arch.sm_count} SMs", counted(len(run.launches), "launch"), counted(blocks, "block"),
                    style.quantity(done, "FLOP")],
        "shared": ["Shared memory", *_conflicts(launch)],
        "L1": ["L1", "hit rate", _percent(run.value("l1tex__t_sector_hit_rate.pct"))],
        "L2": ["L2", "hit rate", _percent(run.value("lts__t_sector_hit_rate.pct")),
               "dirty at the end", style.quantity(h.dirty_bytes if known else None, "B")],
        "DRAM": ["DRAM", style.quantity(arch.dram_bytes_per_second, "B/s"), "(data sheet)",
                 *([f"loads: code {style.quantity(h.dram_code_bytes, 'B')}"] if known else []),
                 *([f"stores: others' {style.quantity(h.dram_found_bytes, 'B')}"]
                   if known and h.dram_found_bytes else [])],
    }  # fmt: skip


def _conflicts(launch: Launch) -> list[str]:
    c = launch.counters
    parts = (c.shared_load, c.shared_store, c.shared_atom, c.shared_matrix, c.shared_async)
    if not any(p.requests for p in parts):
        return ["not used"]
    more = sum(p.wavefronts - p.ideal_wavefronts for p in parts)
    return [f"{style.quantity(sum(p.wavefronts for p in parts), '').strip()} wavefronts",
            f"{style.quantity(more, '').strip()} by conflicts"]  # fmt: skip


def _percent(value: float | int | None) -> str:
    return "n/a" if value is None else f"{number(float(value))} %"


def _arrow(ax: Axes, source: str, target: str, kind: str, edge: dict[str, Any], most: int) -> None:
    """Draw one edge with its bytes above it; grey and thin for none, dotted words for n/a."""
    y, left, right = _place(source, target, kind)
    nbytes = edge["bytes"]
    width = max(WIDEST * (nbytes or 0) / most, THINNEST)
    start, end = (left, right) if BOXES[source][0] < BOXES[target][0] else (right, left)
    colour = style.LEVELS[_colour_of(source, target)] if nbytes else style.FAINT
    ax.add_patch(FancyArrow(
        start, y, end - start, 0, width=width, head_width=max(width * 1.7, 0.2), head_length=HEAD,
        length_includes_head=True, facecolor=colour if not edge["modelled"] else colour + "66",
        edgecolor=colour, hatch=style.MODELLED_HATCH if edge["modelled"] and nbytes else None, linewidth=0.8,
        gid=f"{source}-{target}-{kind}"))  # fmt: skip
    text = f"{VERBS[kind]} {style.quantity(nbytes, 'B')}"
    style.verbatim(ax.text((left + right) / 2, y + max(width * 0.85, 0.1) + 0.04, text, ha="center",
                           va="bottom", fontsize=style.SMALL_POINTS, color=style.INK))  # fmt: skip


def _place(source: str, target: str, kind: str) -> tuple[float, float, float]:
    """Return the height of an arrow and the edges of the boxes between which it lies."""
    near, far = sorted((source, target), key=lambda name: BOXES[name][0])
    _, bottom, height = BOXES[far]
    y = bottom + height - LANES[kind]
    return y, BOXES[near][0] + BOX_WIDTH + 0.08, BOXES[far][0] - 0.08


def _colour_of(source: str, target: str) -> str:
    """Return the level whose traffic an edge is: the one farther from the threads."""
    return max(source, target, key=lambda name: BOXES[name][0])


def _explain(made: Figure, most: dict[bool, int]) -> None:
    hatched = Patch(facecolor="#cccccc", edgecolor="#777777", hatch=style.MODELLED_HATCH)
    plain = Patch(facecolor="#999999", edgecolor="#777777")
    made.legend([plain, hatched], ["exact", "modelled, as are hit rates and dirty bytes"], ncols=2,
                loc="outside lower center", fontsize=style.SMALL_POINTS, frameon=False,
                title=f"Arrows are as wide as their bytes: {style.quantity(most[False], 'B')} at most"
                + (f", {style.quantity(most[True], 'B')} at shared memory" if most[True] > 1 else ""),
                title_fontsize=style.SMALL_POINTS)  # fmt: skip
