"""Measure how fast the simulator is, each figure beside its target: `make bench`.

Times are ratios within one run: the two sides take turns in one process, on one thread each, and medians are
compared. numpy's side does the same tiles and counts nothing. BLAS's kernel is printed, as its speed is half
of each ratio.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(name, None)
for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[name] = "1"
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from bench.attention import MOST_SECONDS, SAME_TILES, timed  # noqa: E402
from bench.numpy_flash import numpy_flash  # noqa: E402
from dsl.host.device import Device  # noqa: E402
from gpusim.arch import get_arch  # noqa: E402
from gpusim.launch import Launch  # noqa: E402
from kernels_sim import find  # noqa: E402
from kernels_sim.problem import Data  # noqa: E402
from kernels_sim.run import run_problem  # noqa: E402

ROUNDS = 9
MAIN_JOB = ["cli.py", "simulate", "flash_forward", "--N", "4096", "--Br", "64"]


def blas() -> str:
    """Return the name and kernel of the BLAS that numpy uses."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return "unknown (install threadpoolctl to see it)"
    found = [i for i in threadpool_info() if i["user_api"] == "blas"]
    return ", ".join(f"{i['internal_api']} {i.get('architecture', '?')} x{i['num_threads']}" for i in found)


def flash(n: int, counts_only: bool, device: Device) -> Callable[[], Launch]:
    """Return a function that simulates flash_forward of one head, d = 64, 64 x 64 tiles, every counter on."""
    spec = find("flash_forward")
    problem = spec.build(spec.options(N=n, d=64, Br=64, Bc=64), Data(0, virtual=counts_only))
    problem.reference = None
    return lambda: run_problem(problem, device, counts_only=counts_only)[0]


def numpy_tiles(n: int) -> Callable[[], object]:
    """Return a function that does the same tiles in numpy."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((n, 64)).astype(np.float32) for _ in range(3))
    return lambda: numpy_flash(q, k, v, 64, 64, 0.125)


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(*works: Callable[[], object]) -> list[float]:
    """Return the median time of each function; they take turns, after one turn that does not count."""
    for work in works:
        work()
    rounds = [[seconds(work) for work in works] for _ in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def show(what: str, value: float, unit: str, target: str, met: bool) -> bool:
    """Print one figure beside its target."""
    print(f"{what:<66} {value:>10.3g} {unit:<14} target {target:<12} {'ok' if met else 'MISSED'}")
    return met


def lane_accesses(launch: Launch) -> int:
    """Return the thread accesses to global and shared memory that a launch counted."""
    c = launch.counters
    return sum(s.lanes for s in (c.global_load, c.global_store, c.shared_load, c.shared_store))


def bench_ratios() -> list[bool]:
    """Compare simulation, counting alone and numpy; return whether each target was met."""
    device = Device(get_arch("h200"), threads=1)
    whole, counted = flash(4096, False, device), flash(4096, True, device)
    numpy_s, whole_s, counted_s = interleaved(numpy_tiles(4096), whole, counted)
    small_s, large_s = interleaved(whole, flash(8192, False, device))
    rate = lane_accesses(whole()) / whole_s
    times = {"numpy tiles": numpy_s, "simulation": whole_s, "counts only": counted_s}
    said = ", ".join(f"{what} {1e3 * s:.0f} ms" for what, s in times.items())
    print(f"{said} (medians of {ROUNDS})")
    whole_x, counted_x, double_x = whole_s / numpy_s, counted_s / numpy_s, large_s / small_s
    return [
        show("flash_forward N=4096 d=64, everything on, over numpy", whole_x, "x", "<= 1.0", whole_x <= 1),
        show("flash_forward N=4096 --counts-only, over numpy", counted_x, "x", "<= 0.35", counted_x <= 0.35),
        show("flash_forward N=8192 over N=4096", double_x, "x", "<= 4.4", double_x <= 4.4),
        show("counted lane accesses, one core", rate, "/s", ">= 1e8", rate >= 1e8),
    ]


def bench_attention() -> list[bool]:
    """Time every attention kernel of bench/attention.py in its default size, beside numpy's same tiles."""
    device, met = Device(get_arch("h200"), threads=1), []
    for name in SAME_TILES:
        first, later, numpy_s = timed(name, device, interleaved)
        print(f"{name}: {1e3 * later:.0f} ms, {later / numpy_s:.2g} x numpy's same tiles")
        what = f"{name}, default size, compiled anew"
        met.append(show(what, first, "s", f"< {MOST_SECONDS:g}", first < MOST_SECONDS))
    return met


