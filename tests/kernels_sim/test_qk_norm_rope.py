"""qk_norm_rope: closed form, the norm and the rotation by hand, paired heads, key offset, refusals."""

from itertools import product

import numpy as np
import pytest

from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from gpusim.facts import differs
from gpusim.launch import counter
from kernels_sim.problem import Data
from kernels_sim.qk_norm_rope import EPS, Options, build, closed_form, rotation
from kernels_sim.run import run_problem

SMALL = [
    {"tokens": 1, "heads": 1, "d": 2},
    {"tokens": 5, "heads": 3, "d": 40, "rotary_dim": 6},
    {"tokens": 5, "heads": 4, "d": 64, "paired": True, "rotary_dim": 32},
    {"tokens": 7, "heads": 3, "d": 96, "rotary_dim": 16, "key_offset": True},
    {"tokens": 3, "heads": 2, "d": 34, "rotary_dim": 0, "key_offset": True},
    {"tokens": 4, "heads": 2, "d": 72, "dtype": "bfloat16"},
    {"tokens": 4, "heads": 2, "d": 64, "paired": True, "dtype": "float16"},
    {"tokens": 6, "heads": 2, "d": 48, "rotary_dim": 24, "key_offset": True, "dtype": "bfloat16"},
]


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, engine="auto", prepare=None, counts_only=False, **options):
    """Build a problem, let `prepare(qk)` change its heads, run it; return (its launch, Q, K)."""
    problem = build(Options(**options), Data(seed=7, virtual=counts_only))
    if prepare:
        prepare(problem.steps[0].args[0].reshape(options["tokens"], -1, options["d"]))
    found = run_problem(problem, device, engine=engine, counts_only=counts_only)[0]
    return found, problem.outputs["Q"], problem.outputs["K"]


def differences(run):
    """Return {counter: (counted, expected)} where a launch is not what its closed form says."""
    counted = {path: counter(run.counters, path) for path in run.closed_form}
    return {path: (counted[path], n) for path, n in run.closed_form.items() if counted[path] != n}


def assert_right(run):
    assert differences(run) == {}
    assert [check for check in run.checks if not check.error <= check.tolerance] == []
    assert [fact.label for fact in run.facts if differs(fact)] == []


# Counts


