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

__all__ = ["Estimate", "Gains", "Tolerance", "Verdict"]

# Gains of one arm, one a round or one a pair of processes; NaN where the arm was absent.
Gains: TypeAlias = Union[Sequence[float], "NDArray[np.float64]"]


class Verdict(StrEnum):
    """What an interval of the gain says against the margin δ."""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    UNCLEAR = "unclear"


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


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """The numerics gate's limits for one output leaf after `steps` steps, from the null set."""

    path: str
    steps: int
    l2: float
    slope: float
