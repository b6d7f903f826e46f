"""Arithmetic, comparisons and conversions of float16 and bfloat16 in kernels, in all three engines.

The reference is exact: fractions of Python, rounded once (dsl.warpir.formats.encode).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpusim
from dsl import cuda
from dsl.warpir.formats import FORMATS, encode
from gpusim.metrics import value

bfloat16, float8_e4m3fn, float8_e5m2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
HALVES = {"f16": np.float16, "bf16": bfloat16}
ALL = {**HALVES, "e4m3": float8_e4m3fn, "e5m2": float8_e5m2}
ENGINES = ("compiled", "ir", "oracle")


def bits(values: np.ndarray) -> np.ndarray:
    """Return an array's codes; all NaNs of a narrow type as one."""
    codes = values.view(f"u{values.dtype.itemsize}").copy()
    with np.errstate(invalid="ignore"):
        nan = np.isnan(values)
    codes[nan] = (1 << (8 * values.dtype.itemsize - 1)) - 1
    return codes


def run(kernel: Any, threads: int, *args: Any, engines: tuple[str, ...] = ENGINES) -> list[np.ndarray]:
    """Launch a kernel with each engine on copies; assert that all arrays end up the same; return them."""
    results = []
    for engine in engines:
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        with gpusim.profile(engine=engine):
            kernel[-(-threads // 256), 256](*given)
        results.append([a for a in given if isinstance(a, np.ndarray)])
    for engine, result in zip(engines, results, strict=True):
        for k, (first, other) in enumerate(zip(results[0], result, strict=True)):
            message = f"array {k}: {engines[0]} and {engine}"
            if first.dtype.kind in "iub":
                np.testing.assert_array_equal(first, other, err_msg=message)
            else:
                np.testing.assert_array_equal(bits(first), bits(other), err_msg=message)
    return results[0]


def codes(name: str) -> np.ndarray:
    """Return all numbers of a type."""
    form = FORMATS[name]
    return np.arange(1 << form.bits, dtype=f"u{form.bits // 8}").view(form.dtype)


def exactly(values: np.ndarray) -> np.ndarray:
    """Return narrow floats as float64."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def sample(name: str, count: int, seed: int) -> np.ndarray:
    """Return numbers of a type: any codes, and the edges among them."""
    form, rng = FORMATS[name], np.random.default_rng(seed)
    drawn = rng.integers(0, 1 << form.bits, count).astype(f"u{form.bits // 8}")
    edges = [0, 1, form.largest, form.overflow, 1 << form.mantissa, (1 << form.mantissa) - 1, form.nan]
    edges += [e | form.sign for e in edges]
    drawn[: len(edges) ** 2] = np.tile(edges, len(edges)) if seed % 2 else np.repeat(edges, len(edges))
    return drawn.view(form.dtype)


# conversions


@cuda.jit
def to_others(a, half, brain, single, double, whole, unsigned, flag):
    i = cuda.grid(1)
    if i < a.size:
        half[i] = np.float16(a[i])
        brain[i] = bfloat16(a[i])
        single[i] = np.float32(a[i])
        double[i] = np.float64(a[i])
        whole[i] = np.int32(a[i])
        unsigned[i] = np.uint64(a[i])
        flag[i] = bool(np.float32(a[i]))


def others(size: int) -> list[np.ndarray]:
    types = (np.float16, bfloat16, np.float32, np.float64, np.int32, np.uint64, np.bool_)
    return [np.zeros(size, t) for t in types]


@pytest.mark.parametrize("name", ALL)
def test_every_code_converts_to_every_other_type(name: str) -> None:
    a = codes(name)
    half, brain, single, double, whole, unsigned, flag = run(
        to_others, a.size, a, *others(a.size), engines=("compiled", "ir")
    )[1:]
    wanted = exactly(a)
    np.testing.assert_array_equal(exactly(single), wanted)
    np.testing.assert_array_equal(double, wanted)
    np.testing.assert_array_equal(bits(half), [encode(x, FORMATS["f16"]) for x in wanted.tolist()])
    np.testing.assert_array_equal(bits(brain), [encode(x, FORMATS["bf16"]) for x in wanted.tolist()])
    finite = np.trunc(np.nan_to_num(wanted, nan=0.0, posinf=1e30, neginf=-1e30))
    np.testing.assert_array_equal(whole, np.clip(finite, -(2.0**31), 2.0**31 - 1).astype(np.int32))
    assert unsigned[wanted == np.inf].tolist() in ([2**64 - 1], [])
    np.testing.assert_array_equal(flag, wanted != 0)
    some = a[:: max(1, a.size // 512)].copy()
    run(to_others, some.size, some, *others(some.size))


def tricky(name: str) -> np.ndarray:
    """Return float64 numbers near the ties between numbers of a type, at all sizes, and the edges."""
    form, rng = FORMATS[name], np.random.default_rng(5)
    lowest = -form.bias - form.mantissa - 1
    exponents = rng.integers(lowest, form.bias + 2, 1500) if name != "bf16" else rng.integers(-136, 128, 1500)
    steps = rng.integers(0, 1 << form.mantissa + 2, 1500) / (1 << form.mantissa + 1)
    x = np.ldexp(1 + steps, exponents) * rng.choice([-1.0, 1.0], 1500)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 464.0, 464.01, 65519.99, 65520.0, 61440.0, 61439.9]
    return np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf), edges])


@cuda.jit
def from_float(a, half, brain, e4m3, e5m2, full4, full5):
    i = cuda.grid(1)
    if i < a.size:
        half[i] = a[i]
        brain[i] = a[i]
        e4m3[i] = float8_e4m3fn(a[i])
        e5m2[i] = float8_e5m2(a[i])
        full4[i] = cuda.fp8.fp8_e4m3(a[i])
        full5[i] = cuda.fp8.fp8_e5m2(a[i])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("source", [np.float64, np.float32, np.float16, bfloat16])
def test_floats_are_rounded_once_to_nearest_even(name: str, source: Any) -> None:
    with np.errstate(all="ignore"):
        a = tricky(name).astype(source)
    outs = [np.zeros(a.size, t) for t in (*ALL.values(), float8_e4m3fn, float8_e5m2)]
    engines = ENGINES if source is np.float64 and name == "f16" else ("compiled", "ir")
    got = run(from_float, a.size, a, *outs, engines=engines)[1:]
    wanted = exactly(a).tolist()
    for values, target, saturate in zip(
        got, (*ALL, "e4m3", "e5m2"), (False, False, False, False, True, True), strict=True
    ):
        expected = [encode(x, FORMATS[target], saturate) for x in wanted]
        numbers = np.array(expected, f"u{values.itemsize}").view(values.dtype)
        np.testing.assert_array_equal(bits(values), bits(numbers), err_msg=target)


@cuda.jit
def from_whole(a, half, brain):
    i = cuda.grid(1)
    if i < a.size:
        half[i] = a[i]
        brain[i] = bfloat16(a[i])


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_whole_numbers_are_rounded_once(dtype: str) -> None:
    """2**60 + 2**52 + 1 lies just above a tie of bfloat16 that float64 would make of it."""
    drawn = np.random.default_rng(2).integers(-(2**63), 2**63 - 1, 500)
    near = [s * (2**e + 2 ** max(e - 8, 0) + d) for e in range(3, 62) for d in (-1, 0, 1) for s in (1, -1)]
    a = np.concatenate([np.array(near, np.int64), drawn >> np.arange(500) % 63]).astype(dtype)
    half, brain = run(from_whole, a.size, a, np.zeros(a.size, np.float16), np.zeros(a.size, bfloat16))[1:]
    for values, name in ((half, "f16"), (brain, "bf16")):
        wanted = [encode(int(x), FORMATS[name]) for x in a.tolist()]
        np.testing.assert_array_equal(values.view(np.uint16), wanted)


@cuda.jit
def constants(half, brain, e4m3, e5m2):
    half[0] = 1.0 + 2.0**-11 + 2.0**-40
    brain[0] = bfloat16(1.0 + 2.0**-8 + 2.0**-40)
    e4m3[0] = float8_e4m3fn(6.250491)
    e4m3[1] = cuda.fp8.fp8_e4m3(1000)
    e4m3[2] = float8_e4m3fn(1000)
    e5m2[0] = cuda.fp8.fp8_e5m2(-1e9)


def test_constants_are_rounded_once_too() -> None:
    half, brain, e4m3, e5m2 = run(
        constants, 1, np.zeros(1, np.float16), np.zeros(1, bfloat16), np.zeros(3, float8_e4m3fn),
        np.zeros(1, float8_e5m2),
    )  # fmt: skip
    assert float(half[0]) == 1 + 2.0**-10 and float(brain[0]) == 1 + 2.0**-7
    assert e4m3[:2].astype(float).tolist() == [6.5, 448.0] and np.isnan(e4m3[2])
    assert float(e5m2[0]) == -57344.0


# arithmetic


@cuda.jit
def operators(x, y, z, out, flags):
    i = cuda.grid(1)
    if i < x.size:
        a, b, c = x[i], y[i], z[i]
        out[0, i] = a + b
        out[1, i] = a - b
        out[2, i] = a * b
        out[3, i] = a / b
        out[4, i] = -a
        out[5, i] = abs(a)
        out[6, i] = max(a, b)
        out[7, i] = min(a, b)
        out[8, i] = a if c else b
        flags[0, i] = a < b
        flags[1, i] = a <= b
        flags[2, i] = a > b
        flags[3, i] = a >= b
        flags[4, i] = a == b
        flags[5, i] = a != b
        flags[6, i] = not a


def quotient(a: float, b: float) -> float | Fraction:
    """Return a / b exactly where both are finite and not zero, else by IEEE's rules."""
    if a and b and math.isfinite(a) and math.isfinite(b):
        return Fraction(a) / Fraction(b)
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def exact_fma(a: float, b: float, c: float) -> float | Fraction:
    if all(map(math.isfinite, (a, b, c))) and (total := Fraction(a) * Fraction(b) + Fraction(c)):
        return total
    return a * b + c


@pytest.mark.parametrize("name", HALVES)
def test_each_operation_is_exact_and_rounded_once(name: str) -> None:
    form, count = FORMATS[name], 3000
    x, y, z = (sample(name, count, seed) for seed in (1, 2, 3))
    out, flags = np.zeros((9, count), form.dtype), np.zeros((7, count), bool)
    got, compared = run(operators, count, x, y, z, out, flags)[3:]
    triples = list(zip(*(exactly(v).tolist() for v in (x, y, z)), strict=True))

    def rounded(row: int, f: Any) -> None:
        wanted = [encode(f(a, b, c), form) for a, b, c in triples]
        np.testing.assert_array_equal(bits(got[row]), wanted, err_msg=str(row))

    rounded(0, lambda a, b, c: Fraction(a) + Fraction(b) if math.isfinite(a + b) and a + b else a + b)
    rounded(1, lambda a, b, c: Fraction(a) - Fraction(b) if math.isfinite(a - b) and a - b else a - b)
    rounded(2, lambda a, b, c: a * b)
    rounded(3, lambda a, b, c: quotient(a, b))
    rounded(4, lambda a, b, c: -a)
    rounded(5, lambda a, b, c: abs(a))
    rounded(6, lambda a, b, c: b if a != a else a if b != b or a > b else b)
    rounded(7, lambda a, b, c: b if a != a else a if b != b or a < b else b)
    rounded(8, lambda a, b, c: a if c else b)
    a, b = exactly(x), exactly(y)
    np.testing.assert_array_equal(compared, [a < b, a <= b, a > b, a >= b, a == b, a != b, a == 0])


@cuda.jit
def fused16(x, y, z, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = cuda.fp16.hfma(x[i], y[i], z[i])


@cuda.jit
def fused_brain(x, y, z, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = cuda.bf16.hfma(x[i], y[i], z[i])


FUSED = {"f16": fused16, "bf16": fused_brain}


def near_ties(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return factors and addends whose exact sum lies a tiny bit beside a tie of the type."""
    form, rng = FORMATS[name], np.random.default_rng(9)
    one = 1 << form.mantissa
    odd = rng.integers(0, one // 2, 2000) * 2 + 1 + one  # a significand of mantissa + 1 bits
    c = np.ldexp(odd.astype(float), 4)  # its last bit is worth 16
    half_a_step = np.ldexp(1.0, 3)  # a product of 8, and a little less or more of it in the last place
    a = np.full(2000, 1 + 2.0**-form.mantissa) * rng.choice([-1, 1], 2000)
    b = half_a_step * (1 - rng.choice([0, 1, 2], 2000) * 2.0**-form.mantissa)
    return a.astype(form.dtype), b.astype(form.dtype), c.astype(form.dtype)


@pytest.mark.parametrize("name", HALVES)
def test_a_fused_multiply_add_rounds_once(name: str) -> None:
    form = FORMATS[name]
    drawn = [np.concatenate(pair) for pair in zip(
        [sample(name, 3000, seed) for seed in (4, 5, 6)], near_ties(name), strict=True)]
    x, y, z, got = run(FUSED[name], drawn[0].size, *drawn, np.zeros(drawn[0].size, form.dtype))
    triples = zip(*(exactly(v).tolist() for v in (x, y, z)), strict=True)
    np.testing.assert_array_equal(bits(got), [encode(exact_fma(*t), form) for t in triples])


@pytest.mark.parametrize(
    ("name", "a", "b", "c", "once", "twice"),
    [
        # The sum is 1 + 2^-10 + 2^-11 - 2^-31, below a tie; float32 drops the 2^-31.
        ("f16", 1 + 2.0**-10, (1 - 2.0**-10) * 2.0**-11, 1 + 2.0**-10, 1 + 2.0**-10, 1 + 2.0**-9),
        # 7 x 37 / 256 = 259 / 256 is a tie between 258 and 260; float32 drops the 2^-30, float64 the 2^-70.
        ("bf16", 7.0, 37 / 256, -(2.0**-30), 258 / 256, 260 / 256),
        ("bf16", 7.0, 37 / 256, -(2.0**-70), 258 / 256, 260 / 256),
    ],
)
def test_a_fused_multiply_add_beside_a_tie_is_not_rounded_by_way_of_a_wider_type(
    name: str, a: float, b: float, c: float, once: float, twice: float
) -> None:
    dtype = HALVES[name]
    x, y, z = (np.array([v], dtype) for v in (a, b, c))
    assert [float(v[0]) for v in (x, y, z)] == [a, b, c]
    assert float(np.float32(np.float64(a) * np.float64(b) + np.float64(c)).astype(dtype)) == twice
    got = run(FUSED[name], 1, x, y, z, np.zeros(1, dtype))[3]
    assert float(got[0]) == once


@cuda.jit
def nan_to_whole(x, a, b, c, d):
    i = cuda.grid(1)
    a[i] = np.int32(x[i])
    b[i] = np.uint32(x[i])
    c[i] = np.int64(x[i])
    d[i] = np.uint64(x[i])


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32, np.float64])
def test_nan_becomes_zero_and_of_float64_or_in_64_bits_the_highest_bit(dtype: Any) -> None:
    """PTX 9.0 says so, and an H200 of float16 to int64 (h200 fact 41)."""
    x = np.full(256, np.nan, dtype)
    got = run(nan_to_whole, 256, x, *(np.zeros(256, t) for t in ("i4", "u4", "i8", "u8")))[1:]
    small = [-(1 << 31), 1 << 31] if dtype is np.float64 else [0, 0]
    assert [int(v[0]) for v in got] == [*small, -(1 << 63), 1 << 63]


@cuda.jit
def to_small(x, a, b, c, d):
    i = cuda.grid(1)
    a[i] = np.int8(x[i])
    b[i] = np.uint8(x[i])
    c[i] = np.int16(x[i])
    d[i] = x[i]


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32, np.float64])
def test_floats_saturate_at_the_width_of_small_integers_too(dtype: Any) -> None:
    x = np.resize(np.array([40000, -40000, 300, -300, np.nan, np.inf, -np.inf, 5.75], dtype), 256)
    got = run(to_small, 256, x, *(np.zeros(256, t) for t in ("i1", "u1", "i2", "u2")))[1:]
    large = [int(x[0]), int(x[2])]
    nan = [-128, 255, -32768, 65535] if dtype is np.float64 else [0, 0, 0, 0]
    assert [v[:8].tolist() for v in got] == [
        [127, -128, 127, -128, nan[0], 127, -128, 5],
        [255, 0, 255, 0, nan[1], 255, 0, 5],
        [32767, -32768, large[1], -large[1], nan[2], 32767, -32768, 5],
        [large[0], 0, large[1], 0, nan[3], 65535, 0, 5],
    ]


@cuda.jit
def ways_to_bfloat16(f, i, u, w, out, back, short):
    k = cuda.grid(1)
    b = cuda.bf16
    if k < f.size:
        out[0, k] = b.float32_to_bfloat16_rz(f[k])
        out[1, k] = b.float32_to_bfloat16_rd(f[k])
        out[2, k] = b.float2bfloat16_ru(f[k])
        out[3, k] = b.int32_to_bfloat16_rz(i[k])
        out[4, k] = b.int32_to_bfloat16_rd(i[k])
        out[5, k] = b.int2bfloat16_ru(i[k])
        out[6, k] = b.uint64_to_bfloat16_ru(u[k])
        out[7, k] = b.ull2bfloat16_rz(u[k])
        out[8, k] = b.int64_to_bfloat16_rd(w[k])
        out[9, k] = b.int16_as_bfloat16(np.int16(i[k] & 0x7F7F))
        x = cuda.bf16.bfloat16(f[k])
        back[0, k] = b.bfloat16_to_int32_rn(x)
        back[1, k] = b.bfloat16_to_int32_rz(x)
        back[2, k] = b.bfloat162int_rd(x)
        back[3, k] = b.bfloat16_to_int32_ru(x)
        short[k] = b.bfloat16_as_int16(x)


def test_bfloat16_rounds_to_every_side_as_the_name_says() -> None:
    form, rng, size = FORMATS["bf16"], np.random.default_rng(8), 1500
    f = np.ldexp(rng.integers(-70000, 70000, size) / 256, rng.integers(-150, 120, size)).astype(np.float32)
    f[:9] = [0, -0.0, np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38, 1e-45, -1e-45]
    w = rng.integers(-(2**63), 2**63 - 1, size) >> (np.arange(size) % 63)
    w[:4] = [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1]
    i, u = (w >> 32).astype(np.int32), w.astype(np.uint64)
    outs = np.zeros((10, size), bfloat16), np.zeros((4, size), np.int32), np.zeros(size, np.int16)
    out, back, short = run(ways_to_bfloat16, size, f, i, u, w, *outs)[4:]
    for row, (x, way) in enumerate([
        (f, "rz"), (f, "rd"), (f, "ru"), (i, "rz"), (i, "rd"), (i, "ru"), (u, "ru"), (u, "rz"), (w, "rd"),
    ]):  # fmt: skip
        wanted = [encode(v, form, rounding=way) for v in x.tolist()]
        np.testing.assert_array_equal(bits(out[row]), wanted, err_msg=f"row {row} {way}")
    np.testing.assert_array_equal(out[9].view(np.int16), i & 0x7F7F)
    x = exactly(f.astype(bfloat16))
    for row, whole in enumerate((np.rint, np.trunc, np.floor, np.ceil)):
        wanted = np.clip(np.nan_to_num(whole(x), nan=0.0), -(2.0**31), 2.0**31 - 1).astype(np.int32)
        np.testing.assert_array_equal(back[row], wanted)
    kept = ~np.isnan(x)
    np.testing.assert_array_equal(short[kept], f.astype(bfloat16).view(np.int16)[kept])


# functions, types and spellings


@cuda.jit
def of_math(x, out, wide):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = math.exp(x[i])
        out[1, i] = math.sqrt(x[i])
        out[2, i] = math.floor(x[i])
        out[3, i] = math.log2(x[i])
        out[4, i] = cuda.fp16.hexp10(x[i])
        out[5, i] = math.fabs(x[i])
        wide[0, i] = math.tanh(x[i])
        wide[1, i] = x[i] * x[i] + np.float32(0.5)
        wide[2, i] = cuda.fma(x[i], x[i], x[i])
        wide[3, i] = math.fmod(x[i], np.float16(3))
        wide[4, i] = x[i] ** 3
        wide[5, i] = 1.5 * x[i]


def test_functions_of_math_keep_float16_where_numba_has_them() -> None:
    x = sample("f16", 600, 7)
    x[~np.isfinite(x)] = 0.5
    _, out, wide = run(of_math, 600, x, np.zeros((6, 600), np.float16), np.zeros((6, 600), np.float32))
    exact = exactly(x)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out[0], np.exp(exact).astype(np.float16))
        np.testing.assert_array_equal(out[1], np.sqrt(exact).astype(np.float16))
        np.testing.assert_array_equal(out[3], np.log2(exact).astype(np.float16))
        np.testing.assert_allclose(wide[0], np.tanh(exact), rtol=1e-6)
        np.testing.assert_array_equal(wide[2], (exact * exact + exact).astype(np.float32))
        np.testing.assert_array_equal(wide[5], (1.5 * exact).astype(np.float32))
    np.testing.assert_array_equal(out[2], np.floor(exact))
    np.testing.assert_array_equal(out[5], np.abs(exact))


@cuda.jit
def mixed(half, brain, small, out):
    i = cuda.grid(1)
    if i < half.size:
        out[0, i] = half[i] + small[i]  # float16 + int8 is float16
        out[1, i] = half[i] + i  # + int64 is float64
        out[2, i] = half[i] * brain[i]  # float16 * bfloat16 is float32
        out[3, i] = brain[i] + small[i]  # bfloat16 + int8 is bfloat16
        out[4, i] = half[i] + np.float32(2.0**-12)
        out[5, i] = 2.0 if half[i] < brain[i] else 3.0


def test_operators_of_two_types_have_numbas_result_types() -> None:
    half, brain = np.full(4, 2048.0, np.float16), np.full(4, 256.0, bfloat16)
    out = run(mixed, 4, half, brain, np.ones(4, np.int8), np.zeros((6, 4)))[3]
    assert out[0].tolist() == [2048.0] * 4  # 2049 is a tie in float16
    assert out[1].tolist() == [2048.0, 2049.0, 2050.0, 2051.0]
    assert out[2].tolist() == [2048.0 * 256.0] * 4
    assert out[3].tolist() == [256.0] * 4  # 257 is a tie in bfloat16
    assert out[4].tolist() == [2048.0 + 2.0**-12] * 4
    assert out[5].tolist() == [3.0] * 4


@cuda.jit
def variants(x, y, z, out, flags, whole):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = cuda.bf16.hadd_sat(x[i], y[i])
        out[1, i] = cuda.bf16.hfma_relu(x[i], y[i], z[i])
        out[2, i] = cuda.bf16.hmax_nan(x[i], y[i])
        out[3, i] = cuda.bf16.hmin_nan(x[i], y[i])
        out[4, i] = cuda.bf16.hmax(x[i], y[i])
        out[5, i] = cuda.bf16.float32_to_bfloat16(np.float32(1) + i)
        out[6, i] = cuda.bf16.int32_to_bfloat16_rn(i * 12345)
        out[7, i] = cuda.bf16.hadd_rn(cuda.bf16.hmul_rn(x[i], y[i]), z[i])
        flags[0, i] = cuda.bf16.hisnan(x[i])
        flags[1, i] = cuda.bf16.hlt(x[i], y[i])
        flags[2, i] = cuda.bf16.hne(x[i], y[i])
        flags[3, i] = cuda.bf16.hneu(x[i], y[i])
        flags[4, i] = cuda.bf16.hequ(x[i], y[i])
        flags[5, i] = cuda.bf16.hltu(x[i], y[i])
        flags[6, i] = x[i] != y[i]
        whole[0, i] = cuda.bf16.hisinf(x[i])
        whole[1, i] = cuda.bf16.bfloat16_to_int16_rz(x[i])


def test_the_variants_of_bfloat16_saturate_and_treat_nan_as_named() -> None:
    x, y, z = (sample("bf16", 800, seed) for seed in (11, 12, 13))
    outs = np.zeros((8, 800), bfloat16), np.zeros((7, 800), bool), np.zeros((2, 800), "i4")
    out, flags, whole = run(variants, 800, x, y, z, *outs)[3:]
    a, b, c = map(exactly, (x, y, z))
    nan = np.isnan(a) | np.isnan(b)
    with np.errstate(all="ignore"):
        total = exactly((np.float32(a) + np.float32(b)).astype(bfloat16))
    wanted = np.where(np.isnan(total), 0.0, np.clip(np.nan_to_num(total, posinf=1.0, neginf=0.0), 0.0, 1.0))
    np.testing.assert_array_equal(exactly(out[0]), wanted)
    assert not (exactly(out[1]) < 0).any() and np.isnan(exactly(out[1])).any()
    np.testing.assert_array_equal(np.isnan(exactly(out[2])), nan)
    np.testing.assert_array_equal(exactly(out[2])[~nan], np.maximum(a, b)[~nan])
    np.testing.assert_array_equal(exactly(out[4]), np.fmax(a, b))
    differ = [(a != b) & ~nan, a != b, (a == b) | nan, (a < b) | nan, a != b]
    np.testing.assert_array_equal(flags, [np.isnan(a), a < b, *differ])
    np.testing.assert_array_equal(whole[0], np.where(np.isinf(a), np.sign(a), 0))


@cuda.jit
def fused_or_not(x, y, z, out):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = x[i] * y[i] + z[i]
        out[1, i] = cuda.bf16.hadd_rn(cuda.bf16.hmul_rn(x[i], y[i]), z[i])


def test_a_product_and_a_sum_contract_as_on_the_card_unless_both_round() -> None:
    x, y, z = np.full(32, 7, bfloat16), np.full(32, 37 / 256, bfloat16), np.full(32, -(2.0**-30), bfloat16)
    out = np.zeros((2, 32), bfloat16)
    with gpusim.profile() as session:
        fused_or_not[1, 32](x, y, z, out)
    assert out[:, 0].astype(float).tolist() == [258 / 256, 260 / 256]
    counted = session.reports[0].counters.arithmetic
    assert (counted.hfma, counted.hmul, counted.hadd, counted.hadd_cvt) == (32, 32, 32, 0)


@cuda.jit
def half_dot(x, y, out):
    i = cuda.grid(1)
    total = np.float32(0)
    for k in range(8):
        total += np.float32(x[i, k]) * np.float32(y[i, k])
    out[i] = total


def test_float32_accumulation_of_halves_is_ffma_and_conversions_are_no_flops() -> None:
    x = np.ones((32, 8), np.float16)
    with gpusim.profile() as session:
        half_dot[1, 32](x, x, np.zeros(32, np.float16))
    launch = session.reports[0]
    counted = launch.counters.arithmetic
    assert (counted.ffma, counted.hadd, counted.hadd_cvt, counted.hfma) == (256, 0, 512, 0)
    assert value(launch, "gpusim__fp16_flops.sum") == 0 and value(launch, "gpusim__fp32_flops.sum") == 512
    assert value(launch, "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum") == 512


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_numbas_own_bindings_mean_the_same(name: str) -> None:
    module = pytest.importorskip(f"numba.cuda.{name}")
    hadd, hfma = module.hadd, module.hfma

    @cuda.jit
    def bound(x, out):
        i = cuda.grid(1)
        out[i] = hfma(x[i], module.hadd(x[i], x[i]), hadd(x[i], x[i]))

    dtype = np.float16 if name == "fp16" else bfloat16
    x = np.arange(1, 257).astype(dtype)
    out = run(bound, 256, x, np.zeros(256, dtype))[1]
    exact = exactly(x)
    with np.errstate(over="ignore"):
        rounded = (2 * exact * exact + 2 * exact).astype(dtype)
    np.testing.assert_array_equal(exactly(out), exactly(rounded))


def test_a_type_of_numbas_converts_and_names_an_array() -> None:
    numbas = getattr(pytest.importorskip("numba.cuda.types"), "bfloat16", None)
    if numbas is None:
        pytest.skip("numba by itself has no bfloat16; numba-cuda has")

    @cuda.jit
    def typed(x, out):
        tile = cuda.shared.array(256, numbas)
        i = cuda.threadIdx.x
        tile[i] = numbas(x[i])
        out[i] = tile[i] + cuda.bf16.bfloat16(x[i])

    x = np.arange(256, dtype=np.float32)
    out = run(typed, 256, x, np.zeros(256, np.float32))[1]
    np.testing.assert_array_equal(out, exactly((2 * exactly(x.astype(bfloat16))).astype(bfloat16)))
