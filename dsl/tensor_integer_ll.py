"""The tensor cores' sum of float16 and fp8 products, as LLVM text: cut terms are integers.

What it models: dsl/matrix_ops.py, bit by bit, for numbers without infinities and NaN. Products are exact in
float32 and their cut terms 32-bit integers, in two sums, each below 2**31, whose own sum seldom exceeds 32
bits. A vector holds 8 rows of one column; 4 columns go together, which fills 16 registers, and the loops are
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
TILE_ROWS, TILE_COLUMNS = 8, 4
INTS, FLOATS, BYTES, FLAGS = (vector(TILE_ROWS, scalar) for scalar in ("i32", "float", "i8", "i1"))
WIDE = vector(ROWS, "i8")


def integer_sum(name: str, head: str, terms: int) -> str:
    """Return the text of the function that makes one sum of each accumulator; i1: whether one is void.

    head: its parameters, those of dsl/tensor_sum_ll.py `tensor_sum`. A turn of the loop takes half of the
    rows of the columns of one parity.
    """
    t = Lines(f"define internal i1 @{name}({head}) noinline")
    largest_exponents(t, terms)
    t.put(f"%far = alloca {INTS}, align 32")
    t.put(f"store {INTS} zeroinitializer, ptr %far, align 32")
    t.put("br label %tile")
    t.put("tile:")
    t.put("%i = phi i64 [ 0, %entry ], [ %i1, %end ]")
    half, parity = t.do("and i64 %i, 1"), t.do("lshr i64 %i, 1")
    columns = [_Column(t, half, parity, j) for j in range(TILE_COLUMNS)]
    sums = [[column.cut(column.c) for column in columns]]
    sums.append(_half_sum(t, columns, "low", "tile", sums[0], terms // 2 // BLOCK))
    zeros = ["zeroinitializer"] * TILE_COLUMNS
    sums.append(_half_sum(t, columns, "high", "low_end", zeros, terms // 2 // BLOCK))
    t.put("br label %end")
    t.put("end:")
    beyond = t.do(f"load {INTS}, ptr %far, align 32")
    for column, first, second in zip(columns, sums[1], sums[2], strict=True):
        total = t.do(f"add {INTS} {first}, {second}")
        astray = [t.do(f"xor {INTS} {part}, {total}") for part in (first, second)]
        beyond = t.do(f"or {INTS} {beyond}, {t.do(f'and {INTS} {astray[0]}, {astray[1]}')}")
        beyond = t.do(f"or {INTS} {beyond}, {column.store_result(total)}")
    t.put(f"store {INTS} {beyond}, ptr %far, align 32")
    t.put("%i1 = add i64 %i, 1")
    t.put(f"%more = icmp ult i64 %i1, {ROWS // TILE_ROWS * COLUMNS // TILE_COLUMNS}")
    t.put("br i1 %more, label %tile, label %out")
    t.put("out:")
    flags = t.do(f"icmp slt {INTS} {beyond}, zeroinitializer")
    whole = t.do(f"bitcast {FLAGS} {flags} to i{TILE_ROWS}")
    t.put(f"ret i1 {t.do(f'icmp ne i{TILE_ROWS} {whole}, 0')}")
    return t.text()


def _half_sum(
    t: Lines, columns: list[_Column], name: str, before: str, start: list[str], blocks: int
) -> list[str]:
    """Add the cut terms of half of the blocks to some integers, in a loop named `name`; return the sums."""
    first = 0 if name == "low" else blocks
    t.put(f"br label %{name}")
    t.put(f"{name}:")
    t.put(f"%{name}_b = phi i64 [ {first}, %{before} ], [ %{name}_b1, %{name} ]")
    for j, value in enumerate(start):
        t.put(f"%{name}{j} = phi {INTS} [ {value}, %{before} ], [ %{name}_sum{j}, %{name} ]")
    sums = [f"%{name}{j}" for j in range(TILE_COLUMNS)]
    a = t.at("%av", t.do(f"mul i64 %{name}_b, {4 * BLOCK * ROWS}"))
    a = t.at(a, t.do(f"mul i64 {columns[0].half}, {4 * TILE_ROWS}"))
    b = t.at("%bv", t.do(f"mul i64 %{name}_b, {4 * LANES}"))
    b = t.at(b, t.do(f"mul i64 {columns[0].parity}, {4 * BLOCK}"))
    for k in range(BLOCK):
        rows = t.do(f"load {FLOATS}, ptr {t.at(a, 4 * ROWS * k)}, align 32")
        for j, column in enumerate(columns):
            one = t.do(f"load float, ptr {t.at(b, 4 * (2 * BLOCK * j + k))}")
            lane = t.do(f"insertelement {FLOATS} poison, float {one}, i32 0")
            wide = t.do(f"shufflevector {FLOATS} {lane}, {FLOATS} poison, {INTS} zeroinitializer")
            added = f"add {INTS} {sums[j]}, {column.cut(t.do(f'fmul {FLOATS} {rows}, {wide}'))}"
            sums[j] = t.do(added) if k < BLOCK - 1 else f"%{name}_sum{j}"
            if k == BLOCK - 1:
                t.put(f"{sums[j]} = {added}")
    t.put(f"%{name}_b1 = add i64 %{name}_b, 1")
    t.put(f"%{name}_more = icmp ult i64 %{name}_b1, {first + blocks}")
    t.put(f"br i1 %{name}_more, label %{name}, label %{name}_end")
    t.put(f"{name}_end:")
    return sums


class _Column:
    """Write what happens to 8 rows of one column of the accumulators, as its exponents and C say.

    half: of the rows. parity: of the columns (i64). number: which of that parity.
    """

    def __init__(self, t: Lines, half: str, parity: str, number: int) -> None:
        self.t, self.half, self.parity = t, half, parity
        at = t.do(f"add i64 {t.do(f'shl i64 {parity}, 2')}, {number}")
        at = t.do(f"add i64 {t.do(f'mul i64 {at}, {ROWS}')}, {t.do(f'mul i64 {half}, {TILE_ROWS}')}")
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
        size = t.do(f"call {INTS} @llvm.abs.v{TILE_ROWS}i32({INTS} {total}, i1 false)")
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


def largest_exponents(t: Lines, terms: int) -> None:
    """Write the largest exponent among the products of each accumulator to %e, 64 bytes at a time.

    The 8 bytes of B for a term fill a vector over and over, so that each byte is found inside its 16.
    """
    kind, words = vector(64, "i8"), vector(8, "i64")
    t.put(f"%e = alloca {vector(ROWS * COLUMNS, 'i8')}, align 64")
    rows = ", ".join(f"i32 {lane % ROWS}" for lane in range(64))
    columns = [", ".join(f"i32 {lane // ROWS * 17 + 4 * group}" for lane in range(64)) for group in range(2)]
    largest = ["", ""]
    for term in range(terms):
        a = t.do(f"load {WIDE}, ptr {t.at('%ap', term * ROWS)}, align 16")
        a = t.do(f"shufflevector {WIDE} {a}, {WIDE} poison, <64 x i32> <{rows}>")
        b = t.do(f"load i64, ptr {t.at('%bp', term * COLUMNS)}, align 8")
        b = t.do(f"insertelement {words} poison, i64 {b}, i32 0")
        b = t.do(f"shufflevector {words} {b}, {words} poison, <8 x i32> zeroinitializer")
        b = t.do(f"bitcast {words} {b} to {kind}")
        for group in range(2):
            wide = t.do(f"shufflevector {kind} {b}, {kind} poison, <64 x i32> <{columns[group]}>")
            found = t.do(f"add {kind} {a}, {wide}")
            if term:
                found = t.do(f"call {kind} @llvm.smax.v64i8({kind} {found}, {kind} {largest[group]})")
            largest[group] = found
    for group in range(2):
        t.put(f"store {kind} {largest[group]}, ptr {t.at('%e', 64 * group)}, align 64")
