"""The machine code that every kernel shares: writing trace records, and running blocks.

What it models: a block's warps run one after another from barrier to barrier; every request becomes records
of gpusim/trace.py. What it leaves out: interleaving of warps inside a region (the replay interleaves blocks).
Checked by `l1tex__t_requests_*` and `l1tex__t_sectors_*`.
"""

from __future__ import annotations

from dsl.llvm.layout import DONE, FAILED, SPLIT, TRACE_SLACK_RECORDS, Ctx, Error, Frame
from gpusim.trace import FIRST_SHIFT, KIND_SHIFT, LINE_SHIFT, SITE_SHIFT, Kind

COALESCE, COLLIDE = "gpusim_coalesce", "gpusim_collide"
COALESCE_WORDS = {1: COALESCE, 2: "gpusim_coalesce_two_words", 4: "gpusim_coalesce_four_words"}
"""By the words of one lane, which lie apart in local memory."""
DIFFERENT_ADDRESSES = "gpusim_different_addresses"
WAVEFRONTS, ATOMIC_WAVEFRONTS = "gpusim_wavefronts", "gpusim_atomic_wavefronts"
MATRIX_WAVEFRONTS = "gpusim_matrix_wavefronts"
COPY_SECTORS, COPY_WAVEFRONTS = "gpusim_copy_sectors", "gpusim_copy_wavefronts"

