"""Let threads of the Python oracle meet at warp operations, and hold it against the interpreter of WarpIR."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy import float32

from dsl import cuda
from dsl.cuda import activemask, shfl_down_sync
from dsl.oracle import run as oracle
from gpusim.errors import BarrierDivergence, WarpDivergence
from tests.dsl.oracle_support import hold_against_interpreter, interpret

FULL = 0xFFFFFFFF
INTS, FLOATS = np.zeros(64, np.int32), np.arange(64, dtype=np.float32)


def run(kernel: Callable[..., None], block: Any = 32, out: Any = None) -> list[Any]:
    """Run a kernel of one array, of 64 int32 unless given, and return it."""
    array = INTS.copy() if out is None else out
    oracle.run(kernel, 1, block, (array,))
    return array.tolist()


def line_of(kernel: Callable[..., None], after: int) -> int:
    return kernel.__code__.co_firstlineno + after


# ----------------------------------------------------------------------------- what the operations give


def shuffles(out):
    t = cuda.threadIdx.x
    v = 10 * t
    out[t, 0] = cuda.shfl_sync(FULL, v, 33)
    out[t, 1] = cuda.shfl_up_sync(FULL, v, 2)
    out[t, 2] = cuda.shfl_down_sync(FULL, v, 2)
    out[t, 3] = cuda.shfl_xor_sync(FULL, v, 1)


def test_shuffles_read_other_lanes_and_their_own_past_the_ends() -> None:
    got = np.array(run(shuffles, out=np.zeros((32, 4), np.int32)))
    assert got[:, 0].tolist() == [10] * 32
    assert got[:, 1].tolist() == [0, 10, *range(0, 300, 10)]
    assert got[:, 2].tolist() == [*range(20, 320, 10), 300, 310]
    assert got[:, 3].tolist() == [10 * (n ^ 1) for n in range(32)]


def votes(out):
    t = cuda.threadIdx.x
    out[t, 0] = cuda.all_sync(FULL, t < 32)
    out[t, 1] = cuda.all_sync(FULL, t < 31)
    out[t, 2] = cuda.any_sync(FULL, t == 31)
    out[t, 3] = cuda.any_sync(FULL, t > 31)
    out[t, 4] = cuda.eq_sync(FULL, t > 31)
    out[t, 5] = cuda.eq_sync(FULL, t > 3)
    out[t, 6] = cuda.ballot_sync(FULL, t < 4)
    out[t, 7] = cuda.ballot_sync(FULL, t == 31)


def test_votes_answer_all_lanes() -> None:
    assert run(votes, out=np.zeros((32, 8), np.int64)) == [[1, 0, 1, 0, 1, 0, 0xF, -(2**31)]] * 32


def matches(out, x):
    t = cuda.threadIdx.x
    out[t, 0] = cuda.match_any_sync(FULL, t // 16)
    same, equal = cuda.match_all_sync(FULL, t // 32)
    out[t, 1] = same if equal else 0
    same, equal = cuda.match_all_sync(FULL, x[t])
    out[t, 2] = same if not equal else 7
    out[t, 3] = cuda.match_any_sync(FULL, x[t])


def test_matches_compare_bits() -> None:
    x = np.zeros(32, np.float32)
    x[:8] = -x[:8]
    out = np.zeros((32, 4), np.uint32)
    oracle.run(matches, 1, 32, (out, x))
    low, high = [0xFFFF, FULL, 0, 0xFF], [0xFFFF0000, FULL, 0, 0xFFFFFF00]
    assert out.tolist() == [low] * 8 + [[0xFFFF, FULL, 0, 0xFFFFFF00]] * 8 + [high] * 16


def masks(out):
    t = cuda.threadIdx.x
    out[t, 0] = cuda.lanemask_lt()
    out[t, 1] = cuda.activemask()
    if t % 2 == 1:
        out[t, 2] = activemask()
    else:
        out[t, 2] = 5


def test_activemask_gives_the_lanes_of_the_branch_and_lanemask_lt_those_below() -> None:
    got = run(masks, out=np.zeros((32, 3), np.uint32))
    assert [row[0] for row in got] == [(1 << t) - 1 for t in range(32)]
    assert [row[1] for row in got] == [FULL] * 32
    assert [row[2] for row in got] == [5, 0xAAAAAAAA] * 16


def active_in_a_loop(out):
    t = cuda.threadIdx.x
    for k in range(2):
        if t < 16:
            out[t] += cuda.activemask() & 1
        out[t] += cuda.popc(cuda.activemask())


def test_activemask_waits_for_the_lanes_of_a_branch_before_it_in_the_same_iteration() -> None:
    assert run(active_in_a_loop, out=np.zeros(32, np.int32)) == [66] * 16 + [64] * 16


def gathers(out):
    t = cuda.threadIdx.x
    if t >= 48:
        return
    out[t, 0] = cuda.syncthreads_count(t < 40)
    out[t, 1] = cuda.syncthreads_and(t < 48)
    out[t, 2] = cuda.syncthreads_and(t < 47)
    out[t, 3] = cuda.syncthreads_or(t == 47)
    out[t, 4] = cuda.syncthreads_or(t == 48)


def test_barriers_gather_a_predicate_over_the_threads_that_arrive() -> None:
    got = run(gathers, 64, np.full((64, 5), -1, np.int32))
    assert got == [[40, 1, 0, 1, 0]] * 48 + [[-1] * 5] * 16


def bits(out, x, wide):
    out[0] = cuda.popc(x[0])
    out[1] = cuda.clz(x[1])
    out[2] = cuda.clz(wide[1])
    out[3] = cuda.clz(x[1] + 0)
    out[4] = cuda.brev(x[1])
    out[5] = cuda.ffs(x[2])
    out[6] = cuda.ffs(x[3])
    out[7] = cuda.popc(wide[0])
    out[8] = cuda.selp(x[1] == 1, 3, 4)


def test_functions_of_bits_work_in_the_width_of_the_type_and_computing_makes_it_64_bits() -> None:
    out, x = np.zeros(9, np.int64), np.array([-1, 1, 12, 0], np.int32)
    oracle.run(bits, 1, 1, (out, x, x.astype(np.int64)))
    assert out.tolist() == [32, 31, 63, 63, 2**31, 3, 0, 64, 3]


def roots(out):
    out[0] = cuda.cbrt(float32(-27))
    cuda.nanosleep(10)
    cuda.syncwarp(1)
    out[1] = cuda.laneid


def test_cbrt_keeps_the_sign_and_a_lane_may_wait_for_itself() -> None:
    assert run(roots, 1, np.zeros(2, np.float32)) == [-3, 0]


def hints(out, x):
    t = cuda.threadIdx.x
    v = cuda.ldca(x, t) + cuda.ldcg(x, t) + cuda.ldcs(x, t) + cuda.ldlu(x, t) + cuda.ldcv(x, t)
    cuda.stcg(out, t, v)
    cuda.stcs(out, t + 32, v)
    cuda.stwb(out, t, v)
    cuda.stwt(out, t, v)


def test_hinted_accesses_are_loads_and_stores() -> None:
    out = np.zeros(64, np.float32)
    got = oracle.run(hints, 1, 32, (out, FLOATS.copy()))
    assert out.tolist() == [5.0 * t for t in range(32)] * 2
    assert got.counters.global_load.requests == 5 and got.counters.global_store.requests == 4


def test_names_imported_from_numba_by_themselves_are_the_oracles() -> None:
    numba_cuda = pytest.importorskip("numba.cuda")
    shuffle, popc = numba_cuda.shfl_sync, numba_cuda.popc

    def kernel(out):
        t = cuda.threadIdx.x
        out[t] = popc(shuffle(FULL, t, 7))

    assert run(kernel, out=np.zeros(32, np.int32)) == [3] * 32


# ----------------------------------------------------------------------------- who has to be there


def half(out):
    t = cuda.threadIdx.x
    if t < 16:
        out[t] = cuda.shfl_down_sync(FULL, t, 1)
    else:
        out[t] = cuda.shfl_up_sync(FULL, t, 1)


def gone_past(out):
    if cuda.threadIdx.x != 3:
        cuda.syncwarp()


def returns_below(out):
    if cuda.threadIdx.x != 3:
        out[0] = cuda.ballot_sync(FULL, True)
    if cuda.threadIdx.x == 3:
        return
    out[1] = 1


def from_a_returned_lane(out):
    t = cuda.threadIdx.x
    if t == 3:
        return
    out[t] = cuda.shfl_xor_sync(FULL, t, 1)


def unnamed(out):
    cuda.ballot_sync(0xFF, True)


def two_masks(out):
    cuda.syncwarp(0xF if cuda.threadIdx.x < 4 else 0xFFFFFFF0)


def outside(out):
    if cuda.threadIdx.x < 8:
        out[0] = cuda.shfl_xor_sync(0xFF, 1, 12)


def at_barrier(out):
    if cuda.threadIdx.x != 9:
        cuda.syncwarp()
    cuda.syncthreads()


REFUSED: dict[str, tuple[Callable[..., None], int, str]] = {
    "a lane in another branch": (
        half,
        3,
        r"lane 16 \(thread \(16, 0, 0\)\).*shfl_down_sync: a lane named in the mask does not take part",
    ),
    "a lane gone past": (gone_past, 2, r"lane 3 \(thread \(3, 0, 0\)\).*syncwarp: .* has not returned"),
    "a lane that returns below": (returns_below, 2, r"lane 3 .*ballot_sync: .* has not returned"),
    "a source that returned": (
        from_a_returned_lane,
        4,
        r"lane 2 .*it reads lane 3, which does not take part",
    ),
    "an active lane": (unnamed, 1, r"lane 8 \(thread \(8, 0, 0\)\).*ballot_sync: an active lane is not"),
    "two masks": (two_masks, 1, r"lane 4 .*its mask is 0xfffffff0, the warp's first .* has 0x0000000f"),
    "a source": (outside, 2, r"lane 0 \(thread \(0, 0, 0\)\).*shfl_xor_sync: it reads lane 12"),
    "a lane at a barrier": (at_barrier, 2, r"lane 9 \(thread \(9, 0, 0\)\).*syncwarp: a lane named"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_oracles_refuse_with_the_same_words(name: str) -> None:
    kernel, after, text = REFUSED[name]
    with pytest.raises(WarpDivergence, match=text) as by_source:
        run(kernel)
    with pytest.raises(WarpDivergence) as by_ir:
        interpret(kernel, 1, 32, (INTS.copy(),))
    assert str(by_source.value) == str(by_ir.value)
    assert f"{__file__}:{line_of(kernel, after)}: " in str(by_source.value)


def test_a_lane_past_the_end_of_the_block_is_no_source_of_a_shuffle() -> None:
    with pytest.raises(WarpDivergence, match=r"warp 1, lane 6 .*shfl_down_sync: it reads lane 8"):
        run(shuffles, 40, np.zeros((40, 4), np.int32))


# The next four kernels are those of numba-cuda's tests: 10 threads, masks of 32 and 16 lanes.


def match_any(out, x):
    i = cuda.grid(1)
    out[i] = cuda.match_any_sync(FULL, x[i])


def match_all(out, x):
    i = cuda.grid(1)
    same, equal = cuda.match_all_sync(FULL, x[i])
    out[i] = same if equal else 0


def useless_syncwarp(out):
    i = cuda.grid(1)
    cuda.syncwarp()
    out[i] = i


def useless_syncwarp_with_mask(out):
    i = cuda.grid(1)
    cuda.syncwarp(0xFFFF)
    out[i] = i


TEN = np.arange(10, dtype=np.int32)


def test_ten_threads_may_match_under_the_mask_of_a_whole_warp() -> None:
    _, (out, _) = hold_against_interpreter(match_any, 1, 10, (TEN.copy(), TEN % 2))
    assert out.tolist() == [0b0101010101, 0b1010101010] * 5
    _, (out, _) = hold_against_interpreter(match_all, 1, 10, (TEN.copy(), 0 * TEN))
    assert out.tolist() == [0b1111111111] * 10
    _, (out, _) = hold_against_interpreter(match_all, 1, 10, (TEN.copy(), TEN // 9))
    assert out.tolist() == [0] * 10


@pytest.mark.parametrize("kernel", [useless_syncwarp, useless_syncwarp_with_mask])
def test_ten_threads_may_wait_for_a_whole_warp(kernel: Callable[..., None]) -> None:
    _, (out,) = hold_against_interpreter(kernel, 1, 10, (0 * TEN,))
    assert out.tolist() == TEN.tolist()


def guarded(out, n):
    i = cuda.grid(1)
    if i >= n:
        return
    out[i] = cuda.ballot_sync(FULL, i % 2 == 0)


def test_lanes_that_returned_may_be_named_and_are_in_no_ballot() -> None:
    _, (out, _) = hold_against_interpreter(guarded, 1, 32, (np.zeros(32, np.int32), np.int32(10)))
    assert out.tolist() == [0b0101010101] * 10 + [0] * 22


def leave_one_by_one(out, n):
    t = cuda.threadIdx.x
    for k in range(n):
        out[t] += cuda.popc(cuda.ballot_sync(FULL, True))
        if t == k:
            return
    cuda.syncthreads()
    out[t] += cuda.popc(cuda.ballot_sync(FULL, True))


def leave_by_halves(out):
    t = cuda.threadIdx.x
    step = 16
    while step > 0:
        out[t] += cuda.popc(cuda.ballot_sync(FULL, True))
        if t >= step:
            return
        step //= 2


def test_lanes_that_leave_a_loop_are_missed_by_no_later_iteration() -> None:
    _, (out, _) = hold_against_interpreter(leave_one_by_one, 1, 10, (0 * TEN, np.int32(3)))
    assert out.tolist() == [10, 10 + 9, 10 + 9 + 8] + [10 + 9 + 8 + 7] * 7
    _, (out,) = hold_against_interpreter(leave_by_halves, 1, 32, (np.zeros(32, np.int32),))
    assert out[[31, 16, 15, 8, 7]].tolist() == [32, 32, 48, 48, 56]


def skipped(out):
    if cuda.threadIdx.x < 8:
        out[0] = cuda.syncthreads_count(True)


def test_a_gathering_barrier_that_some_lanes_skip_is_barrier_divergence() -> None:
    with pytest.raises(BarrierDivergence, match="8 threads arrived and 24 are missing"):
        run(skipped)


def branches(out):
    t = cuda.threadIdx.x
    if t % 2 == 0:
        out[t] = cuda.ballot_sync(0x55555555, t < 4)
    else:
        out[t] = cuda.ballot_sync(0xAAAAAAAA, t < 4)
    cuda.syncwarp()
    out[t] += 100


def test_two_branches_may_each_have_an_operation_of_their_own_lanes() -> None:
    assert run(branches, out=np.zeros(32, np.int32)) == [105, 110] * 16


# ----------------------------------------------------------------------------- against the interpreter


@cuda.jit(device=True)
def warp_sum(v):
    for k in range(5):
        v += cuda.shfl_down_sync(FULL, v, 16 >> k)
    return v


def warp_reduce(out, x):
    i = cuda.grid(1)
    total = warp_sum(x[i])
    if cuda.laneid == 0:
        out[i // 32] = total


def block_reduce(out, x):
    partial = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    total = warp_sum(x[t])
    if t % 32 == 0:
        partial[t // 32] = total
    cuda.syncthreads()
    if t < 32:
        total = partial[t] if t < cuda.blockDim.x // 32 else float32(0)
        total = warp_sum(total)
        if t == 0:
            out[0] = total


def histogram(bins, x):
    t = cuda.grid(1)
    peers = cuda.match_any_sync(FULL, x[t])
    if cuda.popc(peers & cuda.lanemask_lt()) == 0:
        cuda.atomic.add(bins, x[t], cuda.popc(peers))


def compaction(out, x, count):
    t = cuda.threadIdx.x
    keep = x[t] > 0
    kept = cuda.ballot_sync(FULL, keep)
    base = 0
    if t % 32 == 0:
        base = cuda.atomic.add(count, 0, cuda.popc(kept))
    base = cuda.shfl_sync(FULL, base, 0)
    if keep:
        out[base + cuda.popc(kept & cuda.lanemask_lt())] = x[t]


def aggregated(out, x):
    t = cuda.threadIdx.x
    if x[t] > 0:
        active = cuda.activemask()
        leader = cuda.ffs(active) - 1
        if t % 32 == leader:
            cuda.atomic.add(out, 0, cuda.popc(active))


def scan(out, x):
    t = cuda.threadIdx.x
    v = x[t]
    step = 1
    while step < 32:
        below = cuda.shfl_up_sync(FULL, v, step)
        if t % 32 >= step:
            v += below
        step *= 2
    out[t] = v


def converge(out, x):
    t = cuda.threadIdx.x
    rounds = 0
    v = x[t]
    while cuda.any_sync(FULL, v > 1):
        if v > 1:
            v = v // 2
        rounds += 1
    out[t] = rounds + cuda.syncthreads_count(v == 1)


def by_own_name(out, x):
    i = cuda.grid(1)
    out[i] = shfl_down_sync(FULL, x[i], 1) + (activemask() & 3)


def swaps(out, x):
    t = cuda.threadIdx.x
    seen = cuda.atomic.exch(out, 0, x[t])
    cuda.atomic.or_(out, 1, 1 << (t % 16))
    cuda.atomic.xor(out, 2, seen)
    cuda.atomic.and_(out, 3, x[t])
    out[4 + t] = cuda.atomic.cas(out, 68, t // 2, t + 1)
    cuda.atomic.sub(out, 69, x[t])


RNG = np.random.default_rng(7)
NUMBERS = RNG.integers(-9, 9, 96).astype(np.int32)
POSITIVE = RNG.integers(1, 200, 64).astype(np.int32)
REALS = RNG.integers(-50, 50, 128).astype(np.float32)
SMALL = RNG.integers(0, 6, 128).astype(np.int32)
CASES: dict[str, tuple[Callable[..., None], Any, Any, tuple[Any, ...]]] = {
    "warp_reduce": (warp_reduce, 2, 64, (np.zeros(4, np.float32), REALS)),
    "block_reduce": (block_reduce, 1, 128, (np.zeros(1, np.float32), REALS)),
    "histogram": (histogram, 2, 64, (np.zeros(6, np.int32), SMALL)),
    "compaction": (compaction, 1, 96, (np.zeros(96, np.int32), NUMBERS, np.zeros(1, np.int32))),
    "aggregated": (aggregated, 1, 96, (np.zeros(1, np.int32), NUMBERS)),
    "scan": (scan, 1, 64, (np.zeros(64, np.int32), NUMBERS)),
    "converge": (converge, 1, 64, (np.zeros(64, np.int32), POSITIVE)),
    "by_own_name": (by_own_name, 2, 32, (np.zeros(64, np.int32), NUMBERS)),
    "swaps": (swaps, 1, 64, (np.zeros(70, np.int32), NUMBERS)),
    "shuffles": (shuffles, 1, 32, (np.zeros((32, 4), np.int32),)),
    "votes": (votes, 1, 32, (np.zeros((32, 8), np.int64),)),
    "matches": (matches, 1, 32, (np.zeros((32, 4), np.uint32), FLOATS)),
    "masks": (masks, 1, 32, (np.zeros((32, 3), np.uint32),)),
    "active_in_a_loop": (active_in_a_loop, 1, 32, (np.zeros(32, np.int32),)),
    "gathers": (gathers, 1, 64, (np.full((64, 5), -1, np.int32),)),
    "bits": (bits, 1, 1, (np.zeros(9, np.int64), NUMBERS[:4].copy(), NUMBERS[:4].astype(np.int64))),
    "hints": (hints, 1, 32, (np.zeros(64, np.float32), FLOATS)),
    "branches": (branches, 1, 32, (np.zeros(32, np.int32),)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_source_and_its_warp_ir_agree_in_values_and_every_counter(name: str) -> None:
    hold_against_interpreter(*CASES[name])


def test_reductions_and_histograms_give_the_sums_that_numpy_gives() -> None:
    _, (out, _) = hold_against_interpreter(*CASES["warp_reduce"])
    assert out.tolist() == REALS.reshape(4, 32).sum(axis=1).tolist()
    _, (out, _) = hold_against_interpreter(*CASES["block_reduce"])
    assert out[0] == REALS.sum()
    _, (out, _) = hold_against_interpreter(*CASES["histogram"])
    assert out.tolist() == np.bincount(SMALL, minlength=6).tolist()
    _, (out, _, count) = hold_against_interpreter(*CASES["compaction"])
    assert out[: count[0]].tolist() == NUMBERS[NUMBERS > 0].tolist()


def test_a_reduction_of_a_warp_counts_five_warp_operations_and_syncwarp_counts_none() -> None:
    got, _ = hold_against_interpreter(*CASES["warp_reduce"])
    assert got.counters.warp_operations == 4 * 5
    got, _ = hold_against_interpreter(*CASES["branches"])
    assert got.counters.warp_operations == 2


def cas_loop(out):
    old = out[0]
    while True:
        seen = cuda.atomic.cas(out, 0, old, old + 1)
        if seen == old:
            break
        old = seen
    out[1 + cuda.threadIdx.x] = old


def test_each_thread_of_a_warp_increments_once_in_a_cas_loop_in_the_order_of_lanes() -> None:
    """In lockstep only the lowest lane succeeds in a round, so the 32 lanes make 32 + 31 + ... + 1 tries; one
    thread at a time succeeds at once. The values are the same.
    """
    ours, theirs = np.zeros(33, np.int32), np.zeros(33, np.int32)
    by_source, by_ir = oracle.run(cas_loop, 1, 32, (ours,)), interpret(cas_loop, 1, 32, (theirs,))
    assert ours.tolist() == theirs.tolist() == [32, *range(32)]
    assert by_ir.counters.global_atom.lanes == 32 * 33 // 2
    assert by_source.counters.global_atom.lanes == 32
