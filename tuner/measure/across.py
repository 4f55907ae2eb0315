"""Run against run: what can be said of gains, and of times, that were not measured side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from tuner.measure.confirmation import PAIR_SPREAD_FLOOR
from tuner.measure.types import Estimate

__all__ = ["geometric_mean", "relative", "time_gain"]


def relative(base: Estimate, other: Estimate) -> Estimate:
    """How much more `other` gains over its own control than `base` over its own (log scale; positive: more).

    *Estimator*: the difference of the two gains. *Interval*: the two intervals' errors add in quadrature, each end by
    itself (MOVER, Zou & Donner 2008), so whatever they were corrected for (looks, finalists) stays in, and neither
    numbers of samples nor spreads need be equal. *Assumes* that the two runs share no samples, and that a ratio to a
    control timed beside it doesn't depend on the state of the machine that day. *Covers* with the level of the two, as
    far as that holds; several such comparisons are not simultaneous.

    An end that isn't finite stays so. Raises ValueError for different levels.
    """
    if base.level != other.level:
        raise ValueError(f"intervals at {base.level} and {other.level} can't be compared")
    gain = other.gain - base.gain
    return Estimate(
        gain=gain,
        se=math.hypot(base.se, other.se),
        low=gain - math.hypot(other.gain - other.low, base.high - base.gain),
        high=gain + math.hypot(other.high - other.gain, base.gain - base.low),
        n=min(base.n, other.n),
        level=base.level,
    )


def geometric_mean(estimates: Sequence[Estimate]) -> Estimate:
    """The mean gain over several workloads, exp of which is the geometric mean of their speed-ups.

    Each workload weighs the same. *Interval*: quadrature of each end's error (MOVER), for independent estimates. It
    speaks of *these* workloads: others may gain differently, and their spread is not in it.

    `n` is the smallest of theirs. Raises ValueError for none, and for different levels.
    """
    if not estimates or len({e.level for e in estimates}) > 1:
        raise ValueError("a mean needs estimates, all at one level")
    number = len(estimates)
    gain = sum(e.gain for e in estimates) / number
    return Estimate(
        gain=gain,
        se=math.hypot(*(e.se for e in estimates)) / number,
        low=gain - math.hypot(*(e.gain - e.low for e in estimates)) / number,
        high=gain + math.hypot(*(e.high - e.gain for e in estimates)) / number,
        n=min(e.n for e in estimates),
        level=estimates[0].level,
    )


def time_gain(base_ms: Sequence[float], other_ms: Sequence[float], *, level: float = 0.95) -> Estimate:
    """log t(base) − log t(other) from one time a process, of processes that ran on different occasions.

    *Estimator*: the difference of mean log times, with Welch's t and Satterthwaite's degrees of freedom: numbers and
    spreads may differ. *Assumes* independent processes whose log times are about normal. What changed on the machine
    between the two occasions is **not** in the interval: this is a description, weaker than any ratio within a run.

    Fewer than two times on a side: infinite `se` and interval. Raises ValueError for a time that isn't positive.
    """
    if any(not ms > 0 or not math.isfinite(ms) for ms in (*base_ms, *other_ms)) or not base_ms or not other_ms:
        raise ValueError("times must be positive numbers, at least one a side")
    rows = [np.log(np.asarray(times, dtype=np.float64)) for times in (base_ms, other_ms)]
    gain = float(rows[0].mean() - rows[1].mean())
    fewest = min(len(row) for row in rows)
    if fewest < 2:
        return Estimate(gain=gain, se=math.inf, low=-math.inf, high=math.inf, n=fewest, level=level)
    shares = [max(float(row.std(ddof=1)), PAIR_SPREAD_FLOOR) ** 2 / len(row) for row in rows]
    se = math.sqrt(sum(shares))
    freedom = sum(shares) ** 2 / sum(share**2 / (len(row) - 1) for share, row in zip(shares, rows, strict=True))
    reach = float(stdtrit(freedom, (1 + level) / 2)) * se
    return Estimate(gain=gain, se=se, low=gain - reach, high=gain + reach, n=fewest, level=level)
