"""Integers of a kernel as linear forms: what stays of an index or an address once some loops are unrolled.

What it models: a constant plus multiples of atoms, values that nothing more is known of (threadIdx.x, a
parameter, a checked index); equal computations are one atom, and a divisor is known of each. Two addresses
whose forms differ in the constant alone lie a known distance apart in every thread. What it leaves out:
relations between atoms, and overflow. Checked by no metric of its own; dsl/passes/as_compiled.py reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from dsl.warpir import ir

Terms = tuple[tuple[int, int], ...]
"""(atom, factor), in order of atoms."""


@dataclass(frozen=True, slots=True)
class Form:
    """Hold constant + sum(factor * atom)."""

    constant: int
    terms: Terms = ()

    @property
    def known(self) -> bool:
        """Tell whether it is a number."""
        return not self.terms


def _sum(a: Form, b: Form, sign: int) -> Form:
    factors = dict(a.terms)
    for atom, factor in b.terms:
        factors[atom] = factors.get(atom, 0) + sign * factor
    return Form(a.constant + sign * b.constant, tuple(sorted((k, v) for k, v in factors.items() if v)))


_FOLDED: dict[str, Callable[[int, int], int]] = {
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
_DIVIDED: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "div": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "rem": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
}
_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


@dataclass
class Forms:
    """Hold the form of each register at the present point of a walk, and the atoms met so far.

    `define` brings it up to date with an instruction. moving: atoms that follow from what a loop that stays a
    loop steps. epoch: stores and places where paths meet so far; two loads of one address in one epoch give
    one value.
    """

    of_register: dict[int, Form] = field(default_factory=dict)
    moving: set[int] = field(default_factory=set)
    epoch: int = 0
    _atoms: dict[Hashable, int] = field(default_factory=dict)
    _divisors: list[int] = field(default_factory=list)

    def of(self, operand: ir.Operand) -> Form:
        """Return the form of an operand; a float constant is an atom."""
        if isinstance(operand, ir.Reg):
            known = self.of_register.get(operand.index)
            return known if known is not None else self.atom(("register", operand.index))
        if isinstance(operand.value, float):
            return self.atom(("float", operand.value))
        return Form(int(operand.value))

    def atom(self, key: Hashable, divisor: int = 1, moving: bool = False) -> Form:
        """Return the atom of a key: the same one for the same key."""
        number = self._atoms.setdefault(key, len(self._divisors))
        if number == len(self._divisors):
            self._divisors.append(divisor)
            if moving:
                self.moving.add(number)
        return Form(0, ((number, 1),))

    def divisor(self, form: Form) -> int:
        """Return the largest integer known to divide what is not constant in a form; 0 for a number."""
        return math.gcd(*(factor * self._divisors[atom] for atom, factor in form.terms))

    def is_moving(self, *forms: Form) -> bool:
        """Tell whether a form follows from what a loop steps (dsl/passes/unrolling.py, `steps`)."""
        return any(atom in self.moving for form in forms for atom, _ in form.terms)

    def join(self, dst: ir.Reg, form: Form) -> None:
        """Give a register the form that a phi takes along one edge."""
        self.of_register[dst.index] = form

    def define(self, instr: ir.Instr) -> None:
        """Give the registers that an instruction writes their forms."""
        dsts = ir.destinations(instr)
        if not dsts:
            return
        form = self._of_instruction(instr) if len(dsts) == 1 else None
        for dst in dsts:
            self.of_register[dst.index] = form or self.atom(("value", object()))

    def _of_instruction(self, instr: ir.Instr) -> Form | None:
        """Return the form of what an instruction computes; None where two runs of it may differ."""
        match instr:
            case ir.Alu(type=kind) if kind[0] in "su" or kind == "pred":
                return self._integer(instr)
            case ir.Cvt(src=src, to_type=to, from_type=kind) if to[0] in "su" and kind[0] in "su":
                return self.of(src)
            case ir.Setp(op=op, a=a, b=b):
                return self._compared(op, self.of(a), self.of(b))
            case ir.Selp(a=a, b=b, cond=cond):
                chosen = self.of(cond)
                return self.of(a if chosen.constant else b) if chosen.known else self._same(instr)
            case ir.Chk(index=index, extent=extent):
                return self._checked(self.of(index), self.of(extent))
            case ir.Ld(space=space, type=kind, addr=addr):
                return self.atom(("loaded", space, kind, self.of(addr), self.epoch))
            case ir.Sreg(name=name) | ir.LdParam(name=name):
                return self.atom((type(instr).__name__, name))
            case ir.Alu() | ir.Cvt() | ir.Bitcast():
                return self._same(instr)
        return None

    def _same(self, instr: ir.Instr) -> Form:
        """Return the atom of a computation: one for all that do the same with the same operands."""
        operands = tuple(map(self.of, ir.sources(instr)))
        what = (type(instr).__name__, getattr(instr, "op", ""), getattr(instr, "type", ""))
        return self.atom((*what, getattr(instr, "to_type", ""), operands), moving=self.is_moving(*operands))

    def _integer(self, instr: ir.Alu) -> Form:
        forms = [self.of(s) for s in instr.srcs]
        a, b = forms[0], forms[-1]
        match instr.op:
            case "mov":
                return a
            case "neg":
                return _sum(Form(0), a, -1)
            case "add" | "sub":
                return _sum(a, b, 1 if instr.op == "add" else -1)
            case "mul" if a.known or b.known:
                return self._scaled(b, a.constant) if a.known else self._scaled(a, b.constant)
            case "shl" if b.known and 0 <= b.constant < 63:
                return self._scaled(a, 1 << b.constant)
        if len(forms) == 2 and a.known and b.known and instr.op in (*_FOLDED, *_DIVIDED):
            if instr.op in _FOLDED:
                return Form(_FOLDED[instr.op](a.constant, b.constant))
            if b.constant:
                return Form(_DIVIDED[instr.op](a.constant, b.constant))
        return self._same(instr)

    def _scaled(self, form: Form, factor: int) -> Form:
        """Return a multiple; a sum of several atoms becomes one atom first, as a compiler sees its bits."""
        if factor == 0:
            return Form(0)
        terms = form.terms
        if len(terms) > 1:
            whole = Form(0, terms)
            terms = self.atom(("sum", terms), self.divisor(whole), self.is_moving(whole)).terms
        return Form(form.constant * factor, tuple((atom, n * factor) for atom, n in terms))

    def _compared(self, op: str, a: Form, b: Form) -> Form:
        if a.known and b.known:
            return Form(int(_COMPARED[op](a.constant, b.constant)))
        return self.atom(("compared", op, a, b))

    def _checked(self, index: Form, extent: Form) -> Form:
        """Return the form of a checked index.

        A number is wrapped here. m * x + c with 0 <= c < the largest power of two in m has the sign of x, so
        all such c share one decision; x must not be moving: compilers step m * x then. Any other index is an
        atom of its own.
        """
        if index.known and (index.constant >= 0 or extent.known):
            return Form(index.constant if index.constant >= 0 else index.constant + extent.constant)
        base, moving = Form(0, index.terms), self.is_moving(index)
        divisor = math.gcd(self.divisor(base), extent.constant if extent.known else 1)
        step = self.divisor(base)
        shares = len(index.terms) == 1 and 0 <= index.constant < (step & -step) and not moving
        if shares or index.constant == 0:
            wrapped = self.atom(("checked", base, extent), divisor, moving)
            return _sum(wrapped, Form(index.constant), 1)
        return self.atom(("checked", index, extent), math.gcd(divisor, index.constant), moving)
