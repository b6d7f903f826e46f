"""The device functions between threads: shuffles, votes, matches and barriers that gather a predicate.

What it models: numba.cuda's names and result types: a shuffle gives its value's type, ballot_sync and the
masks of match_* int32, activemask and lanemask_lt uint32, syncthreads_count and its like int32. An integer of
any width may be a mask or a lane; its low 32 bits count. What it leaves out: which lanes take part, which the
engine and the interpreter check. Which ncu metric checks it: none of this project's.
"""

from __future__ import annotations

from dsl.intrinsics.arguments import Body, Emitter, integer, kind, number, takes
from dsl.lowering import operations
from dsl.lowering.frame import Frame
from dsl.lowering.operations import convert
from dsl.lowering.values import Tup, Val, Value
from dsl.types import TYPE_NAMES, register_type
from dsl.warpir.ir import ActiveMask, BarResult, Imm, Match, Operand, Reg, Shfl, SyncWarp, Vote

FULL_MASK = 0xFFFFFFFF
SHUFFLED = ("s32", "u32", "s64", "u64", "f32", "f64")
"""Types that a shuffle moves; 64-bit ones are two 32-bit shuffles on the card."""


def _mask(frame: Frame, path: str, given: dict[str, Value]) -> Operand:
    mask = integer(frame, path, "mask", given.get("mask", Val(Imm(FULL_MASK), "u32")))
    return convert(frame.builder, mask, "u32").operand


def _predicate(frame: Frame, path: str, given: dict[str, Value]) -> Operand:
    value = integer(frame, path, "predicate", given["predicate"], boolean=True)
    return operations.truth(frame.builder, value).operand


def _shuffle(path: str, mode: str, lane: str) -> Emitter:
    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        b, value = frame.builder, number(frame, path, "value", given["value"])
        if value.type not in SHUFFLED:
            names = ", ".join(TYPE_NAMES[t] for t in SHUFFLED)
            raise b.mistake(f"cuda.{path} of {kind(value)}", f"it moves {names}: convert the value")
        source = convert(b, integer(frame, path, lane, given[lane]), "s32").operand
        mask, dst = _mask(frame, path, given), b.reg(value.type)
        b.emit(Shfl(mode, value.type, dst, value.operand, source, mask, b.loc))
        return Val(dst, value.type)

    return takes(path, ("mask", "value", lane), body)


def _vote(path: str, mode: str) -> Emitter:
    register, result = ("u32", "s32") if mode == "ballot" else ("pred", "pred")

    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        b = frame.builder
        predicate, mask, dst = _predicate(frame, path, given), _mask(frame, path, given), b.reg(register)
        b.emit(Vote(mode, dst, predicate, mask, b.loc))
        return Val(dst, result)

    return takes(path, ("mask", "predicate"), body)


def _matching(frame: Frame, path: str, mode: str, given: dict[str, Value]) -> Reg:
    """Emit a Match in the type of the register that holds the value."""
    b, value = frame.builder, number(frame, path, "value", given["value"])
    if value.type == "pred":
        value = convert(b, value, "s32")
    mask, dst = _mask(frame, path, given), b.reg("u32")
    b.emit(Match(mode, register_type(value.type), dst, value.operand, mask, b.loc))
    return dst


def _match_any(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    return Val(_matching(frame, "match_any_sync", "any", given), "s32")


def _match_all(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    mask = _matching(frame, "match_all_sync", "all", given)
    same = frame.builder.setp("ne", "u32", mask, Imm(0))
    return Tup((Val(mask, "s32"), Val(same, "pred")))


def _activemask(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    dst = frame.builder.reg("u32")
    frame.builder.emit(ActiveMask(dst, frame.builder.loc))
    return Val(dst, "u32")


def _lanemask_lt(frame: Frame, given: dict[str, Value], used: bool) -> Value:
    return Val(frame.builder.special("lanemask_lt", "u32"), "u32")


def _syncwarp(frame: Frame, given: dict[str, Value], used: bool) -> None:
    frame.builder.emit(SyncWarp(_mask(frame, "syncwarp", given), frame.builder.loc))


def _syncthreads(frame: Frame, given: dict[str, Value], used: bool) -> None:
    frame.builder.barrier()


def _gather(path: str, op: str) -> Emitter:
    """Return a barrier that gathers a predicate; what it gathered is read in the block behind it."""

    def body(frame: Frame, given: dict[str, Value], used: bool) -> Value:
        b = frame.builder
        b.barrier(_predicate(frame, path, given))
        dst = b.reg("s32")
        b.emit(BarResult(op, dst, b.loc))
        return Val(dst, "s32")

    return takes(path, ("predicate",), body)


def _plain(path: str, names: tuple[str, ...], body: Body, required: int | None = None) -> dict[str, Emitter]:
    return {path: takes(path, names, body, required)}


CALLS: dict[str, Emitter] = {
    "shfl_sync": _shuffle("shfl_sync", "idx", "src_lane"),
    "shfl_up_sync": _shuffle("shfl_up_sync", "up", "delta"),
    "shfl_down_sync": _shuffle("shfl_down_sync", "down", "delta"),
    "shfl_xor_sync": _shuffle("shfl_xor_sync", "bfly", "lane_mask"),
    "all_sync": _vote("all_sync", "all"),
    "any_sync": _vote("any_sync", "any"),
    "eq_sync": _vote("eq_sync", "eq"),
    "ballot_sync": _vote("ballot_sync", "ballot"),
    **_plain("match_any_sync", ("mask", "value"), _match_any),
    **_plain("match_all_sync", ("mask", "value"), _match_all),
    **_plain("activemask", (), _activemask),
    **_plain("lanemask_lt", (), _lanemask_lt),
    **_plain("syncwarp", ("mask",), _syncwarp, required=0),
    **_plain("syncthreads", (), _syncthreads),
    "syncthreads_count": _gather("syncthreads_count", "count"),
    "syncthreads_and": _gather("syncthreads_and", "and"),
    "syncthreads_or": _gather("syncthreads_or", "or"),
}
"""What a kernel may call, by the name under `cuda`."""
