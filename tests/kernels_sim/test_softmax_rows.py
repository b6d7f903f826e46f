"""The closed form, the reference and the options of softmax_rows."""

import numpy as np
import pytest

from gpusim.errors import BadOption
from kernels_sim.problem import Data
from kernels_sim.softmax_rows import Options, build, closed_form, softmax


def test_a_row_is_read_three_times_and_written_once():
    form = closed_form(1, 64)
    assert (form["global_load.bytes"], form["global_store.bytes"]) == (3 * 256, 256)
    assert (form["global_load.requests"], form["global_load.sectors"]) == (6, 24)


def test_an_element_costs_14_ffma_1_fmul_4_fadd_and_3_mufu():
    one, two = closed_form(1, 100), closed_form(1, 101)
    paths = [f"arithmetic.{op}" for op in ("ffma", "fmul", "fadd", "mufu")]
    assert [two[path] - one[path] for path in paths] == [14, 1, 4, 3]


def test_the_tree_costs_127_fadd_a_row():
    assert closed_form(1, 1)["arithmetic.fadd"] == 4 + 127


def test_shared_memory_does_not_depend_on_the_number_of_columns():
    short, long = closed_form(3, 1), closed_form(3, 5000)
    paths = [path for path in short if path.startswith("shared")]
    assert [short[path] for path in paths] == [long[path] for path in paths]


def test_two_trees_take_40_loads_and_24_stores_a_row():
    form = closed_form(1, 128)
    assert (form["shared_load.requests"], form["shared_store.requests"]) == (40, 24)


def test_4_warps_pass_17_barriers_a_row():
    assert closed_form(2, 10)["barriers"] == 2 * 4 * 17


def test_softmax_of_equal_scores_is_uniform():
    assert softmax(np.zeros((1, 4), np.float32)).tolist() == [[0.25, 0.25, 0.25, 0.25]]


def test_the_reference_rows_sum_to_1():
    problem = build(Options(rows=3, cols=50), Data())
    assert np.allclose(problem.reference()["weights"].sum(axis=1), 1, atol=1e-14)


@pytest.mark.parametrize(("rows", "cols", "option"), [(0, 4, "rows"), (4, 0, "cols")])
def test_empty_matrices_are_refused(rows, cols, option):
    with pytest.raises(BadOption, match=f"softmax_rows: --{option} is 0"):
        build(Options(rows=rows, cols=cols), Data())
