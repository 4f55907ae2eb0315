"""Whether a machine was steady enough for a verdict, and what claims outlast it if it was not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from tuner.measure.types import Estimate, Verdict

__all__ = ["Instability", "instability", "upheld"]

# The default's own time may differ so much between pairs of processes, as a log ratio of the slowest pair to the
# fastest: an ordinary drift of 1 % a minute does that in the time that a confirmation takes.
_ORDINARY_SWING = 0.1
# … or by so many standard deviations of its own blocks in the baseline, on a machine that is always restless.
_SWING_SDS = 4.0
# Alternation within a pair takes most of a swing out of the ratio; this much of it may be left.
_LEFT_OF_SWING = 0.25
# What a disturbance that shows in no time may still do to a ratio: "a few percent".
_FEW_PERCENT = 0.03
# So many of the pairs may have been disturbed.
_DISTURBED_SHARE = 1 / 3


class Instability(msgspec.Struct, frozen=True, kw_only=True):
    """`seen`: what was seen, with numbers. `limit`: the gain (log scale) up to which nothing can be claimed here."""

    seen: str
    limit: float


def instability(
    control_ms: Sequence[float], *, spread: float, disturbed: Sequence[str] = (), settled: bool = True
) -> Instability | None:
    """What speaks against a verdict from pairs in which the default took `control_ms` (one a pair); None if nothing.

    `spread`: standard deviation of the default's log time from block to block in the baseline. `disturbed`: one entry a
    pair that stayed disturbed, saying by what. `settled`: False if the step's time never became steady.
    *Rules*: the slowest pair's default is more than 10 % and 4 `spread` slower than the fastest's; more than a third of
    the pairs stayed disturbed; the step never settled. *Limit*: a quarter of the swing, since turns that alternate
    within a pair take most of it out, and at least 3 % for what was disturbed or never settled. The finalists' times
    are not looked at.
    """
    levels = np.log(np.asarray(control_ms, dtype=np.float64))
    swing = float(levels.max() - levels.min()) if len(levels) else 0.0
    seen, limit = [], _LEFT_OF_SWING * swing
    if swing > max(_ORDINARY_SWING, _SWING_SDS * spread):
        low, high = math.exp(float(levels.min())), math.exp(float(levels.max()))
        seen.append(f"the default's own time went from {low:.4g} to {high:.4g} ms between pairs of processes")
    if len(disturbed) > _DISTURBED_SHARE * len(levels):
        seen.append(
            f"{len(disturbed)} of {len(levels)} pairs stayed disturbed, for instance: {_most_frequent(disturbed)}"
        )
        limit = max(limit, _FEW_PERCENT)
    if not settled:
        seen.append("the default's time never settled")
        limit = max(limit, _FEW_PERCENT)
    return Instability(seen="; ".join(seen), limit=limit) if seen else None


def upheld(found: Verdict, estimate: Estimate, unstable: Instability | None) -> Verdict:
    """`found`, or `unstable` where the instability could have made it: only an interval that lies beyond the limit on
    either side outlasts it."""
    if unstable is None or estimate.low > unstable.limit or estimate.high < -unstable.limit:
        return found
    return Verdict.UNSTABLE


def _most_frequent(reasons: Sequence[str]) -> str:
    return max(dict.fromkeys(reasons), key=list(reasons).count)
