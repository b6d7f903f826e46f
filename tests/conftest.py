"""What every test shares: no window is ever opened, hypothesis is repeatable, and tests of a GPU need one."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import pytest
from hypothesis import settings

os.environ.setdefault("MPLBACKEND", "Agg")

# A shared or cold machine makes the first example slow (it compiles), which is no fault: no deadline.
settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")


@pytest.fixture(autouse=True)
def quick_code_generator(request, monkeypatch):
    """Let LLVM's code generator run at level 0 where the time is that of compilation: in the long sweeps, and
    in tests/kernels_sim, whose 56 s of two files become 39.

    The tests of every shipped kernel (tests/test_formulas_match_simulation.py, tests/test_engines_agree.py)
    hold each at the level that users have.
    """
    if request.node.get_closest_marker("full") or request.path.parent.name == "kernels_sim":
        from dsl.engine import run as engine

        monkeypatch.setattr(engine, "CODE_LEVEL", 0)


def gpu_count() -> int:
    """Ask the CUDA driver how many devices there are; 0 where there is no driver."""
    for name in ("libcuda.so.1", "nvcuda.dll"):
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        count = ctypes.c_int(0)
        if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0:
            return count.value
    return 0


# Triton reads it when it is first imported: without a GPU its kernels run under its interpreter, on the CPU.
if not gpu_count():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def case_of(item: pytest.Item) -> str | None:
    """Name the shipped kernel and the options that a test is of; None for a test of anything else."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return f"{params['name']} {params['options']}" if {"name", "options"} <= set(params) else None


def together(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with those of one case side by side, where its first one stood.

    A test process gets tests that stand side by side, and works out the launches of a case once.
    """
    cases: dict[Any, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(case_of(item) or item.nodeid, []).append(item)
    return [item for case in cases.values() for item in case]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of one case together; skip the tests marked `gpu` where no GPU answers."""
    items[:] = together(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_count():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))
