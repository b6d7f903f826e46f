"""Hardware descriptions: what one GPU has, each number with its source.

What it models: the limits that decide which launches run and how many blocks share an SM, the sizes of the
caches, and the peaks of the roofline. Latencies and other times are in gpusim/timing.py. What it leaves out:
what no count, peak or time here needs; clocks and lanes feed peaks and the time estimate, never a count.
Checked by `launch__occupancy_limit_*`, `launch__sm_count`, and the hit rates for the cache sizes.

`Arch.sources` names the origin of every field. "measured": counted or reported by the H200 of the recorded
data (driver 580, CUDA 13.0, ncu 2025.3.1). "modelled": chosen so that the simulated counters fit those
recordings. The H100 and the A100 come from public documents alone and were not validated here.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusim.errors import UnknownName
from gpusim.timing import AMPERE, HOPPER, HOPPER_UNTRIED, Timing

KB = 1024
GUIDE = "CUDA C++ Programming Guide, table Technical Specifications per Compute Capability"
THROUGHPUT = "CUDA C++ Programming Guide, table Throughput of Native Arithmetic Instructions"
OCCUPANCY_API = "measured: cudaOccupancyMaxActiveBlocksPerMultiprocessor, met in every recorded row"


@dataclass(frozen=True, kw_only=True)
class Arch:
    """Describe one GPU; one immutable value, passed whole. Sizes are in bytes, clocks in Hz, lanes are per SM
    and cycle.

    carveouts_bytes: the shared-memory configurations of an SM, ascending; L1 gets l1_total_bytes minus the
    one a launch gets. l2_max_dirty_ways: dirty lines a set holds before it writes one back. sm_groups: (GPC,
    SMs) in the order in which blocks are dealt; gpc_partitions: the L2 partition of each GPC. lrc_most_reads:
    reads of one line by SMs of a GPC that become one; lrc_window_records: how many records an SM replays
    while a read is on its way (gpusim/hierarchy.py). dram_granule_bytes: what one L2 miss fetches.
    l2_found_dirty_bytes: what is dirty in a cold L2 before a launch. dram_code_bytes: code and constants that
    a launch reads from DRAM. l2_bytes_per_second: the peak from L2 to the SMs; None where nobody says or
    measured it.
    """

    name: str
    title: str
    compute_capability: str
    validated: bool
    sm_count: int
    tpc_count: int
    warp_size: int = 32
    max_threads_per_block: int = 1024
    max_block_dim: tuple[int, int, int] = (1024, 1024, 64)
    max_grid_dim: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    max_threads_per_sm: int = 2048
    max_warps_per_sm: int = 64
    max_blocks_per_sm: int = 32
    quarters_per_sm: int = 4
    registers_per_sm: int = 65536
    registers_per_quarter: int = 16384
    register_allocation_unit: int = 256
    max_registers_per_thread: int = 255
    min_registers: int = 16
    shared_bytes_per_sm: int
    shared_bytes_per_block_optin: int
    shared_bytes_static_limit: int = 48 * KB
    shared_reserved_bytes: int = 1 * KB
    shared_granularity_bytes: int = 128
    carveouts_bytes: tuple[int, ...]
    l1_total_bytes: int
    l1_ways: int = 8
    sm_groups: tuple[tuple[int, int], ...] = ()
    gpc_partitions: tuple[int, ...] = (0, 1, 1, 1, 0, 0, 0, 1)
    lrc_most_reads: int = 4
    lrc_window_records: int = 32
    l2_bytes: int
    l2_partitions: int = 2
    l2_ways: int = 16
    l2_max_dirty_ways: int = 7
    l2_found_dirty_bytes: int = 0
    dram_granule_bytes: int = 64
    dram_code_bytes: int = 4864
    sm_clock_hz: int
    memory_clock_hz: int
    memory_bus_bits: int
    dram_bytes_per_second: int
    l2_bytes_per_second: int | None = None
    fp32_lanes: int
    fp64_lanes: int
    int32_lanes: int = 64
    tensor_f16_flops_per_cycle: int
    xu_lanes: int = 16
    lsu_lanes: int = 32
    timing: Timing
    sources: Mapping[str, str] = field(compare=False, repr=False, default_factory=dict)

    @property
    def fp32_flops_per_second(self) -> int:
        """Return the peak of 32-bit FLOPs a second outside the tensor cores (an FFMA is two)."""
        return 2 * self.sm_count * self.fp32_lanes * self.sm_clock_hz

    @property
    def fp64_flops_per_second(self) -> int:
        """Return the peak of 64-bit FLOPs a second outside the tensor cores (a DFMA is two)."""
        return 2 * self.sm_count * self.fp64_lanes * self.sm_clock_hz

    @property
    def tensor_flops_per_second(self) -> int:
        """Return the peak of 16-bit FLOPs a second of the tensor cores, dense; tf32 has half of it."""
        return self.sm_count * self.tensor_f16_flops_per_cycle * self.sm_clock_hz

    @property
    def capability(self) -> tuple[int, int]:
        """Return the compute capability as (major, minor), which compare as numbers."""
        major, minor = self.compute_capability.split(".")
        return int(major), int(minor)

    def values(self) -> dict[str, object]:
        """Return every number and name (not the sources) by field name, tuples as lists: what JSON can
        hold."""
        pairs = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if f.name != "sources")
        return {name: _plain(value) for name, value in pairs}

    def fingerprint(self) -> str:
        """Return 12 hex digits that change when any value changes, so that two files say whether they mean
        the same GPU."""
        return fingerprint_of(self.values())


def _plain(value: object) -> object:
    return value.values() if isinstance(value, Timing) else list(value) if isinstance(value, tuple) else value


def fingerprint_of(values: Mapping[str, object]) -> str:
    """Return the fingerprint of values by field name, as `Arch.values` gives them."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


