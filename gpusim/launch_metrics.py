"""The metrics of a launch's shape, resources and occupancy; sections Launch Statistics and Occupancy.

All follow from the launch and from gpusim/occupancy.py; none needs the kernel to have run. Achieved occupancy
is in gpusim/time_metrics.py. The names and the values were checked on every recorded launch (`launch__*`
of 237 launches).
"""

from __future__ import annotations

import math

from gpusim.launch import Launch
from gpusim.metric import EXACT, MODELLED, Formula, Metric, Value
from gpusim.occupancy import waves

STATS, OCCUPANCY = "LaunchStats", "Occupancy"
FEWER_REGISTERS = "Fewer live values a thread or loops unrolled less {} it."
SMALLER_TILES = "Smaller tiles or a narrower element type {} it."


def blocks(launch: Launch) -> int:
    """Return the blocks of the grid."""
    return launch.grid[0] * launch.grid[1] * launch.grid[2]


def threads(launch: Launch) -> int:
    """Return the threads of one block."""
    return launch.block[0] * launch.block[1] * launch.block[2]


def registers(launch: Launch) -> int:
    """Return the registers a thread takes, as ncu shows them: at least 16."""
    return max(launch.registers.per_thread, launch.arch.min_registers)


def wave_count(launch: Launch) -> float | None:
    """Return the blocks of the grid over the blocks resident at once; None where not one block fits."""
    resident = launch.occupancy.blocks_per_sm
    return waves(launch.arch, launch.grid, resident) if resident else None


def wave_efficiency(launch: Launch) -> float | None:
    """Return the percentage of block slots used when the grid runs in whole waves (133 blocks, 132 slots:
    50.4 %)."""
    count = wave_count(launch)
    return None if count is None else 100.0 * count / math.ceil(count)


def _dims() -> list[Metric]:
    made = []
    for what in ("grid", "block"):
        for axis, index in zip("xyz", range(3), strict=True):

            def read(launch: Launch, what: str = what, index: int = index) -> Value:
                return int(getattr(launch, what)[index])

            made.append(
                Metric(
                    f"launch__{what}_dim_{axis}", "", STATS, f"{what.capitalize()} Dimension {axis.upper()}",
                    EXACT, read, f"The extent of the {what} in {axis}.", "as launched")
            )
    return made


def _stat(
    name: str, unit: str, label: str, formula: Formula, counts: str, words: str = "as launched",
    excludes: str = "", advice: str = "", kind: str = EXACT, from_registers: bool = False,
) -> Metric:
    return Metric(
        name, unit, STATS, label, kind, formula, counts, words, excludes, advice,
        from_registers=from_registers)


def _shape() -> list[Metric]:
    return [
        _stat("launch__grid_size", "", "Grid Size", blocks, "Blocks of the grid.", "grid x * y * z"),
        _stat(
            "launch__block_size", "", "Block Size", threads, "Threads of a block.", "block x * y * z",
            advice="A multiple of 32 leaves no lane of a warp idle."),
        *_dims(),
        _stat(
            "launch__thread_count", "thread", "Threads", lambda x: blocks(x) * threads(x),
            "Threads of the whole grid.", "grid size * block size",
            "It does not count the idle lanes of a last, partial warp."),
    ]


