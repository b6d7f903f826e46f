"""Figures as SVG that stands inside a page: text as text, colours that follow the page, names of its own.

Ink, paper and grid become CSS variables (--ink, --paper, --faint, --grid, --kernel-0 ...), so that a picture
is as legible on dark as on light; colours of memory levels stay. What it leaves out: the variables' values
and the page (visualize/templates/).
"""

from __future__ import annotations

import re

from markupsafe import Markup
from matplotlib.figure import Figure

from visualize import style
from visualize.save import svg

VARIABLES = {style.INK: "ink", "#000000": "ink", "#ffffff": "paper", style.FAINT: "faint", "#eeeeee": "grid",
             **{colour: f"kernel-{i}" for i, colour in enumerate(style.KERNELS) if colour != "#000000"}}
"""Colour of a figure -> the CSS variable of a page that has its place."""
COLOUR = re.compile("|".join(VARIABLES))
DROPPED = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)
REM_PER_INCH = 7
"""Of the widest that a picture gets; 10 inches fill the page, and text of 9 points has the page's size."""
NAME = re.compile(r'(\bid="|href="#|url\(#)')


def inline(figure: Figure, prefix: str, label: str) -> Markup:
    """Return a figure as one svg element; label: what it shows, for people who do not see it.

    prefix: stands before each id, so that no two pictures of a page share one.
    """
    body = DROPPED.sub("", svg(figure).partition("<svg")[2].partition(">")[2])
    body = COLOUR.sub(lambda m: f"var(--{VARIABLES[m[0]]})", body)
    body = NAME.sub(lambda m: m[0] + prefix, body)
    width, height = figure.get_size_inches()
    opening = Markup('<svg role="img" aria-label="{}" viewBox="0 0 {:g} {:g}" style="max-width: {:g}rem" '
                     'xmlns:xlink="http://www.w3.org/1999/xlink">')  # fmt: skip
    return opening.format(label, 72 * width, 72 * height, REM_PER_INCH * width) + Markup(body.strip())
