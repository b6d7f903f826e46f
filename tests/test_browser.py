"""The browser of the tests hears what a page does wrong, and nothing where it does nothing wrong."""

from __future__ import annotations

import pytest

from tests.browser import pages

PAGE = "<!doctype html><title>t</title><style>body {{ margin: 0 }}</style>{body}"


def test_a_page_that_does_nothing_wrong_has_no_error(tmp_path):
    (tmp_path / "a.html").write_text(PAGE.format(body="<p>one"))
    with pages() as page:
        page.open(tmp_path / "a.html", width=360, scheme="dark", still=True)
        dark, still = (f"matchMedia('(prefers-{w})').matches" for w in ("color-scheme: dark",
                                                                        "reduced-motion: reduce"))
        assert page.run(f"[document.title, innerWidth, {dark}, {still}]") == ["t", 360, True, True]
        assert (page.errors, len(page.requests), page.scrolls_sideways) == ([], 1, False)


def test_errors_requests_keys_clicks_and_overflow_are_heard(tmp_path):
    body = """<div id=b style="width: 700px">hi</div><img src="http://example.com/a.png"><script>
        addEventListener("keydown", e => { keys.push(e.key) }); const keys = [];
        b.onclick = () => { b.textContent = "clicked" }; console.error("oops"); nothing_of_this_name();
        </script>"""
    (tmp_path / "a.html").write_text(PAGE.format(body=body))
    with pages() as page:
        page.open(tmp_path / "a.html", width=360)
        page.press(" ")
        page.press("ArrowLeft")
        page.click("#b")
        page.wait_for("b.textContent == 'clicked'")
        assert page.run("keys") == [" ", "ArrowLeft"]
        assert page.requests[1:] == ["http://example.com/a.png"] and page.scrolls_sideways
        assert any("oops" in e for e in page.errors) and any("nothing_of_this" in e for e in page.errors)
        page.picture(tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
        with pytest.raises(RuntimeError, match="unknown_name"):
            page.run("unknown_name")


def test_without_a_chromium_a_test_is_skipped(monkeypatch):
    monkeypatch.delenv("GPUSIM_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.skip.Exception, match="no Chromium here"), pages():
        pass
