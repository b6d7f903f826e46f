"""The flash_row kernels: closed forms, the product of their options, the whole pass, NaN, refusals."""

from itertools import product

import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from gpusim.facts import differs
from gpusim.launch import counter
from kernels_sim import find, flash_row, flash_row_delta, flash_row_dk, flash_row_dq, flash_row_dv
from kernels_sim import flash_row_forward as forward
from kernels_sim.attention import Access, Shape
from kernels_sim.check import largest_error
from kernels_sim.flash_row import heads_first, row_range, rows_first, walk
from kernels_sim.problem import Data
from kernels_sim.run import run_problem
from tests.kernels_sim.autograd import autograd

KERNELS = tuple(f"flash_row_{part}" for part in ("forward", "delta", "dq", "dv", "dk"))
LENGTHS = [(1, 1, 0), (33, 33, 0), (40, 70, 30), (70, 33, -20), (37, 0, 0), (20, 50, -45)]
"""(T, Tk, q_start): as many keys, more, fewer with rows that see none, no key, keys that no row sees."""
SPREAD = [
    {"T": 33, "H": 4, "HKV": 2, "causal": True},
    {"T": 40, "Tk": 70, "q_start": 30, "H": 3, "HKV": 1, "causal": True, "window": 5, "B": 2},
    {"T": 70, "Tk": 33, "q_start": -20, "causal": True, "Br": 48},
    {"T": 37, "Tk": 0, "window": 3},
    {"T": 20, "Tk": 50, "q_start": -45, "window": 40, "Br": 32},
    {"T": 65, "H": 2, "HKV": 2, "d": 20, "window": 1, "causal": True},
]


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def options(name, **given):
    """Return a kernel's options of small heads; the forward pass has tiles too."""
    spec = find(name)
    known = set(spec.options.__dataclass_fields__)
    return spec.options(**{"d": 16, "H": 2, "HKV": 1, **{k: v for k, v in given.items() if k in known}})


def solve(device, name, seed=7, prepare=None, counts_only=False, engine="auto", **given):
    """Build a problem, let `prepare(step)` change its arrays, run it; return (launch, problem)."""
    problem = find(name).build(options(name, **given), Data(seed=seed, virtual=counts_only))
    if prepare:
        prepare(problem.steps[0])
    return run_problem(problem, device, counts_only=counts_only, engine=engine)[0], problem


def differences(launch):
    """Return {counter: (counted, expected)} where a launch is not what its closed form says."""
    counted = {path: counter(launch.counters, path) for path in launch.closed_form}
    return {path: (counted[path], n) for path, n in launch.closed_form.items() if counted[path] != n}


def assert_right(launch):
    assert differences(launch) == {}
    assert [check for check in launch.checks if not check.error <= 1e-5] == []
    assert [fact.label for fact in launch.facts if differs(fact)] == []


# Counts and results over the product of options


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("given", SPREAD, ids=str)
def test_counted_equals_closed_form_and_results_are_right(device, name, given):
    assert_right(solve(device, name, **given)[0])


@pytest.mark.full
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 1, 5, 40])
def test_the_product_of_lengths_shared_heads_and_blocks_is_right(device, name, causal, window):
    cases = product(LENGTHS, ((2, 2), (4, 2), (3, 1)), (32, 48), (1, 2))
    for (T, Tk, q_start), (H, HKV), Br, B in cases:
        given = {"B": B, "T": T, "Tk": Tk, "q_start": q_start, "H": H, "HKV": HKV, "Br": Br,
                 "Bc": 16 if Br == 32 else 7, "d": 16 if Br == 32 else 20}
        assert_right(solve(device, name, causal=causal, window=window, **given)[0])


@pytest.mark.full
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("d", [16, 32, 48, 63, 64, 72, 80, 96, 128])
def test_every_head_dimension_is_right(device, name, d):
    assert_right(solve(device, name, T=65, d=d, causal=True)[0])


@pytest.mark.full
@pytest.mark.parametrize(("H", "HKV"), [(28, 4), (12, 2), (7, 7)])
def test_six_and_seven_heads_in_a_group_are_right(device, H, HKV):
    for name in KERNELS:
        assert_right(solve(device, name, T=20, H=H, HKV=HKV, causal=True)[0])


