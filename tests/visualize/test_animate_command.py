"""The command `animate`: what it writes, what it refuses, and that it leaves nothing half-written."""

from __future__ import annotations

import pytest
from PIL import Image

import cli

SMALL = ["vec_add", "--n", "1000"]
KERNEL = """
from dsl import cuda

@cuda.jit
def twice(x, y):
    i = cuda.grid(1)
    if i < x.shape[0]:
        y[i] = 2 * x[i]
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def said(capsys, *words):
    """Return the status of a command and what it printed."""
    status = cli.run(["animate", *words])
    out = capsys.readouterr()
    return status, out.out + out.err


def test_a_gif_is_what_comes_without_a_name(capsys, tmp_path):
    assert said(capsys, *SMALL, "--frames", "4") == (
        0, "wrote animation.gif: 4 frames of 3,000 bytes asked for by SMs\n")  # 3 arrays of 125 sectors
    with Image.open(tmp_path / "animation.gif") as image:
        assert image.n_frames == 4 and image.format == "GIF"


def test_a_page_of_two_kernels(capsys, tmp_path):
    status, _ = said(capsys, "vec_add", "transpose", "--n", "1000", "--counts-only", "--out", "a.html")
    text = (tmp_path / "a.html").read_text()
    assert status == 0 and '"title":"vec_add n=1000"' in text and '"title":"transpose' in text


def test_a_kernel_of_ones_own_has_no_closed_form(capsys, tmp_path):
    (tmp_path / "mine.py").write_text(KERNEL)
    words = ("mine.py:twice", "--grid", "4", "--block", "32", *2 * ("--arg", "float32[128]"))
    assert said(capsys, *words, "--out", "a.html")[0] == 0
    text = (tmp_path / "a.html").read_text()
    assert '"name":"x"' in text and '"name":"y"' in text and '"closed":null' in text


@pytest.mark.parametrize(("words", "message"), [
    ((*SMALL, "--out", "a.png"), "cannot animate a.png: it ends in .png; name a file that ends in .gif, "),
    ((*SMALL, "--out", ""), "error: --out is empty; name a file"),
    ((*SMALL, "--out", "no/a.gif"), "cannot write no/a.gif: there is no directory no"),
    ((*SMALL, "--engine", "oracle"), "--engine oracle makes no trace of its accesses, and an animation"),
    ((*SMALL, "--frames", "1"), "1 is not in the range 2<=x<=400"),
    ((*SMALL, "--blocks", "3"), "animate has no option --blocks; it has: --n (of the kernels); --frames"),
    (("a.json",), "an animation runs kernels, and a.json holds launches; name the kernel"),
    ((), "Missing argument 'KERNEL...'"),
    (("nothing_of_this_name",), "nothing_of_this_name"),
    (("vec_add", "transpose", "histogram", "softmax_rows", "strided_copy"), "at most 4 kernels side by side"),
])  # fmt: skip
def test_a_mistake_is_one_message_and_no_file(capsys, tmp_path, words, message):
    status, text = said(capsys, *words)
    assert status == 2 and message in text and "Traceback" not in text
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_runs_as_source_alone_is_refused(capsys, tmp_path):
    (tmp_path / "mine.py").write_text(KERNEL.replace("2 * x[i]", "print(i)").replace("y[i] = ", ""))
    words = ("mine.py:twice", "--grid", "1", "--block", "32", "--arg", "float32[32]", "--arg", "float32[32]")
    status, text = said(capsys, *words)
    assert status == 2 and "there is no animation of mine.py:twice, as only compiled kernels" in text


@pytest.mark.slow
def test_a_large_launch_is_sampled_says_so_and_stays_small(capsys, tmp_path):
    words = ("standard_attention", "flash_forward", "--N", "4096", "--Br", "64", "--counts-only")
    assert said(capsys, *words, "--out", "a.html")[0] == 0
    text = (tmp_path / "a.html").read_text()
    assert '"sample":"Sampled: a frame sums 9.10 MB of requests' in text and len(text) < 2_000_000


@pytest.mark.slow
def test_a_tile_row_of_flash_attention_is_a_small_film(capsys, tmp_path):
    assert said(capsys, "flash_forward", "--N", "512", "--Br", "64")[0] == 0
    assert (tmp_path / "animation.gif").stat().st_size < 5_000_000
