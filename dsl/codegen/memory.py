"""Machine code for memory: index checks, and what is counted of each load, store and atomic.

What it models: one warp instruction becomes one request; its sectors (global, local) or wavefronts (shared)
are a constant where the lanes' addresses have a known pattern, and are found out by the coalescer or the bank
rule otherwise. What it leaves out: the data (dsl/codegen/data.py, dsl/codegen/atomics.py) and caches. Checked
by `l1tex__t_requests_*`, `l1tex__t_sectors_*`, `l1tex__data_pipe_lsu_wavefronts_mem_shared_*`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsl.codegen import atomics, copies, data
from dsl.llvm import index as index_ll
from dsl.llvm import runtime
from dsl.llvm.layout import Ctx, Error
from dsl.llvm.text import LANES, lanes_constant, vector
from dsl.warpir import ir
from gpusim.memory import LOCAL_BASE
from gpusim.trace import FIRST_SHIFT, LINE_BYTES, LINE_SHIFT, SECTOR_BYTES, Kind

if TYPE_CHECKING:
    from dsl.codegen.kernel import WarpCode

PAST_L1 = ("cg", "cv")
"""Cache hints of loads that never hit L1 (fact 13)."""
WORDS = vector("i64")
FLAGS = vector("i1")


# ------------------------------------------------------------------------------------------ index checks


def check(cg: WarpCode, instr: ir.Chk) -> None:
    """Emit an index check; nothing where the interval of the index is inside the array for every launch."""
    if instr.array == ir.DIVISOR and cg.options.counts_only:
        return
    lo, hi = cg.intervals.at(instr.index, cg.block)
    inside = lo >= 0 and isinstance(instr.extent, ir.Imm) and hi < instr.extent.value
    if inside:
        cg.define(instr.dst, cg.raw(instr.index, "s64"))
        return
    number, shape = cg.number_of_check(instr), cg.shapes.of(instr.index)
    if shape.uniform and cg.shapes.of(instr.extent).uniform:
        cg.define(instr.dst, _check_uniform(cg, instr, number))
    elif shape.pattern is None or cg.shapes.of(instr.dst).varying:
        cg.define(instr.dst, _check_lanes(cg, instr, number, cg.vector(instr.index, "s64")))
    else:
        _check_pattern(cg, instr, number, max(shape.pattern))
        cg.define(instr.dst, cg.raw(instr.index, "s64"))


def _check_uniform(cg: WarpCode, instr: ir.Chk, number: int) -> str:
    t = cg.text
    index, extent = cg.raw(instr.index, "s64"), cg.raw(instr.extent, "s64")
    ok = t.do(f"icmp ult i64 {index}, {extent}")
    here, cold, on = t.name("in"), t.name("wrap"), t.name("on")
    t.put(f"br label %{here}")
    t.label(here)
    t.put(f"br i1 {ok}, label %{on}, label %{cold}, !prof !0")
    t.label(cold)
    wide = t.splat(index, "i64")
    wrapped = _wrap(cg, wide, t.splat(extent, "i64"), number)
    one = t.do(f"extractelement {WORDS} {wrapped}, i32 0")
    cold_end = t.name("back")
    t.put(f"br label %{cold_end}")
    t.label(cold_end)
    t.put(f"br label %{on}")
    t.label(on)
    return t.do(f"phi i64 [ {index}, %{here} ], [ {one}, %{cold_end} ]")


def _check_lanes(cg: WarpCode, instr: ir.Chk, number: int, index: str) -> str:
    t = cg.text
    extent = cg.vector(instr.extent, "s64")
    inside = t.do(f"icmp ult {WORDS} {index}, {extent}")
    ok = _all_active(cg, t.bits(inside))
    here, cold, on = t.name("in"), t.name("wrap"), t.name("on")
    t.put(f"br label %{here}")
    t.label(here)
    t.put(f"br i1 {ok}, label %{on}, label %{cold}, !prof !0")
    t.label(cold)
    wrapped = _wrap(cg, index, extent, number)
    cold_end = t.name("back")
    t.put(f"br label %{cold_end}")
    t.label(cold_end)
    t.put(f"br label %{on}")
    t.label(on)
    return t.do(f"phi {WORDS} [ {index}, %{here} ], [ {wrapped}, %{cold_end} ]")


def _check_pattern(cg: WarpCode, instr: ir.Chk, number: int, largest_lane: int) -> None:
    """Check base + pattern, which cannot be negative.

    One comparison with the largest lane decides; only where it fails, the lanes are checked one by one.
    """
    t = cg.text
    base, extent = cg.raw(instr.index, "s64"), cg.raw(instr.extent, "s64")
    largest = t.do(f"add i64 {base}, {largest_lane}")
    ok = t.do(f"icmp slt i64 {largest}, {extent}")
    cold, on = t.name("lanes"), t.name("on")
    t.put(f"br i1 {ok}, label %{on}, label %{cold}, !prof !0")
    t.label(cold)
    kept = dict(cg.values)
    _wrap(cg, cg.vector(instr.index, "s64"), t.splat(extent, "i64"), number)
    cg.values = kept
    t.put(f"br label %{on}")
    t.label(on)


def _all_active(cg: WarpCode, bits: str) -> str:
    t = cg.text
    if cg.full:
        return t.do(f"icmp eq i32 {bits}, -1")
    return t.do(f"icmp eq i32 {t.do(f'and i32 {bits}, {cg.bits}')}, {cg.bits}")


def _wrap(cg: WarpCode, index: str, wide: str, number: int) -> str:
    """Wrap negative lanes once, count them, and stop the launch where an active lane is outside even so.

    wide: the extent of each lane. A call, as it is rare: written out it would be most of a kernel's code.
    """
    t = cg.text
    cg.helpers[index_ll.NAME] = index_ll.wrap_index(cg.options.strict_index)
    t.declared |= index_ll.DECLARED
    extents = t.do(f"getelementptr i64, ptr %scratch, i64 {LANES}")
    for words, place in ((index, "%scratch"), (wide, extents)):
        t.put(f"store {WORDS} {words}, ptr {place}, align 64")
    count = t.field("%wraps", number)
    args = f"ptr %ctx, ptr %scratch, i32 {cg.bits}, i64 {number}, ptr {count}"
    fail, fine = t.name("outside"), t.name("fine")
    t.put(f"br i1 {t.do(f'call i1 @{index_ll.NAME}({args})')}, label %{fail}, label %{fine}")
    t.label(fail)
    cg.leave_failed()
    t.label(fine)
    return t.do(f"load {WORDS}, ptr %scratch, align 64")


# ------------------------------------------------------------------------------------------ counting


def _count_sectors(cg: WarpCode, site: int, sectors: str) -> None:
    t = cg.text
    full, fine = t.name("full"), t.name("fine")
    t.put(f"br i1 {t.do(f'icmp slt i64 {sectors}, 0')}, label %{full}, label %{fine}, !prof !1")
    t.label(full)
    _leave_full(cg, site)
    t.label(fine)
    t.add_to(t.field("%sites", 3 * site), sectors)


def _leave_full(cg: WarpCode, site: int) -> None:
    """Stop the launch at a memory instruction that the trace has no room for; 0 in its word is a barrier."""
    cg.text.put(f"store i64 {site + 1}, ptr {cg.text.field('%ctx', Ctx.ERROR_SITE)}")
    cg.leave_failed()


def _trace(cg: WarpCode, instr: ir.Access, kind: Kind, site: int) -> None:
    """Count and trace one global request."""
    t, size = cg.text, ir.access_bytes(instr)
    shape = cg.shapes.of(instr.addr)
    header = runtime.span_header(kind, site)
    contiguous = shape.pattern == tuple(size * lane for lane in range(LANES))
    if kind in (Kind.RED, Kind.ATOM):
        _trace_lanes(cg, cg.vector(instr.addr, "s64"), kind, site, runtime.COLLIDE)
    elif shape.uniform or (contiguous and cg.full):
        span = size if shape.uniform else size * LANES
        address = cg.raw(instr.addr, "s64")
        name = "trace_line" if span == LINE_BYTES else "trace_span"
        _count_sectors(cg, site, t.do(f"call i64 @{name}(ptr %ctx, i64 {address}, i64 {span}, i64 {header})"))
    elif cg.full and shape.pattern is not None and _a_line_a_lane(shape.pattern):
        _trace_apart(cg, cg.raw(instr.addr, "s64"), shape.pattern, header, site)
    else:
        _trace_lanes(cg, cg.vector(instr.addr, "s64"), kind, site, runtime.COALESCE)


def _a_line_a_lane(pattern: tuple[int, ...]) -> bool:
    """Tell whether every lane touches a line of its own, whole sectors apart (a thread a row)."""
    if any(p % SECTOR_BYTES for p in pattern):
        return False
    places = sorted(pattern)
    return all(b - a >= LINE_BYTES for a, b in zip(places, places[1:], strict=False))


def _trace_apart(cg: WarpCode, base: str, pattern: tuple[int, ...], header: int, site: int) -> None:
    """Trace a full warp whose lanes touch a line each: 32 records, made as one vector."""
    t = cg.text
    first = t.do(f"lshr i64 {base}, 5")
    steps = lanes_constant(tuple(p // SECTOR_BYTES for p in pattern), "i64")
    sectors = t.do(f"add {WORDS} {t.splat(first, 'i64')}, {steps}")
    masks = t.do(f"shl {WORDS} splat (i64 1), {t.do(f'and {WORDS} {sectors}, splat (i64 3)')}")
    lines = t.do(f"shl {WORDS} {t.do(f'lshr {WORDS} {sectors}, splat (i64 2)')}, splat (i64 {LINE_SHIFT})")
    flags = lanes_constant((header | 1 << FIRST_SHIFT, *[header] * (LANES - 1)), "i64")
    records = t.do(f"or {WORDS} {t.do(f'or {WORDS} {lines}, {masks}')}, {flags}")
    place = t.do("call ptr @trace_open(ptr %ctx)")
    full, fine = t.name("full"), t.name("fine")
    t.put(f"br i1 {t.do(f'icmp eq ptr {place}, null')}, label %{full}, label %{fine}, !prof !1")
    t.label(full)
    _leave_full(cg, site)
    t.label(fine)
    t.put(f"store {WORDS} {records}, ptr {place}, align 8")
    end = t.do(f"getelementptr i64, ptr {place}, i64 {LANES}")
    t.put(f"store ptr {end}, ptr {t.field('%ctx', Ctx.TRACE)}")
    t.add_to(t.field("%sites", 3 * site), str(LANES))


def _trace_lanes(cg: WarpCode, addresses: str, kind: Kind, site: int, by: str) -> None:
    t = cg.text
    t.put(f"store {WORDS} {addresses}, ptr %scratch, align 64")
    t.declared[by] = f"declare i64 @{by}(ptr, i32, i64, i64, ptr)"
    call = f"call i64 @trace_lanes(ptr %ctx, i32 {cg.bits}, i64 {int(kind)}, i64 {site}, ptr @{by})"
    _count_sectors(cg, site, t.do(call))


def _trace_local(cg: WarpCode, instr: ir.Ld | ir.St, kind: Kind, site: int) -> None:
    """Count and trace a request to local memory: word w of the 32 lanes lies in 128 bytes side by side."""
    t = cg.text
    offset = cg.vector(instr.addr, "s64")
    word = t.do(f"shl {WORDS} {t.do(f'lshr {WORDS} {offset}, splat (i64 2)')}, splat (i64 7)")
    byte = t.do(f"and {WORDS} {offset}, splat (i64 3)")
    lane_bytes = lanes_constant(tuple(4 * i for i in range(LANES)), "i64")
    lane = t.do(f"add {WORDS} {word}, {t.do(f'add {WORDS} {byte}, {lane_bytes}')}")
    block = t.do(f"load i64, ptr {t.field('%ctx', Ctx.BLOCK)}")
    warp = t.do(f"load i64, ptr {t.field('%ctx', Ctx.WARP)}")
    number = t.do(f"add i64 {t.do(f'mul i64 {block}, {cg.n_warps}')}, {warp}")
    base = t.do(f"add i64 {t.do(f'mul i64 {number}, {LANES * cg.local_frame_bytes}')}, {LOCAL_BASE}")
    first = t.do(f"add {WORDS} {lane}, {t.splat(base, 'i64')}")
    _trace_lanes(cg, first, kind, site, runtime.COALESCE_WORDS[max(1, ir.access_bytes(instr) // 4)])


def _count_shared(cg: WarpCode, instr: ir.Access, site: int) -> None:
    """Count a shared request's wavefronts by the bank rule.

    Those of a full warp with a known pattern are a constant, which dsl/engine/run.py adds up later.
    """
    if cg.full and not cg.shapes.of(instr.addr).varying:
        return
    _count_wavefronts(cg, instr, ir.access_bytes(instr), site)
    for width_bytes, row in cg.options.wide.get(site, ()):
        _count_wavefronts(cg, instr, width_bytes, row)


def _count_wavefronts(cg: WarpCode, instr: ir.Access, size: int, row: int) -> None:
    """Add the wavefronts of an access of `size` bytes a lane, those the lanes' addresses lie in, to a row."""
    t = cg.text
    wavefronts, ideal = t.field("%sites", 3 * row + 1), t.field("%sites", 3 * row + 2)
    if cg.shapes.of(instr.addr).uniform and size <= 4:
        t.add_to(wavefronts, "1")
        t.add_to(ideal, "1")
        return
    addresses = cg.vector(instr.addr, "s64")
    if size != ir.access_bytes(instr):
        addresses = t.do(f"and {WORDS} {addresses}, splat (i64 {-size})")
    t.put(f"store {WORDS} {addresses}, ptr %scratch, align 64")
    args = [("ptr", "%scratch"), ("i32", cg.bits), ("i64", str(size))]
    name = runtime.ATOMIC_WAVEFRONTS
    if not isinstance(instr, ir.Atom):
        name = runtime.WAVEFRONTS
        args.append(("i64", str(int(isinstance(instr, ir.Ld)))))
    taken = t.call("i64", name, *args)
    t.add_to(wavefronts, taken)
    t.add_to(ideal, t.intrinsic("umin", "i64", taken, _ideal(cg, size)))


