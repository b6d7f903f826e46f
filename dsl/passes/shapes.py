"""Lane shapes and divergence: how a value varies over the lanes of a warp, and which branches split a warp.

What it models, for each SSA register: Uniform (the same in all active lanes), Pattern (a uniform base plus 32
integers known when the kernel is compiled: threadIdx.x, a row index times 4, ...) or Varying; and for a base
the largest integer that is known to divide it. Then a bank-conflict degree is a constant, a coalesced request
costs O(1), and a branch on a uniform condition is a plain branch. What it leaves out: relations between
registers. Checked by no metric: it only decides which code is made.

Divergence follows reconvergence at the immediate post-dominator: where paths of one divergent branch meet,
phis vary; where lanes leave a loop in different iterations, the phis at the loop's exits vary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsl.passes.intervals import Intervals, type_range, wrapped
from dsl.passes.ssa import EXIT, Phi, Ssa, loop_exits, written
from dsl.warpir import ir

LANES = 32
ZERO = (0,) * LANES


@dataclass(frozen=True, slots=True)
class Shape:
    """Describe a value: lanes hold base + pattern[lane]; pattern None means varying.

    `divisor` divides the base (0: the base is 0).
    """

    pattern: tuple[int, ...] | None
    divisor: int = 1

    @property
    def uniform(self) -> bool:
        """Tell whether all lanes hold the same value."""
        return self.pattern == ZERO

    @property
    def varying(self) -> bool:
        """Tell whether nothing is known."""
        return self.pattern is None


VARYING = Shape(None)
UNIFORM = Shape(ZERO)


def constant(value: int | float | bool) -> Shape:
    """Return the shape of a constant."""
    return Shape(ZERO, abs(value)) if isinstance(value, int) else UNIFORM


def _added(a: Shape, b: Shape, sign: int) -> Shape:
    if a.pattern is None or b.pattern is None:
        return VARYING
    pattern = tuple(x + sign * y for x, y in zip(a.pattern, b.pattern, strict=True))
    return Shape(pattern, math.gcd(a.divisor, b.divisor))


def _scaled(a: Shape, factor: int) -> Shape:
    if a.pattern is None:
        return VARYING
    return Shape(tuple(x * factor for x in a.pattern), a.divisor * abs(factor))


def _multiplied(a: Shape, b: Shape, x: ir.Operand, y: ir.Operand) -> Shape:
    if a.uniform and b.uniform:
        return Shape(ZERO, a.divisor * b.divisor)
    for shape, factor in ((a, y), (b, x)):
        if isinstance(factor, ir.Imm):
            return _scaled(shape, int(factor.value))
    return VARYING


def _divided(a: Shape, modulus: int, quotient: bool) -> Shape:
    """Return the shape of a // modulus or a % modulus, exact where no lane carries past a multiple; floor."""
    if a.pattern is None or modulus <= 0:
        return VARYING
    if a.divisor % modulus == 0:
        lanes = tuple(x // modulus if quotient else x % modulus for x in a.pattern)
        return Shape(lanes, a.divisor // modulus if quotient else 0)
    granule = math.gcd(a.divisor, modulus)
    if all(0 <= x < granule for x in a.pattern):
        return UNIFORM if quotient else Shape(a.pattern, granule)
    return UNIFORM if a.uniform else VARYING


def _exchanged(instr: ir.Atom | ir.Vote | ir.Match | ir.Shfl, shapes: list[Shape]) -> Shape:
    """Return the shape of what lanes exchange: a vote is one answer, a shuffle from one lane one value."""
    if isinstance(instr, ir.Shfl):
        return UNIFORM if shapes[0].uniform or (instr.mode == "idx" and shapes[1].uniform) else VARYING
    one = isinstance(instr, ir.Vote) or (isinstance(instr, ir.Match) and instr.mode == "all")
    return UNIFORM if one else VARYING


def thread_index(axis: str, block: tuple[int, int, int]) -> Shape:
    """Return the shape of threadIdx for warps cut from the linear thread number x + nx (y + ny z)."""
    step = {"x": 1, "y": block[0], "z": block[0] * block[1]}[axis]
    extent = block["xyz".index(axis)]
    warp_and_lane = Shape(tuple(range(LANES)), LANES)
    if step * extent >= block[0] * block[1] * block[2]:
        return _divided(warp_and_lane, step, True)
    return _divided(_divided(warp_and_lane, step, True), extent, False)


class Shapes:
    """Hold the shape of every SSA register and the set of divergent branches of a function."""

    def __init__(self, ssa: Ssa, intervals: Intervals) -> None:
        self.ssa, self.intervals = ssa, intervals
        self.shape: dict[int, Shape] = {}
        self.divergent: set[int] = set()
        self._varying_phis: set[int] = set()
        self._values()
        while self._mark_divergence():
            self.shape.clear()
            self._values()

    def of(self, operand: ir.Operand) -> Shape:
        """Return the shape of an operand."""
        return constant(operand.value) if isinstance(operand, ir.Imm) else self.shape[operand.index]

    def _known(self, operand: ir.Operand) -> Shape | None:
        return constant(operand.value) if isinstance(operand, ir.Imm) else self.shape.get(operand.index)

    def _values(self) -> None:
        changed = True
        while changed:
            changed = False
            for b, block in enumerate(self.ssa.fn.blocks):
                for definition in [*self.ssa.phis[b], *block.instrs]:
                    new = self._evaluated(b, definition)
                    for reg in written(definition):
                        if new is not None and new != self.shape.get(reg.index):
                            self.shape[reg.index] = new
                            changed = True

    def _evaluated(self, block: int, definition: ir.Instr | Phi) -> Shape | None:
        """Return the shape of what a definition writes; None while an operand's is unknown."""
        if isinstance(definition, Phi):
            return self._phi(block, definition)
        return VARYING if isinstance(definition, ir.Collective) else self._transfer(block, definition)

    def _phi(self, block: int, phi: Phi) -> Shape | None:
        if block in self._varying_phis:
            return VARYING
        shapes = [s for o in phi.incoming.values() if (s := self._known(o)) is not None]
        if not shapes:
            return None
        if any(s.pattern != shapes[0].pattern for s in shapes):
            return VARYING
        return Shape(shapes[0].pattern, math.gcd(*(s.divisor for s in shapes)))

    def _transfer(self, block: int, instr: ir.Instr) -> Shape | None:
        operands = [self._known(o) for o in ir.sources(instr)]
        shapes = [s for s in operands if s is not None]
        if len(shapes) < len(operands):
            return None
        match instr:
            case ir.Alu():
                return self._alu(block, instr, shapes)
            case ir.Cvt():
                return self._cvt(block, instr, shapes[0])
            case ir.Sreg(name=name):
                return self._special(name)
            case ir.LdParam():
                return UNIFORM  # an array may be a view, so its base is a multiple of nothing
            case ir.Chk(index=index):
                return self._chk(block, index, shapes[0], shapes[1])
            case ir.Selp():
                return self._selp(shapes)
            case ir.Ld(space=space):
                return UNIFORM if shapes[0].uniform and space != "local" else VARYING
            case ir.Atom() | ir.Vote() | ir.Match() | ir.Shfl():
                return _exchanged(instr, shapes)
        return UNIFORM if all(s.uniform for s in shapes) else VARYING

    def _special(self, name: str) -> Shape:
        kind, _, axis = name.partition(".")
        if kind == "laneid":
            return Shape(tuple(range(LANES)), 0)
        if kind == "lanemask_lt":
            return Shape(tuple((1 << lane) - 1 for lane in range(LANES)), 0)
        if kind == "tid":
            return thread_index(axis, self.intervals.limits.block)
        return Shape(ZERO, self.intervals.limits.block["xyz".index(axis)]) if kind == "ntid" else UNIFORM

    def _alu(self, block: int, instr: ir.Alu, shapes: list[Shape]) -> Shape:
        if instr.type[0] in "su":
            known = self._integer(block, instr, shapes)
            if known is not None:
                return known
        return UNIFORM if all(s.uniform for s in shapes) else VARYING

    def _integer(self, block: int, instr: ir.Alu, shapes: list[Shape]) -> Shape | None:
        """Return the shape of an integer operation, or None where uniform operands are all that helps."""
        a, b = shapes[0], shapes[-1]
        match instr.op:
            case "mov":
                return a
            case "neg":
                return _scaled(a, -1)
            case "add":
                return _added(a, b, 1)
            case "sub":
                return _added(a, b, -1)
            case "mul":
                return _multiplied(a, b, *instr.srcs)
        last = instr.srcs[-1]
        if len(shapes) != 2 or not isinstance(last, ir.Imm) or isinstance(last.value, float):
            return None
        if instr.op not in ("shl", "and") and self._may_wrap(instr.srcs[0], instr.type, block):
            return None
        truncates = instr.op in ("shr", "div", "rem")
        nonnegative = truncates and self._nonnegative(instr.srcs[0], block)
        return self._by_constant(instr.op, a, int(last.value), nonnegative)

    @staticmethod
    def _by_constant(op: str, a: Shape, factor: int, nonnegative: bool) -> Shape | None:
        """Return the shape of a shift, division or mask by a constant; `nonnegative` tells whether a is."""
        match op:
            case "shl" if 0 <= factor < 63:
                return _scaled(a, 1 << factor)
            case "shr" if 0 <= factor < 63 and nonnegative:
                return _divided(a, 1 << factor, True)
            case "and" if factor > 0 and (factor & (factor + 1)) == 0:
                return _divided(a, factor + 1, False)
            case "div" | "rem" if not nonnegative:
                return None
            case "div" | "floordiv":
                return _divided(a, factor, True)
            case "rem" | "floormod":
                return _divided(a, factor, False)
        return None

    def _may_wrap(self, operand: ir.Operand, type_: str, block: int) -> bool:
        """Tell whether lanes of a value narrower than 64 bits may have wrapped around apart."""
        return ir.BYTES[type_] < 8 and self.intervals.at(operand, block) == type_range(type_)

    def _nonnegative(self, operand: ir.Operand, block: int) -> bool:
        return self.intervals.at(operand, block)[0] >= 0

    def _cvt(self, block: int, instr: ir.Cvt, shape: Shape) -> Shape:
        if instr.to_type[0] in "su" and instr.from_type[0] in "su" and not shape.varying:
            # Lanes keep their pattern if no value of either type wraps around.
            found = self.intervals.at(instr.src, block)
            if wrapped(found, instr.to_type) == found and not self._may_wrap(
                instr.src, instr.from_type, block
            ):
                return shape
        return UNIFORM if shape.uniform else VARYING

    def _chk(self, block: int, index: ir.Operand, shape: Shape, extent: Shape) -> Shape:
        if not extent.uniform:  # of a view that lanes made for themselves
            return VARYING
        if shape.uniform:
            return shape if self._nonnegative(index, block) else UNIFORM
        return shape if self._nonnegative(index, block) else VARYING

    @staticmethod
    def _selp(shapes: list[Shape]) -> Shape:
        a, b, cond = shapes
        if not cond.uniform or a.pattern != b.pattern:
            return VARYING
        return Shape(a.pattern, math.gcd(a.divisor, b.divisor))

    def _mark_divergence(self) -> bool:
        """Find divergent branches and the phis that vary for them; return whether there are new ones."""
        before = len(self._varying_phis)
        for b, block in enumerate(self.ssa.fn.blocks):
            terminator = block.terminator
            if isinstance(terminator, ir.Bra) and not self.of(terminator.cond).uniform:
                self.divergent.add(b)
                self._varying_phis |= self._joins(b)
        return len(self._varying_phis) != before

    def _joins(self, branch: int) -> set[int]:
        """Return the blocks where lanes split at `branch` may come together again from different sides."""
        ssa = self.ssa
        end = ssa.ipdom.get(branch, EXIT)
        starts = set(ir.successors(ssa.fn.blocks[branch].terminator))
        joins: set[int] = set()
        for header, last in ssa.loops.items():
            if header <= branch <= last and not header <= end <= last:
                exits = loop_exits(ssa.fn, header, last)
                joins |= exits
                starts |= exits
        return joins | self._meetings(starts, end) if len(starts) > 1 else joins

    def _meetings(self, starts: set[int], end: int) -> set[int]:
        """Return the blocks up to `end` that are reached from two of `starts`, going forward."""
        meetings: set[int] = set()
        label = {s: s for s in starts}
        for b in range(min(starts), len(self.ssa.fn.blocks)):
            if b not in label or b == end:
                continue
            for t in ir.successors(self.ssa.fn.blocks[b].terminator):
                if t <= b:
                    continue
                if label.setdefault(t, label[b]) != label[b]:
                    meetings.add(t)
                    label[t] = t
        return meetings
