"""The search as a plot: each trial's speed-up, the best so far, and what failed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from tuner.knobs.config import DEFAULT
from tuner.report.blocks import Figure
from tuner.report.plot import Plot, figure
from tuner.report.svg import CHAR, Canvas, ratio_ticks, round_ticks
from tuner.report.thinning import thinned
from tuner.report.wording import count, settings, speedup
from tuner.store.events import TrialFinished

__all__ = ["search_history"]

_SHOWN = 300  # marks in one plot
_FAILED_SHOWN = 150
_TIP = 90  # characters of a config under the pointer
_HEIGHT = 250.0
_LOWEST = 0.2  # losses beyond this, and beyond twice the best gain, are drawn at the edge


def search_history(
    trials: Sequence[TrialFinished], *, against: Literal["trial", "time"], began: float = 0.0
) -> Figure | None:
    """Speed-up of every trial against its place in the run or against the minutes since `began`, None without any.

    Trials are in the order finished. Many are thinned, the steps of the best so far never.
    """
    if not trials:
        return None
    by_time = against == "time"
    at = {t.number: (t.time - began) / 60 if by_time else float(i) for i, t in enumerate(trials)}
    timed = [t for t in trials if t.value is not None and math.isfinite(t.value)]
    failed = [t for t in trials if t.failure is not None]
    shown = thinned(timed, _SHOWN, value=_gain)
    crosses = thinned(failed, _FAILED_SHOWN, value=lambda t: at[t.number])
    steps = _best_so_far(timed)
    high = max([_gain(t) for t in timed] + [0.0])
    lowest = min([_gain(t) for t in timed] + [0.0])
    low = max(lowest, -max(_LOWEST, 2 * high))
    air = 0.08 * (high - low) or 0.01
    last = max(at.values())
    first = min(0.0, *at.values())
    shortest = first + (0.1 if by_time else 1.0)
    slow = sum(_gain(t) < low for t in timed)

    def draw(width: float) -> Canvas:
        # Above the fastest there is room for the stages' names.
        plot = Plot(width, _HEIGHT, x=(first, max(last, shortest)), y=(low - 2.5 * air, high + 2 * air))
        about = max(3, int(width / 110))
        plot.y_axis(ratio_ticks(low - air, high + air, about=4), "speed-up" if plot.narrow else "speed-up over default")
        if not plot.narrow:
            _stages(plot, trials, at)
        unit = "minutes since the start" if by_time else "trial, in the order finished"
        ticks = round_ticks(first, max(last, shortest), about=about)
        plot.x_axis([(t, f"{t:g}") for t in ticks if by_time or t.is_integer()], unit)
        plot.canvas.line(plot.x.start, plot.y(0.0), plot.x.end, plot.y(0.0), "zero")
        for trial in shown:
            look = "shared" if trial.shared_with >= 0 else "control" if trial.config == DEFAULT else "best"
            shape = "down" if _gain(trial) < low else "ring" if trial.shared_with >= 0 else "dot"
            plot.canvas.mark(plot.x(at[trial.number]), plot.y(max(_gain(trial), low)), shape, look, _tip(trial))
        for trial in crosses:
            plot.canvas.mark(plot.x(at[trial.number]), plot.y.start - 6, "cross", "bad", _tip(trial))
        plot.canvas.path(_stairs(plot, steps, at, last), "stairs")
        plot.legend([("dot", "best", "timed"), ("ring", "shared", "shared"), ("cross", "bad", "failed")])
        return plot.canvas

    thin = "" if len(shown) == len(timed) else f" {len(shown)} of {len(timed)} timed trials are drawn, extremes kept."
    thin += "" if len(crosses) == len(failed) else f" {len(crosses)} of {len(failed)} failures are drawn."
    edge = f" {count(slow, 'trial')} slower than shown, at the lower edge (▼)." if slow else ""
    biased = "The line is the best so far: a best of many, so biased upwards; the verdict rests on fresh processes."
    place = "over time" if by_time else "trial by trial"
    return figure(
        f"Search history, {place}: speed-up of each trial, and the best so far", f"{biased}{edge}{thin}", draw
    )


def _gain(trial: TrialFinished) -> float:
    return -trial.value if trial.value is not None else 0.0


def _best_so_far(timed: Sequence[TrialFinished]) -> list[TrialFinished]:
    """The trials that were the best when they finished."""
    best, steps = -math.inf, []
    for trial in timed:
        if _gain(trial) > best:
            best = _gain(trial)
            steps.append(trial)
    return steps


def _stairs(plot: Plot, steps: Sequence[TrialFinished], at: dict[int, float], last: float) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for trial in steps:
        x, y = plot.x(at[trial.number]), plot.y(_gain(trial))
        if points:
            points.append((x, points[-1][1]))
        points.append((x, y))
    return [*points, (plot.x(last), points[-1][1])] if points else []


def _stages(plot: Plot, trials: Sequence[TrialFinished], at: dict[int, float]) -> None:
    """A line where a stage begins, and its name where there is room."""
    written = -1e9
    previous = ""
    for trial in trials:
        if trial.stage != previous:
            previous = trial.stage
            x = plot.x(at[trial.number])
            plot.canvas.line(x, plot.y.end, x, plot.y.start, "stage")
            if x > written and x + len(previous) * CHAR < plot.x.end:
                plot.canvas.text(x + 3, plot.y.end + 10, previous, "faint halo")
                written = x + len(previous) * CHAR + 8


def _tip(trial: TrialFinished) -> str:
    told = trial.failure.kind.value if trial.failure else f"{speedup(_gain(trial)):.3f}x"
    text = settings(trial.config)
    return f"trial {trial.number}: {told}, {text[:_TIP]}{'…' if len(text) > _TIP else ''}"
