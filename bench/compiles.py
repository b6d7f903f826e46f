"""How long each kernel of the repository takes to compile, in its default options and each variant of it.

`python bench/compiles.py` prints a line a kernel, seconds and name, the slowest last. What is timed: front
end, analyses, code generation, LLVM and linking. What is not: imports, and the library that numba compiles
once for all kernels and keeps on disk. Nothing is launched. The disk cache of machine code ($XDG_CACHE_HOME)
is emptied.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dsl.host.device import Device  # noqa: E402
from dsl.host.dispatcher import Dispatcher  # noqa: E402
from dsl.host.launch import launch  # noqa: E402
from gpusim.arch import get_arch  # noqa: E402
from gpusim.runtime import cache_home  # noqa: E402
from kernels_sim import find, names  # noqa: E402
from kernels_sim.options import options_of  # noqa: E402
from kernels_sim.problem import Data, Problem, Step  # noqa: E402

COMPILE = Dispatcher.compiled


class _Compiled(Exception):
    """End a launch whose kernel is compiled; hold the kernel's name and the seconds."""


def _compile_and_stop(kernel: Dispatcher, arg_types: Any, key: Any) -> NoReturn:
    """Take the place of Dispatcher.compiled: compile from the source on, and end the launch.

    The second time counts: the first makes what numba compiles for the code to call.
    """
    for _ in range(2):
        kernel._functions.pop(arg_types, None)
        kernel._compiled.pop((arg_types, key), None)
        shutil.rmtree(cache_home() / "kernels", ignore_errors=True)
        start = time.perf_counter()
        made = COMPILE(kernel, arg_types, key)
        assert made.run_blocks
        seconds = time.perf_counter() - start
    raise _Compiled(made.fn.name, seconds)


def default_problems() -> Iterator[tuple[str, Problem]]:
    """Yield the name and the problem of each kernel in its default options, and of its other variants."""
    for name in names():
        spec = find(name)
        variants = next((o.choices for o in options_of(spec) if o.name == "variant"), (None,))
        for variant in variants:
            chosen = {} if variant is None else {"variant": variant}
            yield " ".join(filter(None, (name, variant))), spec.build(spec.options(**chosen), Data(0))


def compiled(step: Step, device: Device) -> tuple[str, float]:
    """Return the name of a launch's kernel and the seconds that it takes to compile."""
    try:
        launch(step.kernel, step.grid, step.block, step.args, device, shared_bytes=step.shared_bytes)
    except _Compiled as found:
        return found.args  # type: ignore[return-value]
    raise AssertionError(f"{step.kernel.__name__} ran without being compiled")


def compile_seconds() -> dict[str, float]:
    """Return the seconds of each kernel of each problem."""
    device, found = Device(get_arch("h200"), threads=1), {}
    with patch.object(Dispatcher, "compiled", _compile_and_stop):
        for what, problem in default_problems():
            for step in problem.steps:
                kernel, seconds = compiled(step, device)
                found[f"{what}: {kernel}"] = seconds
    return found


if __name__ == "__main__":
    for label, taken in sorted(compile_seconds().items(), key=lambda item: item[1]):
        print(f"{taken:.3f} {label}")