_COMMON_SOURCES = {
    "warp_size": GUIDE,
    "max_threads_per_block": GUIDE,
    "max_block_dim": GUIDE,
    "max_grid_dim": GUIDE,
    "max_threads_per_sm": GUIDE,
    "max_warps_per_sm": GUIDE,
    "max_blocks_per_sm": GUIDE,
    "quarters_per_sm": "architecture white papers of the H100 and the A100: four processing blocks an SM",
    "registers_per_sm": GUIDE,
    "registers_per_quarter": "white papers: a 16,384 x 32-bit register file in each processing block",
    "register_allocation_unit": OCCUPANCY_API + ": registers of a warp round up to 256",
    "max_registers_per_thread": GUIDE,
    "min_registers": "measured: ncu shows max(registers, 16) as launch__registers_per_thread",
    "shared_bytes_per_sm": GUIDE,
    "shared_bytes_per_block_optin": GUIDE,
    "shared_bytes_static_limit": "CUDA C++ Programming Guide: more than 48 KB must be dynamic, with opt-in",
    "shared_reserved_bytes": "CUDA C++ Programming Guide: the system keeps 1 KB a block from 8.0 on",
    "shared_granularity_bytes": OCCUPANCY_API + ": the shared memory of a block rounds up to 128 bytes",
    "carveouts_bytes": "Ampere and Hopper tuning guides, without 0: each block takes 1 KB",
    "l1_total_bytes": "CUDA C++ Programming Guide: unified data cache of the capability",
    "l1_ways": "modelled from the H200: of a second pass over 208, 224, 240 and 256 KB 1.00, 0.83, 0.45 and "
    "0.08 hit; with 8 ways 0.97, 0.72, 0.42 and 0.07 do, with 4 ways 0.93, 0.73, 0.56 and 0.42",
    "sm_groups": "white papers: the number of GPCs; how many SMs each has is a guess",
    "gpc_partitions": "of the H200, for want of others",
    "lrc_most_reads": "of the H200: 16 SMs of a GPC that read the same data are 4 streams, 18 are 5",
    "lrc_window_records": "modelled from the H200: 16 to 64 give the same within 1 %",
    "l2_partitions": "white papers: the L2 is divided into two partitions",
    "l2_ways": "modelled: with 7 dirty ways of 16, 27.5 of 62.9 MB stay dirty",
    "l2_max_dirty_ways": "modelled from the H200: a pure write stream leaves 27 MB dirty, 7/16 of the L2",
    "l2_found_dirty_bytes": "unknown, taken as none",
    "dram_granule_bytes": "measured: one 4-byte element every 128 bytes reads 64 bytes of DRAM an element",
    "dram_code_bytes": "modelled: one constant, the median of nine short numba kernels (3,072 to 7,680 bytes "
    "more than their data) in whole granules; empty ones 2,560, long ones 20 to 40 KB",
    "int32_lanes": THROUGHPUT,
    "xu_lanes": THROUGHPUT + ": 16 results of special functions a cycle",
    "lsu_lanes": "white papers: 32 load/store units an SM",
    "fp32_lanes": THROUGHPUT,
    "fp64_lanes": THROUGHPUT,
    "tensor_f16_flops_per_cycle": "data sheets, dense: 989.4 TFLOP/s of 132 SMs at 1.83 GHz, 312 of 108 at "
    "1.41 GHz",
    "l2_bytes_per_second": "unknown: no public document says it",
    "memory_bus_bits": "data sheet",
    "timing": "gpusim/timing.py: each number with a source of its own",
    "memory_clock_hz": "data sheet: bandwidth / (2 transfers x bus width)",
}

