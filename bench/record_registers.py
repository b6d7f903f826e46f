"""Print the registers that ptxas gives each shipped kernel; no GPU is needed.

    python -m venv recording
    recording/bin/pip install numba-cuda nvidia-nvvm==13.0.88 nvidia-cuda-nvrtc==13.0.88 \\
        nvidia-cuda-nvcc==13.0.88 "cuda-bindings<13.1" networkx ml_dtypes
    recording/bin/python bench/record_registers.py                    all of CASES
    recording/bin/python bench/record_registers.py softmax_rows       one kernel
    recording/bin/python bench/record_registers.py flash_forward d=48 Br=32 Bc=32

The output is the table of kernels_sim/registers.py. The kernels are the same sources: `from dsl import
cuda` gives them numba.cuda here; numba-cuda makes PTX for compute capability 9.0, and `ptxas -v` reads the
registers. A stack frame is noted beside them: bytes of a thread's local arrays that the compiler left in
local memory. What it leaves out: other targets, and what an assembler of another version would say. NVVM
and ptxas must be of one release: an older ptxas refuses the PTX version that a newer NVVM writes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = ("numba-cuda", "nvidia-nvvm", "nvidia-cuda-nvrtc", "nvidia-cuda-nvcc")
TARGET = (9, 0)
HEAD_DIMENSIONS = (16, 48, 64, 80, 128)
ROW_DIMENSIONS = (16, 32, 48, 64, 80, 96, 128)
TILES = ((64, 64), (32, 32), (64, 32), (128, 64))
"""(Br, Bc) of flash_forward that are recorded."""
CASES: dict[str, list[dict[str, Any]]] = {
    "vec_add": [{}],
    "strided_copy": [{}],
    "offset_copy": [{}],
    "transpose": [{"variant": v} for v in ("naive", "tiled", "padded")],
    "matmul_tiled": [{}],
    "softmax_rows": [{}],
    "softmax_merge": [{}, {"d": 0}],
    "qk_norm_rope": [
        {"d": d, **how}
        for d in (64, 128)
        for how in ({"paired": False}, {"paired": True}, {"rotary_dim": d // 2, "key_offset": True})
    ],
    "histogram": [{"variant": v} for v in ("global", "shared")],
    "block_reduce": [{}],
    "flash_forward": [
        {"d": d, "Br": Br, "Bc": Bc, "causal": causal}
        for d in HEAD_DIMENSIONS
        for Br, Bc in TILES
        for causal in (False, True)
    ],
    "flash_backward": [
        {"d": d, "causal": causal, "deterministic": fixed}
        for d in HEAD_DIMENSIONS
        for causal in (False, True)
        for fixed in (False, True)
    ],
    "flash_row_delta": [{"d": d} for d in ROW_DIMENSIONS],
    **{
        f"flash_row_{part}": [{"d": d, "causal": c} for d in ROW_DIMENSIONS for c in (False, True)]
        for part in ("forward", "dq", "dv", "dk")
    },
    "standard_attention": [{"d": d, "causal": c} for d in HEAD_DIMENSIONS for c in (False, True)],
    "standard_attention_backward": [{"d": d, "causal": c} for d in HEAD_DIMENSIONS for c in (False, True)],
}


class CannotRecord(SystemExit):
    """Say in one line what is missing, and exit with status 1."""


def installed(package: str) -> bool:
    """Return whether a package is installed."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def find_ptxas() -> Path:
    """Return the ptxas of the nvidia-cuda-nvcc package; raise CannotRecord where a package is missing."""
    missing = [package for package in PACKAGES if not installed(package)]
    if missing:
        raise CannotRecord(
            f"record_registers: {', '.join(missing)} not installed; pip install {' '.join(PACKAGES)}"
        )
    files = distribution("nvidia-cuda-nvcc").files or []
    found = [Path(str(f.locate())) for f in files if f.name in ("ptxas", "ptxas.exe")]
    if not found:
        raise CannotRecord("record_registers: the package nvidia-cuda-nvcc holds no ptxas")
    return found[0]


