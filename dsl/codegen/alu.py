"""Machine code for the arithmetic of WarpIR: one LLVM sequence an operation, on scalars or 32-lane vectors.

What it models: IEEE arithmetic as the card does it (one rounding an operation, PTX's min, max and
conversions) and Python's floor division. What it leaves out: the card's approximations; `ex2` is the fixed
sequence of dsl/semantics/floats.py, operation for operation, so the interpreter gets the same bits. Checked
by no metric; tests hold it against the interpreter.
"""

from __future__ import annotations

from dsl.codegen import narrow as codegen_narrow
from dsl.llvm.text import LANES, TYPES, Text, immediate, vector
from dsl.semantics.floats import EX2_COEFFICIENTS
from dsl.warpir import ir
from dsl.warpir.formats import FORMATS

MAGIC = 12582913.0
"""1.5 * 2**23 + 1: added to a float in [0, 2**22) it leaves the integer in its low bits (as in libdevice)."""


class Lane:
    """Emit operations of one type, on scalars or on vectors; the constants take the same form."""

    def __init__(self, text: Text, type_: str, is_vector: bool) -> None:
        self.text, self.type, self.is_vector = text, type_, is_vector
        self.scalar = TYPES[type_]
        self.kind = vector(self.scalar) if is_vector else self.scalar
        self.signed = type_.startswith("s")

    def other(self, type_: str) -> Lane:
        """Return the same form in another type."""
        return Lane(self.text, type_, self.is_vector)

    def k(self, value: int | float | bool) -> str:
        """Return a constant."""
        one = immediate(value, self.type)
        return f"splat ({self.scalar} {one})" if self.is_vector else one

    def bin(self, op: str, a: str, b: str) -> str:
        """Return `a op b` by one LLVM instruction."""
        return self.text.do(f"{op} {self.kind} {a}, {b}")

    def cmp(self, op: str, a: str, b: str) -> str:
        """Return the predicate of one comparison instruction such as `icmp slt`."""
        return self.text.do(f"{op} {self.kind} {a}, {b}")

    def select(self, cond: str, a: str, b: str) -> str:
        """Return a where cond holds, else b."""
        flag = vector("i1") if self.is_vector else "i1"
        return self.text.do(f"select {flag} {cond}, {self.kind} {a}, {self.kind} {b}")

    def call(self, name: str, *args: str) -> str:
        """Call an LLVM intrinsic."""
        return self.text.intrinsic(name, self.kind, *args)

    def cast(self, op: str, value: str, to: Lane) -> str:
        """Apply a conversion instruction."""
        return self.text.do(f"{op} {self.kind} {value} to {to.kind}")


def emit(lane: Lane, op: str, args: list[str], imms: list[int | float | None], small: bool = False) -> str:
    """Return the result of an Alu operation.

    `imms` holds the constant operands' values, `small` says ints lie in [0, 2**31).
    """
    if lane.type == "pred":
        return _predicate(lane, op, args)
    if lane.type in FORMATS:
        return _narrow(lane, op, args)
    if lane.type[0] == "f":
        return _float(lane, op, args, imms)
    return _integer(lane, op, args, imms, small)


def _predicate(lane: Lane, op: str, args: list[str]) -> str:
    if op == "not":
        return lane.bin("xor", args[0], lane.k(True))
    return args[0] if op == "mov" else lane.bin(op, *args)


def _narrow(lane: Lane, op: str, args: list[str]) -> str:
    """Return an operation of float16 or bfloat16."""
    match op:
        case "mov":
            return args[0]
        case "neg":
            return codegen_narrow.negated(lane, args[0])
        case "abs":
            return codegen_narrow.absolute(lane, args[0])
        case "fma":
            return codegen_narrow.fma(lane, *args)
        case "add" | "sub" | "mul" | "min" | "max" | "floor" | "ceil" | "trunc" | "rint":
            single = lane.other("f32")
            wide = [codegen_narrow.widen(lane, a) for a in args]
            return codegen_narrow.narrow(single, _float(single, op, wide, [None] * len(wide)), lane.type)
    raise ir.MalformedIR(f"{op} of {lane.type}")


_INT_PLAIN = ("add", "sub", "mul", "and", "or", "xor")


def _integer(lane: Lane, op: str, args: list[str], imms: list[int | float | None], small: bool) -> str:
    if op in _INT_PLAIN:
        return lane.bin(op, *args)
    match op:
        case "mov":
            return args[0]
        case "neg":
            return lane.bin("sub", lane.k(0), args[0])
        case "not":
            return lane.bin("xor", args[0], lane.k(-1))
        case "abs":
            return _absolute(lane, args[0])
        case "min" | "max":
            order = ("s" if lane.signed else "u") + ("lt" if op == "min" else "gt")
            return lane.select(lane.cmp(f"icmp {order}", *args), *args)
        case "popc" | "brev" | "clz":
            return _bits(lane, op, args[0])
        case "shl" | "shr":
            return _shift(lane, op, args, imms[1])
        case "div" | "rem" | "floordiv" | "floormod":
            return _division(lane, op, args, imms[1], small)
    raise ir.MalformedIR(f"integer operation {op}")


