"""The closed form, the reference and the options of vec_add."""

import numpy as np
import pytest

from gpusim.errors import BadOption
from kernels_sim.problem import Data
from kernels_sim.vec_add import Options, build, closed_form


def test_a_warp_of_32_reads_8_sectors_in_2_requests():
    form = closed_form(32)
    assert [form[f"global_load.{what}"] for what in ("requests", "sectors", "bytes")] == [2, 8, 256]


def test_33_elements_add_a_request_and_a_sector_a_vector():
    form = closed_form(33)
    assert (form["global_load.requests"], form["global_load.sectors"]) == (4, 10)
    assert (form["global_store.requests"], form["global_store.sectors"]) == (2, 5)


def test_one_fadd_an_element_and_none_for_idle_threads():
    assert closed_form(257)["arithmetic.fadd"] == 257


def test_a_million_and_3_elements_take_what_the_card_counted():
    form = closed_form(1_000_003)
    assert (form["global_load.requests"], form["global_load.sectors"]) == (62_502, 250_002)
    assert (form["global_store.requests"], form["global_store.sectors"]) == (31_251, 125_001)


def test_the_grid_covers_a_ragged_end():
    (step,) = build(Options(n=257), Data()).steps
    assert (step.grid, step.block) == ((2,), (256,))


def test_the_reference_is_the_sum_in_float64():
    problem = build(Options(n=5), Data(seed=3))
    x, y, total = problem.steps[0].args
    assert problem.reference()["total"].dtype == np.float64
    assert np.allclose(problem.reference()["total"], x + y, atol=1e-6)
    assert np.isnan(total).all()


def test_virtual_data_have_no_reference_and_the_same_closed_form():
    real, virtual = build(Options(n=99), Data()), build(Options(n=99), Data(virtual=True))
    assert virtual.reference is None
    assert virtual.steps[0].closed_form == real.steps[0].closed_form


@pytest.mark.parametrize("n", [0, -1])
def test_no_elements_are_refused(n):
    with pytest.raises(BadOption, match=f"vec_add: --n is {n}"):
        build(Options(n=n), Data())
