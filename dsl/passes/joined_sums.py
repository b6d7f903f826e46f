"""Which products stay out of a fused multiply-add because both arms of an if add one, masked and as it is.

What it models: where one arm of an if does `p[u] += w * (x if seen else 0)` and the other `p[u] += w * x` for
the same elements of a private array, NVVM makes the sums once, behind the arms. Product and sum are in two
basic blocks then, so they stay an FMUL and an FADD (flash_backward --causal: d of each for every pair of row
and key in dQ). Arms that add equal products are one, and contract. What it leaves out: arms with other
differences, and variables, which NVVM treats so only in some kernels. Checked by
`smsp__sass_thread_inst_executed_op_{ffma,fmul,fadd}_pred_on`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from dsl.passes.contract import CONTRACTED
from dsl.passes.linear import Form, Forms
from dsl.passes.ssa import Ssa, build
from dsl.passes.unrolling import unrolled_loops
from dsl.warpir import ir
from dsl.warpir.machine import UNCONTRACTED

Site = tuple[int, int]
"""A block, and which of its sums (`_sums`)."""
Element = tuple[str, int]
"""A private array, and an offset in bytes."""


@dataclass(frozen=True)
class _Sum:
    """Hold one `p[u] += x * y`: where it stands, what p[u] held, the two factors, whether one is masked."""

    site: Site
    held: Form
    factors: frozenset[Form]
    masked: bool


class _NotStraight(Exception):
    """Say that an arm is not straight code once its loops are unrolled."""


@dataclass
class _Arm:
    """Walk one arm of an if, unrolled loops turn by turn, and note its last sum of each element."""

    ssa: Ssa
    turns: dict[int, int]
    forms: Forms
    """Shared by both arms, so that equal values have equal forms."""
    sums: dict[Element, _Sum] = field(default_factory=dict)

    def walk(self, blocks: range) -> None:
        """Walk some blocks; raise _NotStraight at a branch, a barrier or a loop that stays one."""
        b = blocks.start
        while b < blocks.stop:
            if b in self.turns:
                self._loop(b, self.ssa.loops[b])
                b = self.ssa.loops[b]
            elif b not in self.ssa.loops and isinstance(self.ssa.fn.blocks[b].terminator, ir.Jmp):
                self._block(b, self.ssa.preds[b][0])
            else:
                raise _NotStraight
            b += 1

    def _loop(self, header: int, last: int) -> None:
        came_from = next(p for p in self.ssa.preds[header] if p < header)
        for _ in range(self.turns[header]):
            self._block(header, came_from)
            self.walk(range(header + 1, last + 1))
            came_from = last

    def _block(self, b: int, came_from: int) -> None:
        forms = [self.forms.of(phi.incoming[came_from]) for phi in self.ssa.phis[b]]
        for phi, form in zip(self.ssa.phis[b], forms, strict=True):
            self.forms.join(phi.dst, form)
        for instr in self.ssa.fn.blocks[b].instrs:
            if isinstance(instr, ir.St) and instr.space == "local":
                self._stored(instr)
            if isinstance(instr, ir.St | ir.Atom):
                self.forms.epoch += 1
            self.forms.define(instr)

    def _stored(self, store: ir.St) -> None:
        """Note what is stored to an element if it is what the element held and a product."""
        address = self.forms.of(store.addr)
        element = store.array, address.constant
        self.sums.pop(element, None)
        b, total = _definition(self.ssa, store.values[0])
        if not address.known or not isinstance(total, ir.Alu) or not _is_sum(total):
            return
        for value, other in (total.srcs, total.srcs[::-1]):
            loaded, product = (_definition(self.ssa, operand)[1] for operand in (value, other))
            held = isinstance(loaded, ir.Ld) and self.forms.of(loaded.addr) == address
            if held and isinstance(product, ir.Alu) and product.op == "mul":
                site = b, _sums(self.ssa.fn.blocks[b]).index(total)
                factors = frozenset(map(self.forms.of, product.srcs))
                masked = any(isinstance(_definition(self.ssa, f)[1], ir.Selp) for f in product.srcs)
                self.sums[element] = _Sum(site, self.forms.of(value), factors, masked)


def _definition(ssa: Ssa, operand: ir.Operand) -> tuple[int, object]:
    """Return the block and the instruction or phi that give an operand its value."""
    return ssa.defs[operand.index] if isinstance(operand, ir.Reg) else (-1, None)


def _is_sum(instr: ir.Instr) -> bool:
    adds = isinstance(instr, ir.Alu) and instr.op in ("add", "sub") and not instr.tag
    return adds and getattr(instr, "type", "") in CONTRACTED


def _sums(block: ir.Block) -> list[ir.Instr]:
    return [instr for instr in block.instrs if _is_sum(instr)]


def keep_joined_sums(fn: ir.Function) -> ir.Function:
    """Mark, in place, the sums that stay out of a fused multiply-add; return the function."""
    if not any(isinstance(i, ir.St) and i.space == "local" for block in fn.blocks for i in block.instrs):
        return fn
    ssa = build(fn)
    for b, number in sorted({site for sites in _joined(ssa) for site in sites}):
        instrs = fn.blocks[b].instrs
        position, total = [(p, instr) for p, instr in enumerate(instrs) if _is_sum(instr)][number]
        assert isinstance(total, ir.Alu)
        instrs[position] = replace(total, tag=UNCONTRACTED)
    return fn


def _joined(ssa: Ssa) -> Iterator[set[Site]]:
    """Yield the sums of each if whose arms add products to the same elements."""
    turns = unrolled_loops(ssa)
    for b, block in enumerate(ssa.fn.blocks):
        branch, join = block.terminator, ssa.ipdom.get(b, -1)
        if b not in ssa.loops and isinstance(branch, ir.Bra) and branch.if_true < branch.if_false < join:
            forms = Forms()
            arms = range(branch.if_true, branch.if_false), range(branch.if_false, join)
            with suppress(_NotStraight):
                yield _common(*(_sums_of_arm(ssa, turns, forms, arm) for arm in arms))


def _sums_of_arm(ssa: Ssa, turns: dict[int, int], forms: Forms, blocks: range) -> dict[Element, _Sum]:
    """Return the sums of an arm; both arms find memory as it was before the if, so epochs start anew."""
    forms.epoch = 0
    arm = _Arm(ssa, turns, forms)
    arm.walk(blocks)
    return arm.sums


def _common(first: dict[Element, _Sum], second: dict[Element, _Sum]) -> set[Site]:
    """Return the sites of two arms whose every sum has its like in the other arm, one of both masked."""
    alone: set[Site] = set()
    joined: set[Site] = set()
    for element in first.keys() | second.keys():
        pair = [sums[element] for sums in (first, second) if element in sums]
        (joined if _alike(*pair) else alone).update(found.site for found in pair)
    return joined - alone


def _alike(one: _Sum, other: _Sum | None = None) -> bool:
    if other is None or one.held != other.held or one.factors == other.factors:
        return False
    return one.masked != other.masked
