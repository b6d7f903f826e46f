"""flash_forward: shared K/V heads, lengths, windows and widths together; what it says of masked problems."""

from itertools import product

import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from gpusim.facts import differs
from gpusim.launch import counter
from kernels_sim.attention import Shape
from kernels_sim.flash_forward import Options, build, closed_form, facts, rescalings, statistics
from kernels_sim.problem import Data
from kernels_sim.run import run_problem

TINY = {"d": 4, "dv": 6, "Br": 12, "Bc": 8}
LENGTHS = [{"N": 21, "Nk": 29, "q_start": 8}, {"N": 19, "Nk": 19}, {"N": 17, "Nk": 9, "q_start": -6}]
GROUPS = [{"heads": 2}, {"heads": 4, "kv_heads": 2, "batch": 2}, {"heads": 3, "kv_heads": 1}]
MASKS = [{}, {"causal": True}, {"window": 7}, {"causal": True, "window": 7}]


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, prepare=None, **options):
    """Build a problem, let `prepare(Q, K, V)` change its inputs, run it; return (launch, outputs)."""
    problem = build(Options(**options), Data(seed=7))
    if prepare:
        widths = options["d"], options["d"], options.get("dv") or options["d"]
        prepare(*(x.reshape(len(x), -1, w) for x, w in zip(problem.steps[0].args, widths, strict=False)))
    return run_problem(problem, device)[0], problem.outputs


def assert_right(launch):
    counted = {path: counter(launch.counters, path) for path in launch.closed_form}
    assert counted == launch.closed_form
    assert [f.label for f in launch.facts if differs(f)] == []
    assert {c.output: c.error <= c.tolerance for c in launch.checks} == {"O": True, "L": True}, launch.checks


def said(shape, Br=64, Bc=64):
    """Return {label: (value, formula)} of what the algorithm says of itself."""
    return {f.label: (f.value, f.formula) for f in facts(shape, Br, Bc, closed_form(shape, Br, Bc))}


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_results_and_counts_are_right_over_groups_lengths_and_masks(device, mask):
    for group, lengths in product(GROUPS, LENGTHS):
        assert_right(solve(device, **TINY, **mask, **group, **lengths)[0])


@pytest.mark.full
@pytest.mark.parametrize(("Br", "Bc"), [(16, 64), (64, 16), (40, 24)])
@pytest.mark.parametrize(("d", "dv"), [(8, 12), (80, 48), (64, 128)])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_results_and_counts_are_right_for_every_tile(device, Br, Bc, d, dv, mask):
    for group, lengths in product(GROUPS, [*LENGTHS, {"N": 129, "Nk": 64, "q_start": -30}]):
        assert_right(solve(device, d=d, dv=dv, Br=Br, Bc=Bc, **mask, **group, **lengths)[0])


def test_six_heads_on_two_kv_heads_read_their_own_group(device):
    def number(Q, K, V):
        V[0], V[1] = 0, 1

    _, out = solve(device, number, N=3, heads=6, kv_heads=2, **TINY)
    assert [float(head.mean().round(6)) for head in out["O"]] == [0, 0, 0, 1, 1, 1]


def test_a_window_of_3_averages_at_most_3_values(device):
    def values(Q, K, V):
        Q[...], V[...] = 0, np.arange(8)[None, :, None]

    _, out = solve(device, values, N=8, causal=True, window=3, **TINY)
    assert np.allclose(out["O"][0, :, 0], [0, 0.5, 1, 2, 3, 4, 5, 6], rtol=0, atol=1e-6)
    assert np.allclose(out["L"][0], np.log([1, 2, 3, 3, 3, 3, 3, 3]), rtol=0, atol=1e-6)


def test_rows_past_the_window_of_the_last_key_give_0_and_minus_infinity(device):
    launch, out = solve(device, N=30, Nk=5, causal=True, window=4, **TINY)
    assert np.isneginf(out["L"][0]).tolist() == [i > 7 for i in range(30)]
    assert not out["O"][0, 8:].any()
    assert_right(launch)


def test_nan_before_the_window_does_not_reach_a_row(device):
    def spoil(Q, K, V):
        K[0, 2], V[0, 3] = np.nan, np.nan

    options = {"N": 20, "causal": True, "window": 5, **TINY}
    _, out = solve(device, spoil, **options)
    _, clean = solve(device, **options)
    assert np.array_equal(out["O"][0, 8:], clean["O"][0, 8:])
    assert np.isnan(out["O"][0, 2:8]).all()


def test_a_window_loads_no_tile_that_lies_wholly_before_it():
    shape = Shape(64, 640, 64, causal=True, q_start=576, window=64)
    assert statistics(shape, 64, 64) == {"tiles": 2, "skipped": 8}
    assert closed_form(shape, 64, 64)["global_load.lanes"] == 64 * 64 + 2 * 128 * 64


def test_a_causal_launch_says_executed_needed_and_half_of_the_square():
    found = said(Shape(4096, 4096, 64, causal=True))
    assert found["FLOPs, Products"] == (2_181_038_080, "4 d pairs computed")
    assert found["FLOPs, Pairs Visible"] == (2_148_007_936, "4 d pairs visible")
    assert found["FLOPs, Half Of N^2"] == (2_147_483_648, "4 N^2 d / 2")


