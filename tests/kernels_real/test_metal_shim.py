"""The shim that runs Metal on the CPU: barriers, bounds, counts, refusals; and what a Mac would be given."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernels_sim
from gpusim.errors import BarrierDivergence, LaunchRefused, OutOfBounds, UnsupportedFeature
from kernels_real import metal_kernels
from kernels_real.metal_kernels import mps, shim, source
from kernels_real.metal_kernels.launching import Accesses, Launch
from kernels_sim.problem import Data
from tests.kernels_real.metal_support import needs_shim

SIZES = np.array((4,), [("n", np.int32)])
HEAD = """#include <metal_stdlib>
using namespace metal;
struct Params { int n; };
kernel void example(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    constant Params& p [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]],
                    uint3 place [[thread_position_in_threadgroup]], uint tid [[thread_index_in_threadgroup]])
{
"""


def launch_of(folder: Path, body: str, grid: Any = (1, 1, 1), block: Any = (4, 1, 1)) -> Launch:
    """Write a kernel `example` with this body, which begins at line 8, and describe a launch of it."""
    file = folder / "example.metal"
    file.write_text(f"{HEAD}{body}\n}}\n")
    return Launch(file, "example", grid, block, SIZES)


def run(folder: Path, body: str, backwards: bool = False, n: int = 4, **sizes: Any) -> Any:
    """Run it on x = 0, 1, ... and y = NaN; return y and the accesses."""
    arrays = {"x": np.arange(n, dtype=np.float32), "y": np.full(n, np.nan, np.float32)}
    return arrays["y"], shim.run(launch_of(folder, body, **sizes), arrays, backwards)


# Threads and barriers


@needs_shim
def test_threads_read_what_others_wrote_before_a_barrier(tmp_path: Path) -> None:
    body = """threadgroup float s[4];
    s[tid] = x[tid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[tid] = s[3 - tid];"""
    for backwards in (False, True):
        y, _ = run(tmp_path, body, backwards)
        assert y.tolist() == [3, 2, 1, 0]


@needs_shim
def test_a_missing_barrier_gives_another_result_backwards(tmp_path: Path) -> None:
    body = "threadgroup float s[4];\n s[tid] = x[tid] + 1;\n y[tid] = s[tid == 0 ? 3 : tid - 1];"
    forwards, backwards = (run(tmp_path, body, order)[0].tolist() for order in (False, True))
    assert forwards[1:] == [1, 2, 3] and backwards[0] == 4
    assert forwards != backwards


@needs_shim
def test_threadgroup_memory_holds_nan_when_a_threadgroup_begins(tmp_path: Path) -> None:
    body = """threadgroup float s[2][4];
    if (tid != group.x) s[1][tid] = x[tid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[4 * group.x + tid] = s[1][tid];"""
    y, _ = run(tmp_path, body, n=8, grid=(2, 1, 1))
    assert np.array_equal(y, [np.nan, 1, 2, 3, 0, np.nan, 2, 3], equal_nan=True)


@needs_shim
def test_grid_and_threadgroup_have_three_dimensions(tmp_path: Path) -> None:
    body = "y[((group.z * 2 + group.y) * 2 + group.x) * 4 + tid] = 10 * place.y + place.x + 100 * group.z;"
    y, _ = run(tmp_path, body, n=32, grid=(2, 2, 2), block=(2, 2, 1))
    assert y.tolist() == [0, 1, 10, 11] * 4 + [100, 101, 110, 111] * 4


@needs_shim
@pytest.mark.parametrize(("body", "words"), [
    ("if (tid < 3) threadgroup_barrier(mem_flags::mem_threadgroup);",
     "only 3 of 4 threads of threadgroup (0, 0, 0) reach the barrier at line 8; thread 3 has ended"),
    ("if (tid == 0) return;\n threadgroup_barrier(mem_flags::mem_threadgroup);",
     "only 3 of 4 threads of threadgroup (0, 0, 0) reach the barrier at line 9; thread 0 has ended"),
    ("if (tid < 2)\n threadgroup_barrier(mem_flags::mem_none);\n"
     "else\n threadgroup_barrier(mem_flags::mem_none);",
     "only 2 of 4 threads of threadgroup (0, 0, 0) reach the barrier at line 9; thread 2 waits at line 11"),
    ("for (uint i = 0; i < tid; ++i) threadgroup_barrier(mem_flags::mem_none);",
     "only 3 of 4 threads of threadgroup (0, 0, 0) reach the barrier at line 8; thread 0 has ended"),
])
def test_a_barrier_that_only_some_threads_reach_is_an_error(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(BarrierDivergence, match=re.escape(f"example.metal, example: {words}")):
        run(tmp_path, body)


@needs_shim
def test_a_barrier_that_all_threads_reach_or_none_is_none(tmp_path: Path) -> None:
    y, _ = run(tmp_path, "if (p.n > 4) threadgroup_barrier(mem_flags::mem_none);\n y[tid] = 1;")
    assert y.tolist() == [1, 1, 1, 1]
    loop = "for (int i = 0; i < p.n; ++i) threadgroup_barrier(mem_flags::mem_none);"
    y, _ = run(tmp_path, f"{loop}\n y[tid] = 2;")
    assert y.tolist() == [2, 2, 2, 2]


# Device memory


@needs_shim
def test_each_element_access_of_each_thread_counts_once(tmp_path: Path) -> None:
    body = """device const float* row = x + 1;
    y[tid] = row[0] + x[0];
    y[tid] += 1;
    if (tid == 0) y[1] = y[0];"""
    y, accesses = run(tmp_path, body, block=(2, 1, 1))
    assert accesses == {"x": Accesses(2 * 2, 0), "y": Accesses(2 + 1, 2 * 2 + 1)}
    assert y[:2].tolist() == [2, 2]


@needs_shim
def test_naming_a_row_and_threadgroup_memory_are_no_accesses(tmp_path: Path) -> None:
    body = "device float* row = y + 2;\n threadgroup float s[4];\n s[tid] = 1;\n if (s[tid] < 0) row[0] = 1;"
    assert run(tmp_path, body)[1] == {"x": Accesses(0, 0), "y": Accesses(0, 0)}


@needs_shim
@pytest.mark.parametrize(("body", "words"), [
    ("y[tid] = x[tid + 1];", "x[4] is outside its 4 elements: threadgroup (0, 0, 0), thread (3, 0, 0)"),
    ("device float* row = y + 2;\n row[int(tid) - 3] = 0;",
     "y[-1] is outside its 4 elements: threadgroup (0, 0, 0), thread (0, 0, 0)"),
])
def test_an_index_outside_a_buffer_is_an_error(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(OutOfBounds, match=re.escape(words)):
        run(tmp_path, body)


@needs_shim
def test_a_launch_after_a_failed_one_is_right(tmp_path: Path) -> None:
    with pytest.raises(OutOfBounds):
        run(tmp_path, "y[tid] = x[int(tid) - 1];")
    y, _ = run(tmp_path, "y[tid] = x[3 - tid];")
    assert y.tolist() == [3, 2, 1, 0]


# What it refuses


@needs_shim
def test_metal_that_the_shim_does_not_have_is_refused_with_its_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UnsupportedFeature, match=r"does not compile .*: example.metal:8:.*simd_sum"):
        run(tmp_path, "y[tid] = simd_sum(x[tid]);")
    kept = tmp_path / "cache" / "gpusim" / "metal"
    assert list(kept.iterdir()) == []
    run(tmp_path, "y[tid] = x[tid];")
    assert [file.suffix for file in kept.iterdir()] == [".so"]


def test_a_parameter_that_nobody_binds_is_refused() -> None:
    text = "kernel void f(device float* y [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {}"
    with pytest.raises(UnsupportedFeature, match=r"parameter 'uint lane \[\[thread_index_in_simdgroup\]\]'"):
        source.kernels(text)


@needs_shim
@pytest.mark.parametrize("block", [(1025, 1, 1), (0, 1, 1)])
def test_a_threadgroup_has_1_to_1024_threads(tmp_path: Path, block: tuple[int, int, int]) -> None:
    with pytest.raises(LaunchRefused, match="a threadgroup has 1 to 1024 threads"):
        run(tmp_path, "y[0] = 0;", block=block)


def test_a_missing_compiler_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim.sys, "platform", "linux")
    monkeypatch.setattr(shim.shutil, "which", lambda name: None)
    with pytest.raises(LaunchRefused, match=r"finds none of g\+\+, clang\+\+, c\+\+; install g\+\+"):
        shim.compiler()


def test_another_system_than_linux_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim.sys, "platform", "darwin")
    with pytest.raises(LaunchRefused, match='this is darwin; on a Mac use executor="mps"'):
        shim.compiler()


# The sources


def test_a_threadgroup_array_is_shared_and_a_threadgroup_pointer_is_not() -> None:
    array, pointer = "threadgroup float s[4][2];", "threadgroup const float* p = s[0];"
    text = source.cpp(f"{array}\n{pointer}\nconstant constexpr int N = 4;")
    assert text.splitlines()[:3] == [
        "static float s[4][2]; static metal_shim::ThreadgroupMemory memory_of_s(&s, sizeof s);",
        "const float* p = s[0];",
        "const constexpr int N = 4;",
    ]


def test_a_source_for_a_mac_stands_alone() -> None:
    text = source.metal(source.FOLDER / "flash_row_forward.metal", {"HEAD_DIM": 80, "TILE_KEYS": 8})
    assert text.startswith('#define HEAD_DIM 80\n#define TILE_KEYS 8\n#line 1 "flash_row_forward.metal"\n')
    assert "struct Params {" in text
    assert re.findall("#include (.*)", text) == ["<metal_stdlib>"]


# Metal's address spaces as clang has them: a pointer into one does not become a pointer into another.
ADDRESS_SPACES = """
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define kernel
#define FLT_MAX __FLT_MAX__
#define INFINITY __builtin_inff()
typedef unsigned int uint;
struct uint3 { uint x, y, z; };
namespace metal {
float exp(float); float log(float); float fma(float, float, float);
float max(float, float); float min(float, float); int max(int, int); int min(int, int);
enum class mem_flags { mem_none, mem_device, mem_threadgroup };
void threadgroup_barrier(mem_flags);
}
"""


def clang_says(text: str) -> str:
    """Return what clang has against a Metal source, read as C++ with address spaces."""
    text = re.sub(r"\[\[.*?\]\]", "", text.replace("#include <metal_stdlib>", ""))
    text = ADDRESS_SPACES + re.sub(r"\bthreadgroup\s+(?=\w+\s+\w+\s*\[)", "static threadgroup ", text)
    command = ["clang++", "-std=c++17", "-fsyntax-only", "-Wno-unknown-pragmas", "-x", "c++", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False).stderr


@pytest.mark.skipif(not shutil.which("clang++"), reason="no clang++ here")
@pytest.mark.parametrize("file", sorted(source.FOLDER.glob("*.metal")), ids=lambda file: file.stem)
def test_no_pointer_changes_its_address_space(file: Path) -> None:
    assert "error" not in clang_says(source.metal(file, {}))


@pytest.mark.skipif(not shutil.which("clang++"), reason="no clang++ here")
def test_a_pointer_that_changes_its_address_space_is_found() -> None:
    assert "error" in clang_says("kernel void f(device float* y) { threadgroup float* p = y; }")


# What a Mac would be given


class Torch:
    """Take the place of torch with an Apple GPU: tensors are arrays, and a kernel notes what it is given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any]] = []
        self.mps = SimpleNamespace(compile_shader=self.compile_shader, synchronize=lambda: None)

    def from_numpy(self, array: np.ndarray) -> Any:
        return SimpleNamespace(array=array, to=lambda device: array)

    def compile_shader(self, text: str) -> Any:
        def kernel(name: str) -> Any:
            return lambda *buffers, **sizes: self.calls.append((name, buffers, sizes))

        return SimpleNamespace(**{name: kernel(name) for name in source.kernels(text)})


def test_a_mac_gets_the_buffers_in_order_all_threads_and_the_bytes_of_the_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = Torch()
    monkeypatch.setattr(mps, "torch_with_metal", lambda: torch)
    monkeypatch.setattr(mps, "_library", torch.compile_shader)
    spec = kernels_sim.find("flash_row_dv")
    options = spec.options(T=70, Tk=90, H=4, HKV=2, d=16, B=3, causal=True, scale=0.5)
    problem = spec.build(options, Data(seed=5))
    metal_kernels.prepare(problem, executor="mps").launch()
    ((name, buffers, sizes),) = torch.calls
    assert name == "flash_row_dv"
    assert sizes == {"threads": [2 * 64, 2, 3], "group_size": [64, 1, 1]}
    for given, named in zip(buffers, ("Q", "K", "dO", "L"), strict=False):
        assert np.array_equal(given, problem.inputs[named])
    assert np.isnan(buffers[4]).all() and buffers[4].shape == (3, 90, 2, 16)
    assert buffers[5].tolist() == [70, 90, 4, 2, 1, 0, 0, np.float32(0.5).view(np.int32)]


def test_without_an_apple_gpu_the_message_names_the_shim() -> None:
    try:
        import torch
    except ModuleNotFoundError:
        why = "torch, which is not installed"
    else:
        if torch.backends.mps.is_available():
            pytest.skip("an Apple GPU is here")
        why = "torch finds no Apple GPU here"
    with pytest.raises(LaunchRefused, match=f'{why}.*executor="shim"'):
        mps.torch_with_metal()
