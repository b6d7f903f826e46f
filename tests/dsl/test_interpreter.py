"""Run hand-built WarpIR whose counts, traces and values a reader can derive."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dsl.interpreter.run import LOCAL_BASE
from dsl.semantics import request_rules
from dsl.warpir import ir
from gpusim import trace
from gpusim.errors import BarrierDivergence, EndlessLoop, OutOfBounds
from gpusim.trace import Kind
from tests.dsl.ir_support import Builder, Device, kinds

Imm, Reg = ir.Imm, ir.Reg


def global_index(b: Builder) -> Reg:
    return b.wide(
        b.alu("add", "s32", b.alu("mul", "s32", b.sreg("ctaid.x"), b.sreg("ntid.x")), b.sreg("tid.x"))
    )


def vec_add() -> ir.Function:
    """c[i] = a[i] + b[i] where i < n."""
    b = Builder()
    b.block()
    i = global_index(b)
    n = b.param("c.shape.0")
    b.end(ir.Bra, b.setp("lt", "s64", i, n), 1, 2)
    b.block()
    x = b.load("global", "f32", b.at("a", b.check(i, n, "a")), "a")
    y = b.load("global", "f32", b.at("b", b.check(i, n, "b")), "b")
    b.store("global", "f32", b.alu("add", "f32", x, y), b.at("c", b.check(i, n, "c")), "c")
    b.end(ir.Jmp, 2)
    b.block()
    b.end(ir.Ret)
    return b.done()


def test_vec_add_adds_and_counts_its_ragged_tail() -> None:
    n = 100
    a, c = np.arange(n, dtype=np.float32), np.full(n, np.nan, np.float32)
    device = Device(a=a, b=a, c=c)
    got = device.run(vec_add(), 2, 64)
    assert (device.arrays["c"] == 2 * a).all()
    # Warps 0..2 of four are full, the fourth has the lanes 96..99: 4 + 4 + 4 + 1 sectors an array.
    assert got.counters.global_load.__dict__ == {"lanes": 200, "bytes": 800, "requests": 8, "sectors": 26}
    assert got.counters.global_store.__dict__ == {"lanes": 100, "bytes": 400, "requests": 4, "sectors": 13}
    assert got.block_execs.tolist() == [[4, 128], [4, 100], [4, 128]]
    assert got.counters.arithmetic.fadd == 100 and got.counters.arithmetic.ffma == 0
    assert kinds(got.trace[1]) == ["WARP", "LOAD", "LOAD", "STORE"] * 2
    last = trace.unpack(got.trace[1])[-1]
    assert (last["line"], last["mask"], last["site"], last["first"]) == (
        (device.params["c.base"] + 384) // 128,
        1,
        2,
        True,
    )


def test_only_the_blocks_asked_for_run() -> None:
    c = np.zeros(64, np.float32)
    device = Device(a=c + 1, b=c + 1, c=c)
    got = device.run(vec_add(), 2, 32, blocks=[1])
    assert len(got.trace) == 1 and device.arrays["c"].tolist() == [0] * 32 + [2] * 32


def test_a_warp_that_asks_for_nothing_leaves_no_mark() -> None:
    c = np.zeros(32, np.float32)
    got = Device(a=c, b=c, c=c).run(vec_add(), 1, 64)
    assert [int(r["line"]) for r in trace.unpack(got.trace[0]) if r["kind"] == Kind.WARP] == [0]


def test_both_arms_of_a_branch_run_under_their_masks() -> None:
    b = Builder()
    b.block()
    i, v = b.wide(b.sreg("tid.x")), b.reg("s32")
    odd = b.setp("eq", "s64", b.alu("and", "s64", i, Imm(1)), Imm(1))
    b.end(ir.Bra, odd, 1, 2)
    b.block()
    b.alu("mov", "s32", Imm(7), dst=v)
    b.end(ir.Jmp, 3)
    b.block()
    b.alu("mov", "s32", Imm(-7), dst=v)
    b.end(ir.Jmp, 3)
    b.block()
    b.store("global", "s32", v, b.at("o", i))
    b.end(ir.Ret)
    device = Device(o=np.zeros(32, np.int32))
    got = device.run(b.done(), 1, 32)
    assert device.arrays["o"].tolist() == [-7, 7] * 16
    assert got.block_execs.tolist() == [[1, 32], [1, 16], [1, 16], [1, 32]]
    assert got.counters.global_store.requests == 1


def count_down(may_spin: bool = True, step: int = -1) -> ir.Function:
    """o[t] = how often a loop ran that starts at t and ends at 0."""
    b = Builder()
    b.block()
    i = b.wide(b.sreg("tid.x"))
    k, n = b.alu("mov", "s64", i), b.alu("mov", "s32", Imm(0))
    b.end(ir.Jmp, 1)
    b.block(may_spin)
    b.end(ir.Bra, b.setp("gt", "s64", k, Imm(0)), 2, 3)
    b.block()
    b.alu("add", "s64", k, Imm(step), dst=k)
    b.alu("add", "s32", n, Imm(1), dst=n)
    b.end(ir.Jmp, 1)
    b.block()
    b.store("global", "s32", n, b.at("o", i))
    b.end(ir.Ret)
    return b.done()


def test_a_loop_runs_while_any_lane_is_live_and_reconverges() -> None:
    device = Device(o=np.zeros(32, np.int32))
    got = device.run(count_down(), 1, 32)
    assert device.arrays["o"].tolist() == list(range(32))
    # The header runs 32 times, with 32, 31, .. 1 lanes; the body 31 times; the store once with all lanes.
    assert got.block_execs.tolist() == [[1, 32], [32, 528], [31, 496], [1, 32]]


def test_a_loop_without_end_stops_after_max_steps_and_one_that_fits_does_not() -> None:
    device = Device(o=np.zeros(32, np.int32))
    device.run(count_down(), 1, 32, max_steps=32)
    with pytest.raises(
        EndlessLoop,
        match=r"kernel kernel, block \(0, 0, 0\), warp 0, k\.py:\d+: no end after 100 steps.*--max-steps",
    ):
        device.run(count_down(step=0), 1, 32, max_steps=100)


def reversal(threads: int) -> ir.Function:
    """Reverse a block's values through shared memory: two warps must meet at the barrier."""
    shared = (ir.SharedArray("s", "f32", (threads,), 0, 4 * threads, ir.Loc("k.py", 0), 4),)
    b = Builder(shared=shared)
    b.block()
    i = b.wide(b.sreg("tid.x"))
    b.store("shared", "f32", b.load("global", "f32", b.at("a", i)), b.alu("mul", "s64", i, Imm(4)), "s")
    b.end(ir.Bar, 1)
    b.block()
    back = b.alu("sub", "s64", Imm(threads - 1), i)
    b.store(
        "global", "f32", b.load("shared", "f32", b.alu("mul", "s64", back, Imm(4)), "s"), b.at("o", i), "o"
    )
    b.end(ir.Ret)
    return b.done()


