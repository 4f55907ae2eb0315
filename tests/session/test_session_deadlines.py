"""Deadlines follow the control, never fall under the floor, and are values."""

from __future__ import annotations

import pytest

from tuner.protocol.messages import Arm
from tuner.session.deadlines import Deadlines

ARMS = [Arm(id="a", steps=9), Arm(id="b", steps=9)]


def test_learning_about_the_control_makes_a_new_value() -> None:
    first = Deadlines()
    second = first.with_control(compile_s=12.0)
    third = second.with_control(step_s=0.1, load_s=3.0)
    assert first == Deadlines()
    assert second == Deadlines(compile_s=12.0)
    assert third == Deadlines(compile_s=12.0, step_s=0.1, load_s=3.0)


def test_before_the_control_is_known_every_phase_is_generous() -> None:
    limits = Deadlines()
    assert limits.load() >= 600
    assert limits.compile(1) >= 600
    assert limits.round(ARMS) >= 300
    assert limits.numerics(100) >= 300
    assert limits.probe(300) >= 300
    assert limits.pgle(3) >= 600
    assert limits.profile(3) >= 300
    assert limits.start() >= 60
    assert limits.release() >= 30


def test_what_opens_a_round_has_time_as_well() -> None:
    limits = Deadlines().with_control(step_s=1.0)
    opened = [Arm(id="a", steps=9, opening=100), ARMS[1]]
    assert limits.round(opened) == pytest.approx(limits.round(ARMS) + 100 * limits.factor)


def test_a_small_control_leaves_the_floor() -> None:
    limits = Deadlines().with_control(load_s=0.1, compile_s=0.1, step_s=1e-6)
    assert limits.load() == limits.compile(1) == limits.floor_s
    assert limits.round(ARMS) == pytest.approx(limits.floor_s, rel=0.01)


def test_limits_grow_with_the_control_and_the_work() -> None:
    limits = Deadlines().with_control(load_s=20.0, compile_s=12.0, step_s=0.5)
    assert limits.load() == 200.0
    assert limits.compile(1) == 120.0
    assert limits.compile(8) == pytest.approx(120 * (1 + 7 / 3))
    assert limits.compile(8, threads=8) < limits.compile(8)
    assert limits.round(ARMS) == limits.floor_s + 20 * 20 * 0.5
    assert limits.numerics(100) > limits.numerics(10)
    assert limits.profile(30) > limits.profile(3)
    assert limits.pgle(3) > limits.profile(3)


@pytest.mark.parametrize("variants", [1, 8, 32])
def test_a_batch_that_compiles_like_the_control_one_after_another_is_in_time(variants: int) -> None:
    limits = Deadlines().with_control(compile_s=12.0)
    assert limits.compile(variants, threads=8) > 1.5 * variants * 12.0