def use_numba_cuda() -> Any:
    """Make `from dsl import cuda` give numba.cuda from here on, and return it."""
    sys.path.insert(0, str(REPOSITORY))
    import numba.cuda

    import dsl

    dsl.cuda = sys.modules["dsl.cuda"] = numba.cuda
    return numba.cuda


def numba_type(value: Any) -> Any:
    """Return the type numba.cuda gives an argument; an array without storage counts as a C-contiguous one."""
    import numba

    from gpusim.memory import VirtualArray

    if isinstance(value, VirtualArray):
        return numba.types.Array(numba.from_dtype(value.dtype), value.ndim, "C")
    return numba.typeof(value)


def assemble(ptxas: Path, ptx: str) -> str:
    """Return what `ptxas -v` prints about a PTX module; raise CannotRecord where it refuses the module."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        command = [str(ptxas), "-v", f"-arch=sm_{TARGET[0]}{TARGET[1]}", "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotRecord(f"record_registers: ptxas refused a kernel: {done.stderr.strip()}")
    return done.stderr


def resources(cuda: Any, ptxas: Path, kernel: Any, args: tuple[Any, ...]) -> tuple[int, int, int]:
    """Return (registers, bytes of stack frame, bytes spilled) a thread of a kernel with such arguments."""
    types = tuple(numba_type(a) for a in args)
    ptx, _ = cuda.compile(kernel.py_func, types, cc=TARGET, device=False, abi="numba", output="ptx")
    said = assemble(ptxas, ptx if isinstance(ptx, str) else ptx.decode())
    counts = {
        what: sum(map(int, re.findall(rf"(\d+) bytes {what}", said))) for what in ("stack frame", "spill")
    }
    return int(re.findall(r"Used (\d+) registers", said)[0]), counts["stack frame"], counts["spill"]


def source_line() -> str:
    """Name the assembler, the compiler and the target, as SOURCE of kernels_sim/registers.py."""
    ptxas, nvvm, numba_cuda = version("nvidia-cuda-nvcc"), version("nvidia-nvvm"), version("numba-cuda")
    return f"ptxas {ptxas} on numba-cuda {numba_cuda} (NVVM {nvvm}), sm_{TARGET[0]}{TARGET[1]}"


def from_text(settings: list[str]) -> dict[str, Any]:
    """Turn name=value words into options: whole numbers and booleans, else text."""
    known = {"True": True, "False": False}
    pairs = (word.split("=", 1) for word in settings)
    return {name: int(text) if text.lstrip("-").isdigit() else known.get(text, text) for name, text in pairs}


def variant_name(case: dict[str, Any], step: Any, alone: bool) -> str:
    """Name a launch in the table: its function where a problem has several, then the options."""
    words = [] if alone else [step.kernel.py_func.__name__]
    return " ".join(words + [str(v) if name == "variant" else f"{name}={v}" for name, v in case.items()])


def record(cuda: Any, ptxas: Path, name: str, cases: list[dict[str, Any]]) -> Iterator[str]:
    """Yield one line of the table for each launch of each case of a kernel."""
    from kernels_sim import find
    from kernels_sim.problem import Data

    spec = find(name)
    for case in cases:
        problem = spec.build(spec.options(**case), Data(virtual=True))
        for step in problem.steps:
            registers, frame, spilled = resources(cuda, ptxas, step.kernel, step.args)
            variant = variant_name(case, step, len(problem.steps) == 1)
            note = f"  # stack frame {frame} bytes, {spilled} spilled" if frame or spilled else ""
            yield f'    ("{name}", "{variant}"): {registers},{note}'


def main(arguments: list[str]) -> None:
    """Print SOURCE and the lines of RECORDED."""
    ptxas = find_ptxas()
    cuda = use_numba_cuda()
    chosen = CASES if not arguments else {arguments[0]: CASES.get(arguments[0], [{}])}
    if arguments[1:]:
        chosen = {arguments[0]: [from_text(arguments[1:])]}
    print(f'SOURCE = "{source_line()}"')
    for name, cases in chosen.items():
        for line in record(cuda, ptxas, name, cases):
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
