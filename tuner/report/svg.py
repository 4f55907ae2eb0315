"""Scalable vector graphics by hand: a canvas for shapes, scales, and round numbers for axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import msgspec

__all__ = ["CHAR", "Canvas", "Scale", "number", "percent_ticks", "ratio_ticks", "round_ticks", "wrapped"]

CHAR = 6.4
"""Width of a character in an axis label, in user units: a cautious mean over sans-serif fonts at 11 units."""

_LEADING: tuple[tuple[float, ...], ...] = ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))
"""Leading digits of ratios that are marked, the most marks first."""

_WIDE_RATIO = 2.5  # from here on, ratios are marked on a logarithmic scale


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Maps [low, high] linearly onto user units [start, end]; what lies outside lands on the edge."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


class Canvas:
    """Collects elements of one drawing, `width` × `height` user units. Looks come from the page by `look`, a class."""

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._parts: list[str] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, look: str) -> None:
        self._parts.append(
            f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" class="{look}"/>'
        )

    def rect(self, x: float, y: float, width: float, height: float, look: str) -> None:
        size = f'width="{number(max(width, 0.5))}" height="{number(height)}"'
        self._parts.append(f'<rect x="{number(x)}" y="{number(y)}" {size} class="{look}"/>')

    def path(self, points: Sequence[tuple[float, float]], look: str) -> None:
        """Straight lines from point to point."""
        if points:
            steps = "L".join(f"{number(x)} {number(y)}" for x, y in points)
            self._parts.append(f'<path d="M{steps}" class="{look}"/>')

    def mark(self, x: float, y: float, shape: str, look: str, tip: str = "") -> None:
        """A point's mark: ``dot``, ``disc``, ``ring``, ``cross``, ``diamond`` or ``down``. `tip`: under the pointer."""
        self._parts.append(_marked(x, y, shape, look, f"<title>{escape(tip)}</title>" if tip else ""))

    def disc(self, x: float, y: float, radius: float, look: str, tip: str = "") -> None:
        """A circle of a size that means something. `tip` shows under the pointer."""
        inner = f"<title>{escape(tip)}</title>" if tip else ""
        place = f'cx="{number(x)}" cy="{number(y)}" r="{number(radius)}"'
        self._parts.append(f'<circle {place} class="{look}">{inner}</circle>')

    def text(self, x: float, y: float, text: str, look: str = "", anchor: str = "start") -> None:
        """`anchor`: start, middle or end."""
        kind = f' class="{look}"' if look else ""
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._parts.append(f'<text x="{number(x)}" y="{number(y)}"{kind}{place}>{escape(text)}</text>')

    def drawing(self, title: str, desc: str, *, look: str) -> str:
        """The whole as one ``<svg>`` element: an image with a name and a description for those who can't see it."""
        return (
            f'<svg class="{look}" viewBox="0 0 {number(self.width)} {number(self.height)}" role="img" '
            f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title><desc>{escape(desc)}</desc>'
            f"{''.join(self._parts)}</svg>"
        )


def _marked(x: float, y: float, shape: str, look: str, inner: str) -> str:
    if shape in ("dot", "disc", "ring"):
        radius = "3" if shape == "dot" else "3.4"
        return f'<circle cx="{number(x)}" cy="{number(y)}" r="{radius}" class="{look} {shape}">{inner}</circle>'
    lines = {
        "cross": f"M{number(x - 3)} {number(y - 3)}l6 6m0 -6l-6 6",
        "diamond": f"M{number(x)} {number(y - 4.5)}l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
        "down": f"M{number(x - 4)} {number(y - 3)}h8l-4 7z",
    }
    return f'<path d="{lines[shape]}" class="{look} {shape}">{inner}</path>'


def number(value: float) -> str:
    """A coordinate, to a tenth of a unit."""
    return f"{value:.1f}".removesuffix(".0")


def round_ticks(low: float, high: float, *, about: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten within [low, high]; about as many as asked for."""
    if not high > low:
        return [low]
    raw = (high - low) / max(about, 1)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next((unit * m for m in (1, 2, 5) if unit * m >= raw * 0.999), unit * 10)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def ratio_ticks(low: float, high: float, *, about: int) -> list[tuple[float, str]]:
    """Places on the scale of log ratios, with their ratios: ``1.02x``."""
    if high - low > math.log(_WIDE_RATIO):
        powers = range(math.floor(low / math.log(10)), math.ceil(high / math.log(10)) + 1)
        for leading in _LEADING:
            found = [math.log(digit) + p * math.log(10) for p in powers for digit in leading]
            kept = [place for place in found if low <= place <= high]
            if len(kept) <= about + 1:
                break
        return [(place, f"{math.exp(place):.3g}x") for place in kept]
    ratios = round_ticks(math.exp(low), math.exp(high), about=about)
    digits = _decimals(ratios)
    return [(math.log(ratio), f"{ratio:.{digits}f}x") for ratio in ratios if ratio > 0]


def percent_ticks(low: float, high: float, *, about: int) -> list[tuple[float, str]]:
    """Places on a scale of shares, as percent."""
    found = round_ticks(100 * low, 100 * high, about=about)
    digits = _decimals(found)
    return [(place / 100, f"{place:+.{digits}f} %" if place else "0 %") for place in found]


def _decimals(ticks: Sequence[float]) -> int:
    """Digits behind the point that tell neighbouring ticks apart."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) if ticks else 1.0
    return max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0


def wrapped(text: str, room: float, *, char: float) -> list[str]:
    """`text` in lines of at most `room` units, broken at blanks, else behind ``=`` and ``_``, else anywhere."""
    limit = max(8, int(room / char))
    lines: list[str] = []
    rest = text
    while len(rest) > limit:
        head = rest[:limit]
        cut = head.rfind(" ") if rest[limit] != " " else limit
        if cut <= 0:
            cut = max(head.rfind("="), head.rfind("_")) + 1 or limit
        lines.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*lines, rest]
