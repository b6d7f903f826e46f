"""How far a simulated number may lie from the measured one: a table by the metric's name.

docs/accuracy.md says why each. What it leaves out: the rounding of what ncu prints (gpusim/measured.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim import metrics
from gpusim.causes import ARBITRATION_SHARE, wavefronts
from gpusim.launch import Launch
from gpusim.metric import Metric


@dataclass(frozen=True)
class Tolerance:
    """Hold how far a simulated number may lie from the measured one: the larger of a share of the measured
    one and an amount in base units. never_above: the simulated one must not be larger."""

    share: float = 0.0
    amount: float = 0.0
    never_above: bool = False

    def holds(self, simulated: float, measured: float, rounding: float = 0.0) -> bool:
        """Return whether two numbers agree."""
        if self.never_above and simulated > measured + rounding:
            return False
        return abs(simulated - measured) <= max(self.share * abs(measured), self.amount) + rounding

    def __str__(self) -> str:
        words = [f"{self.share:.0%}"] if self.share else []
        words += [f"{self.amount:,.0f}"] if self.amount else []
        return ("-" if self.never_above else "") + " or ".join(words) if words else "0"


NONE = Tolerance()
SPECIAL: tuple[tuple[str, Tolerance], ...] = (
    ("op_red", Tolerance(0.02)),
    ("op_atom", Tolerance(0.02)),
    ("mem_shared_op", Tolerance(0.08, never_above=True)),
    ("smsp__sass_thread_inst", Tolerance(0.01)),
    ("pipe_xu", Tolerance(0.01)),
    ("op_shared", Tolerance(0.01)),
    ("lts__t_sectors_srcunit_tex_op_write", Tolerance(0.01)),
    ("dram__bytes_write", Tolerance(0.1, 3_000_000)),
    ("dram__sectors_write", Tolerance(0.1, 3_000_000 / 32)),
    ("dram__bytes", Tolerance(0.05, 160 << 10)),
    ("dram__sectors", Tolerance(0.05, (160 << 10) / 32)),
    ("hit_rate.pct", Tolerance(amount=5.0)),
)
"""Part of a name -> tolerance; the first that fits. docs/accuracy.md says why each."""
REQUESTS = ("t_requests_pipe_lsu_mem_global_op_red", "t_requests_pipe_lsu_mem_global_op_atom")


def tolerance(metric: Metric, launch: Launch) -> Tolerance:
    """Return how far a metric of a launch may lie off: nothing for exact ones, a tenth for modelled ones,
    but for SPECIAL, and for bank conflicts, of which arbitration makes a share of all wavefronts."""
    if any(name in metric.name for name in REQUESTS):
        return NONE
    if "bank_conflicts" in metric.name:
        return Tolerance(amount=ARBITRATION_SHARE * wavefronts(metric, launch))
    usual = NONE if metric.kind == metrics.EXACT or metric.name.startswith("launch__") else Tolerance(0.1)
    return next((t for part, t in SPECIAL if part in metric.name), usual)
