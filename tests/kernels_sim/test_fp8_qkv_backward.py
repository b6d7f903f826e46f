"""fp8_qkv_backward: closed forms, gradients against autograd's, the scale's own gradient, refusals."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from ml_dtypes import bfloat16

from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from gpusim.launch import counter
from kernels_sim.check import largest_error
from kernels_sim.fp8_qkv_backward import Options, build, closed_form, gradients, scale_gradient
from kernels_sim.problem import Data
from kernels_sim.qkv_norm_rope_fp8_backward import norm_rope_gradient
from kernels_sim.run import run_problem
from tests.kernels_sim import verdicts
from tests.kernels_sim.qkv_autograd import CASES, autograd, inputs, recorded

PLAIN = {"tokens": 16, "model_dim": 32, "heads": 2, "d": 6, "v_dim": 4}
PAIRED = {**PLAIN, "d": 8, "v_dim": 8, "paired": True, "accumulation": "fast"}
SHIFTED = {**PLAIN, "rotary_dim": 2, "key_offset": True}
GRAD_V = 2
"""Place of V's gradient among the arguments of the first launch."""


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, spoil=None, engine="auto", counts_only=False, **options):
    """Build a problem, let `spoil(grad_v)` change V's gradient, run it; return its launches and outputs."""
    problem = build(Options(**options), Data(seed=7, virtual=counts_only))
    if spoil:
        spoil(problem.steps[0].args[GRAD_V])
    launches = run_problem(problem, device, engine=engine, counts_only=counts_only)
    return launches, [] if counts_only else [x.astype(np.float64) for x in problem.outputs.values()]


assert_right = partial(verdicts.assert_right, outputs=("grad_x", "grad_weight", "grad_qkv_scale"))


# Counts


@pytest.mark.parametrize("options", [PLAIN, PAIRED, SHIFTED], ids=str)
def test_counted_equals_closed_form_and_results_are_right(device, options):
    assert_right(solve(device, **options)[0])


@pytest.mark.full
@pytest.mark.parametrize("accumulation", ["fast", "full"])
@pytest.mark.parametrize(("paired", "key_offset"), [(False, False), (True, False), (False, True)])
def test_the_product_of_sizes_and_kinds_is_right(device, paired, key_offset, accumulation):
    for tokens, model_dim, (heads, d, v_dim), part in product(
        (16, 144), (16, 208), ((2, 8, 8), (4, 34, 8), (2, 64, 72)), (0, 0.5, 1)
    ):
        given = {"tokens": tokens, "model_dim": model_dim, "heads": heads, "d": d, "v_dim": v_dim}
        turning = {"rotary_dim": int(part * d) // 2 * 2, "paired": paired, "key_offset": key_offset}
        assert_right(solve(device, accumulation=accumulation, **given, **turning)[0])


def test_the_ir_oracle_counts_the_same_and_gives_the_same_numbers(device):
    (slow, slow_out), (fast, fast_out) = solve(device, engine="ir", **SHIFTED), solve(device, **SHIFTED)
    assert [x.counters for x in slow] == [x.counters for x in fast]
    assert all(np.array_equal(a, b) for a, b in zip(slow_out, fast_out, strict=True))


@pytest.mark.parametrize("options", [PAIRED, SHIFTED], ids=str)
def test_counts_only_gives_the_same_counters(device, options):
    counted, ran = solve(device, counts_only=True, **options)[0], solve(device, **options)[0]
    assert [x.counters for x in counted] == [x.counters for x in ran]


def test_with_warm_caches_the_results_are_right():
    assert_right(solve(Device(get_arch("h200"), l2="warm"), **SHIFTED)[0])


def test_the_products_take_twice_the_forwards_instructions():
    forms = [step.closed_form for step in build(Options(), Data(virtual=True)).steps]
    assert [form.get("tensor.fp8", 0) for form in forms] == [0, 442_368, 442_368, 0]
    # an accumulator a result of whole tiles and 128 of K: 18 x 6 x 8 tiles and sums of tokens, 8 x 6 x 18
    assert [form["arithmetic.fadd"] for form in forms[1:3]] == [128 * 128 * 18 * 6 * 8] * 2


def test_the_last_launch_reads_two_matrices_writes_one_and_adds_once_a_block():
    form = closed_form(2304, 768)
    assert form["global_load.bytes"] == 2 * 2 * 2304 * 768 + 4 * 32 * 2304  # and each warp the scale
    assert form["global_store.bytes"] == 2 * 2304 * 768
    assert form["global_red.lanes"] == form["global_red.requests"] == 2304 // 8
    assert form["arithmetic.ffma"] == form["arithmetic.fmul"] == 2304 * 768


# Gradients


@pytest.mark.parametrize("i", range(len(CASES)))
def test_the_gradients_are_autograds(i):
    assert_gradients_are(recorded(i))


@pytest.mark.full
@pytest.mark.parametrize("i", range(len(CASES)))
def test_the_gradients_are_those_of_autograd_now(i):
    given = inputs(CASES[i], seed=12)
    assert_gradients_are(given | autograd(given, CASES[i]))


def assert_gradients_are(theirs):
    x, weight, scale, g = (theirs[name] for name in ("x", "weight", "qkv_scale", "grad_qkv"))
    found = gradients(g, x, scale * weight, weight, float(scale))
    for value, name in zip(found, ("grad_x", "grad_weight", "grad_qkv_scale"), strict=True):
        assert largest_error(value.reshape(theirs[name].shape), theirs[name]) <= 1e-12


@pytest.mark.parametrize("options", [PLAIN, PAIRED, SHIFTED], ids=str)
def test_8_bits_move_the_gradients_by_a_few_hundredths(device, options):
    problem = build(Options(**options), Data(seed=7))
    run_problem(problem, device)
    given, (of_rows, of_weight, of_x, last) = Options(**options), problem.steps
    grad_q, grad_k, grad_v, qk, f1, f2 = of_rows.args[:6]
    rotary_dim = given.d if given.rotary_dim is None else given.rotary_dim
    dx = norm_rope_gradient(grad_q, grad_k, qk, f1, f2, given.eps, rotary_dim, given.paired, given.key_offset)
    g = np.concatenate([a.reshape(given.tokens, -1) for a in (dx, grad_v.astype(np.float64))], axis=1)
    x, used = (step.args[1].astype(np.float64).T * step.args[4][0] for step in (of_weight, of_x))
    exact = gradients(g, x, used, last.args[1].astype(np.float64), given.qkv_scale)
    for found, expected in zip(list(problem.outputs.values())[:2], exact[:2], strict=True):
        # a byte is off by 1/16 at most, by about 1/40 in the mean square
        error = np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected)
        assert 0.005 < error < 0.05


