"""A new run starts from what was best for a program like its own, and trusts none of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.errors import Interrupted, StoreError
from tuner.knobs import Config
from tuner.measure import Verdict
from tuner.pipeline.run import Outcome
from tuner.protocol.messages import Sketch
from tuner.session import FakeMachine
from tuner.store.events import AnyEvent, Notice, StageFinished, TrialFinished, WarmStart
from tuner.store.records import ConfirmRecord, ScreenRecord

pytestmark = pytest.mark.slow

SKETCH = Sketch(operations={"add": 9, "dot_general": 3}, input_bytes=1 << 20)
LARGER = dataclasses.replace(SKETCH, input_bytes=1 << 23)
UNLIKE = Sketch(operations={"sort": 2}, input_bytes=1 << 20)
GOOD = ("xla_good", "true")
BEST = Config.of({"xla_good": "true", "FAKE_VARIABLE": "1"})

Later = Callable[..., Outcome]


@pytest.fixture
def later(tune_on, tmp_path: Path) -> Later:
    """`later(machine, **changes)`: a run of another workload on it, in a store that knows one whose best settings are
    BEST."""
    effects = {GOOD: -0.06, ("FAKE_VARIABLE", "1"): -0.08}
    first = tune_on(FakeMachine(effects=effects, sketch=SKETCH, name="small", seed=1), budget_s=600.0)
    assert confirmed(first).chosen == BEST
    assert warm(first.events).neighbours == ()

    def call(machine: FakeMachine, **changes: object) -> Outcome:
        workload = tmp_path / "larger.py"
        workload.write_text("def build():\n    raise RuntimeError('another one')\n")
        return tune_on(machine, **{"workload": workload, "budget_s": 600.0, **changes})

    return call


def confirmed(outcome: Outcome) -> ConfirmRecord:
    return next(e.record for e in outcome.events if isinstance(e, StageFinished) and e.stage == "confirm")


def warm(events: list[AnyEvent]) -> WarmStart:
    (found,) = [e for e in events if isinstance(e, WarmStart)]
    return found


def trials(outcome: Outcome) -> list[TrialFinished]:
    return [e for e in outcome.events if isinstance(e, TrialFinished)]


def notices(outcome: Outcome) -> list[str]:
    return [e.text for e in outcome.events if isinstance(e, Notice) and "program like this one" in e.text]


def test_what_was_best_for_a_near_program_is_tried_first_and_said(later: Later):
    machine = FakeMachine(effects={GOOD: -0.05, ("FAKE_VARIABLE", "1"): -0.1}, sketch=LARGER, name="large", seed=2)
    outcome = later(machine)
    (near,) = warm(outcome.events).neighbours
    assert near.configs[0] == BEST
    assert near.apart == {"size": pytest.approx(3 / 100)}
    (text,) = notices(outcome)
    assert near.run in text
    assert "size 3 % apart" in text
    assert str(BEST) in text
    first = next(t for t in trials(outcome) if t.stage == "presets" and t.label.startswith("best of"))
    assert first.label == f"best of {near.run}, a program like this one"
    tried = next(t for t in trials(outcome) if t.config == BEST)
    assert tried.stage == "presets"
    assert tried.estimate is not None
    assert tried.estimate.gain == pytest.approx(0.15, abs=0.02)
    assert confirmed(outcome).chosen == BEST


def test_its_knobs_are_screened_before_all_others(later: Later):
    outcome = later(FakeMachine(effects={GOOD: -0.05}, sketch=LARGER, name="large", seed=2))
    screened = [t.config for t in trials(outcome) if t.stage == "screen"]
    likely = [c for c in screened if c.names <= {"xla_good", "FAKE_VARIABLE"}]
    assert screened[: len(likely)] == likely
    assert len(screened) > len(likely)


def test_nothing_is_trusted_that_does_not_hold_here(later: Later):
    machine = FakeMachine(effects={GOOD: 0.05, ("FAKE_VARIABLE", "1"): 0.1}, sketch=LARGER, name="large", seed=2)
    outcome = later(machine)
    assert any(t.config == BEST and t.estimate is not None and t.estimate.gain < 0 for t in trials(outcome))
    assert confirmed(outcome).verdict in (Verdict.SAME, Verdict.UNCLEAR)
    assert confirmed(outcome).chosen == Config()


def test_settings_that_do_not_exist_here_are_left_out(later: Later):
    machine = FakeMachine(
        effects={("FAKE_VARIABLE", "1"): -0.1}, unsupported=["xla_good"], sketch=LARGER, name="large", seed=2
    )
    outcome = later(machine)
    labelled = {t.config for t in trials(outcome) if t.label.startswith("best of")}
    assert Config.of({"FAKE_VARIABLE": "1"}) in labelled
    assert not any("xla_good" in c.names for c in labelled)


def test_an_unlike_program_or_an_unknown_one_starts_cold(later: Later):
    for number, sketch in enumerate((UNLIKE, None)):
        outcome = later(FakeMachine(sketch=sketch, name=f"other{number}", seed=2), fresh=True)
        assert warm(outcome.events).neighbours == ()
        assert notices(outcome) == []
        assert not any(t.label.startswith("best of") for t in trials(outcome))


def test_a_program_with_results_of_its_own_starts_from_them(later: Later):
    machine = FakeMachine(effects={GOOD: -0.05}, sketch=SKETCH, name="small", seed=2)
    outcome = later(machine)
    assert not any(isinstance(e, WarmStart) for e in outcome.events)
    assert any(t.label.startswith("best of") and "like" not in t.label for t in trials(outcome))


def test_a_run_that_is_gone_on_with_does_not_look_again(later: Later, monkeypatch: pytest.MonkeyPatch):
    def machine() -> FakeMachine:
        return FakeMachine(effects={GOOD: -0.05}, sketch=LARGER, name="large", seed=2)

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tuner.pipeline.presets.evaluate", stop)
        with pytest.raises(Interrupted):
            later(machine())
    looked = []
    monkeypatch.setattr("tuner.pipeline.warm.neighbours", lambda *_, **__: looked.append(1) or ())
    outcome = later(machine())
    assert not looked
    assert [n.configs[0] for n in warm(outcome.events).neighbours] == [BEST]
    assert any(t.label.endswith("a program like this one") for t in trials(outcome))


def test_a_database_that_fails_costs_the_warm_start_alone(later: Later, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object, **__: object) -> None:
        raise StoreError("the database can't be read: disk I/O error")

    monkeypatch.setattr("tuner.pipeline.warm.neighbours", fails)
    outcome = later(FakeMachine(effects={GOOD: -0.05}, sketch=LARGER, name="large", seed=2))
    assert any("could not be looked up: the database" in e.text for e in outcome.events if isinstance(e, Notice))
    assert next(e for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, ScreenRecord))
    assert confirmed(outcome).verdict is Verdict.FASTER


def test_where_the_budget_is_short_the_likeliest_is_timed_all_the_same(tune_on, tmp_path: Path):
    first = tune_on(FakeMachine(effects={GOOD: -0.06}, sketch=SKETCH, name="small", seed=1), budget_s=600.0)
    assert confirmed(first).chosen == Config.of({"xla_good": "true"})
    workload = tmp_path / "larger.py"
    workload.write_text("def build():\n    raise RuntimeError('another one')\n")
    slow = FakeMachine(effects={GOOD: -0.05}, start_s=12.0, compile_s=12.0, sketch=LARGER, name="large", seed=2)
    outcome = tune_on(slow, workload=workload, budget_s=240.0)
    assert any("Skipped: search, presets" in e.text for e in outcome.events if isinstance(e, Notice))
    raced = [t for t in trials(outcome) if t.stage == "presets"]
    assert [t.config for t in raced] == [Config.of({"xla_good": "true"})]
    assert raced[0].estimate is not None
    assert next(t for t in trials(outcome) if t.stage == "screen").config.names != {"xla_good"}
