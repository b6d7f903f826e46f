"""The host side of the kernel language: device arrays, streams and events, under numba.cuda's names.

What it models: arrays that stay on the device between launches, in the current session's memory. What it
leaves out: concurrency; every call is done when it returns, so streams and events are ordered no-ops, and an
event's elapsed time is NaN. Checked by no metric.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gpusim import session
from gpusim.errors import LaunchRefused, UnsupportedFeature

NO_CLOCK = "events: no clock; elapsed times are nan"


def device_array(
    shape: int | tuple[int, ...],
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
) -> Any:
    """Return an array on the device, not filled, in C or Fortran order."""
    if order not in ("C", "F") or strides is not None:
        raise UnsupportedFeature("cuda.device_array makes contiguous arrays; pass order='C' or 'F' and no "
                                 "strides")
    extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if not all(isinstance(n, (int, np.integer)) and n >= 0 for n in extents):
        raise LaunchRefused(f"cuda.device_array: the shape is {shape!r}; extents are whole numbers from 0 on")
    return _laid_out(extents, dtype, order)


def _laid_out(extents: tuple[int, ...], dtype: Any, order: str) -> Any:
    from dsl.host.device import DeviceArray, session_device

    element = np.dtype(dtype)
    steps = [1] * len(extents)
    for k in range(1, len(extents)):
        steps[k] = steps[k - 1] * extents[k - 1]
    strides = tuple(n * element.itemsize for n in steps) if order == "F" and 0 not in extents else None
    return DeviceArray(session_device(), extents, element, strides)


def device_array_like(ary: Any, stream: Any = 0) -> Any:
    """Return an array on the device with the shape and dtype of another, its axes in the same order of
    strides, and without gaps.
    """
    from dsl.host.device import DeviceArray, session_device

    shown = getattr(ary, "_view", ary)
    strides = np.empty_like(shown).strides if isinstance(shown, np.ndarray) and shown.size else None
    return DeviceArray(session_device(), tuple(ary.shape), ary.dtype, strides)


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
    """Copy an array to the device (into `to`, if given) and return the device array, its axes in order."""
    ary = np.asarray(obj)
    target = to if to is not None else device_array_like(ary)
    if tuple(target.shape) != ary.shape:
        raise LaunchRefused(f"cuda.to_device: the target has the shape {target.shape}, the array {ary.shape}")
    target.copy_to_device(ary)
    return target


def pinned_array(
    shape: int | tuple[int, ...], dtype: Any = np.float64, strides: Any = None, order: str = "C"
) -> np.ndarray:
    """Return a numpy array on the host; pinning has no meaning here, and strides are not kept."""
    return np.empty(shape, dtype, order=order)  # type: ignore[call-overload]


def pinned_array_like(ary: Any) -> np.ndarray:
    """Return a numpy array on the host with the shape, dtype and order of axes of another."""
    return np.empty_like(getattr(ary, "_view", ary))


def managed_array(
    shape: int | tuple[int, ...],
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    attach_global: bool = True,
) -> np.ndarray:
    """Return a numpy array, copied to the device and back at each launch; page migration is not counted."""
    return pinned_array(shape, dtype, strides, order)


@contextmanager
def pinned(*arylist: Any) -> Iterator[None]:
    """Be a block in which arrays are pinned, which has no meaning here."""
    yield


@contextmanager
def defer_cleanup() -> Iterator[None]:
    """Be a block in which nothing is freed, which has no meaning here."""
    yield


def In(ary: Any) -> Any:  # noqa: N802 - numba's name
    """Return an argument whose changes do not come back from the device."""
    return ary if hasattr(ary, "copy_to_host") else np.array(ary)


def Out(ary: Any) -> Any:  # noqa: N802 - numba's name
    """Return an argument that comes back from the device; it is copied there too."""
    return ary


def InOut(ary: Any) -> Any:  # noqa: N802 - numba's name
    """Return an argument that is copied to the device and back."""
    return ary


def is_cuda_array(obj: Any) -> bool:
    """Return whether an object says that it lies on a device."""
    return hasattr(obj, "__cuda_array_interface__")


def synchronize() -> None:
    """Return at once: every launch is done when it returns."""


def profile_start() -> None:
    """Accept the call; which launches are reported is the profiler's choice (--launch-skip and -count)."""


def profile_stop() -> None:
    """Accept the call."""


def is_available() -> bool:
    """Tell that there is a GPU: the simulated one."""
    return True


class Stream:
    """Be a stream: work on it is done at once and in order."""

    def synchronize(self) -> None:
        """Return at once."""

    @contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        """Be a block after which the stream is synchronised."""
        yield self


class Event:
    """Be an event of a stream. It knows no time: `elapsed_time` is NaN, as nothing here is timed."""

    def record(self, stream: Any = 0) -> None:
        """Record the event."""

    def wait(self, stream: Any = 0) -> None:
        """Return at once."""

    def query(self) -> bool:
        """Tell that the event is complete."""
        return True

    def synchronize(self) -> None:
        """Return at once."""

    def elapsed_time(self, other: Event) -> float:
        """Return NaN and leave a note in the session: there is no clock."""
        session.current().remark(NO_CLOCK)
        return math.nan


def stream() -> Stream:
    """Return a stream."""
    return Stream()


def default_stream() -> Stream:
    """Return the default stream."""
    return Stream()


def event(timing: bool = True) -> Event:
    """Return an event."""
    return Event()


def event_elapsed_time(start: Event, end: Event) -> float:
    """Return NaN and leave a note in the session: there is no clock."""
    return start.elapsed_time(end)
