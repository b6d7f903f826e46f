"""The kernel language's surface, read like numba.cuda: `from dsl import cuda`, then `@cuda.jit`.

Device names stand for something inside kernels only; the compiler knows them by their names and never calls
them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any

from dsl.host.arrays import (
    In,
    InOut,
    Out,
    default_stream,
    defer_cleanup,
    device_array,
    device_array_like,
    event,
    event_elapsed_time,
    is_available,
    is_cuda_array,
    managed_array,
    pinned,
    pinned_array,
    pinned_array_like,
    profile_start,
    profile_stop,
    stream,
    synchronize,
    to_device,
)
from dsl.host.context import (
    close,
    current_context,
    detect,
    get_current_device,
    gpus,
    is_bfloat16_supported,
    is_float16_supported,
    is_fp8_supported,
    list_devices,
    select_device,
)
from dsl.host.missing import missing
from dsl.intrinsics.device_name import DeviceName
from dsl.types import numba_type
from dsl.types.elements import VECTORS
from gpusim.errors import UnsupportedFeature

INSTEAD = {
    "reduce": "write the reduction as a kernel, with cuda.shared.array and cuda.atomic.add",
    "Reduce": "write the reduction as a kernel, with cuda.shared.array and cuda.atomic.add",
    "random": "make the numbers on the host and pass them as an array",
    "mapped_array": "make a numpy array, or put one on the device with cuda.to_device",
    "mapped_array_like": "make a numpy array, or put one on the device with cuda.to_device",
    "mapped": "pass the numpy array, or put it on the device with cuda.to_device",
    "declare_device": "write the device function in Python",
    "compile_ptx": "there is no PTX here; launch the kernel",
    "compile": "there is no PTX here; launch the kernel",
}
"""Names of numba.cuda that are not here, and what to write instead."""


def __getattr__(name: str) -> Any:
    """Return a vector type or a type of numba's, or refuse a name that is not here (`hasattr`: False)."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name in VECTORS:
        return DeviceName(name)
    if name == "types":
        return importlib.import_module("numba.types")
    if (named := numba_type(name)) is not None:
        return named
    raise missing(name, INSTEAD.get(name, ""))


threadIdx, blockIdx, blockDim, gridDim = (
    DeviceName(n) for n in ("threadIdx", "blockIdx", "blockDim", "gridDim")
)
grid, gridsize, laneid, warpsize = (DeviceName(n) for n in ("grid", "gridsize", "laneid", "warpsize"))
shared, local, atomic, const = (DeviceName(n) for n in ("shared", "local", "atomic", "const"))
syncthreads, syncthreads_count, syncthreads_and, syncthreads_or, syncwarp = (
    DeviceName(n)
    for n in ("syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or", "syncwarp")
)
threadfence, threadfence_block, threadfence_system, nanosleep = (
    DeviceName(n) for n in ("threadfence", "threadfence_block", "threadfence_system", "nanosleep")
)
shfl_sync, shfl_up_sync, shfl_down_sync, shfl_xor_sync = (
    DeviceName(n) for n in ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")
)
all_sync, any_sync, eq_sync, ballot_sync = (
    DeviceName(n) for n in ("all_sync", "any_sync", "eq_sync", "ballot_sync")
)
match_any_sync, match_all_sync, activemask, lanemask_lt = (
    DeviceName(n) for n in ("match_any_sync", "match_all_sync", "activemask", "lanemask_lt")
)
popc, brev, clz, ffs, selp, fma, cbrt = (
    DeviceName(n) for n in ("popc", "brev", "clz", "ffs", "selp", "fma", "cbrt")
)
fp16, bf16, fp8 = (DeviceName(n) for n in ("fp16", "bf16", "fp8"))
literal_unroll = DeviceName("literal_unroll")
ldca, ldcg, ldcs, ldlu, ldcv = (DeviceName(n) for n in ("ldca", "ldcg", "ldcs", "ldlu", "ldcv"))
stcg, stcs, stwb, stwt = (DeviceName(n) for n in ("stcg", "stcs", "stwb", "stwt"))


def jit(func_or_sig: Any = None, device: bool = False, **options: Any) -> Any:
    """Make a kernel (or, with device=True, a device function) of a Python function.

    Bare, with options, or with signatures. The source text is read here, so that a later edit of the file
    does no harm. A signature gives scalar arguments their types. Of the options `max_registers` matters to
    occupancy, and `debug` makes division by zero an error; numba's others (fastmath, opt, lineinfo, cache,
    inline, link, launch_bounds ...) are kept and ignored.
    """
    from dsl.host.dispatcher import Dispatcher
    from dsl.syntax.source import find

    def decorate(py_func: Callable[..., Any]) -> Any:
        if isinstance(py_func, FunctionType):
            with suppress(UnsupportedFeature):  # what is wrong with it is said at the first launch
                find(py_func)
        return Dispatcher(py_func, device=device, options={**options, "signature": signature})

    bare = callable(func_or_sig) and hasattr(func_or_sig, "__code__")
    signature = None if bare else func_or_sig
    return decorate(func_or_sig) if bare else decorate


__all__ = [
    "In",
    "InOut",
    "Out",
    "activemask",
    "all_sync",
    "any_sync",
    "atomic",
    "ballot_sync",
    "bf16",
    "blockDim",
    "blockIdx",
    "brev",
    "cbrt",
    "close",
    "clz",
    "const",
    "current_context",
    "default_stream",
    "defer_cleanup",
    "detect",
    "device_array",
    "device_array_like",
    "eq_sync",
    "event",
    "event_elapsed_time",
    "ffs",
    "fma",
    "fp8",
    "fp16",
    "get_current_device",
    "gpus",
    "grid",
    "gridDim",
    "gridsize",
    "is_available",
    "is_bfloat16_supported",
    "is_cuda_array",
    "is_float16_supported",
    "is_fp8_supported",
    "jit",
    "laneid",
    "lanemask_lt",
    "ldca",
    "ldcg",
    "ldcs",
    "ldcv",
    "ldlu",
    "list_devices",
    "literal_unroll",
    "local",
    "managed_array",
    "match_all_sync",
    "match_any_sync",
    "nanosleep",
    "pinned",
    "pinned_array",
    "pinned_array_like",
    "popc",
    "profile_start",
    "profile_stop",
    "select_device",
    "selp",
    "shared",
    "shfl_down_sync",
    "shfl_sync",
    "shfl_up_sync",
    "shfl_xor_sync",
    "stcg",
    "stcs",
    "stream",
    "stwb",
    "stwt",
    "synchronize",
    "syncthreads",
    "syncthreads_and",
    "syncthreads_count",
    "syncthreads_or",
    "syncwarp",
    "threadIdx",
    "threadfence",
    "threadfence_block",
    "threadfence_system",
    "to_device",
    "warpsize",
]
