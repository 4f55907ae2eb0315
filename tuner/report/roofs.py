"""The roofline: FLOP a byte against FLOP/s, under the roofs that were measured on this device.

The picture and its words are those of Williams, Waterman and Patterson (2009).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from tuner.profile.types import Ceiling, OpRow, StepProfile
from tuner.report.blocks import Block, Cell, Code, Prose, Table
from tuner.report.labels import Labels
from tuner.report.plot import Plot, figure
from tuner.report.svg import CHAR, Canvas
from tuner.report.wording import si_text

__all__ = ["roofs"]

_MOST = 6  # operations of a side
_NAME = 40
_HEIGHT = 340.0
_DECADES = 6  # at most, below the highest roof and beside its ridge
_NEAR = 17.0  # roofs so near each other share a label
_BITS = 60  # level pieces that stand for the slope where labels look for room
_TOGETHER = 11.0  # points so near each other share a label
_LEAST, _LARGEST = 3.5, 17.0  # radius of a point: of next to nothing, and of all the time
_SIDES = (("ring", "control"), ("disc", "best"))


class _Point(msgspec.Struct, frozen=True, kw_only=True):
    """`number`: what it is called in the drawing; 0: the step."""

    number: int
    side: int
    name: str
    flops: float
    bytes: float
    ms: float
    share: float
    roof: float | None

    @property
    def at(self) -> tuple[float, float]:
        """log10 of FLOP/byte and of FLOP/s."""
        return math.log10(self.flops / self.bytes), math.log10(self.flops / (1e-3 * self.ms))


def roofs(sides: Sequence[tuple[str, StepProfile]]) -> list[Block]:
    """The drawing and its numbers for one profile, or for two side by side (the default first); a sentence that says
    what is missing where it can't be drawn."""
    ceiling = _highest(profile.roofline.ceiling for _, profile in sides)
    points = _points(sides)
    if ceiling is None:
        return [Prose(text="No roofline: what this device can do at most could not be measured.")]
    if not points:
        return [Prose(text="No roofline: of no operation both FLOPs and bytes are known.")]
    view = _View.of(points, ceiling)
    title = "Roofline: FLOP a byte moved against FLOP/s reached, both logarithmic"
    names = [name for name, _ in sides]
    return [
        figure(title, _caption(points, ceiling, view, names), _drawing(points, ceiling, view, names)),
        _table(points, names),
    ]


def _highest(ceilings: Iterable[Ceiling | None]) -> Ceiling | None:
    """What was reached at most, where it was measured twice."""
    known = [ceiling for ceiling in ceilings if ceiling is not None and ceiling.bytes_per_s > 0]
    if not known:
        return None
    names = dict.fromkeys(name for ceiling in known for name in ceiling.flops_per_s)
    flops = {name: max(c.flops_per_s.get(name, 0.0) for c in known) for name in names}
    return Ceiling(
        flops_per_s={name: most for name, most in flops.items() if most > 0},
        bytes_per_s=max(ceiling.bytes_per_s for ceiling in known),
        unsteady=tuple(dict.fromkeys(name for ceiling in known for name in ceiling.unsteady)),
    )


def _points(sides: Sequence[tuple[str, StepProfile]]) -> list[_Point]:
    """Each side's step and largest operations. An operation that both have goes by one number."""
    numbers: dict[tuple[str, str, str], int] = {}
    points: list[_Point] = []
    for side, (_, profile) in enumerate(sides):
        roof, breakdown = profile.roofline, profile.breakdown
        if roof.flops > 0 and roof.bytes > 0 and breakdown.step_ms > 0:
            points.append(
                _Point(
                    number=0,
                    side=side,
                    name="the step",
                    flops=roof.flops,
                    bytes=roof.bytes,
                    ms=breakdown.step_ms,
                    share=1.0,
                    roof=roof.share,
                )
            )
        for row in [row for row in breakdown.ops if _drawn(row)][:_MOST]:
            number = numbers.setdefault((row.name, row.category, row.source), len(numbers) + 1)
            assert row.flops is not None
            assert row.bytes is not None
            points.append(
                _Point(
                    number=number,
                    side=side,
                    name=row.name,
                    flops=row.flops,
                    bytes=row.bytes,
                    ms=row.self_ms,
                    share=row.share,
                    roof=row.roof,
                )
            )
    return points


def _drawn(row: OpRow) -> bool:
    return bool(row.flops and row.bytes and row.self_ms > 0)


