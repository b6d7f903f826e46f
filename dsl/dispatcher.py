"""A kernel, or a device function, on the host: what `@cuda.jit` makes of a Python function.

What it models: numba.cuda's dispatcher: one compilation for each list of argument types, kept. What it leaves
out: the launch itself (dsl/launch.py). Checked by no metric.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsl import ir
from dsl.frontend import compile_function
from dsl.signature import argument_types, from_numba
from dsl.surface import WARP_SIZE
from dsl.types import AnyType
from gpusim.errors import LaunchRefused


class Dispatcher:
    """Be a kernel, or a device function: what `@cuda.jit` returns.

    `kernel[grid, block, stream, shared_bytes](*args)` launches it on the current session's GPU
    (gpusim/session.py). A device function is called from kernels only. py_func is the Python function.
    """

    def __init__(
        self, py_func: Callable[..., Any], device: bool = False, options: dict[str, Any] | None = None
    ) -> None:
        self.py_func, self.device, self.options = py_func, device, dict(options or {})
        self.__name__, self.__doc__ = py_func.__name__, py_func.__doc__
        self.__module__ = py_func.__module__
        self._functions: dict[tuple[AnyType, ...], ir.Function] = {}
        self._compiled: dict[Any, Any] = {}

    def function(self, arg_types: tuple[AnyType, ...]) -> ir.Function:
        """Return the kernel as WarpIR for arguments of these types."""
        if arg_types not in self._functions:
            self._functions[arg_types] = compile_function(self.py_func, arg_types)
        return self._functions[arg_types]

    def compiled(self, arg_types: tuple[AnyType, ...], key: Any) -> Any:
        """Return the machine code (dsl.engine.Compiled) for argument types and a dsl.engine.Key."""
        from dsl.engine import Compiled

        if (arg_types, key) not in self._compiled:
            self._compiled[arg_types, key] = Compiled(self.function(arg_types), key)
        return self._compiled[arg_types, key]

    def compile(self, signature: Any) -> Any:
        """Return the machine code (dsl.engine.Compiled) for a signature of numba's, without a launch.

        The block is one warp. Raises UnsupportedFeature for what the language does not have.
        """
        from dsl.engine import Key

        arg_types = tuple(map(from_numba, argument_types(signature) or ()))
        return self.compiled(arg_types, Key((WARP_SIZE, 1, 1), False, False, frozenset()))

    def __getitem__(self, configuration: Any) -> Callable[..., None]:
        """Return a function that launches; two to four of grid, block, stream and shared_bytes are given."""
        if self.device:
            raise LaunchRefused(f"{self.__name__} is a device function; call it from a kernel")
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            name = self.__name__
            raise LaunchRefused(f"write {name}[grid, block] or {name}[grid, block, stream, shared_bytes]")
        grid, block, _, shared_bytes = (*configuration, 0, 0)[:4]

        def run(*args: Any, **named: Any) -> None:
            if named:
                raise LaunchRefused(f"kernel {self.__name__} takes its arguments in order, not "
                                    f"{', '.join(named)}=")
            from dsl.launch import launch_in_session

            launch_in_session(self, grid, block, args, shared_bytes)

        return run

    configure = __getitem__

    def forall(self, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Callable[..., None]:
        """Return a function that launches at least `ntasks` threads in blocks of `tpb` (256 if 0)."""
        block = tpb or 256
        return self[max(1, -(-ntasks // block)), block, stream, sharedmem]

    def __call__(self, *args: Any) -> Any:
        """Refuse a call from the host; a kernel needs a grid and a block."""
        raise LaunchRefused(
            f"{self.__name__} is a device function; call it from a kernel" if self.device
            else f"kernel {self.__name__} needs a grid and a block: {self.__name__}[grid, block](...)"
        )  # fmt: skip

    def inspect_llvm(self) -> dict[tuple[AnyType, ...], str]:
        """Return the LLVM text of each compilation so far, by argument types: code for the host, not PTX."""
        return {arg_types: code.text for (arg_types, _), code in self._compiled.items()}
