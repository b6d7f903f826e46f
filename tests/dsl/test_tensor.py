"""mma.sync: the layout of fragments, the card's own bits, and what it needs and is counted as."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from numpy import float32

from dsl import cuda, ptx
from dsl.host.device import Device
from dsl.host.launch import Dispatcher, launch
from dsl.llvm import tensor_sum
from dsl.semantics import fragments, matrix_ops
from dsl.warpir.tensor import PARTS
from gpusim.arch import A100, H200
from gpusim.errors import KernelMistake, LaunchRefused, UserError, WarpDivergence
from tests.dsl.three_engines import agreed

MEASURED = np.load(Path(__file__).parents[1] / "data" / "h200_mma.npz")
SAME = {
    "f16": ptx.mma_sync_m16n8k16_f32_f16,
    "bf16": ptx.mma_sync_m16n8k16_f32_bf16,
    "tf32": ptx.mma_sync_m16n8k8_f32_tf32,
    "e4m3": ptx.mma_sync_m16n8k32_f32_e4m3,
    "e5m2": ptx.mma_sync_m16n8k32_f32_e5m2,
}
MIXED = {
    ("e4m3", "e5m2"): ptx.mma_sync_m16n8k32_f32_e4m3_e5m2,
    ("e5m2", "e4m3"): ptx.mma_sync_m16n8k32_f32_e5m2_e4m3,
}
ENGINES = ("compiled", "ir", "oracle")


def _multiply(ab, c, d):
    i, lane = cuda.blockIdx.x, cuda.threadIdx.x
    a = (ab[i, lane, 0], ab[i, lane, 1], ab[i, lane, 2], ab[i, lane, 3])
    old = (c[i, lane, 0], c[i, lane, 1], c[i, lane, 2], c[i, lane, 3])
    new = mma(a, (ab[i, lane, 4], ab[i, lane, 5]), old)  # noqa: F821
    for k in range(4):
        d[i, lane, k] = new[0] if k == 0 else new[1] if k == 1 else new[2] if k == 2 else new[3]


def multiply(mma: Any) -> Dispatcher:
    """Return the kernel that runs one mma a block."""
    names = {**_multiply.__globals__, "mma": mma}
    return cuda.jit(FunctionType(_multiply.__code__, names, "multiply"))


def run(mma: Any, ab: np.ndarray, c: np.ndarray, engine: str = "compiled") -> np.ndarray:
    """Return d, of the shape of c: (blocks, 32, 4)."""
    d = np.zeros_like(c)
    launch(multiply(mma), len(c), 32, (ab, c, d), Device(H200), engine=engine)
    return d


def same_bits(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return where two float32 arrays agree; any NaN equals any NaN."""
    return (x.view(np.uint32) == y.view(np.uint32)) | (np.isnan(x) & np.isnan(y))


