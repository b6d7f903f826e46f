"""The metrics of L2 and DRAM.

Stores, RED and ATOM reach L2 as they left the SMs; hits, reads and DRAM bytes follow the model of the caches.
Compare lts__*_srcunit_tex with the card first: the plain lts__ metrics also hold the fabric between the two
partitions.
"""

from __future__ import annotations

from gpusim.launch import Launch
from gpusim.metric import EXACT, MODELLED, UNAVAILABLE, Formula, Metric, Value, hierarchy, ratio
from gpusim.trace import SECTOR_BYTES

NO_FABRIC_HITS = "It does not split look-ups over the fabric into hits and misses."
MERGED = (
    "Reads of one line that SMs of a GPC send at about the same time are one, up to 4 together; which ones "
    "meet is modelled by turns, not by time.")
HEAD, TABLES = "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables"


def _table(
    name: str, unit: str, label: str, kind: str, formula: Formula | None, counts: str, words: str = "",
    excludes: str = "", advice: str = "", aliases: tuple[str, ...] = (),
) -> Metric:
    return Metric(name, unit, TABLES, label, kind, formula, counts, words, excludes, advice, aliases)


def _l2_from_sms() -> list[Metric]:
    tex = "lts__t_sectors_srcunit_tex"
    fewer = "Larger tiles in shared memory ask L2 for less."
    return [
        _table(
            f"{tex}.sum", "sector", "L2 Sectors From SMs", MODELLED,
            hierarchy("l2_read", "l2_write", "l2_red", "l2_atom"), "Sectors that reach L2 from the SMs.",
            "reads + writes + reductions + atomics", MERGED, fewer),
        _table(
            f"{tex}_op_read.sum", "sector", "L2 Read Sectors From SMs", MODELLED, hierarchy("l2_read"),
            "Sectors that SMs read from L2.", "sectors that miss L1 - those merged with other reads", MERGED,
            fewer),
        Metric(
            "lrc__average_xbar2gpc_sectors_op_read.ratio", "", TABLES, "Reads That One Read Of L2 Serves",
            MODELLED, lambda launch: ratio(launch.counters.hierarchy.l1_load_misses,
                                           launch.counters.hierarchy.l2_read),
            "Sectors that SMs get for each that L2 reads for them.",
            "sectors that miss L1 / sectors read from L2", MERGED),
        _table(
            f"{tex}_op_write.sum", "sector", "L2 Write Sectors From SMs", EXACT, hierarchy("l2_write"),
            "Sectors that SMs write to L2; L1 writes through.", "sectors of global and local stores",
            "It does not count the register spills of a real compiler; local stores are modelled as "
            "write-through."),
        _table(
            f"{tex}_op_red.sum", "sector", "L2 Reduction Sectors From SMs", EXACT, hierarchy("l2_red"),
            "Sectors of atomics whose result is not used.", "as at L1"),
        _table(
            f"{tex}_op_atom.sum", "sector", "L2 Atomic Sectors From SMs", EXACT, hierarchy("l2_atom"),
            "Sectors of atomics whose result is used.", "as at L1"),
        _table(
            f"{tex}_lookup_hit.sum", "sector", "L2 Sectors From SMs That Hit", MODELLED, hierarchy("l2_hits"),
            "Sectors that L2 holds; a store, a reduction or an atomic is always a hit.",
            "replay through the two partitions", MERGED),
        _table(
            f"{tex}_lookup_miss.sum", "sector", "L2 Sectors From SMs That Miss", MODELLED,
            hierarchy("l2_misses", "l2_promoted"),
            "Sectors that L2 does not hold, and those that came along in a granule of 64 bytes, as ncu "
            "counts.", "misses of sectors asked for + promoted sectors", "", fewer),
        _table(
            "gpusim__l2_promoted_sectors.sum", "sector", "L2 Promoted Sectors", MODELLED,
            hierarchy("l2_promoted"),
            "Sectors that nobody asked for and that came with a missing one of their granule of 64 bytes.",
            "replay through the two partitions", "It does not count a sector that is asked for later.",
            "Use whole granules: neighbouring threads, neighbouring elements."),
        *_unmodelled(),
    ]


