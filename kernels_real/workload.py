"""The program that runs under ncu: each job's launches between the profiler's start and stop, values checked.

A job's kernels are compiled and launched once before that, and arrays are filled anew. A job that fails is
noted and the next one runs. What it leaves out: problems, which the caller builds (kernels_sim is not known
here).
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import kernels_real
from gpusim.errors import UserError
from kernels_real.jobs import Job, Outcome, append_outcome

Checks = Callable[[Any, Mapping[str, np.ndarray]], Sequence[Any]]


def run_jobs(jobs: Sequence[Job], build: Callable[[Job], Any], checks: Checks, outcomes: Path,
             seconds: float = float("inf")) -> None:  # fmt: skip
    """Run jobs and append what came of each to a file.

    build: makes a job's problem; checks: compares outputs with its reference and returns for each `output`,
    `error` and `rounded`, as gpusim's Check has them. seconds: after so many no new job begins, so that the
    profiler ends in time.
    """
    start = time.monotonic()
    for number, job in enumerate(jobs):
        passed = time.monotonic() - start
        if passed > seconds:
            print(f"{len(jobs) - number} jobs were not begun: {seconds:.0f} s are over", file=sys.stderr)
            return
        print(f"{passed:6.1f} s  {job.title}", file=sys.stderr, flush=True)
        outcome = run_job(job, build, checks)
        if outcome.failure or outcome.wrong:
            print(f"          {outcome.failure or f'WRONG: {outcome.wrong}'}", file=sys.stderr, flush=True)
        append_outcome(outcomes, outcome)
        gc.collect()


def run_job(job: Job, build: Callable[[Job], Any], checks: Checks) -> Outcome:
    """Run one job and return what came of it; whatever it raises becomes its failure."""
    try:
        problem = build(job)
        prepared = kernels_real.prepare(problem, job.backend, **job.configuration)
        compiled = prepared.compile()
        prepared.launch()
        taken = [resources(x) for x in compiled]
        prepared.refill()
        with RANGES[job.backend]():
            prepared.launch()
        launches = [describe(x) for x in prepared.launches]
        for launch, found in zip(launches, taken, strict=False):
            launch.update(found)
        checked = checks(problem, prepared.outputs()) if job.check else ()
        return Outcome(job, launches, {c.output: c.error for c in checked}, problem.tolerance,
                       rounded={c.output: c.rounded for c in checked if c.rounded})
    except UserError as mistake:
        return Outcome(job, failure=str(mistake))
    except Exception as fault:  # whatever a compiler or a driver raises: the other jobs still run
        return Outcome(job, failure=f"{type(fault).__name__}: {str(fault).strip()[:500]}")


def describe(launch: Any) -> dict[str, Any]:
    """Return a launch's name, grid and block, as a profiler shows them."""
    warps = getattr(launch, "num_warps", 0)
    block = (32 * warps,) if warps else launch.block
    return {"name": launch.name, "grid": _three(launch.grid), "block": _three(block)}


def _three(extents: Sequence[int]) -> list[int]:
    return [int(n) for n in (*extents, 1, 1)[:3]]


def resources(compiled: Any) -> dict[str, int]:
    """Return registers and spills of a thread, as far as numba's or Triton's kernel object tells them."""
    names = {"regs_per_thread": ("registers", 1), "local_mem_per_thread": ("local_bytes", 1),
             "n_regs": ("registers", 1), "n_spills": ("local_bytes", 4)}  # fmt: skip
    found = {said: (getattr(compiled, name, None), words) for name, (said, words) in names.items()
             if isinstance(getattr(compiled, name, None), int)}  # fmt: skip
    return {said: int(n) * words for said, (n, words) in found.items()}


def compile_jobs(jobs: Sequence[Job], build: Callable[[Job], Any]) -> None:
    """Compile the kernels of jobs and launch nothing, so that Triton finds them in its cache later."""
    for job in jobs:
        with suppress(Exception):  # what is wrong is said when the job runs
            kernels_real.prepare(build(job), job.backend, **job.configuration).compile()


@contextmanager
def _numba_range() -> Iterator[None]:
    from numba import cuda

    cuda.profile_start()
    try:
        yield
    finally:
        cuda.profile_stop()


@contextmanager
def _torch_range() -> Iterator[None]:
    import torch

    torch.cuda.profiler.start()
    try:
        yield
    finally:
        torch.cuda.profiler.stop()


RANGES = {"numba": _numba_range, "triton": _torch_range}
"""Backend -> the context in which ncu measures."""