def test_warps_meet_at_a_barrier_and_the_trace_shows_it() -> None:
    a = np.arange(64, dtype=np.float32)
    device = Device(a=a, o=np.zeros(64, np.float32))
    got = device.run(reversal(64), 1, 64)
    assert (device.arrays["o"] == a[::-1]).all()
    records = trace.unpack(got.trace[0])
    assert kinds(got.trace[0]) == [
        "WARP",
        "LOAD",
        "WARP",
        "LOAD",
        "BARRIER",
        "WARP",
        "STORE",
        "WARP",
        "STORE",
    ]
    assert records["line"][[0, 2, 4, 5, 7]].tolist() == [0, 1, 1, 0, 1]
    # Shared accesses have sites 1 and 2 though they leave no record.
    assert records["site"][[1, 6]].tolist() == [0, 3]
    assert got.counters.barriers == 2
    assert got.counters.shared_store.__dict__ == {
        "lanes": 64,
        "bytes": 256,
        "requests": 2,
        "wavefronts": 2,
        "ideal_wavefronts": 2,
    }
    assert got.counters.shared_load.wavefronts == 2


def test_shared_memory_starts_as_nan() -> None:
    b = Builder(shared=(ir.SharedArray("s", "f32", (1,), 0, 4, ir.Loc("k.py", 0), 4),))
    b.block()
    b.store("global", "f32", b.load("shared", "f32", Imm(0), "s"), b.at("o", b.wide(b.sreg("tid.x"))), "o")
    b.end(ir.Ret)
    device = Device(o=np.zeros(1, np.float32))
    device.run(b.done(), 1, 1)
    assert np.isnan(device.arrays["o"][0])


