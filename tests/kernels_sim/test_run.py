"""Errors against a reference, the registry of kernels, and options made from a dataclass."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import kernels_sim
from dsl.host.device import Device
from gpusim.arch import get_arch
from gpusim.errors import BadOption, LaunchRefused, UnknownName
from gpusim.launch import Check, Fact
from kernels_sim.check import checks, largest_error
from kernels_sim.options import options_of, summary
from kernels_sim.problem import Data, KernelSpec, Problem
from kernels_sim.run import failed, recorded, run_problem, simulate

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


def test_registers_recorded_for_another_compute_capability_say_so() -> None:
    spec = kernels_sim.find("vec_add")
    step = spec.build(spec.options(n=64), Data(virtual=True)).steps[0]
    sources = [recorded(step, get_arch(gpu)).source for gpu in ("h200", "h100", "a100")]
    assert sources == ["recorded", "recorded", "recorded for sm_90"]
    assert recorded(replace(step, registers=None), get_arch("h200")) is None


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        ("vec_add", {"n": 1 << 62}),
        ("strided_copy", {"n": 1 << 30, "stride": 1 << 40}),
        ("histogram", {"n": 8, "bins": 1 << 60}),
        ("flash_forward", {"N": 2_000_000_000}),
        ("standard_attention", {"N": 400_000}),
    ],
)
def test_a_problem_that_cannot_fit_the_memory_is_refused_before_any_work(kernel: str, options: dict) -> None:
    spec = kernels_sim.find(kernel)
    for virtual in (False, True) if kernel != "standard_attention" else (True,):
        with pytest.raises(LaunchRefused, match="the simulated memory has 137,438,953,472"):
            spec.build(spec.options(**options), Data(virtual=virtual))


def test_the_arrays_of_a_problem_must_fit_together() -> None:
    data = Data(virtual=True)
    data.normal(1 << 34)  # 64 GiB
    data.normal(1 << 34)
    with pytest.raises(LaunchRefused, match=r"\(1,\) takes 4 bytes, with those before it 137,438,953,476"):
        data.normal(1)


def test_a_position_beyond_any_sequence_is_refused() -> None:
    spec = kernels_sim.find("flash_forward")
    with pytest.raises(BadOption, match=r"--q-start must lie between -2\*\*40 and 2\*\*40"):
        spec.build(spec.options(N=64, q_start=(1 << 40) + 1), Data(virtual=True))


def test_where_terms_cancel_an_error_beyond_the_tolerance_is_measured_against_the_terms() -> None:
    def found(output: float, summed: float | None) -> Check:
        size = None if summed is None else lambda: {"x": summed}
        problem = Problem("p", (), {"x": np.full(3, output)}, lambda: {"x": np.zeros(3)}, 1e-5, summed=size)
        return checks(problem)[0]

    assert found(5e-5, None) == Check("x", 5e-5, 1e-5)
    assert found(5e-5, 100.0) == Check("x", 5e-7, 1e-5, 100.0)
    assert found(5e-6, 100.0) == Check("x", 5e-6, 1e-5)  # within the tolerance as it is
    assert found(5e-5, 0.5) == Check("x", 5e-5, 1e-5, 0.5)  # terms below 1 change nothing
    assert found(np.nan, 100.0).error == np.inf


def test_a_shipped_kernel_runs_from_python_as_on_the_command_line():
    (launch,) = simulate("vec_add", n=1000)
    assert launch.options == {"seed": 0, "n": 1000}
    assert launch.counters.global_load.bytes == 8_000 and launch.checks
    (counted,) = simulate("vec_add", "a100", n=1000, counts_only=True)
    assert counted.counts_only and counted.arch.name == "a100" and not counted.checks


def test_an_option_that_the_kernel_lacks_is_named_with_those_it_has():
    with pytest.raises(UnknownName, match="vec_add has no option N; it has: n"):
        simulate("vec_add", N=1000)
