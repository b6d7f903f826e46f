"""Integer ranges: the values an SSA register can take, from constants, launch limits and loop conditions.

What it models: intervals over the integers, widened to infinity where a loop would go on moving a bound, then
narrowed by the comparisons that dominate a use. What it leaves out: relations between registers, and overflow
(64-bit indices do not reach it). It decides which index checks are free and which indices cannot be negative.
Checked by no metric.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dsl.passes.ssa import Phi, Ssa, written
from dsl.warpir import ir

INF = math.inf
Interval = tuple[float, float]
TOP: Interval = (-INF, INF)
_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
_WIDEN_AFTER = 3


@dataclass(frozen=True)
class Limits:
    """Say what is known of a launch before it runs: the block's shape, and parameters of at least 0."""

    block: tuple[int, int, int]
    nonnegative: frozenset[str] = frozenset()


def _product(a: Interval, b: Interval) -> Interval:
    corners = [0 if 0 in (x, y) else x * y for x in a for y in b]
    return min(corners), max(corners)


def _floor_quotient(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0:
        return TOP
    corners = [_quotient(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _quotient(x: float, y: float) -> float:
    """Return floor(x / y) for y > 0; its limit where an end is infinite."""
    if abs(x) == INF:
        return x
    if y == INF:
        return 0.0 if x >= 0 else -1.0
    return x // y


def _remainder(a: Interval, b: Interval, floor: bool) -> Interval:
    if b[0] <= 0:
        return TOP
    top = b[1] - 1
    if a[0] >= 0:
        return 0, min(a[1], top)
    return (0, top) if floor else (-top, top)


def _shift_left(a: Interval, b: Interval) -> Interval:
    return _product(a, (2.0 ** b[0], 2.0 ** b[1])) if b[0] >= 0 and b[1] < 63 else TOP


def _shift_right(a: Interval, b: Interval) -> Interval:
    return _floor_quotient(a, (2.0 ** b[0], 2.0 ** b[1])) if b[0] >= 0 and b[1] < 64 else TOP


def _bit_and(a: Interval, b: Interval) -> Interval:
    tops = [x[1] for x in (a, b) if x[0] >= 0]
    return (0, min(tops)) if tops else TOP


_BINARY: dict[str, Callable[..., Interval]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "floordiv": _floor_quotient,
    "div": lambda a, b: _floor_quotient(a, b) if a[0] >= 0 else TOP,
    "floormod": lambda a, b: _remainder(a, b, True),
    "rem": lambda a, b: _remainder(a, b, False),
    "shl": _shift_left,
    "shr": _shift_right,
    "and": _bit_and,
}
_UNARY: dict[str, Callable[..., Interval]] = {
    "mov": lambda a: a,
    "popc": lambda a: (0, 64),
    "clz": lambda a: (0, 64),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (max(0, a[0], -a[1]), max(abs(a[0]), abs(a[1]))),
}


def _narrow(interval: Interval, op: str, bound: Interval) -> Interval:
    """Return the part of an interval that satisfies `x op bound`, for integers."""
    lo, hi = interval
    if op == "lt":
        hi = min(hi, bound[1] - 1)
    elif op == "le":
        hi = min(hi, bound[1])
    elif op == "gt":
        lo = max(lo, bound[0] + 1)
    elif op == "ge":
        lo = max(lo, bound[0])
    elif op == "eq":
        lo, hi = max(lo, bound[0]), min(hi, bound[1])
    return lo, hi


def type_range(type_: str) -> Interval:
    """Return what an integer type holds.

    All integers for s64, whose overflow is left out, and other types.
    """
    if type_ in ("s64", "pred") or type_[0] not in "su":
        return TOP
    bits = 8 * ir.BYTES[type_]
    if type_[0] == "u":
        return 0, (INF if bits == 64 else 2**bits - 1)
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def wrapped(interval: Interval, type_: str) -> Interval:
    """Return an interval as a type can hold it: all of the type where some value wraps around."""
    lo, hi = type_range(type_)
    return interval if lo <= interval[0] and interval[1] <= hi else (lo, hi)


def _read_as(type_: str, value: Callable[[ir.Operand], Interval | None]) -> Callable[..., Interval | None]:
    """Return `value` for an instruction that reads its operands as a type: a u32 above 2^31 is a negative
    s32.
    """

    def read(operand: ir.Operand) -> Interval | None:
        found = value(operand)
        if found is None or isinstance(operand, ir.Imm) or operand.type == type_:
            return found
        if type_ == "s64" and found[1] >= 2**63:
            return TOP
        return wrapped(found, type_)

    return read


def _to_multiples(interval: Interval, divisor: int) -> Interval:
    """Return the part of an interval between multiples of a number."""
    if divisor <= 1:
        return interval
    lo, hi = interval
    return (lo if lo == -INF else -(-lo // divisor) * divisor), (hi if hi == INF else hi // divisor * divisor)


def _divisors(ssa: Ssa) -> dict[int, int]:
    """Map each integer register to a number that divides it (0: it is 0).

    A counter from 0 in steps of 8 is a multiple of 8.
    """
    known: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for index, (_, definition) in ssa.defs.items():
            if not all(_is_integer(reg) for reg in written(definition)):
                continue
            new = _divisor(definition, known)
            if new is not None and new != known.get(index):
                known[index] = new
                changed = True
    return known


def _is_integer(reg: ir.Reg) -> bool:
    return reg.type[0] in "su"


def _divisor(definition: ir.Instr | Phi, known: dict[int, int]) -> int | None:
    """Return what divides the result of a definition; None while that is unknown of an operand."""
    operands = definition.incoming.values() if isinstance(definition, Phi) else ir.sources(definition)
    found = [_operand_divisor(o, known) for o in operands]
    values = [v for v in found if v is not None]
    if isinstance(definition, Phi):
        return math.gcd(*values) if values else None
    if len(values) < len(found):
        return None
    match definition:
        case ir.Alu(op="add" | "sub" | "min" | "max"):
            return math.gcd(*values)
        case ir.Alu(op="mul"):
            return values[0] * values[1]
        case ir.Alu(op="mov" | "neg") | ir.Cvt(to_type="s64" | "s32", from_type="s64" | "s32"):
            return values[0]
    return 1


def _operand_divisor(operand: ir.Operand, known: dict[int, int]) -> int | None:
    if isinstance(operand, ir.Imm):
        return abs(operand.value) if isinstance(operand.value, int) else 1
    return known.get(operand.index)


class Intervals:
    """Answer `at(operand, block)`: the interval of an integer operand where it is used."""

    def __init__(self, ssa: Ssa, limits: Limits) -> None:
        self.ssa, self.limits = ssa, limits
        self.facts = _dominating_facts(ssa)
        self.divisors = _divisors(ssa)
        self.base: dict[int, Interval] = {}
        self._solve()
        self._memo: dict[tuple[int, int], Interval] = {}

    def at(self, operand: ir.Operand, block: int) -> Interval:
        """Return the interval of an operand at a block, narrowed by the branches that lead there."""
        if isinstance(operand, ir.Imm):
            return (operand.value, operand.value) if isinstance(operand.value, (int, bool)) else TOP
        key = (operand.index, block)
        if key not in self._memo:
            self._memo[key] = self.base.get(operand.index, TOP)
            self._memo[key] = self._refined(operand, block)
        return self._memo[key]

    def _refined(self, reg: ir.Reg, block: int) -> Interval:
        interval = self.base.get(reg.index, TOP)
        _, definition = self.ssa.defs[reg.index]
        if not isinstance(definition, Phi):
            again = self._transfer(definition, lambda o: self.at(o, block)) or TOP
            interval = max(interval[0], again[0]), min(interval[1], again[1])
        for setp, truth in self.facts[block]:
            if setp.type != reg.type:
                continue
            op = setp.op if truth else _NEGATED[setp.op]
            if isinstance(setp.a, ir.Reg) and setp.a.index == reg.index:
                interval = _narrow(interval, op, self.at(setp.b, block))
            elif isinstance(setp.b, ir.Reg) and setp.b.index == reg.index:
                interval = _narrow(interval, _MIRRORED[op], self.at(setp.a, block))
        return _to_multiples(interval, self.divisors.get(reg.index, 1))

    def _solve(self) -> None:
        """Find an interval for every integer register that holds in the whole function."""
        visits: dict[int, int] = {}
        changed = True
        while changed:
            changed = False
            for b, block in enumerate(self.ssa.fn.blocks):
                for definition in [*self.ssa.phis[b], *block.instrs]:
                    for reg in written(definition):
                        if _is_integer(reg) and self._moved(reg, definition, visits):
                            changed = True

    def _moved(self, reg: ir.Reg, definition: ir.Instr | Phi, visits: dict[int, int]) -> bool:
        """Bring a register's interval up to date, widened after some visits; return whether it changed."""
        old, new = self.base.get(reg.index), self._evaluated(definition)
        if new is None or new == old:
            return False
        visits[reg.index] = visits.get(reg.index, 0) + 1
        if old is not None and visits[reg.index] > _WIDEN_AFTER:
            new = (old[0] if new[0] >= old[0] else -INF), (old[1] if new[1] <= old[1] else INF)
        self.base[reg.index] = new
        return new != old

    def _evaluated(self, definition: ir.Instr | Phi) -> Interval | None:
        if isinstance(definition, Phi):
            return _hull([self._value(o) for o in definition.incoming.values()])
        return self._transfer(definition, self._value)

    def _value(self, operand: ir.Operand) -> Interval | None:
        if isinstance(operand, ir.Imm):
            return (operand.value, operand.value) if isinstance(operand.value, (int, bool)) else TOP
        return self.base.get(operand.index) if operand.type[0] in "su" else TOP

    def _transfer(self, instr: ir.Instr, value: Callable[[ir.Operand], Interval | None]) -> Interval | None:
        """Return the interval an instruction gives for those of its operands; None while one is unknown."""
        found, dsts = self._unwrapped(instr, value), written(instr)
        if found is None or not dsts:
            return found
        return wrapped(found, instr.to_type if isinstance(instr, ir.Cvt) else dsts[0].type)

    def _unwrapped(self, instr: ir.Instr, value: Callable[[ir.Operand], Interval | None]) -> Interval | None:
        match instr:
            case ir.Sreg(name=name):
                return self._special(name)
            case ir.LdParam(name=name):
                nonnegative = ".shape." in name or name in self.limits.nonnegative
                return (0, INF) if nonnegative else TOP
            case ir.Alu(op=op, type=type_, srcs=srcs):
                return _computed(op, list(map(_read_as(type_, value), srcs)))
            case ir.Selp(type=type_, a=a, b=b):
                return _hull(list(map(_read_as(type_, value), (a, b))))
            case ir.Cvt(src=src, from_type=from_type) if from_type[0] in "su":
                return _read_as(from_type, value)(src)
            case ir.Cvt(from_type="pred"):
                return 0, 1
            case ir.Chk(index=index, extent=extent):
                return self._checked(value(index), value(extent))
            case ir.BarResult():
                return 0, 1024
            case ir.Ld(type=t) if t in ("u8", "u16"):
                return 0, 2 ** (8 * ir.BYTES[t]) - 1
        return TOP

    @staticmethod
    def _checked(index: Interval | None, extent: Interval | None) -> Interval | None:
        if index is None or extent is None:
            return None
        return max(0, index[0]), (min(index[1], extent[1] - 1) if index[0] >= 0 else extent[1] - 1)

    def _special(self, name: str) -> Interval:
        kind, _, axis = name.partition(".")
        if kind in ("laneid", "lanemask_lt"):
            return 0, (31 if kind == "laneid" else 2**31 - 1)
        extent = self.limits.block["xyz".index(axis)]
        thread = {"tid": (0, extent - 1), "ntid": (extent, extent)}
        return {**thread, "ctaid": (0, 2**31 - 2), "nctaid": (1, 2**31 - 1)}[kind]


def _computed(op: str, operands: list[Interval | None]) -> Interval | None:
    """Return the interval of an operation's result; None while an operand's is unknown."""
    known = [v for v in operands if v is not None]
    if len(known) < len(operands):
        return None
    if any(lo > hi for lo, hi in known):  # no number: what is known contradicts itself, as code never runs
        return TOP
    table = _UNARY if len(known) == 1 else _BINARY
    return table[op](*known) if op in table else TOP


def _hull(intervals: list[Interval | None]) -> Interval | None:
    """Return the smallest interval around those that are known; None if none is."""
    known = [v for v in intervals if v is not None]
    return (min(v[0] for v in known), max(v[1] for v in known)) if known else None


def _dominating_facts(ssa: Ssa) -> list[list[tuple[ir.Setp, bool]]]:
    """Return, for each block, the integer comparisons known to hold (or not) whenever it runs."""
    facts: list[list[tuple[ir.Setp, bool]]] = []
    for b in range(len(ssa.fn.blocks)):
        here: list[tuple[ir.Setp, bool]] = []
        child = b
        while child != 0:
            parent = ssa.idom[child]
            end = ssa.fn.blocks[parent].terminator
            one_way = ssa.preds[child] == [parent]
            if isinstance(end, ir.Bra) and one_way and end.if_true != end.if_false:
                here += _facts_of(ssa, end.cond, child == end.if_true)
            child = parent
        facts.append(here)
    return facts


def _facts_of(ssa: Ssa, cond: ir.Operand, truth: bool) -> list[tuple[ir.Setp, bool]]:
    """Split a condition into comparisons: both of an `and` that holds, both of an `or` that does not."""
    if isinstance(cond, ir.Imm):
        return []
    match ssa.defs[cond.index][1]:
        case ir.Setp(type=t) as setp if t[0] in "su":
            return [(setp, truth)]
        case ir.Alu(op="and", srcs=srcs) if truth:
            return [f for s in srcs for f in _facts_of(ssa, s, True)]
        case ir.Alu(op="or", srcs=srcs) if not truth:
            return [f for s in srcs for f in _facts_of(ssa, s, False)]
        case ir.Alu(op="not", srcs=(src,)):
            return _facts_of(ssa, src, not truth)
    return []
