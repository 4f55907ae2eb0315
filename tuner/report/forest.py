"""Forest plots: speed-ups with their intervals below each other; and bars of seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from tuner.measure.types import Estimate
from tuner.report.blocks import Figure, Tone
from tuner.report.plot import figure
from tuner.report.svg import CHAR, Canvas, Scale, ratio_ticks, wrapped
from tuner.report.wording import duration, ratio

__all__ = ["Bar", "ForestRow", "bars", "forest"]

_LINE = 15.0
_STRIP = 20.0
_MONO = 6.7  # a character of the fixed-width labels
_WIDEST = math.log(1000)


class ForestRow(msgspec.Struct, frozen=True, kw_only=True):
    """`label` stands above its interval. `estimate` None: nothing could be computed."""

    label: str
    estimate: Estimate | None
    tone: Tone = "plain"


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    seconds: float


def forest(rows: Sequence[ForestRow], *, title: str, caption: str, margin: float | None = None) -> Figure:
    """Speed-ups on a scale of ratios. The line at 1x is "no change"; `margin` (log scale) marks the smallest gain worth
    having. An end of an interval that isn't finite, or far away, runs to the edge."""
    known = [row.estimate for row in rows if row.estimate is not None]
    inside = [end for e in known for end in (e.gain, e.low, e.high) if abs(end) < _WIDEST]
    ends = [0.0, *inside, *([margin] if margin is not None else [])]
    air = 0.08 * (max(ends) - min(ends)) or 0.01
    low, high = min(ends) - air, max(ends) + air

    def draw(width: float) -> Canvas:
        labels = [wrapped(row.label, width - 10, char=_MONO) for row in rows]
        # What an interval says stands at the right end of its label, or on a line of its own if there is no room.
        values = [ratio(row.estimate) if row.estimate else "not measured" for row in rows]
        for lines, text in zip(labels, values, strict=True):
            if len(lines[-1]) * _MONO + (len(text) + 2) * CHAR > width - 12:
                lines.append("")
        canvas = Canvas(width, 4 + sum(len(lines) * _LINE + _STRIP for lines in labels) + 38)
        x = Scale(low=low, high=high, start=8, end=width - 8)
        at = 0.0
        for row, lines, text in zip(rows, labels, values, strict=True):
            for line in lines:
                at += _LINE
                canvas.text(4, at - 2, line, "mono")
            canvas.text(width - 4, at - 2, text, anchor="end")
            if margin is not None:
                canvas.rect(x(0.0), at + 2, x(margin) - x(0.0), _STRIP - 4, "margin")
            canvas.line(x(0.0), at + 2, x(0.0), at + _STRIP - 2, "zero")
            _interval(canvas, x, at + _STRIP / 2, row)
            at += _STRIP
        floor = at + 4
        canvas.line(8, floor, width - 8, floor, "axis")
        _ticks(canvas, x, floor, ratio_ticks(low, high, about=max(3, int(width / 90))))
        canvas.text(width - 8, floor + 31, "speed-up over the default", "label", "end")
        return canvas

    return figure(title, caption, draw)


def _ticks(canvas: Canvas, x: Scale, floor: float, ticks: Sequence[tuple[float, str]]) -> None:
    for place, text in ticks:
        half = len(text) * CHAR / 2
        at = x(place)
        canvas.line(at, floor, at, floor + 4, "axis")
        if half <= at <= canvas.width - half:
            canvas.text(at, floor + 15, text, anchor="middle")


def _interval(canvas: Canvas, x: Scale, at: float, row: ForestRow) -> None:
    estimate = row.estimate
    if estimate is None:
        return
    left, right = x(estimate.low), x(estimate.high)
    canvas.line(left, at, right, at, f"whisker {row.tone}")
    for end, place in ((left, estimate.low), (right, estimate.high)):
        if x.holds(place):
            canvas.line(end, at - 4, end, at + 4, f"whisker {row.tone}")
    canvas.mark(x(estimate.gain), at, "dot" if row.tone == "good" else "diamond", row.tone, ratio(estimate))


def bars(entries: Sequence[Bar], *, title: str, caption: str) -> Figure:
    """Seconds as horizontal bars."""
    longest = max((bar.seconds for bar in entries), default=0.0)

    def draw(width: float) -> Canvas:
        left = 12 + max((len(bar.label) for bar in entries), default=0) * CHAR
        canvas = Canvas(width, 8 + 20 * len(entries))
        x = Scale(low=0.0, high=longest or 1.0, start=0.0, end=width - left - 90)
        for i, bar in enumerate(entries):
            at = 4 + 20 * i
            canvas.text(left - 8, at + 12, bar.label, anchor="end")
            canvas.rect(left, at + 2, x(bar.seconds), 13, "bar")
            canvas.text(left + x(bar.seconds) + 6, at + 12, duration(bar.seconds))
        return canvas

    return figure(title, caption, draw)
