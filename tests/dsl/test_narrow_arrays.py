"""float16, bfloat16 and the 8-bit floats in global, shared and local arrays: bytes, bits and requests."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpusim
from dsl import cuda
from gpusim.errors import UnsupportedFeature
from tests.dsl.engine_support import assert_equal, both

TYPES = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
bfloat16, float8_e4m3fn = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def codes(dtype: Any) -> np.ndarray:
    """Return 2,048 codes of a type, spread over all of them."""
    bits = 8 * np.dtype(dtype).itemsize
    return (np.arange(2048) * ((1 << bits) // 256 + 1) % (1 << bits)).astype(f"u{bits // 8}").view(dtype)


@cuda.jit
def through_every_space(a, scalar, out):
    t = cuda.threadIdx.x
    tile = cuda.shared.array((32, 64), a.dtype)
    own = cuda.local.array(4, a.dtype)
    for i in range(32):
        tile[i, t] = a[i * 64 + t]
    own[t & 3] = scalar
    cuda.syncthreads()
    for i in range(31):
        out[i * 64 + t] = tile[i + 1, 63 - t] if t < 60 else own[t & 3]
    out[31 * 64 + t] = scalar


@pytest.mark.parametrize("dtype", TYPES)
def test_loads_and_stores_keep_every_bit(dtype: Any) -> None:
    a, out = codes(dtype), np.zeros(2048, dtype)
    with gpusim.profile(engine="compiled") as session:
        through_every_space[1, 64](a, dtype(1.5), out)
    rows, got = a.view(f"u{a.itemsize}").reshape(32, 64), out.view(f"u{a.itemsize}").reshape(32, 64)
    np.testing.assert_array_equal(got[:31, :60], rows[1:, :3:-1])
    assert (out.reshape(32, 64)[:31, 60:] == dtype(1.5)).all() and (out[31 * 64 :] == dtype(1.5)).all()
    counted = session.reports[0].counters
    assert counted.global_load.bytes == 2048 * a.itemsize and counted.global_load.requests == 64
    assert counted.global_load.sectors == 2048 * a.itemsize // 32
    assert_equal(*both(through_every_space, (1, 1, 1), (64, 1, 1), (a, dtype(1.5), np.zeros(2048, dtype))))


@pytest.mark.parametrize("dtype", TYPES)
def test_the_python_oracle_stores_the_same_numbers(dtype: Any) -> None:
    results = []
    for engine in ("compiled", "ir", "oracle"):
        out = np.zeros(2048, dtype)
        with gpusim.profile(engine=engine):
            through_every_space[1, 64](codes(dtype), dtype(1.5), out)
        results.append(out.astype(np.float32))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@cuda.jit
def tile_of_bfloat16(out):
    tile = cuda.shared.array((64, 64), bfloat16)
    t = cuda.threadIdx.x
    for i in range(64):
        tile[i, t] = out[i, t]
    cuda.syncthreads()
    for i in range(64):
        out[i, t] = tile[t, i]


def test_a_bfloat16_tile_of_64_by_64_takes_8192_bytes_of_shared_memory() -> None:
    out = np.arange(4096, dtype=np.float32).reshape(64, 64).astype(bfloat16)
    wanted = out.T.copy()
    with gpusim.profile() as session:
        tile_of_bfloat16[1, 64](out)
    assert session.reports[0].static_shared_bytes == 8192
    np.testing.assert_array_equal(out, wanted)
    # A row is 128 bytes, so 32 lanes of a column lie in one bank: 32 wavefronts for each of 128 loads.
    assert session.reports[0].counters.shared_load.wavefronts == 128 * 32
    # Two neighbours share a bank's word: 32 lanes of 2 bytes are 16 words.
    assert session.reports[0].counters.shared_store.wavefronts == 128


def test_device_arrays_hold_narrow_floats() -> None:
    device = cuda.to_device(np.array([1.5, -2], bfloat16))
    assert device.dtype == bfloat16 and device.nbytes == 4
    assert device.copy_to_host().astype(float).tolist() == [1.5, -2.0]


@cuda.jit
def add(a, out):
    out[0] = a[0] + a[1]


@cuda.jit
def add_a_number(a, out):
    out[0] = a[0] * np.float32(2)


@cuda.jit
def negate(a, out):
    out[0] = -a[0]


@cuda.jit
def compare(a, out):
    out[0] = a[0] if a[0] < a[1] else a[1]


@cuda.jit
def store_a_float32(a, out):
    out[0] = np.float32(a.size)


@cuda.jit
def store_a_constant(a, out):
    out[0] = 1000.0


@pytest.mark.parametrize(
    ("kernel", "what"),
    [
        (add, "a float8_e4m3fn where a float32 is needed; convert it first"),
        (add_a_number, "a float8_e4m3fn where a float32 is needed; convert it first"),
        (negate, "arithmetic of float8_e4m3fn; convert it first"),
        (compare, "a float8_e4m3fn where a float32 is needed; convert it first"),
        (store_a_float32, "a float32 where a float8_e4m3fn is needed; say how it overflows: cuda.fp8"),
        (store_a_constant, "a float64 where a float8_e4m3fn is needed; say how it overflows: cuda.fp8"),
    ],
)
def test_8_bit_floats_neither_compute_nor_convert_unless_the_kernel_says_so(kernel: Any, what: str) -> None:
    with pytest.raises(UnsupportedFeature, match=rf"test_narrow_arrays.py:\d+: in \w+: {what}"):
        kernel[1, 1](np.ones(2, float8_e4m3fn), np.ones(2, float8_e4m3fn))
    with gpusim.profile(engine="oracle"), pytest.raises((TypeError, UnsupportedFeature)):
        kernel[1, 1](np.ones(2, float8_e4m3fn), np.ones(2, float8_e4m3fn))
