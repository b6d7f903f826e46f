"""standard_attention: closed forms of its three launches, results, rows without keys, NaN, and refusals."""

import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from gpusim.facts import differs
from kernels_sim.attention import Shape, io_standard
from kernels_sim.problem import Data
from kernels_sim.run import run_problem
from kernels_sim.standard_attention import (
    Options,
    build,
    closed_forms,
    facts,
    moved,
    scores_form,
    softmax_form,
    weighted_rows_form,
)
from tests.kernels_sim.verdicts import differences

SMALL = [
    {"N": 1, "d": 1},
    {"N": 5, "Nk": 2, "d": 4, "causal": True, "q_start": -3},
    {"N": 33, "d": 40, "causal": True, "heads": 2},
    {"N": 9, "Nk": 67, "d": 7, "heads": 3},
    {"N": 34, "Nk": 20, "d": 8, "dv": 45, "heads": 2, "causal": True, "q_start": 3},
]


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, engine="auto", prepare=None, counts_only=False, **options):
    """Build a problem, let `prepare(Q, K, V)` change its inputs, run it; return (launches, O, L)."""
    problem = build(Options(**options), Data(seed=7, virtual=counts_only))
    if prepare:
        prepare(*problem.steps[0].args[:2], problem.steps[2].args[1])
    launches = run_problem(problem, device, engine=engine, counts_only=counts_only)
    return launches, problem.outputs["O"], problem.outputs["L"]


# The closed forms


def test_scores_load_a_row_of_q_for_every_32_keys_and_a_key_for_every_32_rows():
    form = scores_form(Shape(64, 96, 16))
    assert form["global_load.lanes"] == 64 * 16 * 3 + 96 * 16 * 2
    assert form["global_store.lanes"] == 64 * 96


def test_the_padded_tile_has_no_bank_conflicts():
    form = scores_form(Shape(64, 64, 32))
    assert form["shared_load.wavefronts"] == form["shared_load.requests"] == 4 * 8 * 32 * 5


def test_products_multiply_whole_tiles():
    assert scores_form(Shape(33, 1, 7))["arithmetic.ffma"] == 2 * 1024 * 7
    assert weighted_rows_form(Shape(33, 5, 40), 40)["arithmetic.ffma"] == 2 * 2 * 1024 * 5


def test_causal_saves_no_traffic_and_no_products():
    free, causal = Shape(65, 65, 16), Shape(65, 65, 16, causal=True)
    assert scores_form(free) == scores_form(causal)
    assert weighted_rows_form(free, free.dv) == weighted_rows_form(causal, causal.dv)


def test_softmax_costs_14_ffma_1_fmul_and_4_fadd_an_element_and_127_fadd_a_row():
    form, one = softmax_form(Shape(1024, 1024, 64)), softmax_form(Shape(1, 1, 1))
    elements, log = 1024 * 1024, {"ffma": 11, "fmul": 2, "fadd": 2}
    assert form["arithmetic.ffma"] == 14 * elements + 1024 * log["ffma"]
    assert form["arithmetic.fmul"] == elements + 1024 * log["fmul"]
    assert form["arithmetic.fadd"] == 4 * elements + 1024 * (127 + log["fadd"])
    assert one["arithmetic.fadd"] == 4 + 127 + 2


def test_softmax_reads_s_three_times():
    form = softmax_form(Shape(1024, 1024, 64))
    assert (form["global_load.requests"], form["global_load.sectors"]) == (98_304, 393_216)


def test_dram_moves_the_ideal_elements_where_all_fits_l2():
    shape = Shape(128, 128, 64)
    forms = scores_form(shape), softmax_form(shape), weighted_rows_form(shape, shape.dv)
    moved = sum(form["hierarchy.dram_read_bytes"] + form["hierarchy.dirty_bytes"] for form in forms)
    assert moved == 4 * io_standard(shape)


def test_a_matrix_of_one_tile_is_read_5_times_and_written_twice():
    # Q, K, V, O of 32 x 32 once; S out, in three times, P out, in once: 6 S or P; L.
    assert moved(Shape(32, 32, 32)) == 4 * 1024 + 6 * 1024 + 32
    assert io_standard(Shape(32, 32, 32)) == 4 * 1024 + 4 * 1024 + 32


def test_the_facts_of_the_default_problem_are_those_of_three_launches():
    facts = {f.label: f for f in build(Options(), Data(virtual=True)).facts}
    assert facts["Launches"].value == 3
    assert facts["Ideal At DRAM"].value == 4 * 1024 * 64 + 4 * 1024**2 + 1024 == 4_457_472
    assert facts["Ideal At DRAM"].formula == "4 N d + 4 N^2 + N"
    # scores: Q and K 32 times, S; softmax: 4 S, L; output: P twice, V 32 times, O
    assert facts["Moved At SM-L1"].value == 1024 * 64 * (3 * 32 + 1) + 7 * 1024**2 + 1024 == 13_698_048
    assert facts["FLOPs, Products"].value == 4 * 1024**2 * 64
    assert facts["Pairs Visible"].value == 1024**2


@pytest.mark.parametrize("options", [*SMALL, {"N": 32, "d": 16}], ids=str)
def test_the_last_launch_says_of_all_three_what_was_counted(device, options):
    launches, _, _ = solve(device, counts_only=True, **options)
    assert [len(launch.facts) > 0 for launch in launches] == [False, False, True]
    compared = {f.label: differs(f) for f in launches[-1].facts if f.counters}
    assert ("Ideal At DRAM" in compared) == (options == {"N": 32, "d": 16})
    assert compared.pop("Ideal At DRAM", False) is False
    assert compared == {"Moved At SM-L1": False, "FLOPs, All": False}


