"""The numerics gate in whole runs: the second chance against a high-precision reference."""

from __future__ import annotations

from dataclasses import replace

import made_up_knobs
import pytest

from tuner.knobs import Config
from tuner.measure import Verdict
from tuner.protocol.failure import FailureClass
from tuner.session import FakeMachine, FakeSession
from tuner.store.events import Notice, NumericsCompared, PreciseReference, StageFinished, TrialFinished
from tuner.store.records import ConfirmRecord

pytestmark = pytest.mark.slow

GOOD = Config.of({"xla_good": "true"})
EFFECTS = {("xla_good", "true"): -0.05}
# The candidate's results differ from the control's by this much: far beyond the tolerances.
OFF = 0.01


def record(outcome, kind):
    return next(e.record for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, kind))


def gates(outcome, config) -> list[NumericsCompared]:
    return [e for e in outcome.events if isinstance(e, NumericsCompared) and e.config == config and e.purpose == "gate"]


def made(outcome) -> list[PreciseReference]:
    return [e for e in outcome.events if isinstance(e, PreciseReference)]


def test_results_that_differ_but_are_no_farther_from_the_truth_pass_and_are_told(tune_on):
    """The truth lies half-way between the control's results and the candidate's."""
    outcome = tune_on(FakeMachine(effects=EFFECTS, wrong={("xla_good", "true"): OFF}, truth=OFF / 2))
    confirmed = record(outcome, ConfirmRecord)
    assert (confirmed.verdict, confirmed.chosen) == (Verdict.FASTER, GOOD)
    found = gates(outcome, GOOD)
    assert all(gate.passed for gate in found)
    assert {gate.reason for gate in found} == {
        "different from the default's results, but no farther from a float64 reference"
    }
    assert all(gate.precise is not None and gate.precise.precision == "float64" for gate in found)
    assert any(gate.session.endswith("home") for gate in found), "in the search"
    assert any("confirm" in gate.session for gate in found), "and in the emitted form"
    assert len(made(outcome)) == 1, "the reference is made once a run"


def test_results_that_are_farther_from_the_truth_stay_wrong(tune_on):
    outcome = tune_on(FakeMachine(effects=EFFECTS, wrong={("xla_good", "true"): OFF}, truth=OFF / 8))
    assert record(outcome, ConfirmRecord).chosen == Config()
    trial = next(e for e in outcome.events if isinstance(e, TrialFinished) and e.config == GOOD)
    assert trial.failure.kind is FailureClass.WRONG_RESULT
    assert "relative error 1.0e-02, limit" in trial.failure.message
    assert "times what its distance from a float64 reference may be" in trial.failure.message


def test_without_such_a_reference_the_reason_says_why(tune_on):
    outcome = tune_on(FakeMachine(effects=EFFECTS, wrong={("xla_good", "true"): OFF}, truth=None))
    trial = next(e for e in outcome.events if isinstance(e, TrialFinished) and e.config == GOOD)
    assert "no high-precision reference: the step can't be run more precisely" in trial.failure.message
    assert len(made(outcome)) == 1
    assert made(outcome)[0].control is None


def test_nothing_is_computed_precisely_while_all_results_are_right(tune_on):
    outcome = tune_on(FakeMachine(effects=EFFECTS))
    assert made(outcome) == []
    assert record(outcome, ConfirmRecord).chosen == GOOD


def test_inputs_that_another_process_made_otherwise_are_named_beside_the_wrong_result(tune_on, monkeypatch):
    real, wrong = FakeSession.numerics, True

    def numerics(self, handle, **given):
        reply = real(self, handle, **given)
        name = self.launch.log.stem
        if "confirm" not in name or name.endswith("default"):
            return reply
        return replace(reply, check=not wrong, check_message="off", other_inputs=("args[1]",))

    monkeypatch.setattr(FakeSession, "numerics", numerics)
    (gate,) = (g for g in gates(tune_on(FakeMachine(effects=EFFECTS)), GOOD) if "confirm" in g.session)
    assert "off; build() made other inputs here than in the run's first process (args[1]): let it seed" in gate.reason
    wrong = False
    assert record(tune_on(FakeMachine(effects=EFFECTS), fresh=True), ConfirmRecord).chosen == GOOD


def test_a_step_that_is_another_program_in_every_process_is_told_once(tune_on, monkeypatch):
    real = FakeSession.compile

    def compiled(self, variants, **given):
        reply = real(self, variants, **given)
        return replace(reply, results=tuple(replace(r, program=self.launch.log.stem) for r in reply.results))

    def told() -> list[str]:
        events = tune_on(FakeMachine(effects=EFFECTS), fresh=True).events
        return [e.text for e in events if isinstance(e, Notice) and "another program in every process" in e.text]

    assert told() == []
    monkeypatch.setattr(FakeSession, "compile", compiled)
    assert len(told()) == 1


def test_not_a_number_gets_no_second_chance(tune_on):
    outcome = tune_on(FakeMachine(effects=EFFECTS, wrong={("xla_good", "true"): float("nan")}, truth=OFF))
    assert record(outcome, ConfirmRecord).chosen == Config()


@pytest.mark.parametrize("risk", ["none", "numerics"])
def test_what_is_declared_to_trade_accuracy_may_not_lie_as_far_from_the_default(tune_on, tmp_path, risk):
    """Nor farther from the truth: a generous limit is for sums in another order."""
    space = tmp_path / "declared.toml"
    space.write_text(made_up_knobs.space(made_up_knobs.knob("xla_good", risk=risk)))
    machine = FakeMachine(effects=EFFECTS, wrong={("xla_good", "true"): 2e-4}, rounding=5e-5)
    outcome = tune_on(machine, spaces=(str(space),))
    trades = risk == "numerics"
    assert record(outcome, ConfirmRecord).chosen == (Config() if trades else GOOD)
    found = gates(outcome, GOOD)
    assert {gate.strict for gate in found} == {trades}
    assert {gate.passed for gate in found} == {not trades}
    assert len(made(outcome)) == trades
