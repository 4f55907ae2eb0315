"""Noise told apart by level, within a pair of processes and between pairs, and how many turns a pair is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from tuner.measure.confirmation import LOOKS
from tuner.measure.estimates import AUTOCORRELATION, SPREAD_FLOOR, widening
from tuner.measure.noise import MEDIAN_COST, resolution, spread
from tuner.measure.types import Levels

__all__ = [
    "ASSUMED_PROCESS_SD",
    "USUAL_TURNS",
    "Pair",
    "PairCost",
    "PairPlan",
    "noise_levels",
    "pair_levels",
    "pair_of",
    "plan_pairs",
    "process_sd_with",
    "turns_within",
    "turns_worth",
]

ASSUMED_PROCESS_SD = 0.0025
"""By how much two processes of one program are taken to differ until it was measured: the median of 21 confirmations on
H100s and H200s, of nothing to 1.4 % each."""

USUAL_TURNS = 10
"""Turns of a pair where nothing speaks for more or fewer."""

# Turns in a pair: a median of fewer than the one stands hardly any stall, and more than the other cost more than the
# start of a process does.
_FEWEST_TURNS, _MOST_TURNS = 5, 40
# A pair whose rounds leave this share of δ is precise enough: six of them leave a twentieth of δ.
_ENOUGH = 1 / 8
# What is assumed about processes counts as much as so many degrees of freedom of what was measured.
_PRIOR_DEGREES = 2
# Variance of the median of n turns, as a multiple of one turn's variance over n.
_MEDIAN_OF_TURNS = MEDIAN_COST * widening(AUTOCORRELATION) ** 2


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One pair of processes: its log ratio, the spread of one turn's log ratio in it, and the turns behind it."""

    log_ratio: float
    spread: float
    turns: int


class PairCost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one pair before its first turn that counts, and of each turn."""

    setup_s: float
    turn_s: float

    def seconds(self, turns: float) -> float:
        """What a pair of so many turns takes."""
        return self.setup_s + turns * self.turn_s

    def turns_in(self, seconds: float) -> int:
        """How many turns a pair of at most `seconds` has room for; never negative."""
        return max(0, math.floor((seconds - self.setup_s) / max(self.turn_s, 1e-9) + 1e-6))


class PairPlan(msgspec.Struct, frozen=True, kw_only=True):
    """When a confirmation is looked at, how many turns its pairs have, and the smallest gain that this resolves."""

    looks: tuple[int, ...]
    turns: int
    resolution: float


def pair_of(a: Sequence[float], b: Sequence[float], *, together: bool) -> Pair:
    """The pair of these seconds a step, one a turn: log ratio of `a` to `b`.

    *Estimators*: where both lived together, the median of the ratios turn by turn, so that drift cancels; else the
    ratio of the medians. The spread is the median absolute deviation × 1.4826, at least 1e-5, of the ratios or, apart,
    of both sides' log times added in quadrature. Raises ValueError without turns, or for unequal numbers of them.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if len(x) != len(y) or not len(x):
        raise ValueError(f"{len(x)} and {len(y)} turns don't make a pair")
    if together:
        ratio, sd = math.log(float(np.median(x / y))), spread(x / y)
    else:
        ratio, sd = math.log(float(np.median(x)) / float(np.median(y))), math.hypot(spread(x), spread(y))
    return Pair(log_ratio=ratio, spread=max(SPREAD_FLOOR, sd), turns=len(x))


