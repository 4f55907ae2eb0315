"""Step times as plots: pair by pair of the confirmation, and the control's level over the whole run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tuner.report.blocks import Figure
from tuner.report.plot import Plot, figure, spread_out
from tuner.report.samples import Level, PairSamples
from tuner.report.svg import Canvas, percent_ticks, round_ticks
from tuner.report.thinning import thinned
from tuner.report.wording import count, milliseconds, sentence

__all__ = ["control_over_time", "reading_over_time", "step_times"]

_SHOWN = 360  # marks in one plot
_LINE = 240  # points of a line


def step_times(pairs: Sequence[PairSamples], *, unit: str, who: str) -> Figure | None:
    """Blocks of the default and of a finalist in each pair of processes, with what the pair says of each; None without
    pairs. `unit`: what the milliseconds are for ("a step"); `who`: what the finalist is called."""
    if not pairs:
        return None
    per_pair = max(3, _SHOWN // (2 * len(pairs)))
    every = [ms for pair in pairs for ms in (*pair.control_ms, *pair.finalist_ms)]
    every += [ms for pair in pairs for ms in (pair.control_level, pair.finalist_level)]
    low, high = spread_out(every)
    low = max(0.0, low)

    def draw(width: float) -> Canvas:
        plot = Plot(width, 240, x=(-0.5, len(pairs) - 0.5), y=(low, high))
        plot.y_axis([(t, f"{t:g}") for t in round_ticks(low, high, about=5)], "ms" if plot.narrow else f"ms {unit}")
        plot.x_axis([(i, str(pair.index + 1)) for i, pair in enumerate(pairs)], "pair of fresh processes")
        plot.legend([("ring", "control", "default"), ("dot", "best", who)])
        for i, pair in enumerate(pairs):
            if pair.disturbed:
                plot.canvas.rect(plot.x(i - 0.46), plot.y.end, plot.x(i + 0.46) - plot.x(i - 0.46), 182, "disturbed")
            for centre, times, level, shape, look in (
                (i - 0.2, pair.control_ms, pair.control_level, "ring", "control"),
                (i + 0.2, pair.finalist_ms, pair.finalist_level, "dot", "best"),
            ):
                some = thinned(times, per_pair, value=float)
                for n, ms in enumerate(some):
                    offset = 0.24 * (n + 0.5) / len(some) - 0.12  # from left to right as time goes on
                    plot.canvas.mark(plot.x(centre + offset), plot.y(ms), shape, f"{look} small", milliseconds(ms))
                y = plot.y(level)
                plot.canvas.line(plot.x(centre - 0.16), y, plot.x(centre + 0.16), y, f"level {look}")
        return plot.canvas

    marked = sum(bool(pair.disturbed) for pair in pairs)
    shaded = f" Shaded: {count(marked, 'disturbed pair')}." if marked else ""
    thin = " Many blocks are thinned, extremes kept." if any(len(p.control_ms) > per_pair for p in pairs) else ""
    return figure(
        f"Milliseconds {unit} of default and {who} in each pair of fresh processes",
        "Dots: blocks of steps in the order timed, left to right, the first ones of a process included. Bars: the "
        f"median that counts. Compare within a pair: both ran side by side.{shaded}{thin}",
        draw,
    )


def control_over_time(levels: Sequence[Level], *, began: float) -> Figure | None:
    """How far the control's time lies from its median in the home session, over the run; None without rounds."""
    home = [level.ms for level in levels if level.home]
    if not home:
        return None
    centre = median(home)
    calm = [level for level in levels if not level.disturbed]
    marked = [level for level in levels if level.disturbed]
    shown = thinned(calm, _SHOWN, value=lambda level: level.ms)
    diamonds = thinned(marked, _SHOWN // 2, value=lambda level: level.ms)
    low, high = spread_out([level.ms / centre - 1 for level in levels] + [0.005, -0.005])
    end = max((level.time - began) / 60 for level in levels)

    def draw(width: float) -> Canvas:
        plot = Plot(width, 200, x=(0.0, max(end, 0.1)), y=(low, high))
        plot.y_axis(percent_ticks(low, high, about=5), "vs. median" if plot.narrow else "change from its median")
        ticks = round_ticks(0.0, max(end, 0.1), about=max(3, int(width / 110)))
        plot.x_axis([(t, f"{t:g}") for t in ticks], "minutes since the start")
        plot.canvas.line(plot.x.start, plot.y(0.0), plot.x.end, plot.y(0.0), "zero")
        for level in (*shown, *diamonds):
            shape = "diamond" if level.disturbed else "dot" if level.home else "ring"
            look = "warn" if level.disturbed else "control small"
            tip = (
                f"{milliseconds(level.ms)}, session {level.session}{f': {level.disturbed}' if level.disturbed else ''}"
            )
            plot.canvas.mark(plot.x((level.time - began) / 60), plot.y(level.ms / centre - 1), shape, look, tip)
        plot.legend([("dot", "control", "home"), ("ring", "control", "fresh"), ("diamond", "warn", "disturbed")])
        return plot.canvas

    few = "" if len(shown) == len(calm) else f" {len(shown)} of {len(calm)} blocks are drawn, extremes kept."
    few += "" if len(diamonds) == len(marked) else f" {len(diamonds)} of {len(marked)} disturbed blocks are drawn."
    return figure(
        "The default's own time over the run: change from its median in the home session",
        "Drift and steps here are the machine's, not the settings': ratios are taken within one round, where they "
        f"cancel. Median {milliseconds(centre)}. {count(len(marked), 'block')} in disturbed rounds.{few}",
        draw,
    )


def reading_over_time(points: Sequence[tuple[float, float]], *, began: float, name: str, unit: str) -> Figure | None:
    """One reading of the machine as a line; None with fewer than two points."""
    if len(points) < 2:
        return None
    kept = thinned(points, _LINE, value=lambda point: point[1])
    low, high = spread_out([value for _, value in points])
    if min(value for _, value in points) >= 0:
        low = max(low, 0.0)
    end = max((time - began) / 60 for time, _ in points)

    def draw(width: float) -> Canvas:
        plot = Plot(width, 140, x=(0.0, max(end, 0.1)), y=(low, high))
        plot.y_axis([(t, f"{t:g}") for t in round_ticks(low, high, about=3)], f"{name}, {unit}")
        ticks = round_ticks(0.0, max(end, 0.1), about=max(3, int(width / 110)))
        plot.x_axis([(t, f"{t:g}") for t in ticks], "minutes since the start")
        plot.canvas.path([(plot.x((time - began) / 60), plot.y(value)) for time, value in kept], "reading")
        return plot.canvas

    values = [value for _, value in points]
    thin = "" if len(kept) == len(points) else f" {len(kept)} of {len(points)} readings are drawn, extremes kept."
    return figure(
        f"{sentence(name)} over the run, in {unit}",
        f"{_span(values)} {unit}, read beside {count(len(points), 'round')}.{thin}",
        draw,
    )


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return f"From {low} to {high}" if low != high else f"Always {low}"