def _resources() -> list[Metric]:
    return [
        _stat(
            "launch__registers_per_thread", "register/thread", "Registers Per Thread", registers,
            "Registers that a thread takes: given, recorded from a compiler, or estimated.",
            "max(registers, 16)", "It does not count predicate or uniform registers.",
            FEWER_REGISTERS.format("lower"), from_registers=True),
        _stat(
            "launch__registers_per_thread_allocated", "register/thread", "Registers Per Thread Allocated",
            lambda x: x.occupancy.registers_allocated_per_warp // x.arch.warp_size,
            "Registers that the SM sets aside for a thread.",
            "registers rounded up to a multiple of 8 (256 a warp)", from_registers=True),
        _stat(
            "launch__shared_mem_per_block_static", "byte/block", "Static Shared Memory Per Block",
            lambda x: x.static_shared_bytes, "Bytes of shared arrays of fixed shape in a block.",
            "sum of the arrays, each at its alignment"),
        _stat(
            "launch__shared_mem_per_block_dynamic", "byte/block", "Dynamic Shared Memory Per Block",
            lambda x: x.dynamic_shared_bytes, "Bytes of shared memory that the launch asks for.",
            "fourth launch parameter"),
        _stat(
            "launch__shared_mem_per_block_driver", "byte/block", "Driver Shared Memory Per Block",
            lambda x: x.arch.shared_reserved_bytes, "Bytes that the system keeps in each block.",
            "1,024 from 8.0 on"),
        _stat(
            "launch__shared_mem_per_block", "byte/block", "Shared Memory Per Block",
            lambda x: x.static_shared_bytes + x.dynamic_shared_bytes + x.arch.shared_reserved_bytes,
            "Bytes of shared memory of a block, the system's included.", "static + dynamic + driver",
            "It is not rounded."),
        _stat(
            "launch__shared_mem_per_block_allocated", "byte/block", "Shared Memory Per Block Allocated",
            lambda x: x.occupancy.shared_allocated_bytes, "Bytes of the SM that a block takes.",
            "static + dynamic + driver, rounded up to 128", advice=SMALLER_TILES.format("lower")),
        _stat(
            "launch__shared_mem_config_size", "byte", "Shared Memory Configuration Size",
            lambda x: x.occupancy.carveout_bytes,
            "The part of the SM's memory that is shared memory; L1 gets the rest.",
            "smallest configuration of at least the resident blocks' need and the driver's goal (fitted to "
            "the H200)", advice="Less shared memory leaves L1 more.", kind=MODELLED, from_registers=True),
        _stat(
            "gpusim__l1_size", "byte", "L1 Size", lambda x: x.occupancy.l1_bytes,
            "Bytes of L1 that the carve-out leaves.", "memory of the SM - launch__shared_mem_config_size",
            kind=MODELLED, from_registers=True),
        _stat(
            "launch__sm_count", "SM", "# SMs", lambda x: x.arch.sm_count, "SMs of the GPU.",
            "see gpusim/arch.py"),
        _stat(
            "launch__tpc_count", "TPC", "# TPCs", lambda x: x.arch.tpc_count, "Pairs of SMs of the GPU.",
            "see gpusim/arch.py"),
        _stat(
            "launch__waves_per_multiprocessor", "", "Waves Per SM", wave_count,
            "How many times the grid fills the GPU.", "grid size / (SMs * resident blocks an SM)",
            advice="A little over a whole number leaves most SMs idle in the last wave.", from_registers=True
        ),
        _stat(
            "gpusim__wave_efficiency.pct", "%", "Block Slots Used Over All Waves", wave_efficiency,
            "Block slots in use, if all blocks take equally long.", "waves / waves rounded up",
            "It does not see blocks of unequal length.",
            "Change the block size so that the grid fills whole waves.", from_registers=True),
    ]


def _limit(
    name: str, label: str, formula: Formula, counts: str, words: str, excludes: str = "", advice: str = "",
    kind: str = EXACT, from_registers: bool = False,
) -> Metric:
    return Metric(
        name, "block", OCCUPANCY, label, kind, formula, counts, words, excludes, advice,
        from_registers=from_registers)


def _occupancy() -> list[Metric]:
    return [
        _limit(
            "launch__occupancy_limit_blocks", "Block Limit SM", lambda x: x.occupancy.limit_blocks,
            "Blocks an SM can hold whatever they need.", "a constant of the GPU"),
        Metric(
            "launch__occupancy_limit_registers", "block", OCCUPANCY, "Block Limit Registers", EXACT,
            lambda x: x.occupancy.limit_registers, "Blocks an SM has registers for.",
            "4 * floor(16,384 / registers of a warp) / warps of a block",
            advice=FEWER_REGISTERS.format("raise"), from_registers=True),
        _limit(
            "launch__occupancy_limit_shared_mem", "Block Limit Shared Mem",
            lambda x: x.occupancy.ncu_limit_shared,
            "Blocks that fit the shared-memory configuration of this launch, as ncu has it.",
            "floor(launch__shared_mem_config_size / launch__shared_mem_per_block_allocated)", kind=MODELLED,
            excludes="It is not the limit of the SM: a larger configuration may hold more "
            "(gpusim__occupancy_limit_shared_mem).", advice=SMALLER_TILES.format("raise"),
            from_registers=True),
        _limit(
            "gpusim__occupancy_limit_shared_mem", "Block Limit Shared Mem Of The SM",
            lambda x: x.occupancy.limit_shared,
            "Blocks an SM has shared memory for, at its largest configuration.",
            "floor(shared memory of an SM / launch__shared_mem_per_block_allocated)",
            advice=SMALLER_TILES.format("raise")),
        _limit(
            "launch__occupancy_limit_warps", "Block Limit Warps", lambda x: x.occupancy.limit_warps,
            "Blocks an SM has warp slots for.", "floor(64 / warps of a block)"),
        Metric(
            "gpusim__blocks_per_sm", "block", OCCUPANCY, "Blocks Per SM", EXACT,
            lambda x: x.occupancy.blocks_per_sm, "Blocks resident on an SM at once.",
            "the smallest of the four limits of the SM", from_registers=True),
        Metric(
            "sm__maximum_warps_avg_per_active_cycle", "warp", OCCUPANCY, "Theoretical Active Warps per SM",
            EXACT, lambda x: x.occupancy.active_warps, "Warps resident on an SM at once.",
            "blocks per SM * warps of a block", from_registers=True),
        Metric(
            "sm__maximum_warps_per_active_cycle_pct", "%", OCCUPANCY, "Theoretical Occupancy", EXACT,
            lambda x: x.occupancy.theoretical_pct, "Resident warps of the most an SM can hold.",
            "100 * warps / 64", "It does not see a grid too small to fill the SMs.",
            "Raise the limit that is smallest.", from_registers=True),
    ]


METRICS: tuple[Metric, ...] = (*_shape(), *_resources(), *_occupancy())
