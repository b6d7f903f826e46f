"""A walk through a kernel as one warp issues it: what it issues, and the longest chain of steps that wait.

What it models: an in-order warp with the compiler's best order inside a basic block. An instruction starts
when its operands are there; behind a branch that stays one, nothing starts before all that stands before it.
Values are numbered, so what is computed again from the same operands costs nothing while it is likely to be
in a register still (AGE instructions), and a constant added to an index goes into the address. Private arrays
in registers are followed element by element. What it leaves out: ports, and how many registers there are.
Checked by `smsp__inst_executed` and, through gpusim/clock.py, by `gpu__time_duration`.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dsl.passes import issue_costs as costs
from dsl.passes.issue_costs import Cost
from dsl.passes.ssa import Ssa
from dsl.warpir import ir

AGE = 1000
"""Instructions after which a value is computed anew: of 256, 1,000 and no limit 1,000 comes nearest to the
instructions that the recorded launches executed."""
NOMINAL_CYCLES = {
    "alu": 4, "fp64": 16, "special": 20, "shared": 28, "global": 400, "local": 33, "shuffle": 24,
    "tensor": 33, "atomic": 400, "barrier": 20, "constant": 30, "turn": 40,
}  # fmt: skip
"""Which of two chains is the longer is decided with these; how long it is, by gpusim/timing.py."""
FOLD: dict[str, Callable[..., int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "shl": operator.lshift,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "shr": operator.rshift,
    "min": min, "max": max, "mov": int, "floordiv": operator.floordiv, "floormod": operator.mod,
}  # fmt: skip
INTEGERS = ("s32", "u32", "s64", "u64")


class Value(NamedTuple):
    """Name a value: a symbol and a number added to it; without a symbol the number is all of it.

    A symbol is an integer for what is computed, so that names of names stay short.
    """

    symbol: Hashable
    offset: int | float = 0

    @property
    def is_number(self) -> bool:
        """Return whether the value is known."""
        return self.symbol is None


class Link(NamedTuple):
    """Hold the last steps of a chain: those before, the basic block, the class and how many."""

    before: Link | None
    block: int
    kind: str
    steps: int


Ready = tuple[int, Link | None]
"""When a value is there, in nominal cycles, and the chain that makes it."""
START: Ready = (0, None)
KNOWN = Value(None, 0)


@dataclass
class Leg:
    """Hold one stretch of a walk: visits of basic blocks, (block, class) -> instructions, loads in order, and
    the longest chain. loads: (class, block, symbol)."""

    visits: Counter[int] = field(default_factory=Counter)
    issued: Counter[tuple[int, str]] = field(default_factory=Counter)
    loads: list[tuple[str, int, Hashable]] = field(default_factory=list)
    uses: Counter[Hashable] = field(default_factory=Counter)
    longest: Ready = START
    sent: Ready = START
    floor: Ready = START
    ready: dict[Hashable, Ready] = field(default_factory=dict)


class WarpWalk:
    """Walk blocks of a kernel in SSA form; `leg` is the stretch under way.

    register_arrays: private arrays that are registers. joins: blocks at whose top all before has started.
    """

    def __init__(self, ssa: Ssa, register_arrays: frozenset[str], joins: frozenset[int]) -> None:
        self.ssa, self.register_arrays, self.joins = ssa, register_arrays, joins
        self.leg = Leg()
        self.counting = True
        self.counter = KNOWN
        self._values: dict[int, Value] = {}
        self._elements: dict[Hashable, Value] = {}
        self._numbers: dict[Hashable, int] = {}
        self._born: dict[int, int] = {}
        self._clock = self._names = 0

    # -------------------------------------------------------------------------------------- values

    def value(self, operand: ir.Operand) -> Value:
        """Return what an operand holds."""
        if isinstance(operand, ir.Imm):
            return Value(None, operand.value)
        return self._values.setdefault(operand.index, Value(("in", operand.index)))

    def define(self, reg: ir.Reg, value: Value) -> None:
        """Say what a register holds from here on."""
        self._values[reg.index] = value

    def fresh(self) -> Value:
        """Return a value that no other equals."""
        self._names += 1
        return Value(("new", self._names))

    def latest(self, values: Iterable[Value]) -> Ready:
        """Return when the last of some values is there."""
        return max((self.leg.ready.get(v.symbol, START) for v in values), key=lambda r: r[0], default=START)

    # -------------------------------------------------------------------------------------- time

    def charge(self, block: int, cost: Cost, values: Iterable[Value]) -> Ready:
        """Issue an instruction that waits for values; return when its result is there."""
        leg, values = self.leg, tuple(values)
        leg.uses.update(v.symbol for v in values)
        cycles, link = max(self.latest(values), leg.floor, key=lambda r: r[0])
        leg.sent = max(leg.sent, (cycles, link), key=lambda r: r[0])
        for kind, steps in cost.steps:
            if steps:
                cycles, link = cycles + NOMINAL_CYCLES[kind] * steps, Link(link, block, kind, steps)
        if self.counting:
            for kind, n in cost.issued:
                leg.issued[block, kind] += n
        leg.longest = max(leg.longest, (cycles, link), key=lambda r: r[0])
        return cycles, link

    def _pure(self, block: int, dst: ir.Reg, name: Hashable, cost: Cost, values: tuple[Value, ...],
              offset: int | float = 0) -> None:  # fmt: skip
        """Compute a value that its name determines, unless it is still there."""
        symbol = self._numbers.setdefault(name, len(self._numbers))
        born = self._born.get(symbol)
        if born is None or (self._clock - born > AGE and cost.issued):
            self._clock += 1
            self.leg.ready[symbol] = self.charge(block, cost, values)
        self._born[symbol] = self._clock
        self.define(dst, Value(symbol, offset))

    def _made(self, block: int, instr: ir.Instr, cost: Cost, values: Iterable[Value]) -> None:
        """Issue an instruction whose results nothing determines."""
        ready = self.charge(block, cost, values)
        for dst in ir.destinations(instr):
            self.define(dst, value := self.fresh())
            self.leg.ready[value.symbol] = ready

    # -------------------------------------------------------------------------------------- blocks

    def block(self, b: int, skip: ir.Instr | None = None, decides: bool = True) -> None:
        """Walk one basic block, without the instruction `skip`; decides: its branch is one."""
        if self.counting:
            self.leg.visits[b] += 1
        if b in self.joins:
            self.leg.floor = self.leg.sent
        for instr in self.ssa.fn.blocks[b].instrs:
            if instr is not skip:
                self._instruction(b, instr)
        match self.ssa.fn.blocks[b].terminator:
            case ir.Bra(cond=cond) if decides and not self.value(cond).is_number:
                self.charge(b, Cost((), (("control", 1),)), (self.value(cond),))
            case ir.Bar():
                self.charge(b, Cost((), (("control", 1),)), ())

    def merge(self, b: int) -> None:
        """Give the phis of a block what came along any of its edges, when the last of it is there."""
        for phi in self.ssa.phis[b]:
            values = [self.value(o) for o in phi.incoming.values()]
            if len(values) == 1:
                self.define(phi.dst, values[0])
            else:
                self.define(phi.dst, value := self.fresh())
                self.leg.ready[value.symbol] = self.latest(values)

    def enter(self, header: int, edge: int) -> None:
        """Give the phis of a loop's header what comes along the edge from a block."""
        new = [(phi.dst, self.value(phi.incoming[edge])) for phi in self.ssa.phis[header]]
        for dst, value in new:
            self.define(dst, value)

    def unknown(self, header: int) -> None:
        """Give the phis of a loop's header values of which nothing is known."""
        for phi in self.ssa.phis[header]:
            self.define(phi.dst, self.fresh())

    def turn(self, last: int) -> None:
        """Take one turn of the counter of a loop over a range of unknown length, whose last block is named:
        loads come after it."""
        self.counter = Value(("counter", last))
        ready = self.charge(last, Cost((("turn", 1),), (("turn", 5),)), (self.counter,))
        self.leg.ready[self.counter.symbol] = ready

    # -------------------------------------------------------------------------------------- instructions

    def _instruction(self, b: int, instr: ir.Instr) -> None:
        values = tuple(self.value(o) for o in ir.sources(instr))
        match instr:
            case ir.Alu():
                self._alu(b, instr, values)
            case ir.Ld():
                self._load(b, instr, values)
            case ir.St():
                self._store(b, instr, values)
            case ir.Atom():
                self._atomic(b, instr, values)
            case ir.Cvt() | ir.Bitcast() | ir.Setp() | ir.Selp() | ir.Chk() | ir.Sreg() | ir.LdParam():
                self._scalar(b, instr, values)
            case _:
                self._exchange(b, instr, values)

    def _scalar(self, b: int, instr: ir.Instr, values: tuple[Value, ...]) -> None:
        """Do what is no arithmetic and depends on its operands alone."""
        match instr:
            case ir.Cvt(dst=dst, to_type=to, from_type=kind) if to[0] in "su" and kind[0] in "su":
                self.define(dst, values[0])
            case ir.Cvt(dst=dst, to_type=to, from_type=kind):
                self._pure(b, dst, ("cvt", to, kind, values), costs.float_operation(instr), values)
            case ir.Bitcast(dst=dst, to_type=to):
                self._pure(b, dst, ("bits", to, values), costs.FREE, values)
            case ir.Sreg(dst=dst, name=name) | ir.LdParam(dst=dst, name=name):
                self._pure(b, dst, ("word", name), costs.FREE, values)
            case ir.Chk(dst=dst):
                self.define(dst, values[0]) if values[0].is_number else self._pure(
                    b, dst, ("index", values), costs.CHECK, values[:1])
            case ir.Setp(dst=dst, op=op, type=kind):
                n = costs.words(kind)
                self.define(dst, KNOWN) if all(v.is_number for v in values) else self._pure(
                    b, dst, (op, values), costs.integers(n, n), values)
            case ir.Selp(dst=dst, type=kind):
                self.define(dst, values[0]) if values[2].is_number else self._pure(
                    b, dst, ("select", values), costs.integers(costs.words(kind)), values)

    def _alu(self, b: int, instr: ir.Alu, values: tuple[Value, ...]) -> None:
        if instr.type in INTEGERS:
            self._integer(b, instr, values)
        elif instr.op == "mov":
            self.define(instr.dst, values[0])
        elif instr.type == "pred":
            self.define(instr.dst, KNOWN) if all(v.is_number for v in values) else self._pure(
                b, instr.dst, (instr.op, values), costs.integers(1), values)
        else:
            name = (instr.op, instr.type, instr.tag, values)
            self._pure(b, instr.dst, name, costs.float_operation(instr), values)

    def _integer(self, b: int, instr: ir.Alu, values: tuple[Value, ...]) -> None:
        """Do integer arithmetic: numbers are folded, and a number that is added stays apart."""
        op, dst = instr.op, instr.dst
        if all(v.is_number for v in values):
            self.define(dst, self._folded(op, values))
            return
        if op in ("add", "mul") and values[0].is_number:
            values = (values[1], values[0])
        known = int(values[1].offset) if len(values) == 2 and values[1].is_number else None
        x = values[0]
        if known is not None and op in ("add", "sub"):
            self.define(dst, Value(x.symbol, x.offset + (known if op == "add" else -known)))
        elif op == "add":
            first, second = sorted(values, key=lambda v: repr(v.symbol))
            self._pure(b, dst, ("add", first.symbol, second.symbol), costs.integers(costs.words(instr.type)),
                       values, first.offset + second.offset)
        elif known is not None and op in ("mul", "shl"):
            factor = known if op == "mul" else 1 << known
            self._pure(b, dst, ("mul", x.symbol, factor), costs.integers(costs.words(instr.type)), values,
                       x.offset * factor)
        else:
            self._pure(b, dst, (op, values), costs.integer_operation(instr), values)

    def _folded(self, op: str, values: tuple[Value, ...]) -> Value:
        numbers = [int(v.offset) for v in values]
        if op not in FOLD or (op.startswith("floor") and numbers[1] == 0):
            return self.fresh()
        return Value(None, FOLD[op](*numbers))

    def _element(self, instr: ir.Ld | ir.St, k: int) -> Hashable:
        at = self.value(instr.addr)
        return instr.array, at.symbol, at.offset + k * ir.BYTES[instr.type]

    def _in_registers(self, instr: ir.Ld | ir.St) -> bool:
        return instr.space == "local" and instr.array in self.register_arrays

    def _load(self, b: int, instr: ir.Ld, values: tuple[Value, ...]) -> None:
        if self._in_registers(instr):
            for k, dst in enumerate(instr.dsts):
                key = self._element(instr, k)
                self.define(dst, self._elements.setdefault(key, Value(("element", key))))
            return
        self._clock += 1
        waits = (*values, self.counter) if instr.space == "global" else values
        self._made(b, instr, costs.LOADS[instr.space], waits)
        if self.counting and instr.space != "const":
            kind = "shared" if instr.space == "shared" else "global"
            self.leg.loads += [(kind, b, self.value(dst).symbol) for dst in instr.dsts]

    def _store(self, b: int, instr: ir.St, values: tuple[Value, ...]) -> None:
        if not self._in_registers(instr):
            self.charge(b, costs.SENT, values)
            self.leg.uses.update(v.symbol for v in values)  # a copy's loads go first, all of them
            return
        for k, operand in enumerate(instr.values):
            self._elements[self._element(instr, k)] = self.value(operand)

    def _atomic(self, b: int, instr: ir.Atom, values: tuple[Value, ...]) -> None:
        """Do an atomic: what follows in memory waits until it has started."""
        shared = instr.space == "shared"
        cost = costs.ATOMIC_SHARED if shared else costs.ATOMIC if instr.dst is not None else costs.SENT
        self._made(b, instr, cost, values)
        self.leg.floor = self.leg.sent

    def _exchange(self, b: int, instr: ir.Instr, values: tuple[Value, ...]) -> None:
        """Do what lanes do together, and asynchronous copies."""
        match instr:
            case ir.Shfl(type=kind) | ir.Match(type=kind):
                self._made(b, instr, costs.shuffle(kind), values)
            case ir.Mma(a_type=kind):
                self._made(b, instr, costs.tensor(kind), values)
            case ir.LdMatrix():
                self._made(b, instr, costs.MATRIX, values)
            case ir.CpAsync():
                self.charge(b, costs.SENT, values)
            case ir.CpWait():
                self.charge(b, costs.COPIES_DONE, ())
            case ir.SyncWarp():
                pass
            case _:
                self._made(b, instr, costs.VOTE, values)
