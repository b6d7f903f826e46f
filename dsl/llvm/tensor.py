"""The LLVM functions behind mma: fragments in memory, widened, turned, added up, and turned back.

What it models: dsl/semantics/matrix_ops.py, bit by bit, for the fragments of a warp: registers of 32 lanes
one after the other. Accumulators are turned to columns where sums go through float64, and stay as they lie
where they are integers. Fragments with an infinity or a NaN go through functions of their own. What it leaves
out: nothing of the values. Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from dsl.llvm import tensor_integer
from dsl.llvm.tensor_integer import BLOCK, SPREAD, spread_rows
from dsl.llvm.tensor_sum import Numbers, numbers_of, tensor_sum
from dsl.llvm.tensor_widen import Lines, Widener, any_top_bit, special_bits, vector
from dsl.llvm.text import LANES
from dsl.semantics.matrix_ops import LEAST_EXPONENT
from dsl.warpir.tensor import COLUMNS, PARTS, ROWS

REGISTER_BYTES = 4 * LANES
A_BYTES, B_BYTES, C_BYTES, D_BYTES = 0, 4 * REGISTER_BYTES, 6 * REGISTER_BYTES, 10 * REGISTER_BYTES
"""Where the fragments begin in the memory that an mma function works on: registers of 32 lanes in order."""
OLD_A_BYTES, TAG_BYTES = 14 * REGISTER_BYTES, 18 * REGISTER_BYTES
WIDE_BYTES, POWERS_BYTES = TAG_BYTES + 64, TAG_BYTES + 64 + 8192
"""Behind them: the A that was widened last, which type it had (0: none), its values and their powers."""
FRAGMENT_BYTES = POWERS_BYTES + 2048
MATRIX_BYTES = 4 * ROWS * COLUMNS


TURNED = ", ".join(f"i32 {4 * row + k if row < 8 else LANES + 4 * (row - 8) + k}"
                   for k in range(4) for row in range(ROWS))  # fmt: skip
"""From the lanes of two registers, rows 0-7 and rows 8-15, to the 16 rows of one column after the other."""


def _pair(t: Lines, base: str, offset: int, distance: int) -> str:
    """Return two registers as 4 columns of 16 rows (<64 x i32>)."""
    kind = vector(LANES, "i32")
    low, high = (
        t.do(f"load {kind}, ptr {t.at(base, offset + k * distance)}, align 64") for k in range(2)
    )
    return t.do(f"shufflevector {kind} {low}, {kind} {high}, <{2 * LANES} x i32> <{TURNED}>")


def _store_wide(w: Widener, bits: str, of: Numbers, block: int, names: tuple[str, str]) -> None:
    """Store float32 bits, and their exponents (float) or powers of two (double), for the sum."""
    ints, count = vector(w.count, "i32"), w.count
    if of.exact_in_float:
        floats = w.t.do(f"bitcast {ints} {bits} to {vector(count, 'float')}")
        place = w.t.at(names[0], 4 * block * count)
        w.t.put(f"store {vector(count, 'float')} {floats}, ptr {place}, align 64")
        _store_exponents(w, w.exponent(bits, LEAST_EXPONENT[w.type_]), w.t.at(names[1], block * count))
        return
    for name, value in zip(names, (bits, w.power(bits, LEAST_EXPONENT[w.type_])), strict=True):
        floats = w.t.do(f"bitcast {ints} {value} to {vector(count, 'float')}")
        floats = w.t.do(f"fpext {vector(count, 'float')} {floats} to {vector(count, 'double')}")
        place = w.t.at(name, block * count * of.bytes)
        w.t.put(f"store {vector(count, of.scalar)} {floats}, ptr {place}, align 64")


COLUMNS_TOGETHER = ", ".join(f"i32 {4 * (2 * (i & 3) + (i >> 2)) + k}"
                             for k in range(BLOCK) for i in range(COLUMNS))  # fmt: skip
"""From the lanes of a register of B to the 8 columns of one value of k after the other: even ones first."""


def _columns_together(t: Lines, registers: str, scalar: str) -> str:
    """Return what the lanes of a register of B hold, the columns of a value of k side by side."""
    kind = vector(LANES, scalar)
    return t.do(f"shufflevector {kind} {registers}, {kind} poison, <{LANES} x i32> <{COLUMNS_TOGETHER}>")


def _store_exponents(w: Widener, bytes_: str, place: str) -> None:
    """Store a block of exponents: those of B with the columns of a value of k side by side."""
    if w.count == LANES and w.special:
        bytes_ = _columns_together(w.t, bytes_, "i8")
    w.t.put(f"store {vector(w.count, 'i8')} {bytes_}, ptr {place}, align 32")


def _widen(type_: str, of_a: bool, special: bool) -> tuple[str, str]:
    """Return the function that widens a pair of registers of A, or one of B: void (registers, %v, %p)."""
    name = f"widen_{type_}_{'a' if of_a else 'b'}{'_special' if special else ''}"
    t = Lines(f"define internal void @{name}(ptr noalias %r, ptr noalias %v, ptr noalias %p) noinline")
    kind = vector(LANES, "i32")
    packed = _pair(t, "%r", 0, REGISTER_BYTES) if of_a else t.do(f"load {kind}, ptr %r, align 64")
    if numbers_of(type_).exact_in_float and not (of_a or special):
        packed = _columns_together(t, packed, "i32")
    w = Widener(t, type_, 2 * LANES if of_a else LANES, special)
    for part in range(PARTS[type_]):
        _store_wide(w, w.part(packed, part), numbers_of(type_), part // 2 * 4 + part % 2, ("%v", "%p"))
    t.put("ret void")
    return name, t.text()


def _widen_all(t: Lines, a_type: str, b_type: str, special: bool) -> dict[str, str]:
    """Call the functions that write A and B as the sums want them; return them."""
    name_a, text_a = _widen(a_type, True, special)
    name_b, text_b = _widen(b_type, False, special)
    functions = {name_a: text_a, name_b: text_b}
    if special:
        _call_widen(t, name_a, a_type, ("av", "ap"))
    else:
        _widen_new_a(t, name_a, a_type)
        functions["spread_rows"] = spread_rows()
    _call_widen(t, name_b, b_type, ("bv", "bp"))
    return functions


def _call_widen(t: Lines, name: str, type_: str, matrices: tuple[str, str]) -> None:
    """Widen the registers of A or of B into two matrices."""
    of, of_a = numbers_of(type_), matrices[0][0] == "a"
    for pair in range(2):
        block = pair * min(2, PARTS[type_])
        start = A_BYTES + 2 * pair * REGISTER_BYTES if of_a else B_BYTES + pair * REGISTER_BYTES
        places = [t.at(f"%{m}", block * MATRICES[m[:2]] * _bytes(of, m)) for m in matrices]
        t.put(f"call void @{name}({', '.join(f'ptr {p}' for p in (t.at('%f', start), *places))})")


def _widen_new_a(t: Lines, name: str, type_: str) -> None:
    """Widen A unless it is the one of the call before: a row of products has one A and several B.

    An A with an infinity or a NaN goes to the label `rare`, and is not kept.
    """
    kind, tag = vector(4 * LANES, "i32"), 1 + list(PARTS).index(type_)
    new, old = (t.do(f"load {kind}, ptr {t.at('%f', at)}, align 64") for at in (A_BYTES, OLD_A_BYTES))
    place = t.at("%f", TAG_BYTES)
    known = t.do(f"icmp eq i64 {t.do(f'load i64, ptr {place}')}, {tag}")
    same = t.do(f"xor i1 {_any_bit(t, t.do(f'xor {kind} {new}, {old}'))}, true")
    t.put(f"br i1 {t.do(f'and i1 {same}, {known}')}, label %kept, label %fresh")
    t.put("fresh:")
    t.put(f"br i1 {_any_special(t, ((type_, A_BYTES, 4),))}, label %rare, label %new")
    t.put("new:")
    if numbers_of(type_).exact_in_float:
        _call_widen(t, name, type_, ("av_once", "ap_once"))
        t.put(f"call void @spread_rows(ptr %av_once, ptr %ap_once, ptr %av, ptr %ap, i64 {8 * PARTS[type_]})")
    else:
        _call_widen(t, name, type_, ("av", "ap"))
    t.put(f"store {kind} {new}, ptr {t.at('%f', OLD_A_BYTES)}, align 64")
    t.put(f"store i64 {tag}, ptr {place}")
    t.put("br label %kept")
    t.put("kept:")


def _any_bit(t: Lines, registers: str) -> str:
    """Return whether four registers side by side have a bit set (i1)."""
    kind, wide, found = vector(LANES, "i32"), vector(4 * LANES, "i32"), ""
    for k in range(4):
        lanes = ", ".join(f"i32 {LANES * k + lane}" for lane in range(LANES))
        part = t.do(f"shufflevector {wide} {registers}, {wide} poison, <{LANES} x i32> <{lanes}>")
        found = t.do(f"or {kind} {found}, {part}") if found else part
    flags = t.do(f"icmp ne {kind} {found}, zeroinitializer")
    bits = t.do(f"bitcast {vector(LANES, 'i1')} {flags} to i{LANES}")
    return t.do(f"icmp ne i{LANES} {bits}, 0")


def _any_special(t: Lines, fragments: tuple[tuple[str, int, int], ...]) -> str:
    """Return whether fragments (type, place, registers) hold an infinity or a NaN (i1)."""
    kind, flag = vector(LANES, "i32"), ""
    for type_, start, registers in fragments:
        found = ""
        for k in range(registers):
            lanes = t.do(f"load {kind}, ptr {t.at('%f', start + k * REGISTER_BYTES)}, align 64")
            bits = special_bits(t, lanes, type_, LANES)
            found = t.do(f"or {kind} {found}, {bits}") if found else bits
        one = any_top_bit(t, found, type_, LANES)
        flag = t.do(f"or i1 {flag}, {one}") if flag else one
    return flag


def _turn_accumulators(t: Lines) -> None:
    """Write C column by column."""
    for parity in range(2):
        columns = _pair(t, "%f", C_BYTES + parity * REGISTER_BYTES, 2 * REGISTER_BYTES)
        t.put(f"store {vector(2 * LANES, 'i32')} {columns}, ptr {t.at('%c', parity * 256)}, align 64")


def _store_fragments(t: Lines, matrix: str) -> None:
    """Write a matrix of columns back as the four registers of the result."""
    kind = vector(2 * LANES, "float")
    for parity in range(2):
        columns = t.do(f"load {kind}, ptr {t.at(matrix, parity * 256)}, align 64")
        for half in range(2):
            lanes = ", ".join(f"i32 {lane % 4 * ROWS + 8 * half + lane // 4}" for lane in range(LANES))
            register = t.do(f"shufflevector {kind} {columns}, {kind} poison, <{LANES} x i32> <{lanes}>")
            place = t.at("%f", D_BYTES + (2 * half + parity) * REGISTER_BYTES)
            t.put(f"store {vector(LANES, 'float')} {register}, ptr {place}, align 64")


def _add_matrices(t: Lines, into: str, other: str) -> None:
    """Add the accumulators to the sum of an fp8 mma, rounding to nearest."""
    kind = vector(ROWS * COLUMNS, "float")
    a, b = (t.do(f"load {kind}, ptr {m}, align 64") for m in (into, other))
    t.put(f"store {kind} {t.do(f'fadd {kind} {a}, {b}')}, ptr {into}, align 64")


MATRICES = {"av": 2 * LANES, "ap": 2 * LANES, "bv": LANES, "bp": LANES}
"""The widened matrices, values and powers of two of A and of B: numbers in a block."""


def _bytes(of: Numbers, matrix: str) -> int:
    """Return the bytes of a number of a matrix: exponents are bytes where values are float32."""
    return 1 if of.exact_in_float and matrix[1] == "p" else of.bytes


def _reserve(t: Lines, of: Numbers, blocks: int, keeps_a: bool) -> None:
    """Reserve memory for the widened matrices, A's in the memory of the fragments if it is to be kept."""
    names = ("bv", "bp", "av_once", "ap_once") if keeps_a else tuple(MATRICES)
    for matrix in names:
        t.put(f"%{matrix} = alloca [{blocks * MATRICES[matrix[:2]] * _bytes(of, matrix)} x i8], align 64")
    if keeps_a:
        t.put(f"%av = getelementptr i8, ptr %f, i64 {WIDE_BYTES}")
        t.put(f"%ap = getelementptr i8, ptr %f, i64 {POWERS_BYTES}")
    for matrix in ("c", "d", "first"):
        t.put(f"%{matrix} = alloca [{MATRIX_BYTES} x i8], align 64")


