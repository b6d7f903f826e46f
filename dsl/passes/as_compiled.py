"""What ptxas makes of the shared loads and stores of a kernel: which of them become one wide instruction.

What it models: straight code is put together, unrolled loops (dsl/passes/unrolling.py) as so many copies, and
in each stretch of it loads of one aligned piece of memory become one instruction, as `MERGES` says; so do
stores that follow one another. A stretch ends at a branch, where paths meet, at a barrier, syncwarp or
cp.async, and for loads at a store or atomic to shared memory. What it leaves out: small branches that become
predicates, loads moved out of loops, values kept in registers from one stretch to the next, loads that the
compiler keeps apart for want of registers. docs/as_compiled.md has the rules. Checked by
`smsp__inst_executed_op_shared_*` and `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_*`.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from dsl.passes.linear import Form, Forms, Terms
from dsl.passes.ssa import Phi, Ssa
from dsl.passes.unrolling import steps, unrolled_loops
from dsl.warpir import ir
from gpusim.counters import AsCompiled, Issued

Issues = dict[int, dict[int, Fraction]]
"""Number of a memory instruction -> bytes a lane of a machine instruction -> instructions for one execution.

Of four loads that become one of 16 bytes each has {16: 1/4}. What is not here is executed as it is written.
"""


@dataclass(frozen=True)
class Merge:
    """Say that accesses of one piece of memory become one instruction.

    piece_bytes: the piece, aligned to its size; one instruction takes all of it. element_bytes: of an access
    as written. least: different elements of the piece that have to be wanted.
    """

    is_load: bool
    element_bytes: int
    piece_bytes: int
    least: int


MERGES = (
    Merge(True, 4, 16, 3), Merge(True, 4, 8, 2), Merge(True, 8, 16, 2), Merge(True, 2, 8, 4),
    Merge(False, 4, 16, 4), Merge(False, 4, 8, 2), Merge(False, 8, 16, 2), Merge(False, 2, 8, 4),
    Merge(False, 2, 4, 2),
)  # fmt: skip
"""What becomes one instruction, widest first: three of four words are enough for an LDS.128, a store writes
no byte too many."""


@dataclass(frozen=True, slots=True)
class _Visit:
    """Be one run of a memory instruction in straight code: its number, and the form of its address."""

    site: int
    offset: int
    terms: Terms
    element_bytes: int
    alignment: int
    """What is known to divide the address but for `offset`; 0 where there is nothing else."""


@dataclass
class _Stretch:
    """Hold the accesses met since the last end of a stretch, and what those before it became."""

    issues: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    visits: Counter[int] = field(default_factory=Counter)
    loads: list[_Visit] = field(default_factory=list)
    stores: list[_Visit] = field(default_factory=list)

    def add(self, visit: _Visit, is_load: bool) -> None:
        """Add an access; a store ends the stretch of loads before it, and the other way round."""
        self.visits[visit.site] += 1
        if is_load:
            self._end_stores()
            self.loads.append(visit)
            return
        self._end_loads()
        if self.stores and _place(self.stores[-1], 16) != _place(visit, 16):
            self._end_stores()
        self.stores.append(visit)

    def end(self) -> None:
        """End the stretch."""
        self._end_loads()
        self._end_stores()

    def _end_loads(self) -> None:
        pieces: dict[tuple[int, Terms, int], list[_Visit]] = defaultdict(list)
        for visit in self.loads:
            pieces[_place(visit, 16)].append(visit)
        for visits in pieces.values():
            self._issue(visits, True)
        self.loads.clear()

    def _end_stores(self) -> None:
        if self.stores:
            self._issue(self.stores, False)
        self.stores.clear()

    def _issue(self, visits: list[_Visit], is_load: bool) -> None:
        """Decide what the accesses of one piece of 16 bytes become."""
        size, alignment = visits[0].element_bytes, visits[0].alignment
        for merge in MERGES:
            if (merge.is_load, merge.element_bytes) != (is_load, size) or alignment % merge.piece_bytes:
                continue
            rest: list[_Visit] = []
            for piece in _grouped(visits, merge.piece_bytes):
                if len({v.offset for v in piece}) >= merge.least:
                    self._count(piece, merge.piece_bytes)
                else:
                    rest += piece
            visits = rest
        for same in _grouped(visits, size):
            if is_load:
                self._count(same, size)
            else:
                for visit in same:
                    self._count([visit], size)

    def _count(self, visits: list[_Visit], width_bytes: int) -> None:
        """Count one instruction, an equal share of it for each access that it stands for."""
        for visit in visits:
            self.issues[visit.site][width_bytes] += Fraction(1, len(visits))  # type: ignore[assignment]


def _place(visit: _Visit, piece_bytes: int) -> tuple[int, Terms, int]:
    """Return what accesses of one piece of memory have in common."""
    return visit.element_bytes, visit.terms, visit.offset // piece_bytes


def _grouped(visits: Iterable[_Visit], piece_bytes: int) -> list[list[_Visit]]:
    groups: dict[int, list[_Visit]] = defaultdict(list)
    for visit in visits:
        groups[visit.offset // piece_bytes].append(visit)
    return list(groups.values())


class _Walk:
    """Walk a function's blocks once in layout order, those of an unrolled loop once a turn."""

    def __init__(self, ssa: Ssa) -> None:
        self.ssa, self.forms, self.stretch = ssa, Forms(), _Stretch()
        self.turns = unrolled_loops(ssa)
        self.sites = {id(instr): n for n, instr in enumerate(_accesses(ssa))}
        self.before: int | None = None
        """The block that was walked last, where it leads to one block only."""
        self.blocks(range(len(ssa.fn.blocks)))
        self._end()

    def blocks(self, blocks: range) -> None:
        """Walk some blocks; a loop that stays a loop is walked as it stands."""
        b = blocks.start
        while b < blocks.stop:
            if b in self.turns and b in self.ssa.loops:
                self._unrolled(b, self.ssa.loops[b])
                b = self.ssa.loops[b]
            else:
                self._block(b, self._comes_from(b))
            b += 1

    def _comes_from(self, b: int) -> int | None:
        """Return the one block that a block follows in straight code, or None where a stretch begins."""
        return self.before if self.ssa.preds[b] == [self.before] else None

    def _unrolled(self, header: int, last: int) -> None:
        """Walk a loop turn by turn; its header goes before each, and once more behind the last."""
        entry = next(p for p in self.ssa.preds[header] if p < header)
        straight = self.before == entry
        for turn in range(self.turns[header] + 1):
            came_from = entry if turn == 0 else last
            self._block(header, came_from, straight if turn == 0 else self.before == last)
            self.before = header
            if turn < self.turns[header]:
                self.blocks(range(header + 1, last + 1))
        self.before = header

    def _end(self) -> None:
        self.stretch.end()
        self.forms.epoch += 1

    def _block(self, b: int, came_from: int | None, straight: bool = True) -> None:
        """Walk one block, which control reaches from `came_from`, or from anywhere where that is None."""
        if came_from is None or not straight:
            self._end()
        self._phis(b, came_from)
        for instr in self.ssa.fn.blocks[b].instrs:
            shared = getattr(instr, "space", "") == "shared"
            if shared and isinstance(instr, ir.Ld | ir.St):
                self._access(instr)
            elif shared or isinstance(instr, ir.SyncWarp | ir.CpAsync | ir.CpWait):
                self._end()
            if isinstance(instr, ir.St | ir.Atom):
                self.forms.epoch += 1
            self.forms.define(instr)
        terminator = self.ssa.fn.blocks[b].terminator
        if isinstance(terminator, ir.Bar):
            self._end()
        self.before = b if isinstance(terminator, ir.Jmp) else None

    def _phis(self, b: int, came_from: int | None) -> None:
        """Give the phis of a block their forms, all at once."""
        forms = [self._phi(b, phi, came_from) for phi in self.ssa.phis[b]]
        for phi, form in zip(self.ssa.phis[b], forms, strict=True):
            self.forms.join(phi.dst, form)

    def _phi(self, b: int, phi: Phi, came_from: int | None) -> Form:
        incoming = set(phi.incoming.values())
        if came_from is not None or len(incoming) == 1:
            return self.forms.of(incoming.pop() if came_from is None else phi.incoming[came_from])
        moving = b in self.ssa.loops and steps(self.ssa, b, phi)
        return self.forms.atom(("phi", phi.dst.index, object()), moving=moving)

    def _access(self, instr: ir.Ld | ir.St) -> None:
        form, size = self.forms.of(instr.addr), ir.access_bytes(instr)
        # A vector (ld.v2, ld.v4) stays what it is: an alignment of 1 keeps it out of every piece.
        alignment = self.forms.divisor(form) if ir.elements(instr) == 1 else 1
        visit = _Visit(self.sites[id(instr)], form.constant, form.terms, size, alignment)
        self.stretch.add(visit, isinstance(instr, ir.Ld))


