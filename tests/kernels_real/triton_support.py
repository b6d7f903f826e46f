"""What the tests of the Triton versions share: a problem by name, and a run held against its reference."""

from __future__ import annotations

from typing import Any

import kernels_real
import kernels_sim
from kernels_sim.check import largest_error
from kernels_sim.problem import Data, Problem


def problem_of(kernel: str, seed: int = 5, virtual: bool = False, **options: Any) -> Problem:
    """Build a problem of kernels_sim."""
    spec = kernels_sim.find(kernel)
    return spec.build(spec.options(**options), Data(seed, virtual))


def require_right(kernel: str, configuration: dict[str, int] | None = None, **options: Any) -> None:
    """Run a kernel in Triton and hold every output that the reference names to its tolerance."""
    problem = problem_of(kernel, **options)
    found = kernels_real.run(problem, "triton", **configuration or {})
    expected = problem.reference()
    errors = {name: largest_error(found[name], x) for name, x in expected.items()}
    assert {n: e for n, e in errors.items() if not e <= problem.tolerance} == {}, options
    assert {n: found[n].dtype for n in expected} == {n: problem.outputs[n].dtype for n in expected}
