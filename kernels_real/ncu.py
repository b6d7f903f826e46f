"""ncu as a command: found, asked what it knows, run over a program, and its refusals in plain words.

Caches are flushed before each pass (cold L2), clocks are left alone, and only launches between the
profiler's start and stop are measured. What it leaves out: reading what it prints (gpusim/measured.py).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpusim.errors import LaunchRefused
from kernels_real.metric_list import METRICS, WHERE_KNOWN

OPTIONS = (
    "--clock-control", "none", "--cache-control", "all", "--profile-from-start", "off", "--apply-rules", "no",
    "--csv", "--page", "raw", "--print-units", "base")
REFUSALS = {
    "ERR_NVGPUCTRPERM": "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM): run as "
    "root, or let the driver allow it (NVreg_RestrictProfilingToAdminUsers=0)",
    "No CUDA-capable device": "ncu finds no GPU here",
    "no CUDA-capable device": "ncu finds no GPU here",
    "ERR_NVGPUCTR_UNAVAILABLE": "another program holds the GPU's performance counters",
}
"""What ncu prints -> what it means."""


def find_ncu() -> str:
    """Return the path of ncu; raise LaunchRefused where there is none."""
    found = shutil.which("ncu") or next(
        (str(p) for p in sorted(Path("/usr/local").glob("cuda*/bin/ncu"), reverse=True)), None)
    if found is None:
        raise LaunchRefused("ncu (NVIDIA Nsight Compute) is not on the PATH: measuring needs it and an "
                            "NVIDIA GPU; `compare KERNEL --measured FILE` takes a CSV made elsewhere")
    return found


def ncu_version(ncu: str) -> str:
    """Return the version that ncu says, "" where it says none."""
    said = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=False).stdout
    return (re.findall(r"Version ([\d.]+)", said) or [""])[0]


def metrics_known(ncu: str) -> list[str]:
    """Return the fixed list, and what is WHERE_KNOWN to this ncu for the GPU here."""
    said = subprocess.run([ncu, "--query-metrics"], capture_output=True, text=True, check=False).stdout
    known = {line.split()[0] for line in said.splitlines() if "__" in line}
    return [*METRICS, *(name for name in WHERE_KNOWN if name.rsplit(".", 1)[0] in known)]


def run_under_ncu(ncu: str, program: Sequence[str], log: Path, metrics: Sequence[str],
                  replays: Sequence[str] = ()) -> str:  # fmt: skip
    """Run a program under ncu, its CSV going to `log`; return what both printed.

    replays: further options of ncu. Raises LaunchRefused for what REFUSALS knows, and where no CSV was made.
    """
    command = [ncu, *OPTIONS, *replays, "--metrics", ",".join(metrics), "--log-file", str(log)]
    # ncu runs a Python of its own, which our path would break: only the program gets it.
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if "PYTHONPATH" in os.environ:
        command += ["/usr/bin/env", f"PYTHONPATH={os.environ['PYTHONPATH']}"]
    # To a file: a pipe would be waited for as long as any process that ncu started holds it.
    with tempfile.TemporaryFile("w+", errors="replace") as printed:
        done = subprocess.run([*command, *program], env=surroundings, stdout=printed, check=False)
        printed.seek(0)
        said = printed.read()
    text = log.read_text(errors="replace") if log.exists() else ""
    said += "".join(line + "\n" for line in text.splitlines() if line.startswith("=="))
    for mark, meaning in REFUSALS.items():
        if mark in said:
            raise LaunchRefused(f"nothing was measured: {meaning}")
    if '"ID",' not in text:
        last = " ".join(said.strip().splitlines()[-3:]) or "it printed nothing"
        raise LaunchRefused(f"ncu measured no launch (exit status {done.returncode}): {last}")
    return said
