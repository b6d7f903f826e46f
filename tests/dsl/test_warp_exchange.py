"""Run hand-built warp operations, gathering barriers, atomics and cache hints in the interpreter."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dsl.warpir import ir
from gpusim import trace
from gpusim.errors import BarrierDivergence, WarpDivergence
from gpusim.trace import Kind
from tests.dsl.ir_support import Builder, Device, kinds

Imm, Reg = ir.Imm, ir.Reg
FULL = Imm(0xFFFFFFFF)
NUMPY = {"s32": "i4", "u32": "u4", "s64": "i8", "u64": "u8", "f32": "f4", "f64": "f8"}


def to_each(give: Callable[[Builder, Reg], Reg], type_: str = "s32") -> ir.Function:
    """o[t] = what give(builder, t) returns, t the thread's number (s32)."""
    b = Builder()
    b.block()
    t = b.sreg("tid.x")
    value = give(b, t)
    b.store("global", type_, value, b.at("o", b.wide(t), ir.BYTES[type_]), "o")
    b.end(ir.Ret)
    return b.done()


def outputs(fn: ir.Function, type_: str = "s32", block: int = 32) -> list[Any]:
    device = Device(o=np.zeros(block, NUMPY[type_]))
    device.run(fn, 1, block)
    return device.arrays["o"].tolist()


def shuffle(mode: str, lane: Any, type_: str = "s32", mask: Any = FULL) -> Callable[[Builder, Reg], Reg]:
    """Give 10 t of another lane."""

    def give(b: Builder, t: Reg) -> Reg:
        value, dst = b.reg(type_), b.reg(type_)
        b.add(ir.Cvt, value, type_, b.alu("mul", "s32", t, Imm(10)), "s32")
        wanted = lane(b, t) if callable(lane) else lane
        b.add(ir.Shfl, mode, type_, dst, value, wanted, mask)
        return dst

    return give


@pytest.mark.parametrize(
    ("mode", "lane", "expected"),
    [
        ("idx", 5, [50] * 32),
        ("idx", 33, [10] * 32),
        ("idx", -1, [310] * 32),
        ("up", 2, [0, 10, *range(0, 300, 10)]),
        ("down", 30, [300, 310, *range(20, 320, 10)]),
        ("up", 32, list(range(0, 320, 10))),
        ("bfly", 1, [10 * (n ^ 1) for n in range(32)]),
        ("bfly", 32, list(range(0, 320, 10))),
    ],
)
def test_a_shuffle_reads_the_lane_it_names_and_its_own_past_the_ends(
    mode: str, lane: int, expected: list[int]
) -> None:
    assert outputs(to_each(shuffle(mode, Imm(lane)))) == expected


@pytest.mark.parametrize("type_", ["u32", "s64", "u64", "f32", "f64"])
def test_a_shuffle_moves_registers_of_every_type(type_: str) -> None:
    reverse = shuffle("idx", lambda b, t: b.alu("sub", "s32", Imm(31), t), type_)
    assert outputs(to_each(reverse, type_), type_) == [10 * n for n in range(31, -1, -1)]


def shuffle_count(block: int) -> Any:
    device = Device(o=np.zeros(block, np.int32))
    fn = to_each(shuffle("bfly", Imm(1)))
    return device.run(fn, 1, block).counters


def test_a_shuffle_counts_one_warp_operation_for_each_warp_and_no_memory_request() -> None:
    counters = shuffle_count(96)
    assert counters.warp_operations == 3
    assert counters.global_store.requests == 3 and counters.global_load.requests == 0
    assert counters.shared_load.requests == 0 and counters.barriers == 0


def test_syncwarp_and_activemask_do_not_count_as_warp_operations() -> None:
    def give(b: Builder, t: Reg) -> Reg:
        b.add(ir.SyncWarp, FULL)
        dst = b.reg("u32")
        b.add(ir.ActiveMask, dst)
        return dst

    device = Device(o=np.zeros(32, np.uint32))
    got = device.run(to_each(give, "u32"), 1, 32)
    assert device.arrays["o"].tolist() == [0xFFFFFFFF] * 32
    assert got.counters.warp_operations == 0


