"""Atomics and cache hints: the WarpIR they become, what they leave and give back, what is refused.

Values are the interpreter's and the Python oracle's (`agree`), and the compiled engine's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numba import int32

from dsl import cuda
from dsl.types import ArgType
from dsl.warpir import ir
from gpusim.errors import UnsupportedFeature
from tests.dsl.engine_support import assert_equal, both
from tests.dsl.frontend_support import agree, compiled

I32A, U32A, F32A, F64A = (ArgType(t, 1) for t in ("s32", "u32", "f32", "f64"))


def of_kind(kernel: Any, kind: type, *args: Any) -> list[Any]:
    return [i for b in compiled(kernel, *args).blocks for i in b.instrs if isinstance(i, kind)]


# each atomic in its own kernel: x[1] takes the old value of x[0]


def add(x):
    x[1] = cuda.atomic.add(x, 0, 3)


def sub(x):
    x[1] = cuda.atomic.sub(x, 0, 3)


def and_(x):
    x[1] = cuda.atomic.and_(x, 0, 3)


def or_(x):
    x[1] = cuda.atomic.or_(x, 0, 3)


def xor(x):
    x[1] = cuda.atomic.xor(x, 0, 3)


def inc(x):
    x[1] = cuda.atomic.inc(x, 0, 3)


def dec(x):
    x[1] = cuda.atomic.dec(x, 0, 3)


def exch(x):
    x[1] = cuda.atomic.exch(x, 0, 3)


def maximum(x):
    x[1] = cuda.atomic.max(x, 0, 3)


def minimum(x):
    x[1] = cuda.atomic.min(x, 0, 3)


def nanmax(x):
    x[1] = cuda.atomic.nanmax(x, 0, 3)


def nanmin(x):
    x[1] = cuda.atomic.nanmin(x, 0, 3)


def cas(x):
    x[1] = cuda.atomic.cas(x, 0, 10, 3)


def compare_and_swap(x):
    x[1] = cuda.atomic.compare_and_swap(x, 10, 3)


AFTER = {
    add: 13, sub: 7, and_: 2, or_: 11, xor: 9, inc: 0, dec: 3, exch: 3, maximum: 10, minimum: 3,
    nanmax: 10, nanmin: 3, cas: 3, compare_and_swap: 3,
}  # fmt: skip
"""What each leaves in place of 10."""


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("kernel", AFTER, ids=lambda k: k.__name__)
def test_an_atomic_changes_memory_and_gives_the_old_value(kernel: Any, dtype: Any) -> None:
    assert agree(kernel, 1, 1, np.array([10, 0], dtype))[0].tolist() == [AFTER[kernel], 10]


@pytest.mark.parametrize("kernel, before, after", [(inc, 2, 3), (dec, 2, 1), (dec, 0, 3), (cas, 9, 9)])
def test_inc_and_dec_count_within_their_limit_and_cas_needs_the_old_value(
    kernel: Any, before: int, after: int
) -> None:
    assert agree(kernel, 1, 1, np.array([before, 0], np.uint32))[0].tolist() == [after, before]


@pytest.mark.parametrize(
    "kernel, op",
    [
        (add, "add"), (sub, "add"), (and_, "and"), (or_, "or"), (xor, "xor"), (inc, "inc"), (dec, "dec"),
        (exch, "exch"), (maximum, "max"), (minimum, "min"), (nanmax, "max"), (nanmin, "min"), (cas, "cas"),
        (compare_and_swap, "cas"),
    ],
)  # fmt: skip
def test_each_atomic_is_one_instruction_in_the_type_of_the_array(kernel: Any, op: str) -> None:
    (atom,) = of_kind(kernel, ir.Atom, U32A)
    assert (atom.op, atom.space, atom.type, atom.dst.type, atom.array) == (op, "global", "u32", "u32", "x")
    assert atom.compare == (ir.Imm(10) if op == "cas" else None)
    assert atom.value == ir.Imm((1 << 32) - 3 if kernel is sub else 3)


@pytest.mark.parametrize(
    "kernel, op", [(maximum, "max_nan"), (minimum, "min_nan"), (nanmax, "max"), (nanmin, "min")]
)
def test_max_and_min_of_floats_have_numbas_rule_for_nan(kernel: Any, op: str) -> None:
    (atom,) = of_kind(kernel, ir.Atom, F64A)
    assert (atom.op, atom.type) == (op, "f64")
    after = agree(kernel, 1, 1, np.array([math.nan, 0], np.float32))[0]
    assert math.isnan(after[1])  # the old value
    assert math.isnan(after[0]) if op.endswith("_nan") else after[0] == 3


def with_nan(x):
    cuda.atomic.max(x, 0, math.nan)
    cuda.atomic.min(x, 0, math.nan)
    cuda.atomic.nanmax(x, 0, math.nan)
    cuda.atomic.nanmin(x, 0, math.nan)


def test_a_nan_that_is_given_changes_nothing() -> None:
    assert agree(with_nan, 1, 1, np.full(1, 5, np.float32))[0].tolist() == [5]


def negative_sub(x):
    cuda.atomic.sub(x, 0, x[1])


@pytest.mark.parametrize("dtype, after", [(np.int32, 4), (np.uint32, 4), (np.float32, 4.0), (np.int64, 4)])
def test_sub_adds_the_negated_value_in_every_type(dtype: Any, after: float) -> None:
    assert agree(negative_sub, 1, 1, np.array([10, 6], dtype))[0].tolist() == [after, 6]


def indices(x, m):
    s = cuda.shared.array((2, 2), int32)
    s[0, 1] = 8
    cuda.atomic.or_(s, (0, 1), 1)
    cuda.atomic.exch(m, (1, 2), s[0, 1])
    cuda.atomic.add(x, -1, 5)
    old = cuda.atomic.cas(m, (0, 0), 0, 7)
    x[0] = old


def test_atomics_take_shared_arrays_tuples_and_negative_indices_and_are_red_as_statements() -> None:
    found = of_kind(indices, ir.Atom, I32A, ArgType("s32", 2))
    assert [(a.op, a.space, a.dst is not None) for a in found] == [
        ("or", "shared", False), ("exch", "global", False), ("add", "global", False), ("cas", "global", True),
    ]  # fmt: skip
    x, m = agree(indices, 1, 1, np.zeros(3, np.int32), np.zeros((2, 3), np.int32))
    assert x.tolist() == [0, 0, 5] and m.tolist() == [[7, 0, 0], [0, 0, 9]]


def turns(x, o):
    o[cuda.threadIdx.x] = cuda.atomic.inc(x, 0, 4)


def test_lanes_take_their_turns_in_order() -> None:
    x, o = agree(turns, 1, 8, np.zeros(1, np.uint32), np.zeros(8, np.int64))
    assert o.tolist() == [0, 1, 2, 3, 4, 0, 1, 2] and x[0] == 3


@pytest.mark.parametrize("threads", [1, 32, 40])
@pytest.mark.parametrize("kernel", AFTER, ids=lambda k: k.__name__)
def test_the_compiled_engine_does_each_atomic_as_the_interpreter(kernel: Any, threads: int) -> None:
    for dtype in (np.uint32, np.uint64):
        x = np.array([10, 0], dtype)
        assert_equal(*both(cuda.jit(kernel), (2, 1, 1), (threads, 1, 1), (x,)))


@pytest.mark.parametrize("kernel", [add, sub, maximum, minimum, nanmax, nanmin], ids=lambda k: k.__name__)
@pytest.mark.parametrize("before", [10.0, 1.0, math.nan])
def test_the_compiled_engine_does_atomics_of_floats_as_the_interpreter(kernel: Any, before: float) -> None:
    for dtype in (np.float32, np.float64):
        x = np.array([before, 0], dtype)
        assert_equal(*both(cuda.jit(kernel), (1, 1, 1), (3, 1, 1), (x,)))


def test_the_compiled_engine_takes_indices_turns_and_hints_as_the_interpreter() -> None:
    one, x = (1, 1, 1), np.array([7, 8, 9], np.int16)
    matrix = np.zeros((2, 3), np.int32)
    assert_equal(*both(cuda.jit(indices), one, one, (np.zeros(3, np.int32), matrix)))
    assert_equal(*both(cuda.jit(turns), one, (8, 1, 1), (np.zeros(1, np.uint32), np.zeros(8, np.int64))))
    assert_equal(*both(cuda.jit(loads), one, one, (np.zeros(6, np.int64), x, 0)))
    assert_equal(*both(cuda.jit(stores), one, one, (np.zeros((2, 2), np.float32), 5)))


# cache hints


def loads(o, x, i):
    o[0] = cuda.ldca(x, i)
    o[1] = cuda.ldcg(x, i + 1)
    o[2] = cuda.ldcs(x, -1)
    o[3] = cuda.ldlu(x, i)
    o[4] = cuda.ldcv(x, i)
    o[5] = x[i]


def test_a_load_with_a_hint_is_a_load_of_the_arrays_type_that_carries_it() -> None:
    found = of_kind(loads, ir.Ld, I32A, ArgType("s16", 1), ArgType("s64"))
    assert [(i.cache, i.type, i.dsts[0].type) for i in found] == [
        (c, "s16", "s32") for c in ("ca", "cg", "cs", "lu", "cv", "")
    ]
    x = np.array([7, 8, 9], np.int16)
    assert agree(loads, 1, 1, np.zeros(6, np.int64), x, 0)[0].tolist() == [7, 8, 9, 7, 7, 7]


def stores(o, x):
    cuda.stcg(o, (0, 0), x)
    cuda.stcs(o, (0, 1), 2)
    cuda.stwb(o, (1, 0), 3)
    cuda.stwt(o, (1, 1), x + 1)
    o[0, 0] = o[0, 0] + 1


def test_a_store_with_a_hint_converts_its_value_and_carries_it() -> None:
    found = of_kind(stores, ir.St, ArgType("f32", 2), ArgType("s64"))
    assert [(i.cache, i.type) for i in found] == [(c, "f32") for c in ("cg", "cs", "wb", "wt", "")]
    assert agree(stores, 1, 1, np.zeros((2, 2), np.float32), 5)[0].tolist() == [[6, 2], [3, 6]]


# refusals


def float_and(x):
    cuda.atomic.and_(x, 0, 1)


def float_exch(x):
    cuda.atomic.exch(x, 0, 1)


def float_cas(x):
    cuda.atomic.cas(x, 0, 1, 2)


def float_inc(x):
    cuda.atomic.inc(x, 0, 1)


def of_a_number(x):
    cuda.atomic.add(x[0], 0, 1)


def array_value(x):
    cuda.atomic.add(x, 0, x)


def missing_old(x):
    cuda.atomic.cas(x, 0, 1)


def of_local(x):
    a = cuda.local.array(2, int32)
    cuda.atomic.add(a, 0, 1)


def hint_on_shared(x):
    s = cuda.shared.array(2, int32)
    x[0] = cuda.ldcg(s, 0)


def hint_on_a_number(x):
    cuda.stcg(x[0], 0, 1)


def unknown(x):
    cuda.atomic.nand(x, 0, 1)


INTEGERS = "numba has it for int32, uint32, int64, uint64"
REFUSED = {
    float_and: f"cuda.atomic.and_ on float32 elements ('x'); {INTEGERS}",
    float_exch: f"cuda.atomic.exch on float32 elements ('x'); {INTEGERS}",
    float_cas: f"cuda.atomic.cas on float32 elements ('x'); {INTEGERS}",
    float_inc: "cuda.atomic.inc on float32 elements ('x'); numba has it for uint32, uint64",
    of_a_number: "cuda.atomic.add of a float32; give an array",
    array_value: "the val of cuda.atomic.add is the array 'x'; give a number",
    missing_old: "these arguments of cuda.atomic.cas; it takes ary, idx, old, val",
    of_local: "an atomic on the local array 'a'",
    hint_on_shared: "cuda.ldcg of the shared array 's'; index it: the hint is for global memory",
    hint_on_a_number: "cuda.stcg of a float32; give an array",
    unknown: "cuda.atomic.nand is not in the kernel language; it has atomic.add, atomic.and_, atomic.cas",
}


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda k: k.__name__)
def test_wrong_arrays_and_arguments_are_refused_with_their_line(kernel: Any) -> None:
    with pytest.raises(UnsupportedFeature) as error:
        compiled(kernel, F32A)
    text, first = str(error.value), kernel.__code__.co_firstlineno
    assert text.startswith((f"{__file__}:{first + 1}: in ", f"{__file__}:{first + 2}: in "))
    assert REFUSED[kernel] in text


def test_narrow_elements_and_the_first_of_a_matrix_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="cuda.atomic.add on int8 elements"):
        compiled(add, ArgType("s8", 1))
    with pytest.raises(UnsupportedFeature, match="cuda.atomic.inc on int32 elements .*uint32, uint64"):
        compiled(inc, I32A)
    with pytest.raises(UnsupportedFeature, match="'x', which has 2 dimensions; use cuda.atomic.cas"):
        compiled(first_of_a_matrix, ArgType("s32", 2))
    with pytest.raises(UnsupportedFeature, match="cuda.ldca of a boolean array"):
        compiled(loads, I32A, ArgType("pred", 1), ArgType("s64"))


def first_of_a_matrix(x):
    cuda.atomic.compare_and_swap(x, 0, 1)


def swap_at(x, old, fill):
    i = cuda.grid(1)
    if i < x.size:
        old[i] = cuda.atomic.compare_and_swap(x[i:], fill, 10 * i)


def swap_in_a_matrix(x):
    cuda.atomic.compare_and_swap(x[1:], 0, 1)


def test_compare_and_swap_of_the_rest_of_an_array_works_on_its_first_element() -> None:
    args = np.array([7, 1, 7, 3], np.int32), np.zeros(4, np.int32), 7
    assert_equal(*both(cuda.jit(swap_at), (1, 1, 1), (32, 1, 1), args))
    x, old, _ = agree(swap_at, 1, 32, *args)
    assert (x.tolist(), old.tolist()) == ([0, 1, 20, 3], [7, 1, 7, 3])
    with pytest.raises(UnsupportedFeature, match="'x' has 2 dimensions and gets 1 index"):
        compiled(swap_in_a_matrix, ArgType("s32", 2))
