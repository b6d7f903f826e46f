"""What each operation of WarpIR counts as in machine code: the one table that interpreter and engine share.

What it models: the FFMA, FMUL, FADD, DFMA, DMUL, DADD and MUFU that sm_90 code executes for an operation,
and which operations go to the special function pipe (XU). What it leaves out: moves, addresses, branches
and predicates, which no counter of this project shows; Chk, as the machine code does not check. Checked by
`smsp__sass_thread_inst_executed_op_{ffma,fmul,fadd,dfma,dmul,dadd}_pred_on`.

Measured (h200 facts 10 and 11): division 5 FFMA and a MUFU, and 2 warp instructions on XU (softmax of 1024
x 1024: 131,072 = 4 for each 32 elements, 2 exp and 1 division); exp 4 FFMA, 1 FMUL, 1 FADD and a MUFU; log 11
FFMA, 1 FMUL, 1 FADD. A 32-bit integer becomes a float32 on the integer pipe, not on XU (fact 25); an integer
division by a number that the compiler does not know is 3 on XU (fact 43; its MUFU.RCP is not among `mufu`,
which is of floats). Read from the code that ptxas 13.0 makes for ordinary numbers: float32 sqrt, log2, log10
and exp2, and 1 / x, which NVVM makes an rcp.rn. Modelled: every other library call, float64 division, and
`integer`, which counts operations of WarpIR.
"""

from __future__ import annotations

from collections.abc import Mapping

from dsl.warpir import ir
from dsl.warpir.formats import FORMATS
from gpusim.counters import Tensor

KEYS = (
    "fadd", "fmul", "ffma", "dadd", "dmul", "dfma", "hadd", "hmul", "hfma", "hadd_cvt", "mufu", "integer",
    "xu",
)  # fmt: skip
"""Thread instructions, except xu: warp instructions on the special function pipe."""

NARROW = tuple(FORMATS)
STORED = ("e4m3", "e5m2")
PREDICATED = "predicated"
"""Tag of an operation that the machine code executes in no lane of ordinary numbers (the two FMUL of
ex2.approx for denormals)."""
PREDICATED_IF_LAST, IN_EVERY_LANE = "predicated if last", "in every lane"
"""Tags of the multiplication that scales denormals for a logarithm: the first, until dsl/passes/last_reads.py
finds that every lane executes it.
"""

PACKED, FOLDED = "packed", "folded"
"""Tags of a conversion that makes two numbers in one F2FP, and of a step that is part of an instruction
beside it."""
APPROXIMATE = "approximate"
"""Tag of a float32 operation that is short enough for a 16-bit result: the special function unit's
approximation of a quotient, root or tanh (PTX .approx), sine and cosine with a short reduction."""
UNCONTRACTED = "nocontract"
"""Tag of a product or a sum that stays out of a fused multiply-add (PTX .rn)."""

_NOTHING: dict[str, int] = {}
_INTEGER = {"integer": 1}
_MUFU = {"mufu": 1, "xu": 1}
_ROUND = {"integer": 1, "xu": 1}

