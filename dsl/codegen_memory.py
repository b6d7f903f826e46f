"""Machine code for memory: index checks, loads, stores and atomics, the data and what is counted of each.

What it models: one warp instruction becomes one request; its sectors (global, local) or wavefronts (shared)
are a constant where the lanes' addresses have a known pattern, and are found out by the coalescer or the bank
rule otherwise. What it leaves out: caches. Checked by `l1tex__t_requests_*`, `l1tex__t_sectors_*`,
`l1tex__data_pipe_lsu_wavefronts_mem_shared_*`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsl import ir, runtime_ll
from dsl.codegen_alu import Lane, emit
from dsl.layout import Ctx, Error
from dsl.llvm import LANES, TYPES, lanes_constant, vector
from gpusim.memory import LOCAL_BASE
from gpusim.trace import FIRST_SHIFT, LINE_BYTES, LINE_SHIFT, SECTOR_BYTES, Kind

if TYPE_CHECKING:
    from dsl.codegen import WarpCode

PAST_L1 = ("cg", "cv")
"""Cache hints of loads that never hit L1 (fact 13)."""
WORDS = vector("i64")
FLAGS = vector("i1")


# ------------------------------------------------------------------------------------------ index checks


def check(cg: WarpCode, instr: ir.Chk) -> None:
    """Emit an index check; nothing where the interval of the index is inside the array for every launch."""
    lo, hi = cg.intervals.at(instr.index, cg.block)
    inside = lo >= 0 and isinstance(instr.extent, ir.Imm) and hi < instr.extent.value
    if inside:
        cg.define(instr.dst, cg.raw(instr.index, "s64"))
        return
    number, shape = cg.number_of_check(instr), cg.shapes.of(instr.index)
    if shape.uniform:
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
    wrapped = _wrap(cg, wide, extent, number)
    one = t.do(f"extractelement {WORDS} {wrapped}, i32 0")
    cold_end = t.name("back")
    t.put(f"br label %{cold_end}")
    t.label(cold_end)
    t.put(f"br label %{on}")
    t.label(on)
    return t.do(f"phi i64 [ {index}, %{here} ], [ {one}, %{cold_end} ]")


def _check_lanes(cg: WarpCode, instr: ir.Chk, number: int, index: str) -> str:
    t = cg.text
    extent = cg.raw(instr.extent, "s64")
    inside = t.do(f"icmp ult {WORDS} {index}, {t.splat(extent, 'i64')}")
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
    _wrap(cg, cg.vector(instr.index, "s64"), extent, number)
    cg.values = kept
    t.put(f"br label %{on}")
    t.label(on)


def _all_active(cg: WarpCode, bits: str) -> str:
    t = cg.text
    if cg.full:
        return t.do(f"icmp eq i32 {bits}, -1")
    return t.do(f"icmp eq i32 {t.do(f'and i32 {bits}, {cg.bits}')}, {cg.bits}")


def _wrap(cg: WarpCode, index: str, extent: str, number: int) -> str:
    """Wrap negative lanes once, count them, and stop the launch where an active lane is outside even so."""
    t = cg.text
    wide = t.splat(extent, "i64")
    negative = t.do(f"icmp slt {WORDS} {index}, zeroinitializer")
    moved = t.do(f"add {WORDS} {index}, {wide}")
    wrapped = index
    if not cg.options.strict_index:
        wrapped = t.do(f"select {FLAGS} {negative}, {WORDS} {moved}, {WORDS} {index}")
    outside = t.do(f"icmp uge {WORDS} {wrapped}, {wide}")
    bad = t.do(f"and i32 {t.bits(outside)}, {cg.bits}")
    fail, fine = t.name("outside"), t.name("fine")
    t.put(f"br i1 {t.do(f'icmp ne i32 {bad}, 0')}, label %{fail}, label %{fine}")
    t.label(fail)
    t.put(f"store {WORDS} {index}, ptr {t.field('%ctx', Ctx.ERROR_INDEX)}, align 8")
    mask = t.do(f"zext i32 {bad} to i64")
    for word, value in ((Ctx.ERROR_SITE, number), (Ctx.ERROR_MASK, mask), (Ctx.ERROR_EXTENT, extent)):
        t.put(f"store i64 {value}, ptr {t.field('%ctx', word)}")
    cg.fail(Error.OUT_OF_BOUNDS)
    t.label(fine)
    lanes = t.do(f"and i32 {t.bits(negative)}, {cg.bits}")
    count = t.do(f"zext i32 {t.intrinsic('ctpop', 'i32', lanes)} to i64")
    t.add_to(t.field("%wraps", number), count)
    return wrapped


# ------------------------------------------------------------------------------------------ counting


def _count_sectors(cg: WarpCode, site: int, sectors: str) -> None:
    t = cg.text
    full, fine = t.name("full"), t.name("fine")
    t.put(f"br i1 {t.do(f'icmp slt i64 {sectors}, 0')}, label %{full}, label %{fine}, !prof !1")
    t.label(full)
    cg.leave_failed()
    t.label(fine)
    t.add_to(t.field("%sites", 3 * site), sectors)


def _trace(cg: WarpCode, instr: ir.Access, kind: Kind, site: int) -> None:
    """Count and trace one global request."""
    t, size = cg.text, ir.BYTES[instr.type]
    shape = cg.shapes.of(instr.addr)
    header = runtime_ll.span_header(kind, site)
    contiguous = shape.pattern == tuple(size * lane for lane in range(LANES))
    if kind in (Kind.RED, Kind.ATOM):
        _trace_lanes(cg, cg.vector(instr.addr, "s64"), kind, site, runtime_ll.COLLIDE)
    elif shape.uniform or (contiguous and cg.full):
        span = size if shape.uniform else size * LANES
        address = cg.raw(instr.addr, "s64")
        name = "trace_line" if span == LINE_BYTES else "trace_span"
        _count_sectors(cg, site, t.do(f"call i64 @{name}(ptr %ctx, i64 {address}, i64 {span}, i64 {header})"))
    elif cg.full and shape.pattern is not None and _a_line_a_lane(shape.pattern):
        _trace_apart(cg, cg.raw(instr.addr, "s64"), shape.pattern, header, site)
    else:
        _trace_lanes(cg, cg.vector(instr.addr, "s64"), kind, site, runtime_ll.COALESCE)


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
    cg.leave_failed()
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
    t, size = cg.text, ir.BYTES[instr.type]
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
    _trace_lanes(cg, first, kind, site, runtime_ll.COALESCE)
    if size == 8:
        _trace_lanes(cg, t.do(f"add {WORDS} {first}, splat (i64 128)"), kind, site, runtime_ll.COALESCE)


def _count_shared(cg: WarpCode, instr: ir.Access, site: int) -> None:
    """Count a shared request's wavefronts by the bank rule.

    Those of a full warp with a known pattern are a constant, which dsl/engine.py adds up later.
    """
    t, size = cg.text, ir.BYTES[instr.type]
    shape = cg.shapes.of(instr.addr)
    if cg.full and not shape.varying:
        return
    wavefronts, ideal = t.field("%sites", 3 * site + 1), t.field("%sites", 3 * site + 2)
    if shape.uniform and size <= 4:
        t.add_to(wavefronts, "1")
        t.add_to(ideal, "1")
    else:
        t.put(f"store {WORDS} {cg.vector(instr.addr, 's64')}, ptr %scratch, align 64")
        args = [("ptr", "%scratch"), ("i32", cg.bits), ("i64", str(size))]
        name = runtime_ll.ATOMIC_WAVEFRONTS
        if not isinstance(instr, ir.Atom):
            name = runtime_ll.WAVEFRONTS
            args.append(("i64", str(int(isinstance(instr, ir.Ld)))))
        taken = t.call("i64", name, *args)
        t.add_to(wavefronts, taken)
        t.add_to(ideal, t.intrinsic("umin", "i64", taken, _ideal(cg, size)))


def _ideal(cg: WarpCode, size: int) -> str:
    """Return the wavefronts the active lanes take with consecutive addresses.

    Up to 4 bytes a lane that is 1; with 8 bytes, one for each half of the warp in use.
    """
    t = cg.text
    if size <= 4:
        return "1"
    low = t.do(f"icmp ne i32 {t.do(f'and i32 {cg.bits}, 65535')}, 0")
    high = t.do(f"icmp ugt i32 {cg.bits}, 65535")
    return t.do(f"add i64 {t.do(f'zext i1 {low} to i64')}, {t.do(f'zext i1 {high} to i64')}")


# ------------------------------------------------------------------------------------------ data


def access(cg: WarpCode, instr: ir.Access) -> None:
    """Emit one load, store or atomic: what is counted first, then the data."""
    site = cg.number_of_site(instr)
    private = instr.space == "local" and instr.array in cg.options.register_arrays
    if instr.space == "shared":
        _count_shared(cg, instr, site)
    elif instr.space == "global":
        _trace(cg, instr, _kind(instr), site)
    elif isinstance(instr, (ir.Ld, ir.St)) and not private:
        _trace_local(cg, instr, Kind.LOCAL_LOAD if isinstance(instr, ir.Ld) else Kind.LOCAL_STORE, site)
    if cg.options.counts_only:
        return
    match instr:
        case ir.Ld():
            _load(cg, instr)
        case ir.St():
            _store(cg, instr)
        case ir.Atom():
            _atomic(cg, instr)


def _kind(instr: ir.Access) -> Kind:
    """Return what the trace calls a request to global memory."""
    if isinstance(instr, ir.Ld):
        return Kind.LOAD_L2 if instr.cache in PAST_L1 else Kind.LOAD
    if isinstance(instr, ir.St):
        return Kind.STORE
    return Kind.RED if instr.dst is None else Kind.ATOM


def _base(cg: WarpCode, instr: ir.Access) -> str:
    return {"global": "%global", "shared": "%shared"}.get(instr.space) or cg.local_array(instr.array)


def _offset(cg: WarpCode, instr: ir.Access) -> str:
    """Return the byte offset of a uniform access, or of the first of lanes that lie side by side.

    An element of a private array is a vector of 32 lanes.
    """
    t = cg.text
    offset = cg.raw(instr.addr, "s64")
    if instr.space != "local":
        return offset
    start = cg.local_start(instr.array)
    return t.do(f"mul i64 {t.do(f'sub i64 {offset}, {start}')}, {LANES}")


def _pointers(cg: WarpCode, instr: ir.Access) -> str:
    """Return the lanes' host pointers."""
    t, size = cg.text, ir.BYTES[instr.type]
    offsets = cg.vector(instr.addr, "s64")
    if instr.space == "local":
        relative = t.do(f"sub {WORDS} {offsets}, splat (i64 {cg.local_start(instr.array)})")
        lanes = lanes_constant(tuple(size * i for i in range(LANES)), "i64")
        offsets = t.do(f"add {WORDS} {t.do(f'mul {WORDS} {relative}, splat (i64 {LANES})')}, {lanes}")
    return t.do(f"getelementptr i8, ptr {_base(cg, instr)}, {WORDS} {offsets}")


