"""The tensor cores' sum of float16 and fp8 products, as LLVM text: cut terms are integers.

What it models: dsl/semantics/matrix_ops.py, bit by bit, for numbers without infinities and NaN. Products are
exact in float32 and their cut terms 32-bit integers, in two sums, each below 2**31, whose own sum seldom
exceeds 32 bits. Accumulators stay as they lie in their registers: a vector holds 4 columns of 2 rows, so each
row of A is there four times. The vectors of a register go together, which fills the registers of a CPU; the
loops are there to keep them in registers. CPUs with AVX-512 take vectors twice as wide, and cut a sum to a
float32 in one instruction. What it leaves out: sums beyond 32 bits, and infinities and NaN among the
accumulators, both of which the function tells of. Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsl.llvm.tensor_widen import Lines, vector
from dsl.llvm.text import LANES, constant
from dsl.semantics.matrix_ops import KEPT_BITS
from dsl.warpir.tensor import COLUMNS, ROWS

BLOCK = 4
"""The values of k that a pair of A's registers holds in one of their parts."""
SPREAD = 4
"""How often a row of A is there side by side: for each column of a register's."""


@dataclass(frozen=True)
class Width:
    """Say how many accumulators (lanes) a vector holds: 8 on any CPU, 16 with an instruction of AVX-512."""

    lanes: int

    @property
    def vectors(self) -> int:
        """Return the vectors of a register."""
        return LANES // self.lanes

    @property
    def ints(self) -> str:
        """Return the type of a vector of integers."""
        return vector(self.lanes, "i32")

    @property
    def floats(self) -> str:
        """Return the type of a vector of float32."""
        return vector(self.lanes, "float")

    @property
    def flags(self) -> str:
        """Return the type of a vector of truth values."""
        return vector(self.lanes, "i1")


NARROW, WIDE = Width(8), Width(16)
TOWARD_ZERO = 3 | 8
"""AVX-512's rounding mode "toward zero, no exceptions", as an instruction carries it."""
DECLARED = {
    "llvm.abs.v8i32": "declare <8 x i32> @llvm.abs.v8i32(<8 x i32>, i1)",
    "llvm.smax.v64i8": "declare <64 x i8> @llvm.smax.v64i8(<64 x i8>, <64 x i8>)",
    "llvm.x86.avx512.sitofp.round.v16f32.v16i32":
        "declare <16 x float> @llvm.x86.avx512.sitofp.round.v16f32.v16i32(<16 x i32>, i32 immarg)",
}  # fmt: skip
"""LLVM's own functions that these call: name -> declaration."""


def spread_rows() -> str:
    """Return the text of the function that writes A with each row four times: values and exponents."""
    t = Lines("define internal void @spread_rows(ptr %v, ptr %p, ptr %av, ptr %ap, i64 %terms) noinline")
    t.put("br label %loop")
    t.put("loop:")
    t.put("%i = phi i64 [ 0, %entry ], [ %i1, %loop ]")
    order = ", ".join(f"i32 {lane // SPREAD}" for lane in range(SPREAD * ROWS))
    for scalar, size, start, end in (("float", 4, "%v", "%av"), ("i8", 1, "%p", "%ap")):
        kind, wide = vector(ROWS, scalar), vector(SPREAD * ROWS, scalar)
        one = t.at(start, t.do(f"mul i64 %i, {size * ROWS}"))
        rows = t.do(f"load {kind}, ptr {one}, align 16")
        rows = t.do(f"shufflevector {kind} {rows}, {kind} poison, <{SPREAD * ROWS} x i32> <{order}>")
        place = t.at(end, t.do(f"mul i64 %i, {size * SPREAD * ROWS}"))
        t.put(f"store {wide} {rows}, ptr {place}, align 64")
    t.put("%i1 = add i64 %i, 1")
    t.put("%more = icmp ult i64 %i1, %terms")
    t.put("br i1 %more, label %loop, label %done")
    t.put("done:")
    t.put("ret void")
    return t.text()


