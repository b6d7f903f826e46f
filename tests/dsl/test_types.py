"""Types: every rule against numba's own tables, and the types of kernel arguments."""

from __future__ import annotations

import math
import operator
from typing import Any

import ml_dtypes
import numba
import numba.cuda
import numpy as np
import pytest

from dsl import types
from dsl.intrinsics import memory, numbers
from dsl.lowering import mathlib
from dsl.types import ArgType, arg_type
from gpusim.errors import UnsupportedFeature
from gpusim.memory import VirtualArray

HAS_HALVES = hasattr(numba.cuda.types, "bfloat16")
"""Whether numba-cuda is there: numba by itself has no 16-bit floats in kernels."""
NAMES = [n for n in types.TYPE_NAMES if n not in types.STORED and (HAS_HALVES or n not in types.HALVES)]
OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
}


@pytest.fixture(scope="module")
def numba_cuda() -> Any:
    """Return numba.cuda's typing tables; no GPU is needed to read them."""
    from numba.cuda.target import CUDATypingContext

    context = CUDATypingContext()
    context.refresh()
    return context


def numba_type(name: str) -> Any:
    if name in types.HALVES:
        return getattr(numba.cuda.types, types.TYPE_NAMES[name])
    return numba.boolean if name == "pred" else getattr(numba, types.TYPE_NAMES[name])


def element(numba_type: Any) -> str:
    """Return the name of a type of numba's."""
    found = types.element_type(numba_type)
    assert found is not None, numba_type
    return found


def ask(context: Any, function: Any, *names: str) -> str | None:
    """Return the type numba gives a call, None if it has none."""
    try:
        signature = context.resolve_function_type(function, tuple(numba_type(n) for n in names), {})
    except numba.core.errors.TypingError:
        return None
    return element(signature.return_type)


@pytest.mark.parametrize("op", OPERATORS)
def test_binary_operators_have_numbas_types(op: str, numba_cuda: Any) -> None:
    bitwise = op in ("and", "or", "xor", "shl", "shr")
    for a in NAMES:
        for b in NAMES:
            expected = ask(numba_cuda, OPERATORS[op], a, b)
            assert (expected is None) == (bitwise and bool({a, b} & set(types.FLOATS)))
            assert expected in (None, types.binary_type(op, a, b)), f"{a} {op} {b}"


def test_powers_have_numbas_types(numba_cuda: Any) -> None:
    for a in NAMES:
        for b in NAMES:
            if (a, b) != ("pred", "s32"):  # numba gives bool ** int32 a float32: its table has powi there
                skip = b == "s32" and a in ("s8", "u8", "s16")
                assert skip or types.binary_type("pow", a, b) == ask(numba_cuda, operator.pow, a, b), (
                    f"{a} ** {b}"
                )


def test_variables_min_and_max_have_numbas_common_type(numba_cuda: Any) -> None:
    """bfloat16 is left out beside other types: numba's search for a common one raises an exception there."""
    for a in NAMES:
        for b in NAMES:
            if a != b and "bf16" in (a, b):
                continue
            unified = numba_cuda.unify_types(numba_type(a), numba_type(b))
            assert types.unify(a, b) == element(unified), (a, b)
            if {a, b} != {"f16", "pred"}:  # numba says NotImplementedError
                assert types.unify(a, b) == ask(numba_cuda, max, a, b), (a, b)


def test_unary_operators_have_numbas_types(numba_cuda: Any) -> None:
    for a in NAMES:
        assert types.unary_type(a) == ask(numba_cuda, operator.neg, a) == ask(numba_cuda, operator.pos, a)
        assert a in ("pred", *types.FLOATS) or types.unary_type(a) == ask(numba_cuda, operator.invert, a)


