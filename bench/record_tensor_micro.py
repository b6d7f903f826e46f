"""Run bench/tensor_micro.cu on a GPU under ncu, and write what it counted and computed as test data.

    python bench/record_tensor_micro.py OUT_FOLDER

writes h200_tensor_micro.csv (a row a launch; a metric a column, summed over the card) and h200_mma.npz (for
each type `_ab`, uint32 (blocks, 32, 6), the fragments of A and B; `_c` and `_d`, float32 (blocks, 32, 4)).
Needs nvcc, ncu and permission for the counters. What the numbers say: docs/h200_facts.md, facts 33 to 40.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).with_name("tensor_micro.cu")
METRICS = (
    "smsp__inst_executed_op_ldsm", "smsp__inst_executed_op_ldgsts", "smsp__inst_executed_op_shared_ld",
    "smsp__inst_executed_op_ldc", "l1tex__data_pipe_lsu_wavefronts_mem_shared",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld", "l1tex__t_requests_pipe_lsu_mem_global_op_ld",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st", "l1tex__t_sectors_pipe_lsu_mem_global_op_st",
    "idc__requests", "sm__inst_executed_pipe_tensor_op_hmma", "sm__ops_path_tensor_src_fp16",
    "sm__ops_path_tensor_src_bf16_dst_fp32", "sm__ops_path_tensor_src_tf32_dst_fp32",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on", "smsp__sass_thread_inst_executed_op_hadd_pred_on",
    "smsp__sass_thread_inst_executed_op_hmul_pred_on", "smsp__sass_thread_inst_executed_op_hfma_pred_on",
    "smsp__inst_executed_pipe_xu",
)  # fmt: skip
TYPES = ("f16", "bf16", "tf32", "e4m3", "e5m2")
BLOCKS = 320
KEPT_BLOCKS = slice(None, None, 8)
"""Blocks of 32 threads that are kept of those that the program writes: 8 of each kind of pattern."""


def record_counters(program: Path, folder: Path) -> None:
    """Run every case under ncu and write one row for each."""
    raw = folder / "raw.csv"
    names = [f"{m}.sum" for m in METRICS]
    profiler = ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--csv", "--page", "raw"]
    command = [*profiler, "--metrics", ",".join(names), "--log-file", str(raw), str(program)]
    printed = subprocess.run(command, check=True, text=True, capture_output=True).stdout
    cases = [line.removeprefix("CASE ") for line in printed.splitlines() if line.startswith("CASE ")]
    with raw.open(newline="") as stream:
        head, _units, *rows = csv.reader(line for line in stream if not line.startswith("=="))
    with (folder / "h200_tensor_micro.csv").open("w", newline="") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(["case", *names])
        for case, row in zip(cases, rows, strict=True):
            table.writerow([case, *(row[head.index(name)].replace(",", "") for name in names)])
    raw.unlink()


def record_bits(program: Path, folder: Path) -> None:
    """Run single mma.sync instructions on random bit patterns and keep some of them."""
    file = folder / "bits.bin"
    subprocess.run([str(program), str(file)], check=True)
    words = np.fromfile(file, np.uint32).reshape(len(TYPES), -1)
    file.unlink()
    arrays = {}
    for name, of_type in zip(TYPES, words, strict=True):
        ab, c, d = np.split(of_type, (BLOCKS * 32 * 6, BLOCKS * 32 * 10))
        arrays[f"{name}_ab"] = ab.reshape(BLOCKS, 32, 6)[KEPT_BLOCKS]
        for key, part in (("c", c), ("d", d)):
            arrays[f"{name}_{key}"] = part.view(np.float32).reshape(BLOCKS, 32, 4)[KEPT_BLOCKS]
    np.savez_compressed(folder / "h200_mma.npz", **arrays)


def main() -> None:
    """Build the program and record both files into the folder that the command line names."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python bench/record_tensor_micro.py OUT_FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        program = Path(place) / "tensor_micro"
        build = ["nvcc", "-std=c++17", "-O3", "-arch=sm_90", "-o", str(program), str(SOURCE)]
        subprocess.run(build, check=True)
        record_counters(program, folder)
        record_bits(program, folder)


if __name__ == "__main__":
    main()