def _absolute(lane: Lane, a: str) -> str:
    negative = lane.cmp("icmp slt", a, lane.k(0))
    return lane.select(negative, lane.bin("sub", lane.k(0), a), a) if lane.signed else a


def _bits(lane: Lane, op: str, value: str) -> str:
    """Count the ones, reverse the bits, or count the leading zeros (the width for 0)."""
    if op != "clz":
        return lane.call({"popc": "ctpop", "brev": "bitreverse"}[op], value)
    suffix = f"v{LANES}{lane.scalar}" if lane.is_vector else lane.scalar
    return lane.text.call(lane.kind, f"llvm.ctlz.{suffix}", (lane.kind, value), ("i1", "false"))


def _shift(lane: Lane, op: str, args: list[str], amount: int | float | None) -> str:
    width = int(lane.scalar[1:])
    name = "shl" if op == "shl" else ("ashr" if lane.signed else "lshr")
    if amount is not None and 0 <= amount < width:
        return lane.bin(name, *args)
    inside = lane.cmp("icmp ult", args[1], lane.k(width))
    shifted = lane.bin(name, args[0], lane.select(inside, args[1], lane.k(0)))
    past = lane.bin("ashr", args[0], lane.k(width - 1)) if name == "ashr" else lane.k(0)
    return lane.select(inside, shifted, past)


def _division(lane: Lane, op: str, args: list[str], divisor: int | float | None, small: bool) -> str:
    floor, wants_quotient = op.startswith("floor"), op.endswith("div")
    if divisor is not None and divisor > 0:
        power = int(divisor).bit_length() - 1 if int(divisor) & (int(divisor) - 1) == 0 else None
        if power is not None and (floor or small or not lane.signed):
            if wants_quotient:
                return lane.bin("ashr" if lane.signed else "lshr", args[0], lane.k(power))
            return lane.bin("and", args[0], lane.k(int(divisor) - 1))
        if small and divisor < 2**31:
            narrow = lane.other("u32")
            a = lane.cast("trunc", args[0], narrow) if lane.scalar == "i64" else args[0]
            result = narrow.bin("udiv" if wants_quotient else "urem", a, narrow.k(int(divisor)))
            return narrow.cast("zext", result, lane) if lane.scalar == "i64" else result
    return _general_division(lane, args[0], args[1], floor, wants_quotient)


def _general_division(lane: Lane, a: str, b: str, floor: bool, wants_quotient: bool) -> str:
    """Divide with the host's instruction, kept away from its traps.

    A divisor of 0 gives 0, and the smallest number by -1 wraps.
    """
    zero = lane.cmp("icmp eq", b, lane.k(0))
    minus = lane.cmp("icmp eq", b, lane.k(-1)) if lane.signed else None
    safe = lane.select(zero, lane.k(1), b)
    if minus is not None:
        safe = lane.select(minus, lane.k(1), safe)
    quotient = lane.bin("sdiv" if lane.signed else "udiv", a, safe)
    if minus is not None:
        quotient = lane.select(minus, lane.bin("sub", lane.k(0), a), quotient)
    if floor and lane.signed:
        rest = lane.bin("sub", a, lane.bin("mul", quotient, b))
        signs = lane.cmp("icmp slt", lane.bin("xor", rest, b), lane.k(0))
        inexact = lane.cmp("icmp ne", rest, lane.k(0))
        both = lane.other("pred").bin("and", signs, inexact)
        quotient = lane.bin("sub", quotient, lane.select(both, lane.k(1), lane.k(0)))
    if wants_quotient:
        return lane.select(zero, lane.k(0), quotient)
    return lane.select(zero, lane.k(0), lane.bin("sub", a, lane.bin("mul", quotient, b)))


_FLOAT_PLAIN = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_FLOAT_INTRINSICS = {
    "fma": "fma", "sqrt": "sqrt", "abs": "fabs", "copysign": "copysign", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "rint": "rint",
}  # fmt: skip


def _float(lane: Lane, op: str, args: list[str], imms: list[int | float | None]) -> str:
    if op in _FLOAT_PLAIN:
        return lane.bin(_FLOAT_PLAIN[op], *args)
    if op in _FLOAT_INTRINSICS:
        return lane.call(_FLOAT_INTRINSICS[op], *args)
    match op:
        case "mov":
            return args[0]
        case "neg":
            return lane.text.do(f"fneg {lane.kind} {args[0]}")
        case "min" | "max":
            return _min_max(lane, "olt" if op == "min" else "ogt", *args)
        case "fma_sat":
            return _saturated(lane, lane.call("fma", *args))
        case "fma_rm":
            return _fma_down(lane, args, imms)
        case "rcp":
            return lane.bin("fdiv", lane.k(1.0), args[0])
        case "rsqrt":
            return lane.bin("fdiv", lane.k(1.0), lane.call("sqrt", args[0]))
    return _elementary(lane, op, args)