def bench_matmul() -> list[bool]:
    """Compare the tensor-core matmul, every counter on, with numpy's float32 product of the same size."""
    device, spec, n = Device(get_arch("h200"), threads=1), find("matmul_mma"), 1024
    problem = spec.build(spec.options(M=n, N=n, K=n), Data(0))
    problem.reference = None
    a, b = (x.astype(np.float32) for x in problem.steps[0].args[:2])
    numpy_s, mma_s = interleaved(lambda: a @ b, lambda: run_problem(problem, device))
    print(f"numpy matmul {1e3 * numpy_s:.1f} ms, matmul_mma {1e3 * mma_s:.0f} ms (medians of {ROUNDS})")
    speed = numpy_s / mma_s
    return [show(f"matmul_mma M=N=K={n} float16, speed over numpy's", speed, "x", ">= 0.1", speed >= 0.1)]


def bench_flash_mma() -> list[bool]:
    """Compare flash_forward on the tensor cores, every counter on, with numpy's same tiles in float32."""
    device, spec = Device(get_arch("h200"), threads=1), find("flash_forward")
    problem = spec.build(spec.options(N=4096, variant="mma", dtype="float16"), Data(0))
    problem.reference = None
    numpy_s, mma_s = interleaved(numpy_tiles(4096), lambda: run_problem(problem, device))
    print(f"numpy tiles {1e3 * numpy_s:.0f} ms, mma {1e3 * mma_s:.0f} ms (medians of {ROUNDS})")
    ratio = mma_s / numpy_s
    return [show("flash_forward --variant mma N=4096 float16, over numpy", ratio, "x", "<= 2.0", ratio <= 2)]


_COMPILE = """
import sys, time
sys.path.insert(0, {root!r})
import numpy as np
from dsl.host.device import Device
from dsl.host.launch import launch
from gpusim.arch import get_arch
from kernels_sim import find
from kernels_sim.problem import Data
device = Device(get_arch("h200"), threads=1)
def run(name, **options):
    spec = find(name)
    step = spec.build(spec.options(**options), Data(0)).steps[0]
    start = time.perf_counter()
    launch(step.kernel, step.grid, step.block, step.args, device, shared_bytes=step.shared_bytes)
    return time.perf_counter() - start
run("softmax_rows", rows=2, cols=64)
run("vec_add", n=64)
print(run("flash_forward", N=64, Br=32, Bc=32, d=48))
"""


def _process(arguments: list[str], cache: Path) -> tuple[float, str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    start = time.perf_counter()
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stdout


def bench_processes() -> list[bool]:
    """Time the main job as a process, with an empty cache and a warm one, and compiling a new kernel."""
    cache = Path(tempfile.mkdtemp(prefix="gpusim-bench-"))
    try:
        fresh, _ = _process(MAIN_JOB, cache)
        warm = min(_process(MAIN_JOB, cache)[0] for _ in range(3))
        compile_s = []
        for _ in range(3):
            shutil.rmtree(cache / "gpusim" / "kernels", ignore_errors=True)
            compile_s.append(float(_process(["-c", _COMPILE.format(root=str(ROOT))], cache)[1]))
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    new = statistics.median(compile_s)
    return [
        show("main job as a process, empty cache", fresh, "s", "< 40", fresh < 40),
        show("main job as a process, warm cache (best of 3)", warm, "s", "< 4", warm < 4),
        show("a new kernel, front end to machine code (flash_forward)", new, "s", "< 1", new < 1),
    ]


def bench_compiles() -> list[bool]:
    """Compile every kernel of the repository in a process of its own; show the slowest."""
    with tempfile.TemporaryDirectory(prefix="gpusim-bench-") as cache:
        _, printed = _process(["bench/compiles.py"], Path(cache))
    seconds, name = printed.splitlines()[-1].split(" ", 1)
    what = f"slowest compile of {len(printed.splitlines())} kernels ({name.split(': ')[1]})"
    return [show(what, float(seconds), "s", "< 2", float(seconds) < 2)]


def bench_memory() -> list[bool]:
    """Measure the memory of a large counts-only run in a process of its own."""
    job = [*MAIN_JOB[:3], "--N", "16384", "--Br", "64", "--counts-only"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run([sys.executable, *job], cwd=ROOT, capture_output=True, check=True)
    scale = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * scale / 1e9
    print(f"(largest child before: {before * scale / 1e9:.2f} GB)")
    return [show("flash_forward N=16384 --counts-only, peak memory", peak, "GB", "< 1.5", peak < 1.5)]


def main() -> int:
    """Print every figure; return 1 if a target was missed."""
    print(f"BLAS: {blas()}; Python {sys.version.split()[0]}, numpy {np.__version__}")
    met = [*bench_memory(), *bench_ratios(), *bench_attention(), *bench_matmul(), *bench_flash_mma()]
    met += [*bench_processes(), *bench_compiles()]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
