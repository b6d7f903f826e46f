"""Sessions: which one is in place, which launches are reported, and the profile context."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import gpusim
from gpusim.arch import get_arch
from gpusim.errors import BadOption, UnknownName
from gpusim.launch import Launch
from gpusim.session import Filter, Session, current, use

Make = Callable[..., Launch]
NAMES = ["copy", "saxpy_v1", "copy", "saxpy_v2", "saxpy_v3"]


def wanted(**filters: object) -> list[int]:
    """Return which of NAMES, launched in order, are reported."""
    session = Session(get_arch("h200"), filter=Filter(**filters))  # type: ignore[arg-type]
    return [i for i, name in enumerate(NAMES) if session.wants(name)]


def test_without_a_filter_every_launch_is_reported() -> None:
    assert wanted() == [0, 1, 2, 3, 4]


def test_a_pattern_matches_anywhere_in_a_name_with_or_without_ncus_prefix() -> None:
    assert wanted(pattern="saxpy") == wanted(pattern="regex:saxpy") == [1, 3, 4]
    assert wanted(pattern="^v") == []
    assert wanted(pattern="v[13]$") == [1, 4]


def test_skip_and_count_count_matching_launches_only() -> None:
    assert wanted(pattern="saxpy", skip=1, count=1) == [3]
    assert wanted(skip=2) == [2, 3, 4]
    assert wanted(count=0) == []


@pytest.mark.parametrize("filters", [{"pattern": "("}, {"skip": -1}, {"count": -1}])
def test_a_filter_that_makes_no_sense_is_refused(filters: dict[str, object]) -> None:
    with pytest.raises(BadOption):
        Filter(**filters)  # type: ignore[arg-type]


def test_the_default_session_is_an_h200_with_cold_caches_that_keeps_nothing() -> None:
    session = current()
    assert (session.arch.name, session.l2, session.keep) == ("h200", "cold", False)
    assert not session.wants("any")
    assert current() is session


def test_a_session_is_in_place_in_its_body_only() -> None:
    outer, inner = Session(get_arch("h200")), Session(get_arch("a100"))
    before = current()
    with use(outer):
        with pytest.raises(ZeroDivisionError), use(inner):
            assert current() is inner
            raise ZeroDivisionError
        assert current() is outer
    assert current() is before


def test_records_are_kept_in_order_and_passed_on(make_launch: Make) -> None:
    seen: list[str] = []
    session = Session(get_arch("h200"), on_report=lambda launch: seen.append(launch.kernel))
    session.record(make_launch(kernel="a"))
    session.record(make_launch(kernel="b"))
    assert [r.kernel for r in session.reports] == seen == ["a", "b"]


def test_profile_sets_the_gpu_the_caches_and_the_registers() -> None:
    with gpusim.profile(gpu="a100", l2="warm", registers=40, kernel_name="k") as p:
        assert current() is p
        assert (p.arch.name, p.l2, p.registers.per_thread, p.registers.source) == (
            "a100",
            "warm",
            40,
            "given",
        )
        assert not p.wants("other")
    assert current() is not p


def test_profile_refuses_an_unknown_gpu_or_cache_state() -> None:
    with pytest.raises(UnknownName, match="h300"), gpusim.profile(gpu="h300"):
        pass
    with pytest.raises(BadOption, match="'hot'"), gpusim.profile(l2="hot"):
        pass


def test_gpusim_has_no_other_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'profil'"):
        gpusim.profil  # noqa: B018


def test_a_profile_object_serves_one_with_statement() -> None:
    once = gpusim.profile()
    with once:
        pass
    with pytest.raises(BadOption, match="serves one with statement"), once:
        pass
    with gpusim.profile(), gpusim.profile() as inner:
        assert current() is inner


def test_a_remark_is_kept_once() -> None:
    session = Session(get_arch("h200"))
    session.remark("no clock")
    session.remark("no clock")
    assert session.remarks == ["no clock"]
