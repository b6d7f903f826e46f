"""What a kernel answers about its compilations, and which of its signatures a launch takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import float64, int32, void

from dsl import cuda
from gpusim import session
from gpusim.arch import get_arch
from gpusim.errors import LaunchRefused, NoSuchOverload
from tests.dsl.three_engines import agreed


def tile(o, x):
    s = cuda.shared.array((32, 33), np.float32)
    t = cuda.threadIdx.x
    s[t, 0] = x[t]
    cuda.syncthreads()
    o[t] = s[31 - t, 0]


def launched(kernel: Any) -> Any:
    kernel[1, 32](np.zeros(32, np.float32), np.ones(32, np.float32))
    return kernel


def test_each_list_of_argument_types_is_an_overload():
    kernel = launched(cuda.jit(tile))
    kernel[1, 32](np.zeros(32), np.ones(32, np.float32))
    assert len(launched(kernel).overloads) == 2
    assert list(kernel.get_shared_mem_per_block().values()) == [4 * 32 * 33] * 2


def test_a_signature_is_an_overload_without_a_launch():
    signature = void(float64[::1], float64[::1])
    kernel = cuda.jit(signature)(tile)
    assert list(kernel.overloads) == [signature.args]
    assert kernel.get_shared_mem_per_block(signature) == kernel.get_shared_mem_per_block() == 4224
    assert kernel.get_local_mem_per_thread(signature) == 0


def test_a_specialised_kernel_answers_with_numbers():
    kernel = cuda.jit(tile).specialize(np.zeros(32, np.float32), np.ones(32, np.float32))
    assert kernel.specialized and kernel.get_shared_mem_per_block() == 4224
    assert kernel.get_max_threads_per_block() == 1024
    with pytest.raises(RuntimeError, match="Dispatcher already specialized") as error:
        kernel.specialize(1)
    assert isinstance(error.value, LaunchRefused)


def test_a_kernel_of_one_signature_is_specialised_and_one_without_has_a_special_one_for_each_types():
    signature = void(float64[::1], float64[::1])
    assert cuda.jit(signature)(tile).specialized
    kernel = cuda.jit(tile)
    special = kernel.specialize(*signature.args)
    assert kernel.specialize(np.zeros(3), np.zeros(4)) is special and len(kernel.specializations) == 1
    assert special.get_const_mem_size() == 0


def test_max_registers_cuts_registers_and_is_given():
    free, capped = launched(cuda.jit(tile)), launched(cuda.jit(max_registers=17)(tile))
    (estimate,), (given,) = free.get_regs_per_thread().values(), capped.get_regs_per_thread().values()
    assert given == min(estimate, 17)


def test_a_cooperative_grid_fills_the_gpu():
    kernel = launched(cuda.jit(tile))
    (overload,) = kernel.overloads.values()
    with session.use(session.Session(get_arch("h200"))):
        # 4,224 + 1,024 bytes round up to 5,248: 44 fit in 233,472, and an SM holds 32 blocks.
        assert overload.max_cooperative_grid_blocks(32) == 132 * 32
        # 65,536 bytes more: 70,784 bytes a block, 3 fit.
        assert overload.max_cooperative_grid_blocks((32, 1), 65536) == 132 * 3


def add(r, x, y):
    r[0] = x + y


def test_of_several_signatures_the_best_fit_decides_the_types():
    kernel = cuda.jit(["(float64[::1], int32, int32)", "(float64[::1], float32, float32)"])(add)
    r = np.zeros(1)
    kernel[1, 1](r, np.int32(1), np.int32(2))
    assert r[0] == 3
    kernel[1, 1](r, np.float32(1), np.float32(2**-25))
    assert r[0] == 1  # the sum of two float32
    with pytest.raises(NoSuchOverload, match="No matching definition for argument types .*complex128"):
        kernel[1, 1](r, 1j, 1j)


def test_an_exact_signature_goes_before_one_that_converts():
    kernel = cuda.jit([(float64[::1], float64, float64), (float64[::1], int32, int32)])(add)
    r = np.zeros(1)
    kernel[1, 1](r, np.int32(2**31 - 1), np.int32(1))
    assert r[0] == 2**31  # int32 + int32 is int64
    assert len(kernel.overloads) == 2


@pytest.mark.parametrize(
    ("grid", "block", "kind", "said"),
    [
        ((1, 2, 3, 4), 1, ValueError, r"griddim must be a sequence of 1, 2 or 3 .*, got \[1, 2, 3, 4\]"),
        (1, (), ValueError, r"blockdim must be a sequence of 1, 2 or 3 integers, got \[\]"),
        (2.0, 1, TypeError, r"griddim must be a sequence of integers, got \[2.0\]"),
    ],
)
def test_a_grid_that_is_none_is_refused_before_the_launch(grid: Any, block: Any, kind: type, said: str):
    with pytest.raises(kind, match=said) as error:
        cuda.jit(add)[grid, block]
    assert isinstance(error.value, LaunchRefused)


def test_a_kernel_needs_a_grid_and_forall_a_number_of_tasks():
    kernel = cuda.jit(add)
    with pytest.raises(ValueError, match=r"launch configuration was not specified; write add\[grid, block\]"):
        kernel(np.zeros(1), 1, 2)
    with pytest.raises(ValueError, match="negative task count: -1"):
        kernel.forall(-1)
    r = np.zeros(1)
    kernel.forall(0)(r, 1, 2)
    assert r[0] == 0
    kernel.forall(1)(r, 1, 2)
    assert r[0] == 3


class OneMore:
    """Be an extension that adds one to numbers and says when the launch is done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def prepare_args(self, ty: Any, val: Any, stream: Any, retr: list[Any]) -> tuple[Any, Any]:
        retr.append(lambda: self.done.append("after"))
        return ty, val + 1 if isinstance(val, int) else val


