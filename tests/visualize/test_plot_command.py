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
    from visualize import occupancy_chart

    return occupancy_chart.figure(runs)


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
        (["sweep", "vec_add", "--over", "n=10,20", "--metric", "sm__cycles_active.avg"], "is n/a for"),
        (["sweep", "vec_add", "--over", "n=10,20", "--metric", "nothing"], "unknown metric 'nothing'"),
        (["roofline", "vec_add", "--over", "n=10"], "--over belongs to sweep, not to roofline"),
        (["pipeline", "vec_add", "--n", 100, "--engine", "oracle"], "does not tell arrays apart"),
        (["compare", "no_such_kernel"], "no_such_kernel"),
        (["compare", "vec_add", "--n", 77], "recordings: no launch of vec_add with these options; recorded:"),
        (["compare", "vec_add", "--n", "x"], "'x' is not a valid integer. (vec_add)"),
        (["compare", "vec_add", "--gpu", "h100"], "simulates as it was measured: it takes no --gpu"),
        (["compare", "--seed", 1, "--l2", "cold"], "it takes no --l2 and no --seed"),
        (["banks", "vec_add", "--measured", "recorded"], "--measured belongs to roofline, not to banks"),
        (["roofline", "vec_add", "--n", 77, "--measured", "recorded"], "no launch of vec_add with these"),
        (["roofline", "vec_add", "--n", 1003, "--gpu", "h100", "--measured", "recorded"], "measured on the"),
        (["roofline", "vec_add", "--measured", "no.csv"], "cannot read no.csv"),
        (["roofline", "no.json"], "cannot read no.json: no such file"),
        (["heatmap", "no.json"], "heatmap runs kernels, and no.json holds launches; they can be drawn as me"),
        (["sweep", "no.json", "--over", "n=1"], "sweep runs kernels, and no.json holds"),
        (["roofline", "no.json", "--gpu", "h100"], "no.json was simulated already: it takes no --gpu"),
        (["roofline", "no.json", "--n", 3], "option --n; no.json holds launches that ran already"),
        (["roofline", "no.json", "vec_add", "--N", 3], "no option --N; it has: --n (of the kernels)"),
        (["roofline", "vec_add", "--out", ""], "--out is empty; name a file"),
        (["roofline", "vec_add", "--out="], "--out is empty; name a file"),
        (["roofline", "transpose"], "roofline: transpose"),
    ],
)
def test_a_mistake_is_one_message_and_no_file(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert plot(*words) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("error: ") and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [
    ("plot", "roofline", "flash_forward", "--out", "a.jpg"), ("plot", "pipeline", "flash_forward", "--out="),
    ("animate", "flash_forward", "--out", "a.png"), ("timeline", "flash_forward", "--out=a.txt"),
])  # fmt: skip
def test_a_wrong_ending_is_refused_before_a_kernel_is_loaded(monkeypatch, words):
    monkeypatch.setattr(cli, "kernels_among", None)
    monkeypatch.setattr(cli, "kernel_among", None)
    assert cli.run(words) == 2


def test_a_kernel_of_a_file_is_drawn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.py").write_text("from numba import cuda\n\n@cuda.jit\ndef _twice(x):\n"
                                   "    x[cuda.grid(1)] *= 2\n")  # fmt: skip
    words = ("--grid", 2, "--block", 32, "--arg", "float32[64]")
    assert plot("roofline", "k.py:_twice", "vec_add", *words, "--n", 100) == 0
    assert (tmp_path / "roofline.png").exists()


def test_compare_takes_the_recorded_launches_that_have_the_options_given(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(cli, "recorded_entries", lambda recorded, processes: seen.extend(recorded) or {})
    monkeypatch.chdir(tmp_path)
    assert plot("compare", "vec_add", "matmul_tiled", "--n", 1003) == 2  # nothing is left to draw
    assert {r.job.kernel for r in seen} == {"vec_add", "matmul_tiled"}
    assert {r.job.options["n"] for r in seen if r.job.kernel == "vec_add"} == {1003}
    assert len({r.job.options["N"] for r in seen if r.job.kernel == "matmul_tiled"}) > 1


def test_recorded_measurements_stand_beside_simulated_points(monkeypatch, tmp_path):
    from visualize import roofline

    seen = []
    monkeypatch.setattr(roofline, "figure", lambda runs, measured: seen.extend(measured) or original(runs))
    out = tmp_path / "a.png"
    assert plot("roofline", "vec_add", "--n", 1003, "--measured", "recorded", "--out", out) == 0
    assert [(at.run, at.label) for at in seen] == [(0, "numba")]
    assert seen[0].intensity["L1"] == pytest.approx(1003 / (32 * 3 * 126))  # 1,003 floats: 126 sectors each


def test_a_kernel_and_a_saved_launch_share_a_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["simulate", "vec_add", "--n", "1000", "--format", "json", "--out", "a.json"]) == 0
    assert plot("roofline", "a.json", "vec_add", "--n", 2000) == 0
    assert plot("roofline", "a.json", "vec_add", "--n", 2000, "--measured", "recorded") == 2


def test_a_kernel_without_flops_leaves_the_others_their_measured_points(monkeypatch, tmp_path):
    from visualize import roofline

    seen, figure = [], roofline.figure
    noted = lambda runs, measured: seen.extend(measured) or figure(runs, measured)  # noqa: E731
    monkeypatch.setattr(roofline, "figure", noted)
    words = ("transpose", "vec_add", "--n", 1003, "--measured", "recorded")
    assert plot("roofline", *words, "--out", tmp_path / "a.png") == 0
    assert [(at.run, at.label) for at in seen] == [(1, "numba")]
