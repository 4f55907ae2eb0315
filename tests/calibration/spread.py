"""What is compared between a recording and a noise model: spreads, tails, memory and drift, as one row of numbers."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from recorded import Pair, Recording

from tuner.measure import USUAL_TURNS
from tuner.pipeline.alternate import WARM_UP
from tuner.session.noise import NoiseModel, OwnNoise, SharedNoise, process_effect

__all__ = ["NAMES", "SCALED", "pair_log_ratios", "simulated", "statistics"]

NAMES = {
    "ratio_spread": "half-spread of two blocks' log ratio within a turn, middle half, as a normal's sd",
    "ratio_wide": "the same of the middle 95 %",
    "ratio_tail": "width of the middle 99 % over that of the middle half (3.8 for a normal)",
    "unrest": "spread from pair to pair of the log of ratio_spread",
    "ratio_lag1": "correlation of a turn's ratio with the next turn's, by ranks",
    "level_spread": "spread of a turn's mean log time within a pair, middle half",
    "level_wide": "the same of the middle 95 %",
    "level_lag1": "correlation of a turn's mean with the next turn's, by ranks",
    "level_lag5": "the same, five turns apart",
    "skew": "how much farther slow blocks lie from the median than fast ones, 95 %",
    "turns_spread": f"spread of the median ratio of {USUAL_TURNS} turns within a pair",
    "pair_spread": "spread of pair log ratios: medians over all turns of two processes",
    "level_between": "spread of the level from pair to pair",
    "level_minute": "rms change of the level over a minute",
}
"""Statistic → what it is. All are of log times; differences between programs are taken out first."""

SCALED = frozenset(n for n in NAMES if n.endswith(("spread", "wide", "tail", "between", "minute")))
"""The statistics that are above 0, spreads and a ratio of such: compared by their logarithm."""

_IQR = 1.349  # of a normal, in standard deviations
_MINUTE_S = (40.0, 80.0)
_SMALLEST = 1e-6

Rows = NDArray[np.float64]


def statistics(recording: Recording) -> dict[str, float]:
    """The statistics of `recording`, NaN where it is too short for one."""
    rows = [_rows(pair) for pair in recording.pairs]
    ratios = list(_ratios(recording.pairs, rows).values())
    within = np.concatenate([_centred(r) for group in ratios for r in group])
    by_pair = [
        np.concatenate([_centred(r) for group in _ratios([pair], [row]).values() for r in group])
        for pair, row in zip(recording.pairs, rows, strict=True)
    ]
    levels = [np.mean(r, axis=0) for r in rows]
    moves = np.concatenate([_centred(level) for level in levels])
    blocks = np.concatenate([(r - np.median(r, axis=1, keepdims=True)).ravel() for r in rows])
    chunks = [
        np.median(r[i : i + USUAL_TURNS]) - np.median(r)
        for group in ratios
        for r in group
        for i in range(0, len(r) - USUAL_TURNS + 1, USUAL_TURNS)
        if len(r) >= 2 * USUAL_TURNS
    ]
    heights = _heights(recording.pairs, rows)
    times = [pair.turns[0][0] for pair in recording.pairs]
    minute = [
        (heights[j] - heights[i]) ** 2
        for i, j in itertools.combinations(range(len(heights)), 2)
        if _MINUTE_S[0] <= times[j] - times[i] <= _MINUTE_S[1]
    ]
    ratios_of_pairs = pair_log_ratios(recording)
    low, high = np.quantile(blocks, (0.025, 0.975))
    narrow = max(_width(within, 0.5), _SMALLEST)
    return {
        "ratio_spread": narrow / _IQR,
        "ratio_wide": _width(within, 0.95) / 3.92,
        "ratio_tail": _width(within, 0.99) / narrow,
        "unrest": float(np.std([math.log(max(_width(r, 0.5), _SMALLEST)) for r in by_pair])),
        "ratio_lag1": _correlation([r for group in ratios for r in group], 1),
        "level_spread": _width(moves, 0.5) / _IQR,
        "level_wide": _width(moves, 0.95) / 3.92,
        "level_lag1": _correlation(levels, 1),
        "level_lag5": _correlation(levels, 5),
        "skew": float((high + low) / max(high - low, _SMALLEST)),
        "turns_spread": float(np.std(chunks)) if chunks else math.nan,
        "pair_spread": float(np.std(ratios_of_pairs)) if len(ratios_of_pairs) else math.nan,
        "level_between": float(np.std(heights)),
        "level_minute": math.sqrt(float(np.mean(minute))) if minute else math.nan,
    }


def pair_log_ratios(recording: Recording) -> Rows:
    """Log ratio of every two processes that lived together: median over turns, programs' own difference taken out."""
    rows = [_rows(pair) for pair in recording.pairs]
    groups = _ratios(recording.pairs, rows)
    return np.concatenate([_same(programs, [float(np.median(r)) for r in group]) for programs, group in groups.items()])