def barrier_for(limit: int, exits: bool) -> ir.Function:
    """Threads below `limit` wait at a barrier; the others return before it (exits) or go on to a store."""
    b = Builder()
    b.block()
    i = b.wide(b.sreg("tid.x"))
    b.end(ir.Bra, b.setp("lt", "s64", i, Imm(limit)), 2 if exits else 1, 1 if exits else 2)
    b.block()
    b.end(*((ir.Ret,) if exits else (ir.Bar, 2)))
    b.block()
    if exits:
        b.end(ir.Bar, 3)
        b.block()
    b.store("global", "s64", i, b.at("o", i, 8), "o")
    b.end(ir.Ret)
    return b.done()


def test_a_barrier_that_half_a_warp_skips_is_an_error_with_both_counts() -> None:
    with pytest.raises(
        BarrierDivergence,
        match=r"block \(1, 0, 0\), k\.py:\d+: barrier divergence, 16 threads arrived and 16 are missing",
    ):
        Device(o=np.zeros(32, np.int64)).run(barrier_for(16, exits=False), 2, 32, blocks=[1])


def test_threads_that_have_returned_are_not_missing_at_a_barrier() -> None:
    device = Device(o=np.full(64, -1))
    got = device.run(barrier_for(40, exits=True), 1, 64)
    assert device.arrays["o"].tolist() == [*range(40), *[-1] * 24]
    assert got.counters.barriers == 2
    # A whole warp that has returned does not pass the barrier.
    assert device.run(barrier_for(16, exits=True), 1, 64).counters.barriers == 1


def test_warps_at_two_different_barriers_diverge() -> None:
    b = Builder()
    b.block()
    b.end(ir.Bra, b.setp("lt", "s32", b.sreg("tid.x"), Imm(32)), 1, 2)
    b.block()
    b.end(ir.Bar, 3)
    b.block()
    b.end(ir.Bar, 3)
    b.block()
    b.end(ir.Ret)
    with pytest.raises(BarrierDivergence, match="32 threads arrived and 64 are missing"):
        Device().run(b.done(), 1, 96)


def atomic(
    index: Callable[[Builder, Reg], Reg], dst: bool = False, op: str = "add", type_: str = "s32"
) -> ir.Function:
    """Add 1 to h[index(t)] in every thread."""
    b = Builder()
    b.block()
    t = b.wide(b.sreg("tid.x"))
    old = b.reg(type_) if dst else None
    b.add(ir.Atom, op, "global", type_, old, b.at("h", index(b, t)), Imm(1), "h")
    if old is not None:
        b.store("global", type_, old, b.at("o", t), "o")
    b.end(ir.Ret)
    return b.done()


INDICES: dict[str, tuple[Callable[[Builder, Reg], Reg], int]] = {
    "lane": (lambda b, t: t, 4),
    "lane / 2": (lambda b, t: b.alu("shr", "s64", t, Imm(1)), 4),
    "lane / 8": (lambda b, t: b.alu("shr", "s64", t, Imm(3)), 8),
    "lane % 8": (lambda b, t: b.alu("and", "s64", t, Imm(7)), 4),
    "all the same": (lambda b, t: b.alu("and", "s64", t, Imm(0)), 32),
}


