"""fp8_qkv: closed forms, the packed and the paired projection, the split, scales, refusals."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from ml_dtypes import bfloat16

from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption
from kernels_sim.check import largest_error
from kernels_sim.fp8_qkv import Options, build
from kernels_sim.problem import Data
from kernels_sim.qk_norm_rope import norm_rope
from kernels_sim.run import run_problem
from tests.kernels_sim import verdicts
from tests.kernels_sim.qkv_autograd import CASES, EPS, recorded

PLAIN = {"tokens": 5, "model_dim": 32, "heads": 2, "d": 6, "v_dim": 4}
PAIRED = {**PLAIN, "d": 8, "v_dim": 8, "paired": True}
SHIFTED = {**PLAIN, "rotary_dim": 2, "key_offset": True, "accumulation": "full"}


@pytest.fixture(scope="module")
def device():
    """Return one simulated H200 for all launches of the module."""
    return Device(get_arch("h200"))


def solve(device, spoil=None, engine="auto", counts_only=False, **options):
    """Build a problem, let `spoil(x8)` change x, run it; return its launches and Q, K and V as numbers."""
    problem = build(Options(**options), Data(seed=7, virtual=counts_only))
    if spoil:
        spoil(problem.steps[0].args[0])
    launches = run_problem(problem, device, engine=engine, counts_only=counts_only)
    outputs = problem.outputs.values()
    return launches, [] if counts_only else [np.array(x, np.float32) for x in outputs]


assert_right = partial(verdicts.assert_right, outputs=("Q", "K", "V"))


@pytest.mark.parametrize("options", [PLAIN, PAIRED, SHIFTED], ids=str)
def test_counted_equals_closed_form_and_results_are_right(device, options):
    launches, _ = solve(device, **options)
    assert_right(launches)
    assert launches[-1].checks[2].error == 0  # V is the rounded product, and float32 sums round alike here


@pytest.mark.full
@pytest.mark.parametrize("accumulation", ["fast", "full"])
@pytest.mark.parametrize(("paired", "key_offset"), [(False, False), (True, False), (False, True)])
def test_the_product_of_sizes_and_kinds_is_right(device, paired, key_offset, accumulation):
    for tokens, model_dim, (heads, d, v_dim), part in product(
        (1, 33), (16, 208), ((2, 8, 8), (4, 34, 8), (2, 64, 72)), (0, 0.5, 1)
    ):
        given = {"tokens": tokens, "model_dim": model_dim, "heads": heads, "d": d, "v_dim": v_dim}
        turning = {"rotary_dim": int(part * d) // 2 * 2, "paired": paired, "key_offset": key_offset}
        assert_right(solve(device, accumulation=accumulation, **given, **turning)[0])


def test_the_ir_oracle_counts_the_same_and_gives_the_same_numbers(device):
    (slow, slow_out), (fast, fast_out) = solve(device, engine="ir", **PAIRED), solve(device, **PAIRED)
    assert [x.counters for x in slow] == [x.counters for x in fast]
    assert all(np.array_equal(a, b) for a, b in zip(slow_out, fast_out, strict=True))


@pytest.mark.parametrize("options", [PAIRED, SHIFTED], ids=str)
def test_counts_only_gives_the_same_counters(device, options):
    counted, ran = solve(device, counts_only=True, **options)[0], solve(device, **options)[0]
    assert [x.counters for x in counted] == [x.counters for x in ran]


@pytest.mark.parametrize("options", [PLAIN, PAIRED], ids=str)
def test_with_warm_caches_the_norm_finds_what_the_product_left(options):
    launches, _ = solve(Device(get_arch("h200"), l2="warm"), **options)
    assert_right(launches)
    assert launches[-1].counters.hierarchy.l2_misses < launches[-1].counters.hierarchy.l2_hits


def test_1024_tokens_of_768_take_442368_instructions_paired_or_not():
    for paired, launches in ((False, 2), (True, 3)):
        problem = build(Options(paired=paired), Data(virtual=True))
        assert len(problem.steps) == launches
        forms = [step.closed_form for step in problem.steps]
        assert sum(form.get("tensor.fp8", 0) for form in forms) == 1024 * 2304 * 768 // (16 * 8 * 32)
        assert sum(form["global_store.bytes"] for form in forms[:-1]) == 1024 * 2304 * 2


def test_the_norm_reads_q_and_k_and_not_v():
    form = build(Options(), Data(virtual=True)).steps[1].closed_form
    # a row and two rows of factors for each head of Q and K, 2 bytes an element
    assert form["global_load.bytes"] == 2 * 3 * 1024 * 12 * 128


@pytest.mark.parametrize("i", range(len(CASES)))
def test_the_norm_and_rotation_are_torchs(i):
    case, given = CASES[i], recorded(i)
    qk, factors = given["qkv"][:, : 2 * case.heads * case.d], (given["factor1"], given["factor2"])
    Q, K = norm_rope(qk, *factors, EPS, case.rotary_dim, case.paired, case.key_offset)
    assert largest_error(Q, given["q"]) <= 1e-12
    assert largest_error(K, given["k"]) <= 1e-12


def test_paired_q_k_and_v_are_those_of_the_packed_product(device):
    given = PAIRED | {"rotary_dim": 0}
    (_, packed), (_, paired) = (solve(device, **given | {"paired": p}) for p in (False, True))
    # head h of token t at token 2 t + h, with one head a token left
    assert all(np.array_equal(a.reshape(b.shape), b) for a, b in zip(packed, paired, strict=True))


def test_v_is_the_end_of_the_rows_or_dense_where_paired():
    for options, dense in ((PLAIN, False), (PAIRED, True)):
        V = build(Options(**options), Data()).outputs["V"]
        assert V.shape == (5, options["heads"] * options["v_dim"])
        assert V.flags.c_contiguous is dense


def test_qkv_scale_multiplies_v_and_the_norm_takes_it_from_q_and_k(device):
    (_, once), (_, twice) = (solve(device, eps=0.0, qkv_scale=s, **PLAIN) for s in (0.5, 1.0))
    assert np.array_equal(once[0], twice[0]) and np.array_equal(once[1], twice[1])
    assert np.array_equal(2 * once[2], twice[2])


def test_nan_in_a_token_stays_in_it_but_for_the_key_that_takes_from_it(device):
    def spoil(x8):
        x8[2, 3] = np.nan

    _, (Q, K, V) = solve(device, spoil, **SHIFTED)
    for x in (Q, V):
        assert np.isnan(x.reshape(5, -1)).all(axis=1).tolist() == [False, False, True, False, False]
    assert np.isnan(K).any(axis=(0, 1)).tolist() == [True] * 6
    assert np.isnan(K[3]).any(axis=0).tolist() == [False, False, True, True, True, True]
    assert np.isnan(K[2, :, :2]).all() and np.isfinite(K[2, :, 2:]).all()


def test_the_numbers_that_are_multiplied_are_rounded_to_8_bits():
    problem = build(Options(**PLAIN), Data())
    x8, weight8, _, sx, sw = problem.steps[0].args
    expected = x8.astype(np.float64) @ weight8.astype(np.float64).T * (sx[0] * sw[0])
    assert np.array_equal(problem.reference()["V"], expected.astype(bfloat16)[:, 24:].astype(np.float64))
    assert 0.2 < expected.std() < 1  # x ~ N(0, 1), weights ~ N(0, 1 / 32), times 0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokens": 0}, "--tokens is 0"),
        ({"model_dim": 24}, "--model-dim is 24, it must be a multiple of 16"),
        ({"heads": 3, "d": 2, "v_dim": 1}, r"heads \(2 d \+ v_dim\) is 15, it must be a multiple of 16"),
        ({"heads": 2, "d": 6, "v_dim": 4, "paired": True}, "2 heads d of --paired is 24"),
        ({"heads": 2, "d": 8, "v_dim": 12, "paired": True}, "heads v_dim of --paired is 24"),
        ({"d": 63}, "--d must be an even number"),
        ({"v_dim": 0}, "--v-dim is 0"),
        ({"rotary_dim": 7}, "--rotary-dim must be an even number"),
        ({"paired": True, "heads": 3}, "--paired needs an even number of --heads, got 3"),
        ({"paired": True, "key_offset": True}, "--paired and --key-offset exclude each other"),
        ({"accumulation": "half"}, "--accumulation is 'half', it must be one of fast, full"),
        ({"qkv_scale": float("inf")}, "--qkv-scale must be a finite number"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options, words):
    with pytest.raises(BadOption, match=f"fp8_qkv: {words}"):
        build(Options(**options), Data(virtual=True))
