"""The sections of a report of one launch: ncu's titles and labels, every value with its unit and where it
comes from.

The last column says `exact` (arithmetic decides), `modelled` (a policy of the hardware decides, see
gpusim/arch.py), for registers `given`, `recorded` or `estimated`, and `not timed` where there is no time
estimate. Section names are ncu's identifiers; ours have names of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from gpusim import facts, metrics, shared_tables, tensor_metrics
from gpusim.advice import LIMITER_WORDS, Advice, advise
from gpusim.arch import Arch
from gpusim.clock import NAMES, estimate
from gpusim.counters import Arithmetic, Counters, Hierarchy, SpaceCounts, Tensor
from gpusim.errors import UnknownName
from gpusim.launch import UNKNOWN, Launch, counter, is_counted
from gpusim.metric import ratio
from gpusim.occupancy import Occupancy
from gpusim.scheduler import wave_statistics
from gpusim.table import Cell, Table
from gpusim.tensor_metrics import tensor_flops
from gpusim.time_metrics import sm_busy_pct
from gpusim.trace import SECTOR_BYTES

L1_HIT_RATE = "l1tex__t_sector_hit_rate.pct"
EXACT, MODELLED, NO_TIME, NOT_THERE = "exact", "modelled", "not timed", shared_tables.NOT_THERE
FLOP_CLASSES = (
    ("ffma", "FFMA", "fma", 2), ("fmul", "FMUL", "fma", 1), ("fadd", "FADD", "fma", 1),
    ("dfma", "DFMA", "fp64", 2), ("dmul", "DMUL", "fp64", 1), ("dadd", "DADD", "fp64", 1),
    ("hfma", "HFMA", "fp16", 2), ("hmul", "HMUL", "fp16", 1), ("hadd", "HADD", "fp16", 1),
)
"""Counter, instruction, pipe, FLOPs of one thread instruction."""


@dataclass(frozen=True)
class Section:
    """Hold one section: ncu's identifier and title, its tables, sentences below them, and advice."""

    identifier: str
    title: str
    tables: tuple[Table, ...]
    prose: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()


Row = tuple[str, str, Cell, str]


def metrics_table(rows: list[Row], title: str = "") -> Table:
    """Return rows of (label, unit, value, source) as ncu's three columns and one more."""
    return Table(("Metric Name", "Metric Unit", "Metric Value", "Source"), tuple(rows), "llrl", title)


def flops(arithmetic: Arithmetic) -> tuple[int, int, int]:
    """Return the FLOPs of 32-, 64- and 16-bit instructions: two for a fused multiply-add."""
    total = {"fma": 0, "fp64": 0, "fp16": 0}
    for name, _, pipe, each in FLOP_CLASSES:
        total[pipe] += each * getattr(arithmetic, name)
    return total["fma"], total["fp64"], total["fp16"]


def replayed(launch: Launch) -> bool:
    """Return whether arithmetic, L1 hits, L2 and DRAM were counted: the oracle counts accesses only."""
    return is_counted(launch, "arithmetic") and is_counted(launch, "hierarchy")


def time_source(launch: Launch) -> str:
    """Return what a number is that follows from the time estimate."""
    return MODELLED if estimate(launch) else NO_TIME


def timed(launch: Launch, name: str) -> Row:
    """Return the row of a metric of time; n/a where the engine did not count what it follows from."""
    metric = metrics.find(name)
    return metric.label, metric.unit, metrics.value(launch, name), time_source(launch)


def speed(launch: Launch) -> Section | None:
    """Return the section GPU Speed Of Light Throughput: the time estimate, and what bounds the launch.

    None where there is none.
    """
    found = estimate(launch)
    if found is None:
        return None
    rows = [timed(launch, name) for name in TIMES]
    parts = sorted(found.parts.items(), key=lambda part: -part[1])[:PARTS_SHOWN]
    table = Table(
        ("Part", "Cycles Alone", "Of The Time", "Source"),
        tuple((NAMES[name], round(cycles), min(100.0, 100 * cycles / found.cycles), MODELLED)
              for name, cycles in parts), "lrrl")  # fmt: skip
    prose = (f"Bound by {NAMES[found.bound]}, {100 * found.bound_share:.0f} % of the time. Estimated from "
             "the counters; docs/time_estimate.md says how, and how far it is off.",)
    return Section("SpeedOfLight", "GPU Speed Of Light Throughput", (metrics_table(rows), table), prose)