_TRACE = f"""
; Make room for one request and put the WARP mark before the warp's first one.
; Return the next free record, or null.
define internal ptr @trace_open(ptr %ctx) noinline {{
  %pp = getelementptr i64, ptr %ctx, i64 {Ctx.TRACE:d}
  %p = load ptr, ptr %pp
  %ep = getelementptr i64, ptr %ctx, i64 {Ctx.TRACE_END:d}
  %e = load ptr, ptr %ep
  %need = getelementptr i64, ptr %p, i64 {TRACE_SLACK_RECORDS}
  %full = icmp ugt ptr %need, %e
  br i1 %full, label %no, label %yes
no:
  %er = getelementptr i64, ptr %ctx, i64 {Ctx.ERROR:d}
  store i64 {Error.TRACE_FULL:d}, ptr %er
  ret ptr null
yes:
  %mp = getelementptr i64, ptr %ctx, i64 {Ctx.MARKED:d}
  %m = load i64, ptr %mp
  %marked = icmp ne i64 %m, 0
  br i1 %marked, label %have, label %mark
have:
  ret ptr %p
mark:
  store i64 1, ptr %mp
  %wp = getelementptr i64, ptr %ctx, i64 {Ctx.WARP:d}
  %w = load i64, ptr %wp
  %wl = shl i64 %w, {LINE_SHIFT}
  %rec = or i64 %wl, {int(Kind.WARP) << KIND_SHIFT}
  store i64 %rec, ptr %p
  %q = getelementptr i64, ptr %p, i64 1
  ret ptr %q
}}

; Trace a request whose lanes touch the bytes addr .. addr + span - 1 without a gap.
; Return its sectors, or -1 if the trace is full.
define internal i64 @trace_span(ptr %ctx, i64 %addr, i64 %span, i64 %header) noinline {{
  %p0 = call ptr @trace_open(ptr %ctx)
  %none = icmp eq ptr %p0, null
  br i1 %none, label %full, label %go
full:
  ret i64 -1
go:
  %s1 = sub i64 %span, 1
  %end = add i64 %addr, %s1
  %s0 = lshr i64 %addr, 5
  %se = lshr i64 %end, 5
  %first = lshr i64 %addr, 7
  %last = lshr i64 %end, 7
  br label %loop
loop:
  %line = phi i64 [ %first, %go ], [ %next, %loop ]
  %p = phi ptr [ %p0, %go ], [ %pn, %loop ]
  %isfirst = icmp eq i64 %line, %first
  %islast = icmp eq i64 %line, %last
  %a3 = and i64 %s0, 3
  %b3 = and i64 %se, 3
  %lo = select i1 %isfirst, i64 %a3, i64 0
  %hi = select i1 %islast, i64 %b3, i64 3
  %up = shl i64 2, %hi
  %upm = sub i64 %up, 1
  %dn = shl i64 1, %lo
  %dnm = sub i64 %dn, 1
  %mask = xor i64 %upm, %dnm
  %flag = select i1 %isfirst, i64 {1 << FIRST_SHIFT}, i64 0
  %r1 = or i64 %mask, %header
  %r2 = or i64 %r1, %flag
  %lsh = shl i64 %line, {LINE_SHIFT}
  %r3 = or i64 %r2, %lsh
  store i64 %r3, ptr %p
  %pn = getelementptr i64, ptr %p, i64 1
  %next = add i64 %line, 1
  br i1 %islast, label %out, label %loop
out:
  %pp = getelementptr i64, ptr %ctx, i64 {Ctx.TRACE:d}
  store ptr %pn, ptr %pp
  %n = sub i64 %se, %s0
  %n1 = add i64 %n, 1
  ret i64 %n1
}}

; The same for 128 bytes: the usual case, one whole line of an open trace, is a dozen instructions in place.
define internal i64 @trace_line(ptr %ctx, i64 %addr, i64 %span, i64 %header) alwaysinline {{
  %off = and i64 %addr, 127
  %pp = getelementptr i64, ptr %ctx, i64 {Ctx.TRACE:d}
  %p = load ptr, ptr %pp
  %ep = getelementptr i64, ptr %ctx, i64 {Ctx.TRACE_END:d}
  %e = load ptr, ptr %ep
  %need = getelementptr i64, ptr %p, i64 {TRACE_SLACK_RECORDS}
  %room = icmp ule ptr %need, %e
  %mp = getelementptr i64, ptr %ctx, i64 {Ctx.MARKED:d}
  %m = load i64, ptr %mp
  %marked = icmp ne i64 %m, 0
  %aligned = icmp eq i64 %off, 0
  %a = and i1 %room, %marked
  %b = and i1 %a, %aligned
  br i1 %b, label %fast, label %slow
fast:
  %lsh = shl i64 %addr, {LINE_SHIFT - 7}
  %bits = or i64 %header, {15 | 1 << FIRST_SHIFT}
  %rec = or i64 %lsh, %bits
  store i64 %rec, ptr %p
  %q = getelementptr i64, ptr %p, i64 1
  store ptr %q, ptr %pp
  ret i64 4
slow:
  %n = call i64 @trace_span(ptr %ctx, i64 %addr, i64 %span, i64 %header)
  ret i64 %n
}}

; Trace a request by the lanes' addresses in the scratch area, through the coalescer `by`.
; Return its sectors, or -1 if the trace is full.
define internal i64 @trace_lanes(ptr %ctx, i32 %mask, i64 %kind, i64 %site, ptr %by) noinline {{
  %p0 = call ptr @trace_open(ptr %ctx)
  %none = icmp eq ptr %p0, null
  br i1 %none, label %full, label %go
full:
  ret i64 -1
go:
  %sp = getelementptr i64, ptr %ctx, i64 {Ctx.SCRATCH:d}
  %s = load ptr, ptr %sp
  %r = call i64 %by(ptr %s, i32 %mask, i64 %kind, i64 %site, ptr %p0)
  %n = and i64 %r, 4294967295
  %q = getelementptr i64, ptr %p0, i64 %n
  %pp = getelementptr i64, ptr %ctx, i64 {Ctx.TRACE:d}
  store ptr %q, ptr %pp
  %sectors = lshr i64 %r, 32
  ret i64 %sectors
}}
"""


def span_header(kind: Kind, site: int) -> int:
    """Return the constant bits that trace_span puts into each record."""
    return int(kind) << KIND_SHIFT | site << SITE_SHIFT


