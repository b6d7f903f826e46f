"""The table of recorded registers."""

import pytest

from kernels_sim.registers import RECORDED, SOURCE, recorded


def test_a_recorded_kernel_gives_its_registers_and_their_source():
    assert recorded("softmax_rows") == (30, SOURCE)


def test_fewer_than_16_registers_are_shown_as_16():
    assert RECORDED["histogram", "global"] == 10
    assert recorded("histogram", "global")[0] == 16


def test_more_than_16_registers_are_shown_as_they_are():
    assert recorded("histogram", "shared")[0] == 17


def test_an_unrecorded_variant_gives_none():
    assert recorded("transpose", "diagonal") == (None, "")


@pytest.mark.parametrize("word", ["ptxas", "numba-cuda", "sm_90"])
def test_the_source_names_assembler_compiler_and_target(word):
    assert word in SOURCE
