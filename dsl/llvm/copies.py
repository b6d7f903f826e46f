"""The LLVM functions behind cp.async: the copies themselves, groups, and what is not there yet.

What it models: data arrive at once, and every 4 bytes of shared memory remember which group of which thread
brought them, until that thread has waited for it: whoever touches them earlier stops the launch. A mark is
group << 32 | thread << 16 | site (0: none). A limit holds the largest mark that surely is complete, so that
the usual check is one comparison a word. Marks are made by dsl/semantics/copies.py too, which judges this.
What it leaves out: when the card's copies really arrive. Which ncu metric checks it:
`smsp__inst_executed_op_ldgsts`.
"""

from __future__ import annotations

from dsl.llvm.layout import Ctx, Error
from dsl.llvm.text import LANES

GROUP_SHIFT, THREAD_SHIFT, SITE_BITS, THREAD_BITS = 32, 16, 0xFFFF, 0xFFFF
COMMITTED, COMPLETED, ISSUED = range(3)
"""The tables of i64 a thread behind the first word of Ctx.GROUPS, which holds the limit."""
NO_LIMIT = (1 << 63) - 1
WORDS = f"<{LANES} x i64>"
FLAGS = f"<{LANES} x i1>"


def group_words(n_warps: int) -> int:
    """Return the words of Ctx.GROUPS."""
    return 1 + 3 * LANES * n_warps


def _table(name: str, which: int, n_warps: int) -> str:
    """Return the lines that find this warp's part of a table."""
    first = 1 + which * LANES * n_warps
    return f"""  %{name}t = getelementptr i64, ptr %g, i64 {first}
  %{name}p = getelementptr i64, ptr %{name}t, i64 %lane0
"""


_OPEN = f"""  %gp = getelementptr i64, ptr %ctx, i64 {Ctx.GROUPS:d}
  %g = load ptr, ptr %gp
  %wp = getelementptr i64, ptr %ctx, i64 {Ctx.WARP:d}
  %w = load i64, ptr %wp
  %lane0 = shl i64 %w, 5
  %active = bitcast i32 %mask to {FLAGS}
"""


def _reset(n_warps: int) -> str:
    return f"""
define internal void @copies_reset(ptr %ctx) noinline {{
  %sp = getelementptr i64, ptr %ctx, i64 {Ctx.SHADOW:d}
  %s = load ptr, ptr %sp
  %np = getelementptr i64, ptr %ctx, i64 {Ctx.SHARED_BYTES:d}
  %n = load i64, ptr %np
  %twice = shl i64 %n, 1
  call void @llvm.memset.p0.i64(ptr %s, i8 0, i64 %twice, i1 false)
  %gp = getelementptr i64, ptr %ctx, i64 {Ctx.GROUPS:d}
  %g = load ptr, ptr %gp
  call void @llvm.memset.p0.i64(ptr %g, i8 0, i64 {8 * group_words(n_warps)}, i1 false)
  store i64 {NO_LIMIT}, ptr %g
  ret void
}}
"""


def _commit(n_warps: int) -> str:
    return f"""
define internal void @copies_commit(ptr %ctx, i32 %mask) noinline {{
{_OPEN}{_table("c", COMMITTED, n_warps)}  %old = load {WORDS}, ptr %cp, align 8
  %more = zext {FLAGS} %active to {WORDS}
  %new = add {WORDS} %old, %more
  store {WORDS} %new, ptr %cp, align 8
  ret void
}}
"""


