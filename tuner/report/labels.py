"""Labels in a drawing that keep out of each other's way."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.report.svg import CHAR, Canvas

__all__ = ["Labels"]

_ASCENT, _DESCENT = 9.0, 3.0
_ROOM = 9.0  # radius of a mark that has room for its label inside
_RINGS = (4.0, 14.0, 26.0, 40.0)  # how far from a mark's edge a label may be
_DIRECTIONS = (0.0, 180.0, 270.0, 90.0, 315.0, 225.0, 45.0, 135.0)  # degrees, the best first: right, left, above, …
_FAR = 10.0  # from here on a line leads to it

Box = tuple[float, float, float, float]


class Labels:
    """Places labels on `canvas`, within `x` and `y`, one after another: each where nothing is yet."""

    def __init__(self, canvas: Canvas, *, x: tuple[float, float], y: tuple[float, float]) -> None:
        self._canvas = canvas
        self._x, self._y = x, y
        self._labels: list[Box] = []
        self._marks: list[Box] = []
        self._lines: list[Box] = []
        self._leaders: list[Box] = []
        self._texts: list[tuple[float, float, str, str, str]] = []

    def mark(self, x: float, y: float, radius: float) -> None:
        """Here is a mark, which labels don't hide if they can stand elsewhere."""
        self._marks.append((x - radius - 1, y - radius, x + radius + 1, y + radius))

    def line(self, start: float, end: float, y: float) -> None:
        """Here is a level line, which labels of marks don't lie on if they can stand elsewhere."""
        self._lines.append((start, y - 1, end, y + 1))

    def along(self, start: float, end: float, y: float, text: str) -> None:
        """The name of a line from `start` to `end`, above it: at its end, or where no mark is. Marks come before."""
        width = len(text) * CHAR
        lefts = [max(self._x[0], at) for at in (end - width, start + 4, (start + end - width) / 2)]
        boxes = [(left, y - _ASCENT, left + width, y + _DESCENT) for left in lefts]
        box = next((box for box in boxes if self._free(box, [*self._labels, *self._marks])), boxes[0])
        self._labels.append(box)
        at_end = box is boxes[0]
        self._texts.append((box[2] if at_end else box[0], y, text, "faint halo", "end" if at_end else "start"))

    def near(self, x: float, y: float, text: str, *, radius: float, inside: bool) -> None:
        """A label of the mark at (x, y): in it, where it is large enough and that is wanted, else beside it, else
        farther away with a line. Where everything is taken it hides marks, and then other labels."""
        width = len(text) * CHAR
        within = [(0.0, x, y)] if inside and radius >= _ROOM else []
        around = []
        for ring in _RINGS:
            for degrees in _DIRECTIONS:
                cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
                around.append((ring, x + cos * (radius + ring + width / 2), y + sin * (radius + ring + _ASCENT / 2)))
        clear = [place for place in around if self._free(_box(*place[1:], width), [*self._labels, *self._marks])]
        clear = [place for place in clear if self._free(_box(*place[1:], width), self._lines)] or clear
        free = [place for place in [*within, *around] if self._free(_box(*place[1:], width), self._labels)]
        if within and free[:1] == within:
            clear = within
        ring, cx, cy = [*clear, *free, *around][0]
        if ring > _FAR:
            self._leaders.append((x, y, cx, cy))
        self._labels.append(_box(cx, cy, width))
        self._texts.append((cx, cy + (_ASCENT - _DESCENT) / 2 + 1, text, "halo", "middle"))

    def draw(self) -> None:
        """All of them, no line above a text."""
        for leader in self._leaders:
            self._canvas.line(*leader, "leader")
        for x, y, text, look, anchor in self._texts:
            self._canvas.text(x, y, text, look, anchor)

    def _free(self, box: Box, taken: Sequence[Box]) -> bool:
        left, top, right, bottom = box
        if left < self._x[0] or right > self._x[1] or top < self._y[0] or bottom > self._y[1]:
            return False
        return not any(left < there[2] and there[0] < right and top < there[3] and there[1] < bottom for there in taken)


def _box(cx: float, cy: float, width: float) -> Box:
    return cx - width / 2, cy - _ASCENT / 2 - 2, cx + width / 2, cy + _ASCENT / 2 + 2
