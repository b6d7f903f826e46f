"""Texts that fit their place: broken into lines where they are too wide, and cut where these are too many.

The one helper of all pictures for names that a user chose (kernels, options, arrays, files): letters are
measured as they are drawn. What it leaves out: where a text stands.
"""

from __future__ import annotations

import re
from typing import Any

from matplotlib.figure import FigureBase
from matplotlib.text import Text

CUT = "..."
PIECE = re.compile(r"[^\s_,=:]*(?:[\s_,=:]+|$)")
"""A part of a text behind which a line may end."""


def fitted(figure: FigureBase, words: str, pixels: float, lines: int = 1, **font: Any) -> str:
    """Return words in at most so many lines of at most so many pixels; the end is cut with "...".

    font: properties of the text as matplotlib names them, such as fontsize. A line ends behind a space or one
    of "_,=:", and in the middle of a word that has no line to itself.
    """
    probe = Text(0, 0, "", parse_math=False, **font)
    probe.set_figure(figure)

    def fits(line: str) -> bool:
        probe.set_text(line)
        return bool(probe.get_window_extent().width <= pixels)

    found: list[str] = []
    rest = words
    while rest and len(found) < lines - 1 and not fits(rest):
        kept = _line(rest, fits)
        found.append(rest[:kept].rstrip())
        rest = rest[kept:].lstrip()
    if rest and not fits(rest):
        rest = rest[: _letters(rest, lambda line: fits(line + CUT))].rstrip() + CUT
    return "\n".join([*found, rest])


def _line(words: str, fits: Any) -> int:
    """Return the letters of the longest first line of words that end where a line may, at least 1."""
    kept = 0
    for piece in PIECE.finditer(words):
        if not fits(words[: piece.end()].rstrip()):
            break
        kept = piece.end()
    return kept or max(1, _letters(words, fits))


def _letters(words: str, fits: Any) -> int:
    """Return how many letters fit, by halving."""
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(words[:middle]) else (low, middle - 1)
    return low
