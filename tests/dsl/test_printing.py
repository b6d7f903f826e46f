"""print in kernels: the text of lines and their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsl import cuda
from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim.arch import H200
from gpusim.errors import OutOfBounds, UnsupportedFeature
from tests.dsl.engine_support import load_source

UNIT = "steps"


@cuda.jit
def hello(out):
    i = cuda.grid(1)
    if i % 2 == 1:
        print(i, "odd", UNIT)
    cuda.syncthreads()
    print(-i)
    out[i] = i


def test_lines_come_by_block_and_thread_and_in_each_threads_order(capsys: Any):
    out = np.zeros(4)
    run = launch(hello, 2, 2, (out,), Device(H200))
    assert capsys.readouterr().out == "0\n1 odd steps\n-1\n-2\n3 odd steps\n-3\n"
    assert (out.tolist(), run.engine) == ([0, 1, 2, 3], "oracle")
    assert "print is not compiled" in run.notes[0]


@cuda.jit(device=True)
def shown(x):
    print("x", x)
    return x


@cuda.jit
def every_kind(t, out):
    print()
    print(True, t[0] == 1, np.float32(0.1), 34.75, np.uint8(200), np.int64(-5))
    print(t, (7,), cuda.threadIdx, ())
    out[0] = shown(1e20)


def test_numbers_are_printed_as_cudas_printf_has_them_and_tuples_in_brackets(capsys: Any):
    launch(every_kind, 1, 1, ((1, (2.5, 3)), np.zeros(1)), Device(H200))
    assert capsys.readouterr().out.splitlines() == [
        "", "True True 0.100000 34.750000 200 -5", "(1, (2.500000, 3)) (7,) (0, 0, 0) ()",
        "x 100000000000000000000.000000",
    ]  # fmt: skip


@cuda.jit
def outside(out):
    i = cuda.grid(1)
    print("before", i)
    out[3 * i] = 1
    print("after", i)


def test_a_launch_that_fails_prints_what_its_threads_printed_before(capsys: Any):
    out = np.zeros(3)
    with pytest.raises(OutOfBounds, match="index 3"):
        launch(outside, 3, 1, (out,), Device(H200))
    assert capsys.readouterr().out == "before 0\nafter 0\nbefore 1\n"
    assert out.tolist() == [0, 0, 0]


@cuda.jit
def formatted(x):
    i = cuda.grid(1)
    print(f"thread {i} has {x[i]:.2f}", i)


def test_an_f_string_is_printed_as_python_formats_it(capsys: Any):
    launch(formatted, 1, 2, (np.array([0.5, 1.25]),), Device(H200))
    assert capsys.readouterr().out == "thread 0 has 0.50 0\nthread 1 has 1.25 1\n"


@cuda.jit
def with_end(out):
    print(1, end="")


@cuda.jit
def of_an_array(out):
    print(out)


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        (with_end, {}, "print\\(\\) with keywords or \\*; give the items by position"),
        (of_an_array, {}, "print is not compiled"),
        (hello, {"counts_only": True}, "print is not compiled"),
        (hello, {"engine": "compiled"}, "print is not compiled; leave it to the Python oracle"),
    ],
)
def test_what_cannot_be_printed_is_refused(kernel: Any, options: dict[str, Any], message: str):
    with pytest.raises(UnsupportedFeature, match=message):
        launch(kernel, 1, 1, (np.zeros(4),), Device(H200), **options)


def test_a_call_prints_32_items_at_most(tmp_path: Any, capsys: Any):
    for count in (32, 33):
        items = ", ".join("r[0]" for _ in range(count))
        text = f"from dsl import cuda\n@cuda.jit\ndef many(r):\n    print({items})\n"
        kernel = load_source(text, tmp_path, f"many_{count}").many
        if count == 32:
            kernel[1, 1](np.zeros(1, np.int32))
            assert capsys.readouterr().out == " ".join(["0"] * 32) + "\n"
        else:
            with pytest.raises(UnsupportedFeature, match="of 33 items; CUDA prints at most 32"):
                kernel[1, 1](np.zeros(1, np.int32))
