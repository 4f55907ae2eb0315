"""The nine stages together, on made-up machines."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import made_up_knobs
import msgspec
import pytest

from tuner.errors import Interrupted, TunerError, UsageError
from tuner.knobs import Config
from tuner.measure import Verdict
from tuner.pipeline.confirm import run_confirm
from tuner.pipeline.run import STAGES, tune
from tuner.pipeline.screen import run_screen
from tuner.protocol.failure import FailureClass
from tuner.report.listener import Silent
from tuner.report.view import RunView
from tuner.session import FakeMachine, NoiseModel
from tuner.session.fake import FakeSession
from tuner.store import read
from tuner.store.events import (
    AnyEvent,
    CandidateCompiled,
    Interruption,
    Notice,
    RoundTimed,
    SessionStarted,
    StageFinished,
    TrialFinished,
)
from tuner.store.folder import locate_store
from tuner.store.lines import encode
from tuner.store.lookup import look_up, question_of
from tuner.store.records import ConfirmRecord, MinimiseRecord, ProbeRecord, ScreenRecord

pytestmark = pytest.mark.slow

GOOD = ("xla_good", "true")
BAD = ("xla_bad", "true")


def record(outcome, kind):
    return next(e.record for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, kind))


def trials(outcome) -> dict[Config, TrialFinished]:
    return {e.config: e for e in outcome.events if isinstance(e, TrialFinished)}


def test_a_real_gain_is_found_confirmed_and_cut_to_the_one_setting(tune_on):
    machine = FakeMachine(effects={GOOD: -0.05, BAD: 0.03}, inert=["xla_inert"], seed=1)
    outcome = tune_on(machine)
    confirmed = record(outcome, ConfirmRecord)
    assert confirmed.verdict is Verdict.FASTER
    assert confirmed.chosen == Config.of({"xla_good": "true"})
    assert confirmed.estimate.low < 0.05 < confirmed.estimate.high
    assert confirmed.pairs >= 6
    assert record(outcome, MinimiseRecord).effects[0].estimate.gain == pytest.approx(0.05, abs=0.01)
    assert outcome.exit_code == 0


@pytest.mark.parametrize(("change", "combined"), [(-0.001, False), (-0.02, True)])
def test_a_setting_that_takes_a_session_is_combined_if_it_promises_enough_for_one(
    tune_on, monkeypatch, change, combined
):
    monkeypatch.setattr("tuner.pipeline.search._SMALL", 0)  # suggestions, not every combination
    effects = {GOOD: -0.05, ("FAKE_VARIABLE", "1"): change}
    outcome = tune_on(FakeMachine(effects=effects, noise=NoiseModel(block_sd=0.0001), seed=1), budget_s=400.0)
    names = [c.names for c, t in trials(outcome).items() if t.stage == "search"]
    assert names
    assert any({"FAKE_VARIABLE", "xla_good"} <= n for n in names) == combined


def test_no_gain_keeps_the_defaults_and_is_a_success(tune_on):
    machine = FakeMachine(effects={GOOD: 0.02, BAD: 0.03}, inert=["xla_inert"], seed=1)
    outcome = tune_on(machine)
    confirmed = record(outcome, ConfirmRecord)
    assert confirmed.verdict in (Verdict.SAME, Verdict.UNCLEAR)
    assert confirmed.chosen == Config()
    assert outcome.exit_code == 0


def test_require_gain_turns_no_gain_into_exit_4(tune_on):
    assert tune_on(FakeMachine(), require_gain=True).exit_code == 4


def test_removed_flags_cost_no_trial(tune_on):
    outcome = tune_on(FakeMachine())
    left = {s.name: s.status for s in record(outcome, ProbeRecord).left}
    assert left["xla_removed_no_such"] == "unsupported"
    assert not any("xla_removed_no_such" in c.names for c in trials(outcome))


def test_an_inert_knob_leaves_and_a_hidden_effect_survives_the_guard_round(tune_on):
    machine = FakeMachine(effects={("xla_inert", "true"): -0.3}, inert=["xla_inert"])
    outcome = tune_on(machine)
    assert record(outcome, ConfirmRecord).chosen == Config.of({"xla_inert": "true"})
    both = tune_on(FakeMachine(effects={("xla_inert", "true"): -0.3, GOOD: -0.1}, inert=["xla_inert"]), fresh=True)
    assert record(both, ConfirmRecord).chosen == Config.of({"xla_inert": "true", "xla_good": "true"})
    quiet = tune_on(FakeMachine(inert=["xla_inert"], seed=1), fresh=True)
    left = {s.name: s.status for s in record(quiet, ScreenRecord).left}
    assert left["xla_inert"] == "inert"


def test_failures_and_wrong_numbers_are_data(tune_on):
    machine = FakeMachine(
        effects={("xla_breaks", "B"): -0.2, GOOD: -0.04},
        failures={("xla_breaks", "A"): FailureClass.CRASH},
        wrong={("xla_breaks", "B"): 0.01},
    )
    outcome = tune_on(machine)
    by_config = trials(outcome)
    assert by_config[Config.of({"xla_breaks": "A"})].failure.kind is FailureClass.CRASH
    assert by_config[Config.of({"xla_breaks": "B"})].failure.kind is FailureClass.WRONG_RESULT
    assert record(outcome, ConfirmRecord).chosen == Config.of({"xla_good": "true"})


def test_those_that_compile_share_the_wait_for_those_that_failed_beside_them(tune_on):
    """Of five candidates in a batch, a second each, two fail."""
    failures = {("xla_breaks", "A"): FailureClass.COMPILE, GOOD: FailureClass.COMPILE}
    outcome = tune_on(FakeMachine(failures=failures, compile_s=1.0), budget_s=60.0)
    made = [
        e for e in outcome.events if isinstance(e, CandidateCompiled) and e.config == Config.of({"xla_inert": "true"})
    ]
    assert made[0].share_s == pytest.approx(5 / 3)


def test_what_results_were_compared_with_goes_beside_the_seals_first_process(tune_on, monkeypatch):
    left: dict[str, list[str]] = {}

    def kept(run, *_, **__):
        left[next(reversed(run.records))] = [path.name for path in run.folder.scratch.iterdir()]

    monkeypatch.setitem(STAGES, "confirm", lambda run, benches: (kept(run), run_confirm(run, benches))[1])
    monkeypatch.setattr("tuner.pipeline.seal.profile_sides", kept)
    tune_on(FakeMachine(), budget_s=60.0)
    assert "reference.bin" in left["minimise"]
    assert left["confirm"] == []


def test_an_environment_setting_is_found_through_its_offset(tune_on):
    machine = FakeMachine(effects={("FAKE_VARIABLE", ""): -0.06})
    outcome = tune_on(machine)
    confirmed = record(outcome, ConfirmRecord)
    assert confirmed.chosen == Config.of({"FAKE_VARIABLE": ""})
    assert "FAKE_VARIABLE=\n" in Path(outcome.files["env"]).read_text()


@pytest.mark.parametrize(("block_sd", "alternations"), [(0.0002, 4), (0.03, 12)])
def test_an_offset_takes_as_many_alternations_as_the_noise_asks_for(tune_on, block_sd, alternations):
    outcome = tune_on(FakeMachine(noise=NoiseModel(block_sd=block_sd), seed=1))
    timed = [e.session for e in outcome.events if isinstance(e, RoundTimed) and e.stage == "offset"]
    others = set(timed) - {"000-home"}
    assert others
    assert {timed.count(session) for session in others} == {alternations + 2}  # two of them warm it up


def test_a_gain_that_the_environment_form_cannot_carry_is_a_lane_mismatch(tune_on):
    machine = FakeMachine(effects={GOOD: -0.1}, environment_ignored=["xla_good"])
    outcome = tune_on(machine)
    confirmed = record(outcome, ConfirmRecord)
    assert confirmed.chosen == Config()
    assert confirmed.finalists[0].failure.kind is FailureClass.LANE_MISMATCH


@pytest.mark.parametrize("default_too", [True, False])
def test_where_every_process_makes_another_program_other_code_is_no_fault_of_the_lane(
    tune_on, monkeypatch, default_too
):
    """As where the step closes over numbers that nobody seeded: only the times can tell. Where the finalist alone is
    another program, its emitted form carries something else."""
    real = FakeSession.compile

    def compile_(self, *args, **kwargs):
        reply = real(self, *args, **kwargs)
        if self.launch.role != "confirm" or not (default_too or self.launch.config.settings):
            return reply
        return dataclasses.replace(
            reply,
            results=tuple(dataclasses.replace(made, program=self.launch.name, code="other") for made in reply.results),
        )

    monkeypatch.setattr(FakeSession, "compile", compile_)
    confirmed = record(tune_on(FakeMachine(effects={GOOD: -0.1})), ConfirmRecord)
    failure = confirmed.finalists[0].failure
    assert (failure and failure.kind) == (None if default_too else FailureClass.LANE_MISMATCH)
    assert (confirmed.verdict is Verdict.FASTER) == default_too


def test_an_interrupted_run_goes_on_and_measures_nothing_twice(tune_on, options):
    machine = FakeMachine(effects={GOOD: -0.05}, inert=["xla_inert"])

    class Stop(KeyboardInterrupt):
        pass

    calls = 0
    plain = machine.factory

    def stopping(launch):
        nonlocal calls
        session = plain(launch)
        whole = session.round

        def round_(arms, *, reset=True):
            nonlocal calls
            calls += 1
            if calls == 150:
                raise Stop
            return whole(arms, reset=reset)

        session.round = round_
        return session

    machine.factory = stopping
    with pytest.raises(Interrupted) as stopped:
        tune_on(machine)
    assert "tune workload.py" in stopped.value.next
    assert not machine.living
    for lost in Path(options.store).glob("runs/*/scratch/*"):  # a killed run may leave less than it had
        lost.unlink()
    machine.factory = plain
    outcome = tune_on(machine)
    numbers = [e.number for e in outcome.events if isinstance(e, TrialFinished)]
    assert len(numbers) == len(set(numbers))
    configs = [e.config for e in outcome.events if isinstance(e, TrialFinished)]
    assert len(configs) == len(set(configs))
    assert sum(isinstance(e, Interruption) for e in outcome.events) == 1
    stages = [e.stage for e in outcome.events if isinstance(e, StageFinished)]
    assert len(stages) == len(set(stages)) == 9
    assert record(outcome, ConfirmRecord).verdict is Verdict.FASTER


def rewritten(log: Path, time: Callable[[AnyEvent], float]) -> None:
    """The log with other times, as a clock would have put them there."""
    events = read(log)
    log.write_bytes(b"".join(encode(msgspec.structs.replace(e, time=time(e))) for e in events))


@pytest.mark.parametrize("killed", [False, True])
def test_the_time_of_a_stage_that_was_cut_short_is_spent(tune_on, options, monkeypatch, killed):
    machine = FakeMachine(effects={GOOD: -0.05})

    def stopped(run, benches):
        run_screen(run, benches)
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr("tuner.pipeline.run.STAGES", {**STAGES, "screen": stopped})
        with pytest.raises(Interrupted):
            tune_on(machine, budget_s=200.0)
    log = next(Path(options.store).glob("runs/*/events.jsonl"))
    if killed:  # it says nothing of its end
        log.write_bytes(b"".join(encode(e) for e in read(log) if not isinstance(e, Interruption)))
    last = next(e.seq for e in reversed(read(log)) if isinstance(e, StageFinished))
    rewritten(log, lambda e: 1e9 + (120.0 if e.seq > last else 0.0))
    began = machine.now()
    outcome = tune_on(machine, budget_s=200.0)
    seconds = {e.stage: e.seconds for e in outcome.events if isinstance(e, StageFinished)}
    assert seconds["screen"] >= 120.0
    assert machine.now() - began < 80.0
    assert RunView.of(outcome.events).spent.total_s == pytest.approx(sum(seconds.values()), abs=1.0)


def test_the_database_knows_of_a_run_before_its_first_worker_starts(tune_on, options):
    def fails(launch):
        assert _notice(options) == ""
        raise TunerError("no worker")

    with pytest.raises(TunerError, match="no worker"):
        tune(options, factory=fails)
    assert _notice(options) == ""


def _notice(options) -> str:
    return look_up(locate_store(options.store), question_of(options.workload), seen={}).notice


def test_a_finished_run_answers_at_once_and_fresh_starts_another(tune_on):
    machine = FakeMachine(effects={GOOD: -0.05})
    first = tune_on(machine)
    sessions = len(machine.sessions)
    again = tune_on(machine)
    assert again.run == first.run
    assert len(machine.sessions) == sessions
    assert tune_on(machine, fresh=True).run != first.run


def test_a_held_knob_is_in_the_default_too_and_is_not_searched(tune_on):
    machine = FakeMachine(effects={GOOD: -0.05, ("FAKE_VARIABLE", "1"): -0.5})
    outcome = tune_on(machine, hold={"FAKE_VARIABLE": "1"})
    assert record(outcome, ConfirmRecord).estimate.gain == pytest.approx(0.05, abs=0.02)
    assert not any("FAKE_VARIABLE" in c.names for c in trials(outcome))
    assert "FAKE_VARIABLE=1\n" in Path(outcome.files["env"]).read_text()


def test_a_knob_that_is_held_unset_is_not_searched_either(tune_on):
    outcome = tune_on(FakeMachine(effects={GOOD: -0.05, BAD: -0.3}), hold={"xla_bad": "unset"})
    assert record(outcome, ConfirmRecord).chosen == Config.of({"xla_good": "true"})
    assert not any("xla_bad" in c.names for c in trials(outcome))
    left = {knob.name: knob.reason for knob in record(outcome, ProbeRecord).left}
    assert left["xla_bad"] == "--knob holds it at 'unset' for the whole run"


def test_what_makes_the_program_of_the_file_is_told_apart_from_settings_that_are_held(tune_on, options):
    options.workload.write_text("def build(width=4, name=''):\n    raise RuntimeError('never executed')\n")
    hold = {"FAKE_VARIABLE": "1", "width": "8", "name": "a b"}
    started = tune_on(FakeMachine(effects={}), hold=hold, argv=("--fast",)).events[0]
    assert started.options["hold"] == "FAKE_VARIABLE=1 'name=a b' width=8"
    assert started.options["form"] == "'name=a b' width=8 -- --fast"


def test_a_short_budget_says_what_it_skips_and_still_confirms(tune_on):
    machine = FakeMachine(effects={GOOD: -0.05}, start_s=10.0, compile_s=10.0)
    outcome = tune_on(machine, budget_s=60.0)
    assert any("Skipped: search" in e.text for e in outcome.events if isinstance(e, Notice))
    assert record(outcome, ConfirmRecord).verdict is Verdict.FASTER


def test_the_budget_is_kept(tune_on):
    machine = FakeMachine(effects={GOOD: -0.02, BAD: 0.01}, noise=NoiseModel(block_sd=0.02, machine_sd=0.01))
    tune_on(machine, budget_s=600.0)
    assert machine.now() < 660.0


def test_allow_numerics_admits_only_declared_knobs(tune_on, space):
    declared = made_up_knobs.knob("xla_breaks", type="enum", values=("unset", "A", "B"), risk="numerics")
    space.write_text(made_up_knobs.space(declared))
    machine = FakeMachine(effects={("xla_breaks", "B"): -0.2}, wrong={("xla_breaks", "B"): 0.001})
    assert record(tune_on(machine), ConfirmRecord).chosen == Config()
    allowed = tune_on(machine, allow=frozenset({"numerics"}))
    assert record(allowed, ConfirmRecord).chosen == Config.of({"xla_breaks": "B"})


def test_nothing_is_timed_while_another_session_compiles(tune_on):
    """The order of events is the order of the machine's work: no round falls between a start and its compile."""
    outcome = tune_on(FakeMachine(effects={GOOD: -0.05}))
    waiting = None
    for event in outcome.events:
        if isinstance(event, SessionStarted):
            waiting = event.session
        elif isinstance(event, RoundTimed):
            assert waiting is None or event.session == waiting or event.stage in ("offset", "confirm", "seal")
            waiting = None


