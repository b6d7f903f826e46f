"""The sum that the tensor cores make of products and an accumulator, as LLVM text.

What it models: dsl/semantics/matrix_ops.py, bit by bit. A vector holds the 16 rows of one column of the
accumulators, so that every step is one multiplication of 16 values of A by one of B. The largest exponent
comes first: of exponents as bytes, 64 accumulators at a time, or as a product of powers of two; then terms
are cut and added. float16 and fp8 products are exact in float32 and their cut terms are 32-bit integers, in
two sums, each below 2**31, whose own sum seldom exceeds 32 bits: the usual ones are
dsl/llvm/tensor_integer.py's, others are made again here, in float64. bfloat16 and tf32 exceed float32's range
and go through float64. What it leaves out: nothing of the values. Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsl.llvm.tensor_integer import BLOCK, NARROW, WIDE, integer_sum
from dsl.llvm.tensor_widen import Lines, vector
from dsl.llvm.text import LANES, constant, host_has_avx512
from dsl.semantics.matrix_ops import KEPT_BITS
from dsl.warpir.tensor import COLUMNS, ROWS

_WIDE = vector(ROWS, "double")
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
    """Write what happens to one column of the accumulators: 16 rows, `blocks` times 4 values of k.

    number: of the column in %c and %d (i64). first: byte offset of its numbers in %bv and %bp.
    """

    t: Lines
    of: Numbers
    blocks: int
    number: str
    first: str

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

    def rows_of_a(self, term: int, matrix: str) -> str:
        """Return the 16 rows of A (or their powers of two) for one value of k."""
        return self.t.do(
            f"load {self.of.rows}, ptr {self.t.at(matrix, term * ROWS * self.of.bytes)}, align 64"
        )

    def product(self, term: int, rows: str, matrix: str) -> str:
        """Return the products of the rows of A and this column's number of B for one value of k."""
        block, k = divmod(term, BLOCK)
        own = self.t.at(matrix, self.first)
        one = self.t.at(own, (block * LANES + k) * self.of.bytes)
        right = self.t.do(f"load {self.of.scalar}, ptr {one}")
        lane = self.t.do(f"insertelement {self.of.rows} poison, {self.of.scalar} {right}, i32 0")
        kind = f"<{ROWS} x i32> zeroinitializer"
        wide = self.t.do(f"shufflevector {self.of.rows} {lane}, {self.of.rows} poison, {kind}")
        return self.do("fmul", rows, wide)

    def power_of_products(self) -> str:
        """Return the power of two of the largest exponent among the products, from %e; below 1 for none."""
        place = self.t.at("%e", self.t.do(f"mul i64 {self.number}, {ROWS}"))
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
            found = self.larger(self.product(term, self.rows_of_a(term, "%ap"), "%bp"), found)
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

    def largest_of_all(self) -> str:
        """Return the power of two of the largest exponent among the products and the accumulators."""
        c = self.power_of_c(self.accumulators())
        if not self.of.exact_in_float:
            return self.larger(self.larger(self.largest(), c), self.of.splat(2.0**-400))
        of_products, bits = self.power_of_products(), self.cast("bitcast", c, FLOATS, INTS)
        test = self.do("icmp sgt", of_products, bits, INTS)
        return self.cast("bitcast", self.choose(test, of_products, bits, INTS), INTS, FLOATS)

    def accumulators(self) -> str:
        """Return the column of C (float32)."""
        place = self.t.at("%c", self.t.do(f"mul i64 {self.number}, {4 * ROWS}"))
        return self.t.do(f"load {FLOATS}, ptr {place}, align 64")

    def wide_accumulators(self) -> str:
        """Return the column of C in the type of the products."""
        c = self.accumulators()
        return c if self.of.exact_in_float else self.cast("fpext", c, FLOATS, self.of.rows)

    def kept(self, matrix: str, half: int = 0) -> str:
        """Return where something of this column is kept between the two loops: 128 bytes a column."""
        return self.t.at(self.t.at(matrix, self.t.do(f"mul i64 {self.number}, 128")), 64 * half)

    def total(self) -> str:
        """Return the sum of all cut terms, exact, as float64 of 16 rows, from where `cut_sums` kept it."""
        if not self.of.exact_in_float:
            return self.t.do(f"load {self.of.rows}, ptr {self.kept('%s')}, align 64")
        wide = _WIDE
        halves = [self.t.do(f"load {INTS}, ptr {self.kept('%s', half)}, align 64") for half in range(2)]
        halves = [self.cast("sitofp", half, INTS, wide) for half in halves]
        return self.do("fadd", halves[0], halves[1], wide)

    def cut_to_float(self, value: str) -> str:
        """Return float64 of 16 rows cut toward zero to 24 bits."""
        wide, bits = _WIDE, vector(ROWS, "i64")
        kept = self.do("and", self.cast("bitcast", value, wide, bits), f"splat (i64 {-(1 << 29)})", bits)
        return self.cast("bitcast", kept, bits, wide)

    def result(self) -> str:
        """Return the sum as float32, cut toward zero; where products fit a float32 it is not subnormal."""
        total = self.total()
        largest = self.t.do(f"load {self.of.rows}, ptr {self.kept('%u')}, align 64")
        unit = self.do("fmul", largest, self.of.splat(2.0**-KEPT_BITS))
        if self.of.exact_in_float:
            kept = self.cast("fptrunc", self.cut_to_float(total), _WIDE, FLOATS)
            found = self.do("fmul", kept, unit)
            alone = self.do("fadd", self.accumulators(), "zeroinitializer", FLOATS)
            none = self.do("icmp slt", self.power_of_products(), "splat (i32 0)", INTS)
            return self.choose(none, alone, found)
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

    def with_specials(self, result: str) -> str:
        """Return the plain sum of products where it is an infinity or a NaN, else the result."""
        total = self.wide_accumulators()
        for term in range(self.blocks * BLOCK):
            total = self.do("fadd", total, self.product(term, self.rows_of_a(term, "%av"), "%bv"))
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


