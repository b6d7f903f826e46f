"""flash_forward: its closed form, its results over many shapes, rows without keys, NaN, and refusals."""

import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from gpusim.facts import differs, ratios
from gpusim.launch import counter
from kernels_sim.attention import Shape
from kernels_sim.flash_forward import STRIP, Options, build, closed_form, facts, shared_bytes, statistics
from kernels_sim.problem import Data
from kernels_sim.run import run_problem

MAIN = Shape(4096, 4096, 64)
MAIN_CAUSAL = Shape(4096, 4096, 64, causal=True)

TINY = {"d": 16, "Br": 16, "Bc": 16}
"""A tile shape that compiles fast; the tests of single properties share it."""
SMALL = [
    {"N": 1, **TINY},
    {"N": 5, "Nk": 2, "d": 4, "Br": 4, "Bc": 8, "causal": True, "q_start": -3},
    {"N": 33, "d": 16, "Br": 48, "Bc": 16, "causal": True},
    {"N": 17, "Nk": 40, "d": 5, "Br": 8, "Bc": 16, "causal": True, "q_start": 20, "heads": 2, "batch": 2},
    {"N": 9, "Nk": 70, "d": 3, "Br": 16, "Bc": 32, "heads": 3},
    {"N": 20, "d": 96, "Br": 16, "Bc": 128, "causal": True},
]
"""Ragged shapes that the slow engines run in about a second; the last one needs dynamic shared memory."""
SIZES = (1, 63, 64, 65, 129, 192, 913)
TILES = (16, 32, 64, 128)
DIMENSIONS = (16, 48, 64, 80, 128)
SPREAD = [
    (1, 16, 32, 48, True),
    (63, 64, 16, 80, False),
    (65, 32, 128, 16, True),
    (129, 64, 64, 64, False),
    (192, 64, 64, 64, True),
    (913, 128, 64, 128, True),
    (64, 64, 64, 64, False),
]
"""(N, Br, Bc, d, causal): each value of the long sweep at least once."""


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, engine="auto", prepare=None, counts_only=False, **options):
    """Build a problem, let `prepare(Q, K, V)` change its inputs, run it; return (launch, O, L)."""
    problem = build(Options(**options), Data(seed=7, virtual=counts_only))
    if prepare:
        Q, K, V = problem.steps[0].args[:3]
        prepare(*(x.reshape(len(x), -1, options["d"]) for x in (Q, K, V)))
    launch = run_problem(problem, device, engine=engine, counts_only=counts_only)[0]
    return launch, problem.outputs["O"], problem.outputs["L"]


def differences(launch):
    """Return {counter: (counted, expected)} where a launch is not what its closed form says."""
    counted = {path: counter(launch.counters, path) for path in launch.closed_form}
    return {path: (counted[path], n) for path, n in launch.closed_form.items() if counted[path] != n}


def said(shape, Br, Bc):
    """Return {label: (value, formula)} of what the algorithm says of itself."""
    return {f.label: (f.value, f.formula) for f in facts(shape, Br, Bc, closed_form(shape, Br, Bc))}


def assert_right(launch):
    assert {c.output: c.error <= 1e-5 for c in launch.checks} == {"O": True, "L": True}, launch.checks


# The closed form


def test_the_main_job_moves_34082816_elements():
    form = closed_form(MAIN, 64, 64)
    assert form["global_load.lanes"] + form["global_store.lanes"] == 34_082_816
    assert form["global_load.bytes"] + form["global_store.bytes"] == 4 * 34_082_816


def test_causal_moves_17567744_elements_in_2080_tiles():
    form = closed_form(MAIN_CAUSAL, 64, 64)
    assert form["global_load.lanes"] + form["global_store.lanes"] == 17_567_744
    assert statistics(MAIN_CAUSAL, 64, 64) == {"tiles": 2080, "skipped": 2016}


def test_dram_reads_q_k_v_once_and_keeps_o_and_l_dirty():
    form = closed_form(MAIN, 64, 64)
    assert form["hierarchy.dram_read_bytes"] == 3 * 4096 * 64 * 4 == 3_145_728
    assert form["hierarchy.dirty_bytes"] == (4096 * 64 + 4096) * 4 == 1_064_960
    assert form["hierarchy.dram_write_bytes"] == 0


