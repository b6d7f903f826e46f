"""Shuffles, votes, matches and gathering barriers: their WarpIR, what they give, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.types import ArgType
from dsl.warpir import ir
from gpusim.errors import UnsupportedFeature
from tests.dsl.engine_support import assert_equal, both
from tests.dsl.frontend_support import agree, compiled

I32A, I64A, U32A, F32A = (ArgType(t, 1) for t in ("s32", "s64", "u32", "f32"))
FULL = 0xFFFFFFFF
WARP_INSTRS = (ir.Shfl, ir.Vote, ir.Match, ir.ActiveMask, ir.SyncWarp, ir.BarResult)


def made(kernel: Any, *args: Any) -> list[Any]:
    """Return the instructions between threads that a kernel becomes, in order."""
    return [i for b in compiled(kernel, *args).blocks for i in b.instrs if isinstance(i, WARP_INSTRS)]


# shuffles


def every_shuffle(o, x):
    t = cuda.threadIdx.x
    v = x[t]
    o[t] = cuda.shfl_sync(0xFFFFFFFF, v, 3)
    o[t + 32] = cuda.shfl_up_sync(-1, v, 1)
    o[t + 64] = cuda.shfl_down_sync(0xFFFFFFFF, v, 2)
    o[t + 96] = cuda.shfl_xor_sync(np.uint32(0xFFFFFFFF), v, 16)


def test_each_shuffle_has_its_mode_its_lane_and_a_32_bit_mask() -> None:
    found = [(i.mode, i.type, i.dst.type, i.lane, i.mask) for i in made(every_shuffle, F32A, F32A)]
    assert found == [
        ("idx", "f32", "f32", ir.Imm(3), ir.Imm(FULL)),
        ("up", "f32", "f32", ir.Imm(1), ir.Imm(FULL)),
        ("down", "f32", "f32", ir.Imm(2), ir.Imm(FULL)),
        ("bfly", "f32", "f32", ir.Imm(16), ir.Imm(FULL)),
    ]


def test_shuffles_read_the_lane_that_their_name_says() -> None:
    t = np.arange(32)
    o = agree(every_shuffle, 1, 32, np.zeros(128, np.float32), np.arange(100, 132, dtype=np.float32))[0]
    assert list(o[:32]) == [103] * 32
    assert list(o[32:64]) == [100, *(100 + t[:-1])]  # lane 0 keeps its own
    assert list(o[64:96]) == [*(102 + t[:-2]), 130, 131]  # so do lanes 30 and 31
    assert list(o[96:]) == list(100 + (t ^ 16))


def shuffled(o, v):
    o[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFFFFFF, v, 0)


@pytest.mark.parametrize("element", ["s32", "u32", "s64", "u64", "f32", "f64"])
def test_a_shuffle_gives_the_type_of_its_value(element: str) -> None:
    fn = compiled(shuffled, ArgType(element, 1), ArgType(element))
    instrs = [i for b in fn.blocks for i in b.instrs]
    (shuffle,) = (i for i in instrs if isinstance(i, ir.Shfl))
    (store,) = (i for i in instrs if isinstance(i, ir.St))
    assert shuffle.type == shuffle.dst.type == element and store.values == (shuffle.dst,)


@pytest.mark.parametrize("element, name", [("s8", "int8"), ("u16", "uint16"), ("pred", "bool")])
def test_a_shuffle_of_a_narrow_value_is_refused(element: str, name: str) -> None:
    text = rf"cuda.shfl_sync of {name}; it moves int32, uint32, int64, uint64, float32, float64"
    with pytest.raises(UnsupportedFeature, match=text):
        compiled(shuffled, I64A, ArgType(element))


def runtime_lane(o, mask, lane):
    o[cuda.threadIdx.x] = cuda.shfl_sync(mask, o[cuda.threadIdx.x], lane)


def test_the_low_32_bits_of_a_mask_and_of_a_lane_count() -> None:
    fn = compiled(runtime_lane, I32A, ArgType("s64"), ArgType("u32"))
    (shuffle,) = made(runtime_lane, I32A, ArgType("s64"), ArgType("u32"))
    (narrowed,) = (i for b in fn.blocks for i in b.instrs if isinstance(i, ir.Cvt) and i.to_type == "u32")
    assert narrowed.from_type == "s64" and narrowed.dst == shuffle.mask
    assert isinstance(shuffle.lane, ir.Reg) and shuffle.lane.type == "u32"  # the same bits as an s32


def warp_sum(o, x):
    t = cuda.threadIdx.x
    total = x[t]
    for k in (16, 8, 4, 2, 1):
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, k)
    if t == 0:
        o[0] = total


def test_five_shuffles_down_add_up_a_warp() -> None:
    assert agree(warp_sum, 1, 32, np.zeros(1, np.int64), np.arange(32))[0][0] == 496


def broadcast(o):
    t = cuda.threadIdx.x
    value = 1234 if t == 0 else 7
    o[t] = cuda.shfl_sync(0xFFFFFFFF, value, 0)


def test_shfl_sync_of_lane_0_is_a_broadcast() -> None:
    assert set(agree(broadcast, 1, 32, np.zeros(32, np.int32))[0]) == {1234}


# votes and matches


def votes(o, p):
    t = cuda.threadIdx.x
    o[t] = cuda.all_sync(0xFFFFFFFF, p[t])
    o[t + 32] = cuda.any_sync(0xFFFFFFFF, p[t])
    o[t + 64] = cuda.eq_sync(0xFFFFFFFF, p[t])


def test_votes_give_predicates() -> None:
    found = made(votes, I32A, I32A)
    assert [(i.mode, i.dst.type, i.mask) for i in found] == [
        ("all", "pred", ir.Imm(FULL)),
        ("any", "pred", ir.Imm(FULL)),
        ("eq", "pred", ir.Imm(FULL)),
    ]
    assert all(isinstance(i.pred, ir.Reg) and i.pred.type == "pred" for i in found)


@pytest.mark.parametrize("ones, expected", [(0, (0, 0, 1)), (1, (0, 1, 0)), (32, (1, 1, 1))])
def test_votes_over_none_one_and_all_lanes(ones: int, expected: tuple[int, int, int]) -> None:
    p = np.zeros(32, np.int32)
    p[:ones] = 5
    o = agree(votes, 1, 32, np.zeros(96, np.int32), p)[0].reshape(3, 32)
    assert [set(row) for row in o] == [{x} for x in expected]


def ballots(o):
    lane = cuda.laneid
    o[lane] = cuda.ballot_sync(0xFFFFFFFF, lane % 2 == 0)
    o[lane + 32] = cuda.ballot_sync(0xFFFFFFFF, True)


def test_a_ballot_has_a_bit_for_each_lane_whose_predicate_holds() -> None:
    o = agree(ballots, 1, 32, np.zeros(64, np.uint32))[0]
    assert set(o[:32]) == {0x55555555} and set(o[32:]) == {FULL}


def test_a_ballot_is_an_int32_as_in_numba() -> None:
    assert [(i.mode, i.dst.type) for i in made(ballots, U32A)] == [("ballot", "u32")] * 2
    assert set(agree(ballots, 1, 32, np.zeros(64, np.int64))[0][32:]) == {-1}


def matches(o, x):
    t = cuda.threadIdx.x
    o[t] = cuda.match_any_sync(0xFFFFFFFF, x[t])
    mask, same = cuda.match_all_sync(0xFFFFFFFF, x[t])
    o[t + 32] = mask
    o[t + 64] = same


@pytest.mark.parametrize("element, held", [("s32", "s32"), ("f64", "f64"), ("u8", "u32"), ("pred", "s32")])
def test_a_match_compares_the_register_that_holds_the_value(element: str, held: str) -> None:
    found = [(i.mode, i.type, i.dst.type) for i in made(matches, U32A, ArgType(element, 1))]
    assert found == [("any", held, "u32"), ("all", held, "u32")]


def test_matches_give_the_lanes_with_equal_values() -> None:
    differing = agree(matches, 1, 32, np.zeros(96, np.uint32), np.arange(32, dtype=np.float32) % 2)[0]
    assert list(differing[:2]) == [0x55555555, 0xAAAAAAAA] and not differing[32:].any()
    equal = agree(matches, 1, 32, np.zeros(96, np.uint32), np.full(32, 4, np.int64))[0]
    assert set(equal[:64]) == {FULL} and set(equal[64:]) == {1}


def masks(o):
    i = cuda.laneid
    o[i] = cuda.lanemask_lt()
    o[i + 64] = cuda.warpsize
    cuda.syncwarp()
    if i < 16:
        o[i + 32] = cuda.activemask()
        cuda.syncwarp(0xFFFF)
    else:
        o[i + 32] = cuda.activemask()


def test_activemask_and_lanemask_lt_are_uint32_and_syncwarp_has_a_mask() -> None:
    found = made(masks, U32A)
    assert [type(i).__name__ for i in found] == ["SyncWarp", "ActiveMask", "SyncWarp", "ActiveMask"]
    assert [i.mask for i in found if isinstance(i, ir.SyncWarp)] == [ir.Imm(FULL), ir.Imm(0xFFFF)]
    fn = compiled(masks, U32A)
    reads = {i.name: i.dst.type for b in fn.blocks for i in b.instrs if isinstance(i, ir.Sreg)}
    assert reads == {"laneid": "s32", "lanemask_lt": "u32"}
    o = agree(masks, 1, 32, np.zeros(96, np.uint32))[0]
    assert [int(x) for x in o[:32]] == [2**k - 1 for k in range(32)]
    assert [int(x) for x in o[32:64]] == [0xFFFF] * 16 + [0xFFFF0000] * 16 and set(o[64:]) == {32}


def guarded(o, n):
    t = cuda.threadIdx.x
    if t < n and cuda.any_sync(0xF, t == 3):
        o[t] = 1


def test_the_right_side_of_and_votes_among_the_lanes_that_come_to_it() -> None:
    o = agree(guarded, 1, 32, np.zeros(32, np.int32), 4)[0]
    assert list(np.flatnonzero(o)) == [0, 1, 2, 3]


# barriers that gather


def gathered(o, x):
    t = cuda.threadIdx.x
    o[t] = 100 * t + cuda.syncthreads_count(x[t])
    o[t + 64] = cuda.syncthreads_and(x[t] > 0)
    o[t + 128] = cuda.syncthreads_or(x[t] > 6)


def test_a_gathering_barrier_hands_its_predicate_on_and_is_read_first_behind_it() -> None:
    fn = compiled(gathered, I32A, I32A)
    bars = [b.terminator for b in fn.blocks if isinstance(b.terminator, ir.Bar)]
    assert all(isinstance(bar.pred, ir.Reg) and bar.pred.type == "pred" for bar in bars)
    behind = [fn.blocks[bar.target].instrs[0] for bar in bars]
    assert [(i.op, i.dst.type) for i in behind] == [("count", "s32"), ("and", "s32"), ("or", "s32")]


@pytest.mark.parametrize("ones, expected", [(0, (0, 0, 0)), (5, (5, 0, 1)), (64, (64, 1, 1))])
def test_barriers_count_and_join_predicates_over_the_block(
    ones: int, expected: tuple[int, int, int]
) -> None:
    x = np.zeros(64, np.int32)
    x[:ones] = 7
    o = agree(gathered, 1, 64, np.zeros(192, np.int32), x)[0]
    assert list(o[:64] - 100 * np.arange(64)) == [expected[0]] * 64
    assert set(o[64:128]) == {expected[1]} and set(o[128:]) == {expected[2]}


def plain_barrier(o):
    cuda.syncthreads()
    o[0] = 1


def test_a_plain_barrier_gathers_nothing() -> None:
    fn = compiled(plain_barrier, I32A)
    assert [b.terminator.pred for b in fn.blocks if isinstance(b.terminator, ir.Bar)] == [None]
    assert not made(plain_barrier, I32A)


def until_settled(x, n):
    t = cuda.threadIdx.x
    rounds = 0
    while cuda.syncthreads_or(x[t] > 0):
        x[t] -= 1
        rounds += 1
    n[t] = rounds


def test_a_gathering_barrier_may_be_the_condition_of_a_loop() -> None:
    x, n = agree(until_settled, 1, 64, np.arange(64), np.zeros(64, np.int64))
    assert set(n) == {63} and x[63] == 0 and x[0] == -63


def as_statement(o):
    cuda.syncthreads_count(o[0])
    cuda.shfl_sync(0xFFFFFFFF, 1, 0)
    o[1] = 1


def test_calls_whose_value_is_dropped_still_take_part() -> None:
    assert [type(i).__name__ for i in made(as_statement, I32A)] == ["BarResult", "Shfl"]


ALIKE = [
    (every_shuffle, 32, (np.zeros(128, np.float32), np.arange(100, 132, dtype=np.float32))),
    (shuffled, 32, (np.zeros(32, np.int64), -(1 << 40) - 5)),
    (shuffled, 32, (np.zeros(32), 0.1)),
    (runtime_lane, 32, (np.arange(32, dtype=np.int32), -1, np.uint32(35))),
    (warp_sum, 32, (np.zeros(1, np.int64), np.arange(32))),
    (broadcast, 32, (np.zeros(32, np.int32),)),
    (votes, 32, (np.zeros(96, np.int32), np.arange(32, dtype=np.int32))),
    (ballots, 32, (np.zeros(64, np.int64),)),
    (matches, 32, (np.zeros(96, np.uint32), np.arange(32) % 5)),
    (matches, 32, (np.zeros(96, np.uint32), np.zeros(32, np.uint8))),
    (masks, 32, (np.zeros(96, np.uint32),)),
    (guarded, 32, (np.zeros(32, np.int32), 4)),
    (gathered, 64, (np.zeros(192, np.int32), np.arange(64, dtype=np.int32) % 9)),
    (until_settled, 64, (np.arange(64), np.zeros(64, np.int64))),
    (as_statement, 32, (np.zeros(2, np.int32),)),
]


@pytest.mark.parametrize("kernel, threads, args", ALIKE, ids=lambda x: getattr(x, "__name__", ""))
def test_the_compiled_engine_gives_what_the_interpreter_gives(
    kernel: Any, threads: int, args: tuple[Any, ...]
) -> None:
    assert_equal(*both(cuda.jit(kernel), (1, 1, 1), (threads, 1, 1), args))


# refusals


def float_mask(o):
    o[0] = cuda.all_sync(0.5, 1)


def boolean_mask(o):
    cuda.syncwarp(True)


def float_predicate(o):
    o[0] = cuda.any_sync(-1, o[0])


def float_gathered(o):
    o[0] = cuda.syncthreads_count(o[0])


def float_lane(o):
    o[0] = cuda.shfl_sync(-1, o[0], 1.0)


def array_value(o):
    o[0] = cuda.shfl_sync(-1, o, 1)


def array_match(o):
    o[0] = cuda.match_any_sync(-1, o)


def missing_lane(o):
    o[0] = cuda.shfl_up_sync(-1, o[0])


def extra_argument(o):
    o[0] = cuda.activemask(1)


REFUSED = {
    float_mask: "the mask of cuda.all_sync is float64, not an integer; convert it",
    boolean_mask: "the mask of cuda.syncwarp is bool, not an integer",
    float_predicate: "the predicate of cuda.any_sync is float32, not an integer or a boolean; compare it",
    float_gathered: "the predicate of cuda.syncthreads_count is float32, not an integer or a boolean",
    float_lane: "the src_lane of cuda.shfl_sync is float64, not an integer",
    array_value: "the value of cuda.shfl_sync is the array 'o'; give a number",
    array_match: "the value of cuda.match_any_sync is the array 'o'; give a number",
    missing_lane: "these arguments of cuda.shfl_up_sync; it takes mask, value, delta",
    extra_argument: "these arguments of cuda.activemask; it takes none",
}


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda k: k.__name__)
def test_wrong_arguments_are_refused_with_their_line(kernel: Any) -> None:
    line = kernel.__code__.co_firstlineno + 1
    with pytest.raises(UnsupportedFeature) as error:
        compiled(kernel, F32A)
    assert str(error.value).startswith(f"{__file__}:{line}: in {kernel.__name__}: {REFUSED[kernel]}")
