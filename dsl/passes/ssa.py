"""Static single assignment: give each assignment of a WarpIR register a name of its own.

What it models: which assignment a use sees. Where several meet, a phi says which value comes along which
edge. Besides the usual places, a phi stands at every edge that leaves a loop, for each register assigned in
it: lanes that leave in different iterations take their own value along (closed loops). Copies (mov)
disappear: the copy's name stands for its source. What it leaves out: lanes and masks. Checked by no metric of
its own.

A loop here is a span of layout: its header to the block with its back edge (dsl/warpir/ir.py), so code that
runs just before a `break` belongs to it as well.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace

import networkx as nx

from dsl.warpir import ir

EXIT = -2


@dataclass(eq=False)
class Phi:
    """Join values at the top of a block: `incoming` maps each predecessor to the operand from there."""

    dst: ir.Reg
    variable: int
    incoming: dict[int, ir.Operand] = field(default_factory=dict)


Definition = tuple[int, "ir.Instr | Phi"]


def written(definition: ir.Instr | Phi) -> tuple[ir.Reg, ...]:
    """Return the registers that an instruction or a phi writes."""
    return (definition.dst,) if isinstance(definition, Phi) else ir.destinations(definition)


@dataclass(eq=False)
class Ssa:
    """Hold a function in SSA form; `fn.blocks` are renamed copies, `phis[b]` stand at the top of block b.

    defs: register index -> (block, instruction or phi). idom and ipdom: immediate (post-)dominators of
    blocks, EXIT at the end. loops: header -> last block. live_in[b]: SSA registers that block b or a later
    one reads before they are assigned there.
    """

    fn: ir.Function
    phis: list[list[Phi]]
    preds: list[list[int]]
    idom: dict[int, int]
    ipdom: dict[int, int]
    loops: dict[int, int]
    defs: dict[int, Definition] = field(default_factory=dict)
    live_in: list[set[int]] = field(default_factory=list)

    def registers(self) -> dict[int, ir.Reg]:
        """Map every SSA register's index to the register."""
        return {i: reg for i, (_, d) in self.defs.items() for reg in written(d) if reg.index == i}


def control_flow(fn: ir.Function) -> nx.DiGraph:
    """Return the graph of the blocks; every Ret goes on to EXIT, and so does the end of an endless loop."""
    graph = nx.DiGraph()
    graph.add_nodes_from([*range(len(fn.blocks)), EXIT])
    for i, block in enumerate(fn.blocks):
        targets = ir.successors(block.terminator)
        graph.add_edges_from((i, t) for t in targets or (EXIT,))
    for last in sorted(ir.loops(fn).values()):
        if not nx.has_path(graph, last, EXIT):
            graph.add_edge(last, EXIT)
    return graph


def predecessors(fn: ir.Function) -> list[list[int]]:
    """List the predecessors of each block, once each."""
    preds: list[list[int]] = [[] for _ in fn.blocks]
    for i, block in enumerate(fn.blocks):
        for t in dict.fromkeys(ir.successors(block.terminator)):
            preds[t].append(i)
    return preds


def registers_read(operands: tuple[ir.Operand, ...]) -> set[int]:
    """Return the indices of the registers among some operands."""
    return {o.index for o in operands if isinstance(o, ir.Reg)}


def liveness(fn: ir.Function) -> list[set[int]]:
    """Return, for each block, the registers live at its top (plain, before SSA)."""
    use: list[set[int]] = []
    define: list[set[int]] = []
    for block in fn.blocks:
        used: set[int] = set()
        defined: set[int] = set()
        for instr in block.instrs:
            used |= registers_read(ir.sources(instr)) - defined
            defined |= {dst.index for dst in ir.destinations(instr)}
        used |= registers_read(ir.sources(block.terminator)) - defined
        use.append(used)
        define.append(defined)
    live: list[set[int]] = [set() for _ in fn.blocks]
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(fn.blocks))):
            out = set().union(*(live[t] for t in ir.successors(fn.blocks[i].terminator)))
            new = use[i] | (out - define[i])
            if new != live[i]:
                live[i], changed = new, True
    return live


