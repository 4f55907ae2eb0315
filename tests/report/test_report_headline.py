"""The run in one sentence, and what to do next."""

from __future__ import annotations

import math

import msgspec
import pytest
from synthetic_knobs import MALLOC
from synthetic_run import FILES, SCENARIOS, all_failed, failing, faster, interrupted, same, unclear, unstable

from tuner.knobs import from_workload
from tuner.knobs.config import DEFAULT
from tuner.measure.objective import Objective
from tuner.protocol.failure import FailureClass
from tuner.report.headline import headline, next_step
from tuner.report.markdown import render_markdown
from tuner.report.paper import run_paper
from tuner.report.view import RunView
from tuner.store.events import AnyEvent, Interruption, RunFinished, SessionClosed, StageFinished, TrialFinished
from tuner.store.records import ConfirmRecord, ProbeRecord


def confirming(events: list[AnyEvent], **changes: object) -> list[AnyEvent]:
    """The same run with another confirm record."""
    return [
        msgspec.structs.replace(e, record=msgspec.structs.replace(e.record, **changes))
        if isinstance(e, StageFinished) and isinstance(e.record, ConfirmRecord)
        else e
        for e in events
    ]


@pytest.mark.parametrize(
    ("scenario", "sentence"),
    [
        ("faster", "faster: 1.43x (1.40–1.46), 16.2 → 11.3 ms a step, confirmed in 6 pairs of fresh processes"),
        (
            "same",
            (
                "no significant gain: keep the defaults "
                "(1.001x (0.998–1.004) in 6 pairs of fresh processes; 16.2 ms a step)"
            ),
        ),
        (
            "unclear",
            (
                "unclear: keep the defaults (1.01x (0.99–1.03) in 12 pairs of fresh processes; 16.2 ms a step; "
                "gains below 1.1 % can't be told here)"
            ),
        ),
        (
            "unstable",
            (
                "unstable: keep the defaults (the default's own time went from 15.8 to 22.4 ms between pairs of "
                "processes; 3 of 6 pairs stayed disturbed, for instance: other processes kept 1.4 of 2 cores busy "
                "(9 of 10 turns); not confirmed: 1.03x (1.01–1.05) in 6 pairs of fresh processes; 16.2 ms a step)"
            ),
        ),
        ("interrupted", "interrupted in search after 18 s: no verdict; the best so far, 1.33x, is not confirmed"),
        ("all_failed", "no candidate could be timed: keep the defaults (5 failed; 16.2 ms a step)"),
    ],
)
def test_each_end_has_its_sentence(scenario: str, sentence: str) -> None:
    """Verdict first, then the numbers behind it."""
    assert headline(RunView.of(SCENARIOS[scenario]())) == sentence


@pytest.mark.parametrize(
    ("objective", "values"),
    [
        (Objective(name="p99"), "16.2 → 11.3 ms a step at p99"),
        (Objective(name="throughput"), "61.7 → 88.3 units of work a second"),
        (Objective(weights={"prefill": 1.0, "decode": 128.0}), "16.2 → 11.3 ms for 1 prefill + 128 decode"),
    ],
)
def test_the_values_are_those_of_the_objective(objective: Objective, values: str) -> None:
    sentence = headline(RunView.of(confirming(faster(), objective=objective)))
    assert sentence.startswith(f"faster: 1.43x (1.40–1.46), {values}, confirmed in")
    kept = headline(RunView.of(confirming(same(), objective=objective)))
    assert values.partition(" → ")[0] in kept
    assert values.partition(" → ")[2].partition(" ")[2] in kept


def test_nothing_to_confirm_is_no_gain() -> None:
    """Whatever verdict the record holds, there was no finalist to be unsure of."""
    events = confirming(unclear(), finalists=(), estimate=None, pairs=0)
    text = headline(RunView.of(events))
    assert text == "no gain found: keep the defaults (nothing was worth confirming; 16.2 ms a step)"


def test_where_nothing_was_tried_nothing_is_said_of_how_fast_it_was() -> None:
    events = [e for e in confirming(same(), finalists=(), estimate=None, pairs=0) if not _sets_anything(e)]
    view = RunView.of(events)
    assert headline(view) == "no gain found: keep the defaults (nothing was tried; 16.2 ms a step)"
    assert next_step(view, {}).purpose.startswith("nothing was tried: ")
    assert "Nothing was tried, so nothing was compared" in render_markdown(run_paper(events))


def _sets_anything(event: AnyEvent) -> bool:
    return isinstance(event, TrialFinished) and event.config != DEFAULT


def test_finalists_that_all_failed() -> None:
    """Their step times are unknown, and no number is made up."""
    events = unclear()
    record = RunView.of(events).confirm
    assert record is not None
    mismatch = failing(FailureClass.LANE_MISMATCH, "other code", phase="confirm")
    finalists = tuple(msgspec.structs.replace(f, failure=mismatch) for f in record.finalists)
    events = confirming(events, finalists=finalists, control_ms=math.nan, best_ms=math.nan)
    said = "unclear: keep the defaults (every finalist failed in a fresh process, lane_mismatch: other code)"
    assert headline(RunView.of(events)) == said


def test_a_verdict_outlives_an_interruption() -> None:
    """Ctrl-C while sealing takes nothing back."""
    events = [e for e in faster() if not (isinstance(e, StageFinished) and e.stage in ("seal", "report"))]
    view = RunView.of([*events[:-1], Interruption(stage="seal")])
    assert headline(view).startswith("faster: 1.43x")
    assert headline(view).endswith("fresh processes; interrupted in seal")


