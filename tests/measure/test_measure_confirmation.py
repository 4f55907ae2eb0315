"""Confirmation: error rates over looks and finalists, power, and that nothing is claimed that can't be computed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from measure_samples import noise

from tuner.measure import ConfirmState, Verdict, confirm
from tuner.measure.confirmation import FALSE_FASTER, boundaries, critical_t

pytestmark = pytest.mark.slow

MARGIN = 0.005


def around(gain: float, sd: float, n: int = 12, *, seed: int = 0) -> list[float]:
    """n log ratios with exactly this mean and standard deviation at every even n."""
    signs = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    return [float(x) for x in gain + sd * signs]


@pytest.mark.parametrize(
    ("looks", "error", "tabled"),
    [
        ((1, 2), 0.025, (2.963, 1.969)),
        ((1, 2, 3, 4), 0.025, (4.333, 2.963, 2.359, 2.014)),
        ((1, 2, 3, 4, 5), 0.025, (4.877, 3.357, 2.680, 2.290, 2.031)),
        ((6,), 0.025, (1.960,)),
    ],
)
def test_boundaries_are_the_published_ones(looks: tuple[int, ...], error: float, tabled: tuple[float, ...]) -> None:
    """O'Brien–Fleming-like spending of 0.025 one-sided at equally spaced looks, as tabled in textbooks."""
    assert boundaries(looks, error) == pytest.approx(tabled, abs=2e-3)


def test_a_look_that_spends_nothing_can_prove_nothing() -> None:
    assert boundaries((2, 1000), 0.025)[0] == math.inf
    state = confirm({"f": [1.0, 1.001]}, margin=MARGIN, looks=(2, 1000))
    assert state.verdicts == {"f": Verdict.UNCLEAR}


@pytest.mark.parametrize("looks", [(6,), (6, 8, 10, 12), (3, 6, 9, 12), (2, 4, 6), (6, 12)])
@pytest.mark.parametrize("error", [0.025, 0.0125, FALSE_FASTER])
def test_any_look_exceeds_its_critical_t_no_more_often_than_the_error(looks: tuple[int, ...], error: float) -> None:
    x = np.random.default_rng(looks[-1]).standard_normal((40_000, looks[-1]))
    crossed = np.zeros(len(x), bool)
    for index, n in enumerate(looks):
        sums, squares = x[:, :n].sum(axis=1), (x[:, :n] ** 2).sum(axis=1)
        t = sums / np.sqrt(n * (squares - sums**2 / n) / (n - 1))
        crossed |= t > critical_t(looks, index, error)
    assert 0.85 * error < crossed.mean() <= error + 2 * math.sqrt(error / len(x))


