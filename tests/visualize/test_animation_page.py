"""The page of an animation: no network, its numbers those of the counters, its controls at work."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from tests.browser import pages
from tests.visualize.film_support import FLASH, STANDARD, film, watched
from visualize.animation_page import data, page, runs
from visualize.film import films


def both(frames=12):
    return films([watched(*STANDARD), watched(*FLASH)], frames)


def held(text):
    """Return the JSON of a page."""
    return json.loads(re.search(r'application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_flags_become_runs():
    assert runs(np.array([1, 1, 0, 0, 1, 0, 1, 1, 1], bool)) == [0, 2, 4, 1, 6, 3]
    assert runs(np.zeros(3, bool)) == []


def test_the_page_holds_the_frames_and_its_totals_are_the_counters():
    found = held(page(both(), 10))
    assert found == json.loads(json.dumps(data(both(), 10))) and found["frames"] == 12
    for shown, of in zip(found["films"], both(), strict=True):
        totals = {lv["key"]: lv["bytes"][-1] for lv in shown["levels"]}
        hierarchy = [x.counters.hierarchy for x in of.run.launches]
        assert totals["L1-load"] == 32 * sum(x.counters.global_load.sectors for x in of.run.launches)
        assert totals["DRAM-read"] == sum(h.dram_read_bytes for h in hierarchy)


def test_a_page_asks_for_nothing_and_has_no_address():
    text = page(both(), 10)
    assert not re.search(r"https?:|//\w|src=|href=|@import|url\(", text.replace("// ---", ""))
    assert "default-src 'none'" in text


EVIL = '</script><script>document.title = "bad"</script><b>&amp;__DATA__'


def evil_films():
    run, log, _ = watched(*FLASH)
    names = {p: f"{p}{EVIL}" for p in "QKVOL"}
    return films([(type(run)(EVIL, run.launches), log, [names])], 12)


def test_names_are_escaped():
    text = page(evil_films(), 10)
    assert "<b>" not in text and text.count("</script>") == 2
    (of,) = held(text)["films"]
    assert of["title"] == EVIL and of["tensors"][0]["name"] == "Q" + EVIL


@pytest.fixture(scope="module")
def browser():
    with pages() as opened:
        yield opened


@pytest.fixture
def opened(browser, tmp_path):
    """Return a function that opens the page of films and returns the browser's page."""
    def opening(shown, **how):
        (tmp_path / "a.html").write_text(page(shown, 20), encoding="utf-8")
        browser.open(tmp_path / "a.html", **{"still": True} | how)
        return browser
    return opening


NOW = "document.querySelector('#now').textContent"
CELLS = """[...document.querySelectorAll('section')].map(
    s => [...s.querySelectorAll('td')].map(t => t.textContent))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 880, 1280])
def test_a_page_has_no_error_no_request_and_no_sideways_scroll(opened, width, scheme):
    for shown in (both(), (film(*FLASH),), evil_films()):
        found = opened(shown, width=width, scheme=scheme)
        assert (found.errors, len(found.requests), found.scrolls_sideways) == ([], 1, False)
        assert found.run("document.title") != "bad"


def test_keys_and_buttons_step_and_the_ends_are_ends(opened):
    found = opened(both())
    steps = {"ArrowRight": 2, "ArrowLeft": 1, "End": 12, "Home": 1}
    for key, frame in [*steps.items(), ("ArrowLeft", 1), ("End", 12), ("ArrowRight", 12), ("Home", 1)]:
        found.press(key)
        assert found.run(NOW) == f"{frame} / 12"
    found.click("#on")
    found.click("#on")
    found.click("#back")
    assert found.run(NOW) == "2 / 12"


def test_the_slider_goes_to_a_frame_and_steps_once_a_key(opened):
    found = opened(both())
    found.run("at.value = 6; at.dispatchEvent(new Event('input')); at.focus()")
    assert found.run(NOW) == "7 / 12"
    found.press("ArrowRight")
    said = found.run("at.getAttribute('aria-valuetext')")
    assert found.run(NOW) == "8 / 12" and said.startswith("frame 8 of 12, ")


@pytest.mark.parametrize("focus", ["document.activeElement.blur()", "play_button.focus()", "at.focus()"])
def test_space_plays_and_pauses_once_wherever_the_focus_is(opened, focus):
    found = opened(both(100))
    found.run("var play_button = document.querySelector('#play'); " + focus)
    found.press(" ")
    assert found.run("play_button.textContent") == "Pause"
    found.wait_for(f"{NOW} >= '3'")
    found.press(" ")
    assert found.run("play_button.textContent") == "Play"


def test_it_plays_at_once_to_its_end_but_not_with_reduced_motion(opened):
    found = opened(both(4), still=False)
    found.wait_for(f"{NOW} == '4 / 4'")
    found.wait_for("document.querySelector('#play').textContent == 'Play'")
    found.press(" ")
    assert found.run("document.querySelector('#play').textContent") == "Pause"  # from the start again
    still = opened(both(4))
    assert still.run("new Promise(done => setTimeout(() => done(document.querySelector('#now').textContent), "
                     "300))") == "1 / 4"  # fmt: skip


def test_the_last_frame_shows_the_totals(opened):
    found = opened(both())
    found.press("End")
    one, two = found.run(CELLS)
    c = both()[1].run.launches[0].counters
    assert two[:2] == [f"{32 * c.global_load.sectors / 1e3:.0f} kB", "equal"]
    assert one[1] == "equal"


def test_pixels_are_the_tiles_that_are_read(opened):
    shown = film(*FLASH, frames=12)
    found = opened([shown])
    found.run("show(7)")
    pixels = found.run("""(() => { const c = document.querySelectorAll('figure canvas')[1];
        return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]; })()""")
    K = next(t for t in shown.tensors if t.name == "K")
    read = (np.array(pixels).reshape(-1, 4) == [0x00, 0x72, 0xB2, 255]).all(1)
    assert (read == (K.reads[7] > 0)).all() and read.any()


def test_everything_has_a_name_for_those_who_do_not_see_it(opened):
    found = opened(both())
    nameless = found.run("""[...document.querySelectorAll('button, input, canvas')].filter(
        e => !(e.getAttribute('aria-label') || e.textContent.trim())).map(e => e.outerHTML)""")
    assert nameless == []
    assert found.run("[...document.querySelectorAll('th')].every(e => e.scope)") is True
    assert found.run("document.documentElement.lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(opened, scheme):
    found = opened(both(), scheme=scheme)
    least = found.run("""(() => {
        const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => v / 255).map(
            v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const page = light(getComputedStyle(document.body).backgroundColor);
        return Math.min(...[...document.querySelectorAll('h1, h2, p, th, td, small, output, li')].map(e => {
            const ink = light(getComputedStyle(e).color);
            return (Math.max(ink, page) + 0.05) / (Math.min(ink, page) + 0.05); })); })()""")
    assert least >= 4.5
