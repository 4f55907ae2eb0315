"""The search's sampler: new configs only, the session's settings held, and no slower for a long history."""

from __future__ import annotations

import random
import time

import msgspec
import pytest

from tuner.knobs import DEFAULT, UNSET, Config, Knob
from tuner.measure import Estimate
from tuner.pipeline.sampler import Sampler
from tuner.protocol.failure import Failure, FailureClass
from tuner.store.events import TrialFinished

pytestmark = pytest.mark.slow


def knob(name: str, *, lane: str = "option") -> Knob:
    return Knob(
        name=name,
        carrier="env" if lane == "environment" else "xla_flag",
        type="enum",
        values=(UNSET, "A", "B"),
        lane=lane,  # type: ignore[arg-type]
        acts_on="hlo",
        why="made up",
        source="test",
    )


KNOBS = {k.name: k for k in [*(knob(f"xla_{i}") for i in range(8)), knob("FAKE", lane="environment")]}


def trial(number: int, config: Config, gain: float | None) -> TrialFinished:
    estimate = None if gain is None else Estimate(gain=gain, se=0.001, low=gain - 0.002, high=gain + 0.002, n=9)
    return TrialFinished(
        number=number,
        stage="search",
        session="home",
        config=config,
        value=None if gain is None else -gain,
        estimate=estimate,
        failure=None if gain is not None else Failure(kind=FailureClass.CRASH, phase="compile", message="made up"),
    )


def anything(rng: random.Random) -> Config:
    return Config.of({name: rng.choice(k.values) for name, k in KNOBS.items() if k.lane == "option"})


def told(count: int) -> Sampler:
    """A sampler that knows `count` trials: "A" of xla_0 gains a tenth, every ninth trial crashed."""
    rng, sampler = random.Random(0), Sampler(KNOBS, seed=1)
    for number in range(count):
        config = anything(rng)
        gain = 0.1 * (config.get("xla_0") == "A") + rng.gauss(0, 0.001)
        sampler.tell(trial(number, config, None if number % 9 == 8 else gain))
    return sampler


def test_a_batch_is_new_and_holds_the_sessions_settings() -> None:
    sampler = told(40)
    first = sampler.ask(8, environment=Config.of({"FAKE": "B"}), avoid=[DEFAULT])
    again = sampler.ask(8, environment=Config.of({"FAKE": "B"}), avoid=first)
    assert len({DEFAULT, *first, *again}) == 17
    assert all(config.get("FAKE") == "B" for config in (*first, *again))


def test_it_learns_what_gains() -> None:
    asked = told(200).ask(8, environment=DEFAULT, avoid=())
    assert sum(config.get("xla_0") == "A" for config in asked) >= 6


def test_what_gained_early_is_not_forgotten() -> None:
    """A thousand trials later that all leave the good setting out."""
    sampler, rng = told(60), random.Random(2)
    for number in range(1000):
        sampler.tell(trial(100 + number, anything(rng).set("xla_0", "B"), rng.gauss(0, 0.001)))
    asked = sampler.ask(8, environment=DEFAULT, avoid=())
    assert sum(config.get("xla_0") == "A" for config in asked) >= 5


def test_ten_times_the_history_takes_no_more_time() -> None:
    seconds = []
    for count in (400, 4000):
        sampler = told(count)
        began = time.process_time()
        sampler.ask(8, environment=DEFAULT, avoid=())
        seconds.append(time.process_time() - began)
    assert seconds[1] < 3 * seconds[0]


def test_a_trial_beyond_the_knobs_teaches_nothing() -> None:
    sampler = Sampler(KNOBS, seed=0)
    sampler.tell(trial(0, Config.of({"xla_unknown": "A"}), 0.5))
    sampler.tell(trial(1, Config.of({"xla_0": "elsewhere"}), 0.5))
    assert len(sampler.ask(4, environment=DEFAULT, avoid=())) == 4


def test_what_means_nothing_without_another_setting_is_not_suggested_without_it():
    """It would be no trial at all. What the run holds fixed counts."""
    needy = msgspec.structs.replace(knob("xla_needy"), requires={"xla_0": "B"})
    needier = msgspec.structs.replace(knob("xla_needier"), requires={"xla_needy": "A"})
    knobs = {k.name: k for k in (*KNOBS.values(), needy, needier)}
    found = Sampler(knobs, seed=0).ask(16, environment=DEFAULT, avoid=())
    assert len(found) >= 8
    assert all(c.get("xla_0") == "B" for c in found if "xla_needy" in c.names)
    assert all(c.get("xla_needy") == "A" for c in found if "xla_needier" in c.names)
    assert any("xla_needy" in c.names for c in found)
    alone = Sampler({needy.name: needy}, seed=0, held=Config.of({"xla_0": "B"}))
    assert {c.get("xla_needy") for c in alone.ask(3, environment=DEFAULT, avoid=())} == {UNSET, "A", "B"}


def test_what_left_the_space_is_set_with_what_needs_it_and_its_trials_teach():
    gone = Config.of({"xla_gone": "true"})
    needy = msgspec.structs.replace(knob("xla_needy"), requires=gone.as_dict())
    sampler = Sampler({**KNOBS, needy.name: needy}, seed=0)
    found = sampler.ask(16, environment=DEFAULT, avoid=())
    assert any("xla_needy" in c.names for c in found)
    assert all(("xla_needy" in c.names) == ("xla_gone" in c.names) for c in found)
    for n, config in enumerate((gone, Config.of({"xla_needy": "A"}), gone.set("xla_needy", "A"))):
        sampler.tell(trial(n, config, 0.5))
    assert [t.number for t in sampler._seen()] == [2]
