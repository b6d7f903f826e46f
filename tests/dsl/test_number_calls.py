"""popc, clz, brev, ffs, selp and cbrt: values at the edges, constants, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl import cuda, types
from dsl.types import ArgType
from gpusim.errors import UnsupportedFeature
from tests.dsl.engine_support import assert_equal, both
from tests.dsl.frontend_support import agree, compiled, interpret, ops


def bits(o, x):
    i = cuda.threadIdx.x
    o[0, i] = cuda.popc(x[i])
    o[1, i] = cuda.clz(x[i])
    o[2, i] = cuda.brev(x[i])
    o[3, i] = cuda.ffs(x[i])


def counted(dtype: Any, *values: int) -> list[list[int]]:
    """Return popc, clz, brev and ffs of each value."""
    x = np.array(values, dtype)
    out = np.zeros((4, len(x)), np.uint64 if x.dtype == np.uint64 else np.int64)
    return agree(bits, 1, len(x), out, x)[0].T.tolist()


def test_bits_of_32_bit_numbers() -> None:
    assert counted(np.uint32, 0, 1, 0xFFFFFFFF, 0x0000CCCC) == [
        [0, 32, 0, 0],
        [1, 31, 0x80000000, 1],
        [32, 0, 0xFFFFFFFF, 1],
        [8, 16, 0x33330000, 3],
    ]
    assert counted(np.int32, -1, -(1 << 31)) == [[32, 0, 0xFFFFFFFF, 1], [1, 0, 1, 32]]


def test_bits_of_64_bit_numbers() -> None:
    assert counted(np.uint64, 0, 1 << 63, 3) == [
        [0, 64, 0, 0],
        [1, 0, 1, 64],
        [2, 62, 3 << 62, 1],
    ]


def test_brev_of_an_int64_reverses_its_low_32_bits_as_in_numba() -> None:
    assert counted(np.int64, 1, -1, 1 << 40) == [
        [1, 63, 0x80000000, 1],
        [64, 0, 0xFFFFFFFF, 1],
        [1, 23, 0, 41],
    ]


def test_popc_and_clz_of_narrow_numbers_count_in_their_own_width() -> None:
    assert [row[:2] for row in counted(np.int8, -1, 1, 0, 0x40)] == [[8, 0], [1, 7], [0, 8], [1, 1]]
    assert [row[:2] for row in counted(np.uint8, 0xFF, 1)] == [[8, 0], [1, 7]]
    assert [row[:2] for row in counted(np.int16, -2, 1)] == [[15, 0], [1, 15]]
    assert [row[2:4] for row in counted(np.int8, -1, 0)] == [[0xFFFFFFFF, 1], [0, 0]]


def bit_counts(o, x):
    o[cuda.threadIdx.x] = x[cuda.threadIdx.x].bit_count()


@pytest.mark.parametrize("dtype, ones", [(np.int8, 8), (np.int32, 32), (np.int64, 64)])
def test_bit_count_counts_the_bits_of_a_negative_number_as_popc_does(dtype: Any, ones: int) -> None:
    x = np.array([0, 0x55, -1], dtype)  # Python's own bit_count, of the absolute value, gives 1 for -1
    assert interpret(bit_counts, 1, 3, np.zeros(3, np.int64), x)[0].tolist() == [0, 4, ones]


def of_constants(o):
    o[0] = cuda.popc(0xFF)
    o[1] = cuda.clz(np.int32(1))
    o[2] = cuda.brev(np.uint32(1))
    o[3] = cuda.ffs(8)
    o[4] = cuda.clz(np.int8(-1))
    o[5] = cuda.popc(True)
    o[6] = cuda.cbrt(27.0)
    o[7] = (0xFF).bit_count()
    o[8] = cuda.brev(np.uint8(1))
    o[9] = cuda.ffs(0)


def test_functions_of_constants_are_constants() -> None:
    addressing = {"LdParam", "Chk", "St", "add.s64", "mul.s64"}
    assert set(ops(compiled(of_constants, ArgType("s64", 1)))) <= addressing
    o = agree(of_constants, 1, 1, np.zeros(10, np.int64))[0]
    assert o.tolist() == [8, 31, 0x80000000, 4, 0, 1, 3, 8, 0x80000000, 0]


def roots(o, x):
    o[cuda.threadIdx.x] = cuda.cbrt(x[cuda.threadIdx.x])


CBRT_TYPES = [("f32", "f32"), ("f64", "f64"), ("s16", "f32"), ("s32", "f64")]


@pytest.mark.parametrize("element, expected", CBRT_TYPES)
def test_cbrt_is_one_library_call_in_numbas_type(element: str, expected: str) -> None:
    assert ops(compiled(roots, ArgType("f64", 1), ArgType(element, 1)))[f"cbrt.{expected}"] == 1


def test_cbrt_of_negative_numbers_is_negative() -> None:
    got = agree(roots, 1, 3, np.zeros(3), np.array([-8.0, 2.0, 1e-3]))[0]
    np.testing.assert_allclose(got, [-2, 2 ** (1 / 3), 0.1], rtol=1e-14)


def selected(o, x):
    i = cuda.threadIdx.x
    inner = cuda.selp(i % 2 == 0, x[i], np.int32(13))
    o[i] = cuda.selp(x[i], inner, np.int32(-1))


def test_selp_takes_the_first_where_the_test_holds_and_needs_no_branch() -> None:
    x = np.array([0, 5, 6, 7], np.int32)
    assert agree(selected, 1, 4, np.zeros(4, np.int32), x)[0].tolist() == [-1, 13, 6, 13]
    fn = compiled(selected, ArgType("s32", 1), ArgType("s32", 1))
    assert len(fn.blocks) == 1 and ops(fn)["Selp"] == 2


def selp_of(o, a, b):
    o[0] = cuda.selp(o[0] > 0, a, b)


@pytest.mark.parametrize("a", types.TYPE_NAMES)
@pytest.mark.parametrize("b", ["s32", "f32", "s8"])
def test_selp_takes_two_of_one_type_that_numba_allows(a: str, b: str) -> None:
    arguments = ArgType("s64", 1), ArgType(a), ArgType(b)
    if a == b != "s8":
        assert ops(compiled(selp_of, *arguments))["Selp"] == 1
        return
    names = f"{types.TYPE_NAMES[a]} and {types.TYPE_NAMES[b]}"
    with pytest.raises(UnsupportedFeature, match=f"cuda.selp of {names}; give two of one type: int16"):
        compiled(selp_of, *arguments)


def popc_of_a_float(o):
    o[0] = cuda.popc(o[0])


def bit_count_of_a_float(o):
    o[0] = o[0].bit_count()


def cbrt_of_an_array(o):
    o[0] = cuda.cbrt(o)


@pytest.mark.parametrize(
    "kernel, text",
    [
        (popc_of_a_float, "the x of cuda.popc is float32, not an integer or a boolean"),
        (bit_count_of_a_float, "bit_count of a float32 number"),
        (cbrt_of_an_array, "the a of cuda.cbrt is the array 'o'; give a number"),
    ],
)
def test_what_has_no_bits_and_no_root_is_refused(kernel: Any, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=text):
        compiled(kernel, ArgType("f32", 1))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
def test_the_compiled_engine_counts_bits_as_the_interpreter(dtype: Any) -> None:
    x = np.random.default_rng(3).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 32, dtype, endpoint=True)
    assert_equal(*both(cuda.jit(bits), (1, 1, 1), (32, 1, 1), (np.zeros((4, 32), np.int64), x)))


def test_the_compiled_engine_selects_and_takes_roots_as_the_interpreter() -> None:
    x = np.arange(-16, 16, dtype=np.int32)
    assert_equal(*both(cuda.jit(selected), (1, 1, 1), (32, 1, 1), (np.zeros(32, np.int32), x)))
    for dtype in (np.float32, np.float64):
        values = x.astype(dtype) / 7
        assert_equal(*both(cuda.jit(roots), (1, 1, 1), (32, 1, 1), (np.zeros(32, dtype), values)))
