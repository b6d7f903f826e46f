"""Recorded measurements: compact CSV files, a line a launch, with what was launched and what ncu counted.

Lines "# key: value" first; then columns kernel, backend, options and configuration (JSON), step, launch,
grid, block, bytes of local memory a thread (stack frame and spills), the largest error of an output, how many
elements of 8-bit outputs another order of a sum rounded to the neighbour; then a column a metric, by ncu's
name and in base units. An empty cell is a metric that was not measured.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpusim.errors import BadOption, reason
from gpusim.goals import FIT
from gpusim.measured import Measured, header_of
from gpusim.table import counted
from kernels_real.jobs import Job, Outcome
from kernels_real.metric_list import METRICS, WHERE_KNOWN
from kernels_real.recorded_cells import COLUMNS, about_launch, numbers
from kernels_real.recorded_launches import list_of, subset_of

FOLDER = Path(__file__).parent / "measurements"
ASKED = frozenset((*METRICS, *WHERE_KNOWN))
"""What is kept: ncu's raw page holds minima and maxima too, and 250 attributes of the device."""
HUNDREDTH = 0.01
"""The last digit that ncu prints of what is no whole number."""


@dataclass(frozen=True)
class Recorded:
    """Hold one recorded launch: the job it belongs to, which of its launches it is, what ncu counted, whether
    the model may be fitted on it, and the line of the file that it was read from (0: of none)."""

    job: Job
    step: int
    measured: Measured
    local_bytes: int | None = None
    error: float | None = None
    rounded: int | None = None
    header: dict[str, str] = field(default_factory=dict)
    subset: str = FIT
    line: int = 0

    @property
    def where(self) -> str:
        """Return what finds the launch again: file, line and title."""
        line = f" line {self.line}" if self.line else ""
        return f"{self.measured.source}{line} ({self.title})"

    @property
    def title(self) -> str:
        """Return kernel, options and launch in one line, no two launches of a problem alike."""
        words = [word for name, value in (self.job.options | self.job.configuration).items()
                 if (word := _word(name, value))]
        kernel = self.job.kernel.rpartition(":")[2]
        launch = self.measured.kernel if self.measured.kernel != kernel else ""
        number = f"launch {self.step + 1}" if self.step else ""
        return " ".join(filter(None, [kernel, *words, launch, number]))

    @property
    def spills(self) -> bool:
        """Return whether threads of the launch used local memory on the card."""
        names = (f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st"))
        return any(self.measured.values.get(name, 0) > 0 for name in names)


def _word(name: str, value: Any) -> str:
    """Return NAME=VALUE; of the arguments of a kernel in a file the numbers alone, as arrays follow from
    them."""
    if name == "arg":
        numbers = [word for word in value if "[" not in word]
        return f"arg={','.join(numbers)}" if numbers else ""
    return "" if (name, value) == ("shared", 0) else f"{name}={value}"


def from_session(pairs: Iterable[tuple[Outcome, Sequence[Measured]]]) -> list[Recorded]:
    """Return the recorded launches of what a run of ncu gave, with the metrics that were asked for.

    A job whose launches ncu has not all (joined() says which) has none.
    """
    made = []
    for outcome, rows in pairs:
        worst = max(outcome.errors.values(), default=None)
        rounded = sum(outcome.rounded.values()) or None
        launches = outcome.launches if rows else []
        for step, (row, launch) in enumerate(zip(rows, launches, strict=True)):
            asked = {name: value for name, value in row.values.items() if name in ASKED}
            named = replace(row, kernel=launch["name"], values=asked)
            made.append(Recorded(outcome.job, step, named, launch.get("local_bytes"), worst, rounded))
    return made


def to_text(recorded: Sequence[Recorded], header: dict[str, str]) -> str:
    """Return recorded launches as the text of a file; metrics that no launch has get no column."""
    metrics = list(dict.fromkeys(name for r in recorded for name in r.measured.values))
    out = io.StringIO()
    for key, value in header.items():
        out.write(f"# {key}: {value}\n" if value else "")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *metrics])
    for r in recorded:
        values = (r.measured.values.get(name, "") for name in metrics)
        writer.writerow([*_about(r), *values])
    return out.getvalue()


