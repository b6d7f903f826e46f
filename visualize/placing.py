"""Where the parts of an animation lie, in pixels: one kernel over the whole width, or columns of kernels.

What it leaves out: drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from visualize.film import Film, Tensor

LABEL = 16
"""Above and below a tensor: its name and its shape."""
GAP, LEAST_SIDE, SMALL_SIDE, LEAST_WIDTH, MOST_LETTERS = 10, 24, 64, 12, 16
NAME_PIXELS, SHAPE_PIXELS = 7.6, 6.2
"""Of a letter: bold at 8 points, and at 7 points."""


@dataclass(frozen=True)
class Box:
    """Hold a rectangle: left, top, width and height."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Return the right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Return the lower edge."""
        return self.y + self.height


@dataclass(frozen=True)
class Layout:
    """Hold the size of a panel, and the boxes of its parts."""

    width: int
    height: int
    tensors: Box
    chip: Box
    counters: Box
    clock: Box


WIDE = Layout(880, 380, Box(14, 48, 400, 250), Box(440, 48, 150, 250), Box(622, 48, 244, 250),
              Box(14, 322, 852, 44))  # fmt: skip
"""One kernel: tensors on the left, the chip in the middle, counters on the right."""
COLUMN_WIDTH, MOST_TENSOR_HEIGHT = 440, 248


def column(shown: Sequence[Film]) -> Layout:
    """Return the layout of each of several kernels side by side: tensors above the chip and the counters."""
    most = Box(14, 48, 412, MOST_TENSOR_HEIGHT)
    side = min(side_of(film.tensors, most) for film in shown)
    ends = [box.bottom for film in shown for _, box in placed_tensors(film.tensors, most, side)]
    tensors = Box(14, 48, 412, max(ends, default=48) + LABEL - 48)
    y = tensors.bottom + 14
    return Layout(COLUMN_WIDTH, int(y) + 316, tensors, Box(14, y, 150, 240), Box(186, y, 240, 240),
                  Box(14, y + 260, 412, 44))  # fmt: skip


def side_of(tensors: Sequence[Tensor], within: Box) -> int:
    """Return the largest height of tensors at which all of them fit: in one line if it is not small."""
    most = int(within.height) - 2 * LABEL
    fits = [side for side in range(LEAST_SIDE, most + 1, 2) if _fit(tensors, within, side)]
    in_a_line = [side for side in fits if side >= SMALL_SIDE and _lines(tensors, within, side) < 2]
    return max(in_a_line or fits, default=LEAST_SIDE)


def _lines(tensors: Sequence[Tensor], within: Box, side: int) -> int:
    return len({box.y for _, box in placed_tensors(tensors, within, side)})


def placed_tensors(tensors: Sequence[Tensor], within: Box, side: int) -> list[tuple[Tensor, Box]]:
    """Return tensors with the boxes of their tiles, all as high as `side`, in lines from the left."""
    found = []
    x, y = within.x, within.y + LABEL
    for tensor in tensors:
        width, cell = _widths(tensor, side)
        if x > within.x and x + cell > within.right:
            x, y = within.x, y + side + 2 * LABEL + GAP
        found.append((tensor, Box(round(x + (cell - width) / 2), y, width, side)))
        x += cell + GAP
    return found


def name_text(tensor: Tensor) -> str:
    """Return the name of a tensor, cut where it is long."""
    return tensor.name if len(tensor.name) <= MOST_LETTERS else tensor.name[: MOST_LETTERS - 3] + "..."


def shape_text(tensor: Tensor) -> str:
    """Return a shape in short: 512x64; leading ones are left out."""
    shape = list(tensor.grid.shape) or [1]
    while len(shape) > 1 and shape[0] == 1:
        shape.pop(0)
    return "x".join(map(str, shape))


def _fit(tensors: Sequence[Tensor], within: Box, side: int) -> bool:
    boxes = [box for _, box in placed_tensors(tensors, within, side)]
    wide = max((_widths(t, side)[1] for t in tensors), default=0)
    return wide <= within.width and all(box.bottom + LABEL <= within.bottom for box in boxes)


def _widths(tensor: Tensor, side: int) -> tuple[int, float]:
    """Return the width of a tensor's tiles, and that with its texts."""
    width = max(LEAST_WIDTH, round(side * tensor.grid.across / tensor.grid.down))
    width = min(width, 2 * side)
    return width, max(width, NAME_PIXELS * len(name_text(tensor)), SHAPE_PIXELS * len(shape_text(tensor)))
