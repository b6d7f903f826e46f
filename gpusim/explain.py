"""Long explanations: what `explain METRIC` prints.

The sentences stand beside each metric's formula (launch_metrics.py, memory_metrics.py, l2_metrics.py,
compute_metrics.py), so that they change with it; this module puts them in order. What it leaves out: a
launch's own numbers, which are in its report.
"""

from __future__ import annotations

from gpusim.metric import EXACT, MODELLED, SECTIONS, Metric
from gpusim.metrics import METRICS, find

KIND_WORDS = {
    EXACT: "exact: arithmetic on the launch, the addresses and the masks decides it",
    MODELLED: "modelled: a policy of the hardware or of a compiler decides it, and the simulator imitates "
              "that",
}


def explain(name: str) -> str:
    """Return the explanation of one metric as text, a line a fact; raise UnknownName with the nearest
    names."""
    return "\n".join(_lines(find(name)))


def _lines(metric: Metric) -> list[str]:
    kind = KIND_WORDS.get(metric.kind, "n/a: this simulator cannot answer, and prints n/a, never 0")
    if metric.from_registers:
        kind += "; modelled as well where the register count is an estimate"
    rows = [
        ("Label", metric.label),
        ("Section", SECTIONS[metric.section]),
        ("Unit", metric.unit or "none"),
        ("Value", kind),
        ("What it counts", metric.counts),
        ("Formula", metric.words),
        ("What it leaves out", metric.excludes),
        ("What to do", metric.advice),
        ("Also called", ", ".join(metric.aliases)),
        (
            "Origin",
            "of this simulator; ncu has no such metric"
            if metric.name.startswith("gpusim__")
            else "ncu's name",
        ),
    ]
    return [metric.name, *(f"  {label}: {text}" for label, text in rows if text)]


def overview() -> str:
    """Return all metrics by section, one a line: name, unit, and exact, modelled or n/a."""
    lines = []
    for identifier, title in SECTIONS.items():
        lines.append(f"{title} ({identifier})")
        lines += [f"  {m.name}  [{m.unit or '-'}]  {m.kind}" for m in METRICS if m.section == identifier]
    return "\n".join(lines)
