"""What a card reached, for a roofline: FLOPs a byte at each level, and FLOPs over the time that ncu gave.

The metrics are those that the simulated launches have too, so both lie in one picture. ncu counts a packed
HFMA2 as one instruction: FLOPs of packed halves come out as half. What it leaves out: reading files
(gpusim/measured.py), drawing (roofline.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.beside import partners
from gpusim.errors import BadOption
from gpusim.measured import Measured
from gpusim.trace import SECTOR_BYTES
from visualize.run import Run

TIME = "gpu__time_duration.sum"
FLOPS = {f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": 2 if op.endswith("fma") else 1
         for op in ("ffma", "fmul", "fadd", "dfma", "dmul", "dadd", "hfma", "hmul", "hadd")}  # fmt: skip
FLOPS |= {f"sm__ops_path_tensor_src_{kind}.sum": 1
          for kind in ("fp16", "bf16_dst_fp32", "tf32_dst_fp32", "fp8")}  # fmt: skip
"""Metric -> FLOPs of one."""
SIMULATED = {"sm__ops_path_tensor_src_fp8.sum": "gpusim__mma_fp8.sum"}
"""Metric of a card -> what is 0 in the simulation where that is, where the simulation has no such number."""
GLOBAL, LOCAL = ("ld", "st", "red", "atom"), ("ld", "st")
BYTES = {
    "L1": {f"l1tex__t_sectors_pipe_lsu_mem_{space}_op_{op}.sum": SECTOR_BYTES
           for space, ops in (("global", GLOBAL), ("local", LOCAL)) for op in ops},
    "L2": {"lts__t_sectors_srcunit_tex.sum": SECTOR_BYTES},
    "DRAM": {"dram__bytes_read.sum": 1, "dram__bytes_write.sum": 1},
}  # fmt: skip
"""Level -> metric -> bytes of one."""


@dataclass(frozen=True)
class Reached:
    """Hold what the launches of a run reached on a card: FLOP/byte by level (levels that were measured and
    have traffic), FLOP/s; run: its number in the picture; label: what the measurement is called."""

    run: int
    label: str
    intensity: dict[str, float]
    flops_per_second: float


def reached(run: Run, number: int, label: str, measured: Sequence[Measured]) -> Reached:
    """Return what a card reached with the launches of a run; label: what the picture calls the measurement.

    Raise BadOption where these are not the run's launches, or what was measured does not tell.
    """
    cards = _same_launches(run, label, measured)
    seconds = 1e-9 * _sum(run, label, cards, {TIME: 1})
    flops = _sum(run, label, cards, FLOPS)
    moved = {level: _sum(run, label, cards, own) for level, own in BYTES.items() if _is_measured(cards, own)}
    intensity = {level: flops / nbytes for level, nbytes in moved.items() if nbytes}
    if not flops or not intensity:
        raise BadOption(f"roofline: {label} has no FLOPs or no bytes of {run.title}")
    return Reached(number, label, intensity, flops / seconds)


def _same_launches(run: Run, label: str, measured: Sequence[Measured]) -> Sequence[Measured]:
    cards = partners(run.launches, measured)
    if len(cards) != len(run.launches):
        raise BadOption(f"roofline: {run.title} has {len(run.launches)} launches and {label} {len(cards)} of "
                        "that name; measure the same launches, each once")
    for launch, card in zip(run.launches, cards, strict=True):
        name = card.header.get("card", "")
        if name and launch.arch.name.lower() not in name.lower():
            raise BadOption(f"roofline: {run.title} was simulated on the {launch.arch.title} and measured on "
                            f"the {name}; choose it with --gpu")
        if launch.l2 != card.l2:
            raise BadOption(f"roofline: {run.title} was simulated with {launch.l2} caches and measured with "
                            f"{card.l2} ones; simulate with --l2 {card.l2}")
    return cards


def _is_measured(cards: Sequence[Measured], metrics: dict[str, int]) -> bool:
    return all(any(name in card.values for name in metrics) for card in cards)


def _sum(run: Run, label: str, cards: Sequence[Measured], metrics: dict[str, int]) -> float:
    """Return the sum of metrics over launches, each times its factor.

    One that was not measured is 0 only where it is 0 in the simulation; raise BadOption elsewhere.
    """
    total = 0.0
    for name, each in metrics.items():
        for card in cards:
            if name not in card.values and run.value(SIMULATED.get(name, name)) != 0:
                raise BadOption(f"roofline: {label} does not tell {name} of {run.title}; measure it too")
            total += each * card.values.get(name, 0)
    return total
