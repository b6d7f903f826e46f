"""Run bench/half_micro.cu on a GPU under ncu, and write what it counted and computed as test data.

    python bench/record_half.py OUT_FOLDER

writes h200_half.csv: a row a kernel, for 65,536 threads the thread instructions of each class, the warp
instructions on XU, and the SHA-256 of the results in the order of the threads. Needs nvcc, ncu and
permission for the counters. What the numbers say: docs/h200_facts.md, fact 41.
"""

from __future__ import annotations

import csv
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("half_micro.cu")
THREADS = 1 << 16
CLASSES = ("hadd", "hmul", "hfma", "fadd", "fmul", "ffma", "integer", "conversion")
METRICS = {
    **{name: f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in CLASSES},
    "xu": "smsp__inst_executed_pipe_xu.sum",
}


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each kernel's results: values.bin, cut as values.idx says (name, bytes a result).
    """
    data, start, found = (folder / "values.bin").read_bytes(), 0, {}
    for line in (folder / "values.idx").read_text().splitlines():
        name, size_bytes = line.split()
        end = start + THREADS * int(size_bytes)
        found[name] = hashlib.sha256(data[start:end]).hexdigest()
        start = end
    return found


def counts(report: str) -> dict[str, dict[str, str]]:
    """Return the counters of each kernel by name, from ncu's CSV with a metric a line."""
    labels, found = {metric: label for label, metric in METRICS.items()}, {}
    for row in csv.DictReader(line for line in report.splitlines() if line.startswith('"')):
        if row["Metric Name"] in labels:
            value = row["Metric Value"].replace(",", "")
            found.setdefault(row["Kernel Name"], {})[labels[row["Metric Name"]]] = value
    return found


def write(out: Path, digest: dict[str, str], counted: dict[str, dict[str, str]]) -> None:
    """Write h200_half.csv."""
    with (out / "h200_half.csv").open("w", newline="") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(["kernel", *METRICS, "sha256"])
        for name, sha in digest.items():
            table.writerow([name, *(counted[name][label] for label in METRICS), sha])


def main(out: Path) -> None:
    """Compile, run for the results, and run under ncu for the counters."""
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "half_micro"
        subprocess.run(["nvcc", "-arch=sm_90", "-o", str(program), str(SOURCE)], check=True)
        subprocess.run([str(program)], check=True, cwd=scratch)
        profiler = ["ncu", "--csv", "--metrics", ",".join(METRICS.values()), str(program)]
        report = subprocess.run(profiler, check=True, cwd=scratch, text=True, capture_output=True).stdout
        write(out, digests(Path(scratch)), counts(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
