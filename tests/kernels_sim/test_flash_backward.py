"""flash_backward: gradients over the product of options, atomics and their order, NaN, counts, refusals."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from kernels_sim.attention import Shape
from kernels_sim.flash_backward import Options, Tile, build, facts, shared_bytes
from kernels_sim.flash_backward_counts import (
    atomic_adds,
    closed_form,
    delta_form,
    reduce_form,
    workspace_bytes,
)
from kernels_sim.problem import Data
from kernels_sim.run import run_problem
from tests.kernels_sim import verdicts
from tests.kernels_sim.verdicts import differences

MAIN, MAIN_TILE = Shape(4096, 4096, 64), Tile(64, 64, 64, 64)
MAIN_CAUSAL = Shape(4096, 4096, 64, causal=True)
TINY = {"d": 4, "dv": 6, "Br": 8, "Bc": 12}
"""Ragged everywhere: N and Nk below are multiples of neither."""
LENGTHS = [{"N": 21, "Nk": 29, "q_start": 8}, {"N": 19, "Nk": 19}, {"N": 17, "Nk": 9, "q_start": -6}]
GROUPS = [{"heads": 2}, {"heads": 4, "kv_heads": 2, "batch": 2}, {"heads": 3, "kv_heads": 1}]
MASKS = [
    {},
    {"causal": True},
    {"window": 7, "deterministic": True},
    {"causal": True, "window": 7},
    {"causal": True, "deterministic": True},
]


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, prepare=None, seed=7, **options):
    """Build a problem, let `prepare(Q, K, V, dO)` change its inputs, run it; return (launches, outputs)."""
    problem = build(Options(**options), Data(seed=seed))
    if prepare:
        d, dv = options["d"], options.get("dv") or options["d"]
        arrays = [*problem.steps[1].args[:3], problem.steps[0].args[1]]
        prepare(*(x.reshape(len(x), -1, w) for x, w in zip(arrays, (d, d, dv, dv), strict=True)))
    return run_problem(problem, device), problem.outputs


assert_right = partial(verdicts.assert_right, outputs=("dQ", "dK", "dV"))


# Results


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_gradients_are_right_over_groups_lengths_and_masks(device, mask):
    for group, lengths in product(GROUPS, LENGTHS):
        assert_right(solve(device, **TINY, **mask, **group, **lengths)[0])


@pytest.mark.full
@pytest.mark.parametrize(("Br", "Bc", "fixed"), [(8, 32, False), (64, 16, True), (16, 65, False)])
@pytest.mark.parametrize(("causal", "window"), list(product((False, True), (0, 20))))
def test_gradients_are_right_for_every_tile(device, Br, Bc, fixed, causal, window):
    for group, lengths in product(GROUPS, LENGTHS):
        sizes = {"d": 20, "Br": Br, "Bc": Bc, "causal": causal, "window": window, "deterministic": fixed}
        assert_right(solve(device, **sizes, **group, **lengths)[0])


@pytest.mark.full
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [16, 72, 128])
def test_gradients_are_right_for_the_usual_head_dimensions(device, d, causal):
    assert_right(solve(device, N=130, d=d, causal=causal, Br=32)[0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_16_bit_inputs_are_right_and_dq_is_float32(device, dtype):
    options = {"causal": True, "deterministic": dtype == "bfloat16", "dtype": dtype}
    for group, lengths in product(GROUPS, LENGTHS):
        launches, out = solve(device, **TINY, **options, **group, **lengths)
        assert_right(launches)
    assert [x.dtype.name for x in out.values()] == ["float32", dtype, dtype]


def test_rows_and_keys_that_see_nothing_have_a_gradient_of_0(device):
    _, out = solve(device, N=17, Nk=20, q_start=-6, causal=True, **TINY)
    assert not out["dQ"][:, :6].any() and out["dQ"][:, 7:].any()
    assert not out["dK"][:, 11:].any() and not out["dV"][:, 11:].any() and out["dV"][:, :11].any()


def test_with_one_key_the_gradients_of_q_and_k_are_rounding_of_terms_that_cancel(device):
    # P = 1 and dP = D: dQ and dK are 0, and float32 leaves the rounding of 64 rows of terms around 10.
    launches, outputs = solve(device, N=64, Nk=1, d=64, scale=1.0)
    assert_right(launches)
    assert 1e-5 < np.abs(outputs["dK"]).max() < 1e-4
    dQ, dK, dV = launches[-1].checks
    assert dK.terms > 30 and dK.error < 1e-6 and dV.terms == 0


def test_no_key_at_all_leaves_dq_at_0_in_one_launch(device):
    launches, out = solve(device, N=9, Nk=0, d=4, deterministic=True)
    assert [launch.kernel for launch in launches] == ["delta"]
    assert not out["dQ"].any() and out["dK"].size == 0
    assert_right(launches)


def test_nan_in_an_invisible_row_or_key_reaches_no_gradient_but_its_own(device):
    options = {"N": 20, "Nk": 20, "causal": True, **TINY}
    clean = solve(device, **options)[1]
    for at, name in enumerate(("Q", "K", "V", "dO")):
        def one(*arrays, at=at):
            arrays[at][0, 10] = np.nan

        _, out = solve(device, one, **options)
        rows, keys = (slice(0, 10), slice(11, 20))
        assert np.array_equal(out["dQ"][0, rows], clean["dQ"][0, rows]), name
        if name in ("Q", "dO"):
            assert np.array_equal(out["dK"][0, keys], clean["dK"][0, keys]), name
            assert np.array_equal(out["dV"][0, keys], clean["dV"][0, keys]), name
            assert np.isnan(out["dQ"][0, 10]).all()
        else:
            assert np.isnan(out["dQ"][0, 10:]).all(), name


def test_a_window_is_seen_from_both_sides(device):
    """Key j has a gradient from the rows j to j + 2 alone, if a row sees its own and two earlier keys."""

    def one_row(Q, K, V, dO):
        dO[0, :5], dO[0, 6:] = 0, 0

    _, out = solve(device, one_row, N=12, Nk=12, causal=True, window=3, **TINY)
    assert [bool(row.any()) for row in out["dV"][0]] == [j in (3, 4, 5) for j in range(12)]
    assert [bool(row.any()) for row in out["dQ"][0]] == [i == 5 for i in range(12)]


# Order of atomics


def test_30_orders_of_atomics_move_dq_in_its_last_digits_and_dk_and_dv_not_at_all():
    found = []
    for seed in [None, *range(30)]:
        problem = build(Options(N=96, d=4, Br=8, Bc=12), Data(seed=7))
        run_problem(problem, Device(get_arch("h200"), atomic_order=seed))
        found.append({name: x.copy() for name, x in problem.outputs.items()})
    for name in ("dK", "dV"):
        assert all(np.array_equal(one[name], found[0][name]) for one in found)
    moved = [np.abs(one["dQ"] - found[0]["dQ"]).max() for one in found]
    assert len(set(moved)) > 1 and max(moved) < 1e-6


def test_the_deterministic_variant_gives_the_same_bits_in_every_order():
    found = []
    for seed in (None, 1, 2):
        problem = build(Options(N=96, deterministic=True, causal=True, **TINY), Data(seed=7))
        run_problem(problem, Device(get_arch("h200"), atomic_order=seed))
        found.append(problem.outputs["dQ"].copy())
    assert all(np.array_equal(one, found[0]) for one in found)


# Closed forms


def test_atomics_add_16777216_elements_to_dq_and_8519680_when_causal():
    assert atomic_adds(MAIN, MAIN_TILE) == 4096 * 64 * 64 == 16_777_216
    assert atomic_adds(MAIN_CAUSAL, MAIN_TILE) == 2080 * 64 * 64 == 8_519_680
    form = closed_form(MAIN, MAIN_TILE, False)
    assert form["global_red.lanes"] == 16_777_216
    assert form["global_red.requests"] == 16_777_216 // 32
    assert form["global_red.sectors"] == 16_777_216 // 8


def test_the_deterministic_variant_adds_nothing_and_needs_64_times_dq():
    form = closed_form(MAIN, MAIN_TILE, True)
    assert workspace_bytes(MAIN, 64) == 64 * 4096 * 64 * 4 == 67_108_864
    assert "global_red.lanes" not in form
    assert form["global_store.lanes"] == 16_777_216 + 2 * 4096 * 64
    assert reduce_form(MAIN, MAIN_TILE)["global_load.lanes"] == 16_777_216
    assert reduce_form(MAIN_CAUSAL, MAIN_TILE)["arithmetic.fadd"] == 8_519_680


def test_the_first_launch_reads_o_and_do_once_and_zeroes_dq():
    form = delta_form(MAIN, zeroed=True)
    assert form["global_load.lanes"] == 2 * 4096 * 64
    assert form["global_store.lanes"] == 4096 + 4096 * 64
    assert form["warp_operations"] == 5 * 4096
    assert form["arithmetic.fadd"] == 5 * 4096 * 32


def test_each_visited_tile_loads_its_rows_of_q_do_l_and_d():
    form = closed_form(MAIN, MAIN_TILE, False)
    assert form["global_load.lanes"] == 2 * 4096 * 64 + 64 * 4096 * (2 * 64 + 2)
    assert closed_form(MAIN_CAUSAL, MAIN_TILE, False)["global_load.lanes"] == 2 * 4096 * 64 + 2080 * 64 * 130


def test_five_products_of_each_pair_are_10_d_flops_and_each_pair_has_one_exponential():
    form = closed_form(MAIN, MAIN_TILE, False)
    pairs = 4096 * 4096
    assert form["arithmetic.ffma"] == pairs * (5 * 64 + 1 + 4)
    assert form["arithmetic.mufu"] == pairs


def test_causal_computes_its_2080_tiles_whole():
    form = closed_form(MAIN_CAUSAL, MAIN_TILE, False)
    said = {f.label: f.value for f in facts(MAIN_CAUSAL, MAIN_TILE, False, [form])}
    assert said["Pairs Computed"] == 2080 * 4096 == 8_519_680
    assert said["FLOPs, Products"] == 640 * 8_519_680 == 5_452_595_200
    assert said["FLOPs, Pairs Visible"] == 640 * 4096 * 4097 // 2 == 5_370_019_840
    assert said["Tiles Skipped"] == 2016


def test_rows_of_64_words_are_padded_to_65_so_their_transposed_reads_have_no_conflicts():
    form = closed_form(MAIN, MAIN_TILE, False)
    assert form["shared_load.wavefronts"] == form["shared_load.requests"]
    # On their way through, 2 requests of each row of 64 stay inside it.
    assert form["shared_store.wavefronts"] == form["shared_store.requests"]
    assert shared_bytes(MAIN_TILE) == 4 * (2 * 64 * 65 + 2 * 64 * 64 + 64 * 64 + 2 * 64) == 82_944


def test_the_default_problem_counts_what_its_closed_forms_say(device):
    problem = build(Options(), Data(virtual=True))
    assert differences(run_problem(problem, device, counts_only=True)) == {}


@pytest.mark.full
@pytest.mark.parametrize(("causal", "adds"), [(False, 16_777_216), (True, 8_519_680)])
def test_the_main_job_counts_the_atomic_adds(device, causal, adds):
    problem = build(Options(N=4096, causal=causal), Data(virtual=True))
    launches = run_problem(problem, device, counts_only=True)
    assert differences(launches) == {}
    assert launches[1].counters.global_red.lanes == adds
    assert launches[1].counters.global_atom.lanes == 0


# What it refuses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"Br": 6}, "--Br must be a positive multiple of 4, got 6"),
        ({"Bc": 0}, "--Bc must be 1 to 1024, got 0"),
        ({"heads": 3, "kv_heads": 2}, "--heads 3 is not a multiple of --kv-heads 2"),
        ({"window": -1}, "--window must be at least 1"),
        ({"dv": 300}, "--dv must be at most 256"),
        ({"dtype": "fp8"}, "--dtype must be float32"),
    ],
)
def test_what_it_cannot_take_is_refused(options, words):
    with pytest.raises(BadOption, match=words):
        build(Options(**options), Data(virtual=True))


def test_tiles_that_do_not_fit_name_their_buffers():
    with pytest.raises(BadOption) as refusal:
        build(Options(d=256, Br=64, Bc=128), Data(virtual=True))
    for words in ("needs 427520 bytes", "K 131584", "dO 65536", "dS 32768", "a block can have 232448"):
        assert words in str(refusal.value)