def vote(mode: str, op: str, n: int) -> Callable[[Builder, Reg], Reg]:
    """Vote on `t op n`."""

    def give(b: Builder, t: Reg) -> Reg:
        holds = b.setp(op, "s32", t, Imm(n))
        dst = b.reg("u32" if mode == "ballot" else "pred")
        b.add(ir.Vote, mode, dst, holds, FULL)
        return dst if mode == "ballot" else _number(b, dst)

    return give


def _number(b: Builder, predicate: Reg) -> Reg:
    dst = b.reg("s32")
    b.add(ir.Selp, "s32", dst, Imm(1), Imm(0), predicate)
    return dst


@pytest.mark.parametrize(
    ("mode", "op", "n", "expected"),
    [
        ("all", "ge", 0, 1),
        ("all", "gt", 0, 0),
        ("any", "eq", 31, 1),
        ("any", "gt", 31, 0),
        ("eq", "ge", 0, 1),
        ("eq", "gt", 31, 1),
        ("eq", "lt", 31, 0),
        ("ballot", "lt", 4, 0xF),
        ("ballot", "ge", 31, 0x80000000),
    ],
)
def test_a_vote_answers_all_lanes(mode: str, op: str, n: int, expected: int) -> None:
    type_ = "u32" if mode == "ballot" else "s32"
    assert outputs(to_each(vote(mode, op, n), type_), type_) == [expected] * 32


def match(mode: str, value: Callable[[Builder, Reg], Reg], type_: str) -> Callable[[Builder, Reg], Reg]:
    def give(b: Builder, t: Reg) -> Reg:
        dst = b.reg("u32")
        b.add(ir.Match, mode, type_, dst, value(b, t), FULL)
        return dst

    return give


def test_match_any_gives_each_lane_the_lanes_with_its_value() -> None:
    parity = match("any", lambda b, t: b.alu("and", "s32", t, Imm(1)), "s32")
    assert outputs(to_each(parity, "u32"), "u32") == [0x55555555, 0xAAAAAAAA] * 16


def test_match_compares_bits_so_that_equal_nans_match_and_zeros_of_two_signs_do_not() -> None:
    nan = match("all", lambda b, t: b.alu("mov", "f32", Imm(float("nan"))), "f32")
    assert outputs(to_each(nan, "u32"), "u32") == [0xFFFFFFFF] * 32

    def signed_zero(b: Builder, t: Reg) -> Reg:
        dst = b.reg("f64")
        b.add(ir.Selp, "f64", dst, Imm(0.0), Imm(-0.0), b.setp("lt", "s32", t, Imm(8)))
        return dst

    assert outputs(to_each(match("any", signed_zero, "f64"), "u32"), "u32") == [0xFF] * 8 + [0xFFFFFF00] * 24


def test_match_all_gives_the_mask_where_all_lanes_agree_and_0_where_one_does_not() -> None:
    same = match("all", lambda b, t: b.alu("mov", "s64", Imm(-7)), "s64")
    assert outputs(to_each(same, "u32"), "u32") == [0xFFFFFFFF] * 32
    assert outputs(to_each(match("all", lambda b, t: t, "s32"), "u32"), "u32") == [0] * 32


def test_lanemask_lt_names_the_lanes_below() -> None:
    def give(b: Builder, t: Reg) -> Reg:
        dst = b.reg("u32")
        b.add(ir.Sreg, dst, "lanemask_lt")
        return dst

    assert outputs(to_each(give, "u32"), "u32", 64) == [(1 << lane) - 1 for lane in range(32)] * 2