@pytest.mark.mirrored
def test_every_event_is_on_the_disk_and_the_study_can_be_opened(tune_on, options):
    outcome = tune_on(FakeMachine(effects={GOOD: -0.05}))
    assert [type(e) for e in read(outcome.folder / "events.jsonl")] == [type(e) for e in outcome.events]
    import optuna

    study = optuna.load_study(study_name=outcome.run, storage=f"sqlite:///{options.store}/tuner.db")
    assert len(study.trials) == len(trials(outcome))
    assert math.isclose(study.best_value, min(t.value for t in trials(outcome).values() if t.value is not None))


def test_best_json_tells_settings_and_compile_options(tune_on):
    outcome = tune_on(FakeMachine(effects={GOOD: -0.05}))
    best = json.loads(Path(outcome.files["json"]).read_text())
    assert best["settings"] == {"xla_good": "true"}
    assert best["options"]["compiler_options"] == {"xla_good": True}


def test_a_misspelt_override_is_refused_with_the_name_that_was_meant(tune_on, monkeypatch):
    """It would leave the pin where it is, without a word. A knob of another machine's space is no mistake."""
    machine = FakeMachine()
    with pytest.raises(UsageError, match='did you mean "NCCL_ALGO"') as refused:
        tune_on(machine, override=("NCLL_ALGO",))
    assert (refused.value.where, machine.sessions) == ("--override", [])
    monkeypatch.setenv("NCCL_MADE_UP_HERE", "1")
    tune_on(machine, override=("NCCL_MADE_UP_HERE", "NCCL_ALGO", "FAKE_VARIABLE"))


