"""The sum that the tensor cores make of products and an accumulator, as LLVM text.

What it models: dsl/matrix_ops.py, bit by bit. A vector holds the 16 rows of one column of the accumulators,
so that every step is one multiplication of 16 values of A by one of B. The largest exponent comes first: of
exponents as bytes, 64 accumulators at a time, or as a product of powers of two; then terms are cut and added.
float16 and fp8 products are exact in float32 and their cut terms are 32-bit integers, in two sums, each below
2**31; bfloat16 and tf32 exceed float32's range and go through float64. What it leaves out: nothing of the
values. Checked by dsl/interpreter.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsl.ir_tensor import COLUMNS, ROWS
from dsl.llvm import LANES, constant
from dsl.matrix_ops import KEPT_BITS
from dsl.tensor_widen_ll import Lines, vector

BLOCK = 4
"""The values of k that a pair of A's registers holds in one of their parts."""
INTS, FLAGS, FLOATS, BYTES = (vector(ROWS, scalar) for scalar in ("i32", "i1", "float", "i8"))


@dataclass(frozen=True)
class Numbers:
    """Say in which float type products are exact: float in float32 (float16 and fp8), double else."""

    scalar: str

    @property
    def exact_in_float(self) -> bool:
        """Return whether products fit a float32, and their cut terms 32-bit integers."""
        return self.scalar == "float"

    @property
    def bytes(self) -> int:
        """Return the bytes of a number."""
        return 4 if self.exact_in_float else 8

    @property
    def integer(self) -> str:
        """Return the integer of the same width."""
        return f"i{8 * self.bytes}"

    @property
    def rows(self) -> str:
        """Return the vector of the 16 rows of a column."""
        return vector(ROWS, self.scalar)

    def splat(self, value: float) -> str:
        """Return a constant in all rows."""
        return f"splat ({self.scalar} {constant(value, self.scalar)})"


FLOAT, DOUBLE = Numbers("float"), Numbers("double")


def numbers_of(type_: str) -> Numbers:
    """Return the float type in which products of a type are exact."""
    return FLOAT if type_ in ("f16", "e4m3", "e5m2") else DOUBLE