TIMES = (
    "gpu__time_duration.sum", "sm__cycles_elapsed.max",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "gpusim__roofline_achieved_fp32.pct")
PARTS_SHOWN = 4


def launch_statistics(launch: Launch) -> Section:
    """Return the section Launch Statistics."""
    blocks, threads = _product(launch.grid), _product(launch.block)
    occupancy, registers = launch.occupancy, launch.registers
    rows: list[Row] = [
        ("Block Size", "", threads, EXACT),
        ("Grid Size", "", blocks, EXACT),
        ("Threads", "thread", blocks * threads, EXACT),
        ("Registers Per Thread", "register/thread", known(launch, registers.per_thread), registers.source),
        ("Static Shared Memory Per Block", "byte/block", launch.static_shared_bytes, EXACT),
        ("Dynamic Shared Memory Per Block", "byte/block", launch.dynamic_shared_bytes, EXACT),
        ("Driver Shared Memory Per Block", "byte/block", launch.arch.shared_reserved_bytes, EXACT),
        ("Shared Memory Configuration Size", "byte", known(launch, occupancy.carveout_bytes), MODELLED),
        ("L1 Size Beside It", "byte", known(launch, occupancy.l1_bytes), MODELLED),
        ("# SMs", "SM", launch.arch.sm_count, EXACT),
        ("Waves Per SM", "", known(launch, ratio(blocks, launch.arch.sm_count * occupancy.blocks_per_sm)),
         sureness(launch)),
        ("L2 At The Start", "", launch.l2, "given"),
        ("Engine", "", launch.engine + (", counts only" if launch.counts_only else ""), "given"),
    ]
    if launch.quantum_records:
        rows.append(("Replay Quantum", "record", launch.quantum_records, MODELLED))
    prose = (f"Registers: {registers.source}, {registers.detail}.",) if registers.detail else ()
    return Section("LaunchStats", "Launch Statistics", (metrics_table(rows),), prose)


def _product(extents: tuple[int, int, int]) -> int:
    return extents[0] * extents[1] * extents[2]


def sureness(launch: Launch) -> str:
    """Return what a number is that follows from the registers: exact, or modelled where they are not sure."""
    return EXACT if launch.registers.is_sure else MODELLED if launch.registers.is_known else UNKNOWN


def known(launch: Launch, value: Cell) -> Cell:
    """Return a value that follows from the registers; None (n/a) where they are not known."""
    return value if launch.registers.is_known else None


def block_limits(o: Occupancy, sure: str = EXACT) -> list[Row]:
    """Return the rows that say how many blocks each resource allows, which is the least, and what that makes.

    sure: what the rows are that follow from the register count. ncu's limit of shared memory is that of the
    carve-out the launch got (modelled); what limits the blocks is that of the whole SM. What follows from
    registers that are not known is n/a.
    """
    rows: list[Row] = [
        ("Block Limit SM", "block", o.limit_blocks, EXACT),
        ("Block Limit Registers", "block", o.limit_registers, sure),
        ("Block Limit Shared Mem", "block", o.ncu_limit_shared, UNKNOWN if sure == UNKNOWN else MODELLED),
        ("Block Limit Shared Mem Of The SM", "block", o.limit_shared, EXACT),
        ("Block Limit Warps", "block", o.limit_warps, EXACT),
        ("Limited By", "", ", ".join(LIMITER_WORDS[name] for name in o.limiters), sure),
        ("Blocks Per SM", "block", o.blocks_per_sm, sure),
        ("Theoretical Active Warps per SM", "warp", o.theoretical_warps, sure),
        ("Theoretical Occupancy", "%", float(o.theoretical_pct), sure),
    ]
    return [(label, unit, None if source == UNKNOWN else value, source)
            for label, unit, value, source in rows]


