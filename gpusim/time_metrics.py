"""The metrics of time: duration, cycles, achieved occupancy, throughput in percent, the roofline's position.

All are modelled: gpusim/clock.py estimates a time from the counters. What it leaves out: frequencies under
load, stalls by reason, throughput of units that have no part of their own in the estimate.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusim.clock import Estimate, estimate
from gpusim.compute_metrics import dram_bytes, fp32_flops, fp64_flops
from gpusim.launch import Launch
from gpusim.metric import MODELLED, Formula, Metric, NotCounted

SPEED, OCCUPANCY, MEMORY, ROOFLINE = (
    "SpeedOfLight", "Occupancy", "MemoryWorkloadAnalysis", "SpeedOfLight_RooflineChart")
ESTIMATED = "docs/time_estimate.md"
PIPES = ("issue", "integer", "special", "fp64", "tensor")


def estimated(launch: Launch) -> Estimate:
    """Return the estimate of a launch; raise NotCounted where there is none."""
    found = estimate(launch)
    if found is None:
        raise NotCounted("work")
    return found


def sm_busy_pct(launch: Launch) -> float:
    """Return the percentage of the time that the busiest arithmetic pipe takes."""
    found = estimated(launch)
    return min(100.0, 100.0 * max(found.parts[name] for name in PIPES) / found.cycles)


def _metric(name: str, unit: str, section: str, label: str, formula: Formula, counts: str,
            words: str = ESTIMATED, excludes: str = "", advice: str = "") -> Metric:  # fmt: skip
    return Metric(name, unit, section, label, MODELLED, formula, counts, words, excludes, advice,
                  from_registers=True)


def _per_second(amount: Callable[[Launch], float]) -> Formula:
    return lambda launch: amount(launch) / estimated(launch).ns * 1e9


def _of_peak(amount: Callable[[Launch], float], peak: str) -> Formula:
    rate = _per_second(amount)
    return lambda launch: 100.0 * float(rate(launch) or 0) / float(getattr(launch.arch, peak))


def _speed() -> list[Metric]:
    return [
        _metric("gpu__time_duration.sum", "ns", SPEED, "Duration", lambda x: round(estimated(x).ns),
                "Time from the begin of the launch to its end.",
                excludes="It does not see clocks that fall under load."),
        _metric("sm__cycles_elapsed.max", "cycle", SPEED, "Elapsed Cycles",
                lambda x: round(estimated(x).cycles),
                "Cycles of an SM in that time.", "duration * clock of the SMs"),
        _metric("gpusim__longest_part.pct", "%", SPEED, "Longest Part",
                lambda x: 100.0 * estimated(x).bound_share,
                "Part of the time that what bounds the launch would take alone.",
                advice="The report names what it is."),
        _metric("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%", SPEED, "DRAM Throughput",
                _of_peak(dram_bytes, "dram_bytes_per_second"), "Bytes of DRAM a second, of the peak.",
                "dram__bytes / duration / bandwidth of the data sheet"),
        _metric("dram__bytes.sum.per_second", "byte/second", MEMORY, "Memory Throughput",
                lambda x: round(dram_bytes(x) / estimated(x).ns * 1e9), "Bytes of DRAM a second.",
                "dram__bytes / duration"),
    ]  # fmt: skip


def _occupancy() -> list[Metric]:
    return [
        _metric("sm__warps_active.avg.pct_of_peak_sustained_active", "%", OCCUPANCY, "Achieved Occupancy",
                lambda x: estimated(x).occupancy_pct,
                "Warps that are resident in an average cycle in which an SM has any.",
                excludes="It sees blocks of unequal length by their requests alone.",
                advice="More blocks than fit at once, and of equal length, keep the SMs full."),
        _metric("sm__warps_active.avg.per_cycle_active", "warp", OCCUPANCY, "Achieved Active Warps Per SM",
                lambda x: estimated(x).occupancy_pct * x.arch.max_warps_per_sm / 100,
                "The same in warps of an SM."),
    ]  # fmt: skip


def _roofline() -> list[Metric]:
    rows: list[tuple[str, Callable[[Launch], float]]] = [("fp32", fp32_flops), ("fp64", fp64_flops)]
    return [
        _metric(f"gpusim__roofline_achieved_{name}.pct", "%", ROOFLINE, f"{name.upper()} Peak Achieved",
                _of_peak(flops, f"{name}_flops_per_second"),
                f"{name.upper()} FLOPs a second, of the peak: where the launch stands under the roof.",
                f"{name.upper()} FLOPs / duration / peak of the data sheet")
        for name, flops in rows
    ]  # fmt: skip


METRICS: tuple[Metric, ...] = (*_speed(), *_occupancy(), *_roofline())