def only_low_lanes(make: Callable[[Builder, Reg, Reg], None], lanes: int = 8) -> ir.Function:
    """Run an instruction in threads below `lanes`; it writes a register that all store to o."""
    b = Builder()
    b.block()
    t = b.sreg("tid.x")
    dst = b.alu("mov", "u32", Imm(0))
    b.end(ir.Bra, b.setp("lt", "s32", t, Imm(lanes)), 1, 2)
    b.block()
    make(b, t, dst)
    b.end(ir.Jmp, 2)
    b.block()
    b.store("global", "u32", dst, b.at("o", b.wide(t)), "o")
    b.end(ir.Ret)
    return b.done()


def test_a_mask_may_name_the_lanes_of_one_branch() -> None:
    fn = only_low_lanes(lambda b, t, dst: b.add(ir.Vote, "ballot", dst, Imm(True), Imm(0xFF)))
    assert outputs(fn, "u32") == [0xFF] * 8 + [0] * 24


def test_activemask_gives_the_lanes_of_the_branch() -> None:
    fn = only_low_lanes(lambda b, t, dst: b.add(ir.ActiveMask, dst), lanes=40)
    assert outputs(fn, "u32", 64) == [0xFFFFFFFF] * 32 + [0xFF] * 8 + [0] * 24


def test_a_branch_that_a_whole_warp_skips_counts_no_operation() -> None:
    fn = only_low_lanes(lambda b, t, dst: b.add(ir.Vote, "ballot", dst, Imm(True), Imm(0xFF)))
    assert Device(o=np.zeros(64, np.uint32)).run(fn, 1, 64).counters.warp_operations == 1


def refusal(make: Callable[[Builder, Reg, Reg], None], lanes: int = 8, block: int = 32) -> str:
    with pytest.raises(WarpDivergence) as caught:
        Device(o=np.zeros(block, np.uint32)).run(only_low_lanes(make, lanes), 1, block)
    return str(caught.value)


OPERATIONS: dict[str, Callable[[Builder, Reg, Reg], None]] = {
    "shfl_sync": lambda b, t, dst: b.add(ir.Shfl, "idx", "s32", dst, t, Imm(0), FULL),
    "shfl_up_sync": lambda b, t, dst: b.add(ir.Shfl, "up", "s32", dst, t, Imm(1), FULL),
    "shfl_down_sync": lambda b, t, dst: b.add(ir.Shfl, "down", "s32", dst, t, Imm(1), FULL),
    "shfl_xor_sync": lambda b, t, dst: b.add(ir.Shfl, "bfly", "s32", dst, t, Imm(1), FULL),
    "ballot_sync": lambda b, t, dst: b.add(ir.Vote, "ballot", dst, Imm(True), FULL),
    "match_any_sync": lambda b, t, dst: b.add(ir.Match, "any", "s32", dst, t, FULL),
    "match_all_sync": lambda b, t, dst: b.add(ir.Match, "all", "s32", dst, t, FULL),
    "syncwarp": lambda b, t, dst: b.add(ir.SyncWarp, FULL),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_named_lane_in_another_branch_is_an_error_that_names_it(name: str) -> None:
    message = refusal(OPERATIONS[name], lanes=8)
    assert re.fullmatch(
        r"kernel kernel, block \(0, 0, 0\), warp 0, lane 8 \(thread \(8, 0, 0\)\), k\.py:\d+: " + name + ": "
        r"a lane named in the mask does not take part: it has not returned, and is in another branch; .*",
        message,
    )


def test_the_thread_of_a_lane_is_named_by_its_place_in_the_block() -> None:
    b = Builder()
    b.block()
    b.end(ir.Bra, b.setp("lt", "s32", b.sreg("tid.y"), Imm(3)), 1, 2)
    b.block()
    b.add(ir.SyncWarp, FULL)
    b.end(ir.Jmp, 2)
    b.block()
    b.end(ir.Ret)
    # Rows of 16 threads: warp 1 holds the rows 2 and 3, and row 3 does not take part.
    with pytest.raises(WarpDivergence, match=re.escape("warp 1, lane 16 (thread (0, 3, 0))")):
        Device().run(b.done(), 1, (16, 4))


def test_an_active_lane_that_the_mask_leaves_out_is_an_error_that_names_it() -> None:
    message = refusal(lambda b, t, dst: b.add(ir.SyncWarp, Imm(0x7F)))
    assert "warp 0, lane 7 (thread (7, 0, 0))" in message
    assert "syncwarp: an active lane is not named in the mask; name every lane that runs this line" in message


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0xFF, 0xFFFF])
def test_lanes_past_the_end_of_the_block_may_be_named_and_are_in_no_result(mask: int) -> None:
    ballot = only_low_lanes(lambda b, t, dst: b.add(ir.Vote, "ballot", dst, Imm(True), Imm(mask)), 64)
    assert outputs(ballot, "u32", 8) == [0xFF] * 8