def occupancy(launch: Launch) -> Section:
    """Return the section Occupancy: block limits, the limiter, waves and tail, shared memory by buffer."""
    o = launch.occupancy
    waves = wave_statistics(_product(launch.grid), o.blocks_per_sm, launch.arch.sm_count)
    rows = [
        *block_limits(o, sureness(launch)),
        timed(launch, "sm__warps_active.avg.pct_of_peak_sustained_active"),
        ("Waves", "wave", known(launch, waves.waves), sureness(launch)),
        ("Blocks In The Last Wave", "block", known(launch, waves.tail_blocks or waves.slots_per_wave),
         sureness(launch)),
        ("Block Slots Used Over All Waves", "%", known(launch, 100.0 * waves.efficiency), sureness(launch)),
    ]
    tables = (metrics_table(rows), *_buffers(launch))
    note = shared_limit_note(o) if launch.registers.is_known else ()
    return Section("Occupancy", "Occupancy", tables, (*note, *_estimate_note(launch)))


def shared_limit_note(o: Occupancy) -> tuple[str, ...]:
    """Return one sentence that says why the two limits of shared memory differ; none where they do not."""
    if o.ncu_limit_shared == o.limit_shared:
        return ()
    return (f"Shared Mem: ncu's {o.ncu_limit_shared} fit this launch's carve-out; the SM's {o.limit_shared} "
            "fit its largest, and decide.",)


def _estimate_note(launch: Launch) -> tuple[str, ...]:
    registers = launch.registers
    if registers.is_sure:
        return ()
    if not registers.is_known:
        return ("The register count is not known, and what follows from it is n/a; --regs N sets it.",)
    what = "is a modelled estimate" if registers.source == "estimated" else f"was {registers.source} and is "\
        f"modelled for compute capability {launch.arch.compute_capability}"
    return (f"The register count {what}, and the limits follow from it; --regs N sets the compiler's own.",)


def _buffers(launch: Launch) -> tuple[Table, ...]:
    rows: list[tuple[Cell, ...]] = [(name, nbytes, EXACT) for name, nbytes in launch.shared_buffers]
    if launch.dynamic_shared_bytes:
        rows.append(("(dynamic)", launch.dynamic_shared_bytes, EXACT))
    if not rows:
        return ()
    reserved = launch.arch.shared_reserved_bytes
    rows += [("(reserved by the driver)", reserved, EXACT),
             ("Total, rounded up", launch.occupancy.shared_allocated_bytes, EXACT)]
    return (Table(("Shared Buffer", "Bytes Per Block", "Source"), tuple(rows), "lrl", ruled_rows=1),)


def memory(launch: Launch) -> Section:
    """Return the section Memory Workload Analysis: rates, the table of levels, stores as three numbers,
    shared memory.
    """
    value = partial(metrics.value, launch)
    rows: list[Row] = [
        ("L1/TEX Hit Rate", "%", value(L1_HIT_RATE), MODELLED),
        ("L2 Hit Rate", "%", value("lts__t_sector_hit_rate.pct"), MODELLED),
        ("Sectors Per Request, Global Loads", "sector", _per_request(launch.counters.global_load), EXACT),
        ("Sectors Per Request, Global Stores", "sector", _per_request(launch.counters.global_store), EXACT),
        ("Bytes Stored By Threads", "byte", value("gpusim__stored_bytes.sum"), EXACT),
        ("Bytes Written Back To DRAM", "byte", value("gpusim__dram_written_back_bytes.sum"), MODELLED),
        ("Bytes Dirty In L2 At The End", "byte", value("gpusim__l2_dirty_bytes_end.sum"), MODELLED),
        timed(launch, "dram__bytes.sum.per_second"),
    ]
    shared, constant = shared_tables.shared_memory(launch), constant_memory(launch.counters)
    tables = (metrics_table(rows), levels(launch), *shared, *constant)
    return Section("MemoryWorkloadAnalysis", "Memory Workload Analysis", tables, shared_tables.note(launch))


def _per_request(counts: SpaceCounts) -> float | None:
    return ratio(counts.sectors, counts.requests)