_H200_SOURCES = _COMMON_SOURCES | {
    "sm_count": "measured: launch__sm_count",
    "sm_groups": "measured: %smid of blocks, and which SMs' reads of the same data become one (fact 47)",
    "gpc_partitions": "measured: which SMs read a 4 KB chunk without the fabric (fact 48)",
    "lrc_most_reads": "measured: 16 SMs of a GPC that read the same data are 4 streams, 18 are 5 (fact 47)",
    "tpc_count": "measured: launch__tpc_count",
    "l2_found_dirty_bytes": "measured: launches that sweep L2 and store hardly anything write 2.4 MB",
    "shared_bytes_per_sm": "measured: device attribute",
    "shared_bytes_per_block_optin": "measured: device attribute",
    "shared_reserved_bytes": "measured: launch__shared_mem_per_block_driver",
    "carveouts_bytes": "measured: launch__shared_mem_config_size; 200,704 from the Hopper tuning guide",
    "l2_bytes": "measured: device attribute",
    "sm_clock_hz": "NVIDIA H200 data sheet: 67 TFLOPS of FP32 are 1.98 GHz x 132 SMs x 128 lanes x 2",
    "memory_clock_hz": "4.8 TB/s over 6,016 bits, two transfers a cycle",
    "memory_bus_bits": "measured: device attribute",
    "dram_bytes_per_second": "NVIDIA H200 data sheet: 4.8 TB/s",
    "l2_bytes_per_second": "measured: 94 slices x 64 bytes x 1.71 GHz; a read loop gets 85 % (fact 42)",
}

_H100_SOURCES = _COMMON_SOURCES | {
    "sm_count": "NVIDIA H100 Tensor Core GPU Architecture white paper, H100 SXM5",
    "tpc_count": "NVIDIA H100 Tensor Core GPU Architecture white paper, H100 SXM5",
    "l2_bytes": "NVIDIA H100 Tensor Core GPU Architecture white paper: 50 MB",
    "sm_clock_hz": "NVIDIA H100 data sheet: 67 TFLOPS of FP32 are 1.98 GHz x 132 SMs x 128 lanes x 2",
    "dram_bytes_per_second": "NVIDIA H100 data sheet, SXM: 3.35 TB/s",
}

