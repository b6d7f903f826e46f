"""The tensor cores' sum of float16 and fp8 products, as LLVM text: cut terms are integers.

What it models: dsl/matrix_ops.py, bit by bit, for numbers without infinities and NaN. Products are exact in
float32 and their cut terms 32-bit integers, in two sums, each below 2**31, whose own sum seldom exceeds 32
bits. Accumulators stay as they lie in their registers: a vector holds 4 columns of 2 rows, so each row of A
is there four times. Four vectors go together, a register, which fills the registers of a CPU; the loops are
there to keep them in registers. What it leaves out: sums beyond 32 bits, which the function tells of. Checked
by dsl/interpreter.py.
"""

from __future__ import annotations

from dsl.ir_tensor import COLUMNS, ROWS
from dsl.llvm import LANES, constant
from dsl.matrix_ops import KEPT_BITS
from dsl.tensor_widen_ll import Lines, vector

BLOCK = 4
"""The values of k that a pair of A's registers holds in one of their parts."""
SPREAD = 4
"""How often a row of A is there side by side: for each column of a register's."""
WIDTH, VECTORS = 8, LANES // 8
"""Accumulators of a vector, and the vectors of a register."""
INTS, FLOATS, BYTES, FLAGS = (vector(WIDTH, scalar) for scalar in ("i32", "float", "i8", "i1"))


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


