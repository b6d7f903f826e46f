"""A kernel, or a device function, on the host: what `@cuda.jit` makes of a Python function.

What it models: numba.cuda's dispatcher: one compilation for each list of argument types, kept. What it leaves
out: the launch itself (dsl/host/launch.py). Checked by no metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from dsl.frontend.compile import compile_function
from dsl.host.overloads import AsksOverloads, Overload, Signature
from dsl.intrinsics.surface import WARP_SIZE
from dsl.semantics.messages import Dim3, dim3
from dsl.types import AnyType, arg_type
from dsl.types.signature import argument_types, from_numba, is_numba_type, signatures, to_numba
from dsl.warpir import ir
from gpusim.errors import AlreadySpecialised, LaunchRefused, UnsupportedFeature, WrongType, WrongValue


def dimensions(size: Any, what: str, kernel: str) -> Dim3:
    """Return a grid or block size filled up with ones to (x, y, z); `what` is numba's name of it.

    Raise WrongValue for more than three numbers or none, WrongType for one that is no integer.
    """
    values = [*size] if isinstance(size, Sequence) else [size]
    if not 1 <= len(values) <= 3:
        raise WrongValue(f"kernel {kernel}: {what} must be a sequence of 1, 2 or 3 integers, got {values}")
    if not all(isinstance(v, (int, np.integer)) for v in values):
        raise WrongType(f"kernel {kernel}: {what} must be a sequence of integers, got {values}")
    return dim3(tuple(int(v) for v in values))


class Dispatcher(AsksOverloads):
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
        self.extensions: list[Any] = [*(self.options.get("extensions") or ())]
        self.specialized = len(signatures(self.options.get("signature"))) == 1
        self.specializations: dict[tuple[AnyType, ...], Dispatcher] = {}
        self._functions: dict[tuple[AnyType, ...], ir.Function] = {}
        self._compiled: dict[Any, Any] = {}

    def function(self, arg_types: tuple[AnyType, ...]) -> ir.Function:
        """Return the kernel as WarpIR for arguments of these types."""
        if arg_types not in self._functions:
            debug = bool(self.options.get("debug"))
            self._functions[arg_types] = compile_function(self.py_func, arg_types, debug=debug)
        return self._functions[arg_types]

    def compiled(self, arg_types: tuple[AnyType, ...], key: Any) -> Any:
        """Return the machine code (dsl.engine.run.Compiled) for argument types and a dsl.engine.run.Key."""
        from dsl.engine.run import Compiled

        if (arg_types, key) not in self._compiled:
            self._compiled[arg_types, key] = Compiled(self.function(arg_types), key)
        return self._compiled[arg_types, key]

    def compile(self, signature: Any) -> Any:
        """Return the machine code (dsl.engine.run.Compiled) for a signature of numba's, without a launch.

        The block is one warp. Raises UnsupportedFeature for what the language does not have.
        """
        from dsl.engine.run import Key

        arg_types = tuple(map(from_numba, argument_types(signature) or ()))
        return self.compiled(arg_types, Key((WARP_SIZE, 1, 1), False, False, frozenset()))

    def __getitem__(self, configuration: Any) -> Callable[..., None]:
        """Return a function that launches; two to four of grid, block, stream and shared_bytes are given.

        Raise LaunchRefused (a ValueError or a TypeError too) for a grid or a block that is none.
        """
        if self.device:
            raise LaunchRefused(f"{self.__name__} is a device function; call it from a kernel")
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            name = self.__name__
            raise LaunchRefused(f"write {name}[grid, block] or {name}[grid, block, stream, shared_bytes]")
        _, _, _, shared_bytes = (*configuration, 0, 0)[:4]
        grid = dimensions(configuration[0], "griddim", self.__name__)
        block = dimensions(configuration[1], "blockdim", self.__name__)

        def run(*args: Any, **named: Any) -> None:
            if named:
                raise LaunchRefused(f"kernel {self.__name__} takes its arguments in order, not "
                                    f"{', '.join(named)}=")
            from dsl.host.launch import launch_in_session

            launch_in_session(self, grid, block, args, shared_bytes)

        return run

    configure = __getitem__

    def forall(self, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Callable[..., None]:
        """Return a function that launches at least `ntasks` threads in blocks of `tpb` (256 if 0).

        For no tasks it launches nothing. Raise WrongValue for fewer.
        """
        if ntasks < 0:
            raise WrongValue(f"Can't create ForAll with negative task count: {ntasks}")
        block = tpb or 256
        return self[-(-ntasks // block), block, stream, sharedmem] if ntasks else lambda *args: None

    def __call__(self, *args: Any) -> Any:
        """Refuse a call from the host; a kernel needs a grid and a block."""
        name = self.__name__
        raise WrongValue(
            f"{name} is a device function; call it from a kernel" if self.device
            else f"kernel {name}: launch configuration was not specified; write {name}[grid, block](...)"
        )  # fmt: skip

    def extended(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Callable[[], Any]]]:
        """Return arguments as the kernel's extensions change them, and what to call after the launch.

        An extension has numba.cuda's `prepare_args(type, value, stream, retr)`; the type is None here.
        """
        after: list[Callable[[], Any]] = []
        changed = []
        for value in args:
            for extension in reversed(self.extensions):
                _, value = extension.prepare_args(None, value, stream=0, retr=after)
            changed.append(value)
        return tuple(changed), after

    @property
    def overloads(self) -> dict[Signature, Overload]:
        """Return the compilations: those of the signatures given to cuda.jit, and of each launch so far."""
        for signature in signatures(self.options.get("signature")):
            self.function(tuple(map(from_numba, argument_types(signature) or ())))
        limit = self.options.get("max_registers")
        return {tuple(map(to_numba, t)): Overload(fn, limit) for t, fn in self._functions.items()}

    def specialize(self, *args: Any) -> Dispatcher:
        """Return the kernel for arguments like these or of these numba types, the same for the same types.

        Raise AlreadySpecialised for a kernel that is specialised, or has one signature.
        """
        if self.specialized:
            raise AlreadySpecialised(f"kernel {self.__name__}: Dispatcher already specialized")
        kernel = Dispatcher(self.py_func, self.device, self.options)
        kernel.specialized, kernel.extensions = True, [*self.extensions]
        with suppress(UnsupportedFeature):  # said at the launch
            types = tuple(from_numba(a) if is_numba_type(a) else arg_type(a) for a in args)
            kernel = self.specializations.setdefault(types, kernel)
            kernel.function(types)
        return kernel

    def inspect_llvm(self) -> dict[tuple[AnyType, ...], str]:
        """Return the LLVM text of each compilation so far, by argument types: code for the host, not PTX."""
        return {arg_types: code.text for (arg_types, _), code in self._compiled.items()}
