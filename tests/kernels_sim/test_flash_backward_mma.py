"""flash_backward --variant mma: gradients over the product of options, NaN, atomics, counts, refusals."""

from functools import partial
from itertools import product

import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import H200
from gpusim.errors import BadOption
from kernels_sim.attention import Shape, tiles_visited
from kernels_sim.flash_backward import Options, build
from kernels_sim.flash_backward_counts import atomic_adds
from kernels_sim.flash_backward_mma import Tile, facts, swizzle
from kernels_sim.flash_backward_mma_counts import closed_form, convert_form, instructions, rows_seen
from kernels_sim.problem import Data
from kernels_sim.run import run_problem
from tests.kernels_sim import verdicts
from tests.kernels_sim.verdicts import differences

MAIN, MAIN_TILE = Shape(4096, 4096, 64), Tile(64, 64, 64, 64)
MAIN_CAUSAL = Shape(4096, 4096, 64, causal=True)
TINY = {"d": 16, "dv": 32, "Br": 32, "Bc": 48}
"""Ragged everywhere: N and Nk below are multiples of neither."""
LENGTHS = [{"N": 70, "Nk": 99, "q_start": 29}, {"N": 67, "Nk": 67}, {"N": 41, "Nk": 33, "q_start": -10}]
GROUPS = [{"heads": 2}, {"heads": 4, "kv_heads": 2, "batch": 2}, {"heads": 3, "kv_heads": 1}]
MASKS = [
    {},
    {"causal": True, "window": 23},
    {"window": 7, "deterministic": True, "dtype": "bfloat16"},
    {"causal": True, "deterministic": True},
]


def solve(prepare=None, seed=7, atomic_order=None, **options):
    """Build a problem, let `prepare(Q, K, V, dO)` change its inputs, run it; return (launches, outputs)."""
    problem = build(Options(variant="mma", **options), Data(seed=seed))
    if prepare:
        d, dv = options["d"], options.get("dv") or options["d"]
        arrays = zip(problem.steps[1].args[:4], (d, d, dv, dv), strict=True)
        prepare(*(x.reshape(len(x), -1, width) for x, width in arrays))
    return run_problem(problem, Device(H200, atomic_order=atomic_order)), problem


assert_right = partial(verdicts.assert_right, outputs=("dQ", "dK", "dV"))


# Results


@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_gradients_are_right_over_groups_lengths_and_masks(mask):
    for group, lengths in product(GROUPS, LENGTHS):
        assert_right(solve(**TINY, **mask, **group, **lengths)[0])


@pytest.mark.full
@pytest.mark.parametrize(("Br", "Bc", "fixed"), [(32, 16, False), (64, 32, True), (32, 128, False)])
@pytest.mark.parametrize(("causal", "window"), list(product((False, True), (0, 20))))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_are_right_for_every_tile(Br, Bc, fixed, causal, window, dtype):
    for group, lengths in product(GROUPS, LENGTHS):
        sizes = {"d": 48, "Br": Br, "Bc": Bc, "causal": causal, "window": window, "deterministic": fixed}
        assert_right(solve(**sizes, **group, **lengths, dtype=dtype)[0])


@pytest.mark.full
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("d", "dv"), [(64, 64), (80, 96), (128, 128), (32, 224)])
def test_gradients_are_right_for_the_usual_head_dimensions(d, dv, causal):
    assert_right(solve(N=150, d=d, dv=dv, causal=causal, Br=32)[0])


def test_errors_are_those_of_16_bit_outputs():
    """P and dS are rounded to 16 bits, and so are the gradients: 2^-11 of each, in sums of float32."""
    launches, problem = solve(N=100, **TINY)
    assert all(check.tolerance == 2e-3 and check.error < 1e-3 for check in launches[-1].checks)
    assert {x.dtype.name for x in problem.outputs.values()} == {"float16"}


