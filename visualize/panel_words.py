"""What a panel of an animation says in words of one frame: launch, blocks, hits, bytes, shares.

What it leaves out: where the words stand (visualize/panel.py); an animation's page makes the same itself.
"""

from __future__ import annotations

from gpusim.table import counted, number
from visualize import style
from visualize.film import Film

MOST_LETTERS = 32


def now_text(film: Film, k: int) -> str:
    """Say which launch frame k ends in."""
    at, many = int(film.section[k]) + 1, len(film.sections)
    done = ", done" if k > film.ends else ""
    name, gpu = film.sections[at - 1].name, film.run.launches[0].arch.title
    name = name if len(name) <= MOST_LETTERS else name[: MOST_LETTERS - 3] + "..."
    return f"{gpu}, launch {at} of {many}: {name}{done}"


def blocks_text(film: Film, k: int) -> str:
    """Say how many blocks are resident, and the shared memory that they hold."""
    blocks, held = int(film.resident[k].sum()), style.quantity(int(film.shared_bytes[k]), "B")
    return f"{counted(blocks, 'block')}, {held} shared"


def hits_text(film: Film, k: int) -> str:
    """Say which share of what SMs ask of L2 in frame k it has."""
    asked = int(film.l2_hits[k] + film.l2_misses[k])
    return f"hits {number(100 * int(film.l2_hits[k]) / asked)} %*" if asked else "not asked"


def flow_text(film: Film, level: str, k: int) -> str:
    """Say what moves at a level in frame k: down to the SMs, and up."""
    moved = {lv.key: int(lv.nbytes[k]) for lv in film.levels}
    down, up = moved[f"{level}-read"], moved[f"{level}-write"] + moved.get(f"{level}-atomic", 0)
    return f"{level}: \u2193 {style.quantity(down, 'B')}  \u2191 {style.quantity(up, 'B')}"


def share_text(so_far: int, closed_form: int | None) -> str:
    """Say bytes, and their share of the closed form where there is one."""
    said = style.quantity(so_far, "B")
    if closed_form is None:
        return f"{said}   n/a"
    return f"{said}   {'equal' if so_far == closed_form else number(100 * so_far / closed_form) + ' %'}"
