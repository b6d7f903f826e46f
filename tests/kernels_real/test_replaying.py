"""Replaying: what is simulated once for several recorded launches, in which order, and what is given back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

import cli
from gpusim import metrics
from gpusim.arch import H200
from gpusim.launch import Launch
from gpusim.measured import Measured
from kernels_real.jobs import Job
from kernels_real.recordings import Recorded
from kernels_real.replaying import of_kernel, replay, work

LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
REGISTERS = "launch__registers_per_thread"


def recorded(kernel: str, backend: str = "numba", step: int = 0, registers: int = 16, sectors: int = 1,
             source: str = "a.csv", **options: Any) -> Recorded:  # fmt: skip
    values = {LOADS: sectors, REGISTERS: registers}
    return Recorded(Job(kernel, backend, options), step, Measured(kernel, None, None, values, source=source))


@pytest.fixture(scope="module")
def sample() -> Launch:
    """Return a launch of vec_add over 1,003 elements: 2 arrays of 126 sectors are loaded."""
    (launch,) = cli.job_launches(Job("vec_add", "numba", {"n": 1003}), {0: 16}, H200, 1)
    return launch


class Simulator:
    """Give the same launch for every job, and keep what was asked for."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.asked = launch, list[tuple[str, str, dict[int, int]]]()

    def __call__(self, job: Job, registers: dict[int, int]) -> Sequence[Launch]:
        self.asked.append((job.kernel, job.backend, registers))
        return [self.launch] * 3


def test_launches_of_a_problem_and_versions_with_the_same_options_share_a_simulation(sample: Launch) -> None:
    simulate = Simulator(sample)
    found = replay([recorded("k", registers=16), recorded("k", step=1, registers=32),
                    recorded("k", "triton", registers=99)], simulate)  # fmt: skip
    assert simulate.asked == [("k", "numba", {0: 16, 1: 32})]
    assert [r.recorded.job.backend for r in found] == ["numba", "numba", "triton"]


def test_other_options_registers_and_kernels_are_simulated_apart(sample: Launch) -> None:
    simulate = Simulator(sample)
    replay([recorded("k", n=1), recorded("k", n=2), recorded("k", n=1, registers=17, source="b.csv"),
            recorded("j", n=1)], simulate)  # fmt: skip
    assert len(simulate.asked) == 4


def test_a_triton_version_alone_gives_no_registers(sample: Launch) -> None:
    simulate = Simulator(sample)
    replay([recorded("k", "triton"), recorded("k", n=1)], simulate)
    assert simulate.asked == [("k", "triton", {}), ("k", "numba", {0: 16})]


def test_kernels_with_more_sectors_come_first_and_results_keep_their_order(sample: Launch) -> None:
    simulate, told = Simulator(sample), []
    given = [recorded("short", sectors=5), recorded("long", sectors=3, n=1), recorded("long", sectors=3, n=2)]
    found = replay(given, simulate, progress=lambda *done: told.append(done))
    assert [kernel for kernel, _, _ in simulate.asked] == ["long", "long", "short"]
    assert [r.recorded for r in found] == given
    assert told == [(1, 2), (2, 2)]


def test_the_work_of_a_launch_is_its_sectors_and_nothing_else() -> None:
    values = {LOADS: 3, STORES: 4, "lts__t_sectors.sum": 100}
    assert work(Recorded(Job("k", "numba"), 0, Measured("k", None, None, values))) == 7


def test_a_replayed_launch_has_the_simulator_s_numbers_and_its_entries(sample: Launch) -> None:
    (found,) = of_kernel(Simulator(sample), [[recorded("k", sectors=252 + 5)]])
    assert found.simulated[LOADS] == 252
    unknown = {m.name for m in metrics.METRICS if metrics.value(sample, m.name) is None}
    assert unknown and not unknown & set(found.simulated)  # n/a is no number
    assert [(e.metric, e.measured - e.simulated) for e in found.entries] == [(LOADS, 5)]


@pytest.mark.slow
def test_processes_give_what_one_gives() -> None:
    given = [r for r in cli.recordings(None, ("vec_add", "offset_copy")) if r.job.options["n"] < 10_000]
    simulate = partial(cli.job_launches, arch=H200, threads=1)
    assert len(given) == 2
    assert replay(given, simulate, processes=2) == replay(given, simulate)
