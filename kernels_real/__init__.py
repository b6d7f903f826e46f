"""Kernels on real hardware, one interface for all backends.

A problem is what kernels_sim builds, taken for what it has and not for its class: `name`, `options`, `inputs`
(arrays by name), `outputs` (arrays whose shapes and types count) and, for numba, `steps` (its launches). A
backend is a module that holds `prepare(problem, **configuration) -> Prepared`; it is imported when it is
asked for.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

import numpy as np

from gpusim.errors import UnknownName

BACKENDS = {
    "triton": "kernels_real.triton_kernels",
    "numba": "kernels_real.numba_runner",
    "metal": "kernels_real.metal_kernels",
}
"""Backend -> its module."""


class Prepared(Protocol):
    """Be a problem whose arrays lie where the backend runs, so that a profiler can enclose `launch` alone."""

    def launch(self) -> None:
        """Run all launches of the problem in order, and wait for the last one."""

    def outputs(self) -> dict[str, np.ndarray]:
        """Return the outputs by the names that the problem gives them."""


def prepare(problem: Any, backend: str = "triton", **configuration: Any) -> Prepared:
    """Copy a problem's inputs to where the backend runs and fill its outputs with NaN; launch nothing.

    configuration: what the backend's version of the kernel leaves open, such as num_warps. Raises
    UnknownName, BadOption, and LaunchRefused where the backend cannot run here.
    """
    if backend not in BACKENDS:
        raise UnknownName(f"unknown backend {backend!r}; there are: {', '.join(BACKENDS)}")
    return importlib.import_module(BACKENDS[backend]).prepare(problem, **configuration)


def run(problem: Any, backend: str = "triton", **configuration: Any) -> dict[str, np.ndarray]:
    """Run a problem's launches on a backend and return its outputs by name; see `prepare`."""
    prepared = prepare(problem, backend, **configuration)
    prepared.launch()
    return prepared.outputs()
