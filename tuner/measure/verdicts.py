"""Verdict: what an interval of the gain says against the margin δ."""

from __future__ import annotations

import math

from tuner.measure.types import Estimate, Verdict

__all__ = ["verdict"]


def verdict(estimate: Estimate, margin: float) -> Verdict:
    """`faster`: interval above 0 and estimate at least δ; `same`: interval inside ±δ; `slower`: interval below 0.

    Asked in that order, so an interval that lies below 0 and yet inside ±δ is `same`. Everything else is `unclear`,
    and so is any estimate with a number that isn't finite. Each claim is wrong at most as often as the interval
    misses. `margin` is δ on the log scale; a negative one raises ValueError.
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise ValueError(f"the margin must be a number from 0 on, not {margin!r}")
    if not all(map(math.isfinite, (estimate.gain, estimate.se, estimate.low, estimate.high))):
        return Verdict.UNCLEAR
    if estimate.low > 0 and estimate.gain >= margin:
        return Verdict.FASTER
    if -margin < estimate.low and estimate.high < margin:
        return Verdict.SAME
    if estimate.high < 0:
        return Verdict.SLOWER
    return Verdict.UNCLEAR