@pytest.mark.parametrize("pattern", INDICES)
def test_colliding_reds_count_sectors_as_the_card_does(pattern: str) -> None:
    index, sectors = INDICES[pattern]
    device = Device(h=np.zeros(32, np.int32))
    got = device.run(atomic(index), 1, 32)
    assert device.arrays["h"].sum() == 32
    assert got.counters.global_red.__dict__ == {"lanes": 32, "bytes": 128, "requests": 1, "sectors": sectors}
    assert got.counters.global_atom.requests == 0
    records = trace.unpack(got.trace[0])[1:]
    assert records["first"].tolist() == [True] + [False] * (len(records) - 1)
    assert sum(int(m).bit_count() for m in records["mask"]) == sectors


def test_all_lanes_on_one_address_leave_32_records_of_one_sector() -> None:
    got = Device(h=np.zeros(1, np.int32)).run(atomic(INDICES["all the same"][0]), 1, 32)
    assert trace.unpack(got.trace[0])["mask"].tolist() == [0] + [1] * 32


def test_an_atom_returns_old_values_in_lane_order_and_a_red_does_not_count_as_one() -> None:
    device = Device(h=np.zeros(1, np.int32), o=np.zeros(32, np.int32))
    got = device.run(atomic(INDICES["all the same"][0], dst=True), 1, 32)
    assert device.arrays["o"].tolist() == list(range(32))
    assert got.counters.global_atom.requests == 1 and got.counters.global_red.requests == 0


@pytest.mark.parametrize(("op", "expected"), [("max", 1.0), ("min", -3.0), ("add", np.nan)])
def test_a_float_atomic_max_ignores_nan_and_an_add_does_not(op: str, expected: float) -> None:
    device = Device(h=np.array([np.nan if op != "min" else -3.0], np.float32))
    device.run(atomic(INDICES["all the same"][0], op=op, type_="f32"), 1, 2)
    np.testing.assert_equal(device.arrays["h"][0], np.float32(expected))


def indexed_store(shift: int) -> ir.Function:
    """o[t + shift] = 1, checked."""
    b = Builder()
    b.block()
    i = b.alu("add", "s64", b.wide(b.sreg("tid.x")), Imm(shift))
    b.store("global", "s32", Imm(1), b.at("o", b.check(i, b.param("o.shape.0"), "o")), "o")
    b.end(ir.Ret)
    return b.done()


def test_the_lowest_thread_outside_an_array_is_named() -> None:
    with pytest.raises(
        OutOfBounds,
        match=r"kernel kernel, block \(0, 0, 0\), thread \(16, 0, 0\), k\.py:\d+: "
        r"index 16 in dimension 0 of 'o' .* extent is 16",
    ):
        Device(o=np.zeros(16, np.int32)).run(indexed_store(0), 1, 32)


def test_a_negative_index_wraps_once_and_is_counted() -> None:
    device = Device(o=np.zeros(8, np.int32))
    got = device.run(indexed_store(-2), 1, 4)
    assert device.arrays["o"].tolist() == [1, 1, 0, 0, 0, 0, 1, 1]
    assert got.counters.wrapped_indices == 2
    assert device.run(indexed_store(0), 1, 4).counters.wrapped_indices == 0
    with pytest.raises(OutOfBounds, match="index -9 .* wraps once"):
        device.run(indexed_store(-9), 1, 4)


def test_strict_index_makes_a_negative_index_an_error() -> None:
    with pytest.raises(OutOfBounds, match=r"thread \(0, 0, 0\).*index -2 .*--strict-index"):
        Device(o=np.zeros(8, np.int32)).run(indexed_store(-2), 1, 4, strict_index=True)


def test_an_unchecked_address_outside_memory_is_an_error() -> None:
    b = Builder()
    b.block()
    b.store("shared", "f32", Imm(0.0), b.wide(b.sreg("tid.x")), "s")
    b.end(ir.Ret)
    with pytest.raises(
        OutOfBounds, match=r"thread \(61, 0, 0\).*address 61 of 's' is outside shared memory \(64 bytes\)"
    ):
        Device().run(b.done(), 1, 64, shared_bytes=64)


