"""Verdicts: what an interval says against the margin, and that nothing is said without one."""

from __future__ import annotations

import math

import msgspec
import pytest
from measure_samples import known

from tuner.measure import Estimate, Verdict, verdict

MARGIN = 0.005


@pytest.mark.parametrize(
    ("gain", "half", "expected"),
    [
        (0.02, 0.005, Verdict.FASTER),
        (0.005, 0.001, Verdict.FASTER),  # the margin itself is enough
        (0.0049, 0.001, Verdict.UNCLEAR),  # certainly above 0, but not worth having for certain
        (0.003, 0.001, Verdict.SAME),
        (0.0, 0.004, Verdict.SAME),
        (-0.002, 0.001, Verdict.SAME),  # below 0, yet inside the margin
        (-0.01, 0.006, Verdict.SLOWER),
        (0.0, 0.006, Verdict.UNCLEAR),
        (0.02, 0.03, Verdict.UNCLEAR),
        (0.02, 0.02, Verdict.UNCLEAR),  # an interval that ends at 0 is not above it
        (0.0, 0.005, Verdict.UNCLEAR),  # nor is one that ends at the margin inside it
    ],
)
def test_an_interval_decides_as_the_design_says(gain: float, half: float, expected: Verdict) -> None:
    assert verdict(known(gain, half), MARGIN) is expected


@pytest.mark.parametrize("field", ["gain", "se", "low", "high"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_an_estimate_that_is_not_finite_is_never_anything_but_unclear(field: str, value: float) -> None:
    for gain in (0.02, 0.0, -0.02):
        broken = msgspec.structs.replace(known(gain, 0.001), **{field: value})
        assert verdict(broken, MARGIN) is Verdict.UNCLEAR


def test_an_unknown_estimate_is_unclear_even_at_margin_zero() -> None:
    unknown = Estimate(gain=0.1, se=math.inf, low=-math.inf, high=math.inf, n=1)
    assert verdict(unknown, 0.0) is Verdict.UNCLEAR


@pytest.mark.parametrize("margin", [-0.001, math.nan, math.inf])
def test_a_margin_that_is_none_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="margin"):
        verdict(known(0.0, 0.001), margin)
