"""FakeSession under objectives besides the mean: quantiles, several steps, work, memory."""

from __future__ import annotations

import math

import pytest
from session_recorder import launch_of, variant_of

from tuner.knobs.config import Config
from tuner.protocol.messages import Arm, Block, Compiled, Variant
from tuner.session.fake_machine import FakeMachine
from tuner.session.noise import NoiseModel

QUIET = NoiseModel()
SET = Config.of({"xla_a": "1"})


def timed(machine: FakeMachine, arm: Arm) -> Block:
    """One block in a session of its own."""
    session = machine.factory(launch_of())
    session.start()
    session.compile([Variant(id="control"), variant_of(SET)])
    (block,) = session.round([arm])
    assert isinstance(block, Block)
    return block


def test_only_far_quantiles_see_the_slow_steps() -> None:
    machine = FakeMachine(tails={("xla_a", "1"): 0.5}, noise=QUIET)
    far = timed(machine, Arm(id=SET.key, steps=300, warm_up=50, quantile=0.99))
    typical = timed(machine, Arm(id=SET.key, steps=300, quantile=0.5))
    mean = timed(machine, Arm(id=SET.key, steps=300))
    assert far.step_s / typical.step_s == pytest.approx(math.exp(0.5), rel=0.05)
    assert mean.value_s is None
    assert far.first_s > 50 * typical.step_s * 0.9


def test_several_steps_are_summed_by_weight_and_told_by_name() -> None:
    machine = FakeMachine(
        weights={"prefill": 1.0, "decode": 9.0}, step_effects={"decode": {("xla_a", "1"): -0.5}}, noise=QUIET
    )
    block = timed(machine, Arm(id=SET.key, steps=9))
    assert block.parts["decode"] / block.parts["prefill"] == pytest.approx(math.exp(-0.5))
    assert block.step_s == pytest.approx(block.parts["prefill"] + 9 * block.parts["decode"])
    assert block.seconds == pytest.approx(block.parts["prefill"] + 9 * block.parts["decode"])
    opened = timed(machine, Arm(id=SET.key, steps=9, opening=90))
    assert opened.first_s - block.first_s == pytest.approx(10 * block.seconds)


def test_work_memory_and_the_device_are_told() -> None:
    machine = FakeMachine(
        works={frozenset(): 8.0, ("xla_a", "1"): 16.0}, peaks={("xla_a", "1"): 1 << 20}, device_memory_bytes=1 << 30
    )
    session = machine.factory(launch_of())
    loaded = session.start()
    assert (loaded.work, loaded.device_memory_bytes, loaded.weights) == (8.0, 1 << 30, {})
    plain, changed = session.compile([Variant(id="control"), variant_of(SET)]).results
    assert isinstance(plain, Compiled)
    assert isinstance(changed, Compiled)
    assert (plain.peak_bytes, changed.peak_bytes) == (1 << 20, 2 << 20)
    assert machine.factory(launch_of(SET)).start().work == 16.0
