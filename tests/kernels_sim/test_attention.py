"""What the attention kernels share: visible keys, elements and FLOPs, warp accesses, and the reference."""

from types import SimpleNamespace

import numpy as np
import pytest

from gpusim.errors import BadOption
from kernels_sim import attention
from kernels_sim.attention import Access, Shape


def options(**changes):
    """Return options as a kernel has them, some of them changed."""
    given = {"N": 8, "Nk": None, "d": 4, "heads": 1, "batch": 1, "causal": False, "q_start": 0, "scale": None}
    return SimpleNamespace(**{**given, "dtype": "float32", **changes})


def plain(Q, K, V, shape):
    """Return O and L row by row, key by key: the definition, for finite inputs."""
    O, L = np.zeros(Q.shape), np.full(Q.shape[:2], -np.inf)
    for head, row in np.ndindex(*Q.shape[:2]):
        keys = [j for j in range(shape.Nk) if not shape.causal or j <= shape.q_start + row]
        if keys:
            weights = np.exp([shape.scale * np.dot(Q[head, row], K[head, j]) for j in keys])
            O[head, row] = weights @ V[head, keys] / weights.sum()
            L[head, row] = np.log(weights.sum())
    return O, L


# Options


def test_nk_defaults_to_n_and_scale_to_one_over_the_root_of_d():
    shape = attention.shape_of(options(N=5, d=16, heads=3, batch=2))
    assert (shape.Nk, shape.scale, shape.heads) == (5, 0.25, 6)


def test_nk_zero_means_n():
    assert attention.shape_of(options(Nk=0)).Nk == 8


def test_a_scale_of_zero_is_kept():
    assert attention.shape_of(options(scale=0.0)).scale == 0.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"N": 0}, "--N must be at least 1, got 0"),
        ({"N": -3}, "--N must be at least 1, got -3"),
        ({"Nk": -1}, "--Nk must be at least 1"),
        ({"d": 0}, "--d must be at least 1"),
        ({"d": 257}, "--d must be at most 256, got 257"),
        ({"heads": 0}, "--heads must be at least 1"),
        ({"batch": 65536}, "at most 65535"),
        ({"dtype": "float16"}, "--dtype must be float32, got float16"),
        ({"scale": float("inf")}, "--scale must be a finite number"),
    ],
)
def test_an_option_out_of_range_is_refused_by_its_name(changes, words):
    with pytest.raises(BadOption, match=words):
        attention.shape_of(options(**changes))


# Which keys a row sees


def test_without_causal_every_row_sees_every_key():
    assert attention.keys_seen(Shape(3, 5, 1)).tolist() == [5, 5, 5]


def test_bottom_right_causal_sees_9_keys_and_top_left_3():
    assert attention.visible_pairs(Shape(2, 5, 1, causal=True, q_start=3)) == 4 + 5
    assert attention.visible_pairs(Shape(2, 5, 1, causal=True, q_start=0)) == 1 + 2


def test_rows_before_the_first_key_see_none():
    assert attention.keys_seen(Shape(5, 2, 1, causal=True, q_start=-3)).tolist() == [0, 0, 0, 1, 2]


def test_causal_pairs_are_a_triangle():
    assert attention.visible_pairs(Shape(100, 100, 1, causal=True)) == 100 * 101 // 2


def test_a_block_looks_at_the_keys_of_its_last_row():
    shape = Shape(5, 9, 1, causal=True, q_start=2)
    assert attention.block_rows(shape, 2).tolist() == [2, 2, 1]
    assert attention.block_keys(shape, 2).tolist() == [4, 6, 7]


def test_causal_blocks_visit_the_lower_triangle_of_tiles():
    shape = Shape(4096, 4096, 64, causal=True)
    assert attention.tiles_visited(shape, 64, 64).sum() == 64 * 65 // 2 == 2080
    assert attention.tiles_skipped(shape, 64, 64) == 4096 - 2080


# Elements and FLOPs


def test_flash_asks_for_34082816_elements_and_causal_for_17567744():
    assert attention.io_flash(Shape(4096, 4096, 64), 64, 64) == 4096 * 64 * (2 + 2 * 64) + 4096 == 34_082_816
    assert attention.io_flash(Shape(4096, 4096, 64, causal=True), 64, 64) == 17_567_744


def test_flash_loads_no_rows_beyond_the_last_key():
    one_tile = attention.io_flash(Shape(10, 20, 4), 16, 64)
    assert one_tile == 2 * 10 * 4 + 10 + 2 * 20 * 4


def test_flash_with_its_tiles_in_cache_moves_4nd_plus_n():
    assert attention.io_flash_ideal(Shape(4096, 4096, 64), 64, 64) == 4 * 4096 * 64 + 4096 == 1_052_672