def _side_by_side(cg: WarpCode, instr: ir.Ld | ir.St) -> bool:
    """Tell whether the lanes' elements lie side by side in host memory."""
    shape, size = cg.shapes.of(instr.addr), ir.BYTES[instr.type]
    if instr.space == "local":
        return shape.uniform
    return shape.pattern == tuple(size * lane for lane in range(LANES))


def _load(cg: WarpCode, instr: ir.Ld) -> None:
    t, memory = cg.text, TYPES[instr.type] if instr.type != "pred" else "i8"
    size = ir.BYTES[instr.type]
    kind = vector(memory)
    if cg.shapes.of(instr.dst).uniform:
        pointer = t.do(f"getelementptr i8, ptr {_base(cg, instr)}, i64 {_offset(cg, instr)}")
        value = t.do(f"load {memory}, ptr {pointer}, align {size}")
        cg.define(instr.dst, _widened(cg, value, instr, False))
        return
    masked = [("i32", str(size)), (FLAGS, cg.mask), (kind, "zeroinitializer")]
    if _side_by_side(cg, instr):
        pointer = t.do(f"getelementptr i8, ptr {_base(cg, instr)}, i64 {_offset(cg, instr)}")
        if cg.full or instr.space == "local":
            value = t.do(f"load {kind}, ptr {pointer}, align {size}")
        else:
            args = [("ptr", pointer), *masked]
            value = t.call(kind, f"llvm.masked.load.v{LANES}{_suffix(memory)}.p0", *args)
    else:
        args = [(vector("ptr"), _pointers(cg, instr)), *masked]
        value = t.call(kind, f"llvm.masked.gather.v{LANES}{_suffix(memory)}.v{LANES}p0", *args)
    cg.define(instr.dst, _widened(cg, value, instr, True))


