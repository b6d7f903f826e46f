"""How far the outputs of a problem lie from its float64 reference, wherever they were computed.

The error of an output is max|x - ref| / max(1, max|ref|). A NaN where the reference has none makes it
infinite, as does an infinity in another place or of another sign than the reference's; equal infinities (L =
-inf of a row that sees no key) are no error. Two things can excuse what lies beyond the tolerance, and the
check says so: sums whose terms cancel, and 8-bit numbers next to the middle of two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusim.launch import Check
from kernels_sim.problem import Problem

ROUNDED = 2.0**-8
"""How far, relatively, a number may lie from the middle of two 8-bit ones and still become either: it was
rounded to bfloat16 before (2^-9), after a sum in another order (twice that is the next bfloat16)."""


LEAST_NORMAL = 2.0**-6
"""Of e4m3; below it steps are no smaller."""


def checks(problem: Problem, outputs: Mapping[str, Any] | None = None) -> tuple[Check, ...]:
    """Compare every output that the reference names with it; see `Problem.summed` and `Problem.unrounded`.

    outputs: what another backend computed; not given: the problem's own arrays.
    """
    if problem.reference is None:
        return ()
    found = problem.outputs if outputs is None else outputs
    expected = {name: x for name, x in problem.reference().items() if name in found}
    errors = {name: largest_error(found[name], x) for name, x in expected.items()}
    terms: dict[str, float] = {}
    rounded: dict[str, int] = {}
    if not max(errors.values(), default=0.0) <= problem.tolerance:
        if problem.summed is not None:
            terms = problem.summed()
            errors |= {name: largest_error(found[name], expected[name], n) for name, n in terms.items()}
        for name, exact in {} if problem.unrounded is None else problem.unrounded().items():
            other = rounds_to_a_neighbour(found[name], expected[name], exact)
            rounded[name] = int(other.sum())
            errors[name] = largest_error(np.where(other, expected[name], found[name]), expected[name])
    limit = problem.tolerance
    return tuple(Check(name, error, limit, terms.get(name, 0.0), rounded.get(name, 0))
                 for name, error in errors.items())  # fmt: skip


def largest_error(values: np.ndarray, expected: np.ndarray, terms: float = 0.0) -> float:
    """Return max|x - ref| / max(1, max|ref|, terms) over the finite reference.

    Infinite where NaN or infinities differ from it.
    """
    x, ref = np.asarray(values, np.float64), np.asarray(expected, np.float64)
    if x.shape != ref.shape:
        raise ValueError(f"an output has the shape {x.shape}, its reference {ref.shape}")
    finite = np.isfinite(ref)
    same = np.where(np.isnan(ref), np.isnan(x), x == ref)
    if not np.isfinite(x[finite]).all() or not same[~finite].all():
        return math.inf
    if not finite.any():
        return 0.0
    return float(np.abs(x[finite] - ref[finite]).max() / max(1.0, terms, np.abs(ref[finite]).max()))


def rounds_to_a_neighbour(values: np.ndarray, expected: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return where an e4m3 number is not the expected one, and the number before the rounding lies in their
    middle, as far as float32 and bfloat16 tell: such two are neighbours.

    exact: float64, what was rounded. All of one shape.
    """
    x, ref, y = (np.asarray(a, np.float64) for a in (values, expected, exact))
    with np.errstate(invalid="ignore"):
        from_middle = np.abs(np.abs(y - x) - np.abs(y - ref)) / 2
        return (x != ref) & (from_middle <= ROUNDED * np.maximum(np.abs(y), LEAST_NORMAL))
