"""Which measured launches stand beside simulated ones, by name, and what is said where no name fits."""

from __future__ import annotations

import pytest

from gpusim.beside import beside
from gpusim.errors import BadOption
from gpusim.measured import Measured
from gpusim.partners import closeness, partners

LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


def named(*kernels: str) -> list[Measured]:
    return [Measured(kernel, None, None, {LOADS: 7}) for kernel in kernels]


def test_the_same_name_is_nearer_than_a_signature_and_that_than_a_longer_name() -> None:
    names = ("vec_add", "void vec_add(float *)", "_Z7vec_addPf", "vec_add2", "vec_ad", "")
    assert [closeness("vec_add", name) for name in names] == [3, 2, 1, 1, 0, 0]


def test_an_exact_name_wins_over_a_longer_one_that_holds_it(sample) -> None:
    longer, own, signature = named("sample2", "sample", "void sample(float *)")
    assert partners([sample], [longer, own, signature]) == [own]
    assert partners([sample], [longer, signature]) == [signature]
    assert partners([sample], [longer]) == [longer]


def test_launches_of_other_kernels_are_passed_over(sample) -> None:
    other, own = named("memset", "void sample(float *)")
    assert partners([sample], [other, own, own]) == [own, own]
    assert partners([sample], [other]) == [other]
    with pytest.raises(BadOption, match="nothing to compare"):
        partners([sample], [])


def test_a_file_of_other_kernels_alone_gets_a_warning_with_both_names(sample) -> None:
    assert beside([sample], named("totally_other")).startswith(
        "WRN   no launch named sample; compared with totally_other.\n")
    many = beside([sample], named(*"abcdefg"))
    assert many.startswith("WRN   no launch named sample; compared with a, b, c, d, e and 2 more.\n")


def test_a_name_that_fits_gets_no_warning(sample) -> None:
    assert "no launch named" not in beside([sample], named("void sample(float *)", "other"))


def test_launches_measured_from_the_simulated_kernel_are_taken_whatever_their_names(sample) -> None:
    one, two = (Measured(name, None, None, {LOADS: 7}, header={"kernel": "k"}) for name in ("a", "sample"))
    assert partners([sample, sample], [one, two], "k") == [one, two]
    assert "WRN   no launch" not in beside([sample, sample], [one, two], kernel="k")
    assert partners([sample, sample], [one, two], "other") == [two]
    assert "WRN   no launch named sample; compared with a." in beside([sample], [one], kernel="other")
