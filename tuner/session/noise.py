"""Noise as machines make it: heavy tails, and a memory from one round to the next."""

from __future__ import annotations

import math
import random

__all__ = ["Wander", "heavy_tailed"]

# Degrees of freedom of the t distribution; its kurtosis is what block times on real machines show.
_DEGREES = 5


def heavy_tailed(rng: random.Random) -> float:
    """A draw from Student's t with 5 degrees of freedom, scaled to variance 1."""
    chi_square = rng.gammavariate(_DEGREES / 2, 2.0)
    return rng.gauss(0.0, 1.0) / math.sqrt(chi_square / _DEGREES) * math.sqrt((_DEGREES - 2) / _DEGREES)


class Wander:
    """A stationary first-order autoregression: standard deviation `sd`, correlation `memory` with the value before."""

    def __init__(self, rng: random.Random, *, sd: float, memory: float) -> None:
        self._rng = rng
        self._sd = sd
        self._memory = memory
        self._value = heavy_tailed(rng)

    def next(self) -> float:
        fresh = math.sqrt(1.0 - self._memory**2) * heavy_tailed(self._rng)
        self._value = self._memory * self._value + fresh
        return self._sd * self._value
