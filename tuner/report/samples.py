"""The raw samples of a run, told apart for plots: pairs of fresh processes, the control's level, the machine."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tuner.knobs.config import DEFAULT, Config
from tuner.measure.objective import Objective
from tuner.store.events import AnyEvent, PairTimed, RoundTimed, SessionStarted

__all__ = ["Level", "PairSamples", "control_levels", "pair_samples", "readings_over_time"]


class PairSamples(msgspec.Struct, frozen=True, kw_only=True):
    """One pair of fresh processes that counts. `control_ms`, `finalist_ms`: every block of the default and of a
    finalist (values of the objective), in the order timed, the first ones included that don't count; empty where the
    log doesn't hold them. `control_level`, `finalist_level`: what the pair says of each, in ms.
    """

    index: int
    control_ms: tuple[float, ...]
    finalist_ms: tuple[float, ...]
    control_level: float
    finalist_level: float
    disturbed: str


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """The control's value in one block. `time`: seconds since the epoch; `home`: in the home session."""

    time: float
    ms: float
    session: str
    home: bool
    disturbed: str


def pair_samples(events: Sequence[AnyEvent], config: Config, objective: Objective) -> list[PairSamples]:
    """The pairs that confirmed `config`, by index; of a pair that was timed again, the last."""
    started: dict[str, SessionStarted] = {}
    running: dict[Config, str] = {}  # the processes of the pair under way, by what they run
    blocks: dict[str, list[float]] = {}
    found: dict[int, PairSamples] = {}
    for event in events:
        match event:
            case SessionStarted(role="confirm"):
                started[event.session] = event
                running[event.config] = event.session
            case RoundTimed(stage="confirm", function="") if event.session in started:
                work = started[event.session].loaded.work or 1.0
                times = [1e3 * objective.value_s(block, work=work) for block in event.blocks]
                blocks.setdefault(event.session, []).extend(times)
            case PairTimed() if event.config == config:
                found[event.index] = PairSamples(
                    index=event.index,
                    control_ms=tuple(blocks.get(running.get(DEFAULT, ""), ())),
                    finalist_ms=tuple(blocks.get(running.get(config, ""), ())),
                    control_level=event.control_ms,
                    finalist_level=event.finalist_ms,
                    disturbed=event.disturbed,
                )
            case _:
                pass
    return [found[index] for index in sorted(found)]


def control_levels(events: Sequence[AnyEvent], objective: Objective) -> list[Level]:
    """Every block in which default settings were timed, in all sessions whose environment is the default's too."""
    started = {e.session: e for e in events if isinstance(e, SessionStarted)}
    levels = []
    for event in events:
        session = started.get(event.session) if isinstance(event, RoundTimed) and not event.function else None
        if not isinstance(event, RoundTimed) or session is None or session.config != DEFAULT:
            continue
        work = session.loaded.work or 1.0
        levels += [
            Level(
                time=event.time,
                ms=1e3 * objective.value_s(block, work=work),
                session=event.session,
                home=session.role == "home",
                disturbed=event.disturbed,
            )
            for block in event.blocks
            if block.id == event.control
        ]
    return levels


def readings_over_time(events: Sequence[AnyEvent], name: str) -> list[tuple[float, float]]:
    """(time, value) of one machine reading; of an accelerator's (``clock_mhz``), the lowest over all cards."""
    found = []
    for event in events:
        if isinstance(event, (RoundTimed, PairTimed)):
            values = [v for n, v in event.conditions.items() if n == name or n.partition("_")[2] == name]
            if values:
                found.append((event.time, min(values)))
    return found
