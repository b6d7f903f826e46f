"""The language: statements, expressions, typing, inlining and the shape of the code; values by two
independent oracles.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numba import float32, int32, literal_unroll

from dsl import cuda
from dsl.cuda import literal_unroll as unroll_of_dsl
from dsl.types import ArgType
from dsl.warpir import ir
from tests.dsl.frontend_support import agree, compiled, interpret, ops

I64, F32A, F64A, I32A, I64A = (
    ArgType("s64"),
    ArgType("f32", 1),
    ArgType("f64", 1),
    ArgType("s32", 1),
    ArgType("s64", 1),
)
N_THREADS = 32


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def out(n: int = N_THREADS, dtype: Any = np.int64) -> np.ndarray:
    return np.zeros(n, dtype)


# control flow


def classify(o):
    t = cuda.threadIdx.x
    if t < 4:
        v = 1
    elif t < 8 and t != 6:
        v = 2
    elif t == 6 or t > 28:
        v = 3
    else:
        v = 4
    o[t] = v


def test_if_elif_else_takes_the_arm_of_each_thread() -> None:
    (o,) = agree(classify, 1, 32, out())
    assert list(o[:9]) == [1, 1, 1, 1, 2, 2, 3, 2, 4]
    assert list(o[28:]) == [4, 3, 3, 3]


def loops(o, n):
    t = cuda.threadIdx.x
    total = 0
    for i in range(t):
        if i == 3:
            continue
        if i > n:
            break
        total += i
    for i in range(10, 0, -3):
        total += 100 * i
    for i in range(2, 8, 2):
        total += 10000 * i
    o[t] = total


def test_for_loops_count_up_down_and_stop_at_break_and_continue() -> None:
    (o, _) = agree(loops, 1, 32, out(), 20)
    assert o[0] == 100 * (10 + 7 + 4 + 1) + 10000 * (2 + 4 + 6)
    assert o[6] - o[0] == 0 + 1 + 2 + 4 + 5


def while_loop(o):
    t = cuda.threadIdx.x
    n, steps = t + 1, 0
    while True:
        if n == 1:
            break
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    o[t] = steps


def test_while_true_runs_until_break_and_may_spin() -> None:
    (o,) = agree(while_loop, 1, 32, out())
    assert list(o[:7]) == [0, 1, 7, 2, 5, 8, 16]
    assert [b.may_spin for b in compiled(while_loop, I64A).blocks].count(True) == 1


def read_after(o, n):
    i = -1
    for i in range(n):
        o[i] = i
    o[n] = i


def test_the_loop_variable_keeps_its_last_value_after_the_loop() -> None:
    assert agree(read_after, 1, 1, out(5), 4)[0][4] == 3
    assert agree(read_after, 1, 1, out(1), 0)[0][0] == -1


def assigned_inside(o, n):
    k = 0
    for i in range(n):
        i = i * 10
        o[k] = i
        k += 1


def test_assigning_the_loop_variable_inside_does_not_change_the_count() -> None:
    assert list(agree(assigned_inside, 1, 1, out(4), 4)[0]) == [0, 10, 20, 30]


def bound_changes(o, n):
    for i in range(n):
        n = 0
        o[i] = 7


def test_the_bound_of_a_range_is_taken_once() -> None:
    assert list(agree(bound_changes, 1, 1, out(4), 3)[0]) == [7, 7, 7, 0]


def runtime_step(o, first, last, step):
    k = 0
    for i in range(first, last, step):
        o[k] = i
        k += 1


@pytest.mark.parametrize("args", [(0, 7, 3), (7, 0, -3), (5, 5, 1), (3, 9, -1), (-2, 2, 1)])
def test_a_step_known_at_run_time_may_have_either_sign(args: tuple[int, int, int]) -> None:
    o = agree(runtime_step, 1, 1, np.full(8, -99, np.int64), *args)[0]
    assert list(o[o != -99]) == list(range(*args))


def grid_stride(o, n):
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        o[i] += i


def test_a_grid_stride_range_has_a_plain_counter() -> None:
    (o, _) = agree(grid_stride, 2, 32, out(150), 150)
    assert list(o) == list(range(150))
    assert loop_shapes(compiled(grid_stride, I64A, I64)) == [("lt", "i")]


def loop_shapes(fn: ir.Function) -> list[tuple[str, str]]:
    """Return the comparison and the counter's name of each loop whose header is one comparison and whose
    latch adds to the counter.
    """
    found = []
    for header, last in ir.loops(fn).items():
        (test,) = fn.blocks[header].instrs
        assert isinstance(test, ir.Setp) and isinstance(fn.blocks[header].terminator, ir.Bra)
        add = fn.blocks[last].instrs[-1]
        assert isinstance(add, ir.Alu) and add.op == "add" and add.dst == add.srcs[0] == test.a
        assert fn.blocks[last].terminator == ir.Jmp(header, fn.blocks[last].terminator.loc)
        found.append((test.op, test.a.name))
    return found


def nest(o, n):
    for i in range(n):
        for j in range(i, 0, -1):
            o[j] = i


def test_nested_ranges_have_the_counter_itself_in_header_and_latch() -> None:
    assert sorted(loop_shapes(compiled(nest, I64A, I64))) == [("gt", "j"), ("lt", "i")]


def test_loop_blocks_are_contiguous_and_a_join_stands_after_its_loop() -> None:
    fn = compiled(nest, I64A, I64)
    (outer, outer_last), (inner, inner_last) = sorted(ir.loops(fn).items())
    assert outer < inner <= inner_last <= outer_last < len(fn.blocks) - 1


def early_return(o):
    t = cuda.threadIdx.x
    if t >= 5:
        return
    for i in range(10):
        if i == t:
            return
        o[t] += 1


def test_return_ends_the_thread_anywhere() -> None:
    (o,) = agree(early_return, 1, 32, out())
    assert list(o[:7]) == [0, 1, 2, 3, 4, 0, 0]


def dead_code(o):
    return
    o[0] = 1


def test_unreachable_code_leaves_no_block() -> None:
    assert len(compiled(dead_code, I64A).blocks) == 1


def unrolled(o):
    k = 0
    for a, b in ((1, 10), (2, 20), (3, 30)):
        if a == 2:
            continue
        o[k] = a * b
        k += 1


def test_a_loop_over_a_tuple_is_unrolled() -> None:
    assert list(agree(unrolled, 1, 1, out(3))[0]) == [10, 90, 0]
    assert not ir.loops(compiled(unrolled, I64A))


def unrolled_by_name(o, x):
    for v in literal_unroll((2, 0.5)):
        o[0] += v * 2
    for a in unroll_of_dsl((x, o)):
        o[1] += a[0]


def unrolled_as_attribute(o):
    for v in cuda.literal_unroll((3, 4)):
        o[0] += v


def test_literal_unroll_of_numba_or_of_cuda_gives_its_tuple() -> None:
    assert agree(unrolled_by_name, 1, 1, np.zeros(2), ints(7))[0].tolist() == [2 * 2 + 0.5 * 2, 7 + 5]
    assert not ir.loops(compiled(unrolled_by_name, F64A, I64A))
    assert list(agree(unrolled_as_attribute, 1, 1, out(1))[0]) == [3 + 4]


# expressions


def arithmetic(o, a, b):
    o[0] = a + b
    o[1] = a - b
    o[2] = a * b
    o[3] = a // b
    o[4] = a % b
    o[5] = a << 2
    o[6] = a >> 1
    o[7] = a & b
    o[8] = a | b
    o[9] = a ^ b
    o[10] = ~a
    o[11] = -a
    o[12] = a**3
    o[13] = abs(a) + min(a, b, 2) + max(a, b)
    o[14] = int(a < b < 5) + 2 * int(a != b)


@pytest.mark.parametrize("a, b", [(7, 3), (-7, 3), (7, -3), (-7, -3), (0, 5)])
def test_integer_operators_are_pythons(a: int, b: int) -> None:
    o = agree(arithmetic, 1, 1, out(15), a, b)[0]
    assert (o[3], o[4]) == (a // b, a % b)


def float_division(o, a, b):
    o[0] = a // b
    o[1] = a % b
    o[2] = a / b
    o[3] = a**-2
    o[4] = a**0.5


@pytest.mark.parametrize("a, b", [(7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (-7.5, -2.0), (6.0, 3.0)])
def test_float_floor_division_and_modulo_have_pythons_signs(a: float, b: float) -> None:
    o = interpret(float_division, 1, 1, out(5, np.float64), a, b)[0]
    assert (o[0], o[1], o[2]) == (a // b, a % b, a / b)
    assert o[3] == pytest.approx(a**-2) and (np.isnan(o[4]) if a < 0 else o[4] == pytest.approx(math.sqrt(a)))


def guarded(o, a):
    t = cuda.threadIdx.x
    if t < a.size and a[t] > 2:
        o[t] = 1
    if not (t >= a.size or a[t] <= 2):
        o[t] += 2
    x = t < a.size and a[t] > 2
    o[t] += 4 if x else 0
    o[t] += 8 if 0 <= t < a.size and a[t] > 2 else 0


def test_the_right_side_of_and_loads_only_where_it_is_needed() -> None:
    o = agree(guarded, 1, 32, out(), ints(1, 2, 3, 4))[0]
    assert list(o[:6]) == [0, 0, 15, 15, 0, 0]


def cheap_condition(o, a, b):
    if a < 3 and b < 4 or a == b:
        o[0] = 1


def test_cheap_conditions_are_one_branch() -> None:
    fn = compiled(cheap_condition, I64A, I64, I64)
    assert sum(isinstance(b.terminator, ir.Bra) for b in fn.blocks) == 1
    assert ops(fn)["and.pred"] == ops(fn)["or.pred"] == 1


def cheap_select(o, a, b):
    o[0] = a + b if a < b else a - b


def loading_select(o, a):
    t = cuda.threadIdx.x
    o[t] = a[t] if t < a.size else -1


def dividing_select(o, a, b):
    o[0] = a // b if b != 0 else 0


def test_a_conditional_expression_selects_where_both_arms_are_cheap() -> None:
    fn = compiled(cheap_select, I64A, I64, I64)
    assert ops(fn)["Selp"] == 1 and len(fn.blocks) == 1


@pytest.mark.parametrize(
    "kernel, args", [(loading_select, (I64A, I64A)), (dividing_select, (I64A, I64, I64))]
)
def test_a_conditional_expression_branches_where_an_arm_loads_or_divides(kernel: Any, args: Any) -> None:
    fn = compiled(kernel, *args)
    assert ops(fn)["Selp"] == 0 and sum(isinstance(b.terminator, ir.Bra) for b in fn.blocks) == 1


def test_an_arm_that_is_not_taken_loads_nothing() -> None:
    assert list(agree(loading_select, 1, 32, out(), ints(5, 6))[0][:4]) == [5, 6, -1, -1]


def swap(o, a, b):
    a, b = b, a
    o[0], o[1] = a, b
    (a, b), c = (b, a), a
    o[2], o[3], o[4] = a, b, c


def test_tuple_assignment_reads_everything_before_it_writes() -> None:
    assert list(agree(swap, 1, 1, out(5), 1, 2)[0]) == [2, 1, 1, 2, 2]


def chained_targets(o, n):
    a = b = n + 1
    a += 1
    o[0], o[1] = a, b
    p = (x, y) = (n * 2, n * 3)
    o[2], o[3], o[4], o[5] = x, y, p[0], p[-1]


def test_several_targets_get_the_same_value() -> None:
    assert list(agree(chained_targets, 1, 1, out(6), 4)[0]) == [6, 5, 8, 12, 8, 12]


def shapes(o, a):
    h, w = a.shape
    o[0], o[1], o[2], o[3], o[4] = h, w, a.size, a.ndim, len(a)
    o[5] = a.shape[1]


def test_shapes_are_read_from_the_launch() -> None:
    assert list(agree(shapes, 1, 1, out(6), np.zeros((3, 5), np.float32))[0]) == [3, 5, 15, 2, 3, 5]


def wrap(o, a):
    o[0] = a[-1]
    s = cuda.local.array(4, int32)
    for i in range(4):
        s[i] = i * i
    o[1] = s[-1]
    o[2] = s[-4]


def test_negative_indices_count_from_the_end() -> None:
    assert list(agree(wrap, 1, 1, out(3), ints(4, 5, 6))[0]) == [6, 9, 0]


def test_a_constant_index_inside_a_constant_extent_is_known_and_checked_only_where_it_wraps() -> None:
    fn = compiled(wrap, I64A, I64A)
    checks = [i for b in fn.blocks for i in b.instrs if isinstance(i, ir.Chk)]
    assert [i.array for i in checks] == ["a", "o", "s", "s", "o", "s", "o"]  # the first s is the loop's
    assert [i.index for i in checks if i.array == "s"][1:] == [ir.Imm(-1), ir.Imm(-4)]
    loads = [i for b in fn.blocks for i in b.instrs if isinstance(i, ir.Ld) and i.space == "local"]
    assert [i.addr for i in loads] == [ir.Imm(12), ir.Imm(0)]


def strided(o, a):
    i, j = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        o[i, j] = a[i, j]


@pytest.mark.parametrize("order", ["C", "F", "A"])
def test_arrays_of_every_layout_are_addressed_by_their_strides(order: str) -> None:
    a = np.arange(24.0).reshape(4, 6)
    a = {"C": a, "F": np.asfortranarray(a), "A": np.arange(96.0).reshape(8, 12)[::2, ::2]}[order]
    o = interpret(strided, 1, (8, 8), np.zeros((4, 6)), a)[0] if order != "A" else np.array(a)
    assert (o == a).all()
    strides = {
        i.name
        for i in compiled(strided, np.zeros((4, 6)), a).blocks[0].instrs
        if isinstance(i, ir.LdParam) and "stride" in i.name
    }
    assert (
        strides
        == {"o.stride.0"}
        | {"C": {"a.stride.0"}, "F": {"a.stride.1"}, "A": {"a.stride.0", "a.stride.1"}}[order]
    )


def small_types(o, a):
    t = cuda.threadIdx.x
    x = a[t]
    o[t] = x + 100
    a[t] = x + 100


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.uint64])
def test_narrow_elements_widen_on_load_and_wrap_on_store(dtype: Any) -> None:
    values = np.array([0, 1, 100, 127], dtype)
    o, a = interpret(small_types, 1, 4, out(4), values)
    assert list(o) == [100, 101, 200, 227]
    assert list(a) == list((values.astype(np.int64) + 100).astype(dtype))


def casts(o, f, n):
    o[0] = int(f)
    o[1] = np.int32(f)
    o[2] = np.int8(n)
    o[3] = np.uint8(n)
    o[4] = bool(n)
    o[5] = float32(n) * np.float32(0.5)
    o[6] = int(-f)


def test_casts_truncate_wrap_and_round() -> None:
    assert list(interpret(casts, 1, 1, out(7), 3.99, 300)[0]) == [3, 3, 44, 44, 1, 150, -3]


# typing


def typed(fn: ir.Function, name: str) -> set[str]:
    """Return the register types of the variables with a name."""
    regs = {r for b in fn.blocks for i in b.instrs for r in ir.destinations(i)}
    return {r.type for r in regs if r.name == name}


def int_then_int64(o):
    j = cuda.threadIdx.x
    while j < 100:
        o[0] = j
        j += 32


def float_loop(o, a):
    z = 0
    for i in range(3):
        z += a[i]
    o[0] = z


def float32_loop(o, a):
    z = float32(0)
    for i in range(3):
        z += a[i]
    o[0] = z


def int32_times_float32(o, a):
    x = a[0] * cuda.threadIdx.x
    o[0] = x


def test_a_variable_has_the_common_type_of_its_assignments() -> None:
    assert typed(compiled(int_then_int64, I64A), "j") == {"s64"}
    assert typed(compiled(float_loop, F32A, F32A), "z") == {"f64"}
    assert typed(compiled(float32_loop, F32A, F32A), "z") == {"f32"}
    assert typed(compiled(int32_times_float32, F32A, F32A), "x") == {"f64"}


def reused(o, a):
    x = cuda.threadIdx.x
    o[x] = x
    x = a[x] * float32(2)
    o[1] = x


def test_a_name_used_for_two_things_is_two_variables() -> None:
    assert typed(compiled(reused, F32A, F32A), "x") == {"s32", "f32"}


def typed_late(o, n):
    for i in range(n):
        if i > 0:
            x = y + 1  # noqa: F821
            o[i] = x
        y = i * 0.5  # noqa: F841


def test_a_variable_may_be_typed_by_a_later_assignment() -> None:
    assert list(agree(typed_late, 1, 1, out(4, np.float64), 4)[0]) == [0, 1, 1.5, 2]


def ranges_of_int32(o):
    for i in range(cuda.threadIdx.x):
        o[i] = i


def test_a_range_of_int32_counts_in_int32() -> None:
    assert typed(compiled(ranges_of_int32, I64A), "i") == {"s32"}


# constants and functions

SIZE, SHAPE, SCALE = 8, (2, 4), np.float32(0.5)


def constants(o):
    tile = cuda.shared.array(SHAPE, float32)
    half = 1.0 / math.sqrt(SIZE * 2)
    tile[1, 2] = half * SCALE
    for k in SHAPE:
        o[k] = tile[1, 2]
    if SIZE > 100:
        o.anything()


def test_globals_are_constants_and_constant_conditions_prune() -> None:
    assert agree(constants, 1, 1, out(8, np.float32))[0][2] == 0.125
    stores = [
        i.values[0]
        for b in compiled(constants, F32A).blocks
        for i in b.instrs
        if isinstance(i, ir.St) and i.space == "shared"
    ]
    assert stores == [ir.Imm(0.125)]


def add_mul(x, y, scale=2):
    """Return before the end on one path."""
    if x < 0:
        return 0, y
    x += 1
    return x * scale, y


@cuda.jit(device=True)
def sign(x):
    if x > 0:
        return 1
    if x < 0:
        return -1
    return 0


def calls(o, n):
    t = cuda.threadIdx.x
    a, b = add_mul(t - n, t)
    c, _ = add_mul(scale=10, y=0, x=t)
    o[t] = a * 10000 + b * 100 + c * 1000000 + sign(t - 2)


def test_functions_are_inlined_with_returns_anywhere() -> None:
    (o, _) = agree(calls, 1, 8, out(8), 3)
    assert list(o) == [
        (t + 1) * 10000000 + (0 if t < 3 else (t - 2) * 20000) + t * 100 + (t > 2) - (t < 2) for t in range(8)
    ]


def argument_changes(o, n):
    a = n
    b = add_mul(a, a)[0]
    a, b = b, a
    o[0], o[1] = a, b


def test_a_function_does_not_change_its_callers_variables() -> None:
    assert list(agree(argument_changes, 1, 1, out(2), 5)[0]) == [12, 5]


def make(d: int, flag: bool) -> Any:
    @cuda.jit
    def closure(o):
        local = cuda.local.array(d, float32)
        for i in range(d):
            local[i] = i
        o[0] = local[d - 1] if flag else -1

    return closure


def test_closures_are_constants_of_each_kernel() -> None:
    assert interpret(make(4, True), 1, 1, out(1))[0][0] == 3
    assert interpret(make(9, False), 1, 1, out(1))[0][0] == -1
    assert [a.bytes for a in compiled(make(9, True), I64A).local] == [36]


# the device surface


def indices(o):
    t, g = cuda.threadIdx, cuda.grid(3)
    k = t.x + cuda.blockDim.x * (t.y + cuda.blockDim.y * t.z)
    if cuda.blockIdx.x == 1 and cuda.blockIdx.y == 1:
        o[k, 0], o[k, 1], o[k, 2] = g
        o[k, 3] = cuda.gridsize(2)[0] * 1000 + cuda.gridsize(1)
        o[k, 4] = cuda.laneid + cuda.warpsize


def test_thread_indices_are_those_of_cuda() -> None:
    (o,) = interpret(indices, (2, 3), (4, 3, 2), np.zeros((24, 5), np.int64))
    assert list(o[23]) == [7, 5, 1, 8008, 23 + 32]


def shared_sum(a, o):
    s = cuda.shared.array(64, float32)
    flags = cuda.shared.array((3,), np.int8)
    rest = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    s[t] = a[t]
    rest[t] = t
    if t < 3:
        flags[t] = t
    cuda.syncthreads()
    k = 32
    while k > 0:
        if t < k:
            s[t] += s[t + k]
        cuda.syncthreads()
        k //= 2
    if t == 0:
        o[0] = s[0] + flags[2] + rest[63]


def test_shared_arrays_are_placed_one_after_another_and_the_dynamic_one_last() -> None:
    fn = compiled(shared_sum, F32A, F32A)
    assert [(a.name, a.offset, a.bytes) for a in fn.shared] == [
        ("s", 0, 256),
        ("flags", 256, 3),
        ("rest", 272, 0),
    ]
    assert (
        agree(shared_sum, 1, 64, np.ones(64, np.float32), out(1, np.float32), shared_bytes=256)[1][0]
        == 64 + 2 + 63
    )


def test_a_barrier_ends_its_block() -> None:
    assert sum(isinstance(b.terminator, ir.Bar) for b in compiled(shared_sum, F32A, F32A).blocks) == 2


def atomics(x, h):
    s = cuda.shared.array(2, int32)
    t = cuda.threadIdx.x
    if t < 2:
        s[t] = 0
    cuda.syncthreads()
    old = cuda.atomic.add(s, t % 2, t)
    cuda.atomic.max(h, 0, old)
    cuda.atomic.add(h, (1,), 1)
    cuda.atomic.min(h, 2, -t)
    cuda.atomic.sub(h, 3, 2)
    cuda.syncthreads()
    if t == 0:
        h[4] = s[0] * 1000 + s[1]


def test_atomics_give_back_the_old_value_only_where_it_is_used() -> None:
    fn = compiled(atomics, I32A, I32A)
    made = [(i.op, i.space, i.dst is not None) for b in fn.blocks for i in b.instrs if isinstance(i, ir.Atom)]
    assert made == [
        ("add", "shared", True),
        ("max", "global", False),
        ("add", "global", False),
        ("min", "global", False),
        ("add", "global", False),
    ]
    h = interpret(atomics, 1, 8, out(1, np.int32), out(5, np.int32))[1]
    assert list(h[1:]) == [8, -7, -16, 12016]


def test_special_registers_and_parameters_are_read_once_in_the_entry_block() -> None:
    fn = compiled(shared_sum, F32A, F32A)
    reads = [
        (k, i.name) for k, b in enumerate(fn.blocks) for i in b.instrs if isinstance(i, (ir.Sreg, ir.LdParam))
    ]
    assert {k for k, _ in reads} == {0} and len(reads) == len(set(reads))


def test_every_instruction_carries_its_own_line() -> None:
    fn = compiled(shared_sum, F32A, F32A)
    first = shared_sum.__code__.co_firstlineno
    (line,) = {
        i.loc.line for b in fn.blocks for i in b.instrs if isinstance(i, ir.Alu) and i.op == "floordiv"
    }
    assert line == first + 15 and all(i.loc.file == __file__ for b in fn.blocks for i in b.instrs)


def test_a_name_given_to_compile_function_names_the_kernel() -> None:
    from dsl.frontend.compile import compile_function

    assert compile_function(swap, (I64A, I64, I64), name="other").name == "other"


def while_continue(o, n):
    i = 0
    while i < n:
        i += 1
        if i % 2:
            continue
        o[i] = i


def test_continue_in_a_while_loop_goes_through_its_one_latch() -> None:
    assert list(agree(while_continue, 1, 1, out(7), 6)[0]) == [0, 0, 2, 0, 4, 0, 6]
    fn = compiled(while_continue, I64A, I64)
    ((header, last),) = ir.loops(fn).items()
    assert sum(header in ir.successors(b.terminator) for b in fn.blocks[header : last + 1]) == 1
