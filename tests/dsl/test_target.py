"""Kernels named FILE.py:kernel, arguments from text, scripts, and the stand-in for numba.cuda."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dsl import target
from dsl.standin import numba_cuda
from gpusim.errors import BadOption, UnknownName, UnsupportedFeature
from gpusim.memory import VirtualArray


def value(text: str, virtual: bool = False) -> Any:
    """Return what one --arg gives, seed 0."""
    return target.parse_value(text, np.random.default_rng(0), virtual)


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
    with pytest.raises(BadOption, match="No such file"):
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
        ("float16[4]", "unknown dtype 'float16'; did you mean"),
        ("float32[4]=rnd", "unknown contents 'rnd'; did you mean rand"),
        ("foo:3", "unknown dtype 'foo'; there are: bool, float32"),
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
    n, a, x, y = target.bind(KERNEL, ["4", "float32:2", "float32[4]=ones", "float32[4]=zeros"])
    assert (n, a, x.tolist(), y.tolist()) == (4, 2, [1, 1, 1, 1], [0, 0, 0, 0])


def test_arguments_by_name_leave_the_others_in_order() -> None:
    n, a, x, y = target.bind(KERNEL, ["x=float32[1]=ones", "4", "2.0", "float32[2]=zeros"])
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
        target.bind(KERNEL, texts)


def test_dimensions_are_one_to_three_whole_numbers() -> None:
    assert target.dimensions("64", "--grid") == (64,)
    assert target.dimensions("2, 3,4", "--grid") == (2, 3, 4)


@pytest.mark.parametrize("text", ["", "0", "-1", "1,2,3,4", "2x3", "1.5"])
def test_other_dimensions_are_refused(text: str) -> None:
    with pytest.raises(BadOption, match="--block .*one to three whole numbers"):
        target.dimensions(text, "--block")


def test_a_file_names_its_kernels_and_finds_one(tmp_path: Path) -> None:
    file = tmp_path / "k.py"
    file.write_text(
        "from numba import cuda\nimport helper\n@cuda.jit\ndef copy(x, y):\n    y[0] = x[0]\n"
        "@cuda.jit(device=True)\ndef inner(x):\n    return x\ndef plain(x):\n    x[0] = 1\nn = 3\n"
    )
    (tmp_path / "helper.py").write_text("")
    assert target.load_kernel(f"{file}:copy").py_func.__name__ == "copy"
    assert target.load_kernel(f"{file}:plain").py_func.__name__ == "plain"
    with pytest.raises(UnknownName, match="no kernel 'copi'; did you mean copy"):
        target.load_kernel(f"{file}:copi")
    with pytest.raises(UnknownName, match="no kernel 'inner'; it has: copy"):
        target.load_kernel(f"{file}:inner")
    with pytest.raises(UnknownName, match="no kernel 'n'; it has: copy"):
        target.load_kernel(f"{file}:n")
    with pytest.raises(BadOption, match="which kernel"):
        target.load_kernel(str(file))


@pytest.mark.parametrize(
    ("source", "message"),
    [("x = 1\ny = 1 / 0\n", r"k.py:2: ZeroDivisionError"), ("x = 1\ndef (\n", r"k.py:2: SyntaxError")],
)
def test_a_file_that_does_not_load_gives_one_message_with_its_line(
    tmp_path: Path, source: str, message: str
) -> None:
    file = tmp_path / "k.py"
    file.write_text(source)
    with pytest.raises(BadOption, match=message):
        target.load_kernel(f"{file}:k")


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadOption, match="none.py: no such file"):
        target.load_kernel("none.py:k")
    with pytest.raises(BadOption, match="none.py: no such file"):
        target.run_script(Path("none.py"), [])


def test_only_names_with_py_are_files() -> None:
    assert target.is_file_target("a/b.py:k")
    assert target.is_file_target("b.py")
    assert not target.is_file_target("flash_forward")


def test_the_stand_in_is_numba_cuda_by_every_way_of_importing_it_and_is_put_back() -> None:
    import numba

    fake = ModuleType("numba.cuda")
    fake.jit = lambda f: f  # type: ignore[attr-defined]
    before = {n: m for n, m in sys.modules.items() if n.startswith("numba.cuda")}, vars(numba).get("cuda")
    with numba_cuda(fake):
        import numba.cuda as one
        from numba import cuda as two
        from numba.cuda import jit

        assert one is two is fake
        assert jit is fake.jit
        assert numba.float32 is not None
    assert (
        {n: m for n, m in sys.modules.items() if n.startswith("numba.cuda")},
        vars(numba).get("cuda"),
    ) == before


def test_the_stand_in_is_put_back_after_an_error() -> None:
    fake = ModuleType("numba.cuda")
    with pytest.raises(ZeroDivisionError), numba_cuda(fake):
        raise ZeroDivisionError
    assert sys.modules.get("numba.cuda") is not fake


def test_a_submodule_of_numba_cuda_is_refused_by_name() -> None:
    with (
        pytest.raises(UnsupportedFeature, match=r"imports numba\.cuda\.random"),
        numba_cuda(ModuleType("numba.cuda")),
    ):
        import numba.cuda.random  # noqa: F401


def test_another_missing_module_is_not_blamed_on_numba_cuda() -> None:
    with pytest.raises(ModuleNotFoundError), numba_cuda(ModuleType("numba.cuda")):
        import no_such_module  # noqa: F401


def script(tmp_path: Path, source: str) -> Path:
    """Write a script and return its path."""
    file = tmp_path / "s.py"
    file.write_text(source)
    return file


def test_a_script_sees_its_arguments_and_is_main(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = script(tmp_path, "import sys\nprint(__name__, sys.argv[1:], sys.path[0])\n")
    argv, path = list(sys.argv), list(sys.path)
    assert target.run_script(file, ["--n", "3"]) == 0
    assert capsys.readouterr().out == f"__main__ ['--n', '3'] {tmp_path}\n"
    assert (sys.argv, sys.path) == (argv, path)


@pytest.mark.parametrize(("leave", "status"), [("3", 3), ("", 0), ("None", 0), ("'bad'", 1)])
def test_the_exit_status_of_a_script_is_kept(tmp_path: Path, leave: str, status: int) -> None:
    assert target.run_script(script(tmp_path, f"import sys\nsys.exit({leave})\n"), []) == status


def test_an_exception_of_a_script_shows_its_own_frames_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert target.run_script(script(tmp_path, "def f():\n    return 1 / 0\nf()\n"), []) == 1
    printed = capsys.readouterr().err
    assert printed.endswith("ZeroDivisionError: division by zero\n")
    assert "line 3" in printed
    assert "target.py" not in printed


def test_a_mistake_with_a_kernel_in_a_script_goes_up(tmp_path: Path) -> None:
    source = "from gpusim.errors import LaunchRefused\nraise LaunchRefused('too many threads')\n"
    from gpusim.errors import LaunchRefused

    with pytest.raises(LaunchRefused, match="too many threads"):
        target.run_script(script(tmp_path, source), [])
