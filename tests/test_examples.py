"""The examples do what their docstrings say, in counts that a reader can derive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpusim
from dsl.target import load_kernel
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
