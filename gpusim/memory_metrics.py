"""The metrics of memory accesses at L1: global, local and shared, and their warp instructions.

Requests and sectors are arithmetic on addresses and equal the card's to the last one; hits follow the model
of L1. Shared loads and stores have ncu's names as compiled, which the card counts, and names of ours as
written. What it leaves out: texture and surface accesses, and every throughput (time).
"""

from __future__ import annotations

from gpusim.counters import Issued, SharedCounts
from gpusim.launch import Launch
from gpusim.metric import (
    EXACT,
    MODELLED,
    UNAVAILABLE,
    Formula,
    Metric,
    Value,
    as_compiled,
    bank_conflicts,
    issued,
    ratio,
    space,
)

HEAD, TABLES = "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables"
KINDS = {
    "ld": ("load", "Load"),
    "st": ("store", "Store"),
    "red": ("red", "Reduction"),
    "atom": ("atom", "Atomic"),
}
"""ncu's suffix -> field of Counters, label."""
COALESCE = "Let neighbouring threads access neighbouring elements: 4 sectors a request for 4-byte elements."
BANKS = "Pad the rows of the array by one element, or swizzle the column with the row."
COMPILED = ("ld", "st")
"""The kinds of shared access that compilers merge."""
RULES = "by the rules of docs/as_compiled.md"
PREDICATED_OFF = (
    "The card counts instructions with all lanes predicated off as well (softmax of 1024 x 1024: 122,880 "
    "shared loads, 40,960 of them with an active lane).")


def _table(
    name: str, unit: str, label: str, kind: str, formula: Formula, counts: str, words: str = "",
    excludes: str = "", advice: str = "", aliases: tuple[str, ...] = (),
) -> Metric:
    return Metric(name, unit, TABLES, label, kind, formula, counts, words, excludes, advice, aliases)


def _l1_space(where: str, op: str) -> list[Metric]:
    """Return requests, sectors, bytes and lanes of one kind of access to one space (global or local)."""
    field, word = KINDS[op]
    source, what = f"{where}_{field}", f"{where.capitalize()} {word}"
    colliding = op in ("red", "atom")
    rule = "each once a request, whether or not they hit."
    if colliding:
        rule = "each once for every lane of the largest group that shares one address in it."
    return [
        _table(
            f"l1tex__t_requests_pipe_lsu_mem_{where}_op_{op}.sum", "request", f"{what} Requests", EXACT,
            space(source, "requests"), f"Warp instructions ({what.lower()}) that reach L1.",
            "one a warp with an active lane", "It does not count a warp with no active lane."),
        _table(
            f"l1tex__t_sectors_pipe_lsu_mem_{where}_op_{op}.sum", "sector", f"{what} Sectors", EXACT,
            space(source, "sectors"), f"Sectors of 32 bytes that requests touch, {rule}",
            "from the 32 lane addresses and the mask",
            "It does not count the bytes of a sector that no lane uses.",
            "Spread lanes over more addresses, or reduce in the warp first." if colliding else COALESCE),
        _table(
            f"gpusim__{where}_{field}_bytes.sum", "byte", f"{what} Bytes Of Threads", EXACT,
            space(source, "bytes"), "Bytes that the threads ask for.", "active lanes * element size",
            "It does not count the rest of a sector; bytes that several lanes share count for each."),
        _table(
            f"gpusim__{where}_{field}_lanes.sum", "thread", f"{what} Lanes", EXACT, space(source, "lanes"),
            "Threads that take part.", "active lanes, summed over requests",
            "It does not count masked lanes."),
    ]


def _per_request(op: str) -> list[Metric]:
    field, word = KINDS[op]

    def sectors_per_request(launch: Launch) -> Value:
        counts = getattr(launch.counters, f"global_{field}")
        return ratio(counts.sectors, counts.requests)

    def bytes_per_sector(launch: Launch) -> Value:
        counts = getattr(launch.counters, f"global_{field}")
        return ratio(counts.bytes, counts.sectors)

    return [
        _table(
            f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{op}.ratio", "sector/request",
            f"Global {word} Sectors Per Request", EXACT, sectors_per_request,
            "How scattered the lanes of a request are.", "sectors / requests",
            "It does not say whether the sectors hit.", COALESCE),
        _table(
            f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio", "byte/sector",
            f"Global {word} Bytes Per Sector", MODELLED, bytes_per_sector,
            "How much of a sector the lanes use, of 32.", "bytes of threads / sectors",
            "It counts a byte for each lane that shares it, so a broadcast can exceed 32.", COALESCE),
    ]


