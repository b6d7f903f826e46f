"""The counters of one launch: plain integers, each with its counting rule.

What it models: what the counter registers of the card hold after a launch. What it leaves out: rates,
percentages and units for people, which exist only in gpusim/metrics.py. Each field says what it counts and
what it does not.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class SpaceCounts:
    """Count accesses of one kind (load, store, red, atom) to one space (global, local).

    lanes: threads that took part. bytes: lanes times the element size; does not count the rest of a sector.
    requests: warp instructions with at least one active lane; does not count a warp with none.
    sectors: 32-byte pieces touched, once each a request (RED and ATOM: once per colliding lane).
    """

    lanes: int = 0
    bytes: int = 0
    requests: int = 0
    sectors: int = 0


@dataclass
class SharedCounts:
    """Count accesses of one kind to shared memory.

    lanes, bytes and requests as in SpaceCounts. wavefronts: passes through the 32 banks by the rule of
    addresses; does not count the card's arbitration (up to 6 %). ideal_wavefronts: what the lanes of the same
    requests would take at consecutive addresses, and never more than a request took (merged halves of 8-byte
    loads take less); wavefronts - ideal_wavefronts are the bank conflicts.
    """

    lanes: int = 0
    bytes: int = 0
    requests: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0


@dataclass
class ConstantCounts:
    """Count loads of constant arrays, which go to the constant cache and not to L1.

    lanes, bytes and requests as in SpaceCounts. addresses: different addresses, summed over requests; the
    cache serves them one after another.
    """

    lanes: int = 0
    bytes: int = 0
    requests: int = 0
    addresses: int = 0


AccessCounts = SpaceCounts | SharedCounts | ConstantCounts


@dataclass
class Arithmetic:
    """Count thread instructions by class; does not count lanes that are masked off.

    fadd, fmul, ffma: 32-bit; dadd, dmul, dfma: 64-bit; hadd, hmul, hfma: float16 and bfloat16, one number a
    lane (a fused multiply-add is one instruction, two FLOPs). hadd_cvt: conversions of float16 to float32,
    which the card does in an HADD2 and ncu counts as one; no FLOPs.
    mufu: the special function unit, in lanes. integer: integer, comparison, selection and conversion
    operations of WarpIR (modelled: the machine code has others). xu_warps: warp instructions of the special
    function pipe.
    """

    fadd: int = 0
    fmul: int = 0
    ffma: int = 0
    dadd: int = 0
    dmul: int = 0
    dfma: int = 0
    hadd: int = 0
    hmul: int = 0
    hfma: int = 0
    hadd_cvt: int = 0
    mufu: int = 0
    integer: int = 0
    xu_warps: int = 0


@dataclass
class Tensor:
    """Count warp instructions of the tensor cores (mma.sync) by the type of their narrow operands.

    f16, bf16: m16n8k16. tf32: m16n8k8. fp8: m16n8k32 of e4m3 and e5m2. Does not count what machine code
    makes of them (an fp8 mma is several instructions on cards without one of their own).
    """

    f16: int = 0
    bf16: int = 0
    tf32: int = 0
    fp8: int = 0


@dataclass
class Hierarchy:
    """Count what the replay through L1, L2 and DRAM saw, in sectors of 32 bytes unless the name says bytes.

    l1_load_hits + l1_load_misses = sectors of global (and local) loads. lrc_merged: missing ones that arrive
    with a read of another SM; l1_load_misses = lrc_merged + l2_read. l2_*: sectors that reach L2 from the
    SMs (ncu's srcunit_tex); l2_fabric: second look-ups in the other partition, not in the l2_read/write/red
    numbers.
    l2_hits + l2_misses = l2_read + l2_write + l2_red + l2_atom; a store, RED or ATOM is always a hit.
    l2_promoted: sectors that nobody asked for and that came with a missing one of their DRAM granule; not in
    l2_misses, but in ncu's lts__t_sectors_srcunit_tex_lookup_miss.
    dram_read_bytes: data only, code and constants apart in dram_code_bytes (modelled constant of the card).
    dram_write_bytes: written back during the launch, but for dram_found_bytes: what somebody else left
    dirty in L2 and this launch drove out (modelled constant of the card). dirty_bytes: still dirty in L2 at
    its end, with warm caches whichever launch wrote it; a state, so that only gpusim/report.py knows what a
    total of it is.
    """

    l1_load_hits: int = 0
    l1_load_misses: int = 0
    lrc_merged: int = 0
    l2_read: int = 0
    l2_write: int = 0
    l2_red: int = 0
    l2_atom: int = 0
    l2_hits: int = 0
    l2_misses: int = 0
    l2_promoted: int = 0
    l2_fabric_read: int = 0
    l2_fabric_write: int = 0
    l2_fabric_red: int = 0
    l2_fabric_atom: int = 0
    dram_read_bytes: int = 0
    dram_code_bytes: int = 0
    dram_write_bytes: int = 0
    dram_found_bytes: int = 0
    dirty_bytes: int = 0

    @property
    def dram_bytes(self) -> int:
        """Return all bytes that DRAM gives and takes: data, code, and what was dirty before."""
        return self.dram_read_bytes + self.dram_code_bytes + self.dram_write_bytes + self.dram_found_bytes


@dataclass(frozen=True)
class Issued:
    """Count machine instructions of one kind that access shared memory, with their wavefronts.

    instructions: those with an active lane; does not count one whose lanes are all off, as ncu does.
    wavefronts and ideal_wavefronts as in SharedCounts, of accesses as wide as the instruction.
    """

    instructions: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0


@dataclass(frozen=True)
class AsCompiled:
    """Hold what a compiler makes of the shared loads and stores that SharedCounts counts as written.

    Modelled: docs/as_compiled.md has the rules. Both are equal where nothing is merged.
    """

    shared_load: Issued = Issued()
    shared_store: Issued = Issued()


@dataclass
class Counters:
    """Hold every counter of one launch."""

    global_load: SpaceCounts
    global_store: SpaceCounts
    global_red: SpaceCounts
    global_atom: SpaceCounts
    local_load: SpaceCounts
    local_store: SpaceCounts
    shared_load: SharedCounts
    shared_store: SharedCounts
    shared_atom: SharedCounts
    shared_matrix: SharedCounts
    """ldmatrix: bytes are those the lanes receive; ideal wavefronts are one a matrix."""
    shared_async: SharedCounts
    """cp.async, where it writes: requests are LDGSTS instructions, bytes those written, zeros among them.
    What it reads is in global_load."""
    const_load: ConstantCounts
    arithmetic: Arithmetic
    tensor: Tensor
    hierarchy: Hierarchy
    warp_operations: int = 0
    """Warp instructions that exchange between lanes: shuffles, votes and matches; not syncwarp."""
    async_requests: int = 0
    """Requests to global memory by cp.async, which are among those of global_load."""
    barriers: int = 0
    """Warps that passed a barrier, once each time."""
    wrapped_indices: int = 0
    """Lanes whose negative index was wrapped once."""

    @classmethod
    def zero(cls) -> Counters:
        """Return counters that are all 0."""
        s, h = SpaceCounts, SharedCounts
        arithmetic = Arithmetic(), Tensor()
        return cls(
            s(), s(), s(), s(), s(), s(), h(), h(), h(), h(), h(), ConstantCounts(), *arithmetic, Hierarchy()
        )

    def __add__(self, other: Counters) -> Counters:
        """Add field by field, dirty_bytes too, though it is a state (see Hierarchy)."""
        total = Counters.zero()
        for f in fields(self):
            a, b = getattr(self, f.name), getattr(other, f.name)
            if isinstance(a, int):
                setattr(total, f.name, a + b)
            else:
                sums = {g.name: getattr(a, g.name) + getattr(b, g.name) for g in fields(a)}
                setattr(total, f.name, type(a)(**sums))
        return total