def _count_constant(cg: WarpCode, instr: ir.Access, site: int) -> None:
    """Count the different addresses of a request; those of a uniform one follow from its runs."""
    t = cg.text
    if not cg.shapes.of(instr.addr).uniform:
        t.put(f"store {WORDS} {cg.vector(instr.addr, 's64')}, ptr %scratch, align 64")
        found = t.call("i64", runtime.DIFFERENT_ADDRESSES, ("ptr", "%scratch"), ("i32", cg.bits))
        t.add_to(t.field("%sites", 3 * site + 1), found)


def _ideal(cg: WarpCode, size: int) -> str:
    """Return the wavefronts the active lanes take with consecutive addresses.

    Up to 4 bytes a lane that is 1; with 8 (16) bytes, one for each half (quarter) of the warp in use.
    """
    t = cg.text
    if size <= 4:
        return "1"
    width = LANES * 4 // size
    parts = [(1 << width) - 1 << first for first in range(0, LANES, width)]
    used = [t.do(f"icmp ne i32 {t.do(f'and i32 {cg.bits}, {part}')}, 0") for part in parts]
    total = "0"
    for flag in used:
        total = t.do(f"add i64 {total}, {t.do(f'zext i1 {flag} to i64')}")
    return total


# ------------------------------------------------------------------------------------------ an access


