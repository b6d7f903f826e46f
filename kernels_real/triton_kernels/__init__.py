"""The algorithms of kernels_sim in Triton, one a file, under the same names.

A file holds the kernels and `launches(options, arrays, ...)`, which describes its launches: the tiles and
layouts are those of the simulated kernel, and what Triton leaves to choose (num_warps, num_stages) are named
arguments with defaults. Nothing is launched until `Prepared.launch`.

Triton's interpreter runs the same files on the CPU where TRITON_INTERPRET=1 is set before Python starts. It
is right for float32 and float16, and wrong for bfloat16 and 8-bit floats.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.errors import BadOption, LaunchRefused, UnknownName

if TYPE_CHECKING:
    from kernels_real.triton_kernels.launching import Prepared

HELPERS = {
    "__init__", "arrays", "attention", "interpreter", "launching", "packed_fp8_qkv", "per_row",
    "resources", "tiled_products",
}  # fmt: skip
"""Modules that are no kernel of a name."""


def names() -> list[str]:
    """List the kernels that have a Triton version."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in HELPERS)


def prepare(problem: Any, **configuration: Any) -> Prepared:
    """Copy a problem to the GPU, or for the interpreter to torch's CPU tensors; launch nothing.

    Raises UnknownName for a kernel without a Triton version, BadOption for options or a configuration that
    it does not take, LaunchRefused where torch, Triton or a GPU is missing.
    """
    if problem.name not in names():
        raise UnknownName(f"{problem.name} has no Triton version; there are: {', '.join(names())}")
    if not problem.inputs or any(not hasattr(a, "tobytes") for a in problem.inputs.values()):
        raise LaunchRefused(f"{problem.name}: the problem has no data to run with; build it without "
                            "--counts-only")
    launching = _import("kernels_real.triton_kernels.launching")
    make = _import(f"kernels_real.triton_kernels.{problem.name}").launches
    _check(problem.name, make, configuration)
    return launching.prepare(problem, make, configuration)


def _import(module: str) -> Any:
    """Import a module that needs torch and Triton; say what to install where they are missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        raise LaunchRefused(f"the Triton kernels need {error.name}, which is not installed: pip install "
                            "torch triton==3.6.0") from None


def _check(name: str, make: Any, configuration: dict[str, Any]) -> None:
    """Raise BadOption for a configuration that a kernel does not have."""
    known = list(inspect.signature(make).parameters)[2:]
    for given, value in configuration.items():
        if given not in known:
            raise BadOption(f"{name} in Triton has no {given!r} to configure; there are: {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadOption(f"{name} in Triton: {given} must be a whole number of at least 1, got {value!r}")