class _View(msgspec.Struct, frozen=True, kw_only=True):
    """What of the plane is shown: (lowest, highest) of the two logarithms."""

    x: tuple[float, float]
    y: tuple[float, float]

    @classmethod
    def of(cls, points: Sequence[_Point], ceiling: Ceiling) -> _View:
        top = math.log10(max([*ceiling.flops_per_s.values(), *(10 ** p.at[1] for p in points)]))
        ridge = top - math.log10(ceiling.bytes_per_s)
        xs, ys = zip(*(point.at for point in points), strict=True)
        left = max(min(*xs, ridge - 1.5) - 0.3, ridge - _DECADES)
        right = min(max(*xs, ridge + 0.7) + 0.3, ridge + _DECADES)
        low = max(min(*ys, top - 1.5) - 0.3, top - _DECADES)
        return cls(x=(left, right), y=(low, top + 0.3))

    def holds(self, point: _Point) -> bool:
        (x, y), (left, right), (low, high) = point.at, self.x, self.y
        return left <= x <= right and low <= y <= high


def _caption(points: Sequence[_Point], ceiling: Ceiling, view: _View, names: Sequence[str]) -> str:
    told = [f"memory {si_text(ceiling.bytes_per_s)}B/s"]
    told += [f"{name} {si_text(most)}FLOP/s" for name, most in _by_height(ceiling)]
    said = [
        f"Roofs as measured on this device: {', '.join(told)}.",
        "Circles are operations, as large as their share of the step, with the numbers of the table below.",
        "Diamonds are the whole step, its pauses included.",
    ]
    if len(names) > 1:
        said.append(f"Rings: {names[0]}; filled: {names[1]}.")
    said.append("The nearer a point is to its roof, the less is left to gain. What computes nothing isn't shown.")
    if ceiling.unsteady:
        said.append(f"Measured while the machine was busy, so perhaps too low: {', '.join(ceiling.unsteady)}.")
    if not all(map(view.holds, points)):
        said.append("What lies outside stands on the edge.")
    return " ".join(said)


def _by_height(ceiling: Ceiling) -> list[tuple[str, float]]:
    return sorted(ceiling.flops_per_s.items(), key=lambda item: -item[1])


def _drawing(
    points: Sequence[_Point], ceiling: Ceiling, view: _View, names: Sequence[str]
) -> Callable[[float], Canvas]:
    def draw(width: float) -> Canvas:
        plot = Plot(width, _HEIGHT, x=view.x, y=view.y, left=58.0)
        plot.y_axis([(t, si_text(10.0**t).strip()) for t in _decades(view.y)], "FLOP/s")
        plot.x_axis([(t, f"{10.0**t:g}") for t in _decades(view.x)], "FLOP a byte")
        entries = [(_SIDES[i % 2][0], _SIDES[i % 2][1], name) for i, name in enumerate(names)]
        shown = entries if len(names) > 1 else [("disc", "best", "operation")]
        plot.legend([*shown, ("diamond", "best", "step")])
        labels = Labels(plot.canvas, x=(plot.x.start, plot.canvas.width - 4), y=(plot.y.end - 4, plot.y.start - 3))
        for point in points:
            labels.mark(*_place(plot, point), _size(point))
        _roof_lines(plot, ceiling, labels)
        _marks(plot, points, names, labels)
        labels.draw()
        return plot.canvas

    return draw


def _decades(range_: tuple[float, float]) -> list[int]:
    return list(range(math.ceil(range_[0]), math.floor(range_[1]) + 1))


def _roof_lines(plot: Plot, ceiling: Ceiling, labels: Labels) -> None:
    """The slope of the memory up to the highest roof, and each roof from where it meets that."""
    memory = math.log10(ceiling.bytes_per_s)
    roofs = [(name, math.log10(most)) for name, most in _by_height(ceiling)]
    (left, right), (low, _) = (plot.x.low, plot.x.high), (plot.y.low, plot.y.high)
    top = roofs[0][1] if roofs else plot.y.high
    begin = max(left, low - memory)
    plot.canvas.path([(plot.x(x), plot.y(x + memory)) for x in (begin, top - memory)], "roof")
    for i in range(_BITS):
        here, there = (begin + (top - memory - begin) * part / _BITS for part in (i, i + 1))
        labels.line(plot.x(here), plot.x(there), plot.y((here + there) / 2 + memory))
    groups: list[list[tuple[str, float]]] = []
    for name, height in roofs:
        if height < low or height - memory > right:
            continue
        plot.canvas.line(plot.x(height - memory), plot.y(height), plot.x.end, plot.y(height), "roof")
        labels.line(plot.x(height - memory), plot.x.end, plot.y(height))
        if groups and plot.y(height) - plot.y(groups[-1][0][1]) < _NEAR:
            groups[-1].append((name, height))
        else:
            groups.append([(name, height)])
    for group in groups:
        text = ", ".join(f"{name} {si_text(10**height).strip()}" for name, height in group)
        labels.along(plot.x(group[-1][1] - memory), plot.x.end, plot.y(group[0][1]) - 4, text)
    # Above the roof nothing can be: there is room for its name.
    place = (begin + top - memory) / 2
    x, y, text = plot.x(place) - 6, plot.y(place + memory) - 2, f"memory {si_text(ceiling.bytes_per_s)}B/s"
    if x - len(text) * CHAR > plot.x.start:
        labels.along(x - len(text) * CHAR, x, y, text)


