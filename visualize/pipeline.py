"""Launches and buffers as a graph: which launch reads and writes which array, with the bytes.

A launch is a column, a buffer a lane; an arrow into a column is a read, one out of it a write or an atomic.
Bytes are sectors of 32 bytes that the launch asks L1 for, which is exact. What it leaves out: shared and
local memory, constants, and which level answers (the memory chart says that).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrow, FancyBboxPatch

from gpusim.errors import BadOption
from gpusim.launch import Launch
from gpusim.trace import SECTOR_BYTES
from visualize import style
from visualize.fit import fitted
from visualize.run import Run, as_runs

READS = ("global_load",)
WRITES = ("global_store", "global_red", "global_atom")
VERBS = {"global_load": "loads", "global_store": "stores", "global_red": "atomics", "global_atom": "atomics"}
COLUMN, BAR, LANE, WIDEST, THINNEST = 3.6, 1.3, 0.62, 0.2, 0.03
NAME_PIXELS = 165
"""Of a launch, which has a column, and of a buffer."""
Names = Sequence[Mapping[str, str]]


def graph(run: Run, names: Names = ()) -> nx.DiGraph:
    """Return a graph of ("launch", number) and ("buffer", name) with `bytes` on its edges.

    names: for each launch, parameter -> buffer, where a buffer has another name in another launch. Raise
    BadOption where a launch's engine does not tell its arrays apart.
    """
    made = nx.DiGraph()
    for i, launch in enumerate(run.launches):
        if not launch.accesses:
            raise BadOption(f"pipeline: {run.title} ran on the engine {launch.engine}, which does not tell "
                            "arrays apart (n/a); use --engine compiled")  # fmt: skip
        made.add_node(("launch", i), name=launch.kernel)
        called = names[i] if names else {}
        for a in launch.accesses:
            if a.kind not in VERBS:
                continue
            ends = ("buffer", called.get(a.array, a.array)), ("launch", i)
            source, target = ends if a.kind in READS else ends[::-1]
            before = made.get_edge_data(source, target, {"bytes": 0, "verbs": ()})
            verbs = tuple(dict.fromkeys([*before["verbs"], VERBS[a.kind]]))
            made.add_edge(source, target, bytes=before["bytes"] + SECTOR_BYTES * a.taken, verbs=verbs)
    return made


def figure(shown: Iterable[Run | Launch], names: Mapping[str, Names] | None = None) -> Figure:
    """Return the graphs of runs, one below the other; names: title -> `names` of `graph`."""
    runs = as_runs(shown)
    graphs = [graph(run, (names or {}).get(run.title, ())) for run in runs]
    lanes = [buffers(g) for g in graphs]
    columns = max(len(run.launches) for run in runs)
    heights = [LANE * len(own) + 0.65 for own in lanes]
    width = max(7.0, 0.5 * (COLUMN * columns + 4))
    made = style.new_figure(width, 0.75 * sum(heights) + 0.4 + 0.3 * len(runs))
    parts = made.subfigures(len(runs), 1, squeeze=False, height_ratios=heights)[:, 0]
    most = max(n for g in graphs for *_, n in g.edges(data="bytes"))
    for part, run, g, own, height in zip(parts, runs, graphs, lanes, heights, strict=True):
        style.title(part, run.title)
        ax = part.subplots()
        ax.set_xlim(-0.1, COLUMN * columns + 3.3)
        ax.set_ylim(-0.1, height)
        ax.set_axis_off()
        _draw(ax, g, own, len(run.launches), most)
    made.supxlabel("Sectors of 32 bytes that launches ask L1 for (exact); the widest arrow is "
                   f"{style.quantity(most, 'B')}, hollow ones are atomics",
                   fontsize=style.SMALL_POINTS)  # fmt: skip
    return made


def buffers(g: nx.DiGraph) -> list[str]:
    """Return the buffers in the order in which launches first touch them, reads of a launch first."""
    found: dict[str, None] = {}
    for node in g:
        if node[0] == "launch":
            touching = [*g.predecessors(node), *g.successors(node)]
            found |= dict.fromkeys(name for _, name in touching)
    return list(found)


def _bar(i: int) -> float:
    """Return the left edge of a launch's column."""
    return COLUMN * i + 3.3


def _draw(ax: Axes, g: nx.DiGraph, lanes: Sequence[str], launches: int, most: int) -> None:
    top, grey = LANE * len(lanes) + 0.1, style.LEVELS["threads"]
    for i in range(launches):
        ax.add_patch(FancyBboxPatch((_bar(i), 0), BAR, top, boxstyle="round,pad=0,rounding_size=0.1",
                                    facecolor=grey + "26", edgecolor=grey, linewidth=1.5))  # fmt: skip
        name = fitted(ax.figure, f"{i + 1}. {g.nodes['launch', i]['name']}", NAME_PIXELS, 2,
                      fontsize=style.TEXT_POINTS, fontweight="bold")  # fmt: skip
        style.verbatim(ax.text(_bar(i) + BAR / 2, top + 0.1, name, ha="center", va="bottom",
                               fontsize=style.TEXT_POINTS, fontweight="bold"))  # fmt: skip
    for k, name in enumerate(lanes):
        y = top - LANE * (k + 0.72)
        node = ("buffer", name)
        touched = [i for kind, i in (*g.predecessors(node), *g.successors(node))]
        ax.plot([0.9, _bar(max(touched))], [y, y], color=style.FAINT, linewidth=0.8, linestyle=":", zorder=0)
        said = fitted(ax.figure, name, NAME_PIXELS, 2, fontsize=style.TEXT_POINTS)
        style.verbatim(ax.text(0.8, y, said, ha="right", va="center", fontsize=style.TEXT_POINTS))
        for i in sorted(set(touched)):
            _arrow(ax, g, node, ("launch", i), y, most)
            _arrow(ax, g, ("launch", i), node, y, most)


def _arrow(ax: Axes, g: nx.DiGraph, source: tuple[str, object], target: tuple[str, object], y: float,
           most: int) -> None:  # fmt: skip
    """Draw one edge beside its launch's column, if the graph has it."""
    edge = g.get_edge_data(source, target)
    if edge is None:
        return
    into = target[0] == "launch"
    (_, i), (_, name) = (target, source) if into else (source, target)
    start = _bar(int(str(i))) - 1.1 if into else _bar(int(str(i))) + BAR + 0.05
    width = max(THINNEST, WIDEST * edge["bytes"] / most)
    colour = style.LEVELS["L1"]
    hollow = edge["verbs"] == ("atomics",)
    ax.add_patch(FancyArrow(start, y, 1.05, 0, width=width, head_width=max(1.7 * width, 0.16),
                            head_length=0.2, length_includes_head=True, edgecolor=colour, linewidth=0.8,
                            facecolor="white" if hollow else colour,
                            gid=f"{source[1]}-{target[1]}"))  # fmt: skip
    ax.text(start + 0.5, y + width / 2 + 0.06, style.quantity(edge["bytes"], "B"), ha="center", va="bottom",
            fontsize=style.SMALL_POINTS)  # fmt: skip
