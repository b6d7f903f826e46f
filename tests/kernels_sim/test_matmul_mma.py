"""The closed form, the options, the result and the counts of matmul_mma."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsl.host.device import Device
from gpusim.arch import H200
from gpusim.errors import BadOption
from kernels_sim.matmul_mma import Options, build, chunk_sectors, closed_form
from kernels_sim.problem import Data
from kernels_sim.run import run_problem


def test_512_cubed_takes_2mnk_flops_in_65536_instructions():
    assert closed_form(512, 512, 512, "float16")["tensor.f16"] == 65_536
    assert 65_536 * 4096 == 2 * 512**3


def test_a_ragged_product_is_computed_in_whole_tiles_of_128_and_steps_of_32():
    assert closed_form(129, 8, 40, "bfloat16")["tensor.bf16"] == 2 * 1 * 2 * 256


def test_each_matrix_is_read_once_for_each_tile_across_the_other():
    # M = N = 256: A and B twice each, 2 bytes an element.
    assert closed_form(256, 256, 64, "float16")["global_load.bytes"] == 2 * 2 * 256 * 64 * 2


def test_an_ldmatrix_x4_takes_4_wavefronts():
    form = closed_form(128, 128, 32, "float16")
    # 4 warps, 2 halves of 32 values of K, 4 row tiles of A and 4 pairs of column tiles of B.
    assert form["shared_matrix.requests"] == 4 * 2 * 8
    assert form["shared_matrix.wavefronts"] == form["shared_matrix.ideal_wavefronts"] == 4 * 64


@given(st.integers(1, 20), st.integers(1, 12))
def test_sectors_of_chunks_are_pairs_of_source_line_and_destination_sector(rows, chunks):
    cols = 8 * chunks
    pairs = {(2 * (r * cols + 8 * c) // 128, r, c // 2) for r in range(rows) for c in range(chunks)}
    assert chunk_sectors(rows, cols) == len(pairs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_product_is_near_float64_and_no_matrix_load_conflicts(dtype):
    problem = build(Options(M=256, N=192, K=96, dtype=dtype), Data(3))
    ran = run_problem(problem, Device(H200))[0]
    assert ran.checks[0].error < 1e-6  # 2e-3 is allowed; the sums are of float32
    assert ran["gpusim__shared_matrix_conflicts.sum"] == 0
    assert ran["gpusim__tensor_flops.sum"] == 2 * 256 * 256 * 96  # two tiles across


def test_the_inputs_are_rounded_to_their_type():
    problem = build(Options(M=8, N=8, K=8), Data())
    a, b, _ = problem.steps[0].args
    assert a.dtype == b.dtype == np.float16
    assert np.array_equal(problem.reference()["product"], a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"N": 12}, "--N is 12, it must be a multiple of 8"),
        ({"K": 0}, "--K is 0, it must be a multiple of 8"),
        ({"M": 0}, "--M is 0, it must be at least 1"),
        ({"dtype": "float32"}, "--dtype is 'float32', it must be one of float16, bfloat16"),
    ],
)
def test_sizes_that_rows_of_16_bytes_do_not_fill_are_refused(options, text):
    with pytest.raises(BadOption, match=text):
        build(Options(**options), Data())
