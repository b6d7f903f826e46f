"""Occupancy: how many blocks of a launch share an SM, what limits them, and whether the launch can run at
all.

What it models: the four limits of a block (blocks, registers, shared memory, warps), exactly as
cudaOccupancyMaxActiveBlocksPerMultiprocessor answers on the H200 (every recorded row), and the shared-memory
carve-out, which is modelled. What it leaves out: clusters, cooperative launches, barriers as a resource;
achieved occupancy is in gpusim/clock.py. Checked by `launch__occupancy_limit_*`,
`launch__waves_per_multiprocessor`, `sm__maximum_warps_per_active_cycle_pct`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.arch import Arch
from gpusim.errors import LaunchRefused

CARVEOUT_GOAL_BYTES = 132 * 1024
"""The driver grants up to twice what the blocks need, but no more than this beyond the need (fitted, see
carveout)."""
NO_SHARED_GOAL_BYTES = 32 * 1024
NO_SHARED_BYTES_PER_BLOCK = 4 * 1024

Dim = tuple[int, int, int]


@dataclass(frozen=True)
class Occupancy:
    """Hold what fits an SM. limit_*: blocks that each resource alone would allow; blocks_per_sm is the
    smallest.

    limiters: the resources at the minimum, of registers, shared_mem, warps, blocks. theoretical_pct: active
    warps of the most an SM holds. shared_allocated_bytes: of one block, with the reserved 1,024, rounded up.
    carveout_bytes (modelled): the SM's shared-memory configuration; l1_bytes: what it leaves to L1.
    ncu_limit_shared: ncu's launch__occupancy_limit_shared_mem, blocks that fit the carve-out; limit_shared is
    of the whole SM instead.
    """

    threads: int
    warps_per_block: int
    limit_blocks: int
    limit_registers: int
    limit_shared: int
    limit_warps: int
    blocks_per_sm: int
    limiters: tuple[str, ...]
    active_warps: int
    theoretical_pct: float
    registers_allocated_per_warp: int
    shared_allocated_bytes: int
    carveout_bytes: int
    l1_bytes: int
    ncu_limit_shared: int

    @property
    def limiter(self) -> str:
        """Return the first of `limiters`."""
        return self.limiters[0]

    @property
    def theoretical_warps(self) -> int:
        """Return the resident warps of an SM, under ncu's label."""
        return self.active_warps


