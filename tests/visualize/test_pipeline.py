"""The pipeline: its edges are the sectors of the launches' accesses."""

from __future__ import annotations

import pytest

from gpusim.errors import BadOption
from gpusim.launch import LineAccess
from visualize import pipeline
from visualize.run import Run


def access(kind, array, sectors):
    return LineAccess("f.py", 1, kind, array, 4, requests=sectors, lanes=32 * sectors, taken=sectors)


@pytest.fixture
def run(make_launch):
    first = make_launch(kernel="_first$", accesses=(
        access("global_load", "x", 10), access("global_load", "x", 5), access("shared_load", "tile", 99),
        access("global_store", "y", 4)))  # fmt: skip
    second = make_launch(kernel="second", accesses=(
        access("global_load", "rows", 8), access("global_red", "total", 2)))  # fmt: skip
    return Run("two", (first, second))


NAMES = {"two": [{}, {"rows": "y"}]}


def test_an_edge_is_the_sectors_between_a_buffer_and_a_launch(run):
    found = pipeline.graph(run, NAMES["two"])
    assert {(s[1], t[1]): n for s, t, n in found.edges(data="bytes")} == {
        ("x", 0): 32 * 15, (0, "y"): 32 * 4, ("y", 1): 32 * 8, (1, "total"): 32 * 2}  # fmt: skip
    assert pipeline.buffers(found) == ["x", "y", "total"]


def test_the_picture_shows_names_and_bytes(run, drawn):
    picture = drawn(pipeline.figure([run], NAMES))
    for text in ("x", "y", "total", "1. _first$", "2. second", "480 B", "128 B", "256 B", "64 B"):
        assert text in picture.texts
    assert "rows" not in picture.texts and "tile" not in picture.texts and picture.flaws == []
    assert picture.named("1-total").get_facecolor()[:3] == (1, 1, 1)
    assert picture.named("0-y").get_facecolor()[:3] != (1, 1, 1)


def test_two_runs_are_drawn_one_below_the_other(run, drawn):
    assert drawn(pipeline.figure([run, Run("again", run.launches)], NAMES)).flaws == []


def test_a_launch_whose_arrays_are_not_told_apart_is_refused(make_launch):
    with pytest.raises(BadOption, match="k ran on the engine oracle, which does not tell arrays apart"):
        pipeline.figure([make_launch(engine="oracle")])


def test_arrays_are_called_as_the_problem_calls_them_and_no_two_alike():
    import numpy as np

    import cli
    from kernels_sim.problem import Problem, Step

    class Kernel:
        @staticmethod
        def py_func(x, n, y):
            pass

    a, b, c = np.zeros(3), np.zeros(3), np.zeros(3)
    steps = (Step(Kernel, (1,), (1,), (a, 3, b)), Step(Kernel, (1,), (1,), (c, np.int32(1), a)))
    problem = Problem("p", steps, {"out": b})
    assert cli.buffer_names(problem) == [{0: "x", 2: "out"}, {0: "x (2)", 2: "x"}]
    assert cli.by_parameter(problem) == [{"x": "x", "y": "out"}, {"x": "x (2)", "y": "x"}]


def test_the_edges_of_a_shipped_problem_add_up_to_its_counters():
    import cli
    from visualize.run import Run

    settings = {"seed": 0, "atomic_order": None, "regs": None, "counts_only": True, "engine": "auto",
                "max_steps": None, "strict_index": False}  # fmt: skip
    problem, launches = cli.simulated_problem("standard_attention", "h200", "cold", settings | {"N": 64})
    found = pipeline.graph(Run("a", tuple(launches)), cli.by_parameter(problem))
    for i, launch in enumerate(launches):
        node, c = ("launch", i), launch.counters
        assert found.in_degree(node, "bytes") == 32 * c.global_load.sectors
        assert found.out_degree(node, "bytes") == 32 * c.global_store.sectors
    assert pipeline.buffers(found) == ["Q", "K", "S", "P", "L", "V", "O"]