def test_rows_and_keys_that_see_nothing_have_a_gradient_of_0():
    # Of the tiles of 48 keys the second one is seen in part, the third not at all.
    _, problem = solve(N=70, Nk=120, q_start=-6, causal=True, **TINY)
    out = problem.outputs
    assert not out["dQ"][:, :6].any() and out["dQ"][:, 7:].any()
    assert not out["dK"][:, 64:].any() and not out["dV"][:, 64:].any() and out["dV"][:, :64].any()


def test_no_key_at_all_leaves_dq_at_0_in_the_first_and_the_last_launch():
    launches, problem = solve(N=9, Nk=0, d=16, deterministic=True)
    assert [launch.kernel for launch in launches] == ["delta", "convert"]
    assert not problem.outputs["dQ"].any() and problem.outputs["dK"].size == 0
    assert_right(launches)


def poison(name, at):
    """Return a function that puts a NaN into one row or key of an input."""

    def prepare(*arrays):
        arrays["Q K V dO".split().index(name)][0, at] = np.nan

    return prepare


@pytest.mark.slow
@pytest.mark.parametrize("mask", [{"causal": True}, {"causal": True, "window": 9}], ids=str)
def test_nan_in_a_key_reaches_the_rows_of_tiles_in_which_a_row_sees_it_and_no_other(mask):
    options = {"N": 96, "d": 16, "Br": 32, "Bc": 96, **mask}
    clean = solve(**options)[1].outputs
    # Key 40 is seen by rows 40 on, with a window up to 48: of the row tiles 0-31, 32-63 and 64-95 the first
    # has no such row, and with the window the last one neither.
    unseen = [slice(0, 32)] + [slice(64, 96)] * ("window" in mask)
    seen = slice(40, 49 if "window" in mask else 96)
    for name in ("K", "V"):
        out = solve(poison(name, 40), **options)[1].outputs
        assert all(np.array_equal(out["dQ"][0, rows], clean["dQ"][0, rows]) for rows in unseen), name
        assert np.isnan(out["dQ"][0, seen]).all(), name
        others = [j for j in range(96) if abs(j - 40) > 56]
        assert np.array_equal(out["dK"][0, others], clean["dK"][0, others])
    out = solve(poison("V", 40), **options)[1].outputs
    assert np.array_equal(out["dQ"][0, :40], clean["dQ"][0, :40])


@pytest.mark.slow
def test_nan_in_a_row_reaches_the_keys_of_tiles_in_which_it_sees_one_and_no_other():
    options = {"N": 96, "d": 16, "Br": 96, "Bc": 32, "causal": True}
    clean = solve(**options)[1].outputs
    # Row 40 sees keys 0 to 40: none of the third tile of keys, 64 to 95.
    for name, reached in (("Q", "dK"), ("dO", "dV")):
        out = solve(poison(name, 40), **options)[1].outputs
        for gradient in ("dK", "dV"):
            assert np.array_equal(out[gradient][0, 64:], clean[gradient][0, 64:]), name
        assert np.isnan(out[reached][0, :41]).all() and np.isnan(out["dQ"][0, 40]).all(), name
        assert np.array_equal(np.delete(out["dQ"][0], 40, 0), np.delete(clean["dQ"][0], 40, 0)), name


# Order of atomics


@pytest.mark.slow
def test_orders_of_atomics_move_the_sums_of_dq_in_their_last_digits_and_dk_and_dv_not_at_all():
    found = []
    for seed in (None, *range(8)):
        launches, problem = solve(N=288, atomic_order=seed, **TINY)
        assert (seed is not None) == any("Atomic order" in note for note in launches[-1].notes)
        found.append({**problem.outputs, "sums": problem.steps[1].args[6]})
    for name in ("dK", "dV"):
        assert all(np.array_equal(one[name], found[0][name]) for one in found)
    moved = [np.abs(one["sums"] - found[0]["sums"]).max() for one in found]
    assert len(set(moved)) > 1 and max(moved) < 1e-5