def simulated(recording: Recording, model: NoiseModel, rng: random.Random) -> Recording:
    """A recording as `model` would have made it: the same processes, turns and moments, other noise."""
    shared = SharedNoise(rng, model)
    step_s = recording.step_s
    pairs = []
    for pair in recording.pairs:
        # A process compiles its program once: what is of the process and what of its compile can't be told apart.
        speeds = [process_effect(rng, model) + model.compile_sd * rng.gauss(0.0, 1.0) for _ in pair.processes]
        own = [OwnNoise(rng, model) for _ in pair.processes]
        turns = []
        for start, process, _, first in pair.turns:
            took = first + recording.steps * step_s
            common = shared.over(start, took)
            log_time = speeds[process] + shared.unrest() * own[process].next(took) + common
            turns.append((start, process, step_s * math.exp(log_time), first))
        pairs.append(msgspec.structs.replace(pair, turns=tuple(turns)))
    return msgspec.structs.replace(recording, pairs=tuple(pairs))


def _rows(pair: Pair) -> Rows:
    """Log times, processes × turns, without the first turns, which a confirmation discards too."""
    return np.log([pair.row(process)[WARM_UP:] for process in range(len(pair.processes))])


def _ratios(pairs: Sequence[Pair], rows: Sequence[Rows]) -> dict[tuple[str, str], list[Rows]]:
    """Rows of turn ratios of every two processes that lived together, by their programs."""
    found: dict[tuple[str, str], list[Rows]] = defaultdict(list)
    for pair, log_times in zip(pairs, rows, strict=True):
        order = sorted(range(len(pair.processes)), key=lambda p: pair.processes[p].program)
        for a, b in itertools.combinations(order, 2):
            found[pair.processes[a].program, pair.processes[b].program].append(log_times[a] - log_times[b])
    return found


def _same(programs: tuple[str, str], values: Sequence[float]) -> Rows:
    """Equal programs differ by nothing in truth. Of different ones the mean difference is theirs; what is left without
    it is smaller than what was there by √(1 − 1/n), and scaled back. A single value tells nothing then."""
    x = np.asarray(values)
    if programs[0] == programs[1]:
        return x
    return math.sqrt(len(x) / (len(x) - 1)) * (x - x.mean()) if len(x) > 1 else x[:0]


def _heights(pairs: Sequence[Pair], rows: Sequence[Rows]) -> list[float]:
    """Level of each pair: mean over its processes of the median, less each program's own level."""
    medians = [np.median(r, axis=1) for r in rows]
    own: dict[str, list[float]] = defaultdict(list)
    for pair, values in zip(pairs, medians, strict=True):
        for process, value in zip(pair.processes, values, strict=True):
            own[process.program].append(float(value))
    return [
        float(np.mean([v - np.mean(own[p.program]) for p, v in zip(pair.processes, values, strict=True)]))
        for pair, values in zip(pairs, medians, strict=True)
    ]


def _centred(row: Rows) -> Rows:
    return row - np.median(row)


def _width(values: Rows, share: float) -> float:
    low, high = np.quantile(values, ((1 - share) / 2, (1 + share) / 2))
    return float(high - low)


def _correlation(rows: Sequence[Rows], lag: int) -> float:
    """Mean rank correlation of a row's values with those `lag` later, corrected for the bias of short rows."""
    found = []
    for row in rows:
        if len(row) >= 3 * lag + 3:
            ranks = np.argsort(np.argsort(row)) - (len(row) - 1) / 2
            found.append(float(ranks[lag:] @ ranks[:-lag] / (ranks @ ranks)) + 1 / len(row))
    return float(np.mean(found)) if found else math.nan
