"""Reports as HTML: the numbers of the text report, every name escaped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from gpusim import report
from gpusim.launch import Launch, LineAccess
from gpusim.report_html import MOST_IN_NOTEBOOK, notebook
from gpusim.sections import sections
from gpusim.table import number

Make = Callable[..., Launch]
HOSTILE = '<script>alert(1)</script>"&\''


class Tables(HTMLParser):
    """Collect the cells of each row of a page, its text, and every tag and attribute in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self._in_cell = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag):
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        self.text += data
        if self._in_cell:
            self.rows[-1][-1] += data


def test_every_row_of_the_text_reports_tables_stands_in_the_notebook(sample: Launch) -> None:
    found = Tables(notebook([sample])).rows
    for section in sections(sample):
        for table in section.tables:
            for row in (table.headers, *table.rows):
                assert list(map(number, row)) in found


def test_advice_and_sentences_are_those_of_the_text_report(make_launch: Make) -> None:
    launch = make_launch()
    launch.counters.global_load.sectors = 1024
    text = Tables(notebook([launch])).text
    for section in sections(launch):
        for sentence in (*section.prose, *(a.text for a in section.advice)):
            assert sentence in text
    assert "Uncoalesced Global Loads" in text


def test_names_are_text_and_never_markup(make_launch: Make) -> None:
    line = "<img src=x onerror=alert(1)>.py"
    access = LineAccess(line, 1, "shared_load", HOSTILE, 4, 1, 32, 32, 1)
    launch = make_launch(kernel=HOSTILE, options={"arg": HOSTILE}, notes=(HOSTILE,), accesses=[access],
                         shared_buffers=((HOSTILE, 4096),), lines={(line, 1): make_launch().counters},
                         closed_form={"arithmetic.ffma": 0})
    page = Tables(notebook([launch, launch]))
    assert not {"script", "img"} & set(page.tags)
    assert not [name for name in page.attributes if name.startswith("on")]
    assert page.text.count(HOSTILE) > 8 and line in page.text


def test_several_launches_have_a_table_with_their_total(make_launch: Make) -> None:
    two = [make_launch(), make_launch(kernel="second")]
    rows = Tables(notebook(two)).rows
    for row in report.pipeline(two).rows:
        assert list(map(number, row)) in rows
    assert ["ID", "Kernel"] not in [row[:2] for row in Tables(notebook(two[:1])).rows]


def test_many_launches_are_not_all_shown_and_none_is_said(make_launch: Make) -> None:
    page = Tables(notebook([make_launch()] * (MOST_IN_NOTEBOOK + 2)))
    assert page.tags.count("details") == MOST_IN_NOTEBOOK and "2 more launches" in page.text
    assert "No kernels were profiled." in Tables(notebook([])).text


@pytest.mark.parametrize(("closed", "class_of"), [(1_000, ""), (1_001, "wrong")])
def test_only_what_is_wrong_is_marked_as_wrong(make_launch: Make, closed: int, class_of: str) -> None:
    launch = replace(make_launch(checks=()), closed_form={"arithmetic.ffma": closed})
    assert ('class="wrong"' in notebook([launch])) is bool(class_of)