@pytest.mark.slow
def test_the_deterministic_variant_gives_the_same_bits_in_every_order():
    found = [
        solve(N=150, atomic_order=seed, causal=True, deterministic=True, **TINY)[1].outputs["dQ"]
        for seed in (None, 1, 2)
    ]
    assert all(np.array_equal(one, found[0]) for one in found)


# Closed forms


def test_tensor_instructions_are_those_of_five_products():
    # 10 d FLOPs a pair in instructions of 4,096: 4096^2 x 640 / 4096.
    assert instructions(MAIN, MAIN_TILE) == 4096 * 640 == 2_621_440
    assert closed_form(MAIN, MAIN_TILE, False, "float16")["tensor.f16"] == 2_621_440
    # 2,080 tiles of 64 x 64.
    assert closed_form(MAIN_CAUSAL, MAIN_TILE, False, "bfloat16")["tensor.bf16"] == 2080 * 640 == 1_331_200


def test_a_ragged_tile_is_computed_in_whole_units_of_16_rows_and_16_keys():
    # 17 rows and 33 keys are 2 x 3 units of 2 x (3 x 16 + 2 x 32) / 16 instructions.
    assert instructions(Shape(17, 33, 16, dv=32), Tile(16, 32, 64, 64)) == 2 * 3 * 14


@pytest.mark.parametrize(("shape", "adds"), [(MAIN, 16_777_216), (MAIN_CAUSAL, 8_519_680)])
def test_a_request_adds_4_of_8_neighbours_in_8_rows(shape, adds):
    form = closed_form(shape, MAIN_TILE, False, "float16")
    assert form["global_red.lanes"] == atomic_adds(shape, MAIN_TILE) == adds
    assert form["global_red.requests"] == adds // 32
    assert form["global_red.sectors"] == adds // 4


def test_the_deterministic_variant_stores_two_sums_a_lane_and_adds_nothing():
    form = closed_form(MAIN, MAIN_TILE, True, "float16")
    assert "global_red.lanes" not in form
    # dK and dV in chunks of 8, the workspace in pairs.
    assert form["global_store.lanes"] == 2 * 4096 * 64 // 8 + 16_777_216 // 2
    assert form["global_store.bytes"] == 2 * 4096 * 64 * 2 + 67_108_864


def test_each_visited_tile_copies_its_rows_of_q_do_l_and_d():
    form = closed_form(MAIN, MAIN_TILE, False, "float16")
    assert form["global_load.bytes"] == 2 * 2 * 4096 * 64 + 64 * 4096 * (2 * 2 * 64 + 2 * 4)
    assert form["global_load.sectors"] == form["global_load.bytes"] // 32


def test_rows_that_see_no_key_of_a_tile_are_not_read():
    # Row i sees keys 0 to i: of the tile of keys 32 to 63, the rows 32 on; 64 rows are one tile.
    low, high = rows_seen(Shape(64, 64, 16, causal=True), Tile(16, 16, 64, 32))
    assert low.tolist() == [[0], [32]] and high.tolist() == [[64], [64]]


@pytest.mark.parametrize(("causal", "window"), list(product((False, True), (0, 5, 40))))
def test_the_visited_tiles_are_those_of_every_attention_kernel(causal, window):
    for n, q_start in product((33, 100), (-50, -3, 0, 30)):
        shape = Shape(n, 70, 16, causal=causal, window=window, q_start=q_start)
        low, high = rows_seen(shape, Tile(16, 16, 32, 48))
        assert (high > low).sum(axis=0).tolist() == tiles_visited(shape, 32, 48).tolist()


def test_a_pair_takes_one_exponential_and_one_ffma_outside_the_tensor_cores():
    form, pairs = closed_form(MAIN, MAIN_TILE, False, "float16"), 4096 * 4096
    assert form["arithmetic.ffma"] == form["arithmetic.mufu"] == form["arithmetic.fadd"] == pairs
    # dS, L log2(e) for every second pair, and dK.
    assert form["arithmetic.fmul"] == pairs + pairs // 2 + 4096 * 64