def _marks(plot: Plot, points: Sequence[_Point], names: Sequence[str], labels: Labels) -> None:
    """Large ones first, so that none hides another."""
    for point in sorted(points, key=lambda p: (p.number == 0, -p.share)):
        x, y = _place(plot, point)
        tip = f"{point.name}, {names[point.side]}: {_rate(point)}, {_intensity(point)} FLOP a byte"
        look, colour = _SIDES[point.side % 2] if len(names) > 1 else _SIDES[1]
        if point.number:
            plot.canvas.disc(x, y, _size(point), f"{look} {colour}", tip)
        else:
            plot.canvas.mark(x, y, "diamond", "open" if look == "ring" else colour, tip)
    for group in _together(plot, points):
        first = group[0]
        numbers = {point.number for point in group}
        labels.near(
            *_place(plot, first), _numbers(numbers), radius=_size(first), inside=len(numbers) == 1 and 0 not in numbers
        )


def _together(plot: Plot, points: Sequence[_Point]) -> list[list[_Point]]:
    """Points that are told by one label, around the largest of them."""
    groups: list[list[_Point]] = []
    for point in sorted(points, key=lambda p: (p.number != 0, -p.share)):
        near = next((g for g in groups if math.dist(_place(plot, g[0]), _place(plot, point)) < _TOGETHER), None)
        if near is None:
            groups.append([point])
        else:
            near.append(point)
    return groups


def _place(plot: Plot, point: _Point) -> tuple[float, float]:
    return plot.x(point.at[0]), plot.y(point.at[1])


def _numbers(numbers: Iterable[int]) -> str:
    """Numbers of points in few characters: step, 1, 3–5."""
    told: list[str] = []
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if number and runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        elif number:
            runs.append([number])
        else:
            told.append("step")
    for run in runs:
        told += [f"{run[0]}–{run[-1]}"] if len(run) > 2 else [str(number) for number in run]
    return ", ".join(told)


def _size(point: _Point) -> float:
    """Radius of its mark."""
    if not point.number:
        return 4.5
    return _LEAST + (_LARGEST - _LEAST) * math.sqrt(min(1.0, max(0.0, point.share)))


def _table(points: Sequence[_Point], names: Sequence[str]) -> Table:
    """The drawing's numbers: a row for each point, with both sides' values where there are two."""
    rows: list[tuple[Cell, ...]] = []
    for number in sorted({point.number for point in points}):
        own = {point.side: point for point in points if point.number == number}
        name = next(iter(own.values())).name
        values = [own.get(side) for side in range(len(names))]
        rows.append(
            (
                str(number) if number else "step",
                _both(values, lambda p: f"{100 * p.share:.3g}"),
                _both(values, _intensity),
                _both(values, lambda p: _rate(p).removesuffix("FLOP/s").strip().replace(" ", "\u00a0")),
                _both(values, lambda p: "" if p.roof is None else f"{100 * p.roof:.0f}"),
                Code(name if len(name) <= _NAME else f"{name[: _NAME - 1]}…") if number else "all of it",
            )
        )
    sides = f" ({names[0]} → {names[1]})" if len(names) > 1 else ""
    head = ("point", "time, %", "FLOP/B", "FLOP/s", "of roof, %", "what")
    return Table(caption=f"The roofline's points{sides}", head=head, rows=tuple(rows))


def _both(values: Sequence[_Point | None], told: Callable[[_Point], str]) -> str:
    texts = [told(value) if value is not None else "–" for value in values]
    return texts[0] if len(set(texts)) == 1 else " → ".join(text or "–" for text in texts)


def _intensity(point: _Point) -> str:
    value = point.flops / point.bytes
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _rate(point: _Point) -> str:
    return f"{si_text(point.flops / (1e-3 * point.ms))}FLOP/s"