def test_a_weights_gradient_is_qkv_scale_times_that_of_the_scaled_weight(device):
    problem = build(Options(**PLAIN, qkv_scale=0.25), Data(seed=7))
    run_problem(problem, device)
    of_scaled = problem.steps[3].args[0].astype(np.float32)
    assert np.array_equal(problem.outputs["grad_weight"].astype(np.float32), 0.25 * of_scaled)


def test_the_scales_gradient_is_the_sum_of_weights_times_gradients(device):
    of_scaled = np.repeat(np.arange(1, 11), 16).reshape(10, 16).astype(bfloat16)
    weight = np.tile(np.arange(16), (10, 1)).astype(bfloat16)
    found, total = np.full((10, 16), np.nan, bfloat16), np.zeros(1, np.float32)
    args = of_scaled, weight, np.full(1, 0.5, np.float32), found, total
    counters = launch(scale_gradient, (2,), (32, 8), args, device).counters
    assert total[0] == 55 * 120  # (1 + ... + 10) (0 + ... + 15)
    assert np.array_equal(found.astype(np.float32), 0.5 * of_scaled.astype(np.float32))
    assert {path: counter(counters, path) for path in closed_form(10, 16)} == closed_form(10, 16)


def test_the_scales_gradient_is_not_rounded_to_bfloat16(device):
    """256 + 1 is 256 in bfloat16."""
    of_scaled, weight = np.ones((1, 16), bfloat16), np.zeros((1, 16), bfloat16)
    weight[0, :2] = 256, 1
    one, total = np.ones(1, np.float32), np.zeros(1, np.float32)
    launch(scale_gradient, (1,), (32, 8), (of_scaled, weight, one, of_scaled.copy(), total), device)
    assert total[0] == 257


# Special numbers


def test_nan_in_a_gradient_reaches_its_token_its_feature_and_the_scale(device):
    def spoil(grad_v):
        grad_v[3, 1, 2] = np.nan

    _, (grad_x, grad_weight, grad_qkv_scale) = solve(device, spoil, **PLAIN)
    feature = 2 * 2 * 6 + 1 * 4 + 2
    assert np.isnan(grad_x).any(axis=1).nonzero()[0].tolist() == [3]
    assert np.isnan(grad_weight).any(axis=1).nonzero()[0].tolist() == [feature]
    assert np.isnan(grad_qkv_scale).all()


def test_an_infinite_gradient_counts_as_448_units(device):
    def spoil(grad_v):
        grad_v[3, 1, 2] = np.inf

    def same(grad_v):
        grad_v[3, 1, 2] = 448 / 32

    infinite, finite = (solve(device, change, **PLAIN)[1] for change in (spoil, same))
    assert all(np.array_equal(a, b) for a, b in zip(infinite, finite, strict=True))


# What it refuses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokens": 24}, "--tokens is 24, it must be a multiple of 16"),
        ({"model_dim": 24}, "--model-dim is 24, it must be a multiple of 16"),
        ({"heads": 2, "d": 6, "v_dim": 3}, r"heads \(2 d \+ v_dim\) is 30, it must be a multiple of 16"),
        ({"heads": 1, "d": 512, "v_dim": 512}, r"2 d \+ v_dim must be at most 1532, got 1536"),
        ({"paired": True, "heads": 3}, "--paired needs an even number of --heads, got 3"),
        ({"paired": True, "key_offset": True}, "--paired and --key-offset exclude each other"),
        ({"accumulation": "half"}, "--accumulation is 'half', it must be one of fast, full"),
        ({"grad_scale": -1.0}, "--grad-scale must be a finite number above 0"),
        ({"qkv_scale": float("nan")}, "--qkv-scale must be a finite number"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options, words):
    with pytest.raises(BadOption, match=f"fp8_qkv_backward: {words}"):
        build(Options(**options), Data(virtual=True))
