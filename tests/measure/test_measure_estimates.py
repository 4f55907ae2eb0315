"""Estimates within a session: do the intervals cover, and what happens at the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from measure_samples import known, noise

from tuner.measure import Estimate, combine, difference, estimate
from tuner.measure.estimates import hodges_lehmann

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["normal", "t3", "stalls"])
@pytest.mark.parametrize("n", [6, 9, 16, 40])
def test_intervals_cover_under_heavy_tails_and_serial_correlation(kind: str, n: int) -> None:
    """Nominal 95 %, AR(1) with 0.1: at least 93 %, and not so wide that they say nothing."""
    rows = noise(np.random.default_rng(n), (800, n), kind, autocorrelation=0.1)
    found = [estimate(row) for row in rows]
    covered = np.mean([e.low < 0 < e.high for e in found])
    assert 0.935 <= covered <= 0.985


def test_without_the_widening_for_serial_correlation_coverage_would_fall_short() -> None:
    """The reason for the default, and proof that the simulation above can fail."""
    rows = noise(np.random.default_rng(2), (500, 40), "normal", autocorrelation=0.3)
    covered = np.mean([(e := estimate(row, autocorrelation=0.0)).low < 0 < e.high for row in rows])
    assert covered < 0.9


def test_few_rounds_have_wide_intervals_that_still_cover() -> None:
    for n in (2, 3, 4, 5):
        rows = noise(np.random.default_rng(n), (800, n), "t3", autocorrelation=0.1)
        found = [estimate(row) for row in rows]
        assert np.mean([e.low < 0 < e.high for e in found]) >= 0.94


def test_under_heavy_tails_the_interval_is_narrower_than_students() -> None:
    rows = noise(np.random.default_rng(5), (300, 30), "stalls")
    ours = np.median([(e := estimate(row, autocorrelation=0.0)).high - e.low for row in rows])
    students = np.median(2 * 2.045 * rows.std(axis=1, ddof=1) / math.sqrt(30))
    assert ours < 0.75 * students


def test_one_stalled_round_hardly_moves_the_estimate() -> None:
    quiet = list(0.01 + 0.001 * np.random.default_rng(0).standard_normal(15))
    assert abs(estimate([*quiet, -3.0]).gain - estimate(quiet).gain) < 0.0005


def test_se_is_half_the_interval_over_the_t_quantile() -> None:
    e = estimate([0.01, 0.012, 0.009, 0.011, 0.013, 0.008, 0.0105])
    assert e.n == 7
    assert e.se == pytest.approx((e.high - e.low) / 2 / 2.4469, rel=1e-4)
    assert e.low < e.gain < e.high


def test_the_interval_is_the_signed_rank_one() -> None:
    """For eight rounds at 95 % the fourth smallest and largest of the 36 pair means (tabled), here not widened."""
    x = np.array([0.3, 1.1, 2.4, 3.2, 4.9, 6.1, 7.7, 9.6])
    means = sorted((a + b) / 2 for i, a in enumerate(x) for b in x[i:])
    e = estimate(x, autocorrelation=0.0)
    assert (e.low, e.high) == pytest.approx((means[3], means[-4]), rel=1e-12)
    assert e.gain == pytest.approx(hodges_lehmann(x)) == pytest.approx(np.median(means))


def test_a_higher_level_gives_a_wider_interval_even_where_few_rounds_have_no_exact_one() -> None:
    x = np.random.default_rng(1).standard_normal(8)
    widths = [(e := estimate(x, level=level)).high - e.low for level in (0.5, 0.8, 0.95, 0.99, 0.999)]
    assert widths == sorted(widths)


@pytest.mark.parametrize("gains", [[], [0.05], [math.nan, 0.05, math.nan]])
def test_less_than_two_rounds_prove_nothing(gains: list[float]) -> None:
    e = estimate(gains)
    assert (e.se, e.low, e.high) == (math.inf, -math.inf, math.inf)
    assert e.gain == (0.05 if gains else 0.0)


def test_equal_gains_are_a_coarse_clock_and_not_certainty() -> None:
    e = estimate([0.01] * 8)
    assert e.gain == pytest.approx(0.01)
    assert 0 < e.high - e.low < 1e-4
    assert e.se > 0


def test_absent_rounds_are_left_out_and_infinite_gains_refused() -> None:
    assert estimate([0.1, math.nan, 0.2, 0.3]) == estimate([0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="infinite"):
        estimate([0.1, math.inf])


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_outside_0_and_1_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        estimate([0.1, 0.2], level=level)


def test_an_autocorrelation_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="autocorrelation"):
        estimate([0.1, 0.2], autocorrelation=1.0)


def test_hundreds_of_rounds_agree_with_the_normal_approximation() -> None:
    x = np.random.default_rng(0).standard_normal(400)
    e = estimate(x, autocorrelation=0.0)
    assert (e.high - e.low) / 2 == pytest.approx(1.96 * math.sqrt(math.pi / 3 / 400), rel=0.1)


def test_a_difference_is_free_of_the_control_that_both_share() -> None:
    rng = np.random.default_rng(4)
    control = 0.2 * rng.standard_normal(12)
    a = 0.02 + 0.001 * rng.standard_normal(12) + control
    b = 0.01 + 0.001 * rng.standard_normal(12) + control
    e = estimate(difference(a, b))
    assert 0.008 < e.low < 0.01 < e.high < 0.012
    assert estimate(a).low < 0


def test_a_difference_is_absent_where_either_arm_was() -> None:
    found = difference([0.1, math.nan, 0.3], [0.1, 0.2, math.nan])
    assert list(np.isnan(found)) == [False, True, True]
    with pytest.raises(ValueError, match="paired"):
        difference([0.1], [0.1, 0.2])


def test_an_offset_adds_its_gain_and_its_error_in_quadrature() -> None:
    total = combine(known(0.02, 0.003), known(-0.005, 0.004, n=7))
    assert total.gain == pytest.approx(0.015)
    assert (total.low, total.high) == pytest.approx((0.01, 0.02))
    assert total.se == pytest.approx(0.0025)
    assert total.n == 7


def test_the_home_session_has_no_offset() -> None:
    e = known(0.02, 0.003)
    assert combine(e, None) is e


def test_an_unknown_offset_leaves_nothing_known() -> None:
    unknown = Estimate(gain=0.0, se=math.inf, low=-math.inf, high=math.inf, n=1)
    total = combine(known(0.02, 0.003), unknown)
    assert (total.se, total.low, total.high) == (math.inf, -math.inf, math.inf)


def test_intervals_of_different_levels_are_not_combined() -> None:
    with pytest.raises(ValueError, match="combined"):
        combine(known(0.02, 0.003), known(0.0, 0.001, level=0.9))


def test_a_combined_interval_covers() -> None:
    """An offset from 12 alternations and a candidate from 8 rounds, of quite different noise."""
    rng = np.random.default_rng(8)
    hits = 0
    for _ in range(300):
        candidate = estimate(0.02 + 0.003 * noise(rng, (8,), "t3", autocorrelation=0.1))
        offset = estimate(0.01 + 0.006 * noise(rng, (12,), "t3", autocorrelation=0.1))
        total = combine(candidate, offset)
        hits += total.low < 0.03 < total.high
    assert 0.93 <= hits / 300 <= 0.99
