"""The session: which GPU the launches of a program run on, how, and where their reports go.

A kernel called as `kernel[grid, block](...)` has no argument for the GPU, so it asks `current()`.
`gpusim.profile` and the command line put a session in place with `use`; outside of any, a default one (H200,
cold caches) runs kernels and keeps no reports. What it leaves out: running anything. `device` belongs to
dsl/host/launch.py, which makes it at the first launch; this module never looks in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpusim.errors import BadOption
from gpusim.reports import Reports

if TYPE_CHECKING:
    from gpusim.arch import Arch
    from gpusim.launch import Launch, Registers


@dataclass(frozen=True)
class Filter:
    """Choose the launches to report, as ncu does: names that `pattern` matches anywhere, of these `skip` are
    passed over, then `count` taken.

    pattern: a regular expression, with or without ncu's prefix "regex:"; "" matches all. count None: no
    limit.
    """

    pattern: str = ""
    skip: int = 0
    count: int | None = None

    def __post_init__(self) -> None:
        """Raise BadOption for a pattern that is no regular expression and for negative numbers."""
        try:
            re.compile(self.expression)
        except re.error as error:
            raise BadOption(f"kernel name {self.pattern!r} is not a regular expression: {error}") from None
        if self.skip < 0 or (self.count is not None and self.count < 0):
            raise BadOption(f"launch skip and launch count must be 0 or more, got {self.skip} and "
                            f"{self.count}")

    @property
    def expression(self) -> str:
        """Return the pattern without ncu's prefix."""
        return self.pattern.removeprefix("regex:")


@dataclass
class Session:
    """Hold the settings of launches that are written as `kernel[grid, block](...)`, and the reports they
    gave.

    arch, l2, engine, counts_only, max_steps, strict_index, registers: as in dsl.host.launch.launch (registers
    None: recorded or estimated). device: dsl.host.device.Device, made by the first launch and kept, so that
    warm caches stay. keep: whether reports are kept. on_report: called with each kept Launch. failed: wanted
    launches that ended by an error. remarks: sentences for the reader about the run as a whole, each once.
    """

    arch: Arch
    l2: str = "cold"
    engine: str = "auto"
    counts_only: bool = False
    max_steps: int | None = None
    strict_index: bool = False
    registers: Registers | None = None
    filter: Filter = field(default_factory=Filter)
    keep: bool = True
    reports: Reports = field(default_factory=Reports)
    device: Any = None
    on_report: Callable[[Launch], None] | None = None
    progress: Any = None
    launched: int = 0
    matched: int = 0
    failed: int = 0
    remarks: list[str] = field(default_factory=list)

    def wants(self, kernel: str) -> bool:
        """Return whether the launch that comes now is to be reported.

        Call once for each launch, before it runs.
        A launch that is not wanted still runs (later ones read what it wrote, and its lines stay in a warm
        L2).
        """
        self.launched += 1
        if not self.keep or not re.search(self.filter.expression, kernel):
            return False
        self.matched += 1
        number = self.matched - self.filter.skip
        return number > 0 and (self.filter.count is None or number <= self.filter.count)

    def record(self, launch: Launch) -> None:
        """Keep the report of a launch that was wanted."""
        self.reports.append(launch)
        if self.on_report is not None:
            self.on_report(launch)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the reports."""
        return self.reports._repr_html_()

    def remark(self, sentence: str) -> None:
        """Keep a sentence for the reader, once."""
        if sentence not in self.remarks:
            self.remarks.append(sentence)


_current: ContextVar[Session | None] = ContextVar("gpusim_session", default=None)
_default: Session | None = None


def current() -> Session:
    """Return the session that is in place, or the default one: H200, cold caches, no reports kept."""
    global _default
    session = _current.get()
    if session is not None:
        return session
    if _default is None:
        from gpusim.arch import get_arch

        _default = Session(get_arch("h200"), keep=False)
    return _default


@contextmanager
def use(session: Session) -> Iterator[Session]:
    """Put a session in place for the body of a with statement, and the one before it back after."""
    token = _current.set(session)
    try:
        yield session
    finally:
        _current.reset(token)