@pytest.mark.parametrize(("mode", "expected"), [("any", [0x155, 0x2AA] * 5), ("all", [0] * 10)])
def test_ten_threads_may_match_under_the_mask_of_a_whole_warp(mode: str, expected: list[int]) -> None:
    parity = match(mode, lambda b, t: b.alu("and", "s32", t, Imm(1)), "s32")
    assert outputs(to_each(parity, "u32"), "u32", 10) == expected
    same = match(mode, lambda b, t: b.alu("mov", "s32", Imm(4)), "s32")
    assert outputs(to_each(same, "u32"), "u32", 10) == [0x3FF] * 10


def returning(lane: int, at: int, make: Callable[[Builder, Reg, Reg], None]) -> ir.Function:
    """Run an instruction, then store to o; one lane returns instead, in a block before (1) or behind (4)."""
    b = Builder()
    b.block()
    t = b.sreg("tid.x")
    dst = b.alu("mov", "u32", Imm(0))
    b.end(ir.Bra, b.setp("eq", "s32", t, Imm(lane)), at, 2)
    b.block()
    b.end(ir.Ret)
    b.block()
    make(b, t, dst)
    b.end(ir.Jmp, 3)
    b.block()
    b.store("global", "u32", dst, b.at("o", b.wide(t)), "o")
    b.end(ir.Jmp, 4)
    b.block()
    b.end(ir.Ret)
    return b.done()


def test_a_lane_that_has_returned_may_be_named_and_is_in_no_result() -> None:
    ballot = returning(3, 1, lambda b, t, dst: b.add(ir.Vote, "ballot", dst, Imm(True), FULL))
    assert outputs(ballot, "u32") == [0xFFFFFFF7] * 3 + [0] + [0xFFFFFFF7] * 28


def test_a_lane_that_has_yet_to_return_takes_part_or_is_an_error() -> None:
    fn = returning(3, 4, OPERATIONS["syncwarp"])
    with pytest.raises(WarpDivergence, match=r"lane 3 \(thread \(3, 0, 0\)\).*has not returned"):
        Device(o=np.zeros(32, np.uint32)).run(fn, 1, 32)


def test_masks_that_differ_in_lanes_that_returned_or_never_existed_are_the_same_mask() -> None:
    def make(b: Builder, t: Reg, dst: Reg) -> None:
        mask = b.reg("u32")
        b.add(ir.Selp, "u32", mask, Imm(0xFFFF), Imm(0x3F7), b.setp("lt", "s32", t, Imm(4)))
        b.add(ir.Vote, "ballot", dst, Imm(True), mask)

    assert outputs(returning(3, 1, make), "u32", 10) == [0x3F7] * 3 + [0] + [0x3F7] * 6


@pytest.mark.parametrize(("block", "reader", "source"), [(10, 9, 10), (32, 2, 3)])
def test_a_lane_that_returned_or_never_existed_is_no_source_of_a_shuffle(
    block: int, reader: int, source: int
) -> None:
    fn = returning(3 if block == 32 else 99, 1, OPERATIONS["shfl_down_sync"])
    with pytest.raises(WarpDivergence, match=rf"lane {reader} .*it reads lane {source}, which does not take"):
        Device(o=np.zeros(block, np.uint32)).run(fn, 1, block)


