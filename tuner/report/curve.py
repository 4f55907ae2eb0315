"""Step time against a knob that runs differ in: batch size, width, whatever the workload takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.report.blocks import Block, Table
from tuner.report.plot import Plot, figure, spread_out
from tuner.report.sides import Side
from tuner.report.svg import Canvas, round_ticks
from tuner.report.wording import ratio

__all__ = ["varied_knob"]

_WIDE = 10.0  # values that lie so far apart are set out by their ratios, as batch sizes are chosen


def varied_knob(sides: Sequence[Side]) -> list[Block]:
    """Chart and table of step times by the one knob, a number, in which all `sides` differ; empty if there is none.

    The sides must agree in everything else that the user held, in the objective and in the environment.
    """
    name = _varied(sides)
    if not name:
        return []
    rows = sorted((float(side.held[name]), side) for side in sides if side.control_ms and side.best_ms)
    default = [(x, side.control_ms) for x, side in rows if side.control_ms]
    tuned = [(x, side.best_ms) for x, side in rows if side.best_ms]
    low, high = spread_out([ms for _, ms in default + tuned])
    logarithmic = rows[0][0] > 0 and rows[-1][0] >= _WIDE * rows[0][0]

    def place(value: float) -> float:
        return math.log(value) if logarithmic else value

    left, right = spread_out([place(x) for x, _ in rows], share=0.03)

    def draw(width: float) -> Canvas:
        plot = Plot(width, 230, x=(left, right), y=(max(0.0, low), high))
        plot.y_axis([(t, f"{t:g}") for t in round_ticks(max(0.0, low), high, about=5)], f"ms {sides[0].per}")
        plot.x_axis([(place(x), f"{x:g}") for x, _ in rows], name)
        plot.legend([("ring", "control", "default"), ("dot", "best", "tuned")])
        for points, shape, look, path in ((default, "ring", "control", "s1"), (tuned, "dot", "best", "s0")):
            plot.canvas.path([(plot.x(place(x)), plot.y(ms)) for x, ms in points], path)
            for x, ms in points:
                plot.canvas.mark(plot.x(place(x)), plot.y(ms), shape, look, f"{name} {x:g}: {ms:.4g} ms")
        return plot.canvas

    table = Table(
        caption=f"By {name}",
        head=(name, "default, ms", "tuned, ms", "speed-up over own default"),
        rows=tuple(
            (side.held[name], f"{side.control_ms:.4g}", f"{side.best_ms:.4g}", ratio(side.gain) if side.gain else "")
            for _, side in rows
        ),
        align=">>>",
    )
    title = f"Milliseconds {sides[0].per} by {name}, default and tuned"
    caption = "Absolute times of runs on different occasions: the machine may have drifted between them."
    caption += f" The scale of {name} is logarithmic." if logarithmic else ""
    return [figure(title, caption, draw), table]


def _varied(sides: Sequence[Side]) -> str:
    """The only held knob whose values differ, if they are all different numbers; "" otherwise."""
    names = {name for side in sides for name in side.held}
    varied = [name for name in names if len({side.held.get(name) for side in sides}) > 1]
    usable = [side for side in sides if side.control_ms and side.best_ms]
    if (
        len(varied) != 1
        or len(usable) < 2
        or any((side.identity, side.per) != (sides[0].identity, sides[0].per) for side in sides)
    ):
        return ""
    values = [side.held.get(varied[0], "") for side in sides]
    return varied[0] if len(set(values)) == len(values) and all(map(_is_number, values)) else ""


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
