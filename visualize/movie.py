"""An animation as a file: GIF by Pillow, MP4 by ffmpeg where it is found, HTML; by the file's ending.

A GIF has one palette of 160 colours and, of each frame, only what changes: the same animation gives the same
bytes. The last frame stays for some seconds, then the film begins again. What it leaves out: how a page is
made (visualize/animation_page.py).
"""

from __future__ import annotations

import io
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb

from gpusim.errors import BadOption, CannotWrite
from visualize import style
from visualize.animation import MOST_FILMS, Animation
from visualize.animation_page import page
from visualize.film import Film
from visualize.panel import MODELLED_ALPHA, TRACK

COLOURS, LAST_SECONDS = 160, 3


def check_count(kernels: int) -> None:
    """Raise BadOption for more kernels than stand side by side; for a check before long work."""
    if kernels > MOST_FILMS:
        limit = f"an animation shows at most {MOST_FILMS} kernels side by side"
        raise BadOption(f"{limit}, not {kernels}; name fewer")


def written(shown: Sequence[Film], form: str, frames_per_second: int,
            progress: Callable[[int, int], object] = lambda *_: None) -> bytes:  # fmt: skip
    """Return an animation of films as the bytes of a file: gif, mp4 or html.

    progress: called with (frames drawn, frames in all), as often as one is drawn.
    """
    if form == "html":
        return page(shown, frames_per_second).encode("utf-8")
    return (gif if form == "gif" else mp4)(Animation(shown, progress), frames_per_second)


def gif(shown: Animation, frames_per_second: int) -> bytes:
    """Return an animation as the bytes of a GIF that repeats."""
    from PIL import Image

    numbers = [_packed(picture) for picture in shown.pictures()]
    palette = _palette(numbers)
    nearest = np.full(1 << 24, -1, np.int16)
    images = []
    for number in numbers:
        image = Image.fromarray(_indexed(number, palette, nearest))
        image.putpalette(palette.astype(np.uint8).ravel().tolist())
        images.append(image)
    duration = [1000 // frames_per_second] * (len(images) - 1) + [1000 * LAST_SECONDS]
    out = io.BytesIO()
    images[0].save(out, "GIF", save_all=True, append_images=images[1:], duration=duration, loop=0, disposal=1,
                   optimize=True)  # fmt: skip
    return out.getvalue()


def _packed(picture: np.ndarray) -> np.ndarray:
    """Return red, green and blue of each pixel as one number, int32."""
    red, green, blue = (picture[:, :, k].astype(np.int32) for k in range(3))
    return red << 16 | green << 8 | blue


def _palette(numbers: Sequence[np.ndarray]) -> np.ndarray:
    """Return the colours that mean something, then the most frequent of some frames, int32 (colours, 3).

    A thin bar has few pixels, and must not take the colour of another level for it.
    """
    named = np.array([to_rgb(c) for c in (*style.LEVELS.values(), *style.ACCESSES.values())]) * 255
    light = (named * MODELLED_ALPHA + np.array(to_rgb(TRACK)) * 255 * (1 - MODELLED_ALPHA))
    own = np.round(np.concatenate([named, light])).astype(np.int32)
    some = np.concatenate([numbers[k].ravel() for k in np.linspace(0, len(numbers) - 1, 4).astype(int)])
    found, times = np.unique(some, return_counts=True)
    most = found[np.argsort(-times, kind="stable")[: COLOURS - len(own)]]
    return np.concatenate([own, np.stack([most >> 16, most >> 8 & 255, most & 255], 1)])


def _indexed(number: np.ndarray, palette: np.ndarray, nearest: np.ndarray) -> np.ndarray:
    """Return the nearest colour of the palette for each pixel, uint8; nearest remembers those worked out."""
    new = np.unique(number[nearest[number] < 0])
    colours = np.stack([new >> 16, new >> 8 & 255, new & 255], 1)
    far = ((colours[:, None] - palette) ** 2).sum(2)
    nearest[new] = far.argmin(1)
    return nearest[number].astype(np.uint8)


def mp4(shown: Animation, frames_per_second: int) -> bytes:
    """Return an animation as the bytes of an MP4 (H.264), its last frame held.

    Raise CannotWrite with the last line of ffmpeg where that fails. H.264 has sides of even numbers: pixels
    are added on the right and below where need be.
    """
    width, height = shown.canvas.get_width_height()
    filters = (f"tpad=stop_mode=clone:stop_duration={LAST_SECONDS},"
               "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white,format=yuv420p")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "film.mp4"
        words = ["ffmpeg", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s",
                 f"{width}x{height}", "-r", str(frames_per_second), "-i", "-", "-vf", filters, "-c:v", "h264",
                 str(file)]  # fmt: skip
        made = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert made.stdin is not None
        with suppress(BrokenPipeError):  # it ended early, and says why
            for picture in shown.pictures():
                made.stdin.write(picture.tobytes())
        _, said = made.communicate()
        if made.returncode:
            last = said.decode(errors="replace").strip().rpartition("\n")[2]
            raise CannotWrite(f"ffmpeg made no MP4: {last}. Name a file that ends in .gif or .html.")
        return file.read_bytes()
