"""Racing: losers leave early, the best stays, however often one looks and however heavy the tails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from measure_samples import NOISES, noise
from numpy.typing import NDArray

from tuner.measure import RaceState, race
from tuner.measure.racing import log_evidence

pytestmark = pytest.mark.slow

MARGIN = 0.005


def rows(table: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    return {f"a{i}": row for i, row in enumerate(table)}


def arms(
    rng: np.random.Generator, gains: list[float], rounds: int, *, sd: float, kind: str = "normal"
) -> dict[str, NDArray[np.float64]]:
    own = sd * noise(rng, (len(gains), rounds), kind)
    return rows(
        np.asarray(gains)[:, None] + own + 3 * sd * noise(rng, (rounds,), kind)
    )  # the control's noise is shared


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("autocorrelation", [0.0, 0.1])
def test_evidence_for_an_effect_that_is_not_there_keeps_its_bound_over_all_looks(
    kind: str, autocorrelation: float
) -> None:
    """600 pairs of equal arms, 40 looks each: log(1/a) is ever reached with chance at most a."""
    rng = np.random.default_rng(len(kind))
    found = log_evidence(noise(rng, (600, 40), kind, autocorrelation=autocorrelation), min_rounds=4)
    for a in (0.2, 0.05, 0.01):
        assert np.mean(found >= math.log(1 / a)) <= a


def test_a_t_test_at_every_look_would_not_keep_that_bound() -> None:
    """Why racing needs more, and proof that the simulation above can fail."""
    x = noise(np.random.default_rng(1), (600, 40), "normal")
    n = np.arange(1, 41)
    mean = np.cumsum(x, axis=1) / n
    sd = np.sqrt(np.maximum(np.cumsum(x**2, axis=1) / n - mean**2, 1e-12) * n / np.maximum(n - 1, 1))
    assert np.mean((mean / sd * np.sqrt(n))[:, 5:].max(axis=1) > 2.0) > 0.1  # nominal 2.5 %


def test_an_effect_on_the_wrong_side_has_less_evidence_still() -> None:
    x = noise(np.random.default_rng(2), (200, 30), "normal")
    assert (log_evidence(x - 0.3) <= log_evidence(x)).all()


def test_what_was_certain_once_stays_certain() -> None:
    """Later rounds don't change what earlier ones said, so the largest evidence so far never falls."""
    x = noise(np.random.default_rng(19), (100, 30), "stalls") + 0.5
    paths = np.array([log_evidence(x[:, :n]) for n in range(4, 31)])
    assert (np.diff(paths, axis=0) >= -1e-9).all()


def test_evidence_depends_on_the_effect_in_units_of_the_noise_alone() -> None:
    x = noise(np.random.default_rng(3), (50, 20), "t3") + 0.5
    assert log_evidence(x) == pytest.approx(log_evidence(1000 * x), abs=1e-6)


@pytest.mark.parametrize("kind", ["t3", "stalls"])
def test_among_arms_of_equal_speed_the_named_one_is_rarely_dropped(kind: str) -> None:
    """Each of five equal arms is a best arm: it may be dropped with chance ≤ alpha, here in a race of 24 rounds."""
    rng = np.random.default_rng(7)
    dropped = [race(arms(rng, [0.0] * 5, 24, sd=0.01, kind=kind), alpha=0.1).dropped for _ in range(40)]
    assert np.mean([len(d) for d in dropped]) / 5 <= 0.1


@pytest.mark.parametrize("kind", NOISES)
def test_the_best_survives_and_wins_against_close_rivals(kind: str) -> None:
    rng = np.random.default_rng(11)
    for _ in range(20):
        state = race(arms(rng, [0.0, 0.002, 0.012, 0.001], 25, sd=0.004, kind=kind), alpha=0.02)
        assert "a2" in state.alive
    assert state.leader == "a2"


def test_a_hopeless_arm_leaves_after_a_handful_of_rounds() -> None:
    rng = np.random.default_rng(5)
    for gains in ([0.0, -2.3], [0.0, -0.2], [0.0] * 20 + [-2.3]):
        state = race(arms(rng, gains, 6, sd=0.005))
        assert f"a{len(gains) - 1}" in state.dropped


def test_one_stall_does_not_save_a_slow_arm() -> None:
    """Whenever the faster arm stalls, even in the first round; a plain t test would be blind for long."""
    rng = np.random.default_rng(6)
    table = np.stack([0.002 * rng.standard_normal(12), -0.02 + 0.002 * rng.standard_normal(12)])
    for stalled in range(12):
        now = table.copy()
        now[0, stalled] -= 0.5
        assert race(rows(now)).dropped.keys() == {"a1"}


def test_fewer_than_four_rounds_are_no_evidence() -> None:
    assert log_evidence(np.ones((1, 3)), min_rounds=1)[0] == -math.inf
    assert log_evidence(np.ones((1, 4)), min_rounds=1)[0] > 0


def test_noise_of_the_shared_control_does_not_hide_a_difference() -> None:
    rng = np.random.default_rng(8)
    control = 0.1 * rng.standard_normal(14)
    table = control + np.array([[0.01], [0.0]]) + 0.002 * rng.standard_normal((2, 14))
    state = race(rows(table))
    assert (state.leader, state.alive) == ("a0", ("a0",))
    assert "a0" in state.dropped["a1"]
    assert state.resolved


