"""Members of Enum and IntEnum in kernels, and `is`."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pytest

from dsl.types import ArgType
from gpusim.errors import UnsupportedFeature
from tests.dsl.frontend_support import agree, compiled, ops


class Color(Enum):
    RED = 1
    GREEN = 2.5


class Code(IntEnum):
    NOT_FOUND = 404
    ERROR = 500


CHOSEN = Color.GREEN
THREE = 3


def members(o, x):
    o[0] = Color.RED == Color.GREEN
    o[1] = Color["RED"] == Color.RED
    o[2] = CHOSEN is Color.GREEN
    o[3] = CHOSEN is not Color.GREEN
    o[4] = CHOSEN != Color.RED
    o[5] = CHOSEN.value
    o[6] = Code.NOT_FOUND - x
    o[7] = np.int16(Code.ERROR) + Code["NOT_FOUND"]
    o[8] = Code.ERROR.value
    o[9] = CHOSEN is None
    if CHOSEN == Color.RED:
        o[10] = 1


def test_members_are_constants_that_compare_and_compute() -> None:
    got = agree(members, 1, 1, np.zeros(11), np.int32(4))[0].tolist()
    assert got == [0, 1, 1, 0, 1, 2.5, 400, 904, 500, 0, 0]


def test_a_branch_on_members_is_decided_when_the_kernel_is_compiled() -> None:
    assert len(compiled(members, ArgType("f64", 1), ArgType("s32")).blocks) == 1


def test_a_member_of_an_int_enum_is_an_int64() -> None:
    assert ops(compiled(members, ArgType("f64", 1), ArgType("s32")))["sub.s64"] == 1


def booleans(o, yes, no):
    if yes is True:
        o[0] = 1
    if no is not True:
        o[1] = 1
    if no is False:
        o[2] = 1
    if yes is None:
        o[3] = 1


def test_is_of_a_boolean_and_a_constant_compares_them() -> None:
    assert agree(booleans, 1, 1, np.zeros(4), True, False)[0].tolist() == [1, 1, 1, 0]
    assert agree(booleans, 1, 1, np.zeros(4), False, True)[0].tolist() == [0, 0, 0, 0]


def is_of_numbers(o, x):
    o[0] = x is THREE


def unknown_member(o, x):
    o[0] = Color["BLUE"] == Color.RED


def unordered(o, x):
    o[0] = Color.RED < Color.GREEN


@pytest.mark.parametrize(
    "kernel, text",
    [
        (is_of_numbers, "`is` between numbers; use =="),
        (unknown_member, "Color has no member 'BLUE'; correct its spelling"),
        (unordered, "a member of Color stands where a number is needed"),
    ],
)
def test_what_members_and_is_do_not_mean_is_refused(kernel: Any, text: str) -> None:
    with pytest.raises(UnsupportedFeature, match=text):
        compiled(kernel, ArgType("f64", 1), ArgType("s64"))
