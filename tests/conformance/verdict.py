"""Hold outcomes against the baseline and the list of exceptions.

baseline.txt: the tests that numba's own simulator passes, one a line. exceptions.txt: a reason in square
brackets, then the tests it covers. A test has to pass here if it is in the baseline, or if it runs here and
numba skips it (seam.UNSKIPPED); one that does not has to stand in the list, and one in the list has to fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.suite import Outcome

HERE = Path(__file__).parent
BASELINE, EXCEPTIONS = HERE / "baseline.txt", HERE / "exceptions.txt"
WARP_MODULE = "test_warp_ops"
LEAST_ON_ENGINE, LEAST_WARP_TESTS = 250, 19


@dataclass(frozen=True)
class Verdict:
    """Hold what a run comes to: complaints (any fails the run), and what to print above them."""

    summary: tuple[str, ...]
    complaints: tuple[str, ...]


def read_baseline(text: str) -> frozenset[str]:
    """Return the names in a baseline; a line that starts with # says how it was made."""
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def read_exceptions(text: str) -> dict[str, str]:
    """Return test -> reason; raise ValueError for a test without a reason, and for one that stands twice."""
    reason, found = "", {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            reason = line.strip("[]").strip()
            continue
        if not reason:
            raise ValueError(f"{EXCEPTIONS.name}:{number}: {line} has no reason above it")
        if line in found:
            raise ValueError(f"{EXCEPTIONS.name}:{number}: {line} stands in the list twice")
        found[line] = reason
    return found


def judge(
    outcomes: Mapping[str, Outcome],
    baseline: frozenset[str],
    exceptions: Mapping[str, str],
    whole: bool = True,
) -> Verdict:
    """Return the verdict of a run.

    whole: every module ran, so that the numbers of tests count and no name may be missing.
    """
    complaints = [c for name, o in outcomes.items() if (c := _complaint(name, o, baseline, exceptions))]
    if whole:
        gone = sorted((baseline | set(exceptions)) - set(outcomes))
        complaints += [f"{name}: no such test in this numba-cuda" for name in gone]
        complaints += _too_few(outcomes)
    return Verdict(tuple(_summary(outcomes, baseline, exceptions)), tuple(complaints))


def _complaint(
    name: str, outcome: Outcome, baseline: frozenset[str], exceptions: Mapping[str, str]
) -> str | None:
    if outcome.status == "passed":
        return f"{name}: passes; remove it from {EXCEPTIONS.name}" if name in exceptions else None
    if name in exceptions or (outcome.status == "skipped" and name not in baseline):
        return None
    return f"{name}: {outcome.status}, and not in {EXCEPTIONS.name}: {last_line(outcome.why)}"


def _on_engine(outcomes: Mapping[str, Outcome]) -> int:
    return sum(o.status == "passed" and o.launches["compiled"] > 0 for o in outcomes.values())


def _warp_tests(outcomes: Mapping[str, Outcome]) -> tuple[int, int]:
    warp = [o for name, o in outcomes.items() if name.startswith(f"{WARP_MODULE}.")]
    return sum(o.status == "passed" for o in warp), len(warp)


def _too_few(outcomes: Mapping[str, Outcome]) -> list[str]:
    said, on_engine, (warp, of) = [], _on_engine(outcomes), _warp_tests(outcomes)
    if on_engine < LEAST_ON_ENGINE:
        said.append(f"{on_engine} tests pass with launches on the compiled engine; {LEAST_ON_ENGINE} have to")
    if warp < LEAST_WARP_TESTS:
        said.append(f"{warp} of {of} warp tests pass; {LEAST_WARP_TESTS} have to")
    return said


def _summary(
    outcomes: Mapping[str, Outcome], baseline: frozenset[str], exceptions: Mapping[str, str]
) -> list[str]:
    status = Counter(o.status for o in outcomes.values())
    required = [o for name, o in outcomes.items() if name in baseline]
    listed = Counter(exceptions[name] for name in outcomes if name in exceptions)
    launches: Counter[str] = sum((o.launches for o in outcomes.values()), Counter())
    warp, of = _warp_tests(outcomes)
    by_oracle = sum(o.status == "passed" and o.launches["oracle"] > 0 for o in outcomes.values())
    ran = ", ".join(f"{n:,} on the {engine} engine" for engine, n in sorted(launches.items())) or "none"
    return [
        f"tests               {len(outcomes):5}: {status['passed']} passed with "
        f"{sum(o.subtests for o in outcomes.values())} subtests, {status['failed']} failed, "
        f"{status['skipped']} skipped as in numba's simulator",
        f"numba's passes      {len(required):5}: {sum(o.status == 'passed' for o in required)} pass here",
        f"warp tests          {of:5}: {warp} pass here, none in numba's simulator",
        f"on compiled engine  {_on_engine(outcomes):5} tests pass with launches there; "
        f"{by_oracle} with launches by the Python oracle",
        f"launches            {sum(launches.values()):5}: {ran}",
        f"exceptions          {sum(listed.values()):5}:",
        *(f"  {n:4}  {reason}" for reason, n in listed.items()),
    ]


def last_line(why: str) -> str:
    """Return the last line of a traceback that says something."""
    return next((line.strip() for line in reversed(why.splitlines()) if line.strip()), "")