def _suffix(scalar: str) -> str:
    return {"float": "f32", "double": "f64"}.get(scalar, scalar)


def _widened(cg: WarpCode, value: str, instr: ir.Ld, is_vector: bool) -> str:
    """Return a loaded element in the register's type: small integers extended, a predicate's byte tested."""
    t = cg.text
    form = vector if is_vector else (lambda s: s)
    if instr.type == "pred":
        zero = "zeroinitializer" if is_vector else "0"
        return t.do(f"icmp ne {form('i8')} {value}, {zero}")
    if instr.type in ("u8", "s8", "u16", "s16"):
        extend = "sext" if instr.type[0] == "s" else "zext"
        return t.do(f"{extend} {form(TYPES[instr.type])} {value} to {form('i32')}")
    return cg.reinterpreted(value, instr.type, instr.dst.type, is_vector)


def _narrowed(cg: WarpCode, instr: ir.St | ir.Atom, is_vector: bool) -> tuple[str, str]:
    """Return (LLVM type, value) of what a store writes."""
    t = cg.text
    form = vector if is_vector else (lambda s: s)
    register = {"u8": "u32", "s8": "s32", "u16": "u32", "s16": "s32"}.get(instr.type, instr.type)
    value = cg.vector(instr.value, register) if is_vector else cg.raw(instr.value, register)
    if instr.type == "pred":
        return "i8", t.do(f"zext {form('i1')} {value} to {form('i8')}")
    if register != instr.type:
        return TYPES[instr.type], t.do(f"trunc {form('i32')} {value} to {form(TYPES[instr.type])}")
    return TYPES[instr.type], value