def test_shared_accesses_have_no_conflicts():
    form = closed_form(MAIN, MAIN_TILE, False, "float16")
    # 16 x 16 pairs take 4 ldmatrix for each operand of 64 columns: two of S, dP and dQ, one of dV and dK.
    assert form["shared_matrix.requests"] == 4096 * 4096 // 256 * 32
    assert form["shared_matrix.wavefronts"] == form["shared_matrix.ideal_wavefronts"] == 4 * form[
        "shared_matrix.requests"
    ]
    assert form["barriers"] == 4 * 2 * (64 + 4096)


@pytest.mark.parametrize("width", range(16, 257, 16))
def test_8_rows_of_one_chunk_lie_in_8_places_of_the_banks(width):
    place = swizzle(width).py_func
    found = [{place(row, chunk) for chunk in range(width // 8)} for row in range(16)]
    assert set().union(*found) == set(range(0, 16 * width, 8))
    for first, chunk in product(range(8), range(width // 8)):
        assert len({place(row, chunk) // 8 % 8 for row in range(first, first + 8)}) == 8


def test_the_last_launch_reads_two_sums_a_lane_and_writes_16_bits():
    form = convert_form(MAIN)
    assert form["global_load.bytes"] == 4096 * 64 * 4 and form["global_store.bytes"] == 4096 * 64 * 2
    assert form["global_load.requests"] == form["global_store.requests"] == 4096
    assert form["arithmetic.fmul"] == 4096 * 64


def test_the_report_says_what_is_computed_and_what_is_visible():
    form = closed_form(MAIN_CAUSAL, MAIN_TILE, False, "float16")
    said = {f.label: f.value for f in facts(MAIN_CAUSAL, MAIN_TILE, False, "float16", [form])}
    assert said["Tiles Visited"] == 2080 and said["Tiles Skipped"] == 2016
    assert said["FLOPs, Tensor Cores"] == 640 * 2080 * 4096 == 5_452_595_200
    assert said["FLOPs, Pairs Visible"] == 640 * 4096 * 4097 // 2 == 5_370_019_840


@pytest.mark.slow
def test_the_default_problem_counts_what_its_closed_forms_say():
    problem = build(Options(variant="mma"), Data(virtual=True))
    launches = run_problem(problem, Device(H200), counts_only=True)
    assert differences(launches) == {}
    assert launches[1]["gpusim__shared_matrix_conflicts.sum"] == 0


# What it refuses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "float32"}, "--variant mma takes --dtype float16 or bfloat16, not float32"),
        ({"variant": "wgmma"}, "--variant is 'wgmma', it must be one of simt, mma"),
        ({"d": 72}, "--d must be a positive multiple of 16, got 72"),
        ({"dv": 8}, "--dv must be a positive multiple of 16, got 8"),
        ({"Br": 16}, "--Br must be a positive multiple of 32, got 16"),
        ({"Bc": 24}, "--Bc must be a positive multiple of 16, got 24"),
        ({"Bc": 528}, "--Bc must be at most 512, got 528"),
        ({"d": 144, "dv": 128}, "--d 144 and --dv 128 are more than 256 together"),
        ({"heads": 3, "kv_heads": 2}, "--heads 3 is not a multiple of --kv-heads 2"),
    ],
)
def test_what_it_cannot_take_is_refused(options, words):
    with pytest.raises(BadOption, match=words):
        build(Options(**{"variant": "mma", **options}), Data(virtual=True))


def test_tiles_that_do_not_fit_name_their_buffers():
    with pytest.raises(BadOption) as refusal:
        build(Options(variant="mma", d=128, Br=128, Bc=256), Data(virtual=True))
    # K has 16 rows of zeros more; Q and dO, L and D have two buffers.
    for words in ("needs 333824 bytes", "K 69632", "Q 65536", "dS 65536", "L 1024", "can have 232448"):
        assert words in str(refusal.value)
