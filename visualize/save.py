"""Pictures as files: PNG, SVG or PDF by the file's ending, written whole or not at all.

The same figure gives the same bytes: no date, no random identifiers.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from gpusim.errors import BadOption
from gpusim.output import write_whole

METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Format -> what matplotlib is to leave out of the file."""


def picture_format(path: Path) -> str:
    """Return the format that a file's ending names; raise BadOption for another ending."""
    found = path.suffix.lower().lstrip(".")
    if found not in METADATA:
        ending = f"ends in {path.suffix}" if path.suffix else "has no ending"
        raise BadOption(f"cannot draw {path}: it {ending}; name a file that ends in .png, .svg or .pdf")
    return found


def picture(figure: Figure, form: str) -> bytes:
    """Return a figure as the bytes of a file of one format of METADATA."""
    out = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "gpusim"}):
        figure.savefig(out, format=form, metadata=METADATA[form])
    return out.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file; raise BadOption for its ending, CannotWrite where it cannot be written."""
    write_whole(path, picture(figure, picture_format(path)))
