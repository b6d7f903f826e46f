"""What the tests of the Metal kernels share."""

from __future__ import annotations

import pytest

from gpusim.errors import LaunchRefused
from kernels_real.metal_kernels import shim


def why_not() -> str:
    """Return why the shim does not run here; empty where it does."""
    try:
        shim.compiler()
    except LaunchRefused as refusal:
        return str(refusal)
    return ""


needs_shim = pytest.mark.skipif(bool(why_not()), reason=why_not() or "the shim runs here")
