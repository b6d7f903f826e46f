"""Advice in ncu's manner: rules that look at one launch and speak where a number deserves it.

A rule is one function launch -> Advice or None; it names the number, and what to try. Tags are ncu's: OPT
(something to gain), INF (good to know), WRN (the number is not what it seems). What it leaves out: the gain
in time, which would need a model of time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpusim.counters import SharedCounts, SpaceCounts
from gpusim.launch import Launch, counter, is_counted
from gpusim.metric import bank_conflicts
from gpusim.table import counted
from gpusim.trace import SECTOR_BYTES

ENOUGH_SECTORS = 1.25
"""Speak when accesses touch this many times the sectors that their bytes fill: an offset of 4 bytes (5 for 4)
is not more.
"""
ENOUGH_WAVEFRONTS = 1.10
"""Speak when bank conflicts add 10 %; the card's own arbitration adds up to 6 % (fact 9)."""
LOW_OCCUPANCY_PCT = 50.0
LOW_L1_HIT_PCT = 5.0
FULL_ENOUGH_PCT = 90.0
"""Block slots in use over all waves, from which a tail is too small to speak of."""
LIMITER_WORDS = {
    "registers": "registers",
    "shared_mem": "shared memory",
    "warps": "warps",
    "blocks": "blocks per SM",
}
"""What each value of Occupancy.limiter is called in a sentence."""


@dataclass(frozen=True)
class Advice:
    """Hold one row of advice: tag OPT, INF or WRN.

    The identifier of the section it stands in; a heading and the text.
    """

    tag: str
    section: str
    heading: str
    text: str


Rule = Callable[[Launch], Advice | None]


