"""Records: structured arrays, their fields, and records as arguments, in all three engines."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from dsl.types import record_type
from gpusim.arch import H200
from gpusim.errors import LaunchRefused, OutOfBounds, UnsupportedFeature
from tests.dsl.three_engines import agreed

BODY = np.dtype([("mass", np.float32), ("hits", np.int32), ("at", np.float64), ("tag", np.int8)], align=True)
PACKED = np.dtype(
    [("tag", np.int8), ("mass", np.float32), ("on", np.bool_), ("at", np.float64), ("k", np.int16)]
)
GRID = np.dtype([("n", np.int32), ("cells", np.float32, (2, 3))], align=True)
OUTER = np.dtype([("id", np.int64), ("body", BODY)], align=True)
TABLE = np.array([(1, 2.5), (3, 4.5)], np.dtype([("a", np.uint8), ("b", np.float64)], align=True))
NAMES = ("hits", "tag")


def bodies(count: int = 32, dtype: Any = BODY) -> np.ndarray:
    """Return records whose fields follow from their places."""
    made = np.zeros(count, dtype)
    made["mass"], made["at"], made["tag"] = np.arange(count) / 2, np.arange(count) * 10, -np.arange(count)
    return made


@cuda.jit
def move(a, out):
    i = cuda.threadIdx.x
    r = a[i]
    r.at += r.mass
    a[i]["hits"] = a[i].at + 1
    out[i] = a.tag[i] + a["mass"][i]


def test_fields_are_read_and_written_where_the_record_lies():
    run, (a, out) = agreed(move, 1, 32, lambda: (bodies(), np.zeros(32)))
    assert a["at"].tolist() == [10.5 * i for i in range(32)]
    assert a["hits"].tolist() == [int(10.5 * i + 1) for i in range(32)]
    assert out.tolist() == [-i + i / 2 for i in range(32)]
    # Records of 24 bytes: 32 fields of any size lie in all 24 sectors of 768 bytes.
    load, store = run.counters.global_load, run.counters.global_store
    assert (load.requests, load.sectors, load.bytes) == (5, 5 * 24, 32 * (8 + 4 + 8 + 1 + 4))
    assert (store.requests, store.sectors) == (3, 24 + 24 + 8)


@cuda.jit
def move_packed(a, out):
    i = cuda.threadIdx.x
    r = a[i]
    r.at = r.mass * 2
    r.k = r.tag * 300
    r.on = i % 2 == 0
    out[i] = r.mass + r.k + r.on + r.at


def test_fields_of_packed_records_are_moved_byte_by_byte():
    run, (a, out) = agreed(move_packed, 1, 32, lambda: (bodies(32, PACKED), np.zeros(32)))
    assert a["at"].tolist() == [float(i) for i in range(32)]
    assert a["k"].tolist() == [-300 * i for i in range(32)]
    assert a["on"].tolist() == [i % 2 == 0 for i in range(32)]
    assert out.tolist() == [i / 2 - 300 * i + (i % 2 == 0) + i for i in range(32)]
    # mass 4, tag 1, then mass 4, k 2, on 1 and at 8; stores of at 8, k 2 and on 1, and of out.
    assert run.counters.global_load.requests == 4 + 1 + 4 + 2 + 1 + 8
    assert run.counters.global_store.requests == 8 + 2 + 1 + 1


@cuda.jit
def one(r, out):
    r.hits = r.hits + 5
    out[0] = r["at"] + r[0]


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_a_record_as_an_argument_is_changed_in_place(engine: str):
    whole, out = bodies(3), np.zeros(1)
    launch(one, 1, 1, (whole[2], out), Device(H200), engine=engine)
    assert (whole[2]["hits"], whole[1]["hits"], out[0]) == (5, 0, 21.0)
    alone = np.rec.array(bodies(3))[1]
    launch(one, 1, 1, (alone, out), Device(H200), engine=engine)
    assert (alone.hits, out[0]) == (5, 10.5)


@cuda.jit
def arrays_inside(a, r, out):
    i = cuda.threadIdx.x
    cells = a[i].cells
    for k in range(cells.shape[0]):
        for m in range(3):
            out[i] += cells[k, m] * r.cells[k, m]
    cuda.syncthreads()
    a[i].cells[1, 2] = a[i].n
    r["cells"] = a[0]["cells"]


def test_an_array_in_a_record_is_indexed_and_copied():
    def args() -> tuple[Any, ...]:
        grids = np.zeros(4, GRID)
        grids["n"], grids["cells"] = 7, np.arange(24).reshape(4, 2, 3)
        return grids, np.ones(1, GRID)[0], np.zeros(4)

    _, (a, r, out) = agreed(arrays_inside, 1, 4, args)
    assert out.tolist() == [36.0 * i + 15 for i in range(4)]
    assert a["cells"][:, 1, 2].tolist() == [7.0] * 4
    assert r["cells"].tolist() == [[0, 1, 2], [3, 4, 7]]


@cuda.jit
def nested(a):
    i = cuda.threadIdx.x
    a[i].body.mass = a[i].id
    a[i]["body"]["hits"] = a[i].body.mass * 2


def test_records_lie_inside_records():
    _, (a,) = agreed(nested, 1, 3, lambda: (np.array([(k, (0, 0, 0, 0)) for k in range(3)], OUTER),))
    assert a["body"]["hits"].tolist() == [0, 2, 4]


@cuda.jit
def swap(a, b):
    i = cuda.threadIdx.x
    b[i] = a[31 - i]


def test_a_whole_record_is_copied_byte_by_byte():
    run, (a, b) = agreed(swap, 1, 32, lambda: (bodies(), np.zeros(32, BODY)))
    assert (b == a[::-1]).all()
    assert run.counters.global_load.requests == run.counters.global_store.requests == 24


@cuda.jit(device=True)
def heavier(p, q):
    return p.mass > q.mass


@cuda.jit
def through_functions(a, out):
    best = a[0]
    for k in range(1, a.size):
        if heavier(a[k], best):
            best = a[k]
    out[0] = best.at
    for name in NAMES:
        best[name] = 9


def test_a_variable_is_the_place_of_a_record_and_names_of_fields_may_be_constants():
    def args() -> tuple[Any, ...]:
        a = bodies(5)
        a["mass"] = [1, 5, 2, 9, 3]
        return a, np.zeros(1)

    _, (a, out) = agreed(through_functions, 1, 1, args)
    assert out[0] == 30
    assert a[["hits", "tag"]].tolist() == [(0, 0), (0, -1), (0, -2), (9, 9), (0, -4)]


@cuda.jit
def in_shared(a, out):
    i = cuda.threadIdx.x
    held = cuda.shared.array(32, BODY)
    mine = cuda.local.array(2, BODY)
    held[i].mass = a[i].mass
    held[i].at = a[i].at
    mine[i % 2].mass = i
    mine[1 - i % 2].mass = 100
    cuda.syncthreads()
    out[i] = held[31 - i].mass + held[31 - i].at + mine[i % 2].mass + mine[1 - i % 2].mass


def test_records_in_shared_and_local_memory_have_the_records_stride():
    run, (_, out) = agreed(in_shared, 1, 32, lambda: (bodies(), np.zeros(32)))
    assert out.tolist() == [10.5 * (31 - i) + i + 100 for i in range(32)]
    # 24 bytes are 6 words: lanes l and l + 16 meet in a bank of 4 bytes; of 8 bytes, halves go apart.
    assert run.static_shared_bytes == 32 * 24
    assert (run.counters.shared_store.requests, run.counters.shared_store.wavefronts) == (2, 2 + 2)


OF_NUMBA = numba.from_dtype(BODY)


@cuda.jit
def in_shared_by_numbas_type(a, out):
    i = cuda.threadIdx.x
    held = cuda.shared.array(32, OF_NUMBA)
    mine = cuda.local.array(1, OF_NUMBA)
    held[i].mass = a[i].mass
    mine[0].mass = i
    cuda.syncthreads()
    out[i] = held[31 - i].mass + mine[0].mass


def test_numbas_type_of_a_record_is_its_dtype():
    run, (a, out) = agreed(in_shared_by_numbas_type, 1, 32, lambda: (bodies(), np.zeros(32)))
    assert out.tolist() == [a["mass"][31 - i] + i for i in range(32)]
    assert run.static_shared_bytes == 32 * 24


@cuda.jit
def from_constants(out):
    i = cuda.threadIdx.x
    row = cuda.const.array_like(TABLE)[i % 2]
    out[i] = row.a + TABLE[i % 2]["b"]


def test_records_lie_in_constant_memory():
    run, (out,) = agreed(from_constants, 1, 4, lambda: (np.zeros(4),))
    assert out.tolist() == [3.5, 7.5, 3.5, 7.5]
    assert (run.counters.const_load.requests, run.counters.const_load.addresses) == (2, 4)


def test_a_device_array_of_records_stays_on_the_device_and_shows_its_fields():
    there, out = cuda.to_device(bodies()), np.zeros(32)
    for _ in range(2):
        move[1, 32](there, out)
    assert there.copy_to_host()["at"].tolist() == [11.0 * i for i in range(32)]
    field = there["at"]
    assert (field.strides, field.copy_to_host()[3]) == ((24,), 33.0)


def test_the_type_of_a_record_has_numpys_offsets_and_alignment():
    found = record_type(BODY)
    assert [(f.name, f.element, f.offset) for f in found.fields] == [
        ("mass", "f32", 0), ("hits", "s32", 4), ("at", "f64", 8), ("tag", "s8", 16),
    ]  # fmt: skip
    assert (found.bytes, found.alignment, found.aligned) == (24, 8, True)
    assert record_type(PACKED).aligned is False


@cuda.jit
def no_such_field(a):
    a[0].weight = 1


@cuda.jit
def of_text(a):
    a[0].label = 1


@cuda.jit
def of_a_number(a):
    a[0] = 1


@pytest.mark.parametrize(
    ("kernel", "dtype", "message"),
    [
        (no_such_field, BODY, "a record has no field 'weight'; it has mass, hits, at, tag"),
        (of_text, [("label", "S4")], "the field 'label' holds |S4; use fields of numbers"),
        (of_a_number, BODY, "'a', an array of records of mass, hits, at, tag, is assigned an int64"),
    ],
)
def test_what_a_record_does_not_have_is_refused(kernel: Any, dtype: Any, message: str):
    with pytest.raises(UnsupportedFeature) as error:
        launch(kernel, 1, 1, (np.zeros(1, dtype),), Device(H200), engine="compiled")
    assert message in str(error.value)


@cuda.jit
def outside(a):
    a[cuda.threadIdx.x].mass = 1


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_an_index_outside_an_array_of_records_is_an_error(engine: str):
    with pytest.raises(OutOfBounds, match="index 3 in dimension 0 of 'a'"):
        launch(outside, 1, 4, (bodies(3),), Device(H200), engine=engine)


def test_a_read_only_array_of_records_is_not_written():
    frozen = bodies(3)
    frozen.flags.writeable = False
    with pytest.raises(LaunchRefused, match="writes to a, which is a read-only array"):
        outside[1, 3](frozen)


@cuda.jit
def doubled(x):
    i = cuda.threadIdx.x
    x[i] = 2 * x[i]


def test_an_array_at_odd_addresses_is_moved_byte_by_byte():
    columns = []

    def args() -> tuple[Any, ...]:
        columns.append(bodies(32, PACKED)["at"])
        return (columns[-1],)

    run, (x,) = agreed(doubled, 1, 32, args)
    assert x.tolist() == [20.0 * i for i in range(32)]
    assert run.counters.global_load.requests == run.counters.global_store.requests == 8
