"""Loops without an end, and loops that are too long: all engines name the line; Ctrl-C ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import gpusim
from dsl import cuda
from dsl.engine import host_thread
from dsl.oracle import arrays
from gpusim.errors import EndlessLoop, LaunchRefused

ENGINES = ("compiled", "ir", "oracle")
ROOT = Path(__file__).resolve().parents[2]


@cuda.jit
def add_up(o, n):
    total = np.float32(0)
    for k in range(n):
        total = total * np.float32(0.5) + k
    o[0] = total


@cuda.jit
def add_up_for_ever(o, n):
    total = np.float32(0)
    for k in range(1 << 45):
        total = total * np.float32(0.5) + k
    o[0] = total


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kernel", [add_up, add_up_for_ever])
def test_a_for_loop_that_is_far_too_long_stops_with_its_line(kernel, engine):
    o, line = np.zeros(1), kernel.py_func.__code__.co_firstlineno + 3
    with gpusim.profile(engine=engine, max_steps=2):
        with pytest.raises(EndlessLoop, match=rf"test_endless\.py:{line}: no end after 2 steps"):
            kernel[1, 1](o, 1 << 45)
    assert o[0] == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_thousand_passes_of_a_for_loop_are_one_step(engine, monkeypatch):
    monkeypatch.setattr(arrays, "SHORT_LOOP", 100)  # of a loop this short, the source is not counted
    # The header runs once more than the body, so a loop of 1,000 n passes takes 1,000 n + 1 parts.
    with gpusim.profile(engine=engine, max_steps=3):
        add_up[1, 1](np.zeros(1), 2999)
        with pytest.raises(EndlessLoop):
            add_up[1, 1](np.zeros(1), 3000)


@cuda.jit
def nested(o, n):
    for i in range(n):
        for j in range(n):
            o[0] = i + j


@pytest.mark.parametrize("engine", ["compiled", "ir"])
def test_the_passes_of_all_loops_of_a_warp_add_up(engine):
    # n passes of the outer loop, of n + 1 headers of the inner one each, and one more: n**2 + 2 n + 1.
    with gpusim.profile(engine=engine, max_steps=1):
        nested[1, 1](np.zeros(1), 30)  # 961
        with pytest.raises(EndlessLoop):
            nested[1, 1](np.zeros(1), 31)  # 1,024


@cuda.jit
def known_lengths(o):
    for i in range(1000):
        for j in range(65536):
            o[0] += j
        break


def test_a_loop_of_known_length_up_to_65536_takes_no_step():
    o = np.zeros(1)
    with gpusim.profile(max_steps=0):
        known_lengths[1, 1](o)
    assert o[0] == 65535 * 65536 // 2


@pytest.mark.skipif(os.name == "nt", reason="a signal cannot be sent to a single process there")
def test_ctrl_c_ends_a_kernel_that_runs_as_machine_code():
    o = np.zeros(1)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    add_up[1, 1](o, 3)  # compiled before the clock runs
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        add_up[1, 1](o, 1 << 45)
    timer.join()
    assert o[0] == 2.5  # 0 * 0.5 + 0, 0 * 0.5 + 1, 1 * 0.5 + 2
    add_up[1, 1](o, 2)
    assert o[0] == 1


SPINS = """
import os, signal, threading, time
import numpy as np
from numba import cuda

@cuda.jit
def spin(x):
    while True:
        x[0] += 1

@cuda.jit
def meet_and_spin(x):
    print("thread", cuda.grid(1))
    cuda.syncthreads()
    for i in range(1 << 45):
        x[0] += 1

def press_ctrl_c():
    while not any(t.name.startswith("cuda thread") for t in threading.enumerate()):
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press_ctrl_c, daemon=True).start()
if __name__ == "__main__":
    meet_and_spin[1, 2](np.zeros(1))
"""
SIMULATE = (
    "--grid", "1", "--block", "2", "--arg", "float32[1]", "--engine", "oracle", "--max-steps", "1000000000",
)  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="a signal cannot be sent to a single process there")
@pytest.mark.parametrize(
    ("command", "target", "options", "printed"),
    [("simulate", "spins.py:spin", SIMULATE, ""), ("profile", "spins.py", (), "thread 0\nthread 1\n")],
)
def test_ctrl_c_ends_the_python_oracle_with_status_130(tmp_path, command, target, options, printed):
    (tmp_path / "spins.py").write_text(SPINS)
    line = [sys.executable, "cli.py", command, str(tmp_path / target), *options]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, printed)
    assert done.stderr.strip() == "error: interrupted"


@cuda.jit
def load_for_ever(x, o):
    for k in range(1 << 45):
        o[0] += x[k % 32]


def test_a_trace_that_is_full_names_the_line_of_the_request_that_had_no_room(monkeypatch):
    monkeypatch.setattr(host_thread, "_buffers", [host_thread.TraceBuffer(200)])
    line = load_for_ever.py_func.__code__.co_firstlineno + 3
    where = rf"load_for_ever, block \(0, 0, 0\), .*test_endless\.py:{line}"
    with pytest.raises(LaunchRefused, match=rf"{where}: the blocks .* more than 200 requests"):
        load_for_ever[1, 32](np.zeros(32), np.zeros(1))
