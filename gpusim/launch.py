"""What one simulated launch is and what it gave: the value that reports, comparisons and pictures start from.

It holds the shape of the launch, the occupancy, the counters and where each came from; it computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from gpusim.counters import AsCompiled, Counters
from gpusim.trace import SECTOR_BYTES

if TYPE_CHECKING:
    from gpusim.arch import Arch
    from gpusim.occupancy import Occupancy
    from gpusim.work import Work

NOT_COUNTED: dict[str, tuple[str, ...]] = {"oracle": ("arithmetic", "hierarchy")}
"""The parts of Counters that an engine leaves at 0 as it does not count them; n/a everywhere, never 0."""
UNKNOWN = "unknown"
"""Source of a register count that nobody knows; what follows from it is n/a."""


@dataclass(frozen=True)
class Registers:
    """Say how many registers a thread takes.

    source: "given" (--regs or cuda.jit), "recorded" (ptxas), "recorded for sm_90" (ptxas, for another target
    than the launch's), "estimated" (liveness, modelled) or UNKNOWN (per_thread is 0 then).
    """

    per_thread: int
    source: str
    detail: str = ""

    @property
    def is_sure(self) -> bool:
        """Return whether what follows from the number is exact: it was given, or recorded for this GPU."""
        return self.source in ("given", "recorded")

    @property
    def is_known(self) -> bool:
        """Return whether there is a number at all."""
        return self.source != UNKNOWN


@dataclass(frozen=True)
class Check:
    """Hold the largest error of one output, max|x - ref| / max(1, max|ref|, terms) with ref in float64.

    terms: root of the sum of squares of what the output adds up, where that cancels; 0 where it is not asked.
    rounded: 8-bit elements that another order of a sum rounds to the neighbour; they are no error.
    """

    output: str
    error: float
    tolerance: float
    terms: float = 0.0
    rounded: int = 0


@dataclass(frozen=True)
class Fact:
    """Hold one number that an algorithm says of itself, over all launches of its problem.

    formula: how the number follows from the shape. counters: counter path -> factor, where counters say the
    same: (their sum, each times its factor) / per must be `value`. counted: that number, None until
    gpusim.facts.count fills it in and where the engine does not count it. base: label of the fact that the
    report divides this one by.
    """

    label: str
    value: int
    unit: str
    formula: str = ""
    counters: dict[str, int] = field(default_factory=dict)
    per: int = 1
    counted: int | None = None
    base: str = ""


@dataclass(frozen=True)
class LineAccess:
    """Hold what the accesses of one source line to one array did, all of one kind and one lane pattern.

    kind: the field of Counters they count in ("global_load"). taken: their sectors, or wavefronts for shared
    memory, and ideal_wavefronts for shared memory alone. step_bytes: from a lane to the next, in runs of
    run_lanes lanes with jump_bytes from run to run; None where the addresses depend on data, or on numbers
    that no launch tells. row_bytes: of the last dimension of a shared or private array that has more than
    one, else 0.
    """

    file: str
    line: int
    kind: str
    array: str
    element_bytes: int
    requests: int
    lanes: int
    taken: int
    ideal_wavefronts: int | None = None
    step_bytes: int | None = None
    run_lanes: int = 32
    jump_bytes: int = 0
    row_bytes: int = 0

    @property
    def ideal(self) -> int:
        """Return the wavefronts free of conflicts, or the sectors that the mean request's bytes fill."""
        if self.ideal_wavefronts is not None:
            return self.ideal_wavefronts
        return self.requests * -(-self.lanes * self.element_bytes // (self.requests * SECTOR_BYTES))

    @property
    def wasted(self) -> int:
        """Return the sectors or wavefronts beyond the ideal ones; negative where lanes share elements."""
        return self.taken - self.ideal

    def with_counts_of(self, other: LineAccess) -> LineAccess:
        """Return this access with the counts of another of its kind added."""
        both = None
        if self.ideal_wavefronts is not None:
            both = self.ideal_wavefronts + (other.ideal_wavefronts or 0)
        return replace(
            self, requests=self.requests + other.requests, lanes=self.lanes + other.lanes,
            taken=self.taken + other.taken, ideal_wavefronts=both)


@dataclass
class Launch:
    """Hold one launch: shape, resources, counters, and what the closed form and the reference say.

    grid, block: (x, y, z). shared_buffers: (name, bytes) of each static shared array; dynamic shared memory
    is apart. closed_form: counter path (as in Counters: "global_load.bytes", "arithmetic.ffma",
    "hierarchy.l2_write") -> expected integer. notes: sentences for the reader (wrapped indices, the engine
    that ran and why). options: what the user asked for. facts: what the algorithm says of itself; the last
    launch of a problem has those of the whole problem. lines: counters apart by (file, line), which add up to
    `counters` but for the hierarchy; empty where the engine does not tell lines apart. accesses: the memory
    accesses of each line apart by array, with the distance between lanes. uncounted: parts of Counters that
    this launch left at 0 uncounted, beside those that its engine never counts. occupancy: of registers that
    are not known, what it is for the fewest; what follows from them is not shown. as_compiled: what a
    compiler makes of the shared accesses in `counters`; None where the engine does not tell. work: what the
    time estimate needs; None where the engine does not tell.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arch: Arch
    registers: Registers
    static_shared_bytes: int
    dynamic_shared_bytes: int
    shared_buffers: tuple[tuple[str, int], ...]
    occupancy: Occupancy
    counters: Counters
    l2: str = "cold"
    engine: str = "compiled"
    counts_only: bool = False
    quantum_records: int = 0
    closed_form: dict[str, int] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    lines: dict[tuple[str, int], Counters] = field(default_factory=dict)
    accesses: Sequence[LineAccess] = ()
    uncounted: tuple[str, ...] = ()
    as_compiled: AsCompiled | None = None
    work: Work | None = None

    @property
    def not_counted(self) -> tuple[str, ...]:
        """Return the parts of Counters that were not counted: n/a everywhere, never 0."""
        return (*NOT_COUNTED.get(self.engine, ()), *self.uncounted)

    def __getitem__(self, metric: str) -> int | float | None:
        """Return a metric by its ncu name; None is n/a. Raises UnknownName."""
        from gpusim.metrics import value

        return value(self, metric)

    @property
    def plot(self) -> Any:
        """Return the pictures of this launch: `launch.plot.roofline()` is a matplotlib figure."""
        from gpusim.pictures import pictures

        return pictures((self,))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the summary, what to try, and the sections folded away."""
        from gpusim.report_html import notebook

        return notebook((self,))


def is_counted(launch: Launch, path: str) -> bool:
    """Return whether a launch counted a part of Counters ("hierarchy") or a path into it."""
    return path.partition(".")[0] not in launch.not_counted


def counter(counters: Counters, path: str) -> int:
    """Return the counter that a path such as "global_load.bytes" names."""
    node: Any = counters
    for part in path.split("."):
        node = getattr(node, part)
    return int(node)


def counted_paths(counters: Counters) -> dict[str, int]:
    """Return every counter by its path, "global_load.bytes" or "barriers", in the order of Counters."""
    paths: dict[str, int] = {}
    for f in fields(counters):
        part: Any = getattr(counters, f.name)
        if isinstance(part, int):
            paths[f.name] = part
        else:
            paths |= {f"{f.name}.{g.name}": int(getattr(part, g.name)) for g in fields(part)}
    return paths
