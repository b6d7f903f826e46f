"""Arguments from the text of the command line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dsl.programs import arguments
from gpusim.errors import BadOption, UnknownName
from gpusim.memory import VirtualArray


def value(text: str, virtual: bool = False) -> Any:
    """Return what one --arg gives, seed 0."""
    return arguments.parse_value(text, np.random.default_rng(0), virtual)


def saxpy(n: int, a: float, x: Any, y: Any) -> None:
    """Stand for a kernel with four parameters."""


KERNEL = SimpleNamespace(py_func=saxpy)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", 3), ("-7", -7), ("0x10", 16), ("0.5", 0.5), ("1e-3", 0.001), ("true", True), ("False", False)],
)
def test_a_plain_number_is_an_int_a_float_or_a_bool(text: str, expected: float) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


def test_a_number_with_a_type_is_a_numpy_scalar() -> None:
    assert value("float32:0.1") == np.float32(0.1)
    assert value("float32:0.1").dtype == np.float32
    assert value("int32:3").dtype == np.int32


@pytest.mark.parametrize("text", ["int32:0.5", "int8:300", "uint32:-1"])
def test_a_number_that_its_type_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="holds whole numbers from"):
        value(text)


def test_float_arrays_are_normal_and_others_zero_by_default() -> None:
    drawn = value("float32[1000]")
    assert drawn.dtype == np.float32
    assert abs(drawn.mean()) < 0.2
    assert 0.8 < drawn.std() < 1.2
    assert value("int32[2,3]").tolist() == [[0, 0, 0], [0, 0, 0]]


def test_contents_are_named_after_an_equals_sign() -> None:
    assert value("float64[3]=ones").tolist() == [1, 1, 1]
    assert value("int32[2,2]=arange").tolist() == [[0, 1], [2, 3]]
    assert value("float32[2]=2.5").tolist() == [2.5, 2.5]
    assert np.isnan(value("float32[2]=nan")).all()
    assert set(value("int64[100]=ints(5,8)").tolist()) == {5, 6, 7}
    assert 0 <= value("float32[100]=rand").min() < value("float32[100]=rand").max() < 1


def test_the_same_seed_draws_the_same_numbers() -> None:
    assert value("float32[8]").tolist() == value("float32[8]").tolist()


def test_an_array_from_a_file_is_that_array(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.int32).reshape(2, 3))
    assert value(f"@{tmp_path}/x.npy").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_file_that_is_not_there_or_holds_no_numbers_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.zeros(2, np.complex64))
    with pytest.raises(BadOption, match=r"none\.npy: no such file"):
        value(f"@{tmp_path}/none.npy")
    with pytest.raises(BadOption, match="holds complex64"):
        value(f"@{tmp_path}/c.npy")


def test_a_virtual_array_has_shape_and_type_and_no_storage() -> None:
    assert value("float32[100000,100000]", virtual=True) == VirtualArray(
        (10**5, 10**5), np.dtype("float32")
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("float20[4]", "unknown dtype 'float20'; did you mean"),
        ("float32[4]=rnd", "unknown contents 'rnd'; did you mean rand"),
        ("foo:3", "unknown dtype 'foo'; there are: bfloat16, bool, float16"),
    ],
)
def test_an_unknown_name_is_answered_with_near_or_all_names(text: str, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        value(text)


@pytest.mark.parametrize("text", ["float32[]", "float32[0]", "float32[4,-1]", "float32[a]"])
def test_extents_below_one_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match="whole numbers from 1 on"):
        value(text)


def test_an_array_larger_than_the_device_is_refused() -> None:
    with pytest.raises(BadOption, match="larger than the device's memory"):
        value("float32[100000000,100000000]", virtual=True)


@pytest.mark.parametrize("text", ["", "abc", "1..2", "int32[3]=ints(4,4)", "int32[3]=nan"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="--arg"):
        value(text)


def test_arguments_are_taken_in_order() -> None:
    n, a, x, y = arguments.bind(KERNEL, ["4", "float32:2", "float32[4]=ones", "float32[4]=zeros"])
    assert (n, a, x.tolist(), y.tolist()) == (4, 2, [1, 1, 1, 1], [0, 0, 0, 0])


def test_arguments_by_name_leave_the_others_in_order() -> None:
    n, a, x, y = arguments.bind(KERNEL, ["x=float32[1]=ones", "4", "2.0", "float32[2]=zeros"])
    assert (n, a, x.tolist(), y.tolist()) == (4, 2.0, [1], [0, 0])


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["4", "2.0"], BadOption, r"saxpy\(n, a, x, y\): --arg is missing for x, y"),
        (["1", "2", "3", "4", "5"], BadOption, "takes 4 arguments, 5 are given"),
        (["1", "n=2", "3", "4"], BadOption, "n is given twice"),
        (["1", "2", "3", "z=4"], UnknownName, "has no parameter 'z'; it has: a, n, x, y"),
    ],
)
def test_arguments_that_do_not_fit_the_parameters_are_refused(
    texts: list[str], error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        arguments.bind(KERNEL, texts)


def test_dimensions_are_one_to_three_whole_numbers() -> None:
    assert arguments.dimensions("64", "--grid") == (64,)
    assert arguments.dimensions("2, 3,4", "--grid") == (2, 3, 4)


@pytest.mark.parametrize("text", ["", "0", "-1", "1,2,3,4", "2x3", "1.5"])
def test_other_dimensions_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match="--block .*one to three whole numbers"):
        arguments.dimensions(text, "--block")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("int8[3]=1000", "whole numbers from -128 to 127"),
        ("uint8[3]=-1", "whole numbers from 0 to 255"),
        ("int32[3]=0.5", "whole numbers from -2,147,483,648 to 2,147,483,647"),
        ("int64[3]=1e3", "whole numbers from"),
        ("bool[3]=2", "false and true"),
        ("bool:2", "false and true"),
        ("int8[129]=arange", "whole numbers from -128 to 127"),
        ("bool[3]=arange", "false and true"),
        ("uint8[3]=ints(-1,9)", "whole numbers from 0 to 255"),
        ("int8[3]=ints(0,129)", "whole numbers from -128 to 127"),
        ("float32[3]=ints(-9223372036854775809,0)", "whole numbers from"),
        ("int32[3]=inf", "whole numbers from"),
        ("int32[3]=randn", "randn draws fractions"),
        ("bool[3]=rand", "rand draws fractions"),
        ("float32[3]=1e400", "numbers up to 1.798e[+]308 in size; write inf for infinity"),
        ("float32[3]=1e39", "float32 holds numbers up to 3.403e[+]38 in size"),
        ("float32:1e39", "float32 holds numbers up to 3.403e[+]38 in size"),
        ("1e400", "write inf for infinity"),
        ("float16[3]=65505", "float16 holds numbers up to 6.55e[+]04 in size"),
        ("float16[65506]=arange", "float16 holds numbers up to 6.55e[+]04 in size"),
        ("bfloat16:1e39", "bfloat16 holds numbers up to 3.39e[+]38 in size"),
        ("float8_e4m3fn[3]=465", "float8_e4m3fn holds numbers up to 448 in size"),
        ("float8_e4m3fn:inf", "float8_e4m3fn holds numbers up to 448 in size"),
        ("float8_e5m2[3]=ints(0,60000)", "float8_e5m2 holds numbers up to 5.734e[+]04 in size"),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_refused(text: str, holds: str) -> None:
    with pytest.raises(BadOption, match=holds):
        value(text)
    with pytest.raises(BadOption, match=holds):
        value(text, virtual=True)


def test_a_value_at_the_edge_of_its_type_is_kept() -> None:
    assert value("int8[2]=-128").tolist() == [-128, -128]
    assert value("int8[128]=arange").tolist() == list(range(128))
    assert value("uint64[1]=18446744073709551615").tolist() == [2**64 - 1]
    assert value("int64[1]=9007199254740993").tolist() == [2**53 + 1]
    assert set(value("uint64[99]=ints(18446744073709551614,18446744073709551616)").tolist()) == {
        2**64 - 2, 2**64 - 1}
    assert value("bool[2]=1").tolist() == [True, True]
    assert value("float32[1]=-inf").tolist() == [-np.inf]
    assert value("float32[1]=3.4e38").tolist() == [float(np.float32(3.4e38))]
    assert value("float16[2]=65504").tolist() == [65504.0] * 2
    assert value("float8_e4m3fn:448") == 448 and value("float8_e5m2[1]=-inf").tolist() == [-np.inf]


def test_a_number_of_a_narrow_float_type_is_rounded_once() -> None:
    just_above_a_tie = "1.00390625000001"
    assert value(f"bfloat16:{just_above_a_tie}") == 1.0078125
    assert value(f"bfloat16[1]={just_above_a_tie}").tolist() == [1.0078125]
    assert value("bfloat16:1.00390625") == 1.0
    assert value("float16[4]").dtype == np.float16 and value("float16[4]").all()


def test_a_file_that_no_kernel_can_take_is_refused_with_advice(tmp_path: Path) -> None:
    np.save(tmp_path / "big.npy", np.arange(3, dtype=">f4"))
    np.save(tmp_path / "one.npy", np.float32(2.5))
    (tmp_path / "text.npy").write_text("1 2 3")
    with pytest.raises(BadOption, match=r"save a\.astype\(a\.dtype\.newbyteorder\('='\)\)"):
        value(f"@{tmp_path}/big.npy")
    with pytest.raises(BadOption, match=r"0 dimensions\); write float32:2\.5"):
        value(f"@{tmp_path}/one.npy")
    with pytest.raises(BadOption, match=r"not a \.npy file of numbers"):
        value(f"@{tmp_path}/text.npy")


@pytest.mark.parametrize("text", ["1" * 5000, "int32:" + "1" * 5000, f"int32[{'1' * 5000}]",
                                  f"int32[3]={'1' * 5000}", f"int32[3]=ints(0,{'1' * 5000})"])
def test_a_number_with_more_digits_than_python_reads_is_refused(text: str) -> None:
    with pytest.raises((BadOption, UnknownName), match="--arg"):
        value(text)


def test_a_kernel_with_star_arguments_is_refused() -> None:
    def starred(*x: Any) -> None:
        pass

    with pytest.raises(BadOption, match=r"kernel starred has the parameter \*x.*not in the language"):
        arguments.bind(SimpleNamespace(py_func=starred), ["1"])


def test_a_tuple_holds_arguments_in_brackets() -> None:
    first, array, inner = value("(3, int32[2,2]=ints(1,2), (float32:0.5,))")
    assert (first, array.tolist(), inner) == (3, [[1, 1], [1, 1]], (0.5,))
    assert value("()") == ()


@pytest.mark.parametrize("text", ["(3, 4", "(3, 4)]", "(3, (4)", "(1)(2)"])
def test_the_brackets_of_a_tuple_match(text: str) -> None:
    with pytest.raises(BadOption, match="brackets of a tuple do not match"):
        value(text)


def test_no_item_of_a_tuple_is_empty() -> None:
    with pytest.raises(BadOption, match="an item of the tuple is empty"):
        value("(3, , 4)")


def test_a_file_may_hold_records(tmp_path: Path) -> None:
    records = np.array([(1, 2.5)], [("k", np.int32), ("x", np.float32)])
    np.save(tmp_path / "r.npy", records)
    assert value(f"@{tmp_path / 'r.npy'}").dtype == records.dtype