F32: dict[str, dict[str, int]] = {
    "add": {"fadd": 1},
    "sub": {"fadd": 1},
    "mul": {"fmul": 1},
    "fma": {"ffma": 1},
    "fma_sat": {"ffma": 1},
    "fma_rm": {"ffma": 1},
    "div": {"ffma": 5, "mufu": 1, "xu": 2},
    "sqrt": {"fmul": 2, "ffma": 2, **_MUFU},
    "ex2": _MUFU,
    "lg2": _MUFU,
    "rsqrt": _MUFU,
    "rcp": _MUFU,
    "exp": {"ffma": 4, "fmul": 1, "fadd": 1, **_MUFU},
    "log": {"ffma": 11, "fmul": 1, "fadd": 1},
    "exp2": _MUFU,
    "log2": {"ffma": 11, "fmul": 2, "fadd": 2},
    "log10": {"ffma": 11, "fmul": 2, "fadd": 1},
    "sin": {"ffma": 8, "fmul": 2, "xu": 2},
    "cos": {"ffma": 8, "fmul": 2, "xu": 2},
    "tan": {"ffma": 9, "fmul": 2, "mufu": 1, "xu": 3},
    "tanh": {"ffma": 6, "fmul": 2, "fadd": 1, "mufu": 2, "xu": 2},
    "pow": {"ffma": 16, "fmul": 3, "fadd": 7, "mufu": 2, "xu": 2},
    "fmod": {"ffma": 6, "fmul": 1, **_MUFU},
    "atan2": {"ffma": 13, "fmul": 2, "fadd": 1, **_MUFU},
    "erf": {"ffma": 7, "fmul": 1, "fadd": 1, **_MUFU},
    "log1p": {"ffma": 11, "fmul": 1, "fadd": 2},
    "expm1": {"ffma": 8, "fmul": 1, "fadd": 2, **_MUFU},
    "cbrt": {"ffma": 2, "fmul": 3, "mufu": 3, "xu": 3},
    "acos": {"ffma": 7, "fmul": 2, "fadd": 1, **_MUFU},
    "asin": {"ffma": 7, "fmul": 3, "fadd": 1, **_MUFU},
    "atan": {"ffma": 7, "fmul": 2, "fadd": 1, **_MUFU},
    "acosh": {"ffma": 14, "fmul": 2, "fadd": 3, **_MUFU},
    "asinh": {"ffma": 14, "fmul": 3, "fadd": 3, "mufu": 2, "xu": 2},
    "atanh": {"ffma": 12, "fmul": 2, "fadd": 4, **_MUFU},
    "cosh": {"ffma": 5, "fmul": 2, "fadd": 1, "mufu": 2, "xu": 2},
    "sinh": {"ffma": 10, "fmul": 4, "fadd": 1, "mufu": 2, "xu": 2},
    "erfc": {"ffma": 17, "fmul": 3, "fadd": 2, "mufu": 2, "xu": 2},
    "tgamma": {"ffma": 14, "fmul": 5, "fadd": 3, **_MUFU},
    "lgamma": {"ffma": 24, "fmul": 4, "fadd": 4, "mufu": 2, "xu": 2},
    "hypot": {"ffma": 3, "fmul": 4, **_MUFU},
    "remainder": {"ffma": 6, "fmul": 1, "fadd": 1, **_MUFU},
    "ldexp": {"fmul": 4, "integer": 4},
}
"""ex2, lg2, rsqrt and rcp are the approximations of the MUFU itself; div has MUFU.RCP and FCHK on XU."""

_RECIPROCAL = {"ffma": 2, "fadd": 1, **_MUFU}
"""float32 1 / x, rounded to nearest: MUFU.RCP, one step of Newton's, and no FCHK."""

_SHORT_SINE = {"fadd": 1, "ffma": 7, "fmul": 1}
_APPROXIMATE = {
    "div": {"fmul": 1, **_MUFU},
    "sqrt": _MUFU,
    "tanh": _MUFU,
    "sin": _SHORT_SINE,
    "cos": _SHORT_SINE,
}
"""The float32 steps of 16-bit functions (h200 fact 41); sine and cosine of float16 need no long reduction."""

HALF: dict[str, dict[str, int]] = {
    "add": {"hadd": 1},
    "sub": {"hadd": 1},
    "mul": {"hmul": 1},
    "fma": {"hfma": 1},
}
"""HADD2, HMUL2 and HFMA2, one for each thread's operation of float16 or bfloat16 (h200 fact 38)."""

