"""Run against run: gains relative to each other, means over workloads, absolute times."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.measure.across import geometric_mean, relative, time_gain
from tuner.measure.confirmation import confirm
from tuner.measure.types import Estimate

pytestmark = pytest.mark.slow  # simulates


def known(gain: float, half: float, *, n: int = 6, level: float = 0.95) -> Estimate:
    return Estimate(gain=gain, se=half / 2, low=gain - half, high=gain + half, n=n, level=level)


def test_errors_add_in_quadrature_each_end_by_itself() -> None:
    base = Estimate(gain=0.1, se=0.01, low=0.06, high=0.13, n=6)
    other = Estimate(gain=0.3, se=0.02, low=0.26, high=0.38, n=12)
    found = relative(base, other)
    assert found.gain == pytest.approx(0.2)
    assert found.low == pytest.approx(0.2 - math.hypot(0.04, 0.03))
    assert found.high == pytest.approx(0.2 + math.hypot(0.08, 0.04))
    assert found.n == 6


def test_turned_round_it_says_the_opposite() -> None:
    a, b = known(0.1, 0.02), Estimate(gain=0.3, se=0.02, low=0.26, high=0.38, n=12)
    there, back = relative(a, b), relative(b, a)
    assert (there.gain, there.low, there.high) == pytest.approx((-back.gain, -back.high, -back.low))


def test_defaults_are_known_and_add_no_error() -> None:
    defaults = known(0.0, 0.0)
    found = relative(defaults, known(0.1, 0.03))
    assert (found.low, found.high) == pytest.approx((0.07, 0.13))


def test_an_unknown_end_stays_unknown() -> None:
    assert relative(known(0.1, 0.02), known(0.2, math.inf)).low == -math.inf


def test_different_levels_are_refused() -> None:
    for call in (relative, lambda a, b: geometric_mean([a, b])):
        with pytest.raises(ValueError, match=r"0\.9|one level"):
            call(known(0.1, 0.02), known(0.1, 0.02, level=0.9))
    with pytest.raises(ValueError, match="needs"):
        geometric_mean([])


def test_a_geometric_mean_is_one_of_speed_ups() -> None:
    found = geometric_mean([known(math.log(2.0), 0.03), known(math.log(8.0), 0.04, n=12)])
    assert found.speedup == pytest.approx(4.0)
    assert found.high - found.gain == pytest.approx(0.025)
    assert found.n == 6


@pytest.mark.parametrize(("pairs", "spread"), [((6, 6), (0.01, 0.01)), ((6, 12), (0.03, 0.005))])
def test_relative_gains_cover(pairs: tuple[int, int], spread: tuple[float, float]) -> None:
    """From intervals as the confirmation makes them, for unequal numbers of pairs and unequal noise."""
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(400):
        ends = [
            confirm({"a": rng.normal(true, sd, n).tolist()}, margin=0.005, looks=(n,)).estimates["a"]
            for true, n, sd in zip((0.02, 0.05), pairs, spread, strict=True)
        ]
        found = relative(ends[0], ends[1])
        hits += found.low <= 0.03 <= found.high
    assert hits / 400 >= 0.93


def test_times_cover_without_drift_and_not_with_it() -> None:
    """The warning is true: what changes between the occasions is not in the interval."""
    rng = np.random.default_rng(6)
    hits = {0.0: 0, 0.02: 0}
    for drift in hits:
        for _ in range(400):
            base = np.exp(rng.normal(3.0, 0.01, 6))
            other = np.exp(rng.normal(2.9 + drift, 0.003, 12))
            found = time_gain(base.tolist(), other.tolist())
            hits[drift] += found.low <= 0.1 <= found.high
    assert hits[0.0] / 400 >= 0.93
    assert hits[0.02] / 400 < 0.5


def test_single_times_have_no_interval_and_nonsense_none_at_all() -> None:
    found = time_gain([10.0], [5.0, 5.0, 5.1])
    assert found.speedup == pytest.approx(1.987, abs=0.01)
    assert (found.low, found.high) == (-math.inf, math.inf)
    for bad in ([], [0.0], [math.nan]):
        with pytest.raises(ValueError, match="positive"):
            time_gain([1.0], bad)