def _elementary(lane: Lane, op: str, args: list[str]) -> str:
    """Return ex2, lg2 or one of MATH_CALLS: ex2 of float32 in fixed steps, the rest by the C library."""
    if op == "ex2" and lane.type == "f32":
        return _ex2(lane, args[0])
    return _library(lane, {"ex2": "exp2", "lg2": "log2"}.get(op, op), args)


def _min_max(lane: Lane, order: str, a: str, b: str) -> str:
    """Return PTX min or max: the other operand where one is NaN, b where neither is smaller (larger)."""
    first = lane.cmp(f"fcmp {order}", a, b)
    b_is_nan = lane.cmp("fcmp uno", b, b)
    return lane.select(lane.other("pred").bin("or", first, b_is_nan), a, b)


def _saturated(lane: Lane, value: str) -> str:
    low = lane.select(lane.cmp("fcmp ogt", value, lane.k(0.0)), value, lane.k(0.0))
    return lane.select(lane.cmp("fcmp olt", low, lane.k(1.0)), low, lane.k(1.0))


def _fma_down(lane: Lane, args: list[str], imms: list[int | float | None]) -> str:
    """Round a * b + c toward minus infinity.

    libdevice's expf uses it once: a in [0, 1], b = 252, c = MAGIC. There the rounded sum and c lie in one
    binade, so c - r is exact and the sign of fma(a, b, c - r) says whether r is above the sum; one step down
    is 1. Elsewhere the exact sum is formed in float64 (the product is exact, TwoSum gives the rest of the
    sum).
    """
    a, b, c = args
    if imms[1] == 252.0 and imms[2] == MAGIC:
        r = lane.call("fma", a, b, c)
        rest = lane.call("fma", a, b, lane.bin("fsub", c, r))
        above = lane.cmp("fcmp olt", rest, lane.k(0.0))
        return lane.select(above, lane.bin("fsub", r, lane.k(1.0)), r)
    wide = lane.other("f64")
    x, y, z = (lane.cast("fpext", v, wide) for v in args)
    product = wide.bin("fmul", x, y)
    total, rest = codegen_narrow.two_sum(wide, product, z)
    nearest = wide.cast("fptrunc", total, lane)
    back = lane.cast("fpext", nearest, wide)
    flag = lane.other("pred")
    inexact = flag.bin("and", wide.cmp("fcmp oeq", back, total), wide.cmp("fcmp olt", rest, wide.k(0.0)))
    above = flag.bin("or", wide.cmp("fcmp ogt", back, total), inexact)
    finite = lane.cmp("fcmp one", lane.call("fabs", nearest), lane.k(float("inf")))
    stepped = lane.select(flag.bin("and", above, finite), _next_below(lane, nearest), nearest)
    cancels = flag.bin("and", wide.cmp("fcmp oeq", total, wide.k(0.0)), _any_negative(wide, product, z))
    return lane.select(cancels, lane.k(-0.0), stepped)


def _any_negative(lane: Lane, a: str, b: str) -> str:
    ints = lane.other("s64")
    both = ints.bin("or", lane.cast("bitcast", a, ints), lane.cast("bitcast", b, ints))
    return ints.cmp("icmp slt", both, ints.k(0))


def _next_below(lane: Lane, value: str) -> str:
    ints = lane.other("s32")
    raw = lane.cast("bitcast", value, ints)
    step = ints.select(ints.cmp("icmp slt", raw, ints.k(0)), ints.k(1), ints.k(-1))
    moved = ints.cast("bitcast", ints.bin("add", raw, step), lane)
    smallest = ints.cast("bitcast", ints.k(-(2**31) + 1), lane)
    return lane.select(lane.cmp("fcmp oeq", value, lane.k(0.0)), smallest, moved)


