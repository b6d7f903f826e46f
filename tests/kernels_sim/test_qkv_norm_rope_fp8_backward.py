"""qkv_norm_rope_fp8_backward: closed form, bytes, gradients against autograd's, special numbers, refusals."""

from itertools import product

import numpy as np
import pytest
from ml_dtypes import bfloat16, float8_e4m3fn

from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from gpusim.facts import differs
from gpusim.launch import counter
from kernels_sim.check import largest_error
from kernels_sim.problem import Data
from kernels_sim.qkv_norm_rope_fp8_backward import (
    Options,
    build,
    closed_form,
    norm_rope_gradient,
    packed_gradient,
    quantised,
    row_bytes,
)
from kernels_sim.run import run_problem
from tests.kernels_sim.qkv_autograd import CASES, EPS, autograd, inputs, recorded

PLAIN = {"tokens": 3, "heads": 2, "d": 4, "v_dim": 3}
PAIRED = {"tokens": 33, "heads": 4, "d": 34, "v_dim": 7, "rotary_dim": 16, "paired": True}
SHIFTED = {"tokens": 40, "heads": 2, "d": 40, "v_dim": 24, "rotary_dim": 16, "key_offset": True}
WHOLE = {"tokens": 64, "heads": 2, "d": 64}
SMALL = [PLAIN, PAIRED, SHIFTED, WHOLE]
ROW, TRANSPOSED, SCALE = 6, 7, 8
"""Places of grad_row, grad_transposed and grad_scale among the kernel's arguments."""


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, engine="auto", counts_only=False, **options):
    """Build a problem and run it; return its launch and its arrays: the inputs, bytes by row, transposed."""
    problem = build(Options(**options), Data(seed=7, virtual=counts_only))
    found = run_problem(problem, device, engine=engine, counts_only=counts_only)[0]
    return found, problem.steps[0].args


def run(device, **changes):
    """Run PLAIN without rotation on inputs that are changed by name; return the bytes by row as numbers."""
    problem = build(Options(**PLAIN, rotary_dim=0, eps=1.0, grad_scale=1.0), Data(seed=7))
    step = problem.steps[0]
    names = ("grad_q", "grad_k", "grad_v", "qk", "f1", "f2", "row", "transposed", "scale", "eps")
    args = dict(zip(names, step.args, strict=True)) | changes
    launch(step.kernel, step.grid, step.block, tuple(args.values()), device)
    assert np.array_equal(args["row"].view(np.uint8), args["transposed"].view(np.uint8).T)
    return args["row"].astype(np.float32)


def differences(found):
    """Return {counter: (counted, expected)} where a launch is not what its closed form says."""
    counted = {path: counter(found.counters, path) for path in found.closed_form}
    return {path: (counted[path], n) for path, n in found.closed_form.items() if counted[path] != n}


# Counts


@pytest.mark.parametrize("options", SMALL, ids=str)
def test_counted_equals_closed_form_and_every_byte_is_the_references(device, options):
    found, args = solve(device, **options)
    assert differences(found) == {}
    assert [fact.label for fact in found.facts if differs(fact)] == []
    assert [check.error for check in found.checks] == [0, 0]
    assert np.array_equal(args[ROW].view(np.uint8), args[TRANSPOSED].view(np.uint8).T)


@pytest.mark.full
@pytest.mark.parametrize(("paired", "key_offset"), [(False, False), (True, False), (False, True)])
def test_the_product_of_sizes_and_kinds_is_right(device, paired, key_offset):
    for tokens, heads, d, v_dim, part in product((1, 2, 33), (2, 4), (2, 30, 96), (1, 40), (0, 0.5, 1)):
        given = {"tokens": tokens, "heads": heads, "d": d, "v_dim": v_dim}
        turning = int(part * d) // 2 * 2
        found, _ = solve(device, paired=paired, key_offset=key_offset, rotary_dim=turning, **given)
        assert differences(found) == {}
        assert [check.error for check in found.checks] == [0, 0]


