"""What a file's ending says of it: pictures, animations, timelines; asked before any work is done.

Light to import: a command line asks before it loads kernels or matplotlib. What it leaves out: writing.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from gpusim.errors import BadOption

PICTURES, FILMS = ("png", "svg", "pdf"), ("gif", "mp4", "html")


def picture_format(path: Path) -> str:
    """Return the format of a picture that a file's ending names; raise BadOption for another ending."""
    return _format(path, "draw", PICTURES)


def film_format(path: Path) -> str:
    """Return the format of an animation that a file's ending names.

    Raise BadOption for another ending, and for MP4 where there is no ffmpeg.
    """
    found = _format(path, "animate", FILMS)
    if found == "mp4" and shutil.which("ffmpeg") is None:
        need = "MP4 needs the program ffmpeg, which is not found here"
        raise BadOption(f"cannot write {path}: {need}. Install ffmpeg, or name a file that ends in .gif or "
                        ".html, which need no other program")
    return found


def timeline_format(path: Path) -> str:
    """Return "json" or "gz" for the file of a timeline; raise BadOption for another ending."""
    if not path.name.endswith((".json", ".json.gz")):
        raise BadOption(f"cannot write {path}: a timeline is JSON. End the name in .json or .json.gz.")
    return path.suffix[1:]


def _format(path: Path, verb: str, known: Sequence[str]) -> str:
    found = path.suffix.lower().lstrip(".")
    if found not in known:
        ending = f"ends in {path.suffix}" if path.suffix else "has no ending"
        *most, last = (f".{name}" for name in known)
        raise BadOption(f"cannot {verb} {path}: it {ending}; name a file that ends in {', '.join(most)} or "
                        f"{last}")
    return found