def driver(
    threads: int, frame_bytes: int, poison: tuple[int, int], n_blocks: int, begin: str = ""
) -> str:
    """Return the text of `run_blocks`: run `count` blocks from `first`, barrier region by barrier region.

    frame_bytes: of one warp. poison: (offset, bytes) of the frame's private arrays, filled with ones before
    each block. n_blocks: of the IR (pending masks to clear). begin: instructions before each block. The
    function returns 0, or -1 with the context's ERROR words set.
    """
    n_warps = -(-threads // 32)
    rest = threads % 32
    last_mask = (1 << rest) - 1 if rest else 0xFFFFFFFF
    pending_bytes = 4 * n_blocks
    return f"""
define i64 @run_blocks(ptr %ctx, i64 %first, i64 %count) {{
entry:
  %blockp = getelementptr i64, ptr %ctx, i64 {Ctx.BLOCK:d}
  %warpp = getelementptr i64, ptr %ctx, i64 {Ctx.WARP:d}
  %markp = getelementptr i64, ptr %ctx, i64 {Ctx.MARKED:d}
  %barp = getelementptr i64, ptr %ctx, i64 {Ctx.BARRIERS:d}
  %pastp = getelementptr i64, ptr %ctx, i64 {Ctx.PAST_END:d}
  %tracep = getelementptr i64, ptr %ctx, i64 {Ctx.TRACE:d}
  %nxp = getelementptr i64, ptr %ctx, i64 {Ctx.NCTAID_X:d}
  %nx = load i64, ptr %nxp
  %nyp = getelementptr i64, ptr %ctx, i64 {Ctx.NCTAID_Y:d}
  %ny = load i64, ptr %nyp
  %cxp = getelementptr i64, ptr %ctx, i64 {Ctx.CTAID_X:d}
  %cyp = getelementptr i64, ptr %ctx, i64 {Ctx.CTAID_Y:d}
  %czp = getelementptr i64, ptr %ctx, i64 {Ctx.CTAID_Z:d}
  %smp = getelementptr i64, ptr %ctx, i64 {Ctx.SHARED:d}
  %sm = load ptr, ptr %smp
  %smbp = getelementptr i64, ptr %ctx, i64 {Ctx.SHARED_BYTES:d}
  %smb = load i64, ptr %smbp
  %framesp = getelementptr i64, ptr %ctx, i64 {Ctx.FRAMES:d}
  %frames = load ptr, ptr %framesp
  %endsp = getelementptr i64, ptr %ctx, i64 {Ctx.ENDS:d}
  %ends = load ptr, ptr %endsp
  %maxp = getelementptr i64, ptr %ctx, i64 {Ctx.STEPS:d}
  %steps = load i64, ptr %maxp
  %stopp = getelementptr i64, ptr %ctx, i64 {Ctx.STOP:d}
  br label %blocks
blocks:
  %i = phi i64 [ 0, %entry ], [ %i1, %block_done ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %ask, label %all_done
all_done:
  ret i64 0
ask:
  %stop = load volatile i64, ptr %stopp
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %halt, label %block
halt:
  %haltp = getelementptr i64, ptr %ctx, i64 {Ctx.ERROR:d}
  store i64 {Error.STEPS:d}, ptr %haltp
  ret i64 -1
block:
  %b = add i64 %first, %i
  store i64 %b, ptr %blockp
  %cx = urem i64 %b, %nx
  %bq = udiv i64 %b, %nx
  %cy = urem i64 %bq, %ny
  %cz = udiv i64 %bq, %ny
  store i64 %cx, ptr %cxp
  store i64 %cy, ptr %cyp
  store i64 %cz, ptr %czp
  store i64 0, ptr %barp
  store i64 0, ptr %pastp
  call void @llvm.memset.p0.i64(ptr %sm, i8 -1, i64 %smb, i1 false)
  {begin}
  br label %init
init:
  %wi = phi i64 [ 0, %block ], [ %wi1, %init ]
  %fo = mul i64 %wi, {frame_bytes}
  %f = getelementptr i8, ptr %frames, i64 %fo
  %islast = icmp eq i64 %wi, {n_warps - 1}
  %mask = select i1 %islast, i64 {last_mask}, i64 4294967295
  %livep = getelementptr i64, ptr %f, i64 {Frame.LIVE:d}
  store i64 %mask, ptr %livep
  %resp = getelementptr i64, ptr %f, i64 {Frame.RESUME:d}
  store i64 0, ptr %resp
  %stepsp = getelementptr i64, ptr %f, i64 {Frame.STEPS:d}
  store i64 %steps, ptr %stepsp
  %pendp = getelementptr i64, ptr %f, i64 {Frame.PENDING:d}
  call void @llvm.memset.p0.i64(ptr %pendp, i8 0, i64 {pending_bytes}, i1 false)
  %poisonp = getelementptr i8, ptr %f, i64 {poison[0]}
  call void @llvm.memset.p0.i64(ptr %poisonp, i8 -1, i64 {poison[1]}, i1 false)
  %wi1 = add i64 %wi, 1
  br i1 %islast, label %region, label %init
region:
  br label %warps
warps:
  %w = phi i64 [ 0, %region ], [ %w1, %warp_next ]
  %at = phi i64 [ 0, %region ], [ %at1, %warp_next ]
  %mixed = phi i1 [ false, %region ], [ %mixed1, %warp_next ]
  %waiting = phi i64 [ 0, %region ], [ %waiting1, %warp_next ]
  %ended = icmp eq i64 %w, {n_warps}
  br i1 %ended, label %region_end, label %warp
warp:
  %wfo = mul i64 %w, {frame_bytes}
  %wf = getelementptr i8, ptr %frames, i64 %wfo
  %wrp = getelementptr i64, ptr %wf, i64 {Frame.RESUME:d}
  %r = load i64, ptr %wrp
  %gone = icmp eq i64 %r, -2
  br i1 %gone, label %warp_gone, label %warp_run
warp_run:
  store i64 %w, ptr %warpp
  store i64 0, ptr %markp
  %r32 = trunc i64 %r to i32
  %res = call i32 @warp(ptr %ctx, ptr %wf, i32 %r32)
  %failed = icmp eq i32 %res, {FAILED}
  br i1 %failed, label %fail, label %warp_ok
fail:
  ret i64 -1
warp_ok:
  %split = icmp eq i32 %res, {SPLIT}
  %isdone0 = icmp eq i32 %res, {DONE}
  %isdone = or i1 %isdone0, %split
  %res64 = sext i32 %res to i64
  %newr = select i1 %isdone, i64 -2, i64 %res64
  store i64 %newr, ptr %wrp
  %nothere = icmp ne i64 %at, 0
  %differs = icmp ne i64 %at, %res64
  %clash0 = and i1 %nothere, %differs
  %notdone = xor i1 %isdone, true
  %clash = and i1 %clash0, %notdone
  %mixedn = or i1 %mixed, %clash
  %atn = select i1 %isdone, i64 %at, i64 %res64
  %wone = zext i1 %notdone to i64
  %waitn = add i64 %waiting, %wone
  br label %warp_next
warp_gone:
  br label %warp_next
warp_next:
  %at1 = phi i64 [ %atn, %warp_ok ], [ %at, %warp_gone ]
  %mixed1 = phi i1 [ %mixedn, %warp_ok ], [ %mixed, %warp_gone ]
  %waiting1 = phi i64 [ %waitn, %warp_ok ], [ %waiting, %warp_gone ]
  %w1 = add i64 %w, 1
  br label %warps
region_end:
  %errorp = getelementptr i64, ptr %ctx, i64 {Ctx.ERROR:d}
  %error = load i64, ptr %errorp
  %bad = icmp ne i64 %error, 0
  br i1 %bad, label %fail, label %region_ok
region_ok:
  %isend = icmp eq i64 %waiting, 0
  br i1 %isend, label %block_done, label %barrier
barrier:
  %past = load i64, ptr %pastp
  %gonepast = icmp ne i64 %past, 0
  %astray = or i1 %mixed, %gonepast
  br i1 %astray, label %mix, label %pass
mix:
  %errp = getelementptr i64, ptr %ctx, i64 {Ctx.ERROR:d}
  store i64 {Error.BARRIER_MIXED:d}, ptr %errp
  %errs = getelementptr i64, ptr %ctx, i64 {Ctx.ERROR_SITE:d}
  store i64 %at, ptr %errs
  ret i64 -1
pass:
  %n0 = load i64, ptr %barp
  %n1 = add i64 %n0, 1
  store i64 %n1, ptr %barp
  %gp = getelementptr i64, ptr %ctx, i64 {Ctx.GATHERED:d}
  %gathered = load <2 x i64>, ptr %gp, align 8
  store <2 x i64> zeroinitializer, ptr %gp, align 8
  %hp = getelementptr i64, ptr %ctx, i64 {Ctx.BARRIER_HELD:d}
  store <2 x i64> %gathered, ptr %hp, align 8
  store i64 1, ptr %markp
  %tp = call ptr @trace_open(ptr %ctx)
  %tnull = icmp eq ptr %tp, null
  br i1 %tnull, label %fail, label %mark
mark:
  %bl = shl i64 %n1, {LINE_SHIFT}
  %brec = or i64 %bl, {int(Kind.BARRIER) << KIND_SHIFT}
  store i64 %brec, ptr %tp
  %tq = getelementptr i64, ptr %tp, i64 1
  store ptr %tq, ptr %tracep
  br label %region
block_done:
  %tend = load i64, ptr %tracep
  %ep = getelementptr i64, ptr %ends, i64 %i
  store i64 %tend, ptr %ep
  %i1 = add i64 %i, 1
  br label %blocks
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def trace_functions() -> str:
    """Return the text of the functions that write records."""
    return _TRACE
