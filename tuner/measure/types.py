"""The values that measuring yields. A *gain* is −log ratio: positive means faster; exp(gain) is the speed-up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias, Union

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["UNSETTLED", "Estimate", "Gains", "Levels", "Limits", "Tolerance", "Verdict"]

# Gains of one arm, one a round or one a pair of processes; NaN where the arm was absent.
Gains: TypeAlias = Union[Sequence[float], "NDArray[np.float64]"]


class Verdict(StrEnum):
    """What an interval of the gain says against the margin δ; `unstable`: the machine allows no such claim."""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    UNCLEAR = "unclear"
    UNSTABLE = "unstable"


UNSETTLED = (Verdict.UNCLEAR, Verdict.UNSTABLE)
"""Verdicts that speak neither for a gain nor against it: they take back nothing that was proven before."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A gain (log scale) with its standard error and confidence interval.

    `n`: independent units behind it (rounds within a session, pairs of processes between). `level`: e.g. 0.95.
    An estimate that can't be computed has an infinite `se` and interval, never a small one.
    """

    gain: float
    se: float
    low: float
    high: float
    n: int
    level: float = 0.95

    @property
    def speedup(self) -> float:
        return math.exp(self.gain)


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """Standard deviations of a log ratio. `round`: one turn's, within a pair. `process`: what differs between pairs
    beyond what the rounds explain. `pair`: between pairs, all together. `pairs`: independent units behind them.
    """

    round: float
    process: float
    pair: float
    pairs: int


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """The numerics gate's limits for one output leaf after `steps` steps, from the null set.

    `moved_l2`, `moved_slope`: for what was done to a leaf that takes an input's place; None where that isn't told.
    `moves`: no harmless change leaves this leaf as it was.
    """

    path: str
    steps: int
    l2: float
    slope: float
    moved_l2: float | None = None
    moved_slope: float | None = None
    moves: bool = False


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """One null set's limits for each output leaf: for most settings, and for those declared to trade accuracy."""

    usual: tuple[Tolerance, ...] = ()
    strict: tuple[Tolerance, ...] = ()