def _global_hits(launch: Launch) -> Value:
    """Return the hits of global loads; None where local loads ran too, as one counter holds both."""
    return None if launch.counters.local_load.sectors else launch.counters.hierarchy.l1_load_hits


def _global_misses(launch: Launch) -> Value:
    return None if launch.counters.local_load.sectors else launch.counters.hierarchy.l1_load_misses


def _global_hit_rate(launch: Launch) -> Value:
    return None if launch.counters.local_load.sectors else _l1_hit_rate(launch)


def _l1_hit_rate(launch: Launch) -> Value:
    h = launch.counters.hierarchy
    return ratio(h.l1_load_hits, h.l1_load_hits + h.l1_load_misses, 100.0)


def _l1_hits() -> list[Metric]:
    note = "n/a where the kernel loads local memory too: the model keeps one count for both."
    reuse = "Keep the working set of an SM's resident blocks below the size of L1 (gpusim__l1_size)."
    return [
        _table(
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum", "sector",
            "Global Load Sectors That Hit L1", MODELLED, _global_hits,
            "Sectors of global loads that L1 holds.", "replay of the trace through L1", note, reuse),
        _table(
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_miss.sum", "sector",
            "Global Load Sectors That Miss L1", MODELLED, _global_misses,
            "Sectors of global loads that L1 does not hold.", "replay of the trace through L1", note, reuse),
        _table(
            "l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct", "%", "Global Load Hit Rate", MODELLED,
            _global_hit_rate, "Sectors of global loads that hit L1.", "100 * hits / (hits + misses)", note,
            reuse),
        Metric(
            "l1tex__t_sector_hit_rate.pct", "%", HEAD, "L1/TEX Hit Rate", MODELLED, _l1_hit_rate,
            "Sectors of global and local loads that hit L1.", "100 * hits / (hits + misses)",
            "It does not count stores and atomics, whose look-ups the card counts too.", reuse),
    ]


def _global_loads(launch: Launch) -> Value:
    """Return the loads of global memory that are no asynchronous copies; requests count both."""
    return launch.counters.global_load.requests - launch.counters.async_requests


def _instruction(prefix: str, where: str, op: str) -> Metric:
    field, word = KINDS[op]
    name, label = f"{prefix}_op_{where}_{op}.sum", f"{where.capitalize()} {word} Instructions"
    if where == "shared" and op in COMPILED:
        return Metric(
            name, "inst", "InstructionStats", label, MODELLED, issued(f"shared_{field}", "instructions"),
            f"Warp instructions: shared {word.lower()}s as compiled, neighbours merged into wide ones.",
            RULES, PREDICATED_OFF, "Accesses that fill aligned pieces of 16 bytes take the fewest.")
    formula = _global_loads if (where, op) == ("global", "ld") else space(f"{where}_{field}", "requests")
    return Metric(
        name, "inst", "InstructionStats", label, MODELLED, formula,
        f"Warp instructions: {where} {word.lower()}s of the kernel's source.",
        "requests: one for each access of the source by a warp with an active lane", PREDICATED_OFF,
        "Wider accesses (vector types) need fewer.")


def _instructions() -> list[Metric]:
    """Return the warp instructions under both of ncu's spellings (two metrics of ncu with one value here)."""
    pairs = [("global", "ld"), ("global", "st"), ("global", "red")]
    pairs += [("shared", "ld"), ("shared", "st"), ("shared", "atom")]
    prefixes = ("smsp__sass_inst_executed", "smsp__inst_executed")
    return [_instruction(prefix, where, op) for where, op in pairs for prefix in prefixes]


def _shared(op: str) -> list[Metric]:
    """Return the metrics of one kind of shared access: ncu's, as compiled, and ours, as written."""
    field, word = KINDS[op]
    return [*_wavefronts(op), *_as_written(f"shared_{field}", word)]


def _wavefronts(op: str) -> list[Metric]:
    """Return ncu's wavefronts and bank conflicts: of the machine's instructions, which the card counts."""
    field, word = KINDS[op]
    source, compiled = f"shared_{field}", op in COMPILED

    def counted(launch: Launch) -> Issued | SharedCounts:
        written: SharedCounts = getattr(launch.counters, source)
        return as_compiled(launch, source) if compiled else written

    def wavefronts(launch: Launch) -> Value:
        matrices = launch.counters.shared_matrix.wavefronts if op == "ld" else 0
        return counted(launch).wavefronts + matrices

    def conflicts(launch: Launch) -> Value:
        of_matrices = bank_conflicts(launch.counters.shared_matrix) if op == "ld" else 0
        return bank_conflicts(counted(launch)) + of_matrices

    kind, of_what = (MODELLED, f", as compiled ({RULES})") if compiled else (EXACT, "")
    of_what += ", ldmatrix among them" if op == "ld" else ""
    formula = wavefronts
    return [
        _table(
            f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum", "wavefront",
            f"Shared {word} Wavefronts", kind, formula,
            f"Passes through the 32 banks of 4 bytes{of_what}.", "from the 32 lane addresses and the mask",
            "It does not count arbitration, which adds up to 6 % on the card.", BANKS),
        _table(
            f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum", "wavefront",
            f"Shared {word} Bank Conflicts", kind, conflicts,
            f"Wavefronts beyond those of the same requests with no two words in one bank{of_what}.",
            "wavefronts - ideal wavefronts, of the whole launch",
            "It does not count arbitration, which ncu shows as conflicts; lanes that share a word do not "
            "conflict.", BANKS),
    ]