def _assigned_in(fn: ir.Function) -> dict[int, set[int]]:
    """Map each register to the blocks that assign it."""
    blocks: dict[int, set[int]] = defaultdict(set)
    for i, block in enumerate(fn.blocks):
        for instr in block.instrs:
            for dst in ir.destinations(instr):
                blocks[dst.index].add(i)
    return blocks


def loop_exits(fn: ir.Function, header: int, last: int) -> set[int]:
    """Return the blocks outside the span header..last that an edge from inside goes to."""
    span = range(header, last + 1)
    return {t for i in span for t in ir.successors(fn.blocks[i].terminator) if t not in span}


def _loop_phis(fn: ir.Function, assigned: dict[int, set[int]], live: list[set[int]]) -> dict[int, set[int]]:
    """Map each register that a loop assigns to the blocks behind the loop where it needs a phi."""
    forced: dict[int, set[int]] = defaultdict(set)
    for header, last in ir.loops(fn).items():
        for target in loop_exits(fn, header, last):
            for reg in live[target]:
                if any(header <= b <= last for b in assigned[reg]):
                    forced[reg].add(target)
    return forced


def _phi_places(fn: ir.Function, frontiers: dict[int, set[int]], live: list[set[int]]) -> list[set[int]]:
    """Return, for each block, the registers that need a phi at its top."""
    assigned = _assigned_in(fn)
    forced = _loop_phis(fn, assigned, live)
    places: list[set[int]] = [set() for _ in fn.blocks]
    for reg, blocks in assigned.items():
        todo = list(blocks | forced[reg])
        for b in forced[reg]:
            places[b].add(reg)
        seen = set(todo)
        while todo:
            for f in frontiers.get(todo.pop(), ()):
                if f >= 0 and reg in live[f]:
                    places[f].add(reg)
                    if f not in seen:
                        seen.add(f)
                        todo.append(f)
    return places


POISON = {
    **dict.fromkeys(ir.FLOATS, ir.Imm(math.nan)),
    **dict.fromkeys(("s32", "s64"), ir.Imm(-1)),
    "u32": ir.Imm(2**32 - 1),
    "u64": ir.Imm(2**64 - 1),
    "pred": ir.Imm(False),
}
"""What a register holds that its lane has not assigned, by type: all bits set, or false
(dsl/interpreter/warp.py).
"""


class _Renamer:
    """Walk the dominator tree and give every assignment a fresh register."""

    def __init__(self, fn: ir.Function, ssa: Ssa) -> None:
        self.fn, self.ssa, self.next = fn, ssa, 0

    def fresh(self, like: ir.Reg) -> ir.Reg:
        """Return a new register of the type and name of another."""
        self.next += 1
        return ir.Reg(self.next - 1, like.type, like.name)

    def walk(self, root: int) -> None:
        """Rename the blocks that `root` dominates, parents first."""
        children: dict[int, list[int]] = defaultdict(list)
        for b, parent in self.ssa.idom.items():
            if b != parent and b >= 0:
                children[parent].append(b)
        stack: list[tuple[int, dict[int, ir.Operand]]] = [(root, {})]
        while stack:
            block, names = stack.pop()
            names = dict(names)
            self.block(block, names)
            stack.extend((child, names) for child in sorted(children[block], reverse=True))

    def block(self, b: int, names: dict[int, ir.Operand]) -> None:
        """Rename one block; `names` maps registers to their present names and is brought up to date."""

        def read(o: ir.Operand) -> ir.Operand:
            return names.get(o.index, POISON[o.type]) if isinstance(o, ir.Reg) else o

        for phi in self.ssa.phis[b]:
            phi.dst = self.fresh(phi.dst)
            names[phi.variable] = phi.dst
            self.ssa.defs[phi.dst.index] = (b, phi)
        old = self.fn.blocks[b]
        new = ir.Block(may_spin=old.may_spin, may_be_long=old.may_be_long)
        for instr in old.instrs:
            copy = ir.with_sources(instr, read)
            if isinstance(copy, ir.Alu) and _is_copy(copy):
                names[copy.dst.index] = copy.srcs[0]
                continue
            old_dsts = ir.destinations(copy)
            fresh = tuple(self.fresh(dst) for dst in old_dsts)
            copy = ir.with_destinations(copy, fresh)
            for before, after in zip(old_dsts, fresh, strict=True):
                names[before.index] = after
                self.ssa.defs[after.index] = (b, copy)
            new.instrs.append(copy)
        assert old.terminator is not None
        new.terminator = ir.with_sources(old.terminator, read)
        self.ssa.fn.blocks[b] = new
        for t in ir.successors(old.terminator):
            for phi in self.ssa.phis[t]:
                phi.incoming[b] = names.get(phi.variable, POISON[phi.dst.type])


