"""Measuring: jobs under ncu, what ncu saw joined to what was launched, and what is recorded of it.

There is no GPU here: a script in the place of ncu writes what ncu would write, and a backend of arrays in the
place of numba runs jobs.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cli
import kernels_real
import kernels_sim
from gpusim.errors import LaunchRefused
from gpusim.measured import Measured, parse_measured
from gpusim.ncu_csv import IDENTITY
from kernels_real import record, recorded_launches, recordings, workload
from kernels_real.jobs import Job, Outcome, read_outcomes
from kernels_real.measuring import joined, measure
from kernels_real.metric_list import METRICS
from kernels_sim.attention import TOLERANCES
from kernels_sim.check import checks
from kernels_sim.problem import Data

FAKE_NCU = '''#!{python}
import json, sys
words = sys.argv[1:]
if "--version" in words or "--query-metrics" in words:
    print("Version 2025.3.1.0 (build 1)")
    sys.exit()
mode = {mode!r}
log = words[words.index("--log-file") + 1]
jobs, outcomes = words[words.index("run-jobs") + 1 :][:2]
identity = {identity!r}
with open(log, "w") as out, open(outcomes, "w") as told:
    print("==PROF== Connected to process 5", file=out)
    if mode == "refused":
        print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", file=out)
        sys.exit(1)
    header = [*identity, "dram__bytes_read.sum", "launch__registers_per_thread"]
    print(",".join(f'"{{n}}"' for n in header), file=out)
    print(",".join(['""'] * 11 + ['"byte"', '""']), file=out)
    for i, line in enumerate(open(jobs)):
        job = json.loads(line)
        launches = [{{"name": job["kernel"], "grid": [4, 1, 1], "block": [256, 1, 1], "local_bytes": 8}}]
        done = {{"job": job, "launches": launches, "errors": {{"c": 0.5 if mode == "wrong" else 0.0}},
                 "tolerance": 0.1, "failure": ""}}
        told.write(json.dumps(done) + "\\n")
        cells = [i, 5, "python", "host", f"{{job['kernel']}}(float *)", 1, 7, "(256, 1, 1)", "(4, 1, 1)", 0,
                 "9.0", 8192 + i, 16]
        print(",".join(f'"{{c}}"' for c in cells), file=out)
'''


def put_ncu(folder: Path, monkeypatch: pytest.MonkeyPatch, mode: str = "") -> None:
    path = folder / "ncu"
    path.write_text(FAKE_NCU.format(python=sys.executable, mode=mode, identity=IDENTITY))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


# One kernel


def test_measure_writes_ncu_s_csv_with_a_header_and_says_whether_values_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_ncu(tmp_path, monkeypatch)
    file = tmp_path / "m.csv"
    command = ["measure", "vec_add", "--n", "1003", "--backend", "numba", "--set", "max_registers=32"]
    assert cli.run([*command, "--out", str(file)]) == 0
    assert "c: error 0, tolerance 0.1: ok" in capsys.readouterr().err
    (launch,) = parse_measured(file.read_text())
    assert launch.values == {"dram__bytes_read.sum": 8192, "launch__registers_per_thread": 16}
    said = launch.header
    assert (said["kernel"], said["n"], said["backend"]) == ("vec_add", "1003", "numba")
    assert (said["ncu"], said["cache control"]) == ("2025.3.1.0", "all")
    assert cli.run(["compare", "vec_add", "--n", "1003", "--measured", str(file)]) == 0
    assert "DRAM Bytes Read" in capsys.readouterr().out


def test_compare_measures_first_where_a_backend_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_ncu(tmp_path, monkeypatch)
    assert cli.run(["compare", "vec_add", "--n", "1003", "--backend", "numba"]) == 0
    said = capsys.readouterr()
    assert "c: error 0" in said.err
    assert "DRAM Bytes Read" in said.out and "Measured:  vec_add(float *)" in said.out
    assert cli.run(["compare", "vec_add", "--backend", "numba", "--measured", "x.csv"]) == 2
    assert "give --measured FILE or --backend, not both" in capsys.readouterr().err


def test_a_wrong_value_is_said_and_the_status_is_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_ncu(tmp_path, monkeypatch, "wrong")
    assert cli.run(["measure", "vec_add", "--backend", "numba"]) == 1
    assert "c: error 0.5, tolerance 0.1: WRONG" in capsys.readouterr().err


def test_without_permission_for_counters_the_message_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_ncu(tmp_path, monkeypatch, "refused")
    assert cli.run(["measure", "vec_add", "--backend", "triton"]) == 2
    assert "performance counters (ERR_NVGPUCTRPERM): run as root" in capsys.readouterr().err


def test_without_ncu_the_message_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels_real.ncu.shutil.which", lambda _: None)
    monkeypatch.setattr("kernels_real.ncu.Path.glob", lambda *_: [])
    with pytest.raises(LaunchRefused, match="ncu .* is not on the PATH"):
        measure([Job("vec_add", "numba")])


# Launches of ncu and launches of jobs


def row(kernel: str, blocks: int) -> Measured:
    return Measured(f"{kernel}(Array<float>)", (blocks, 1, 1), (32, 1, 1), {"launch__grid_size": blocks})


def outcome(*launches: tuple[str, int], failure: str = "") -> Outcome:
    named = [{"name": name, "grid": [blocks, 1, 1], "block": [32, 1, 1]} for name, blocks in launches]
    return Outcome(Job("k", "numba"), named, failure=failure)


def test_launches_are_found_by_name_and_grid_past_those_of_a_job_that_failed_halfway() -> None:
    rows = [row("split", 4), row("split", 8), row("combine", 2), row("split", 8), row("combine", 3)]
    outcomes = [outcome(failure="broken"), outcome(("split", 8), ("combine", 2)), outcome(("other", 1)),
                outcome(("split", 8), ("combine", 3))]
    found = [len(x) for _, x in joined(outcomes, rows)]
    assert found == [0, 2, 0, 2]
    assert joined(outcomes, rows)[3][1] == rows[3:]


# Jobs


class FakePrepared:
    """Run a problem with numpy, and note in which order things were done."""

    done: list[str] = []

    def __init__(self, problem: Any) -> None:
        self.problem = problem
        self.launches = [SimpleNamespace(name="vec_add", grid=(4,), block=(256,))]

    def compile(self) -> list[Any]:
        self.done.append("compile")
        return [SimpleNamespace(regs_per_thread=16, local_mem_per_thread=0)]

    def launch(self) -> None:
        self.done.append("launch")

    def refill(self) -> None:
        self.done.append("refill")

    def outputs(self) -> dict[str, np.ndarray]:
        return {name: x.astype(np.float32) for name, x in self.problem.reference().items()}


@pytest.fixture
def fake_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("fake_backend")
    module.prepare = lambda problem, **_: FakePrepared(problem)
    monkeypatch.setitem(sys.modules, "fake_backend", module)
    monkeypatch.setitem(kernels_real.BACKENDS, "fake", "fake_backend")
    monkeypatch.setitem(workload.RANGES, "fake", lambda: FakePrepared.done.append("range") or nullcontext())


def build(job: Job) -> Any:
    return cli.problem_of(job.kernel, job.seed, False, dict(job.options))[0]


def test_a_job_is_warm_and_its_arrays_fresh_before_the_profiler_starts(fake_backend: None) -> None:
    FakePrepared.done.clear()
    found = workload.run_job(Job("vec_add", "fake", {"n": 1003}), build, checks)
    assert FakePrepared.done == ["compile", "launch", "refill", "range", "launch"]
    assert found.launches == [{"name": "vec_add", "grid": [4, 1, 1], "block": [256, 1, 1], "registers": 16,
                               "local_bytes": 0}]
    assert found.errors == {"total": pytest.approx(0, abs=1e-6)} and not found.wrong and not found.failure


def test_a_job_that_fails_is_noted_and_the_next_one_runs(fake_backend: None, tmp_path: Path) -> None:
    path = tmp_path / "outcomes"
    listed = [Job("vec_add", "fake", {"n": 0}), Job("nothing", "fake"), Job("vec_add", "fake", {"n": 8})]
    workload.run_jobs(listed, build, checks, path)
    failures = [o.failure for o in read_outcomes(path)]
    assert ["unknown kernel" in f for f in failures] == [False, True, False] and failures[2] == ""


def test_no_job_begins_after_its_time(fake_backend: None, tmp_path: Path, capsys: Any) -> None:
    workload.run_jobs([Job("vec_add", "fake")] * 2, build, checks, tmp_path / "o", seconds=-1)
    assert read_outcomes(tmp_path / "o") == []
    assert "2 jobs were not begun" in capsys.readouterr().err


# Recording


def test_what_is_recorded_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_ncu(tmp_path, monkeypatch)
    listed = [Job("vec_add", "numba", {"n": 1003}), Job("vec_add", "numba", {"n": 1000})]
    (tmp_path / "out").mkdir()
    said = {"card": "NVIDIA H200", "cache control": "all"}
    parts = [("numba", listed[:1]), ("numba", listed[1:])]
    assert record.record(parts, float("inf"), tmp_path / "out", said) == 0
    one, two = recordings.read_all(tmp_path / "out")
    assert (one.job, two.job) == (listed[0], listed[1])
    assert (one.step, one.local_bytes, one.error, one.spills) == (0, 8, 0.0, False)
    assert (one.measured.kernel, one.measured.grid, one.measured.block) == ("vec_add", (4, 1, 1), (256, 1, 1))
    assert one.measured.values["dram__bytes_read.sum"] == 8192
    assert one.header["card"] == "NVIDIA H200"


def test_parts_of_all_backends_come_in_turns() -> None:
    a, b, c = ([Job(name, "numba")] for name in "abc")
    assert record.in_turns({"numba": [a, b], "triton": [c]}) == [("numba", a), ("triton", c), ("numba", b)]


def test_every_algorithm_has_four_shapes_on_each_backend_and_one_beyond_l2() -> None:
    for shapes in recorded_launches.LISTS.values():
        assert [k for k, x in shapes.items() if len(x) < 4 and k != recorded_launches.EMPTY] == []
    from kernels_real import triton_kernels

    assert set(triton_kernels.names()) == set(recorded_launches.TRITON)
    without = {"matmul_mma", "matmul_fp8", "fp8_qkv", "fp8_qkv_backward", "qkv_norm_rope_fp8_backward"}
    assert set(kernels_sim.names()) - without == set(recorded_launches.NUMBA) - {recorded_launches.EMPTY}


@pytest.mark.parametrize("backend", recorded_launches.LISTS)
def test_every_recorded_launch_can_be_built_and_some_overflow_l2(backend: str) -> None:
    largest: dict[str, int] = {}
    for job in recorded_launches.jobs(backend):
        if ".py:" in job.kernel:
            continue
        spec = kernels_sim.find(job.kernel)
        problem = spec.build(spec.options(**job.options), Data(virtual=True))
        arrays = {id(a): a.nbytes for step in problem.steps for a in step.args if hasattr(a, "nbytes")}
        largest[job.kernel] = max(largest.get(job.kernel, 0), sum(arrays.values()))
    assert {kernel: n for kernel, n in largest.items() if n < 50_000_000} == {}


def test_a_kernel_of_the_project_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = Job(recorded_launches.EMPTY, "numba").target
    assert Path(target.rpartition(":")[0]).is_file()
    assert target.endswith("/kernels_real/empty_kernel.py:empty")
    assert Job("vec_add", "numba").target == "vec_add"
    assert Job("mine.py:kernel", "numba").target == "mine.py:kernel"


def test_metrics_are_asked_for_once_each() -> None:
    assert len(set(METRICS)) == len(METRICS) > 90
    assert json.loads(json.dumps(METRICS)) == list(METRICS)


# Fit set and test set


def test_even_problems_are_for_fitting_odd_ones_for_judging_and_all_microbenchmarks_for_fitting() -> None:
    assert [n for n in range(7) if recorded_launches.subset_of("numba", n) == "fit"] == [0, 2, 4, 6]
    assert [n for n in range(7) if recorded_launches.subset_of("triton", n) == "test"] == [1, 3, 5]
    assert [n for n in range(7) if recorded_launches.subset_of("micro", n) == "fit"] == [0, 1, 2, 3, 4, 5, 6]


def test_problems_are_numbered_kernel_by_kernel_and_their_launches_stay_together() -> None:
    found = recordings.read_all()
    for backend in ("numba", "triton"):
        sizes = [r.job.options["N"] for r in found if r.job.kernel == "standard_attention"
                 and r.job.backend == backend and r.subset == "fit"]
        assert sizes == [256] * 3 + [2048] * 3
    copies = [(r.job.options["n"], r.subset) for r in found if r.job.kernel == "vec_add"]
    assert copies == [(1003, "fit"), (1_000_003, "test"), (1 << 22, "fit"), (1 << 24, "test")]
    micro = [r.subset for r in found if recorded_launches.list_of(r.job) == "micro"]
    assert len(micro) == 115 and set(micro) == {"fit"}


@pytest.mark.parametrize("listed", ["numba", "triton"])
def test_the_set_of_a_recorded_launch_is_that_of_its_place_in_the_list(listed: str) -> None:
    for kernel, shapes in recorded_launches.LISTS[listed].items():
        titles = {job.title: n for n, job in enumerate(recorded_launches.jobs(listed, (kernel,)))}
        assert len(titles) == len(shapes)
        found = [r for r in recordings.read_all() if r.job.kernel == kernel and r.job.backend == listed]
        assert {r.subset for r in found if titles[r.job.title] % 2 == 0} == {"fit"}
        assert {r.subset for r in found if titles[r.job.title] % 2 == 1} == {"test"}


def test_recordings_are_chosen_by_kernel_and_set_and_keep_their_set() -> None:
    fit, test = (cli.recordings(None, ("vec_add",), subset) for subset in ("fit", "test"))
    assert [r.job.options["n"] for r in fit] == [1003, 1 << 22]
    assert [r.job.options["n"] for r in test] == [1_000_003, 1 << 24]
    assert len(cli.recordings(None, ("vec_add",))) == 4


# Replaying


def test_validate_replays_what_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["validate", "--kernel", "vec_add", "--processes", "1"]) == 0
    text = capsys.readouterr().out
    assert "The same source through numba-cuda" in text and "launches with spills" not in text
    exact = [line.split() for line in text.splitlines() if line.startswith(("Global Load Sectors  ", "FADD"))]
    assert len(exact) == 2
    for words in exact:  # name of three words, class, n, equal, ...
        assert words[3] == "exact" and words[4] == words[5]


def test_validate_of_one_set_shows_its_launches_and_goals_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["validate", "--kernel", "vec_add", "--set", "test", "--processes", "1"]) == 0
    text = capsys.readouterr().out
    assert "through numba-cuda: 2 launches" in text and "1 launch of the test set" in text
    assert "Test: n" in text and "Fit: n" not in text


@pytest.mark.parametrize(("words", "message"), [
    (("vec_ad",), "error: no launch of 'vec_ad' is in the recordings; it has: "),
    (("kernels_real/micro_kernels.py:read_slices", "--set", "test"),
     "error: no launch of 'kernels_real/micro_kernels.py:read_slices' is in the test set; it has: ")])
def test_validate_refuses_a_kernel_that_has_no_launch_to_replay(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["validate", "--kernel", *words]) == 2
    assert capsys.readouterr().err.startswith(message)


def test_validate_takes_recordings_of_one_s_own_and_refuses_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["validate", "--from", str(tmp_path)]) == 2
    assert "holds no recorded measurements" in capsys.readouterr().err
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert cli.run(["validate", "--from", str(tmp_path)]) == 2
    assert "is no file of recorded measurements" in capsys.readouterr().err


def test_the_recordings_of_the_project_can_be_built_and_are_cold() -> None:
    found = recordings.read_all()
    assert len(found) >= 33
    for r in found:
        assert r.measured.l2 == "cold" and r.header["card"] and r.measured.values
        if ".py:" not in r.job.kernel:
            kernels_sim.find(r.job.kernel).options(**r.job.options)


def test_every_listed_launch_is_recorded_with_right_values_and_40_of_a_backend_last_over_20_us() -> None:
    for backend, least in (("numba", 50), ("triton", 40)):
        found = recordings.read(recordings.FOLDER / f"{backend}.csv")
        assert {r.job.title for r in found} == {job.title for job in recorded_launches.jobs(backend)}
        assert sum(r.measured.values["gpu__time_duration.sum"] > 20_000 for r in found) >= least
        listed = recorded_launches.jobs(backend)
        checked = {job.title for job in listed if job.check and ".py:" not in job.kernel}
        for r in found:
            if r.job.title in checked:
                usual = "bfloat16" if "fp8" in r.job.kernel else "float32"
                options = kernels_sim.find(r.job.kernel).options(**r.job.options)
                assert r.error is not None, r.title
                assert r.error <= TOLERANCES[getattr(options, "dtype", usual)], r.title


def test_an_empty_kernel_of_any_size_reads_2_560_bytes_and_no_global_sector() -> None:
    empty = [r for r in recordings.read_all() if r.job.kernel == recorded_launches.EMPTY]
    assert len(empty) == 2
    for r in empty:
        assert r.measured.values["dram__bytes_read.sum"] == 2_560
        assert r.measured.values["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 0


def test_standard_attention_in_triton_multiplies_whole_tiles_of_64() -> None:
    """Its simulated twin multiplies with FFMA, so its tensor operations are held to this and to no twin."""
    found = {(r.job.options["N"], r.measured.kernel): r.measured.values["sm__ops_path_tensor_src_fp16.sum"]
             for r in recordings.read_all()
             if r.job.backend == "triton" and r.job.kernel == "standard_attention"}
    assert found[256, "scores"] == found[256, "output"] == 2 * 256 * 256 * 64
    assert found[1000, "scores"] == found[1000, "output"] == 2 * 1024 * 1024 * 64
    assert found[2048, "scores"] == found[2048, "output"] == 2 * 2048 * 2048 * 64
    assert found[4096, "scores"] == found[4096, "output"] == 2 * 4096 * 4096 * 64 * 2  # heads
    assert found[4096, "softmax"] == 0


def test_compare_finds_a_kernel_with_its_options_in_recorded_measurements(capsys) -> None:
    file = str(recordings.FOLDER / "triton.csv")
    options = ["--N", "256", "--variant", "mma", "--dtype", "float16"]
    assert cli.run(["compare", "flash_forward", *options, "--measured", file]) == 0
    row = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("Global Load Sectors  "))
    assert row.split()[4:6] == ["9,216", "9,216"]  # 4 blocks: 256 of Q, 2,048 of K and V
    assert cli.run(["compare", "flash_forward", "--N", "257", "--measured", file]) == 2
    assert "triton.csv: no launch of flash_forward with these options; recorded: flash_forward N=256 " in (
        capsys.readouterr().err)  # fmt: skip
