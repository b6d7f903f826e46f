"""The stretches of a kernel between barriers and edges of loops: what a warp issues in each, and its longest
chain.

What it models: the shape that NVVM gives loops. Small loops of constant length are unrolled wholly
(dsl/passes/unrolling.py), other innermost loops by four with the rest before, in which turns do not overlap.
A loop over a range of unknown length counts in 64 bits, a chain of five instructions a turn, as numba-cuda's
does. What does not vary in a loop is computed before it: a turn is walked once for that before it counts.
What it leaves out: what happens between stretches. Checked by `smsp__inst_executed`, and by
`gpu__time_duration` through gpusim/clock.py; docs/time_estimate.md says how well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import numpy as np

from dsl.passes.ssa import Phi, Ssa, constant_trips, registers_read
from dsl.passes.unrolling import range_of, unrolled_loops
from dsl.passes.warp_walk import Leg, Link, WarpWalk
from dsl.warpir import ir
from dsl.warpir.machine import machine_counts
from gpusim.work import Stretch

UNROLLED_BY = 4
UNROLLED_SIZE = 100
"""Instructions of a turn up to which a loop of unknown length is unrolled."""
SCOREBOARDS = 6
"""Loads that a warp can wait for apart; more of them that are read once each, by arithmetic, share registers,
and a scoreboard, with loads before them."""
ENTRY, ENTRY_STEP, ENTRY_DIVISION = 20, 10, 50
"""Instructions before a loop over a range of unknown length: its turns, and their rest by four; more for a
step other than 1, and for a step that is unknown."""
ENTRY_CHAIN = 3
"""Of so many of them one waits for another."""


@dataclass(frozen=True)
class Plan:
    """Hold what a warp does in one stretch, each time that its basic blocks run.

    visits: runs of each basic block that the numbers are of. issued, chain: (block, class) -> instructions
    and steps. barrier: the block that ends at one, if any. In whole groups of `turns` turns of the loop at
    `header`, which is entered from `entries`, it is `many` instead.
    """

    visits: Mapping[int, int]
    issued: Mapping[tuple[int, str], int]
    chain: Mapping[tuple[int, str], int]
    barrier: int | None = None
    header: int | None = None
    entries: tuple[int, ...] = ()
    turns: int = 1
    many: Plan | None = None

    def over(self, execs: np.ndarray) -> Stretch:
        """Return the stretch over all warps; execs: int64 (blocks, at least 1), warps that ran each."""
        share = self._share_of_groups(execs)
        issued, chain = self._times(execs, 1 - share)
        if self.many is not None:
            for total, more in zip((issued, chain), self.many._times(execs, share), strict=True):
                for kind, n in more.items():
                    total[kind] += n
        if self.barrier is not None:
            chain["barrier"] += float(execs[self.barrier, 0])
        return Stretch({k: n for k, n in issued.items() if n}, {k: n for k, n in chain.items() if n})

    def _share_of_groups(self, execs: np.ndarray) -> float:
        """Return which part of a loop's turns is in whole groups, for the mean number of turns."""
        if self.many is None or self.header is None:
            return 0.0
        entered = sum(int(execs[p, 0]) for p in self.entries)
        turns = (int(execs[self.header, 0]) - entered) / max(1, entered)
        return int(turns + 1e-9) // self.turns * self.turns / turns if turns > 0 else 0.0

    def _times(self, execs: np.ndarray, share: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return instructions and steps by class, of a share of the runs."""
        issued: dict[str, float] = defaultdict(float)
        chain: dict[str, float] = defaultdict(float)
        for total, each in ((issued, self.issued), (chain, self.chain)):
            for (b, kind), n in each.items():
                total[kind] += share * n * int(execs[b, 0]) / self.visits[b]
        return issued, chain


def plans(ssa: Ssa, register_arrays: frozenset[str]) -> tuple[Plan, ...]:
    """Return the stretches of a kernel in the order of its text; which run how often, the launch tells."""
    return tuple(_Cutter(ssa, register_arrays).found)


def stretches(found: tuple[Plan, ...], execs: np.ndarray) -> tuple[Stretch, ...]:
    """Return the stretches of a launch that ran: execs as in Plan.over."""
    made = (plan.over(execs) for plan in found)
    return tuple(s for s in made if s.issued or s.chain)


class LaunchStretches(Sequence[Stretch]):
    """Be the stretches of one launch, made when somebody asks: most launches are never timed."""

    def __init__(self, found: Callable[[], tuple[Plan, ...]], execs: np.ndarray) -> None:
        self._found, self._execs = found, execs

    @cached_property
    def _made(self) -> tuple[Stretch, ...]:
        return stretches(self._found(), self._execs)

    @overload
    def __getitem__(self, at: int) -> Stretch: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Stretch]: ...

    def __getitem__(self, at: int | slice) -> Stretch | Sequence[Stretch]:
        """Return one stretch, or some."""
        return self._made[at]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._made)

    def __reduce__(self) -> tuple[type, tuple[tuple[Stretch, ...]]]:
        """Be a plain tuple in a copy or a pickle."""
        return tuple, (self._made,)

    def __eq__(self, other: object) -> bool:
        """Tell whether other stretches, in a sequence of any kind, are the same."""
        return isinstance(other, Sequence) and self._made == tuple(other)


class _Cutter:
    """Walk a kernel in layout order and cut it into stretches."""

    def __init__(self, ssa: Ssa, register_arrays: frozenset[str]) -> None:
        self.ssa = ssa
        self.unrolled = _unrolled(ssa)
        self.walk = WarpWalk(ssa, register_arrays, _joins(ssa))
        self.found: list[Plan] = []
        self._span(0, len(ssa.fn.blocks) - 1, None)
        self._cut()

    def _cut(self, barrier: int | None = None) -> None:
        """End the stretch under way; nothing waits across its end."""
        leg, self.walk.leg = self.walk.leg, Leg()
        self.walk.counter = self.walk.counter._replace(symbol=None)
        if self.walk.counting and leg.visits:
            chain = _chain(leg)
            for b, _ in (*leg.issued, *chain):
                leg.visits[b] = leg.visits[b] or 1  # of a loop's turn, whose last block is in a later stretch
            self.found.append(Plan(leg.visits, leg.issued, chain, barrier))

    def _span(self, first: int, last: int, inside: int | None) -> None:
        """Walk the blocks first..last, which are the body of the loop at `inside`, if any."""
        b = first
        while b <= last:
            if b in self.unrolled and b != inside:
                self._whole(b)
                b = self.ssa.loops[b]
            elif b in self.ssa.loops and b != inside:
                self._cut()
                self._loop(b)
                b = self.ssa.loops[b]
            else:
                self._block(b, b == inside)
                if isinstance(self.ssa.fn.blocks[b].terminator, ir.Bar):
                    self._cut(b)
            b += 1

    def _block(self, b: int, is_header: bool) -> None:
        if is_header:
            self.walk.block(b, self._test(b), decides=False)
        else:
            self.walk.merge(b)
            self.walk.block(b)

    def _test(self, header: int) -> ir.Instr | None:
        """Return the comparison of a counted loop's header, which its count replaces."""
        block = self.ssa.fn.blocks[header]
        if block.may_spin or not isinstance(block.terminator, ir.Bra):
            return None
        cond = block.terminator.cond
        where, made = self.ssa.defs[cond.index] if isinstance(cond, ir.Reg) else (-1, None)
        return made if where == header and isinstance(made, ir.Setp) else None

    def _whole(self, header: int) -> None:
        """Walk a loop that is unrolled wholly, turn after turn, and its header once more."""
        last = self.ssa.loops[header]
        for turn in range(self.unrolled[header] + 1):
            self.walk.enter(header, last if turn else self._entries(header)[0])
            if turn < self.unrolled[header]:
                self._span(header, last, header)
            else:
                self.walk.block(header, self._test(header), decides=False)

    def _entries(self, header: int) -> tuple[int, ...]:
        return tuple(p for p in self.ssa.preds[header] if p < header)

    def _loop(self, header: int) -> None:
        """Walk a loop that stays: a turn for what does not vary, one that counts, and a group of turns."""
        last, counting = self.ssa.loops[header], self.walk.counting
        self.walk.counting = False
        self.walk.unknown(header)
        self._span(header, last, header)
        self._cut()
        self.walk.counting = counting
        if not counting:
            return
        if self._counts_in_64_bits(header):
            self._entry(header)
        self._turns(header, 1)
        if self._is_innermost(header) and sum(self.found[-1].issued.values()) <= UNROLLED_SIZE:
            one = self.found.pop()
            self._turns(header, UNROLLED_BY)
            self.found[-1] = replace(one, header=header, entries=self._entries(header), turns=UNROLLED_BY,
                                     many=self.found[-1])  # fmt: skip

    def _turns(self, header: int, turns: int) -> None:
        last, spins = self.ssa.loops[header], self.ssa.fn.blocks[header].may_spin
        counts = self._counts_in_64_bits(header)
        for _ in range(turns):
            self.walk.enter(header, last)
            if counts:
                self.walk.turn(last)
            self._span(header, last, header)
        leg = self.walk.leg
        leg.visits[last] = leg.visits[last] or 1  # where the body ended at a barrier
        leg.issued[last, "control"] += 1
        leg.issued[last, "integer"] += 0 if counts or spins else 2
        self._cut()

    def _counts_in_64_bits(self, header: int) -> bool:
        return not self.ssa.fn.blocks[header].may_spin and constant_trips(self.ssa, header) is None

    def _is_innermost(self, header: int) -> bool:
        body = range(header, self.ssa.loops[header] + 1)
        stays = any(h in body and h != header and h not in self.unrolled for h in self.ssa.loops)
        return not stays and not any(isinstance(self.ssa.fn.blocks[b].terminator, ir.Bar) for b in body)

    def _entry(self, header: int) -> None:
        """Add what a loop over a range of unknown length takes before its first turn."""
        found = range_of(self.ssa, header)
        step = found[2] if found else ir.Imm(1)
        more = 0 if step == ir.Imm(1) else ENTRY_STEP if isinstance(step, ir.Imm) else ENTRY_DIVISION
        n, before = ENTRY + more, self._entries(header)[0]
        self.found.append(Plan({before: 1}, {(before, "entry"): n}, {(before, "alu"): n // ENTRY_CHAIN}))


def _chain(leg: Leg) -> Counter[tuple[int, str]]:
    """Return the steps of a stretch's longest chain, and of loads that wait for registers, by block."""
    steps: Counter[tuple[int, str]] = Counter()
    link: Link | None = leg.longest[1]
    while link is not None:
        steps[link.block, link.kind] += link.steps
        link = link.before
    for kind in ("global", "shared"):
        once = [b for k, b, symbol in leg.loads if k == kind and leg.uses[symbol] <= 1]
        if len(once) > SCOREBOARDS:
            most = Counter(once).most_common(1)[0][0]
            steps[most, f"queued_{kind}"] += len(once) - SCOREBOARDS
    return steps


def _unrolled(ssa: Ssa) -> dict[int, int]:
    """Return the loops that are unrolled wholly, header -> turns: those that hold no barrier and no loop that
    stays."""
    whole = unrolled_loops(ssa)

    def is_plain(header: int) -> bool:
        body = range(header, ssa.loops[header] + 1)
        inner = all(h in whole for h in ssa.loops if h in body)
        return inner and not any(isinstance(ssa.fn.blocks[b].terminator, ir.Bar) for b in body)

    return {header: turns for header, turns in whole.items() if is_plain(header)}


def _joins(ssa: Ssa) -> frozenset[int]:
    """Return the blocks at which a branch that stays one begins or ends.

    Others become predicates. In 17 kernels ptxas keeps those in which a value that is loaded is read, if
    there is a store, a special function or a second load at an address that the first one gave beside it.
    """
    found: set[int] = set()
    for b, block in enumerate(ssa.fn.blocks):
        join = ssa.ipdom.get(b, -1)
        if isinstance(block.terminator, ir.Bra) and b not in ssa.loops and join > b:
            inside = [i for x in range(b + 1, join) for i in ssa.fn.blocks[x].instrs]
            if _stays(ssa, inside):
                found |= {*ir.successors(block.terminator), join}
    return frozenset(found)


def _stays(ssa: Ssa, inside: list[ir.Instr]) -> bool:
    loads = [i for i in inside if isinstance(i, ir.Ld | ir.Atom) and i.space != "local"]
    loaded = {d.index for i in loads for d in ir.destinations(i)}
    if not any(registers_read(ir.sources(i)) & loaded for i in inside):
        return False
    return any(_keeps(ssa, i, loaded) for i in inside)


def _keeps(ssa: Ssa, instr: ir.Instr, loaded: set[int]) -> bool:
    match instr:
        case ir.St(space=space):
            return space != "local"
        case ir.Ld(addr=addr):
            return any(o.index in loaded for o in _made_from(ssa, addr))
        case ir.Alu():
            return bool(machine_counts(instr).get("xu"))
    return False


def _made_from(ssa: Ssa, operand: ir.Operand) -> Iterator[ir.Reg]:
    """Yield the registers that a value is computed from, back to loads and phis, and itself."""
    todo, seen = [operand], set[int]()
    while todo:
        o = todo.pop()
        if isinstance(o, ir.Imm) or o.index in seen:
            continue
        seen.add(o.index)
        yield o
        definition = ssa.defs[o.index][1]
        if not isinstance(definition, Phi):
            todo += ir.sources(definition)
