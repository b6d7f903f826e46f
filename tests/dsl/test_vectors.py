"""Vector types: construction, members, and accesses of 8 and 16 bytes a lane, in all three engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.cuda import float32x4
from dsl.host.device import Device
from dsl.host.launch import launch
from dsl.types.elements import VECTORS
from gpusim.arch import H200
from gpusim.errors import LaunchRefused, Misaligned, UnsupportedFeature, UserError
from tests.dsl.three_engines import agreed

ENGINES = ("compiled", "ir", "oracle")
f32 = np.float32


# construction and members


@cuda.jit
def construct(out):
    one = cuda.float1(4)
    pair = cuda.float2(2, 3.5)
    three = cuda.float32x3(pair, one)
    four = cuda.float4(one, three)
    flipped = float32x4(four.w, four.z, four.y, four.x)
    for k, v in enumerate((four, flipped, cuda.float32x4(pair, pair))):
        out[k, 0] = v.x
        out[k, 1] = v.y
        out[k, 2] = v.z
        out[k, 3] = v.w


def test_a_vector_is_made_of_numbers_and_of_shorter_vectors():
    _, (out,) = agreed(construct, 1, 1, lambda: (np.zeros((3, 4)),))
    assert out.tolist() == [[4, 2, 3.5, 4], [4, 3.5, 2, 4], [2, 3.5, 2, 3.5]]


@cuda.jit
def convert(out):
    v = cuda.uchar2(258, 3.9)
    w = cuda.double1(1)
    out[0] = v.x
    out[1] = v.y
    out[2] = w.x / 3


def test_numbers_are_converted_to_those_of_the_vector():
    _, (out,) = agreed(convert, 1, 1, lambda: (np.zeros(3),))
    assert out.tolist() == [2, 3, 1 / 3]


@cuda.jit(device=True)
def added(a, b):
    return cuda.float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w)


@cuda.jit
def accumulate(out, n):
    t = cuda.threadIdx.x
    total = cuda.float4(0, 0, 0, 0)
    step = cuda.float4(1, 2, 3, 4)
    for k in range(n):
        if k % 2 == t % 2:
            total = added(total, step)
    last = total if t < 2 else step
    out[t] = last.x + 10 * last.w


def test_a_vector_lives_in_variables_and_goes_through_device_functions_branches_and_loops():
    _, (out,) = agreed(accumulate, 1, 4, lambda: (np.zeros(4), 5))
    assert out.tolist() == [3 + 10 * 12, 2 + 10 * 8, 41, 41]


def test_there_are_all_of_numbas_vector_types_and_their_c_names():
    assert len(VECTORS) == 88
    assert (VECTORS["longlong2"].name, VECTORS["double4"].name, VECTORS["uchar3"].name) == (
        "int64x2", "float64x4", "uint8x3",
    )  # fmt: skip
    assert all(hasattr(cuda, name) for name in VECTORS)


@pytest.mark.parametrize(
    ("name", "alignment", "accesses"),
    [
        ("char4", 4, 1), ("short2", 4, 1), ("short3", 2, 3), ("float2", 8, 1), ("float3", 4, 3),
        ("float4", 16, 1), ("double2", 16, 1), ("double3", 8, 3), ("double4", 16, 2), ("int1", 4, 1),
    ],
)  # fmt: skip
def test_alignment_and_number_of_accesses_are_cudas(name: str, alignment: int, accesses: int):
    vector = VECTORS[name]
    assert (vector.alignment, vector.count // vector.numbers_an_access) == (alignment, accesses)


@cuda.jit
def too_few(out):
    v = cuda.float4(1, 2, 3)
    out[0] = v.x


@cuda.jit
def other_numbers(out):
    v = cuda.float2(cuda.double2(1, 2))
    out[0] = v.x


@cuda.jit
def summed(out):
    v = cuda.float2(1, 2) + cuda.float2(1, 2)
    out[0] = v.x


@cuda.jit
def no_member(out):
    out[0] = cuda.float2(1, 2).z


@cuda.jit
def indexed(out):
    out[0] = cuda.float2(1, 2)[0]


@cuda.jit
def stored(out):
    out[0] = cuda.float2(1, 2)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (too_few, r"cuda\.float4 of 3 numbers; give 4"),
        (other_numbers, r"cuda\.float2 of a float64x2; give numbers, or vectors of float32"),
        (summed, "a float32x2 stands where a number is needed"),
        (no_member, "a float32x2 has no attribute 'z'"),
        (indexed, "a float32x2 cannot be indexed"),
        (stored, "'out' is assigned a float32x2; store one number at a time"),
    ],
)
def test_what_numba_does_not_have_is_refused_by_name(kernel: Any, message: str):
    with pytest.raises(UnsupportedFeature, match=message):
        kernel[1, 1](np.zeros(2))


def test_a_vector_is_made_in_kernels_alone():
    with pytest.raises(UserError, match="cuda.float4 exists only inside a kernel"):
        cuda.float4(1, 2, 3, 4)


# global memory


@cuda.jit
def copy4(a, b):
    i = cuda.grid(1)
    source, target = a.view(cuda.float4), b.view(cuda.float4)
    if i < source.size:
        target[i] = source[i]


def test_a_full_warp_of_float4_side_by_side_is_one_request_of_16_sectors():
    run, (a, b) = agreed(copy4, 1, 32, lambda: (np.arange(128, dtype=f32), np.zeros(128, f32)))
    assert a.tolist() == b.tolist()
    for counts in (run.counters.global_load, run.counters.global_store):
        assert (counts.requests, counts.lanes, counts.bytes, counts.sectors) == (1, 32, 512, 16)


def test_a_partial_warp_of_float4_asks_for_the_sectors_of_its_lanes():
    run, (a, b) = agreed(copy4, 2, 32, lambda: (np.arange(148, dtype=f32), np.zeros(148, f32)))
    assert a.tolist() == b.tolist()
    load = run.counters.global_load
    assert (load.requests, load.lanes, load.bytes, load.sectors) == (2, 37, 592, 16 + 3)


def test_counts_alone_are_the_same_without_data():
    args = np.arange(148, dtype=f32), np.zeros(148, f32)
    counted = launch(copy4, 2, 32, args, Device(H200), counts_only=True).counters
    assert counted == launch(copy4, 2, 32, args, Device(H200)).counters


@cuda.jit
def gather2(a, places, b):
    t = cuda.threadIdx.x
    v = cuda.ldcg(a.view(cuda.float64x2), places[t])
    b[t] = v.x + v.y


def test_vectors_are_loaded_from_any_place_and_with_a_cache_hint():
    places = np.random.default_rng(3).permutation(32)
    run, (a, _, b) = agreed(gather2, 1, 32, lambda: (np.arange(64.0), places, np.zeros(32)))
    assert b.tolist() == (a[2 * places] + a[2 * places + 1]).tolist()
    assert (run.counters.global_load.requests, run.counters.global_load.sectors) == (2, 8 + 16)


@cuda.jit
def three(a, b):
    t = cuda.threadIdx.x
    v = a.view(cuda.float3)[t]
    b.view(cuda.float3)[t] = cuda.float3(v.z, v.x, v.y)


def test_a_vector_of_three_is_three_accesses_of_4_bytes():
    run, (a, b) = agreed(three, 1, 32, lambda: (np.arange(96, dtype=f32), np.zeros(96, f32)))
    assert b.reshape(32, 3).tolist() == a.reshape(32, 3)[:, [2, 0, 1]].tolist()
    load = run.counters.global_load
    # Lanes 12 bytes apart: 384 bytes or 12 sectors, all of them for each of the three.
    assert (load.requests, load.lanes, load.bytes, load.sectors) == (3, 96, 384, 36)


@cuda.jit
def four_doubles(a, b):
    t = cuda.threadIdx.x
    v = a.view(cuda.double4)[t]
    b[t] = v.x + v.y + v.z + v.w


def test_a_vector_of_32_bytes_is_two_accesses_of_16():
    run, (_, b) = agreed(four_doubles, 1, 32, lambda: (np.arange(128.0), np.zeros(32)))
    assert b.tolist() == [16.0 * t + 6 for t in range(32)]
    assert (run.counters.global_load.requests, run.counters.global_load.sectors) == (2, 64)


@cuda.jit
def bytes4(a, b):
    t = cuda.threadIdx.x
    v = a.view(cuda.uchar4)[t]
    b.view(cuda.char4)[t] = cuda.char4(v.x, v.y, v.z, v.w)


def test_four_bytes_are_one_access_of_4_bytes_and_narrow_numbers_wrap():
    run, (_, b) = agreed(bytes4, 1, 32, lambda: (np.arange(128, dtype=np.uint8) * 3, np.zeros(128, np.int8)))
    assert b.tolist() == (np.arange(128, dtype=np.uint8) * 3).view(np.int8).tolist()
    assert (run.counters.global_load.requests, run.counters.global_load.sectors) == (1, 4)


@cuda.jit
def rows(a, b):
    t = cuda.threadIdx.x
    v = a.view(cuda.float2)
    b[t] = v[t, 1].x + v.shape[0] * 100 + v.shape[1] * 1000 + v.strides[1] + v.itemsize


def test_a_view_divides_the_last_dimension_and_keeps_the_others():
    _, (_, b) = agreed(rows, 1, 4, lambda: (np.arange(24, dtype=f32).reshape(4, 6), np.zeros(4)))
    assert b.tolist() == [6 * t + 2 + 400 + 3000 + 8 + 8 for t in range(4)]


@cuda.jit
def as_integers(a, b):
    t = cuda.threadIdx.x
    b[t] = a.view(np.int32)[t] + a.view(np.int64).size + a.view(np.uint8).size


def test_a_view_of_numbers_shows_their_bits():
    _, (_, b) = agreed(as_integers, 1, 4, lambda: (np.ones(4, f32), np.zeros(4, np.int64)))
    assert b.tolist() == [0x3F800000 + 2 + 16] * 4


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_that_are_no_whole_number_of_vectors_are_refused(engine: str):
    message = r"a\.view\(float32x4\): the last dimension of 'a' is 130 elements of 4 bytes, no whole number"
    with pytest.raises(LaunchRefused, match=message):
        launch(copy4, 1, 32, (np.zeros(130, f32), np.zeros(128, f32)), Device(H200), engine=engine)


def test_a_view_needs_a_contiguous_last_dimension():
    with pytest.raises(UnsupportedFeature, match="whose last dimension is not known to be contiguous"):
        copy4[1, 32](np.zeros((256, 2), f32)[:, 0], np.zeros(128, f32))


@cuda.jit
def load4(a, b, start):
    t = cuda.threadIdx.x
    if t >= start:
        b[t] = a.view(cuda.float4)[t].x


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("start", [0, 3])
def test_a_misaligned_vector_is_an_error_that_names_thread_array_index_line_and_alignment(
    engine: str, start: int
):
    line = load4.py_func.__code__.co_firstlineno + 4
    address = 4 + 16 * start + (1 << 20)
    place = rf"thread \({start}, 0, 0\), .*test_vectors.py:{line}: index {start} of 'a'"
    message = rf"{place}, byte {16 * start} of the array, is at address {address}, which is no multiple of 16"
    with pytest.raises(Misaligned, match=message):
        launch(load4, 1, 32, (np.zeros(129, f32)[1:], np.zeros(32), start), Device(H200), engine=engine)


def test_a_slice_that_starts_at_a_multiple_of_16_bytes_is_aligned():
    run, (_, b) = agreed(load4, 1, 32, lambda: (np.arange(132, dtype=f32)[4:], np.zeros(32), 0))
    assert b.tolist() == [4.0 * t + 4 for t in range(32)]
    assert run.counters.global_load.sectors == 17


# shared and local memory

PATTERNS: dict[str, tuple[int, int, int, tuple[int, int, int], tuple[int, int, int]]] = {
    # divide by, modulo, times; wavefronts of loads of 32, 64 and 128 bits, and of stores
    "lane": (1, 32, 1, (1, 2, 4), (1, 2, 4)),
    "lane x 2": (1, 32, 2, (2, 4, 8), (2, 4, 8)),
    "lane x 4": (1, 32, 4, (4, 8, 16), (4, 8, 16)),
    "lane x 8": (1, 32, 8, (8, 16, 32), (8, 16, 32)),
    "lane x 16": (1, 32, 16, (16, 32, 32), (16, 32, 32)),
    "lane / 2": (2, 32, 1, (1, 1, 2), (1, 2, 4)),
    "lane / 8": (8, 32, 1, (1, 1, 2), (1, 2, 4)),
    "lane / 16": (16, 32, 1, (1, 1, 2), (1, 2, 4)),
    "all the same": (32, 32, 1, (1, 1, 2), (1, 2, 4)),
    "lane % 2": (1, 2, 1, (1, 1, 2), (1, 2, 4)),
    "lane % 8": (1, 8, 1, (1, 2, 4), (1, 2, 4)),
    "(lane / 8) x 32": (8, 32, 32, (4, 4, 4), (4, 4, 4)),
}
"""Fact 17 of docs/h200_facts.md, every cell."""


def pattern_kernel(divide: int, modulo: int, times: int) -> Any:
    @cuda.jit
    def kernel(out):
        t = cuda.threadIdx.x
        at = t // divide % modulo * times
        one, two, four = (
            cuda.shared.array(512, np.float32),
            cuda.shared.array(512, cuda.float2),
            cuda.shared.array(512, cuda.float4),
        )
        one[at] = f32(t)
        two[at] = cuda.float2(t, t + 1)
        four[at] = cuda.float4(t, t + 1, t + 2, t + 3)
        cuda.syncthreads()
        a = one[at]
        b = two[at]
        c = four[at]
        out[t] = a + b.y + c.w

    return kernel


@pytest.mark.parametrize("pattern", PATTERNS)
def test_wavefronts_of_wide_shared_accesses_are_those_of_the_card(pattern: str):
    divide, modulo, times, loads, stores = PATTERNS[pattern]
    kernel = pattern_kernel(divide, modulo, times)
    run, (out,) = agreed(kernel, 1, 32, lambda: (np.zeros(32),))
    first = kernel.py_func.__code__.co_firstlineno + 9
    lines = {line - first: counters for (_, line), counters in run.lines.items()}
    assert tuple(lines[k].shared_store.wavefronts for k in range(3)) == stores
    assert tuple(lines[k].shared_load.wavefronts for k in range(4, 7)) == loads
    assert [lines[k].shared_load.bytes for k in range(4, 7)] == [128, 256, 512]
    highest = {t // divide % modulo: t for t in range(32)}
    assert out.tolist() == [3 * highest[t // divide % modulo] + 4 for t in range(32)]


@cuda.jit
def by_places(places, out):
    t = cuda.threadIdx.x
    table = cuda.shared.array(512, cuda.float4)
    if t % 4 != 1:
        table[places[t]] = cuda.float4(t, 0, 0, t)
        out[t] = table[places[t]].w


@pytest.mark.parametrize(("times", "wavefronts"), [(1, 4), (4, 16), (16, 24)])
def test_wavefronts_are_the_same_where_addresses_come_from_memory_and_lanes_are_off(
    times: int, wavefronts: int
):
    places = np.arange(32) * times
    run, (_, out) = agreed(by_places, 1, 32, lambda: (places, np.zeros(32)))
    # The six lanes of a quarter: of 16-byte places, 4 and 2 in each of two columns, or all in one.
    assert (run.counters.shared_load.lanes, run.counters.shared_load.wavefronts) == (24, wavefronts)
    assert out.tolist() == [t * (t % 4 != 1) for t in range(32)]


@cuda.jit
def dynamic(out):
    t = cuda.threadIdx.x
    table = cuda.shared.array(0, cuda.float4)
    table[t] = cuda.float4(t, t, t, table.size)
    out[t] = table[t].w + table[t].x


def test_dynamic_shared_memory_holds_a_vector_for_each_16_bytes():
    out = np.zeros(32)
    for engine in ENGINES:
        launch(dynamic, 1, 32, (out,), Device(H200), shared_bytes=1024, engine=engine)
        assert out.tolist() == [64.0 + t for t in range(32)]


@cuda.jit
def in_registers(out):
    t = cuda.threadIdx.x
    rows = cuda.local.array(4, cuda.float4)
    for k in range(4):
        rows[k] = cuda.float4(t, k, t * k, 1)
    total = f32(0)
    for k in range(4):
        total += rows[k].x + rows[k].z * rows[k].w
    out[t] = total


def test_a_local_array_of_vectors_with_known_indices_is_registers():
    run, (out,) = agreed(in_registers, 1, 64, lambda: (np.zeros(64),))
    assert out.tolist() == [10.0 * t for t in range(64)]
    assert run.counters.local_load.requests == run.counters.local_store.requests == 0
    assert run.registers.per_thread >= 16


@cuda.jit
def in_local_memory(places, out):
    t = cuda.threadIdx.x
    rows = cuda.local.array(8, cuda.float4)
    for k in range(8):
        rows[k] = cuda.float4(t, k, 0, 0)
    v = rows[places[t]]
    out[t] = v.x + 100 * v.y


def test_a_local_access_of_16_bytes_is_one_request_of_four_words_a_lane():
    places = np.arange(32) % 2
    run, (_, out) = agreed(in_local_memory, 1, 32, lambda: (places, np.zeros(32)))
    assert out.tolist() == [t + 100.0 * (t % 2) for t in range(32)]
    store, load = run.counters.local_store, run.counters.local_load
    assert (store.requests, store.bytes, store.sectors) == (8, 8 * 512, 8 * 16)
    # Each sector holds a word of 8 lanes, of which each second one reads there; both places are read.
    assert (load.requests, load.sectors) == (1, 32)
