"""standard_attention_backward: closed forms of its launches, recorded gradients, NaN, no key, refusals."""

import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from gpusim.facts import differs
from kernels_sim.attention import Shape, io_standard_backward
from kernels_sim.check import largest_error
from kernels_sim.problem import Data
from kernels_sim.run import run_problem
from kernels_sim.standard_attention import weighted_rows_form
from kernels_sim.standard_attention_backward import (
    Options,
    build,
    closed_forms,
    facts,
    moved,
    score_form,
    transposed_form,
    weight_form,
)
from tests.kernels_sim.autograd import CASES, RECORD
from tests.kernels_sim.verdicts import differences

SMALL = [
    {"N": 1, "d": 1},
    {"N": 5, "Nk": 2, "d": 4, "causal": True, "q_start": -3},
    {"N": 33, "d": 40, "causal": True, "heads": 2},
    {"N": 9, "Nk": 67, "d": 7, "dv": 35, "heads": 3},
    {"N": 40, "Nk": 0, "d": 16},
]
PLAIN = [i for i, shape in enumerate(CASES) if shape.group == 1 and not shape.window]
"""The recorded cases of options that this kernel has."""


class Recorded(Data):
    """Give the arrays that were recorded, in the order in which a builder asks for random ones."""

    def __init__(self, case: int) -> None:
        super().__init__()
        found = np.load(RECORD)
        self._given = [found[f"{case}.{name}"].astype(np.float32) for name in ("Q", "K", "V", "dO")]

    def normal(self, *shape, dtype=np.float32):
        given = self._given.pop(0)
        assert given.shape == shape
        return given


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, engine="auto", prepare=None, counts_only=False, **options):
    """Build a problem, let `prepare(Q, K, V, dO)` change its inputs, run it; return (launches, outputs)."""
    problem = build(Options(**options), Data(seed=7, virtual=counts_only))
    if prepare:
        value, weight, _, query, key = (step.args for step in problem.steps)
        prepare(key[1], query[1], weight[1], value[1])
    return run_problem(problem, device, engine=engine, counts_only=counts_only), problem.outputs


# The closed forms


def test_each_product_loads_its_inputs_once_for_every_tile_of_32():
    shape = Shape(64, 96, 16, dv=40)
    matrix = 64 * 96
    assert transposed_form(shape, 40)["global_load.lanes"] == 2 * matrix + 3 * 64 * 40
    assert weight_form(shape)["global_load.lanes"] == 3 * 64 * 40 + 2 * 96 * 40
    assert weighted_rows_form(shape, 16)["global_load.lanes"] == matrix + 2 * 96 * 16
    assert transposed_form(shape, 16)["global_load.lanes"] == matrix + 3 * 64 * 16


def test_the_gradient_of_softmax_reads_p_and_dp_twice_and_costs_5_flops_an_element():
    form = score_form(Shape(64, 64, 16))
    assert (form["global_load.lanes"], form["global_store.lanes"]) == (4 * 64 * 64, 64 * 64)
    assert [form[f"arithmetic.{x}"] for x in ("ffma", "fmul", "fadd")] == [4096, 8192, 4096 + 64 * 127]


def test_no_product_has_bank_conflicts():
    for form in closed_forms(Shape(64, 64, 32)):
        assert form["shared_load.wavefronts"] == form["shared_load.requests"]


def test_causal_saves_no_traffic_and_no_products():
    assert closed_forms(Shape(65, 65, 16)) == closed_forms(Shape(65, 65, 16, causal=True))


def test_the_ideal_is_8_n_d_and_7_n_squared():
    assert io_standard_backward(Shape(128, 128, 64)) == 8 * 128 * 64 + 7 * 128**2
    assert io_standard_backward(Shape(10, 20, 3, heads=2, dv=5)) == 2 * (2 * 30 * 8 + 7 * 200)


def test_dram_moves_the_ideal_elements_where_all_fits_l2():
    shape = Shape(128, 128, 64)
    forms = closed_forms(shape)
    found = sum(form["hierarchy.dram_read_bytes"] + form["hierarchy.dirty_bytes"] for form in forms)
    assert found == 4 * io_standard_backward(shape)


def test_a_matrix_of_one_tile_is_read_8_times_and_written_twice():
    # dO, V, dV of dV and dP: 5; K, Q, dQ, dK: 4; P 3 times, dP in twice, out once, dS in twice, out once.
    assert moved(Shape(32, 32, 32)) == 9 * 1024 - 1024 + 9 * 1024


@pytest.mark.parametrize("options", SMALL, ids=str)
def test_counted_equals_closed_form_and_results_are_right(device, options):
    launches, _ = solve(device, **options)
    assert differences(launches) == {}
    assert all(check.error <= 1e-5 for check in launches[-1].checks), launches[-1].checks
    assert [fact.label for fact in launches[-1].facts if differs(fact)] == []


def test_the_ir_oracle_counts_the_same(device):
    slow, fast = solve(device, engine="ir", **SMALL[1])[0], solve(device, **SMALL[1])[0]
    assert differences(slow) == {}
    assert [launch.counters for launch in slow] == [launch.counters for launch in fast]