def noise_levels(rows: Sequence[Sequence[Pair]]) -> Levels | None:
    """The two levels from the pairs of each finalist (one row each); None with fewer than two pairs of any.

    *Estimator*: analysis of variance by moments. Rounds: mean of the pairs' own variances. Between: variance about each
    row's mean, pooled. Process: what is left of that once the variance of a median of so many turns (the mean's × π/2,
    × (1+rho)/(1−rho)) is taken off; never below 0. None of it depends on where the ratios lie: adding a constant to a
    row changes nothing. Its relative error is large, about 1/√(2(n − 1)) for the spread between n pairs.
    """
    kept = [row for row in rows if len(row) > 1]
    if not kept:
        return None
    squares = sum(float(np.var([p.log_ratio for p in row])) * len(row) for row in kept)
    between = squares / sum(len(row) - 1 for row in kept)
    every = [p for row in kept for p in row]
    explained = float(np.mean([_MEDIAN_OF_TURNS * p.spread**2 / p.turns for p in every]))
    return Levels(
        round=math.sqrt(float(np.mean([p.spread**2 for p in every]))),
        process=math.sqrt(max(0.0, between - explained)),
        pair=math.sqrt(between),
        pairs=min(len(row) for row in kept),
    )


def pair_levels(pair_sd: float, round_sd: float, *, pairs: int) -> Levels:
    """The levels where only the spread between pairs is known, of `pairs` pairs of the usual number of turns, and that
    of a round."""
    explained = _MEDIAN_OF_TURNS * round_sd**2 / USUAL_TURNS
    process = math.sqrt(max(0.0, pair_sd**2 - explained))
    return Levels(round=round_sd, process=process, pair=pair_sd, pairs=pairs)


def process_sd_with(found: Levels, assumed: float) -> float:
    """The process spread to plan with: what few pairs showed, drawn towards what was assumed as two pairs more would
    draw it."""
    degrees = found.pairs - 1
    variance = (_PRIOR_DEGREES * assumed**2 + degrees * found.process**2) / (_PRIOR_DEGREES + degrees)
    return math.sqrt(variance)


def turns_worth(round_sd: float, process_sd: float, *, cost: PairCost, margin: float) -> int:
    """How many turns make the best use of time.

    The variance of a mean over pairs, per second spent, is least at round_sd/process_sd · √(c·setup_s/turn_s) turns
    (optimum allocation in two-stage sampling, Cochran 1977, section 10.6), c the variance of a median over that of a
    mean. Not more than leave a pair an eighth of the margin, and between 5 and 40. Depends on spreads and costs alone.
    """
    optimum = (
        round_sd / process_sd * math.sqrt(_MEDIAN_OF_TURNS * cost.setup_s / max(cost.turn_s, 1e-9))
        if process_sd > 0
        else math.inf
    )
    enough = _MEDIAN_OF_TURNS * (round_sd / (_ENOUGH * margin)) ** 2 if margin > 0 else math.inf
    return math.ceil(min(max(min(optimum, enough), _FEWEST_TURNS), _MOST_TURNS))


def turns_within(turns: int, room: int) -> int:
    """`turns`, or what there is room for, but never fewer than the fewest."""
    return max(_FEWEST_TURNS, min(turns, room))


def plan_pairs(
    round_sd: float,
    process_sd: float,
    *,
    cost: PairCost,
    seconds: float,
    margin: float,
    finalists: int = 1,
) -> PairPlan:
    """The looks and turns that resolve the smallest gain within `seconds`, settled before the first pair.

    At least six pairs of ten turns are planned however short the time is. Several looks at more pairs are weighed
    against longer pairs, by `resolution`.
    """
    room = max(seconds, LOOKS[0] * cost.seconds(USUAL_TURNS))
    worth = turns_worth(round_sd, process_sd, cost=cost, margin=margin)
    plans = []
    for index, pairs in enumerate(LOOKS):
        possible = cost.turns_in(room / pairs)
        if possible >= _FEWEST_TURNS:
            looks, turns = LOOKS[: index + 1], turns_within(worth, possible)
            smallest = resolution(round_sd, process_sd, rounds=turns, pairs=pairs, looks=looks, finalists=finalists)
            plans.append(PairPlan(looks=looks, turns=turns, resolution=smallest))
    return min(plans, key=lambda plan: plan.resolution)