def levels(launch: Launch) -> Table:
    """Return the memory table: a row for each kind of traffic between two levels.

    Kinds that do not occur have no row; where only L1 was counted, the others have none.
    """
    counters = launch.counters
    headers = ("Path", "Operation", "Requests", "Bytes Asked", "Sectors", "Bytes Moved", "Hit %", "Source")
    below = (*_l2_rows(counters.hierarchy), *_dram_rows(counters.hierarchy)) if replayed(launch) else ()
    return Table(headers, (*_l1_rows(launch), *below), "llrrrrrl", "Traffic by level; hit rates are "
                                                                     "modelled")


def _l1_rows(launch: Launch) -> tuple[tuple[Cell, ...], ...]:
    counters, hit = launch.counters, metrics.value(launch, L1_HIT_RATE)
    kinds = (("global load", counters.global_load, hit), ("global store", counters.global_store, ""),
             ("global RED", counters.global_red, ""), ("global ATOM", counters.global_atom, ""),
             ("local load", counters.local_load, hit), ("local store", counters.local_store, ""))
    return tuple(
        ("SM-L1", name, c.requests, c.bytes, c.sectors, SECTOR_BYTES * c.sectors, rate, EXACT)
        if is_counted(launch, name.lower().replace(" ", "_"))
        else ("SM-L1", name, None, None, None, None, rate, NOT_THERE)
        for name, c, rate in kinds
        if c.requests or name in ("global load", "global store")
        or not is_counted(launch, name.lower().replace(" ", "_"))
    )


def l2_read_hits(h: Hierarchy) -> int:
    """Return the sectors read that hit L2: stores, RED and ATOM always hit, so these are the rest of the
    hits.
    """
    return h.l2_hits - h.l2_write - h.l2_red - h.l2_atom


def _l2_rows(h: Hierarchy) -> tuple[tuple[Cell, ...], ...]:
    kinds = (("L1-L2", "read", h.l2_read, ratio(l2_read_hits(h), h.l2_read, 100), MODELLED),
             ("L1-L2", "write", h.l2_write, ratio(h.l2_write, h.l2_write, 100), EXACT),
             ("L1-L2", "RED", h.l2_red, ratio(h.l2_red, h.l2_red, 100), EXACT),
             ("L1-L2", "ATOM", h.l2_atom, ratio(h.l2_atom, h.l2_atom, 100), EXACT),
             ("L2-L2", "fabric read", h.l2_fabric_read, "", MODELLED),
             ("L2-L2", "fabric write", h.l2_fabric_write, "", MODELLED),
             ("L2-L2", "fabric RED", h.l2_fabric_red, "", MODELLED),
             ("L2-L2", "fabric ATOM", h.l2_fabric_atom, "", MODELLED))
    return tuple((path, name, "", "", sectors, SECTOR_BYTES * sectors, rate, kind)
                 for path, name, sectors, rate, kind in kinds if sectors or name in ("read", "write"))


