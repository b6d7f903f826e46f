"""Kernel arguments made of others: tuples, named tuples, members of enums."""

from __future__ import annotations

from collections import namedtuple
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from dsl.types import ArgType, MemberType, TupleType, arg_type, leaves
from gpusim.arch import H200
from gpusim.errors import LaunchRefused, OutOfBounds, UnsupportedFeature
from tests.dsl.three_engines import agreed

Point = namedtuple("Point", ("x", "y", "r"))


class Color(Enum):
    RED = 1
    GREEN = 2


class Planet(Enum):
    EARTH = (5.976e24, 6.37814e6)


class Shape(IntEnum):
    CIRCLE = 2


class Other(IntEnum):
    TWO = 2


@cuda.jit
def nested(out, x):
    out[0] = len(x) + len(x[0])
    out[1] = x[1][0] / 4
    out[2] = x[1][1][0] + x[2]
    out[3] = x[-1]


def test_the_items_of_nested_tuples_are_numbers_of_their_own_types():
    _, (out,) = agreed(nested, 1, 1, lambda: (np.zeros(4), ((), (6, (2.5,)), 7, np.float32(0.25))))
    assert out.tolist() == [4, 1.5, 9.5, 0.25]


@cuda.jit
def add_arrays(arrays):
    i = cuda.grid(1)
    if i < len(arrays[0]):
        arrays[0][i] = arrays[1][i] + arrays[2][i]


def test_arrays_in_a_tuple_are_changed_in_place_and_counted():
    run, arrays = agreed(add_arrays, 1, 64, lambda: ((np.zeros(64), np.ones(64), np.full(64, 3.0)),))
    assert arrays[0].tolist() == [4.0] * 64
    assert (run.counters.global_load.requests, run.counters.global_load.sectors) == (4, 32)


@cuda.jit
def named(out, p, q):
    t = cuda.threadIdx.x
    best = p
    if t > 0:
        best = q
    for k in range(2):
        out[t, k] = best.x[k] * best.r + best[1]


def test_the_items_of_a_named_tuple_have_names_also_in_a_variable():
    def args():
        points = Point(np.array([1.0, 2.0]), 3, 0.5), Point(np.array([1.0, 2.0]), 5, 2.0)
        return (np.zeros((2, 2)), points[0]._replace(x=(1.0, 2.0)), points[1]._replace(x=(1.0, 2.0)))

    _, arrays = agreed(named_of_tuples, 1, 2, args)
    assert arrays[0].tolist() == [[3.5, 4.0], [7.0, 9.0]]


@cuda.jit
def named_of_tuples(out, p, q):
    t = cuda.threadIdx.x
    best = p
    if t > 0:
        best = q
    out[t, 0] = best.x[0] * best.r + best.y
    out[t, 1] = best.x[1] * best.r + best[1]


def test_two_arrays_cannot_share_one_variable():
    args = np.zeros((2, 2)), Point(np.ones(2), 3, 0.5), Point(np.ones(2), 5, 2.0)
    with pytest.raises(UnsupportedFeature, match="use two names"):
        launch(named, 1, 2, args, Device(H200), engine="compiled")


@cuda.jit
def compare(out, a, b):
    out[0] = a == b
    out[1] = a != b
    out[2] = a is b
    out[3] = a is not b


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        (Color.RED, Color.RED, [1, 0, 1, 0]),
        (Color.RED, Color.GREEN, [0, 1, 0, 1]),
        (Planet.EARTH, Planet.EARTH, [1, 0, 1, 0]),
        (Shape.CIRCLE, Other.TWO, [1, 0, 0, 1]),
    ],
)
def test_members_of_enums_compare_as_in_python(a: Any, b: Any, want: list[int]):
    _, (out,) = agreed(compare, 1, 1, lambda: (np.zeros(4), a, b))
    assert out.tolist() == want


@cuda.jit
def values(out, planet, shape):
    mass, radius = planet.value
    out[0] = mass / radius
    out[1] = shape + 1
    out[2] = shape.value


def test_a_member_has_its_value_and_one_of_an_int_enum_is_a_number():
    _, (out,) = agreed(values, 1, 1, lambda: (np.zeros(3), Planet.EARTH, Shape.CIRCLE))
    assert out.tolist() == [5.976e24 / 6.37814e6, 3, 2]


def test_the_type_of_a_tuple_names_its_items_and_equal_members_of_two_enums_differ():
    found = arg_type(Point(np.zeros(3, np.float32), 1, (np.int8(2),)))
    items = (ArgType("f32", 1), ArgType("s64"), TupleType((ArgType("s8"),)))
    assert found == TupleType(items, ("x", "y", "r"))
    assert arg_type(Shape.CIRCLE) == MemberType(Shape, "CIRCLE") != arg_type(Other.TWO)
    assert [n for n, _ in leaves(Point(1, (2, 3), Color.RED), "p")] == ["p.x", "p.y[0]", "p.y[1]"]


@cuda.jit
def outside(p):
    p.x[cuda.threadIdx.x] = 1


@pytest.mark.parametrize("engine", ["compiled", "ir", "oracle"])
def test_an_error_names_the_item_as_the_kernel_writes_it(engine: str):
    with pytest.raises(OutOfBounds, match=r"index 2 in dimension 0 of 'p\.x'"):
        launch(outside, 1, 3, (Point(np.zeros(2), 0, 0),), Device(H200), engine=engine)


def test_an_array_in_a_tuple_is_checked_as_one_outside():
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    with pytest.raises(LaunchRefused, match=r"writes to arrays\[0\], which is a read-only array"):
        add_arrays[1, 4]((frozen, np.ones(4), np.ones(4)))
    with pytest.raises(UnsupportedFeature, match="argument arrays: a kernel argument is a str"):
        add_arrays[1, 4](("text", np.ones(4), np.ones(4)))


@cuda.jit(device=True)
def alternating(t):
    return Color.RED if t % 2 else Color.GREEN


@cuda.jit
def chosen_at_run_time(out, other):
    t = cuda.threadIdx.x
    color = alternating(t)
    if t == 3:
        color = other
    out[t] = (color == Color.RED) + 2 * (color is Color.GREEN) + 4 * (color != other)


def test_which_member_it_is_may_depend_on_the_thread():
    _, (out,) = agreed(chosen_at_run_time, 1, 4, lambda: (np.zeros(4), Color.GREEN))
    assert out.tolist() == [2, 5, 2, 2]


@cuda.jit
def value_at_run_time(out):
    out[0] = alternating(cuda.threadIdx.x).value


def test_the_value_of_a_member_chosen_at_run_time_is_refused():
    with pytest.raises(UnsupportedFeature, match="attribute of a member of Color that is chosen while"):
        launch(value_at_run_time, 1, 1, (np.zeros(1),), Device(H200), engine="compiled")


@cuda.jit
def again(out, pair):
    for k, x in enumerate(tuple(pair)):
        out[k] = x + len(tuple(()))  # noqa: C409 - the call is what is tested


def test_tuple_of_a_tuple_is_a_tuple():
    _, (out,) = agreed(again, 1, 1, lambda: (np.zeros(2), (4, 0.5)))
    assert out.tolist() == [4, 0.5]
