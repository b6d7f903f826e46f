"""What is measured: jobs, each a kernel with options on a backend, and what came of each, as JSON lines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpusim.errors import BadOption


@dataclass(frozen=True)
class Job:
    """Describe one problem to run: kernel (a shipped name or FILE.py:kernel), its options, a backend.

    configuration: what the backend leaves open, such as num_warps. check: whether values are held against
    the reference, which takes long for large problems.
    """

    kernel: str
    backend: str
    options: dict[str, Any] = field(default_factory=dict)
    configuration: dict[str, int] = field(default_factory=dict)
    seed: int = 0
    check: bool = True

    @property
    def target(self) -> str:
        """Return what names the kernel from any folder: files of the project are named from its root."""
        file, colon, name = self.kernel.rpartition(":")
        own = Path(__file__).resolve().parents[1] / file
        return f"{own}:{name}" if colon and not Path(file).is_file() and own.is_file() else self.kernel

    @property
    def same_source(self) -> bool:
        """Return whether the card runs the simulated kernel's own source."""
        return self.backend == "numba"

    @property
    def title(self) -> str:
        """Return kernel, options and backend in one line."""
        words = [f"{name}={value}" for name, value in (self.options | self.configuration).items()]
        return " ".join([self.kernel, *words, f"({self.backend})"])


@dataclass(frozen=True)
class Outcome:
    """Hold what came of a job: its launches as (name, grid, block), what the compiler says a thread takes,
    the error of each output over its tolerance, and the message of what failed.

    rounded: elements of 8-bit outputs that another order of a sum rounded to the neighbour.
    """

    job: Job
    launches: list[dict[str, Any]] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)
    tolerance: float = 0.0
    failure: str = ""
    rounded: dict[str, int] = field(default_factory=dict)

    @property
    def wrong(self) -> dict[str, float]:
        """Return the outputs that lie beyond their tolerance."""
        return {name: e for name, e in self.errors.items() if not e <= self.tolerance}


def write_jobs(path: Path, jobs: list[Job]) -> None:
    """Write jobs, one a line."""
    path.write_text("".join(json.dumps(asdict(job)) + "\n" for job in jobs))


def read_jobs(path: Path) -> list[Job]:
    """Read what `write_jobs` wrote; raise BadOption for another file."""
    try:
        return [Job(**json.loads(line)) for line in path.read_text().splitlines()]
    except (OSError, ValueError, TypeError) as error:
        raise BadOption(f"{path} is no list of jobs: {error}") from None


def append_outcome(path: Path, outcome: Outcome) -> None:
    """Add an outcome to a file at once, so that it is there if the next job ends the process."""
    with path.open("a") as file:
        file.write(json.dumps(asdict(outcome)) + "\n")


def read_outcomes(path: Path) -> list[Outcome]:
    """Read the outcomes of a file, none where it does not exist."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = map(json.loads, lines)
    return [Outcome(**{**fields, "job": Job(**fields["job"])}) for fields in found]
