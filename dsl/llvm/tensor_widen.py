"""Narrow floats in packed registers to float32, as LLVM text: exact, and their exponents beside them.

What it models: float16, bfloat16, tf32, e4m3 and e5m2 as the tensor cores read them. It is integer code and
one multiplication, as a JIT has no library to call for conversions where the CPU lacks F16C. What it leaves
out: infinities and NaN, unless they are asked for. Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsl.llvm.text import constant
from dsl.warpir.tensor import PARTS

NO_EXPONENT = -64
"""Stands for the exponent of zero, as a byte: below that of every product, also beside the largest (15)."""


def vector(count: int, scalar: str) -> str:
    """Return the LLVM type of `count` scalars side by side."""
    return f"<{count} x {scalar}>"


class Lines:
    """Collect the lines of a function; `do` names each result."""

    def __init__(self, head: str) -> None:
        self.lines = [head + " {", "entry:"]

    def do(self, text: str) -> str:
        """Append an instruction; return the name of its result."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def put(self, text: str) -> None:
        """Append a line without a result."""
        self.lines.append(text if text.endswith(":") else f"  {text}")

    def at(self, base: str, offset: int | str) -> str:
        """Return the address some bytes behind another."""
        return self.do(f"getelementptr i8, ptr {base}, i64 {offset}")

    def text(self) -> str:
        """Return the function."""
        return "\n".join([*self.lines, "}", ""])


@dataclass(frozen=True)
class Widener:
    """Turn packed registers of `count` lanes into float32 bits and their powers of two."""

    t: Lines
    type_: str
    count: int
    special: bool
    """Whether infinities and NaN come out right; without, numbers alone do, and it is faster."""

    def op(self, op: str, a: str, constant: int) -> str:
        """Return a op constant in every lane."""
        return self.t.do(f"{op} {vector(self.count, 'i32')} {a}, splat (i32 {constant})")

    def choose(self, test: str, yes: str, no: str) -> str:
        """Return yes where the test holds, else no."""
        kind = vector(self.count, "i32")
        return self.t.do(f"select {vector(self.count, 'i1')} {test}, {kind} {yes}, {kind} {no}")

    def part(self, registers: str, part: int) -> str:
        """Return one of the packed values of each register as float32 bits, exact, NaN and infinity kept."""
        if self.type_ == "tf32":
            return self.op("and", registers, -8192)
        if self.type_ == "bf16":
            return self.op("shl", registers, 16) if part == 0 else self.op("and", registers, -65536)
        bits = 32 // PARTS[self.type_]
        above = 32 - bits * (part + 1)
        top = self.op("shl", registers, above) if above else registers
        return self._from_e4m3(top) if self.type_ == "e4m3" else self._from_f16(top)

    def _scaled(self, magnitude: str, exponent: int) -> str:
        """Return the bits of a float whose exponent field was too small by `exponent`."""
        ints, floats = vector(self.count, "i32"), vector(self.count, "float")
        value = self.t.do(f"bitcast {ints} {magnitude} to {floats}")
        product = self.t.do(f"fmul {floats} {value}, splat (float {constant(2.0**exponent, 'float')})")
        return self.t.do(f"bitcast {floats} {product} to {ints}")

    def _from_f16(self, top: str) -> str:
        """Return the float32 of a float16, or of an e5m2, which is its upper half, in the top bits."""
        kept = -1 << (16 if self.type_ == "f16" else 24)
        size = self.op("and", self.op("ashr", self.op("and", top, kept), 3), -0x70000001)
        found = self._scaled(size, 112)
        if not self.special:
            return found
        is_special = self.op("icmp eq", self.op("and", top, 0x7C000000), 0x7C000000)
        return self.choose(is_special, self.op("or", size, 0x7F800000), found)

    def _from_e4m3(self, top: str) -> str:
        """Return the float32 of an e4m3 in the top bits."""
        size = self.op("and", self.op("ashr", self.op("and", top, -1 << 24), 4), -0x78000001)
        found = self._scaled(size, 120)
        if not self.special:
            return found
        is_nan = self.op("icmp eq", self.op("and", top, 0x7F000000), 0x7F000000)
        return self.choose(is_nan, f"splat (i32 {0x7FC00000})", found)

    def power(self, bits: str, least: int) -> str:
        """Return the power of two of the exponent, at least 2**least; 0 for 0."""
        kind = vector(self.count, "i32")
        field, floor = self.op("and", bits, 0x7F800000), (least + 127) << 23
        above = self.t.do(
            f"call {kind} @llvm.umax.v{self.count}i32({kind} {field}, {kind} splat (i32 {floor}))"
        )
        return self.choose(self.is_zero(bits), "zeroinitializer", above)

    def is_zero(self, bits: str) -> str:
        """Return whether float32 bits are those of a zero."""
        return self.op("icmp eq", self.op("and", bits, 0x7FFFFFFF), 0)

    def exponent(self, bits: str, least: int) -> str:
        """Return the exponent, at least `least`, as a byte; NO_EXPONENT for 0."""
        kind = vector(self.count, "i32")
        field = self.op("lshr", self.op("and", bits, 0x7F800000), 23)
        above = self.t.do(
            f"call {kind} @llvm.umax.v{self.count}i32({kind} {field}, {kind} splat (i32 {least + 127}))"
        )
        found = self.choose(
            self.is_zero(bits), f"splat (i32 {NO_EXPONENT & 0xFF})", self.op("sub", above, 127)
        )
        return self.t.do(f"trunc {kind} {found} to {vector(self.count, 'i8')}")


SPECIAL = {"f16": (16, 0x7C00), "bf16": (16, 0x7F80), "e4m3": (8, 0x7F), "e5m2": (8, 0x7C),
           "tf32": (32, 0x7F800000), "f32": (32, 0x7F800000)}  # fmt: skip
"""Width of each type, and the bits that only infinities and NaN have all set."""


def special_bits(t: Lines, registers: str, type_: str, count: int) -> str:
    """Return packed registers (<count x i32>) with the top bit of each value set where it is special.

    The exponent field with all bits set is the only one that carries into the sign when its lowest bit is
    added; other bits of the result mean nothing.
    """
    width, bits = SPECIAL[type_]
    kind = vector(count, "i32")
    repeated = sum(bits << k for k in range(0, 32, width))
    lowest = sum((bits & -bits) << k for k in range(0, 32, width))
    field = t.do(f"and {kind} {registers}, splat (i32 {repeated})")
    return t.do(f"add {kind} {field}, splat (i32 {lowest})")


def any_top_bit(t: Lines, found: str, type_: str, count: int) -> str:
    """Return whether the top bit of a value is set in registers (i1)."""
    width, _ = SPECIAL[type_]
    tops = sum(1 << k + width - 1 for k in range(0, 32, width))
    kind = vector(count, "i32")
    lanes = t.do(f"icmp ne {kind} {t.do(f'and {kind} {found}, splat (i32 {tops})')}, zeroinitializer")
    whole = t.do(f"bitcast {vector(count, 'i1')} {lanes} to i{count}")
    return t.do(f"icmp ne i{count} {whole}, 0")
