"""How long a launch takes: cycles from its counters, its warps' chains and its blocks, and what bounds it.

What it models: three things that hide one another in part. Latency: a warp's longest chains, block after
block in a slot. The pipes of the SM with the most blocks: issue, integers, special functions, FP64, tensor
cores, L1, fills from L2, stores. Memory: L2, DRAM, collisions of atomics. Their powers add up
(Timing.overlap), and a launch and its blocks begin at a cost. What it leaves out: the clock's changes under
load, instruction caches, order in time. All of it is modelled; docs/time_estimate.md has assumptions and
errors. Checked by `gpu__time_duration`, `sm__cycles_elapsed.max`, `sm__warps_active`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.arch import Arch
from gpusim.launch import Launch, is_counted
from gpusim.timing import Timing
from gpusim.trace import SECTOR_BYTES
from gpusim.work import Stretch, Work

FILL_SECTORS, STORE_SECTORS = 2, 2
"""Sectors a cycle that an SM gets from L2, and sends there: 64 bytes each way."""
TENSOR_FLOPS = 4096
"""FLOPs of one m16n8k16."""
CHECK_ON_ALU, TURN_ON_ALU, ENTRY_ON_ALU = 0.85, 0.8, 0.6
"""Parts of these instructions that run on the ALU, in machine code: ISETP, SEL, IADD3 against IMAD."""
WAVEFRONT_CYCLES = 2
"""More latency for each wavefront of a shared access after the first."""
NAMES = {
    "latency": "latency: too few warps hide the steps that wait for one another",
    "issue": "instructions issued", "integer": "integer instructions", "special": "special functions",
    "fp64": "64-bit arithmetic", "tensor": "tensor cores", "l1": "L1 and shared memory",
    "fill": "reads from L2 into the SMs", "store": "stores from the SMs", "l2": "L2 bandwidth",
    "dram": "DRAM bandwidth", "collisions": "atomics that meet on one line",
}  # fmt: skip
MEMORY = ("l2", "dram", "collisions")


@dataclass(frozen=True)
class Estimate:
    """Hold a launch's time: ns, cycles of an SM, achieved occupancy in percent, and the cycles that each part
    alone would take (keys of NAMES)."""

    ns: float
    cycles: float
    occupancy_pct: float
    parts: Mapping[str, float]

    @property
    def bound(self) -> str:
        """Return the part that takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])

    @property
    def bound_share(self) -> float:
        """Return which part of the time the longest part takes alone."""
        return min(1.0, self.parts[self.bound] / self.cycles)


def estimate(launch: Launch, timing: Timing | None = None) -> Estimate | None:
    """Return the time of a launch with the parameters of its GPU or others; None where the engine did not
    count what it follows from."""
    work, arch = launch.work, launch.arch
    if work is None or not launch.registers.is_known or not launch.occupancy.blocks_per_sm:
        return None
    if not (is_counted(launch, "hierarchy") and is_counted(launch, "arithmetic")):
        return None
    t = timing or arch.timing
    parts = {"latency": _latency(launch, work, t), **_pipes(launch, work, t), **_memory(launch, work, t)}
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    running = _together(parts, t.overlap) + t.block_cycles * blocks
    ns = running / arch.sm_clock_hz * 1e9 + t.launch_ns
    return Estimate(ns, ns * arch.sm_clock_hz / 1e9, _occupancy(launch, work, running, t), parts)


def _together(parts: Mapping[str, float], power: float) -> float:
    """Return the cycles of latency, pipes and memory together: the root of the sum of their powers."""
    pipes = max(cycles for name, cycles in parts.items() if name != "latency" and name not in MEMORY)
    terms = (parts["latency"], pipes, max(parts[name] for name in MEMORY))
    longest = max(terms) or 1.0
    return float(longest * sum((term / longest) ** power for term in terms) ** (1 / power))


def warps_of(launch: Launch) -> int:
    """Return the warps of a launch."""
    grid = launch.grid
    return grid[0] * grid[1] * grid[2] * launch.occupancy.warps_per_block


# ---------------------------------------------------------------------------------------- latency


