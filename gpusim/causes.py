"""Why a measured number is not the simulated one: a list of causes, each a rule on numbers.

docs/accuracy.md has the same list with the evidence. The rules are asked in order and the first that applies
is named; "unexplained" is an answer too. What it leaves out: how much of a difference a cause explains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpusim.launch import Launch
from gpusim.measured import Measured
from gpusim.metric import Metric, Value
from gpusim.metrics import value

UNEXPLAINED = "unexplained"
ARBITRATION_SHARE = 0.08
"""The most that arbitration adds to wavefronts (fact 9: about 6 %)."""
CODE_BYTES = 160 << 10
"""The most code and constants that a recorded kernel read: 104 KB and what L2 promotes (fact 30)."""
FOUND_DIRTY_BYTES = 3_000_000
"""Launches that only read wrote back up to 2.7 MB that were dirty before them (fact 20)."""
SHORT_NS = 20_000
"""A launch below 20 us: starting and ending is a good part of it."""
MERGED_READS = 1.02
"""Sectors that a request to L2 serves on average from which reads were merged on the way (fact 16)."""
SECTOR_BYTES = 32


@dataclass(frozen=True)
class Difference:
    """Hold one metric of a simulated launch and of the measured one, whose values differ."""

    metric: Metric
    simulated: float
    measured: float
    launch: Launch
    card: Measured

    @property
    def more(self) -> float:
        """Return what the card counted beyond the simulator."""
        return self.measured - self.simulated

    def named(self, *parts: str) -> bool:
        """Return whether the metric's name has one of some parts."""
        return any(part in self.metric.name for part in parts)

    def card_has(self, name: str) -> float:
        """Return what the card counted for a metric, 0 where the file does not say."""
        return float(self.card.values.get(name, 0))


def spilled_sectors(card: Measured, launch: Launch) -> float:
    """Return the sectors of local memory at L1 that the card counted beyond the simulator, in both
    directions."""
    return sum(_more_local(card, launch, op) for op in ("ld", "st"))


def _more_local(card: Measured, launch: Launch, op: str) -> float:
    name = f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum"
    return max(0.0, card.values.get(name, 0) - (value(launch, name) or 0))


def _rate_of_a_short_kernel(d: Difference) -> bool:
    """Occupancy is not meant: it follows from the launch, or is averaged over active cycles alone."""
    if d.named("occupancy", "maximum_warps", "warps_active"):
        return False
    time = d.card_has("gpu__time_duration.sum")
    return 0 < time < SHORT_NS and (d.named(".pct", "cycles", "time_duration") or d.metric.unit == "%")


def _spills(d: Difference) -> bool:
    return d.named("local_op", "lts__", "dram__", "l1tex__t_sector_hit") and spilled_sectors(
        d.card, d.launch) > 0


def _merged_loads(d: Difference) -> bool:
    return d.more < 0 and d.named("shared_op_ld", "op_shared_ld", "op_shared_st", "shared_op_st",
                                  "requests_pipe_lsu_mem_global_op")


def wavefronts(metric: Metric, launch: Launch) -> float:
    """Return the simulated wavefronts of the shared accesses that a metric is of."""
    name = metric.name.replace("data_bank_conflicts_pipe_lsu_mem", "data_pipe_lsu_wavefronts_mem")
    return float(value(launch, name) or 0)


def _arbitration(d: Difference) -> bool:
    return d.named("wavefronts_mem_shared", "bank_conflicts") and (
        0 < d.more <= ARBITRATION_SHARE * wavefronts(d.metric, d.launch))


def _request_coalescer(d: Difference) -> bool:
    """Reads of several SMs become one on both sides, and which ones meet is a matter of time."""
    if not d.named("lts__t_sector", "lts__t_request", "lrc__") or d.named("write", "red", "atom"):
        return False
    hierarchy = d.launch.counters.hierarchy
    ratio = d.card.values.get("lrc__average_xbar2gpc_sectors_op_read.ratio")
    if ratio is not None:
        return ratio > MERGED_READS or hierarchy.lrc_merged > 0
    return hierarchy.lrc_merged > 0 or hierarchy.l2_read * SECTOR_BYTES > 1.5 * hierarchy.dram_read_bytes


