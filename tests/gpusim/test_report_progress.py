"""The progress bar: on a terminal only, and only for what takes over a second."""

from __future__ import annotations

import io
import re
import sys

import pytest

from gpusim.report_progress import ProgressBar, progress_bar


class Terminal(io.StringIO):
    """Be a stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_without_a_terminal_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_bar("k") as bar:
        assert bar is None


def test_a_short_launch_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar("k") as bar:
        assert bar is not None
        bar(0, 10)
        bar(10, 10)
    assert "blocks" not in stream.getvalue()


@pytest.mark.parametrize("unit", ["blocks", "kernels"])
def test_a_launch_of_over_a_second_draws_what_is_done_and_takes_it_away(
    monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    bar = ProgressBar("k", after_seconds=0.0, unit=unit)
    bar(0, 10)
    bar.wait()
    bar(7, 10)
    bar.refresh()
    assert re.search(rf"\b7/10\x1b\[0m {unit}", stream.getvalue())
    bar(10, 10)
    assert stream.getvalue().endswith("\x1b[2K")  # the line is erased
