"""The compiled engine against the interpreter of WarpIR: the same traces, counters, executions and memory."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from dsl import cuda, ptx
from dsl.engine import run as engine
from dsl.engine.run import Compiled, EngineRun, Key
from dsl.host.device import Device, place_arguments
from dsl.host.launch import launch
from dsl.types import arg_type
from gpusim.arch import get_arch
from gpusim.counters import Counters
from gpusim.errors import BarrierDivergence, DataDependent, EndlessLoop, LaunchRefused, OutOfBounds
from gpusim.memory import GlobalMemory, VirtualArray
from gpusim.trace import Kind, unpack
from tests.dsl.engine_support import assert_equal, both

float32, int32 = np.float32, np.int32


@cuda.jit
def add(a, b, c):
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


def run(kernel, grid, block, *args, **options):
    return launch(kernel, grid, block, args, Device(get_arch("h200")), **options)


def test_a_ragged_vector_sum_makes_the_requests_that_the_addresses_give():
    n = 1000
    a, b, c = np.ones(n, "f4"), np.full(n, 2, "f4"), np.zeros(n, "f4")
    counters = run(add, 4, 256, a, b, c).counters
    load, store = counters.global_load, counters.global_store
    # 31 whole warps and one of 8 lanes; 4,000 bytes are 125 sectors.
    assert (load.lanes, load.requests, load.sectors) == (2000, 64, 250)
    assert (store.lanes, store.requests, store.sectors) == (1000, 32, 125)
    assert counters.arithmetic.fadd == 1000
    assert (c == 3).all()


def test_a_warp_with_no_lane_in_bounds_makes_no_request():
    c = np.zeros(32, "f4")
    counters = run(add, 1, 128, c, c, c).counters
    assert counters.global_load.requests == 2
    assert counters.global_store.requests == 1


@cuda.jit
def column(a, o):
    t = cuda.threadIdx.x
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[t, k]
    o[t] = total


@pytest.mark.parametrize("cols", [32, 33, 40, 64])
def test_a_thread_a_row_touches_a_sector_a_lane_whatever_the_row_length(cols):
    rng = np.random.default_rng(0)
    args = (rng.standard_normal((32, cols)).astype("f4"), np.zeros(32, "f4"))
    engine, oracle = both(column, (1, 1, 1), (32, 1, 1), args)
    assert_equal(engine, oracle)
    assert engine.counters.global_load.sectors == 32 * cols


@cuda.jit
def rows_apart(a, o, k):
    t = cuda.threadIdx.x
    o[t * 64 + k] = a[t * 64 + k]


@pytest.mark.parametrize("k", [0, 7, 8, 31])
def test_a_line_a_lane_is_traced_in_lane_order(k):
    a = np.arange(2048, dtype="f4")
    engine, oracle = both(rows_apart, (1, 1, 1), (32, 1, 1), (a, a.copy(), k))
    assert_equal(engine, oracle)
    loads = unpack(engine.traces[0])
    loads = loads[loads["kind"] == Kind.LOAD]
    assert len(loads) == 32
    assert list(np.diff(loads["line"])) == [2] * 31
    assert set(loads["mask"]) == {1 << (k // 8)}
    assert loads["first"].sum() == 1


@cuda.jit
def private(o, n):
    t = cuda.threadIdx.x
    fixed = cuda.local.array(4, float32)
    moving = cuda.local.array(4, float32)
    for k in range(4):
        fixed[k] = float32(t + k)
    for k in range(n):
        moving[k] = fixed[0] + float32(k)
    o[t] = moving[n - 1] + fixed[3]


def test_a_private_array_with_constant_indices_is_registers_and_one_without_is_local_memory():
    o = np.zeros(32, "f4")
    engine, oracle = both(private, (1, 1, 1), (32, 1, 1), (o, 4))
    assert_equal(engine, oracle)
    # moving: 4 stores and 1 load of a word, 128 bytes each for the warp.
    assert (engine.counters.local_store.requests, engine.counters.local_store.sectors) == (4, 16)
    assert (engine.counters.local_load.requests, engine.counters.local_load.sectors) == (1, 4)


@cuda.jit
def wide_and_moving(o, places):
    t = cuda.threadIdx.x
    table = cuda.local.array(40, np.float64)
    for k in range(40):
        table[k] = k + t
    o[t] = table[places[t]]


def test_a_local_access_of_8_bytes_is_one_request_also_where_lanes_use_different_places():
    places = np.random.default_rng(0).integers(0, 40, 64).astype(np.int32)
    engine, oracle = both(wide_and_moving, (1, 1, 1), (64, 1, 1), (np.zeros(64), places))
    assert_equal(engine, oracle)
    # A store of a warp: 2 words, 128 bytes each.
    assert (engine.counters.local_store.requests, engine.counters.local_store.sectors) == (80, 640)
    local = unpack(np.concatenate(engine.traces))
    assert local[local["kind"] == Kind.LOCAL_LOAD]["first"].sum() == 2


@cuda.jit
def early(o):
    i = cuda.grid(1)
    s = cuda.shared.array(64, float32)
    s[cuda.threadIdx.x] = float32(i)
    if cuda.threadIdx.x >= 40:
        return
    cuda.syncthreads()
    o[i] = s[39 - cuda.threadIdx.x]


@cuda.jit
def split_once(a, o):
    t = cuda.grid(1)
    total = float32(0)
    for k in range(a.shape[0]):
        total += a[k]
    if a[t] > float32(0):
        total += float32(1)
    cuda.syncthreads()
    for k in range(a.shape[0]):
        total += a[k]
    o[t] = total


@cuda.jit
def leave_early(a, o):
    t = cuda.grid(1)
    if a[t] > float32(0):
        return
    total = float32(0)
    for k in range(a.shape[0]):
        total += a[k]
    o[t] = total


def masked_forms(kernel, threads):
    """Return how many blocks of a kernel have code for a part of a warp, and how many there are."""
    vector = arg_type(np.zeros(64, "f4"))
    code = Compiled(kernel.function((vector, vector)), Key((threads, 1, 1), False, False, frozenset()))
    n = len(code.fn.blocks)
    return sum(f"\nm{b}:" in code.text for b in range(n)), n


def test_code_for_a_part_of_a_warp_is_made_only_where_lanes_are_apart():
    forms, _ = masked_forms(split_once, 64)
    assert forms == 2  # the body of the `if`, and the block behind it, which goes on with all lanes


def test_code_for_a_part_of_a_warp_is_made_of_all_blocks_where_a_warp_is_not_full():
    assert len(set(masked_forms(split_once, 63))) == 1


def test_code_for_a_part_of_a_warp_is_made_of_all_blocks_behind_an_early_return():
    forms, blocks = masked_forms(leave_early, 64)
    assert forms == blocks - 1  # all but the first


@pytest.mark.parametrize("kernel", [split_once, leave_early])
@pytest.mark.parametrize("threads", [64, 63])
def test_lanes_that_part_once_count_and_compute_as_in_the_interpreter(kernel, threads):
    args = (np.random.default_rng(0).standard_normal(128).astype("f4"), np.zeros(128, "f4"))
    assert_equal(*both(kernel, (2, 1, 1), (threads, 1, 1), args))


def test_threads_that_have_returned_do_not_hold_up_a_barrier():
    o = np.full(64, -1, "f4")
    engine, oracle = both(early, (1, 1, 1), (64, 1, 1), (o,))
    assert_equal(engine, oracle)
    run(early, 1, 64, o)
    assert list(o[:40]) == list(range(39, -1, -1)) and (o[40:] == -1).all()


@cuda.jit
def odd_barrier(o):
    i = cuda.grid(1)
    if i % 2:
        cuda.syncthreads()
    o[i] = 1


@cuda.jit
def two_barriers(o):
    t = cuda.threadIdx.x
    if t < 32:
        cuda.syncthreads()
    else:
        o[t] = 3
        cuda.syncthreads()
    o[t] = 1


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
@pytest.mark.parametrize("kernel", [odd_barrier, two_barriers])
def test_a_barrier_that_some_threads_do_not_reach_names_how_many(kernel, engine):
    o = np.zeros(64, "f4")
    with pytest.raises(BarrierDivergence, match="32 threads arrived and 32 are missing"):
        run(kernel, 1, 64, o, engine=engine)
    assert (o == 0).all()


@cuda.jit
def past_the_end(o):
    i = cuda.grid(1)
    o[i + 1] = 1


@cuda.jit
def before_the_start(o):
    i = cuda.grid(1)
    o[i - 1] = i


@cuda.jit
def far_before(o):
    i = cuda.grid(1)
    o[i - 100] = i


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_an_index_out_of_bounds_names_the_lowest_thread_and_changes_nothing(engine):
    o = np.zeros(100, "f4")
    where = r"past_the_end, block \(1, 0, 0\), thread \(35, 0, 0\)"
    with pytest.raises(OutOfBounds, match=where + r".*index 100 in dimension 0 of 'o'.*extent is 100"):
        run(past_the_end, 2, 64, o, engine=engine)
    assert (o == 0).all()


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_a_negative_index_wraps_once_and_is_counted(engine):
    o = np.zeros(64, "f4")
    result = run(before_the_start, 1, 64, o, engine=engine)
    assert o[63] == 0 and o[0] == 1 and o[62] == 63
    assert result.counters.wrapped_indices == 1
    with pytest.raises(OutOfBounds, match="a negative index wraps once"):
        run(far_before, 1, 64, o, engine=engine)


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_a_wrapped_index_is_noted_with_its_line_and_strict_index_refuses_it(engine):
    o = np.zeros(64, "f4")
    note = run(before_the_start, 1, 64, o, engine=engine).notes[-1]
    line = before_the_start.py_func.__code__.co_firstlineno + 3
    assert f"of 'o' wrapped once at {__file__}:{line} (" in note and note.startswith("1 negative index of")
    with pytest.raises(OutOfBounds, match="--strict-index"):
        run(before_the_start, 1, 64, o, strict_index=True, engine=engine)


@cuda.jit
def wrapped_twice(o, n):
    t = cuda.threadIdx.x
    for k in range(n):
        o[-1 - t] += o[-2]


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_the_wrapped_indices_of_a_line_are_one_note_of_an_array(engine):
    o = np.zeros(8, "f4")
    notes = run(wrapped_twice, 2, 2, o, 3, engine=engine).notes
    # Two blocks of two threads, three turns: 12 times the element that is added to, and 12 times o[-2].
    assert [note.split(" wrapped")[0] for note in notes][-1] == "24 negative indices of 'o'"


@cuda.jit
def dynamic_shared(o):
    s = cuda.shared.array(0, float32)
    s[cuda.threadIdx.x] = 1
    o[cuda.threadIdx.x] = s[cuda.threadIdx.x]


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_dynamic_shared_memory_that_is_too_short_says_how_to_ask_for_more(engine):
    o = np.zeros(4, "f4")
    advice = r"pass more, by --shared BYTES or as in dynamic_shared\[grid, block, stream, BYTES\]"
    for given, index in ((0, 0), (12, 3)):
        what = rf"index {index} in .* of 's' .* the extent is {index}"
        with pytest.raises(OutOfBounds, match=rf"{what}; .*dynamic shared memory: {advice}"):
            run(dynamic_shared, 1, 4, o, shared_bytes=given, engine=engine)
    run(dynamic_shared, 1, 4, o, shared_bytes=16, engine=engine)
    assert o.tolist() == [1, 1, 1, 1]


@cuda.jit
def spin(o):
    while o[0] < 1:
        o[1] = 1


@cuda.jit
def long_loop(o, n):
    i = 0
    while i < n:
        i += 1
    o[0] = i


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_an_endless_loop_is_stopped_and_a_long_one_is_not(engine):
    with pytest.raises(EndlessLoop, match="1,000 steps"):
        run(spin, 1, 32, np.zeros(2, "f4"), engine=engine, max_steps=1000)
    o = np.zeros(1, "i4")
    run(long_loop, 1, 1, o, 900, engine=engine, max_steps=1000)
    assert o[0] == 900


def test_an_endless_loop_is_stopped_without_a_limit_given():
    with pytest.raises(EndlessLoop, match="10,000,000 steps"):
        run(spin, 1, 32, np.zeros(2, "f4"))


@cuda.jit
def gather(x, o):
    i = cuda.grid(1)
    o[x[i]] = i


@cuda.jit
def branch_on_data(x, o):
    i = cuda.grid(1)
    if x[i] > 0:
        o[i] = 1


def test_counting_alone_gives_the_same_counts_and_needs_no_data():
    a, b, c = (np.zeros(5000, "f4") for _ in range(3))
    whole = run(add, 20, 256, a, b, c)
    virtual = VirtualArray((5000,), np.dtype("f4"))
    others = [VirtualArray((5000,), np.dtype("f4")) for _ in range(2)]
    assert run(add, 20, 256, virtual, *others, counts_only=True).counters == whole.counters
    with pytest.raises(LaunchRefused, match="has no data"):
        run(add, 20, 256, virtual, *others)


@pytest.mark.parametrize(("kernel", "what"), [(gather, "an address"), (branch_on_data, "a branch")])
def test_counting_alone_refuses_a_kernel_whose_counts_depend_on_data_and_names_the_line(kernel, what):
    x, o = np.zeros(32, "i4"), np.zeros(32, "f4")
    line = kernel.py_func.__code__.co_firstlineno + 3
    with pytest.raises(DataDependent, match=rf"{what} of kernel .*test_engine.py:{line}"):
        run(kernel, 1, 32, x, o, counts_only=True)


def test_one_array_passed_twice_has_one_place():
    a = np.arange(64, dtype="f4")
    counters = run(add, 1, 64, a, a, a).counters
    assert (a == 2 * np.arange(64)).all()
    assert counters.hierarchy.dram_read_bytes == 256


def test_views_share_the_place_of_their_owner():
    whole = np.arange(128, dtype="f4")
    run(add, 1, 64, whole[:64], whole[64:], whole[:64])
    assert (whole[:64] == np.arange(64) + np.arange(64, 128)).all()


def test_strided_arrays_are_read_by_their_strides_and_reversed_ones_as_well():
    base = np.arange(256, dtype="f4")
    c = np.zeros(64, "f4")
    counters = run(add, 1, 64, base[::4], base[::-1][:64], c).counters
    assert (c == base[::4] + base[::-1][:64]).all()
    # stride 16 bytes: 16 sectors a request of 32 lanes; stride -4: 4.
    assert counters.global_load.sectors == 2 * 16 + 2 * 4


def test_a_read_only_array_can_be_read():
    a = np.broadcast_to(np.float32(2), (64,))
    c = np.zeros(64, "f4")
    run(add, 1, 64, a, a, c)
    assert (c == 4).all()


@cuda.jit
def last_lane_wins(o, x):
    o[0] = x[cuda.grid(1)]


def test_where_lanes_store_to_one_address_the_highest_lane_stays():
    o, x = np.zeros(1, "f4"), np.arange(40, dtype="f4")
    store = run(last_lane_wins, 1, 40, o, x).counters.global_store
    assert o[0] == 39
    assert (store.requests, store.sectors, store.lanes) == (2, 2, 40)


@cuda.jit
def unwritten(o):
    s = cuda.shared.array(32, float32)
    n = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    o[t] = s[t] if t < 16 else float32(n[t])


def test_shared_memory_starts_as_nan_and_minus_one():
    o = np.zeros(32, "f4")
    run(unwritten, 1, 32, o)
    assert np.isnan(o[:16]).all() and (o[16:] == -1).all()


@cuda.jit
def swap_until(o, n):
    a = cuda.threadIdx.x
    b = a + 100
    k = 0
    while k < n + cuda.threadIdx.x % 3:
        a, b = b, a
        k += 1
    o[cuda.threadIdx.x] = a * 1000 + b


def test_lanes_that_leave_a_loop_in_different_iterations_keep_their_own_values():
    o = np.zeros(32, "i4")
    assert_equal(*both(swap_until, (1, 1, 1), (32, 1, 1), (o, 2)))
    run(swap_until, 1, 32, o, 2)
    expected = [(t + 100) * 1000 + t if (2 + t % 3) % 2 else t * 1000 + t + 100 for t in range(32)]
    assert list(o) == expected


@cuda.jit
def three_dimensions(o):
    x, y, z = cuda.grid(3)
    o[z, y, x] = x + 10 * y + 100 * z + 1000 * cuda.threadIdx.y


def test_grids_and_blocks_of_three_dimensions():
    o = np.zeros((4, 6, 8), "i4")
    assert_equal(*both(three_dimensions, (2, 3, 2), (4, 2, 2), (o,)))
    run(three_dimensions, (2, 3, 2), (4, 2, 2), o)
    z, y, x = np.indices(o.shape)
    assert (o == x + 10 * y + 100 * z + 1000 * (y % 2)).all()


@cuda.jit
def merged_doubles(o, n):
    s = cuda.shared.array(32, np.float64)
    t = cuda.threadIdx.x
    s[t] = float(t)
    cuda.syncthreads()
    o[t] = s[t // 2]
    if t < n:
        o[t] += s[0]


@pytest.mark.parametrize("n", [0, 5, 32])
def test_a_merged_wide_load_has_no_conflict_and_its_ideal_is_what_it_takes(n):
    o = np.zeros(32)
    engine, oracle = both(merged_doubles, (1, 1, 1), (32, 1, 1), (o, n))
    assert_equal(engine, oracle)
    loads = engine.counters.shared_load
    # Neighbours read one element: both halves of the warp go in one wavefront (fact 17); so does a broadcast.
    assert loads.wavefronts == loads.ideal_wavefronts == (1 if n == 0 else 2)


@cuda.jit
def three_lines(a, o):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = a[t * 8] * a[t]
    cuda.syncthreads()
    o[t] = s[(t * 2) % 64]


def test_counts_by_line_add_up_to_the_kernels_and_stand_where_they_belong():
    a, o = np.ones(512, "f4"), np.zeros(64, "f4")
    fn = three_lines.function(tuple(arg_type(x) for x in (a, o)))
    memory = GlobalMemory(1 << 26)
    placed = place_arguments(fn, (a, o), memory)
    compiled = Compiled(fn, Key((64, 1, 1), False, False, placed.nonnegative))
    engine = EngineRun(compiled, (1, 1, 1), placed.params, memory, fn.static_shared_bytes)
    engine.wave(0, 1)
    lines = engine.tally().by_line()
    assert sum(lines.values(), start=Counters.zero()) == engine.tally().counters()
    first = three_lines.py_func.__code__.co_firstlineno
    by_number = {loc.line - first: counters for loc, counters in lines.items()}
    # Two warps; a[t * 8] is a sector a lane, a[t] four a warp.
    assert by_number[4].global_load.sectors == 2 * (32 + 4)
    assert by_number[4].arithmetic.fmul == 64
    assert by_number[4].shared_store.wavefronts == 2
    assert by_number[5].barriers == 2
    # Stride 2 words: two words a bank.
    assert by_number[6].shared_load.wavefronts == 4
    assert by_number[6].global_store.sectors == 8


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_counts_trace_and_results_do_not_depend_on_the_number_of_host_threads(threads):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(10_000).astype("f4") for _ in range(2))
    fn = add.function(tuple(arg_type(x) for x in (a, b, a)))
    outcomes = []
    for n in (1, threads):
        memory = GlobalMemory(1 << 26)
        placed = place_arguments(fn, (a, b, np.zeros_like(a)), memory)
        compiled = Compiled(fn, Key((64, 1, 1), False, False, placed.nonnegative))
        engine = EngineRun(compiled, (157, 1, 1), placed.params, memory, 0, threads=n)
        trace = [part.copy() for part in engine.wave(0, 157)]
        c = memory.view(placed.params["c.base"], a.shape, a.dtype)
        assert (c == a + b).all()
        outcomes.append((trace, engine.tally().counters()))
    for one, other in zip(outcomes[0][0], outcomes[1][0], strict=True):
        np.testing.assert_array_equal(one, other)
    assert outcomes[0][1] == outcomes[1][1]


def test_the_lowest_block_in_error_is_named_whatever_thread_finds_it_first():
    o = np.zeros(64 * 100 - 1, "f4")
    device = Device(get_arch("h200"), threads=4)
    for _ in range(5):
        with pytest.raises(OutOfBounds, match=r"block \(99, 0, 0\), thread \(62, 0, 0\)"):
            launch(past_the_end, 100, 64, (o,), device)


@cuda.jit
def in_order(o, x):
    i = cuda.grid(1)
    x[i] = cuda.atomic.add(o, 0, 1)


def test_atomics_on_global_memory_take_place_in_the_order_of_blocks():
    o, x = np.zeros(1, "i4"), np.zeros(64 * 40, "i4")
    launch(in_order, 40, 64, (o, x), Device(get_arch("h200"), threads=4))
    assert (x == np.arange(64 * 40)).all()


def test_counts_do_not_depend_on_the_clocks_of_the_gpu():
    a = np.ones(1000, "f4")
    slow = dataclasses.replace(get_arch("h200"), sm_clock_hz=1, memory_clock_hz=1, dram_bytes_per_second=1)
    counters = [
        launch(add, 4, 256, (a, a, a.copy()), Device(arch)).counters for arch in (get_arch("h200"), slow)
    ]
    assert counters[0] == counters[1]


@cuda.jit
def narrow_casts(o):
    i = cuda.grid(1)
    o[0, i] = np.int8(i * 50)
    o[1, i] = np.int16(i * 20000)
    o[2, i] = np.uint8(i * 50) + np.int8(i)
    o[3, i] = np.uint32(i - 1) // np.uint32(2)


def test_a_known_lane_pattern_that_does_not_fit_its_type_wraps_lane_by_lane():
    o = np.zeros((4, 32), "i8")
    assert_equal(*both(narrow_casts, (1, 1, 1), (32, 1, 1), (o,)))
    run(narrow_casts, 1, 32, o)
    lanes = np.arange(32)
    assert (o[0] == (lanes * 50).astype("i1")).all()
    assert (o[1] == (lanes * 20000).astype("i2")).all()
    assert (o[2] == (lanes * 50).astype("u1").astype("i8") + lanes).all()
    assert (o[3] == (lanes - 1).astype("u4") // 2).all()


@cuda.jit
def for_ever(o):
    while True:
        o[0] = 1


def test_a_loop_without_any_exit_is_stopped_like_another():
    with pytest.raises(EndlessLoop, match="for_ever.*1,000 steps"):
        run(for_ever, 1, 32, np.zeros(1, "f4"), max_steps=1000)


def test_arrays_that_the_device_cannot_hold_as_they_are_are_refused_by_name():
    a = np.zeros(64, "f4")
    with pytest.raises(LaunchRefused, match=r"argument b of kernel add.*astype\('float32'\)"):
        run(add, 1, 64, a, a.astype(">f4"), a)
    with pytest.raises(LaunchRefused, match="argument a of kernel add.*without dimensions"):
        run(add, 1, 64, np.array(1.0), a, a)
    fixed = np.zeros(64, "f4")
    fixed.flags.writeable = False
    with pytest.raises(LaunchRefused, match="add writes to c, which is a read-only array"):
        run(add, 1, 64, a, a, fixed)


@cuda.jit
def much_local(o):
    a = cuda.local.array(200_000, np.float64)
    a[cuda.threadIdx.x] = 1
    o[0] = a[0]


def test_more_local_memory_than_a_thread_can_have_is_refused():
    with pytest.raises(LaunchRefused, match="1,600,000 bytes of local arrays a thread, the limit is 524,288"):
        run(much_local, 1, 1, np.zeros(1))


@cuda.jit
def product(a):
    total = cuda.local.array(4, float32)
    for k in range(4):
        total[k] = float32(0)
    old = (total[0], total[1], total[2], total[3])
    total[0], total[1], total[2], total[3] = ptx.mma_sync_m16n8k16_f32_f16((1, 2, 3, 4), (5, 6), old)
    for k in range(4):
        a[cuda.threadIdx.x, k] = total[k]


@cuda.jit
def no_product(a):
    total = cuda.local.array(4, float32)
    for k in range(4):
        total[k] = float32(k)
    for k in range(4):
        a[cuda.threadIdx.x, k] = total[k]


@pytest.mark.parametrize(("kernel", "in_registers"), [(product, False), (no_product, True)])
def test_private_arrays_are_registers_of_the_machine_but_in_a_kernel_with_mma(kernel, in_registers):
    fn = kernel.function((arg_type(np.zeros((32, 4), "f4")),))
    text = Compiled(fn, Key((32, 1, 1), False, False, frozenset())).text
    assert ("alloca [4 x <32 x float>]" in text) == in_registers


def test_what_follows_a_failed_index_check_is_written_once():
    vector = arg_type(np.zeros(64, "f4"))
    text = Compiled(split_once.function((vector, vector)), Key((64, 1, 1), False, False, frozenset())).text
    assert text.count("define internal i1 @wrap_index(") == 1
    assert text.count("call i1 @wrap_index(") == 4  # two reads in loops, the condition, the store


@pytest.mark.parametrize("damage", [b"", b"no machine code", None])
def test_a_damaged_file_of_the_cache_of_machine_code_is_made_anew(tmp_path, monkeypatch, damage):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = Compiled(add.function(tuple(map(arg_type, [np.zeros(4, "f4")] * 3))),
                    Key((32, 1, 1), False, False, frozenset())).text  # fmt: skip
    made = engine.object_code(text, False)
    (file,) = (tmp_path / "gpusim" / "kernels").iterdir()
    kept = file.read_bytes()
    file.write_bytes(kept[:-1] if damage is None else damage)
    assert engine.object_code(text, False) == made
    assert file.read_bytes() == kept


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda launch: pickle.loads(pickle.dumps(launch))])
def test_a_launch_can_be_copied_with_the_accesses_of_its_lines(copied):
    launched = run(add, 1, 32, *(np.ones(32, "f4") for _ in range(3)))
    again = copied(launched)
    assert len(launched.accesses) == 3
    assert again.accesses == tuple(launched.accesses)
    assert again.counters == launched.counters


@cuda.jit
def dividing_in_dead_code(x):
    w = 0
    while w < 0:
        w += 1
        x[w % 3] = w // w + w % w + (w << w) + (w >> w)
    x[0] = 5


def test_arithmetic_in_a_loop_that_never_runs_compiles():
    # w is at least 1 behind the addition, and below 1 by the test: no number at all.
    x = np.zeros(4, "i4")
    run(dividing_in_dead_code, 1, 32, x)
    assert x.tolist() == [5, 0, 0, 0]