def _unmodelled() -> list[Metric]:
    rows = [
        (
            "lts__t_requests_srcunit_tex.sum", "request", "L2 Requests From SMs",
            "It does not count requests at L2."),
        ("lts__t_sectors_lookup_hit.sum", "sector", "L2 Sectors That Hit, Both Look-ups", NO_FABRIC_HITS),
        ("lts__t_sectors_lookup_miss.sum", "sector", "L2 Sectors That Miss, Both Look-ups", NO_FABRIC_HITS),
        (
            "lts__t_sectors_srcunit_ltcfabric_lookup_hit.sum", "sector", "L2 Fabric Sectors That Hit",
            NO_FABRIC_HITS),
        (
            "lts__t_sectors_srcunit_ltcfabric_lookup_miss.sum", "sector", "L2 Fabric Sectors That Miss",
            NO_FABRIC_HITS),
    ]
    return [
        _table(name, unit, label, UNAVAILABLE, None, f"{label}.", excludes=why)
        for name, unit, label, why in rows
    ]


def _l2_all() -> list[Metric]:
    fabric = "About half lie in the far partition and are looked up twice; compare srcunit_tex metrics."
    others = "It does not count fills and other internal traffic, about 5 % on the card."
    both = ("read", "write", "red", "atom")
    names = [n for op in both for n in (f"l2_{op}", f"l2_fabric_{op}")]
    made = [
        _table(
            f"lts__t_sectors_op_{op}.sum", "sector", f"L2 {word} Sectors, Both Look-ups", MODELLED,
            hierarchy(f"l2_{op}", f"l2_fabric_{op}"),
            f"L2 look-ups for {word.lower()}s, of SMs and of the fabric. {fabric}",
            "from SMs + over the fabric", f"{others} {MERGED}" if op == "read" else others)
        for op, word in (("read", "Read"), ("write", "Write"), ("red", "Reduction"), ("atom", "Atomic"))
    ]
    return [
        *made,
        _table(
            "lts__t_sectors.sum", "sector", "L2 Sectors, Both Look-ups", MODELLED, hierarchy(*names),
            f"L2 look-ups of SMs and of the fabric. {fabric}", "from SMs + over the fabric",
            f"{others} {MERGED}"),
        _table(
            "lts__t_sectors_srcunit_ltcfabric.sum", "sector", "L2 Fabric Sectors", MODELLED,
            hierarchy(*(f"l2_fabric_{op}" for op in both)), "Second look-ups in the other partition.",
            "sectors whose home is the far partition", f"{others} {MERGED}"),
    ]


def _l2_rates() -> list[Metric]:
    def rate(launch: Launch) -> Value:
        h = launch.counters.hierarchy
        return ratio(h.l2_hits, h.l2_hits + h.l2_misses, 100.0)

    def read_rate(launch: Launch) -> Value:
        h = launch.counters.hierarchy
        return ratio(h.l2_read - h.l2_misses, h.l2_read, 100.0)

    def write_rate(launch: Launch) -> Value:
        h = launch.counters.hierarchy
        return ratio(h.l2_write, h.l2_write, 100.0)

    reuse = (
        "Keep what blocks share within 30 MB (one partition) and order blocks so that neighbours share it.")
    return [
        Metric(
            "lts__t_sector_hit_rate.pct", "%", HEAD, "L2 Hit Rate", MODELLED, rate,
            "Sectors from SMs that hit L2.", "100 * hits / (hits + misses)",
            "It does not count promoted sectors and look-ups over the fabric, which the card's rate "
            f"includes. {MERGED}", reuse),
        _table(
            "lts__t_sector_op_read_hit_rate.pct", "%", "L2 Read Hit Rate", MODELLED, read_rate,
            "Sectors read by SMs that hit L2.", "100 * (reads - misses) / reads",
            f"It does not count look-ups over the fabric. {MERGED}", reuse),
        _table(
            "lts__t_sector_op_write_hit_rate.pct", "%", "L2 Write Hit Rate", MODELLED, write_rate,
            "Sectors written by SMs that hit L2: all, as L2 is write-back and never fetches for a store.",
            "100 where anything is written"),
    ]


