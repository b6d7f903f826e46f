"""Kernels named FILE.py:kernel, scripts, and the stand-in for numba.cuda."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from dsl.programs import target
from dsl.programs.standin import numba_cuda
from gpusim.errors import BadOption, UnknownName, UnsupportedFeature


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
    with pytest.raises(UnknownName, match="inner is a device function, which kernels call; it has: copy"):
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


def test_a_script_imports_types_from_numba_cuda_by_every_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = """
import numpy as np
from numba import cuda
from numba.cuda import float32, int32, types
from numba.cuda.types import float64
@cuda.jit
def k(x):
    a, b = cuda.shared.array(32, types.float32), cuda.local.array(1, cuda.float32)
    c, i = cuda.local.array(1, cuda.types.int32), cuda.threadIdx.x
    a[i], b[0], c[0] = float32(2), x[i], int32(3)
    x[i] = a[i] + b[0] + c[0] + float64(1)
x = np.full(32, 4, np.float32)
k[1, 32](x)
print(x[31])
"""
    assert target.run_script(script(tmp_path, source), []) == 0
    assert capsys.readouterr().out == "10.0\n"


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


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"def f(:\n", r"s\.py:1: SyntaxError: invalid syntax$"),
        (b"x = 1\ny = '\xe9'\n", r"s\.py:2: not UTF-8: .*0xe9.*save the file as UTF-8"),
        (b"# coding: klingon\n", r"s\.py:1: SyntaxError: .*klingon"),
    ],
)
def test_a_file_that_is_no_python_gives_one_message_with_its_line_to_a_script_and_a_kernel(
    tmp_path: Path, source: bytes, message: str
) -> None:
    file = tmp_path / "s.py"
    file.write_bytes(source)
    with pytest.raises(BadOption, match=message):
        target.run_script(file, [])
    with pytest.raises(BadOption, match=message):
        target.load_kernel(f"{file}:k")


def test_a_script_in_the_encoding_that_it_names_runs(tmp_path: Path) -> None:
    file = tmp_path / "s.py"
    file.write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe9'\nassert len(x) == 1\n")
    assert target.run_script(file, []) == 0


def test_a_directory_is_refused_as_one(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="is a directory; name a Python file in it"):
        target.run_script(tmp_path, [])


def test_a_file_that_leaves_while_it_is_imported_is_refused(tmp_path: Path) -> None:
    file = script(tmp_path, "import sys\nsys.exit(4)\n")
    with pytest.raises(BadOption, match=r"s\.py:2: sys\.exit\(4\) while the file is imported"):
        target.load_kernel(f"{file}:k")


def test_what_a_file_prints_while_it_is_imported_goes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target.load_kernel(f"{script(tmp_path, 'print(7)' + chr(10) + 'def k(x): x[0] = 1' + chr(10))}:k")
    assert capsys.readouterr() == ("", "7\n")


def test_functions_without_cuda_jit_are_listed_as_such(tmp_path: Path) -> None:
    file = script(tmp_path, "from math import sqrt\nfrom textwrap import dedent\ndef plain(x): x[0] = 1\n")
    with pytest.raises(UnknownName, match="no kernel 'q'; it has: none; functions without cuda.jit: plain$"):
        target.load_kernel(f"{file}:q")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from numba import cuda\n\nr = cuda.nosuch(3)\n", r"s\.py:3: cuda\.nosuch is not in"),
        ("from numba import cuda\n\n@cuda.reduce\ndef f(a, b): return a + b\n",
         r"s\.py:3: cuda\.reduce is not in"),
        ("\nfrom numba.cuda import nosuch\n", r"s\.py:2: cuda\.nosuch is not in"),
        ("import numba.cuda.random\n", r"s\.py:1: .*numba\.cuda\.random"),
    ],
)
def test_what_the_simulated_numba_cuda_lacks_is_named_with_the_line_of_the_script(
    tmp_path: Path, source: str, name: str
) -> None:
    file = script(tmp_path, source)
    with pytest.raises(UnsupportedFeature, match=name + ".*the simulated numba.cuda"):
        target.run_script(file, [])
    with pytest.raises(UnsupportedFeature, match=name + ".*the simulated numba.cuda"):
        target.load_kernel(f"{file}:k")


def test_a_script_may_ask_whether_numba_cuda_has_a_name(tmp_path: Path) -> None:
    source = "from numba import cuda\nassert not hasattr(cuda, 'nosuch')\nassert hasattr(cuda, 'jit')\n"
    assert target.run_script(script(tmp_path, source), []) == 0


def test_a_mistake_with_a_kernel_names_the_line_of_the_script(tmp_path: Path) -> None:
    file = script(tmp_path, "from numba import cuda\n@cuda.jit\ndef k(x): x[0] = 1\n\nk[0, 1]([3.0])\n")
    with pytest.raises(UnsupportedFeature, match=r"s\.py:5: .*a list"):
        target.run_script(file, [])


def test_a_mistake_in_a_kernel_names_the_line_of_the_kernel_alone(tmp_path: Path) -> None:
    file = script(tmp_path, "from numba import cuda\n@cuda.jit\ndef k(x): x[0] = 1\n\nk[1, 1](3)\n")
    with pytest.raises(UnsupportedFeature, match=r"^\S+s\.py:3: in k: "):
        target.run_script(file, [])