def test_lanes_that_bring_different_masks_are_an_error_that_names_the_first_other_one() -> None:
    def make(b: Builder, t: Reg, dst: Reg) -> None:
        mask = b.reg("u32")
        b.add(ir.Selp, "u32", mask, Imm(0xF), Imm(0xF0), b.setp("lt", "s32", t, Imm(4)))
        b.add(ir.SyncWarp, mask)

    message = refusal(make)
    assert "lane 4 (thread (4, 0, 0))" in message
    assert "syncwarp: its mask is 0x000000f0, the warp's first active lane has 0x0000000f" in message


def test_a_source_lane_that_does_not_take_part_is_an_error_that_names_the_reader() -> None:
    message = refusal(lambda b, t, dst: b.add(ir.Shfl, "down", "s32", dst, t, Imm(3), Imm(0xFF)))
    assert "lane 5 (thread (5, 0, 0))" in message
    assert "shfl_down_sync: it reads lane 8, which does not take part" in message


def test_a_lane_past_the_end_is_no_source_and_no_error() -> None:
    fn = only_low_lanes(lambda b, t, dst: b.add(ir.Shfl, "up", "u32", dst, t, Imm(3), Imm(0xFF)))
    assert outputs(fn, "u32") == [0, 1, 2, 0, 1, 2, 3, 4] + [0] * 24


# ----------------------------------------------------------------------------- barriers that gather


def gathering(op: str, pred: Callable[[Builder, Reg], ir.Operand], leave: int | None = None) -> ir.Function:
    """o[t] = what a barrier gathers; threads from `leave` on return before it."""
    b = Builder()
    b.block()
    t = b.sreg("tid.x")
    b.end(ir.Bra, b.setp("ge", "s32", t, Imm(1 << 20 if leave is None else leave)), 1, 2)
    b.block()
    b.end(ir.Ret)
    b.block()
    holds = pred(b, t)
    b.end(lambda loc: ir.Bar(3, loc, holds))
    b.block()
    dst = b.reg("s32")
    b.add(ir.BarResult, op, dst)
    b.store("global", "s32", dst, b.at("o", b.wide(t)), "o")
    b.end(ir.Ret)
    return b.done()


def below(n: int) -> Callable[[Builder, Reg], ir.Operand]:
    return lambda b, t: b.setp("lt", "s32", t, Imm(n))


@pytest.mark.parametrize(
    ("op", "n", "expected"),
    [
        ("count", 40, 40),
        ("count", 0, 0),
        ("and", 96, 1),
        ("and", 95, 0),
        ("or", 1, 1),
        ("or", 0, 0),
    ],
)
def test_a_barrier_gathers_a_predicate_over_the_block(op: str, n: int, expected: int) -> None:
    assert outputs(gathering(op, below(n)), block=96) == [expected] * 96


def test_a_barrier_gathers_only_the_threads_that_arrive() -> None:
    assert outputs(gathering("and", below(40), leave=40), block=64) == [1] * 40 + [0] * 24
    assert outputs(gathering("count", below(64), leave=40), block=64) == [40] * 40 + [0] * 24


def test_a_gathering_barrier_counts_as_a_barrier_of_each_warp_and_not_as_a_warp_operation() -> None:
    got = Device(o=np.zeros(64, np.int32)).run(gathering("or", below(1)), 1, 64)
    assert got.counters.barriers == 2 and got.counters.warp_operations == 0
    assert kinds(got.trace[0]) == ["BARRIER", "WARP", "STORE", "WARP", "STORE"]


def test_a_gathering_barrier_that_some_lanes_skip_is_still_barrier_divergence() -> None:
    b = Builder()
    b.block()
    b.end(ir.Bra, b.setp("lt", "s32", b.sreg("tid.x"), Imm(8)), 1, 2)
    b.block()
    b.end(lambda loc: ir.Bar(3, loc, Imm(True)))
    b.block()
    b.end(ir.Jmp, 3)
    b.block()
    b.end(ir.Ret)
    with pytest.raises(BarrierDivergence, match="8 threads arrived and 24 are missing"):
        Device().run(b.done(), 1, 32)


# ----------------------------------------------------------------------------- atomics