def test_an_extension_changes_arguments_and_is_called_after_the_launch():
    extension, r = OneMore(), np.zeros(1)
    cuda.jit(extensions=[extension])(add)[1, 1](r, 1, 2)
    assert r[0] == 5 and extension.done == ["after"] * 3


def test_device_arrays_keep_the_order_of_axes():
    f = cuda.device_array((3, 4), np.float32, order="F")
    assert f.strides == (4, 12) and f.flags["F_CONTIGUOUS"] and not f.flags["C_CONTIGUOUS"]
    assert cuda.device_array_like(f).strides == (4, 12)
    assert cuda.to_device(np.ones((3, 4), np.float32, order="F")).strides == (4, 12)
    assert cuda.device_array_like(cuda.device_array((6, 8))[::2, ::2]).strides == (32, 8)
    assert f.copy_to_host().strides == (4, 12)
    assert cuda.pinned_array_like(f).strides == (4, 12)


@cuda.jit("float32(float32, float32)", device=True)
def sum_in_float32(x, y):
    return x + y


@cuda.jit(["int64(int64, int64)", "float64(float64, float64)"], device=True)
def sum_of_two_kinds(x, y):
    return x + y


@cuda.jit(int32(int32), device=True)
def as_int32(x):
    return x + 1


@cuda.jit
def calls(o, x):
    o[0] = sum_in_float32(x[0], x[1])
    o[1] = sum_of_two_kinds(x[0], x[1])
    o[2] = sum_of_two_kinds(3, 4) // 2
    o[3] = as_int32(2147483647.9)


def test_the_signature_of_a_device_function_converts_its_numbers_and_its_result():
    x = np.array([1, 2**-25])
    _, (o, _) = agreed(calls, 1, 1, lambda: (np.zeros(4), x.copy()))
    # In float32 the sum is 1; int64 7 // 2 is 3; an int32 wraps.
    assert o.tolist() == [1, 1 + 2**-25, 3, -(2**31)]
