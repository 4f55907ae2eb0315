"""Made-up measurements whose truth is known."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tuner.measure.types import Estimate

NOISES = ("normal", "t3", "stalls", "skewed")


def noise(
    rng: np.random.Generator, shape: tuple[int, ...], kind: str, *, autocorrelation: float = 0.0
) -> NDArray[np.float64]:
    """Noise around 0 of about unit size; AR(1) along the last axis. "stalls": every twentieth value is 10 times off."""
    longer = (*shape[:-1], shape[-1] + 20)
    match kind:
        case "normal":
            fresh = rng.standard_normal(longer)
        case "t3":
            fresh = rng.standard_t(3, longer)
        case "stalls":
            fresh = rng.standard_normal(longer) * np.where(rng.random(longer) < 0.05, 10.0, 1.0)
        case "skewed":  # a difference of two skewed times is symmetric, as in a round
            fresh = rng.standard_exponential(longer) ** 2 - rng.standard_exponential(longer) ** 2
        case _:
            raise ValueError(kind)
    if autocorrelation:
        for row in fresh.reshape(-1, longer[-1]):  # as plain numbers: most series are one short row
            row[:] = list(accumulate(row.tolist(), lambda before, new: new + autocorrelation * before))
    return fresh[..., 20:]


def known(gain: float, half: float, *, n: int = 12, level: float = 0.95) -> Estimate:
    """An estimate with the interval gain ± half."""
    return Estimate(gain=gain, se=half / 2, low=gain - half, high=gain + half, n=n, level=level)