def test_the_highest_lane_wins_where_stores_collide() -> None:
    b = Builder()
    b.block()
    b.store("global", "s32", b.sreg("tid.x"), b.param("o.base", "u64"), "o")
    b.end(ir.Ret)
    device = Device(o=np.zeros(1, np.int32))
    got = device.run(b.done(), 1, 32)
    assert device.arrays["o"][0] == 31 and got.counters.global_store.sectors == 1


def local_array(type_: str) -> ir.Function:
    """Write and read back element 1 of a local array of 3."""
    size = ir.BYTES[type_]
    b = Builder(local=(ir.LocalArray("q", type_, (3,), 0, 3 * size, ir.Loc("k.py", 0), size),))
    b.block()
    t = b.sreg("tid.x")
    value = b.reg(type_)
    b.add(ir.Cvt, value, type_, t, "s32")
    b.store("local", type_, value, Imm(size), "q")
    b.store("global", type_, b.load("local", type_, Imm(size), "q"), b.at("o", b.wide(t), size), "o")
    b.end(ir.Ret)
    return b.done()


@pytest.mark.parametrize(("type_", "lines"), [("f32", [1]), ("f64", [2, 3])])
def test_local_memory_is_interleaved_by_words_of_a_warp(type_: str, lines: list[int]) -> None:
    words = 3 * ir.BYTES[type_] // 4
    device = Device(o=np.zeros(64, "f" + str(ir.BYTES[type_])))
    got = device.run(local_array(type_), 1, 64, register_arrays=frozenset())
    assert device.arrays["o"].tolist() == list(range(64))
    stores = trace.unpack(got.trace[0])
    stores = stores[stores["kind"] == Kind.LOCAL_STORE]
    first = LOCAL_BASE // 128
    assert stores["line"].tolist() == [first + line + words * warp for warp in (0, 1) for line in lines]
    assert (stores["mask"] == 15).all()
    assert got.counters.local_store.__dict__ == {
        "lanes": 64,
        "bytes": 64 * ir.BYTES[type_],
        "requests": 2,
        "sectors": 8 * len(lines),
    }
    assert got.counters.local_load == got.counters.local_store


def test_a_local_array_in_registers_leaves_no_traffic() -> None:
    device = Device(o=np.zeros(32, np.float32))
    got = device.run(local_array("f32"), 1, 32)
    assert device.arrays["o"].tolist() == list(range(32))
    assert got.counters.local_store.requests == 0 and kinds(got.trace[0]) == ["WARP", "STORE"]


def value_of(op: str, type_: str, *args: float) -> Any:
    """Run one Alu operation in one lane."""
    b = Builder()
    b.block()
    b.store("global", type_, b.alu(op, type_, *map(Imm, args)), b.param("o.base", "u64"), "o")
    b.end(ir.Ret)
    device = Device(o=np.zeros(1, {"s32": "i4", "u32": "u4", "s64": "i8", "f32": "f4", "f64": "f8"}[type_]))
    device.run(b.done(), 1, 1)
    return device.arrays["o"][0]