def atomic(op: str, type_: str, value: Any, dst: bool = True, compare: Any = None) -> ir.Function:
    """o[t] = atomic op on h[0]; value and compare: a constant, or a function of the builder and t."""
    b = Builder()
    b.block()
    t = b.sreg("tid.x")
    operand = value(b, t) if callable(value) else Imm(value)
    old = b.reg(type_) if dst else None
    expected = None if compare is None else compare(b, t) if callable(compare) else Imm(compare)
    base = b.param("h.base", "u64")
    b.add(lambda loc: ir.Atom(op, "global", type_, old, base, operand, "h", loc, expected))
    if old is not None:
        b.store("global", type_, old, b.at("o", b.wide(t), ir.BYTES[type_]), "o")
    b.end(ir.Ret)
    return b.done()


def run_atomic(fn: ir.Function, type_: str, start: Any, threads: int = 4) -> tuple[Any, list[Any]]:
    device = Device(h=np.array([start], NUMPY[type_]), o=np.zeros(threads, NUMPY[type_]))
    device.run(fn, 1, threads)
    return device.arrays["h"][0], device.arrays["o"].tolist()


@pytest.mark.parametrize(
    ("op", "type_", "value", "start", "left", "old"),
    [
        ("add", "u32", 1, 2**32 - 2, 2, [2**32 - 2, 2**32 - 1, 0, 1]),
        ("and", "s32", lambda b, t: t, 0b1011, 0, [0b1011, 0, 0, 0]),
        ("or", "u32", lambda b, t: t, 8, 11, [8, 8, 9, 11]),
        ("xor", "s64", -1, 5, 5, [5, -6, 5, -6]),
        ("exch", "s32", lambda b, t: t, 9, 3, [9, 0, 1, 2]),
        ("inc", "u32", 2, 0, 1, [0, 1, 2, 0]),
        ("inc", "u64", 2, 7, 0, [7, 0, 1, 2]),
        ("dec", "u32", 2, 1, 0, [1, 0, 2, 1]),
        ("dec", "u32", 2, 7, 2, [7, 2, 1, 0]),
        ("max", "u32", -1, 5, 2**32 - 1, [5, *[2**32 - 1] * 3]),
        ("min", "s32", -1, 5, -1, [5, -1, -1, -1]),
    ],
)
def test_atomics_run_in_lane_order_and_return_old_values(
    op: str, type_: str, value: Any, start: int, left: int, old: list[int]
) -> None:
    # inc with 2 counts 0 1 2 0; dec with 2 counts 1 0 2 1; both bring 7 back into the range.
    assert run_atomic(atomic(op, type_, value), type_, start) == (left, old)


def test_cas_swaps_where_the_old_value_is_the_one_expected_and_only_there() -> None:
    # Lane t expects t and leaves t + 1, so each lane in turn finds what it expects.
    step = atomic("cas", "s32", lambda b, t: b.alu("add", "s32", t, Imm(1)), compare=lambda b, t: t)
    assert run_atomic(step, "s32", 0) == (4, [0, 1, 2, 3])
    assert run_atomic(step, "s32", 2) == (4, [2, 2, 2, 3])
    assert run_atomic(step, "s32", -5) == (-5, [-5] * 4)


def test_cas_and_exch_of_floats_compare_and_keep_bits() -> None:
    swap = atomic("cas", "f32", 1.5, compare=0.0)
    assert run_atomic(swap, "f32", 0.0, 1) == (1.5, [0.0])
    left, old = run_atomic(swap, "f32", -0.0, 1)
    assert np.signbit(left) and np.signbit(old[0])
    # A NaN that is stored is found again by its bits.
    bits = 0x7FC12345
    taken, _ = run_atomic(atomic("exch", "f32", lambda b, t: _float_bits(b, bits)), "f32", 1.0, 1)
    assert taken.view(np.uint32) == bits
    found = atomic("cas", "f32", 2.0, compare=lambda b, t: _float_bits(b, bits))
    assert run_atomic(found, "f32", np.array([bits], np.uint32).view(np.float32)[0], 1)[0] == 2.0