@pytest.mark.parametrize("options", [PLAIN, SHIFTED], ids=str)
def test_the_ir_oracle_counts_the_same_and_gives_the_same_bytes(device, options):
    (slow, slow_args), (fast, fast_args) = solve(device, engine="ir", **options), solve(device, **options)
    assert slow.counters == fast.counters
    assert np.array_equal(slow_args[ROW].view(np.uint8), fast_args[ROW].view(np.uint8))


def test_the_python_source_gives_the_same_bytes_as_its_sums_contract_nowhere(device):
    found = [solve(device, engine, **PLAIN)[1][ROW].view(np.uint8) for engine in ("oracle", "compiled")]
    assert np.array_equal(*found)


def test_counts_only_gives_the_same_counters(device):
    assert solve(device, counts_only=True, **SHIFTED)[0].counters == solve(device, **SHIFTED)[0].counters


def test_a_token_of_a_head_takes_7_rows_of_128_and_its_byte_goes_out_twice():
    form = closed_form(1024, 6, 128, 128, 128, False, False)
    rows = 1024 * 6
    # x and dy of Q and K, dv, two rows of factors; a warp loads the scale: 8 warps of 32 lanes a block
    assert form["global_load.lanes"] == 7 * rows * 128 + 8 * 32 * (6 * 32)
    assert form["global_load.sectors"] == 2 * 7 * rows * 4 + 8 * (6 * 32)
    assert form["global_store.bytes"] == 2 * 3 * rows * 128


def test_both_layouts_are_stored_in_whole_sectors():
    form = closed_form(1024, 6, 128, 128, 128, False, False)
    assert form["global_store.sectors"] == form["global_store.requests"] == 2 * 3 * 1024 * 6 * 128 // 32


def test_an_element_of_q_and_k_costs_27_flops_and_one_of_v_10():
    form = closed_form(1024, 6, 128, 128, 128, False, False)
    flops = 2 * form["arithmetic.ffma"] + form["arithmetic.fmul"] + form["arithmetic.fadd"]
    # 11 an element, 10 for its division; 10 + 2 + 1 + 6 + 5 in each of 32 lanes for 128 elements
    assert flops == 1024 * 6 * (2 * (128 * 21 + 32 * 24) + 128 * 10) == 1024 * 6 * 128 * (2 * 27 + 10)


def test_a_column_of_the_tile_has_no_conflict_as_a_row_is_an_odd_number_of_words():
    assert [row_bytes(*sizes) for sizes in ((128, 128), (64, 64), (2, 1), (6, 1))] == [388, 196, 12, 20]
    form = closed_form(1024, 6, 128, 128, 128, False, False)
    for path in ("shared_store", "shared_load"):
        assert form[f"{path}.requests"] == form[f"{path}.wavefronts"] == 3 * 1024 * 6 * 128 // 32


def test_a_key_offset_reads_what_does_not_turn_of_the_next_tokens_gradient():
    plain = closed_form(10, 3, 64, 64, 64, False, False)
    shifted = closed_form(10, 3, 64, 64, 32, False, True)
    assert shifted["global_load.lanes"] - plain["global_load.lanes"] == 9 * 3 * 32
    assert shifted["global_load.requests"] - plain["global_load.requests"] == 9 * 3
    assert shifted["global_store.lanes"] == plain["global_store.lanes"]


def test_dram_reads_every_input_once():
    form = closed_form(64, 2, 64, 64, 64, False, False)
    # dy and x of 4 heads, dv of 2, two factors, in 2 bytes; 64 bytes that hold the scale
    assert form["hierarchy.dram_read_bytes"] == 2 * 64 * 64 * (2 * 4 + 2 + 2) + 64
    assert form["hierarchy.dirty_bytes"] == 2 * 64 * 64 * 6


# The gradient


def reference_of(case, given, real=np.float64):
    """Return the gradient of the packed rows, (tokens, width), from arrays by their names."""
    arrays = (given[name] for name in ("grad_q", "grad_k", "qkv", "factor1", "factor2"))
    dx = norm_rope_gradient(*arrays, EPS, case.rotary_dim, case.paired, case.key_offset, real)
    return np.concatenate([x.reshape(case.tokens, -1) for x in (dx, given["grad_v"])], axis=1)