def test_flash_does_not_need_keys_that_no_block_visits():
    assert attention.io_flash_ideal(Shape(8, 1000, 4, causal=True), 8, 8) == 2 * 8 * 4 + 8 + 2 * 8 * 4


def test_standard_attention_moves_the_matrices_four_times():
    assert attention.io_standard(Shape(4096, 4096, 64)) == 4 * 4096 * 64 + 4 * 4096**2 + 4096


def test_heads_multiply_elements_and_flops():
    one, six = Shape(33, 65, 8, causal=True), Shape(33, 65, 8, 6, causal=True)
    for count in (attention.io_standard, attention.attention_flops, lambda s: attention.io_flash(s, 16, 16)):
        assert count(six) == 6 * count(one)


def test_flops_are_4_n_squared_d_and_count_visible_pairs_alone():
    assert attention.attention_flops(Shape(4096, 4096, 64)) == 4 * 4096**2 * 64 == 4_294_967_296
    assert attention.attention_flops(Shape(100, 100, 16, causal=True)) == 4 * 16 * 5050


def test_backward_has_five_products_or_four_without_recomputing():
    shape = Shape(10, 10, 2)
    assert attention.attention_flops(shape, backward=True) == 10 * 100 * 2
    assert attention.attention_flops(shape, backward=True, recompute=False) == 8 * 100 * 2


# Warp accesses


def test_a_block_of_64_threads_reads_100_elements_in_4_requests():
    assert attention.linear(0, 100, 64) == Access(100, 4, 13)


def test_a_run_that_starts_inside_a_sector_touches_one_more_in_each_request():
    assert attention.linear(4, 64, 64) == Access(64, 2, 10)


def test_half_warps_of_16_threads_make_twice_the_requests():
    assert attention.linear(0, 64, 16) == Access(64, 4, 8)


def test_row_segments_count_a_matrix_row_by_row():
    assert attention.row_segments(2, 40) == Access(80, 4, 10)
    assert attention.row_segments(3, 4) == Access(12, 3, 3)


def test_accesses_add_and_multiply():
    assert Access(1, 2, 3) + Access(10, 20, 30) * 2 == Access(21, 42, 63)


def test_dram_figures_are_left_out_where_arrays_end_inside_64_bytes_or_pass_8_mb():
    assert attention.dram(160, 32, (16, 32)) == {
        "hierarchy.dram_read_bytes": 640,
        "hierarchy.dram_write_bytes": 0,
        "hierarchy.dirty_bytes": 128,
    }
    assert attention.dram(160, 32, (16, 24)) == {}
    assert attention.dram(2 << 20, 16, (16,)) == {}


# The reference


@pytest.mark.parametrize(
    "shape",
    [
        Shape(7, 7, 3, 2, scale=0.5),
        Shape(7, 11, 3, causal=True, q_start=4, scale=0.5),
        Shape(9, 4, 2, causal=True, q_start=-3, scale=1.0),
        Shape(1, 1, 1, scale=1.0),
    ],
)
def test_the_reference_equals_the_definition(shape):
    rng = np.random.default_rng(3)
    Q = rng.standard_normal((shape.heads, shape.N, shape.d))
    K, V = (rng.standard_normal((shape.heads, shape.Nk, shape.d)) for _ in range(2))
    O, L = attention.reference(Q, K, V, shape, rows=4)
    expected_o, expected_l = plain(Q, K, V, shape)
    assert np.allclose(O, expected_o, rtol=0, atol=1e-13)
    assert np.array_equal(np.isneginf(L), np.isneginf(expected_l))
    assert np.allclose(L, expected_l, rtol=0, atol=1e-13)


def test_a_row_that_sees_no_key_gives_0_and_minus_infinity():
    ones = np.ones((1, 5, 2)), np.ones((1, 2, 2))
    O, L = attention.reference(ones[0], ones[1], ones[1], Shape(5, 2, 2, causal=True, q_start=-3))
    assert O[0, :, 0].tolist() == [0, 0, 0, 1, 1]
    assert np.isneginf(L[0]).tolist() == [True, True, True, False, False]


def test_nan_in_an_invisible_value_stays_out_and_in_a_visible_one_shows():
    V = np.ones((1, 6, 2))
    V[0, 3, 0] = np.nan
    O, _ = attention.reference(np.ones((1, 6, 2)), np.ones((1, 6, 2)), V, Shape(6, 6, 2, causal=True))
    assert np.isnan(O[0, :, 0]).tolist() == [False] * 3 + [True] * 3
    assert O[0, :, 1].tolist() == [1.0] * 6


def test_scores_that_overflow_exp_do_not_overflow_the_reference():
    ones = np.full((1, 3, 1), 100.0)
    O, L = attention.reference(ones, ones, ones, Shape(3, 3, 1))
    assert np.allclose(O, 100) and np.allclose(L, 10_000 + np.log(3))