def _wait(n_warps: int) -> str:
    """Complete all but the last %pending groups of some threads, and find the limit anew."""
    return f"""
define internal void @copies_wait(ptr %ctx, i32 %mask, i64 %pending) noinline {{
entry:
{_OPEN}{_table("c", COMMITTED, n_warps)}{_table("d", COMPLETED, n_warps)}{_table("i", ISSUED, n_warps)}\
  %committed = load {WORDS}, ptr %cp, align 8
  %done = load {WORDS}, ptr %dp, align 8
  %one = insertelement {WORDS} poison, i64 %pending, i32 0
  %left = shufflevector {WORDS} %one, {WORDS} poison, <{LANES} x i32> zeroinitializer
  %reached = sub {WORDS} %committed, %left
  %further = icmp sgt {WORDS} %reached, %done
  %moves = and {FLAGS} %further, %active
  %new = select {FLAGS} %moves, {WORDS} %reached, {WORDS} %done
  store {WORDS} %new, ptr %dp, align 8
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
  %least = phi {WORDS} [ splat (i64 {NO_LIMIT}), %entry ], [ %least1, %loop ]
  %first = shl i64 %k, 5
  %da = getelementptr i64, ptr %dt, i64 %first
  %ia = getelementptr i64, ptr %it, i64 %first
  %d = load {WORDS}, ptr %da, align 8
  %i = load {WORDS}, ptr %ia, align 8
  %open = icmp sgt {WORDS} %i, %d
  %smaller = icmp slt {WORDS} %d, %least
  %counts = and {FLAGS} %open, %smaller
  %least1 = select {FLAGS} %counts, {WORDS} %d, {WORDS} %least
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, {n_warps}
  br i1 %more, label %loop, label %out
out:
  %min = call i64 @llvm.vector.reduce.smin.v{LANES}i64({WORDS} %least1)
  %none = icmp eq i64 %min, {NO_LIMIT}
  %next = add i64 %min, 1
  %mark = shl i64 %next, {GROUP_SHIFT}
  %last = sub i64 %mark, 1
  %limit = select i1 %none, i64 {NO_LIMIT}, i64 %last
  store i64 %limit, ptr %g
  ret void
}}
"""


def _blocking(n_warps: int) -> str:
    """Return the first mark, among the words of %bytes bytes from %address on, that is not complete; or 0."""
    return f"""
define internal i64 @copies_blocking(ptr %ctx, i64 %address, i64 %bytes) noinline {{
entry:
  %gp = getelementptr i64, ptr %ctx, i64 {Ctx.GROUPS:d}
  %g = load ptr, ptr %gp
  %dt = getelementptr i64, ptr %g, i64 {1 + COMPLETED * LANES * n_warps}
  %sp = getelementptr i64, ptr %ctx, i64 {Ctx.SHADOW:d}
  %s = load ptr, ptr %sp
  %first = lshr i64 %address, 2
  %end0 = add i64 %address, %bytes
  %end1 = add i64 %end0, 3
  %end = lshr i64 %end1, 2
  br label %loop
loop:
  %k = phi i64 [ %first, %entry ], [ %k1, %next ]
  %place = getelementptr i64, ptr %s, i64 %k
  %mark = load i64, ptr %place
  %group = lshr i64 %mark, {GROUP_SHIFT}
  %moved = lshr i64 %mark, {THREAD_SHIFT}
  %thread = and i64 %moved, {THREAD_BITS}
  %dp = getelementptr i64, ptr %dt, i64 %thread
  %done = load i64, ptr %dp
  %pending = icmp ugt i64 %group, %done
  br i1 %pending, label %found, label %next
next:
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %end
  br i1 %more, label %loop, label %none
found:
  ret i64 %mark
none:
  ret i64 0
}}
"""


def _look(lane: str, name: str, seen: str, kind: str) -> str:
    """Return the lines that look at the marks of one lane's address; %{name}seen: those beyond the limit."""
    return f"""  %{name}p = getelementptr i64, ptr %addresses, i32 {lane}
  %{name}a = load i64, ptr %{name}p
  %{name}k = lshr i64 %{name}a, 2
  %{name}place = getelementptr i64, ptr %s, i64 %{name}k
  %{name}marks = load {kind}, ptr %{name}place, align 8
  %{name}over = sub {kind} %limits, %{name}marks
  %{name}seen = or {kind} {seen}, %{name}over
"""


def _look_at_all(kind: str) -> str:
    """Return the loop that looks at the marks of all 32 lanes, four in a turn."""
    lines = ["  %first = phi i32 [ 0, %begin ], [ %first1, %whole ]",
             f"  %sum = phi {kind} [ zeroinitializer, %begin ], [ %q3seen, %whole ]"]  # fmt: skip
    text = "\n".join(lines) + "\n"
    for k in range(4):
        text += f"  %turn{k} = add i32 %first, {k}\n"
        text += _look(f"%turn{k}", f"q{k}", f"%q{k - 1}seen" if k else "%sum", kind)
    return text + f"""  %first1 = add i32 %first, 4
  %more = icmp ult i32 %first1, {LANES}
  br i1 %more, label %whole, label %done
"""


