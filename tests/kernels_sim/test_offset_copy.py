"""The closed form, the reference and the options of offset_copy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import BadOption
from kernels_sim.offset_copy import Options, build, closed_form
from kernels_sim.problem import Data


@pytest.mark.parametrize(("offset", "sectors"), [(0, 4), (1, 5), (7, 5), (8, 4), (9, 5), (64, 4)])
def test_a_warp_takes_a_fifth_sector_unless_the_offset_is_a_multiple_of_8(offset, sectors):
    assert closed_form(32, offset)["global_load.sectors"] == sectors


def test_the_offset_does_not_change_stores():
    form = closed_form(64, 1)
    assert (form["global_store.requests"], form["global_store.sectors"]) == (2, 8)


@given(st.integers(1, 200), st.integers(0, 40))
def test_requests_take_the_sectors_that_their_lanes_lie_in(n, offset):
    expected = sum(len({(i + offset) // 8 for i in range(w, min(w + 32, n))}) for w in range(0, n, 32))
    assert closed_form(n, offset)["global_load.sectors"] == expected


def test_the_reference_starts_at_the_offset():
    problem = build(Options(n=3, offset=2), Data())
    source = problem.steps[0].args[0]
    assert problem.reference()["copy"].tolist() == source[2:5].tolist()


@pytest.mark.parametrize(("n", "offset", "option"), [(0, 1, "n"), (8, -1, "offset")])
def test_empty_copies_and_negative_offsets_are_refused(n, offset, option):
    with pytest.raises(BadOption, match=f"offset_copy: --{option} is "):
        build(Options(n=n, offset=offset), Data())