@pytest.mark.parametrize("i", range(len(CASES)))
def test_the_gradient_is_autograds(i):
    given = recorded(i)
    assert largest_error(reference_of(CASES[i], given), given["grad_qkv"]) <= 1e-12


@pytest.mark.parametrize("i", range(len(CASES)))
def test_float32_in_the_order_of_the_lanes_is_near_float64(i):
    given = recorded(i)
    assert largest_error(reference_of(CASES[i], given, np.float32), given["grad_qkv"]) <= 1e-5


@pytest.mark.full
@pytest.mark.parametrize("i", range(len(CASES)))
def test_the_gradient_is_that_of_autograd_now(i):
    given = inputs(CASES[i], seed=12)
    theirs = autograd(given, CASES[i])
    assert largest_error(reference_of(CASES[i], given | theirs), theirs["grad_qkv"]) <= 1e-12


@pytest.mark.parametrize("options", SMALL, ids=str)
def test_a_byte_is_within_half_a_unit_of_the_float64_gradient(device, options):
    _, args = solve(device, **options)
    given = Options(**options)
    rotary_dim = given.d if given.rotary_dim is None else given.rotary_dim
    dx = norm_rope_gradient(args[0], args[1], *args[3:6], given.eps, rotary_dim, given.paired,
                            given.key_offset)  # fmt: skip
    exact = np.concatenate([x.reshape(given.tokens, -1) for x in (dx, args[2].astype(np.float64))], axis=1)
    exact = np.clip(exact / given.grad_scale, -448, 448)
    # 4 bits of an e4m3: half a unit is 1/16 of it at most, 2^-10 below 2^-6; bfloat16's half unit before it
    allowed = np.maximum(np.abs(exact) / 16, 2.0**-10) + np.abs(exact) / 256
    assert (np.abs(args[ROW].astype(np.float64) - exact) <= allowed).all()


def test_the_last_token_gives_no_gradient_to_what_the_next_one_would_have_taken(device):
    _, args = solve(device, **SHIFTED)
    keys = args[ROW].astype(np.float32)[:, 80:160].reshape(40, 2, 40)
    x = args[3].astype(np.float32)[:, 80:160].reshape(40, 2, 40)
    alone = norm_rope_gradient(args[0], np.zeros_like(args[1]), *args[3:6], 1e-7, 16, False, True)
    assert not alone[:, 2:].any()
    # what is left there is the norm's correction alone: along x, with one factor a row
    factor = (keys / x)[-1, :, 16:]
    assert np.ptp(factor, axis=1).max() < 0.1 * np.abs(factor).max()


def test_bfloat16_comes_before_the_byte(device):
    """1.015625 x 6.15625 = 6.2524: 6.25 in bfloat16 and then 6.0, the even one; at once it would be 6.5."""
    assert float(float8_e4m3fn(1.015625 * 6.15625)) == 6.5
    x, dy = np.zeros((3, 16), bfloat16), np.full((3, 2, 4), 6.15625, bfloat16)
    f1 = np.full((3, 4), 1.015625, bfloat16)
    row = run(device, qk=x, grad_q=dy, grad_k=dy, f1=f1)
    assert (row[:, :16] == 6.0).all()


def test_the_rounding_to_bfloat16_is_not_left_out_of_the_reference():
    rng = np.random.default_rng(1)
    dx = (8 * rng.standard_normal(200_000)).astype(np.float32)
    twice = quantised(dx.astype(bfloat16).astype(np.float32), 1.0)
    # 1 number in 32 lies so near the middle of two bytes that bfloat16 takes it there, half of those past it
    changed = int((quantised(dx, 1.0).view(np.uint8) != twice.view(np.uint8)).sum())
    assert 5_500 < changed < 7_000


# Special numbers


def test_large_and_infinite_gradients_saturate_at_448(device):
    dv = np.full((3, 2, 3), 500, bfloat16)
    dv[1] = -np.inf
    row = run(device, grad_v=dv)[:, 16:]
    assert (row[[0, 2]] == 448).all() and (row[1] == -448).all()


