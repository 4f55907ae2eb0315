"""Stacked bars: what a step is made of, a bar for each side, with the numbers beside the colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.report.blocks import Figure
from tuner.report.plot import figure
from tuner.report.svg import CHAR, Canvas, Scale

__all__ = ["stacked"]

_COLOURS = 8
_BAR, _ROW = 30.0, 19.0
_SMALL = 0.01  # parts below this share of every bar are put together
_REST = "all else"


def stacked(sides: Sequence[tuple[str, Mapping[str, float]]], *, title: str, caption: str) -> Figure:
    """A bar a side: its name, and part → ms. Parts keep the order of the first side, small ones become one."""
    totals = [sum(parts.values()) for _, parts in sides]
    longest = max(totals, default=0.0) or 1.0
    names = list(dict.fromkeys(name for _, parts in sides for name in parts))
    large = [
        name
        for name in names
        if any(parts.get(name, 0.0) >= _SMALL * total for (_, parts), total in zip(sides, totals, strict=True))
    ]
    shown = large if len(large) <= _COLOURS else large[: _COLOURS - 1]
    rows = [(name, [parts.get(name, 0.0) for _, parts in sides]) for name in shown]
    rest = [sum(ms for name, ms in parts.items() if name not in shown) for _, parts in sides]
    if any(rest):
        rows.append((_REST, rest))

    def draw(width: float) -> Canvas:
        canvas = Canvas(width, 8 + len(sides) * (_BAR + 18) + len(rows) * _ROW + 10)
        x = Scale(low=0.0, high=longest, start=4.0, end=width - 8)
        at = 4.0
        for side, (name, _) in enumerate(sides):
            canvas.text(4, at + 11, f"{name}: {totals[side]:.4g} ms")
            begin = 0.0
            for number, (_, values) in enumerate(rows):
                left, right = x(begin), x(begin + values[side])
                if values[side] > 0:
                    canvas.rect(left, at + 16, right - left, _BAR - 4, f"p{number}")
                    if right - left > 2.2 * CHAR:
                        canvas.text((left + right) / 2, at + 33, str(number + 1), "on", "middle")
                begin += values[side]
            at += _BAR + 18
        for number, (part, values) in enumerate(rows):
            canvas.rect(4, at + 3, 20, 14, f"p{number}")
            canvas.text(14, at + 14, str(number + 1), "on", "middle")
            told = " → ".join(f"{value:.3g}" for value in values)
            canvas.text(30, at + 14, part)
            canvas.text(min(width - 8, 480), at + 14, f"{told} ms", anchor="end")
            at += _ROW
        return canvas

    return figure(title, caption, draw)
