"""FlashAttention's figure 2: bytes of each pass by hand, and the launches of one sequence of 16 heads."""

from __future__ import annotations

import copy

import pytest

import cli
import kernels_sim
from gpusim.launch import Launch
from kernels_sim import flash_attention_figure_2 as figure
from kernels_sim.problem import Data

VECTOR = 131_072
"""1024 x 64 x 2 bytes: Q, K, V or O of one head."""
MATRIX = 2_097_152
"""1024 x 1024 x 2 bytes: S or P of one head."""
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def sequence() -> list[list[Launch]]:
    return figure.simulate(batch=1)


def moved(way: str) -> list[int]:
    return [sum(getattr(p, way) for p in pipeline.passes) for pipeline in figure.PIPELINES]


def test_a_head_moves_15_matrices_and_12_vectors_here_and_18_and_12_in_the_baseline_of_the_paper():
    here, paper = moved("here")[0], moved("paper")[0]
    # S out, S in, P out, P in; P, dP out, P, dP in, dS out, dS, dS: S and dP count twice. L: 4,096 bytes.
    assert here == 15 * MATRIX + 12 * VECTOR + 4096 == 33_034_240
    # S out; S in, out (mask); S in, P out; P in, out, half (dropout); P in; P in; dP out; half, in, out; ...
    assert paper == 18 * MATRIX + 12 * VECTOR == 39_321_600


def test_the_passes_of_the_baseline_are_the_40_3_gigabytes_of_the_paper():
    assert 1024 * moved("paper")[0] == 40_265_318_400


def test_the_first_flash_attention_takes_rows_again_for_each_of_four_tiles_of_keys():
    here, paper = moved("here")[1], moved("paper")[1]
    # Forward 4, backward 14: K, V, dK, dV; Q, dO; O and dO for D; dQ zeroed, in and out in 32 bits.
    assert here == 18 * VECTOR + 4 * 4096 == 2_375_680
    # Forward 2 + 4 + (6 x 2 + 1), backward 4 + 8 + 1 + (6 x 2 + 1); L 7 + 4 times, D 1 + 4 times.
    assert paper == 45 * VECTOR + 16 * 4096 == 5_963_776


@pytest.mark.parametrize("pipeline", figure.PIPELINES, ids=lambda p: p.name)
def test_the_passes_of_a_launch_are_its_arrays_once_and_twice_where_it_adds_to_one(pipeline):
    for name in pipeline.kernels:
        spec = kernels_sim.find(name)
        problem = spec.build(spec.options(N=1024, d=64, dtype="float16"), Data(virtual=True))
        for step in problem.steps:
            arrays = [x.nbytes for x in step.args if hasattr(x, "nbytes") and hasattr(x, "strides")
                      and x.shape]  # fmt: skip
            added = 262_144 if step.kernel.py_func.__name__ == "flash_backward" else 0  # dQ is read, too
            assert pipeline.bytes_once(step.kernel.py_func.__name__) == sum(arrays) + added


@pytest.mark.slow
def test_every_launch_asks_for_what_its_closed_form_says(sequence):
    assert [launch.kernel for launches in sequence for launch in launches] == [
        "scores", "softmax", "output", "value_gradient", "weight_gradient", "score_gradient",
        "query_gradient", "key_gradient", "flash_forward", "delta", "flash_backward",
    ]  # fmt: skip
    asked = {x.kernel: figure._asked([x]) for launches in sequence for x in launches}
    # 1,024 tiles load 32 rows of Q and 32 of K; S goes out in 32 bits.
    assert asked["scores"] == 16 * (1024 * 2 * 32 * 128 + 1024 * 1024 * 4) == 201_326_592
    # 16 blocks load K and V; Q in, O and L out once.
    assert asked["flash_forward"] == 16 * (16 * 2 * VECTOR + 2 * VECTOR + 4096) == 71_368_704
    # 16 blocks load Q, dO, L and D and add 32-bit numbers to all of dQ; K, V in, dK, dV out once.
    assert asked["flash_backward"] == 16 * (16 * (4 * VECTOR + 2 * 4096) + 4 * VECTOR) == 144_703_488
    assert figure.report(sequence, 1).count(" equal ") == 11


@pytest.mark.slow
def test_dram_of_small_launches_moves_each_array_once(sequence):
    moved = {x.kernel: figure._dram_bytes([x]) for launches in sequence for x in launches}
    assert moved["scores"] == 16 * (2 * VECTOR + 2 * MATRIX) == 71_303_168
    assert moved["flash_forward"] == 16 * (4 * VECTOR + 4096) == 8_454_144
    assert moved["flash_backward"] == 16 * (10 * VECTOR + 2 * 4096) == 21_102_592


@pytest.mark.slow
def test_flops_are_807_a_pair_for_standard_attention(sequence):
    # Products 12 x 64, scale 1, softmax 33 (two exp of 10, a division of 10, 3), dS 5; rows: 153 + 127.
    assert figure._flops(sequence[0]) == 16 * (807 * 1024**2 + 280 * 1024)


@pytest.mark.slow
def test_flops_are_911_a_pair_for_flash_attention_and_the_rest_is_of_strips_and_rows(sequence):
    # 4 x 64 forward, 10 x 64 + 15 backward; a row: 128 strips of 173, 730 at its end, 288 for D.
    assert figure._flops(sequence[1]) == 16 * (911 * 1024**2 + (128 * 173 + 730 + 288) * 1024)


@pytest.mark.slow
def test_the_report_scales_one_sequence_to_the_paper_and_leaves_a_rest(sequence):
    text = figure.report(sequence, 1)
    assert "1 sequence of 64 ran (16 of 1,024 heads)" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "DRAM read and written GB 40.3 33.83 4.4 2.43 modelled" in rows
    assert "Runtime ms 41.7 n/a 7.3 n/a needs time" in rows
    assert "sum 33.827 40.265 6.438" in rows
    assert "sum 2.433 6.107 3.674" in rows
    assert "rest found - sum 0.001 0.035 unexplained" in rows
    assert "rest found - sum 0.000 -1.707 unexplained" in rows


@pytest.mark.slow
def test_a_launch_that_is_not_its_closed_form_is_said_and_ends_with_status_1(sequence, capsys: Capture,
                                                                            monkeypatch):
    wrong = copy.deepcopy(sequence)
    wrong[1][0].closed_form["global_load.bytes"] -= 2
    monkeypatch.setattr(figure, "simulate", lambda batch: wrong)
    assert cli.run(["reproduce", "flash-attention-figure-2", "--batch", "1"]) == 1
    assert capsys.readouterr().out.count("DIFFERENT") == 1
    monkeypatch.setattr(figure, "simulate", lambda batch: sequence)
    assert cli.run(["reproduce", "flash-attention-figure-2", "--batch", "1"]) == 0
    assert "DIFFERENT" not in capsys.readouterr().out


def test_figures_are_listed_and_unknown_ones_refused_with_near_names(capsys: Capture):
    assert cli.run(["reproduce"]) == 0
    assert capsys.readouterr().out.startswith("flash-attention-figure-2: GFLOPs and memory traffic")
    assert cli.run(["reproduce", "flash-attention-figure-3"]) == 2
    assert "did you mean flash-attention-figure-2?" in capsys.readouterr().err
