"""An animation's artists are the numbers of its frames, and nothing lies upon another or is cut."""

from __future__ import annotations

import io
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from gpusim.errors import BadOption, CannotWrite
from gpusim.table import number
from tests.visualize.film_support import FLASH, STANDARD, film, watched
from visualize import animation, style
from visualize.animation import Animation, sample_text
from visualize.endings import film_format
from visualize.film import films
from visualize.movie import check_count, gif, mp4, written
from visualize.panel import sm_cells, states


def both(frames=12):
    return films([watched(*STANDARD), watched(*FLASH)], frames)


def still(shown, k):
    """Return the figure of a frame as a picture that draws whole: nothing in it is said to move."""
    shown.show(k)
    for panel in shown.panels:
        for _, artists in panel.parts:
            for one in artists:
                one.set_animated(False)
    return shown.figure


def artist(panel, gid):
    (found,) = panel.ax.findobj(lambda a: a.get_gid() == gid)
    return found


@pytest.mark.parametrize("k", [0, 5, 11])
def test_bars_are_as_long_as_their_bytes(k):
    shown = Animation(both())
    shown.show(k)
    most = max(int(lv.nbytes.sum()) for f in shown.films for lv in f.levels)
    for panel, of in zip(shown.panels, shown.films, strict=True):
        for lv in of.levels:
            if not lv.key.endswith("atomic"):
                width = artist(panel, f"bar-{lv.key}").get_width()
                assert width == pytest.approx(240 * int(lv.nbytes[: k + 1].sum()) / most)


def test_the_last_frame_says_the_totals_of_the_report(drawn):
    shown = Animation([film(*FLASH)])
    c = shown.films[0].run.launches[0].counters
    texts = drawn(still(shown, shown.frames - 1)).texts
    for sectors in (c.global_load.sectors, c.global_store.sectors):
        assert f"{style.quantity(32 * sectors, 'B')}   equal" in texts
    assert f"{style.quantity(c.hierarchy.dram_read_bytes, 'B')}   equal" in texts


def test_tiles_show_what_the_frame_reads_and_writes_and_what_came_earlier():
    shown = Animation([film(*FLASH)])
    tensor = next(t for t in shown.films[0].tensors if t.name == "K")
    shown.show(7)
    pixels = artist(shown.panels[0], "tiles-K").get_array().ravel()
    assert ((pixels == 2) == (tensor.reads[7] > 0)).all() and (pixels == 2).any()
    before = (tensor.reads[:7] > 0).any(0)
    assert ((pixels == 1) == (before & (tensor.reads[7] == 0))).all()


def test_a_tile_that_is_read_and_written_in_a_frame_is_both():
    of = film(*FLASH).tensors[0]
    reads, writes = np.array([[1, 0], [1, 0], [0, 0]]), np.array([[0, 0], [2, 1], [0, 0]])
    grid = replace(of.grid, down=1, across=2)
    made = states(replace(of, grid=grid, reads=reads, writes=writes))
    assert made.tolist() == [[[2, 0]], [[4, 3]], [[1, 1]]]


def test_a_cell_has_its_share_of_shared_memory_from_below_and_no_other():
    image = sm_cells(np.array([1, 0]), 4, np.array([0.5, 0.0]))
    assert image.shape == (12, 144, 3)
    held = (image == np.array(to_rgb(style.LEVELS["shared"]))).all(2)
    assert held[:, :11].all(1).tolist() == [False] * 5 + [True] * 6 + [False]  # round(0.5 * 11) rows
    assert not held[:, 12:].any()


@pytest.mark.parametrize("k", [0, 6, 11])
def test_nothing_lies_upon_another_or_is_cut(drawn, k):
    for shown in (Animation(both()), Animation([film(*FLASH, frames=12)])):
        assert drawn(still(shown, k)).flaws == []


def test_long_names_are_cut_to_their_place(drawn):
    run, log, _ = watched(*FLASH)
    long = {p: f"{p}_" + "x" * 80 for p in "QKVOL"}
    (of,) = films([(replace(run, title="$a_{" + "long " * 60), log, [long])], 6)
    of = replace(of, sections=(replace(of.sections[0], name="k" * 90),))
    made = drawn(still(Animation([of, of]), 3))
    assert made.flaws == [] and any(t.startswith("$a_{") and t.endswith("...") for t in made.texts)


@pytest.mark.slow
def test_only_what_changes_is_drawn_and_the_pixels_are_the_same():
    shown = Animation(both(5))
    partly = [picture.copy() for picture in shown.pictures()]
    for k, picture in enumerate(partly):
        shown.show(k)
        shown.canvas.draw()
        for panel in shown.panels:
            for _, artists in panel.parts:
                for one in artists:
                    shown.figure.draw_artist(one)
        assert (np.asarray(shown.canvas.buffer_rgba())[:, :, :3] == picture).all()
    assert all((a != b).any() for a, b in pairwise(partly))


def test_a_sample_says_so():
    few, many = film(*FLASH, frames=2), film(*FLASH, frames=1000)
    assert sample_text([few]).startswith("Sampled: a frame sums ")
    assert f"(up to {number(few.turns)} turns of the replay)" in sample_text([few])
    assert sample_text([many]).startswith("A frame sums ") and "turns" not in sample_text([many])


