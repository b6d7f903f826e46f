"""The closed form, the reference and the options of strided_copy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import BadOption
from kernels_sim.problem import Data
from kernels_sim.strided_copy import Options, build, closed_form, strided_sectors


@pytest.mark.parametrize(
    ("stride", "sectors"), [(1, 4), (2, 8), (3, 12), (4, 16), (7, 28), (8, 32), (9, 32), (32, 32), (1000, 32)]
)
def test_a_warp_takes_4_sectors_a_stride_up_to_one_a_lane(stride, sectors):
    assert strided_sectors(32, stride) == sectors


def test_no_lane_takes_no_sector():
    assert strided_sectors(0, 5) == 0


@given(st.integers(1, 200), st.integers(1, 40))
def test_requests_take_the_sectors_that_their_lanes_lie_in(n, stride):
    expected = sum(len({i * stride // 8 for i in range(w, min(w + 32, n))}) for w in range(0, n, 32))
    assert closed_form(n, stride)["global_load.sectors"] == expected


def test_the_stride_does_not_change_bytes_requests_and_stores():
    one, many = closed_form(1000, 1), closed_form(1000, 32)
    same = [path for path in one if path != "global_load.sectors"]
    assert [one[path] for path in same] == [many[path] for path in same]


def test_the_reference_is_every_third_element():
    problem = build(Options(n=4, stride=3), Data())
    source = problem.steps[0].args[0]
    assert source.shape == (12,)
    assert problem.reference()["copy"].tolist() == source[[0, 3, 6, 9]].tolist()


@pytest.mark.parametrize(("n", "stride", "option"), [(0, 1, "n"), (8, 0, "stride"), (8, -2, "stride")])
def test_empty_copies_and_strides_below_1_are_refused(n, stride, option):
    with pytest.raises(BadOption, match=f"strided_copy: --{option} is "):
        build(Options(n=n, stride=stride), Data())