F64: dict[str, dict[str, int]] = {
    "add": {"dadd": 1},
    "sub": {"dadd": 1},
    "mul": {"dmul": 1},
    "fma": {"dfma": 1},
    "div": {"dfma": 7, "dmul": 1, **_MUFU},
    "rcp": {"dfma": 6, **_MUFU},
    "sqrt": {"dfma": 5, "dmul": 3, **_MUFU},
    "rsqrt": {"dfma": 4, "dmul": 2, **_MUFU},
    "exp": {"dfma": 14, "dmul": 1, "dadd": 1},
    "exp2": {"dfma": 14, "dmul": 1, "dadd": 1},
    "expm1": {"dfma": 15, "dmul": 1, "dadd": 2},
    "log": {"dfma": 19, "dmul": 2, "dadd": 3, **_MUFU},
    "log2": {"dfma": 19, "dmul": 3, "dadd": 3, **_MUFU},
    "log10": {"dfma": 19, "dmul": 3, "dadd": 3, **_MUFU},
    "log1p": {"dfma": 19, "dmul": 2, "dadd": 4, **_MUFU},
    "sin": {"dfma": 12, "dmul": 2},
    "cos": {"dfma": 12, "dmul": 2},
    "tan": {"dfma": 21, "dmul": 2, **_MUFU},
    "tanh": {"dfma": 22, "dmul": 2, "dadd": 2, **_MUFU},
    "pow": {"dfma": 40, "dmul": 5, "dadd": 12, **_MUFU},
    "fmod": {"dfma": 8, "dmul": 1, **_MUFU},
    "atan2": {"dfma": 28, "dmul": 2, "dadd": 1, **_MUFU},
    "erf": {"dfma": 24, "dmul": 1, "dadd": 1, **_MUFU},
    "cbrt": {"dfma": 9, "dmul": 5, "dadd": 1, "mufu": 3, "xu": 3},
    "acos": {"dfma": 21, "dmul": 3, "dadd": 2, **_MUFU},
    "asin": {"dfma": 20, "dmul": 3, "dadd": 2, **_MUFU},
    "atan": {"dfma": 24, "dmul": 2, "dadd": 1, **_MUFU},
    "acosh": {"dfma": 26, "dmul": 4, "dadd": 5, "mufu": 2, "xu": 2},
    "asinh": {"dfma": 28, "dmul": 4, "dadd": 5, "mufu": 2, "xu": 2},
    "atanh": {"dfma": 24, "dmul": 2, "dadd": 5, "mufu": 2, "xu": 2},
    "cosh": {"dfma": 20, "dmul": 2, "dadd": 1, **_MUFU},
    "sinh": {"dfma": 30, "dmul": 4, "dadd": 2, **_MUFU},
    "erfc": {"dfma": 46, "dmul": 5, "dadd": 3, "mufu": 2, "xu": 2},
    "tgamma": {"dfma": 42, "dmul": 10, "dadd": 6, "mufu": 2, "xu": 2},
    "lgamma": {"dfma": 60, "dmul": 8, "dadd": 8, "mufu": 2, "xu": 2},
    "hypot": {"dfma": 7, "dmul": 4, **_MUFU},
    "remainder": {"dfma": 8, "dmul": 1, "dadd": 1, **_MUFU},
    "ldexp": {"dmul": 4, "integer": 4},
}
"""A float64 MUFU (RCP64H, RSQ64H) gives the first 20 bits, Newton steps in DFMA the rest."""

FLOAT_ANY: dict[str, dict[str, int]] = {
    "neg": _NOTHING,
    "abs": _NOTHING,
    "mov": _NOTHING,
    "min": _INTEGER,
    "max": _INTEGER,
    "copysign": _INTEGER,
    "floor": _ROUND,
    "ceil": _ROUND,
    "trunc": _ROUND,
    "rint": _ROUND,
    "nextafter": {"integer": 8},
}
"""A sign is part of the instruction that reads it; min and max run on the integer pipe; rounding to a whole
number is FRND, on XU."""


_BY_TYPE = {"f32": F32, "f64": F64, "f16": HALF, "bf16": HALF}
BIT_OPS = ("popc", "brev", "clz")
"""POPC, BREV and FLO in the machine code. Modelled, not measured: they are taken to run on XU, at its rate of
16 results a clock and SM; one of 64 bits counts as two."""


INTEGER_DIVISIONS = ("div", "rem", "floordiv", "floormod")
BY_A_NUMBER = "by a number"
"""Tag of an integer division by a register that the compiler knows (dsl/passes/divisions.py)."""
INTEGER_DIVISION = {"integer": 1, "xu": 3}
"""I2F.RP, MUFU.RCP and F2I, of 32 bits and of 64. A division of 64-bit numbers goes the way of 32 bits where
both fit; the other way has three instructions of XU too."""


