"""The closed form, the reference and the options of matmul_tiled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import BadOption
from kernels_sim.matmul_tiled import Options, build, closed_form, tiling_sectors
from kernels_sim.problem import Data


def test_one_tile_takes_n_cubed_ffma():
    assert closed_form(16)["arithmetic.ffma"] == 4096


def test_a_ragged_matrix_is_computed_in_whole_tiles():
    assert closed_form(17)["arithmetic.ffma"] == 32**3


def test_no_fmul_and_no_fadd_is_promised():
    assert not [path for path in closed_form(16) if path in ("arithmetic.fmul", "arithmetic.fadd")]


def test_each_matrix_is_read_once_for_each_tile_across():
    # Two tiles across: A and B twice each, 4 bytes an element.
    assert closed_form(32)["global_load.bytes"] == 4 * 32 * 32 * 4


def test_a_warp_reads_2_rows_of_64_bytes():
    form = closed_form(16)
    assert (form["global_load.requests"], form["global_load.sectors"]) == (16, 64)


def test_rows_of_3_share_sectors():
    # Elements 0-2 and 3-5 of a warp's 2 rows lie in 1 sector; the lone third row, elements 6-8, in 2.
    assert tiling_sectors(3) == 3


def test_a_warp_loads_32_numbers_a_tile_without_conflicts():
    form = closed_form(16)
    assert (form["shared_load.requests"], form["shared_load.wavefronts"]) == (8 * 32, 8 * 32)


def test_every_warp_passes_2_barriers_a_tile():
    assert closed_form(17)["barriers"] == 4 * 8 * 2 * 2


@given(st.integers(1, 70))
def test_warps_of_2_rows_take_the_sectors_that_their_lanes_lie_in(n):
    warps = [(y, x) for y in range(0, n, 2) for x in range(0, n, 16)]
    expected = sum(
        len({(r * n + c) // 8 for r in range(y, min(y + 2, n)) for c in range(x, min(x + 16, n))})
        for y, x in warps
    )
    assert tiling_sectors(n) == expected


def test_the_reference_is_the_product():
    problem = build(Options(N=3), Data())
    a, b, _ = problem.steps[0].args
    assert np.allclose(problem.reference()["product"][1, 2], sum(float(a[1, k]) * b[k, 2] for k in range(3)))


def test_an_empty_matrix_is_refused():
    with pytest.raises(BadOption, match="matmul_tiled: --N is 0"):
        build(Options(N=0), Data())
