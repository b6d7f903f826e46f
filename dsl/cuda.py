"""The kernel language's surface, read like numba.cuda: `from dsl import cuda`, then `@cuda.jit`.

Device names stand for something inside kernels only; the compiler knows them by their names and never calls
them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any

from dsl.host import (
    default_stream,
    device_array,
    device_array_like,
    event,
    event_elapsed_time,
    is_available,
    pinned_array,
    profile_start,
    profile_stop,
    stream,
    synchronize,
    to_device,
)
from gpusim.errors import UnsupportedFeature, UserError


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
            f"cuda.{self.path} exists only inside a kernel; launch one with kernel[grid, block](...)"
        )

    def __repr__(self) -> str:
        return f"<cuda.{self.path}>"


threadIdx, blockIdx, blockDim, gridDim = (
    DeviceName(n) for n in ("threadIdx", "blockIdx", "blockDim", "gridDim")
)
grid, gridsize, laneid, warpsize = (DeviceName(n) for n in ("grid", "gridsize", "laneid", "warpsize"))
shared, local, atomic = (DeviceName(n) for n in ("shared", "local", "atomic"))
syncthreads, fma = DeviceName("syncthreads"), DeviceName("fma")
threadfence, threadfence_block, threadfence_system = (
    DeviceName(n) for n in ("threadfence", "threadfence_block", "threadfence_system")
)


def jit(func_or_sig: Any = None, device: bool = False, **options: Any) -> Any:
    """Make a kernel (or, with device=True, a device function) of a Python function.

    Bare, with options, or with signatures. The source text is read here, so that a later edit of the file
    does no harm. Signatures are ignored, as types come from each launch. Of the options `max_registers`
    matters to occupancy; numba's others (fastmath, debug, opt, lineinfo, cache, inline, link, launch_bounds
    ...) are kept and ignored.
    """
    from dsl.launch import Dispatcher
    from dsl.source import find

    def decorate(py_func: Callable[..., Any]) -> Any:
        if isinstance(py_func, FunctionType):
            with suppress(UnsupportedFeature):  # what is wrong with it is said at the first launch
                find(py_func)
        return Dispatcher(py_func, device=device, options=dict(options))

    return decorate(func_or_sig) if callable(func_or_sig) and hasattr(func_or_sig, "__code__") else decorate


__all__ = [
    "atomic",
    "blockDim",
    "blockIdx",
    "default_stream",
    "device_array",
    "device_array_like",
    "event",
    "event_elapsed_time",
    "fma",
    "grid",
    "gridDim",
    "gridsize",
    "is_available",
    "jit",
    "laneid",
    "local",
    "pinned_array",
    "profile_start",
    "profile_stop",
    "shared",
    "stream",
    "syncthreads",
    "synchronize",
    "threadIdx",
    "threadfence",
    "threadfence_block",
    "threadfence_system",
    "to_device",
    "warpsize",
]
