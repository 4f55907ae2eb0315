"""Estimate: a gain with its interval, from rounds within one session."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from tuner.measure.types import Estimate, Gains

__all__ = [
    "AUTOCORRELATION",
    "SPREAD_FLOOR",
    "combine",
    "difference",
    "estimate",
    "hodges_lehmann",
    "present",
    "widening",
]

AUTOCORRELATION = 0.1
"""Assumed correlation of a round's datum with the next round's: the upper end of what was seen on quiet machines."""

SPREAD_FLOOR = 1e-5
"""Smallest spread of a round's log ratio that is believed; equal samples are a coarse clock, not certainty."""

_EXACT_UP_TO = 100


def estimate(gains: Gains, *, level: float = 0.95, autocorrelation: float = AUTOCORRELATION) -> Estimate:
    """Location of one arm's gains over the rounds of a session, with a distribution-free interval.

    *Estimator*: Hodges–Lehmann, the median of the means of all pairs; it keeps 95 % of the mean's efficiency under
    normal noise and beats it under heavy tails. *Interval*: the order statistics of the pair means that invert the
    exact Wilcoxon signed-rank test (Hollander & Wolfe, Nonparametric Statistical Methods, section 3), widened about
    the estimate by √((1+rho)/(1−rho)) for serial correlation rho = `autocorrelation`. With too few rounds for an exact
    interval at this level (under six at 95 %) Student's t on the mean is used instead, which is cautious under heavy
    tails. `se` is half the interval over the t quantile of n − 1 degrees of freedom.

    *Assumes* gains that are symmetric about the true one and at most AR(1) dependent. Covers this process alone:
    another process, another compile may differ. Checked by simulation: coverage is 93 % or more at nominal 95 % for
    n = 6…40 under normal, t₃ and 5 %-contaminated noise with rho = 0.1.

    NaN means absent and is left out; an infinite gain raises ValueError. Fewer than two gains: infinite `se` and
    interval (and gain 0 for none).
    """
    x = present(gains)
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, not at {level!r}")
    n = len(x)
    if n < 2:
        centre = float(x[0]) if n else 0.0
        return Estimate(gain=centre, se=math.inf, low=-math.inf, high=math.inf, n=n, level=level)
    quantile = float(stdtrit(n - 1, (1 + level) / 2))
    rank = _wilcoxon_rank(n, (1 - level) / 2)
    if rank:
        means = _pair_means(x)
        centre = _middle(means)
        below, above = centre - float(means[rank - 1]), float(means[-rank]) - centre
    else:
        centre = float(x.mean())
        below = above = quantile * float(x.std(ddof=1)) / math.sqrt(n)
    floor = quantile * SPREAD_FLOOR / math.sqrt(n)
    factor = widening(autocorrelation)
    low, high = centre - max(factor * below, floor), centre + max(factor * above, floor)
    return Estimate(gain=centre, se=(high - low) / (2 * quantile), low=low, high=high, n=n, level=level)


def difference(a: Gains, b: Gains) -> NDArray[np.float64]:
    """How much faster a is than b, round by round (shape: rounds): the control, which both share, cancels.

    NaN where either was absent; `estimate` leaves those out. Works on log times as well, with the sign turned.
    Raises ValueError if the two aren't aligned round by round.
    """
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.shape != right.shape:
        raise ValueError(f"gains of {left.size} and {right.size} rounds can't be paired")
    return left - right


def combine(candidate: Estimate, offset: Estimate | None) -> Estimate:
    """A candidate's gain over its session's control, plus that session's offset: its gain over the home control.

    Errors add in quadrature, each end of the interval by itself (method of variance estimates recovery, Zou & Donner
    2008), which holds whatever the two intervals came from as long as the two estimates share no samples. All
    candidates of a session share the offset's error, so their order among each other does not depend on it.
    Raises ValueError for different levels.
    """
    if offset is None:
        return candidate
    if candidate.level != offset.level:
        raise ValueError(f"intervals at {candidate.level} and {offset.level} can't be combined")
    gain = candidate.gain + offset.gain
    return Estimate(
        gain=gain,
        se=math.hypot(candidate.se, offset.se),
        low=gain - math.hypot(candidate.gain - candidate.low, offset.gain - offset.low),
        high=gain + math.hypot(candidate.high - candidate.gain, offset.high - offset.gain),
        n=min(candidate.n, offset.n),
        level=candidate.level,
    )


def present(gains: Gains) -> NDArray[np.float64]:
    """The gains that are there, as an array. Raises ValueError for an infinite one and for more than one dimension."""
    x = np.asarray(gains, dtype=np.float64)
    if x.ndim != 1:
        raise ValueError(f"gains must be one row of numbers, not of shape {x.shape}")
    if np.isinf(x).any():
        raise ValueError("a gain is infinite: a time of zero was divided by")
    return x[~np.isnan(x)]


def hodges_lehmann(gains: Gains) -> float:
    """Median of the means of all pairs (each value with itself included)."""
    return _middle(_pair_means(present(gains)))


def widening(autocorrelation: float) -> float:
    """By what an interval for independent rounds must be widened under AR(1) dependence; never below 1."""
    if not autocorrelation < 1:
        raise ValueError(f"an autocorrelation of {autocorrelation!r} leaves nothing to average over")
    rho = max(0.0, autocorrelation)
    return math.sqrt((1 + rho) / (1 - rho))


def _pair_means(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """All of them, sorted."""
    i, j = _pairs(len(x))
    means = (x[i] + x[j]) / 2
    means.sort()
    return means


def _middle(ordered: NDArray[np.float64]) -> float:
    n = len(ordered)
    return float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2


@lru_cache(maxsize=128)
def _pairs(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    i, j = np.triu_indices(n)
    return i, j


@lru_cache(maxsize=1024)
def _wilcoxon_rank(n: int, tail: float) -> int:
    """Largest k for which the k-th smallest pair mean lies above the centre with probability ≤ `tail`; 0 if none."""
    if n > _EXACT_UP_TO:
        spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return max(0, int(n * (n + 1) / 4 + float(ndtri(tail)) * spread))
    # Distribution of the signed-rank sum: each rank counts or not, with equal chance.
    distribution = np.ones(1)
    for value in range(1, n + 1):
        longer = np.zeros(len(distribution) + value)
        longer[: len(distribution)] += distribution / 2
        longer[value:] += distribution / 2
        distribution = longer
    return int(np.searchsorted(np.cumsum(distribution), tail, side="right"))
