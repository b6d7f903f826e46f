"""The same source for numba.cuda: what is exchanged, what stays, what is refused; registers from ptxas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernels_real
import kernels_sim
from dsl import cuda, ptx
from gpusim.errors import BadOption, LaunchRefused, UnsupportedFeature
from gpusim.memory import VirtualArray
from kernels_real.numba_source import rebuilt
from kernels_sim.problem import Data

SIZE = 4


@cuda.jit(device=True)
def doubled(x):
    return x + x


@cuda.jit(device=True)
def fourfold(x):
    return doubled(doubled(x))


@cuda.jit
def by_device_functions(a):
    i = cuda.grid(1)
    if i < SIZE:
        a[i] = fourfold(a[i]) + doubled(a[i])


@cuda.jit
def with_ptx(a):
    i = cuda.grid(1)
    ptx.cp_async_commit_group()
    a[i] = 0


def made_with(flag: bool) -> Any:
    @cuda.jit
    def kernel(a):
        if flag:
            a[cuda.grid(1)] = 1

    return kernel


def test_a_kernel_that_was_given_a_name_has_it_in_a_profiler_too() -> None:
    """numba makes the name that ncu shows from __qualname__."""
    kernel = made_with(True)
    kernel.py_func.__name__ = "ones"
    assert rebuilt(kernel.py_func, cuda).__qualname__ == "made_with.<locals>.ones"
    assert rebuilt(by_device_functions.py_func, cuda).__qualname__ == "by_device_functions"


class FakeCuda:
    """Be a numba.cuda that runs one thread, thread 2, and counts what it compiles."""

    def __init__(self) -> None:
        self.compiled: list[str] = []

    def jit(self, func: Any, device: bool = False) -> Any:
        self.compiled.append(func.__name__)
        return func

    def grid(self, _: int) -> int:
        return 2


def test_the_copy_runs_with_another_cuda_and_the_original_keeps_its_own() -> None:
    fake = FakeCuda()
    a = np.ones(SIZE)
    rebuilt(by_device_functions.py_func, fake)(a)
    assert a.tolist() == [1, 1, 6, 1]
    assert by_device_functions.py_func.__globals__["cuda"] is cuda


def test_each_device_function_is_compiled_once() -> None:
    fake = FakeCuda()
    made: dict[Any, Any] = {}
    rebuilt(by_device_functions.py_func, fake, made)
    rebuilt(by_device_functions.py_func, fake, made)
    assert sorted(fake.compiled) == ["doubled", "fourfold"]


def test_variables_of_a_closure_keep_their_values() -> None:
    fake, a = FakeCuda(), np.zeros(SIZE)
    rebuilt(made_with(True).py_func, fake)(a)
    rebuilt(made_with(False).py_func, fake)(a)
    assert a.tolist() == [0, 0, 1, 0]


def test_an_extension_is_refused_with_its_line() -> None:
    line = with_ptx.py_func.__code__.co_firstlineno + 3
    with pytest.raises(UnsupportedFeature, match=rf"test_numba_source.py:{line}: ptx.cp_async_commit_group"):
        rebuilt(with_ptx.py_func, FakeCuda())


@pytest.mark.parametrize("kernel", ["matmul_mma", "matmul_fp8"])
def test_the_kernels_of_tensor_cores_are_refused(kernel: str) -> None:
    spec = kernels_sim.find(kernel)
    (step,) = spec.build(spec.options(), Data(virtual=True)).steps
    with pytest.raises(UnsupportedFeature, match=rf"{kernel}.py:\d+: ptx\.\w+ is not in numba.cuda"):
        rebuilt(step.kernel.py_func, FakeCuda())


@pytest.fixture
def numba_cuda() -> Any:
    return pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")


def problem_of(array: Any) -> Any:
    step = SimpleNamespace(
        kernel=by_device_functions, grid=(1,), block=(SIZE,), args=(array,), shared_bytes=0)
    return SimpleNamespace(name="by_device_functions", steps=(step,), outputs={"a": array}, inputs={})


def test_numba_says_what_it_cannot_run(numba_cuda: Any) -> None:
    import ml_dtypes

    with pytest.raises(UnsupportedFeature, match="numba.cuda takes no arrays of bfloat16"):
        kernels_real.prepare(problem_of(np.zeros(SIZE, ml_dtypes.bfloat16)), "numba")
    with pytest.raises(BadOption, match="there is: max_registers=N"):
        kernels_real.prepare(problem_of(np.zeros(SIZE, np.float32)), "numba", num_warps=4)


def test_without_a_gpu_numba_refuses_to_run(numba_cuda: Any) -> None:
    from numba import cuda as real

    if real.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(LaunchRefused, match="no GPU that numba.cuda can use"):
        kernels_real.prepare(problem_of(np.zeros(SIZE, np.float32)), "numba")


BY_SIMULATOR = """
import kernels_sim, kernels_real
from kernels_sim.problem import Data
from kernels_sim.check import largest_error

for name, options in (("softmax_rows", {"rows": 1, "cols": 40}), ("histogram", {"n": 40, "bins": 9})):
    spec = kernels_sim.find(name)
    problem = spec.build(spec.options(**options), Data(7))
    prepared = kernels_real.prepare(problem, "numba")
    prepared.launch()
    prepared.refill()  # as it was: a histogram would count twice
    prepared.launch()
    found = prepared.outputs()
    for output, x in problem.reference().items():
        assert largest_error(found[output], x) <= problem.tolerance, (name, output)
print("right")
"""


@pytest.mark.slow
def test_numba_s_own_simulator_runs_the_same_source_to_the_reference() -> None:
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run([sys.executable, "-c", BY_SIMULATOR], cwd=Path(__file__).parents[2], env=env,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.stdout.strip() == "right", done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["vec_add", "transpose", "softmax_rows", "flash_forward", "flash_decode",
                                    "flash_backward", "histogram", "qk_norm_rope"])
def test_kernels_give_the_reference_on_a_gpu(numba_cuda: Any, kernel: str) -> None:
    from kernels_sim.check import largest_error

    spec = kernels_sim.find(kernel)
    problem = spec.build(spec.options(), Data(seed=7))
    found = kernels_real.run(problem, "numba")
    errors = {name: largest_error(found[name], x) for name, x in problem.reference().items()}
    assert {n: e for n, e in errors.items() if not e <= problem.tolerance} == {}


# Registers without a GPU


@pytest.fixture
def ptxas() -> Any:
    from kernels_real import ptxas

    try:
        ptxas.find_ptxas()
    except LaunchRefused as missing:
        pytest.skip(str(missing))
    return ptxas


def test_ptxas_gives_the_registers_that_are_recorded(ptxas: Any) -> None:
    spec = kernels_sim.find("transpose")
    (step,) = spec.build(spec.options(), Data(virtual=True)).steps
    found = ptxas.resources(step.kernel, step.args)
    assert (found.registers, found.stack_bytes, found.spill_bytes) == (step.registers, 0, 0)
    assert found.source.endswith("sm_90")


def test_ptxas_compiles_device_functions_too(ptxas: Any) -> None:
    found = ptxas.resources(by_device_functions, (VirtualArray((SIZE,), np.dtype(np.float32)),))
    assert found.registers == 16


def test_registers_of_ptxas_need_its_packages_and_say_so() -> None:
    from kernels_real import ptxas

    missing = [p for p in ptxas.PACKAGES if not ptxas._installed(p)]
    if not missing:
        pytest.skip("all of them are installed")
    with pytest.raises(LaunchRefused, match=f"registers from ptxas need {missing[0]}"):
        ptxas.resources(by_device_functions, ())
