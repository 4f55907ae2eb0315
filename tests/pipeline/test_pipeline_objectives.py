"""Whole runs whose objective is another one than the mean, or whose memory is limited."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import msgspec
import pytest

from tuner.errors import SessionEnded, TunerError, UsageError, WorkloadError
from tuner.knobs import Config
from tuner.measure import Objective, Verdict
from tuner.pipeline.run import list_knobs
from tuner.protocol.failure import Failure, FailureClass
from tuner.report.document import document
from tuner.report.listener import Silent
from tuner.report.terminal import render_result
from tuner.report.trial import render_trial, trial_document
from tuner.report.view import RunView
from tuner.session import FakeMachine, FakeSession
from tuner.store.events import Notice, PairTimed, RoundTimed, RunStarted, StageFinished, TrialFinished
from tuner.store.records import BaselineRecord, ConfirmRecord, ScreenRecord, SearchRecord

pytestmark = pytest.mark.slow

GOOD, BAD, WIDE = ("xla_good", "true"), ("xla_bad", "true"), ("FAKE_VARIABLE", "1")
FASTER = Config.of({"xla_good": "true"})


def record(outcome, kind):
    return next(e.record for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, kind))


def notices(outcome) -> str:
    return "\n".join(e.text for e in outcome.events if isinstance(e, Notice))


def trials_of(outcome):
    return [e for e in outcome.events if isinstance(e, TrialFinished)]


def blocks(outcome):
    return [b for e in outcome.events if isinstance(e, RoundTimed) for b in e.blocks]


def test_a_far_quantile_finds_what_the_mean_does_not_see(tune_on):
    machine = FakeMachine(step_ms=0.5, tails={frozenset(): 0.4, GOOD: -0.2}, effects={BAD: 0.05})
    outcome = tune_on(machine, objective="p99", budget_s=400.0)
    confirmed, baseline = record(outcome, ConfirmRecord), record(outcome, BaselineRecord)
    assert (confirmed.verdict, confirmed.chosen) == (Verdict.FASTER, FASTER)
    assert confirmed.estimate.gain == pytest.approx(0.2, abs=0.03)
    assert confirmed.control_ms == pytest.approx(0.5 * math.exp(0.4), rel=0.1)
    assert baseline.step_ms == pytest.approx(0.5, rel=0.1)
    assert baseline.form.quantile == 0.99
    assert baseline.form.steps >= 300
    assert baseline.form.warm_up == 50
    assert "can't be told" not in notices(outcome)
    assert "ms a step at p99" in Path(outcome.files["shell"]).read_text()
    assert json.loads((outcome.folder / "bundle" / "0001" / "manifest.json").read_text())["objective"]["name"] == "p99"
    number = next(e.number for e in outcome.events if isinstance(e, TrialFinished) and e.config == FASTER)
    for text in (render_result(RunView.of(outcome.events)), render_trial(outcome.events, number)):
        assert "p99, in ms a step at p99" in text
    assert trial_document(outcome.events, number)["per"] == "a step at p99"
    told = document(RunView.of(outcome.events))
    assert (told["objective"], told["per"], told["options"]["objective"]) == ("p99", "a step at p99", "p99")
    mean = tune_on(machine)
    assert mean.run != outcome.run
    assert record(mean, ConfirmRecord).chosen == Config()
    assert any(b.value_s is not None for b in blocks(outcome))
    assert all(b.value_s is None for b in blocks(mean))


def test_a_quantile_that_the_budget_cannot_afford_is_said_to_be_untold(tune_on):
    outcome = tune_on(FakeMachine(step_ms=50.0, effects={GOOD: -0.1}), objective="p99", budget_s=400.0)
    said = notices(outcome)
    assert re.search(r"p99 can't be told from 1[234] steps a block", said)
    assert re.search(r"It takes 300 steps, for which a budget of about (6[5-9]|7[0-5])\d\d s has room", said)
    longest = max((b.seconds + b.first_s for b in blocks(outcome)), default=0.0)
    assert longest < 2.0


def test_throughput_compares_settings_that_change_how_much_work_a_step_does(tune_on):
    machine = FakeMachine(works={frozenset(): 8.0, WIDE: 16.0}, effects={WIDE: math.log(1.6)})
    outcome = tune_on(machine, objective="throughput")
    confirmed = record(outcome, ConfirmRecord)
    assert confirmed.chosen == Config.of({"FAKE_VARIABLE": "1"})
    assert confirmed.estimate.gain == pytest.approx(math.log(2 / 1.6), abs=0.05)
    assert confirmed.control_ms == pytest.approx(10.0 / 8, rel=0.05)
    assert "units of work a second" in render_result(RunView.of(outcome.events))
    again = tune_on(machine)
    assert record(again, ConfirmRecord).chosen == Config()
    failed = next(t for t in trials_of(again) if t.config == Config.of(dict([WIDE])))
    assert failed.failure.kind is FailureClass.OTHER_WORK
    assert "with FAKE_VARIABLE=1 a step does 16 units of work, and 8 without" in failed.failure.message


def test_what_does_other_work_is_compared_with_the_default_at_that_work(tune_on):
    machine = FakeMachine(
        works={frozenset(): 8.0, WIDE: 32.0},
        effects={WIDE: math.log(1.6), GOOD: -0.1, BAD: -0.3},
        wrong={frozenset({WIDE, BAD}): 0.1},
    )
    outcome = tune_on(machine, objective="throughput", budget_s=600.0)
    assert record(outcome, ConfirmRecord).chosen == Config.of(dict([WIDE, GOOD]))
    told = [t for t in trials_of(outcome) if {WIDE, BAD} <= set(t.config.settings)]
    assert told
    assert {t.failure.kind for t in told} == {FailureClass.WRONG_RESULT}


def test_throughput_of_a_workload_that_declares_no_work_is_refused(tune_on):
    with pytest.raises(WorkloadError, match="units of work") as caught:
        tune_on(FakeMachine(), objective="throughput")
    assert "'work'" in caught.value.what


def test_unknown_objectives_and_impossible_limits_are_refused_before_anything_starts(tune_on):
    machine = FakeMachine()
    with pytest.raises(UsageError, match=r"p95.*mean, p50, p99, throughput"):
        tune_on(machine, objective="p95")
    for limit in (0, -1, 1.5, 0.0):
        with pytest.raises(UsageError) as caught:
            tune_on(machine, max_memory=limit)
        assert caught.value.where == "--max-memory"
    assert not machine.sessions


def test_listing_knobs_asks_for_no_work_and_no_memory(tune_on, options):
    asked = msgspec.structs.replace(options, objective="throughput", max_memory=0.9)
    knobs, _, _ = list_knobs(asked, factory=FakeMachine().factory)
    assert "xla_good" in {k.name for k in knobs}


def test_listing_knobs_names_no_run_since_none_is_kept(options):
    told = []
    listener = Silent()
    listener.on_event = told.append
    list_knobs(options, listener=listener, factory=FakeMachine().factory)
    assert told
    assert not any(isinstance(event, RunStarted) for event in told)


def test_listing_knobs_of_a_workload_that_fails_quotes_the_log_that_is_gone(options, monkeypatch):
    def fails(session):
        raise SessionEnded(Failure(kind=FailureClass.CRASH, phase="load", message="no step", log_tail=("last words",)))

    monkeypatch.setattr(FakeSession, "start", fails)
    with pytest.raises(TunerError, match="no step") as caught:
        list_knobs(options, factory=FakeMachine().factory)
    assert (caught.value.next, caught.value.log) == ("", ("last words",))


def test_several_steps_are_judged_by_their_weighted_sum_and_told_one_by_one(tune_on):
    machine = FakeMachine(
        step_ms=1.0,
        weights={"prefill": 1.0, "decode": 9.0},
        step_effects={"decode": {GOOD: -0.2, BAD: 0.1}, "prefill": {GOOD: 0.1, BAD: -0.5}},
    )
    outcome = tune_on(machine)
    confirmed = record(outcome, ConfirmRecord)
    sum_ms = math.exp(0.1) + 9 * math.exp(-0.2)
    assert confirmed.chosen == FASTER
    assert confirmed.estimate.gain == pytest.approx(math.log(10 / sum_ms), abs=0.02)
    assert confirmed.control_ms == pytest.approx(10.0, rel=0.05)
    assert confirmed.objective == Objective(weights={"prefill": 1.0, "decode": 9.0})
    own = next(f for f in confirmed.finalists if f.config == FASTER).steps
    assert own["decode"].gain == pytest.approx(0.2, abs=0.02)
    assert own["prefill"].gain == pytest.approx(-0.1, abs=0.02)
    assert all(e.steps.keys() == own.keys() for e in outcome.events if isinstance(e, PairTimed))
    text = render_result(RunView.of(outcome.events))
    assert "ms for 1 prefill + 9 decode" in text
    assert "each one's own speed-up" in text


def test_what_needs_more_memory_than_allowed_is_never_timed(tune_on):
    machine = FakeMachine(effects={GOOD: -0.2, BAD: -0.05}, peaks={GOOD: 4 << 20})
    outcome = tune_on(machine, max_memory=2 << 20)
    confirmed = record(outcome, ConfirmRecord)
    assert confirmed.chosen == Config.of({"xla_bad": "true"})
    trial = next(e for e in outcome.events if isinstance(e, TrialFinished) and e.config == FASTER)
    assert trial.failure.kind is FailureClass.OVER_MEMORY
    assert trial.failure.message == "needs 5.0 MiB at its peak, and --max-memory allows 2.0 MiB"
    assert not any(b.id == FASTER.key for b in blocks(outcome))
    left = {s.name: s for s in record(outcome, ScreenRecord).left}
    assert left["xla_good"].status == "over_memory"
    assert "5.0 MiB" in left["xla_good"].reason


def test_a_share_is_of_the_devices_memory_and_the_default_is_always_timed(tune_on):
    machine = FakeMachine(effects={GOOD: -0.2}, device_memory_bytes=1 << 20)
    outcome = tune_on(machine, max_memory=0.5)
    assert record(outcome, ConfirmRecord).chosen == Config()
    assert "the default itself needs 1.0 MiB at its peak, and --max-memory allows 512.0 KiB" in notices(outcome)
    assert all(e.failure for e in outcome.events if isinstance(e, TrialFinished) and e.config == FASTER)
    with pytest.raises(UsageError, match="size is unknown") as caught:
        tune_on(FakeMachine(), max_memory=0.9)
    assert caught.value.where == "--max-memory"


def test_of_configs_of_one_program_the_one_with_fewest_settings_is_taken_first(tune_on):
    # The preset, timed first, sets xla_bad beside xla_good, which does nothing: the flip shares the preset's samples.
    slow = {(name, value): 0.2 for name in ("xla_breaks", "FAKE_VARIABLE") for value in ("A", "B", "1", "")}
    outcome = tune_on(FakeMachine(effects={GOOD: -0.1, **slow}, inert=[BAD, "xla_inert"]))
    best = record(outcome, SearchRecord).best
    assert [m.config for m in best[:2]] == [FASTER, Config.of({"xla_bad": "true", "xla_good": "true"})]
    assert best[0].estimate == best[1].estimate
    assert best[0].trial > best[1].trial