def _uncoalesced(counts: SpaceCounts, what: str) -> Advice | None:
    ideal = -(-counts.bytes // SECTOR_BYTES)
    if counts.requests == 0 or counts.sectors <= ENOUGH_SECTORS * ideal:
        return None
    wasted = 100 * (1 - counts.bytes / (SECTOR_BYTES * counts.sectors))
    return Advice(
        "OPT", "MemoryWorkloadAnalysis", f"Uncoalesced Global {what.capitalize()}s",
        f"{counts.sectors / counts.requests:.1f} sectors a request where the bytes asked for fill "
        f"{ideal / counts.requests:.1f}: "
        f"{wasted:.0f} % of the {SECTOR_BYTES * counts.sectors:,} bytes moved are not used by the request "
        "that moves them. Let "
        f"neighbouring threads (threadIdx.x) {what} neighbouring elements, or stage the tile in shared "
        "memory.")


def uncoalesced_loads(launch: Launch) -> Advice | None:
    """Compare the sectors of global loads with the sectors that their bytes would fill."""
    return _uncoalesced(launch.counters.global_load, "load")


def uncoalesced_stores(launch: Launch) -> Advice | None:
    """Compare the sectors of global stores with the sectors that their bytes would fill."""
    return _uncoalesced(launch.counters.global_store, "store")


def contended_atomics(launch: Launch) -> Advice | None:
    """Compare the sectors of RED and ATOM, one for each colliding lane, with the sectors that their bytes
    would fill.
    """
    red, atom = launch.counters.global_red, launch.counters.global_atom
    sectors, requests = red.sectors + atom.sectors, red.requests + atom.requests
    ideal = -(-(red.bytes + atom.bytes) // SECTOR_BYTES)
    if requests == 0 or sectors <= 2 * ideal:
        return None
    return Advice(
        "OPT", "MemoryWorkloadAnalysis", "Global Atomics",
        f"{sectors / requests:.1f} sectors a request where {ideal / requests:.1f} would do: lanes of a warp "
        "update scattered or equal "
        f"addresses ({sectors:,} sectors in {requests:,} requests). Reduce in the warp or in shared memory "
        "first and send one update a block.")


def _conflicts(counts: SharedCounts, what: str) -> Advice | None:
    extra = bank_conflicts(counts)
    if counts.ideal_wavefronts == 0 or counts.wavefronts <= ENOUGH_WAVEFRONTS * counts.ideal_wavefronts:
        return None
    return Advice(
        "OPT", "MemoryWorkloadAnalysis", f"Shared {what.capitalize()} Bank Conflicts",
        f"{counts.wavefronts / counts.ideal_wavefronts:.1f}-way bank conflict on average: "
        f"{counts.requests:,} shared {what} requests take "
        f"{counts.wavefronts:,} wavefronts, {extra:,} of them ({100 * extra / counts.wavefronts:.0f} %) "
        "because lanes of a warp want different words of one bank "
        "(bank = byte address / 4 % 32). Pad the rows of the array by one element ([32][33] for [32][32]), "
        "or swizzle the column with the row.")


def load_bank_conflicts(launch: Launch) -> Advice | None:
    """Compare the wavefronts of shared loads with those of the same requests free of conflicts."""
    return _conflicts(launch.counters.shared_load, "load")


def matrix_bank_conflicts(launch: Launch) -> Advice | None:
    """Compare the wavefronts of ldmatrix with one a matrix."""
    counts = launch.counters.shared_matrix
    if counts.wavefronts <= ENOUGH_WAVEFRONTS * counts.ideal_wavefronts:
        return None
    return Advice(
        "OPT", "MemoryWorkloadAnalysis", "Matrix Load Bank Conflicts",
        f"{counts.requests:,} ldmatrix requests take {counts.wavefronts:,} wavefronts, "
        f"{counts.ideal_wavefronts:,} if the 8 rows of each matrix lay in different banks. Permute the "
        "16-byte chunks of a row by the row (chunk xor row % 8), or pad rows by 16 bytes.")


def store_bank_conflicts(launch: Launch) -> Advice | None:
    """Compare the wavefronts of shared stores with those of the same requests free of conflicts."""
    return _conflicts(launch.counters.shared_store, "store")


def atomic_bank_conflicts(launch: Launch) -> Advice | None:
    """Compare the wavefronts of shared atomics with those of the same requests free of conflicts."""
    return _conflicts(launch.counters.shared_atom, "atomic")


def local_memory(launch: Launch) -> Advice | None:
    """Name local memory (arrays with indices that are not constants).

    Does not see the spills of a real compiler.
    """
    load, store = launch.counters.local_load, launch.counters.local_store
    if load.requests + store.requests == 0:
        return None
    return Advice(
        "OPT", "MemoryWorkloadAnalysis", "Local Memory",
        f"{load.requests:,} loads and {store.requests:,} stores of local memory move "
        f"{SECTOR_BYTES * (load.sectors + store.sectors):,} bytes through L1: "
        "a local array is indexed by a value that is no constant after unrolling. Make its loop bounds "
        "constants, so that it stays in registers.")


def low_l1_hits(launch: Launch) -> Advice | None:
    """Say that L1 hardly hits, where blocks share data or read it again.

    Silent for streams that read each byte once.
    """
    h = launch.counters.hierarchy
    lookups = h.l1_load_hits + h.l1_load_misses
    once = launch.arch.sm_count * 1024  # fewer sectors than 32 KB an SM say nothing about reuse
    if (
        lookups <= once
        or 100 * h.l1_load_hits >= LOW_L1_HIT_PCT * lookups
        or h.dram_read_bytes * 2 > SECTOR_BYTES * lookups
    ):
        return None
    return Advice(
        "INF", "MemoryWorkloadAnalysis", "Low L1 Hit Rate",
        f"{100 * h.l1_load_hits / lookups:.1f} % of {lookups:,} sectors hit L1, though each byte from DRAM "
        "is asked for "
        f"{SECTOR_BYTES * lookups / max(1, h.dram_read_bytes):.1f} times: the reuse is between blocks or too "
        "far apart for L1, and L2 serves it. A larger tile in shared "
        f"memory or more rows a block lower this traffic.")


def shared_reads(launch: Launch) -> Advice | None:
    """Say how many reads were merged before L2, where it is a tenth of them or more."""
    h = launch.counters.hierarchy
    if 10 * h.lrc_merged < max(1, h.l1_load_misses):
        return None
    return Advice(
        "INF", "MemoryWorkloadAnalysis", "Reads Merged Before L2",
        f"{h.lrc_merged:,} of {h.l1_load_misses:,} sectors that miss L1 arrive with a read of another SM: "
        "SMs of a GPC ask for the same lines at about the same time. Which ones meet is modelled.")


def occupancy_limiter(launch: Launch) -> Advice | None:
    """Name what limits the resident blocks where theoretical occupancy is under half."""
    occupancy = launch.occupancy
    if not launch.registers.is_known or occupancy.theoretical_pct >= LOW_OCCUPANCY_PCT:
        return None
    hints = {
        "registers": f"A thread takes {launch.registers.per_thread} registers ({launch.registers.source}).",
        "shared_mem": f"A block takes {launch.static_shared_bytes + launch.dynamic_shared_bytes:,} bytes of "
                      "shared memory: smaller tiles, or narrower elements.",
        "warps": "Blocks of another size fill the warp slots better.",
        "blocks": "Blocks are small: more threads a block fill the warp slots.",
    }
    return Advice(
        "OPT",
        "Occupancy",
        "Theoretical Occupancy",
        f"{occupancy.theoretical_warps} of {launch.arch.max_warps_per_sm} warps fit an SM "
        f"({occupancy.theoretical_pct:.1f} %), limited by "
        f"{LIMITER_WORDS[occupancy.limiter]}. {hints[occupancy.limiter]}",
    )



def tail_effect(launch: Launch) -> Advice | None:
    """Name the blocks of a last wave that leaves SMs idle, or a grid with fewer blocks than SMs."""
    sms, blocks = launch.arch.sm_count, launch.grid[0] * launch.grid[1] * launch.grid[2]
    slots = sms * launch.occupancy.blocks_per_sm
    if blocks < sms:
        return Advice("OPT", "LaunchStats", "Small Grid",
                      f"{counted(blocks, 'block')} on {sms} SMs: {counted(sms - blocks, 'SM')} "
                      f"{'gets' if sms - blocks == 1 else 'get'} none. Split the work into more blocks "
                      "(smaller tiles, or another dimension of the grid).")
    waves, tail = divmod(blocks, slots)
    used = 100 * blocks / ((waves + 1) * slots)
    if not launch.registers.is_known or tail == 0 or waves == 0 or used >= FULL_ENOUGH_PCT:
        return None
    return Advice("OPT", "Occupancy", "Tail Effect",
                  f"{waves} full wave{'s' if waves > 1 else ''} of {slots:,} blocks and a last one of "
                  f"{tail:,}: {used:.1f} % of the block slots are "
                  f"used. If blocks take about the same time, a grid of a multiple of {slots:,} blocks "
                  "wastes none.")


def failed_check(launch: Launch) -> Advice | None:
    """Warn that an output is not what the reference says."""
    wrong = [check for check in launch.checks if not check.error <= check.tolerance]
    if not wrong:
        return None
    return Advice("WRN", "Validation", "Wrong Result",
                  f"{', '.join(c.output for c in wrong)} differs from the reference by more than the "
                  "tolerance: the counters may be "
                  "those of a kernel that computes something else. An infinite error is a NaN or an infinity "
                  "in the output.")


def differing(launch: Launch) -> list[str]:
    """Return the counters that are not what the closed form says."""
    return [
        path
        for path, expected in launch.closed_form.items()
        if is_counted(launch, path) and counter(launch.counters, path) != expected
    ]


def closed_form_differs(launch: Launch) -> Advice | None:
    """Warn that a counter is not what the closed form says."""
    wrong = differing(launch)
    if not wrong:
        return None
    text = f"{', '.join(wrong)}: counted and closed form are two derivations of one number, so one is wrong."
    return Advice("WRN", "Validation", "Closed Form Differs", text)


def unvalidated_gpu(launch: Launch) -> Advice | None:
    """Warn that the modelled numbers of this GPU were not held against a card."""
    if launch.arch.validated:
        return None
    return Advice("WRN", "MemoryWorkloadAnalysis", "Not Validated",
                  f"The model of the {launch.arch.title} comes from public documents alone: exact numbers "
                  "hold, modelled ones (hits, DRAM) were not compared with a card.")


RULES: tuple[Rule, ...] = (
    uncoalesced_loads,
    uncoalesced_stores,
    contended_atomics,
    load_bank_conflicts,
    store_bank_conflicts,
    atomic_bank_conflicts,
    matrix_bank_conflicts,
    local_memory,
    low_l1_hits,
    shared_reads,
    unvalidated_gpu,
    occupancy_limiter,
    tail_effect,
    failed_check,
    closed_form_differs,
)


def advise(launch: Launch) -> tuple[Advice, ...]:
    """Return what the rules have to say about a launch, in the order of the rules."""
    return tuple(advice for rule in RULES if (advice := rule(launch)) is not None)
