"""A simulated kernel as numba.cuda has it: the same code with another `cuda`, the user's module untouched.

Of a function's globals and closure only what is this project's is exchanged: `dsl.cuda` for numba.cuda, names
of it for numba's, device functions for their own rebuilt copies. What numba.cuda does not have, the namespace
`ptx` and other functions of dsl, is refused with its line.
"""

from __future__ import annotations

import ast
from functools import reduce
from types import CellType, FunctionType, ModuleType
from typing import Any

from dsl import cuda as simulated_cuda
from dsl import ptx
from dsl.intrinsics.device_name import DeviceName
from dsl.syntax.source import find
from gpusim.errors import LaunchRefused, UnsupportedFeature

EXTENSIONS = ptx.__name__.rpartition(".")[2]
"""The namespace of instructions that the kernel language has beyond numba.cuda."""


def real_cuda() -> Any:
    """Return the module numba.cuda; raise LaunchRefused where numba-cuda is missing or does not load.

    With NUMBA_ENABLE_CUDASIM=1 it is numba's own simulator, which counts nothing and needs no numba-cuda.
    """
    try:
        from numba import config, cuda

        if not config.ENABLE_CUDASIM:
            import numba_cuda  # noqa: F401
    except ImportError as error:
        raise LaunchRefused(f"numba.cuda does not load ({error}): pip install numba-cuda") from None
    return cuda


def rebuilt(func: FunctionType, cuda: Any, made: dict[Any, Any] | None = None) -> FunctionType:
    """Return a copy of a kernel's Python function whose `cuda` is numba's; raise UnsupportedFeature.

    made: device functions that were rebuilt before, so that each is compiled once.
    """
    made = {} if made is None else made
    used = set(func.__code__.co_names)
    scope = {n: _exchanged(n, v, func, cuda, made) for n, v in func.__globals__.items() if n in used}
    cells = tuple(
        CellType(_exchanged(name, cell.cell_contents, func, cuda, made))
        for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True)
    )
    copy = FunctionType(func.__code__, {**func.__globals__, **scope}, func.__name__, func.__defaults__, cells)
    within = func.__qualname__.rpartition(".")[0]  # numba names a kernel by __qualname__, we by __name__
    copy.__module__, copy.__qualname__ = func.__module__, f"{within}.{func.__name__}".lstrip(".")
    return copy


def _exchanged(name: str, value: Any, func: FunctionType, cuda: Any, made: dict[Any, Any]) -> Any:
    """Return what stands for a global or a variable of a closure in the copy."""
    if value is simulated_cuda:
        return cuda
    if isinstance(value, DeviceName):
        if value.path.partition(".")[0] == EXTENSIONS:
            raise _refused(func, name, f"{value}")
        return reduce(getattr, value.path.split("."), cuda)
    if getattr(value, "device", False) and isinstance(getattr(value, "py_func", None), FunctionType):
        if value not in made:
            made[value] = cuda.jit(rebuilt(value.py_func, cuda, made), device=True)
        return made[value]
    if _is_of_dsl(value):
        raise _refused(func, name, name)
    return value


def _is_of_dsl(value: Any) -> bool:
    """Return whether a module or a function is one of this project's, which numba.cuda cannot compile."""
    if not isinstance(value, (ModuleType, FunctionType)):
        return False
    where = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return str(where).partition(".")[0] == "dsl"


def _refused(func: FunctionType, name: str, said: str) -> UnsupportedFeature:
    """Return the mistake of asking numba.cuda for something that only the simulator has."""
    file, line, construct = func.__code__.co_filename, func.__code__.co_firstlineno, said
    for node in ast.walk(find(func).tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name:
            line, construct = node.lineno, f"{name}.{node.attr}"
            break
        if isinstance(node, ast.Name) and node.id == name:
            line = node.lineno
    return UnsupportedFeature(
        f"{file}:{line}: {construct} is not in numba.cuda: the simulator alone runs {func.__name__}; "
        "--backend triton runs a version of its own where there is one")
