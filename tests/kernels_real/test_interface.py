"""What kernels_real says before torch, Triton or a GPU come in; none of them is needed here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernels_real
import kernels_sim
from gpusim.errors import LaunchRefused, UnknownName
from gpusim.memory import VirtualArray
from kernels_real import triton_kernels


def problem(name: str, **inputs: Any) -> SimpleNamespace:
    """Return what a backend takes for a problem."""
    return SimpleNamespace(name=name, options=None, inputs=inputs, outputs={})


def test_an_unknown_backend_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="unknown backend 'cl'; there are: .*triton"):
        kernels_real.run(problem("flash_forward"), "cl")


def test_a_kernel_without_a_triton_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="transpose padded has no Triton version; there are: .*flash_f"):
        kernels_real.run(problem("transpose padded"), "triton")


def test_every_triton_version_has_the_name_of_a_simulated_kernel() -> None:
    assert set(triton_kernels.names()) < set(kernels_sim.names())
    assert {"flash_forward", "fp8_qkv_backward", "softmax_merge"} <= set(triton_kernels.names())


VIRTUAL = VirtualArray((2, 2), np.dtype(np.float32))


@pytest.mark.parametrize("inputs", [{}, {"Q": VIRTUAL}], ids=["none", "virtual"])
def test_a_problem_without_data_is_refused(inputs: dict[str, Any]) -> None:
    with pytest.raises(LaunchRefused, match="flash_forward: the problem has no data to run with"):
        kernels_real.prepare(problem("flash_forward", **inputs), "triton")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {missing_name!r}", name=missing_name)

    monkeypatch.setattr(triton_kernels.importlib, "import_module", missing)
    missing_name = "triton"
    with pytest.raises(LaunchRefused, match="need triton, which is not installed: pip install torch"):
        triton_kernels.prepare(problem("flash_forward", Q=np.zeros(1)))
    missing_name = "sympy"  # what torch itself lacks is another matter
    with pytest.raises(ModuleNotFoundError):
        triton_kernels.prepare(problem("flash_forward", Q=np.zeros(1)))
