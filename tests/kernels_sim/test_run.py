"""Errors against a reference, the registry of kernels, and options made from a dataclass."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import kernels_sim
from dsl.launch import Device
from gpusim.arch import get_arch
from gpusim.errors import UnknownName
from gpusim.launch import Fact
from kernels_sim.options import options_of, summary
from kernels_sim.problem import Data, KernelSpec, Problem
from kernels_sim.run import checks, failed, largest_error, run_problem

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("values", "expected", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.5, 2.0], [1.0, 2.0], 0.25),  # 0.5 / 2
        ([0.25], [0.0], 0.25),  # over max(1, 0)
        ([NAN, 2.0], [1.0, 2.0], INF),
        ([INF, 2.0], [1.0, 2.0], INF),
        ([-INF, 2.0], [-INF, 2.0], 0.0),
        ([INF, 2.0], [-INF, 2.0], INF),
        ([-1e38, 2.0], [-INF, 2.0], INF),
        ([NAN], [-INF], INF),
        ([NAN], [NAN], 0.0),
        ([1.0], [NAN], INF),
        ([-INF], [-INF], 0.0),
        ([], [], 0.0),
    ],
)
def test_the_error_is_relative_to_the_largest_reference_and_infinite_for_nan(
    values: list[float], expected: list[float], error: float
) -> None:
    assert largest_error(np.array(values, np.float32), np.array(expected)) == error


def test_an_output_of_another_shape_than_its_reference_is_a_defect() -> None:
    with pytest.raises(ValueError, match="shape"):
        largest_error(np.zeros(3), np.zeros(4))


def test_every_output_that_the_reference_names_is_checked() -> None:
    outputs = {"O": np.array([1.0]), "L": np.array([NAN]), "scratch": np.array([NAN])}
    problem = Problem("p", (), outputs, lambda: {"O": np.array([1.0]), "L": np.array([0.0])}, tolerance=1e-5)
    assert [(c.output, c.error, c.tolerance) for c in checks(problem)] == [("O", 0.0, 1e-5), ("L", INF, 1e-5)]


def test_a_problem_without_a_reference_has_no_checks() -> None:
    assert checks(Problem("p", (), {})) == ()


def run_with(*said: Fact, l2: str = "cold"):
    """Run vec_add of 64 elements twice in one problem that says `said` of itself; return its launches."""
    spec = kernels_sim.find("vec_add")
    problem = spec.build(spec.options(n=64), Data(seed=1))
    problem = replace(problem, steps=problem.steps * 2, facts=said)
    return run_problem(problem, Device(get_arch("h200"), l2=l2))


def test_facts_stand_in_the_last_launch_with_what_all_launches_counted() -> None:
    said = Fact("Stored", 128, "element", "2 n", {"global_store.lanes": 1}), Fact("Launches", 2, "launch")
    first, last = run_with(*said)
    assert first.facts == ()
    assert [fact.counted for fact in last.facts] == [128, None]
    assert not failed(first) and not failed(last)


def test_a_fact_that_differs_from_the_counters_fails_its_launch() -> None:
    first, last = run_with(Fact("Stored", 127, "element", "", {"global_store.lanes": 1}))
    assert failed(last) and not failed(first)


def test_facts_of_cold_caches_are_not_held_against_warm_ones_and_others_are() -> None:
    read = Fact("Read", 2 * 128, "element", "2 x 2 n", {"hierarchy.dram_read_bytes": 1}, per=4)
    stored = Fact("Stored", 128, "element", "2 n", {"global_store.lanes": 1})
    cold, warm = run_with(read, stored)[-1].facts, run_with(read, stored, l2="warm")[-1].facts
    assert [(fact.value, fact.counted) for fact in cold] == [(256, 256), (128, 128)]
    assert [(fact.value, fact.counted) for fact in warm] == [(256, None), (128, 128)]
    assert [dict(fact.counters) for fact in warm] == [{}, {"global_store.lanes": 1}]


def test_a_kernel_is_found_by_name_and_a_wrong_name_gets_near_ones() -> None:
    assert kernels_sim.find("flash_forward").name == "flash_forward"
    with pytest.raises(UnknownName, match="unknown kernel 'flsh_forward'; did you mean flash_forward"):
        kernels_sim.find("flsh_forward")


def test_a_name_that_is_near_to_none_gets_all_of_them() -> None:
    with pytest.raises(UnknownName, match="there are: .*flash_forward.*vec_add"):
        kernels_sim.find("zzzzzz")


def test_names_are_those_of_the_registered_kernels() -> None:
    assert kernels_sim.names() == [spec.name for spec in kernels_sim.specs()]
    assert "problem" not in kernels_sim.names()


def test_every_kernel_loads() -> None:
    assert kernels_sim.all_specs()[1] == {}


@dataclass(frozen=True)
class Options:
    """Hold one option of each kind."""

    N: int = field(default=64, metadata={"help": "rows"})
    Nk: int | None = None
    scale: float = 0.5
    causal: bool = False
    q_start: int = 0
    variant: str = field(default="a", metadata={"choices": ("a", "b")})


SPEC = KernelSpec("k", "a kernel", Options, lambda options, data: Problem("k", (), {}))


def test_options_keep_the_names_and_defaults_of_the_fields() -> None:
    made = {o.name: o for o in options_of(SPEC)}
    assert list(made) == ["N", "Nk", "scale", "causal", "q_start", "variant"]
    assert (made["N"].flag, made["N"].type, made["N"].default, made["N"].help) == ("--N", int, 64, "rows")
    assert (made["Nk"].type, made["Nk"].default) == (int, None)
    assert made["causal"].type is bool
    assert made["q_start"].flag == "--q-start"
    assert made["variant"].choices == ("a", "b")


def test_options_are_listed_in_one_line() -> None:
    assert summary(SPEC) == "--N 64  --Nk INT  --scale 0.5  --causal (off)  --q-start 0  --variant a"


def test_an_option_of_another_type_is_a_defect() -> None:
    @dataclass(frozen=True)
    class Wrong:
        shape: tuple[int, ...] = ()

    with pytest.raises(TypeError, match="an option is bool"):
        options_of(KernelSpec("k", "a kernel", Wrong, SPEC.build))
