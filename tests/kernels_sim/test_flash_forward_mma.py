"""flash_forward --variant mma: its closed form, results over the product of options, NaN, and refusals."""

from itertools import product

import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from gpusim.facts import differs
from gpusim.launch import counter
from kernels_sim.attention import Shape
from kernels_sim.flash_forward import Options, build
from kernels_sim.flash_forward_mma import facts
from kernels_sim.flash_forward_mma_counts import closed_form
from kernels_sim.problem import Data
from kernels_sim.run import run_problem

MAIN, MAIN_CAUSAL = Shape(4096, 4096, 64), Shape(4096, 4096, 64, causal=True)
TINY = {"d": 16, "Br": 16, "Bc": 16}
"""A tile shape that compiles fast; the tests of single properties share it."""
LENGTHS = [{"N": 41, "Nk": 70, "q_start": 29}, {"N": 33, "Nk": 33}, {"N": 35, "Nk": 21, "q_start": -9}]
GROUPS = [{"heads": 2}, {"heads": 4, "kv_heads": 2, "batch": 2}, {"heads": 3, "kv_heads": 1}]
MASKS = [{}, {"causal": True}, {"window": 11}, {"causal": True, "window": 11}]
TILES = [{"d": 24, "dv": 40, "Br": 16, "Bc": 48}, {"d": 16, "dv": 8, "Br": 32, "Bc": 16, "dtype": "bfloat16"}]
"""Br below and above Bc; head dimensions that are no multiple of 16, of both types."""


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, prepare=None, counts_only=False, **options):
    """Build a problem, let `prepare(Q, K, V)` change its inputs, run it; return (launch, outputs)."""
    problem = build(Options(variant="mma", **options), Data(seed=7, virtual=counts_only))
    if prepare:
        prepare(*problem.steps[0].args[:3])
    return run_problem(problem, device, counts_only=counts_only)[0], problem.outputs


def differences(launch):
    """Return {counter: (counted, expected)} where a launch is not what its closed form says."""
    counted = {path: counter(launch.counters, path) for path in launch.closed_form}
    return {path: (counted[path], n) for path, n in launch.closed_form.items() if counted[path] != n}


def assert_right(launch):
    assert differences(launch) == {}
    assert [f.label for f in launch.facts if differs(f)] == []
    assert {c.output: c.error <= c.tolerance for c in launch.checks} == {"O": True, "L": True}, launch.checks
    assert launch["gpusim__shared_matrix_conflicts.sum"] == 0


def said(shape, Br=64, Bc=64):
    """Return {label: (value, formula)} of what the algorithm says of itself."""
    form = closed_form(shape, Br, Bc, "float16")
    return {f.label: (f.value, f.formula) for f in facts(shape, Br, Bc, form, "float16")}


# The closed form


def test_the_main_job_takes_1048576_mma():
    # 64 blocks x 64 tiles x 4 warps; a warp's 16 x 64 scores are 8 x 4 mma, and so is its 16 x 64 of P V.
    form = closed_form(MAIN, 64, 64, "float16")
    assert form["tensor.f16"] == 64 * 64 * 4 * (32 + 32) == 1_048_576
    assert 1_048_576 * 4096 == 4 * 4096**2 * 64


def test_causal_executes_the_products_of_2080_whole_tiles():
    found = said(MAIN_CAUSAL)
    assert found["K/V Tiles Visited"][0] == 2080
    assert found["FLOPs, Products"][0] == 2_181_038_080 == 2080 * 64 * 64 * 4 * 64
    assert found["FLOPs, Pairs Visible"][0] == 2_148_007_936
    assert found["FLOPs, Half Of N^2"][0] == 2_147_483_648


def test_the_main_job_asks_for_the_elements_of_the_simt_variant_in_half_the_bytes():
    found = said(MAIN)
    assert found["Moved At SM-L1"] == (34_082_816, "N d (2 + 2 ceil(N/Br)) + N")
    assert found["Ideal At DRAM"] == (4 * 4096 * 64 + 4096, "4 N d + N")
    assert found["Bytes Moved At SM-L1"][0] == 2 * 34_082_816 + 2 * 4096  # L stays float32


