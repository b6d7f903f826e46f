"""Pictures as files: PNG, SVG or PDF by the file's ending, written whole or not at all.

The same figure gives the same bytes: no date, no random identifiers.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from gpusim.output import write_whole
from visualize.endings import picture_format

METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Format -> what matplotlib is to leave out of the file."""


HATCHED = re.compile(r"(fill: url\(#(\w+)\)); fill-opacity: ([\d.]+)")
"""A fill by a pattern, the pattern's name, and the opacity that matplotlib gives to both of its colours."""


def picture(figure: Figure, form: str) -> bytes:
    """Return a figure as the bytes of a file of one format of METADATA."""
    if form == "svg":
        return svg(figure).encode()
    out = io.BytesIO()
    figure.savefig(out, format=form, metadata=METADATA[form])
    return out.getvalue()


def svg(figure: Figure) -> str:
    """Return a figure as SVG, whose letters are text that can be found and copied."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "gpusim", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata=METADATA["svg"])
    return with_hatches(out.getvalue())


def with_hatches(text: str) -> str:
    """Return an SVG whose hatched areas show their lines.

    matplotlib draws lines and ground of a pattern in one colour and lets the whole shine through; here the
    ground alone does.
    """
    for name, opacity in {name: opacity for _, name, opacity in HATCHED.findall(text)}.items():
        ground = re.compile(rf'(<pattern id="{name}"[^>]*>\s*<rect [^>]*?)(fill="#\w+"/>)')
        text = ground.sub(rf'\1fill-opacity="{opacity}" \2', text)
    return HATCHED.sub(r"\1", text)


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file; raise BadOption for its ending, CannotWrite where it cannot be written."""
    write_whole(path, picture(figure, picture_format(path)))
