"""Machine code for cp.async: what it reads and writes, its groups, and the check that copies are there.

What it models: source and destination are aligned, and nobody touches bytes that a copy is still filling;
anything else stops the launch. A kernel without cp.async has no such checks. What it leaves out: the copying
itself (dsl/llvm/copies.py), and checks of copies where only counts are wanted. Checked by
dsl/interpreter/run.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsl.llvm import copies as copies_ll
from dsl.llvm import runtime
from dsl.llvm.layout import MOVE_SITE, Ctx, Error, Moved
from dsl.llvm.text import LANES, vector
from dsl.warpir import ir
from gpusim.trace import Kind

if TYPE_CHECKING:
    from dsl.codegen.kernel import WarpCode

WORDS, FLAGS = vector("i64"), vector("i1")


def prepare(cg: WarpCode) -> str:
    """Add the functions that all copies need; return what to do before each block."""
    cg.helpers |= copies_ll.groups(cg.n_warps)
    cg.text.declared |= copies_ll.DECLARED
    return "call void @copies_reset(ptr %ctx)"


def _stop_if(cg: WarpCode, bad: str, error: Error, number: int, words: str) -> None:
    """Stop the launch where a mask of lanes is not 0; words: what ERROR_INDEX is to hold."""
    t = cg.text
    fail, fine = t.name("astray"), t.name("fine")
    t.put(f"br i1 {t.do(f'icmp ne i32 {bad}, 0')}, label %{fail}, label %{fine}, !prof !1")
    t.label(fail)
    t.put(f"store {WORDS} {words}, ptr {t.field('%ctx', Ctx.ERROR_INDEX)}, align 8")
    mask = t.do(f"zext i32 {bad} to i64")
    for word, value in ((Ctx.ERROR_SITE, number), (Ctx.ERROR_MASK, mask)):
        t.put(f"store i64 {value}, ptr {t.field('%ctx', word)}")
    cg.fail(error)
    t.label(fine)


def require_multiple(
    cg: WarpCode, addresses: str, lanes: str, nbytes: int, error: Error, number: int
) -> None:
    """Stop the launch where the address of one of some lanes (i32) is no multiple of `nbytes`."""
    t = cg.text
    rest = t.do(f"and {WORDS} {addresses}, splat (i64 {nbytes - 1})")
    astray = t.bits(t.do(f"icmp ne {WORDS} {rest}, zeroinitializer"))
    _stop_if(cg, t.do(f"and i32 {astray}, {lanes}"), error, number, addresses)


def require_complete(
    cg: WarpCode, addresses: str, lanes: str, nbytes: int, number: int, is_move: bool = False
) -> None:
    """Stop the launch where lanes touch bytes that a copy is still filling; addresses: 32 words in memory."""
    if not cg.copies:
        return
    t = cg.text
    site = number + MOVE_SITE * is_move
    args = f"ptr %ctx, i32 {lanes}, ptr {addresses}, i64 {site}"
    name = f"copies_check_{nbytes}"
    cg.helpers[name] = copies_ll.check(nbytes)
    found = t.do(f"call i64 @{name}({args})")
    bad, fine = t.name("early"), t.name("fine")
    t.put(f"br i1 {t.do(f'icmp ne i64 {found}, 0')}, label %{bad}, label %{fine}, !prof !1")
    t.label(bad)
    cg.leave_failed()
    t.label(fine)


def check_access(cg: WarpCode, instr: ir.Access, site: int) -> None:
    """Check one load, store or atomic, if it is on shared memory."""
    if cg.copies and instr.space == "shared":
        cg.text.put(f"store {WORDS} {cg.vector(instr.addr, 's64')}, ptr %scratch, align 64")
        require_complete(cg, "%scratch", cg.bits, ir.access_bytes(instr), site)


def copy(cg: WarpCode, instr: ir.CpAsync) -> None:
    """Emit a cp.async: its checks, what it counts, its data."""
    t, number = cg.text, cg.number_of_move(instr)
    source, target = cg.vector(instr.addr, "s64"), cg.vector(instr.to, "s64")
    taken = cg.vector(ir.Imm(instr.bytes) if instr.taken is None else instr.taken, "s64")
    reading = cg.bits
    if instr.taken is not None:
        beyond = t.bits(t.do(f"icmp ugt {WORDS} {taken}, splat (i64 {instr.bytes})"))
        _stop_if(cg, t.do(f"and i32 {beyond}, {cg.bits}"), Error.COPY_SIZE, number, taken)
        some = t.bits(t.do(f"icmp ne {WORDS} {taken}, zeroinitializer"))
        reading = t.do(f"and i32 {some}, {cg.bits}")
    require_multiple(cg, source, reading, instr.bytes, Error.SOURCE_MISALIGNED, number)
    require_multiple(cg, target, cg.bits, instr.bytes, Error.TARGET_MISALIGNED, number)
    parts = {0: source, 1: target, 2: taken}
    place = {k: t.do(f"getelementptr i64, ptr %scratch, i64 {LANES * k}") for k in range(4)}
    for k, words in parts.items():
        t.put(f"store {WORDS} {words}, ptr {place[k]}, align 64")
    _count_reads(cg, instr, number, reading, taken, place)
    if instr.cache == "ca":
        _count_writes(cg, instr, number, reading, place[1])
    if cg.options.counts_only:
        return
    require_complete(cg, place[1], cg.bits, instr.bytes, number, is_move=True)
    name = f"copy_async_{instr.bytes}"
    cg.helpers[name] = copies_ll.copy(instr.bytes, cg.n_warps)
    pointers = ", ".join(f"ptr {place[k]}" for k in range(4))
    t.put(f"call void @{name}(ptr %ctx, i32 {cg.bits}, {pointers}, i64 {number})")


def _count_reads(
    cg: WarpCode, instr: ir.CpAsync, number: int, reading: str, taken: str, place: dict[int, str]
) -> None:
    """Count and trace the request to global memory, unless no lane reads."""
    t = cg.text
    some, on = t.name("reads"), t.name("on")
    t.put(f"br i1 {t.do(f'icmp ne i32 {reading}, 0')}, label %{some}, label %{on}")
    t.label(some)
    kind = Kind.LOAD if instr.cache == "ca" else Kind.LOAD_L2
    t.declared[runtime.COALESCE] = f"declare i64 @{runtime.COALESCE}(ptr, i32, i64, i64, ptr)"
    site = len(cg.sites) + number
    call = f"i64 @trace_lanes(ptr %ctx, i32 {reading}, i64 {kind:d}, i64 {site}, ptr @{runtime.COALESCE})"
    sectors = t.do(f"call {call}")
    full, fine = t.name("full"), t.name("fine")
    t.put(f"br i1 {t.do(f'icmp slt i64 {sectors}, 0')}, label %{full}, label %{fine}, !prof !1")
    t.label(full)
    cg.leave_failed()
    t.label(fine)
    if instr.cache == "cg":
        args = [("ptr", place[0]), ("ptr", place[1]), ("i32", reading)]
        sectors = t.call("i64", runtime.COPY_SECTORS, *args)
    cg.count_move(number, Moved.SECTORS, sectors)
    cg.count_move(number, Moved.REQUESTS, "1")
    lanes = t.do(f"zext i32 {t.intrinsic('ctpop', 'i32', reading)} to i64")
    cg.count_move(number, Moved.LANES, lanes)
    total = t.do(f"mul i64 {lanes}, {instr.bytes}")
    if instr.taken is not None:
        flags = t.do(f"bitcast i32 {reading} to {FLAGS}")
        kept = t.do(f"select {FLAGS} {flags}, {WORDS} {taken}, {WORDS} zeroinitializer")
        total = t.call("i64", f"llvm.vector.reduce.add.v{LANES}i64", (WORDS, kept))
    cg.count_move(number, Moved.BYTES, total)
    t.put(f"br label %{on}")
    t.label(on)


def _count_writes(cg: WarpCode, instr: ir.CpAsync, number: int, reading: str, target: str) -> None:
    """Count the wavefronts of a copy through L1: a store's, and no fewer than the source has lines."""
    t = cg.text
    lanes = [("i32", cg.bits), ("i32", reading), ("i64", str(instr.bytes))]
    both = t.call("i64", runtime.COPY_WAVEFRONTS, ("ptr", "%scratch"), ("ptr", target), *lanes)
    cg.count_move(number, Moved.WAVEFRONTS, t.do(f"and i64 {both}, 4294967295"))
    cg.count_move(number, Moved.IDEAL, t.do(f"lshr i64 {both}, 32"))


def commit(cg: WarpCode, instr: ir.CpCommit) -> None:
    """Emit a commit of the present group."""
    if cg.copies:
        cg.text.put(f"call void @copies_commit(ptr %ctx, i32 {cg.bits})")


def wait(cg: WarpCode, instr: ir.CpWait) -> None:
    """Emit a wait for all but the last groups."""
    if cg.copies:
        cg.text.put(f"call void @copies_wait(ptr %ctx, i32 {cg.bits}, i64 {instr.pending})")