def _store(cg: WarpCode, instr: ir.St) -> None:
    t, size = cg.text, ir.BYTES[instr.type]
    if cg.shapes.of(instr.addr).uniform and instr.space != "local":
        _store_one(cg, instr)
        return
    memory, value = _narrowed(cg, instr, True)
    kind = vector(memory)
    if not _side_by_side(cg, instr):
        args = [(kind, value), (vector("ptr"), _pointers(cg, instr)), ("i32", str(size)), (FLAGS, cg.mask)]
        t.call("void", f"llvm.masked.scatter.v{LANES}{_suffix(memory)}.v{LANES}p0", *args)
        return
    pointer = t.do(f"getelementptr i8, ptr {_base(cg, instr)}, i64 {_offset(cg, instr)}")
    if cg.full:
        t.put(f"store {kind} {value}, ptr {pointer}, align {size}")
    elif instr.space == "local":
        old = t.do(f"load {kind}, ptr {pointer}, align {size}")
        merged = t.do(f"select {FLAGS} {cg.mask}, {kind} {value}, {kind} {old}")
        t.put(f"store {kind} {merged}, ptr {pointer}, align {size}")
    else:
        args = [(kind, value), ("ptr", pointer), ("i32", str(size)), (FLAGS, cg.mask)]
        t.call("void", f"llvm.masked.store.v{LANES}{_suffix(memory)}.p0", *args)


def _store_one(cg: WarpCode, instr: ir.St) -> None:
    """Store to one address from all lanes: the highest active lane's value stays."""
    t = cg.text
    pointer = t.do(f"getelementptr i8, ptr {_base(cg, instr)}, i64 {_offset(cg, instr)}")
    varying = not cg.shapes.of(instr.value).uniform
    memory, value = _narrowed(cg, instr, varying)
    if varying:
        value = t.do(f"extractelement {vector(memory)} {value}, i32 {_highest_lane(cg)}")
    t.put(f"store {memory} {value}, ptr {pointer}, align {ir.BYTES[instr.type]}")


