"""Collect numba-cuda's tests and run them in this process, one outcome a test.

What it does: tests are `unittest` cases and plain test functions of the modules in the wheel; a test is named
MODULE.CLASS.METHOD, or MODULE.FUNCTION. A module that cannot be imported is an outcome of its own name. What
a test prints is held back. What it leaves out: pytest's fixtures, which these tests do not use.
"""

from __future__ import annotations

import importlib
import inspect
import io
import pkgutil
import signal
import time
import traceback
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

from tests.conformance.seam import PACKAGES, UPSTREAM, import_tests

TEST_SECONDS = 60
"""A test that takes longer has failed."""


@dataclass(frozen=True)
class Outcome:
    """Hold what became of a test: passed, failed or skipped, and why, a reason or a traceback.

    launches: how many ran, by the engine that ran them.
    """

    status: str
    why: str = ""
    launches: Counter[str] = field(default_factory=Counter)
    subtests: int = 0
    seconds: float = 0.0


class TooLong(Exception):
    """A test took longer than TEST_SECONDS."""


class _Result(unittest.TestResult):
    """Keep the tracebacks of one test and count its subtests."""

    subtests = 0

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802 - unittest's name
        super().addSubTest(test, subtest, err)
        self.subtests += 1


def modules() -> list[str]:
    """Return the names of the test modules, sorted within each package."""
    found = []
    for package in (importlib.import_module(f"{UPSTREAM}.{name}") for name in PACKAGES):
        names = sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.name.startswith("test_"))
        found += [f"{package.__name__}.{name}" for name in names]
    return found


def collect(name: str) -> Iterator[tuple[str, unittest.TestCase]]:
    """Yield the tests of a module, each with its name; an import that fails is one test that fails."""
    short = name.removeprefix(f"{UPSTREAM}.").removeprefix("cudapy.")
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            module = import_tests(name)
    except unittest.SkipTest as reason:
        yield short, _instead(unittest.SkipTest(str(reason)))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        skipped = type(error).__name__ == "Skipped"  # what pytest.importorskip raises
        yield short, _instead(unittest.SkipTest(str(error)) if skipped else error)
    else:
        yield from ((f"{short}.{n}", test) for n, test in _tests(module))


def _instead(error: BaseException) -> unittest.TestCase:
    def test() -> None:
        raise error

    return unittest.FunctionTestCase(test)


def _tests(module: ModuleType) -> Iterator[tuple[str, unittest.TestCase]]:
    loader = unittest.TestLoader()
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value) and issubclass(value, unittest.TestCase):
            for method in loader.getTestCaseNames(value):
                yield f"{name}.{method}", value(method)
        elif inspect.isfunction(value) and name.startswith("test_"):
            yield name, unittest.FunctionTestCase(value)


def run(test: unittest.TestCase, launches: Counter[str]) -> Outcome:
    """Run one test; `launches` counts all launches so far by engine."""
    result, before, start = _Result(), launches.copy(), time.perf_counter()
    with (
        redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings(),
        _Alarm(TEST_SECONDS),
    ):  # fmt: skip
        warnings.simplefilter("default")
        try:
            unittest.TestSuite([test]).run(result)
        except TooLong:
            result.addError(test, (TooLong, TooLong(f"more than {TEST_SECONDS} s"), None))
    status, why = _status(result)
    return Outcome(status, why, launches - before, result.subtests, time.perf_counter() - start)


def _status(result: _Result) -> tuple[str, str]:
    failures = [*result.errors, *result.failures]
    if failures:
        return "failed", failures[0][1]
    if result.unexpectedSuccesses:
        return "failed", "it is marked as an expected failure, and passed"
    if result.expectedFailures:
        return "skipped", "an expected failure"
    if result.skipped:
        return "skipped", result.skipped[0][1]
    return "passed", ""


class _Alarm:
    """Raise TooLong in the body after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        def ring(number: int, frame: FrameType | None) -> None:
            raise TooLong("".join(traceback.format_stack(frame)[-1:]))

        self.before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)
