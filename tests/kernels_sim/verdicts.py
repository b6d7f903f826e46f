"""What tests of the attention kernels ask of launches: counters, facts and outputs as they have to be."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.facts import differs
from gpusim.launch import Launch, counter


def differences(launches: Sequence[Launch]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return {(kernel, counter): (counted, expected)} where a launch is not what its closed form says."""
    return {
        (launch.kernel, path): (counter(launch.counters, path), n)
        for launch in launches
        for path, n in launch.closed_form.items()
        if counter(launch.counters, path) != n
    }


def assert_right(launches: Sequence[Launch], outputs: tuple[str, ...]) -> None:
    """Assert that counters and facts are as they have to be, and that these outputs are checked and right."""
    last = launches[-1]
    assert differences(launches) == {}
    assert [fact.label for fact in last.facts if differs(fact)] == []
    assert tuple(check.output for check in last.checks) == outputs
    assert [check for check in last.checks if not check.error <= check.tolerance] == []
