"""RunView: what is computed from a run's events, however far they go."""

from __future__ import annotations

import msgspec
import pytest
from synthetic_run import FILES, MALLOC, MATH, PASSES, SCENARIOS, SPLIT, all_failed, failing, faster, interrupted, same

from tuner.knobs.config import Config
from tuner.knobs.status import KnobStatus
from tuner.protocol.failure import FailureClass
from tuner.report.view import STAGES, RunView, gone
from tuner.store.events import (
    AnyEvent,
    Interruption,
    RunFinished,
    RunStarted,
    SessionClosed,
    SessionStarted,
    StageFinished,
)


def shifted(event: AnyEvent, by_s: float) -> AnyEvent:
    return msgspec.structs.replace(event, time=event.time + by_s)


def test_stages_are_those_of_the_pipeline() -> None:
    """Their order is the order of the records' union."""
    assert STAGES == (
        "probe",
        "baseline",
        "presets",
        "screen",
        "search",
        "minimise",
        "confirm",
        "seal",
        "report",
    )


def test_a_finished_run_has_every_record() -> None:
    """Records are found by their type, seconds by their stage, and nothing is left open."""
    view = RunView.of(faster())
    assert view.run == "nbody-3f9ac2d17b04"
    assert [getattr(view, stage) is not None for stage in STAGES] == [True] * 9
    assert tuple(view.stages) == STAGES
    assert (view.unfinished, view.interrupted, view.exit_code) == ("", False, 0)
    assert view.report is not None
    assert view.report.files == FILES
    assert view.pairs == 6


def test_counts() -> None:
    """Knobs by what became of them, candidates by what was done with them; shared samples are counted apart."""
    counts = RunView.of(faster()).counts
    assert (counts.offered, counts.live) == (12, 3)
    assert counts.left == {"inapplicable": 5, "unsupported": 2, "pinned": 1, "failed": 1}
    assert (counts.deduplicated, counts.timed) == (2, 8)
    assert counts.failed == {"wrong_result": 1, "fatal": 1}
    # Seven configs at home and in the session beside it, one of them twice, and two processes for each of six pairs.
    assert counts.compiled == 7 + 2 * 6


def test_every_knob_offered_is_live_or_left() -> None:
    """The numbers add up."""
    for events in (f() for f in SCENARIOS.values()):
        counts = RunView.of(events).counts
        assert counts.offered == counts.live + sum(counts.left.values())


def test_a_knob_that_lost_all_its_values_left_once() -> None:
    """Its reasons are kept value by value; one that keeps a value is narrowed, one with another name is not gone."""
    view = RunView.of(faster())
    (passes,) = [status for status in view.left if status.name == PASSES]
    assert passes.status == "failed"
    assert passes.reason == "(empty): wrong, [0].v differs; fusion: failed, ends the process"
    assert {(s.name, s.status) for s in view.narrowed} == {(SPLIT, "inert"), (SPLIT, "renamed")}


def test_a_reason_for_the_whole_knob_outranks_those_for_values() -> None:
    """Once the whole knob is gone, what its values did before doesn't matter."""
    some = KnobStatus(name="a", status="unsupported", reason="bad", values=("1",))
    whole = KnobStatus(name="a", status="inert", reason="same code")
    assert gone([some, whole], ()) == {"a": whole}
    assert gone([some, whole], ("a",)) == {}


def test_failures_are_grouped_most_frequent_first() -> None:
    """Each with the trial that has it."""
    failures = RunView.of(all_failed()).failures
    assert [(kind.value, len(entries)) for kind, entries in failures.items()] == [
        ("fatal", 2),
        ("out_of_memory", 2),
        ("crash", 1),
    ]
    assert [entry.trial for entry in failures[FailureClass.FATAL]] == [1, 2]


def test_a_session_failure_that_a_candidate_explains_is_not_told_twice() -> None:
    """A crash of the session is the candidate's; another end is the session's own; ending it ourselves is none."""
    assert RunView.of(all_failed()).session_failures == ()
    assert RunView.of(interrupted()).session_failures == ()
    lost = SessionClosed(session="e1", failure=failing(FailureClass.PROTOCOL, "pipe closed"))
    assert [e.session for e in RunView.of([*all_failed(), lost]).session_failures] == ["e1"]


