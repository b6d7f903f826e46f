"""Run numba-cuda's own tests on this simulator: `python -m tests.conformance [MODULE ...]`.

`--record` runs them on numba's simulator instead and writes baseline.txt anew. Exit status 0: every test that
has to pass passes, or stands in exceptions.txt.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from importlib.metadata import version

from tests.conformance import seam, suite, verdict


def main() -> int:
    """Run the tests of the named modules, of all by default, and print the verdict."""
    parser = argparse.ArgumentParser("tests.conformance", description=__doc__)
    parser.add_argument("modules", nargs="*", help="names of modules, such as test_atomics; all by default")
    parser.add_argument("--record", action="store_true", help="write the baseline of numba's simulator")
    parser.add_argument("--why", action="store_true", help="print the traceback of each test that fails")
    chosen = parser.parse_args()
    seam.simulator_mode()
    start = time.perf_counter()
    outcomes = _outcomes(chosen.modules, ours=not chosen.record)
    if chosen.record:
        return _record(outcomes)
    if chosen.why:
        failed = {n: o for n, o in outcomes.items() if o.status == "failed"}
        print(*(f"{'=' * 20} {name}\n{o.why}" for name, o in failed.items()), sep="\n")
    baseline = verdict.read_baseline(verdict.BASELINE.read_text())
    exceptions = verdict.read_exceptions(verdict.EXCEPTIONS.read_text())
    found = verdict.judge(outcomes, baseline, exceptions, whole=not chosen.modules)
    print(*found.summary, f"time                {time.perf_counter() - start:5.0f} s", sep="\n")
    print(*found.complaints, sep="\n")
    print(f"conformance: {len(found.complaints)} complaints")
    return 1 if found.complaints else 0


def _outcomes(wanted: list[str], ours: bool) -> dict[str, suite.Outcome]:
    from gpusim import session
    from gpusim.arch import get_arch

    launches: Counter[str] = Counter()
    now = session.Session(get_arch("h200"), on_report=lambda launch: launches.update([launch.engine]))
    with session.use(now):
        if ours:
            seam.install()
        seam.open_tests()
        outcomes = {}
        for module in suite.modules():
            if wanted and module.rpartition(".")[2] not in wanted:
                continue
            for name, test in suite.collect(module):
                outcomes[name] = suite.run(test, launches)
                now.reports.clear()
            _progress(module)
    _progress("")
    return outcomes


def _progress(module: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{module:60}\r", end="", file=sys.stderr, flush=True)


def _record(outcomes: dict[str, suite.Outcome]) -> int:
    passed = sorted(name for name, o in outcomes.items() if o.status == "passed")
    made = ", ".join(f"{name} {version(name)}" for name in ("numba-cuda", "numba", "numpy"))
    said = f"# Tests that numba's simulator passes: {made}.\n# python -m tests.conformance --record"
    verdict.BASELINE.write_text("\n".join([said, *passed]) + "\n")
    print(f"{len(passed)} of {len(outcomes)} tests pass in numba's simulator: {verdict.BASELINE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
