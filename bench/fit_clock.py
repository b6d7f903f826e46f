"""Fit the parameters of the time estimate (gpusim/timing.py) on recorded launches, and print what is left.

Run it again: python -m bench.fit_clock [--launches FILE]. FILE keeps the simulated launches from one run to
the next; without it all of them are simulated anew, which takes some minutes. Fitting needs scipy (pip
install -e '.[fit]'), --as-is does not.
Fit and test set are those of `validate` (kernels_real/recorded_launches.py). Launches that spill are left out
of the fit, and Triton's of everything: their machine code is not the simulated kernel's.

A parameter moves away from its public number only where that pays: each has a width, the log of which counts
as one standard deviation, and a launch of more than 20 us counts as measured to 10 %.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cli
from dsl.host.device import Device
from gpusim.arch import H200
from gpusim.clock import estimate, machine_instructions
from gpusim.launch import Launch
from gpusim.launch_json import dump, load
from gpusim.timing import Timing
from kernels_real.recorded_launches import FIT, list_of
from kernels_real.recordings import Recorded, by_problem, read_all, with_data
from kernels_sim.run import run_problem

NS, INSTRUCTIONS = "gpu__time_duration.sum", "smsp__inst_executed.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
SHORT_NS, MIDDLE_NS, SHORTEST_NS = 20_000, 8_000, 4_000
PRIORS: dict[str, tuple[float, float]] = {
    "alu_cycles": (4.2, 0.1), "special_cycles": (20, 0.3), "shared_cycles": (29, 0.15),
    "l1_cycles": (38, 0.2), "l2_cycles": (240, 0.1), "dram_cycles": (420, 0.15), "line_cycles": (1.7, 0.3),
    "shuffle_cycles": (24, 0.2), "barrier_cycles": (24, 0.4), "turn_cycles": (34, 0.1),
    "global_in_flight": (1.2, 0.4), "shared_in_flight": (4, 0.6), "gap_cycles": (1.3, 0.2),
    "integer_gap_cycles": (2.0, 0.3), "integers_each": (1.1, 0.1), "checks_each": (3.0, 0.15),
    "integers_on_alu": (0.7, 0.1), "issue_share": (0.95, 0.03), "lines_per_cycle": (1.0, 0.3),
    "l2_share": (0.75, 0.15), "dram_share": (0.85, 0.08), "partial_cycles": (2.0, 0.5),
    "collision_cycles": (3.0, 0.3), "launch_ns": (3000, 0.5), "block_cycles": (0.1, 0.7),
    "lockstep": (0.5, 0.6), "overlap": (4, 0.3),
}  # fmt: skip
"""Parameter -> the public number, or a guess, and how far from it is one standard deviation, as a log."""
TIME_ERROR, INSTRUCTION_ERROR, MICRO_WEIGHT = 0.1, 0.15, 0.5
TAILS, TURNAROUNDS = np.arange(0.2, 0.7, 0.05), np.arange(0, 2000, 100)


class Case(NamedTuple):
    """Hold a simulated launch, the measured one, and whether it belongs to the fit set."""

    launch: Launch
    recorded: Recorded
    is_fit: bool

    @property
    def ns(self) -> float:
        """Return the measured time."""
        return float(self.recorded.measured.values[NS])


def simulated(recorded: Sequence[Recorded]) -> str:
    """Return the launches of one problem, simulated with the registers of the card, as JSON."""
    job = recorded[0].job
    counts_only = not with_data(job.kernel)
    problem, options = cli.problem_of(job.target, job.seed, counts_only, dict(job.options))
    taken = {r.step: int(r.measured.values["launch__registers_per_thread"]) for r in recorded}
    problem.steps = tuple(replace(step, registers=taken.get(i), registers_source="measured")
                          for i, step in enumerate(problem.steps))  # fmt: skip
    problem.reference = None
    launches = run_problem(problem, Device(H200), counts_only=counts_only, options=options)
    plain = (replace(launches[r.step], accesses=(), lines={}, options={}) for r in recorded)
    return dump(list(plain))


def cases(kept: Path | None) -> list[Case]:
    """Return all cases, simulated or as they were kept in a file."""
    recorded = [r for r in read_all() if list_of(r.job) != "triton"]
    problems = by_problem(recorded)
    if kept is not None and kept.exists():
        texts = json.loads(kept.read_text(encoding="utf-8"))
    else:
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            texts = list(pool.map(simulated, problems))
        if kept is not None:
            kept.write_text(json.dumps(texts), encoding="utf-8")
    found = {id(r): replace(launch, arch=H200) for own, text in zip(problems, texts, strict=True)
             for r, launch in zip(own, load(text), strict=True)}  # fmt: skip
    return [Case(found[id(r)], r, r.subset == FIT) for r in recorded]


def weight(case: Case) -> float:
    """Return how much a launch counts: short ones less, as starting and ending is most of them."""
    share = 1.0 if case.ns > SHORT_NS else 0.5 if case.ns > MIDDLE_NS else 0.3
    return share * (MICRO_WEIGHT if list_of(case.recorded.job) == "micro" else 1.0)


def instructions(launch: Launch, timing: Timing) -> float:
    """Return the warp instructions that the estimate takes a launch to execute."""
    assert launch.work is not None
    return sum(sum(machine_instructions(s.issued, timing).values()) for s in launch.work.stretches)


def time_of(case: Case, timing: Timing) -> float:
    """Return the estimated time of a case in ns."""
    found = estimate(case.launch, timing)
    assert found is not None
    return found.ns


def residuals(used: Sequence[Case], start: Timing, logs: np.ndarray) -> np.ndarray:
    """Return how far times, instructions and parameters are away, in standard deviations."""
    timing = with_values(start, logs)
    out = []
    for case in used:
        w = weight(case)
        out.append(w * np.log(time_of(case, timing) / case.ns) / TIME_ERROR)
        executed = case.recorded.measured.values[INSTRUCTIONS]
        ratio = max(1.0, instructions(case.launch, timing)) / executed
        out.append(w * np.log(ratio) / INSTRUCTION_ERROR)
    near = [(x - np.log(value)) / width for x, (value, width) in zip(logs, PRIORS.values(), strict=True)]
    return np.array([*out, *near])


def with_values(start: Timing, logs: np.ndarray) -> Timing:
    """Return a timing with other values of the parameters in PRIORS, given as logs."""
    return replace(start, **dict(zip(PRIORS, np.exp(logs).tolist(), strict=True)))


def fitted(found: Sequence[Case], start: Timing) -> Timing:
    """Return the timing that fits the fit set: times and instructions, then achieved occupancy."""
    from scipy.optimize import least_squares

    used = [c for c in found if c.is_fit and not c.recorded.spills and c.ns > SHORTEST_NS]
    logs = np.log([value for value, _ in PRIORS.values()])
    best = least_squares(partial(residuals, used, start), logs, loss="soft_l1", f_scale=1.5, max_nfev=40)
    timing = rounded(with_values(start, best.x))
    long = [c for c in used if c.ns > SHORT_NS and list_of(c.recorded.job) == "numba"]
    choices = [replace(timing, tail_blocks=round(float(tail), 2), turnaround_cycles=float(cycles))
               for tail in TAILS for cycles in TURNAROUNDS]  # fmt: skip
    return min(choices, key=lambda t: np.mean([occupancy_error(c, t) for c in long]))


def rounded(timing: Timing) -> Timing:
    """Return a timing whose fitted values have three digits."""
    return replace(timing, **{name: float(f"{getattr(timing, name):.3g}") for name in PRIORS})


def occupancy_error(case: Case, timing: Timing) -> float:
    """Return how many points the achieved occupancy is off."""
    found = estimate(case.launch, timing)
    assert found is not None
    return abs(found.occupancy_pct - float(case.recorded.measured.values[OCCUPANCY]))


def time_error(case: Case, timing: Timing) -> float:
    """Return by how many percent the time is off, with its sign."""
    return 100 * (time_of(case, timing) / case.ns - 1)


def report(found: Sequence[Case], timing: Timing) -> Iterator[str]:
    """Yield the errors of each list, set and kind, of launches over 20 us, and the five worst of each."""
    def group(case: Case) -> tuple[bool, str, str]:
        spills = ", spilling" if case.recorded.spills else ""
        return case.recorded.spills, list_of(case.recorded.job) + spills, case.recorded.subset

    long = sorted((c for c in found if c.ns > SHORT_NS), key=group)
    for (_, listed, part), own in groupby(long, group):
        some = list(own)
        errors = np.abs([time_error(c, timing) for c in some])
        points = [occupancy_error(c, timing) for c in some]
        yield (f"{listed}, {part} set, {len(some)} launches over 20 us: time mean {errors.mean():.1f} %, "
               f"median {np.median(errors):.1f} %, largest {errors.max():.1f} %; achieved occupancy median "
               f"{np.median(points):.1f}, largest {max(points):.1f} points")
        for case in sorted(some, key=lambda c: -abs(time_error(c, timing)))[:5]:
            estimated = estimate(case.launch, timing)
            assert estimated is not None
            yield (f"  {time_error(case, timing):+6.1f} %  {case.recorded.title}: "
                   f"{estimated.ns / 1e3:,.1f} us for {case.ns / 1e3:,.1f}, bound by {estimated.bound}")


def main() -> None:
    """Fit, and print the parameters and the errors."""
    parser = argparse.ArgumentParser(description="Fit gpusim/timing.py on recorded launches.")
    parser.add_argument("--launches", type=Path, help="file that keeps the simulated launches")
    parser.add_argument("--as-is", action="store_true", help="fit nothing: errors of the present parameters")
    given: Any = parser.parse_args()
    found = cases(given.launches)
    timing = H200.timing if given.as_is else fitted(found, H200.timing)
    for name, value in timing.values().items():
        was = H200.timing.values()[name]
        print(f"{name:20} {value:10.4g}" + ("" if value == was else f"   (was {was:.4g})"))
    print("\n".join(report(found, timing)))


if __name__ == "__main__":
    main()