def test_a_finalist_that_fails_when_confirmed_counts_as_failed() -> None:
    """It has no trial of that kind: its own trial was fine."""
    events = same()
    for index, event in enumerate(events):
        if isinstance(event, StageFinished) and event.stage == "confirm":
            (finalist,) = event.record.finalists
            mismatch = failing(FailureClass.LANE_MISMATCH, "other code", phase="confirm")
            failed = msgspec.structs.replace(finalist, failure=mismatch)
            record = msgspec.structs.replace(event.record, finalists=(failed,))
            events[index] = msgspec.structs.replace(event, record=record)
    (entry,) = RunView.of(events).failures[FailureClass.LANE_MISMATCH]
    assert (entry.trial, entry.stage, entry.config) == (-1, "confirm", Config.of({MATH: "false"}))


def test_effects_belong_to_the_config_that_is_emitted() -> None:
    """Where confirm chose another config than the reduced one, their own effects are unknown."""
    assert set(RunView.of(faster()).effects) == {MATH, MALLOC}
    assert RunView.of(same()).effects == {}
    events = [
        msgspec.structs.replace(e, record=msgspec.structs.replace(e.record, chosen=Config.of({MATH: "false"})))
        if isinstance(e, StageFinished) and e.stage == "confirm"
        else e
        for e in faster()
    ]
    assert RunView.of(events).effects == {}


def test_the_best_trial_sets_something() -> None:
    """The default isn't its own rival; with everything failed there is none."""
    best = RunView.of(interrupted()).best_trial
    assert best is not None
    assert best.config == Config.of({MATH: "false", SPLIT: "8"})
    assert RunView.of(all_failed()).best_trial is None
    assert RunView.of(all_failed()).all_failed
    assert not RunView.of(same()).all_failed


def test_an_interrupted_run_says_where() -> None:
    """And how long that stage had been at work."""
    view = RunView.of(interrupted())
    assert (view.unfinished, view.interrupted, view.exit_code) == ("search", True, None)
    assert 0 < view.unfinished_s < view.spent.total_s
    assert view.search is None


@pytest.mark.parametrize("again", [RunStarted, SessionStarted])
def test_a_resumed_run_is_no_longer_interrupted(again: type[AnyEvent]) -> None:
    """Whichever event opens the next invocation; the pause between the two is not time at work."""
    first = interrupted()
    opening = next(e for e in faster() if isinstance(e, again))
    resumed = shifted(msgspec.structs.replace(opening, time=first[-1].time), 86400.0)
    view = RunView.of([*first, resumed])
    assert (view.unfinished, view.interrupted, view.exit_code) == ("search", False, None)
    assert view.spent.total_s < RunView.of(first).spent.total_s + 10


def test_a_stage_that_ends_after_the_interruption_clears_it() -> None:
    """Ctrl-C may come while a stage is just finishing."""
    events = interrupted()
    ended = StageFinished(stage="search", seconds=1.0, record=RunView.of(faster()).search)
    assert not RunView.of([*events, ended]).interrupted


def test_notices_come_once_each() -> None:
    """From events and records alike."""
    events = faster()
    assert len(RunView.of([*events, *events]).notices) == len(RunView.of(events).notices) == 3


def test_the_report_stage_alone_leaves_nothing_open() -> None:
    """The result is written from inside it; before it, and after a failure, the run is unfinished."""
    events = faster()
    sealed = next(i for i, e in enumerate(events) if isinstance(e, StageFinished) and e.stage == "seal")
    assert RunView.of(events[: sealed + 1]).unfinished == ""
    assert RunView.of(events[:sealed]).unfinished == "seal"
    assert RunView.of([*events[: sealed + 1], RunFinished(exit_code=1)]).unfinished == "report"
    assert RunView.of([*events[:sealed], RunFinished(exit_code=4)]).unfinished == ""


def test_no_events_make_an_empty_view() -> None:
    """Nothing is known, and nothing raises."""
    view = RunView.of([])
    assert (view.run, view.counts.offered, view.spent.total_s, view.unfinished) == ("", 0, 0.0, "probe")


def test_interruptions_without_progress() -> None:
    """Ctrl-C before anything else."""
    assert RunView.of([Interruption(stage="probe")]).interrupted