def test_a_causal_launch_has_no_formula_of_the_square():
    assert said(MAIN_CAUSAL)["Moved At SM-L1"] == (17_567_744, "(d + dv) (N + keys loaded) + N")


def test_copies_are_whole_requests_of_16_sectors():
    # 32 lanes of 16 bytes: four rows of 64 elements.
    form = closed_form(MAIN, 64, 64, "float16")
    assert form["global_load.requests"] == 4096 // 4 + 64 * 2 * 4096 // 4
    assert form["global_load.sectors"] == 16 * form["global_load.requests"]


def test_o_goes_out_in_16_bytes_a_lane_and_l_in_8_rows_a_request():
    form = closed_form(MAIN, 64, 64, "float16")
    assert form["global_store.requests"] == 4096 // 4 + 4096 // 8
    assert form["global_store.sectors"] == 4096 * 64 * 2 // 32 + 4096 * 4 // 32


def test_a_warp_loads_q_once_and_two_tiles_of_8_matrices_a_step():
    # One block of one warp, two tiles: Q 4 ldmatrix; a tile 4 x 4 for K and as many for V.
    form = closed_form(Shape(16, 128, 64), 16, 64, "float16")
    assert form["shared_matrix.requests"] == 4 + 2 * 32
    assert form["shared_matrix.wavefronts"] == 4 * form["shared_matrix.requests"]


def test_a_tile_has_two_barriers_and_a_block_two_more():
    assert closed_form(Shape(16, 128, 64), 16, 64, "float16")["barriers"] == 2 * 2 + 2
    assert closed_form(Shape(16, 0, 64), 16, 64, "float16")["barriers"] == 2


def test_a_tile_costs_a_lane_what_its_lines_say():
    def lane(keys):
        form = closed_form(Shape(16, keys, 64), 16, 64, "float16")
        return [form[f"arithmetic.{name}"] // 32 for name in ("ffma", "mufu", "fadd", "fmul")]

    # 2 rows x 16 weights; two factors and two denominators; two maxima scaled, 32 accumulators rescaled.
    assert np.subtract(lane(128), lane(64)).tolist() == [32 + 4, 32 + 2, 32, 2 + 32]
    # 1 / x is 2 FFMA, a MUFU and an FADD, log 11 FFMA, 2 FMUL and an FADD; L is one FFMA; sums over the quad.
    assert lane(0) == [2 * (2 + 11 + 1), 2, 2 * (1 + 1 + 2), 2 * 2 + 32]


def test_scores_rounded_to_16_bits_or_compared_are_no_flops():
    one, two = (closed_form(Shape(16, 64, 64, causal=c), 16, 64, "float16") for c in (False, True))
    assert {k: v for k, v in one.items() if k.startswith("arith")} == {
        k: v for k, v in two.items() if k.startswith("arith")}  # fmt: skip


def test_a_tile_that_no_row_sees_is_not_computed():
    assert closed_form(MAIN_CAUSAL, 64, 64, "float16")["tensor.f16"] == 2080 * 4 * 64


def test_head_dimensions_are_computed_in_steps_of_16_but_loaded_as_they_are():
    # d = 24 and dv = 8 are computed as 32 and 16: 2 x 2 mma for 16 keys, and 2.
    form = closed_form(Shape(16, 16, 24, dv=8), 16, 16, "float16")
    assert form["tensor.f16"] == 4 + 2
    assert form["global_load.bytes"] == 2 * 16 * (24 + 24 + 8)


def test_rows_of_an_odd_number_of_chunks_take_a_sector_more_where_a_line_ends_between_two():
    # Rows of 24 elements are 48 bytes: of 8 rows, one pair of chunks lies at bytes 112 to 143 of a line.
    form = closed_form(Shape(8, 0, 24), 16, 16, "float16")
    starts = [48 * r % 128 for r in range(8)]
    assert starts.count(112) == 1 and starts.count(80) == 1
    assert form["global_load.sectors"] == 8 * 2 + 1


def test_only_keys_that_a_row_of_the_block_sees_are_loaded():
    # 16 rows from position 0 see keys 0 to 15 of a tile of 64.
    form = closed_form(Shape(16, 64, 16, causal=True), 16, 64, "float16")
    assert form["global_load.lanes"] == (16 + 2 * 16) * 2
    assert form["shared_async.lanes"] == (16 + 2 * 64) * 2  # the rest of the tile becomes zeros


# Counts and results


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_results_and_counts_are_right_over_groups_lengths_masks_and_tiles(device, mask, tile):
    for group, lengths in product(GROUPS, LENGTHS):
        assert_right(solve(device, **tile, **mask, **group, **lengths)[0])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 1.6e-2)])