def _check_aligned(cg: WarpCode, instr: ir.Access, site: int) -> None:
    """Stop the launch where an active lane's vector does not start at a multiple of its bytes."""
    t, size = cg.text, ir.access_bytes(instr)
    shape = cg.shapes.of(instr.addr)
    whole = shape.pattern is not None and all(p % size == 0 for p in shape.pattern)
    if whole and shape.divisor % size == 0:
        return
    if whole:
        rest = t.do(f"and i64 {cg.raw(instr.addr, 's64')}, {size - 1}")
        bad = t.do(f"select i1 {t.do(f'icmp ne i64 {rest}, 0')}, i32 {cg.bits}, i32 0")
    else:
        rest = t.do(f"and {WORDS} {cg.vector(instr.addr, 's64')}, splat (i64 {size - 1})")
        bad = t.do(f"and i32 {t.bits(t.do(f'icmp ne {WORDS} {rest}, zeroinitializer'))}, {cg.bits}")
    fail, fine = t.name("astray"), t.name("fine")
    t.put(f"br i1 {t.do(f'icmp ne i32 {bad}, 0')}, label %{fail}, label %{fine}, !prof !1")
    t.label(fail)
    kept = dict(cg.values)
    t.put(f"store {WORDS} {cg.vector(instr.addr, 's64')}, ptr {t.field('%ctx', Ctx.ERROR_INDEX)}, align 8")
    cg.values = kept
    mask = t.do(f"zext i32 {bad} to i64")
    for word, value in ((Ctx.ERROR_SITE, site), (Ctx.ERROR_MASK, mask)):
        t.put(f"store i64 {value}, ptr {t.field('%ctx', word)}")
    cg.fail(Error.MISALIGNED)
    t.label(fine)