@dataclass(frozen=True)
class _Column:
    """Write what happens to one column of the accumulators: 16 rows, `blocks` times 4 values of k."""

    t: Lines
    of: Numbers
    blocks: int

    def do(self, op: str, a: str, b: str, kind: str = "") -> str:
        """Return a op b of all rows."""
        return self.t.do(f"{op} {kind or self.of.rows} {a}, {b}")

    def choose(self, test: str, yes: str, no: str, kind: str = "") -> str:
        """Return yes where the test holds, else no."""
        kind = kind or self.of.rows
        return self.t.do(f"select {FLAGS} {test}, {kind} {yes}, {kind} {no}")

    def cast(self, op: str, value: str, start: str, end: str) -> str:
        """Return a value in another type."""
        return self.t.do(f"{op} {start} {value} to {end}")

    def product(self, term: int, a: str, b: str) -> str:
        """Return the products of the 16 rows of A and the number of B for one value of k."""
        block, k = divmod(term, BLOCK)
        size = self.of.bytes
        one = self.t.at(b, (block * LANES + k) * size)
        left = self.t.do(f"load {self.of.rows}, ptr {self.t.at(a, term * ROWS * size)}, align 64")
        right = self.t.do(f"load {self.of.scalar}, ptr {one}")
        lane = self.t.do(f"insertelement {self.of.rows} poison, {self.of.scalar} {right}, i32 0")
        kind = f"<{ROWS} x i32> zeroinitializer"
        wide = self.t.do(f"shufflevector {self.of.rows} {lane}, {self.of.rows} poison, {kind}")
        return self.do("fmul", left, wide)

    def power_of_products(self) -> str:
        """Return the power of two of the largest exponent among the products, from %e; below 1 for none."""
        place = self.t.at("%e", self.t.do(f"mul i64 %i, {ROWS}"))
        narrow = self.t.do(f"load {BYTES}, ptr {place}, align 16")
        field = self.do("add", self.cast("sext", narrow, BYTES, INTS), "splat (i32 127)", INTS)
        return self.do("shl", field, "splat (i32 23)", INTS)

    def larger(self, a: str, b: str) -> str:
        """Return the larger of two that are no NaN."""
        return self.choose(self.do("fcmp ogt", a, b), a, b)

    def largest(self) -> str:
        """Return the power of two of the largest exponent among the products; 0 where all are zero."""
        found = "zeroinitializer"
        for term in range(self.blocks * BLOCK):
            found = self.larger(self.product(term, "%ap", "%bpn"), found)
        return found

    def power_of_c(self, c: str) -> str:
        """Return the power of two of the exponent of the accumulators (float32 of 16 rows)."""
        bits = self.cast("bitcast", c, FLOATS, INTS)
        field = self.do("and", bits, f"splat (i32 {0x7F800000})", INTS)
        if self.of.exact_in_float:
            return self.cast("bitcast", field, INTS, FLOATS)
        least = f"splat (i32 {1 << 23})"
        above = self.t.do(f"call {INTS} @llvm.umax.v{ROWS}i32({INTS} {field}, {INTS} {least})")
        is_zero = self.do("fcmp oeq", c, "zeroinitializer", FLOATS)
        kept = self.choose(is_zero, "zeroinitializer", above, INTS)
        return self.cast("fpext", self.cast("bitcast", kept, INTS, FLOATS), FLOATS, self.of.rows)

    def scale(self, largest: str) -> str:
        """Return 2**KEPT_BITS over a power of two."""
        bias, places = (127, 23) if self.of.exact_in_float else (1023, 52)
        kind = vector(ROWS, self.of.integer)
        whole = f"splat ({self.of.integer} {(2 * bias + KEPT_BITS) << places})"
        bits = self.do("sub", whole, self.cast("bitcast", largest, self.of.rows, kind), kind)
        return self.cast("bitcast", bits, kind, self.of.rows)

    def cut(self, value: str, scale: str) -> str:
        """Return the whole multiples of 1 / scale in a value: integers, or whole float64."""
        scaled = self.do("fmul", value, scale)
        if self.of.exact_in_float:
            return self.cast("fptosi", scaled, FLOATS, INTS)
        return self.t.do(f"call {self.of.rows} @llvm.trunc.v{ROWS}f64({self.of.rows} {scaled})")

    def cut_sum(self, c: str, scale: str) -> str:
        """Return the sum of all cut terms, exact, as float64 of 16 rows."""
        op, kind = ("add", INTS) if self.of.exact_in_float else ("fadd", self.of.rows)
        halves = [self.cut(c, scale), ""]
        count = self.blocks * BLOCK
        for term in range(count):
            cut, half = self.cut(self.product(term, "%av", "%bvn"), scale), 2 * term // count
            halves[half] = self.do(op, halves[half], cut, kind) if halves[half] else cut
        wide = vector(ROWS, "double")
        if self.of.exact_in_float:
            halves = [self.cast("sitofp", half, INTS, wide) for half in halves]
        return self.do("fadd", halves[0], halves[1], wide)

    def cut_to_float(self, value: str) -> str:
        """Return float64 of 16 rows cut toward zero to 24 bits."""
        wide, bits = vector(ROWS, "double"), vector(ROWS, "i64")
        kept = self.do("and", self.cast("bitcast", value, wide, bits), f"splat (i64 {-(1 << 29)})", bits)
        return self.cast("bitcast", kept, bits, wide)

    def to_result(self, total: str, largest: str, of_products: str, c: str) -> str:
        """Return the sum as float32, cut toward zero; in float, products are never subnormal sums."""
        unit = self.do("fmul", largest, self.of.splat(2.0**-KEPT_BITS))
        if self.of.exact_in_float:
            kept = self.cast("fptrunc", self.cut_to_float(total), vector(ROWS, "double"), FLOATS)
            found = self.do("fmul", kept, unit)
            alone = self.do("fadd", c, "zeroinitializer", FLOATS)
            return self.choose(self.do("icmp slt", of_products, "splat (i32 0)", INTS), alone, found)
        value = self.do("fmul", total, unit)
        small = self.do("fcmp olt", self.magnitude(value), DOUBLE.splat(2.0**-126))
        in_steps = self.do("fmul", value, DOUBLE.splat(2.0**149))
        whole = self.t.do(f"call {self.of.rows} @llvm.trunc.v{ROWS}f64({self.of.rows} {in_steps})")
        subnormal = self.do("fmul", whole, DOUBLE.splat(2.0**-149))
        kept = self.choose(small, subnormal, self.cut_to_float(value))
        return self.do("fadd", self.cast("fptrunc", kept, self.of.rows, FLOATS), "zeroinitializer", FLOATS)

    def magnitude(self, value: str) -> str:
        """Return |value|."""
        suffix = "f32" if self.of.exact_in_float else "f64"
        return self.t.do(f"call {self.of.rows} @llvm.fabs.v{ROWS}{suffix}({self.of.rows} {value})")

    def with_specials(self, result: str, c: str) -> str:
        """Return the plain sum of products where it is an infinity or a NaN, else the result."""
        total = c
        for term in range(self.blocks * BLOCK):
            total = self.do("fadd", total, self.product(term, "%av", "%bvn"))
        fine = self.do("fcmp olt", self.magnitude(total), self.of.splat(float("inf")))
        if not self.of.exact_in_float:
            total = self.cast("fptrunc", total, self.of.rows, FLOATS)
        return self.choose(fine, result, total, FLOATS)


