"""paged_attention_v2: pages, ragged lengths, partitions, number types, alibi, garbage, counts, refusals."""

from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption, DataDependent, OutOfBounds
from kernels_sim.paged_attention_v2 import (
    GARBAGE_PAGE,
    Options,
    build,
    facts,
    make_reduce,
    pages_of,
    pages_of_partition,
)
from kernels_sim.paged_attention_v2_counts import partition_form, reduce_form
from kernels_sim.problem import Data
from kernels_sim.run import run_problem
from tests.kernels_sim import verdicts

TINY = {"d": 8, "block_size": 4, "partition_size": 16, "heads": 4, "kv_heads": 2}


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, prepare=None, **options):
    """Build a problem, let `prepare(Q, K, V, table)` change it, run it; return (launches, outputs)."""
    problem = build(Options(**options), Data(seed=7))
    if prepare:
        prepare(*problem.steps[0].args[:4])
    return run_problem(problem, device), problem.outputs


assert_right = partial(verdicts.assert_right, outputs=("O", "L", "m", "l", "o"))


# Results


@pytest.mark.parametrize(
    "options",
    [
        {**TINY, "lens": "40,0,17,16,5"},
        {**TINY, "lens": "33,21", "block_size": 3, "alibi": True},
        {**TINY, "lens": "30,7", "block_size": 1, "d": 12, "kv_heads": 1},
        {**TINY, "lens": "30", "sequences": 3, "d": 20, "heads": 3, "kv_heads": 0},
        {"lens": "90,33", "d": 80, "partition_size": 50, "heads": 2, "kv_heads": 1, "dtype": "float16"},
        {"lens": "90,33", "d": 72, "partition_size": 64, "heads": 2, "kv_heads": 1, "dtype": "bfloat16"},
    ],
    ids=str,
)
def test_results_states_and_counts_are_right(device, options):
    assert_right(solve(device, **options)[0])


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("cache", ["auto", "fp8_e4m3"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(12, 2), (7, 1), (4, 4)])
def test_results_are_right_over_types_groups_and_pages(device, dtype, cache, heads, kv_heads):
    for d, block_size, partition_size in ((48, 16, 64), (80, 7, 100), (256, 8, 128)):
        given = {"d": d, "block_size": block_size, "partition_size": partition_size, "dtype": dtype}
        scales = {"k_scale": 0.5, "v_scale": 3.0} if cache != "auto" else {}
        lens = f"{partition_size},{3 * partition_size + 1},0,1"
        assert_right(solve(device, lens=lens, heads=heads, kv_heads=kv_heads, kv_cache_dtype=cache, **given,
                           **scales)[0])  # fmt: skip


def test_an_8_bit_cache_is_read_as_its_numbers_times_their_scales(device):
    options = {**TINY, "d": 16, "lens": "20,9", "kv_cache_dtype": "fp8_e4m3", "k_scale": 0.5, "v_scale": 2.0}
    launches, out = solve(device, **options)
    assert_right(launches)
    Q, K, V, table = build(Options(**options), Data(seed=7)).steps[0].args[:4]
    assert K.dtype == V.dtype == ml_dtypes.float8_e4m3fn
    plain = build(Options(**{**TINY, "d": 16, "lens": "20,9"}), Data(seed=7))
    to_q, to_k, to_v, to_table = plain.steps[0].args[:4]
    by_column = K.astype(np.float32).transpose(0, 1, 2, 4, 3).reshape(len(K), 2, 4, 4, 4)  # x is 16, and 4
    to_q[...], to_k[...], to_table[...] = Q, by_column.transpose(0, 1, 2, 4, 3) * 0.5, table
    to_v[...] = V.astype(np.float32) * 2
    run_problem(replace(plain, reference=None), device)
    assert np.allclose(plain.outputs["O"], out["O"], rtol=0, atol=1e-6)


def test_one_token_gives_its_value_bit_for_bit(device):
    problem = build(Options(**{**TINY, "lens": "1"}), Data(seed=7))
    run_problem(problem, device)
    _, _, V, table = problem.steps[0].args[:4]
    assert np.array_equal(problem.outputs["O"][0], V[table[0, 0], :, :, 0].repeat(2, axis=0))