def shared_issues(ssa: Ssa) -> Issues:
    """Return what the shared loads and stores of a kernel become, for those that do not stay as they are."""
    walk = _Walk(ssa)
    found: Issues = {}
    for site, widths in walk.stretch.issues.items():
        shares = {width: Fraction(n) / walk.stretch.visits[site] for width, n in widths.items()}
        found[site] = dict(sorted(shares.items()))
    size = {n: ir.access_bytes(i) for n, i in enumerate(_accesses(ssa))}
    return {site: shares for site, shares in found.items() if shares != {size[site]: 1}}


def wide_rows(ssa: Ssa, issues: Issues) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return where merged accesses are counted at run time: memory instruction -> (bytes, row) of each width.

    Rows are numbered on from those of the memory instructions themselves.
    """
    accesses = _accesses(ssa)
    rows = itertools.count(len(accesses))
    found = {
        site: tuple((width, next(rows)) for width in shares if width != ir.access_bytes(accesses[site]))
        for site, shares in issues.items()
    }
    return {site: wide for site, wide in found.items() if wide}


class IssueCount:
    """Add up what shared accesses are as machine instructions, in exact shares; `result` gives whole numbers.
    """

    def __init__(self, issues: Issues) -> None:
        self.issues = issues
        self.totals: dict[type, list[Fraction]] = {kind: [Fraction(0)] * 3 for kind in (ir.Ld, ir.St)}

    def shares(self, site: int, instr: ir.Access) -> dict[int, Fraction]:
        """Return bytes a lane -> instructions for one execution of a memory instruction."""
        return self.issues.get(site, {ir.access_bytes(instr): Fraction(1)})

    def add(self, instr: ir.Access, share: Fraction, counted: tuple[int, int, int]) -> None:
        """Add executions of one access, each a share of an instruction of one width.

        counted: the executions with an active lane, and the wavefronts and ideal wavefronts of that width.
        """
        total = self.totals[type(instr)]
        for k, n in enumerate(counted):
            total[k] += share * n

    def result(self) -> AsCompiled:
        """Return the totals; shares that do not add up to whole instructions are rounded."""
        load, store = (Issued(*map(round, self.totals[kind])) for kind in (ir.Ld, ir.St))
        return AsCompiled(load, store)


def _accesses(ssa: Ssa) -> list[ir.Access]:
    return [i for block in ssa.fn.blocks for i in block.instrs if isinstance(i, ir.Access)]