def test_the_main_job_says_what_it_moves_and_what_would_do():
    found = said(MAIN, 64, 64)
    assert found["K/V Tiles Visited"][0] == 64 * 64
    assert found["K/V Tiles Skipped"][0] == 0
    assert found["Pairs Visible"] == (4096**2, "N^2")
    assert found["Moved At SM-L1"] == (34_082_816, "N d (2 + 2 ceil(N/Br)) + N")
    assert found["Ideal At DRAM"] == (1_052_672, "4 N d + N")
    assert found["FLOPs, Products"][0] == 4 * 4096**2 * 64
    form = closed_form(MAIN, 64, 64)
    flops = 2 * form["arithmetic.ffma"] + form["arithmetic.fmul"] + form["arithmetic.fadd"]
    assert found["FLOPs, Rest"][0] + 4 * 4096**2 * 64 == found["FLOPs, All"][0] == flops
    assert ratios(facts(MAIN, 64, 64, form)) == (
        "Moved At SM-L1 / Ideal At DRAM: 32.38.", "FLOPs, Rest / FLOPs, All: 7.85 %.")


def test_causal_says_its_tiles_and_no_formula_of_the_square():
    found = said(MAIN_CAUSAL, 64, 64)
    assert (found["K/V Tiles Visited"][0], found["K/V Tiles Skipped"][0]) == (2080, 2016)
    assert found["Moved At SM-L1"] == (17_567_744, "2 d (N + keys loaded) + N")
    assert found["Pairs Visible"][0] == 4096 * 4097 // 2
    assert found["Pairs Computed"][0] == 2080 * 64 * 64  # the 64 rows of a block work on whole tiles
    assert found["FLOPs, Products"][0] == 4 * 64 * 2080 * 64 * 64


def test_other_keys_than_queries_have_no_formula_of_the_square():
    assert said(Shape(16, 10, 4), 16, 64)["Moved At SM-L1"] == (2 * 4 * 26 + 16, "2 d (N + keys loaded) + N")


def test_facts_are_over_all_heads():
    one, two = said(Shape(33, 33, 16), 16, 16), said(Shape(33, 33, 16, heads=2), 16, 16)
    assert {label: value for label, (value, _) in two.items()} == {k: 2 * v for k, (v, _) in one.items()}
    assert two["Ideal At DRAM"][1] == "H (4 N d + N)"


def test_the_ideal_is_held_against_dram_only_where_each_element_moves_there_once():
    def counters(shape):
        found = facts(shape, 16, 16, closed_form(shape, 16, 16))
        return next(f.counters for f in found if f.label == "Ideal At DRAM")

    assert "hierarchy.dram_read_bytes" in counters(Shape(32, 32, 16))
    assert counters(Shape(33, 33, 16)) == {}


@pytest.mark.parametrize("options", [*SMALL, {"N": 64, **TINY}], ids=str)
def test_counted_equals_every_fact(device, options):
    launch, _, _ = solve(device, **options)
    compared = {f.label: differs(f) for f in launch.facts if f.counters}
    assert compared.pop("Ideal At DRAM", False) is False
    assert compared == {"Moved At SM-L1": False, "FLOPs, All": False}


def test_all_comes_in_and_goes_out_with_4_sectors_a_request():
    form = closed_form(MAIN, 64, 64)
    assert form["global_load.requests"] == 64 * 64 * 2 * 128 + 4096 * 64 // 32
    assert form["global_store.requests"] == 4096 * 64 // 32 + 4096 // 32
    for space in ("global_load", "global_store"):
        assert form[f"{space}.sectors"] == 4 * form[f"{space}.requests"]


def test_each_ffma_of_the_products_has_one_broadcast_load():
    form = closed_form(MAIN, 64, 64)
    products, rows = 2 * 4096 * 4096 * 64, 4096 * 64
    assert form["shared_load.lanes"] == products + 2 * rows
    assert form["shared_load.requests"] == (products + 2 * rows) // 32


@pytest.mark.parametrize("d", [32, 64, 128, 256])
def test_rotated_rows_of_a_multiple_of_32_words_have_no_bank_conflicts(d):
    form = closed_form(Shape(64, 64, d), 64, 32)
    for space in ("shared_load", "shared_store"):
        assert form[f"{space}.wavefronts"] == form[f"{space}.ideal_wavefronts"]


def test_rotated_rows_of_48_words_keep_few_conflicts():
    # Unrotated, 16 lanes would meet in a bank: 2 * 48 requests by rows, with 15 wavefronts too many each.
    form = closed_form(Shape(64, 64, 48), 64, 64)
    conflicts = form["shared_load.wavefronts"] - form["shared_load.ideal_wavefronts"]
    assert 0 < conflicts < 2 * 48 * 15 // 10


def test_two_passes_of_32_rows_move_what_one_of_64_moves():
    one, two = closed_form(Shape(64, 64, 16), 64, 64), closed_form(Shape(64, 64, 16), 64, 32)
    assert one["global_load.lanes"] == two["global_load.lanes"]
    assert two["barriers"] - one["barriers"] == 2 * (4 + 2)


