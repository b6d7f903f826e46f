"""Run one launch by the compiled engine, the interpreter and the Python oracle, and hold them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from dsl.host.device import Device
from dsl.host.dispatcher import Dispatcher
from dsl.host.launch import launch
from dsl.semantics.messages import dim3
from dsl.types import leaves
from gpusim.arch import H200
from gpusim.launch import Launch
from tests.dsl.engine_support import assert_equal, both

UNKNOWN_TO_THE_ORACLE = ("arithmetic", "hierarchy")


def agreed(
    kernel: Dispatcher, grid: Any, block: Any, make_args: Callable[[], tuple[Any, ...]], shared_bytes: int = 0
) -> tuple[Launch, list[np.ndarray]]:
    """Return the compiled engine's launch and arrays.

    Asserts that the trace and counters are the interpreter's, and that arrays and counters are those of the
    Python oracle, of which `make_args` gives each engine its own.
    """
    assert_equal(*both(kernel, dim3(grid), dim3(block), make_args(), shared_bytes))
    runs = {}
    for engine in ("compiled", "ir", "oracle"):
        args = make_args()
        run = launch(kernel, grid, block, args, Device(H200), shared_bytes=shared_bytes, engine=engine)
        runs[engine] = run, [value for _, value in leaves(args) if isinstance(value, np.ndarray)]
    compiled, arrays = runs["compiled"]
    assert runs["ir"][0].counters == compiled.counters
    assert runs["ir"][0].as_compiled == compiled.as_compiled
    for field in fields(compiled.counters):
        if field.name not in UNKNOWN_TO_THE_ORACLE:
            by_source, by_machine = (
                getattr(r.counters, field.name) for r in (runs["oracle"][0], compiled)
            )
            assert by_source == by_machine, field.name
    for _, others in runs.values():
        for got, other in zip(arrays, others, strict=True):
            np.testing.assert_array_equal(got, other)
    return compiled, arrays