def _ex2(lane: Lane, x: str) -> str:
    """Return 2**x by the steps that dsl/semantics/floats.py `ex2` numbers."""
    ints = lane.other("s32")
    is_nan = lane.cmp("fcmp uno", x, x)
    n = lane.select(is_nan, lane.k(0.0), lane.call("rint", x))
    n = lane.select(lane.cmp("fcmp olt", n, lane.k(-150.0)), lane.k(-150.0), n)
    n = lane.select(lane.cmp("fcmp ogt", n, lane.k(128.0)), lane.k(128.0), n)
    f = lane.bin("fsub", x, n)
    p = lane.k(float(EX2_COEFFICIENTS[0]))
    for c in EX2_COEFFICIENTS[1:]:
        p = lane.call("fma", p, f, lane.k(float(c)))
    whole = lane.cast("fptosi", n, ints)
    half = ints.bin("ashr", whole, ints.k(1))
    r = lane.bin("fmul", p, _power_of_two(lane, half))
    r = lane.bin("fmul", r, _power_of_two(lane, ints.bin("sub", whole, half)))
    r = lane.select(lane.cmp("fcmp olt", x, lane.k(-150.0)), lane.k(0.0), r)
    r = lane.select(lane.cmp("fcmp oge", x, lane.k(128.0)), lane.k(float("inf")), r)
    return lane.select(is_nan, x, r)


def _power_of_two(lane: Lane, n: str) -> str:
    ints = lane.other("s32")
    return ints.cast("bitcast", ints.bin("shl", ints.bin("add", n, ints.k(127)), ints.k(23)), lane)


def _library(lane: Lane, name: str, args: list[str]) -> str:
    """Call the C library, a lane at a time: in double, but nextafter in the lane's own type."""
    if name == "nextafter":
        return _each_lane(lane, "nextafterf" if lane.type == "f32" else name, [(lane, a) for a in args])
    wide = lane.other("f64")
    given = [(wide, lane.cast("fpext", a, wide) if lane.type == "f32" else a) for a in args]
    if name == "ldexp":
        whole = lane.other("s32")
        given[1] = (whole, lane.cast("fptosi", args[1], whole))
    result = _each_lane(wide, name, given)
    return wide.cast("fptrunc", result, lane) if lane.type == "f32" else result


def _each_lane(lane: Lane, name: str, args: list[tuple[Lane, str]]) -> str:
    """Call a scalar function whose result has the type of `lane`, once for each lane of a vector."""
    if not lane.is_vector:
        return lane.text.call(lane.scalar, name, *((a.scalar, value) for a, value in args))
    result = "poison"
    for i in range(LANES):
        ones = [(a.scalar, lane.text.do(f"extractelement {a.kind} {v}, i32 {i}")) for a, v in args]
        one = lane.text.call(lane.scalar, name, *ones)
        result = lane.text.do(f"insertelement {lane.kind} {result}, {lane.scalar} {one}, i32 {i}")
    return result


def compare(lane: Lane, op: str, a: str, b: str) -> str:
    """Return a predicate: a op b; NaN makes all but `ne` false."""
    if lane.type in FORMATS:
        return compare(lane.other("f32"), op, *(codegen_narrow.widen(lane, v) for v in (a, b)))
    if lane.type[0] == "f":
        return lane.cmp(f"fcmp {'une' if op == 'ne' else 'o' + op}", a, b)
    if op in ("eq", "ne") or lane.type == "pred":
        return lane.cmp(f"icmp {op}", a, b)
    return lane.cmp(f"icmp {'s' if lane.signed else 'u'}{op}", a, b)


def convert(lane: Lane, value: str, to_type: str, saturate: bool = False, rounding: str = "rn") -> str:
    """Return `value` (of lane's type) converted as ir.Cvt says."""
    if to_type == lane.type:
        return value
    if to_type in FORMATS:
        return codegen_narrow.from_other(lane, value, to_type, saturate, rounding)
    if lane.type in FORMATS:
        return convert(lane.other("f32"), codegen_narrow.widen(lane, value), to_type)
    to = lane.other(to_type)
    if to_type == "pred":
        return lane.cmp("fcmp une" if lane.type[0] == "f" else "icmp ne", value, lane.k(0))
    if lane.type == "pred":
        return lane.cast("uitofp" if to_type[0] == "f" else "zext", value, to)
    if lane.type[0] == "f":
        if to_type[0] == "f":
            return lane.cast("fpext" if to_type == "f64" else "fptrunc", value, to)
        name = f"llvm.fpto{'s' if to.signed else 'u'}i.sat"
        forms = [f"v{LANES}" if lane.is_vector else "" for _ in range(2)]
        suffix = f".{forms[0]}{to.scalar}.{forms[1]}{lane.type}"
        result = lane.text.call(to.kind, name + suffix, (lane.kind, value))
        if lane.type == "f32" and to.scalar == "i32":
            return result
        highest = to.k(1 << int(to.scalar[1:]) - 1)
        return to.select(lane.cmp("fcmp uno", value, value), highest, result)
    if to_type[0] == "f":
        return lane.cast("sitofp" if lane.signed else "uitofp", value, to)
    return _resize(lane, value, to)


def _resize(lane: Lane, value: str, to: Lane) -> str:
    have, want = int(lane.scalar[1:]), int(to.scalar[1:])
    if have == want:
        return value
    return lane.cast("trunc" if want < have else ("sext" if lane.signed else "zext"), value, to)