def test_outputs_have_their_type_and_tolerance(device, dtype, tolerance):
    launch, out = solve(device, N=20, dtype=dtype, **TINY)
    assert_right(launch)
    assert {c.tolerance for c in launch.checks} == {tolerance}
    assert (out["O"].dtype.name, out["L"].dtype) == (dtype, np.float32)


def test_the_default_type_is_float16():
    assert build(Options(variant="mma", N=16), Data(virtual=True)).outputs["O"].dtype == np.float16


@pytest.mark.full
@pytest.mark.parametrize(("Br", "Bc"), [(16, 64), (64, 16), (48, 32), (64, 64)])
@pytest.mark.parametrize(("d", "dv"), [(64, 64), (80, 48), (128, 128), (72, 256)])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_results_and_counts_are_right_for_every_tile(device, Br, Bc, d, dv, mask):
    for group, lengths in product(GROUPS, [*LENGTHS, {"N": 129, "Nk": 64, "q_start": -30}]):
        assert_right(solve(device, d=d, dv=dv, Br=Br, Bc=Bc, **mask, **group, **lengths)[0])


def test_the_main_job_counts_what_its_closed_form_says(device):
    assert differences(solve(device, counts_only=True, N=4096)[0]) == {}


def test_rows_that_see_no_key_give_0_and_minus_infinity(device):
    launch, out = solve(device, N=40, causal=True, q_start=-18, **TINY)
    assert not out["O"][0, :18].any()
    assert np.isneginf(out["L"][0]).tolist() == [i < 18 for i in range(40)]
    assert_right(launch)


def test_no_key_at_all_gives_0_and_minus_infinity(device):
    launch, out = solve(device, N=20, Nk=0, **TINY)
    assert not out["O"].any() and np.isneginf(out["L"]).all()
    assert_right(launch)


def test_one_query_at_the_end_sees_all_keys(device):
    _, last = solve(device, N=1, Nk=50, causal=True, q_start=49, **TINY)
    _, free = solve(device, N=1, Nk=50, **TINY)
    assert np.array_equal(last["O"], free["O"])


def test_the_future_does_not_change_a_row(device):
    def shift(Q, K, V):
        V[0, 23:] += 100
        K[0, 23:] += 100

    options = {"N": 40, "causal": True, **TINY}
    _, out = solve(device, shift, **options)
    _, plain = solve(device, **options)
    assert np.array_equal(out["O"][0, :23], plain["O"][0, :23])
    assert (out["O"][0, 23:] != plain["O"][0, 23:]).any(axis=1).all()


def test_scores_beyond_float16_do_not_overflow(device):
    """60 * 60 * 16 = 57,600, times 1.5 is more than 65,504."""

    def large(Q, K, V):
        Q[...], K[...], V[...] = 60, 60, 1

    _, out = solve(device, large, N=3, scale=1.5, **TINY)
    assert np.array_equal(out["O"], np.ones((1, 3, 16)))
    assert np.allclose(out["L"], 86_400 + np.log(3), rtol=1e-6)


def test_six_heads_on_two_kv_heads_read_their_own_group(device):
    def number(Q, K, V):
        V[0], V[1] = 0, 1

    _, out = solve(device, number, N=3, heads=6, kv_heads=2, **TINY)
    assert [float(head.mean()) for head in out["O"]] == [0, 0, 0, 1, 1, 1]


# NaN


