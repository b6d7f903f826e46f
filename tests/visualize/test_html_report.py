"""`simulate --html`: one page that a browser shows without a script, without the network, at any width."""

from __future__ import annotations

import re

import pytest

import cli
from gpusim.counters import Arithmetic
from gpusim.launch import Registers
from tests.browser import pages
from tests.visualize.conftest import make
from visualize import html_report
from visualize.run import Run

KERNEL = """
from numba import cuda

@cuda.jit
def scale(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i * 7 % x.size] + 1  # </code><script>document.title = "owned"</script>
"""
FOLDER = "<script>alert(1)<"
FILE = "<img src=x onerror=alert(1)>.py"


@pytest.fixture
def hostile(tmp_path):
    """Return the target of a kernel whose folder, file and source are markup."""
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / FILE).write_text(KERNEL)
    return f"{tmp_path / FOLDER / FILE}:scale"


@pytest.fixture(scope="module")
def two():
    """Return the page of two launches."""
    return html_report.page([make(), make(kernel="second")], "two")


def simulate(*words):
    return cli.run(["simulate", *map(str, words)])


def ids(page):
    return re.findall(r'\bid="([^"]+)"', page)


@pytest.mark.slow
def test_a_page_has_the_pictures_of_plot_in_their_sections(two):
    titles = re.findall(r'<svg role="img" aria-label="(\w+): ', two)
    assert titles == ["two"] * 2 + ["k"] * 3 + ["second"] * 3
    assert "L1 to threads, loads 4.10 kB; " in two  # 128 sectors
    assert "L2 to L1, loads 3.07 kB (modelled)" in two  # 96 sectors
    assert two.startswith("<!DOCTYPE html>") and "<script" not in two


@pytest.mark.slow
def test_no_two_elements_share_an_id_and_every_reference_has_one(two):
    assert len(ids(two)) == len(set(ids(two))) > 100
    referred = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', two)
    assert {name for pair in referred for name in pair if name} <= set(ids(two))


@pytest.mark.slow
def test_colours_of_ink_and_paper_follow_the_page_and_those_of_levels_stay(two):
    pictures = "".join(re.findall(r"<svg.*?</svg>", two, re.DOTALL))
    assert "var(--ink)" in pictures and "var(--paper)" in pictures and "#56b4e9" in pictures
    assert not re.findall("#(?:222222|000000|ffffff|eeeeee)", pictures)


def test_the_same_launches_give_the_same_bytes(make_launch):
    pictures = [html_report.chart("MemoryWorkloadAnalysis", Run("k", (make_launch(),)), "a") for _ in "12"]
    assert pictures[0] == pictures[1]


def test_a_picture_without_numbers_is_one_sentence(make_launch):
    idle = make_launch(registers=Registers(0, "unknown"))
    idle.counters.arithmetic = Arithmetic()
    page = html_report.page([idle], "idle")
    assert "No picture: roofline: k does no floating-point operation" in page
    assert "No picture: occupancy: the registers of k are not known" in page
    assert page.count("<svg") == 1


@pytest.mark.slow
def test_launches_beyond_the_first_twelve_have_tables_alone(make_launch, monkeypatch):
    monkeypatch.setattr(html_report, "MOST_DRAWN", 1)
    page = html_report.page([make_launch(), make_launch()], "two")
    assert page.count("<svg") == 2 + 3 and "the first 1; 1 more have tables alone" in page


def test_the_words_of_a_picture_are_its_numbers(make_launch):
    run = Run("k", (make_launch(),))
    assert html_report.roofline_words(run) == (
        "L1 0.33 FLOP/byte, L2 0.396 FLOP/byte (modelled), DRAM 1.22 FLOP/byte (modelled); "
        "attainable 4.08 TFLOP/s")  # 2,030 FLOPs over 6,144, 5,120 and 1,664 bytes; 0.396 * 10.29 TB/s
    assert html_report.occupancy_words(run).startswith("k: 32 blocks an SM, 100.0 % of its warps")


@pytest.mark.slow
def test_the_page_is_written_beside_the_text(tmp_path, capsys):
    out = tmp_path / "a.html"
    assert simulate("vec_add", "--n", 1000, "--html", out) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("vec_add (4, 1, 1)") and printed.err == f"wrote {out}\n"
    page = out.read_text()
    for text in ("<code>n=1000</code>", "counters equal the closed form.", ">Source Counters<",
                 "<code>total[i] = x[i] + y[i]</code>"):  # fmt: skip
        assert text in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--html", "no/such/a.html"], "there is no directory"),
        (["--html", "a.html", "--out", "./a.html"], "--out and --html both name a.html; give each a file"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_message_before_any_work(tmp_path, monkeypatch, capsys, words,
                                                                      message):
    monkeypatch.chdir(tmp_path)
    assert simulate("vec_add", "--n", 1000, *words) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_profile_writes_a_page_of_all_launches(tmp_path, capsys):
    out = tmp_path / "a.html"
    assert cli.run(["profile", "--html", str(out), "examples/saxpy_script.py", "1000"]) == 0
    assert "<h1>saxpy_script.py</h1>" in out.read_text() and "1 scale_every" in out.read_text()


LOOK = """(() => {
  const luminance = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = luminance(getComputedStyle(document.body).backgroundColor);
  const contrast = c => { const l = luminance(c);
    return (Math.max(l, ground) + 0.05) / (Math.min(l, ground) + 0.05); };
  const texts = [...document.querySelectorAll("svg text, td, th, p, li, h1, h2, h3")];
  return {dark: ground < 0.1, least: Math.min(...texts.map(e => contrast(
    e.closest("svg") ? getComputedStyle(e).fill : getComputedStyle(e).color)))};
})()"""


@pytest.mark.slow
def test_a_browser_shows_it_at_both_widths_in_both_schemes(tmp_path, hostile):
    out = tmp_path / "a.html"
    arguments = ["--grid", 4, "--block", 64, "--arg", "x=float32[256]", "--arg", "y=float32[256]"]
    assert simulate(hostile, *arguments, "--html", out) == 0
    with pages() as page:
        for scheme in ("light", "dark"):
            for width in (360, 1280):
                page.open(out, width=width, scheme=scheme)
                assert (page.errors, page.requests[1:], page.scrolls_sideways) == ([], [], False)
                look = page.run(LOOK)
                assert look["dark"] is (scheme == "dark") and look["least"] >= 4.5
        assert page.run("document.title") == "scale: simulated GPU counters"
        assert page.run("document.querySelectorAll('script, img, iframe').length") == 0
        assert "</code><script>" in page.run("document.querySelector('td code').parentNode.parentNode"
                                             ".closest('table').textContent")
        assert page.run("[...document.querySelectorAll('th')].filter(t => !t.scope).length") == 0
        assert page.run("document.querySelectorAll('table').length"
                        " - document.querySelectorAll('table > caption').length") == 0


@pytest.mark.slow
def test_a_keyboard_reaches_the_report_and_its_wide_tables(tmp_path):
    out = tmp_path / "a.html"
    assert simulate("vec_add", "--n", 1000, "--html", out) == 0
    with pages() as page:
        page.open(out, width=360)
        page.press("Tab")
        assert page.run("document.activeElement.className") == "skip"
        assert page.run("getComputedStyle(document.activeElement).position") == "static"
        page.press("Enter")
        page.press("Tab")
        assert page.run("document.activeElement.getAttribute('role')") == "region"
        assert page.run("document.activeElement.getAttribute('aria-label')") == "Summary of vec_add"
