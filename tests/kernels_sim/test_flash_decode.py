"""flash_decode: states of every split, empty splits, shared K/V heads, NaN, counts, refusals."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from kernels_sim.attention import Shape
from kernels_sim.flash_decode import (
    Options,
    bounds,
    build,
    combine_form,
    facts,
    make_combine,
    shared_bytes,
    split_form,
)
from kernels_sim.problem import Data
from kernels_sim.run import run_problem
from tests.kernels_sim import verdicts
from tests.kernels_sim.verdicts import differences

TINY = {"d": 4, "dv": 6}
GROUPS = [{"heads": 2}, {"heads": 4, "kv_heads": 2, "batch": 2}, {"heads": 3, "kv_heads": 1}]


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, prepare=None, **options):
    """Build a problem, let `prepare(Q, K, V)` change its inputs, run it; return (launches, outputs)."""
    problem = build(Options(**options), Data(seed=7))
    if prepare:
        d = options["d"]
        widths = d, d, options.get("dv") or d
        prepare(*(x.reshape(len(x), -1, w) for x, w in zip(problem.steps[0].args, widths, strict=False)))
    return run_problem(problem, device), problem.outputs


assert_right = partial(verdicts.assert_right, outputs=("O", "L", "m", "l", "o"))


# Splits


def test_split_bounds_round_halves_to_even():
    assert bounds(10, 4) == [0, 2, 5, 8, 10]  # 2.5 and 7.5
    assert bounds(3, 5) == [0, 1, 1, 2, 2, 3]
    assert bounds(0, 2) == [0, 0, 0]


@pytest.mark.parametrize(("Nk", "splits"), [(10, 4), (3, 5), (37, 6), (6, 12), (100, 8)])
def test_the_kernel_splits_the_keys_at_those_bounds(device, Nk, splits):
    """With equal scores l counts the keys of a split."""

    def equal(Q, K, V):
        Q[...] = 0

    _, out = solve(device, equal, Nk=Nk, splits=splits, heads=1, **TINY)
    assert out["l"][0, 0].tolist() == np.diff(bounds(Nk, splits)).tolist()


def test_an_empty_split_is_the_unit_of_merging(device):
    launches, out = solve(device, Nk=3, splits=5, heads=1, **TINY)
    empty = [False, True, False, True, False]
    assert np.isneginf(out["m"][0, 0]).tolist() == empty
    assert (out["l"][0, 0] == 0).tolist() == empty
    assert (~out["o"][0, 0].any(axis=1)).tolist() == empty
    assert_right(launches)


def test_no_key_at_all_gives_0_and_minus_infinity(device):
    launches, out = solve(device, Nk=0, splits=3, **TINY)
    assert not out["O"].any() and np.isneginf(out["L"]).all()
    assert_right(launches)


# Results


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_states_and_results_are_right_over_groups_queries_keys_and_splits(device, group):
    for Nq, (Nk, splits) in product((1, 3), ((29, 3), (70, 2), (5, 40))):
        assert_right(solve(device, Nq=Nq, Nk=Nk, splits=splits, **TINY, **group)[0])


@pytest.mark.full
@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize(("d", "dv"), [(64, 64), (80, 48), (128, 256), (63, 33)])
def test_states_and_results_are_right_for_every_width(device, d, dv, group):
    for Nq, (Nk, splits) in product((1, 9), ((129, 1), (300, 7), (33, 40), (64, 64))):
        assert_right(solve(device, Nq=Nq, Nk=Nk, splits=splits, d=d, dv=dv, **group)[0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_inputs_are_right_and_states_are_float32(device, dtype):
    launches, out = solve(device, Nq=3, Nk=70, splits=4, heads=4, kv_heads=2, dtype=dtype, **TINY)
    assert_right(launches)
    assert {name: x.dtype.name for name, x in out.items()} == {"O": dtype, **dict.fromkeys("Lmlo", "float32")}


def test_one_key_gives_its_value_bit_for_bit(device):
    problem = build(Options(Nk=1, splits=4, heads=2, **TINY), Data(seed=7))
    run_problem(problem, device)
    assert np.array_equal(problem.outputs["O"][:, 0], problem.steps[0].args[2])


def test_the_number_of_splits_changes_the_last_digits_alone(device):
    one, many = (solve(device, Nk=90, splits=n, **TINY)[1]["O"] for n in (1, 33))
    assert np.allclose(one, many, rtol=0, atol=1e-6)


def test_scores_of_a_thousand_do_not_overflow(device):
    def large(Q, K, V):
        Q[...], K[...] = 16.0, 16.0

    assert_right(solve(device, large, Nk=40, splits=3, **TINY)[0])


def test_nan_in_one_value_shows_in_the_result(device):
    def spoil(Q, K, V):
        V[0, 17, 2] = np.nan

    _, out = solve(device, spoil, Nk=40, splits=4, **TINY)
    assert np.isnan(out["O"][0, 0]).tolist() == [c == 2 for c in range(6)]
    assert np.isfinite(out["O"][1:]).all()


def test_nan_in_one_key_shows_in_the_result_of_its_head(device):
    def spoil(Q, K, V):
        K[0, 17] = np.nan

    _, out = solve(device, spoil, Nk=40, splits=40, **TINY)
    assert np.isnan(out["O"][0]).all()
    assert np.isfinite(out["O"][1:]).all()


def test_combine_ignores_what_lies_in_o_of_an_empty_state():
    m = np.array([[0.5, -np.inf, 1.5]], np.float32)
    l = np.array([[1.0, 0.0, 2.0]], np.float32)
    o = np.array([[[1.0], [np.nan], [4.0]]], np.float32)
    O, L = np.full((1, 1), np.nan, np.float32), np.full(1, np.nan, np.float32)
    make_combine(1)[1, 128](m, l, o, O, L)
    weights = np.exp([0.5, 1.5])
    assert O[0, 0] == pytest.approx((weights @ [1, 4]) / (weights @ [1, 2]), rel=1e-6)
    assert L[0] == pytest.approx(np.log(weights @ [1, 2]), rel=1e-6)


def test_combine_shows_nan_of_a_state_that_is_not_empty():
    m, l = np.array([[0.5, -np.inf]], np.float32), np.array([[1.0, np.nan]], np.float32)
    o = np.ones((1, 2, 1), np.float32)
    O, L = np.zeros((1, 1), np.float32), np.zeros(1, np.float32)
    make_combine(1)[1, 128](m, l, o, O, L)
    assert np.isnan(O).all() and np.isnan(L).all()


def test_1500_states_are_all_merged():
    splits = 1500
    m, l = np.zeros((1, splits), np.float32), np.ones((1, splits), np.float32)
    o = np.arange(splits, dtype=np.float32).reshape(1, splits, 1)
    O, L = np.zeros((1, 1), np.float32), np.zeros(1, np.float32)
    make_combine(1)[1, 128](m, l, o, O, L)
    assert O[0, 0] == pytest.approx(749.5, rel=1e-6)
    assert L[0] == pytest.approx(np.log(1500), rel=1e-6)


# Counts


def test_k_and_v_are_loaded_once_for_all_heads_of_a_group_whatever_the_splits():
    alone, group = Shape(1, 1024, 64, heads=8), Shape(1, 1024, 64, heads=8, group=8)
    keys = 1024 * 64
    assert split_form(alone, 4)["global_load.lanes"] == 8 * 2 * keys + 8 * 64 * 4
    assert split_form(group, 4)["global_load.lanes"] == 2 * keys + 8 * 64 * 4
    assert split_form(group, 16)["global_load.lanes"] == 2 * keys + 8 * 64 * 16


def test_nine_rows_on_a_head_load_its_keys_twice():
    assert split_form(Shape(9, 32, 64), 1)["global_load.lanes"] == 2 * 2 * 32 * 64 + 9 * 64


def test_a_row_and_a_tile_take_ten_shuffles():
    assert split_form(Shape(1, 96, 64), 1)["warp_operations"] == 3 * 10
    assert combine_form(Shape(1, 96, 64), 40)["warp_operations"] == 5 + 5 + 2 + 40


def test_all_loads_of_whole_rows_have_4_sectors_a_request():
    form = split_form(Shape(1, 1024, 64), 8)
    assert form["global_load.sectors"] == 4 * form["global_load.requests"]


def test_the_report_says_how_many_blocks_have_keys():
    shape = Shape(1, 600, 64)
    forms = [split_form(shape, 1200), combine_form(shape, 1200)]
    found = {f.label: f.value for f in facts(shape, 1200, forms)}
    assert (found["Blocks"], found["Blocks With Keys"], found["Largest Split"]) == (1200, 600, 1)
    assert found["States"] == 1200 * 66


def test_a_block_of_8_rows_of_64_takes_its_tiles_and_queries_in_shared_memory():
    assert shared_bytes(64, 64, 8) == 4 * (32 * 65 + 32 * 64 + 8 * 64 + 8 * 32)


def test_the_default_problem_counts_what_its_closed_forms_say(device):
    assert differences(run_problem(build(Options(), Data(virtual=True)), device, counts_only=True)) == {}


# What it refuses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"splits": 0}, "--splits is grid dimension x, 1 to 2"),
        ({"Nq": 0}, "--Nq must be at least 1, got 0"),
        ({"heads": 3, "kv_heads": 2}, "--heads 3 is not a multiple of --kv-heads 2"),
        ({"Nq": 600_000}, "make 600000 blocks in grid dimension y"),
        ({"dtype": "fp8"}, "--dtype must be float32"),
    ],
)
def test_what_it_cannot_take_is_refused(options, words):
    with pytest.raises(BadOption, match=words):
        build(Options(**options), Data(virtual=True))