def test_a_run_that_stopped_says_why() -> None:
    """The failure that ended it is part of the sentence."""
    events = interrupted()[:-2]
    end = SessionClosed(session="home", failure=failing(FailureClass.PLATFORM, "no gpu here"))
    view = RunView.of([*events, end, RunFinished(exit_code=1)])
    assert headline(view) == "stopped in search after 17 s: no verdict (platform: no gpu here)"
    default = TrialFinished(
        number=99,
        stage="search",
        session="home",
        config=DEFAULT,
        value=None,
        estimate=None,
        failure=failing(FailureClass.RUNTIME, "boom"),
    )
    assert "no verdict (runtime: boom)" in headline(RunView.of([*events, default, RunFinished(exit_code=1)]))


def test_a_run_under_way_has_no_verdict() -> None:
    """A loss isn't offered as the best so far."""
    events = interrupted()[:-2]
    assert headline(RunView.of(events)) == (
        "unfinished, in search after 17 s: no verdict; the best so far, 1.33x, is not confirmed"
    )
    losing = [
        msgspec.structs.replace(e, value=abs(e.value)) if isinstance(e, TrialFinished) and e.value else e
        for e in events
    ]
    assert headline(RunView.of(losing)) == "unfinished, in search after 17 s: no verdict"
    assert headline(RunView.of([])) == "nothing has run yet"


def test_next_after_a_gain_is_to_use_it() -> None:
    """Quoted for the shell; without the file the run itself makes it."""
    view = RunView.of(faster())
    assert next_step(view, FILES).command == f". {FILES['shell']}"
    assert next_step(view, {"shell": "a b/best.sh"}).command == ". 'a b/best.sh'"
    assert next_step(view, {}).command == "tune workloads/nbody.py --budget 180"


@pytest.mark.parametrize(
    ("events", "command", "purpose"),
    [
        (interrupted(), "tune workloads/nbody.py --budget 180", "goes on where this ended"),
        (interrupted()[:-2], "tune workloads/nbody.py --budget 180", "goes on where this ended"),
        (all_failed(), "tune show --failed", "every failure"),
        ([*interrupted()[:-2], RunFinished(exit_code=1)], "tune show --failed", "every failure"),
        (same(), "", "the defaults are as fast"),
        (unclear(), "tune workloads/nbody.py --budget 6m", "in twice the time resolves smaller gains"),
    ],
)
def test_next_fits_the_end(events: list[AnyEvent], command: str, purpose: str) -> None:
    """A command to type, or words where there is nothing to type."""
    step = next_step(RunView.of(events), {})
    assert step.command == command
    assert purpose in step.purpose


@pytest.mark.parametrize(
    ("command", "longer"),
    [
        ("tune w.py", "tune w.py --budget 3m"),
        ("tune w.py --budget 45s --space gpu", "tune w.py --space gpu --budget 3m"),
        ("tune w.py --budget=45s -- --budget 3", "tune w.py --budget 3m -- --budget 3"),
        ("", ""),
    ],
)
def test_an_unclear_end_asks_for_twice_the_time(command: str, longer: str) -> None:
    view = msgspec.structs.replace(RunView.of(unclear()), command=tuple(command.split()), options={"budget_s": "90"})
    assert next_step(view, {}).command == longer
    odd = msgspec.structs.replace(view, options={"budget_s": "45.5"})
    assert next_step(odd, {}).command == longer.replace("3m", "91s")
    untold = next_step(msgspec.structs.replace(view, options={}), {})
    assert (untold.command, untold.purpose) == ("", "a larger --budget resolves smaller gains")
    counts = msgspec.structs.replace(view.counts, left={"skipped": 3})
    assert "the 3 knobs that had no room" in next_step(msgspec.structs.replace(view, counts=counts), {}).purpose


def test_where_no_finalist_worked_more_time_does_not_help() -> None:
    view = RunView.of(unclear())
    assert view.confirm is not None
    assert view.confirm.finalists
    failure = failing(FailureClass.LANE_MISMATCH, "compiles to other code", phase="compile")
    finalists = tuple(msgspec.structs.replace(f, failure=failure) for f in view.confirm.finalists)
    confirm = msgspec.structs.replace(view.confirm, finalists=finalists)
    assert next_step(msgspec.structs.replace(view, confirm=confirm), {}).command == "tune show --failed"


def test_measuring_anew_leaves_the_workloads_own_arguments_alone() -> None:
    view = msgspec.structs.replace(RunView.of(unstable()), command=("tune", "w.py", "--", "--fresh-data", "x"))
    assert next_step(view, {}).command == "tune w.py --fresh -- --fresh-data x"


def test_defaults_that_hold_say_what_was_not_tried() -> None:
    view = RunView.of(same())
    assert "budget" not in next_step(view, {}).purpose
    counts = msgspec.structs.replace(view.counts, left={**view.counts.left, "skipped": 41})
    assert "; 41 knobs had no room in the budget" in next_step(msgspec.structs.replace(view, counts=counts), {}).purpose


def test_what_no_variable_carries_is_told_beside_the_file_that_sets_the_rest() -> None:
    """A winner that is an argument of build() isn't had by sourcing a file."""
    events = faster()
    assert next_step(RunView.of(events), FILES).purpose == "in the shell that starts your program"
    own = from_workload({MALLOC: ("1",)}, source="w.py")  # a setting of the winner, as the workload's own knob
    told = []
    for event in events:
        if isinstance(event, StageFinished) and isinstance(event.record, ProbeRecord):
            knobs = tuple(k for k in event.record.knobs if k.name != MALLOC)
            event = msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, knobs=(*knobs, *own)))
        told.append(event)
    purpose = next_step(RunView.of(told), FILES).purpose
    assert purpose.endswith(f"; no variable carries {MALLOC}=1: start it that way yourself")