def test_a_sequence_without_tokens_gives_0_and_minus_infinity_and_reads_its_length_alone(device):
    launches, out = solve(device, **{**TINY, "lens": "0"})
    assert not out["O"].any() and np.isneginf(out["L"]).all() and np.isneginf(out["m"]).all()
    assert not out["l"].any()
    assert launches[0].counters.global_load.lanes == 4 * 128  # lens, by each thread of four heads' blocks
    assert launches[0].counters.barriers == 0


def test_six_heads_on_two_kv_heads_read_their_own_group(device):
    def number(Q, K, V, table):
        V[:, 0], V[:, 1] = 0, 1

    _, out = solve(device, number, **{**TINY, "heads": 6, "lens": "4"})
    assert [float(head.mean().round(6)) for head in out["O"][0]] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("parts", [1024, 1025, 1500])
def test_any_number_of_partitions_is_reduced(parts):
    m, l = np.zeros((1, parts), np.float32), np.ones((1, parts), np.float32)
    o = np.arange(parts, dtype=np.float32).reshape(1, parts, 1)
    O, L = np.full((1, 1, 1), np.nan, np.float32), np.full((1, 1), np.nan, np.float32)
    make_reduce(1, 1)[1, 128](m, l, o, np.array([parts], np.int32), O, L)
    assert O[0, 0, 0] == pytest.approx((parts - 1) / 2, rel=1e-6)
    assert L[0, 0] == pytest.approx(np.log(parts), rel=1e-6)


def test_alibi_lowers_a_token_by_its_distance_to_the_last(device):
    def equal(Q, K, V, table):
        Q[...] = 0

    _, out = solve(device, equal, **{**TINY, "lens": "3", "alibi": True})
    slopes = 2.0 ** (-2.0 * np.arange(1, 5))  # heads = 4: 2^(-8 (h + 1) / 4)
    expected = [np.log(np.exp(-2 * s) + np.exp(-s) + 1) for s in slopes]
    assert np.allclose(out["L"][0], expected, rtol=0, atol=1e-6)


# Garbage


def test_garbage_behind_the_pages_and_nan_in_unused_slots_are_there_and_change_nothing(device):
    options = {**TINY, "lens": "18,5"}
    _, out = solve(device, **options)

    def clean(Q, K, V, table):
        assert (table[0, 5:] == GARBAGE_PAGE).all() and (table[1, 2:] == GARBAGE_PAGE).all()
        last = table[0, 4]
        assert np.isnan(K[last, :, :, 2:]).all() and np.isfinite(K[last, :, :, :2]).all()
        table[table == GARBAGE_PAGE] = 0
        K[np.isnan(K)], V[np.isnan(V)] = 0, 0

    _, without = solve(device, clean, **options)
    for name in ("O", "L", "m", "l"):
        assert np.array_equal(out[name], without[name]), name


def test_a_visible_nan_shows(device):
    def spoil(Q, K, V, table):
        V[table[0, 1], 0, 3, 2] = np.nan

    _, out = solve(device, spoil, **{**TINY, "lens": "18,18"})
    assert np.isnan(out["O"][0]).any(axis=1).tolist() == [True, True, False, False]
    assert np.flatnonzero(np.isnan(out["O"][0, 0])).tolist() == [3]
    assert np.isfinite(out["O"][1]).all()


def test_a_block_table_with_a_column_too_few_is_an_error_that_names_it(device):
    problem = build(Options(**{**TINY, "lens": "17"}), Data(seed=7))
    step = problem.steps[0]
    args = list(step.args)
    args[3] = np.ascontiguousarray(args[3][:, :4])  # 16 tokens
    with pytest.raises(OutOfBounds, match="table"):
        run_problem(replace(problem, steps=(replace(step, args=tuple(args)),)), device)


