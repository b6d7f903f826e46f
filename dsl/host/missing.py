"""The mistake of using a name of numba.cuda that the simulated one does not have.

It models nothing of the card; which names there are is in dsl/cuda.py, dsl/host/context.py and
dsl/host/arrays.py.
"""

from __future__ import annotations

from gpusim.errors import UnsupportedFeature


class MissingName(UnsupportedFeature, AttributeError):
    """A name of numba.cuda that the simulated one does not have; hasattr answers False."""


def missing(name: str, instead: str = "") -> MissingName:
    """Return the mistake of using a name that the simulated numba.cuda does not have."""
    said = f"cuda.{name} is not in the simulated numba.cuda"
    return MissingName(f"{said}; {instead}" if instead else said)