def access(cg: WarpCode, instr: ir.Access) -> None:
    """Emit one load, store or atomic: what is counted first, then the data."""
    site = cg.number_of_site(instr)
    private = instr.space == "local" and instr.array in cg.options.register_arrays
    if ir.elements(instr) > 1:
        _check_aligned(cg, instr, site)
    if instr.space == "shared":
        _count_shared(cg, instr, site)
    elif instr.space == "const":
        _count_constant(cg, instr, site)
    elif instr.space == "global":
        _trace(cg, instr, _kind(instr), site)
    elif isinstance(instr, (ir.Ld, ir.St)) and not private:
        _trace_local(cg, instr, Kind.LOCAL_LOAD if isinstance(instr, ir.Ld) else Kind.LOCAL_STORE, site)
    if cg.options.counts_only and not (isinstance(instr, ir.Ld) and _decides(cg, instr)):
        return
    copies.check_access(cg, instr, site)
    match instr:
        case ir.Ld():
            data.load(cg, instr)
        case ir.St():
            data.store(cg, instr)
        case ir.Atom():
            atomics.atomic(cg, instr)


def _decides(cg: WarpCode, instr: ir.Ld) -> bool:
    """Tell whether branches or addresses depend on a load; only constants are there where data are not."""
    return any(cg.wanted(dst.index) for dst in instr.dsts)


def _kind(instr: ir.Access) -> Kind:
    """Return what the trace calls a request to global memory."""
    if isinstance(instr, ir.Ld):
        return Kind.LOAD_L2 if instr.cache in PAST_L1 else Kind.LOAD
    if isinstance(instr, ir.St):
        return Kind.STORE
    return Kind.RED if instr.dst is None else Kind.ATOM
