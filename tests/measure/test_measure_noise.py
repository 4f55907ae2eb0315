"""Noise, steadiness, blocks, and what a plan can resolve."""

from __future__ import annotations

import math

import numpy as np
import pytest
from measure_samples import noise

from tuner.measure import (
    Verdict,
    confirm,
    control_noise,
    opens_apart,
    resolution,
    steady_after,
    steps_per_block,
)

pytestmark = pytest.mark.slow


def test_the_noise_of_a_round_is_told_from_a_twin_of_the_control() -> None:
    gains = 0.01 * np.random.default_rng(0).standard_normal(400)
    found = control_noise(gains, [0.1] * 400)
    assert found.sd == pytest.approx(0.01, rel=0.1)
    assert abs(found.bias) < 0.002
    assert found.drift == 0.0
    assert abs(found.autocorrelation) < 0.12
    assert found.n == 400


def test_what_begins_a_round_is_told_from_what_follows() -> None:
    rng = np.random.default_rng(5)

    def rounds(effect: float, *, sd: float = 0.005, n: int = 12) -> list[tuple[float, float]]:
        logs = sd * rng.standard_normal((n, 2))
        return [(0.1 * math.exp(a - effect), 0.1 * math.exp(b)) for a, b in logs]

    assert all(opens_apart(rounds(0.02), 0.005) for _ in range(50))
    assert all(opens_apart(rounds(-0.02), 0.005) for _ in range(50))
    assert sum(opens_apart(rounds(0.0), 0.005) for _ in range(400)) <= 28  # 5 %, or less
    assert not any(opens_apart(rounds(0.001, sd=0.0001), 0.005) for _ in range(50))  # plain, and no matter
    with pytest.raises(ValueError, match="positive"):
        opens_apart([(0.1, 0.0)] * 12, 0.005)


def test_a_few_stalls_do_not_pass_for_noise() -> None:
    gains = 0.01 * np.random.default_rng(1).standard_normal(200)
    gains[::20] -= 1.0
    assert control_noise(gains, [0.1] * 200).sd == pytest.approx(0.01, rel=0.25)


def test_a_twin_that_differs_from_its_control_widens_the_noise() -> None:
    """The truth is 0: a steady bias is an error like any other."""
    found = control_noise([0.02] * 10, [0.1] * 10)
    assert found.sd == pytest.approx(0.02 * 1.4826)
    assert found.bias == pytest.approx(0.02)


def test_drift_is_the_change_over_the_record_and_survives_outliers() -> None:
    rounds = np.arange(30)
    times = 0.1 * np.exp(0.013 * rounds / 29)
    times[7] *= 3
    gains = 0.001 * np.random.default_rng(2).standard_normal(30)
    assert control_noise(gains, times).drift == pytest.approx(0.013, rel=0.01)
    # Half of the rounds came in the last tenth of the time: by the clock the drift is what it was at its end.
    clock = np.where(rounds < 15, rounds, 15 + rounds / 100)
    assert control_noise(gains, np.exp(0.01 * clock), starts_s=clock).drift == pytest.approx(0.01 * clock[-1])


def test_rounds_that_depend_on_each_other_show() -> None:
    gains = noise(np.random.default_rng(3), (300,), "t3", autocorrelation=0.5)
    assert 0.3 < control_noise(gains, [0.1] * 300).autocorrelation < 0.7


def test_equal_gains_are_a_coarse_clock_and_not_silence() -> None:
    assert control_noise([0.0] * 5, [0.1] * 5).sd == 1e-5


def test_noise_cannot_be_told_from_two_rounds_or_from_rows_that_do_not_match() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        control_noise([0.1, math.nan, 0.2], [0.1] * 3)
    with pytest.raises(ValueError, match="one a round"):
        control_noise([0.1] * 4, [0.1] * 3)
    with pytest.raises(ValueError, match="positive"):
        control_noise([0.1] * 3, [0.1, 0.0, 0.1])


def warmed_up(first: list[float], *, n: int = 16, sd: float = 0.003, seed: int = 0) -> list[float]:
    level = np.concatenate([first, np.zeros(n - len(first))])
    return [float(t) for t in 0.1 * np.exp(level + sd * noise(np.random.default_rng(seed), (n,), "normal"))]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ([], 0),
        ([0.3], 1),
        ([0.3, 0.2, 0.1], 3),
        ([-0.1, -0.1], 2),  # too fast at first: clocks that boost
    ],
)
def test_what_comes_before_the_steady_state_is_discarded(first: list[float], expected: int) -> None:
    assert steady_after(warmed_up(first)) == expected