def _latency(launch: Launch, work: Work, t: Timing) -> float:
    """Return the cycles that the warps of the longest block slot need, one after another, alone."""
    cycles = step_cycles(launch, work, t)
    alone = sum(_alone(s, cycles, t) for s in work.stretches)
    return alone / warps_of(launch) * work.lengths.longest_slot


def _alone(stretch: Stretch, cycles: Mapping[str, float], t: Timing) -> float:
    """Return the cycles of a stretch for a warp alone: its chain, or its instructions one by one."""
    chain = sum(steps * cycles[kind] for kind, steps in stretch.chain.items())
    issued = machine_instructions(stretch.issued, t)
    integers = sum(issued[kind] for kind in ("integer", "index", "turn", "entry"))
    others = sum(issued.values()) - integers
    return max(chain, t.gap_cycles * others + t.integer_gap_cycles * integers)


def machine_instructions(issued: Mapping[str, float], t: Timing) -> Counter[str]:
    """Return the machine instructions of each class."""
    each = {"integer": t.integers_each, "index": t.checks_each}
    return Counter({kind: n * each.get(kind, 1.0) for kind, n in issued.items()})


def step_cycles(launch: Launch, work: Work, t: Timing) -> dict[str, float]:
    """Return the cycles of each class of steps: loads as far as the caches of this launch let them go."""
    shared = t.shared_cycles + WAVEFRONT_CYCLES * max(0.0, _wavefronts_each(launch) - 1)
    load = _load_cycles(launch, work, t)
    return {
        "alu": t.alu_cycles, "fp64": t.fp64_cycles, "special": t.special_cycles, "shared": shared,
        "global": load, "local": t.l1_cycles, "shuffle": t.shuffle_cycles, "tensor": t.tensor_cycles,
        "atomic": t.atomic_cycles, "barrier": t.barrier_cycles, "constant": t.constant_cycles,
        "turn": t.turn_cycles, "queued_global": load / t.global_in_flight,
        "queued_shared": shared / t.shared_in_flight,
    }  # fmt: skip


def _load_cycles(launch: Launch, work: Work, t: Timing) -> float:
    """Return the mean latency of a load: it waits for the slowest of its lines.

    Blocks that read the same data side by side wait for DRAM together, so a sector of DRAM counts for more
    than one of their misses.
    """
    h = launch.counters.hierarchy
    lines = _lines_each(launch, work)
    misses = h.l1_load_misses
    missing = 1 - (1 - misses / max(1, h.l1_load_hits + misses)) ** lines
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    resident = min(blocks, launch.arch.sm_count * launch.occupancy.blocks_per_sm)
    sectors = (h.dram_read_bytes + h.dram_code_bytes) / SECTOR_BYTES
    from_dram = min(1.0, sectors * resident**t.lockstep / max(1, misses))
    beyond = missing * (t.l2_cycles + t.dram_cycles * from_dram)
    return float(t.l1_cycles + beyond + t.line_cycles * (lines - 1))


def _lines_each(launch: Launch, work: Work) -> float:
    c = launch.counters
    spaces = (c.global_load, c.global_store, c.global_red, c.global_atom, c.local_load, c.local_store)
    return max(1.0, work.lines / max(1, sum(s.requests for s in spaces)))


def _shared_wavefronts(launch: Launch) -> int:
    c, compiled = launch.counters, launch.as_compiled
    if compiled is None:
        return c.shared_load.wavefronts + c.shared_store.wavefronts + c.shared_atom.wavefronts
    return compiled.shared_load.wavefronts + compiled.shared_store.wavefronts + c.shared_atom.wavefronts


def _wavefronts_each(launch: Launch) -> float:
    c = launch.counters
    requests = c.shared_load.requests + c.shared_store.requests + c.shared_atom.requests
    return _shared_wavefronts(launch) / max(1, requests)


# ---------------------------------------------------------------------------------------- throughput


