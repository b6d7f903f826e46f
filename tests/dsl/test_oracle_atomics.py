"""Check each atomic of the Python oracle by values that a reader can derive."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.oracle import run as oracle
from tests.dsl.oracle_support import hold_against_interpreter

NAN = float("nan")


def add(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.add(h, 0, x[cuda.threadIdx.x])


def sub(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.sub(h, 0, x[cuda.threadIdx.x])


def and_(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.and_(h, 0, x[cuda.threadIdx.x])


def or_(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.or_(h, 0, x[cuda.threadIdx.x])


def xor(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.xor(h, 0, x[cuda.threadIdx.x])


def exch(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.exch(h, 0, x[cuda.threadIdx.x])


def inc(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.inc(h, 0, x[cuda.threadIdx.x])


def dec(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.dec(h, 0, x[cuda.threadIdx.x])


def largest(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.max(h, 0, x[cuda.threadIdx.x])


def smallest(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.min(h, 0, x[cuda.threadIdx.x])


def largest_number(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.nanmax(h, 0, x[cuda.threadIdx.x])


def smallest_number(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.nanmin(h, 0, x[cuda.threadIdx.x])


def cas(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.cas(h, 0, cuda.threadIdx.x, x[cuda.threadIdx.x])


def compare_and_swap(h, old, x):
    old[cuda.threadIdx.x] = cuda.atomic.compare_and_swap(h, cuda.threadIdx.x, x[cuda.threadIdx.x])


# kernel, element type, start, operands of threads 0 .., what is left, old values
ROWS: list[tuple[Callable[..., None], str, Any, list[Any], Any, list[Any]]] = [
    (add, "u4", 2**32 - 1, [1, 1, 1], 2, [2**32 - 1, 0, 1]),
    (add, "f4", 0.5, [1, 2], 3.5, [0.5, 1.5]),
    (sub, "u8", 1, [1, 1, 5], 2**64 - 6, [1, 0, 2**64 - 1]),
    (and_, "i4", 0b1011, [0b11, -2], 2, [0b1011, 0b11]),
    (or_, "u4", 8, [1, 2], 11, [8, 9]),
    (xor, "i8", 5, [-1, -1], 5, [5, -6]),
    (exch, "i4", 9, [1, 2], 2, [9, 1]),
    (inc, "u4", 0, [2, 2, 2, 2], 1, [0, 1, 2, 0]),
    (inc, "u8", 7, [2, 2], 1, [7, 0]),
    (dec, "u4", 1, [2, 2, 2, 2], 0, [1, 0, 2, 1]),
    (dec, "u4", 7, [2, 2], 1, [7, 2]),
    (largest, "i4", 3, [-5, 8], 8, [3, 3]),
    (largest, "f4", NAN, [8, 9], NAN, [NAN, NAN]),
    (largest, "f4", 3, [NAN, 8], 8, [3, 3]),
    (smallest, "u4", 3, [5, 2], 2, [3, 3]),
    (smallest, "f8", NAN, [5, 2], NAN, [NAN, NAN]),
    (largest_number, "f4", NAN, [8, NAN], 8, [NAN, 8]),
    (smallest_number, "f8", NAN, [8, 2], 2, [NAN, 8]),
    (cas, "i4", 0, [1, 2, 3], 3, [0, 1, 2]),
    (cas, "i4", 2, [1, 2, 3], 3, [2, 2, 2]),
    (cas, "u4", 9, [1, 2, 3], 9, [9, 9, 9]),
    (compare_and_swap, "i8", 0, [1, 7, 3], 7, [0, 1, 7]),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].__name__}-{row[1]}-{row[2]}")
def test_an_atomic_leaves_and_returns_what_its_name_says_in_both_oracles(row: Any) -> None:
    kernel, code, start, operands, left, olds = row
    h, x = np.array([start], code), np.array(operands, code)
    args = (h, np.full(len(x), 77, code), x)
    got, (h, old, _) = hold_against_interpreter(kernel, 1, len(x), args)
    np.testing.assert_array_equal(h, np.array([left], code))
    np.testing.assert_array_equal(old, np.array(olds, code))
    assert got.counters.global_atom.requests == 1 and got.counters.global_red.requests == 0


def unused(h):
    cuda.atomic.inc(h, 0, 100)
    cuda.atomic.cas(h, 1, 0, 5)


def test_an_atomic_whose_old_value_nobody_uses_is_a_red() -> None:
    h = np.zeros(2, np.uint32)
    got = oracle.run(unused, 1, 32, (h,))
    assert h.tolist() == [32, 5]
    # Two instructions, each with 32 lanes on one address: the sector is passed on 32 times.
    assert got.counters.global_red.__dict__ == {"lanes": 64, "bytes": 256, "requests": 2, "sectors": 64}
    assert got.counters.global_atom.requests == 0


def signed_zero(h):
    cuda.atomic.cas(h, 0, 0.0, 1.0)


def test_cas_of_floats_compares_bits() -> None:
    plus, minus = np.array([0.0], np.float32), np.array([-0.0], np.float32)
    oracle.run(signed_zero, 1, 1, (plus,))
    oracle.run(signed_zero, 1, 1, (minus,))
    assert plus[0] == 1 and minus[0] == 0


def shared_counter(out):
    counter = cuda.shared.array(1, np.uint32)
    if cuda.threadIdx.x == 0:
        counter[0] = 0
    cuda.syncthreads()
    out[cuda.threadIdx.x] = cuda.atomic.inc(counter, 0, 2)


def test_an_atomic_on_shared_memory_counts_there_and_not_as_a_global_one() -> None:
    out = np.full(4, 9, np.uint32)
    got, (out,) = hold_against_interpreter(shared_counter, 1, 4, (out,))
    assert out.tolist() == [0, 1, 2, 0]
    assert got.counters.shared_atom.requests == 1 and got.counters.global_atom.requests == 0
