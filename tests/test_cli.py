"""The command line as a whole: what is printed, on which stream, with which exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cli
from gpusim import ncu_csv

ROOT = Path(__file__).resolve().parents[1]
Capture = pytest.CaptureFixture[str]
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"

KERNELS = """
from numba import cuda, float32

@cuda.jit
def scale(x, y, a):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i]

@cuda.jit
def column(x, y):
    tile = cuda.shared.array((32, 32), float32)
    t = cuda.threadIdx.x
    for r in range(32):
        tile[r, t] = x[r, t]
    cuda.syncthreads()
    s = float32(0)
    for c in range(32):
        s += tile[t, c]
    y[t] = s

@cuda.jit
def out_of_bounds(x):
    x[cuda.grid(1)] = 1.0

@cuda.jit
def endless(x):
    while x[0] == 0:
        pass
"""

SCRIPT = """
import sys
import numpy as np
from numba import cuda

@cuda.jit
def add_one(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += 1

@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2

if __name__ == "__main__":
    x = np.zeros(int(sys.argv[1]), np.float32)
    add_one[4, 32](x)
    double[4, 32](x)
    add_one[4, 32](x)
    print("sum", x.sum())
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """Return a file of kernels."""
    file = tmp_path / "kernels.py"
    file.write_text(KERNELS)
    return file


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return a script for numba.cuda that launches three kernels."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    return file


def output(capsys: Capture, *arguments: object, status: int = 0) -> str:
    """Run a command line and return what it prints on stdout; nothing may stand on stderr."""
    assert cli.run([str(a) for a in arguments]) == status
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def message(capsys: Capture, *arguments: object) -> str:
    """Run a command line that is refused and return its one message; nothing may stand on stdout."""
    assert cli.run([str(a) for a in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert "Traceback" not in printed.err
    return printed.err


def test_a_shipped_kernel_is_reported_with_its_closed_form_and_its_reference(capsys: Capture) -> None:
    text = output(capsys, "simulate", "vec_add", "--n", 1000)
    assert text.startswith("vec_add (4, 1, 1)x(256, 1, 1), Device NVIDIA H200, CC 9.0\n  seed=0  n=1000\n")
    assert re.search(r"^global_load\.bytes +8,000 +8,000  equal$", text, re.MULTILINE)
    assert re.search(r"^total +\S+ +1e-05  OK$", text, re.MULTILINE)


def test_options_may_stand_before_the_kernel(capsys: Capture) -> None:
    text = output(capsys, "simulate", "--gpu", "a100", "--n", 1000, "vec_add")
    assert text.startswith("vec_add (4, 1, 1)x(256, 1, 1), Device NVIDIA A100")


def test_given_registers_are_used_and_called_given(capsys: Capture) -> None:
    text = output(capsys, "simulate", "vec_add", "--n", 1000, "--regs", 100)
    assert re.search(r"^Registers Per Thread +register/thread +100  given$", text, re.MULTILINE)
    # 4 * (16384 // 3328) // 8
    assert re.search(r"^Block Limit Registers +block +2  exact$", text, re.MULTILINE)


def test_one_section_is_printed_alone(capsys: Capture) -> None:
    text = output(capsys, "simulate", "vec_add", "--n", 1000, "--section", "occupancy")
    assert text.count("Section: ") == 1


def test_the_section_algorithm_says_what_flash_attention_moves(capsys: Capture) -> None:
    text = output(capsys, "simulate", "flash_forward", "--counts-only", "--section", "algorithm")
    moved = r"^Moved At SM-L1 +element +34,082,816 +34,082,816  equal +N d \(2 \+ 2 ceil\(N/Br\)\) \+ N$"
    assert re.search(moved, text, re.MULTILINE)
    assert re.search(r"^Ideal At DRAM +element +1,052,672 +1,052,672  equal +4 N d \+ N$", text, re.MULTILINE)
    assert "Moved At SM-L1 / Ideal At DRAM: 32.38, counted 32.38.\n" in text
    assert max(map(len, text.splitlines())) <= 100


def test_chosen_metrics_are_name_unit_value(capsys: Capture) -> None:
    text = output(capsys, "simulate", "vec_add", "--n", 1000, "--metrics", f"{SECTORS},launch__grid_size")
    assert re.search(rf"^{re.escape(SECTORS)} +sector +250  exact$", text, re.MULTILINE)  # 2 * 125
    assert re.search(r"^launch__grid_size +4  exact$", text, re.MULTILINE)


def test_counts_only_gives_the_same_counts_and_no_check(capsys: Capture) -> None:
    whole = output(capsys, "simulate", "vec_add", "--n", 1000)
    counts = output(capsys, "simulate", "vec_add", "--n", 1000, "--counts-only")
    assert "Largest Error" not in counts
    level = re.compile(r"^(?:SM-L1|L1-L2|L2-DRAM|global_\w+\.\w+) .*$", re.MULTILINE)
    assert level.findall(counts) == level.findall(whole) != []


@pytest.mark.parametrize("engine", ["compiled", "ir"])
def test_engines_give_the_same_report_but_for_their_name(capsys: Capture, engine: str) -> None:
    auto = output(capsys, "simulate", "vec_add", "--n", 1000, "--section", "MemoryWorkloadAnalysis")
    text = output(
        capsys, "simulate", "vec_add", "--n", 1000, "--section", "MemoryWorkloadAnalysis", "--engine", engine
    )
    assert text == auto


def test_the_oracle_is_right_and_does_not_claim_what_it_does_not_count(capsys: Capture) -> None:
    text = output(capsys, "simulate", "vec_add", "--n", 100, "--engine", "oracle")
    assert re.search(r"^global_load\.bytes +800 +800  equal$", text, re.MULTILINE)
    assert re.search(r"^arithmetic\.fadd +100 +n/a  not counted$", text, re.MULTILINE)


def test_warm_caches_hit_what_an_identical_launch_left(capsys: Capture) -> None:
    name = "gpusim__dram_data_bytes_read.sum"
    cold = output(capsys, "simulate", "vec_add", "--n", 1000, "--section", "MemoryWorkloadAnalysis")
    warm = output(
        capsys, "simulate", "vec_add", "--n", 1000, "--section", "MemoryWorkloadAnalysis", "--l2", "warm"
    )
    data = re.compile(r"^L2-DRAM  read data +\S+ +([\d,]+)", re.MULTILINE)
    assert data.findall(cold) == ["8,064"], name  # 125 sectors each of a and b, in pairs of 64 bytes
    assert data.findall(warm) == ["0"]


def test_another_order_of_atomics_says_how_far_the_outputs_move_and_changes_no_count(capsys: Capture) -> None:
    usual = output(capsys, "simulate", "histogram", "--n", 100_000, "--section", "MemoryWorkloadAnalysis")
    text = output(capsys, "simulate", "histogram", "--n", 100_000, "--atomic-order", 3)
    assert usual.split("Section: ", 1)[1].split("\nOPT")[0] in text
    assert "Atomic order 3, against blocks in the order of their numbers;" in text
    assert "counts 0." in text  # sums of integers do not depend on their order
    assert re.search(r"^counts +0\.00 +0\.00  OK$", text, re.MULTILINE)


def test_warm_caches_do_not_run_an_accumulator_twice(capsys: Capture) -> None:
    text = output(capsys, "simulate", "histogram", "--n", 1000, "--l2", "warm", "--section", "Validation")
    assert "OK" in text
    assert "FAILED" not in text


def test_a_pipeline_prints_totals_before_its_launches(capsys: Capture) -> None:
    text = output(capsys, "simulate", "standard_attention", "--N", 64)
    assert text.startswith("3 launches\n")
    assert len(re.findall(r"^    Total ", text, re.MULTILINE)) == 1
    assert text.count("Section: Launch Statistics") == 3


def test_json_is_saved_and_compared(capsys: Capture, tmp_path: Path) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    output(capsys, "simulate", "vec_add", "--n", 1000, "--format", "json", "--out", a)
    output(capsys, "simulate", "vec_add", "--n", 2000, "--format", "json", "--out", b)
    assert json.loads(a.read_text())["launches"][0]["kernel"] == "vec_add"
    text = output(capsys, "compare", a, b, "--metrics", SECTORS)
    assert re.search(rf"^{re.escape(SECTORS)} +sector +250 +500 +250 +200.00  exact$", text, re.MULTILINE)


def test_cold_and_warm_are_not_compared(capsys: Capture, tmp_path: Path) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    output(capsys, "simulate", "vec_add", "--n", 1000, "--format", "json", "--out", a)
    output(capsys, "simulate", "vec_add", "--n", 1000, "--format", "json", "--l2", "warm", "--out", b)
    assert "not comparable" in message(capsys, "compare", a, b)


def test_csv_has_ncus_raw_shape(capsys: Capture) -> None:
    rows = ncu_csv.parse_raw(output(capsys, "simulate", "vec_add", "--n", 1000, "--format", "ncu-csv"))
    assert len(rows) == 1
    assert (rows[0]["Kernel Name"], rows[0][SECTORS]) == ("vec_add", 250)


def test_ones_own_kernel_runs_from_a_file(capsys: Capture, kernels: Path) -> None:
    text = output(capsys, "simulate", f"{kernels}:scale", "--grid", "4", "--block", "32",
                  "--arg", "float32[100]=ones", "--arg", "y=float32[100]=zeros", "--arg", "float32:2")
    assert text.startswith("scale (4, 1, 1)x(32, 1, 1)")
    assert re.search(r"^SM-L1    global load +4 +400 +13 ", text, re.MULTILINE)  # 100 floats: 12.5 sectors


def test_arrays_come_from_files(capsys: Capture, kernels: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(64, np.float32))
    text = output(
        capsys,
        "simulate",
        f"{kernels}:scale",
        "--grid",
        "1",
        "--block",
        "64",
        "--arg",
        f"@{tmp_path}/x.npy",
        "--arg",
        "float32[64]=zeros",
        "--arg",
        "2.0",
    )
    assert re.search(r"^SM-L1    global load +2 +256 +8 ", text, re.MULTILINE)


def test_a_bank_conflict_is_found_in_ones_own_kernel(capsys: Capture, kernels: Path) -> None:
    text = output(
        capsys,
        "simulate",
        f"{kernels}:column",
        "--grid",
        "1",
        "--block",
        "32",
        "--arg",
        "float32[32,32]",
        "--arg",
        "float32[32]=nan",
        "--section",
        "MemoryWorkloadAnalysis",
    )
    assert "Shared Load Bank Conflicts" in text


def test_profile_reports_every_launch_of_a_script(capsys: Capture, script: Path) -> None:
    text = output(capsys, "profile", script, 100)
    assert text.startswith("sum 300.0\n3 launches\n")  # (0 + 1) * 2 + 1 = 3, a hundred times
    assert [line.split(" ")[0] for line in text.splitlines() if "Device NVIDIA" in line] == [
        "add_one",
        "double",
        "add_one",
    ]


def test_profile_chooses_launches_as_ncu_does(capsys: Capture, script: Path) -> None:
    text = output(
        capsys, "profile", "--kernel-name", "regex:add", "--launch-skip", 1, "--launch-count", 1, script, 100
    )
    assert text.startswith("sum 300.0\nadd_one (4, 1, 1)x(32, 1, 1)")


def test_profile_keeps_what_the_script_prints_out_of_csv_and_json(capsys: Capture, script: Path) -> None:
    assert cli.run(["profile", "--format", "json", str(script), "100"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "sum 300.0\n"
    assert len(json.loads(printed.out)["launches"]) == 3


def test_profile_hands_on_the_exit_status_and_still_reports(capsys: Capture, script: Path) -> None:
    script.write_text(SCRIPT + "    sys.exit(3)\n")
    assert "3 launches" in output(capsys, "profile", script, 100, status=3)


def test_numba_cuda_is_itself_again_after_profile(capsys: Capture, script: Path) -> None:
    before = sys.modules.get("numba.cuda")
    output(capsys, "profile", script, 100)
    assert sys.modules.get("numba.cuda") is before


def test_kernels_are_listed_with_their_options(capsys: Capture) -> None:
    text = output(capsys, "list")
    assert re.search(r"^flash_forward: ", text, re.MULTILINE)
    assert "--Br 64" in text


def test_gpus_are_listed(capsys: Capture) -> None:
    text = output(capsys, "gpus")
    assert [line.split()[0] for line in text.splitlines()[3:-1]] == ["h200", "h100", "a100"]


def test_occupancy_needs_no_kernel(capsys: Capture) -> None:
    text = output(capsys, "occupancy", "--threads", 256, "--regs", 33)
    assert re.search(r"^Block Limit Registers +block +6  exact$", text, re.MULTILINE)
    assert re.search(r"^Theoretical Occupancy +% +75.00  exact$", text, re.MULTILINE)


def test_a_metric_is_explained(capsys: Capture) -> None:
    assert output(capsys, "explain", "dram__bytes_read.sum").startswith("dram__bytes_read.sum\n")


def test_help_of_a_kernel_lists_its_options(capsys: Capture) -> None:
    text = output(capsys, "simulate", "transpose", "--help")
    assert "--variant [naive|tiled|padded]" in text
    assert "BYTES" not in text  # --shared BYTES belongs to FILE.py:kernel


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "flsh_forward"], "unknown kernel 'flsh_forward'; did you mean flash_forward"),
        (["simulate", "transpose", "--Rows", "3"], "has no option --Rows; it has: --rows, --cols, --variant"),
        (["simulate", "transpose", "--variant", "fast"], "not one of 'naive', 'tiled', 'padded'"),
        (["simulate", "transpose", "--rows", "x"], "'x' is not a valid integer"),
        (["simulate", "flash_forward", "--N", "0"], "--N must be at least 1, got 0"),
        (["simulate", "flash_forward", "--N", "-5"], "--N must be at least 1, got -5"),
        (["simulate", "vec_add", "--gpu", "h300"], "unknown GPU 'h300'"),
        (["simulate", "vec_add", "--section", "Roof"], "unknown section 'Roof'"),
        (["simulate", "vec_add", "--metrics", "dram__bytes_red.sum"], "unknown metric 'dram__bytes_red.sum'"),
        (["simulate", "vec_add", "--metrics", ","], "names no metric"),
        (["simulate", "vec_add", "--format", "json", "--section", "Occupancy"], "--section chooses a part of "
                                                                                "the text"),
        (["simulate", "vec_add", "--format", "json", "--metrics", SECTORS], "JSON holds a whole launch"),
        (["simulate", "vec_add", "--engine", "oracle", "--counts-only"], "--counts-only needs an engine that "
                                                                         "counts without values"),
        (["simulate", "vec_add", "--regs", "0"], "0 is not in the range"),
        (["simulate", "vec_add", "--regs", "256"], "256 registers"),
        (["simulate", "vec_add", "--seed", "-1"], "-1 is not in the range"),
        (["simulate"], "Missing argument 'KERNEL'"),
        (["simulate", "none.py:k", "--grid", "1", "--block", "1"], "none.py: no such file"),
        (["simulate", "none.py:k", "--block", "1"], "Missing option '--grid'"),
        (["profile", "none.py"], "none.py: no such file"),
        (["profile", "--kernel-name", "(", "none.py"], "is not a regular expression"),
        (["compare", "none.json", "none.json"], "cannot read none.json"),
        (["occupancy", "--threads", "2048", "--regs", "32"], "2,048 threads"),
        (["occupancy", "--threads", "32", "--regs", "32", "--smem", "300000"], "300,000 bytes"),
        (["explain", "dram__bytes_red.sum"], "the nearest are dram__bytes_read.sum, "),
        (["gpus", "--all"], "gpus has no option --all"),
        (["gpus", "x"], "unexpected extra argument (x). See gpus --help: "),
        (["compare", "a.json"], "Missing argument 'B.json'. See compare --help: "),
        (["profile", "--nosuch", "3", "x.py"], "profile has no option --nosuch; it has: --gpu, --l2, "),
        (["profile", "."], ". is a directory; name a Python file in it"),
        (["simulate", "vec_add", "--n", "9" * 20], "between -2**62 and 2**62 (4,611,686,018,427,387,904)"),
        (["simulate", "flash_forward", "--q-start", "-" + "9" * 20], "between -2**62 and 2**62"),
        (["frobnicate"], "No such command 'frobnicate'"),
    ],
)
def test_a_mistake_is_one_message_and_status_2(capsys: Capture, arguments: list[str], words: str) -> None:
    assert words in message(capsys, *arguments)


@pytest.mark.parametrize(
    ("kernel", "block", "options", "words"),
    [
        ("out_of_bounds", "64", [], "out_of_bounds"),
        ("out_of_bounds", "2048", [], "2,048 threads a block"),
        ("endless", "32", ["--max-steps", "1000"], "--max-steps"),
        ("scal", "32", [], "did you mean scale"),
    ],
)
def test_a_mistake_in_ones_own_kernel_is_one_message(
    capsys: Capture, kernels: Path, kernel: str, block: str, options: list[str], words: str
) -> None:
    arguments = ["--grid", "1", "--block", block, "--arg", "float32[32]=zeros", *options]
    assert words in message(capsys, "simulate", f"{kernels}:{kernel}", *arguments)


def test_a_mistake_in_a_profiled_script_is_one_message(capsys: Capture, script: Path) -> None:
    script.write_text(SCRIPT.replace("add_one[4, 32]", "add_one[4, 2048]"))
    assert "2,048 threads a block" in message(capsys, "profile", script, 100)


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(
    capsys: Capture, tmp_path: Path
) -> None:
    script = tmp_path / "s.py"
    script.write_text("print('ran')\n")
    assert "cannot write" in message(capsys, "profile", "--out", tmp_path / "none" / "x", script)


def test_nothing_is_written_when_the_kernel_is_refused(capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "x.json"
    message(capsys, "simulate", "flash_forward", "--N", 0, "--format", "json", "--out", out)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_result_is_reported_whole_and_exits_with_1(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpusim.launch import Check
    from kernels_sim import run

    monkeypatch.setattr(run, "checks", lambda problem: (Check("total", 0.5, 1e-5),))
    text = output(capsys, "simulate", "vec_add", "--n", 1000, status=1)
    assert "FAILED" in text
    assert "Wrong Result" in text


def test_help_and_lists_of_gpus_load_neither_numba_nor_matplotlib() -> None:
    source = ("import sys, cli\n"
              "for a in (['--help'], ['simulate', '--help'], ['gpus'], ['explain', 'dram__bytes_read.sum'], "
              "['list']): cli.run(a)\n"
              "print('loaded:', [m for m in ('numba', 'llvmlite', 'matplotlib', 'rich', 'torch') if m in "
              "sys.modules])")
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("loaded: []\n")


def test_the_version_is_printed_with_or_without_an_installation(capsys: Capture) -> None:
    assert re.fullmatch(r"gpusim \d+\.\d+.*\n", output(capsys, "--version"))


def test_data_dependent_addresses_are_refused_for_counts_only(capsys: Capture) -> None:
    assert "histogram" in message(capsys, "simulate", "histogram", "--counts-only")


def test_python_cli_py_is_the_same_command_with_its_exit_status() -> None:
    done = subprocess.run(
        [sys.executable, "cli.py", "simulate", "vec_ad"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown kernel 'vec_ad'; did you mean vec_add")


def test_a_reader_that_goes_away_is_no_mistake() -> None:
    done = subprocess.run(
        f"{sys.executable} cli.py explain | head -1",
        cwd=ROOT,
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_with_warm_caches_the_next_launch_finds_what_the_one_before_wrote(capsys: Capture) -> None:
    # N = 64, d = 64: scores read Q and K, 32,768 bytes; softmax finds S in L2; output reads V alone, 16,384
    # bytes.
    data = re.compile(r"^L2-DRAM  read data +\S+ +([\d,]+)", re.MULTILINE)
    arguments = ["simulate", "standard_attention", "--N", 64]
    assert data.findall(output(capsys, *arguments, "--l2", "warm")) == ["32,768", "0", "16,384"]
    assert data.findall(output(capsys, *arguments)) == ["32,768", "16,384", "32,768"]


def test_closed_forms_of_cold_caches_are_not_held_against_warm_ones(capsys: Capture) -> None:
    warm = output(capsys, "simulate", "flash_forward", "--N", 128, "--l2", "warm", "--section", "Validation")
    cold = output(capsys, "simulate", "flash_forward", "--N", 128, "--section", "Validation")
    assert "hierarchy.dram_read_bytes" not in warm
    assert "hierarchy.dram_read_bytes" in cold
    assert "hierarchy.l2_write" in warm


COLUMN = ("--grid", 1, "--block", 32, "--arg", "x=float32[32,32]", "--arg", "y=float32[32]=zeros")
UP = r"^\d+ lines add up to the kernel's counters, all but L1 hits, L2 and DRAM: "


def test_by_line_adds_a_table_of_source_lines_and_what_to_try(capsys: Capture, kernels: Path) -> None:
    text = output(capsys, "simulate", f"{kernels}:column", *COLUMN, "--by-line")
    assert "Section: Memory Workload Analysis" in text
    section = text[text.index("Section: Source Counters"):]
    # 32 rows of 32 words: a row is one request of 4 sectors; a column of the tile lies in one bank.
    rows = [line.split() for line in section.splitlines()]
    assert "15 tile[r, t] = x[r, t] 32 128 4.00 32 32 0 32.00".split() in rows
    assert "19 s += tile[t, c] 32 1,024 992 32.00 1,024".split() in rows
    assert "20 y[t] = s 1 4 4.00 32.00".split() in rows
    assert "Total 33 132 4.00 64 1,056 992 32.00 1,024".split() in rows
    assert re.search(UP + r"equal\.$", section, re.MULTILINE)
    words = " ".join(section.split())
    assert "line 19, load of tile: 32 wavefronts a request (ideal 1): lanes are 32 words apart; " in words
    assert words.endswith("pad the row to 33 words.")


def test_without_by_line_no_source_line_is_shown_unless_its_section_is_named(
    capsys: Capture, kernels: Path
) -> None:
    assert "Source Counters" not in output(capsys, "simulate", f"{kernels}:column", *COLUMN)
    alone = output(capsys, "simulate", f"{kernels}:column", *COLUMN, "--section", "SourceCounters")
    assert re.findall(r"^Section: (.+)$", alone, re.MULTILINE) == ["Source Counters"]


def test_by_line_goes_with_a_section_and_with_metrics(capsys: Capture) -> None:
    text = output(capsys, "simulate", "vec_add", "--n", 64, "--by-line", "--section", "Occupancy")
    assert re.findall(r"^Section: (.+)$", text, re.MULTILINE) == ["Occupancy", "Source Counters"]
    text = output(capsys, "simulate", "vec_add", "--n", 64, "--by-line", "--metrics", SECTORS)
    assert re.findall(r"^Section: (.+)$", text, re.MULTILINE) == ["Source Counters"]
    assert SECTORS in text


def test_lines_that_do_not_add_up_are_reported_and_exit_with_1(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dsl.engine.tally import Tally

    whole = Tally.by_line
    monkeypatch.setattr(Tally, "by_line", lambda tally: dict(list(whole(tally).items())[:-1]))
    text = output(capsys, "simulate", "vec_add", "--n", 64, "--by-line", status=1)
    assert re.search(UP + "DIFFERENT, ", text, re.MULTILINE)
    assert "DIFFERENT, global_load.lanes 0 for 128, " in " ".join(text.split())
    output(capsys, "simulate", "vec_add", "--n", 64)


@pytest.mark.parametrize("engine", ["ir", "oracle"])
def test_by_line_is_refused_for_an_engine_that_does_not_tell_lines_apart(
    capsys: Capture, engine: str
) -> None:
    said = message(capsys, "simulate", "vec_add", "--n", 64, "--by-line", "--engine", engine)
    assert said == (
        "error: --by-line needs the compiled engine, the only one that tells source lines apart; leave out "
        f"--engine {engine}\n")


def test_json_has_the_lines_and_ncu_csv_does_not_change(capsys: Capture) -> None:
    arguments = ("simulate", "vec_add", "--n", 64)
    lines = json.loads(output(capsys, *arguments, "--by-line", "--format", "json"))["launches"][0]["lines"]
    assert sum(line["counters"].get("global_load.sectors", 0) for line in lines) == 16
    csv = [output(capsys, *arguments, "--format", "ncu-csv", *more) for more in ((), ("--by-line",))]
    assert csv[0] == csv[1]


def test_profile_shows_the_lines_of_every_launch(capsys: Capture, script: Path) -> None:
    text = output(capsys, "profile", "--by-line", "--section", "SourceCounters", script, 128)
    # Four warps load and store 4 sectors each.
    row = re.compile(r"^ +(\d+)  (x\[i\] .= \d) +8 +32 +4\.00 +32\.00 +128$", re.MULTILINE)
    assert row.findall(text) == [("10", "x[i] += 1"), ("16", "x[i] *= 2"), ("10", "x[i] += 1")]


@pytest.mark.parametrize("arguments", ["explain", "list", "simulate vec_add --n 64", "simulate --help"])
def test_a_full_disk_behind_standard_output_is_one_message_and_status_1(arguments: str) -> None:
    command = f"{sys.executable} cli.py {arguments} > /dev/full"
    done = subprocess.run(command, cwd=ROOT, shell=True, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == ("error: cannot write to standard output: No space left on device; --out FILE "
                           "writes a report elsewhere\n")


def test_a_closed_standard_output_is_one_message_and_status_1() -> None:
    done = subprocess.run(
        f"{sys.executable} cli.py gpus >&-", cwd=ROOT, shell=True, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot write to standard output: it is closed")


def test_a_script_that_asks_for_the_time_between_events_gets_nan_and_one_note(
    capsys: Capture, tmp_path: Path
) -> None:
    file = tmp_path / "timed.py"
    file.write_text("from numba import cuda\na, b = cuda.event(), cuda.event()\n"
                    "for _ in range(3): print(cuda.event_elapsed_time(a, b))\n")
    assert cli.run(["profile", str(file)]) == 0
    printed = capsys.readouterr()
    assert printed.out == "nan\nnan\nnan\nNo kernels were profiled.\n"
    assert printed.err == (
        f"note: {file} launched no kernel\nnote: events: no clock; elapsed times are nan\n"
    )


def test_what_a_file_prints_while_it_is_imported_stays_out_of_json(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "k.py"
    file.write_text("print('hello')\ndef k(x):\n    x[0] = 1\n")
    arguments = ["simulate", f"{file}:k", "--grid", "1", "--block", "1", "--arg", "float32[1]"]
    assert cli.run([*arguments, "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "hello\n"
    assert len(json.loads(printed.out)["launches"]) == 1


DEVICE_AND_KERNEL = """import numpy as np
from numba import cuda

@cuda.jit(device=True)
def helper(x):
    return x

@cuda.jit
def fill(x):
    x[cuda.grid(1)] = helper(1)

def main():
    x = np.zeros(32)
    fill[1, 32](x)
    fill[1, 32](x, 3)

if __name__ == "__main__":
    main()
"""


def test_a_profile_that_stops_at_a_bad_launch_reports_those_before(tmp_path: Path, capsys: Capture) -> None:
    script = tmp_path / "two.py"
    script.write_text(DEVICE_AND_KERNEL)
    assert cli.run(["profile", "--format", "json", str(script)]) == 2
    printed = capsys.readouterr()
    assert [launch["kernel"] for launch in json.loads(printed.out)["launches"]] == ["fill"]
    assert printed.err == f"error: {script}:15: kernel fill takes 1 argument (x), 2 were given\n"


def test_a_profile_without_a_launch_says_so(tmp_path: Path, capsys: Capture) -> None:
    script = tmp_path / "none.py"
    script.write_text("print(3)\n")
    assert cli.run(["profile", str(script)]) == 0
    assert capsys.readouterr().err == f"note: {script} launched no kernel\n"
    script.write_text(DEVICE_AND_KERNEL.replace("    fill[1, 32](x, 3)\n", ""))
    assert cli.run(["profile", "--kernel-name", "other", str(script)]) == 0
    assert capsys.readouterr().err == f"note: {script} launched 1 kernel, and none that was asked for\n"


def test_a_profile_counts_the_launches_that_failed_where_the_script_goes_on(
    tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "caught.py"
    file.write_text("import numpy as np\nfrom numba import cuda\n@cuda.jit\ndef k(x):\n    x[5] = 1\n"
                    "for _ in range(2):\n    try:\n        k[1, 1](np.zeros(2))\n"
                    "    except Exception:\n        pass\n")
    assert cli.run(["profile", str(file)]) == 0
    said = f"{file} launched 2 kernels; 2 launches failed and left no report, and the script went on"
    assert capsys.readouterr().err == f"note: {said}\n"


def test_simulate_says_that_a_device_function_is_no_kernel(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "two.py"
    file.write_text(DEVICE_AND_KERNEL)
    said = message(capsys, "simulate", f"{file}:helper", "--grid", 1, "--block", 1)
    where = f"error: {file}: helper is a device function, which kernels call"
    assert said == f"{where}; it has: fill; functions without cuda.jit: main\n"


def test_a_file_that_is_not_there_is_named_without_a_number(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "two.py"
    file.write_text(DEVICE_AND_KERNEL)
    kernel = ("simulate", f"{file}:fill", "--grid", 1, "--block", 1)
    assert message(capsys, *kernel, "--arg", "@no.npy") == "error: --arg @no.npy: no such file or directory\n"
    said = message(capsys, "compare", "a.json", "b.json")
    assert said == "error: cannot read a.json: no such file or directory\n"


def test_help_of_simulate_lists_the_options_of_a_file(capsys: Capture) -> None:
    text = output(capsys, "simulate", "--help")
    part = text[text.index("Options of FILE.py:kernel") :]
    assert all(option in part for option in ("--grid", "--block", "--shared BYTES", "--arg VALUE"))
    assert "Options of FILE.py:kernel" not in output(capsys, "simulate", "vec_add", "--help")


@pytest.mark.parametrize(("words", "helps"), [
    (["simulate", "vec_add"], "--counts-only needs none for its arrays"),
    (["simulate", "vec_add", "--counts-only"], "make the problem smaller"),
    (["animate", "vec_add", "--counts-only"], "make the problem smaller"),
])  # fmt: skip
def test_too_little_memory_is_one_message_with_what_is_not_done_yet(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: list[str], helps: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError("40 GiB")

    monkeypatch.setattr(cli, "simulated_problem", full)
    assert message(capsys, *words) == (
        f"error: this machine has too little memory for the problem (40 GiB); {helps}\n")  # fmt: skip


@pytest.mark.parametrize("words", [("simulate", "vec_add", "--html"), ("validate", "--out")])
def test_an_empty_name_of_a_file_is_refused(capsys: Capture, words: tuple[str, ...]) -> None:
    assert message(capsys, *words, "") == f"error: {words[-1]} is empty; name a file\n"