def integer_sum(name: str, head: str, terms: int, width: Width) -> str:
    """Return the text of the function that makes one sum of each accumulator; i1: whether one is void.

    head: its parameters. width: of its vectors. %av, %ap: values of A and their exponents, [terms][16 rows,
    each four times]; %bv, %bp: those of B, [terms][4 even, 4 odd columns]; %c, %d: the registers of the
    accumulators. A turn of the loop makes one register.
    """
    t, ints = Lines(f"define internal i1 @{name}({head}) noinline"), width.ints
    _largest_exponents(t, terms)
    t.put(f"%far = alloca {ints}, align 64")
    t.put(f"store {ints} zeroinitializer, ptr %far, align 64")
    t.put("br label %register")
    t.put("register:")
    t.put("%i = phi i64 [ 0, %entry ], [ %i1, %end ]")
    parts = [_Vector(t, width, number) for number in range(width.vectors)]
    start = [t.do(f"freeze {ints} {part.cut(part.c)}") for part in parts]
    low = _half_sum(t, parts, "low", "register", start, terms // 2 // BLOCK)
    high = _half_sum(t, parts, "high", "low_end", ["zeroinitializer"] * len(parts), terms // 2 // BLOCK)
    t.put("br label %end")
    t.put("end:")
    beyond = t.do(f"load {ints}, ptr %far, align 64")
    for part, first, second in zip(parts, low, high, strict=True):
        total = t.do(f"add {ints} {first}, {second}")
        astray = [t.do(f"xor {ints} {half}, {total}") for half in (first, second)]
        beyond = t.do(f"or {ints} {beyond}, {t.do(f'and {ints} {astray[0]}, {astray[1]}')}")
        beyond = t.do(f"or {ints} {beyond}, {part.special()}")
        beyond = t.do(f"or {ints} {beyond}, {part.store_result(total)}")
    t.put(f"store {ints} {beyond}, ptr %far, align 64")
    t.put("%i1 = add i64 %i, 1")
    t.put(f"%more = icmp ult i64 %i1, {ROWS * COLUMNS // LANES}")
    t.put("br i1 %more, label %register, label %out")
    t.put("out:")
    flags = t.do(f"icmp slt {ints} {beyond}, zeroinitializer")
    whole = t.do(f"bitcast {width.flags} {flags} to i{width.lanes}")
    t.put(f"ret i1 {t.do(f'icmp ne i{width.lanes} {whole}, 0')}")
    return t.text()


def _half_sum(
    t: Lines, parts: list[_Vector], name: str, before: str, start: list[str], blocks: int
) -> list[str]:
    """Add the cut terms of half of the blocks to some integers, in a loop named `name`; return the sums."""
    first, width = 0 if name == "low" else blocks, parts[0].width
    t.put(f"br label %{name}")
    t.put(f"{name}:")
    t.put(f"%{name}_b = phi i64 [ {first}, %{before} ], [ %{name}_b1, %{name} ]")
    for j, value in enumerate(start):
        t.put(f"%{name}{j} = phi {width.ints} [ {value}, %{before} ], [ %{name}_sum{j}, %{name} ]")
    sums = [f"%{name}{j}" for j in range(len(parts))]
    half, parity = t.do("lshr i64 %i, 1"), t.do("and i64 %i, 1")
    a = t.at("%av", t.do(f"mul i64 %{name}_b, {4 * BLOCK * ROWS * SPREAD}"))
    a = t.at(a, t.do(f"mul i64 {half}, {4 * LANES}"))
    b = t.at("%bv", t.do(f"mul i64 %{name}_b, {4 * BLOCK * COLUMNS}"))
    b = t.at(b, t.do(f"mul i64 {parity}, {4 * SPREAD}"))
    order = ", ".join(f"i32 {lane % SPREAD}" for lane in range(width.lanes))
    for k in range(BLOCK):
        four = t.do(f"load <4 x float>, ptr {t.at(b, 4 * COLUMNS * k)}, align 16")
        columns = t.do(
            f"shufflevector <4 x float> {four}, <4 x float> poison, <{width.lanes} x i32> <{order}>"
        )
        for j, part in enumerate(parts):
            place = t.at(a, 4 * (k * ROWS * SPREAD + j * width.lanes))
            rows = t.do(f"load {width.floats}, ptr {place}, align {4 * width.lanes}")
            cut = part.cut(t.do(f"fmul {width.floats} {rows}, {columns}"))
            added = f"add {width.ints} {sums[j]}, {cut}"
            sums[j] = t.do(added) if k < BLOCK - 1 else f"%{name}_sum{j}"
            if k == BLOCK - 1:
                t.put(f"{sums[j]} = {added}")
    t.put(f"%{name}_b1 = add i64 %{name}_b, 1")
    t.put(f"%{name}_more = icmp ult i64 %{name}_b1, {first + blocks}")
    t.put(f"br i1 %{name}_more, label %{name}, label %{name}_end")
    t.put(f"{name}_end:")
    return sums


class _Vector:
    """Write what happens to one vector of the accumulators of register %i, as its exponents and C say."""

    def __init__(self, t: Lines, width: Width, number: int) -> None:
        self.t, self.width = t, width
        ints, bytes_ = width.ints, vector(width.lanes, "i8")
        at = t.do(f"add i64 {t.do(f'mul i64 %i, {LANES}')}, {number * width.lanes}")
        self.place = t.do(f"mul i64 {at}, 4")
        self.c = t.do(f"load {width.floats}, ptr {t.at('%c', self.place)}, align {4 * width.lanes}")
        narrow = t.do(f"load {bytes_}, ptr {t.at('%e', at)}, align {width.lanes}")
        field = t.do(f"add {ints} {t.do(f'sext {bytes_} {narrow} to {ints}')}, splat (i32 127)")
        self.products = t.do(f"shl {ints} {field}, splat (i32 23)")
        bits = t.do(f"bitcast {width.floats} {self.c} to {ints}")
        self.of_c = t.do(f"and {ints} {bits}, splat (i32 {0x7F800000})")
        above = t.do(f"icmp sgt {ints} {self.products}, {self.of_c}")
        self.largest = t.do(f"select {width.flags} {above}, {ints} {self.products}, {ints} {self.of_c}")
        bits = t.do(f"sub {ints} splat (i32 {(2 * 127 + KEPT_BITS) << 23}), {self.largest}")
        self.scale = t.do(f"bitcast {ints} {bits} to {width.floats}")

    def cut(self, value: str) -> str:
        """Return the whole units in a value, 2**KEPT_BITS of them in the largest power of two."""
        floats = self.width.floats
        scaled = self.t.do(f"fmul {floats} {value}, {self.scale}")
        return self.t.do(f"fptosi {floats} {scaled} to {self.width.ints}")

    def special(self) -> str:
        """Return integers whose top bit says that the accumulator is an infinity or a NaN."""
        return self.t.do(f"add {self.width.ints} {self.of_c}, splat (i32 {1 << 23})")

    def store_result(self, total: str) -> str:
        """Store a sum as float32, cut toward zero to 24 bits; C itself where no product counts.

        Returns integers whose top bit says that the sum could not be cut.
        """
        t, ints, floats = self.t, self.width.ints, self.width.floats
        cut, failed = (_cut_at_once if self.width == WIDE else _cut_by_hand)(t, total)
        power = t.do(f"bitcast {ints} {self.largest} to {floats}")
        unit = t.do(f"fmul {floats} {power}, splat (float {constant(2.0**-KEPT_BITS, 'float')})")
        found = t.do(f"fmul {floats} {cut}, {unit}")
        alone = t.do(f"fadd {floats} {self.c}, zeroinitializer")
        none = t.do(f"icmp slt {ints} {self.products}, zeroinitializer")
        result = t.do(f"select {self.width.flags} {none}, {floats} {alone}, {floats} {found}")
        t.put(f"store {floats} {result}, ptr {t.at('%d', self.place)}, align {4 * self.width.lanes}")
        return failed


def _cut_at_once(t: Lines, total: str) -> tuple[str, str]:
    """Return integers as float32 cut toward zero, which never fails, by AVX-512's own instruction."""
    function = "llvm.x86.avx512.sitofp.round.v16f32.v16i32"
    cut = t.do(f"call {WIDE.floats} @{function}({WIDE.ints} {total}, i32 {TOWARD_ZERO})")
    return cut, "zeroinitializer"


def _cut_by_hand(t: Lines, total: str) -> tuple[str, str]:
    """Return integers as float32 cut toward zero, and their size, whose top bit says that it is -2**31.

    Without its low 7 bits an integer below 2**31 is exact in float32, whose exponent says how many bits
    are too many.
    """
    ints, floats = NARROW.ints, NARROW.floats
    size = t.do(f"call {ints} @llvm.abs.v8i32({ints} {total}, i1 false)")
    high = t.do(f"sitofp {ints} {t.do(f'and {ints} {size}, splat (i32 -128)')} to {floats}")
    exponent = t.do(f"lshr {ints} {t.do(f'bitcast {floats} {high} to {ints}')}, splat (i32 23)")
    over = t.do(f"sub {ints} {exponent}, splat (i32 {127 + 23})")
    some = t.do(f"icmp sgt {ints} {over}, zeroinitializer")
    over = t.do(f"select {NARROW.flags} {some}, {ints} {over}, {ints} zeroinitializer")
    kept = t.do(f"and {ints} {size}, {t.do(f'shl {ints} splat (i32 -1), {over}')}")
    cut = t.do(f"bitcast {floats} {t.do(f'sitofp {ints} {kept} to {floats}')} to {ints}")
    sign = t.do(f"and {ints} {total}, splat (i32 {-(1 << 31)})")
    return t.do(f"bitcast {ints} {t.do(f'or {ints} {cut}, {sign}')} to {floats}"), size


def _largest_exponents(t: Lines, terms: int) -> None:
    """Write the largest exponent among the products of each accumulator to %e, in the order of registers."""
    kind, words = vector(2 * LANES, "i8"), vector(2 * LANES // 4, "i32")
    t.put(f"%e = alloca {vector(ROWS * COLUMNS, 'i8')}, align 64")
    largest = ["", ""]
    for term in range(terms):
        a = t.do(f"load {kind}, ptr {t.at('%ap', term * ROWS * SPREAD)}, align 64")
        for parity in range(2):
            b = t.do(f"load i32, ptr {t.at('%bp', term * COLUMNS + 4 * parity)}, align 4")
            b = t.do(f"insertelement {words} poison, i32 {b}, i32 0")
            b = t.do(f"shufflevector {words} {b}, {words} poison, {words} zeroinitializer")
            found = t.do(f"add {kind} {a}, {t.do(f'bitcast {words} {b} to {kind}')}")
            if term:
                found = t.do(f"call {kind} @llvm.smax.v64i8({kind} {found}, {kind} {largest[parity]})")
            largest[parity] = found
    for parity in range(2):
        for half in range(2):
            lanes = ", ".join(f"i32 {LANES * half + lane}" for lane in range(LANES))
            part = t.do(f"shufflevector {kind} {largest[parity]}, {kind} poison, <{LANES} x i32> <{lanes}>")
            place = t.at("%e", LANES * (2 * half + parity))
            t.put(f"store {vector(LANES, 'i8')} {part}, ptr {place}, align 32")
