"""What time the parts of a GPU take: the parameters of gpusim/clock.py, each with its source.

They belong to a card and its compiler, never to a kernel. "fitted": bench/fit_clock.py chose it on the fit
set of the recorded launches, near the number of public microbenchmarks that stands there. What it leaves out:
rates that follow from the lanes in gpusim/arch.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

FIT = "fitted on recorded launches (bench/fit_clock.py), near "


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Hold latencies in cycles of an SM, rates a cycle, and the rest in the unit of the name.

    alu_cycles .. barrier_cycles: until a dependent instruction can start; l2_cycles is beyond L1 and
    dram_cycles beyond L2. line_cycles: of each further line of a request. turn_cycles: the chain of a loop's
    64-bit count. *_in_flight: loads of one warp under way where registers are short. gap_cycles: between two
    instructions of one warp; integer_gap_cycles: where the later one is an integer's.
    integers_each, checks_each: machine instructions for an integer operation of the IR and for a step of an
    index check; integers_on_alu: the part of the former that runs on the ALU and not as a multiplication.
    issue_share, l2_share, dram_share: of the peak that can be reached. lines_per_cycle: of L1.
    partial_cycles: of an L2 slice for a sector stored in part; collision_cycles: for a RED or ATOM sector of
    one line.
    launch_ns: begin and end of a launch; block_cycles: to start a block, of the whole GPU.
    lockstep: exponent of the resident blocks that share a wait for DRAM: 0 none, 1 all.
    overlap: the power in which latency, an SM's pipes and memory add up: large ones hide one another wholly.
    tail_blocks: block lengths in which an SM drains at the end; turnaround_cycles: a slot is empty between
    two blocks.
    """

    alu_cycles: float
    fp64_cycles: float
    special_cycles: float
    shared_cycles: float
    l1_cycles: float
    l2_cycles: float
    dram_cycles: float
    line_cycles: float
    shuffle_cycles: float
    tensor_cycles: float
    atomic_cycles: float
    constant_cycles: float
    barrier_cycles: float
    turn_cycles: float
    global_in_flight: float
    shared_in_flight: float
    gap_cycles: float
    integer_gap_cycles: float
    integers_each: float
    checks_each: float
    integers_on_alu: float
    issue_share: float
    lines_per_cycle: float
    l2_share: float
    dram_share: float
    partial_cycles: float
    collision_cycles: float
    launch_ns: float
    block_cycles: float
    lockstep: float
    overlap: float
    tail_blocks: float
    turnaround_cycles: float
    sources: Mapping[str, str] = field(compare=False, repr=False, default_factory=dict)

    def values(self) -> dict[str, float]:
        """Return every number by its name."""
        return {name: value for name, value in asdict(self).items() if name != "sources"}


LATENCIES = "latencies of Volta to Hopper in public microbenchmarks"
SOURCES = {
    "alu_cycles": FIT + "4: dependent FFMA, " + LATENCIES,
    "fp64_cycles": "not fitted, as no recorded launch depends on it; about 16 in public microbenchmarks",
    "special_cycles": FIT + "20: MUFU and what follows it",
    "shared_cycles": FIT + "29: " + LATENCIES,
    "l1_cycles": FIT + "38: " + LATENCIES,
    "l2_cycles": FIT + "240: an L2 hit is 260 to 280 cycles in public microbenchmarks of the H100",
    "dram_cycles": FIT + "420 beyond an L2 hit",
    "line_cycles": FIT + "1.7",
    "shuffle_cycles": FIT + "24: " + LATENCIES,
    "tensor_cycles": "not fitted; 33 of m16n8k16 in public microbenchmarks",
    "atomic_cycles": "not fitted; an L2 hit and its return",
    "constant_cycles": "not fitted; a hit of the constant cache",
    "barrier_cycles": FIT + "24",
    "turn_cycles": FIT + "34: read_behind (fact 54), 45 million cycles for 1.31 million turns",
    "global_in_flight": FIT + "1.2",
    "shared_in_flight": FIT + "4",
    "gap_cycles": FIT + "1.3",
    "integer_gap_cycles": FIT + "2: 16 lanes of integers in a quarter of an SM",
    "integers_each": "smsp__inst_executed of the fit set: 1.0 to 1.3, with checks_each",
    "checks_each": "smsp__inst_executed of the fit set: 2.5 to 3.8, with integers_each",
    "integers_on_alu": FIT + "0.7: IADD3, LEA, LOP3, ISETP against IMAD in machine code",
    "issue_share": FIT + "0.95 of one instruction a cycle and quarter",
    "lines_per_cycle": FIT + "1: one tag look-up a cycle",
    "l2_share": FIT + "0.75 of 94 slices x 64 bytes x 1.71 GHz; a read loop gets 0.85 (fact 42)",
    "dram_share": FIT + "0.85 of the data sheet's bandwidth",
    "partial_cycles": FIT + "2",
    "collision_cycles": FIT + "3: histogram_global",
    "launch_ns": FIT + "3,000: an empty kernel",
    "block_cycles": FIT + "0.1",
    "lockstep": FIT + "0.5",
    "overlap": FIT + "4",
    "tail_blocks": "fitted with turnaround_cycles on achieved occupancy (bench/fit_clock.py)",
    "turnaround_cycles": "fitted with tail_blocks on achieved occupancy (bench/fit_clock.py)",
}

HOPPER = Timing(
    alu_cycles=4.25, fp64_cycles=16, special_cycles=20.1, shared_cycles=28.6, l1_cycles=45, l2_cycles=246,
    dram_cycles=469, line_cycles=1.63, shuffle_cycles=24.6, tensor_cycles=33, atomic_cycles=300,
    constant_cycles=30, barrier_cycles=23.8, turn_cycles=53.9, global_in_flight=2.96, shared_in_flight=6.83,
    gap_cycles=1.4, integer_gap_cycles=2.96, integers_each=1.25, checks_each=3.55, integers_on_alu=0.869,
    issue_share=0.949, lines_per_cycle=0.711, l2_share=0.755, dram_share=0.869, partial_cycles=2.44,
    collision_cycles=1.71, launch_ns=2860, block_cycles=0.144, lockstep=0.937, overlap=3.21, tail_blocks=0.35,
    turnaround_cycles=900, sources=SOURCES)
OF_THE_H200 = "of the H200, for want of others"
HOPPER_UNTRIED = replace(HOPPER, sources=dict.fromkeys(SOURCES, OF_THE_H200))
AMPERE = replace(HOPPER, l2_cycles=170, dram_cycles=290, sources={
    **dict.fromkeys(SOURCES, OF_THE_H200),
    "l2_cycles": "public microbenchmarks of the A100: an L2 hit takes about 200 cycles, 33 of them L1's",
    "dram_cycles": "public microbenchmarks of the A100: DRAM is about 290 cycles beyond an L2 hit"})
