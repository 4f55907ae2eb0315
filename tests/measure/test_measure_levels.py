"""The levels of noise told apart, and turns chosen by them: it helps, and it harms no verdict."""

from __future__ import annotations

import math

import numpy as np
import pytest
from measure_pairs import confirmations
from measure_samples import noise

from tuner.measure import (
    LOOKS,
    USUAL_TURNS,
    Pair,
    PairCost,
    noise_levels,
    pair_levels,
    pair_of,
    plan_pairs,
    process_sd_with,
    resolution,
    turns_within,
    turns_worth,
)

pytestmark = pytest.mark.slow

CPU = PairCost(setup_s=2.7, turn_s=0.12)
GPU = PairCost(setup_s=36.0, turn_s=0.6)


def made(rng: np.random.Generator, pairs: int, *, round_sd: float, process_sd: float, turns: int = 10) -> list[Pair]:
    rows = process_sd * rng.standard_normal((pairs, 1)) + round_sd * noise(rng, (pairs, turns), "normal")
    centres = np.median(rows, axis=1)
    spreads = 1.4826 * np.median(np.abs(rows - centres[:, None]), axis=1)
    return [Pair(log_ratio=float(c), spread=float(s), turns=turns) for c, s in zip(centres, spreads, strict=True)]


def test_a_pair_cancels_what_both_processes_share() -> None:
    drift = np.exp(np.linspace(0, 0.3, 10))
    found = pair_of(list(0.9 * drift), list(drift), together=True)
    assert found.log_ratio == pytest.approx(math.log(0.9))
    assert found.spread == pytest.approx(1e-5)
    apart = pair_of(list(0.9 * drift), list(drift), together=False)
    assert apart.log_ratio == pytest.approx(math.log(0.9))
    assert apart.spread > 0.05


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0])])
def test_turns_that_do_not_match_are_no_pair(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="make a pair"):
        pair_of(a, b, together=True)


@pytest.mark.parametrize(("round_sd", "process_sd"), [(0.01, 0.0), (0.01, 0.01), (0.002, 0.01)])
def test_the_levels_are_told_apart(round_sd: float, process_sd: float) -> None:
    rng = np.random.default_rng(0)
    found = noise_levels([made(rng, 400, round_sd=round_sd, process_sd=process_sd) for _ in range(2)])
    assert found is not None
    # Ten turns make a median absolute deviation come out a little small.
    assert 0.85 * round_sd < found.round < 1.1 * round_sd
    assert found.process == pytest.approx(process_sd, rel=0.15, abs=0.15 * round_sd)
    assert found.pair == pytest.approx(math.hypot(process_sd, round_sd * math.sqrt(math.pi / 2 / 10)), rel=0.15)
    assert found.pairs == 400


def test_levels_do_not_see_the_effect() -> None:
    """The choice of turns rests on them: they must be the same whatever the finalist gains."""
    row = made(np.random.default_rng(1), 5, round_sd=0.01, process_sd=0.01)
    moved = [Pair(log_ratio=p.log_ratio - 0.7, spread=p.spread, turns=p.turns) for p in row]
    one, other = noise_levels([row]), noise_levels([moved])
    assert one is not None
    assert other is not None
    assert (other.round, other.pairs) == (one.round, one.pairs)
    assert (other.process, other.pair) == (pytest.approx(one.process), pytest.approx(one.pair))


def test_one_pair_tells_no_level() -> None:
    assert noise_levels([[Pair(log_ratio=0.0, spread=0.01, turns=10)], []]) is None


def test_what_few_pairs_show_is_drawn_towards_what_was_assumed() -> None:
    few = pair_levels(0.02, 0.0, pairs=3)
    assert 0.001 < process_sd_with(few, 0.001) < 0.02
    many = pair_levels(0.02, 0.0, pairs=60)
    assert process_sd_with(many, 0.001) == pytest.approx(0.02, rel=0.02)
    assert pair_levels(0.001, 0.01, pairs=6).process == 0.0  # the rounds alone explain more


