"""Kernels of this project's language on a real GPU through numba-cuda, from the same source.

A backend as kernels_real/__init__.py has it: a problem is taken for its `name`, `steps` and `outputs`. Arrays
are copied to the GPU once, each launch gets the arrays and numbers of its step. With NUMBA_ENABLE_CUDASIM=1
numba's simulator runs them, without a GPU. What it leaves out: element types that numba.cuda does not have,
arrays with gaps, and what kernels_real/numba_source.py refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.errors import BadOption, LaunchRefused, UnsupportedFeature
from gpusim.memory import VirtualArray
from kernels_real.numba_source import real_cuda, rebuilt

MOST_WITHOUT_ASKING = 48 << 10
"""Bytes of dynamic shared memory that a kernel may have unless it is asked for more."""
CONFIGURATION = ("max_registers",)


@dataclass(frozen=True)
class Launch:
    """Describe one launch: kernel[grid, block, 0, shared_bytes](*args), args on the GPU."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    args: tuple[Any, ...]


class Prepared:
    """Hold a problem's launches and its arrays on the GPU."""

    def __init__(self, problem: Any, cuda: Any, options: dict[str, Any]) -> None:
        self._cuda, self._outputs = cuda, problem.outputs
        self._arrays: dict[int, tuple[np.ndarray, Any]] = {}
        self.launches = tuple(self._launch(problem.name, step, options) for step in problem.steps)
        self.compiled: list[Any] = []

    def _launch(self, problem: str, step: Any, options: dict[str, Any]) -> Launch:
        func = step.kernel.py_func
        kernel = jitted(func, self._cuda, options)
        args = tuple(self._argument(problem, a) for a in step.args)
        return Launch(func.__name__, kernel, tuple(step.grid), tuple(step.block), step.shared_bytes, args)

    def _argument(self, problem: str, value: Any) -> Any:
        """Return an argument as it goes to the kernel: an array on the GPU, the same one for all launches."""
        if isinstance(value, VirtualArray):
            raise LaunchRefused(f"{problem}: the problem has no data to run with; build it without "
                                "--counts-only")
        if not isinstance(value, np.ndarray):
            return value
        require_type(problem, value)
        if not value.flags.c_contiguous:
            raise LaunchRefused(f"{problem}: an array of shape {value.shape} has gaps or another order; "
                                "on a real GPU arrays are contiguous")
        key = value.ctypes.data
        if key not in self._arrays:
            self._arrays[key] = value, self._cuda.to_device(value)
        host, there = self._arrays[key]
        if (host.shape, host.dtype) != (value.shape, value.dtype):
            raise LaunchRefused(f"{problem}: arrays of shapes {host.shape} and {value.shape} share memory")
        return there

    def compile(self) -> list[Any]:
        """Compile all kernels without launching one; return what numba made of each.

        numba's simulator has nothing to compile. Raises UnsupportedFeature with numba's own words for what
        it does not compile.
        """
        real = [x for x in self.launches if hasattr(x.kernel, "typeof_pyval")]
        self.compiled = [compiled(x) for x in real]
        return self.compiled

    def launch(self) -> None:
        """Run all launches in order, and wait for the last one."""
        if not self.compiled:
            self.compile()
        for x in self.launches:
            x.kernel[x.grid, x.block, 0, x.shared_bytes](*x.args)
        self._cuda.synchronize()

    def refill(self) -> None:
        """Fill all arrays as they were before the first launch."""
        for host, there in self._arrays.values():
            there.copy_to_device(host)

    def outputs(self) -> dict[str, np.ndarray]:
        """Return the outputs by name, as numpy arrays in the problem's types."""
        found = ((name, x, self._arrays.get(x.ctypes.data)) for name, x in self._outputs.items())
        return {name: held[1].copy_to_host().reshape(x.shape) for name, x, held in found if held is not None}

    def resources(self) -> list[dict[str, int]]:
        """Return registers and bytes of local memory a thread of each launch, as the driver has them."""
        return [
            {"registers": int(c.regs_per_thread), "local_bytes": int(c.local_mem_per_thread)}
            for c in self.compiled
        ]


def prepare(problem: Any, **configuration: Any) -> Prepared:
    """Copy a problem's arrays to the GPU; launch nothing.

    configuration: max_registers. Raises UnsupportedFeature for a kernel that leaves the common subset,
    LaunchRefused where numba-cuda or a GPU is missing, BadOption for another configuration.
    """
    for given, value in configuration.items():
        if given not in CONFIGURATION or isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise BadOption(f"numba has no configuration {given}={value!r}; there is: max_registers=N")
    cuda = real_cuda()
    for step in problem.steps:  # a kernel that numba does not have is refused without a GPU too
        rebuilt(step.kernel.py_func, cuda)
        for array in step.args:
            if hasattr(array, "dtype"):
                require_type(problem.name, array)
    if not cuda.is_available():
        raise LaunchRefused("no GPU that numba.cuda can use is here")
    return Prepared(problem, cuda, configuration)


def require_type(problem: str, array: Any) -> None:
    """Raise UnsupportedFeature for an array of a type that numba.cuda does not take from numpy."""
    from numba import errors, from_dtype

    try:
        from_dtype(np.dtype(array.dtype))
    except errors.NumbaNotImplementedError:
        raise UnsupportedFeature(f"{problem}: numba.cuda takes no arrays of {array.dtype}") from None


_DEVICE_FUNCTIONS: dict[Any, Any] = {}
_KERNELS: dict[Any, Any] = {}
"""What was made of a function stays, so that many problems of one kernel are compiled once."""


def jitted(func: Any, cuda: Any, options: dict[str, Any]) -> Any:
    """Return numba's kernel of a simulated kernel's function."""
    key = func, tuple(options.items())
    if key not in _KERNELS:
        _KERNELS[key] = cuda.jit(rebuilt(func, cuda, _DEVICE_FUNCTIONS), **options)
    return _KERNELS[key]


def compiled(launch: Launch) -> Any:
    """Return numba's kernel for a launch's arguments, allowed its dynamic shared memory."""
    from numba.core.errors import NumbaError

    types = tuple(launch.kernel.typeof_pyval(a) for a in launch.args)
    try:
        made = launch.kernel.compile(types)
    except NumbaError as error:
        said = str(error).strip().splitlines()
        raise UnsupportedFeature(f"{launch.name}: numba.cuda does not compile it: {' '.join(said[:3])}"
                                 ) from None  # fmt: skip
    if launch.shared_bytes > MOST_WITHOUT_ASKING:
        allow_shared(made, launch.shared_bytes)
    return made


def allow_shared(made: Any, shared_bytes: int) -> None:
    """Let a kernel have more dynamic shared memory than 48 KB, as numba does not ask for it."""
    from cuda.bindings import driver

    function = made._codelibrary.get_cufunc()
    what = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    if type(function.handle).__name__ == "CUkernel":
        (status,) = driver.cuKernelSetAttribute(what, shared_bytes, function.handle, 0)
    else:
        handle = driver.CUfunction(int(getattr(function.handle, "value", function.handle)))
        (status,) = driver.cuFuncSetAttribute(handle, what, shared_bytes)
    if int(status):
        raise LaunchRefused(f"the GPU gives no block {shared_bytes:,} bytes of shared memory: {status}")
