"""Measure jobs under ncu: run them in a child process, then join what ncu printed to what the jobs were.

A launch of a job is found among ncu's by its name and grid, in order; so a job that failed halfway shifts
nothing. What it leaves out: how a job becomes a problem (the child is a command of cli.py).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from gpusim.errors import LaunchRefused
from gpusim.measured import Measured, read_measured
from kernels_real.jobs import Job, Outcome, read_outcomes, write_jobs
from kernels_real.ncu import find_ncu, metrics_known, ncu_version, run_under_ncu

CHILD = "run-jobs"
"""The hidden command of cli.py that runs jobs."""


@dataclass(frozen=True)
class Session:
    """Hold one run of ncu: its CSV as text, and each job's outcome with the launches that ncu saw of it."""

    raw: str
    pairs: list[tuple[Outcome, list[Measured]]]


def measure(jobs: Sequence[Job], seconds: float = float("inf")) -> Session:
    """Run jobs under one ncu; raise LaunchRefused where ncu, a GPU or the permission for counters is missing,
    or where not one job ran."""
    ncu = find_ncu()
    with tempfile.TemporaryDirectory() as folder:
        listed, outcomes, log = (Path(folder) / name for name in ("jobs", "outcomes", "log.csv"))
        write_jobs(listed, list(jobs))
        program = [*child(listed, outcomes), "--seconds", f"{seconds:.0f}"]
        try:
            run_under_ncu(ncu, program, log, metrics_known(ncu))
        except LaunchRefused as refused:
            failures = [o.failure for o in read_outcomes(outcomes) if o.failure]
            if failures:
                raise LaunchRefused(f"nothing was measured: {failures[0]}") from None
            raise refused
        return Session(log.read_text(), joined(read_outcomes(outcomes), read_measured(log)))


def child(jobs: Path, outcomes: Path) -> list[str]:
    """Return the command that runs a list of jobs."""
    cli = str(Path(__file__).resolve().parents[1] / "cli.py")
    return [sys.executable, cli, CHILD, str(jobs), str(outcomes)]


def compile_together(jobs: Sequence[Job], processes: int) -> None:
    """Compile the kernels of jobs in several processes at once, for the cache on disk that Triton has."""
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for i in range(processes):
            listed = Path(folder) / f"jobs{i}"
            write_jobs(listed, list(jobs[i::processes]))
            running.append(subprocess.Popen([*child(listed, listed), "--compile-only"]))
        for process in running:
            process.wait()


def joined(outcomes: Sequence[Outcome], rows: Sequence[Measured]) -> list[tuple[Outcome, list[Measured]]]:
    """Return each outcome with its rows, none where ncu has not all of its launches in a run."""
    pairs, at = [], 0
    for outcome in outcomes:
        found = find(outcome, rows, at)
        at = at if found is None else found + len(outcome.launches)
        pairs.append((outcome, [] if found is None else list(rows[found:at])))
    return pairs


def find(outcome: Outcome, rows: Sequence[Measured], start: int) -> int | None:
    """Return where the launches of an outcome begin among the rows from `start` on; None if nowhere."""
    wanted = outcome.launches
    if not wanted:
        return None
    for at in range(start, len(rows) - len(wanted) + 1):
        if all(_is(row, launch) for row, launch in zip(rows[at:], wanted, strict=False)):
            return at
    return None


def _is(row: Measured, launch: dict[str, object]) -> bool:
    grid = launch["grid"]
    return str(launch["name"]) in row.kernel and (row.grid is None or list(row.grid) == grid)


def header() -> dict[str, str]:
    """Return what was measured on and with: card, driver, versions, how ncu was run, the date in UTC."""
    from importlib.metadata import PackageNotFoundError, version

    said = {"card": "", "driver": "", "ncu": ncu_version(find_ncu())}
    said |= dict(zip(("card", "driver"), _smi(), strict=False))
    for package in ("numba", "numba-cuda", "triton", "torch", "numpy"):
        try:
            said[package] = version(package)
        except PackageNotFoundError:
            continue
    said |= {"cache control": "all", "clock control": "none", "python": sys.version.split()[0]}
    said["date"] = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return said


def _smi() -> list[str]:
    """Return the name of the first GPU and the driver's version, as nvidia-smi says them."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [word.strip() for word in said.splitlines()[0].split(",")] if said.strip() else []


def with_header(raw: str, said: dict[str, str]) -> str:
    """Return ncu's CSV with lines "# key: value" before it and the profiler's own messages left out."""
    lines = [f"# {key}: {value}" for key, value in said.items() if value]
    lines += [line for line in raw.splitlines() if not line.startswith("==")]
    return "\n".join(lines) + "\n"
