"""Build one WarpIR function block by block: registers, instructions, control flow, and the final layout.

It models nothing of the card by itself; it keeps the layout rules of dsl/warpir/ir.py: blocks stand in the
order in which they are started, unreachable ones are removed and straight runs are merged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dsl.lowering.values import Val
from dsl.types import STORED, TYPE_NAMES, register_type
from dsl.warpir import ir
from dsl.warpir.ir import Alu, Bar, Bra, Cvt, Instr, Jmp, LdParam, Loc, Operand, Reg, Ret, Selp, Setp, Sreg
from gpusim.errors import KernelMistake, UnsupportedFeature

CHEAP_OPS = frozenset(
    ("add", "sub", "mul", "fma", "and", "or", "xor", "not", "shl", "shr", "min", "max", "neg", "abs", "mov")
)
"""Operations that may run for every lane instead of behind a branch: no memory, no call, no division, no
fault.
"""


@dataclass
class Draft:
    """Hold a block under construction; targets are labels."""

    instrs: list[Instr] = field(default_factory=list)
    terminator: ir.Terminator | None = None
    may_spin: bool = False
    may_be_long: bool = False


class Builder:
    """Emit instructions into a current block. `loc` is the source line that new instructions get.

    debug: divisions check that their divisor is not zero.
    """

    def __init__(self, kernel: str, loc: Loc, debug: bool = False) -> None:
        self.kernel, self.debug = kernel, debug
        self.loc = loc
        self.drafts: list[Draft] = []
        self.order: list[int] = []
        self.current = -1
        self.n_regs = 0
        self.positive: set[int] = set()
        self.pinned: set[int] = set()
        """Temporaries that a name stands for: their instruction keeps its destination."""
        self.once: set[int] = set()
        """Named registers that are assigned once: they need no snapshot."""
        self.targets: set[int] = set()
        self._entry: dict[str, Sreg | LdParam] = {}
        self.start(self.label())

    # registers and straight-line code

    def reg(self, type_: str, name: str = "") -> Reg:
        """Return a new register."""
        self.n_regs += 1
        return Reg(self.n_regs - 1, type_, name)

    def emit(self, instr: Instr) -> None:
        """Append an instruction to the current block."""
        self.drafts[self.current].instrs.append(instr)

    def alu(self, op: str, type_: str, *srcs: Operand, tag: str = "") -> Reg:
        """Emit an Alu into a new register and return it."""
        self._must_compute(type_)
        dst = self.reg(type_)
        self.emit(Alu(op, type_, dst, srcs, self.loc, tag))
        return dst

    def setp(self, op: str, type_: str, a: Operand, b: Operand) -> Reg:
        """Emit a comparison into a new predicate."""
        self._must_compute(type_)
        dst = self.reg("pred")
        self.emit(Setp(op, type_, dst, a, b, self.loc))
        return dst

    def selp(self, type_: str, a: Operand, b: Operand, cond: Operand) -> Reg:
        """Emit a selection into a new register."""
        dst = self.reg(type_)
        self.emit(Selp(type_, dst, a, b, cond, self.loc))
        return dst

    def cvt(
        self, src: Operand, from_type: str, to_type: str, saturate: bool = False, tag: str = "",
        rounding: str = "rn",
    ) -> Reg:
        """Emit a conversion into a new register."""
        dst = self.reg(to_type)
        self.emit(Cvt(dst, to_type, src, from_type, self.loc, saturate, tag, rounding))
        return dst

    def _must_compute(self, type_: str) -> None:
        if type_ in STORED:
            raise self.mistake(f"arithmetic of {TYPE_NAMES[type_]}", "convert it first, e.g. np.float32(x)")

    def bitcast(self, src: Operand, from_type: str, to_type: str) -> Reg:
        """Emit a reinterpretation into a new register."""
        dst = self.reg(register_type(to_type))
        self.emit(ir.Bitcast(dst, to_type, src, from_type, self.loc))
        return dst

    def special(self, name: str, type_: str = "s32") -> Reg:
        """Return the register of a special register, read once in the entry block."""
        if name not in self._entry:
            self._entry[name] = Sreg(self.reg(type_), name, self.loc)
            if name.startswith(("ntid", "nctaid")):
                self.positive.add(self._entry[name].dst.index)
        return self._entry[name].dst

    def param(self, name: str, type_: str) -> Reg:
        """Return the register of a launch parameter, read once in the entry block."""
        key = f"param {name}"
        if key not in self._entry:
            self._entry[key] = LdParam(self.reg(type_, name), name, self.loc)
            self.pinned.add(self._entry[key].dst.index)
            self.once.add(self._entry[key].dst.index)
        return self._entry[key].dst

    def assign(self, dst: Reg, source: Operand) -> None:
        """Write an operand of dst's type into a mutable register; a temporary just made is renamed."""
        instrs = self.drafts[self.current].instrs
        last = instrs[-1] if instrs else None
        fresh = isinstance(source, Reg) and not source.name and source.index not in self.pinned
        if last is not None and fresh and ir.destinations(last) == (source,) and _same_type(source, dst):
            instrs[-1] = ir.with_destinations(last, (dst,))
        else:
            self.emit(Alu("mov", dst.type, dst, (source,), self.loc))

    def copy(self, value: Val) -> Val:
        """Return a snapshot of a value, so that a later assignment to its variable does not change it."""
        if not isinstance(value.operand, Reg) or not value.operand.name or value.operand.index in self.once:
            return value
        dst = self.reg(value.operand.type)
        self.emit(Alu("mov", dst.type, dst, (value.operand,), self.loc))
        if value.operand.index in self.positive:
            self.positive.add(dst.index)
        return Val(dst, value.type)

    # control flow

    def label(self) -> int:
        """Return the label of a new block that is not placed yet."""
        self.drafts.append(Draft())
        return len(self.drafts) - 1

    def start(self, label: int) -> None:
        """Place a block next in the layout and go on in it."""
        self.order.append(label)
        self.current = label

    def resume(self, label: int) -> None:
        """Go on at the end of a block that is already placed."""
        self.current = label

    @property
    def terminated(self) -> bool:
        """Say whether the current block already has its terminator."""
        return self.drafts[self.current].terminator is not None

    def end(self, terminator: ir.Terminator) -> None:
        """Terminate the current block, unless it is terminated already."""
        if not self.terminated:
            self.drafts[self.current].terminator = terminator
            self.targets.update(ir.successors(terminator))

    def start_if_reached(self, label: int) -> bool:
        """Place a block and go on in it if something goes there.

        Else stay behind the last terminator, where code is dropped.
        """
        if label in self.targets:
            self.start(label)
        return label in self.targets

    def jump(self, label: int) -> None:
        """End the current block with a jump."""
        self.end(Jmp(label, self.loc))

    def branch(self, cond: Val, if_true: int, if_false: int) -> None:
        """End the current block with a branch; a constant condition gives a jump."""
        if cond.constant is not None:
            self.jump(if_true if cond.constant else if_false)
        else:
            self.end(Bra(cond.operand, if_true, if_false, self.loc))

    def barrier(self, gathered: Operand | None = None) -> None:
        """End the current block with a barrier, which may gather a predicate, and go on in a new one."""
        after = self.label()
        self.end(Bar(after, self.loc, gathered))
        self.start(after)

    def is_cheap(self, label: int) -> bool:
        """Say whether everything since a block was started is in that block and may run for every lane."""
        if self.order[-1] != label or self.current != label or self.terminated:
            return False
        return all(
            isinstance(i, (Cvt, Setp, Selp)) or (isinstance(i, Alu) and i.op in CHEAP_OPS)
            for i in self.drafts[label].instrs
        )

    def splice(self, label: int, into: int) -> None:
        """Move the instructions of the last placed block to the end of another and drop it; go on there."""
        self.drafts[into].instrs += self.drafts[label].instrs
        self.order.remove(label)
        self.current = into

    def refuse(self, what: str, instead: str) -> UnsupportedFeature:
        """Return the error for something outside the language at the current line."""
        return UnsupportedFeature(f"{self.loc.file}:{self.loc.line}: in {self.kernel}: {what}; {instead}")

    def mistake(self, what: str, instead: str) -> KernelMistake:
        """Return the error for something at the current line that is wrong in numba too, on any engine."""
        return KernelMistake(str(self.refuse(what, instead)))

    # layout

    def finish(self) -> list[ir.Block]:
        """Return the blocks in layout order, without unreachable ones, straight runs merged."""
        self.end(Ret(self.loc, at_end=True))
        reachable = self._reachable()
        read = {
            r
            for label in reachable
            for i in [*self.drafts[label].instrs, self._terminator(label)]
            for r in ir.sources(i)
        }
        self.drafts[self.order[0]].instrs[:0] = [i for i in self._entry.values() if i.dst in read]
        order = self._merged(reachable)
        order, onward = self._without_empty(order)
        position = {label: k for k, label in enumerate(order)}
        position |= {label: position[target] for label, target in onward.items()}
        return [
            ir.Block(d.instrs, _retarget(d.terminator, position), d.may_spin, d.may_be_long)
            for d in (self.drafts[label] for label in order)
        ]

    def _reachable(self) -> list[int]:
        seen, todo = set(), [self.order[0]]
        while todo:
            label = todo.pop()
            if label not in seen:
                seen.add(label)
                todo += ir.successors(self._terminator(label))
        return [label for label in self.order if label in seen]

    def _merged(self, order: list[int]) -> list[int]:
        position = {label: k for k, label in enumerate(order)}
        sources: dict[int, list[int]] = {}
        for label in order:
            for s in ir.successors(self._terminator(label)):
                sources.setdefault(s, []).append(label)
        headers = {s for s, froms in sources.items() if any(position[f] >= position[s] for f in froms)}
        kept: list[int] = []
        for label in order:
            last = kept[-1] if kept else -1
            jump = self._terminator(last) if kept else None
            if (
                isinstance(jump, Jmp)
                and jump.target == label
                and len(sources[label]) == 1
                and not {last, label} & headers
            ):
                self.drafts[last].instrs += self.drafts[label].instrs
                self.drafts[last].terminator = self._terminator(label)
            else:
                kept.append(label)
        return kept

    def _without_empty(self, order: list[int]) -> tuple[list[int], dict[int, int]]:
        """Drop the blocks that only jump forward, and say where each leads.

        Loop headers and what jumps to them stay.
        """
        place = {label: k for k, label in enumerate(order)}
        edges = [(label, s) for label in order for s in ir.successors(self._terminator(label))]
        headers = {s for label, s in edges if place[s] <= place[label]}
        onward: dict[int, int] = {}
        for label in reversed(order[1:]):
            jump = self._terminator(label)
            if isinstance(jump, Jmp) and not self.drafts[label].instrs and not {label, jump.target} & headers:
                onward[label] = onward.get(jump.target, jump.target)
        return [label for label in order if label not in onward], onward

    def _terminator(self, label: int) -> ir.Terminator:
        terminator = self.drafts[label].terminator
        assert terminator is not None, f"block {label} of {self.kernel} was left open"
        return terminator


def _same_type(a: Operand, b: Reg) -> bool:
    return isinstance(a, Reg) and a.type == b.type


def _retarget(terminator: ir.Terminator | None, position: dict[int, int]) -> ir.Terminator:
    match terminator:
        case Jmp(target=t, loc=loc):
            return Jmp(position[t], loc)
        case Bar(target=t, loc=loc, pred=p):
            return Bar(position[t], loc, p)
        case Bra(cond=c, if_true=t, if_false=f, loc=loc):
            return Bra(c, position[t], position[f], loc)
    assert isinstance(terminator, Ret)
    return terminator