def test_counts_only_gives_the_same_counters(device):
    virtual, real = solve(device, counts_only=True, **SMALL[2])[0], solve(device, **SMALL[2])[0]
    assert [launch.counters for launch in virtual] == [launch.counters for launch in real]


def test_the_defaults_count_what_the_closed_forms_say(device):
    launches, _ = solve(device, counts_only=True)
    assert [launch.kernel for launch in launches] == [
        "value_gradient", "weight_gradient", "score_gradient", "query_gradient", "key_gradient"]
    assert differences(launches) == {}
    said = {fact.label: fact.value for fact in launches[-1].facts}
    assert said["Ideal At DRAM"] == 8 * 512 * 64 + 7 * 512**2
    assert said["FLOPs, Products"] == 8 * 512**2 * 64


# Results


@pytest.mark.parametrize("case", PLAIN)
def test_the_gradients_are_those_that_autograd_recorded(device, case):
    shape = CASES[case]
    options = Options(N=shape.N, Nk=shape.Nk, d=shape.d, dv=shape.dv, heads=shape.heads, causal=shape.causal,
                      q_start=shape.q_start, scale=shape.scale)
    problem = build(options, Recorded(case))
    run_problem(problem, device)
    found = np.load(RECORD)
    for name, x in problem.outputs.items():
        assert largest_error(x, found[f"{case}.{name}"]) < 1e-5, name


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("N", "Nk", "d", "dv"), [(1, 64, 48, 16), (63, 65, 64, 64), (129, 33, 80, 96)])
def test_every_gradient_is_written_and_right(device, N, Nk, d, dv, causal):
    launches, _ = solve(device, N=N, Nk=Nk, d=d, dv=dv, causal=causal, q_start=Nk - N)
    assert all(check.error <= 1e-5 for check in launches[-1].checks), launches[-1].checks


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 1.6e-2)])
@pytest.mark.parametrize("options", [SMALL[1], SMALL[3], {"N": 65, "d": 40, "causal": True}], ids=str)
def test_16_bit_numbers_are_right_and_counted(device, options, dtype, tolerance):
    launches, outputs = solve(device, dtype=dtype, **options)
    assert {x.dtype.name for x in outputs.values()} == {dtype}
    assert all(check.error <= tolerance for check in launches[-1].checks), launches[-1].checks
    assert launches[-1].checks[0].tolerance == tolerance
    assert differences(launches) == {}
    assert [fact.label for fact in launches[-1].facts if differs(fact)] == []


def test_16_bit_numbers_halve_the_bytes_of_all_but_dp():
    shape = Shape(128, 128, 64)
    forms = closed_forms(shape, 2)
    found = sum(form["hierarchy.dram_read_bytes"] + form["hierarchy.dirty_bytes"] for form in forms)
    assert found == 2 * (8 * 128 * 64 + 5 * 128**2) + 4 * 2 * 128**2
    said = {fact.label: fact.value for fact in facts(shape, forms, 2)}
    assert said["Ideal Bytes At DRAM"] == found


def test_rows_that_see_no_key_and_keys_that_no_row_sees_get_no_gradient(device):
    _, outputs = solve(device, N=40, Nk=40, d=16, causal=True, q_start=-10)
    assert not outputs["dQ"][0, :10].any() and outputs["dQ"][0, 11:].any(axis=1).all()
    assert not outputs["dK"][0, 30:].any() and not outputs["dV"][0, 30:].any()
    assert outputs["dV"][0, :30].any(axis=1).all()


def test_a_nan_in_a_key_reaches_the_rows_that_see_it(device):
    def spoil(Q, K, V, dO):
        K[0, 3] = np.nan

    _, outputs = solve(device, prepare=spoil, N=8, d=4, causal=True)
    assert np.isnan(outputs["dQ"][0]).any(axis=1).tolist() == [False] * 3 + [True] * 5


def test_a_nan_in_a_value_reaches_the_rows_that_see_it_and_what_they_see(device):
    def spoil(Q, K, V, dO):
        V[0, 3] = np.nan

    _, outputs = solve(device, prepare=spoil, N=8, d=4, causal=True)
    assert np.isnan(outputs["dQ"][0]).any(axis=1).tolist() == [False] * 3 + [True] * 5
    assert np.isfinite(outputs["dV"]).all()


def test_a_nan_in_a_row_reaches_the_keys_that_it_sees(device):
    def spoil(Q, K, V, dO):
        Q[0, 4] = np.nan
        dO[0, 2] = np.nan

    _, outputs = solve(device, prepare=spoil, N=8, d=4, causal=True)
    assert np.isnan(outputs["dV"][0]).any(axis=1).tolist() == [True] * 3 + [False] * 5
    assert np.isnan(outputs["dK"][0]).any(axis=1).tolist() == [True] * 5 + [False] * 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"N": 0}, "--N must be at least 1"),
        ({"dtype": "fp8"}, "--dtype must be float32 or float16 or bfloat16, got fp8"),
        ({"heads": 300, "batch": 300}, "at most 65535; got 90000"),
    ],
)
def test_options_out_of_range_are_refused(options, words):
    with pytest.raises(BadOption, match=words):
        build(Options(**options), Data(virtual=True))
