"""Confirm: what pairs of fresh processes prove, looked at several times, for several finalists at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit

from tuner.measure.types import Estimate, Gains, Verdict
from tuner.measure.verdicts import verdict

__all__ = ["FALSE_FASTER", "LOOKS", "PAIR_SPREAD_FLOOR", "ConfirmState", "boundaries", "confirm", "critical_t"]

LOOKS = (6, 8, 10, 12)
"""Numbers of pairs after which a confirmation is evaluated, unless it is planned otherwise."""

FALSE_FASTER = 0.005
"""Chance of calling something faster that is not, over all looks and finalists of a confirmation. A search over many
settings on a noisy machine always has something that looks good to confirm, so every run may spend it; a run that is
wrong once in forty times is not worth having."""

LEVEL = 0.95
"""Of all intervals of a confirmation together. Their lower ends miss more rarely yet: `FALSE_FASTER`."""

PAIR_SPREAD_FLOOR = 1e-4
"""Smallest spread between pairs of processes that is believed: two processes agree better than 0.01 % only by luck."""

# Share of the error that is spent where there are several looks. Student's t of successive looks is less correlated
# than the normal means that the boundaries are computed for, so some look crosses up to 9 % too often (2.70 % instead
# of 2.5 % with the usual looks, by simulation); this puts it below nominal.
_SPENT_ON_T = 0.88
_NODES = 200
_FARTHEST = 9.0  # standard deviations: what lies beyond has no weight in floating point


class ConfirmState(msgspec.Struct, frozen=True, kw_only=True):
    """Where the confirmation stands. `done`: more pairs can't change what is chosen, or the last look is over.

    `estimates`, `verdicts`: by finalist. `next_look`: pairs that every undecided finalist needs for the next look;
    None when done.
    """

    done: bool
    estimates: dict[str, Estimate]
    verdicts: dict[str, Verdict]
    next_look: int | None


def confirm(pairs: Mapping[str, Gains], *, margin: float, looks: Sequence[int] = LOOKS) -> ConfirmState:
    """Verdicts from the gains of each finalist over the default, one a pair of fresh processes (−log ratio!).

    *Estimator*: the mean over pairs with Student's t: what a process does as a whole (its compile, its memory layout)
    is one draw, so pairs are the only independent units, and each finalist has its own variance. *Looks*: only the
    numbers of pairs in `looks` are ever evaluated (pairs beyond the last look reached wait for the next), against
    O'Brien–Fleming-like spending of the error (Lan & DeMets 1983), its nominal level applied to t (Jennison & Turnbull
    2000, ch. 11) with an eighth of the error held back for what that approximation costs. A finalist with a verdict
    other than `unclear` is decided and keeps the estimate it was decided by.
    *Finalists*: the upper ends share (1 − `LEVEL`)/2, the lower ends `FALSE_FASTER`, so that all intervals, at all
    looks, hold together (Bonferroni); once one is proven faster than the default, its share goes to the lower ends of
    the others (Holm). One that failed is left out of `pairs`.

    *Guarantees*, whatever the dependence between finalists: any false `faster` ≤ `FALSE_FASTER`; all intervals cover
    with more than `LEVEL` while Holm has passed nothing on; after that the others' lower ends carry the sign only.
    Checked for normal log ratios; heavy tails make it more cautious. Fewer pairs than the first look: infinite
    interval, `unclear`. Equal log ratios count as if they spread by 0.01 %.

    Done when every finalist is decided or has had its last look, or when one is faster and the undecided ones have
    lower estimates. Raises ValueError for a log ratio that is not finite and for looks that don't increase from 2.
    """
    if list(looks) != sorted(set(looks)) or not looks or looks[0] < 2:
        raise ValueError(f"looks must be increasing numbers of pairs from 2 on, not {tuple(looks)!r}")
    rows = {name: _finite(name, gains) for name, gains in pairs.items()}
    shares: dict[str, int] = {}  # among how many the error is divided that a finalist was proven faster with
    estimates = {name: _unknown(row) for name, row in rows.items()}
    verdicts = dict.fromkeys(rows, Verdict.UNCLEAR)
    for index, look in enumerate(looks):
        open_ = [n for n, row in rows.items() if verdicts[n] is Verdict.UNCLEAR and len(row) >= look]
        proving = True
        while proving:
            proving = False
            for name in open_:
                share = shares.get(name, len(rows) - len(shares))
                ends = (FALSE_FASTER / share, (1 - LEVEL) / 2 / len(rows))
                estimates[name] = _at_look(rows[name][:look], tuple(looks), index, ends)
                if name not in shares and estimates[name].low > 0:
                    shares[name] = share
                    proving = True
        for name in open_:
            verdicts[name] = verdict(estimates[name], margin)
    waiting = {n for n, row in rows.items() if verdicts[n] is Verdict.UNCLEAR and len(row) < looks[-1]}
    best = max((estimates[n].gain for n, v in verdicts.items() if v is Verdict.FASTER), default=math.inf)
    done = all(len(rows[n]) >= looks[0] and estimates[n].gain < best and best < math.inf for n in waiting)
    fewest = min((len(rows[n]) for n in waiting), default=0)
    return ConfirmState(
        done=done,
        estimates=estimates,
        verdicts=verdicts,
        next_look=None if done else next(look for look in looks if look > fewest),
    )


def boundaries(looks: Sequence[int], error: float) -> tuple[float, ...]:
    """z that the standardised mean must exceed at each look, so that under no effect any look does with chance `error`.

    The error spent by look n of n_max is 2 − 2Φ(z_{error/2} / √(n/n_max)) (Lan & DeMets 1983). One-sided; the boundary
    of each look solves for the newly spent part by numerical integration over the paths that have not crossed yet
    (Armitage, McPherson & Rowe 1969). Infinite where nothing is spent yet.
    """
    return _boundaries(tuple(looks), error)


@lru_cache(maxsize=256)
def _boundaries(looks: tuple[int, ...], error: float) -> tuple[float, ...]:
    from scipy.optimize import brentq  # imports half of scipy, which no command but a confirmation needs

    times = np.asarray(looks, dtype=np.float64) / looks[-1]
    spent = 2 * ndtr(ndtri(error / 2) / np.sqrt(times))
    steps = np.sqrt(np.diff(times, prepend=0.0))
    # Paths that have not crossed: places of the Brownian motion and their weights; at first all at 0.
    places, weights = np.zeros(1), np.ones(1)
    found = []
    for time, step, target in zip(times, steps, np.diff(spent, prepend=0.0), strict=True):
        highest = _FARTHEST * math.sqrt(time)

        state = (places, weights, step, target)
        crossable = _excess(highest, *state) < 0
        level = float(brentq(_excess, -highest, highest, args=state)) if crossable else math.inf
        found.append(level / math.sqrt(time))
        top = min(level, highest)
        nodes, node_weights = _gauss_legendre()
        new = (nodes + 1) / 2 * (top + highest) - highest
        density = np.exp(-(((new[:, None] - places) / step) ** 2) / 2) @ weights / (step * math.sqrt(2 * math.pi))
        places, weights = new, density * node_weights * (top + highest) / 2
    return tuple(found)


@lru_cache(maxsize=1)
def _gauss_legendre() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


def _excess(
    level: float, places: NDArray[np.float64], weights: NDArray[np.float64], step: float, target: float
) -> float:
    """Chance that a path crosses `level` in this step, less the target."""
    return float(weights @ ndtr((places - level) / step) - target)


def _at_look(gains: NDArray[np.float64], looks: tuple[int, ...], index: int, errors: tuple[float, float]) -> Estimate:
    """Mean and interval after look `index`; `errors`: with what chance, over all looks, the two ends may miss."""
    n = len(gains)
    mean = float(gains.mean())
    se = max(float(gains.std(ddof=1)), PAIR_SPREAD_FLOOR) / math.sqrt(n)
    below, above = (critical_t(looks, index, error) for error in errors)
    return Estimate(gain=mean, se=se, low=mean - below * se, high=mean + above * se, n=n, level=LEVEL)


@lru_cache(maxsize=1024)
def critical_t(looks: tuple[int, ...], index: int, error: float) -> float:
    """What t must exceed at look `index`: its boundary's nominal level, on the scale of Student's t of that look.

    Under no effect and normal log ratios the chance that any look exceeds it is at most `error`.
    """
    spent = error if len(looks) == 1 else _SPENT_ON_T * error
    return -float(stdtrit(looks[index] - 1, ndtr(-_boundaries(looks, spent)[index])))


def _unknown(gains: NDArray[np.float64]) -> Estimate:
    centre = float(gains.mean()) if len(gains) else 0.0
    return Estimate(gain=centre, se=math.inf, low=-math.inf, high=math.inf, n=len(gains), level=LEVEL)


def _finite(name: str, gains: Gains) -> NDArray[np.float64]:
    row = np.asarray(gains, dtype=np.float64)
    if row.ndim != 1 or not np.isfinite(row).all():
        raise ValueError(f"the log ratios of {name!r} must be one row of finite numbers")
    return row