def _in_bytes(d: Difference) -> float:
    return d.more * (SECTOR_BYTES if d.metric.unit == "sector" else 1)


def _code(d: Difference) -> bool:
    return d.named("dram__bytes_read", "dram__sectors_read", "dram__bytes.sum") and abs(
        _in_bytes(d)) <= CODE_BYTES


def _dirty_lines(d: Difference) -> bool:
    return d.named("dram__bytes_write", "dram__sectors_write") and (
        d.more < 0 or _in_bytes(d) <= FOUND_DIRTY_BYTES or d.launch.counters.hierarchy.dram_write_bytes > 0)


def _collisions(d: Difference) -> bool:
    return d.named("op_red", "op_atom") and d.metric.unit == "sector" and abs(d.more) <= 0.02 * d.simulated


def _joined_stores(d: Difference) -> bool:
    return d.named("lts__t_sectors_srcunit_tex_op_write", "lts__t_sectors_op_write") and d.more < 0


def _constants(d: Difference) -> bool:
    """ptxas makes constants with HFMA2, on the tensor pipe, also in a kernel without 16-bit arithmetic."""
    return d.named("op_hfma", "pipe_tensor") and d.simulated == 0 and d.more > 0


def _parameters(d: Difference) -> bool:
    """Each warp reads the launch's parameters with LDC; the simulator counts loads of constant arrays."""
    return d.named("op_ldc") and d.more > 0


def _more_loads(d: Difference) -> bool:
    """Tell whether the card executed more shared loads, which took more wavefronts."""
    name = "smsp__inst_executed_op_shared_ld.sum"
    return d.named("wavefronts_mem_shared_op_ld", "shared_op_ld") and d.more > 0 and (
        d.card_has(name) > float(value(d.launch, name) or 0))


def _compiled(d: Difference) -> bool:
    return _more_loads(d) or d.metric.from_registers or d.named(
        "_executed", "requests_pipe", "sectors_pipe_lsu_mem_global", "registers", "sectors_per_request")


def _whole_tiles(d: Difference) -> bool:
    return d.named("tensor_flops", "ops_path_tensor") and 0 < d.simulated < d.measured


def _tensor_path(d: Difference) -> bool:
    """8-bit floats: mma.sync takes the path of fp16, wgmma its own."""
    return d.named("ops_path_tensor") and d.launch.counters.tensor.fp8 > 0


def _time_estimate(d: Difference) -> bool:
    return d.named("time_duration", "cycles_elapsed", "warps_active", "per_second", "_throughput")


def _capacity(d: Difference) -> bool:
    return d.named("hit", "lookup_miss", "srcunit_tex_op_read", "srcunit_ltcfabric", "lts__t_sectors",
                   "dram__bytes_read", "dram__sectors_read", "dram__bytes.sum")


CAUSES: dict[str, Callable[[Difference], bool]] = {
    "spills": _spills,
    "too short a kernel": _rate_of_a_short_kernel,
    "arbitration wavefronts": _arbitration,
    "merged loads": _merged_loads,
    "merged reads (LRC)": _request_coalescer,
    "code and constants": _code,
    "dirty lines": _dirty_lines,
    "collisions": _collisions,
    "joined stores": _joined_stores,
    "path of 8-bit floats": _tensor_path,
    "whole tiles": _whole_tiles,
    "constants made by HFMA2": _constants,
    "parameters read by LDC": _parameters,
    "as compiled": _compiled,
    "time estimate": _time_estimate,
    "cache policy": _capacity,
}
"""Cause -> whether it applies to a difference, in the order in which they are asked."""


def cause(metric: Metric, simulated: Value, measured: Value, launch: Launch, card: Measured) -> str:
    """Return the first cause that applies to a difference, "unexplained" where none does, "" for none."""
    if simulated is None or measured is None or simulated == measured:
        return ""
    difference = Difference(metric, simulated, measured, launch, card)
    return next((name for name, applies in CAUSES.items() if applies(difference)), UNEXPLAINED)
