"""Put this project's `cuda` under the names of numba.cuda in its simulator mode, for numba-cuda's own tests.

What it does: numba.cuda is imported with NUMBA_ENABLE_CUDASIM=1, so that its package, its types and its test
helpers are there; then every name that `dsl.cuda` has replaces the one of numba's simulator: `cuda.jit`,
arrays, streams, device names. The test modules are imported under a package of their own (UPSTREAM), as the
front end takes functions of numba's package for library functions. Text that a test hands to `exec`, or to a
Python process of its own, gets a file name and a place in `linecache`: the front end reads source text. Tests
that numba skips in its simulator run for the modules in UNSKIPPED.
What it leaves out: names that `dsl.cuda` lacks stay numba's; a kernel that uses one is refused. There is no
PTX: where a test of UNSKIPPED compiles a kernel to PTX, it is compiled as it is here.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import linecache
import os
import sys
import unittest
from contextlib import redirect_stdout
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

HOME = "numba.cuda.tests"
UPSTREAM = "upstream"
PACKAGES = ("cudapy", "doc_examples")
UNSKIPPED = frozenset({
    "test_warp_ops", "test_array", "test_enums", "test_intrinsics", "test_math", "test_ssa", "test_sync",
    "test_vecadd", "test_reduction", "test_globals", "test_cpu_gpu_compat", "test_matmul",
})  # fmt: skip
"""Modules whose tests run although numba's simulator skips them."""
KEPT = frozenset({"is_bfloat16_supported"})
"""Names that stay numba's: without bfloat16 its tests skip bindings that its simulator mode never imports."""
_numbers = count(1)


def simulator_mode() -> None:
    """Choose numba's simulator mode; call before anything imports numba.cuda."""
    if "numba.cuda" in sys.modules:
        raise RuntimeError("numba.cuda is imported already; its mode cannot change")
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"


def open_tests() -> None:
    """Make the folder of numba-cuda's tests the package UPSTREAM, the modules that tests share among them."""
    home = importlib.import_module(HOME)
    package = ModuleType(UPSTREAM)
    package.__path__ = list(home.__path__)
    sys.modules[UPSTREAM] = package
    shared = sorted(Path(home.__path__[0], "cudapy").glob("*_usecases.py"))
    for name in (path.stem for path in shared if "cache" not in path.stem):
        sys.modules[f"{HOME}.cudapy.{name}"] = importlib.import_module(f"{UPSTREAM}.cudapy.{name}")


def import_tests(name: str) -> ModuleType:
    """Import a module of tests, in which `exec` keeps the text that it runs."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.exec = run_text  # type: ignore[attr-defined]
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if name.endswith(".test_print") and _installed():
        module.TestPrint.run_code = _output_of
    return module


def _installed() -> bool:
    from numba import cuda as theirs

    from dsl import cuda as ours

    return theirs.jit is ours.jit


def run_text(text: str, names: dict[str, Any] | None = None, local: dict[str, Any] | None = None) -> None:
    """Be `exec` with a place in linecache for the text."""
    caller = sys._getframe(1)
    names = caller.f_globals if names is None else names
    file = f"<text {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names, names if local is None else local)


def _output_of(test: unittest.TestCase, text: str) -> tuple[str, str]:
    """Run a program in this process, not in one of its own, which numba's simulator would serve."""
    written = io.StringIO()
    with redirect_stdout(written):
        run_text(text, {"__name__": "__main__"})
    return written.getvalue(), ""


def _compiled(function: Any, signature: Any, cc: tuple[int, int]) -> tuple[str, Any]:
    """Compile for a signature with this project's compiler: LLVM's text, no PTX, the same for each `cc`."""
    from dsl import cuda as ours

    return ours.jit(function).compile(signature).text, None


def install() -> None:
    """Replace numba's simulator by this project's engine, and numba's skips in the simulator by running."""
    from numba import cuda as theirs
    from numba.cuda import testing

    from dsl import cuda as ours

    for name in set(ours.__all__) - KEPT:
        setattr(theirs, name, getattr(ours, name))
    skip = testing.skip_on_cudasim

    def skip_on_cudasim(reason: str) -> Any:
        module = sys._getframe(1).f_globals["__name__"].rpartition(".")[2]
        return unittest.skipIf(False, reason) if module in UNSKIPPED else skip(reason)

    testing.skip_on_cudasim = skip_on_cudasim
    theirs.compiler.compile_ptx = _compiled

