"""The program's other functions under the winner's settings, on made-up machines."""

from __future__ import annotations

import re

import pytest

from tuner.knobs import Config
from tuner.measure import Verdict
from tuner.protocol.failure import FailureClass
from tuner.session import FakeMachine, Fault
from tuner.store.events import Notice, NumericsCompared, RoundTimed, SessionStarted, StageFinished
from tuner.store.records import ConfirmRecord, Finalist, OtherFunction

pytestmark = pytest.mark.slow

SETTING = ("xla_good", "true")
GOOD = Config.of({"xla_good": "true"})


def machine(**others: FakeMachine) -> FakeMachine:
    return FakeMachine(effects={SETTING: -0.05}, others=others)


def confirmed(outcome) -> ConfirmRecord:
    return next(
        e.record for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, ConfirmRecord)
    )


def finalist(outcome) -> Finalist:
    return next(f for f in confirmed(outcome).finalists if f.config == GOOD)


def notices(outcome) -> str:
    return "\n".join(e.text for e in outcome.events if isinstance(e, Notice))


def test_functions_that_stay_what_they_were_are_told_with_numbers_speed_and_memory(tune_on):
    outcome = tune_on(machine(eval_step=FakeMachine(), sample=FakeMachine(effects={SETTING: -0.2})))
    assert confirmed(outcome).chosen == GOOD
    first, second = finalist(outcome).others
    assert (first.name, first.passed, first.reason, first.failure) == ("eval_step", True, "", None)
    assert first.gain.gain == pytest.approx(0.0, abs=0.02)
    assert second.gain.gain == pytest.approx(0.2, abs=0.02)
    assert first.peak_bytes == first.default_peak_bytes == 1 << 20
    asked = [e for e in outcome.events if isinstance(e, (NumericsCompared, RoundTimed)) and e.function]
    assert {e.function for e in asked} == {"eval_step", "sample"}
    sessions = {e.session for e in outcome.events if isinstance(e, SessionStarted) and "others" in e.session}
    assert len(sessions) == 2, "one pair of fresh processes for all functions"
    assert {e.session for e in asked} <= sessions
    assert "eval_step" not in notices(outcome)


def test_a_wrong_result_in_another_function_keeps_the_winner_from_being_emitted(tune_on):
    outcome = tune_on(machine(eval_step=FakeMachine(wrong={SETTING: 0.01})))
    assert confirmed(outcome).chosen == Config()
    assert confirmed(outcome).verdict is not Verdict.FASTER
    failure = finalist(outcome).failure
    assert (failure.kind, failure.phase) == (FailureClass.WRONG_RESULT, "others")
    assert "another function of the program, eval_step, computes other results" in failure.message
    assert finalist(outcome).others[0].passed is False


def test_another_function_has_a_second_chance_too(tune_on):
    outcome = tune_on(machine(eval_step=FakeMachine(wrong={SETTING: 0.01}, truth=0.005)))
    assert confirmed(outcome).chosen == GOOD
    assert "no farther from a float64 reference" in finalist(outcome).others[0].reason


def test_changed_results_that_are_allowed_are_allowed_there_too(tune_on):
    outcome = tune_on(machine(eval_step=FakeMachine(wrong={SETTING: 0.01})), allow=frozenset({"numerics"}))
    assert confirmed(outcome).chosen == GOOD
    assert finalist(outcome).others[0].passed is False


def test_a_function_that_becomes_slower_is_noticed(tune_on):
    outcome = tune_on(machine(eval_step=FakeMachine(effects={SETTING: 0.1})))
    assert confirmed(outcome).chosen == GOOD
    assert re.search(r"eval_step becomes 1\d % slower under the chosen settings", notices(outcome))


@pytest.mark.parametrize("at", ["compile", "numerics", "round"])
def test_a_function_that_fails_is_noticed_and_the_winner_stays(tune_on, at):
    fault = Fault(kind=FailureClass.OUT_OF_MEMORY, at=at, message="RESOURCE_EXHAUSTED")
    outcome = tune_on(machine(eval_step=FakeMachine(failures={SETTING: fault})))
    assert confirmed(outcome).chosen == GOOD
    assert finalist(outcome).others[0].failure.kind is FailureClass.OUT_OF_MEMORY
    assert "eval_step fails under the chosen settings (out_of_memory: RESOURCE_EXHAUSTED)" in notices(outcome)


def test_a_function_that_fails_by_default_is_not_checked_and_others_are(tune_on):
    broken = FakeMachine(failures={frozenset(): Fault(kind=FailureClass.RUNTIME, at="numerics", message="no")})
    outcome = tune_on(machine(broken=broken, eval_step=FakeMachine()))
    first, second = finalist(outcome).others
    assert first == OtherFunction(name="broken", reason="not checked: under the default settings it fails (no)")
    assert second.passed


def test_on_a_device_without_room_for_two_the_default_goes_first(tune_on):
    made = machine(eval_step=FakeMachine(effects={SETTING: -0.1}))
    made.device_memory_bytes = 2**31
    outcome = tune_on(made)
    (other,) = finalist(outcome).others
    assert other.passed
    assert other.gain.gain == pytest.approx(0.1, abs=0.05)
    assert other.gain.high == float("inf")


def test_functions_take_a_bounded_share_of_the_time(tune_on):
    slow = {f"f{n}": FakeMachine(step_ms=20_000.0) for n in range(3)}
    outcome = tune_on(machine(**slow))
    assert confirmed(outcome).chosen == GOOD
    reasons = [other.reason for other in finalist(outcome).others]
    assert reasons[1:] == ["not checked: no time was left"] * 2


def test_without_other_functions_no_process_is_started_for_them(tune_on):
    outcome = tune_on(machine())
    assert finalist(outcome).others == ()
    assert not [e for e in outcome.events if isinstance(e, SessionStarted) and "others" in e.session]
