"""What an algorithm says of itself (tiles, elements, FLOPs), beside the counters that say the same.

Makes the table and the sentences of the report's section Algorithm. A fact that names counters is `equal` to
them or `DIFFERENT`. What it leaves out: where the numbers come from, which each kernel knows (kernels_sim/).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpusim.launch import Fact, Launch, counter, is_counted
from gpusim.metric import ratio
from gpusim.table import Cell, Table, number

HEADERS = ("Of The Algorithm", "Unit", "Value", "Counted", "Verdict", "Formula")


def count(facts: Iterable[Fact], launches: Sequence[Launch]) -> tuple[Fact, ...]:
    """Return facts with what the launches counted, summed over them; facts without counters as they are."""
    return tuple(replace(fact, counted=_counted(fact, launches)) for fact in facts)


def _counted(fact: Fact, launches: Sequence[Launch]) -> int | None:
    missing = any(not is_counted(launch, path) for launch in launches for path in fact.counters)
    if missing or not fact.counters:
        return None
    paths = fact.counters.items()
    total = sum(factor * counter(launch.counters, path) for launch in launches for path, factor in paths)
    return -(-total // fact.per)  # rounded up, so that a remainder cannot look equal to less


def differs(fact: Fact) -> bool:
    """Return whether the counters say something else than a fact."""
    return fact.counted is not None and fact.counted != fact.value


def table(facts: Sequence[Fact]) -> Table:
    """Return a row a fact: its value, what was counted, whether the two are equal, and its formula."""
    return Table(HEADERS, tuple(map(_row, facts)), "llrrll")


def _row(fact: Fact) -> tuple[Cell, ...]:
    counted: Cell = fact.counted if fact.counters else ""
    return fact.label, fact.unit, fact.value, counted, verdict(fact), fact.formula


def verdict(fact: Fact) -> str:
    """Return the word for a fact beside its counters; none where there is no counter for it."""
    if not fact.counters:
        return ""
    if fact.counted is None:
        return "not counted"
    return "DIFFERENT" if differs(fact) else "equal"


def ratios(facts: Sequence[Fact]) -> tuple[str, ...]:
    """Return a sentence for each fact that has a base: how many times the base, or what share of it."""
    values = {fact.label: fact.value for fact in facts}
    return tuple(_ratio(fact, values[fact.base]) for fact in facts if fact.base)


def _ratio(fact: Fact, base: int) -> str:
    said = f"{fact.label} / {fact.base}: {_share(fact.value, base)}"
    return said + (f", counted {_share(fact.counted, base)}." if fact.counted is not None else ".")


def _share(value: int, base: int) -> str:
    """Return a ratio in percent below 1, else as a factor; n/a over nothing."""
    found = ratio(value, base)
    return number(found) if found is None or found >= 1 else f"{number(100 * found)} %"