def _is_copy(instr: ir.Alu) -> bool:
    """Tell whether an instruction only gives a value another name; SSA form needs none of these."""
    if instr.op != "mov" or instr.type != instr.dst.type:
        return False
    source = instr.srcs[0]
    return isinstance(source, ir.Imm) or source.type == instr.type


def _ssa_liveness(ssa: Ssa) -> list[set[int]]:
    """Return SSA registers live at the top of each block, phis of the block itself not included as uses."""
    fn, n = ssa.fn, len(ssa.fn.blocks)
    live: list[set[int]] = [set() for _ in range(n)]
    defined = [{p.dst.index for p in ssa.phis[b]} for b in range(n)]
    used: list[set[int]] = [set() for _ in range(n)]
    for b, block in enumerate(fn.blocks):
        here = set(defined[b])
        for instr in [*block.instrs, block.terminator]:
            used[b] |= registers_read(ir.sources(instr)) - here
            here |= {dst.index for dst in ir.destinations(instr)}
        defined[b] = here
    changed = True
    while changed:
        changed = False
        for b in reversed(range(n)):
            out: set[int] = set()
            for t in ir.successors(fn.blocks[b].terminator):
                out |= live[t] - {p.dst.index for p in ssa.phis[t]}
                out |= registers_read(tuple(p.incoming[b] for p in ssa.phis[t]))
            new = used[b] | (out - defined[b])
            if new != live[b]:
                live[b], changed = new, True
    return live


def build(fn: ir.Function) -> Ssa:
    """Return the SSA form of a function; raises ir.MalformedIR if the function breaks a rule."""
    ir.verify(fn)
    graph = control_flow(fn)
    idom = {b: d for b, d in nx.immediate_dominators(graph, 0).items() if b != EXIT and d is not None}
    reverse = graph.reverse()
    ipdom = {b: d for b, d in nx.immediate_dominators(reverse, EXIT).items() if b != EXIT and d is not None}
    frontiers = nx.dominance_frontiers(graph, 0)
    places = _phi_places(fn, frontiers, liveness(fn))
    instrs = (i for block in fn.blocks for i in block.instrs)
    by_index = {reg.index: reg for i in instrs for reg in ir.destinations(i)}
    phis = [[Phi(by_index[r], r) for r in sorted(regs)] for regs in places]
    copy = replace(fn, blocks=[ir.Block() for _ in fn.blocks])
    ssa = Ssa(copy, phis, predecessors(fn), idom, ipdom, ir.loops(fn))
    _Renamer(fn, ssa).walk(0)
    copy.n_regs = len(ssa.defs)
    ssa.live_in = _ssa_liveness(ssa)
    return ssa


def constant_trips(ssa: Ssa, header: int) -> int | None:
    """Return how often the body of a counted loop with constant ends runs, or None for any other loop."""
    terminator = ssa.fn.blocks[header].terminator
    if not isinstance(terminator, ir.Bra) or not isinstance(terminator.cond, ir.Reg):
        return None
    match ssa.defs[terminator.cond.index][1]:
        case ir.Setp(op="lt", a=ir.Reg(index=counter), b=ir.Imm(value=stop)):
            block, phi = ssa.defs[counter]
        case _:
            return None
    if block != header or not isinstance(phi, Phi):
        return None
    starts = [v for p, v in phi.incoming.items() if p < header]
    nexts = [v for p, v in phi.incoming.items() if p >= header]
    match starts, nexts:
        case [ir.Imm(value=start)], [ir.Reg(index=moved)]:
            pass
        case _:
            return None
    match ssa.defs[moved][1]:
        case ir.Alu(op="add", srcs=(ir.Reg(index=i), ir.Imm(value=step))) if i == counter and step > 0:
            return max(0, -(-(int(stop) - int(start)) // int(step)))
    return None