def _cut_sums(columns: list[_Column]) -> tuple[list[str], list[list[str]]]:
    """Return the largest exponents of some columns and the sums of their cut terms, term after term.

    Integers are added in two halves, an empty one where it has no term.
    """
    one = columns[0]
    largest = [c.largest_of_all() for c in columns]
    scales = [c.scale(power) for c, power in zip(columns, largest, strict=True)]
    count = one.blocks * BLOCK
    op, kind = ("add", INTS) if one.of.exact_in_float else ("fadd", one.of.rows)
    sums = [[c.cut(c.wide_accumulators(), scale), ""] for c, scale in zip(columns, scales, strict=True)]
    for term in range(count):
        rows, half = one.rows_of_a(term, "%av"), 2 * term // count if one.of.exact_in_float else 0
        for column, scale, parts in zip(columns, scales, sums, strict=True):
            cut = column.cut(column.product(term, rows, "%bv"), scale)
            parts[half] = column.do(op, parts[half], cut, kind) if parts[half] else cut
    return largest, sums


def _keep_sums(columns: list[_Column]) -> None:
    """Make the sums of some columns and keep them for a second loop."""
    one, (largest, sums) = columns[0], _cut_sums(columns)
    kind = INTS if one.of.exact_in_float else one.of.rows
    for column, power, parts in zip(columns, largest, sums, strict=True):
        one.t.put(f"store {one.of.rows} {power}, ptr {column.kept('%u')}, align 64")
        for half, part in enumerate(parts):
            if part:
                one.t.put(f"store {kind} {part}, ptr {column.kept('%s', half)}, align 64")


def _loop(t: Lines, name: str, before: str, count: int) -> None:
    """Begin a loop of one block, with its counter %i<name>."""
    t.put(f"br label %{name}")
    t.put(f"{name}:")
    t.put(f"%i{name} = phi i64 [ 0, %{before} ], [ %n{name}, %{name} ]")
    t.put(f"%n{name} = add i64 %i{name}, 1")
    t.put(f"%m{name} = icmp ult i64 %n{name}, {count}")


def _end_loop(t: Lines, name: str, after: str) -> None:
    t.put(f"br i1 %m{name}, label %{name}, label %{after}")
    t.put(f"{after}:")


def tensor_sum(of: Numbers, blocks: int, special: bool) -> tuple[str, str]:
    """Return the name and text of the function that makes one sum of each accumulator (h200 fact 33).

    special: infinities and NaN may be among the numbers. Two columns at a time are added up. In float64, and
    for special numbers, turning sums into results is a loop of its own, as its chain of conversions would
    hold up the next columns; else a sum is taken to fit 32 bits, and the function returns whether one did not
    (16 products close to 4 can exceed them), so that its results are void.

    %av, %ap: values of A and their powers of two, [blocks][4][16 rows]; %bv, %bp: those of B, [blocks][lane
    4 n + k]; %c, %d: accumulators, [column parity][column / 2][16 rows] of float32.
    """
    name = f"tensor_sum_{of.scalar}_{blocks}{'_special' if special else ''}"
    head = ", ".join(f"ptr noalias %{matrix}" for matrix in ("av", "ap", "bv", "bp", "c", "d"))
    if of.exact_in_float and not special:
        return name, integer_sum(name, head, blocks * BLOCK, WIDE if host_has_avx512() else NARROW)
    t = Lines(f"define internal i1 @{name}({head}) noinline")
    _in_two_loops(t, of, blocks, special)
    return name, t.text()


def _pair_of_columns(t: Lines, of: Numbers, blocks: int) -> list[_Column]:
    """Return the columns of a turn of the loop `add`: one of each parity."""
    even = t.do(f"mul i64 %iadd, {2 * BLOCK * of.bytes}")
    odd = t.do(f"add i64 {even}, {BLOCK * of.bytes}")
    behind = t.do(f"add i64 %iadd, {COLUMNS // 2}")
    return [_Column(t, of, blocks, "%iadd", even), _Column(t, of, blocks, behind, odd)]


def _in_two_loops(t: Lines, of: Numbers, blocks: int, special: bool) -> None:
    """Write the function for all others."""
    for kept in "su":
        t.put(f"%{kept} = alloca [{128 * COLUMNS} x i8], align 64")
    if of.exact_in_float:
        _largest_exponents(t, blocks * BLOCK)
    _loop(t, "add", "entry", COLUMNS // 2)
    _keep_sums(_pair_of_columns(t, of, blocks))
    _end_loop(t, "add", "turn")
    _loop(t, "end", "turn", COLUMNS)
    half, parity = t.do("and i64 %iend, 3"), t.do("lshr i64 %iend, 2")
    n = t.do(f"or i64 {t.do(f'shl i64 {half}, 1')}, {parity}")
    column = _Column(t, of, blocks, "%iend", t.do(f"mul i64 {n}, {BLOCK * of.bytes}"))
    result = column.result()
    if special:
        result = column.with_specials(result)
    place = t.do(f"mul i64 %iend, {4 * ROWS}")
    t.put(f"store {FLOATS} {result}, ptr {t.at('%d', place)}, align 64")
    _end_loop(t, "end", "out")
    t.put("ret i1 false")
