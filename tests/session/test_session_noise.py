"""NoiseModel: each part of it has the size, tails, memory and sharing that its fields say."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise
from statistics import fmean, pstdev

import msgspec
import pytest

from tuner.session.noise import NoiseModel, OwnNoise, SharedNoise, heavy_tailed, process_effect

pytestmark = pytest.mark.slow  # statistics of tens of thousands of draws


def test_tails_are_as_heavy_as_asked_for_at_variance_1() -> None:
    def draws(tail: float) -> list[float]:
        rng = random.Random(0)
        return [heavy_tailed(rng, tail) for _ in range(40_000)]

    far = {tail: sum(abs(d) > 4 for d in draws(tail)) / 40_000 for tail in (0.0, 0.2, 0.4)}
    assert far[0.0] < 2e-4  # of a normal, 6.3e-5 lie beyond 4
    assert far[0.2] == pytest.approx(0.0036, rel=0.25)  # of t with five degrees of freedom
    assert pstdev(draws(0.0)) == pytest.approx(1, rel=0.02)
    assert pstdev(draws(0.2)) == pytest.approx(1, rel=0.05)


def test_a_block_remembers_the_one_before() -> None:
    own = OwnNoise(random.Random(1), NoiseModel(block_sd=2.0, block_tail=0.2, block_memory=0.6))
    walk = [own.next(1.0) for _ in range(40_000)]
    lag = fmean(a * b for a, b in pairwise(walk)) / fmean(a * a for a in walk)
    assert lag == pytest.approx(0.6, abs=0.03)
    assert pstdev(walk) == pytest.approx(2.0, rel=0.1)


def test_a_short_block_is_noisier_and_a_long_one_not_quieter() -> None:
    def sd(seconds: float) -> float:
        own = OwnNoise(random.Random(1), NoiseModel(block_sd=0.5, block_s=0.2))
        return pstdev([own.next(seconds) for _ in range(20_000)])

    assert sd(0.2) == pytest.approx(0.5, rel=0.03)
    assert sd(0.05) == pytest.approx(1.0, rel=0.03)
    assert sd(0.8) == sd(0.2)


def test_a_process_has_one_of_two_speeds() -> None:
    rng, model = random.Random(2), NoiseModel(process_modes=0.04)
    found = Counter(round(process_effect(rng, model), 6) for _ in range(2000))
    assert found.keys() == {-0.02, 0.02}
    assert found[0.02] == pytest.approx(1000, abs=100)
    spread = [process_effect(rng, NoiseModel(process_modes=0.04, process_sd=0.03)) for _ in range(20_000)]
    assert pstdev(spread) == pytest.approx(math.hypot(0.02, 0.03), rel=0.03)
    assert fmean(spread) == pytest.approx(0, abs=0.001)


def over(model: NoiseModel, *, every_s: float, count: int, seed: int = 3) -> list[float]:
    shared = SharedNoise(random.Random(seed), model)
    return [shared.over(i * every_s, every_s) for i in range(count)]


def test_the_machines_level_forgets_itself() -> None:
    levels = over(NoiseModel(machine_sd=0.5, machine_s=4.0), every_s=1.0, count=40_000)
    lag = fmean(a * b for a, b in pairwise(levels)) / fmean(a * a for a in levels)
    assert pstdev(levels) == pytest.approx(0.5, rel=0.05)
    assert lag == pytest.approx(math.exp(-1 / 4), abs=0.02)


def test_a_drift_spreads_with_the_root_of_time() -> None:
    levels = over(NoiseModel(drift_sd=0.01), every_s=1.0, count=60_000)
    minutes = [b - a for a, b in zip(levels, levels[60:], strict=False)]
    assert pstdev(minutes) == pytest.approx(0.01, rel=0.15)
    assert pstdev(b - a for a, b in pairwise(levels)) == pytest.approx(0.01 / math.sqrt(60), rel=0.05)


def test_stalls_are_windows_that_cost_time() -> None:
    model = NoiseModel(stalls=6.0, stall_s=0.5, stall_size=2.0)
    levels = over(model, every_s=0.1, count=200_000)
    extra = [math.expm1(level) for level in levels]
    busy = 6.0 / 60 * 0.5  # share of the time that lies in a stall, were the next to begin at once
    assert fmean(extra) == pytest.approx(2.0 * busy / (1 + busy), rel=0.1)
    assert 0.03 < fmean(e > 0 for e in extra) < 0.09
    assert fmean(b > 0 for a, b in pairwise(extra) if a > 0) > 0.7  # a window is longer than a block


def test_unrest_comes_and_goes() -> None:
    shared = SharedNoise(random.Random(4), NoiseModel(block_sd=0.01, unrest=0.7))
    logs = []
    for i in range(30_000):
        assert shared.over(float(i), 0.1) == 0.0  # it moves no level
        logs.append(math.log(shared.unrest()))
    assert pstdev(logs) == pytest.approx(0.7, rel=0.1)
    lag = fmean(a * b for a, b in pairwise(logs)) / fmean(a * a for a in logs)
    assert lag == pytest.approx(math.exp(-1 / 10), abs=0.02)


def test_what_is_not_given_is_not_there() -> None:
    silent = NoiseModel()
    assert set(over(silent, every_s=1.0, count=100)) == {0.0}
    assert process_effect(random.Random(0), silent) == 0.0
    assert OwnNoise(random.Random(0), silent).next(1.0) == 0.0


@pytest.mark.parametrize(
    "fields",
    [
        {"block_sd": -0.1},
        {"machine_sd": math.inf},
        {"block_tail": 0.5},
        {"block_memory": 1.0},
        {"stall_s": 0.0},
        {"machine_s": 0.0},
    ],
)
def test_impossible_noise_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"block_|machine_|stall_|correlation"):
        NoiseModel(**fields)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, NoiseModel)


def test_a_model_keeps_through_json() -> None:
    model = NoiseModel(block_sd=0.01, block_tail=0.3, trend=-0.002)
    assert msgspec.json.decode(msgspec.json.encode(model), type=NoiseModel) == model