def test_nan_in_v_is_one_byte_and_in_q_its_row_of_that_head(device):
    dv, dq = np.ones((3, 2, 3), bfloat16), np.ones((3, 2, 4), bfloat16)
    dv[1, 0, 2] = dq[2, 1, 0] = np.nan
    row = np.isnan(run(device, grad_v=dv, grad_q=dq))
    assert np.argwhere(row).tolist() == [[1, 18], *([2, i] for i in range(4, 8))]


def test_infinity_in_q_or_its_gradient_makes_nan_of_the_row_and_of_no_other(device):
    for name, shape in (("qk", (3, 16)), ("grad_q", (3, 2, 4))):
        given = np.ones(shape, bfloat16)
        given[(1, *[0] * (len(shape) - 1))] = np.inf
        assert np.argwhere(np.isnan(run(device, **{name: given}))).tolist() == [[1, i] for i in range(4)]


def test_a_row_of_zeros_has_the_gradient_over_the_root_of_eps(device):
    dy = np.full((3, 2, 4), 3, bfloat16)
    row = run(device, qk=np.zeros((3, 16), bfloat16), grad_q=dy, grad_k=dy, eps=np.float32(0.25))
    assert (row[:, :16] == 6).all()


def test_a_scale_of_0_gives_448_and_nan_for_0(device):
    dv = np.array([[[1, -1, 0]] * 2] * 3, bfloat16)
    row = run(device, grad_v=dv, scale=np.zeros(1, np.float32))[:, 16:]
    assert np.array_equal(row[:, :3], [[448, -448, np.nan]] * 3, equal_nan=True)


def test_nan_has_one_code():
    assert quantised(np.float32([np.nan, -np.nan]), 1.0).view(np.uint8).tolist() == [0x7F, 0x7F]


def test_gradients_that_are_one_number_for_all_are_read_as_that(device):
    one = np.ones(1, bfloat16)
    row = run(device, grad_v=np.broadcast_to(one, (3, 2, 3)), grad_q=np.broadcast_to(one, (3, 2, 4)))
    assert (row[:, 16:] == 1).all()
    assert np.array_equal(row, run(device, grad_q=np.ones((3, 2, 4), bfloat16),
                                   grad_v=np.ones((3, 2, 3), bfloat16)))  # fmt: skip


def test_q_and_k_may_be_the_front_of_longer_rows(device):
    qk = np.random.default_rng(3).standard_normal((3, 16)).astype(bfloat16)
    packed = np.full((3, 22), np.nan, bfloat16)
    packed[:, :16] = qk
    assert np.array_equal(run(device, qk=packed), run(device, qk=qk))


def test_the_reference_takes_scales_that_are_no_power_of_two(device):
    _, args = solve(device, grad_scale=0.013, **PAIRED)
    found = packed_gradient(*args[:6], Options().eps, 0.013, 16, True, False)
    assert np.array_equal(args[ROW].view(np.uint8), found.view(np.uint8))


# What it refuses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokens": 0}, "--tokens is 0"),
        ({"heads": 0}, "--heads is 0"),
        ({"d": 63}, "--d must be an even number"),
        ({"v_dim": 0}, "--v-dim is 0"),
        ({"d": 512, "v_dim": 509}, r"2 d \+ v_dim must be at most 1532, got 1533"),
        ({"d": 64, "rotary_dim": 66}, "--rotary-dim must be an even number from 0 to --d 64, got 66"),
        ({"paired": True, "heads": 3}, "--paired needs an even number of --heads, got 3"),
        ({"paired": True, "key_offset": True}, "--paired and --key-offset exclude each other"),
        ({"eps": float("nan")}, "--eps must be a finite number of at least 0"),
        ({"grad_scale": 0.0}, "--grad-scale must be a finite number above 0"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options, words):
    with pytest.raises(BadOption, match=f"qkv_norm_rope_fp8_backward: {words}"):
        build(Options(**options), Data(virtual=True))
