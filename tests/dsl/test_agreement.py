"""One answer from the compiled engine, both oracles and numba, at the edges of Python's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

import gpusim
from dsl import cuda
from dsl.oracle import run as oracle
from gpusim.errors import EndlessLoop, KernelFault, OutOfBounds, UnsupportedFeature

ENGINES = ("compiled", "ir", "oracle")


def everywhere(kernel: Any, threads: int, *args: Any, engines: tuple[str, ...] = ENGINES) -> np.ndarray:
    """Run a kernel with each engine on copies; assert that the last argument ends up the same, to the sign of
    its zeros; return it.
    """
    results = []
    for engine in engines:
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        with gpusim.profile(engine=engine):
            kernel[1, threads](*given)
        results.append(given[-1])
    for engine, result in zip(engines, results, strict=True):
        np.testing.assert_array_equal(results[0], result, err_msg=f"{engines[0]} and {engine}")
        np.testing.assert_array_equal(*(np.signbit(r) & (r == 0) for r in (results[0], result)))
    return results[0]


def numbas(function: Callable[..., Any], out: np.ndarray, *columns: Any) -> np.ndarray:
    """Return what numba makes of a function on the CPU, element by element, stored into a copy of `out`."""
    compiled, result = numba.njit(function), out.copy()
    for i, values in enumerate(zip(*columns, strict=True)):
        result[i] = np.asarray(compiled(*values)).astype(out.dtype)  # a large uint64 wraps
    return result


@cuda.jit
def deciding_operands(n, out):
    i = cuda.grid(1)
    out[i, 0] = i and 5
    out[i, 1] = i or 9
    out[i, 2] = n or 4
    out[i, 3] = i and n or 7
    out[i, 4] = (i > 1) and i
    out[i, 5] = (i > 1) or i
    out[i, 6] = i // 2 and 9 // i
    out[i, 7] = 0 or i
    out[i, 8] = i and 2.5


def test_and_and_or_give_the_operand_that_decides() -> None:
    got = everywhere(deciding_operands, 4, 0, np.zeros((4, 9)))
    expected = [
        (i and 5, i or 9, 4, 7, i if i > 1 else 0, (i > 1) or i, i // 2 and 9 // i, i, i and 2.5)
        for i in range(4)
    ]
    assert got.tolist() == [[float(x) for x in row] for row in expected]


@cuda.jit
def either_of_two(x, y, out):
    i = cuda.grid(1)
    out[i, 0] = (x[i] and y[i]) / 3
    out[i, 1] = (x[i] or y[i]) / 3


@pytest.mark.parametrize(
    ("x", "y"), [("u1", "i4"), ("i4", "f4"), ("f4", "i1"), ("u8", "i8"), ("?", "f4"), ("f8", "?")]
)
def test_and_and_or_have_numbas_common_type(x: str, y: str) -> None:
    a, b = np.array([0, 1, 7, 0], x), np.array([5, 0, 1, 0], y)
    got = everywhere(either_of_two, 4, a, b, np.zeros((4, 2)))
    assert got[:, 0].tolist() == numbas(lambda p, q: (p and q) / 3, np.zeros(4), a, b).tolist()
    assert got[:, 1].tolist() == numbas(lambda p, q: (p or q) / 3, np.zeros(4), a, b).tolist()


@cuda.jit
def conditions(x, out):
    i = cuda.grid(1)
    if x[i] and i or not (i and x[i] > 0.0):
        out[i] += 1
    while out[i] < 3 and (i or x[i]):
        out[i] += 1
    out[i] += 10 if x[i] or i else 20


def test_and_and_or_in_a_condition_count_as_true_or_false() -> None:
    x = np.array([0, 0, 1, -1], np.float32)
    # Lane 0: 1, no loop, 20. Lane 1: 1, then 3, 10. Lanes 2 and 3: 1, then 3, 10.
    assert everywhere(conditions, 4, x, np.zeros(4, np.int32)).tolist() == [21, 13, 13, 13]


@cuda.jit
def signs(x, out, bits):
    i = cuda.grid(1)
    out[i, 0] = -x[i]
    out[i, 1] = +x[i]
    bits[i, 0] = -x[i]
    bits[i, 1] = ~x[i]


@pytest.mark.parametrize("code", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
def test_minus_and_inversion_are_done_in_the_numbers_own_width(code: str) -> None:
    limits = np.iinfo(code)
    x = np.array([limits.min, limits.max, 0, 1, 62, limits.max - 5], code)
    floats, bits = np.zeros((6, 2)), np.zeros((6, 2), np.int64)
    got = everywhere(signs, 6, x, floats, bits)
    assert got[:, 0].tolist() == numbas(lambda n: -n, np.zeros(6, np.int64), x).tolist()
    assert got[:, 1].tolist() == numbas(lambda n: ~n, np.zeros(6, np.int64), x).tolist()


@cuda.jit
def literal_signs(out):
    out[0] = -np.uint8(194)
    out[1] = ~np.uint8(0)
    out[2] = -np.int8(-128)
    out[3] = -(cuda.threadIdx.x > 5)
    out[4] = -(cuda.threadIdx.x < 5)


def test_minus_of_constants_is_that_of_variables() -> None:
    assert everywhere(literal_signs, 1, np.zeros(5)).tolist() == [62, 255, -128, 0, -1]


@cuda.jit
def edges(x, y, f, out):
    i = cuda.grid(1)
    out[i, 0] = x[i] // y[i]
    out[i, 1] = x[i] % y[i]
    out[i, 2] = x[i] / y[i]
    out[i, 3] = f[i] ** 0.5
    out[i, 4] = f[i] // 0.0
    out[i, 5] = f[i] % y[i]
    out[i, 6] = f[i] ** -1
    out[i, 7] = 1.0 / x[i]
    out[i, 8] = 5 // x[i] + 5 % x[i]
    out[i, 9] = abs(x[i])
    out[i, 10] = (1 << x[i]) + (np.int32(-5) >> x[i])


def test_division_by_zero_powers_of_negative_numbers_and_wide_shifts_have_the_machines_answers() -> None:
    x = np.array([7, -7, 0, -(1 << 31)], np.int32)
    y = np.array([0, 2, 0, -1], np.int32)
    f = np.array([-1, 4, 0, -0.5])
    with np.errstate(all="ignore"):
        got = everywhere(edges, 4, x, y, f, np.zeros((4, 11)))
    nan, inf = np.nan, np.inf
    rows = [
        [0, 0, inf, nan, -inf, nan, -1, 1 / 7, 5, 7, 127],
        [-4, 1, -3.5, 2, inf, 0, 0.25, -1 / 7, -3, 7, -1],
        [0, 0, nan, 0, nan, nan, inf, inf, 0, 0, -4],
        [1 << 31, 0, 1 << 31, nan, -inf, -0.5, -2, -(2.0**-31), -1 - (1 << 31) + 5, -(1 << 31), -1],
    ]
    np.testing.assert_array_equal(got, rows)


@cuda.jit
def indexed(x, out):
    out[x[0]] = 1


def test_a_uint64_is_no_negative_index() -> None:
    assert everywhere(indexed, 1, np.array([2], np.uint64), np.zeros(4)).tolist() == [0, 0, 1, 0]
    assert everywhere(indexed, 1, np.array([-1]), np.zeros(4)).tolist() == [0, 0, 0, 1]
    for engine in ENGINES:
        with gpusim.profile(engine=engine), pytest.raises(OutOfBounds, match="in dimension 0 of 'out'"):
            indexed[1, 1](np.array([2**64 - 1], np.uint64), np.zeros(4))


@cuda.jit
def worked_out(out):
    out[0] = 9223372036854775807 + 1
    out[1] = 2**-1 + 7 // 2
    out[2] = -True + ~5
    out[3] = 1.0 // -0.0


@cuda.jit
def too_large(out):
    out[0] = 4294967297**2


def test_arithmetic_between_numbers_of_the_source_is_worked_out_by_python() -> None:
    # The first is 2^63, a uint64; the sum of two int64 would be -2^63. The last is left to the machine.
    assert everywhere(worked_out, 1, np.zeros(4)).tolist() == [2.0**63, 3.5, -7, -np.inf]
    with pytest.raises(UnsupportedFeature, match="the integer 18446744082299486209 does not fit in 64 bits"):
        too_large[1, 1](np.zeros(1))


@cuda.jit
def floor_divided(x, y, out):
    i = cuda.grid(1)
    out[i, 0] = x[i] // y[i]
    out[i, 1] = x[i] % y[i]


def test_a_zero_of_a_floor_division_has_the_sign_that_numba_gives_it() -> None:
    x, y = np.array([-0.0, -0.0, 0.0, 2.0, -2.0, 1.0]), np.array([2.0, -2.0, -2.0, -4.0, 2.0, -0.0])
    with np.errstate(all="ignore"):
        got = everywhere(floor_divided, 6, x, y, np.zeros((6, 2)))
    # A quotient has the sign of x / y, a remainder that of y.
    rows = [[-0.0, 0.0], [0.0, -0.0], [-0.0, -0.0], [-1, -2.0], [-1, 0.0], [-np.inf, np.nan]]
    np.testing.assert_array_equal(got, rows)
    assert np.signbit(got[:5]).tolist() == np.signbit(rows[:5]).tolist()


@cuda.jit
def of_constants(out):
    zero, less, unknown = np.float32(-0.0), np.float32(-0.5), np.float32(math.nan)
    out[0] = math.floor(zero)
    out[1] = math.ceil(less)
    out[2] = math.trunc(less)
    out[3] = zero // np.float32(2)
    out[4] = zero % np.float32(2)
    out[5] = min(np.float32(0), zero)
    out[6] = max(zero, np.float32(0))
    out[7] = min(unknown, np.float32(3))
    out[8] = max(np.float32(3), unknown)


@cuda.jit
def of_variables(v, out):
    zero, less, unknown = v[0], v[1], v[2]
    out[0] = math.floor(zero)
    out[1] = math.ceil(less)
    out[2] = math.trunc(less)
    out[3] = zero // np.float32(2)
    out[4] = zero % np.float32(2)
    out[5] = min(np.float32(0), zero)
    out[6] = max(zero, np.float32(0))
    out[7] = min(unknown, np.float32(3))
    out[8] = max(np.float32(3), unknown)


def test_functions_of_constants_keep_the_sign_of_a_zero_and_pass_over_a_nan_as_those_of_variables() -> None:
    constants = everywhere(of_constants, 1, np.ones(9, np.float32))
    values = np.array([-0.0, -0.5, np.nan], np.float32)
    variables = everywhere(of_variables, 1, values, np.ones(9, np.float32))
    assert constants.tolist() == variables.tolist() == [0, 0, 0, 0, 0, 0, 0, 3, 3]
    signs = [True, True, True, True, False, True, False, False, False]
    assert np.signbit(constants).tolist() == np.signbit(variables).tolist() == signs


@cuda.jit
def wrapping(x, out):
    i = cuda.grid(1)
    out[i, 0] = x[i] - np.uint32(10)
    out[i, 1] = np.int8(x[i]) + np.uint8(x[i])
    out[i, 2] = (x[i] + 6364136223846793005) * 6364136223846793005
    out[i, 3] = np.uint16(x[i] * 7) * np.int16(x[i] * 9)
    out[i, 4] = float(x[i] - 10)
    out[i, 5] = ~(x[i] > 100)
    out[i, 6] = float(x[i]) + np.float32(0.1)


def test_integers_wrap_at_the_width_of_their_type_when_they_are_computed() -> None:
    got = everywhere(wrapping, 2, np.array([150, 5], np.uint32), np.zeros((2, 7)))
    assert got[0].tolist()[:2] == [140, 44] and got[0, 3] == 1050 * 1350 and got[0, 4:6].tolist() == [140, 0]
    assert got[1].tolist()[:2] == [2.0**64, 10] and got[1, 5] == 1
    product = (5 + 6364136223846793005) * 6364136223846793005
    assert got[1, 2] == float((product + (1 << 63)) % (1 << 64) - (1 << 63))
    assert got[1, 6] == 5 + float(np.float32(0.1))


@cuda.jit
def steps(step, out):
    i = cuda.grid(1)
    for k in range(i, 10, step):
        out[i] += k


def test_a_range_whose_step_is_zero_at_run_time_has_no_iteration_upwards() -> None:
    assert everywhere(steps, 2, 0, np.zeros(2)).tolist() == [0, 0]
    assert everywhere(steps, 2, 4, np.zeros(2)).tolist() == [0 + 4 + 8, 1 + 5 + 9]


@cuda.jit
def backwards(step, out):
    for k in range(10, 0, step):
        out[0] += k


def test_a_range_whose_step_is_zero_at_run_time_never_ends_downwards() -> None:
    for engine in ENGINES:
        with gpusim.profile(engine=engine, max_steps=2), pytest.raises(EndlessLoop, match="no end after 2"):
            backwards[1, 1](0, np.zeros(1))


def helper(n):
    return n // 0


@cuda.jit
def typed_globals(out):
    i = cuda.grid(1)
    out[i, 0] = WIDTH // i
    out[i, 1] = HALF / i
    out[i, 2] = helper(WIDTH)
    out[i, 3] = BYTE + np.uint8(255)
    out[i, 4] = -BYTE
    out[i, 5] = math.pi / i
    out[i, 6] = -math.floor(HALF + i)


WIDTH, HALF, BYTE = 7, 0.5, np.uint8(200)


def test_constants_from_outside_and_modules_compute_as_a_kernels_numbers() -> None:
    got = everywhere(typed_globals, 2, np.zeros((2, 7)))
    assert got[0].tolist() == [0, np.inf, 0, 455, 56, np.inf, 0] and got[1].tolist()[:2] == [7, 0.5]


@cuda.jit
def sometimes_assigned(x, out):
    i = cuda.grid(1)
    if x[i] > 0:
        y = 5.0
    cuda.syncthreads()
    out[i] = y


def test_a_variable_that_a_thread_has_not_assigned_is_named_by_the_oracle() -> None:
    line = sometimes_assigned.py_func.__code__.co_firstlineno + 6
    where = rf"kernel sometimes_assigned, block \(0, 0, 0\), thread \(2, 0, 0\), .*agreement.py:{line}: "
    message = where + "variable 'y' is read before this thread"
    with gpusim.profile(engine="oracle"), pytest.raises(KernelFault, match=message):
        sometimes_assigned[1, 4](np.array([1, 1, -1, 1.0]), np.zeros(4))
    out = np.zeros(2)
    with gpusim.profile(engine="oracle"):
        sometimes_assigned[1, 2](np.ones(2), out)
    assert out.tolist() == [5, 5]


def test_a_variable_that_a_lane_has_not_assigned_holds_the_poison_of_its_register() -> None:
    signs = np.array([1, -1, 1, -1.0])
    got = everywhere(sometimes_assigned, 4, signs, np.zeros(4), engines=("compiled", "ir"))
    np.testing.assert_array_equal(got, [5, np.nan, 5, np.nan])


@cuda.jit
def decided_before_a_barrier(x, out):
    mine = cuda.local.array(1, np.float64)
    row = cuda.blockIdx.x * 64 + cuda.threadIdx.x
    active = row < x.shape[0]
    if active:
        mine[0] = x[row]
    cuda.syncthreads()
    if active:
        out[row] = mine[0]


@pytest.mark.parametrize("rows", [20, 32, 40, 64])
def test_a_condition_from_before_a_barrier_holds_behind_it_though_its_operands_are_gone(rows: int) -> None:
    got = everywhere(decided_before_a_barrier, 64, np.full(rows, 7.0), np.zeros(64))
    assert got.tolist() == [7] * rows + [0] * (64 - rows)


def test_what_python_refuses_in_a_line_is_a_users_mistake_with_its_place() -> None:
    def kernel(x, out):
        i = cuda.grid(1)
        out[i] = x[i] & 1

    with pytest.raises(KernelFault, match=r"thread \(0, 0, 0\), .*agreement.py:\d+: TypeError: unsupported"):
        oracle.run(kernel, 1, 1, (np.ones(1), np.zeros(1)))


@cuda.jit
def identities(x, flag, out):
    i = cuda.grid(1)
    small = x[i] < 2
    out[i, 0] = small is True
    out[i, 1] = small is not True
    out[i, 2] = (not small) is False
    out[i, 3] = flag is True
    out[i, 4] = math.isnan(x[i]) is False
    if (x[i] > 0) is True:
        out[i, 5] = 7
    out[i, 6] = True is small


def test_is_beside_true_and_false_compares_truth() -> None:
    got = everywhere(identities, 2, np.array([1.0, 3.0]), True, np.zeros((2, 7), np.int32))
    assert got.tolist() == [[1, 0, 1, 1, 1, 7, 1], [0, 1, 0, 1, 1, 7, 0]]