def test_keys_and_values_may_be_interleaved_in_one_buffer(device):
    options = {**TINY, "lens": "18,5"}
    _, out = solve(device, **options)
    problem = build(Options(**options), Data(seed=7))
    step = problem.steps[0]
    args = list(step.args)
    K, V = args[1], args[2]
    buffer = np.full((len(K), 2, K[0].size + 8), np.nan, np.float32)  # a padded page for each
    for at, x in enumerate((K, V)):
        strides = (buffer.strides[0], *x.strides[1:])
        args[1 + at] = np.lib.stride_tricks.as_strided(buffer[0, at], x.shape, strides)
        args[1 + at][...] = x
    run_problem(replace(problem, steps=(replace(step, args=tuple(args)), problem.steps[1])), device)
    assert np.array_equal(problem.outputs["O"], out["O"])


# Counts


def test_a_token_of_k_is_d_requests_of_16_sectors_for_32_tokens():
    size = pages_of(Options(lens="32", heads=1, kv_heads=1, d=64))
    table = np.array([[0, 1, GARBAGE_PAGE]])
    form = partition_form(size, table)
    others = 4 + 1 + 2  # lens by four warps, the table, q
    assert form["global_load.requests"] == 64 + 64 + others
    # K: 16 bytes a lane; V: two runs of 64 bytes; q: 8 sectors.
    assert form["global_load.sectors"] == 64 * 16 + 64 * 4 + 4 + 1 + 8


def test_an_8_bit_cache_has_a_quarter_of_the_bytes_of_float32():
    def cache_bytes(**changes):
        size = pages_of(Options(lens="512", heads=1, kv_heads=1, d=64, **changes))
        form = partition_form(size, np.arange(33)[None])
        return form["global_load.bytes"] - 4 * (128 + 32) - 64 * 4

    assert cache_bytes() == 2 * 512 * 64 * 4
    assert cache_bytes(kv_cache_dtype="fp8_e4m3") == 2 * 512 * 64


def test_the_reduction_reads_the_partitions_that_a_sequence_has():
    size = pages_of(Options(lens="1024,1", heads=1, kv_heads=1, d=64))
    form = reduce_form(size)
    assert form["global_load.lanes"] == 2 * 32 + (2 + 1) * (3 + 64)
    assert form["warp_operations"] == 2 * 10 + 3


def test_the_report_says_how_many_blocks_have_tokens():
    found = {f.label: f.value for f in facts(pages_of(Options(lens="600,8000", heads=1, kv_heads=1)))}
    assert (found["Blocks"], found["Blocks With Tokens"]) == (32, 18)
    assert (found["Pages"], found["Slots Unused"]) == (38 + 500, 8)


def test_partitions_that_end_inside_pages_touch_one_more():
    assert pages_of_partition(16, 512) == 32
    assert pages_of_partition(16, 500) == 33
    assert pages_of_partition(3, 16) == 7


# What it refuses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"heads": 3, "kv_heads": 2}, "--heads 3 is not a multiple of --kv-heads 2"),
        ({"lens": "12,x"}, "--lens is '12,x'; write whole numbers"),
        ({"lens": "1,2", "sequences": 3}, "--sequences is 3 and --lens gives 2 lengths"),
        ({"d": 66}, "--d is 66; K's layout takes whole pieces of 4 elements"),
        ({"d": 72, "kv_cache_dtype": "fp8_e4m3"}, "whole pieces of 16 elements"),
        ({"k_scale": 2.0}, "belong to --kv-cache-dtype fp8_e4m3"),
        ({"kv_cache_dtype": "fp8_e5m2"}, "--kv-cache-dtype is 'fp8_e5m2', it must be one of auto, fp8_e4m3"),
        ({"dtype": "float64"}, "--dtype is 'float64'"),
        ({"partition_size": 20_000}, "--partition-size 20000 needs 85272 bytes of shared memory"),
        ({"block_size": 0}, "--block-size is 0, it must be at least 1"),
    ],
)
def test_what_it_cannot_take_is_refused(options, words):
    with pytest.raises(BadOption, match=words):
        build(Options(**options), Data(virtual=True))


def test_counts_only_is_refused_as_addresses_come_from_the_block_table(device):
    with pytest.raises(DataDependent):
        run_problem(build(Options(), Data(virtual=True)), device, counts_only=True)
