"""The closed form, the options, the result and the counts of matmul_fp8."""

import numpy as np
import pytest
from ml_dtypes import bfloat16, float8_e4m3fn

from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim.arch import H200, get_arch
from gpusim.errors import BadOption, UserError
from gpusim.launch import counter
from kernels_sim.matmul_fp8 import Options, build, closed_form, step_of
from kernels_sim.problem import Data
from kernels_sim.run import run_problem

BOTH = pytest.mark.parametrize("accumulation", ["fast", "full"])


def multiply(a, b, accumulation, scale_a=1.0, scale_b=1.0):
    """Return the product of two matrices of numbers that are rounded to e4m3."""
    product = np.full((len(a), len(b)), np.nan, bfloat16)
    scales = (np.full(1, scale, np.float32) for scale in (scale_a, scale_b))
    step = step_of(a.astype(float8_e4m3fn), b.astype(float8_e4m3fn), product, *scales, accumulation)
    launch(step.kernel, step.grid, step.block, step.args, Device(H200))
    return product


# Counts


def test_512_cubed_takes_2mnk_flops_in_32768_instructions():
    assert closed_form(512, 512, 512, "fast")["tensor.fp8"] == 32_768
    assert 32_768 * 8192 == 2 * 512**3


def test_a_ragged_product_is_computed_in_whole_tiles_of_128_and_steps_of_64():
    # 2 blocks, 2 steps, 2 halves of 32 bytes, 8 x 16 instructions for 128 x 128 results
    assert closed_form(129, 16, 80, "fast")["tensor.fp8"] == 2 * 2 * 2 * 128


def test_each_matrix_is_read_once_for_each_tile_across_the_other():
    form = closed_form(256, 256, 64, "fast")
    # A and B twice each, a byte an element; every thread of 4 blocks of 256 loads two scales
    assert form["global_load.bytes"] == 2 * 2 * 256 * 64 + 4 * 256 * 8


def test_full_accumulation_adds_each_accumulator_once_in_128_of_k():
    for k, additions in ((16, 1), (128, 1), (144, 2), (512, 4)):
        fast, full = (closed_form(128, 128, k, accumulation) for accumulation in ("fast", "full"))
        assert fast["arithmetic.fadd"] == 0
        assert full["arithmetic.fadd"] == 128 * 128 * additions
        assert {path for path in full if full[path] != fast[path]} == {"arithmetic.fadd"}


def test_a_request_of_stores_fills_8_sectors():
    form = closed_form(512, 512, 512, "fast")
    assert form["global_store.sectors"] == 8 * form["global_store.requests"]
    assert form["global_store.bytes"] == 32 * form["global_store.sectors"] == 2 * 512 * 512


@pytest.mark.parametrize(
    ("m", "n", "k", "accumulation"), [(1, 16, 16, "fast"), (130, 144, 208, "full"), (200, 272, 80, "fast")]
)
def test_counted_equals_closed_form_and_the_product_is_near_float64(m, n, k, accumulation):
    ran = run_problem(build(Options(m, n, k, accumulation), Data(3)), Device(H200))[0]
    assert {path: counter(ran.counters, path) for path in ran.closed_form} == ran.closed_form
    assert ran["gpusim__shared_matrix_conflicts.sum"] == 0
    assert ran.checks[0].error < 2**-8  # half a unit of bfloat16 is 2^-9 of the largest; 1.6e-2 is allowed


# Results


@BOTH
def test_small_integers_are_multiplied_exactly(accumulation):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-2, 3, (19, 32)), rng.integers(-2, 3, (16, 32))
    assert np.array_equal(multiply(a, b, accumulation).astype(int), a @ b.T)


@BOTH
def test_the_scales_multiply_the_sum_before_it_is_rounded(accumulation):
    a, b = np.ones((1, 32)), np.ones((16, 32))
    a[0, 0] = 2.0
    # 33 / 3 and not bfloat16(33) x bfloat16(1 / 3)
    assert (multiply(a, b, accumulation, 1 / 3, 0.5) == bfloat16(33 * np.float32(1 / 3) * 0.5)).all()


def test_full_accumulation_keeps_sums_that_are_too_small_one_instruction_at_a_time():
    """2^16, then four times 32 x 2^-14 = 2^-9, which float32 drops beside it; 2^-7 stays; then -2^16."""
    a, b = np.zeros((1, 384)), np.zeros((16, 384))
    a[0, 0], a[0, 256], b[:, [0, 256]] = 256, -256, 256
    a[0, 128:256], b[:, 128:256] = 2.0**-9, 2.0**-5
    assert (multiply(a, b, "fast") == 0).all()
    assert (multiply(a, b, "full") == 2.0**-7).all()


@BOTH
def test_nan_in_a_row_of_a_is_nan_in_that_row_of_the_product(accumulation):
    a, b = np.ones((3, 16)), np.ones((16, 16))
    a[1, 7] = np.nan
    assert np.isnan(multiply(a, b, accumulation)).all(axis=1).tolist() == [False, True, False]
    assert np.isfinite(multiply(a, b, accumulation)[[0, 2]]).all()


@BOTH
def test_a_product_past_the_largest_bfloat16_is_infinite(accumulation):
    a = np.full((1, 16), 448.0)
    assert (multiply(a, np.ones((16, 16)), accumulation, 1e30, 1e8) == np.inf).all()


# What it refuses


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"N": 24}, "--N is 24, it must be a multiple of 16"),
        ({"K": 0}, "--K is 0, it must be a multiple of 16"),
        ({"M": 0}, "--M is 0, it must be at least 1"),
        ({"accumulation": "slow"}, "--accumulation is 'slow', it must be one of fast, full"),
    ],
)
def test_sizes_that_rows_of_16_bytes_do_not_fill_are_refused(options, text):
    with pytest.raises(BadOption, match=f"matmul_fp8: {text}"):
        build(Options(**options), Data(virtual=True))


def test_a_gpu_without_8_bit_tensor_cores_is_refused():
    with pytest.raises(UserError, match="8.9"):
        run_problem(build(Options(1, 16, 16), Data()), Device(get_arch("a100")))