def test_a_whole_square_says_its_flops_once():
    assert not {"FLOPs, Pairs Visible", "FLOPs, Half Of N^2"} & said(Shape(64, 64, 4)).keys()


def test_other_widths_and_shared_heads_have_formulas_of_their_own():
    found = said(Shape(64, 64, 4, heads=4, group=2, dv=8))
    assert found["Moved At SM-L1"][1] == "H ((d + dv) (N + keys loaded) + N)"
    assert found["FLOPs, Products"] == (4 * 2 * 12 * 64 * 64, "2 (d + dv) pairs computed")


def test_shared_heads_come_from_dram_once():
    one = closed_form(Shape(64, 64, 16, heads=2), 64, 64)["hierarchy.dram_read_bytes"]
    assert one == 2 * 3 * 64 * 16 * 4
    assert closed_form(Shape(64, 64, 16, 2, group=2), 64, 64)["hierarchy.dram_read_bytes"] == 4 * 64 * 16 * 4


# 16 bits


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 1.6e-2)])
def test_16_bit_inputs_are_right_over_groups_and_lengths(device, dtype, tolerance):
    for group, lengths in product(GROUPS, LENGTHS):
        launch, out = solve(device, **TINY, **group, **lengths, causal=True, window=7, dtype=dtype)
        assert_right(launch)
        assert {c.tolerance for c in launch.checks} == {tolerance}
        assert (out["O"].dtype.name, out["L"].dtype) == (dtype, np.float32)


def test_16_bits_halve_the_bytes_and_sectors_of_k_v_q_and_o():
    wide, narrow = (closed_form(Shape(64, 64, 64), 64, 64, size=size) for size in (4, 2))
    assert narrow["global_load.lanes"] == wide["global_load.lanes"]
    assert 2 * narrow["global_load.bytes"] == wide["global_load.bytes"]
    assert 2 * narrow["global_load.sectors"] == wide["global_load.sectors"]
    assert narrow["global_store.bytes"] == 64 * 64 * 2 + 64 * 4
    assert narrow["hierarchy.dram_read_bytes"] == 3 * 64 * 64 * 2
    assert narrow["arithmetic.ffma"] == wide["arithmetic.ffma"]


def test_scores_beyond_float16_do_not_overflow(device):
    """60 * 60 * 64 = 230,400 is more than 65,504, and 28,800 after scaling."""

    def large(Q, K, V):
        Q[...], K[...], V[...] = 60, 60, 1

    _, out = solve(device, large, N=3, d=64, Br=8, Bc=8, dtype="float16")
    assert np.array_equal(out["O"], np.ones((1, 3, 64)))
    assert np.allclose(out["L"], 28_800 + np.log(3), rtol=1e-6)


def test_the_ideal_in_bytes_is_held_against_dram_for_16_bits(device):
    launch, _ = solve(device, N=64, d=16, Br=16, Bc=16, dtype="bfloat16")
    ideal = next(f for f in launch.facts if f.label == "Ideal Bytes At DRAM")
    assert ideal.value == ideal.counted == 4 * 64 * 16 * 2 + 64 * 4


# Rescalings


def test_rescalings_are_the_strips_that_raise_a_finite_maximum():
    Q = np.ones((1, 3, 1))
    K = np.zeros((1, 32, 1))
    K[0, [5, 9, 16, 31], 0] = 1, 3, 2, 4  # strips of 8: maxima 1, 3, 2, 4
    assert rescalings(Q, K, Shape(3, 32, 1), 8).tolist() == [[2, 2, 2]]
    assert rescalings(Q, K, Shape(3, 32, 1, causal=True, q_start=8), 8).tolist() == [[0, 1, 1]]
    assert rescalings(-Q, K, Shape(3, 32, 1), 8).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("mask", [{}, {"causal": True, "window": 20}], ids=str)
def test_the_kernel_counts_its_rescalings(device, mask):
    launch, out = solve(device, N=40, Nk=50, q_start=10, heads=2, stats=True, **mask, **TINY)
    assert_right(launch)
    inputs = build(Options(N=40, Nk=50, heads=2, **TINY), Data(seed=7)).steps[0].args[:2]
    Q, K = (x.reshape(2, -1, 4) for x in inputs)
    shape = Shape(40, 50, 4, 2, bool(mask), 10, 0.5, window=mask.get("window", 0))
    assert np.array_equal(out["rescalings"], rescalings(Q, K, shape, 8))
    assert next(f.value for f in launch.facts if f.label == "Rescalings") == out["rescalings"].sum() > 0


def test_rescalings_need_the_data():
    with pytest.raises(BadOption, match="leave out --counts-only"):
        build(Options(stats=True), Data(virtual=True))


def test_a_v_tile_that_does_not_fit_is_named():
    with pytest.raises(BadOption, match=r"K tile 32768, V tile 262144.*--Bc that fits is 200"):
        build(Options(d=32, dv=256, Bc=256), Data(virtual=True))