def _integer(instr: ir.Alu) -> Mapping[str, int]:
    """Return the counts of an operation on integers; a division by a known number is multiplications."""
    if instr.op in INTEGER_DIVISIONS and isinstance(instr.srcs[1], ir.Reg) and instr.tag != BY_A_NUMBER:
        return INTEGER_DIVISION
    if instr.op not in BIT_OPS:
        return _INTEGER
    return {"integer": 1, "xu": ir.BYTES[instr.type] // 4}


def _alu(instr: ir.Alu) -> Mapping[str, int]:
    """Return the counts of an Alu operation."""
    if instr.type == "pred" or instr.op == "mov":
        return _NOTHING
    if instr.type not in _BY_TYPE:
        return _integer(instr)
    if instr.tag == APPROXIMATE:
        return _APPROXIMATE[instr.op]
    if instr.op == "div" and instr.type == "f32" and instr.srcs[0] == ir.Imm(1.0):
        return _RECIPROCAL
    return FLOAT_ANY.get(instr.op) or _BY_TYPE[instr.type].get(instr.op, _NOTHING)


_TO_F32 = {"f16": {"hadd_cvt": 1}, "bf16": _INTEGER, **dict.fromkeys(STORED, {"hadd_cvt": 1, "integer": 2})}
_FROM_F32 = {"f16": _INTEGER, "bf16": _INTEGER, **dict.fromkeys(STORED, {"integer": 2})}
_UNSATURATED, _BY_INTEGERS = {"integer": 18, "xu": 1}, {"integer": 17}
"""To and from narrow floats (h200 fact 41): HADD2.F32 from float16, which ncu files under HADD; a shift from
bfloat16; F2FP to either, on the integer pipe. An 8-bit float becomes float16 first. Without saturation, and
of a float64, the headers make it in integer code: 17 operations on average of numbers of all sizes."""


def _cvt(instr: ir.Cvt) -> Mapping[str, int]:
    """Return the counts of a conversion: one between a float and a number runs on XU (I2F, F2I, F2F), but
    one from a 32-bit integer to float32 on the integer pipe (I2FP; h200 fact 25), and those between narrow
    floats and float32 as the tables above say.
    """
    source, target = instr.from_type, instr.to_type
    if instr.tag in (PACKED, FOLDED):
        return _INTEGER if instr.tag == PACKED else _NOTHING
    if "pred" in (source, target):
        return _INTEGER
    if target in STORED and source == "f64":
        return _BY_INTEGERS
    if target in STORED and not instr.saturate:
        return _UNSATURATED
    if source in NARROW or target in NARROW:
        return _narrow_cvt(source, target)
    if target == "f32" and source in ("s32", "u32"):
        return _INTEGER
    return _ROUND if {source, target} & set(ir.FLOATS) else _INTEGER


def _narrow_cvt(source: str, target: str) -> Mapping[str, int]:
    """Return the counts of a conversion with a narrow float: to float32 first, unless the other is a number
    of 64 bits or an integer, which F2F, F2I and I2F turn into 16 bits at once.
    """
    if (source, target) in (("f16", "e4m3"), ("f16", "e5m2")):
        return _FROM_F32[target]
    steps: list[Mapping[str, int]] = []
    if source in NARROW and (target in ("f32", "f64", *NARROW) or source in STORED):
        steps.append(_TO_F32[source])
    if target in NARROW and (source in ("f32", *NARROW) or target in STORED):
        steps.append(_FROM_F32[target])
    if {source, target} - {"f32", *NARROW}:
        steps.append(_ROUND)
    return {key: sum(step.get(key, 0) for step in steps) for key in KEYS if any(key in s for s in steps)}


def count_mma(counts: Tensor, a_type: str, n: int = 1) -> None:
    """Add n warp instructions of the tensor cores whose A has a type."""
    name = "fp8" if a_type in ("e4m3", "e5m2") else a_type
    setattr(counts, name, getattr(counts, name) + n)


def machine_counts(instr: ir.Instr) -> dict[str, int]:
    """Return what one execution of an instruction adds to each of KEYS (those that it adds to)."""
    if isinstance(instr, ir.Alu):
        return {} if instr.tag in (PREDICATED, PREDICATED_IF_LAST, FOLDED) else dict(_alu(instr))
    if isinstance(instr, ir.Cvt):
        return dict(_cvt(instr))
    return dict(_INTEGER) if isinstance(instr, ir.Setp | ir.Selp) else {}


def block_counts(block: ir.Block) -> dict[str, int]:
    """Return the sum of `machine_counts` over a basic block, with every key."""
    total = dict.fromkeys(KEYS, 0)
    for instr in block.instrs:
        for key, n in machine_counts(instr).items():
            total[key] += n
    return total
