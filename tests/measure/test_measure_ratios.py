"""Rounds: the order of their arms, and gains against the interpolated control."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tuner.measure import log_ratios, schedule
from tuner.protocol.messages import Block


def block(name: str, step_s: float, *, steps: int = 10, first_s: float | None = None) -> Block:
    return Block(id=name, steps=steps, seconds=steps * step_s, first_s=step_s if first_s is None else first_s)


@pytest.mark.parametrize("arms", [1, 2, 3, 4, 5, 9, 16, 33, 100])
def test_every_arm_comes_once_among_about_root_m_evenly_spread_controls(arms: int) -> None:
    names = [f"a{i}" for i in range(arms)]
    order = schedule(names, control="c", rng=np.random.default_rng(arms))
    assert sorted(n for n in order if n != "c") == sorted(names)
    places = [i for i, n in enumerate(order) if n == "c"]
    if arms >= 2:
        assert (places[0], places[-1]) == (0, len(order) - 1)
        assert abs(len(places) - 1 - math.sqrt(arms)) <= 0.5
        gaps = np.diff(places)
        assert gaps.max() - gaps.min() <= 1


def test_the_order_of_arms_is_random_and_comes_from_the_generator_alone() -> None:
    names = [f"a{i}" for i in range(6)]
    firsts = {tuple(schedule(names, control="c", rng=np.random.default_rng(s))) for s in range(20)}
    again = {tuple(schedule(names, control="c", rng=np.random.default_rng(s))) for s in range(20)}
    assert len(firsts) > 15
    assert firsts == again


def test_a_single_arm_stands_before_or_after_its_control_about_equally_often() -> None:
    rng = np.random.default_rng(0)
    orders = [schedule(["a"], control="c", rng=rng) for _ in range(400)]
    assert 160 < sum(o == ["c", "a"] for o in orders) < 240
    assert {tuple(o) for o in orders} == {("c", "a"), ("a", "c")}


@pytest.mark.parametrize("arms", [[], ["a", "a"], ["a", "c"]])
def test_a_round_without_different_arms_beside_the_control_is_refused(arms: list[str]) -> None:
    with pytest.raises(ValueError, match="arm"):
        schedule(arms, control="c", rng=np.random.default_rng(0))


def test_a_gain_is_minus_the_log_of_the_time_ratio() -> None:
    gains = log_ratios([block("c", 0.010), block("fast", 0.008), block("slow", 0.020), block("c", 0.010)], "c")
    assert gains == pytest.approx({"fast": math.log(10 / 8), "slow": -math.log(2)})


def test_blocks_of_different_length_are_compared_by_the_step() -> None:
    gains = log_ratios([block("c", 0.01, steps=20), block("a", 0.01, steps=3)], "c")
    assert gains == pytest.approx({"a": 0.0})


def test_a_drift_that_is_linear_in_time_leaves_no_trace() -> None:
    """The machine slows down by 8 % within the round; gains are exact all the same, wherever an arm stands."""
    rng = np.random.default_rng(3)
    truth = {f"a{i}": 0.01 * i for i in range(9)} | {"c": 0.0}
    order = schedule([n for n in truth if n != "c"], control="c", rng=rng)
    blocks, now = [], 0.0
    for name in order:
        seconds = 0.2 / (1 - 0.02 * 0.1)
        for _ in range(50):  # the block whose middle lies where the drift says
            level = 0.02 * (now + 0.001 + seconds / 2)
            seconds = 0.2 * math.exp(level - truth[name])
        blocks.append(Block(id=name, steps=10, seconds=seconds, first_s=0.001))
        now += 0.001 + seconds
    for name, gain in log_ratios(blocks, "c").items():
        assert gain == pytest.approx(truth[name], abs=1e-9)


def test_an_arm_outside_its_controls_is_compared_with_the_nearest() -> None:
    gains = log_ratios([block("a", 0.01), block("c", 0.01), block("c", 0.02), block("b", 0.02)], "c")
    assert gains == pytest.approx({"a": 0.0, "b": 0.0})


def test_of_several_blocks_of_one_arm_the_median_counts() -> None:
    blocks = [block("c", 0.01), block("a", 0.01), block("a", 0.5), block("a", 0.01), block("c", 0.01)]
    assert log_ratios(blocks, "c") == pytest.approx({"a": 0.0})


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_refused_by_name(seconds: float) -> None:
    bad = Block(id="weird", steps=1, seconds=seconds, first_s=0.1)
    with pytest.raises(ValueError, match=rf"weird.*{seconds!r}"):
        log_ratios([block("c", 0.01), bad], "c")


def test_a_discarded_step_without_a_time_and_a_block_without_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="weird"):
        log_ratios([block("c", 0.01), Block(id="weird", steps=1, seconds=0.1, first_s=math.nan)], "c")
    with pytest.raises(ValueError, match="0 steps"):
        log_ratios([Block(id="c", steps=0, seconds=0.1, first_s=0.1)], "c")


def test_a_round_without_its_control_is_refused() -> None:
    with pytest.raises(ValueError, match="control"):
        log_ratios([block("a", 0.01)], "c")
