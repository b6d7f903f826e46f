"""Messages for names that do not exist: the nearest names, or all there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(what: str, name: str, names: Iterable[str], have: str = "there are") -> str:
    """Return the message for a name that does not exist: near names if any, else all of them."""
    names = sorted(names)
    return f"{what} {name!r}; {did_you_mean(name, names) or listed(have, names)}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question with the nearest names, "" where none is near."""
    near = difflib.get_close_matches(name, sorted(names), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else ""


def listed(have: str, names: Iterable[str]) -> str:
    """Return all names in one line, "none" where there are none."""
    return f"{have}: {', '.join(sorted(names)) or 'none'}"
