"""What a run's time went into, from its events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from synthetic_run import faster

from tuner.report.spent import Spent, clocked, spent
from tuner.store.events import (
    AnyEvent,
    CandidateCompiled,
    Interruption,
    NumericsCompared,
    RoundTimed,
    RunStarted,
    SessionClosed,
    SessionStarted,
)


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
