"""Hold the Python source of a kernel, run by its oracle, against its WarpIR, run by the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dsl.frontend.compile import compile_function
from dsl.interpreter import run as interpreter
from dsl.oracle import run as oracle
from dsl.oracle.run import OracleRun
from dsl.types import arg_type
from gpusim.memory import GlobalMemory

SPACES = (
    "global_load",
    "global_store",
    "global_red",
    "global_atom",
    "local_load",
    "local_store",
    "shared_load",
    "shared_store",
    "shared_atom",
)


def interpret(kernel: Callable[..., None], grid: Any, block: Any, args: tuple[Any, ...]) -> Any:
    """Compile a kernel and run it in the interpreter; arrays are changed in place."""
    fn = compile_function(kernel, tuple(arg_type(a) for a in args))
    memory, params, views = GlobalMemory(), {}, []
    for param, value in zip(fn.params, args, strict=True):
        if param.ndim is None:
            params[param.name] = value
            continue
        address = memory.alloc(value.nbytes)
        view = memory.view(address, value.shape, value.dtype)
        view[...] = value
        views.append((value, view))
        params[f"{param.name}.base"] = address
        params |= {f"{param.name}.shape.{k}": n for k, n in enumerate(value.shape)}
        params |= {f"{param.name}.stride.{k}": n for k, n in enumerate(value.strides)}
    got = interpreter.run(fn, grid, block, params, memory)
    for value, view in views:
        value[...] = view
    return got


def hold_against_interpreter(
    kernel: Callable[..., None], grid: Any, block: Any, args: tuple[Any, ...]
) -> tuple[OracleRun, list[np.ndarray]]:
    """Run a kernel both ways on copies; assert equal arrays and counters, and that something was written.

    Returns the oracle's run and its arrays.
    """
    ours, theirs = tuple(a.copy() for a in args), tuple(a.copy() for a in args)
    by_source: OracleRun = oracle.run(kernel, grid, block, ours)
    by_ir = interpret(kernel, grid, block, theirs)
    for name in (*SPACES, "barriers", "warp_operations"):
        assert getattr(by_source.counters, name) == getattr(by_ir.counters, name), name
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert any((a != b).any() for a, b in zip(ours, args, strict=True))
    return by_source, list(ours)