def _about(r: Recorded) -> list[Any]:
    job, m = r.job, r.measured
    shapes = (" ".join(map(str, shape or ())) for shape in (m.grid, m.block))
    error = "" if r.error is None else f"{r.error:.3g}"
    return [job.kernel, job.backend, json.dumps(job.options), json.dumps(job.configuration), r.step, m.kernel,
            *shapes, "" if r.local_bytes is None else r.local_bytes, error, r.rounded or ""]


def is_recording(path: Path) -> bool:
    """Say whether a file begins as recorded measurements do; False where it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    first = next((line for line in lines if not line.startswith("# ")), "")
    return tuple(first.split(",")[: len(COLUMNS)]) == COLUMNS


def read(path: Path) -> list[Recorded]:
    """Return the recorded launches of a file; raise BadOption for another file, for one without a launch, and
    for a damaged row, with its line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"cannot read {path}: {reason(error)}") from None
    header, rows = header_of(text), _rows(text, path)
    names = next(rows, (0, []))[1]
    if tuple(names[: len(COLUMNS)]) != COLUMNS:
        raise BadOption(f"{path} is no file of recorded measurements: its first columns are not "
                        f"{', '.join(COLUMNS)}")
    found = [_recorded(names, cells, header, path, line) for line, cells in rows]
    if not found:
        raise BadOption(f"{path} holds no launch: no line follows the one with the names of the columns")
    return found


def _rows(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of each line of the table; a row is one line, as to_text writes it."""
    for number, line in enumerate(text.splitlines(), 1):
        if line and not line.startswith("# "):
            try:
                yield number, next(csv.reader([line], strict=True))
            except csv.Error as error:
                raise BadOption(f"{path} line {number} is damaged: {error}") from None


def _recorded(names: Sequence[str], cells: Sequence[str], header: dict[str, str], path: Path,
              line: int) -> Recorded:  # fmt: skip
    where = f"{path} line {line}"
    if len(cells) != len(names):
        raise BadOption(f"{where} is damaged: it has {counted(len(cells), 'cell')}, and there are "
                        f"{counted(len(names), 'column')}")
    about = about_launch(cells, where)
    values = dict(numbers(names[len(COLUMNS) :], cells[len(COLUMNS) :], where))
    rounded = {name: HUNDREDTH / 2 for name, value in values.items() if isinstance(value, float)}
    job = Job(*(about[name] for name in ("kernel", "backend", "options", "configuration")))
    shapes = about["grid"], about["block"]
    said = {**header, "kernel": about["kernel"], "backend": about["backend"]}
    measured = Measured(about["launch"], *shapes, values, rounded, {}, said, path.name)
    own = (about[name] for name in ("local_bytes", "error", "rounded"))
    return Recorded(job, about["step"], measured, *own, header, line=line)


def with_data(kernel: str) -> bool:
    """Return whether a kernel's counts depend on the numbers in its arrays."""
    return kernel in ("histogram", "paged_attention_v2")


def by_problem(recorded: Iterable[Recorded]) -> list[list[Recorded]]:
    """Return the recorded launches of each problem together, in their order."""
    groups: dict[str, list[Recorded]] = {}
    for r in recorded:
        groups.setdefault(json.dumps([r.job.title, r.job.seed, r.measured.source]), []).append(r)
    return list(groups.values())


def read_all(folder: Path = FOLDER) -> list[Recorded]:
    """Return all recorded launches of a folder, file by file; raise BadOption where it holds none."""
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise BadOption(f"{folder} holds no recorded measurements (*.csv)")
    return with_subsets([r for file in files for r in read(file)])


def with_subsets(recorded: Sequence[Recorded]) -> list[Recorded]:
    """Return recorded launches with their set (recorded_launches.subset_of): the problems of each kernel and
    list are numbered as they come, and the launches of a problem stay together."""
    numbers: dict[tuple[str, str], dict[str, int]] = {}
    found = []
    for r in recorded:
        listed = list_of(r.job)
        own = numbers.setdefault((listed, r.job.kernel), {})
        found.append(replace(r, subset=subset_of(listed, own.setdefault(r.job.title, len(own)))))
    return found
