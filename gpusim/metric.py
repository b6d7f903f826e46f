"""What one metric is: name, unit, place in the report, formula, and the sentences that say what it counts.

The tables are in launch_metrics.py, memory_metrics.py, l2_metrics.py, compute_metrics.py and
time_metrics.py; look-ups are in metrics.py. What it leaves out: counting. A formula reads a Launch and never
changes it. `formula` None means that this simulator cannot answer: n/a, never 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gpusim.counters import AccessCounts, Issued, SharedCounts
from gpusim.launch import Launch

Value = int | float | None
Formula = Callable[[Launch], Value]

EXACT, MODELLED, UNAVAILABLE = "exact", "modelled", "n/a"

SECTIONS: dict[str, str] = {
    "SpeedOfLight": "GPU Speed Of Light Throughput",
    "SpeedOfLight_RooflineChart": "GPU Speed Of Light Roofline Chart",
    "ComputeWorkloadAnalysis": "Compute Workload Analysis",
    "MemoryWorkloadAnalysis": "Memory Workload Analysis",
    "MemoryWorkloadAnalysis_Tables": "Memory Workload Analysis Tables",
    "InstructionStats": "Instruction Statistics",
    "LaunchStats": "Launch Statistics",
    "Occupancy": "Occupancy",
}
"""ncu's identifiers and titles, in the order in which ncu prints them."""


@dataclass(frozen=True)
class Metric:
    """Describe one metric.

    name, unit: ncu's (base units); names that begin with gpusim__ are ours. section: a key of SECTIONS.
    label: what a report calls it. kind: "exact" (arithmetic decides), "modelled" (a policy of the hardware or
    of a compiler decides), "n/a". formula: Launch -> number, or None where this launch has no such number;
    None where the simulator never has. counts, excludes: sentences; words: the formula for people; advice:
    what a reader can do about it. aliases: other names of the same number. from_registers: follows the
    register count, so it is only as sure as that.
    """

    name: str
    unit: str
    section: str
    label: str
    kind: str
    formula: Formula | None
    counts: str
    words: str = ""
    excludes: str = ""
    advice: str = ""
    aliases: tuple[str, ...] = ()
    from_registers: bool = False


class NotCounted(Exception):
    """A formula reads a counter that the engine of the launch did not count."""


class _Absent:
    """Stand for a part of the counters that was not counted: reading any field of it raises NotCounted."""

    def __getattr__(self, name: str) -> int:
        raise NotCounted(name)


def evaluate(metric: Metric, launch: Launch) -> Value:
    """Return the value of a metric in its base unit.

    None (n/a) where it has no formula or no value for this launch, where its formula reads a counter that
    was not counted (Launch.not_counted), which holds 0, and where it follows from registers that are not
    known.
    """
    if metric.formula is None or _lacks_registers(metric, launch):
        return None
    try:
        return metric.formula(_as_counted(launch))
    except NotCounted:
        return None


def answers(metric: Metric, launch: Launch) -> bool:
    """Return whether a metric has a formula, and the launch counted or knows all that it reads."""
    if metric.formula is None or _lacks_registers(metric, launch):
        return False
    try:
        metric.formula(_as_counted(launch))
    except NotCounted:
        return False
    return True


def _lacks_registers(metric: Metric, launch: Launch) -> bool:
    return metric.from_registers and not launch.registers.is_known


def _as_counted(launch: Launch) -> Launch:
    """Return the launch with what was not counted out of reach."""
    missing = launch.not_counted
    if not missing:
        return launch
    absent: dict[str, Any] = {name: _Absent() for name in missing}
    return replace(launch, counters=replace(launch.counters, **absent))


def ratio(part: float, whole: float, scale: float = 1.0) -> float | None:
    """Return scale * part / whole; None (n/a) where there is nothing to divide by."""
    return scale * part / whole if whole else None


def space(name: str, field: str) -> Formula:
    """Return the formula that reads one field of the counts of one kind of access, such as ("global_load",
    "sectors")."""

    def read(launch: Launch) -> Value:
        counts: AccessCounts = getattr(launch.counters, name)
        return int(getattr(counts, field))

    return read


def issued(name: str, field: str) -> Formula:
    """Return the formula that reads one field of what shared accesses are as compiled, such as
    ("shared_load", "instructions"); where the engine does not tell, there is no such number."""

    def read(launch: Launch) -> Value:
        return int(getattr(as_compiled(launch, name), field))

    return read


def as_compiled(launch: Launch, name: str) -> Issued:
    """Return "shared_load" or "shared_store" as compiled; raise NotCounted where the engine does not tell."""
    if launch.as_compiled is None:
        raise NotCounted(name)
    found: Issued = getattr(launch.as_compiled, name)
    return found


def bank_conflicts(counts: SharedCounts | Issued) -> int:
    """Return the wavefronts of a launch beyond the ideal ones."""
    return counts.wavefronts - counts.ideal_wavefronts


def arithmetic(field: str) -> Formula:
    """Return the formula that reads one field of the Arithmetic counters."""
    return lambda launch: int(getattr(launch.counters.arithmetic, field))


def hierarchy(*names: str, scale: int = 1) -> Formula:
    """Return the formula scale * (sum of fields of the Hierarchy counters)."""
    return lambda launch: scale * sum(int(getattr(launch.counters.hierarchy, name)) for name in names)