def test_arrays_that_are_not_drawn_are_said():
    of = replace(film(*FLASH), others=3)
    assert "3 arrays with less traffic are not drawn." in sample_text([of])


# ------------------------------------------------------------------------------------------ files


@pytest.mark.slow
def test_a_gif_repeats_holds_its_last_frame_and_is_the_same_each_time():
    data = gif(Animation(both(5)), 10)
    assert data == gif(Animation(both(5)), 10)
    with Image.open(io.BytesIO(data)) as image:
        assert (image.n_frames, image.size[0], image.info["loop"]) == (5, 880, 0)
        durations = []
        for k in range(image.n_frames):
            image.seek(k)
            durations.append(image.info["duration"])
        last = np.asarray(image.convert("RGB"))
    assert durations == [100, 100, 100, 100, 3000]
    *_, picture = Animation(both(5)).pictures()
    assert (last == picture).all(2).mean() > 0.97  # of 160 colours: only edges of letters differ


def test_a_thin_bar_keeps_the_colour_of_its_level():
    shown = Animation(both(12))
    with Image.open(io.BytesIO(gif(shown, 10))) as image:
        image.seek(1)
        pixels = np.asarray(image.convert("RGB"))
    shown.show(1)
    bars = [artist(panel, "bar-DRAM-read") for panel in shown.panels]
    assert min(bar.get_width() for bar in bars) < 30
    for k, bar in enumerate(bars):
        x, y = int(bar.get_x()) + 440 * k, int(bar.get_y())
        part = pixels[y - 1 : y + 11, x - 1 : x + 20].reshape(-1, 3)
        assert (np.abs(part - np.array(to_rgb(style.LEVELS["DRAM"])) * 255) <= 1).all(1).any()


def test_an_mp4_is_made_where_ffmpeg_is_found(tmp_path, monkeypatch):
    if shutil.which("ffmpeg") is None:
        pytest.skip("no ffmpeg here")
    monkeypatch.setattr(animation, "LEGEND_HEIGHT", 45)  # an odd height, and H.264 has even sides
    shown = Animation(both(2))
    width, height = shown.canvas.get_width_height()
    data = mp4(shown, 10)
    (tmp_path / "a.mp4").write_bytes(data)
    words = ["ffmpeg", "-loglevel", "error", "-i", str(tmp_path / "a.mp4"), "-f", "rawvideo", "-pix_fmt",
             "rgb24", "-"]  # fmt: skip
    raw = subprocess.run(words, capture_output=True, check=True).stdout
    frames = np.frombuffer(raw, np.uint8).reshape(-1, height + height % 2, width, 3)
    assert data[4:8] == b"ftyp" and height % 2 == 1
    assert len(frames) == 2 + 30  # the last one stays for 3 s
    for frame, picture in zip(frames[:2], shown.pictures(), strict=True):
        assert np.abs(frame[:height].astype(int) - picture).mean() < 3


def test_ffmpeg_that_fails_is_one_message(tmp_path, monkeypatch):
    (tmp_path / "ffmpeg").write_text("#!/bin/sh\necho first >&2\necho no such encoder >&2\nexit 1\n")
    (tmp_path / "ffmpeg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(CannotWrite, match=r"^ffmpeg made no MP4: no such encoder\. Name a file that ends in"):
        mp4(Animation([film(*FLASH, frames=2)]), 10)


def test_progress_hears_of_each_frame():
    heard = []
    written([film(*FLASH, frames=3)], "gif", 10, lambda *at: heard.append(at))
    assert heard == [(0, 3), (1, 3), (2, 3)]


def test_mp4_without_ffmpeg_is_refused_with_what_works(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadOption, match=r"needs the program ffmpeg.* ends in \.gif or \.html"):
        film_format(tmp_path / "a.mp4")


@pytest.mark.parametrize(("name", "said"), [("a.png", "ends in .png"), ("a", "has no ending")])
def test_other_endings_are_refused(tmp_path, name, said):
    with pytest.raises(BadOption, match=f"it {said}; name a file that ends in .gif, .mp4 or .html"):
        film_format(tmp_path / name)


def test_at_most_four_kernels_stand_side_by_side():
    check_count(4)
    with pytest.raises(BadOption, match="at most 4 kernels side by side, not 5; name fewer"):
        check_count(5)


def test_the_legend_shows_sms_in_the_colours_that_they_have():
    shown = [p.get_facecolor()[:3] for p in Animation(both(2)).figure.axes[-1].patches]
    for cell in sm_cells(np.array([1, 2, 3, 4]), 4, np.zeros(4))[0, :48:12]:
        assert any(np.allclose(cell, colour) for colour in shown)


def test_folded_rows_are_said_to_be():
    assert "Vectors and long rows are folded like lines of text." in sample_text([film(*FLASH)])
    matrices = tuple(t for t in film(*STANDARD).tensors if t.name in "SP")
    assert "folded" not in sample_text([replace(film(*STANDARD), tensors=matrices)])
