"""Reports as HTML: what a notebook shows of a launch, and the parts that a page is made of.

The tables, sentences and advice are those of the text report; jinja2 escapes every name. What it leaves out:
pictures and the page around them (visualize/html_report.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpusim import by_line
from gpusim.advice import advise
from gpusim.launch import Launch
from gpusim.report import header, option_words, pipeline, pipeline_note
from gpusim.sections import SOURCE, Section, sections
from gpusim.summary import summary, verdicts
from gpusim.table import Cell, number

MARKS = {"modelled": "modelled", "estimated": "modelled", "DIFFERENT": "wrong", "FAILED": "wrong"}
"""A cell's text -> the class that its row or its cell gets."""
WHOLE_LINES = 100_000
"""Columns for a line's numbers and source text: more than any line has, so that none is cut."""
MOST_IN_NOTEBOOK = 20
"""Launches that a notebook shows of one profile."""


@cache
def environment(*folders: Path) -> Environment:
    """Return the templates of this package, and of more folders before them; every value is escaped."""
    here = Path(__file__).with_name("templates")
    made = Environment(loader=FileSystemLoader([*folders, here]), autoescape=True, undefined=StrictUndefined,
                       trim_blocks=True, lstrip_blocks=True)  # fmt: skip
    made.filters.update(number=number, mark=mark)
    made.globals.update(header=header, option_words=option_words, summary=summary, verdicts=verdicts,
                        advise=advise, sections=whole_sections)  # fmt: skip
    return made


def mark(cell: Cell) -> str:
    """Return the class of a cell by its text: "modelled", "wrong" or none."""
    return MARKS.get(cell, "") if isinstance(cell, str) else ""


def whole_sections(launch: Launch) -> list[Section]:
    """Return all sections of a launch, source lines among them in full length."""
    found = sections(launch, by_line=True)
    if launch.lines:
        whole = by_line.table(launch, WHOLE_LINES)
        found = [replace(s, tables=(whole,)) if s.identifier == SOURCE else s for s in found]
    return found


def notebook(launches: Sequence[Launch]) -> str:
    """Return launches as HTML for a notebook: the summary, advice, and all sections folded away."""
    several = len(launches) > 1
    return environment().get_template("notebook.html").render(
        launches=launches[:MOST_IN_NOTEBOOK], more=max(0, len(launches) - MOST_IN_NOTEBOOK),
        total=pipeline(launches) if several else None, note=pipeline_note(launches) if several else "")