def test_nan_that_no_row_of_the_block_sees_reaches_none(device):
    def spoil(Q, K, V):
        K[0, 20], V[0, 19] = np.nan, np.nan

    # Rows 0 to 15 see keys 0 to 18 of the tile of 32; rows 16 and later are another block.
    options = {"N": 20, "Nk": 32, "causal": True, "q_start": 3, "d": 16, "Br": 16, "Bc": 32}
    _, out = solve(device, spoil, **options)
    _, clean = solve(device, **options)
    assert np.array_equal(out["O"][0, :16], clean["O"][0, :16])
    assert np.array_equal(out["L"][0, :16], clean["L"][0, :16])


def test_nan_in_a_value_that_a_row_of_the_block_sees_reaches_the_others(device):
    def spoil(Q, K, V):
        V[0, 10] = np.nan

    _, out = solve(device, spoil, N=32, causal=True, **TINY)
    assert np.isnan(out["O"][0]).all()  # also rows 0 to 9: their weight is 0, and 0 * NaN is NaN
    assert np.isfinite(out["L"]).all()


def test_nan_in_an_invisible_key_reaches_no_row(device):
    def spoil(Q, K, V):
        K[0, 10] = np.nan

    _, out = solve(device, spoil, N=16, causal=True, **TINY)
    _, clean = solve(device, N=16, causal=True, **TINY)
    assert np.array_equal(out["O"][0, :10], clean["O"][0, :10])
    assert np.isnan(out["O"][0, 10:]).all() and np.isnan(out["L"][0, 10:]).all()


def test_nan_in_a_query_stays_in_its_row(device):
    def spoil(Q, K, V):
        Q[0, 3, 5] = np.nan

    _, out = solve(device, spoil, N=20, **TINY)
    assert np.isnan(out["O"][0]).any(axis=1).tolist() == [i == 3 for i in range(20)]


# Rescalings


def test_the_kernel_counts_the_tiles_that_raise_a_maximum(device):
    def rising(Q, K, V):
        Q[...], K[...] = 1, 0
        K[0, [2, 20, 35], 0] = 1, 2, 3  # tiles of 16: maxima 1, 2, 3

    _, out = solve(device, rising, N=17, Nk=48, stats=True, **TINY)
    assert (out["rescalings"] == 2).all()


def test_a_maximum_that_falls_is_not_counted(device):
    def falling(Q, K, V):
        Q[...], K[...] = 1, 0
        K[0, [2, 20, 35], 0] = 3, 2, 1

    launch, out = solve(device, falling, N=17, Nk=48, stats=True, **TINY)
    assert (out["rescalings"] == 0).all()
    assert differences(launch) == {}


# What it refuses


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dtype": "float32"}, "--dtype must be float16 or bfloat16 with --variant mma, got float32"),
        ({"d": 20}, "--d must be a multiple of 8 with --variant mma, got 20"),
        ({"dv": 4}, "--dv must be a multiple of 8 with --variant mma, got 4"),
        ({"d": 264}, "--d must be at most 256, got 264"),
        ({"Br": 24}, "--Br must be a multiple of 16 from 16 to 512 with --variant mma, got 24"),
        ({"Br": 528}, "--Br must be a multiple of 16 from 16 to 512 with --variant mma, got 528"),
        ({"Bc": 8}, "--Bc must be a multiple of 16 from 16 to 65536 with --variant mma, got 8"),
        ({"scale": 0.0}, "--scale must be above 0 with --variant mma, got 0.0"),
        ({"stats": True}, "leave out --counts-only"),
        ({"variant": "wmma"}, "--variant is 'wmma', it must be one of simt, mma"),
    ],
)
def test_what_an_mma_or_cp_async_cannot_take_is_refused(options, text):
    with pytest.raises(BadOption, match=text):
        build(Options(**{"variant": "mma", **options}), Data(virtual=True))


def test_a_tile_that_does_not_fit_names_its_buffers():
    with pytest.raises(BadOption) as refusal:
        build(Options(variant="mma", d=256, Br=128, Bc=192), Data(virtual=True))
    for words in ("262144 bytes", "Q or O 65536", "K tile 98304", "V tile 98304", "232448"):
        assert words in str(refusal.value)
    build(Options(variant="mma", d=256, Br=128, Bc=160), Data(virtual=True))