def check(n_bytes: int) -> str:
    """Stop (return -1) if an active lane's %addresses are still being copied to; 0 where all are there."""
    words = max(1, n_bytes // 4)
    kind = f"<{words} x i64>"
    return f"""
define internal i64 @copies_check_{n_bytes}(ptr %ctx, i32 %mask, ptr %addresses, i64 %site) noinline {{
entry:
  %gp = getelementptr i64, ptr %ctx, i64 {Ctx.GROUPS:d}
  %g = load ptr, ptr %gp
  %limit = load i64, ptr %g
  %idle = icmp eq i64 %limit, {NO_LIMIT}
  br i1 %idle, label %fine, label %begin
begin:
  %sp = getelementptr i64, ptr %ctx, i64 {Ctx.SHADOW:d}
  %s = load ptr, ptr %sp
  %l1 = insertelement {kind} poison, i64 %limit, i32 0
  %limits = shufflevector {kind} %l1, {kind} poison, <{words} x i32> zeroinitializer
  %all_lanes = icmp eq i32 %mask, -1
  br i1 %all_lanes, label %whole, label %loop
whole:
{_look_at_all(kind)}loop:
  %rest = phi i32 [ %mask, %begin ], [ %rest1, %loop ]
  %seen = phi {kind} [ zeroinitializer, %begin ], [ %oneseen, %loop ]
  %lane = call i32 @llvm.cttz.i32(i32 %rest, i1 true)
{_look("%lane", "one", "%seen", kind)}  %less = sub i32 %rest, 1
  %rest1 = and i32 %rest, %less
  %last = icmp eq i32 %rest1, 0
  br i1 %last, label %done, label %loop
done:
  %found_all = phi {kind} [ %q3seen, %whole ], [ %oneseen, %loop ]
  %all = call i64 @llvm.vector.reduce.or.v{words}i64({kind} %found_all)
  %beyond = icmp slt i64 %all, 0
  br i1 %beyond, label %slowly, label %fine
slowly:
  %again = phi i32 [ %mask, %done ], [ %again1, %on ]
  %lane2 = call i32 @llvm.cttz.i32(i32 %again, i1 true)
  %bp = getelementptr i64, ptr %addresses, i32 %lane2
  %b = load i64, ptr %bp
  %found = call i64 @copies_blocking(ptr %ctx, i64 %b, i64 {n_bytes})
  %bad = icmp ne i64 %found, 0
  br i1 %bad, label %stop, label %on
on:
  %less2 = sub i32 %again, 1
  %again1 = and i32 %again, %less2
  %end = icmp eq i32 %again1, 0
  br i1 %end, label %fine, label %slowly
stop:
  %ep = getelementptr i64, ptr %ctx, i64 {Ctx.ERROR:d}
  store i64 {Error.PENDING_COPY:d}, ptr %ep
  %es = getelementptr i64, ptr %ctx, i64 {Ctx.ERROR_SITE:d}
  store i64 %site, ptr %es
  %wide = zext i32 %lane2 to i64
  %em = getelementptr i64, ptr %ctx, i64 {Ctx.ERROR_MASK:d}
  store i64 %wide, ptr %em
  %ee = getelementptr i64, ptr %ctx, i64 {Ctx.ERROR_EXTENT:d}
  store i64 %found, ptr %ee
  %ei = getelementptr i64, ptr %ctx, i64 {Ctx.ERROR_INDEX:d}
  store i64 %b, ptr %ei
  ret i64 -1
fine:
  ret i64 0
}}
"""


def copy(n_bytes: int, n_warps: int) -> str:
    """Copy %taken bytes a lane, fill the rest with zeros, and mark the words; %from, %to: 32 addresses."""
    words = n_bytes // 4
    kind = f"<{words} x i64>"
    threads = ", ".join(f"i64 {lane << THREAD_SHIFT}" for lane in range(LANES))
    lanes = "ptr %from, ptr %to, ptr %taken, ptr %marks"
    return f"""
define internal void @copy_async_{n_bytes}(ptr %ctx, i32 %mask, {lanes}, i64 %site) noinline {{
entry:
{_OPEN}{_table("c", COMMITTED, n_warps)}{_table("d", COMPLETED, n_warps)}{_table("i", ISSUED, n_warps)}\
  %committed = load {WORDS}, ptr %cp, align 8
  %group = add {WORDS} %committed, splat (i64 1)
  %issued = load {WORDS}, ptr %ip, align 8
  %issued1 = select {FLAGS} %active, {WORDS} %group, {WORDS} %issued
  store {WORDS} %issued1, ptr %ip, align 8
  %done = load {WORDS}, ptr %dp, align 8
  %own = select {FLAGS} %active, {WORDS} %done, {WORDS} splat (i64 {(1 << 31) - 2})
  %least = call i64 @llvm.vector.reduce.smin.v{LANES}i64({WORDS} %own)
  %after = add i64 %least, 1
  %mark = shl i64 %after, {GROUP_SHIFT}
  %bound = sub i64 %mark, 1
  %limit = load i64, ptr %g
  %limit1 = call i64 @llvm.smin.i64(i64 %limit, i64 %bound)
  store i64 %limit1, ptr %g
  %thread0 = shl i64 %lane0, {THREAD_SHIFT}
  %base = or i64 %thread0, %site
  %b1 = insertelement {WORDS} poison, i64 %base, i32 0
  %bases = shufflevector {WORDS} %b1, {WORDS} poison, <{LANES} x i32> zeroinitializer
  %groups = shl {WORDS} %group, splat (i64 {GROUP_SHIFT})
  %lanes = add {WORDS} %bases, <{threads}>
  %all = or {WORDS} %groups, %lanes
  store {WORDS} %all, ptr %marks, align 64
  %globalp = getelementptr i64, ptr %ctx, i64 {Ctx.GLOBAL:d}
  %global = load ptr, ptr %globalp
  %sharedp = getelementptr i64, ptr %ctx, i64 {Ctx.SHARED:d}
  %shared = load ptr, ptr %sharedp
  %sp = getelementptr i64, ptr %ctx, i64 {Ctx.SHADOW:d}
  %s = load ptr, ptr %sp
  br label %loop
loop:
  %rest = phi i32 [ %mask, %entry ], [ %rest1, %next ]
  %lane = call i32 @llvm.cttz.i32(i32 %rest, i1 true)
  %fp = getelementptr i64, ptr %from, i32 %lane
  %fo = load i64, ptr %fp
  %tp = getelementptr i64, ptr %to, i32 %lane
  %to1 = load i64, ptr %tp
  %np = getelementptr i64, ptr %taken, i32 %lane
  %n = load i64, ptr %np
  %source = getelementptr i8, ptr %global, i64 %fo
  %target = getelementptr i8, ptr %shared, i64 %to1
  %whole = icmp eq i64 %n, {n_bytes}
  br i1 %whole, label %usual, label %part
usual:
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %target, ptr align 4 %source, i64 {n_bytes}, i1 false)
  br label %next
part:
  call void @llvm.memset.p0.i64(ptr %target, i8 0, i64 {n_bytes}, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %target, ptr align 1 %source, i64 %n, i1 false)
  br label %next
next:
  %mp = getelementptr i64, ptr %marks, i32 %lane
  %m = load i64, ptr %mp
  %m1 = insertelement {kind} poison, i64 %m, i32 0
  %mv = shufflevector {kind} %m1, {kind} poison, <{words} x i32> zeroinitializer
  %k = lshr i64 %to1, 2
  %place = getelementptr i64, ptr %s, i64 %k
  store {kind} %mv, ptr %place, align 8
  %less = sub i32 %rest, 1
  %rest1 = and i32 %rest, %less
  %last = icmp eq i32 %rest1, 0
  br i1 %last, label %out, label %loop
out:
  ret void
}}
"""


def groups(n_warps: int) -> dict[str, str]:
    """Return, by name, the functions that every kernel with asynchronous copies needs."""
    return {
        "copies_reset": _reset(n_warps),
        "copies_commit": _commit(n_warps),
        "copies_wait": _wait(n_warps),
        "copies_blocking": _blocking(n_warps),
    }


DECLARED = {
    name: f"declare {text}"
    for name, text in {
        "llvm.cttz.i32": "i32 @llvm.cttz.i32(i32, i1)",
        "llvm.smin.i64": "i64 @llvm.smin.i64(i64, i64)",
        f"llvm.vector.reduce.smin.v{LANES}i64": f"i64 @llvm.vector.reduce.smin.v{LANES}i64({WORDS})",
        "llvm.memcpy.p0.p0.i64": "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
        **{
            f"llvm.vector.reduce.or.v{n}i64": f"i64 @llvm.vector.reduce.or.v{n}i64(<{n} x i64>)"
            for n in (1, 2, 4)
        },
    }.items()
}
"""LLVM's own functions that these call: name -> declaration."""