def integer_sum(name: str, head: str, terms: int) -> str:
    """Return the text of the function that makes one sum of each accumulator; i1: whether one is void.

    head: its parameters. %av, %ap: values of A and their exponents, [terms][16 rows, each four times]; %bv,
    %bp: those of B, [terms][4 even, 4 odd columns]; %c, %d: the registers of the accumulators. A turn of the
    loop makes one register.
    """
    t = Lines(f"define internal i1 @{name}({head}) noinline")
    _largest_exponents(t, terms)
    t.put(f"%far = alloca {INTS}, align 32")
    t.put(f"store {INTS} zeroinitializer, ptr %far, align 32")
    t.put("br label %register")
    t.put("register:")
    t.put("%i = phi i64 [ 0, %entry ], [ %i1, %end ]")
    parts = [_Vector(t, number) for number in range(VECTORS)]
    start = [part.cut(part.c) for part in parts]
    low = _half_sum(t, parts, "low", "register", start, terms // 2 // BLOCK)
    high = _half_sum(t, parts, "high", "low_end", ["zeroinitializer"] * VECTORS, terms // 2 // BLOCK)
    t.put("br label %end")
    t.put("end:")
    beyond = t.do(f"load {INTS}, ptr %far, align 32")
    for part, first, second in zip(parts, low, high, strict=True):
        total = t.do(f"add {INTS} {first}, {second}")
        astray = [t.do(f"xor {INTS} {half}, {total}") for half in (first, second)]
        beyond = t.do(f"or {INTS} {beyond}, {t.do(f'and {INTS} {astray[0]}, {astray[1]}')}")
        beyond = t.do(f"or {INTS} {beyond}, {part.store_result(total)}")
    t.put(f"store {INTS} {beyond}, ptr %far, align 32")
    t.put("%i1 = add i64 %i, 1")
    t.put(f"%more = icmp ult i64 %i1, {ROWS * COLUMNS // LANES}")
    t.put("br i1 %more, label %register, label %out")
    t.put("out:")
    flags = t.do(f"icmp slt {INTS} {beyond}, zeroinitializer")
    whole = t.do(f"bitcast {FLAGS} {flags} to i{WIDTH}")
    t.put(f"ret i1 {t.do(f'icmp ne i{WIDTH} {whole}, 0')}")
    return t.text()


def _half_sum(
    t: Lines, parts: list[_Vector], name: str, before: str, start: list[str], blocks: int
) -> list[str]:
    """Add the cut terms of half of the blocks to some integers, in a loop named `name`; return the sums."""
    first = 0 if name == "low" else blocks
    t.put(f"br label %{name}")
    t.put(f"{name}:")
    t.put(f"%{name}_b = phi i64 [ {first}, %{before} ], [ %{name}_b1, %{name} ]")
    for j, value in enumerate(start):
        t.put(f"%{name}{j} = phi {INTS} [ {value}, %{before} ], [ %{name}_sum{j}, %{name} ]")
    sums = [f"%{name}{j}" for j in range(VECTORS)]
    half, parity = t.do("lshr i64 %i, 1"), t.do("and i64 %i, 1")
    a = t.at("%av", t.do(f"mul i64 %{name}_b, {4 * BLOCK * ROWS * SPREAD}"))
    a = t.at(a, t.do(f"mul i64 {half}, {4 * LANES}"))
    b = t.at("%bv", t.do(f"mul i64 %{name}_b, {4 * BLOCK * COLUMNS}"))
    b = t.at(b, t.do(f"mul i64 {parity}, {4 * SPREAD}"))
    for k in range(BLOCK):
        columns = t.do(f"load <4 x float>, ptr {t.at(b, 4 * COLUMNS * k)}, align 16")
        order = ", ".join(f"i32 {lane % SPREAD}" for lane in range(WIDTH))
        columns = t.do(f"shufflevector <4 x float> {columns}, <4 x float> poison, <{WIDTH} x i32> <{order}>")
        for j, part in enumerate(parts):
            place = t.at(a, 4 * (k * ROWS * SPREAD + j * WIDTH))
            rows = t.do(f"load {FLOATS}, ptr {place}, align 32")
            added = f"add {INTS} {sums[j]}, {part.cut(t.do(f'fmul {FLOATS} {rows}, {columns}'))}"
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

    def __init__(self, t: Lines, number: int) -> None:
        self.t = t
        at = t.do(f"add i64 {t.do(f'mul i64 %i, {LANES}')}, {number * WIDTH}")
        self.place = t.do(f"mul i64 {at}, 4")
        self.c = t.do(f"load {FLOATS}, ptr {t.at('%c', self.place)}, align 32")
        narrow = t.do(f"load {BYTES}, ptr {t.at('%e', at)}, align 8")
        field = t.do(f"add {INTS} {t.do(f'sext {BYTES} {narrow} to {INTS}')}, splat (i32 127)")
        self.products = t.do(f"shl {INTS} {field}, splat (i32 23)")
        of_c = t.do(f"and {INTS} {t.do(f'bitcast {FLOATS} {self.c} to {INTS}')}, splat (i32 {0x7F800000})")
        above = t.do(f"icmp sgt {INTS} {self.products}, {of_c}")
        self.largest = t.do(f"select {FLAGS} {above}, {INTS} {self.products}, {INTS} {of_c}")
        bits = t.do(f"sub {INTS} splat (i32 {(2 * 127 + KEPT_BITS) << 23}), {self.largest}")
        self.scale = t.do(f"bitcast {INTS} {bits} to {FLOATS}")

    def cut(self, value: str) -> str:
        """Return the whole units in a value, 2**KEPT_BITS of them in the largest power of two."""
        return self.t.do(f"fptosi {FLOATS} {self.t.do(f'fmul {FLOATS} {value}, {self.scale}')} to {INTS}")

    def store_result(self, total: str) -> str:
        """Store a sum as float32, cut toward zero to 24 bits; C itself where no product counts.

        Without its low 7 bits an integer below 2**31 is exact in float32, whose exponent says how many bits
        are too many. Returns the size of each sum, whose top bit says that it is -2**31.
        """
        t = self.t
        size = t.do(f"call {INTS} @llvm.abs.v{WIDTH}i32({INTS} {total}, i1 false)")
        high = t.do(f"sitofp {INTS} {t.do(f'and {INTS} {size}, splat (i32 -128)')} to {FLOATS}")
        exponent = t.do(f"lshr {INTS} {t.do(f'bitcast {FLOATS} {high} to {INTS}')}, splat (i32 23)")
        over = t.do(f"sub {INTS} {exponent}, splat (i32 {127 + 23})")
        some = t.do(f"icmp sgt {INTS} {over}, zeroinitializer")
        over = t.do(f"select {FLAGS} {some}, {INTS} {over}, {INTS} zeroinitializer")
        kept = t.do(f"and {INTS} {size}, {t.do(f'shl {INTS} splat (i32 -1), {over}')}")
        power = t.do(f"bitcast {INTS} {self.largest} to {FLOATS}")
        unit = t.do(f"fmul {FLOATS} {power}, splat (float {constant(2.0**-KEPT_BITS, 'float')})")
        found = t.do(f"fmul {FLOATS} {t.do(f'sitofp {INTS} {kept} to {FLOATS}')}, {unit}")
        sign = t.do(f"and {INTS} {total}, splat (i32 {-(1 << 31)})")
        signed = t.do(f"or {INTS} {t.do(f'bitcast {FLOATS} {found} to {INTS}')}, {sign}")
        alone = t.do(f"fadd {FLOATS} {self.c}, zeroinitializer")
        none = t.do(f"icmp slt {INTS} {self.products}, zeroinitializer")
        signed = t.do(f"bitcast {INTS} {signed} to {FLOATS}")
        result = t.do(f"select {FLAGS} {none}, {FLOATS} {alone}, {FLOATS} {signed}")
        t.put(f"store {FLOATS} {result}, ptr {t.at('%d', self.place)}, align 32")
        return size


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
