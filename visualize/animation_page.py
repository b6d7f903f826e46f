"""An animation as one self-contained HTML page: play, pause, step and scrub, with no network and no library.

The page is `templates/animation.html` with the frames as JSON in it; its script draws them. Every name
(kernels, arrays, options) is data, never markup: the script sets it as text. What it leaves out: layout and
colours, which are the page's own, light and dark.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from visualize.animation import sample_text
from visualize.film import Film, Tensor
from visualize.levels import Level
from visualize.panel import scales
from visualize.placing import WIDE, shape_text

PAGE = Path(__file__).with_name("templates") / "animation.html"


def page(shown: Sequence[Film], frames_per_second: int) -> str:
    """Return the page of some films on one clock."""
    title = " and ".join(film.run.title for film in shown)
    text = PAGE.read_text(encoding="utf-8")
    found = json.dumps(data(shown, frames_per_second), separators=(",", ":")).replace("<", "\\u003c")
    head, _, rest = text.partition("__DATA__")
    return head.replace("__TITLE__", html.escape(title)) + found + rest


def data(shown: Sequence[Film], frames_per_second: int) -> dict[str, Any]:
    """Return what a page shows, as what JSON can hold; bytes by level are running totals."""
    shared = scales(shown, WIDE)
    return {
        "frames": shown[0].frames, "fps": frames_per_second, "sample": sample_text(shown),
        "clockBytes": shared.clock_bytes, "barBytes": shared.bar_bytes,
        "films": [_film(film, shared.rows) for film in shown],
    }  # fmt: skip


def _film(film: Film, rows: Sequence[str]) -> dict[str, Any]:
    arch = film.run.launches[0].arch
    return {
        "title": film.run.title, "gpu": arch.title, "l2": f"L2, {arch.l2_bytes >> 20} MB",
        "smBytes": arch.shared_bytes_per_sm, "ends": film.ends,
        "sections": [[s.name, s.start_bytes, s.end_bytes, s.blocks_per_sm, s.shared_bytes]
                     for s in film.sections],
        "section": film.section.tolist(), "clock": film.clock.tolist(), "resident": film.resident.tolist(),
        "hits": film.l2_hits.tolist(), "misses": film.l2_misses.tolist(),
        "levels": [_level(level) for level in film.levels if level.key in rows],
        "tensors": [_tensor(tensor) for tensor in film.tensors],
    }  # fmt: skip


def _level(level: Level) -> dict[str, Any]:
    return {
        "key": level.key, "label": level.label, "box": level.box, "modelled": level.modelled,
        "closed": level.closed_form, "bytes": np.cumsum(level.nbytes).tolist(),
    }  # fmt: skip


def _tensor(tensor: Tensor) -> dict[str, Any]:
    """Return a tensor; reads and writes are, of each frame, runs of tiles: first, length, first, length."""
    grid = tensor.grid
    return {
        "name": tensor.name, "shape": shape_text(tensor), "down": grid.down, "across": grid.across,
        "reads": [runs(row) for row in tensor.reads > 0], "writes": [runs(row) for row in tensor.writes > 0],
    }  # fmt: skip


def runs(flags: np.ndarray) -> list[int]:
    """Return where flags are set, as first, length, first, length."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return np.stack([edges[::2], edges[1::2] - edges[::2]], 1).ravel().tolist()
