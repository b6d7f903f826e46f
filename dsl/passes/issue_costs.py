"""What an instruction of WarpIR takes of a warp's time: the machine instructions it issues, by class, and the
steps that its result waits for.

What it models: sm_90 code of numba-cuda as ptxas 13.0 makes it: 64-bit integers in two halves, an index check
as a comparison and a selection, a division of float32 with its test and branch. What it leaves out:
predicates, moves. The ratios between these integer instructions and those of the machine code belong to the
card's compiler and stand in gpusim/timing.py. Checked by `smsp__inst_executed`.
"""

from __future__ import annotations

from typing import NamedTuple

from dsl.warpir import ir
from dsl.warpir.machine import INTEGER_DIVISIONS, machine_counts


class Cost(NamedTuple):
    """Hold the steps of a chain, and instructions issued: (class, number) pairs of gpusim.work."""

    steps: tuple[tuple[str, int], ...] = ()
    issued: tuple[tuple[str, int], ...] = ()


FREE = Cost()
CHECK = Cost((("alu", 2),), (("index", 2),))
ATOMIC_SHARED = Cost((("shared", 1),), (("access", 1),))
ATOMIC = Cost((("atomic", 1),), (("access", 1),))
SENT = Cost((), (("access", 1),))
"""A store, a RED, an asynchronous copy: nothing waits for it."""
VOTE = Cost((("alu", 3),), (("integer", 1),))
MATRIX = Cost((("shared", 1),), (("access", 1),))
COPIES_DONE = Cost((("global", 1),), (("integer", 1),))
LOADS = {space: Cost(((space, 1),), (("access", 1),)) for space in ("global", "shared", "local")}
LOADS["const"] = Cost((("constant", 1),), (("access", 1),))
DIVISION_STEPS, DIVISION_INSTRUCTIONS = 8, 12
"""Integer steps and instructions around the three of XU in a division of integers."""
QUOTIENT_EXTRA = 4
"""Instructions that test and branch around a division of float32."""
LONG = 8
"""From so many float operations on, a library function has some side by side: two thirds are one chain."""


def words(type_: str) -> int:
    """Return the 32-bit registers of a number."""
    return 2 if type_.endswith("64") else 1


def integers(n: int, steps: int = 1) -> Cost:
    """Return n integer instructions, of which `steps` wait for one another."""
    return Cost((("alu", steps),), (("integer", n),))


def shuffle(type_: str) -> Cost:
    """Return a shuffle of a number."""
    return Cost((("shuffle", 1),), (("access", words(type_)),))


def tensor(a_type: str) -> Cost:
    """Return an mma.sync; one of 8-bit floats is two and 12 conversions (h200 fact 34)."""
    narrow = a_type in ("e4m3", "e5m2")
    extra = (("integer", 12),) if narrow else ()
    return Cost((("tensor", 1 + narrow),), (("tensor", 1 + narrow), *extra))


def integer_operation(instr: ir.Alu) -> Cost:
    """Return an integer operation; a product of two 64-bit numbers is three instructions."""
    special = machine_counts(instr).get("xu", 0)
    if instr.op in INTEGER_DIVISIONS and special:
        return Cost((("alu", DIVISION_STEPS), ("special", special)),
                    (("integer", DIVISION_INSTRUCTIONS), ("special", special)))
    n = words(instr.type)
    if instr.op == "mul" and not isinstance(instr.srcs[1], ir.Imm) and n == 2:
        return integers(3, 2)
    return Cost((("alu", 1), ("special", special)), (("integer", n), ("special", special)))


def float_operation(instr: ir.Alu | ir.Cvt) -> Cost:
    """Return an operation on floats by what the machine code has of it (dsl/warpir/machine.py)."""
    counts = machine_counts(instr)
    single = sum(counts.get(k, 0) for k in ("fadd", "fmul", "ffma"))
    half = sum(counts.get(k, 0) for k in ("hadd", "hmul", "hfma", "hadd_cvt"))
    double = sum(counts.get(k, 0) for k in ("dadd", "dmul", "dfma"))
    special, integer = counts.get("xu", 0), counts.get("integer", 0)
    extra = QUOTIENT_EXTRA if special == 2 and single == 5 else 0
    in_chain = single * 2 // 3 if single > LONG else single
    return Cost(
        (("alu", in_chain + half + integer), ("fp64", double), ("special", min(special, 1))),
        (("fp32", single), ("half", half), ("fp64", double), ("special", special),
         ("integer", integer + extra)))
