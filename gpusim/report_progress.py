"""A progress bar on stderr for launches that take over a second, where stderr is a terminal.

What it leaves out: any effect on results; without a terminal nothing is loaded and nothing is drawn.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ProgressBar:
    """Draw a bar on stderr for each launch that takes over a second: called with (blocks done, blocks in
    all), first with 0 done. unit: what is done, if no blocks.

    It is gone when the launch ends, so that it never mixes with what a script prints between its launches.
    """

    def __init__(self, what: str, after_seconds: float = 1.0, unit: str = "blocks") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn(what),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeElapsedColumn(),
        )
        self._bar = Progress(
            *columns,
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(what, total=None)
        self._timer: threading.Timer | None = None
        self._after_seconds = after_seconds

    def __call__(self, done: int, total: int) -> None:
        """Show how far the launch is."""
        if done == 0:
            self.begin()
        self._bar.update(self._task, completed=done, total=total)
        if done >= total:
            self.end()

    def begin(self) -> None:
        """Let the bar appear in a second from now."""
        self.end()
        self._bar.reset(self._task)
        self._timer = threading.Timer(self._after_seconds, self._bar.start)
        self._timer.daemon = True
        self._timer.start()

    def wait(self) -> None:
        """Wait until the bar has appeared."""
        if self._timer is not None:
            self._timer.join()

    def refresh(self) -> None:
        """Draw now instead of at the next tenth of a second."""
        self._bar.refresh()

    def end(self) -> None:
        """Take the bar away; it does not appear later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
        self._bar.stop()


@contextmanager
def progress_bar(what: str, unit: str = "blocks") -> Iterator[ProgressBar | None]:
    """Give a bar to call, taken away at the end; None where stderr is no terminal."""
    bar = ProgressBar(what, unit=unit) if sys.stderr.isatty() else None
    try:
        yield bar
    finally:
        if bar is not None:
            bar.end()
