"""Metal kernels on this CPU: their source compiled as C++ with the headers in shim/, each launch counted.

What is compiled is kept in the user's cache, once for each source with its constants. It checks values,
element loads and stores, barriers and bounds; it says nothing of Apple's compiler or of time.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gpusim.errors import BarrierDivergence, LaunchRefused, OutOfBounds, UnsupportedFeature
from gpusim.runtime import cache_home
from kernels_real.metal_kernels import source
from kernels_real.metal_kernels.launching import Accesses, Launch

HEADERS = source.FOLDER / "shim"
COMPILERS = ("g++", "clang++", "c++")
# No contraction: a multiply-add is fused where the source says fma, on every machine.
FLAGS = ("-std=c++17", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-w")
FAILURES = {1: BarrierDivergence, 2: OutOfBounds}
"""Outcome in shim/launch.h -> error."""
MOST_THREADS = 1024
STACK_BYTES = 65536
MESSAGE_BYTES = 400


class Buffer(ctypes.Structure):
    """Be metal_shim::Buffer."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_int64),
        ("loads", ctypes.c_int64),
        ("stores", ctypes.c_int64),
    )


def compiler() -> str:
    """Return the path of a C++ compiler; raise LaunchRefused without one, or where this is not Linux."""
    if sys.platform != "linux":
        raise LaunchRefused(f"Metal's shim runs on Linux alone, this is {sys.platform}; on a Mac use "
                            'executor="mps"')
    for name in COMPILERS:
        if path := shutil.which(name):
            return path
    raise LaunchRefused(f"Metal's shim needs a C++17 compiler and finds none of {', '.join(COMPILERS)}; "
                        "install g++; version 12 was tried")


@cache
def library(text: str, name: str) -> ctypes.PyDLL:
    """Return a Metal source compiled for this CPU; name: what to call it.

    Raises LaunchRefused, or UnsupportedFeature for Metal that the shim does not have.
    """
    program, translated = compiler(), source.cpp(text)
    home = cache_home() / "metal"
    home.mkdir(exist_ok=True)
    compiled = home / f"{name}-{_key(translated, program)}.so"
    if not compiled.exists():
        _compile(program, name, translated, compiled)
    # PyDLL keeps Python's lock during a call: the fibres of a library are one set.
    return ctypes.PyDLL(str(compiled))


def _key(text: str, program: str) -> str:
    """Return what a compiled source depends on, hashed: itself, the headers, the compiler, the machine."""
    digest = hashlib.sha256(text.encode())
    for header in sorted(HEADERS.iterdir()):
        digest.update(header.read_bytes())
    changed = Path(program).resolve().stat().st_mtime_ns
    digest.update(repr((program, changed, FLAGS, platform.machine())).encode())
    return digest.hexdigest()[:20]


def _compile(program: str, name: str, text: str, compiled: Path) -> None:
    """Compile C++ to a shared library that appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=compiled.parent, prefix=".") as folder:
        made = Path(folder) / compiled.name
        command = [program, *FLAGS, "-I", str(HEADERS), "-x", "c++", "-", "-o", str(made)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            why = (errors or done.stderr.splitlines() or [f"{program} ended with {done.returncode}"])[0]
            raise UnsupportedFeature(f"{name}.metal does not compile with the shim's headers: {why}")
        os.replace(made, compiled)


def run(launch: Launch, arrays: Mapping[str, np.ndarray], backwards: bool = False) -> dict[str, Accesses]:
    """Run one launch on arrays and return the element loads and stores of each buffer in device memory.

    backwards: the threads of a threadgroup go in descending order between barriers. Raises BarrierDivergence
    and OutOfBounds, with what was written until then in the arrays.
    """
    threads = int(np.prod(launch.block))
    if not 1 <= threads <= MOST_THREADS:
        raise LaunchRefused(f"{launch.kernel}: a threadgroup has 1 to {MOST_THREADS} threads, got {threads}")
    bound = launch.bound(arrays)
    buffers = (Buffer * len(bound))(*(Buffer(n.encode(), a.ctypes.data, a.size) for n, a in bound.items()))
    function = getattr(library(launch.text, launch.file.stem), f"run_{launch.kernel}")
    sizes = ((ctypes.c_uint * 3)(*size) for size in (launch.grid, launch.block))
    message, stacks = ctypes.create_string_buffer(MESSAGE_BYTES), np.empty(threads * STACK_BYTES, np.uint8)
    failed = function(buffers, *sizes, ctypes.c_void_p(stacks.ctypes.data), ctypes.c_int(backwards), message,
                      ctypes.c_int64(MESSAGE_BYTES))
    if failed:
        raise FAILURES[failed](f"{launch.file.name}, {launch.kernel}: {message.value.decode()}")
    counted = {name: Accesses(b.loads, b.stores) for name, b in zip(bound, buffers, strict=True)}
    return {name: found for name, found in counted.items() if name in arrays}


@dataclass
class Prepared:
    """Hold a problem's launches, its arrays, and after `launch` what each launch has loaded and stored."""

    launches: tuple[Launch, ...]
    arrays: dict[str, np.ndarray]
    results: tuple[str, ...]
    backwards: bool = False
    accesses: tuple[dict[str, Accesses], ...] = ()

    def launch(self) -> None:
        """Run all launches in order and count the element loads and stores of each."""
        self.accesses = tuple(run(x, self.arrays, self.backwards) for x in self.launches)

    def outputs(self) -> dict[str, np.ndarray]:
        """Copy the outputs, by name."""
        return {name: self.arrays[name].copy() for name in self.results}