def _highest_lane(cg: WarpCode) -> str:
    if cg.full:
        return str(LANES - 1)
    t = cg.text
    zeros = t.call("i32", "llvm.ctlz.i32", ("i32", cg.bits), ("i1", "true"))
    return t.do(f"sub i32 31, {zeros}")


def _after_atomic(cg: WarpCode, instr: ir.Atom, old: str, value: str, number: str) -> str:
    """Return what one lane's atomic leaves in memory."""
    lane = Lane(cg.text, instr.type, False)
    match instr.op:
        case "exch":
            return value
        case "cas":
            assert instr.compare is not None, "the front end gives cas its comparand"
            expected = cg.vector(instr.compare, instr.type)
            one = cg.text.do(f"extractelement {vector(lane.scalar)} {expected}, i32 {number}")
            return lane.select(_same_bits(lane, old, one), value, old)
        case "inc":
            wraps = lane.cmp("icmp uge", old, value)
            return lane.select(wraps, lane.k(0), lane.bin("add", old, lane.k(1)))
        case "dec":
            outside = lane.other("pred").bin(
                "or", lane.cmp("icmp eq", old, lane.k(0)), lane.cmp("icmp ugt", old, value)
            )
            return lane.select(outside, value, lane.bin("sub", old, lane.k(1)))
        case "max_nan" | "min_nan":
            larger = emit(lane, instr.op.removesuffix("_nan"), [old, value], [None, None])
            return lane.select(lane.cmp("fcmp uno", old, old), old, larger)
    return emit(lane, instr.op, [old, value], [None, None])


def _same_bits(lane: Lane, a: str, b: str) -> str:
    """Compare as a compare-and-swap does: bits, of floats too."""
    if lane.type[0] != "f":
        return lane.cmp("icmp eq", a, b)
    ints = lane.other("u32" if lane.type == "f32" else "u64")
    return ints.cmp("icmp eq", lane.cast("bitcast", a, ints), lane.cast("bitcast", b, ints))


def _atomic(cg: WarpCode, instr: ir.Atom) -> None:
    """Do an atomic a lane at a time, in ascending order."""
    t = cg.text
    memory, values = _narrowed(cg, instr, True)
    kind, pointers = vector(memory), _pointers(cg, instr)
    size = ir.BYTES[instr.type]
    if instr.compare is not None:
        cg.vector(instr.compare, instr.type)  # before the loop, so that its lanes are at hand inside
    before, loop, after = t.name("atom"), t.name("lane"), t.name("after")
    t.put(f"br label %{before}")
    t.label(before)
    t.put(f"br label %{loop}")
    t.label(loop)
    rest, olds, next_rest, next_olds = (f"%{t.name()}" for _ in range(4))
    t.put(f"{rest} = phi i32 [ {cg.bits}, %{before} ], [ {next_rest}, %{loop} ]")
    t.put(f"{olds} = phi {kind} [ zeroinitializer, %{before} ], [ {next_olds}, %{loop} ]")
    lane = t.call("i32", "llvm.cttz.i32", ("i32", rest), ("i1", "true"))
    pointer = t.do(f"extractelement {vector('ptr')} {pointers}, i32 {lane}")
    value = t.do(f"extractelement {kind} {values}, i32 {lane}")
    old = t.do(f"load {memory}, ptr {pointer}, align {size}")
    new = _after_atomic(cg, instr, old, value, lane)
    t.put(f"store {memory} {new}, ptr {pointer}, align {size}")
    t.put(f"{next_olds} = insertelement {kind} {olds}, {memory} {old}, i32 {lane}")
    less = t.do(f"sub i32 {rest}, 1")
    t.put(f"{next_rest} = and i32 {rest}, {less}")
    t.put(f"br i1 {t.do(f'icmp eq i32 {next_rest}, 0')}, label %{after}, label %{loop}")
    t.label(after)
    if instr.dst is not None:
        cg.define(instr.dst, cg.reinterpreted(next_olds, instr.type, instr.dst.type, True))