def _largest_exponents(t: Lines, terms: int) -> None:
    """Write the largest exponent among the products of each accumulator to %e, 64 bytes at a time."""
    kind, half = vector(64, "i8"), vector(COLUMNS, "i8")
    t.put(f"%e = alloca {vector(ROWS * COLUMNS, 'i8')}, align 64")
    rows = ", ".join(f"i32 {lane % ROWS}" for lane in range(64))
    columns = [", ".join(f"i32 {4 * group + lane // ROWS}" for lane in range(64)) for group in range(2)]
    largest = ["", ""]
    for term in range(terms):
        a = t.do(f"load {BYTES}, ptr {t.at('%ap', term * ROWS)}, align 16")
        a = t.do(f"shufflevector {BYTES} {a}, {BYTES} poison, <64 x i32> <{rows}>")
        b = t.do(f"load {half}, ptr {t.at('%bp', term * COLUMNS)}, align 8")
        for group in range(2):
            wide = t.do(f"shufflevector {half} {b}, {half} poison, <64 x i32> <{columns[group]}>")
            found = t.do(f"add {kind} {a}, {wide}")
            if term:
                found = t.do(f"call {kind} @llvm.smax.v64i8({kind} {found}, {kind} {largest[group]})")
            largest[group] = found
    for group in range(2):
        t.put(f"store {kind} {largest[group]}, ptr {t.at('%e', 64 * group)}, align 64")


def tensor_sum(of: Numbers, blocks: int, special: bool) -> tuple[str, str]:
    """Return the name and text of the function that makes one sum of each accumulator (h200 fact 33).

    special: infinities and NaN may be among the numbers.

    %av, %ap: values of A and their powers of two, [blocks][4][16 rows]; %bv, %bp: those of B, [blocks][lane
    4 n + k]; %c, %d: accumulators, [column parity][column / 2][16 rows] of float32.
    """
    name = f"tensor_sum_{of.scalar}_{blocks}{'_special' if special else ''}"
    t = Lines(
        f"define internal void @{name}(ptr noalias %av, ptr noalias %ap, ptr noalias %bv, ptr noalias %bp, "
        "ptr noalias %c, ptr noalias %d) noinline"
    )
    column = _Column(t, of, blocks)
    if of.exact_in_float:
        _largest_exponents(t, blocks * BLOCK)
    t.put("br label %loop")
    t.put("loop:")
    t.put("%i = phi i64 [ 0, %entry ], [ %i1, %loop ]")
    half, parity = t.do("and i64 %i, 3"), t.do("lshr i64 %i, 2")
    n = t.do(f"or i64 {t.do(f'shl i64 {half}, 1')}, {parity}")
    first = t.do(f"mul i64 {n}, {BLOCK * of.bytes}")
    t.put(f"%bvn = getelementptr i8, ptr %bv, i64 {first}")
    t.put(f"%bpn = getelementptr i8, ptr %bp, i64 {first}")
    place = t.do(f"mul i64 %i, {4 * ROWS}")
    c = t.do(f"load {FLOATS}, ptr {t.at('%c', place)}, align 64")
    wide = c if of.exact_in_float else column.cast("fpext", c, FLOATS, of.rows)
    if of.exact_in_float:
        of_products = column.power_of_products()
        bits = column.cast("bitcast", column.power_of_c(c), FLOATS, INTS)
        test = column.do("icmp sgt", of_products, bits, INTS)
        largest = column.cast("bitcast", column.choose(test, of_products, bits, INTS), INTS, FLOATS)
    else:
        of_products = column.largest()
        largest = column.larger(of_products, column.power_of_c(c))
        largest = column.larger(largest, of.splat(2.0**-400))
    total = column.cut_sum(wide, column.scale(largest))
    result = column.to_result(total, largest, of_products, c)
    if special:
        result = column.with_specials(result, wide)
    t.put(f"store {FLOATS} {result}, ptr {t.at('%d', place)}, align 64")
    t.put("%i1 = add i64 %i, 1")
    t.put(f"br i1 {t.do(f'icmp ult i64 %i1, {COLUMNS}')}, label %loop, label %out")
    t.put("out:")
    t.put("ret void")
    return name, t.text()
