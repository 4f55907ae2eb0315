"""What a run's time went into, from its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec
import pytest
from synthetic_run import faster

from tuner.protocol.failure import Failure, FailureClass
from tuner.report.spent import Spent, clocked, spent
from tuner.store.events import (
    AnyEvent,
    CandidateCompiled,
    Interruption,
    NumericsCompared,
    ProfileJudged,
    Resumed,
    RoundTimed,
    RunStarted,
    SessionClosed,
    SessionStarted,
    TrialFinished,
)

E = TypeVar("E", bound=AnyEvent)


def parts(found: Spent) -> float:
    return sum(v for n, v in msgspec.structs.asdict(found).items() if n != "total_s")


def taken(events: Sequence[AnyEvent]) -> Spent:
    return spent(events, clocked(events)[0])


def test_the_parts_add_up_and_are_what_the_events_say() -> None:
    """Compiles, timed steps with their discarded ones, process starts."""
    events = faster()
    found = taken(events)
    assert found.compile_s == pytest.approx(0.65 * sum(isinstance(e, CandidateCompiled) for e in events))
    blocks = [b for e in events if isinstance(e, RoundTimed) for b in e.blocks]
    assert found.steps_s == pytest.approx(sum(b.seconds + b.first_s for b in blocks))
    assert found.processes_s >= sum(e.start_s for e in events if isinstance(e, SessionStarted)) > 0
    assert found.total_s == pytest.approx(events[-1].time - events[0].time)
    assert parts(found) == pytest.approx(found.total_s)


@pytest.mark.parametrize(
    ("kind", "role", "part"),
    [
        (NumericsCompared, "home", "checks_s"),
        (SessionClosed, "home", "processes_s"),
        (SessionClosed, "profile", "profiles_s"),
    ],
)
def test_what_happened_before_such_an_event_is_its_own(kind: type[AnyEvent], role: str, part: str) -> None:
    """A check is told once it is made, a session's end once it has ended; of a profile's session all is the profile."""
    events = [msgspec.structs.replace(e, role=role) if isinstance(e, SessionStarted) else e for e in faster()]
    at = next(i for i, e in enumerate(events) if isinstance(e, kind))
    later = [msgspec.structs.replace(e, time=e.time + 7.0) if i >= at else e for i, e in enumerate(events)]
    gained = {n: v - getattr(taken(events), n) for n, v in msgspec.structs.asdict(taken(later)).items()}
    assert {n: v for n, v in gained.items() if v > 1e-6} == {part: pytest.approx(7.0), "total_s": pytest.approx(7.0)}


def test_a_pause_between_invocations_is_nobodys() -> None:
    events = faster()
    middle = len(events) // 2
    later = [msgspec.structs.replace(e, time=e.time + 1000.0) for e in events[middle:]]
    cut = Interruption(stage="search", time=events[middle - 1].time)
    again = next(e for e in events if isinstance(e, RunStarted))
    resumed = [*events[:middle], cut, msgspec.structs.replace(again, time=later[0].time), *later]
    assert clocked(resumed)[0] == pytest.approx(clocked(events)[0], abs=1.0)


def test_nor_is_one_after_an_invocation_that_was_killed() -> None:
    """It could tell of no interruption; the first that is heard of the next one is that it goes on."""
    begun, timed = first(RunStarted), first(RoundTimed)
    events = [at(begun, 0.0), at(timed, 4.0), at(Resumed(), 5000.0), at(timed, 5003.0)]
    assert clocked(events) == (7.0, 7.0)


def first(kind: type[E]) -> E:
    """One such event of a run, to be changed."""
    return next(e for e in faster() if isinstance(e, kind))


def at(event: E, seconds: float, **changes: object) -> E:
    """The event with these fields, told so many seconds after the beginning."""
    return msgspec.structs.replace(event, time=1000.0 + seconds, **changes)  # type: ignore[type-var]


def shares(*events: AnyEvent) -> dict[str, float]:
    """Seconds of everything that took some, behind a start at the beginning."""
    found = taken([at(first(RunStarted), 0.0), *events])
    assert parts(found) == pytest.approx(found.total_s)
    return {n: round(v, 9) for n, v in msgspec.structs.asdict(found).items() if v and n != "total_s"}


def test_putting_the_state_back_is_part_of_timing() -> None:
    block = replace(first(RoundTimed).blocks[0], first_s=0.5, seconds=2.0, reset_s=1.25)
    assert shares(at(first(RoundTimed), 4.0, blocks=(block,))) == {"steps_s": 3.75, "other_s": 0.25}


def test_a_profile_and_the_compile_with_it_are_told_once() -> None:
    """The profile is told when both are done, and the candidate says that the run waited for both."""
    compiled = first(CandidateCompiled)
    made = replace(compiled.compiled, lower_s=0.5, compile_s=1.5)
    judged = ProfileJudged(session="home", config=compiled.config, runs=3, percentile=90, facts=None)
    made_with_it = at(compiled, 10.0, compiled=made, share_s=10.0)
    assert shares(at(judged, 10.0), made_with_it) == {"compile_s": 2.0, "profiles_s": 8.0}
    # In a fresh process nothing but the compile goes on.
    alone = at(compiled, 10.0, compiled=made, share_s=3.0)
    assert shares(at(judged, 7.0), at(first(SessionClosed), 7.0), alone) == {"compile_s": 3.0, "profiles_s": 7.0}


def test_waiting_for_candidates_that_do_not_compile_is_waiting_for_compiles() -> None:
    failure = Failure(kind=FailureClass.COMPILE, phase="compile", message="no")
    trial = first(TrialFinished)
    assert shares(at(trial, 6.0, failure=failure), at(trial, 6.0, failure=failure)) == {"compile_s": 6.0}
    assert shares(at(trial, 6.0, failure=replace(failure, phase="round"))) == {"other_s": 6.0}


def test_what_a_seals_processes_do_before_their_first_block_is_compiling() -> None:
    begun = first(SessionStarted)
    block = replace(first(RoundTimed).blocks[0], first_s=0.5, seconds=2.0, reset_s=0.5)
    both = [at(begun, 4.0, role="seal", start_s=2.0, session=name) for name in ("loads", "compiles")]
    timed = at(first(RoundTimed), 10.0, blocks=(block,))
    assert shares(*both, timed) == {"processes_s": 4.0, "compile_s": 3.0, "steps_s": 3.0}
