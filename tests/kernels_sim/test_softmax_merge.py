"""softmax_merge: associative and commutative with the empty state as unit; NaN, in place, counts."""

import numpy as np
import pytest

from dsl import cuda
from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from gpusim.launch import counter
from kernels_sim.problem import Data
from kernels_sim.run import run_problem
from kernels_sim.softmax_merge import Options, build, closed_form, make_kernel, merge

EMPTY = (-np.inf, 0.0, 0.0)


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def states(parts, rows=7, d=5, seed=3):
    """Return m, l and o of random states, float32."""
    rng = np.random.default_rng(seed)
    m, l, o = (rng.standard_normal(shape).astype(np.float32)
               for shape in ((parts, rows), (parts, rows), (parts, rows, d)))
    return m * 4, np.abs(l), o


def merged(m, l, o):
    """Return (m, l, o) of all parts as the kernel merges them in their order."""
    _, rows, d = o.shape
    out = tuple(np.full(shape, np.nan, np.float32) for shape in ((rows,), (rows,), (rows, d)))
    make_kernel(True)[rows, d](m, l, o, *out)
    return out


def close(found, expected):
    """Say whether two states are one within 1e-6, infinities in the same places."""
    return all(np.allclose(x, y, rtol=1e-6, atol=1e-6) for x, y in zip(found, expected, strict=True))


def joined(*parts):
    """Return one array of parts for each of m, l and o."""
    return tuple(np.stack(x) for x in zip(*parts, strict=True))


# The operation


def test_the_state_of_all_scores_is_the_merged_state_of_their_parts():
    rng = np.random.default_rng(1)
    scores, values = rng.standard_normal((4, 6)) * 5, rng.standard_normal((6, 3))
    whole, cut = scores.max(axis=1), (0, 1, 4, 6)
    parts = []
    for a, b in zip(cut, cut[1:], strict=False):
        top = scores[:, a:b].max(axis=1)
        weights = np.exp(scores[:, a:b] - top[:, None])
        parts.append([x.astype(np.float32) for x in (top, weights.sum(axis=1), weights @ values[a:b])])
    weights = np.exp(scores - whole[:, None])
    assert close(merged(*joined(*parts)), (whole, weights.sum(axis=1), weights @ values))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_merging_is_commutative(order):
    m, l, o = states(4)
    m[1, ::2], l[1, ::2], o[1, ::2] = EMPTY
    assert close(merged(*(x[list(order)] for x in (m, l, o))), merge(m, l, o))


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_merging_is_associative(cut):
    m, l, o = states(4)
    m[:2, 3], l[:2, 3], o[:2, 3] = EMPTY
    left, right = merged(m[:cut], l[:cut], o[:cut]), merged(m[cut:], l[cut:], o[cut:])
    assert close(merged(*joined(left, right)), merged(m, l, o))


@pytest.mark.parametrize("place", [0, 1])
def test_the_empty_state_changes_no_bit_on_either_side(place):
    m, l, o = states(2)
    m[place], l[place], o[place] = EMPTY
    for found, given in zip(merged(m, l, o), (m, l, o), strict=True):
        assert np.array_equal(found, given[1 - place])


def test_two_empty_states_make_an_empty_one():
    m, l, o = states(2)
    m[:], l[:], o[:] = EMPTY
    top, total, acc = merged(m, l, o)
    assert np.isneginf(top).all() and not total.any() and not acc.any()


def test_garbage_in_an_empty_state_stays_out_and_a_nan_in_a_full_one_shows():
    m, l, o = states(3)
    m[0, :2], l[0, :2], o[0, :2] = -np.inf, np.nan, np.nan
    o[2, 1, 4] = np.nan
    m[2, 5] = np.nan
    _, total, acc = merged(m, l, o)
    assert np.isnan(total).tolist() == [False] * 5 + [True, False]
    assert np.argwhere(np.isnan(acc)).tolist() == [[1, 4], *([5, k] for k in range(5))]


def test_the_result_may_overwrite_a_part_that_several_warps_of_its_block_read():
    m, l, o = states(2, rows=3, d=192)
    apart = merged(m, l, o)
    inputs = [cuda.to_device(x) for x in (m, l, o)]
    make_kernel(True)[3, 192](*inputs, *(x[0] for x in inputs))
    for found, expected in zip(inputs, apart, strict=True):
        assert np.array_equal(found.copy_to_host()[0], expected)


def test_without_o_the_same_m_and_l_come_out():
    m, l, o = states(3, rows=130)
    top, total, _ = merged(m, l, o)
    found = np.full(130, np.nan, np.float32), np.full(130, np.nan, np.float32)
    make_kernel(False)[2, 128](m, l, *found)
    assert np.array_equal(found[0], top) and np.array_equal(found[1], total)


# Counts


def test_a_row_of_64_columns_asks_for_4_sectors_of_m_and_l_and_8_of_o_a_part():
    form = closed_form(8, 4096, 64)
    assert form["global_load.requests"] == 8 * 4096 * (2 + 2 + 2) == 196_608
    assert form["global_load.sectors"] == 8 * 4096 * (2 + 2 + 8) == 393_216
    assert form["global_store.sectors"] == 4096 * (8 + 2)


def test_a_state_costs_28_flops_a_column():
    form = closed_form(1, 1, 1)
    assert [form[f"arithmetic.{x}"] for x in ("ffma", "fmul", "fadd", "mufu")] == [10, 4, 4, 2]


def test_m_and_l_alone_are_read_once_by_neighbouring_threads():
    form = closed_form(8, 4096, 0)
    assert form["global_load.lanes"] == 2 * 8 * 4096
    assert form["global_load.sectors"] == 4 * form["global_load.requests"]


@pytest.mark.parametrize("options", [{"parts": 7, "rows": 33, "d": 40}, {"parts": 2, "rows": 300, "d": 0},
                                     {"parts": 1, "rows": 5, "d": 1024}], ids=str)
def test_counted_equals_closed_form_and_results_are_right(device, options):
    problem = build(Options(**options), Data(seed=5))
    launch = run_problem(problem, device)[0]
    assert {p: counter(launch.counters, p) for p in launch.closed_form} == launch.closed_form
    assert [check for check in launch.checks if not check.error <= 1e-6] == []
    assert len(launch.checks) == (3 if options["d"] else 2)


def test_the_default_problem_holds_empty_states_with_nan():
    m, l, o = build(Options(rows=18), Data()).steps[0].args[:3]
    assert np.argwhere(np.isneginf(m)).tolist() == sorted([p, r] for r in range(18) for p in [r % 9] if p < 8)
    assert np.isnan(l[0, 0]) and np.isnan(o[0, 0]).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"parts": 0}, "--parts is 0"), ({"rows": 0}, "--rows is 0"), ({"d": -1}, "--d is -1"),
     ({"d": 1025}, "--d must be at most 1024, got 1025")],
)
def test_options_out_of_range_are_refused(options, words):
    with pytest.raises(BadOption, match=words):
        build(Options(**options), Data(virtual=True))