def _dram_rows(h: Hierarchy) -> tuple[tuple[Cell, ...], ...]:
    kinds = (
        ("read data", h.dram_read_bytes),
        ("read code", h.dram_code_bytes),
        ("write back", h.dram_write_bytes),
        *((("write for others", h.dram_found_bytes),) if h.dram_found_bytes else ()),
    )
    return tuple(
        ("L2-DRAM", name, "", "", nbytes // SECTOR_BYTES, nbytes, "", MODELLED) for name, nbytes in kinds
    )


def constant_memory(counters: Counters) -> tuple[Table, ...]:
    """Return the table of constant memory: requests, and the turns that lanes with other addresses take."""
    c = counters.const_load
    headers = ("Constant", "Requests", "Bytes Asked", "Addresses", "Per Request", "Source")
    row: tuple[Cell, ...] = ("load", c.requests, c.bytes, c.addresses, ratio(c.addresses, c.requests), EXACT)
    return (Table(headers, (row,), "lrrrrl"),) if c.requests else ()


def compute(launch: Launch) -> Section | None:
    """Return the section Compute Workload Analysis: instructions by class and pipe, and FLOPs.

    None if not counted.
    """
    if not replayed(launch):
        return None
    a = launch.counters.arithmetic
    single, double, half = flops(a)
    rows: list[tuple[Cell, ...]] = [
        (name, pipe, getattr(a, field), each * getattr(a, field), EXACT)
        for field, name, pipe, each in FLOP_CLASSES if pipe == "fma" or getattr(a, field)]
    if a.hadd_cvt:
        rows.append(("HADD, float16 to float32", "fp16", a.hadd_cvt, "", EXACT))
    rows += [("MUFU", "xu", a.mufu, "", EXACT), ("integer, compare, convert", "alu", a.integer, "", MODELLED),
             ("Total", "", "", single + double + half, EXACT)]
    tables = (Table(
        ("Class", "Pipe", "Thread Instructions", "FLOPs", "Source"), tuple(rows), "llrrl", ruled_rows=1
    ), *tensor_table(launch.counters.tensor))
    summary: list[Row] = [
        ("FLOPs, 32 bit", "flop", single, EXACT),
        ("FLOPs, 64 bit", "flop", double, EXACT),
        *([("FLOPs, 16 bit", "flop", half, EXACT)] if half else []),
        ("Warp Instructions, Pipe XU", "inst", a.xu_warps, MODELLED),
        ("Barriers Passed By Warps", "warp", launch.counters.barriers, EXACT),
        ("SM Busy", "%", sm_busy_pct(launch) if estimate(launch) else None, time_source(launch)),
    ]
    return Section("ComputeWorkloadAnalysis", "Compute Workload Analysis", (metrics_table(summary), *tables))


def tensor_table(counts: Tensor) -> tuple[Table, ...]:
    """Return the table of the tensor cores' instructions by type; none where there are none."""
    rows: list[tuple[Cell, ...]] = [
        (f"mma.sync {tensor_metrics.SHAPES[name]} {name}", getattr(counts, name),
         each * getattr(counts, name), EXACT)
        for name, each in tensor_metrics.FLOPS.items() if getattr(counts, name)]
    if not rows:
        return ()
    rows.append(("Total", sum(int(row[1] or 0) for row in rows), tensor_flops(counts), EXACT))
    headers = ("Tensor Cores", "Warp Instructions", "FLOPs", "Source")
    return (Table(headers, tuple(rows), "lrrl", ruled_rows=1),)


def roofline(launch: Launch) -> Section | None:
    """Return the roofline: arithmetic intensity at each level beside the ridge of the GPU.

    None if not counted. No time is claimed. 16-bit arithmetic of one number a lane has the 32-bit peak.
    """
    if not replayed(launch):
        return None
    total, precision, peak = compute_roof(launch)
    bandwidth = memory_roofs(launch.arch)
    moved = bytes_by_level(launch.counters)
    rows: list[tuple[Cell, ...]] = []
    for level, nbytes in moved.items():
        intensity, ridge = ratio(total, nbytes), ratio(peak, bandwidth.get(level, 0))
        rows.append((level, total, nbytes, intensity, ridge, _side(intensity, ridge), _level_kind(level)))
    headers = ("Level", "FLOPs", "Bytes", "FLOP/Byte", "Ridge", "Below The Roof Of", "Source")
    unknown = "" if "L2" in bandwidth else "; that of its L2 is not known"
    prose = (f"{_roof(moved, bandwidth, total, peak)} Ridge: {precision} peak of the {launch.arch.title} / "
             f"bandwidth of the level{unknown}. No time is claimed.",)
    return Section(
        "SpeedOfLight_RooflineChart",
        "GPU Speed Of Light Roofline Chart",
        (Table(headers, tuple(rows), "lrrrrll"),),
        prose,
    )


def compute_roof(launch: Launch) -> tuple[int, str, int]:
    """Return the FLOPs of a launch, the precision that has most of them, and its peak in FLOP/s."""
    single, double, half = flops(launch.counters.arithmetic)
    of_tensor = tensor_flops(launch.counters.tensor)
    arch = launch.arch
    precision, peak = max(
        (single + half, "32-bit", arch.fp32_flops_per_second),
        (double, "64-bit", arch.fp64_flops_per_second),
        (of_tensor, "16-bit tensor", arch.tensor_flops_per_second),
        key=lambda kind: kind[0],
    )[1:]
    return single + double + half + of_tensor, precision, peak


def memory_roofs(arch: Arch) -> dict[str, int]:
    """Return the bandwidth in bytes/s of each level that has a known one: L1 (4 bytes a lane), L2, DRAM."""
    known = {
        "L1": arch.sm_count * arch.lsu_lanes * 4 * arch.sm_clock_hz,
        "L2": arch.l2_bytes_per_second,
        "DRAM": arch.dram_bytes_per_second,
    }
    return {level: rate for level, rate in known.items() if rate is not None}


def bytes_by_level(counters: Counters) -> dict[str, int]:
    """Return the bytes that move at L1 (sectors of all global and local requests), at L2, and at DRAM."""
    c, h = counters, counters.hierarchy
    spaces = (c.global_load, c.global_store, c.global_red, c.global_atom, c.local_load, c.local_store)
    return {"L1": SECTOR_BYTES * sum(s.sectors for s in spaces),
            "L2": SECTOR_BYTES * (h.l2_read + h.l2_write + h.l2_red + h.l2_atom),
            "DRAM": h.dram_bytes}


def _level_kind(level: str) -> str:
    return EXACT if level == "L1" else MODELLED


def _side(intensity: float | None, ridge: float | None) -> str | None:
    if intensity is None or ridge is None:
        return None
    return "compute" if intensity >= ridge else "memory"


def _roof(moved: dict[str, int], bandwidth: dict[str, int], total: int, peak: int) -> str:
    """Say in one sentence which of the roofs is the lowest over this launch."""
    if total == 0:
        return "No FLOPs: the launch sits under a memory roof."
    seconds = {level: moved[level] / rate for level, rate in bandwidth.items()}
    level = max(seconds, key=lambda name: seconds[name])
    if seconds[level] <= total / peak:
        return "The launch sits under the compute roof."
    return f"The launch sits under the roof of {level} bandwidth."


def validation(launch: Launch) -> Section | None:
    """Return the closed form beside the counted values, and the errors against the reference.

    None where there is neither.
    """
    tables: list[Table] = []
    if launch.closed_form:
        rows = tuple(
            _compared(launch, path, expected) for path, expected in launch.closed_form.items()
        )
        tables.append(Table(("Counter", "Closed Form", "Counted", "Verdict"), rows, "lrrl"))
    if launch.checks:
        errors = tuple(
            (c.output, c.error, c.tolerance, "OK" if c.error <= c.tolerance else "FAILED")
            for c in launch.checks
        )
        tables.append(Table(("Output", "Largest Error", "Tolerance", "Verdict"), errors, "lrrl",
                            "Error: max|x - ref| / max(1, max|ref|), ref in float64" + _excused(launch)))
    return Section("Validation", "Closed Form And Reference", tuple(tables)) if tables else None


def _excused(launch: Launch) -> str:
    """Say which errors are relative to the terms of a sum that cancels, and what was rounded elsewhere."""
    terms = ", ".join(f"{c.output} over {c.terms:.3g}" for c in launch.checks if c.terms > 1)
    others = ", ".join(f"{c.rounded:,} of {c.output}" for c in launch.checks if c.rounded)
    said = f"; terms cancel: {terms}" if terms else ""
    return said + (f"; rounded to the neighbour: {others}" if others else "")


def _compared(launch: Launch, path: str, expected: int) -> tuple[Cell, ...]:
    if not is_counted(launch, path):
        return path, expected, None, "not counted"
    counted = counter(launch.counters, path)
    return path, expected, counted, "equal" if counted == expected else "DIFFERENT"


def algorithm(launch: Launch) -> Section | None:
    """Return what the algorithm says of itself, beside what was counted.

    None where it says nothing.
    """
    if not launch.facts:
        return None
    return Section("Algorithm", "Algorithm", (facts.table(launch.facts),), facts.ratios(launch.facts))


def notes(launch: Launch) -> Section | None:
    """Return the notes of a launch (wrapped indices, the engine that ran and why).

    None where there are none.
    """
    return Section("Notes", "Notes", (), launch.notes) if launch.notes else None


def source_counters(launch: Launch) -> Section:
    """Return the counters of each source line, whether they add up, and what to try at the worst lines."""
    from gpusim import by_line, line_reasons

    if not launch.lines:
        why = f"Not told apart: the engine was {launch.engine}, and only the compiled one counts by line."
        return Section(SOURCE, SECTIONS[SOURCE][0], (), (why,))
    prose = (by_line.verdict(launch), *line_reasons.reasons(launch))
    return Section(SOURCE, SECTIONS[SOURCE][0], (by_line.table(launch),), prose)


SOURCE = "SourceCounters"
"""The section that stands in a report only where it is asked for: --by-line, or --section."""
SECTIONS: dict[str, tuple[str, Callable[[Launch], Section | None]]] = {
    "SpeedOfLight": ("GPU Speed Of Light Throughput", speed),
    "LaunchStats": ("Launch Statistics", launch_statistics),
    "Occupancy": ("Occupancy", occupancy),
    "MemoryWorkloadAnalysis": ("Memory Workload Analysis", memory),
    "ComputeWorkloadAnalysis": ("Compute Workload Analysis", compute),
    "SpeedOfLight_RooflineChart": ("GPU Speed Of Light Roofline Chart", roofline),
    "Validation": ("Closed Form And Reference", validation),
    "Algorithm": ("Algorithm", algorithm),
    "Notes": ("Notes", notes),
    SOURCE: ("Source Counters", source_counters),
}


def find_section(name: str) -> str:
    """Return the identifier of a section named by identifier or title, in any case.

    ncu's other sections that have metrics here (SpeedOfLight, InstructionStats, ...) can be asked for too.
    Raises UnknownName with all.
    """
    wanted = name.strip().lower()
    titles = {**{identifier: title for identifier, (title, _) in SECTIONS.items()}, **metrics.SECTIONS}
    for identifier, title in titles.items():
        if wanted in (identifier.lower(), title.lower()):
            return identifier
    listed = ", ".join(f"{identifier} ({title})" for identifier, title in titles.items())
    raise UnknownName(f"unknown section {name!r}; there are: {listed}")


def metric_section(launch: Launch, identifier: str) -> Section:
    """Return a section that is a plain list of its metrics, by label."""
    rows: list[Row] = [
        (name, m.unit, metrics.value(launch, m.name), metrics.kind(launch, m))
        for m, name in metrics.row_names(metrics.in_section(identifier)).items()
    ]
    return Section(identifier, metrics.SECTIONS[identifier], (metrics_table(rows),))


def build(launch: Launch, identifier: str) -> Section | None:
    """Return one section by its identifier; None where this launch has nothing to say in it."""
    if identifier not in SECTIONS:
        return metric_section(launch, identifier)
    return SECTIONS[identifier][1](launch)


def sections(launch: Launch, only: str | None = None, by_line: bool = False) -> list[Section]:
    """Return the sections of a launch with their advice.

    `only` names one of them, by_line adds Source Counters. Raises UnknownName.
    """
    wanted = [find_section(only)] if only else [name for name in SECTIONS if name != SOURCE]
    if by_line and SOURCE not in wanted:
        wanted.append(SOURCE)
    advice = advise(launch)
    found = (build(launch, identifier) or (nothing(launch, identifier) if only else None)
             for identifier in wanted)
    return [
        replace(s, advice=tuple(a for a in advice if a.section == s.identifier))
        for s in found
        if s is not None
    ]


def nothing(launch: Launch, identifier: str) -> Section:
    """Return a section that was asked for by name and in which this launch has nothing to say: one sentence.
    """
    why = "" if replayed(launch) else f": the engine {launch.engine} does not count what it shows"
    prose = (f"There is nothing in it for this launch{why}.",)
    return Section(identifier, SECTIONS[identifier][0], (), prose)
