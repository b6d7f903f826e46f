"""The conversions of `ptx`: registers of two 16- or 8-bit numbers, in all three engines."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpusim
from dsl import cuda, ptx
from dsl.warpir.formats import FORMATS, decode, encode
from gpusim.errors import UnsupportedFeature
from tests.dsl.test_half import bits, run, sample

COUNT = 1024


@cuda.jit
def packed_of_float32(a, b, f16, bf16, e4m3, e5m2, tf32, power):
    i = cuda.grid(1)
    f16[i] = ptx.cvt_rn_f16x2_f32(a[i], b[i])
    bf16[i] = ptx.cvt_rn_bf16x2_f32(a[i], b[i])
    e4m3[i] = ptx.cvt_rn_satfinite_e4m3x2_f32(a[i], b[i])
    e5m2[i] = ptx.cvt_rn_satfinite_e5m2x2_f32(a[i], b[i])
    tf32[i] = ptx.cvt_rna_tf32_f32(a[i])
    power[i] = ptx.ex2_approx_ftz_f32(b[i])


def floats(seed: int) -> np.ndarray:
    """Return float32 numbers of the sizes that the types hold, the edges among them."""
    rng = np.random.default_rng(seed)
    x = np.ldexp(rng.integers(-4096, 4096, COUNT) / 2048, rng.integers(-20, 18, COUNT)).astype(np.float32)
    x[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 464.0, 1e9, -1000.0]
    return np.roll(x, seed)


def test_the_first_of_two_float32_goes_to_the_upper_half() -> None:
    a, b = floats(1), floats(2)
    outs = [np.zeros(COUNT, t) for t in ("u4", "u4", "u2", "u2", "u4", "f4")]
    f16, bf16, e4m3, e5m2, tf32, power = run(packed_of_float32, COUNT, a, b, *outs)[2:]
    for found, name in ((f16, "f16"), (bf16, "bf16"), (e4m3, "e4m3"), (e5m2, "e5m2")):
        form = FORMATS[name]
        upper, lower = ([encode(x, form, form.bits == 8) for x in v.tolist()] for v in (a, b))
        wanted = [x << form.bits | y for x, y in zip(upper, lower, strict=True)]
        np.testing.assert_array_equal(found, wanted, err_msg=name)
    codes = a.view(np.uint32)
    finite = np.isfinite(a)
    np.testing.assert_array_equal(tf32[finite], (codes[finite].astype(np.uint64) + 0x1000) & 0xFFFFE000)
    np.testing.assert_array_equal(tf32[~finite], codes[~finite])
    with np.errstate(all="ignore"):
        exact = np.exp2(b.astype(np.float64))
    ordinary = np.isfinite(b) & (exact >= 2.0**-126) & (exact < 3e38)
    np.testing.assert_allclose(power[ordinary], exact[ordinary], rtol=2e-7)
    assert (power[np.isfinite(b) & (exact < 2.0**-126)] == 0).all()


@cuda.jit
def taken_apart(x, y, low, high, joined, e4m3, e5m2, back4, back5):
    i = cuda.grid(1)
    word = ptx.mov_b32(x[i], y[i])
    joined[i] = word
    low[i], high[i] = ptx.mov_b32_f16x2(word)
    e4m3[i] = ptx.cvt_rn_satfinite_e4m3x2_f16x2(word)
    e5m2[i] = ptx.cvt_rn_satfinite_e5m2x2_f16x2(word)
    back4[i] = ptx.cvt_rn_f16x2_e4m3x2(e4m3[i])
    back5[i] = ptx.cvt_rn_f16x2_e5m2x2(e5m2[i])


def test_mov_b32_names_the_lower_half_first_and_pairs_of_8_bits_become_pairs_of_16() -> None:
    x, y = sample("f16", COUNT, 1), sample("f16", COUNT, 2)
    for v in (x, y):  # the one NaN that all engines give
        v[np.isnan(v)] = np.array(0x7FFF, np.uint16).view(np.float16)
    outs = [np.zeros(COUNT, t) for t in ("f2", "f2", "u4", "u2", "u2", "u4", "u4")]
    low, high, joined, e4m3, e5m2, back4, back5 = run(taken_apart, COUNT, x, y, *outs)[2:]
    np.testing.assert_array_equal(bits(low), bits(x))
    np.testing.assert_array_equal(bits(high), bits(y))
    np.testing.assert_array_equal(joined, bits(x).astype(np.uint32) | bits(y).astype(np.uint32) << 16)
    for packed, back, name in ((e4m3, back4, "e4m3"), (e5m2, back5, "e5m2")):
        form, halves = FORMATS[name], zip(x.tolist(), y.tolist(), strict=True)
        wanted = [encode(a, form, True) | encode(b, form, True) << 8 for a, b in halves]
        np.testing.assert_array_equal(packed, wanted)
        lower, upper = (
            [encode(decode(p >> shift & 0xFF, form), FORMATS["f16"]) for p in wanted] for shift in (0, 8)
        )
        again = [p | q << 16 for p, q in zip(lower, upper, strict=True)]
        np.testing.assert_array_equal(back, again)


@cuda.jit
def pairs_of_bfloat16(x, out):
    i = cuda.grid(1)
    low, high = ptx.mov_b32_bf16x2(ptx.mov_b32(x[i], x[i] + x[i]))
    out[i] = high - low


def test_a_register_holds_two_bfloat16_too() -> None:
    x = np.arange(256).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(run(pairs_of_bfloat16, 256, x, np.zeros_like(x))[1], x)


@cuda.jit
def converted(a, out):
    i = cuda.grid(1)
    x = a[i]
    out[i] = ptx.cvt_rn_satfinite_e4m3x2_f32(x, x)


@cuda.jit
def copied(a, out):
    i = cuda.grid(1)
    x = a[i]
    out[i] = x


def test_a_packed_conversion_is_one_instruction_and_none_of_xu() -> None:
    counted = []
    for kernel, dtype in ((converted, np.uint16), (copied, np.float32)):
        with gpusim.profile() as session:
            kernel[1, 32](np.ones(32, np.float32), np.zeros(32, dtype))
        counted.append(session.reports[0].counters.arithmetic)
    assert counted[0].integer - counted[1].integer == 32
    assert (counted[0].xu_warps, counted[0].hadd_cvt) == (0, 0)


@cuda.jit
def of_float64(x, out):
    out[0] = ptx.cvt_rn_f16x2_f32(x[0], 0.5)


@cuda.jit
def of_two_types(x, out):
    out[0] = ptx.mov_b32(np.float16(x[0]), ml_dtypes.bfloat16(x[0]))


@pytest.mark.parametrize(
    ("kernel", "what"),
    [
        (of_float64, "the b of ptx.cvt_rn_f16x2_f32 is float64; give a float32"),
        (of_two_types, "ptx.mov_b32 of float16 and bfloat16; give two float16 or two bfloat16"),
    ],
)
def test_other_types_are_refused_by_name(kernel: Any, what: str) -> None:
    with pytest.raises(UnsupportedFeature, match=what):
        kernel[1, 1](np.ones(1, np.float32), np.zeros(1, np.uint32))
