"""How offsets of 32 lanes are described: a step, runs of a step, or neither."""

from __future__ import annotations

import pytest

from dsl.engine.lane_steps import runs


@pytest.mark.parametrize(("offset", "described"), [
    (lambda lane: 4 * lane, (4, 32, 0)),
    (lambda lane: 100 - 8 * lane, (-8, 32, 0)),
    (lambda lane: 0, (0, 32, 0)),
    (lambda lane: 4 * (lane % 16) + 400 * (lane // 16), (4, 16, 400)),
    (lambda lane: 128 * (lane // 8), (0, 8, 128)),
    (lambda lane: 4 * (lane % 16), (4, 16, 0)),
    (lambda lane: 4 * (lane % 12) + 64 * (lane // 12), (4, 12, 64)),  # rows of a block 12 wide
])  # fmt: skip
def test_a_regular_pattern_has_a_step_and_runs(offset, described) -> None:
    assert runs(tuple(map(offset, range(32)))) == described


@pytest.mark.parametrize("offset", [
    lambda lane: lane * lane,
    lambda lane: 4 * (lane ^ 5),
    lambda lane: 4 * lane + 4 * (lane // 20) + 8 * (lane // 25),
])  # fmt: skip
def test_an_irregular_pattern_has_no_step(offset) -> None:
    assert runs(tuple(map(offset, range(32)))) == (None, 32, 0)
