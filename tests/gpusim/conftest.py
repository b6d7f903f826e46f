"""What the tests of gpusim share: one launch whose every counter is another number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from gpusim.arch import get_arch
from gpusim.counters import Arithmetic, AsCompiled, Counters, Hierarchy, Issued, SpaceCounts
from gpusim.launch import Check, Launch, Registers
from gpusim.occupancy import occupancy

GLOBAL = {
    # field: (lanes, bytes, requests, sectors)
    "global_load": (3200, 12_800, 100, 400),
    "global_store": (1600, 6_400, 50, 1_600),
    "global_red": (96, 384, 3, 24),
    "global_atom": (64, 256, 2, 64),
    "local_load": (0, 0, 0, 0),
    "local_store": (32, 128, 1, 5),
}
SHARED = {
    # field: (lanes, bytes, requests, wavefronts, ideal_wavefronts)
    "shared_load": (6400, 25_600, 200, 6_400, 200),
    "shared_store": (3168, 12_672, 99, 198, 99),
    "shared_atom": (320, 1_280, 10, 40, 10),
    "shared_matrix": (96, 1_536, 3, 20, 12),
    "shared_async": (128, 2_048, 4, 6, 5),
}
CONSTANT = {
    # field: (lanes, bytes, requests, addresses)
    "const_load": (200, 800, 9, 21),
}
ARITHMETIC = {
    "fadd": 7,
    "fmul": 11,
    "ffma": 1_000,
    "dadd": 13,
    "dmul": 17,
    "dfma": 2_000,
    "hadd": 3,
    "hmul": 5,
    "hfma": 400,
    "hadd_cvt": 6,
    "mufu": 19,
    "integer": 23,
    "xu_warps": 29,
}
TENSOR = {"f16": 3, "bf16": 5, "tf32": 6, "fp8": 2}
HIERARCHY = {
    "l1_load_hits": 100,
    "l1_load_misses": 300,
    "l2_read": 240,
    "l2_write": 1_605,
    "l2_red": 24,
    "l2_atom": 64,
    "l2_hits": 1_813,
    "l2_misses": 120, "l2_promoted": 15,
    "l2_fabric_read": 118,
    "l2_fabric_write": 800,
    "l2_fabric_red": 12,
    "l2_fabric_atom": 31,
    "dram_read_bytes": 3_840,
    "dram_code_bytes": 4_864,
    "dram_write_bytes": 640,
    "dirty_bytes": 50_720,
}


def sample_counters() -> Counters:
    """Return counters in which every field of interest is another number; no local loads."""
    made = Counters.zero()
    for table in (GLOBAL, SHARED, CONSTANT):
        for name, numbers in table.items():
            part = getattr(made, name)
            for f, number in zip(fields(part), numbers, strict=True):
                setattr(part, f.name, number)
    for part, table in (
        (made.arithmetic, ARITHMETIC),
        (made.tensor, TENSOR),
        (made.hierarchy, HIERARCHY),
    ):
        for name, number in table.items():
            setattr(part, name, number)
    made.barriers, made.wrapped_indices, made.async_requests = 37, 41, 2
    return made


@pytest.fixture
def sample() -> Launch:
    """Return a launch of 3 x 2 x 2 blocks of 8 x 16 x 2 threads, 40 registers, 8,192 + 1,000 bytes of shared
    memory.
    """
    arch = get_arch("h200")
    return Launch(
        kernel="sample",
        grid=(3, 2, 2),
        block=(8, 16, 2),
        arch=arch,
        registers=Registers(40, "given", "--regs 40"),
        static_shared_bytes=8192,
        dynamic_shared_bytes=1000,
        shared_buffers=(("Ks", 4096), ("Vs", 4096)),
        occupancy=occupancy(arch, 256, 40, 8192, 1000),
        counters=sample_counters(),
        as_compiled=AsCompiled(Issued(50, 1600, 60), Issued(25, 66, 50)),
        quantum_records=64,
        closed_form={"global_load.bytes": 12_800, "arithmetic.ffma": 1_000},
        checks=(Check("O", 2.5e-7, 1e-5),),
        notes=("ran the compiled engine",),
        options={"N": 64, "causal": True, "tile": (16, 16)},
    )


def _make_launch(**changes: Any) -> Launch:
    """Return a launch of 133 blocks of 64 threads that loads 1,024 and stores 512 floats.

    Half of the load's 128 sectors hit L1, half of the rest hit L2. `changes` replace fields.
    """
    counters = Counters.zero()
    counters.global_load = SpaceCounts(lanes=1024, bytes=4096, requests=32, sectors=128)
    counters.global_store = SpaceCounts(lanes=512, bytes=2048, requests=16, sectors=64)
    counters.arithmetic = Arithmetic(fadd=10, fmul=20, ffma=1000, mufu=5, integer=70)
    counters.hierarchy = Hierarchy(
        l1_load_hits=64,
        l1_load_misses=64,
        l2_read=64,
        l2_write=64,
        l2_hits=96,
        l2_misses=32,
        dram_read_bytes=1024,
        dram_code_bytes=512,
        dram_write_bytes=128,
        dirty_bytes=1920,
    )
    arch = get_arch("h200")
    launch = Launch(
        kernel="k",
        grid=(133, 1, 1),
        block=(64, 1, 1),
        arch=arch,
        registers=Registers(32, "given"),
        static_shared_bytes=0,
        dynamic_shared_bytes=0,
        shared_buffers=(),
        occupancy=occupancy(arch, 64, 32, 0, 0),
        counters=counters,
    )
    return replace(launch, **changes)


@pytest.fixture
def make_launch() -> Callable[..., Launch]:
    """Return a function that makes a small launch; its arguments replace fields of it."""
    return _make_launch
