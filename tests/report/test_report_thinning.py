"""Thinning keeps the envelope."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner.report.thinning import thinned


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=400), st.integers(3, 90))
def test_extremes_and_order_stay_and_the_limit_holds(values: list[float], limit: int) -> None:
    points = list(enumerate(values))
    kept = thinned(points, limit, value=lambda point: point[1])
    assert len(kept) <= limit
    assert kept == sorted(set(kept))
    assert set(kept) <= set(points)
    for extreme in (min(values), max(values)):
        assert extreme in [value for _, value in kept]


def test_few_points_are_left_alone() -> None:
    assert thinned([3.0, 1.0, 2.0], 3, value=float) == [3.0, 1.0, 2.0]
