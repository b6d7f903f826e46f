"""The closed form, the reference and the options of block_reduce."""

import numpy as np
import pytest

from gpusim.errors import BadOption
from kernels_sim.block_reduce import Options, build, closed_form
from kernels_sim.problem import Data


def test_a_block_adds_256_leaves_with_255_fadd():
    assert closed_form(256)["arithmetic.fadd"] == 255


def test_a_ragged_block_adds_its_zeros_too():
    assert closed_form(257)["arithmetic.fadd"] == 510


def test_one_red_of_one_lane_a_block():
    form = closed_form(257)
    assert [form[f"global_red.{what}"] for what in ("lanes", "bytes", "requests", "sectors")] == [2, 8, 2, 2]


def test_threads_beyond_the_end_read_nothing():
    form = closed_form(257)
    assert [form[f"global_load.{what}"] for what in ("lanes", "requests", "sectors")] == [257, 9, 33]


def test_a_block_takes_25_shared_loads_and_20_stores():
    form = closed_form(1)
    assert (form["shared_load.requests"], form["shared_store.requests"]) == (25, 20)
    assert (form["shared_load.lanes"], form["shared_store.lanes"]) == (511, 511)


def test_8_warps_pass_9_barriers_a_block():
    assert closed_form(1)["barriers"] == 72


def test_the_numbers_are_small_integers_whose_sum_is_exact():
    problem = build(Options(n=1000), Data())
    x = problem.steps[0].args[0]
    assert x.dtype == np.float32
    assert set(np.unique(x)) <= set(range(8))
    assert problem.reference()["total"].tolist() == [float(x.astype(int).sum())]


def test_the_tolerance_grows_only_where_float32_must_round():
    assert build(Options(n=1_000_003), Data(virtual=True)).tolerance == 1e-5
    assert build(Options(n=1 << 26), Data(virtual=True)).tolerance == 4 * 512 * 2.0**-24


def test_an_empty_sum_is_refused():
    with pytest.raises(BadOption, match="block_reduce: --n is 0"):
        build(Options(n=0), Data())