@pytest.mark.parametrize("options", SMALL, ids=str)
def test_counted_equals_closed_form_and_results_are_right(device, options):
    launches, _, _ = solve(device, **options)
    assert differences(launches) == {}
    assert all(check.error <= 1e-5 for check in launches[-1].checks), launches[-1].checks


def test_the_ir_oracle_counts_the_same(device):
    slow, fast = solve(device, engine="ir", **SMALL[1])[0], solve(device, **SMALL[1])[0]
    assert differences(slow) == {}
    assert [launch.counters for launch in slow] == [launch.counters for launch in fast]


def test_counts_only_gives_the_same_counters(device):
    virtual, real = solve(device, counts_only=True, **SMALL[2])[0], solve(device, **SMALL[2])[0]
    assert [launch.counters for launch in virtual] == [launch.counters for launch in real]


def test_n_512_counts_what_the_closed_forms_say(device):
    launches, _, _ = solve(device, counts_only=True, N=512)
    assert [launch.kernel for launch in launches] == ["scores", "softmax", "output"]
    assert "hierarchy.dram_read_bytes" in launches[0].closed_form
    assert differences(launches) == {}


# Results


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("N", "d"), [(1, 48), (63, 64), (64, 16), (65, 80), (129, 128), (192, 64), (913, 8)])
def test_every_row_is_written_and_right(device, N, d, causal):
    launches, _, _ = solve(device, N=N, d=d, causal=causal)
    assert all(check.error <= 1e-5 for check in launches[-1].checks), launches[-1].checks


@pytest.mark.parametrize(("d", "dv"), [(8, 12), (128, 96), (16, 1)])
def test_values_may_have_another_width_than_keys(device, d, dv):
    launches, O, _ = solve(device, N=40, d=d, dv=dv)
    assert O.shape == (1, 40, dv)
    assert all(check.error <= 1e-5 for check in launches[-1].checks), launches[-1].checks


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 1.6e-2)])
@pytest.mark.parametrize("options", [SMALL[1], SMALL[4], {"N": 65, "d": 40, "causal": True}], ids=str)
def test_16_bit_numbers_are_right_and_counted(device, options, dtype, tolerance):
    launches, O, L = solve(device, dtype=dtype, **options)
    assert (O.dtype.name, L.dtype.name) == (dtype, "float32")
    assert all(check.error <= tolerance for check in launches[-1].checks), launches[-1].checks
    assert launches[-1].checks[0].tolerance == tolerance
    assert differences(launches) == {}
    assert [fact.label for fact in launches[-1].facts if differs(fact)] == []


def test_16_bit_numbers_halve_the_bytes_of_all_but_s_and_l():
    wide, narrow = Shape(128, 128, 64), 2
    for form, once in zip(closed_forms(wide, narrow), closed_forms(wide), strict=True):
        assert form["global_load.lanes"] == once["global_load.lanes"]
        assert form["arithmetic.ffma"] == once["arithmetic.ffma"]
    scores, softmax, output = closed_forms(wide, narrow)
    assert scores["global_load.bytes"] == 2 * scores["global_load.lanes"]
    assert softmax["global_load.bytes"] == 4 * softmax["global_load.lanes"]
    assert softmax["global_store.bytes"] == 2 * 128**2 + 4 * 128
    found = sum(form["hierarchy.dram_read_bytes"] + form["hierarchy.dirty_bytes"]
                for form in (scores, softmax, output))
    said = {fact.label: fact.value for fact in facts(wide, (scores, softmax, output), narrow)}
    assert found == said["Ideal Bytes At DRAM"] == 2 * (4 * 128 * 64 + 2 * 128**2) + 4 * (2 * 128**2 + 128)


def test_equal_scores_keep_their_logarithm_in_32_bits(device):
    def equal(Q, K, V):
        Q[...] = 0

    _, _, L = solve(device, prepare=equal, N=2, Nk=1024, d=4, dtype="bfloat16")
    assert np.allclose(L, np.log(1024), rtol=0, atol=1e-5)  # bfloat16 would hold 6.9375


def test_products_of_large_16_bit_numbers_do_not_overflow(device):
    def large(Q, K, V):
        Q[...], K[...], V[...] = 60, 60, 1

    _, O, L = solve(device, prepare=large, N=3, d=64, dtype="float16")
    assert np.array_equal(O, np.ones((1, 3, 64)))
    assert np.allclose(L, 28_800 + np.log(3), rtol=1e-6)


def test_rows_that_see_no_key_give_0_and_minus_infinity(device):
    _, O, L = solve(device, N=64, d=16, causal=True, q_start=-40)
    assert not O[0, :40].any()
    assert np.isneginf(L[0]).tolist() == [True] * 40 + [False] * 24


def test_no_key_at_all_gives_0_and_minus_infinity(device):
    launches, O, L = solve(device, N=40, Nk=0, d=16)
    assert not O.any() and np.isneginf(L).all()
    assert differences(launches) == {}


def test_nan_in_an_invisible_value_does_not_leak(device):
    def spoil(Q, K, V):
        V[0, 3] = np.nan

    _, O, _ = solve(device, prepare=spoil, N=8, d=4, causal=True)
    _, clean, _ = solve(device, N=8, d=4, causal=True)
    assert np.array_equal(O[0, :3], clean[0, :3])
    assert np.isnan(O[0, 3:]).all()


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
