"""The examples do what their docstrings say, in counts that a reader can derive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpusim
from dsl.programs.target import load_kernel
from gpusim.counters import SharedCounts

ROOT = Path(__file__).resolve().parents[1]


def run(*words: str) -> str:
    """Run a command in the root and return what it printed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shared_counts(kernel: str) -> tuple[SharedCounts, SharedCounts]:
    """Run a kernel of bank_conflict.py on 64 x 64 elements and return its shared loads and stores."""
    a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    sums = np.full(64, np.nan, np.float32)
    with gpusim.profile() as p:
        load_kernel(f"{ROOT / 'examples' / 'bank_conflict.py'}:{kernel}")[2, (32, 8)](a, sums)
    assert (sums == a.sum(axis=0)).all()
    counters = p.reports[0].counters
    return counters.shared_load, counters.shared_store


def test_column_sum_takes_32_wavefronts_for_each_shared_request() -> None:
    # 2 blocks x 2 tiles x 32 rows or columns = 128 requests of 32 lanes.
    for counts in shared_counts("column_sum"):
        assert (counts.requests, counts.ideal_wavefronts, counts.wavefronts) == (128, 128, 4096)


def test_column_sum_padded_has_no_bank_conflict() -> None:
    for counts in shared_counts("column_sum_padded"):
        assert (counts.requests, counts.ideal_wavefronts, counts.wavefronts) == (128, 128, 128)


def test_a_launch_inside_profile_gives_its_metrics_by_name() -> None:
    lines = dict(line.split() for line in run("examples/profile_in_python.py").splitlines())
    # Two loads of 1,000,000 floats: 31,250 warp requests and 125,000 sectors each; one FFMA an element.
    assert lines["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == "62,500"
    assert lines["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == "250,000"
    assert lines["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == "1,000,000"


@pytest.mark.parametrize(
    ("options", "kernels"), [((), ["saxpy", "scale_every"]), (("--launch-skip", "1"), ["scale_every"])]
)
def test_an_unmodified_numba_cuda_script_is_profiled_launch_by_launch(
    options: tuple[str, ...], kernels: list[str]
) -> None:
    printed = run("cli.py", "profile", *options, "examples/saxpy_script.py", "1000")
    assert "largest error 0.0e+00 over 1,000 elements" in printed
    assert [line.split()[0] for line in printed.splitlines() if "Device NVIDIA H200" in line] == kernels


def test_one_mma_of_a_warp_is_the_product_with_a_conflict_at_every_second_row_of_a() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    c = np.full((16, 8), np.nan, np.float32)
    with gpusim.profile() as p:
        load_kernel(f"{ROOT / 'examples' / 'tensor_core.py'}:one_mma")[1, 32](a, b, c)
    assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max() < 1e-5
    counters = p.reports[0].counters
    assert (counters.tensor.f16, p.reports[0]["sm__ops_path_tensor_src_fp16.sum"]) == (1, 2 * 16 * 8 * 16)
    # Four matrices of A with rows 32 bytes apart, 2 wavefronts each; two of B side by side, 1 each.
    matrices = counters.shared_matrix
    assert (matrices.requests, matrices.ideal_wavefronts, matrices.wavefronts) == (2, 6, 10)
    # 32 and 16 copies of 16 bytes past L1: two neighbours share a sector.
    assert (counters.global_load.requests, counters.global_load.sectors) == (2, 24)
