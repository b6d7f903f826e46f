"""Recorded measurements with a damaged row: one message with the file, the line and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import cli
from gpusim.errors import BadOption
from kernels_real.recorded_cells import COLUMNS
from kernels_real.recordings import read

LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
HEAD = f"# card: NVIDIA H200\n{','.join(COLUMNS)},launch__registers_per_thread,{LOADS}\n"
ROW = """vec_add,numba,"{""n"": 1003}",{},0,vec_add,4 1 1,256 1 1,0,0,,16,252\n"""


def recording(folder: Path, old: str = "", new: str = "") -> Path:
    """Write a sound launch (line 3) and another one (line 4) in which something was replaced."""
    assert old in ROW
    path = folder / "own.csv"
    path.write_text(HEAD + ROW + ROW.replace(old, new, 1))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(BadOption) as raised:
        read(path)
    return str(raised.value).removeprefix(f"{path.parent}/")


def test_a_sound_row_is_read_with_its_line(tmp_path: Path) -> None:
    one, two = read(recording(tmp_path))
    assert (one.line, two.line, two.where) == (3, 4, "own.csv line 4 (vec_add n=1003)")
    assert (two.job.options, two.step, two.measured.grid) == ({"n": 1003}, 0, (4, 1, 1))
    assert two.measured.values == {"launch__registers_per_thread": 16, LOADS: 252}


@pytest.mark.parametrize(("old", "new", "said"), [
    ("vec_add", "", "kernel is '', and must be the name of a kernel"),
    ("numba", "cuda", "backend is 'cuda', and must be numba or triton"),
    ('"{""n"": 1003}"', "n=1003", "options is 'n=1003', and must be a JSON object, such as {\"n\": 1003}"),
    ('"{""n"": 1003}"', "[1003]", "options is '[1003]', and must be a JSON object, such as {\"n\": 1003}"),
    (",{},", ",{,", "configuration is '{', and must be a JSON object, such as {\"num_warps\": 4} or {}"),
    (",0,vec", ",-1,vec", "step is '-1', and must be a whole number from 0 on"),
    ("4 1 1", "4 x",
     "grid is '4 x', and must be three whole numbers from 1 on with spaces between, or empty"),
    ("256 1 1", "256 1",
     "block is '256 1', and must be three whole numbers from 1 on with spaces between, or empty"),
    (",252", ",2x2", f"{LOADS} is '2x2', and must be a number from 0 on, or empty where it was not measured"),
    (",252", ",-2", f"{LOADS} is '-2', and must be a number from 0 on, or empty where it was not measured"),
])
def test_a_cell_that_its_column_cannot_hold_is_named(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert refusal(recording(tmp_path, old, new)) == f"own.csv line 4: {said}"


def test_a_row_cut_short_is_refused_with_its_line(tmp_path: Path) -> None:
    short = recording(tmp_path, "256 1 1,0,0,,16,252", "256 1 1")
    assert refusal(short) == "own.csv line 4 is damaged: it has 8 cells, and there are 13 columns"
    inside_quotes = recording(tmp_path, '1003}",{},0,vec_add,4 1 1,256 1 1,0,0,,16,252', "10")
    assert refusal(inside_quotes) == "own.csv line 4 is damaged: unexpected end of data"


def test_a_cell_beyond_what_csv_reads_is_refused_with_its_line(tmp_path: Path) -> None:
    assert refusal(recording(tmp_path, "252", "2" * 131_073)) == (
        "own.csv line 4 is damaged: field larger than field limit (131072)")


def test_a_file_without_a_row_holds_no_launch(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(HEAD)
    assert refusal(path) == (
        "own.csv holds no launch: no line follows the one with the names of the columns")


@pytest.mark.parametrize(("old", "new", "said"), [
    ("1003}", '""abc""}', "own.csv line 4 (vec_add n=abc) cannot be simulated again: vec_add: option n must "
                          "be a whole number, got 'abc'"),
    ('""n""', '""m""', "own.csv line 4 (vec_add m=1003) cannot be simulated again: vec_add has no option m; "
                       "it has: n"),
    ("vec_add", "vec_at", "own.csv line 4 (vec_at n=1003 vec_add) cannot be simulated again: unknown kernel"),
    (",0,vec", ",1,vec", "own.csv line 4 (vec_add n=1003 launch 2): step is 1, and this problem has 1 "
                         "launch, counted from 0"),
    (",16,", ",,", "own.csv line 4 (vec_add n=1003): launch__registers_per_thread was not measured, and the "
                   "simulation needs it"),
])
def test_a_launch_that_cannot_be_simulated_again_is_named(
    old: str, new: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording(tmp_path, old, new)
    assert cli.run(["validate", "--from", str(tmp_path), "--processes", "1"]) == 2
    error = capsys.readouterr().err
    assert f"error: {said}" in " ".join(error.split()) and "Traceback" not in error


def test_a_kernel_in_a_file_needs_its_grid_as_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.csv"
    row = ROW.replace("vec_add,numba", "kernels_real/empty_kernel.py:empty,numba")
    path.write_text(HEAD + row.replace('{""n"": 1003}', '{""grid"": 4, ""block"": ""32""}'))
    assert cli.run(["validate", "--from", str(tmp_path), "--processes", "1"]) == 2
    assert "own.csv line 3 (empty grid=4 block=32 vec_add) cannot be simulated again: option grid of " in (
        " ".join(capsys.readouterr().err.split()))


def test_compare_names_the_line_of_a_recorded_launch_with_a_wrong_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path, "1003}", '""abc""}')
    assert cli.run(["compare", "vec_add", "--n", "7", "--measured", str(path)]) == 2
    assert "own.csv line 4 (vec_add n=abc): vec_add: option n must be a whole number, got 'abc'" in (
        capsys.readouterr().err)
