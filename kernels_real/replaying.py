"""Recorded launches simulated again: every simulation once, the longest kernels first, in some processes.

A kernel's launches stay in one process, as they share its compilations. Versions of one kernel with the same
options share a simulation: a Triton version's twin takes the registers that the card showed of the simulated
source itself, through numba-cuda. What it leaves out: the simulation, which the caller gives, as nothing here
knows the simulated kernels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing import get_context

from gpusim import metrics
from gpusim.accuracy import Entry, entries
from gpusim.errors import BadOption, UserError
from gpusim.goals import Case
from gpusim.launch import Launch
from gpusim.table import counted
from kernels_real.jobs import Job
from kernels_real.recordings import Recorded, by_problem

REGISTERS = "launch__registers_per_thread"
Problem = Sequence[Recorded]
"""The launches of a job."""
Registers = dict[int, int]
"""Number of a launch -> registers of a thread."""
Simulate = Callable[[Job, Registers], Sequence[Launch]]
"""What simulates the launches of a job, with the registers that are known; a function that can be pickled."""
PRELOADED = ["gpusim.accuracy", "gpusim.hierarchy", "dsl.engine.run", "dsl.host.launch"]
"""What a process would take 3 s to load: they share it."""


@dataclass(frozen=True)
class Replayed:
    """Hold a recorded launch beside its simulation: the simulator's numbers by ncu's name, and the entries of
    the accuracy table."""

    recorded: Recorded
    simulated: dict[str, float]
    entries: list[Entry]

    @property
    def case(self) -> Case:
        """Return what the goals of the model are held against."""
        r = self.recorded
        return Case(r.subset, self.simulated, r.measured.values, r.job.same_source)

    @property
    def spills(self) -> bool:
        """Return whether the card used local memory that the simulator has not."""
        return any(e.spills for e in self.entries)


def replay(
    recorded: Sequence[Recorded], simulate: Simulate, processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Replayed]:  # fmt: skip
    """Return recorded launches simulated again, in their order.

    progress: called with (kernels done, kernels in all).
    """
    kernels: dict[str, list[Recorded]] = {}
    for r in recorded:
        kernels.setdefault(r.job.kernel, []).append(r)
    tasks = [by_problem(own) for own in sorted(kernels.values(), key=lambda own: -sum(map(work, own)))]
    found: dict[int, Replayed] = {}
    for n, (task, made) in enumerate(zip(tasks, _mapped(simulate, tasks, processes), strict=True), 1):
        found |= {id(r): x for r, x in zip(chain(*task), made, strict=True)}
        if progress is not None:
            progress(n, len(tasks))
    return [found[id(r)] for r in recorded]


def work(r: Recorded) -> float:
    """Return about how long a launch takes to simulate: the sectors that it asked L1 for on the card."""
    names = (f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st", "red", "atom"))
    return sum(r.measured.values.get(name, 0) for name in names)


def _mapped(simulate: Simulate, tasks: list[list[Problem]], processes: int) -> Iterator[list[Replayed]]:
    """Yield what comes of each task, in their order."""
    if processes == 1 or len(tasks) < 2:
        yield from map(partial(of_kernel, simulate), tasks)
        return
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with ProcessPoolExecutor(processes, context) as pool:
        yield from pool.map(partial(of_kernel, simulate), tasks)


def of_kernel(simulate: Simulate, problems: Sequence[Problem]) -> list[Replayed]:
    """Return the recorded launches of a kernel's problems simulated again, one problem after the other."""
    known: dict[str, Registers] = {}
    for own in problems:
        if own[0].job.same_source:
            known.setdefault(alike(own[0].job), registers(own))
    launches: dict[tuple[str, str], Sequence[Launch]] = {}
    made = []
    for own in problems:
        job = own[0].job
        taken = registers(own) if job.same_source else known.get(alike(job), {})
        key = alike(job), json.dumps(taken)
        if key not in launches:
            launches[key] = _simulated(simulate, own[0], taken)
        made += [_replayed(r, _launch_of(r, launches[key])) for r in own]
    return made


def _simulated(simulate: Simulate, first: Recorded, taken: Registers) -> Sequence[Launch]:
    """Return the launches of a problem; a mistake in what was recorded names the first of its lines."""
    try:
        return simulate(first.job, taken)
    except UserError as mistake:
        raise BadOption(f"{first.where} cannot be simulated again: {mistake}") from mistake


def _launch_of(r: Recorded, launches: Sequence[Launch]) -> Launch:
    if r.step >= len(launches):
        has = counted(len(launches), "launch")
        raise BadOption(f"{r.where}: step is {r.step}, and this problem has {has}, counted from 0")
    return launches[r.step]


def alike(job: Job) -> str:
    """Return what the jobs of a kernel that need the same simulation have in common."""
    return json.dumps([job.options, job.seed], sort_keys=True)


def registers(problem: Problem) -> Registers:
    """Return the registers that the card showed of each launch of a problem; raise BadOption where one has
    none."""
    for r in problem:
        if not r.measured.values.get(REGISTERS):
            raise BadOption(f"{r.where}: {REGISTERS} was not measured, and the simulation needs it")
    return {r.step: int(r.measured.values[REGISTERS]) for r in problem}


def _replayed(r: Recorded, launch: Launch) -> Replayed:
    values = ((m.name, metrics.value(launch, m.name)) for m in metrics.METRICS)
    simulated = {name: float(value) for name, value in values if value is not None}
    return Replayed(r, simulated, entries(r.title, launch, r.measured))