_A100_SOURCES = _COMMON_SOURCES | {
    "sm_count": "NVIDIA A100 Tensor Core GPU Architecture white paper",
    "tpc_count": "NVIDIA A100 Tensor Core GPU Architecture white paper",
    "l2_bytes": "NVIDIA A100 Tensor Core GPU Architecture white paper: 40 MB",
    "sm_clock_hz": "NVIDIA A100 Tensor Core GPU Architecture white paper: boost clock 1,410 MHz",
    "dram_bytes_per_second": "NVIDIA A100 80GB data sheet, SXM: 2,039 GB/s",
    "l2_bytes_per_second": "NVIDIA A100 Tensor Core GPU Architecture white paper: 5,120 bytes a cycle",
}

_HOPPER_CARVEOUTS = tuple(kb * KB for kb in (8, 16, 32, 64, 100, 132, 164, 196, 228))
_HOPPER_GROUPS = ((0, 8), (0, 8), (1, 16), (2, 16), (3, 16), (4, 16), (5, 16), (6, 18), (7, 18))
_AMPERE_GROUPS = ((0, 16), (1, 16), (2, 16), (3, 16), (4, 16), (5, 14), (6, 14))
_AMPERE_CARVEOUTS = tuple(kb * KB for kb in (8, 16, 32, 64, 100, 132, 164))

H200 = Arch(
    name="h200", title="NVIDIA H200", compute_capability="9.0", validated=True, sm_count=132, tpc_count=66,
    shared_bytes_per_sm=228 * KB, shared_bytes_per_block_optin=227 * KB, carveouts_bytes=_HOPPER_CARVEOUTS,
    l1_total_bytes=256 * KB, l2_bytes=60 * KB * KB, sm_groups=_HOPPER_GROUPS, sm_clock_hz=1_980_000_000,
    memory_clock_hz=3_201_000_000, memory_bus_bits=6016, dram_bytes_per_second=4_800_000_000_000,
    l2_bytes_per_second=94 * 64 * 1_710_000_000, l2_found_dirty_bytes=2_400_000, fp32_lanes=128,
    fp64_lanes=64, tensor_f16_flops_per_cycle=4096, timing=HOPPER, sources=_H200_SOURCES)

H100 = Arch(
    name="h100", title="NVIDIA H100 SXM 80GB", compute_capability="9.0", validated=False, sm_count=132,
    tpc_count=66, shared_bytes_per_sm=228 * KB, shared_bytes_per_block_optin=227 * KB,
    carveouts_bytes=_HOPPER_CARVEOUTS, l1_total_bytes=256 * KB, l2_bytes=50 * KB * KB,
    sm_groups=_HOPPER_GROUPS, sm_clock_hz=1_980_000_000, memory_clock_hz=2_619_000_000, memory_bus_bits=5120,
    dram_bytes_per_second=3_350_000_000_000, fp32_lanes=128, fp64_lanes=64,
    tensor_f16_flops_per_cycle=4096, timing=HOPPER_UNTRIED, sources=_H100_SOURCES)

A100 = Arch(
    name="a100", title="NVIDIA A100 SXM 80GB", compute_capability="8.0", validated=False, sm_count=108,
    tpc_count=54, shared_bytes_per_sm=164 * KB, shared_bytes_per_block_optin=163 * KB,
    carveouts_bytes=_AMPERE_CARVEOUTS, l1_total_bytes=192 * KB, l2_bytes=40 * KB * KB,
    sm_groups=_AMPERE_GROUPS, sm_clock_hz=1_410_000_000, memory_clock_hz=1_593_000_000, memory_bus_bits=5120,
    dram_bytes_per_second=2_039_000_000_000, l2_bytes_per_second=5120 * 1_410_000_000, fp32_lanes=64,
    fp64_lanes=32, tensor_f16_flops_per_cycle=2048, timing=AMPERE, sources=_A100_SOURCES)

ARCHES: dict[str, Arch] = {arch.name: arch for arch in (H200, H100, A100)}


def get_arch(name: str) -> Arch:
    """Return the description of a GPU by its name, in any case; raise UnknownName with the known names and
    the nearest."""
    found = ARCHES.get(name.strip().lower())
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower(), ARCHES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UnknownName(f"unknown GPU {name!r}.{hint} The known ones are {', '.join(ARCHES)}.")
