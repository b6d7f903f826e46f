"""Signatures of cuda.jit: scalars take their types, arrays keep their own, nonsense is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from dsl.types.signature import argument_types, cast_scalars
from gpusim.arch import get_arch
from gpusim.errors import LaunchRefused, UnsupportedFeature


def test_a_signature_gives_scalars_their_types_and_leaves_arrays_alone():
    a = np.zeros(3)
    array, whole, real = cast_scalars("k", "void(float64[:], int32, float32)", (a, 7, 0.5))
    assert array is a
    assert (type(whole), whole, type(real), real) == (np.int32, 7, np.float32, 0.5)


def test_an_integer_that_does_not_fit_wraps():
    assert cast_scalars("k", "void(int32)", (0xFFFFFFFF,)) == (-1,)


def test_no_signature_changes_nothing():
    assert cast_scalars("k", None, (1, 2.0)) == (1, 2.0)


@pytest.mark.parametrize("signature", ["(int32, float32)", ["void(int32, float32)"]])
def test_a_signature_without_a_return_type_and_a_list_are_read_too(signature):
    assert [str(t) for t in argument_types(signature)] == ["int32", "float32"]


def test_another_number_of_arguments_is_refused():
    with pytest.raises(LaunchRefused, match="its signature has 1 argument, 2 were given"):
        cast_scalars("k", "void(int32)", (1, 2))


def test_a_signature_that_numba_cannot_read_is_refused():
    with pytest.raises(UnsupportedFeature, match="nonsense"):
        cast_scalars("k", "void(nonsense)", (1,))


@cuda.jit("void(int32[:], int32)")
def leading_zeros(o, n):
    o[0] = cuda.clz(n)


@cuda.jit
def leading_zeros_of_int64(o, n):
    o[0] = cuda.clz(n)


def test_a_kernel_with_a_signature_counts_in_its_types():
    o = np.zeros(1, "i4")
    launch(leading_zeros, 1, 1, (o, 0x00100000), Device(get_arch("h200")))
    assert o[0] == 11
    launch(leading_zeros_of_int64, 1, 1, (o, 0x00100000), Device(get_arch("h200")))
    assert o[0] == 43


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_a_scalar_becomes_the_16_bit_float_of_a_signature_in_one_rounding(name):
    types = pytest.importorskip("numba.cuda.types")
    if not hasattr(types, name):
        pytest.skip("numba by itself has no 16-bit floats; numba-cuda has")
    just_above_a_tie = {"float16": 1 + 2.0**-11 + 2.0**-40, "bfloat16": 1 + 2.0**-8 + 2.0**-40}[name]
    (cast,) = cast_scalars("k", (getattr(types, name),), (just_above_a_tie,))
    assert cast.dtype.name == name and float(cast) == {"float16": 1 + 2.0**-10, "bfloat16": 1 + 2.0**-7}[name]
