"""Registers, stack frame and spills of a kernel as numba-cuda and ptxas make it, without a GPU.

numba-cuda writes PTX for a compute capability, and `ptxas -v` of the package nvidia-cuda-nvcc says what a
thread takes. NVVM and ptxas must be of one release: an older ptxas refuses the PTX of a newer NVVM.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gpusim.errors import LaunchRefused, UnsupportedFeature
from gpusim.memory import VirtualArray
from kernels_real.numba_source import real_cuda, rebuilt

PACKAGES = ("numba-cuda", "nvidia-nvvm", "nvidia-cuda-nvrtc", "nvidia-cuda-nvcc")
LEAST = 16
"""A profiler shows 16 registers where ptxas says fewer."""


@dataclass(frozen=True)
class Resources:
    """Hold what a thread takes: registers, bytes of its stack frame in local memory, bytes spilled there."""

    registers: int
    stack_bytes: int
    spill_bytes: int
    source: str


def resources(kernel: Any, args: tuple[Any, ...], capability: str = "9.0") -> Resources:
    """Return what a thread of a kernel with such arguments takes on a compute capability.

    Raises LaunchRefused where a package is missing or ptxas refuses the PTX, UnsupportedFeature for a kernel
    that numba.cuda does not have.
    """
    ptxas = find_ptxas()
    cuda = real_cuda()
    major, _, minor = capability.partition(".")
    ptx = to_ptx(cuda, rebuilt(kernel.py_func, cuda), args, (int(major), int(minor)))
    said = assemble(ptxas, ptx, f"sm_{major}{minor}")
    registers = int(re.findall(r"Used (\d+) registers", said)[0])
    counts = {w: sum(map(int, re.findall(rf"(\d+) bytes {w}", said))) for w in ("stack frame", "spill")}
    return Resources(max(LEAST, registers), counts["stack frame"], counts["spill"],
                     source(f"sm_{major}{minor}"))


def find_ptxas() -> Path:
    """Return the ptxas of the nvidia-cuda-nvcc package; raise LaunchRefused where a package is missing."""
    missing = [package for package in PACKAGES if not _installed(package)]
    if missing:
        raise LaunchRefused(f"registers from ptxas need {', '.join(missing)}: pip install gpusim[numba]")
    files = distribution("nvidia-cuda-nvcc").files or []
    found = [Path(str(f.locate())) for f in files if f.name in ("ptxas", "ptxas.exe")]
    if not found:
        raise LaunchRefused("the package nvidia-cuda-nvcc holds no ptxas")
    return found[0]


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def to_ptx(cuda: Any, func: Any, args: tuple[Any, ...], capability: tuple[int, int]) -> str:
    """Return the PTX of a function for arguments; raise UnsupportedFeature in numba's own words."""
    from numba.core.errors import NumbaError

    try:
        types = tuple(map(_numba_type, args))
        with _compiling_for(capability):
            ptx, _ = cuda.compile(func, types, cc=capability, device=False, abi="numba", output="ptx")
    except (NumbaError, NotImplementedError, ValueError) as error:
        said = " ".join(str(error).strip().splitlines()[:3])
        raise UnsupportedFeature(f"{func.__name__}: numba.cuda does not compile it: {said}") from None
    return ptx if isinstance(ptx, str) else ptx.decode()


@contextmanager
def _compiling_for(capability: tuple[int, int]) -> Iterator[None]:
    """Let numba compile device functions for a compute capability: it would ask for a GPU."""
    from numba.cuda import dispatcher

    asked = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = asked


def _numba_type(value: Any) -> Any:
    """Return the type numba.cuda gives an argument; an array without storage counts as a C-contiguous one."""
    import numba

    if isinstance(value, VirtualArray):
        return numba.types.Array(numba.from_dtype(value.dtype), value.ndim, "C")
    return numba.typeof(value)


def assemble(ptxas: Path, ptx: str, target: str) -> str:
    """Return what `ptxas -v` prints about a PTX module; raise LaunchRefused where it refuses the module."""
    with tempfile.TemporaryDirectory() as folder:
        written, binary = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        written.write_text(ptx)
        command = [str(ptxas), "-v", f"-arch={target}", "-o", str(binary), str(written)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LaunchRefused(f"ptxas refused a kernel: {done.stderr.strip()}; NVVM and ptxas must be of one "
                            "release")
    return done.stderr


def source(target: str) -> str:
    """Name the assembler, the compiler and the target."""
    ptxas, nvvm, numba_cuda = (version(p) for p in ("nvidia-cuda-nvcc", "nvidia-nvvm", "numba-cuda"))
    return f"ptxas {ptxas} on numba-cuda {numba_cuda} (NVVM {nvvm}), {target}"
