"""The float64 answers: attention by its definition, and gradients as recorded from torch's autograd."""

from pathlib import Path

import numpy as np
import pytest

from kernels_sim.attention import Shape, reference
from kernels_sim.attention_gradients import gradients
from tests.kernels_sim.autograd import CASES, RECORD, autograd, inputs

RECORDED = np.load(Path(RECORD))


def plain(Q, K, V, shape):
    """Return O and L row by row, key by key: the definition, for finite inputs."""
    O, L = np.zeros((*Q.shape[:2], shape.dv)), np.full(Q.shape[:2], -np.inf)
    for head, row in np.ndindex(*Q.shape[:2]):
        at, kv = shape.q_start + row, head // shape.group
        keys = [j for j in range(shape.Nk)
                if (not shape.causal or j <= at) and (not shape.window or j > at - shape.window)]
        if keys:
            weights = np.exp([shape.scale * np.dot(Q[head, row], K[kv, j]) for j in keys])
            O[head, row] = weights @ V[kv, keys] / weights.sum()
            L[head, row] = np.log(weights.sum())
    return O, L


# The output


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
    O, L = reference(Q, K, V, shape, rows=4)
    expected_o, expected_l = plain(Q, K, V, shape)
    assert np.allclose(O, expected_o, rtol=0, atol=1e-13)
    assert np.array_equal(np.isneginf(L), np.isneginf(expected_l))
    assert np.allclose(L, expected_l, rtol=0, atol=1e-13)


def test_a_row_that_sees_no_key_gives_0_and_minus_infinity():
    ones = np.ones((1, 5, 2)), np.ones((1, 2, 2))
    O, L = reference(ones[0], ones[1], ones[1], Shape(5, 2, 2, causal=True, q_start=-3))
    assert O[0, :, 0].tolist() == [0, 0, 0, 1, 1]
    assert np.isneginf(L[0]).tolist() == [True, True, True, False, False]


def test_nan_in_an_invisible_value_stays_out_and_in_a_visible_one_shows():
    V = np.ones((1, 6, 2))
    V[0, 3, 0] = np.nan
    O, _ = reference(np.ones((1, 6, 2)), np.ones((1, 6, 2)), V, Shape(6, 6, 2, causal=True))
    assert np.isnan(O[0, :, 0]).tolist() == [False] * 3 + [True] * 3
    assert np.allclose(O[0, :, 1], 1.0, rtol=0, atol=1e-15)


def test_scores_that_overflow_exp_do_not_overflow_the_reference():
    ones = np.full((1, 3, 1), 100.0)
    O, L = reference(ones, ones, ones, Shape(3, 3, 1))
    assert np.allclose(O, 100) and np.allclose(L, 10_000 + np.log(3))


def test_a_nan_in_a_visible_key_makes_the_rows_that_see_it_nan_and_no_other():
    K = np.ones((1, 6, 2))
    K[0, 3, 0] = np.nan
    O, L = reference(np.ones((1, 6, 2)), K, np.ones((1, 6, 2)), Shape(6, 6, 2, causal=True))
    assert np.isnan(O[0, :, 1]).tolist() == np.isnan(L[0]).tolist() == [False] * 3 + [True] * 3


# The gradients


def recorded(case, *names):
    """Return recorded arrays of a case."""
    return [RECORDED[f"{case}.{name}"] for name in names]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_output_and_gradients_are_those_that_autograd_recorded(case):
    given, shape = recorded(case, "Q", "K", "V", "dO"), CASES[case]
    O, L = reference(*given[:3], shape, rows=2)
    found = gradients(*given, shape, rows=2)
    for mine, theirs in zip((O, *found), recorded(case, "O", "dQ", "dK", "dV"), strict=True):
        assert np.allclose(mine, theirs, rtol=0, atol=1e-12)
    assert np.allclose(L, recorded(case, "L")[0], rtol=0, atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("case", range(len(CASES)))
def test_output_and_gradients_are_those_of_autograd_now(case):
    shape = CASES[case]
    given = inputs(shape, seed=12)
    theirs = autograd(*given, shape)
    found = gradients(*given, shape)
    for name, mine in zip(("dQ", "dK", "dV"), found, strict=True):
        assert np.allclose(mine, theirs[name], rtol=0, atol=1e-12), name


def test_the_cases_hold_rows_without_a_key_and_groups_of_four():
    assert any(np.isneginf(RECORDED[f"{i}.L"]).any() for i in range(len(CASES)))
    assert {shape.group for shape in CASES} == {1, 2, 4}


def test_shared_heads_give_the_sum_of_the_gradients_of_repeated_ones():
    shared = Shape(5, 7, 3, heads=6, causal=True, q_start=2, group=3)
    Q, K, V, dO = inputs(shared)
    alone = Shape(5, 7, 3, heads=6, causal=True, q_start=2)
    _, dK_apart, dV_apart = gradients(Q, K.repeat(3, 0), V.repeat(3, 0), dO, alone)
    _, dK, dV = gradients(Q, K, V, dO, shared)
    assert dK.shape == (2, 7, 3)
    assert np.allclose(dK, dK_apart.reshape(2, 3, 7, 3).sum(axis=1), rtol=0, atol=1e-13)
    assert np.allclose(dV, dV_apart.reshape(2, 3, 7, 3).sum(axis=1), rtol=0, atol=1e-13)


def test_a_nan_in_an_invisible_value_stays_out_of_the_gradients_of_the_rows_before_it():
    shape = Shape(4, 4, 2, causal=True)
    Q, K, V, dO = inputs(shape)
    V[0, 3] = np.nan
    dQ, _, dV = gradients(Q, K, V, dO, shape)
    assert np.isnan(dQ[0]).any(axis=1).tolist() == [False, False, False, True]
    assert np.isfinite(dV).all()
