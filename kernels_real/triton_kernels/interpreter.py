"""Triton's interpreter, mended where a new numpy broke it."""

from __future__ import annotations

from typing import Any

import triton

IS_ON: bool = triton.knobs.runtime.interpret
"""Whether TRITON_INTERPRET=1 was set before Triton was imported: kernels then run on the CPU."""


def mend() -> None:
    """Let a loop run to a tensor: int() of an array of one element raises from numpy 2.4 on, and Triton 3.6
    calls it.
    """
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patched