def test_a_strip_costs_what_its_lines_say():
    # One row, one strip: 2 * 8 * 64 products, the denominator, 9 exponentials; 64 divisions and a log.
    form = closed_form(Shape(1, 8, 64), 16, 16)
    assert form["arithmetic.ffma"] == 1024 + 1 + 36 + 320 + 11
    assert form["arithmetic.fmul"] == 64 + 9 + 64 + 2
    assert form["arithmetic.fadd"] == 17 + 9 + 1 + 1
    assert form["arithmetic.mufu"] == 9 + 64


def test_rows_beyond_n_do_no_arithmetic_and_store_nothing():
    small, large = closed_form(Shape(5, 64, 16), 16, 64), closed_form(Shape(5, 64, 16), 128, 64)
    assert small["arithmetic.ffma"] == large["arithmetic.ffma"]
    assert small["global_store.lanes"] == large["global_store.lanes"] == 5 * 17


def test_whole_tiles_are_stored_in_shared_memory_but_only_keys_that_exist_are_loaded():
    form = closed_form(Shape(16, 10, 4), 16, 64)
    assert form["shared_store.lanes"] == 2 * 64 * 4 + 2 * 16 * 4
    assert form["global_load.lanes"] == 16 * 4 + 2 * 10 * 4


def test_a_block_that_sees_no_key_loads_q_alone():
    form = closed_form(Shape(16, 16, 4, causal=True, q_start=-16), 16, 16)
    assert (form["global_load.lanes"], form["shared_store.lanes"], form["barriers"]) == (64, 128, 4)


@pytest.mark.parametrize("options", SMALL, ids=str)
def test_counted_equals_closed_form_and_results_are_right(device, options):
    launch, _, _ = solve(device, **options)
    assert differences(launch) == {}
    assert_right(launch)


@pytest.mark.parametrize("options", SMALL[1:4], ids=str)
def test_the_ir_oracle_counts_the_same(device, options):
    launch, _, _ = solve(device, engine="ir", **options)
    assert differences(launch) == {}
    assert launch.counters == solve(device, **options)[0].counters