@pytest.fixture(params=[8, 16])
def lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many accumulators a vector of the code holds: 8 on any CPU, 16 with AVX-512."""
    if request.param == 16 and not tensor_sum.host_has_avx512():
        pytest.skip("this CPU has no AVX-512")
    monkeypatch.setattr(tensor_sum, "host_has_avx512", lambda: request.param == 16)
    return int(request.param)


# ------------------------------------------------------------------------------------------ layout


def test_lane_5_of_an_m16n8k16_holds_row_1_and_columns_2_3_10_11_of_a():
    # PTX ISA: group 5 / 4 = 1, thread 5 % 4 = 1 of the group; a0 a1 | a2 a3 | a4 a5 | a6 a7.
    expected = [((1, 2), 0, 0), ((1, 3), 0, 1), ((9, 2), 1, 0), ((1, 10), 2, 0), ((9, 11), 3, 1)]
    for (row, k), register, part in expected:
        assert fragments.place_in_a(row, k, "f16") == (5, register, part)


def test_lane_5_of_an_m16n8k16_holds_column_1_and_rows_2_3_10_11_of_b():
    for k, register, part in ((2, 0, 0), (3, 0, 1), (10, 1, 0), (11, 1, 1)):
        assert fragments.place_in_b(k, 1, "bf16") == (5, register, part)


def test_lane_5_holds_columns_2_and_3_of_rows_1_and_9_of_the_accumulators():
    places = [fragments.place_in_c(row, column) for row in (1, 9) for column in (2, 3)]
    assert places == [(5, 0, 0), (5, 1, 0), (5, 2, 0), (5, 3, 0)]


def test_a_tf32_fragment_has_a_column_a_lane_and_the_second_four_behind_both_halves_of_the_rows():
    # PTX ISA, m16n8k8: a0 (g, t), a1 (g + 8, t), a2 (g, t + 4), a3 (g + 8, t + 4).
    places = [fragments.place_in_a(row, k, "tf32") for row, k in ((2, 3), (10, 3), (2, 7), (10, 7))]
    assert places == [(11, 0, 0), (11, 1, 0), (11, 2, 0), (11, 3, 0)]


def test_an_fp8_fragment_packs_four_columns_a_register():
    # PTX ISA, m16n8k32: a0..a3 row g, columns 4 t .. 4 t + 3; a8.. columns 4 t + 16 onwards.
    places = [fragments.place_in_a(0, k, "e4m3") for k in (0, 3, 4, 16, 31)]
    assert places == [(0, 0, 0), (0, 0, 3), (1, 0, 0), (0, 2, 0), (3, 2, 3)]


@pytest.mark.parametrize("type_", PARTS)
def test_every_place_of_a_fragment_holds_one_element(type_):
    depth = 8 * PARTS[type_]
    a = {fragments.place_in_a(row, k, type_) for row in range(16) for k in range(depth)}
    b = {fragments.place_in_b(k, n, type_) for k in range(depth) for n in range(8)}
    assert len(a) == 16 * depth == 32 * 4 * PARTS[type_]
    assert len(b) == 8 * depth == 32 * 2 * PARTS[type_]


# ------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("type_", SAME)
def test_the_bits_are_those_that_an_h200_gave(type_, lanes):
    ab, c, d = (MEASURED[f"{type_}_{part}"] for part in ("ab", "c", "d"))
    assert same_bits(run(SAME[type_], ab, c), d).all()


@pytest.mark.parametrize("type_", SAME)
def test_the_interpreter_gives_the_bits_of_an_h200_too(type_):
    ab, c, d = (MEASURED[f"{type_}_{part}"] for part in ("ab", "c", "d"))
    assert same_bits(run(SAME[type_], ab, c, "ir"), d).all()


@pytest.mark.parametrize("type_", SAME)
def test_the_python_source_gives_the_bits_of_an_h200_too(type_):
    ab, c, d = (MEASURED[f"{type_}_{part}"][:4] for part in ("ab", "c", "d"))
    assert same_bits(run(SAME[type_], ab, c, "oracle"), d).all()


def packed(matrix: np.ndarray, place: Any, registers: int, type_: str) -> np.ndarray:
    """Return a matrix of float16 as registers, uint32 of shape (32, registers)."""
    out = np.zeros((32, registers, PARTS[type_]), np.float16)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            out[place(i, j, type_)] = value
    return out.view(np.uint32)[:, :, 0]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_m16n8k16_of_small_whole_numbers_is_their_exact_product(engine):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 9, (16, 16)), rng.integers(-8, 9, (16, 8))
    c = rng.integers(-100, 100, (16, 8))
    ab = np.concatenate(
        [packed(a, fragments.place_in_a, 4, "f16"), packed(b, fragments.place_in_b, 2, "f16")], axis=1
    )
    old, expected = (np.zeros((1, 32, 4), np.float32) for _ in range(2))
    for row in range(16):
        for column in range(8):
            lane, register, _ = fragments.place_in_c(row, column)
            old[0, lane, register] = c[row, column]
            expected[0, lane, register] = (a @ b + c)[row, column]
    assert (run(SAME["f16"], ab[None], old, engine) == expected).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("engine", ENGINES)
def test_sixteen_products_close_to_4_and_an_accumulator_close_to_2_exceed_no_integer(engine, sign, lanes):
    # In units of 2**-25 the sum is above 2**31: (16 * (4 - 2**-8 + 2**-20) + 2 - 2**-23) * 2**25.
    most = 2 - 2.0**-10
    a, b = np.full((16, 16), sign * most), np.full((16, 8), most)
    ab = np.concatenate(
        [packed(a, fragments.place_in_a, 4, "f16"), packed(b, fragments.place_in_b, 2, "f16")], axis=1
    )
    c = np.full((1, 32, 4), sign * (2 - 2.0**-23), np.float32)
    exact = 16 * most**2 + 2 - 2.0**-23
    assert exact > 2.0**31 / 2**25
    expected = sign * np.floor(exact * 2**17) / 2**17  # cut to 24 bits: exact lies between 64 and 128
    assert (run(SAME["f16"], ab[None], c, engine) == expected).all()


def one_sum(products: list[tuple[float, float]], c: float) -> float:
    """Return what the tensor cores make of some products of float16 and an accumulator."""
    a, b = (np.array([pair[k] for pair in products], np.float64) for k in range(2))
    return float(matrix_ops.tensor_sum("f16", "f16", a[None], b[:, None], np.array([[c]]))[0, 0])


def test_a_term_is_cut_25_places_below_the_largest_exponent():
    # 2**-25 is kept beside 1, and a second one makes 2**-24, which a float32 near 1 cannot hold: cut to 1.
    assert one_sum([(1, 1), (2.0**-12, 2.0**-13), (2.0**-12, 2.0**-13)], 0.0) == 1.0
    assert one_sum([(1, 1), *[(2.0**-12, 2.0**-13)] * 4], 0.0) == 1.0 + 2.0**-23
    assert one_sum([(1, 1), *[(2.0**-13, 2.0**-13)] * 8], 0.0) == 1.0


def test_a_product_has_the_sum_of_its_factors_exponents_also_where_it_is_3():
    # 1.5 x 1.5 = 2.25 counts as exponent 0, so 2**-25 is kept; as exponent 1 it would be cut.
    assert one_sum([(1.5, 1.5), *[(2.0**-12, 2.0**-13)] * 8], 0.0) == 2.25 + 2.0**-22


def test_the_sum_is_cut_toward_zero_and_not_rounded():
    assert one_sum([(1, 1), (2.0**-12, 2.0**-12), (2.0**-12, 2.0**-13)], 0.0) == 1.0
    assert one_sum([(-1, 1), (-(2.0**-12), 2.0**-12), (2.0**-12, -(2.0**-13))], 0.0) == -1.0


def test_a_sum_of_negative_zeros_is_plus_zero():
    assert np.signbit(one_sum([(-0.0, 1)], -0.0)) == np.False_


@pytest.mark.parametrize(("types", "mma"), [*(((t, t), m) for t, m in SAME.items()), *MIXED.items()])
def test_the_three_engines_agree_on_any_bits(types, mma, lanes):
    rng = np.random.default_rng(sum(map(ord, "".join(types))))
    ab = rng.integers(0, 1 << 32, (3, 32, 6), dtype=np.uint32)
    if types[0] in ("f16", "e4m3", "e5m2"):
        ab[1:] &= 0x3B3B3B3B  # numbers alone, without infinities and NaN
    c = rng.standard_normal((3, 32, 4)).astype(np.float32)
    c[2] *= np.float32(1e-30)
    agreed(multiply(mma), 3, 32, lambda: (ab, c, np.zeros_like(c)))


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_an_accumulator_that_is_infinite_or_no_number_stays_so_alone(special, lanes):
    ab = np.full((1, 32, 6), 0x3C003C00, np.uint32)  # all ones: each product is 16
    c = np.zeros((1, 32, 4), np.float32)
    c[0, 13, 2] = special
    d = run(SAME["f16"], ab, c)
    expected = np.full_like(c, 16)
    expected[0, 13, 2] = special
    assert same_bits(d, expected).all()


def test_infinity_times_zero_is_nan_and_infinity_alone_stays():
    a, b = np.zeros((16, 16)), np.zeros((16, 8))
    a[0, 0], b[0, 1] = np.inf, 2.0
    ab = np.concatenate(
        [packed(a, fragments.place_in_a, 4, "f16"), packed(b, fragments.place_in_b, 2, "f16")], axis=1
    )
    c = np.ones((1, 32, 4), np.float32)
    for engine in ENGINES:
        d = run(SAME["f16"], ab[None], c, engine)[0]
        assert np.isnan(d[0, 0]) and d[0, 1] == np.inf and d[4, 0] == 1.0


# ------------------------------------------------------------------------------------------ counts and rules


@pytest.mark.parametrize(
    ("type_", "field", "flops"),
    [("f16", "f16", 4096), ("bf16", "bf16", 4096), ("tf32", "tf32", 2048), ("e4m3", "fp8", 8192)],
)
def test_an_mma_counts_as_one_instruction_and_2mnk_flops(type_, field, flops):
    ab, c = np.zeros((3, 32, 6), np.uint32), np.zeros((3, 32, 4), np.float32)
    ran, _ = agreed(multiply(SAME[type_]), 3, 32, lambda: (ab, c, np.zeros_like(c)))
    assert getattr(ran.counters.tensor, field) == 3
    assert ran["gpusim__tensor_flops.sum"] == 3 * flops
    assert ran["sm__inst_executed_pipe_tensor_op_hmma.sum"] == (6 if field == "fp8" else 3)


def test_an_mma_is_no_ffma_and_no_warp_operation():
    ab, c = np.zeros((1, 32, 6), np.uint32), np.zeros((1, 32, 4), np.float32)
    ran, _ = agreed(multiply(SAME["f16"]), 1, 32, lambda: (ab, c, np.zeros_like(c)))
    assert (ran.counters.arithmetic.ffma, ran.counters.warp_operations) == (0, 0)


def test_the_line_of_an_mma_has_its_flops():
    ab, c = np.zeros((1, 32, 6), np.uint32), np.zeros((1, 32, 4), np.float32)
    kernel = multiply(SAME["f16"])
    ran = launch(kernel, 1, 32, (ab, c, np.zeros_like(c)), Device(H200))
    line = _multiply.__code__.co_firstlineno + 4
    assert [key[1] for key, counters in ran.lines.items() if counters.tensor.f16] == [line]


@pytest.mark.parametrize("engine", ["compiled", "ir"])
def test_counts_only_counts_an_mma_without_its_values(engine):
    ab, c = np.zeros((2, 32, 6), np.uint32), np.zeros((2, 32, 4), np.float32)
    settings = {"counts_only": True} if engine == "compiled" else {"engine": engine}
    ran = launch(multiply(SAME["f16"]), 2, 32, (ab, c, np.zeros_like(c)), Device(H200), **settings)
    assert ran.counters.tensor.f16 == 2


@cuda.jit
def in_half_a_warp(d):
    lane = cuda.threadIdx.x
    if lane < 16:
        z = (float32(0), float32(0), float32(0), float32(0))
        d[lane] = ptx.mma_sync_m16n8k16_f32_f16((1, 2, 3, 4), (5, 6), z)[0]


@cuda.jit
def after_a_return(d):
    lane = cuda.threadIdx.x
    if lane == 7 or lane == 3:
        return
    z = (float32(0), float32(0), float32(0), float32(0))
    d[lane] = ptx.mma_sync_m16n8k16_f32_f16((1, 2, 3, 4), (5, 6), z)[0]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("kernel", "threads", "missing"),
    [
        (in_half_a_warp, 32, r"lanes 16-31 \(lane 16 is thread \(16, 0, 0\)\)"),
        (after_a_return, 32, r"lanes 3, 7 \(lane 3 is thread \(3, 0, 0\)\)"),
        (after_a_return, 30, r"lanes 3, 7, 30-31"),
    ],
)
def test_an_mma_that_some_lanes_miss_is_an_error_that_names_them(engine, kernel, threads, missing):
    with pytest.raises(WarpDivergence, match="ptx.mma_sync_m16n8k16_f32_f16 needs all 32 lanes") as error:
        launch(kernel, 1, threads, (np.zeros(32, np.float32),), Device(H200), engine=engine)
    assert error.match(missing)


@cuda.jit
def of_the_wrong_number_of_registers(d):
    z = (float32(0), float32(0), float32(0), float32(0))
    d[0] = ptx.mma_sync_m16n8k16_f32_f16((1, 2), (5, 6), z)[0]


@cuda.jit
def of_float64_accumulators(d):
    d[0] = ptx.mma_sync_m16n8k16_f32_f16((1, 2, 3, 4), (5, 6), (0.0, 0.0, 0.0, 0.0))[0]


@cuda.jit
def of_a_name_that_is_not_there(d):
    d[0] = ptx.wgmma(d[0])


@cuda.jit
def by_way_of_cuda(d):
    d[0] = cuda.ptx.mma(d[0])


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (of_the_wrong_number_of_registers, "the a of ptx.mma_sync_m16n8k16_f32_f16 is a tuple of 2; give a "
         "tuple of 4 integers"),
        (of_float64_accumulators, "the c of ptx.mma_sync_m16n8k16_f32_f16 holds float64; give four float32"),
        (of_a_name_that_is_not_there, "ptx.wgmma is not in the kernel language; it has ptx.cp_async_ca"),
        (by_way_of_cuda, "write `from dsl import ptx`"),
    ],
)  # fmt: skip
def test_what_an_mma_does_not_take_is_refused_with_its_line(kernel, text):
    with pytest.raises(KernelMistake, match=r"test_tensor\.py:\d+: in ") as error:
        launch(kernel, 1, 32, (np.zeros(32, np.float32),), Device(H200))
    assert error.match(text)


def test_a_name_of_ptx_is_an_error_on_the_host():
    with pytest.raises(UserError, match="ptx.mma_sync_m16n8k16_f32_f16 exists only inside a kernel"):
        ptx.mma_sync_m16n8k16_f32_f16((1, 2, 3, 4), (5, 6), (0, 0, 0, 0))


@cuda.jit
def numbers_for_bits(out):
    x, zero = float32(1.5), float32(0)
    d = ptx.mma_sync_m16n8k8_f32_tf32((x, x, x, x), (x, x), (zero, zero, zero, zero))
    out[cuda.threadIdx.x] = d[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_number_where_its_bits_are_wanted_is_told_what_makes_them(engine):
    with pytest.raises(KernelMistake, match="not the bits of tf32.*ptx.cvt_rna_tf32_f32"):
        launch(numbers_for_bits, 1, 32, (np.zeros(32, np.float32),), Device(H200), engine=engine)


@cuda.jit
def fp8_product(d):
    zero = float32(0)
    new = ptx.mma_sync_m16n8k32_f32_e4m3((1, 1, 1, 1), (1, 1), (zero, zero, zero, zero))
    d[cuda.threadIdx.x] = new[0]


@cuda.jit
def fp8_pair(d):
    d[cuda.threadIdx.x] = ptx.cvt_rn_satfinite_e5m2x2_f32(float32(1), float32(2))


@cuda.jit
def fp8_product_by_source(d):
    [zero] = [float32(0)]
    new = ptx.mma_sync_m16n8k32_f32_e4m3((1, 1, 1, 1), (1, 1), (zero, zero, zero, zero))
    d[cuda.threadIdx.x] = new[0]


@cuda.jit
def fp8_pair_by_source(d):
    [one] = [float32(1)]
    d[cuda.threadIdx.x] = ptx.cvt_rn_satfinite_e5m2x2_f32(one, float32(2))


@pytest.mark.parametrize(
    ("kernel", "engine", "instruction", "line"),
    [
        *((fp8_product, engine, "mma_sync_m16n8k32_f32_e4m3", 3) for engine in ENGINES),
        *((fp8_pair, engine, "cvt_rn_satfinite_e5m2x2_f32", 2) for engine in ENGINES),
        (fp8_product_by_source, "auto", "mma_sync_m16n8k32_f32_e4m3", 3),
        (fp8_pair_by_source, "auto", "cvt_rn_satfinite_e5m2x2_f32", 3),
    ],
)
def test_instructions_of_8_bit_floats_are_refused_below_compute_capability_8_9(
    kernel: Any, engine: str, instruction: str, line: int
) -> None:
    at = kernel.py_func.__code__.co_firstlineno + line
    said = f"test_tensor.py:{at}: ptx.{instruction} needs compute capability 8.9 or above, and NVIDIA A100"
    with pytest.raises(LaunchRefused, match=said):
        launch(kernel, 1, 32, (np.zeros(32),), Device(A100), engine=engine)
    launch(kernel, 1, 32, (np.zeros(32),), Device(H200), engine=engine)


@cuda.jit
def short_fragment(d):
    [zero] = [float32(0)]
    d[0] = ptx.mma_sync_m16n8k16_f32_f16((1, 2, 3), (1, 2), (zero, zero, zero, zero))[0]


@cuda.jit
def number_as_fragment(d):
    [zero] = [float32(0)]
    d[0] = ptx.mma_sync_m16n8k16_f32_f16((1, 2, 3, 4), (1, 2), zero)[0]


def test_the_python_oracle_refuses_a_fragment_of_another_length_as_the_compiler_does() -> None:
    instruction = "of ptx.mma_sync_m16n8k16_f32_f16"
    said = f"in short_fragment: the a {instruction} is a tuple of 3; give a tuple of 4 integers of packed"
    with pytest.raises(KernelMistake, match=said):
        launch(short_fragment, 1, 32, (np.zeros(1),), Device(H200))
    said = f"in number_as_fragment: the c {instruction} is a float32; give a tuple of 4 float32"
    with pytest.raises(KernelMistake, match=said):
        launch(number_as_fragment, 1, 32, (np.zeros(1),), Device(H200))
