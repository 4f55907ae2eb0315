"""Minimise: which settings of a winner may go without losing more than is allowed in total."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sized
from typing import Protocol, TypeVar

from tuner.measure.ties import tie_break
from tuner.measure.types import Estimate

__all__ = ["allowed_loss", "not_inferior", "smallest_not_inferior"]


class _Settings(Hashable, Sized, Protocol):
    """A set of settings: its length is their number."""


S = TypeVar("S", bound=_Settings)


def allowed_loss(winner_gain: float, margin: float) -> float:
    """min(δ/2, gain/5): what all drops together may cost, log scale. 0 for a winner that gains nothing."""
    return max(0.0, min(margin / 2, winner_gain / 5))


def not_inferior(reduced_vs_winner: Estimate, allowed: float) -> bool:
    """True if the reduced config certainly loses at most `allowed` against the *full* winner.

    `reduced_vs_winner` is the reduced config's gain over the winner (negative: a loss). Certain means that the upper
    end of the loss's interval is within the allowance: a test of non-inferiority at (1 − level)/2. An estimate that
    couldn't be computed proves nothing.
    """
    return math.isfinite(reduced_vs_winner.se) and -reduced_vs_winner.low <= allowed


def smallest_not_inferior(
    estimates: Mapping[S, Estimate], *, full: S, allowed: float, peaks: Mapping[S, int | None] | None = None
) -> tuple[S, bool]:
    """The smallest set of settings that is not inferior to the full winner, and whether that choice is resolved.

    `estimates`: subset → its gain over `full`. `peaks`: their peak memory in bytes. All that are not inferior tie: see
    `tie_break`; among equals the better estimate wins. `full` stays if nothing smaller is shown to be not inferior.
    *Resolved*: every smaller subset is shown to lose more than allowed, so more rounds would change nothing; where it
    is False, a smaller config may well do, and this noise can't tell.

    The error is per subset: one that loses just more than `allowed` passes with chance (1 − level)/2. The loss is
    bounded by the allowance all the same, since each subset is judged by its total loss.
    """
    passing = [s for s, e in estimates.items() if s != full and not_inferior(e, allowed)]
    chosen = min(passing, key=lambda s: (*tie_break(len(s), (peaks or {}).get(s)), -estimates[s].gain), default=full)
    smaller = [e for s, e in estimates.items() if len(s) < len(chosen)]
    return chosen, all(e.high < -allowed for e in smaller)