def _pipes(launch: Launch, work: Work, t: Timing) -> dict[str, float]:
    """Return the cycles of each pipe of the SM that has the most to do."""
    arch, c, h = launch.arch, launch.counters, launch.counters.hierarchy
    warp, share = arch.warp_size, _fullest_share(launch, work)
    total: Counter[str] = Counter()
    for stretch in work.stretches:
        total.update(machine_instructions(stretch.issued, t))
    alu = (t.integers_on_alu * total["integer"] + CHECK_ON_ALU * total["index"] + TURN_ON_ALU * total["turn"]
           + ENTRY_ON_ALU * total["entry"])  # fmt: skip
    special = max(c.arithmetic.xu_warps, total["special"])
    mma = c.tensor.f16 + c.tensor.bf16 + c.tensor.tf32 / 2 + 2 * c.tensor.fp8
    cycles = {
        "issue": sum(total.values()) / arch.quarters_per_sm * _unevenness(launch) / t.issue_share,
        "integer": alu * warp / arch.int32_lanes,
        "special": special * warp / arch.xu_lanes,
        "fp64": total["fp64"] * warp / arch.fp64_lanes,
        "tensor": mma * TENSOR_FLOPS / arch.tensor_f16_flops_per_cycle,
        "l1": _shared_wavefronts(launch) + work.lines / t.lines_per_cycle,
        "fill": h.l1_load_misses / FILL_SECTORS,
        "store": (c.global_store.sectors + c.local_store.sectors) / STORE_SECTORS,
    }
    return {name: float(n * share) for name, n in cycles.items()}


def _fullest_share(launch: Launch, work: Work) -> float:
    """Return which part of the launch's work the SM with the most of it does."""
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    return work.lengths.fullest_sm / blocks


def _unevenness(launch: Launch) -> float:
    """Return warps of the fullest quarter of an SM over those of the mean one."""
    quarters, blocks = launch.arch.quarters_per_sm, launch.grid[0] * launch.grid[1] * launch.grid[2]
    resident = min(launch.occupancy.blocks_per_sm, -(-blocks // launch.arch.sm_count))
    warps = resident * launch.occupancy.warps_per_block
    return -(-warps // quarters) * quarters / warps


def _memory(launch: Launch, work: Work, t: Timing) -> dict[str, float]:
    """Return the cycles of what all SMs share."""
    arch, h, stores = launch.arch, launch.counters.hierarchy, launch.counters.global_store
    hz = arch.sm_clock_hz
    moved = h.dram_read_bytes + h.dram_code_bytes + h.dram_write_bytes
    in_part = max(0.0, stores.sectors - stores.bytes / SECTOR_BYTES)
    sectors = h.l2_read + h.l2_write + h.l2_red + h.l2_atom
    peak = l2_peak(arch)
    return {
        "l2": sectors * SECTOR_BYTES / (peak * t.l2_share) * hz + t.partial_cycles * in_part / slices(arch),
        "dram": moved / (arch.dram_bytes_per_second * t.dram_share) * hz,
        "collisions": work.hot_line_sectors * t.collision_cycles,
    }


SLICE_BYTES_PER_SECOND = 64 * 1_710_000_000
"""Of one L2 slice of the H200 (fact 42)."""


def l2_peak(arch: Arch) -> float:
    """Return the bytes a second from L2; where nobody says, 64 a cycle for each SM."""
    return float(arch.l2_bytes_per_second or 64 * arch.sm_count * arch.sm_clock_hz)


def slices(arch: Arch) -> float:
    """Return how many slices as fast as the H200's make the L2's peak: 94 of the H200."""
    return l2_peak(arch) / SLICE_BYTES_PER_SECOND


# ---------------------------------------------------------------------------------------- occupancy


def _occupancy(launch: Launch, work: Work, cycles: float, t: Timing) -> float:
    """Return the warps of a mean cycle in which an SM has any, in percent of the most it holds.

    Blocks that all start at once: their lengths over the spans of the SMs. More blocks: each slot is empty
    for a while between two of them, and at the end while the last ones drain.
    """
    blocks, o = launch.grid[0] * launch.grid[1] * launch.grid[2], launch.occupancy
    slots = launch.arch.sm_count * o.blocks_per_sm
    scale = 100.0 * o.warps_per_block / launch.arch.max_warps_per_sm
    if blocks <= slots:
        return scale * blocks / work.lengths.sm_spans
    rounds = blocks / slots
    busy = rounds + t.tail_blocks
    if work.lengths.longest_slot > -(-blocks // slots):
        busy = max(busy, work.lengths.longest_slot)
    block = cycles / busy
    return scale * o.blocks_per_sm * rounds / busy * block / (block + t.turnaround_cycles)
