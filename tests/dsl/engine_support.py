"""Run one kernel by the compiled engine and by the interpreter of WarpIR, for tests that compare the two."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from dsl.engine.run import Compiled, EngineRun, Key
from dsl.host.device import Placed, place_arguments
from dsl.host.dispatcher import Dispatcher
from dsl.interpreter import run as interpreter
from dsl.passes.as_compiled import IssueCount
from dsl.semantics.messages import Dim3
from dsl.types import arg_type
from dsl.warpir import ir
from gpusim.counters import AsCompiled, Counters
from gpusim.memory import FIRST_ADDRESS, GlobalMemory

MEMORY_BYTES = 1 << 28
MAX_STEPS = 200_000


@dataclass
class Outcome:
    """Hold what one engine gave: a trace a block, counters, runs of each basic block, and global memory.

    arrays: the array arguments as they are after the launch. register_arrays: local arrays without traffic.
    """

    traces: list[np.ndarray]
    counters: Counters
    execs: np.ndarray
    memory: np.ndarray
    arrays: list[np.ndarray]
    register_arrays: frozenset[str]
    as_compiled: AsCompiled


def load_source(text: str, directory: Path, name: str) -> ModuleType:
    """Write a module's source to a file and import it."""
    file = directory / f"{name}.py"
    file.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def both(
    kernel: Dispatcher, grid: Dim3, block: Dim3, args: tuple[Any, ...], shared_bytes: int = 0
) -> tuple[Outcome, Outcome]:
    """Return what the compiled engine and the interpreter give for one launch on fresh memory."""
    compiled = _compiled(kernel, block, args)
    engine = _run_compiled(compiled, grid, args, shared_bytes)
    fn, in_registers = compiled.fn, compiled.register_arrays

    memory = GlobalMemory(MEMORY_BYTES)
    placed = place_arguments(fn, args, memory)
    params = {**placed.params, **_extents(fn, shared_bytes)}
    issued = IssueCount(compiled.issues)
    run = interpreter.run(
        fn, grid, block, params, memory, shared_bytes, None, MAX_STEPS, False, in_registers, issued
    )
    return engine, Outcome(
        run.trace, run.counters, run.block_execs, _bytes(memory), _arrays(placed), in_registers,
        issued.result(),
    )  # fmt: skip


def by_machine_code(
    kernel: Dispatcher, grid: Dim3, block: Dim3, args: tuple[Any, ...], shared_bytes: int = 0
) -> Outcome:
    """Return what the compiled engine gives for one launch on fresh memory."""
    return _run_compiled(_compiled(kernel, block, args), grid, args, shared_bytes)


def _compiled(kernel: Dispatcher, block: Dim3, args: tuple[Any, ...]) -> Compiled:
    fn = kernel.function(tuple(arg_type(a) for a in args))
    placed = place_arguments(fn, args, GlobalMemory(MEMORY_BYTES))
    return Compiled(fn, Key(block, False, False, placed.nonnegative))


def _extents(fn: ir.Function, shared_bytes: int) -> dict[str, int]:
    """Return the lengths of the arrays in dynamic shared memory."""
    return {f"{a.name}.shape.0": shared_bytes // a.element_bytes for a in fn.shared if a.bytes == 0}


def _run_compiled(compiled: Compiled, grid: Dim3, args: tuple[Any, ...], shared_bytes: int) -> Outcome:
    fn, blocks = compiled.fn, grid[0] * grid[1] * grid[2]
    memory = GlobalMemory(MEMORY_BYTES)
    placed = place_arguments(fn, args, memory)
    params = {**placed.params, **_extents(fn, shared_bytes)}
    all_shared = fn.static_shared_bytes + shared_bytes
    run = EngineRun(compiled, grid, params, memory, all_shared, MAX_STEPS)
    records, offsets = run.wave(0, blocks)
    traces = [records[offsets[b] : offsets[b + 1]].copy() for b in range(blocks)]
    tally = run.tally()
    return Outcome(
        traces, tally.counters(), tally.block_execs, _bytes(memory), _arrays(placed),
        compiled.register_arrays, tally.as_compiled(),
    )  # fmt: skip


def _arrays(placed: Placed) -> list[np.ndarray]:
    return [view.copy() for _, view in placed.copies]


def _bytes(memory: GlobalMemory) -> np.ndarray:
    return memory.view(FIRST_ADDRESS, (memory.mark() - FIRST_ADDRESS,), np.uint8).copy()


def assert_equal(engine: Outcome, oracle: Outcome) -> None:
    """Assert that two outcomes agree in every trace record, counter, block execution and byte of memory, and
    in what shared accesses become as compiled.

    Any NaN equals any NaN.
    """
    np.testing.assert_array_equal(engine.execs, oracle.execs)
    assert len(engine.traces) == len(oracle.traces)
    for a, b in zip(engine.traces, oracle.traces, strict=True):
        np.testing.assert_array_equal(a, b)
    assert engine.counters == oracle.counters
    assert engine.as_compiled == oracle.as_compiled
    a, b = engine.memory.view(np.uint32), oracle.memory.view(np.uint32)
    both_nan = np.isnan(a.view(np.float32)) & np.isnan(b.view(np.float32))
    differing = np.flatnonzero((a != b) & ~both_nan)
    assert not len(differing), f"words {differing[:5]} differ: {a[differing[:5]]} and {b[differing[:5]]}"
