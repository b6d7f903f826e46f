"""`plot` as a whole: files, messages and exit status."""

from __future__ import annotations

import pytest

import cli

MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF-"}


def plot(*words):
    return cli.run(["plot", *map(str, words)])


@pytest.mark.parametrize("ending", MAGIC)
def test_the_ending_of_the_file_chooses_the_format(tmp_path, capsys, ending):
    out = tmp_path / f"a.{ending}"
    assert plot("memory-chart", "vec_add", "offset_copy", "--n", 1000, "--out", out) == 0
    assert out.read_bytes().startswith(MAGIC[ending])
    assert capsys.readouterr().out == f"wrote {out}\n"
    first = out.read_bytes()
    plot("memory-chart", "vec_add", "offset_copy", "--n", 1000, "--out", out)
    assert out.read_bytes() == first


def test_an_option_goes_to_the_kernels_that_have_it(tmp_path, monkeypatch):
    from visualize import memory_chart

    seen = []
    monkeypatch.setattr(memory_chart, "figure", lambda runs: seen.extend(runs) or original(runs))
    out = tmp_path / "a.png"
    assert plot("memory-chart", "vec_add", "matmul_tiled", "--n", 2048, "--N", 32, "--out", out) == 0
    assert [run.launches[0].options.get("N") for run in seen] == [None, 32]
    assert seen[0].launches[0].counters.global_load.bytes == 2 * 4 * 2048
    assert [run.title.partition(" ")[0] for run in seen] == ["vec_add", "matmul_tiled"]


def original(runs):
    from visualize import roofline

    return roofline.figure(runs)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pie", "vec_add"], "'pie' is not one of 'memory-chart'"),
        (["roofline", "vec_ad", "--n", 10], "vec_ad"),
        (["roofline", "vec_add", "--out", "a.jpg"], "ends in .jpg; name a file that ends in .png, .svg"),
        (["roofline", "vec_add", "--out", "a"], "has no ending"),
        (["roofline", "vec_add", "--Br", 3], "plot has no option --Br; it has: --n (of the kernels)"),
        (["roofline", "vec_add", "--n", "many"], "'many' is not a valid integer. (vec_add)"),
        (["roofline", "vec_add", "--n", 100, "--engine", "oracle"], "engine oracle, which does not count"),
        (["roofline", "vec_add", "--out", "no/such/a.png"], "there is no directory"),
        (["roofline"], "roofline needs a KERNEL"),
        (["sweep", "vec_add", "--n", 100], "sweep needs --over NAME=A,B,..."),
        (["sweep", "vec_add", "--over", "N=1,2"], "vec_add has no option N to sweep"),
        (["sweep", "vec_add", "--over", "n=10,x"], "'x' is not a valid integer. (vec_add)"),
        (["sweep", "vec_add", "--over", "n=10,20", "--metric", "gpu__time_duration.sum"], "is n/a for"),
        (["sweep", "vec_add", "--over", "n=10,20", "--metric", "nothing"], "unknown metric 'nothing'"),
        (["roofline", "vec_add", "--over", "n=10"], "--over belongs to sweep, not to roofline"),
        (["pipeline", "vec_add", "--n", 100, "--engine", "oracle"], "does not tell arrays apart"),
        (["compare", "no_such_kernel"], "no_such_kernel"),
    ],
)
def test_a_mistake_is_one_message_and_no_file(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert plot(*words) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("error: ") and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_of_a_file_is_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.py").write_text("from numba import cuda\n\n@cuda.jit\ndef _twice(x):\n"
                                   "    x[cuda.grid(1)] *= 2\n")  # fmt: skip
    words = ("--grid", 2, "--block", 32, "--arg", "float32[64]")
    assert plot("roofline", "k.py:_twice", "vec_add", *words, "--n", 100) == 0
    assert (tmp_path / "roofline.png").exists()
