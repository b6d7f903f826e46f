"""The table of all metrics, and how to look one up: by ncu's name, by an alias, or without the rollup where
that is unambiguous.

What it leaves out: the definitions (launch_metrics.py, memory_metrics.py, l2_metrics.py, compute_metrics.py,
tensor_metrics.py, move_metrics.py, time_metrics.py) and text for people (explain.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from gpusim import (
    compute_metrics,
    l2_metrics,
    launch_metrics,
    memory_metrics,
    move_metrics,
    tensor_metrics,
    time_metrics,
)
from gpusim.errors import UnknownName
from gpusim.launch import Launch
from gpusim.metric import EXACT, MODELLED, SECTIONS, UNAVAILABLE, Metric, Value, answers, evaluate

__all__ = [
    "EXACT",
    "METRICS",
    "MODELLED",
    "SECTIONS",
    "UNAVAILABLE",
    "Metric",
    "Value",
    "find",
    "in_section",
    "kind",
    "named",
    "row_names",
    "select",
    "value",
    "values",
]


def _in_section_order() -> tuple[Metric, ...]:
    made = (*launch_metrics.METRICS, *memory_metrics.METRICS, *l2_metrics.METRICS, *compute_metrics.METRICS,
            *tensor_metrics.METRICS, *move_metrics.METRICS, *time_metrics.METRICS)
    order = list(SECTIONS)
    return tuple(sorted(made, key=lambda m: order.index(m.section)))


METRICS: tuple[Metric, ...] = _in_section_order()
"""Every metric, in the order of SECTIONS."""


def _names() -> dict[str, Metric]:
    table: dict[str, Metric] = {}
    for metric in METRICS:
        for name in (metric.name, *metric.aliases):
            if name in table:
                raise ValueError(f"two metrics are called {name}")
            table[name] = metric
    return table


_BY_NAME = _names()


def find(name: str) -> Metric:
    """Return the metric of ncu's name, of an alias, or of the label that a report shows, in any case.

    Raise UnknownName with the nearest, or with the candidates where a rollup is missing or a label is that of
    several.
    """
    if not isinstance(name, str):
        raise UnknownName(f"a metric is asked for by its name, such as launch__grid_size, not by {name!r}; "
                          "`explain` lists them all")
    if found := named(name):
        return found
    if short := _with_rollup(name):
        raise UnknownName(f"metric {name!r} needs a rollup: {', '.join(short)}")
    labelled = [m for m in METRICS if m.label.lower() == name.strip().lower()]
    if len(labelled) == 1:
        return labelled[0]
    if labelled:
        raise UnknownName(f"{name!r} is the label of {' and of '.join(m.name for m in labelled)}; name one")
    raise UnknownName(f"unknown metric {name!r}; {_nearest(name)}`explain` lists them all")


def named(name: str) -> Metric | None:
    """Return the metric of ncu's name, with its rollup or without where only one is known, or of an alias;
    None where there is none."""
    short = [] if name in _BY_NAME else _with_rollup(name)
    return _BY_NAME.get(short[0] if len(short) == 1 else name)


def _with_rollup(name: str) -> list[str]:
    return [full for full in _BY_NAME if full.startswith(name + ".")]


def _nearest(name: str) -> str:
    """Return "the nearest are ...; " with the metrics whose name or label is like this one, "" for none."""
    spelled = {full.lower(): full for full in _BY_NAME}
    spelled |= {m.label.lower(): m.name for m in METRICS}
    near = difflib.get_close_matches(name.lower(), spelled, n=3, cutoff=0.5)
    return f"the nearest are {', '.join(dict.fromkeys(spelled[n] for n in near))}; " if near else ""


def row_names(shown: Iterable[Metric]) -> dict[Metric, str]:
    """Return what a table calls each metric: its label, or its name where that label stands above it."""
    names: dict[Metric, str] = {}
    for metric in shown:
        names[metric] = metric.name if metric.label in names.values() else metric.label
    return names


def select(names: Iterable[str]) -> tuple[Metric, ...]:
    """Return the metrics of some names, in their order, each once; raise UnknownName."""
    return tuple(dict.fromkeys(find(name.strip()) for name in names if name.strip()))


def in_section(name: str) -> tuple[Metric, ...]:
    """Return the metrics of a section, named by ncu's identifier or title in any case; raise UnknownName
    with the known ones."""
    wanted = name.strip().lower()
    for identifier, title in SECTIONS.items():
        if wanted in (identifier.lower(), title.lower()):
            return tuple(m for m in METRICS if m.section == identifier)
    near = difflib.get_close_matches(name, SECTIONS, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UnknownName(f"unknown section {name!r}.{hint} The sections are {', '.join(SECTIONS)}.")


def value(launch: Launch, name: str) -> Value:
    """Return the value of a metric for a launch, in its base unit; None is n/a. Raises UnknownName."""
    return evaluate(find(name), launch)


def values(launch: Launch, metrics: Iterable[Metric] = METRICS) -> dict[str, Value]:
    """Return name -> value of many metrics, in their order."""
    return {m.name: evaluate(m, launch) for m in metrics}


def kind(launch: Launch, metric: Metric) -> str:
    """Return how sure a value is: "exact", "modelled" or "n/a" (what the engine of the launch does not count
    too). What follows from a register count that is estimated, or recorded for another GPU, is modelled."""
    if not answers(metric, launch):
        return UNAVAILABLE
    if metric.from_registers and not launch.registers.is_sure:
        return MODELLED
    return metric.kind


def explain(name: str) -> str:
    """Return the explanation of one metric as text (see explain.py); raise UnknownName with the nearest
    names."""
    from gpusim import explain as texts

    return texts.explain(name)