@pytest.mark.full
@pytest.mark.parametrize("Br", [64, 128])
@pytest.mark.parametrize("Bc", [16, 64])
def test_every_length_is_right_for_every_tile(device, Br, Bc):
    longest = 913 if (Br, Bc) == (64, 16) else 193
    for T in (1, 63, 64, 65, 127, 128, 129, 192, longest):
        given = {"T": T, "H": 1, "causal": T != 129, "Br": Br, "Bc": Bc}
        assert_right(solve(device, "flash_row_forward", **given)[0])


@pytest.mark.parametrize("name", KERNELS)
def test_the_ir_oracle_counts_the_same(device, name):
    given = {"T": 20, "Tk": 24, "q_start": 2, "causal": True, "window": 6, "Br": 16, "Bc": 7}
    slow, fast = solve(device, name, engine="ir", **given)[0], solve(device, name, **given)[0]
    assert differences(slow) == {}
    assert slow.counters == fast.counters


@pytest.mark.parametrize("name", KERNELS)
def test_counts_only_gives_the_same_counters(device, name):
    virtual, real = solve(device, name, counts_only=True, **SPREAD[1])[0], solve(device, name, **SPREAD[1])[0]
    assert virtual.counters == real.counters


@pytest.mark.parametrize("name", KERNELS)
def test_the_defaults_have_a_closed_form_of_dram(name):
    problem = find(name).build(find(name).options(), Data(virtual=True))
    assert problem.steps[0].closed_form["hierarchy.dram_write_bytes"] == 0


# The accesses, by hand


def test_lanes_that_start_together_read_one_row_and_lanes_that_start_apart_read_32():
    zeros, ones = np.zeros(64, np.int64), np.ones(64, np.int64)
    assert walk(zeros, 10 * ones, 64).shared_rows() == Access(640, 20, 20)
    first = np.arange(64)
    assert walk(first, first + 10, 64).shared_rows() == Access(640, 20, 640)
    assert walk(first, first + 10, 64).own() == Access(640, 20, 640)


