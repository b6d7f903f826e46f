"""What the attention kernels share: visible keys, elements and FLOPs, warp accesses, and the reference."""

from types import SimpleNamespace

import pytest

from gpusim.errors import BadOption
from kernels_sim import attention
from kernels_sim.attention import Access, Shape


def options(**changes):
    """Return options as a kernel has them, some of them changed."""
    given = {"N": 8, "Nk": None, "d": 4, "heads": 1, "batch": 1, "causal": False, "q_start": 0, "scale": None}
    return SimpleNamespace(**{**given, "dtype": "float32", **changes})


# Options


def test_nk_defaults_to_n_and_scale_to_one_over_the_root_of_d():
    shape = attention.shape_of(options(N=5, d=16, heads=3, batch=2))
    assert (shape.Nk, shape.scale, shape.heads) == (5, 0.25, 6)


def test_nk_zero_means_no_key():
    assert attention.shape_of(options(Nk=0)).Nk == 0


def test_dv_and_kv_heads_default_to_d_and_heads():
    shape = attention.shape_of(options(heads=6, batch=2))
    assert (shape.dv, shape.kv_heads, shape.group, shape.window) == (4, 12, 1, 0)


def test_six_heads_over_two_kv_heads_share_each_of_them_three_times():
    shape = attention.shape_of(options(heads=6, kv_heads=2, batch=2, dv=7, window=3))
    assert (shape.heads, shape.kv_heads, shape.group, shape.dv, shape.window) == (12, 4, 3, 7, 3)


def test_a_scale_of_zero_is_kept():
    assert attention.shape_of(options(scale=0.0)).scale == 0.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"N": 0}, "--N must be at least 1, got 0"),
        ({"N": -3}, "--N must be at least 1, got -3"),
        ({"Nk": -1}, "--Nk must be at least 0"),
        ({"d": 0}, "--d must be at least 1"),
        ({"d": 257}, "--d must be at most 256, got 257"),
        ({"heads": 0}, "--heads must be at least 1"),
        ({"batch": 65536}, "at most 65535"),
        ({"dtype": "float16"}, "--dtype must be float32, got float16"),
        ({"scale": float("inf")}, "--scale must be a finite number"),
        ({"dv": -1}, "--dv must be at least 1"),
        ({"dv": 300}, "--dv must be at most 256, got 300"),
        ({"heads": 3, "kv_heads": 2}, "--heads 3 is not a multiple of --kv-heads 2"),
        ({"kv_heads": -2}, "--kv-heads must be at least 1"),
        ({"window": -1}, "--window must be at least 1"),
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


def test_a_window_of_3_counts_the_row_itself():
    assert attention.keys_seen(Shape(8, 8, 1, causal=True, window=3)).tolist() == [1, 2, 3, 3, 3, 3, 3, 3]
    assert attention.keys_seen(Shape(8, 8, 1, causal=True, window=4)).tolist() == [1, 2, 3, 4, 4, 4, 4, 4]


def test_a_window_without_causal_hides_the_past_alone():
    shape = Shape(4, 6, 1, window=2)
    first, end = attention.key_range(shape)
    assert (first.tolist(), end.tolist()) == ([0, 0, 1, 2], [6, 6, 6, 6])


def test_a_window_past_the_last_key_sees_none():
    shape = Shape(4, 2, 1, causal=True, q_start=1, window=1)
    assert attention.keys_seen(shape).tolist() == [1, 0, 0, 0]


def test_no_row_sees_a_key_where_there_is_none():
    for causal in (False, True):
        assert attention.visible_pairs(Shape(4, 0, 1, causal=causal)) == 0


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


def test_other_values_than_keys_and_shared_heads_change_elements_and_flops():
    shape = Shape(10, 20, 2, heads=6, dv=3, group=3)
    assert attention.io_standard(shape) == 6 * (10 * 5 + 4 * 200 + 10) + 2 * 20 * 5
    assert attention.attention_flops(shape) == 6 * 200 * (2 * 2 + 2 * 3)
    assert attention.attention_flops(shape, backward=True) == 6 * 200 * (3 * 2 * 2 + 2 * 2 * 3)


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


def test_16_bit_elements_take_half_the_sectors_and_bytes_and_add_to_wide_ones():
    half = attention.linear(0, 64, 64, 2)
    assert half == Access(64, 2, 4, 128)
    assert half + attention.linear(0, 64, 64) == Access(128, 4, 12, 384)
    assert (half * 3).paths("global_load")["global_load.bytes"] == 384
    assert attention.row_segments(2, 40, 2) == Access(80, 4, 3 + 4, 160)
    assert attention.each_row(2, 40, 64, 2) == attention.row_segments(2, 40, 2)


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
