"""One launch or several in the format that was asked for: text, JSON, or ncu's raw CSV.

Whole, or a list of metrics.
What it leaves out: the formats themselves (report.py, launch_json.py, ncu_csv.py) and writing to a file.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpusim import metrics
from gpusim.errors import BadOption
from gpusim.launch import Launch
from gpusim.metric import Metric
from gpusim.table import Table, render


def metric_names(listed: str) -> tuple[Metric, ...]:
    """Return the metrics of a list with commas.

    Raise UnknownName for one that is none, BadOption for an empty list.
    """
    chosen = metrics.select(listed.split(","))
    if not chosen:
        raise BadOption("--metrics names no metric; `explain` lists them all")
    return chosen


def check_request(
    form: str, listed: str | None, section: str | None, by_line: bool = False, engine: str = "auto"
) -> tuple[Metric, ...]:
    """Return the metrics asked for, after a look at the request as a whole, before any kernel runs.

    Raises UnknownName for a metric or a section, BadOption for two requests that exclude each other.
    """
    if by_line and engine not in ("auto", "compiled"):
        raise BadOption(f"--by-line needs the compiled engine, the only one that tells source lines apart; "
                        f"leave out --engine {engine}")
    if section is not None:
        from gpusim.sections import find_section

        find_section(section)
        if form != "text":
            raise BadOption(f"--section chooses a part of the text; with --format {form} use --metrics")
        if listed is not None:
            raise BadOption("--section and --metrics exclude each other: a section of the text, or single "
                            "metrics")
    if listed is not None and form == "json":
        raise BadOption("--metrics goes with --format text or ncu-csv; JSON holds a whole launch")
    return metric_names(listed) if listed is not None else ()


def formatted(
    launches: Sequence[Launch],
    form: str,
    chosen: Sequence[Metric] = (),
    section: str | None = None,
    by_line: bool = False,
) -> str:
    """Return launches as text, json or ncu-csv; `chosen` metrics alone if any.

    by_line adds the counters of each source line to the text; JSON has them always, ncu-csv never.
    """
    if form == "json":
        from gpusim import launch_json

        return launch_json.dump(launches)
    if form == "ncu-csv":
        from gpusim import ncu_csv

        return ncu_csv.raw_csv(launches, chosen or metrics.METRICS)
    from gpusim import report

    if chosen:
        return "\n".join(_list(launch, chosen, by_line) for launch in launches)
    return report.text(launches, section, by_line)


def _list(launch: Launch, chosen: Sequence[Metric], by_line: bool) -> str:
    """Return the header of a launch and a row for each metric: name, unit, value, exact or modelled.

    by_line: the counters of each source line below.
    """
    from gpusim.report import header, section_lines
    from gpusim.sections import source_counters

    rows = tuple((m.name, m.unit, metrics.value(launch, m.name), metrics.kind(launch, m)) for m in chosen)
    table = Table(("Metric Name", "Metric Unit", "Metric Value", "Source"), rows, "llrl")
    below = ["", *section_lines(source_counters(launch))] if by_line else []
    return "\n".join([header(launch), *render(table), *below]) + "\n"
