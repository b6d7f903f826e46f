"""From executions to counters: what the blocks of a kernel ran, times what they hold.

What it models: the counters of gpusim/counters.py but for the hierarchy. A basic block's runs and lanes are
counted when it runs; arithmetic, requests, and wavefronts of known patterns follow from them, and what
depends on addresses was found at run time. The same sum is made for the launch and for each source line, so
lines add up. Judged by dsl/interpreter/run.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dsl.engine import moves
from dsl.llvm.layout import LANES_ALL
from dsl.passes.as_compiled import IssueCount
from dsl.passes.shapes import LANES
from dsl.semantics.messages import Wraps, wrap_notes
from dsl.warpir import ir
from dsl.warpir.machine import count_mma
from gpusim.counters import AccessCounts, Arithmetic, AsCompiled, ConstantCounts, Counters, SpaceCounts
from gpusim.shared import atomic_wavefronts, ideal_wavefronts, wavefronts

if TYPE_CHECKING:
    from dsl.engine.run import Compiled

EXCHANGES = (ir.Shfl, ir.Vote, ir.Match)


class SiteCounts(NamedTuple):
    """Hold what one memory instruction counted in a field of Counters (`kind`), and what it accesses.

    bytes_per_lane: of an access; of an ldmatrix, of the row that a lane names.
    """

    loc: ir.Loc
    kind: str
    array: str
    addr: ir.Operand
    bytes_per_lane: int
    counts: AccessCounts


@dataclass
class Tally:
    """Hold what a kernel's blocks counted while they ran.

    execs: int64 (blocks of the IR, 3): runs with 32 lanes, runs with fewer, lanes of those. site_counts:
    int64 (memory instructions, then merged ones, 3): sectors, wavefronts and ideal ones found at run time.
    wraps: int64 (index checks). move_counts: int64 (ldmatrix and cp.async, len(dsl.llvm.layout.Moved)).
    """

    compiled: Compiled
    execs: np.ndarray
    site_counts: np.ndarray
    wraps: np.ndarray
    move_counts: np.ndarray

    @cached_property
    def block_execs(self) -> np.ndarray:
        """Return int64 (blocks of the IR, 2): warps and lanes that ran each basic block."""
        warps = self.execs[:, 0] + self.execs[:, 1]
        return np.stack([warps, LANES * self.execs[:, 0] + self.execs[:, 2]], axis=1)

    def counters(self) -> Counters:
        """Return everything counted so far, but for `hierarchy`."""
        total = Counters.zero()
        self._count_into(lambda loc: total)
        return total

    def by_line(self) -> dict[ir.Loc, Counters]:
        """Return the same counters apart by source line; they add up to `counters()`, field by field."""
        lines: dict[ir.Loc, Counters] = {}
        self._count_into(lambda loc: lines.setdefault(loc, Counters.zero()))
        return lines

    def by_site(self) -> Iterator[SiteCounts]:
        """Yield what each memory instruction counted; a cp.async is two, where it reads and where it writes.

        Those of private arrays that stay in registers are none.
        """
        for number, (b, instr) in enumerate(self.compiled.sites):
            if instr.space != "local" or instr.array not in self.compiled.register_arrays:
                counters, kind = Counters.zero(), _counted_in(instr)
                self._add_access(counters, number, instr, b)
                size = ir.access_bytes(instr)
                yield SiteCounts(instr.loc, kind, instr.array, instr.addr, size, getattr(counters, kind))
        for number, (b, move) in enumerate(self.compiled.moves):
            counters = Counters.zero()
            self._add_move(counters, number, move, b)
            for kind, array, addr, size in moves.parts(move):
                yield SiteCounts(move.loc, kind, array, addr, size, getattr(counters, kind))

    def _count_into(self, at: Callable[[ir.Loc], Counters]) -> None:
        """Add every count to the counters that `at` gives for the line it belongs to."""
        execs = self.block_execs
        for b, loc, name, n in self.compiled.arithmetic:
            _add_arithmetic(at(loc).arithmetic, name, n, *execs[b].tolist())
        for number, (b, access) in enumerate(self.compiled.sites):
            if access.space != "local" or access.array not in self.compiled.register_arrays:
                self._add_access(at(access.loc), number, access, b)
        for number, (b, move) in enumerate(self.compiled.moves):
            self._add_move(at(move.loc), number, move, b)
        for b, block in enumerate(self.compiled.fn.blocks):
            warps = int(execs[b, 0])
            for instr in block.instrs:
                _count_instruction(at, instr, warps)
            if isinstance(block.terminator, ir.Bar):
                at(block.terminator.loc).barriers += warps
        for n, chk in zip(self.wraps.tolist(), self.compiled.code.checks, strict=False):
            if n:
                at(chk.loc).wrapped_indices += n

    def _add_access(self, counters: Counters, number: int, instr: ir.Access, b: int) -> None:
        warps, lanes = (int(v) for v in self.block_execs[b])
        counts = getattr(counters, _counted_in(instr))
        counts.lanes += lanes
        counts.bytes += lanes * ir.access_bytes(instr)
        counts.requests += warps
        self._add_traffic(counts, number, instr, warps, int(self.execs[b, 0]))

    def _add_move(self, counters: Counters, number: int, move: ir.Move, b: int) -> None:
        warps, lanes = (int(n) for n in self.block_execs[b])
        moves.add(counters, move, warps, lanes, self.move_counts[number])

    def _add_traffic(self, counts: AccessCounts, n: int, instr: ir.Access, warps: int, full: int) -> None:
        """Add what the requests of memory instruction n moved; `full` of its warps ran in the full form."""
        if isinstance(counts, ConstantCounts):
            uniform = self.compiled.shapes.of(instr.addr).uniform
            counts.addresses += warps if uniform else int(self.site_counts[n, 1])
            return
        if isinstance(counts, SpaceCounts):
            counts.sectors += int(self.site_counts[n, 0])
            return
        taken, ideal = self._wavefronts(n, instr, ir.access_bytes(instr), full)
        counts.wavefronts += taken
        counts.ideal_wavefronts += ideal

    def as_compiled(self) -> AsCompiled:
        """Return what a compiler makes of the shared loads and stores (dsl/passes/as_compiled.py)."""
        total = IssueCount(self.compiled.issues)
        for n, (b, instr) in enumerate(self.compiled.sites):
            if instr.space != "shared" or isinstance(instr, ir.Atom):
                continue
            rows = {ir.access_bytes(instr): n, **dict(self.compiled.wide.get(n, ()))}
            warps, full = int(self.block_execs[b, 0]), int(self.execs[b, 0])
            for width, share in total.shares(n, instr).items():
                total.add(instr, share, (warps, *self._wavefronts(rows[width], instr, width, full)))
        return total.result()

    def _wavefronts(self, row: int, instr: ir.Access, size: int, full: int) -> tuple[int, int]:
        """Return (wavefronts, ideal ones) of an access of `size` bytes a lane, `full` of its runs full."""
        known, known_ideal = self._static_wavefronts(instr, size)
        taken, ideal = (int(n) for n in self.site_counts[row, 1:])
        return taken + known * full, ideal + known_ideal * full

    def _static_wavefronts(self, instr: ir.Access, size: int) -> tuple[int, int]:
        """Return (wavefronts, ideal wavefronts) of a full warp; zeros where they were found at run time."""
        pattern = self.compiled.shapes.of(instr.addr).pattern
        if pattern is None:
            return 0, 0
        addresses = np.array(pattern, np.int64)
        addresses -= addresses.min()
        if isinstance(instr, ir.Atom):
            taken = atomic_wavefronts(addresses, LANES_ALL, size)
        else:
            taken = wavefronts(addresses, LANES_ALL, size, isinstance(instr, ir.Ld))
        return int(taken), int(min(taken, ideal_wavefronts(LANES_ALL, size)))

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each array and line at which negative indices wrapped."""
        wraps: Wraps = Counter()
        for n, chk in zip(self.wraps.tolist(), self.compiled.code.checks, strict=False):
            wraps[(*chk.loc, chk.array)] += n
        return wrap_notes(wraps)


def _count_instruction(at: Callable[[ir.Loc], Counters], instr: ir.Instr, warps: int) -> None:
    """Count what an instruction between lanes adds for each warp that ran it."""
    if isinstance(instr, EXCHANGES):
        at(instr.loc).warp_operations += warps
    elif isinstance(instr, ir.Mma):
        count_mma(at(instr.loc).tensor, instr.a_type, warps)


def _counted_in(instr: ir.Access) -> str:
    """Return the field of Counters that counts an instruction; shared memory has one for RED and ATOM."""
    match instr:
        case ir.Ld():
            kind = "load"
        case ir.St():
            kind = "store"
        case ir.Atom(space=space, dst=dst):
            kind = "red" if dst is None and space != "shared" else "atom"
    return f"{instr.space}_{kind}"


def _add_arithmetic(total: Arithmetic, name: str, n: int, warps: int, lanes: int) -> None:
    """Add n instructions of a class for each lane that ran them; those of the XU pipe, for each warp."""
    if name == "xu":
        total.xu_warps += n * warps
    else:
        setattr(total, name, getattr(total, name) + n * lanes)