def test_a_listener_is_told_of_the_run_that_goes_on(tune_on, options):
    """Once, before anything else, with the log so far; of a new run it isn't."""

    class Heard(Silent):
        def __init__(self):
            self.resumed = []

        def on_resumed(self, events):
            self.resumed.append(list(events))

    machine, first, again = FakeMachine(), Heard(), Heard()
    tune(options, factory=machine.factory, clock=machine.now, listener=first)
    outcome = tune(options, factory=machine.factory, clock=machine.now, listener=again)
    assert first.resumed == []
    assert again.resumed == [outcome.events]


def test_a_second_interruption_while_sessions_end_leaves_none(tune_on):
    """Somebody who is impatient presses Ctrl-C until it is quiet."""
    machine = FakeMachine(effects={GOOD: -0.05})
    plain = machine.factory
    pressed = []

    def impatient(launch):
        session = plain(launch)
        ending = session.close

        def interrupted(*_, **__):
            pressed.append("in a round")
            raise KeyboardInterrupt

        def close():
            if pressed == ["in a round"]:
                pressed.append("while it ends")
                raise KeyboardInterrupt
            ending()

        session.round, session.close = interrupted, close
        return session

    machine.factory = impatient
    with pytest.raises(KeyboardInterrupt):
        tune_on(machine)
    assert pressed == ["in a round", "while it ends"]
    assert not machine.living
