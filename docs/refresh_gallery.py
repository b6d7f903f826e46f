"""Draw the pictures of docs/gallery.md again, each with the command that stands above it.

    python docs/refresh_gallery.py              all of them (minutes: one replays every recorded launch)
    python docs/refresh_gallery.py roofline     one kind

A command is a line `python cli.py plot ... --out docs/gallery/NAME.png`, or `animate` with a NAME.gif. PNGs
are kept with a palette of 256 colours, which takes a third of the bytes.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
COMMAND = re.compile(
    r"^ *(python cli\.py (?:plot )?(\S+) .*--out (docs/gallery/\S+\.(?:png|gif)))$", re.MULTILINE)


def commands(text: str) -> list[tuple[str, str, str]]:
    """Return (command, kind, file) of each picture of a page; the kind of an animation is animate."""
    return COMMAND.findall(text)


def main() -> int:
    """Draw the pictures that are asked for; return the exit status."""
    wanted = sys.argv[1:]
    for command, kind, file in commands((ROOT / "docs/gallery.md").read_text()):
        if not wanted or kind in wanted:
            words = [sys.executable, *shlex.split(command)[1:]]
            subprocess.run(words, cwd=ROOT, check=True)
            if file.endswith(".gif"):
                continue  # it has a palette of its own
            with Image.open(ROOT / file) as image:
                method = Image.Quantize.MAXCOVERAGE
                small = image.convert("RGB").quantize(256, method, dither=Image.Dither.NONE)
            small.save(ROOT / file, optimize=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
