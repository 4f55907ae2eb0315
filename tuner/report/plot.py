"""Plot: a canvas with two scales, axes and a legend; and the figure made of one drawing for each width of page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.report.blocks import Figure
from tuner.report.svg import CHAR, Canvas, Scale

__all__ = ["Plot", "figure", "spread_out"]

_WIDE, _NARROW = 860.0, 340.0
_TOP, _BOTTOM, _LEFT, _RIGHT = 22.0, 36.0, 54.0, 10.0


class Plot:
    """`x`, `y`: lowest and highest value shown. Things that lie outside land on the edge."""

    def __init__(
        self, width: float, height: float, *, x: tuple[float, float], y: tuple[float, float], left: float = _LEFT
    ) -> None:
        self.canvas = Canvas(width, height)
        self.x = Scale(low=x[0], high=x[1], start=left, end=width - _RIGHT)
        self.y = Scale(low=y[0], high=y[1], start=height - _BOTTOM, end=_TOP)

    @property
    def narrow(self) -> bool:
        return self.canvas.width < 500

    def x_axis(self, ticks: Sequence[tuple[float, str]], label: str) -> None:
        """Tick marks with their texts below the plot, and what is plotted, with its unit."""
        floor = self.y.start
        self.canvas.line(self.x.start, floor, self.x.end, floor, "axis")
        last = -1e9
        for place, text in ticks:
            at, half = self.x(place), len(text) * CHAR / 2
            self.canvas.line(at, floor, at, floor + 4, "axis")
            if at - half > last and at + half <= self.canvas.width:
                self.canvas.text(at, floor + 15, text, anchor="middle")
                last = at + half + 6
        self.canvas.text(self.x.end, floor + 31, label, "label", "end")

    def y_axis(self, ticks: Sequence[tuple[float, str]], label: str) -> None:
        """Grid lines with their texts left of the plot, and what is plotted above it."""
        for place, text in ticks:
            at = self.y(place)
            self.canvas.line(self.x.start, at, self.x.end, at, "grid")
            self.canvas.text(self.x.start - 6, at + 4, text, anchor="end")
        self.canvas.text(0, 12, label, "label")

    def legend(self, entries: Sequence[tuple[str, str, str]]) -> None:
        """Marks (shape, look, text) in the upper right corner, as far as they have room there."""
        at = self.canvas.width - _RIGHT
        for shape, look, text in reversed(entries):
            at -= len(text) * CHAR
            self.canvas.text(at, 12, text)
            self.canvas.mark(at - 9, 8, shape, look)
            at -= 24


def spread_out(values: Sequence[float], *, share: float = 0.06) -> tuple[float, float]:
    """Lowest and highest of `values` with some air; never an empty range."""
    low, high = min(values), max(values)
    air = share * (high - low) or 0.01 * abs(low) or 0.01
    return low - air, high + air


def figure(title: str, caption: str, draw: Callable[[float], Canvas]) -> Figure:
    """The figure that `draw` makes for a width in user units, for wide and for narrow pages."""
    wide, narrow = (
        draw(width).drawing(title, caption, look=look) for width, look in ((_WIDE, "wide"), (_NARROW, "narrow"))
    )
    return Figure(title=title, caption=caption, wide=wide, narrow=narrow)
