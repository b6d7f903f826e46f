"""Compile the simulator's inner loops once, and keep the machine code on disk.

What it models: nothing of a GPU; it is how every numba function of the package becomes machine code. What
it leaves out: the kernels of a user, which dsl/codegen/kernel.py compiles. No ncu metric checks it.

Numba's disk cache looks at the file of a function and not at the files of what it calls: after a change in
a callee it gives the old answer. So the cache lives in a directory named by a hash of all sources that
become machine code, the versions of the compilers and the CPU; another hash is another directory, and old
ones are removed after 30 days.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

MAX_AGE_S = 30 * 24 * 3600
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False,
                           "no_cfunc_wrapper": True}  # fmt: skip
"""_nrt False: no reference counts; nothing here allocates, and with them replay took twice as long.
no_cfunc_wrapper: no function here goes by a C pointer but those of CEntry; the wrappers took 1.3 s of 20."""
CONSTANTS = ("trace.py", "runtime.py")
"""Files without numba functions of their own whose constants are compiled into those of others."""
_decorating = threading.Lock()


def source_files(package: Path = Path(__file__).parent) -> list[Path]:
    """Return the files whose text decides the machine code: those that use this module, and CONSTANTS."""
    files = sorted(package.glob("*.py"))
    return [
        f for f in files if f.name in CONSTANTS or "gpusim.runtime import" in f.read_text(encoding="utf-8")
    ]


def cache_key(files: list[Path]) -> str:
    """Return a hash of the files' names and texts, the compilers' versions, and the CPU."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    machine = cpu_target.target_context.codegen().magic_tuple()
    versions = [version(name) for name in ("numba", "llvmlite", "numpy")]
    digest.update(repr((machine, versions, sys.version_info[:2])).encode())
    return digest.hexdigest()[:20]


def cache_home() -> Path:
    """Return a directory that can be written: in $XDG_CACHE_HOME, ~/.cache or the temporary directory."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = Path(base) / "gpusim"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            return home
    except OSError:
        user = str(os.getuid()) if hasattr(os, "getuid") else "user"
        home = Path(tempfile.gettempdir()) / f"gpusim-{user}"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return home


def remove_old(home: Path, keep: str, now: float) -> None:
    """Remove cache directories but `keep`, and kernels, not used for MAX_AGE_S, where they can be removed."""
    for directory in home.glob("numba-*"):
        with suppress(OSError):  # another process may remove it first
            if directory.name != keep and now - directory.stat().st_mtime > MAX_AGE_S:
                shutil.rmtree(directory, ignore_errors=True)
    for kernel in home.glob("kernels/*"):
        with suppress(OSError):
            if now - kernel.stat().st_mtime > MAX_AGE_S:
                kernel.unlink()


@cache
def cache_directory() -> Path:
    """Return the directory of this key, made and marked as used now."""
    home = cache_home()
    directory = home / f"numba-{cache_key(source_files())}"
    directory.mkdir(exist_ok=True)
    os.utime(directory)
    remove_old(home, directory.name, time.time())
    return directory


@contextmanager
def _own_cache() -> Iterator[None]:
    """Point numba at our directory while a function is decorated: a user's own numba code keeps its cache."""
    with _decorating:
        config: Any = numba.config
        before = config.CACHE_DIR
        config.CACHE_DIR = str(cache_directory())
        try:
            yield
        finally:
            config.CACHE_DIR = before


def jit(function: F) -> F:
    """Decorate a function as machine code: compiled on its first call, then read from disk.

    It runs without the GIL, allocates no array, and stays callable from Python.
    """
    with _own_cache():
        return cast(F, numba.njit(**OPTIONS)(function))


def jit_inlined(function: F) -> F:
    """Decorate, as `jit`, a function that LLVM puts into its callers: replay is twice as fast."""
    with _own_cache():
        return cast(F, numba.njit(**OPTIONS, forceinline=True)(function))


class CEntry:
    """Hold a function that machine code calls by its address; it is compiled when first asked for."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.function = function
        self.signature = signature
        self.__doc__ = function.__doc__

    @cached_property
    def _compiled(self) -> Any:
        with _own_cache():
            return numba.cfunc(self.signature, cache=True, error_model="numpy")(self.function)

    @property
    def address(self) -> int:
        """Return the address of the C function."""
        return int(self._compiled.address)

    @property
    def ctypes(self) -> Any:
        """Return the C function as a ctypes object, callable from Python."""
        return self._compiled.ctypes


def c_entry(signature: Any) -> Callable[[Callable[..., Any]], CEntry]:
    """Decorate a function as a C entry point of a numba signature."""
    return lambda function: CEntry(function, signature)


@jit_inlined
def signed(x: Any) -> int:
    """Return an unsigned integer below 2**63 as a signed one: in numba uint64 + int64 is a float."""
    return np.int64(x)  # type: ignore[return-value]


def _popcount(typing: Any, x: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, builder.ctpop(args[0]), signature.args[0], types.int64)

    return types.int64(x), emit


def _trailing_zeros(typing: Any, x: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, builder.cttz(args[0], cgutils.false_bit), signature.args[0], types.int64)

    return types.int64(x), emit


popcount: Callable[[Any], int] = cast(Any, intrinsic(_popcount))
"""Return the number of one bits of an integer (inside a compiled function only)."""
trailing_zeros: Callable[[Any], int] = cast(Any, intrinsic(_trailing_zeros))
"""Return the number of the lowest one bit of an integer, its width for 0 (compiled only)."""
