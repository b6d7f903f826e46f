"""debug=True: a division by zero is an error that names its thread and line, as numba.cuda has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim.arch import get_arch
from gpusim.errors import DivisionByZero

ENGINES = ("compiled", "ir", "oracle")


@cuda.jit(device=True)
def of_device(x, y):
    return x / y


def _true(x, y, out):
    i = cuda.threadIdx.x
    out[i] = x[i] / y[i]


def _floor(x, y, out):
    i = cuda.threadIdx.x
    out[i] = x[i] // y[i]


def _rest(x, y, out):
    i = cuda.threadIdx.x
    out[i] = x[i] % y[i]


def _in_device(x, y, out):
    i = cuda.threadIdx.x
    out[i] = of_device(x[i], y[i])


def _guarded(x, y, out):
    i = cuda.threadIdx.x
    if y[i] != 0:
        out[i] = x[i] / y[i]


def run(kernel: Any, y: Any, engine: str = "compiled", **options: Any) -> np.ndarray:
    """Run 32 threads that divide by the elements of y."""
    x, out = np.full(32, 6, y.dtype), np.full(32, -1.0)
    launch(cuda.jit(**options)(kernel), 1, 32, (x, y, out), Device(get_arch("h200")), engine=engine)
    return out


def zero_at(thread: int, dtype: str) -> np.ndarray:
    y = np.full(32, 2, dtype)
    y[thread] = 0
    return y


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["i4", "i8", "f4", "f8"])
@pytest.mark.parametrize("kernel", [_true, _floor, _rest, _in_device], ids=lambda k: k.__name__)
def test_the_lowest_thread_that_divides_by_zero_is_named_with_its_line(kernel, dtype, engine):
    with pytest.raises(DivisionByZero) as error:
        run(kernel, zero_at(7, dtype), engine, debug=True)
    text = str(error.value)
    line = (of_device.py_func if kernel is _in_device else kernel).__code__.co_firstlineno
    line += 2 if kernel is not _in_device else 2
    assert f"thread (7, 0, 0), {__file__}:{line}: division by zero, which debug=True makes an error" in text
    assert isinstance(error.value, ZeroDivisionError) and isinstance(error.value, FloatingPointError)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_guarded_division_and_a_kernel_without_debug_are_no_mistake(engine):
    assert run(_guarded, zero_at(7, "f4"), engine, debug=True).tolist() == [3.0] * 7 + [-1.0] + [3.0] * 24
    assert run(_true, zero_at(7, "f4"), engine)[7] == np.inf


def test_counting_alone_takes_a_kernel_with_debug():
    def counted(**options):
        x = [np.ones(32, "f4") for _ in range(3)]
        found = launch(cuda.jit(**options)(_true), 1, 32, (*x,), Device(get_arch("h200")), counts_only=True)
        return found.counters

    assert counted(debug=True).global_load == counted().global_load
