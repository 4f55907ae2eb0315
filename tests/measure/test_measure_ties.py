"""Ties go to the default, then to fewer settings, then to less memory."""

from __future__ import annotations

import random

from tuner.knobs.config import DEFAULT, Config
from tuner.measure import Estimate, smallest_not_inferior, tie_break

ONE, OTHER = Config.of({"a": "1"}), Config.of({"b": "1"})
TWO = Config.of({"a": "1", "b": "1"})


def test_the_order_is_default_then_fewer_settings_then_less_memory() -> None:
    ordered = [(DEFAULT, 9 << 30), (ONE, 1 << 30), (OTHER, 2 << 30), (Config.of({"c": "1"}), None), (TWO, 1 << 20)]
    shuffled = random.Random(0).sample(ordered, len(ordered))
    assert sorted(shuffled, key=lambda entry: tie_break(len(entry[0]), entry[1])) == ordered


def test_memory_that_hardly_differs_decides_nothing() -> None:
    assert tie_break(1, 1_000_000_000) == tie_break(1, 1_010_000_000)
    assert tie_break(1, 1_000_000_000) < tie_break(1, 1_100_000_000)


def test_reducing_keeps_to_it_among_configs_that_lose_too_little_to_tell() -> None:
    def near(gain: float) -> Estimate:
        return Estimate(gain=gain, se=1e-4, low=gain - 2e-4, high=gain + 2e-4, n=20)

    losses = {ONE: near(-1e-4), OTHER: near(-2e-4)}
    assert smallest_not_inferior(losses, full=TWO, allowed=0.0025)[0] == ONE
    peaks = {ONE: 4 << 30, OTHER: 2 << 30}
    assert smallest_not_inferior(losses, full=TWO, allowed=0.0025, peaks=peaks)[0] == OTHER
    assert smallest_not_inferior({ONE: near(-1.0)}, full=TWO, allowed=0.0025, peaks=peaks)[0] == TWO
