"""Attention in Metal: one .metal file an algorithm, under the names of kernels_sim.

On a Mac they run on the GPU through torch.mps.compile_shader, which nobody has tried yet. On Linux they run
on the CPU: the source is compiled as C++ with the headers in shim/, which also count the elements that each
launch loads and stores.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gpusim.errors import BadOption, LaunchRefused, UnknownName
from kernels_real.metal_kernels import flash_row, mps, shim, standard_attention
from kernels_real.metal_kernels.launching import Accesses, Launch

EXECUTORS = ("auto", "shim", "mps")
MODULES = {name: module for module in (flash_row, standard_attention) for name in module.KERNELS}


def names() -> list[str]:
    """List the kernels that have a Metal version."""
    return sorted(MODULES)


def prepare(problem: Any, executor: str = "auto", backwards: bool = False) -> shim.Prepared | mps.Prepared:
    """Copy a problem's inputs and fill its outputs with NaN; launch nothing.

    executor: "mps" for an Apple GPU, "shim" for this CPU, "auto" for the first on a Mac and the second
    elsewhere. backwards: the shim's threads of a threadgroup go in descending order. Raises UnknownName for a
    kernel without a Metal version, BadOption for options that it does not take, LaunchRefused where it cannot
    run here.
    """
    if executor not in EXECUTORS:
        raise BadOption(f"executor must be {' or '.join(EXECUTORS)}, got {executor!r}")
    parts = _parts(problem)
    if executor == "mps" or (executor == "auto" and sys.platform == "darwin"):
        return mps.Prepared(*parts)
    return shim.Prepared(*parts, backwards)


def accesses(problem: Any) -> tuple[dict[str, Accesses], ...]:
    """Run a problem by the shim and return each launch's element loads and stores, by the buffer's name.

    An access of one element by one thread counts once, as a lane access does. Raises what `prepare` does.
    """
    prepared = shim.Prepared(*_parts(problem))
    prepared.launch()
    return prepared.accesses


def _parts(problem: Any) -> tuple[tuple[Launch, ...], dict[str, np.ndarray], tuple[str, ...]]:
    """Return a problem's launches, its arrays by name, and the names of its outputs."""
    if problem.name not in MODULES:
        raise UnknownName(f"{problem.name} has no Metal version; there are: {', '.join(names())}")
    if not problem.inputs or any(not hasattr(a, "tobytes") for a in problem.inputs.values()):
        raise LaunchRefused(f"{problem.name}: the problem has no data to run with; build it without "
                            "--counts-only")
    module = MODULES[problem.name]
    launches = tuple(module.launches(problem.name, problem.options))
    return launches, _arrays(problem, module), tuple(problem.outputs)


def _arrays(problem: Any, module: Any) -> dict[str, np.ndarray]:
    """Return the inputs copied, outputs and work arrays of NaN, by name."""
    work = module.work_arrays(problem.options) if hasattr(module, "work_arrays") else {}
    shapes = {name: a.shape for name, a in problem.outputs.items()} | work
    made = {name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()}
    return {name: np.array(a, order="C") for name, a in problem.inputs.items()} | made