def test_turns_follow_the_level_that_dominates() -> None:
    assert turns_worth(0.02, 0.0, cost=GPU, margin=0.005) == 40
    assert turns_worth(0.001, 0.01, cost=GPU, margin=0.005) == 5
    assert turns_worth(0.0, 0.0, cost=GPU, margin=0.005) == 5
    middle = turns_worth(0.01, 0.005, cost=GPU, margin=0.005)
    assert 5 < middle < 40
    # Where a start costs little, further pairs are the better buy.
    assert turns_worth(0.01, 0.005, cost=PairCost(setup_s=0.6, turn_s=0.6), margin=0.005) < middle
    # Nobody needs a pair far more precise than the margin.
    assert turns_worth(0.001, 0.0, cost=GPU, margin=0.005) < turns_worth(0.001, 0.0, cost=GPU, margin=0.0005)


def test_the_best_use_of_time_is_where_the_formula_says() -> None:
    def cost_of_precision(turns: int) -> float:
        return (0.005**2 + 0.01**2 * math.pi / 2 * 1.1 / 0.9 / turns) * GPU.seconds(turns)

    best = turns_worth(0.01, 0.005, cost=GPU, margin=0.001)
    assert best == pytest.approx(min(range(1, 200), key=cost_of_precision), abs=1)


def test_turns_keep_to_the_time_and_to_the_fewest() -> None:
    assert turns_within(30, 12) == 12
    assert turns_within(30, 2) == 5
    assert turns_within(8, 12) == 8
    assert CPU.turns_in(CPU.seconds(10)) == 10
    assert CPU.turns_in(0.1) == 0


def test_a_short_time_still_has_six_pairs_of_the_usual_turns() -> None:
    plan = plan_pairs(0.01, 0.001, cost=GPU, seconds=0.0, margin=0.005)
    assert plan.looks == (6,)
    assert plan.turns <= USUAL_TURNS
    assert plan.resolution == resolution(0.01, 0.001, rounds=plan.turns, pairs=6, looks=(6,))


@pytest.mark.parametrize(("round_sd", "process_sd"), [(0.02, 0.0005), (0.005, 0.005), (0.001, 0.01)])
@pytest.mark.parametrize("pairs", [7, 9, 11, 14, 30])
def test_a_plan_keeps_to_its_time_and_more_time_resolves_more(pairs: int, round_sd: float, process_sd: float) -> None:
    seconds = pairs * GPU.seconds(USUAL_TURNS)
    plan = plan_pairs(round_sd, process_sd, cost=GPU, seconds=seconds, margin=0.005)
    assert plan.looks[-1] * GPU.seconds(plan.turns) <= seconds
    assert plan.looks == LOOKS[: len(plan.looks)]
    shorter = plan_pairs(round_sd, process_sd, cost=GPU, seconds=seconds / 1.5, margin=0.005)
    assert plan.resolution <= shorter.resolution


@pytest.mark.parametrize("cost", [CPU, GPU], ids=["cpu", "gpu"])
def test_longer_pairs_pay_where_rounds_are_the_noise(cost: PairCost) -> None:
    how = {"gain": 0.0065, "round_sd": 0.015, "process_sd": 0.0, "cost": cost}
    fixed = confirmations(150, adaptive=False, **how)  # type: ignore[arg-type]
    chosen = confirmations(150, adaptive=True, **how)  # type: ignore[arg-type]
    assert chosen.faster > fixed.faster + 0.05
    assert chosen.cost < fixed.cost


def test_shorter_pairs_pay_where_processes_are_the_noise() -> None:
    how = {"gain": 0.0105, "round_sd": 0.002, "process_sd": 0.008, "cost": CPU}
    fixed = confirmations(150, adaptive=False, **how)  # type: ignore[arg-type]
    chosen = confirmations(150, adaptive=True, **how)  # type: ignore[arg-type]
    assert chosen.seconds < 0.95 * fixed.seconds
    assert chosen.faster > fixed.faster - 0.05


@pytest.mark.parametrize(("kind", "round_sd", "process_sd"), [("t3", 0.015, 0.0), ("normal", 0.005, 0.004)])
def test_choosing_turns_makes_no_false_verdict(round_sd: float, process_sd: float, kind: str) -> None:
    """Nominal 0.5 %: 600 runs have at most eight with a chance of 99.6 %."""
    found = confirmations(600, gain=0.0, round_sd=round_sd, process_sd=process_sd, cost=CPU, adaptive=True, kind=kind)
    assert 600 * found.faster <= 8
