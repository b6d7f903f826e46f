"""Registers, spills and shared memory of Triton kernels, with no GPU: as Triton and its ptxas compile them.

A driver that only names the target takes the place of the real one, so that Triton specialises a launch's
arguments (multiples of 16, numbers equal to 1) as it would before a launch. Of 37 launches measured with
Triton 3.6.0 on an H200, registers and shared memory were those that this way gives.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from gpusim.errors import LaunchRefused
from kernels_real.triton_kernels import interpreter
from kernels_real.triton_kernels.launching import Launch

H200 = GPUTarget("cuda", 90, 32)


@dataclass(frozen=True)
class Resources:
    """Hold what one launch takes: registers a thread, bytes spilled (stores and loads) and shared a block."""

    kernel: str
    registers: int
    spill_bytes: int
    shared_bytes: int


class _Absent:
    """Stand for the driver of a GPU that is not here."""

    def __init__(self, target: GPUTarget) -> None:
        self.target = target

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def _driver_of(target: GPUTarget) -> Iterator[None]:
    """Let Triton compile for a target meanwhile, whatever GPU is here."""
    before = driver._active
    driver.set_active(_Absent(target))
    try:
        yield
    finally:
        driver._active = before


def resources(launch: Launch, target: GPUTarget = H200) -> Resources:
    """Compile one launch for a target; its tensors may lie anywhere. Raises LaunchRefused in the interpreter,
    which compiles nothing.
    """
    if interpreter.IS_ON:
        raise LaunchRefused("Triton compiles nothing where TRITON_INTERPRET=1 is set: start Python "
                            "without it")
    with _driver_of(target):
        compiled = launch.kernel.warmup(*launch.args, grid=launch.grid, **launch.settings)
    said = _assembled(compiled.asm["ptx"], target)
    registers = int(re.search(r"Used (\d+) registers", said).group(1))
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill", said)))
    return Resources(launch.name, registers, spilled, compiled.metadata.shared)


def _assembled(ptx: str, target: GPUTarget) -> str:
    """Return what ptxas says of PTX; kernels of sm_90 use what only sm_90a has, as Triton does."""
    name = f"sm_{target.arch}{'a' if target.arch >= 90 else ''}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        command: list[Any] = [triton.knobs.nvidia.ptxas.path, "-v", f"--gpu-name={name}", path, "-o",
                              path.with_suffix(".cubin")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr
