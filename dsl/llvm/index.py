"""The LLVM function behind index checks: what happens where the lanes are not all inside the array at once.

What it models: a negative index wraps once and is counted, unless that is refused; an active lane that is
outside even so stops the launch. What it leaves out: the comparison before it, which is written where the
index is used (dsl/codegen/memory.py). Checked by dsl/interpreter/run.py.
"""

from __future__ import annotations

from dsl.llvm.layout import Ctx, Error
from dsl.llvm.text import LANES, vector

WORDS, FLAGS = vector("i64"), vector("i1")
NAME = "wrap_index"


def wrap_index(strict: bool) -> str:
    """Return i1 wrap_index(context, place, active lanes, check number, counter of wrapped lanes).

    At `place` lie the 32 indices, which become the wrapped ones, and the extent of each lane. The answer is
    whether the launch stops; the error words are set then. strict: no index wraps.
    """
    wrapped = "add <32 x i64> %index, zeroinitializer" if strict else (
        f"select {FLAGS} %negative, {WORDS} %moved, {WORDS} %index"
    )  # fmt: skip
    stores = "\n".join(
        f"  %p{word:d} = getelementptr i64, ptr %ctx, i64 {word:d}\n  store i64 {value}, ptr %p{word:d}"
        for word, value in (
            (Ctx.ERROR, f"{Error.OUT_OF_BOUNDS:d}"), (Ctx.ERROR_SITE, "%number"), (Ctx.ERROR_MASK, "%mask"),
            (Ctx.ERROR_EXTENT, "%least"),
        )
    )  # fmt: skip
    return f"""
define internal i1 @{NAME}(ptr %ctx, ptr %place, i32 %lanes, i64 %number, ptr %count) noinline cold {{
  %index = load {WORDS}, ptr %place, align 64
  %extents = getelementptr i64, ptr %place, i64 {LANES}
  %extent = load {WORDS}, ptr %extents, align 64
  %negative = icmp slt {WORDS} %index, zeroinitializer
  %moved = add {WORDS} %index, %extent
  %wrapped = {wrapped}
  %outside = icmp uge {WORDS} %wrapped, %extent
  %astray = bitcast {FLAGS} %outside to i32
  %bad = and i32 %astray, %lanes
  %some = icmp ne i32 %bad, 0
  br i1 %some, label %fail, label %fine
fail:
  %indices = getelementptr i64, ptr %ctx, i64 {Ctx.ERROR_INDEX:d}
  store {WORDS} %index, ptr %indices, align 8
  %mask = zext i32 %bad to i64
  %lane = call i32 @llvm.cttz.i32(i32 %bad, i1 true)
  %least = extractelement {WORDS} %extent, i32 %lane
{stores}
  ret i1 true
fine:
  store {WORDS} %wrapped, ptr %place, align 64
  %below = bitcast {FLAGS} %negative to i32
  %these = and i32 %below, %lanes
  %few = call i32 @llvm.ctpop.i32(i32 %these)
  %more = zext i32 %few to i64
  %before = load i64, ptr %count
  %after = add i64 %before, %more
  store i64 %after, ptr %count
  ret i1 false
}}
"""


DECLARED = {
    "llvm.cttz.i32": "declare i32 @llvm.cttz.i32(i32, i1)",
    "llvm.ctpop.i32": "declare i32 @llvm.ctpop.i32(i32)",
}
"""LLVM's own functions that it calls: name -> declaration."""