def test_math_functions_have_numbas_types(numba_cuda: Any) -> None:
    for a in NAMES:
        for function in (math.erf, math.acos, math.gamma, math.tanh):
            assert types.math_type(a) == ask(numba_cuda, function, a)
        for name in types.HALF_FUNCTIONS if HAS_HALVES else ():
            assert mathlib.function_type(name, a) == ask(numba_cuda, getattr(math, name), a), name
        for b in NAMES:
            assert types.math_type(a, b) == ask(numba_cuda, math.fmod, a, b)
            assert types.math_type(a, b) == ask(numba_cuda, math.remainder, a, b)
            assert types.hypot_type(a, b) == ask(numba_cuda, math.hypot, a, b)
            assert types.hypot_type(a, b) == ask(numba_cuda, math.atan2, a, b)


def test_functions_with_two_results_and_ldexp_have_numbas_types(numba_cuda: Any) -> None:
    def first(function: Any, a: str) -> str:
        result = numba_cuda.resolve_function_type(function, (numba_type(a),), {}).return_type
        return element(result[0])

    for a in NAMES:
        assert types.modf_type(a) == first(math.modf, a)
        assert types.exact_type(a) == first(math.frexp, a)
        assert types.exact_type(a) == ask(numba_cuda, math.ldexp, a, "s64")
        assert types.exact_type(a) == ask(numba_cuda, round, a, "s32")
        assert ask(numba_cuda, round, a) == "s64"


@pytest.mark.parametrize("name", ["popc", "clz", "brev", "ffs"])
def test_functions_of_bits_have_numbas_types(name: str, numba_cuda: Any) -> None:
    for a in NAMES:
        if a not in types.FLOATS:  # numba truncates a float to an int8 here
            assert types.bits_type(name, a) == ask(numba_cuda, getattr(numba.cuda, name), a)


def test_cbrt_and_fma_have_numbas_types(numba_cuda: Any) -> None:
    for a in NAMES:
        assert types.exact_type(a) == ask(numba_cuda, numba.cuda.cbrt, a)
        for b in NAMES:
            assert types.math_type(a, b, a) == ask(numba_cuda, numba.cuda.fma, a, b, a)


def test_selp_takes_the_types_that_numba_takes(numba_cuda: Any) -> None:
    assert [a for a in NAMES if numba_takes(numba_cuda, numba.cuda.selp, "pred", a, a)] == [
        a for a in NAMES if a in numbers.SELECTED
    ]
    assert not numba_takes(numba_cuda, numba.cuda.selp, "pred", "s32", "s64")


def numba_takes(context: Any, function: Any, *args: Any) -> bool:
    """Say whether numba has a call: names of element types, or numba's own types."""
    known = tuple(numba_type(a) if isinstance(a, str) else a for a in args)
    return context.resolve_function_type(function, known, {}) is not None


@pytest.mark.parametrize("name", memory.ATOMIC_TYPES)
def test_atomics_take_the_element_types_that_numba_takes(name: str, numba_cuda: Any) -> None:
    rest = ("s64",) * (3 if name == "cas" else 2)
    for a in NAMES:
        array = numba.types.Array(numba_type(a), 1, "C")
        taken = numba_takes(numba_cuda, getattr(numba.cuda.atomic, name), array, *rest)
        assert taken == (a in memory.ATOMIC_TYPES[name]), f"{name} on {a}"


def test_masks_of_lanes_have_numbas_types(numba_cuda: Any) -> None:
    assert ask(numba_cuda, numba.cuda.activemask) == ask(numba_cuda, numba.cuda.lanemask_lt) == "u32"
    for a in ("s32", "s64", "f32", "f64"):
        assert ask(numba_cuda, numba.cuda.match_any_sync, "u32", a) == "s32"


def test_the_counter_of_a_range_has_numbas_type(numba_cuda: Any) -> None:
    for a in ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"):
        state = numba_cuda.resolve_function_type(range, (numba_type(a),), {}).return_type
        assert str(state) == f"range_state_{types.TYPE_NAMES[types.range_type([a])]}"
    assert types.range_type(["s32", "s64"]) == types.range_type(["s32", "u32"]) == "s64"


def test_comparisons_widen_to_a_type_that_holds_both() -> None:
    assert types.comparison_type("s32", "s32") == "s32" and types.comparison_type("s8", "s16") == "s32"
    assert types.comparison_type("s32", "u32") == types.comparison_type("s64", "s32") == "s64"
    assert types.comparison_type("s32", "f32") == "f64" and types.comparison_type("f32", "f32") == "f32"
    assert types.comparison_type("s64", "u64") == "mixed"


