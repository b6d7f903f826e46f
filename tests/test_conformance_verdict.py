"""The verdict over numba-cuda's tests: nothing fails, is skipped or starts to pass in silence."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.suite import Outcome
from tests.conformance.verdict import (
    BASELINE,
    EXCEPTIONS,
    judge,
    last_line,
    read_baseline,
    read_exceptions,
)

PASSED, SKIPPED = Outcome("passed"), Outcome("skipped")
FAILED = Outcome("failed", "Traceback\nValueError: 3\n")
BASE = frozenset({"m.A.test"})


def complaints(outcome: Outcome, *listed: str) -> tuple[str, ...]:
    return judge({"m.A.test": outcome}, BASE, dict.fromkeys(listed, "a reason"), whole=False).complaints


def test_a_test_that_passes_and_is_not_listed_is_as_it_should_be() -> None:
    assert complaints(PASSED) == ()


def test_a_test_that_fails_and_is_listed_is_as_it_should_be() -> None:
    assert complaints(FAILED, "m.A.test") == ()


def test_a_test_that_passes_has_to_leave_the_list() -> None:
    assert complaints(PASSED, "m.A.test") == ("m.A.test: passes; remove it from exceptions.txt",)


def test_a_test_that_fails_has_to_be_listed() -> None:
    assert complaints(FAILED) == ("m.A.test: failed, and not in exceptions.txt: ValueError: 3",)


def test_a_test_of_the_baseline_may_not_be_skipped_in_silence() -> None:
    assert complaints(SKIPPED) == ("m.A.test: skipped, and not in exceptions.txt: ",)


def test_a_test_that_numba_skips_too_may_be_skipped() -> None:
    assert judge({"m.B.test": SKIPPED}, BASE, {}, whole=False).complaints == ()


def test_a_test_outside_the_baseline_that_fails_has_to_be_listed() -> None:
    assert len(judge({"m.B.test": FAILED}, BASE, {}, whole=False).complaints) == 1


def test_a_whole_run_misses_a_name_that_is_no_test() -> None:
    said = judge({"m.A.test": PASSED}, BASE, {"m.C.gone": "a reason"}).complaints
    assert "m.C.gone: no such test in this numba-cuda" in said


def test_a_whole_run_needs_enough_tests_on_the_compiled_engine_and_enough_warp_tests() -> None:
    on_engine = {f"m.A.t{k}": Outcome("passed", launches=Counter(compiled=1)) for k in range(231)}
    by_oracle = {f"m.B.t{k}": Outcome("passed", launches=Counter(oracle=1)) for k in range(100)}
    warp = {f"test_warp_ops.A.t{k}": Outcome("passed", launches=Counter(compiled=2)) for k in range(18)}
    assert judge({**on_engine, **by_oracle, **warp}, frozenset(), {}).complaints == (
        "249 tests pass with launches on the compiled engine; 250 have to",
        "18 of 18 warp tests pass; 19 have to",
    )
    warp["test_warp_ops.A.t18"] = Outcome("passed", launches=Counter(compiled=2))
    assert judge({**on_engine, **by_oracle, **warp}, frozenset(), {}).complaints == ()


def test_each_exception_stands_under_a_reason_and_once() -> None:
    assert read_exceptions("# list\n[why]\n\nm.A.a\nm.A.b\n[other]\nm.A.c\n") == {
        "m.A.a": "why", "m.A.b": "why", "m.A.c": "other",
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"exceptions.txt:1: m.A.a has no reason above it"):
        read_exceptions("m.A.a\n")
    with pytest.raises(ValueError, match=r"exceptions.txt:3: m.A.a stands in the list twice"):
        read_exceptions("[why]\nm.A.a\nm.A.a\n")


def test_the_lists_of_the_repository_can_be_read() -> None:
    baseline = read_baseline(BASELINE.read_text())
    assert len(baseline) > 600 and not any(name.startswith("#") for name in baseline)
    assert read_exceptions(EXCEPTIONS.read_text())


def test_the_last_line_of_a_traceback_is_what_went_wrong() -> None:
    assert last_line("Traceback\n  File x\nValueError: 3\n\n") == "ValueError: 3"