@pytest.mark.parametrize("options", SMALL, ids=str)
def test_counted_equals_closed_form_and_results_are_right(device, options):
    assert_right(solve(device, **options)[0])


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("paired", "key_offset"), [(False, False), (True, False), (False, True)])
def test_the_product_of_sizes_and_kinds_is_right(device, dtype, paired, key_offset):
    for tokens, heads, d, part in product((1, 2, 9), (2, 4, 6), (16, 30, 64, 96, 128, 200), (0, 0.5, 1)):
        given = {"tokens": tokens, "heads": heads, "d": d, "rotary_dim": int(part * d) // 2 * 2}
        assert_right(solve(device, paired=paired, key_offset=key_offset, dtype=dtype, **given)[0])


@pytest.mark.parametrize("options", [SMALL[1], SMALL[2], SMALL[7]], ids=str)
def test_the_ir_oracle_counts_the_same(device, options):
    slow, fast = solve(device, engine="ir", **options)[0], solve(device, **options)[0]
    assert differences(slow) == {}
    assert slow.counters == fast.counters


def test_counts_only_gives_the_same_counters(device):
    assert solve(device, counts_only=True, **SMALL[3])[0].counters == solve(device, **SMALL[3])[0].counters


def test_a_row_of_128_is_read_once_with_two_rows_of_factors():
    form = closed_form(1024, 6, 128, 128, False, False)
    rows = 2 * 1024 * 6
    assert form["global_load.lanes"] == 3 * rows * 128
    assert form["global_load.sectors"] == 4 * form["global_load.requests"] == 4 * 3 * rows * 4
    assert closed_form(1024, 6, 128, 128, False, False, 2)["global_load.sectors"] == 2 * 3 * rows * 4


def test_an_element_costs_10_and_a_half_flops():
    form = closed_form(1024, 6, 128, 128, False, False)
    flops = 2 * form["arithmetic.ffma"] + form["arithmetic.fmul"] + form["arithmetic.fadd"]
    # 2 for the square, 1 to normalise, 3 to turn; 5 + 2 + 6 + 5 in each of 32 lanes for 128 elements
    assert flops == 2 * 1024 * 6 * (128 * 6 + 32 * 18)


def test_a_key_offset_reads_a_row_more_for_all_keys_but_the_first_tokens():
    plain = closed_form(10, 3, 64, 32, False, False)
    shifted = closed_form(10, 3, 64, 32, False, True)
    assert shifted["global_load.lanes"] - plain["global_load.lanes"] == 9 * 3 * 64
    assert shifted["global_store.lanes"] == plain["global_store.lanes"]


def test_dram_reads_the_factors_once():
    form = closed_form(64, 4, 64, 64, False, False)
    assert form["hierarchy.dram_read_bytes"] == 4 * (64 * 8 * 64 + 2 * 64 * 64)
    assert form["hierarchy.dirty_bytes"] == 4 * 64 * 8 * 64


# The norm and the rotation


def test_neighbours_turn_as_a_pair_and_not_halves():
    f1, f2 = rotation(2, 4, 4, False)
    x = np.array([1.0, 0, 0, 0])
    turned = f1[1] * x + f2[1] * x[[1, 0, 3, 2]]
    assert np.allclose(turned, [np.cos(1), np.sin(1), 0, 0])


def test_angles_of_a_partial_rotation_are_those_of_its_own_width():
    f1, f2 = rotation(701, 64, 16, False)
    narrow = rotation(701, 16, 16, False)
    assert np.array_equal(f1[:, :16], narrow[0]) and np.array_equal(f2[:, :16], narrow[1])
    assert (f1[:, 16:] == 1).all() and not f2[:, 16:].any()
    assert np.isclose(f1[700, 2], np.cos(700 * 10000 ** (-2 / 16)))


def test_elements_that_do_not_turn_are_normalised_and_not_changed_else(device):
    _, turned, _ = solve(device, tokens=800, heads=1, d=64, rotary_dim=16)
    _, still, _ = solve(device, tokens=800, heads=1, d=64, rotary_dim=0)
    assert np.array_equal(turned[..., 16:], still[..., 16:])
    assert np.array_equal(turned[0], still[0])
    assert not np.allclose(turned[700, 0, :16], still[700, 0, :16], atol=1e-2)


def test_a_rotation_keeps_the_length_of_a_row(device):
    _, Q, K = solve(device, tokens=300, heads=2, d=64)
    for x in (Q, K):
        assert np.allclose((x.astype(np.float64) ** 2).mean(axis=2), 1, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("eps", "size"), [(EPS, 0.2782), (1e-5, 0.0316)])
def test_eps_decides_for_small_rows(device, eps, size):
    def small(qk):
        qk[...] = 1e-4

    _, Q, _ = solve(device, prepare=small, tokens=1, heads=1, d=8, rotary_dim=0, eps=eps)
    assert np.allclose(Q, size, rtol=2e-3)


def test_a_row_of_zeros_stays_zero(device):
    def zero(qk):
        qk[...] = 0

    _, Q, K = solve(device, prepare=zero, **SMALL[3])
    assert not Q.any() and not K.any()


# Paired heads and the key offset


def test_paired_heads_go_to_two_tokens_and_odd_ones_turn_by_the_second_half(device):
    tokens, heads, d = 3, 4, 8

    def one(qk):
        qk[...] = 0
        qk[:, :, 0] = np.arange(1, heads * 2 + 1)

    _, Q, K = solve(device, prepare=one, tokens=tokens, heads=heads, d=d, paired=True, eps=0.0)
    assert Q.shape == K.shape == (6, 2, 8)
    length = np.sqrt(d)
    for token, head in product(range(tokens), range(heads)):
        angle = 2 * token + head % 2
        row = Q[2 * token + head // 2, head % 2]
        assert np.allclose(row[:2], [length * np.cos(angle), length * np.sin(angle)], atol=1e-5)


def test_a_key_takes_what_does_not_turn_from_the_token_before_it(device):
    given = {"tokens": 6, "heads": 2, "d": 32, "rotary_dim": 8}
    _, Q, K = solve(device, key_offset=True, **given)
    _, plain_q, plain_k = solve(device, **given)
    assert np.array_equal(Q, plain_q)
    assert np.array_equal(K[..., :8], plain_k[..., :8])
    assert np.array_equal(K[0], plain_k[0])
    assert np.array_equal(K[1:, :, 8:], plain_k[:-1, :, 8:])


def test_q_and_k_may_be_the_front_of_longer_rows(device):
    problem = build(Options(tokens=5, heads=2, d=32), Data(seed=7))
    run_problem(problem, device)
    step = problem.steps[0]
    packed = np.full((5, 137), np.nan, np.float32)
    packed[:, :128] = step.args[0]
    found = [np.full((5, 2, 32), np.nan, np.float32) for _ in range(2)]
    args = (packed, *step.args[1:3], *found, step.args[5])
    counters = launch(step.kernel, step.grid, step.block, args, device).counters
    form = closed_form(5, 2, 32, 32, False, False, width=137)
    assert {path: counter(counters, path) for path in form} == form
    for x, name in zip(found, ("Q", "K"), strict=True):
        assert np.array_equal(x, problem.outputs[name])


def test_a_nan_in_a_row_stays_in_it(device):
    def spoil(qk):
        qk[2, 1, 3] = np.nan

    _, Q, K = solve(device, prepare=spoil, tokens=4, heads=2, d=16)
    assert np.isnan(Q).any(axis=2).tolist() == [[False] * 2] * 2 + [[False, True]] + [[False] * 2]
    assert np.isfinite(K).all()


# What it refuses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokens": 0}, "--tokens is 0"),
        ({"heads": 0}, "--heads is 0"),
        ({"d": 63}, "--d must be an even number"),
        ({"d": 1026}, "--d must be an even number from 2 to 1024, got 1026"),
        ({"d": 64, "rotary_dim": 66}, "--rotary-dim must be an even number from 0 to --d 64, got 66"),
        ({"rotary_dim": 7}, "--rotary-dim must be an even number"),
        ({"paired": True, "heads": 3}, "--paired needs an even number of --heads, got 3"),
        ({"paired": True, "key_offset": True}, "--paired and --key-offset exclude each other"),
        ({"eps": -1.0}, "--eps must be a finite number of at least 0"),
        ({"dtype": "fp8"}, "--dtype is .fp8., it must be one of float32, float16, bfloat16"),
    ],
)
def test_options_out_of_range_are_refused(options, words):
    with pytest.raises(BadOption, match=words):
        build(Options(**options), Data(virtual=True))
