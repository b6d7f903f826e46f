"""The metrics of ldmatrix (LDSM) and cp.async (LDGSTS): instructions, and what they do to shared memory.

ncu has their instructions apart, counts ldmatrix among the wavefronts of shared loads and cp.async among the
requests of global loads (h200 facts 36 and 37; gpusim/memory_metrics.py). What it leaves out: when copies
arrive.
"""

from __future__ import annotations

from gpusim.launch import Launch
from gpusim.metric import EXACT, MODELLED, Metric, Value, bank_conflicts, space

TABLES, INSTRUCTIONS = "MemoryWorkloadAnalysis_Tables", "InstructionStats"
SWIZZLE = "Permute the 16-byte chunks of a row by the row (chunk xor row % 8), or pad rows by 16 bytes."
NO_LANES = "The card counts instructions with all lanes predicated off too."


def _conflicts(launch: Launch) -> Value:
    return bank_conflicts(launch.counters.shared_matrix)


def _row(name: str, unit: str, label: str, field: str, what: str, counts: str, words: str) -> Metric:
    return Metric(
        f"gpusim__{field}_{name}.sum", unit, TABLES, label, EXACT, space(field, what), counts, words)


METRICS: tuple[Metric, ...] = (
    Metric(
        "smsp__inst_executed_op_ldsm.sum", "inst", INSTRUCTIONS, "Matrix Load Instructions", MODELLED,
        space("shared_matrix", "requests"), "Warp instructions: ldmatrix of the kernel's source.",
        "one a warp", NO_LANES, "ldmatrix_x4 loads four matrices in one.",
        aliases=("smsp__sass_inst_executed_op_ldsm.sum",)),
    Metric(
        "smsp__inst_executed_op_ldgsts.sum", "inst", INSTRUCTIONS, "Asynchronous Copy Instructions", MODELLED,
        space("shared_async", "requests"), "Warp instructions: cp.async of the kernel's source.",
        "one a warp with an active lane, those that take nothing from global memory too", NO_LANES,
        "Copy 16 bytes a lane."),
    Metric(
        "gpusim__shared_matrix_conflicts.sum", "wavefront", TABLES, "Matrix Load Bank Conflicts", EXACT,
        _conflicts, "Wavefronts of ldmatrix beyond one a matrix.",
        "for each matrix, the most of its 8 rows of 16 bytes that share banks, less one",
        "Equal rows do not conflict.", SWIZZLE),
    _row("wavefronts", "wavefront", "Matrix Load Wavefronts", "shared_matrix", "wavefronts",
         "Passes through the banks for ldmatrix.", "from the addresses of the 8 rows of each matrix"),
    _row("bytes", "byte", "Matrix Load Bytes", "shared_matrix", "bytes",
         "Bytes that lanes get from ldmatrix.", "128 a matrix"),
    _row("bytes", "byte", "Asynchronous Copy Bytes", "shared_async", "bytes",
         "Bytes that cp.async writes to shared memory, zeros among them.", "active lanes * bytes of a copy"),
    _row("wavefronts", "wavefront", "Asynchronous Copy Wavefronts", "shared_async", "wavefronts",
         "Passes through the banks for cp.async.ca; cp.async.cg has none on the card.",
         "those of a store, and no fewer than the source has lines"),
)
