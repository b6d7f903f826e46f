"""What the warps of a launch issue and wait for: the input of the time estimate (gpusim/clock.py).

What it models: nothing; it names the classes and holds the numbers. dsl/passes/stretches.py makes them from
the kernel and from how often its basic blocks ran, gpusim/block_lengths.py from the trace. All of it is
modelled: a compiler orders and merges instructions by rules of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ISSUED = (
    "fp32", "half", "fp64", "integer", "index", "special", "access", "tensor", "control", "entry", "turn",
)  # fmt: skip
"""Classes of warp instructions. index: steps of an index check; entry, turn: what a loop over a range of
unknown length takes where it begins and in each turn; access: loads, stores, atomics and shuffles."""
STEPS = (
    "alu", "fp64", "special", "shared", "global", "local", "shuffle", "tensor", "atomic", "barrier",
    "constant", "turn", "queued_global", "queued_shared",
)  # fmt: skip
"""Classes of steps that a warp does one after another. queued_*: loads whose registers a load before them has
to give back first."""


@dataclass(frozen=True)
class Stretch:
    """Hold a part of a kernel between barriers and edges of loops, summed over the warps that ran it.

    issued: warp instructions by class of ISSUED. chain: steps of the longest chain of instructions that wait
    for one another, by class of STEPS.
    """

    issued: Mapping[str, float] = field(default_factory=dict)
    chain: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class BlockLengths:
    """Say how unequal the blocks of a launch are, by the requests each makes; 1 is the mean block.

    longest_slot: blocks that run one after another in the block slot that is busy longest. fullest_sm: blocks
    of the SM with the most, of the longest block at least. sm_spans: longest slots, summed over the SMs.
    """

    longest_slot: float
    fullest_sm: float
    sm_spans: float


@dataclass(frozen=True)
class Work:
    """Hold what a launch's warps issue and wait for.

    lines: 128-byte lines touched, once a request. hot_line_sectors: RED and ATOM sectors of the line with the
    most of them.
    """

    stretches: Sequence[Stretch]
    lengths: BlockLengths
    lines: int
    hot_line_sectors: int = 0