def occupancy(arch: Arch, threads: int, registers: int, static_shared: int, dynamic_shared: int) -> Occupancy:
    """Return what fits an SM of blocks with `threads` threads, `registers` a thread and so many bytes of
    shared memory.

    Never raises: 0 blocks is an answer, which check_launch turns into a message. Source: recorded API rows of
    the H200.
    """
    warps = -(-threads // arch.warp_size)
    allocated = shared_allocation(arch, static_shared + dynamic_shared)
    limits = {
        "registers": register_limit(arch, warps, registers),
        "shared_mem": arch.shared_bytes_per_sm // allocated,
        "warps": arch.max_warps_per_sm // warps,
        "blocks": arch.max_blocks_per_sm,
    }
    blocks = min(limits.values())
    config = carveout(arch, blocks, allocated, static_shared + dynamic_shared)
    return Occupancy(
        threads=threads, warps_per_block=warps,
        limit_blocks=limits["blocks"], limit_registers=limits["registers"],
        limit_shared=limits["shared_mem"], limit_warps=limits["warps"], blocks_per_sm=blocks,
        limiters=tuple(name for name, limit in limits.items() if limit == blocks),
        active_warps=blocks * warps, theoretical_pct=100.0 * blocks * warps / arch.max_warps_per_sm,
        registers_allocated_per_warp=registers_per_warp(arch, registers), shared_allocated_bytes=allocated,
        carveout_bytes=config, l1_bytes=arch.l1_total_bytes - config, ncu_limit_shared=config // allocated)


def registers_per_warp(arch: Arch, registers: int) -> int:
    """Return the registers a warp takes: those of its threads, at least 16 each, rounded up to the
    allocation unit (256)."""
    return _round_up(max(registers, arch.min_registers) * arch.warp_size, arch.register_allocation_unit)


def register_limit(arch: Arch, warps: int, registers: int) -> int:
    """Return the blocks whose registers fit an SM; a warp lives in one quarter, so each quarter holds a
    whole number of them."""
    per_quarter = arch.registers_per_quarter // registers_per_warp(arch, registers)
    return arch.quarters_per_sm * per_quarter // warps


def shared_allocation(arch: Arch, user_bytes: int) -> int:
    """Return the shared memory a block takes: its own and the reserved 1,024 bytes, rounded up to 128."""
    return _round_up(user_bytes + arch.shared_reserved_bytes, arch.shared_granularity_bytes)


def carveout(arch: Arch, blocks: int, allocated_bytes: int, user_bytes: int) -> int:
    """Return the shared-memory configuration of an SM that a launch gets; modelled.

    A rule fitted to the H200: the smallest configuration of at least what the resident blocks need and at
    least the goal. The goal is twice the need up to 132 KB, or, for kernels with no shared memory, 4 KB a
    block up to 32 KB. It gives 236 of the 237 recorded rows (the odd one: 16 bytes of dynamic shared memory,
    64 KB here and 32 KB there). Plainly the smallest that fits gives 128 of them.
    """
    need = max(blocks, 1) * allocated_bytes
    if user_bytes == 0:
        goal = min(blocks * NO_SHARED_BYTES_PER_BLOCK, NO_SHARED_GOAL_BYTES)
    else:
        goal = min(2 * need, CARVEOUT_GOAL_BYTES)
    wanted = max(need, goal)
    return next((c for c in arch.carveouts_bytes if c >= wanted), arch.carveouts_bytes[-1])


def waves(arch: Arch, grid: Dim, blocks_per_sm: int) -> float:
    """Return launch__waves_per_multiprocessor: blocks of the grid over the blocks that are resident at
    once."""
    return grid[0] * grid[1] * grid[2] / (arch.sm_count * blocks_per_sm)


def check_launch(arch: Arch, grid: Dim, block: Dim, static_shared: int, dynamic_shared: int, registers: int,
                 buffers: Sequence[tuple[str, int]] = (), kernel: str = "", source: str = "") -> None:
    """Raise LaunchRefused, with the limit and what to do, for a launch that this GPU would not run.

    buffers: (name, bytes) of the static shared arrays, listed where shared memory is the trouble. kernel: its
    name, to begin with. source: where the register count comes from, as in gpusim.launch.Registers.
    """
    try:
        _check_dims(arch, grid, block)
        _check_shared(arch, static_shared, dynamic_shared, buffers)
        _check_registers(arch, block[0] * block[1] * block[2], registers, source)
    except LaunchRefused as error:
        raise LaunchRefused(f"{kernel}: {error}" if kernel else str(error)) from None


def _check_dims(arch: Arch, grid: Dim, block: Dim) -> None:
    for what, dims, limits in (("grid", grid, arch.max_grid_dim), ("block", block, arch.max_block_dim)):
        for axis, extent, limit in zip("xyz", dims, limits, strict=True):
            if extent < 1:
                raise LaunchRefused(f"{what} dimension {axis} is {extent} in {what} {dims}; each must be at "
                                    "least 1. An empty problem needs no launch.")
            if extent > limit and (what == "grid" or axis == "z"):
                raise LaunchRefused(f"{what} dimension {axis} is {extent:,} in {what} {dims}; {arch.title} "
                                    f"takes at most {limit:,}. Put more of the work on dimension x.")
    threads = block[0] * block[1] * block[2]
    if threads > arch.max_threads_per_block:
        raise LaunchRefused(f"{threads:,} threads a block in block {block}; {arch.title} takes at most "
                            f"{arch.max_threads_per_block:,}. Use smaller blocks and a larger grid.")


def _check_shared(arch: Arch, static: int, dynamic: int, buffers: Sequence[tuple[str, int]]) -> None:
    own = ("dynamic", dynamic)  # a caller may have listed it already
    listed = [*buffers, *([own] if dynamic and buffers and own not in buffers else [])]
    names = " (" + ", ".join(f"{name} {size:,}" for name, size in listed) + ")" if listed else ""
    if dynamic < 0:
        raise LaunchRefused(f"{dynamic:,} bytes of dynamic shared memory; it must be 0 or more.")
    total, most = static + dynamic, arch.shared_bytes_per_block_optin
    if static > arch.shared_bytes_static_limit:
        raise LaunchRefused(
            f"{static:,} bytes of static shared memory a block{names}; shared arrays of fixed shape take at "
            f"most {arch.shared_bytes_static_limit:,} together. Use smaller tiles, or dynamic shared memory "
            f"(shape 0, its bytes as the fourth launch parameter), of which {arch.title} gives a block up to "
            f"{most:,}.")
    if total > most:
        raise LaunchRefused(
            f"{total:,} bytes of shared memory a block, {static:,} static and {dynamic:,} dynamic{names}; "
            f"{arch.title} takes at most {most:,}, with opt-in. Use smaller tiles or a narrower element "
            "type.")


def _check_registers(arch: Arch, threads: int, registers: int, source: str) -> None:
    if registers < 1:
        raise LaunchRefused(f"{registers} registers a thread; it must be at least 1.")
    if registers > arch.max_registers_per_thread:
        raise LaunchRefused(f"{registers} registers a thread; {arch.title} has at most "
                            f"{arch.max_registers_per_thread}.")
    warps = -(-threads // arch.warp_size)
    if register_limit(arch, warps, registers) == 0:
        said, instead = _sureness(source)
        fit = arch.quarters_per_sm * (arch.registers_per_quarter // registers_per_warp(arch, registers))
        raise LaunchRefused(
            f"{registers} registers a thread{said} and {threads:,} threads a block: a warp takes "
            f"{registers_per_warp(arch, registers):,} registers, so {fit} warps fit an SM of "
            f"{arch.registers_per_sm:,} and the block has {warps}. Use at most {fit * arch.warp_size} "
            f"threads a block, or fewer registers{instead}.")


def _sureness(source: str) -> tuple[str, str]:
    """Return what to say behind a register count that may be wrong, and of what to do; "" for a sure one."""
    if source in ("", "given", "recorded"):
        return "", ""
    return f" ({source})", "; --regs N sets the compiler's own"


def opt_in_note(arch: Arch, static: int, dynamic: int) -> str | None:
    """Return a sentence where a block's shared memory is over 48 KB, which CUDA C++ grants only after an
    opt-in; else None.

    The card runs such a launch, so this is a note and no refusal.
    """
    total = static + dynamic
    if total <= arch.shared_bytes_static_limit:
        return None
    return (f"shared memory needs opt-in ({total:,} > {arch.shared_bytes_static_limit:,}): in CUDA C++ set "
            f"cudaFuncAttributeMaxDynamicSharedMemorySize; at most {arch.shared_bytes_per_block_optin:,} on "
            f"{arch.title}.")


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
