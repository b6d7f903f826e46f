"""What a device name is on the host: it stands for a thing inside kernels, and refuses to be used.

It models nothing of the card; what each name means in a kernel is in dsl/intrinsics/surface.py.
"""

from __future__ import annotations

from typing import Any

from dsl.lowering.values import spelled
from gpusim.errors import UserError


class DeviceName:
    """Name a thing that exists inside a kernel; using it on the host raises UserError."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, name: str) -> DeviceName:
        if name.startswith("__"):
            raise AttributeError(name)
        return DeviceName(f"{self.path}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise UserError(
            f"{self} exists only inside a kernel; launch one with kernel[grid, block](...)"
        )

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return spelled(self.path)