@pytest.mark.parametrize(
    "value, expected",
    [
        (True, ArgType("pred")),
        (np.bool_(True), ArgType("pred")),
        (3, ArgType("s64")),
        (1 << 63, ArgType("u64")),
        (0.5, ArgType("f64")),
        (np.float64(0.5), ArgType("f64")),
        (np.float32(0.5), ArgType("f32")),
        (np.int8(3), ArgType("s8")),
        (np.uint32(3), ArgType("u32")),
        (np.zeros(3, np.float32), ArgType("f32", 1, "C")),
        (np.zeros((3, 4), bool), ArgType("pred", 2, "C")),
        (np.zeros((3, 4), np.int64).T, ArgType("s64", 2, "F")),
        (np.zeros((4, 4))[::2, ::2], ArgType("f64", 2, "A")),
        (np.zeros((4, 1)).T, ArgType("f64", 2, "C")),
        (np.zeros((0, 5), np.int16), ArgType("s16", 2, "C")),
        (VirtualArray((2, 3), np.dtype(np.float32)), ArgType("f32", 2, "C")),
        (np.zeros(3, np.float16), ArgType("f16", 1, "C")),
        (np.zeros((2, 3), ml_dtypes.bfloat16).T, ArgType("bf16", 2, "F")),
        (np.zeros(8, ml_dtypes.float8_e4m3fn)[::2], ArgType("e4m3", 1, "A")),
        (ml_dtypes.float8_e5m2(1.5), ArgType("e5m2")),
    ],
)
def test_arguments_have_the_types_that_numba_gives_them(value: Any, expected: ArgType) -> None:
    assert arg_type(value) == expected and hash(arg_type(value)) == hash(expected)


@pytest.mark.parametrize(
    "value, text",
    [
        (np.zeros(3, ml_dtypes.float8_e4m3fnuz), "float8_e4m3fnuz"),
        (np.zeros(3, complex), "complex128"),
        ([1, 2], "list"),
        ("x", "str"),
        (1 << 64, "64 bits"),
        (None, "NoneType"),
    ],
)
def test_arguments_outside_the_language_are_refused_by_name(value: Any, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=text):
        arg_type(value)


@pytest.mark.parametrize(
    "obj, expected",
    [
        (np.float32, "f32"),
        (np.dtype("int32"), "s32"),
        (numba.float32, "f32"),
        (numba.boolean, "pred"),
        (numba.intp, "s64"),
        (int, "s64"),
        (float, "f64"),
        (bool, "pred"),
        (np.float16, "f16"),
        (numba.types.float16, "f16"),
        (ml_dtypes.bfloat16, "bf16"),
        (np.dtype(ml_dtypes.float8_e4m3fn), "e4m3"),
        (ml_dtypes.float8_e5m2, "e5m2"),
        (ml_dtypes.float8_e4m3fnuz, None),
        (np.complex64, None),
        (math, None),
        (np.generic, None),
        (np.zeros(3), None),
        (None, None),
    ],
)
def test_dtype_names_of_numpy_numba_and_python_are_known(obj: Any, expected: str | None) -> None:
    assert types.element_type(obj) == expected


@pytest.mark.parametrize(
    "value, element, expected",
    [
        (300, "u8", 44),
        (200, "s8", -56),
        (-1, "u64", (1 << 64) - 1),
        (1e30, "s32", (1 << 31) - 1),
        (-1e30, "s64", -(1 << 63)),
        (-1.5, "u32", 0),
        (math.nan, "s32", -(1 << 31)),
        (math.nan, "u64", 1 << 63),
        (math.nan, "u8", 255),
        (0.1, "f32", float(np.float32(0.1))),
        (1e300, "f32", math.inf),
        (2, "pred", True),
    ],
)
def test_constants_convert_as_the_machine_does(value: Any, element: str, expected: Any) -> None:
    assert types.cast_value(value, element) == expected