def test_a_slow_decay_is_discarded_down_to_the_noise() -> None:
    found = steady_after(warmed_up([0.5 * 0.5**i for i in range(12)], n=40, sd=0.002))
    assert found is not None
    assert 5 <= found <= 8


@pytest.mark.parametrize("kind", ["normal", "t3", "stalls"])
def test_a_steady_record_is_hardly_ever_called_anything_else(kind: str) -> None:
    rng = np.random.default_rng(4)
    found = [steady_after(0.1 * np.exp(0.01 * noise(rng, (16,), kind, autocorrelation=0.1))) for _ in range(200)]
    assert sum(f is None for f in found) <= 4
    assert sum(f or 0 for f in found) / 200 < 0.5


def test_a_stall_in_the_middle_discards_nothing() -> None:
    times = warmed_up([])
    times[4] *= 2
    assert steady_after(times) == 0


def test_an_ordinary_drift_is_steady() -> None:
    times = np.asarray(warmed_up([])) * np.exp(0.01 * np.arange(16) / 16)
    assert steady_after(list(times)) in (0, 1, 2)


@pytest.mark.parametrize(
    "level",
    [
        0.6 * np.arange(16) / 16,  # a card that throttles more and more
        np.where(np.arange(16) < 10, 0.0, 0.1),  # a jump in the later half
        np.where(np.arange(16) < 12, 0.0, 0.1),
        0.5 * 0.9 ** np.arange(16),  # still warming up at the end
    ],
)
def test_times_that_never_settle_are_noticed(level: np.ndarray) -> None:  # type: ignore[type-arg]
    assert steady_after([float(t) for t in np.asarray(warmed_up([])) * np.exp(level)]) is None


def test_too_few_blocks_cannot_be_told() -> None:
    assert steady_after([0.1] * 5) is None
    assert steady_after([0.1] * 6) == 0


@pytest.mark.parametrize(("step_s", "expected"), [(0.2, 1), (1.0, 1), (0.01, 20), (0.0003, 667), (0.13, 2)])
def test_a_block_holds_the_steps_that_fill_its_time(step_s: float, expected: int) -> None:
    assert steps_per_block(step_s) == expected


@pytest.mark.parametrize("step_s", [0.0, -1.0, math.nan, math.inf])
def test_a_step_without_a_time_fills_no_block(step_s: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        steps_per_block(step_s)


def test_the_resolution_is_the_gain_that_is_found_four_times_in_five() -> None:
    """Simulated to the verdict, each pair the median of twelve rounds; the formula is a little careful."""
    rng = np.random.default_rng(5)
    for pairs, looks in ((6, (6,)), (6, (6, 8, 10, 12)), (12, (6, 8, 10, 12))):
        gain = resolution(0.01, 0.004, rounds=12, pairs=pairs, looks=looks)
        within = np.median(0.01 * noise(rng, (250, pairs, 12), "normal", autocorrelation=0.1), axis=2)
        rows = gain + 0.004 * rng.standard_normal((250, pairs)) + within
        states = [confirm({"f": row}, margin=0.0, looks=looks) for row in rows]
        assert 0.75 < np.mean([s.verdicts["f"] is Verdict.FASTER for s in states]) < 0.92


def test_more_pairs_more_rounds_and_fewer_finalists_resolve_more() -> None:
    base = resolution(0.01, 0.001, rounds=10, pairs=6)
    assert resolution(0.01, 0.001, rounds=10, pairs=12) < base
    assert resolution(0.01, 0.001, rounds=20, pairs=6) < base
    assert resolution(0.01, 0.001, rounds=10, pairs=6, finalists=2) > base
    assert resolution(0.01, 0.001, rounds=10, pairs=7) == base  # the look at six is the last within seven
    # Six pairs of a planned twelve face a stricter boundary than six that are all there will be.
    assert resolution(0.01, 0.001, rounds=10, pairs=6, looks=(6,)) < 0.7 * base
    # Rounds do not average out what differs between processes.
    assert resolution(0.01, 0.01, rounds=10_000, pairs=6) > 0.01


@pytest.mark.parametrize(("rounds", "pairs"), [(10, 5), (10, 0), (0, 6)])
def test_without_pairs_or_rounds_nothing_is_resolved(rounds: int, pairs: int) -> None:
    assert resolution(0.01, 0.001, rounds=rounds, pairs=pairs) == math.inf