@pytest.mark.parametrize(
    ("op", "type_", "args", "expected"),
    [
        ("add", "s32", (2**31 - 1, 1), -(2**31)),
        ("mul", "u32", (2**31, 2), 0),
        ("sub", "u32", (0, 1), 2**32 - 1),
        ("div", "s32", (-7, 2), -3),
        ("rem", "s32", (-7, 2), -1),
        ("floordiv", "s32", (-7, 2), -4),
        ("floormod", "s32", (-7, 2), 1),
        ("div", "s32", (7, 0), 0),
        ("rem", "s32", (7, 0), 0),
        ("floordiv", "s64", (7, 0), 0),
        ("floormod", "s64", (7, 0), 0),
        ("div", "s32", (-(2**31), -1), -(2**31)),
        ("floordiv", "s32", (-(2**31), -1), -(2**31)),
        ("rem", "s64", (-(2**63), -1), 0),
        ("shl", "s32", (1, 31), -(2**31)),
        ("shl", "s32", (1, 32), 0),
        ("shr", "s32", (-8, 1), -4),
        ("shr", "s32", (-8, 40), -1),
        ("shr", "u32", (2**31, 31), 1),
        ("shr", "u32", (2**31, 32), 0),
        ("shl", "s64", (1, -1), 0),
        ("not", "s32", (0,), -1),
        ("neg", "s32", (-(2**31),), -(2**31)),
        ("abs", "s64", (-5,), 5),
        ("max", "u32", (-1, 1), 2**32 - 1),
        ("min", "s32", (-1, 1), -1),
        ("div", "f32", (1, 3), np.float32(1) / np.float32(3)),
        ("max", "f32", (float("nan"), 2), 2.0),
        ("min", "f32", (2, float("nan")), 2.0),
        ("fma", "f32", (1 + 2**-12, 1 + 2**-12, -(1 + 2**-11)), 2**-24),
        ("fma", "f64", (1 + 2**-30, 1 + 2**-30, -(1 + 2**-29)), 2**-60),
        ("rint", "f32", (2.5,), 2.0),
        ("copysign", "f32", (3, -0.0), -3.0),
        ("exp", "f32", (0,), 1.0),
        ("div", "f32", (1, 0), np.inf),
    ],
)
def test_operations_give_the_documented_values(
    op: str, type_: str, args: tuple[float, ...], expected: float
) -> None:
    assert value_of(op, type_, *args) == expected


def test_colliding_shared_atomics_cost_no_more_wavefronts_and_no_trace() -> None:
    b = Builder(shared=(ir.SharedArray("s", "s32", (1,), 0, 4, ir.Loc("k.py", 0), 4),))
    b.block()
    b.store("shared", "s32", Imm(0), Imm(0), "s")
    b.add(ir.Atom, "add", "shared", "s32", None, Imm(0), Imm(2), "s")
    b.store("global", "s32", b.load("shared", "s32", Imm(0), "s"), b.at("o", b.wide(b.sreg("tid.x"))), "o")
    b.end(ir.Ret)
    device = Device(o=np.zeros(32, np.int32))
    got = device.run(b.done(), 1, 32)
    assert device.arrays["o"].tolist() == [64] * 32
    assert got.counters.shared_atom.__dict__ == {
        "lanes": 32,
        "bytes": 128,
        "requests": 1,
        "wavefronts": 1,
        "ideal_wavefronts": 1,
    }
    assert kinds(got.trace[0]) == ["WARP", "STORE"]


@pytest.mark.parametrize(
    ("type_", "register", "stored"), [("u8", "u32", 255), ("s8", "s32", -1), ("pred", "pred", 1)]
)
def test_narrow_elements_widen_into_the_register_and_narrow_on_the_way_back(
    type_: str, register: str, stored: int
) -> None:
    b = Builder()
    b.block()
    t = b.wide(b.sreg("tid.x"))
    value = b.reg(register)
    b.add(ir.Ld, "global", type_, (value,), b.at("a", t, 1), "a")
    b.add(ir.St, "global", type_, (value,), b.at("o", t, 1), "o")
    out = b.reg("s32")
    b.add(ir.Cvt, out, "s32", value, register)
    b.store("global", "s32", out, b.at("w", t), "w")
    b.end(ir.Ret)
    device = Device(
        a=np.full(4, 1 if type_ == "pred" else 255, np.uint8),
        o=np.zeros(4, np.uint8),
        w=np.zeros(4, np.int32),
    )
    device.run(b.done(), 1, 4)
    assert device.arrays["w"].tolist() == [stored] * 4 and (device.arrays["o"] == device.arrays["a"]).all()