def test_a_causal_walk_over_queries_grows_shorter_lane_by_lane():
    first, end = row_range(Shape(32, 32, 16, causal=True))
    turns = walk(first, end, 32).shared_rows()
    assert turns == Access(32 * 33 // 2, 32, 32 * 33 // 2)
    # Element first + t of L: 32 - t neighbours in turn t, that start at element t.
    sectors = sum(31 // 8 - t // 8 + 1 for t in range(32))
    assert walk(first, end, 32).scalars(0) == Access(32 * 33 // 2, 32, sectors)


def test_rows_that_see_a_key_are_those_whose_keys_hold_it():
    shape = Shape(9, 7, 16, causal=True, q_start=-2, window=3)
    first, end = row_range(shape)
    visible = [[i for i in range(9) if j <= i - 2 < j + 3] for j in range(7)]
    assert [list(range(a, b)) for a, b in zip(first, end, strict=True)] == visible


def test_a_pair_of_the_forward_pass_costs_2_d_broadcasts_and_2_d_plus_1_ffma():
    form = forward.closed_form(Shape(1, 2, 16), 1, 32, 16)
    one = forward.closed_form(Shape(1, 1, 16), 1, 32, 16)
    assert form["shared_load.requests"] - one["shared_load.requests"] == 32
    assert form["arithmetic.ffma"] - one["arithmetic.ffma"] == 33 + 2 * 4
    assert form["arithmetic.fmul"] - one["arithmetic.fmul"] == 17 + 2


def test_a_window_skips_the_tiles_before_it_and_causal_those_behind_the_diagonal():
    assert forward.tiles_of(Shape(64, 64, 16, causal=True), 32, 16) == [[16, 16], [16] * 4]
    assert forward.tiles_of(Shape(64, 64, 16, causal=True, window=8), 32, 16) == [[16, 16], [16, 16, 16]]
    assert forward.tiles_of(Shape(8, 20, 16), 32, 16) == [[16, 4]]


def test_a_block_of_rows_past_every_window_stages_nothing():
    assert forward.tiles_of(Shape(64, 10, 16, causal=True, window=2), 32, 16) == [[10], []]


def test_the_backward_kernels_ask_for_2_2_and_5_rows_a_pair_and_dv_for_its_own_once():
    shape = Shape(32, 32, 16)
    pairs = 32 * 32
    assert flash_row_dq.closed_form(shape, 32)["global_load.lanes"] == pairs * 2 * 16 + 32 * (2 * 16 + 2)
    assert flash_row_dv.closed_form(shape, 32)["global_load.lanes"] == pairs * (2 * 16 + 1) + 32 * 16
    assert flash_row_dk.closed_form(shape, 32)["global_load.lanes"] == pairs * (5 * 16 + 2)


def test_without_causal_dq_reads_a_row_for_the_whole_warp_and_with_a_window_32():
    wide, narrow = Shape(64, 64, 16), Shape(64, 64, 16, window=64, q_start=64)
    rows = 2 * 64 * 16 + 2 * 8
    assert flash_row_dq.closed_form(wide, 64)["global_load.sectors"] == rows + 2 * 64 * 2 * 16
    turns = sum(64 - max(0, i + 1) for i in range(64))
    assert flash_row_dq.closed_form(narrow, 64)["global_load.sectors"] == rows + turns * 2 * 16


def test_delta_moves_8_times_the_bytes_it_asks_for():
    form = flash_row_delta.closed_form(Shape(64, 64, 16), 64)
    assert form["global_load.sectors"] * 32 == 8 * form["global_load.bytes"]


# Results


@pytest.mark.full
def test_the_five_launches_one_after_another_give_the_gradients_of_autograd(device):
    assert_whole_pass(device, autograd)


def test_the_five_launches_one_after_another_give_the_gradients(device):
    from kernels_sim.attention import reference
    from kernels_sim.attention_gradients import gradients

    def expected(Q, K, V, dO, shape):
        O, L = reference(Q, K, V, shape)
        return dict(zip(("O", "L", "dQ", "dK", "dV"), (O, L, *gradients(Q, K, V, dO, shape)), strict=True))

    assert_whole_pass(device, expected)


def assert_whole_pass(device, expected):
    """Run the five kernels, each on what the ones before it wrote, and compare with `expected`."""
    from dsl.host.launch import launch

    B, T, Tk, H, HKV, d, window, q_start, scale = 2, 40, 50, 4, 2, 16, 12, 5, np.float32(0.3)
    shape = Shape(T, Tk, d, B * H, True, q_start, 0.3, group=H // HKV, window=window)
    rng = np.random.default_rng(3)
    Q, dO = (rng.standard_normal((B, T, H, d)).astype(np.float32) for _ in range(2))
    K, V = (rng.standard_normal((B, Tk, HKV, d)).astype(np.float32) for _ in range(2))
    O, dQ = np.full_like(Q, np.nan), np.full_like(Q, np.nan)
    dK, dV = np.full_like(K, np.nan), np.full_like(V, np.nan)
    L, D = (np.full((B, H, T), np.nan, np.float32) for _ in range(2))
    tail, rows, keys = (scale, q_start, window), (1, H, B), (1, HKV, B)
    for kernel, grid, args in (
        (forward.make_kernel(d, 64, 16, True), rows, (Q, K, V, O, L, *tail)),
        (flash_row_delta.make_kernel(d), rows, (O, dO, D)),
        (flash_row_dq.make_kernel(d, True), rows, (Q, K, V, dO, L, D, dQ, *tail)),
        (flash_row_dv.make_kernel(d, True), keys, (Q, K, dO, L, dV, *tail)),
        (flash_row_dk.make_kernel(d, True), keys, (Q, K, V, dO, L, D, dK, *tail)),
    ):
        launch(kernel, grid, (64,), args, device)
    found = {"O": O, "dQ": dQ, "dK": dK, "dV": dV}
    right = expected(*(heads_first(x) for x in (Q, K, V, dO)), shape)
    assert [name for name, x in found.items() if largest_error(x, rows_first(right[name], B)) > 1e-5] == []
    assert largest_error(L, right["L"].reshape(B, H, T)) < 1e-6


def test_rows_that_see_no_key_give_0_and_minus_infinity_and_no_gradient(device):
    given = {"T": 20, "Tk": 6, "q_start": -14, "causal": True}
    _, problem = solve(device, "flash_row_forward", **given)
    assert not problem.outputs["O"][0, :14].any()
    assert np.isneginf(problem.outputs["L"][0, 0]).tolist() == [True] * 14 + [False] * 6
    _, problem = solve(device, "flash_row_dq", **given)
    assert not problem.outputs["dQ"][0, :14].any()


def test_the_future_does_not_change_a_row(device):
    def shift(step):
        step.args[1][0, 31:] += 1000
        step.args[2][0, 31:] += 1000

    _, changed = solve(device, "flash_row_forward", prepare=shift, T=64, causal=True)
    _, plain = solve(device, "flash_row_forward", T=64, causal=True)
    differ = (changed.outputs["O"] != plain.outputs["O"])[0].any(axis=(1, 2))
    assert differ.tolist() == [False] * 31 + [True] * 33


def test_scores_of_a_thousand_do_not_overflow(device):
    def large(step):
        step.args[0][...], step.args[1][...] = 8.0, 8.0

    _, problem = solve(device, "flash_row_forward", prepare=large, T=16, scale=1.0)
    assert np.allclose(problem.outputs["L"], 1024 + np.log(16), rtol=1e-6)


def test_keys_that_no_row_sees_get_no_gradient(device):
    for name, output in (("flash_row_dk", "dK"), ("flash_row_dv", "dV")):
        _, problem = solve(device, name, T=4, Tk=10, causal=True)
        assert problem.outputs[output][0, :4].any() and not problem.outputs[output][0, 4:].any()


def test_value_heads_reach_the_query_heads_of_their_group(device):
    def number(step):
        V = step.args[2]
        V[...] = np.arange(V.shape[2], dtype=np.float32)[:, None]

    _, problem = solve(device, "flash_row_forward", prepare=number, T=5, H=6, HKV=2)
    assert np.allclose(problem.outputs["O"][0, 0, :, 0], [0, 0, 0, 1, 1, 1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("Bc", [3, 16])
def test_a_nan_in_an_invisible_key_or_value_stays_out_and_a_visible_one_shows(device, Bc):
    def spoil(step):
        step.args[1][0, 5] = np.nan
        step.args[2][0, 7] = np.nan

    given = {"T": 10, "causal": True, "window": 2, "Bc": Bc}
    _, problem = solve(device, "flash_row_forward", prepare=spoil, **given)
    lines = np.isnan(problem.outputs["O"][0]).any(axis=(1, 2)).tolist()
    assert lines == [False] * 5 + [True] * 4 + [False]
    assert np.isnan(problem.outputs["L"][0, 0]).tolist() == [False] * 5 + [True] * 2 + [False] * 3


def test_a_nan_in_an_invisible_key_or_value_stays_out_of_dq(device):
    def spoil(step):
        step.args[1][0, 5] = np.nan
        step.args[2][0, 7] = np.nan

    _, problem = solve(device, "flash_row_dq", prepare=spoil, T=10, causal=True, window=2)
    lines = np.isnan(problem.outputs["dQ"][0]).any(axis=(1, 2)).tolist()
    assert lines == [False] * 5 + [True] * 4 + [False]


@pytest.mark.parametrize(("given", "keys"), [
    ({"window": 3}, [1, 2, 3, 3, 3, 3, 3, 3]),
    ({"window": 4}, [1, 2, 3, 4, 4, 4, 4, 4]),
    ({}, [1, 2, 3, 4, 5, 6, 7, 8]),
])
def test_a_window_holds_the_row_itself(device, given, keys):
    def equal_scores(step):
        step.args[0][...] = 0

    _, problem = solve(device, "flash_row_forward", prepare=equal_scores, T=8, causal=True, **given)
    assert np.allclose(np.exp(problem.outputs["L"][0, 0]), keys, rtol=1e-6)


# What they refuse


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("given", "words"), [
    ({"H": 3, "HKV": 2}, "--H 3 is not a multiple of --HKV 2"),
    ({"HKV": 0}, "--HKV is 0"),
    ({"T": 0}, "--T is 0"),
    ({"Tk": -1}, "--Tk is -1"),
    ({"window": -1}, "--window is -1"),
    ({"d": 8}, "--d must be 16 to 128, got 8"),
    ({"d": 129}, "--d must be 16 to 128, got 129"),
    ({"Br": 0}, "--Br must be 1 to 1024"),
    ({"B": 65536}, "at most 65535"),
    ({"scale": float("nan")}, "--scale must be a finite number"),
    ({"q_start": 1 << 41}, "must lie within"),
])
def test_options_out_of_range_are_refused(name, given, words):
    with pytest.raises(BadOption, match=f"{name}: .*{words}"):
        find(name).build(options(name, **given), Data(virtual=True))


def test_a_tile_that_does_not_fit_names_the_largest_that_does():
    with pytest.raises(BadOption, match="--Bc must be 1 to 48 at --d 128, got 49"):
        forward.build(options("flash_row_forward", d=128, Bc=49), Data(virtual=True))
    forward.build(options("flash_row_forward", d=128, Bc=48), Data(virtual=True))


def test_arrays_change_their_order_and_back():
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    assert heads_first(x)[5].tolist() == x[1, :, 1].tolist()
    assert np.array_equal(rows_first(heads_first(x), 2), x)
    assert flash_row.blocks_of(0, 32) == 1
