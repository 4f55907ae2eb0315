"""What a run spent its time on, by its own clock: told by the events alone, so that any log tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tuner.store.events import (
    AnyEvent,
    CandidateCompiled,
    Interruption,
    NumericsCompared,
    PreciseReference,
    Profiled,
    ProfileJudged,
    Resumed,
    RoundTimed,
    RunFinished,
    RunStarted,
    SessionClosed,
    SessionStarted,
    StageFinished,
    TrialFinished,
)

__all__ = ["Spent", "clocked", "spent"]


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds by the clock. `compile_s`: waiting for compiles, also those that failed. `steps_s`: running timed steps,
    those that are discarded and putting the state back included. `checks_s`: comparing
    numbers, with the steps and the references that this takes. `processes_s`: starting and ending processes, the first
    starts from a sealed cache included. `profiles_s`: taking profiles. `other_s`: all else, the tuner's own work.
    """

    compile_s: float
    steps_s: float
    checks_s: float
    processes_s: float
    profiles_s: float
    other_s: float
    total_s: float


def clocked(events: Sequence[AnyEvent]) -> tuple[float, float]:
    """Seconds the run was at work, and those since its last finished stage; pauses between invocations don't count."""
    elapsed = at_stage = 0.0
    for event, seconds in _gaps(events):
        elapsed += seconds
        if isinstance(event, StageFinished):
            at_stage = elapsed
    return elapsed, elapsed - at_stage


def spent(events: Sequence[AnyEvent], total_s: float) -> Spent:
    """What `total_s` seconds of a run went into. Checks and profiles are told as soon as they are done, a session's end
    once it has ended: the time since the event before is theirs. So is that of candidates of which none compiled. A
    seal's processes don't tell that they compile."""
    compile_s = steps_s = checks_s = processes_s = profiles_s = 0.0
    roles: dict[str, str] = {}
    before: AnyEvent | None = None
    for event, seconds in _gaps(events):
        match event:
            case CandidateCompiled() if isinstance(before, ProfileJudged) and before.config == event.config:
                # Its profile was taken, and it was compiled with that, before the profile was told.
                compile_s += event.compiled.lower_s + event.compiled.compile_s
                profiles_s -= event.compiled.lower_s + event.compiled.compile_s
            case CandidateCompiled():
                compile_s += _waited_s(event)
            case TrialFinished() if event.failure is not None and event.failure.phase == "compile":
                compile_s += seconds
            case RoundTimed():
                timed_s = sum(block.reset_s + block.first_s + block.seconds for block in event.blocks)
                steps_s += timed_s
                if isinstance(before, SessionStarted) and before.role == "seal":
                    compile_s += max(0.0, seconds - timed_s)
            case NumericsCompared() | PreciseReference():
                checks_s += seconds
            case SessionStarted():
                roles[event.session] = event.role
                processes_s += event.start_s
            case SessionClosed() if roles.get(event.session) != "profile":
                processes_s += seconds
            case SessionClosed() | Profiled() | ProfileJudged():
                profiles_s += seconds
        before = event
    known = compile_s + steps_s + checks_s + processes_s + profiles_s
    return Spent(
        compile_s=compile_s,
        steps_s=steps_s,
        checks_s=checks_s,
        processes_s=processes_s,
        profiles_s=profiles_s,
        other_s=max(0.0, total_s - known),
        total_s=total_s,
    )


def _gaps(events: Sequence[AnyEvent]) -> Iterator[tuple[AnyEvent, float]]:
    """Each event with the seconds since the one before, in the same invocation of the tuner."""
    previous: float | None = None
    ended = False
    for event in events:
        since = 0.0
        if isinstance(event, (RunStarted, Resumed)) or (ended and isinstance(event, SessionStarted)):
            # In a log that doesn't tell of the new invocation its first event may be a session's start, which is its.
            since = event.start_s if isinstance(event, SessionStarted) else 0.0
            ended = False
        elif previous is not None:
            since = max(0.0, event.time - previous)
        previous = event.time
        ended = ended or isinstance(event, (Interruption, RunFinished))
        yield event, since


def _waited_s(event: CandidateCompiled) -> float:
    """Seconds that the run waited for this candidate (a log that doesn't say: its own compile time)."""
    return event.compiled.lower_s + event.compiled.compile_s if event.share_s is None else event.share_s