def _as_written(source: str, word: str) -> list[Metric]:
    def row(what: str, unit: str, label: str, counts: str, words: str, excludes: str) -> Metric:
        name, formula = f"gpusim__{source}_{what}.sum", space(source, what)
        return _table(name, unit, f"Shared {word} {label}", EXACT, formula, counts, words, excludes)

    return [
        row("requests", "request", "Requests",
            f"Warp instructions (shared {word.lower()}) with an active lane, as written.",
            "one a warp with an active lane", "It does not count a warp with no active lane."),
        row("wavefronts", "wavefront", "Wavefronts As Written",
            "Passes through the 32 banks of 4 bytes, of the accesses of the source.",
            "from the 32 lane addresses and the mask", "It does not follow what a compiler merges."),
        row("ideal_wavefronts", "wavefront", "Ideal Wavefronts",
            "Wavefronts of the same requests if lanes had consecutive addresses: one for each 128 bytes.",
            "from the lanes and the element size",
            "A request whose halves merge counts what it took, which is less."),
        row("bytes", "byte", "Bytes Of Threads", "Bytes that the threads ask for.",
            "active lanes * element size", "A broadcast counts for each lane."),
        row("lanes", "thread", "Lanes", "Threads that take part.", "active lanes, summed over requests",
            "It does not count masked lanes."),
    ]


def _shared_total() -> Metric:
    name = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
    return Metric(
        name, "wavefront", TABLES, "Shared Wavefronts", UNAVAILABLE, None,
        "Wavefronts that the card's data stage books under shared memory.",
        excludes="It is not the sum of shared loads, stores and atomics: the card counts 31,256 for a vector "
        "addition of 1,000,003 elements, which has no shared memory, and what else it holds is not known. "
        "Use its _op_ld, _op_st and _op_atom.")


def _constant() -> list[Metric]:
    """Return the metrics of constant memory (arrays from outside the kernel, and cuda.const.array_like)."""
    return [
        Metric(
            "smsp__inst_executed_op_ldc.sum", "inst", "InstructionStats", "Constant Load Instructions",
            MODELLED, space("const_load", "requests"),
            "Warp instructions: loads of constant arrays in the kernel's source.",
            "requests: one for each access of the source by a warp with an active lane",
            "It does not count parameters; the card has no instruction of its own for an element at a place "
            "that is known when compiling."),
        _table(
            "gpusim__constant_load_addresses.sum", "request", "Constant Load Addresses", EXACT,
            space("const_load", "addresses"),
            "Different addresses of each request, which the constant cache serves one after another.",
            "from the 32 lane addresses and the mask", "It does not count misses of the constant caches.",
            "Let the lanes of a warp read the same element, or copy the table to shared memory."),
        _table(
            "gpusim__constant_load_bytes.sum", "byte", "Constant Load Bytes Of Threads", EXACT,
            space("const_load", "bytes"), "Bytes that the threads ask for.", "active lanes * element size",
            "A broadcast counts for each lane."),
    ]


def _time() -> list[Metric]:
    rows = [
        ("gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed", "%", "Mem Busy"),
        ("gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed", "%", "Max Bandwidth"),
        ("sm__memory_throughput.avg.pct_of_peak_sustained_elapsed", "%", "Mem Pipes Busy"),
    ]
    return [
        Metric(
            name, unit, HEAD, label, UNAVAILABLE, None, "Traffic over time.",
            excludes="It needs more of a model of time than docs/time_estimate.md has.")
        for name, unit, label in rows
    ]


METRICS: tuple[Metric, ...] = (
    *_time(), *_l1_hits(), *(m for op in KINDS for m in _l1_space("global", op)),
    *(m for op in ("ld", "st") for m in _per_request(op)),
    *(m for op in ("ld", "st") for m in _l1_space("local", op)),
    *(m for op in ("ld", "st", "atom") for m in _shared(op)), _shared_total(), *_instructions(), *_constant())