def test_an_arm_that_has_left_stays_out_whatever_comes_later() -> None:
    rng = np.random.default_rng(9)
    table = np.array([0.0, 0.004, 0.006, -0.01, -0.03])[:, None] + 0.004 * noise(rng, (5, 40), "t3")
    out: set[str] = set()
    for rounds in range(1, 41):
        state = race(rows(table[:, :rounds]), margin=MARGIN)
        assert out <= state.dropped.keys()
        out |= state.dropped.keys()
        for i in range(5):
            if f"a{i}" in out:
                table[i, rounds:] = np.nan
    assert "a4" in out


def test_nobody_leaves_before_the_first_rounds_are_over() -> None:
    table = np.array([[0.0] * 5, [-3.0] * 5])
    assert race(rows(table), min_rounds=6).alive == ("a0", "a1")
    assert race(rows(table), min_rounds=5).alive == ("a0",)


def test_arms_that_cannot_reach_the_margin_leave_but_a_useful_one_and_the_leader_stay() -> None:
    rng = np.random.default_rng(10)
    state = race(arms_without_shared_noise(rng, [0.0, 0.02, -0.004], 20), margin=MARGIN)
    assert state.alive == ("a1",)
    alone = race(arms_without_shared_noise(rng, [-0.02, -0.021], 30), margin=MARGIN)
    assert alone.alive == (alone.leader,)


def arms_without_shared_noise(
    rng: np.random.Generator, gains: list[float], rounds: int
) -> dict[str, NDArray[np.float64]]:
    return rows(np.asarray(gains)[:, None] + 0.002 * rng.standard_normal((len(gains), rounds)))


def test_a_futile_arm_is_told_why() -> None:
    """Between each other the two can't be told apart, but neither reaches 2 %."""
    table = 0.01 + 0.002 * np.random.default_rng(12).standard_normal((2, 12))
    state = race(rows(table), margin=math.log(1.02))
    assert len(state.alive) == 1
    assert next(iter(state.dropped.values())).startswith("can't beat the control by 2 %: speed +")
    assert "in 12 rounds" in next(iter(state.dropped.values()))


def test_without_a_margin_nobody_leaves_for_the_controls_sake() -> None:
    table = -0.05 + 0.001 * np.random.default_rng(13).standard_normal((2, 30))
    assert race(rows(table)).alive == ("a0", "a1")


def test_equal_arms_resolve_once_neither_can_be_better_by_the_margin() -> None:
    """Twins would race for ever; a margin ends it, and early on it does not."""
    table = 0.02 + 0.001 * np.random.default_rng(14).standard_normal((2, 40))
    assert not race(rows(table[:, :4]), margin=MARGIN).resolved
    late = race(rows(table), margin=MARGIN)
    assert late.resolved
    assert late.alive == ("a0", "a1")
    assert not race(rows(table)).resolved


def test_a_leader_worse_than_the_best_by_the_margin_is_rarely_called_resolved() -> None:
    rng = np.random.default_rng(15)
    wrong = 0
    for _ in range(100):
        state = race(arms_without_shared_noise(rng, [0.0, 0.0055], 12), margin=MARGIN, alpha=0.1)
        wrong += state.resolved and state.leader == "a0"
    assert wrong <= 10


def test_arms_may_come_late_and_are_compared_in_shared_rounds_alone() -> None:
    """The newcomer looks slower only because the rounds it missed were good ones for the other."""
    rng = np.random.default_rng(16)
    shift = np.where(np.arange(24) < 12, 0.1, 0.0)
    table = np.stack([shift, np.where(np.arange(24) < 12, np.nan, 0.001)]) + 0.002 * rng.standard_normal((2, 24))
    assert race(rows(table)).dropped == {}


def test_identical_arms_are_not_told_apart() -> None:
    row = 0.01 * np.random.default_rng(17).standard_normal(30)
    assert race({"a": row, "b": row}).dropped == {}


def test_a_lone_arm_leads_and_is_resolved_even_without_rounds() -> None:
    assert race({"a": []}) == RaceState(leader="a", alive=("a",), dropped={}, resolved=True)
    assert race({"a": [], "b": []}, margin=MARGIN) == RaceState(
        leader="a", alive=("a", "b"), dropped={}, resolved=False
    )


def test_more_arms_need_more_evidence() -> None:
    """The error budget is shared: what is enough between two arms is not among a thousand."""
    rng = np.random.default_rng(18)
    table = np.array([[0.0], [-0.012]]) + 0.003 * rng.standard_normal((2, 9))
    assert "a1" in race(rows(table)).dropped
    crowd = {f"absent{i}": [math.nan] * 9 for i in range(1000)}
    assert race(rows(table) | crowd).dropped == {}


@pytest.mark.parametrize(
    ("gains", "message"),
    [({}, "at least one"), ({"a": [0.0], "b": []}, "aligned"), ({"a": [math.inf]}, "infinite")],
)
def test_histories_that_are_none_are_refused(gains: dict[str, list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        race(gains)


def test_a_budget_outside_0_and_1_is_refused() -> None:
    with pytest.raises(ValueError, match="alpha"):
        race({"a": [0.0]}, alpha=0.0)
