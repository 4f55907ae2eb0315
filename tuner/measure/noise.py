"""The control against itself: how noisy a round is, when the times are steady, what a plan can resolve."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import nctdtrinc

from tuner.measure.confirmation import FALSE_FASTER, LOOKS, critical_t
from tuner.measure.estimates import AUTOCORRELATION, SPREAD_FLOOR, estimate, present, widening
from tuner.measure.types import Gains

__all__ = [
    "MEDIAN_COST",
    "ControlNoise",
    "control_noise",
    "opens_apart",
    "resolution",
    "spread",
    "steady_after",
    "steps_per_block",
]

_MAD_TO_SD = 1.4826
# Variance of a median and of the Hodges–Lehmann estimate over that of a mean, under normal noise.
MEDIAN_COST = math.pi / 2
# Steady: within so many robust standard deviations of the later half's level, and at least within this share.
_STEADY_SDS = 3.0
_STEADY_SHARE = 0.005
# A change over what is kept that no ordinary drift explains.
_UNSTEADY_SHARE = 0.02


class ControlNoise(msgspec.Struct, frozen=True, kw_only=True):
    """`sd`: spread of one round's datum, the log ratio of two equal programs. `n`: rounds behind it.

    `level`: spread of the control's own log time from round to round, which ratios mostly cancel.
    `bias`: median of the datum; it should be 0 within about 2.5·sd/√n. `drift`: change of the control's log time over
    the record (positive: it became slower). `autocorrelation`: of a round's datum with the next round's, by ranks.
    """

    sd: float
    bias: float
    drift: float
    autocorrelation: float
    n: int
    level: float = 0.0


def control_noise(gains: Gains, control_s: Sequence[float], *, starts_s: Sequence[float] | None = None) -> ControlNoise:
    """Noise of a round from the gains of a twin of the control, timed in rounds as a candidate would be.

    `gains`: the twin's gain in each round (NaN: absent). `control_s`: the control's seconds a step in each round.
    `starts_s`: when each round began, for the drift; without, rounds count as evenly spaced.
    *Estimators*: `sd` is the median absolute gain × 1.4826 (deviations from 0, the known truth, so a bias widens it),
    at least 1e-5; `drift` is the Theil–Sen slope of the control's log time times the record's length; the
    autocorrelation is Spearman's, corrected by 1/n for its bias. Raises ValueError for fewer than three rounds, for
    rows of unequal length, for times that are not positive and finite.
    """
    x = present(gains)
    if len(x) < 3:
        raise ValueError(f"noise can't be told from {len(x)} rounds: at least 3 are needed")
    if len(control_s) != len(gains) or (starts_s is not None and len(starts_s) != len(gains)):
        raise ValueError("gains, control times and starts must be one a round each")
    levels = np.log(_positive(control_s))
    times = np.arange(len(levels), dtype=np.float64) if starts_s is None else np.asarray(starts_s, dtype=np.float64)
    return ControlNoise(
        sd=max(SPREAD_FLOOR, _MAD_TO_SD * float(np.median(np.abs(x)))),
        bias=float(np.median(x)),
        drift=_theil_sen(times, levels) * float(np.ptp(times)),
        autocorrelation=_rank_correlation(x[:-1], x[1:]) + 1 / len(x) if len(x) > 3 else 0.0,
        n=len(x),
        level=spread(control_s),
    )


def spread(seconds: Sequence[float] | NDArray[np.float64]) -> float:
    """Spread of log times: their median absolute deviation × 1.4826, as a standard deviation of normal noise; 0 for
    none. Raises ValueError for times that are not positive and finite."""
    x = np.log(_positive(seconds))
    return _MAD_TO_SD * float(np.median(np.abs(x - np.median(x)))) if len(x) else 0.0


def opens_apart(rounds: Sequence[tuple[float, float]], margin: float) -> bool:
    """Whether what begins a round, after a pause, lasts unlike what follows it. `rounds`: seconds a step of the first
    and of the second block of each, two of one program in either order.

    A card at its power limit runs faster for about a quarter of a second after a pause: by 0.7 to 2.2 % where most of
    a step is matrix products. The control, which opens every round of several arms, would be flattered by that. *Rule*:
    the Hodges–Lehmann interval of the log ratios at 95 % excludes 0, and their location is more than a quarter of
    `margin`. Raises ValueError for times that are not positive and finite.
    """
    first, second = _positive([a for a, _ in rounds]), _positive([b for _, b in rounds])
    apart = estimate(np.log(second / first).tolist())
    return not apart.low <= 0 <= apart.high and abs(apart.gain) > margin / 4


def steady_after(block_seconds: Sequence[float]) -> int | None:
    """How many first blocks (seconds a step each) to discard until the times are steady; None if they never are.

    The later half of the record sets the level and the spread. A first block is discarded while it, or the median of
    it and the four after it, lies outside 3 robust standard deviations (at least 0.5 %) of that level: one stall in
    the middle discards nothing, one slow first block is discarded. *Never*: even the record's middle lies outside, or
    what is kept goes on changing, from its first third to its last by more than 2 % and 3 standard deviations of a
    block. An ordinary drift of 1 % is steady: ratios to an interleaved control take it out. Fewer than 6 blocks can't
    be told.
    Raises ValueError for times that are not positive and finite.
    """
    x = np.log(_positive(block_seconds))
    n = len(x)
    if n < 6:
        return None
    later = x[n // 2 :]
    level = float(np.median(later))
    sd = _MAD_TO_SD * float(np.median(np.abs(later - level)))
    reach = max(_STEADY_SDS * sd, _STEADY_SHARE)
    first = 0
    while first < n // 2 and (abs(x[first] - level) > reach or abs(np.median(x[first : first + 5]) - level) > reach):
        first += 1
    if first == n // 2:
        return None
    third = max(2, (n - first) // 3)
    change = abs(float(np.median(x[-third:]) - np.median(x[first : first + third])))
    steps = np.diff(x[first:])
    local_sd = _MAD_TO_SD * float(np.median(np.abs(steps))) / math.sqrt(2)  # blind to a trend, unlike `sd`
    return None if change > max(_UNSTEADY_SHARE, _STEADY_SDS * local_sd) else first


def steps_per_block(step_s: float, target_s: float = 0.2) -> int:
    """k: consecutive steps of `step_s` seconds that fill a block of about `target_s`, at least one.

    Raises ValueError unless both are positive and finite.
    """
    return max(1, round(float(_positive([target_s])[0] / _positive([step_s])[0])))


def resolution(
    noise_sd: float,
    process_sd: float,
    *,
    rounds: int,
    pairs: int,
    finalists: int = 1,
    looks: Sequence[int] = LOOKS,
    power: float = 0.8,
) -> float:
    """Smallest gain that `confirm` calls faster at its last look within `pairs` pairs, with chance `power`.

    A pair's log ratio has variance process_sd² + noise_sd²·(π/2)·(1+rho)/(1−rho)/rounds (the median of the rounds), and
    the gain follows from the noncentral t at that look's boundary, the error shared among `finalists`. Early looks are
    strict: six pairs of a planned twelve resolve far less than six planned alone (``looks=(6,)``). Earlier looks add a
    little chance that isn't counted, and `faster` needs an estimate of at least δ besides. Infinite before the first
    look and without rounds.
    """
    reached = [index for index, look in enumerate(looks) if look <= pairs]
    if not reached or rounds < 1:
        return math.inf
    n = looks[reached[-1]]
    pair_sd = math.sqrt(process_sd**2 + noise_sd**2 * MEDIAN_COST * widening(AUTOCORRELATION) ** 2 / rounds)
    threshold = critical_t(tuple(looks), reached[-1], FALSE_FASTER / finalists)
    return float(nctdtrinc(n - 1, 1 - power, threshold)) * pair_sd / math.sqrt(n)


def _positive(values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.asarray(values, dtype=np.float64)
    bad = x[~(np.isfinite(x) & (x > 0))]
    if len(bad):
        raise ValueError(f"expected positive, finite numbers, not {float(bad[0])!r}")
    return x


def _theil_sen(t: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    i, j = np.triu_indices(len(x), k=1)
    apart = t[j] != t[i]
    return float(np.median((x[j] - x[i])[apart] / (t[j] - t[i])[apart])) if apart.any() else 0.0


def _rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    ranks = [np.argsort(np.argsort(v)) - (len(v) - 1) / 2 for v in (a, b)]
    return float(ranks[0] @ ranks[1] / (ranks[0] @ ranks[0]))