def test_a_false_faster_is_as_rare_as_is_said_over_all_looks_and_finalists() -> None:
    """Two finalists that do nothing and share the default's process in each pair; margin 0, so any claim counts."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(800):
        default, *finalists = 0.005 * noise(rng, (3, 12), "t3")
        state = confirm({"f": default - finalists[0], "g": default - finalists[1]}, margin=0.0)
        wrong += Verdict.FASTER in state.verdicts.values()
    assert wrong / 800 <= FALSE_FASTER + 2 * math.sqrt(FALSE_FASTER / 800)


def test_a_finalist_that_does_nothing_gains_no_chance_from_a_proven_one() -> None:
    """Holm passes the proven finalist's share on; the other's error stays within the whole."""
    rng = np.random.default_rng(2)
    wrong = 0
    for _ in range(2000):
        state = confirm({"f": 0.1 + 0.005 * rng.standard_normal(12), "g": 0.005 * rng.standard_normal(12)}, margin=0.0)
        assert state.verdicts["f"] is Verdict.FASTER
        wrong += state.verdicts["g"] is Verdict.FASTER
    assert 0.5 * FALSE_FASTER < wrong / 2000 <= FALSE_FASTER + 2 * math.sqrt(FALSE_FASTER / 2000)


def test_intervals_of_all_finalists_cover_together_whenever_one_looks() -> None:
    """At margin 0 an interval that misses 0 decides its finalist, and stays: one call sees the misses of all looks."""
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(800):
        state = confirm(dict(zip("fg", 0.005 * rng.standard_normal((2, 12)), strict=True)), margin=0.0)
        missed += any(not e.low <= 0 <= e.high for e in state.estimates.values())
    assert missed / 800 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 800)


def test_a_clear_gain_is_proven_at_the_first_look_and_a_small_one_at_the_last() -> None:
    rng = np.random.default_rng(4)
    clear = [confirm({"f": 0.05 + 0.005 * rng.standard_normal(6)}, margin=MARGIN) for _ in range(200)]
    assert np.mean([s.done and s.verdicts["f"] is Verdict.FASTER for s in clear]) > 0.95
    small = [confirm({"f": 0.01 + 0.006 * rng.standard_normal(12)}, margin=MARGIN) for _ in range(200)]
    assert np.mean([s.verdicts["f"] is Verdict.FASTER for s in small]) > 0.95
    early = [confirm({"f": 0.01 + 0.006 * rng.standard_normal(6)}, margin=MARGIN) for _ in range(200)]
    assert np.mean([s.verdicts["f"] is Verdict.FASTER for s in early]) < 0.4


def test_each_verdict_is_reached() -> None:
    for gain, expected in ((0.03, Verdict.FASTER), (-0.03, Verdict.SLOWER), (0.0, Verdict.SAME)):
        state = confirm({"f": around(gain, 0.002)}, margin=MARGIN)
        assert state.verdicts == {"f": expected}
        assert state.done
        assert state.estimates["f"].gain == pytest.approx(gain, abs=1e-9)
    assert confirm({"f": around(0.005, 0.02)}, margin=MARGIN).verdicts == {"f": Verdict.UNCLEAR}


def test_pairs_between_two_looks_wait_for_the_next() -> None:
    row = around(0.004, 0.006)
    at_six, at_seven, at_eight = (confirm({"f": row[:n]}, margin=MARGIN) for n in (6, 7, 8))
    assert at_six == at_seven
    assert at_eight.estimates["f"].n == 8
    assert (at_six.next_look, at_eight.next_look) == (8, 10)


def test_early_looks_are_stricter() -> None:
    """The same spread, the same mean: the interval at six pairs is far wider than pairs alone would make it."""
    widths = []
    for n in (6, 8, 10, 12):
        e = confirm({"f": around(0.0, 0.01, n)}, margin=1e-6).estimates["f"]
        widths.append((e.high - e.low) / (2 * e.se))
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 2 * widths[-1]
    assert widths[-1] > 2.2  # t with 11 degrees of freedom would be 2.201 without looking before


@pytest.mark.parametrize("row", [[], [0.5], [0.5] * 5])
def test_before_the_first_look_nothing_is_claimed(row: list[float]) -> None:
    state = confirm({"f": row}, margin=MARGIN)
    assert state.verdicts == {"f": Verdict.UNCLEAR}
    assert (state.estimates["f"].se, state.estimates["f"].high) == (math.inf, math.inf)
    assert not state.done
    assert state.next_look == 6


def test_equal_log_ratios_are_not_infinitely_certain() -> None:
    e = confirm({"f": [0.01] * 6}, margin=MARGIN).estimates["f"]
    assert e.se == pytest.approx(1e-4 / math.sqrt(6))
    assert e.low < 0.01 < e.high
    assert confirm({"f": [0.0] * 12}, margin=0.0).verdicts == {"f": Verdict.UNCLEAR}


def test_a_decided_finalist_keeps_the_estimate_that_decided() -> None:
    first = confirm({"f": around(0.03, 0.002, 6)}, margin=MARGIN)
    later = confirm({"f": [*around(0.03, 0.002, 6), *around(-0.5, 0.1, 6)]}, margin=MARGIN)
    assert first == later
    assert later.estimates["f"].n == 6


def test_a_noisy_finalist_does_not_blur_a_quiet_one() -> None:
    quiet = around(0.02, 0.002, 6)
    beside = confirm({"f": quiet, "g": around(0.0, 0.2, 6)}, margin=MARGIN)
    beside_quiet = confirm({"f": quiet, "g": around(0.0, 0.0021, 6)}, margin=MARGIN)
    assert beside.estimates["f"] == beside_quiet.estimates["f"]


def test_a_second_finalist_costs_precision_until_the_first_is_proven() -> None:
    row = around(0.007, 0.006, 12)
    alone = confirm({"g": row}, margin=0.0).estimates["g"]
    beside_nothing = confirm({"f": around(0.0, 0.02), "g": row}, margin=0.0).estimates["g"]
    beside_proven = confirm({"f": around(0.05, 0.001), "g": row}, margin=0.0).estimates["g"]
    assert beside_nothing.low < alone.low
    assert beside_proven.low == pytest.approx(alone.low)
    assert beside_proven.high > alone.high


def test_done_when_a_proven_finalist_has_the_undecided_ones_behind_it() -> None:
    behind = confirm({"f": around(0.05, 0.002, 6), "g": around(0.01, 0.02, 6)}, margin=MARGIN)
    assert (behind.done, behind.next_look) == (True, None)
    assert behind.verdicts == {"f": Verdict.FASTER, "g": Verdict.UNCLEAR}
    ahead = confirm({"f": around(0.05, 0.002, 6), "g": around(0.08, 0.08, 6)}, margin=MARGIN)
    assert (ahead.done, ahead.next_look) == (False, 8)


def test_the_last_look_ends_it_undecided_or_not() -> None:
    state = confirm({"f": around(0.005, 0.02)}, margin=MARGIN)
    assert (state.done, state.next_look, state.verdicts["f"]) == (True, None, Verdict.UNCLEAR)


def test_nothing_to_confirm_is_done() -> None:
    assert confirm({}, margin=MARGIN) == ConfirmState(done=True, estimates={}, verdicts={}, next_look=None)


def test_a_short_budget_may_plan_a_single_look() -> None:
    state = confirm({"f": [0.05, 0.051, 0.049]}, margin=MARGIN, looks=(3,))
    assert state.verdicts == {"f": Verdict.FASTER}
    assert state.done


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_log_ratio_that_is_not_finite_is_refused_by_name(bad: float) -> None:
    with pytest.raises(ValueError, match="'f'"):
        confirm({"f": [0.1, bad]}, margin=MARGIN)


@pytest.mark.parametrize("looks", [(), (1, 6), (6, 6), (8, 6)])
def test_looks_that_are_no_plan_are_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="looks"):
        confirm({"f": [0.1] * 8}, margin=MARGIN, looks=looks)
