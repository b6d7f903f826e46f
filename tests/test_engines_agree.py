"""Every shipped kernel, record by record: the compiled trace is the interpreter's.

It also holds the requests of the Python source.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from dsl.host.device import Device, private_copies
from dsl.host.launch import launch
from dsl.oracle import run as oracle
from dsl.semantics import request_rules
from dsl.semantics.messages import dim3
from gpusim.arch import H200
from gpusim.counters import Counters
from gpusim.trace import LINE_SHIFT, Kind, unpack
from tests.dsl.engine_support import assert_equal, both, by_machine_code
from tests.test_formulas_match_simulation import BY_THREAD, CASES, problem_of, skip_if_long, title

GLOBAL_KINDS = {
    "load": Kind.LOAD, "store": Kind.STORE, "red": Kind.RED, "atom": Kind.ATOM, "copy_ca": Kind.LOAD,
    "copy_cg": Kind.LOAD_L2,
}  # fmt: skip


def steps_of(name: str, options: dict[str, Any]) -> Any:
    """Yield the steps of a case; each is launched after its turn, so the next one finds what it wrote."""
    device = Device(H200)
    for step in problem_of(name, options).steps:
        yield step
        launch(step.kernel, step.grid, step.block, step.args, device, shared_bytes=step.shared_bytes)


@pytest.mark.parametrize(("name", "options"), CASES, ids=title)
def test_the_compiled_trace_counters_and_memory_are_those_of_the_interpreter(name, options):
    skip_if_long(options)
    for step in steps_of(name, options):
        assert_equal(*both(step.kernel, dim3(step.grid), dim3(step.block), step.args, step.shared_bytes))


def records_of_source(run: oracle.OracleRun) -> Counter[tuple[int, int, int, int]]:
    """Count the (block, line, mask, kind) of the global records that the Python source's requests make."""
    found: Counter[tuple[int, int, int, int]] = Counter()
    for request in run.requests:
        if request.space != "global":
            continue
        kind = GLOBAL_KINDS[request.op]
        make = request_rules.atomic_records if kind in (Kind.RED, Kind.ATOM) else request_rules.records
        for record in unpack(np.array(make(request.lanes, request.bytes_per_lane, kind, 0), np.uint64)):
            found[request.block, int(record["line"]), int(record["mask"]), int(record["kind"])] += 1
    return found


def records_of_trace(traces: list[np.ndarray]) -> Counter[tuple[int, int, int, int]]:
    """Count the same of the compiled engine's trace, marks left out."""
    found: Counter[tuple[int, int, int, int]] = Counter()
    for block, trace in enumerate(traces):
        for record in unpack(trace):
            if record["kind"] < Kind.WARP and record["line"] < (1 << 37) >> 7:
                found[block, int(record["line"]), int(record["mask"]), int(record["kind"])] += 1
    return found


def by_thread_counts(counters: Counters) -> dict[str, Any]:
    """Return the counters that the Python source has: all but those of arithmetic and of the caches."""
    counts = asdict(counters)
    del counts["hierarchy"], counts["arithmetic"]
    return counts


@pytest.mark.parametrize(("name", "options"), BY_THREAD, ids=title)
def test_the_python_source_a_thread_at_a_time_makes_the_same_requests_and_counts(name, options):
    skip_if_long(options)
    for step in steps_of(name, options):
        grid, block, shared_bytes = dim3(step.grid), dim3(step.block), step.shared_bytes
        engine = by_machine_code(step.kernel, grid, block, step.args, shared_bytes)
        copies, in_registers = private_copies(step.args), engine.register_arrays
        source = oracle.run(step.kernel, grid, block, copies, shared_bytes, register_arrays=in_registers)
        assert records_of_trace(engine.traces) == records_of_source(source)
        assert by_thread_counts(engine.counters) == by_thread_counts(source.counters)


def test_the_line_field_holds_every_address_of_global_memory():
    assert LINE_SHIFT + 37 - 7 <= 64
