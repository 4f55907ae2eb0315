"""Step time against a knob that runs differ in: batch size, width, the mesh's shape, whatever the workload takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tuner.report.blocks import Block, Code, Table
from tuner.report.plot import Plot, figure, spread_out
from tuner.report.sides import Side
from tuner.report.svg import Canvas, round_ticks
from tuner.report.wording import ratio

__all__ = ["varied_knob"]

_WIDE = 10.0  # values that lie so far apart are set out by their ratios, as batch sizes are chosen


def varied_knob(sides: Sequence[Side]) -> list[Block]:
    """Chart and table of step times by the knob in which all `sides` differ; where they differ in two, as a grid of
    batch sizes and meshes does, by one of them for each value of the other. Empty if there is none.

    The sides must agree in everything else that the user held, in the objective and in the environment, and no two may
    hold the same values. Sides that lack a time are left out.
    """
    usable = [side for side in sides if side.control_ms and side.best_ms]
    varied = _varied(sides, usable)
    if not varied:
        return []
    along, *others = varied
    blocks: list[Block] = []
    for value in _in_order({side.held[n] for side in usable for n in others}) if others else [""]:
        members = [side for side in usable if not others or side.held[others[0]] == value]
        if len(members) > 1:
            blocks += _curve(members, along, f", at {others[0]} {value}" if others else "", _range(usable))
    return blocks


def _curve(sides: Sequence[Side], name: str, where: str, span: tuple[float, float]) -> list[Block]:
    """The chart and the table along one knob; `span`: the milliseconds that the chart shows, lowest and highest."""
    places, logarithmic = _places([side.held[name] for side in sides])
    rows = sorted((places[side.held[name]], side) for side in sides)
    numbers = _numbers(places.keys())
    low, high = span
    left, right = spread_out([x for x, _ in rows], share=0.03)

    def draw(width: float) -> Canvas:
        plot = Plot(width, 230, x=(left, right), y=(low, high))
        plot.y_axis([(t, f"{t:g}") for t in round_ticks(low, high, about=5)], f"ms {sides[0].per}")
        plot.x_axis([(x, side.held[name]) for x, side in rows], name)
        plot.legend([("ring", "control", "default"), ("dot", "best", "tuned")])
        for times, shape, look, path in (
            ([side.control_ms or 0.0 for _, side in rows], "ring", "control", "s1"),
            ([side.best_ms or 0.0 for _, side in rows], "dot", "best", "s0"),
        ):
            points = [(plot.x(x), plot.y(ms)) for (x, _), ms in zip(rows, times, strict=True)]
            if numbers:
                plot.canvas.path(points, path)
            for (x, y), (_, side), ms in zip(points, rows, times, strict=True):
                plot.canvas.mark(x, y, shape, look, f"{name} {side.held[name]}: {ms:.4g} ms")
        return plot.canvas

    table = Table(
        caption=f"By {name}{where}",
        head=(name, "side", "default, ms", "tuned, ms", "speed-up over own default"),
        rows=tuple(
            (
                side.held[name],
                Code(side.label),
                f"{side.control_ms:.4g}",
                f"{side.best_ms:.4g}",
                ratio(side.gain) if side.gain else "",
            )
            for _, side in rows
        ),
        align="><>>",
    )
    title = f"Milliseconds {sides[0].per} by {name}{where}, default and tuned"
    caption = "Absolute times of runs on different occasions: the machine may have drifted between them."
    caption += f" The scale of {name} is logarithmic." if logarithmic else ""
    return [figure(title, caption, draw), table]


def _range(sides: Sequence[Side]) -> tuple[float, float]:
    """Of all charts' times, so that they can be held against each other."""
    low, high = spread_out([ms for side in sides for ms in (side.control_ms, side.best_ms) if ms])
    return max(0.0, low), high


def _varied(sides: Sequence[Side], usable: Sequence[Side]) -> list[str]:
    """The one or two held knobs whose values differ, that of the axis first: numbers before names, then whichever
    takes more values. None where they tell two sides apart by something else."""
    names = {name for side in sides for name in side.held}
    values = {name: {side.held.get(name, "") for side in sides} for name in names}
    varied = sorted(
        (n for n in names if len(values[n]) > 1), key=lambda n: (not _numbers(values[n]), -len(values[n]), n)
    )
    told = {tuple(side.held.get(name, "") for name in varied) for side in sides}
    if (
        not 0 < len(varied) <= 2
        or len(usable) < 2
        or len(told) < len(sides)
        or (len(varied) == 2 and len(told) < 3)  # two sides that differ in two things: neither explains the times
        or any("" in values[name] for name in varied)
        or any((side.identity, side.per) != (sides[0].identity, sides[0].per) for side in sides)
    ):
        return []
    return varied


def _places(values: Sequence[str]) -> tuple[Mapping[str, float], bool]:
    """Where each value stands on the axis: as a number, or by its logarithm (True); names stand in order."""
    ordered = _in_order(values)
    if not _numbers(values):
        return {value: float(i) for i, value in enumerate(ordered)}, False
    low, high = float(ordered[0]), float(ordered[-1])
    logarithmic = low > 0 and high >= _WIDE * low
    return {v: math.log(float(v)) if logarithmic else float(v) for v in ordered}, logarithmic


def _in_order(values: Iterable[str]) -> list[str]:
    values = list(values)
    return sorted(values, key=float) if _numbers(values) else sorted(values)


def _numbers(values: Iterable[str]) -> bool:
    return all(map(_is_number, values))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