def test_the_python_oracle_makes_the_same_accesses(device):
    launch, O, _ = solve(device, engine="oracle", **SMALL[1])
    memory = {p: d for p, d in differences(launch).items() if not p.startswith(("arithmetic", "hierarchy"))}
    assert memory == {}
    assert np.allclose(O, solve(device, **SMALL[1])[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [SMALL[2], SMALL[3]], ids=str)
def test_counts_only_gives_the_same_counters(device, options):
    assert solve(device, counts_only=True, **options)[0].counters == solve(device, **options)[0].counters


def test_the_main_job_counts_what_its_closed_form_says(device):
    assert differences(solve(device, counts_only=True, N=4096)[0]) == {}
    assert differences(solve(device, counts_only=True, N=4096, causal=True)[0]) == {}


# Results


@pytest.mark.parametrize(("N", "Br", "Bc", "d", "causal"), SPREAD)
def test_every_row_is_written_and_right(device, N, Br, Bc, d, causal):
    launch, _, _ = solve(device, N=N, Br=Br, Bc=Bc, d=d, causal=causal)
    assert differences(launch) == {}
    assert_right(launch)


@pytest.mark.full
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("Bc", TILES)
@pytest.mark.parametrize("Br", TILES)
def test_every_size_is_right_for_every_tile(device, Br, Bc, d, causal):
    for N in SIZES:
        launch, _, _ = solve(device, N=N, Br=Br, Bc=Bc, d=d, causal=causal)
        assert differences(launch) == {}, N
        assert_right(launch)


@pytest.mark.parametrize("q_start", [-14, -40, -64, 14])
def test_rows_that_see_no_key_give_0_and_minus_infinity(device, q_start):
    launch, O, L = solve(device, N=64, causal=True, q_start=q_start, **TINY)
    blind = max(0, -q_start)
    assert not O[0, :blind].any()
    assert np.isneginf(L[0]).tolist() == [True] * blind + [False] * (64 - blind)
    assert_right(launch)


@pytest.mark.parametrize("causal", [False, True])
def test_no_key_at_all_gives_0_and_minus_infinity(device, causal):
    launch, O, L = solve(device, N=20, Nk=0, causal=causal, **TINY)
    assert not O.any() and np.isneginf(L).all()
    assert differences(launch) == {}
    assert launch.counters.global_load.lanes == 20 * 16
    assert_right(launch)


def test_one_query_at_the_end_sees_all_256_keys(device):
    _, O, L = solve(device, N=1, Nk=256, causal=True, q_start=255, **TINY)
    _, free, _ = solve(device, N=1, Nk=256, **TINY)
    assert np.array_equal(O, free)
    assert np.isfinite(L).all()


@pytest.mark.parametrize("Bc", [8, 16])
def test_nan_in_an_invisible_value_or_key_does_not_leak_whatever_the_tile(device, Bc):
    def spoil(Q, K, V):
        V[0, 3] = np.nan
        K[0, 5] = np.nan

    options = {"N": 8, **TINY, "Bc": Bc, "causal": True}
    _, O, L = solve(device, prepare=spoil, **options)
    _, clean, _ = solve(device, **options)
    assert np.array_equal(O[0, :3], clean[0, :3])
    assert np.isnan(O[0, 3:]).all()
    assert np.isfinite(L[0, :5]).all()


def test_the_future_does_not_change_a_row(device):
    def shift(Q, K, V):
        V[0, 31:] += 1000
        K[0, 31:] += 1000

    options = {"N": 64, "causal": True, **TINY}
    _, O, _ = solve(device, prepare=shift, **options)
    _, plain, _ = solve(device, **options)
    assert np.array_equal(O[0, :31], plain[0, :31])
    assert (O[0, 31:] != plain[0, 31:]).any(axis=1).all()


def test_keys_beyond_the_last_one_weigh_nothing(device):
    def ones(Q, K, V):
        Q[...], K[...], V[...] = 0.25, 0.25, 1.0

    _, O, L = solve(device, prepare=ones, N=16, Nk=129, scale=1.0, **TINY)
    assert np.allclose(O, 1.0, rtol=0, atol=1e-6)
    assert np.allclose(L, 1 + np.log(129), rtol=0, atol=1e-5)


def test_the_last_channel_of_the_head_counts(device):
    def last_channel(Q, K, V):
        K[..., -1] *= 3

    _, O, _ = solve(device, prepare=last_channel, N=16, **TINY)
    _, plain, _ = solve(device, N=16, **TINY)
    assert not np.allclose(O, plain, rtol=0, atol=1e-3)


def test_a_scale_of_0_averages_the_values(device):
    problem = build(Options(N=16, scale=0.0, **TINY), Data())
    run_problem(problem, device)
    V = problem.steps[0].args[2].reshape(16, 16)
    assert np.allclose(problem.outputs["O"][0], V.mean(axis=0), rtol=0, atol=1e-6)
    assert np.allclose(problem.outputs["L"], np.log(16), rtol=0, atol=1e-6)


def test_scores_of_a_thousand_do_not_overflow(device):
    def large(Q, K, V):
        Q[...], K[...] = 8.0, 8.0

    launch, _, L = solve(device, prepare=large, N=16, scale=1.0, **TINY)
    assert_right(launch)
    assert np.allclose(L, 1024 + np.log(16), rtol=1e-6)


# What it refuses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"Br": 0}, "--Br must be 1 to 1024, got 0"),
        ({"Br": 2048}, "--Br must be 1 to 1024, got 2048"),
        ({"Bc": 20}, f"--Bc must be a positive multiple of {STRIP}, got 20"),
        ({"Bc": 0}, "--Bc must be a positive multiple"),
        ({"N": 0}, "--N must be at least 1"),
        ({"dtype": "fp8"}, "--dtype must be float32"),
    ],
)
def test_a_tile_or_size_it_cannot_take_is_refused(options, words):
    with pytest.raises(BadOption, match=words):
        build(Options(**options), Data(virtual=True))


def test_a_tile_that_does_not_fit_names_its_buffers_and_the_largest_that_does():
    with pytest.raises(BadOption) as refusal:
        build(Options(d=256, Bc=128), Data(virtual=True))
    text = str(refusal.value)
    for words in ("262144 bytes", "K tile 131072", "V tile 131072", "232448", "--Bc that fits is 112"):
        assert words in text
    build(Options(d=256, Bc=112), Data(virtual=True))


def test_tiles_over_48_kb_are_dynamic_shared_memory_and_smaller_ones_are_not():
    assert shared_bytes(96, 96, 64) == shared_bytes(64, 128, 64) == 0
    assert shared_bytes(96, 96, 72) == 2 * 4 * 96 * 72


def test_the_main_job_has_its_registers_recorded_with_their_source():
    step = build(Options(), Data(virtual=True)).steps[0]
    assert step.registers == 229
    assert "ptxas" in step.registers_source


def test_a_head_dimension_that_was_not_recorded_has_no_registers():
    step = build(Options(d=40), Data(virtual=True)).steps[0]
    assert (step.registers, step.registers_source) == (None, "")