def _add_up(t: Lines, name: str, of: Numbers, half: int, c: str, d: str, spread: bool) -> str:
    """Call a sum over the first (0) or the second half of the blocks; return whether it is void (i1).

    spread: whether each row of A is there four times.
    """
    times = {m: SPREAD if spread and m[0] == "a" else 1 for m in MATRICES}
    matrices = [
        t.at(f"%{m}", half * 4 * count * times[m] * _bytes(of, m)) for m, count in MATRICES.items()
    ]
    return t.do(f"call i1 @{name}({', '.join(f'ptr {p}' for p in (*matrices, c, d))})")


def _function(a_type: str, b_type: str, special: bool) -> tuple[str, dict[str, str]]:
    """Return an mma's name and its functions; one without special numbers goes on to the other."""
    of = numbers_of(a_type)
    sum_name, sum_text = tensor_sum(of, 2 if a_type == "tf32" else 4, special)
    name = f"mma_{a_type}_{b_type}{'_special' if special else ''}"
    t = Lines(f"define internal void @{name}(ptr noalias %f) noinline")
    _reserve(t, of, 2 * PARTS[a_type], keeps_a=not special)
    if not special:
        in_c = () if of.exact_in_float else (("f32", C_BYTES, 4),)
        found = _any_special(t, ((b_type, B_BYTES, 2), *in_c))
        t.put(f"br i1 {found}, label %rare, label %usual")
        t.put("rare:")
        t.put(f"call void @{name}_special(ptr %f)")
        t.put("ret void")
        t.put("usual:")
    functions = _widen_all(t, a_type, b_type, special)
    as_they_lie = of.exact_in_float and not special
    c, d = (t.at("%f", at) for at in (C_BYTES, D_BYTES)) if as_they_lie else ("%c", "%d")
    if not as_they_lie:
        _turn_accumulators(t)
    if PARTS[a_type] == 4:
        t.put(f"store {vector(ROWS * COLUMNS, 'float')} zeroinitializer, ptr {d}, align 64")
        void = _add_up(t, sum_name, of, 0, d, "%first", as_they_lie)
        void = t.do(f"or i1 {void}, {_add_up(t, sum_name, of, 1, '%first', d, as_they_lie)}")
        _add_matrices(t, d, c)
    else:
        void = _add_up(t, sum_name, of, 0, c, d, as_they_lie)
    if not special:
        t.put(f"br i1 {void}, label %rare, label %done")
        t.put("done:")
    if not as_they_lie:
        _store_fragments(t, "%d")
    t.put("ret void")
    return name, {**functions, sum_name: sum_text, name: t.text()}


def mma(a_type: str, b_type: str) -> tuple[str, dict[str, str]]:
    """Return the name of the function void (ptr fragments), 64-byte aligned, and all functions by name."""
    name, functions = _function(a_type, b_type, False)
    return name, functions | _function(a_type, b_type, True)[1]


DECLARED = tensor_integer.DECLARED | {
    f"llvm.umax.v{n}i32": f"declare {vector(n, 'i32')} @llvm.umax.v{n}i32"
    f"({vector(n, 'i32')}, {vector(n, 'i32')})"
    for n in (ROWS, LANES, 2 * LANES)
} | {
    f"llvm.{op}.v{ROWS}{suffix}": f"declare {vector(ROWS, scalar)} @llvm.{op}.v{ROWS}{suffix}"
    f"({vector(ROWS, scalar)})"
    for op, suffix, scalar in (
        ("trunc", "f64", "double"), ("fabs", "f32", "float"), ("fabs", "f64", "double"),
    )
}
"""LLVM's own functions that these call: name -> declaration."""