def _dram() -> list[Metric]:
    def sectors(*names: str) -> Formula:
        return lambda launch: sum(int(getattr(launch.counters.hierarchy, n)) for n in names) // SECTOR_BYTES

    code = "Code and constants are one constant of the GPU (gpusim__dram_code_bytes)."
    return [
        _table(
            "dram__bytes_read.sum", "byte", "DRAM Bytes Read", MODELLED,
            hierarchy("dram_read_bytes", "dram_code_bytes"),
            f"Bytes that L2 reads from DRAM: data, and the kernel's code and constants. {code}",
            "L2 misses in 64-byte granules + code",
            "It does not count what other programs or page tables read.", "Reuse data while it is in L2."),
        _table(
            "dram__bytes_write.sum", "byte", "DRAM Bytes Written", MODELLED,
            hierarchy("dram_write_bytes", "dram_found_bytes"),
            "Bytes written back to DRAM during the launch.", "dirty sectors that L2 gives up",
            "It does not count what is still dirty at the end. It counts what somebody else left dirty in a "
            "cold L2 (gpusim__dram_found_bytes.sum)."),
        _table(
            "dram__bytes.sum", "byte", "DRAM Bytes", MODELLED,
            hierarchy("dram_read_bytes", "dram_code_bytes", "dram_write_bytes", "dram_found_bytes"),
            "Bytes read from and written to DRAM.", "read + written"),
        _table(
            "dram__sectors_read.sum", "sector", "DRAM Sectors Read", MODELLED,
            sectors("dram_read_bytes", "dram_code_bytes"), "Sectors of 32 bytes read from DRAM.",
            "dram__bytes_read.sum / 32"),
        _table(
            "dram__sectors_write.sum", "sector", "DRAM Sectors Written", MODELLED,
            sectors("dram_write_bytes", "dram_found_bytes"), "Sectors of 32 bytes written to DRAM.",
            "dram__bytes_write.sum / 32"),
        _table(
            "gpusim__dram_data_read_bytes.sum", "byte", "DRAM Data Bytes Read", MODELLED,
            hierarchy("dram_read_bytes"), "Bytes of data read from DRAM.", "L2 misses in 64-byte granules",
            "It does not count code and constants.", "Reuse data while it is in L2."),
        _table(
            "gpusim__dram_code_bytes.sum", "byte", "DRAM Code Bytes Read", MODELLED,
            hierarchy("dram_code_bytes"), "Bytes of code and constants read from DRAM.",
            "a constant of the GPU, see gpusim/arch.py", "It does not follow the kernel's length."),
        _table(
            "gpusim__dram_written_back_bytes.sum", "byte", "Bytes Written Back To DRAM", MODELLED,
            hierarchy("dram_write_bytes"), "Bytes that launches wrote and that reach DRAM in this one.",
            "dirty sectors that L2 gives up",
            "It does not count what somebody else left dirty in a cold L2."),
        _table(
            "gpusim__dram_found_bytes.sum", "byte", "DRAM Bytes Written For Others", MODELLED,
            hierarchy("dram_found_bytes"),
            "Bytes that are written to DRAM and that somebody else left dirty in a cold L2.",
            "a constant of the GPU, as far as the launch drives it out: see gpusim/arch.py",
            "It does not count what an earlier launch left in a warm L2."),
        _table(
            "gpusim__stored_bytes.sum", "byte", "Bytes Stored By Threads", EXACT,
            lambda x: x.counters.global_store.bytes + x.counters.local_store.bytes,
            "Bytes that threads store, global and local.", "active lanes * element size",
            "It does not count atomics."),
        _table(
            "gpusim__l2_dirty_bytes_end.sum", "byte", "Bytes Dirty In L2 At The End", MODELLED,
            hierarchy("dirty_bytes"),
            "Bytes of sectors that are written in L2 and not yet in DRAM when the launch ends.",
            "stored sectors - written back",
            "No metric of ncu shows it: it is why dram__bytes_write.sum is less than what was stored."),
    ]


METRICS: tuple[Metric, ...] = (*_l2_rates(), *_l2_from_sms(), *_l2_all(), *_dram())
