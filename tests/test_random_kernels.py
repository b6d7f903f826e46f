"""Random kernels: the compiled engine, the interpreter of WarpIR and the Python source agree in all.

The compiled code is the interpreter's in every trace record, counter, execution of a basic block and byte of
memory. Both are the source's in every array element, bit for bit, in every request and in every counter that
the Python oracle has. tests/random_kernels.py draws the kernels and says why they have one answer.
"""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings

from dsl import cuda
from dsl.engine import run as engine
from dsl.host.dispatcher import Dispatcher
from dsl.llvm import text as llvm
from dsl.oracle import run as oracle
from dsl.semantics.messages import Dim3
from gpusim.trace import Kind, unpack
from tests.dsl.engine_support import MAX_STEPS, Outcome, assert_equal, both, load_source
from tests.random_kernels import Case, cases
from tests.test_engines_agree import records_of_source, records_of_trace

SPACES = (
    "global_load", "global_store", "global_red", "global_atom", "local_load", "local_store", "shared_load",
    "shared_store", "shared_atom",
)  # fmt: skip
SHARDS = 16
"""The 2,000 kernels of a full run come in this many tests of different seeds, for several processes."""
_numbers = count()


@pytest.fixture(scope="module", autouse=True)
def code_without_optimiser():
    """Let LLVM emit code at level 0, a third of the compile time, and leave the disk cache alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "object_code", lambda text, counts_only: llvm.to_object(text, counts_only, 0))
        yield


def hold(kernel: Dispatcher, blocks: int, block: Dim3, arguments: tuple[Any, ...]) -> Outcome:
    """Run a launch with all three on copies; assert that they agree; return what the compiled engine gave."""
    grid = (blocks, 1, 1)
    compiled, interpreted = both(kernel, grid, block, arguments)
    assert_equal(compiled, interpreted)
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    in_registers = compiled.register_arrays
    source = oracle.run(kernel.py_func, grid, block, copies, 0, MAX_STEPS, register_arrays=in_registers)
    arrays = [a for a in copies if isinstance(a, np.ndarray)]
    for number, (ours, theirs) in enumerate(zip(compiled.arrays, arrays, strict=True)):
        where = f"array {number}, compiled and of the source"
        np.testing.assert_array_equal(ours, theirs, err_msg=where)
        np.testing.assert_array_equal(*map(_negative_zeros, (ours, theirs)), err_msg=f"-0 in {where}")
    for name in (*SPACES, "barriers", "warp_operations", "wrapped_indices"):
        counted, of_source = getattr(compiled.counters, name), getattr(source.counters, name)
        assert counted == of_source, f"{name}: {counted} compiled, {of_source} of the source"
    assert records_of_trace(compiled.traces) == records_of_source(source)
    return compiled


def _negative_zeros(array: np.ndarray) -> np.ndarray:
    return np.signbit(array) & (array == 0)


def hold_case(case: Case, with_source: bool = True) -> None:
    """Hold a drawn kernel; without its source, the compiled code against the interpreter alone."""
    with tempfile.TemporaryDirectory() as directory:
        kernel = load_source(case.source, Path(directory), f"random_kernel_{next(_numbers)}").kernel
        block = (*case.block, 1)
        if with_source:
            hold(kernel, case.blocks, block, case.arguments)
        else:
            assert_equal(*both(kernel, (case.blocks, 1, 1), block, case.arguments))


quick = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@settings(quick, max_examples=100)
@given(cases())
def test_a_random_kernel_has_one_answer_compiled_interpreted_and_as_python(case):
    hold_case(case)


@settings(quick, max_examples=50)
@given(cases(raced=True))
def test_a_random_kernel_whose_threads_race_runs_in_one_order_compiled_and_interpreted(case):
    hold_case(case, with_source=False)


def shard(number: int) -> None:
    """Hold a share of the 2,000 kernels."""

    @seed(number)
    @settings(quick, max_examples=2000 // SHARDS)
    @given(cases())
    def holds(case: Case) -> None:
        hold_case(case)

    holds()


@pytest.mark.full
@pytest.mark.parametrize("number", range(SHARDS))
def test_two_thousand_random_kernels_have_one_answer(number):
    shard(number)


# ----------------------------------------------------------------------------- kernels that once failed


@cuda.jit
def wide_private(o, n):
    q = cuda.local.array(3, np.int64)
    t = cuda.threadIdx.x
    for k in range(n):
        q[(t + k) % 3] = k
    o[t] = q[n % 3]


def test_a_request_of_8_byte_private_elements_is_marked_as_one():
    compiled = hold(wide_private, 1, (32, 1, 1), (np.zeros(32, np.int64), 3))
    records = unpack(compiled.traces[0])
    stores = records[records["kind"] == Kind.LOCAL_STORE]
    # Three stores, each to three elements of two words: six lines of 128 bytes, the first of them marked.
    assert stores["first"].tolist() == ([True] + 5 * [False]) * 3
    assert compiled.counters.local_store.requests == 3


@cuda.jit
def last_of_all(o):
    s = cuda.shared.array(4, np.int32)
    p = cuda.local.array(4, np.float32)
    s[-1] = 5
    p[-2] = 2
    cuda.syncthreads()
    o[cuda.threadIdx.x] = s[3] + p[2]


def test_a_constant_negative_index_of_an_array_of_known_length_counts_as_wrapped():
    compiled = hold(last_of_all, 1, (2, 1, 1), (np.zeros(2, np.int32),))
    assert compiled.arrays[0].tolist() == [7, 7]
    assert compiled.counters.wrapped_indices == 4
    assert compiled.register_arrays == {"p"}  # the place is still known


@cuda.jit
def extremes_of_zeros(o, zero):
    cuda.atomic.max(o, 0, zero)
    cuda.atomic.min(o, 1, -zero)
    cuda.atomic.nanmax(o, 2, zero)
    cuda.atomic.nanmin(o, 3, -zero)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_atomic_extremum_leaves_a_zero_of_the_other_sign_in_memory(dtype):
    o = np.array([-0.0, 0.0, -0.0, 0.0], dtype)
    got = hold(extremes_of_zeros, 1, (1, 1, 1), (o, dtype(0))).arrays[0]
    assert np.signbit(got).tolist() == [True, False, True, False]  # numba swaps only where less or greater


@cuda.jit
def skipped_at_first(x, o):
    t = cuda.threadIdx.x
    k = 0
    while k < 3:
        k += 1
        if k > t % 2:
            o[t] += x[8 * k + t]


def test_lanes_meet_in_equal_iterations_of_a_while_loop_that_some_of_them_skip():
    x, o = np.arange(40, dtype=np.float32), np.zeros(8, np.float32)
    compiled = hold(skipped_at_first, 1, (8, 1, 1), (x, o))
    # k = 1: the four even lanes; k = 2 and 3: all eight. Each loads x and o, and stores o.
    assert (compiled.counters.global_load.requests, compiled.counters.global_load.lanes) == (6, 40)
    assert compiled.arrays[1].tolist() == [48 + 3 * t if t % 2 == 0 else 40 + 2 * t for t in range(8)]


@cuda.jit
def loads_in_a_test(o):
    q = cuda.local.array(3, np.int64)
    t = cuda.threadIdx.x
    q[0] = 1
    q[1] = 2
    q[2] = 3
    k = 0
    while k < (1 if t % 2 == 0 else q[t % 3]):
        k += 1
    o[t] = k


def test_lanes_meet_in_a_while_test_of_which_some_see_only_a_part():
    # Odd lanes load q[t % 3] = 2, 1, 3, 2, 1, 3 once more than they go around: 6, 6, 4 and 2 lanes.
    compiled = hold(loads_in_a_test, 1, (12, 1, 1), (np.zeros(12, np.int32),))
    assert compiled.arrays[0].tolist() == [1, 2, 1, 1, 1, 3, 1, 2, 1, 1, 1, 3]
    assert (compiled.counters.local_load.requests, compiled.counters.local_load.lanes) == (4, 18)


@cuda.jit
def two_tuples_of_whiles(o):
    t = cuda.threadIdx.x
    for _ in (0, 0):
        k = 0
        while k < t:
            k += 1
            o[t] += np.int32(cuda.popc(cuda.activemask()))


def test_lanes_that_are_in_different_passes_of_a_tuple_loop_do_not_meet():
    # In iteration k = 0, 1, 2 of each pass the 3 - k lanes with t > k meet: 3, 3 + 2 and 3 + 2 + 1, twice.
    (o,) = hold(two_tuples_of_whiles, 1, (4, 1, 1), (np.zeros(4, np.int32),)).arrays
    assert o.tolist() == [0, 6, 10, 12]


@cuda.jit
def remainder_of_a_mask(o):
    mask = np.int64(cuda.match_all_sync(0xFFFFFFFF, np.int64(1))[0])
    o[cuda.threadIdx.x] = mask // np.int64(2147483647) % 5


def test_a_mask_of_all_lanes_is_minus_one_where_it_is_divided():
    # As an int32, so -1 // 2147483647 = -1, and -1 % 5 = 4; taken for 2^32 - 1 it would be 1.
    (o,) = hold(remainder_of_a_mask, 1, (32, 1, 1), (np.zeros(32, np.int64),)).arrays
    assert o.tolist() == [4] * 32


@cuda.jit(device=True)
def unchanged(u, v):
    if (100 < v) & (u < v):
        for _ in range(1, 1, (cuda.selp(u % 2 == 0, u, 2) ** 2) % 2 + 1):
            v = 0
    return u


@cuda.jit
def stored_again(o, n):
    t = cuda.threadIdx.x
    o[t] = unchanged(o[t], n)


def test_a_step_that_divides_a_square_does_not_end_the_compiler():
    # LLVM's NewGVN stops the whole process at it: "Seem to have processed the same Value a lot".
    o = np.arange(90, 124)
    assert hold(stored_again, 1, (34, 1, 1), (o, 110)).arrays[0].tolist() == o.tolist()
