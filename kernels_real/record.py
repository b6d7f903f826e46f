"""Record the whole list of launches on a GPU: `python -m kernels_real.record OUTDIR`.

One ncu a part of the list, as its start and its replays cost most. After each part OUTDIR/numba.csv and
OUTDIR/triton.csv are written anew, so that a run which is stopped keeps what it has. Copied to
kernels_real/measurements/, they are what `validate` reads.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from gpusim.errors import UserError
from gpusim.output import write_whole
from kernels_real.jobs import Job
from kernels_real.measuring import Session, compile_together, header, measure
from kernels_real.recorded_launches import LISTS, jobs
from kernels_real.recordings import Recorded, from_session, to_text

LEAST_SECONDS = 20
"""No ncu is started for less: it would end before its first launch."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Record what is asked for; return 1 where a value was wrong or a launch is missing."""
    given = parsed(arguments)
    given.outdir.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.seconds
    backends = given.backend or [*LISTS]
    listed = {b: list(jobs(b, tuple(given.kernel))) for b in backends}
    try:
        said = header()
        if listed.get("triton"):
            compile_together(listed["triton"], given.processes)
        parts = in_turns({backend: divided(x, given.parts) for backend, x in listed.items()})
        return record(parts, end, given.outdir, said)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's words."""
    parser = argparse.ArgumentParser(prog="python -m kernels_real.record", description=__doc__)
    parser.add_argument("outdir", type=Path, metavar="OUTDIR")
    parser.add_argument("--backend", choices=[*LISTS], action="append", help="default: all")
    parser.add_argument("--kernel", action="append", default=[], help="only this one; several times for more")
    parser.add_argument("--parts", type=int, default=2, help="runs of ncu a backend (default 2)")
    parser.add_argument("--processes", type=int, default=8, help="that compile Triton kernels (default 8)")
    parser.add_argument("--seconds", type=float, default=420, help="begin no job after so many seconds")
    return parser.parse_args(arguments)


Part = tuple[str, list[Job]]


def in_turns(parts: dict[str, list[list[Job]]]) -> list[Part]:
    """Return the parts of all backends, the first of each before the second of any."""
    rounds = zip_longest(*([(backend, part) for part in x] for backend, x in parts.items()))
    return [part for turn in rounds for part in turn if part is not None]


def record(parts: Sequence[Part], end: float, folder: Path, said: dict[str, str]) -> int:
    """Measure parts until a time and write a file a backend after each; return 1 if a job is missing or
    wrong."""
    recorded: dict[str, list[Recorded]] = {}
    bad = 0
    for backend, part in parts:
        left = end - time.monotonic()
        session = attempted(part, left) if left > LEAST_SECONDS else None
        pairs = [] if session is None else session.pairs
        found = recorded.setdefault(backend, [])
        found += from_session(pairs)
        for outcome in (o for o, rows in pairs if o.launches and not rows):
            print(f"ncu has not all launches of {outcome.job.title}: {outcome.launches}", file=sys.stderr)
        bad += len(part) - sum(bool(rows) and not o.wrong for o, rows in pairs)
        if found:
            write_whole(folder / f"{backend}.csv", to_text(found, said))
        print(f"{backend}.csv: {len(found)} launches; {bad} jobs missing or wrong so far", file=sys.stderr)
    return 1 if bad else 0


def attempted(part: list[Job], seconds: float) -> Session | None:
    """Measure a part; None, and the reason printed, where nothing of it was measured."""
    try:
        return measure(part, seconds)
    except UserError as error:
        print(f"a part of {len(part)} jobs was not measured: {error}", file=sys.stderr)
        return None


def divided(listed: list[Job], parts: int) -> list[list[Job]]:
    """Divide jobs into so many parts of about equal length, in order."""
    size = -(-len(listed) // max(1, parts)) or 1
    return [listed[i : i + size] for i in range(0, len(listed), size)]


if __name__ == "__main__":
    sys.exit(main())