def test_an_operand_of_the_same_width_is_reinterpreted_and_one_of_another_width_is_malformed() -> None:
    b = Builder()
    b.block()
    one = b.alu("mov", "f32", Imm(1.0))
    b.store("global", "s32", b.alu("add", "s32", one, Imm(1)), b.param("o.base", "u64"), "o")
    b.end(ir.Ret)
    device = Device(o=np.zeros(1, np.int32))
    device.run(b.done(), 1, 1)
    assert device.arrays["o"][0] == 0x3F800001
    wrong = Builder()
    wrong.block()
    wrong.alu("add", "s64", wrong.sreg("tid.x"), Imm(1))
    wrong.end(ir.Ret)
    with pytest.raises(ir.MalformedIR, match="int32 stands where s64 is needed"):
        Device().run(wrong.done(), 1, 1)


ADDRESSES = {
    "lane": lambda lane: lane,
    "lane x 2": lambda lane: 2 * lane,
    "lane x 4": lambda lane: 4 * lane,
    "lane x 8": lambda lane: 8 * lane,
    "lane x 16": lambda lane: 16 * lane,
    "lane / 2": lambda lane: lane // 2,
    "lane / 8": lambda lane: lane // 8,
    "lane / 16": lambda lane: lane // 16,
    "all the same": lambda lane: 0,
    "lane % 2": lambda lane: lane % 2,
    "lane % 8": lambda lane: lane % 8,
    "(lane / 8) x 32": lambda lane: lane // 8 * 32,
}
SAME = (1, 1, 2, 1, 2, 4)
FACT_17 = {
    "lane": (1, 2, 4, 1, 2, 4),
    "lane x 2": (2, 4, 8, 2, 4, 8),
    "lane x 4": (4, 8, 16, 4, 8, 16),
    "lane x 8": (8, 16, 32, 8, 16, 32),
    "lane x 16": (16, 32, 32, 16, 32, 32),
    "lane / 2": SAME,
    "lane / 8": SAME,
    "lane / 16": SAME,
    "all the same": SAME,
    "lane % 2": SAME,
    "lane % 8": (1, 2, 4, 1, 2, 4),
    "(lane / 8) x 32": (4, 4, 4, 4, 4, 4),
}


@pytest.mark.parametrize("pattern", FACT_17)
def test_wavefronts_are_what_an_h200_counted(pattern: str) -> None:
    """Fact 17, in the order LDS.32, LDS.64, LDS.128, STS.32, STS.64, STS.128."""
    got = tuple(
        request_rules.wavefronts({lane: size * ADDRESSES[pattern](lane) for lane in range(32)}, size, is_load)
        for is_load in (True, False)
        for size in (4, 8, 16)
    )
    assert got == FACT_17[pattern]


def test_the_fast_rules_of_gpusim_equal_the_rules_written_with_sets() -> None:
    atomics, coalescer, shared = (
        pytest.importorskip(f"gpusim.{m}") for m in ("atomics", "coalescer", "shared")
    )
    rng = np.random.default_rng(3)
    for _ in range(400):
        size = int(rng.choice([4, 8]))
        addresses = size * rng.integers(0, rng.choice([2, 16, 200]), 32)
        addresses = addresses[rng.choice([np.arange(32), np.arange(32) // 2 * 2, np.arange(32) & ~2])]
        mask = int(rng.integers(0, 1 << 32)) if rng.random() < 0.5 else 0xFFFFFFFF
        lanes = {lane: int(addresses[lane]) for lane in range(32) if mask >> lane & 1}
        out = np.zeros(64, np.uint64)
        for fast, slow, kind in (
            (coalescer.coalesce, request_rules.records, Kind.LOAD),
            (atomics.collide, request_rules.atomic_records, Kind.RED),
        ):
            n = fast(addresses, np.uint32(mask), int(kind), 5, out) & 0xFFFFFFFF
            assert out[:n].tolist() == slow(lanes, size, kind, 5)
        for wide in (1, 2, 4, 8, 16):
            for is_load in (True, False):
                by_width = {lane: address // size * wide for lane, address in lanes.items()}
                assert shared.wavefronts(
                    addresses // size * wide, np.uint32(mask), wide, is_load
                ) == request_rules.wavefronts(by_width, wide, is_load)
            assert shared.ideal_wavefronts(np.uint32(mask), wide) == request_rules.ideal_wavefronts(
                by_width, wide
            )
