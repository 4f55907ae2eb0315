"""The page of a comparison with the loop that people write by hand: what was found when, how many were timed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.report.blocks import Block, Paper, Section, Table
from tuner.report.html import render_html
from tuner.report.plot import Plot, figure, spread_out
from tuner.report.svg import Canvas, ratio_ticks, round_ticks

__all__ = ["Line", "page"]

Line = tuple[str, Sequence[tuple[float, float]]]
"""An arm ("ours" or "hand") and its steps: (seconds, value from then on)."""

_LOOKS = {"ours": ("s0", "best", "dot"), "hand": ("s1", "control", "ring")}
_TEXTS = {"ours": "tune", "hand": "the loop by hand"}


def page(title: str, found: Mapping[str, Any], *, best: Sequence[Line], timed: Sequence[Line]) -> str:
    """HTML of one comparison. `found`: what `report` computed. `best`: each arm's best so far as log gain over the
    default, by what fresh processes found afterwards; `timed`: its number of distinct programs so far."""
    slower = [row["hand_ahead"] for row in found["hand_over_ours"] if row["hand_ahead"]]
    ahead = sum(low > 0 for _, low, _ in slower)
    told = next(row for row in found["pace"] if row["half_width"] == found["half_width"])
    summary = (
        f"{told['ratio']:.1f} times as many programs an hour, timed to {_width(told)}; "
        f"the loop's winner was ahead in {ahead} of {len(slower)} comparisons"
    )
    last = max(row["seconds"] for row in found["arms"])
    blocks: list[Block] = [
        _stairs("Speed-up over the default of the best so far", "speed-up", best, last=last, ratios=True),
        _stairs(f"Distinct programs timed to {_width(told)} so far", "programs", timed, last=last, ratios=False),
        _pace(found["pace"]),
        *_arms(found["arms"]),
    ]
    section = Section(name="pace", title="Pace", blocks=tuple(blocks))
    return render_html(Paper.of(title, summary, tone="plain", facts=[], sections=[section]))


def _stairs(what: str, unit: str, lines: Sequence[Line], *, last: float, ratios: bool) -> Block:
    values = [value for _, steps in lines for _, value in steps] or [0.0]
    low, high = spread_out([0.0, *values])
    low = low if ratios else 0.0

    def draw(width: float) -> Canvas:
        plot = Plot(width, 260, x=(0.0, last), y=(low, high))
        ticks = ratio_ticks(low, high, about=5) if ratios else [(t, f"{t:g}") for t in round_ticks(low, high, about=5)]
        plot.y_axis(ticks, unit)
        plot.x_axis([(t, f"{t:g}") for t in round_ticks(0.0, last, about=6)], "seconds")
        plot.legend([(shape, look, _TEXTS[arm]) for arm, (_, look, shape) in _LOOKS.items()])
        for arm, steps in lines:
            path, look, shape = _LOOKS[arm]
            points: list[tuple[float, float]] = []
            for at, value in steps:
                x, y = plot.x(at), plot.y(value)
                points += [(x, points[-1][1]), (x, y)] if points else [(x, y)]
                told = f"{math.exp(value):.3f}x" if ratios else f"{value:g}"
                plot.canvas.mark(x, y, shape, look, f"{_TEXTS[arm]}: {told} after {at:.0f} s")
            if points:
                plot.canvas.path([*points, (plot.x(last), points[-1][1])], path)
        return plot.canvas

    return figure(f"{what}, by time", "One line a seed.", draw)


def _width(row: Mapping[str, Any]) -> str:
    return f"±{100 * row['half_width']:.2g} %"


def _pace(rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        caption="Distinct programs an hour, by the half width of their gains' intervals (medians over seeds)",
        head=("timed to", _TEXTS["ours"], _TEXTS["hand"], "by hand, with repeats", "ratio to that"),
        rows=tuple(
            (_width(r), f"{r['ours']:.0f}", f"{r['hand']:.0f}", f"{r['hand_repeating']:.3g}", f"{r['ratio']:.1f}")
            for r in rows
        ),
        align=">>>>>",
    )


def _arms(arms: Sequence[Mapping[str, Any]]) -> list[Table]:
    def speedup(row: Mapping[str, Any]) -> str:
        if not row["winner"]:
            return "the default"
        if not row["winner_speedup"]:
            return "failed"
        mean, low, high = row["winner_speedup"]
        return f"{mean:.3f}x ({low:.3f}–{high:.3f})" if math.isfinite(low) and math.isfinite(high) else f"{mean:.3f}x"

    def seconds(value: float | None) -> str:
        return "never" if value is None else f"{value:.0f} s"

    arm = [(_TEXTS[row["arm"]], str(row["seed"])) for row in arms]
    counts = ("trials", "failed", "shared", "distinct_timed")
    trials = Table(
        caption="Trials",
        head=("arm", "seed", "took", "trials", "failed", "known program", "timed", "an hour"),
        rows=tuple(
            (*who, seconds(row["seconds"]), *(str(row[c]) for c in counts), f"{row['distinct_per_hour']:.0f}")
            for who, row in zip(arm, arms, strict=True)
        ),
        align="<>>>>>>>",
    )
    winners = Table(
        caption="Winners",
        head=("arm", "seed", "to within 1 % of the best", "winner, in fresh processes"),
        rows=tuple(
            (*who, seconds(row["seconds_to_1_percent"]), speedup(row)) for who, row in zip(arm, arms, strict=True)
        ),
        align="<>><",
    )
    return [trials, winners]