def _float_bits(b: Builder, bits: int) -> Reg:
    dst = b.reg("f32")
    b.add(ir.Bitcast, dst, "f32", Imm(bits), "u32")
    return dst


@pytest.mark.parametrize("op", ["and", "or", "xor", "exch", "inc", "dec", "cas"])
def test_an_atomic_is_an_atom_where_its_old_value_is_used_and_a_red_where_not(op: str) -> None:
    for used, counted, other in ((True, "global_atom", "global_red"), (False, "global_red", "global_atom")):
        fn = atomic(op, "u32", 1, dst=used, compare=0 if op == "cas" else None)
        got = Device(h=np.zeros(1, np.uint32), o=np.zeros(32, np.uint32)).run(fn, 1, 32)
        # All 32 lanes share one address: the sector is passed on once for each.
        expected = {"lanes": 32, "bytes": 128, "requests": 1, "sectors": 32}
        assert getattr(got.counters, counted).__dict__ == expected
        assert getattr(got.counters, other).requests == 0


# ----------------------------------------------------------------------------- cache hints and bits


@pytest.mark.parametrize(
    ("hint", "kind"),
    [("", "LOAD"), ("ca", "LOAD"), ("cs", "LOAD"), ("lu", "LOAD"), ("cg", "LOAD_L2"), ("cv", "LOAD_L2")],
)
def test_loads_past_l1_are_marked_in_the_trace_and_counted_as_loads(hint: str, kind: str) -> None:
    def give(b: Builder, t: Reg) -> Reg:
        dst = b.reg("s32")
        b.add(lambda loc, at=b.at("a", b.wide(t)): ir.Ld("global", "s32", (dst,), at, "a", loc, hint))
        return dst

    device = Device(a=np.arange(32, dtype=np.int32), o=np.zeros(32, np.int32))
    got = device.run(to_each(give), 1, 32)
    assert device.arrays["o"].tolist() == list(range(32))
    assert got.counters.global_load.__dict__ == {"lanes": 32, "bytes": 128, "requests": 1, "sectors": 4}
    assert kinds(got.trace[0]) == ["WARP", kind, "STORE"]


@pytest.mark.parametrize("hint", ["wb", "cg", "cs", "wt"])
def test_a_store_is_a_store_with_any_hint(hint: str) -> None:
    b = Builder()
    b.block()
    at = b.at("o", b.wide(b.sreg("tid.x")))
    b.add(lambda loc: ir.St("global", "s32", (Imm(3),), at, "o", loc, hint))
    b.end(ir.Ret)
    device = Device(o=np.zeros(32, np.int32))
    got = device.run(b.done(), 1, 32)
    assert device.arrays["o"].tolist() == [3] * 32
    assert [Kind(k) for k in trace.unpack(got.trace[0])["kind"]] == [Kind.WARP, Kind.STORE]


@pytest.mark.parametrize(
    ("op", "type_", "value", "expected"),
    [
        ("popc", "u32", 0xF0F0, 8),
        ("popc", "s32", -1, 32),
        ("popc", "s64", -1, 64),
        ("clz", "s32", 0, 32),
        ("clz", "u32", 1, 31),
        ("clz", "s64", 1, 63),
        ("clz", "s32", -1, 0),
        ("brev", "u32", 1, 0x80000000),
        ("brev", "s32", 1, -(2**31)),
        ("brev", "u64", 0b110, 0x6000000000000000),
    ],
)
def test_bit_operations_work_at_the_width_of_their_type(
    op: str, type_: str, value: int, expected: int
) -> None:
    got = outputs(to_each(lambda b, t: b.alu(op, type_, Imm(value)), type_), type_)
    assert got == [expected] * 32


def test_cbrt_is_the_cube_root_and_keeps_the_sign() -> None:
    assert outputs(to_each(lambda b, t: b.alu("cbrt", "f32", Imm(-27.0)), "f32"), "f32") == [-3.0] * 32
