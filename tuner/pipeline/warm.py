"""Warm start: what was best for programs like this one is tried first, and measured like everything else."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.errors import StoreError
from tuner.knobs import DEFAULT, UNSET, Config, Knob
from tuner.pipeline.context import Run
from tuner.store.events import CandidateCompiled, WarmStart
from tuner.store.near import neighbours
from tuner.store.neighbour import Neighbour
from tuner.store.records import ProbeRecord

__all__ = ["likely_knobs", "look_around", "starts"]

# A start that needs a session of its own costs one: more of them than this are not worth the presets' time.
_STARTS = 4


def look_around(run: Run) -> None:
    """Find the programs like this one, once a run, and say so. Finding none is an event, too: a run that is gone on
    with doesn't look again, where another one may have finished meanwhile."""
    if any(isinstance(e, WarmStart) for e in run.events):
        return
    run.emit(WarmStart(neighbours=_found(run)))
    for neighbour in _neighbours(run):
        if configs := _here(run, neighbour):
            run.notice(
                f"started from a program like this one, {neighbour.text}: first tried is {'; '.join(map(str, configs))}"
            )


def starts(run: Run) -> dict[Config, str]:
    """What was best for the neighbours, as far as it can be set here, nearest first, with its label."""
    labels: dict[Config, str] = {}
    for neighbour in _neighbours(run):
        for config in _here(run, neighbour):
            labels.setdefault(config, f"best of {neighbour.run}, a program like this one")
    return dict(list(labels.items())[:_STARTS])


def likely_knobs(run: Run) -> frozenset[str]:
    """The live knobs that made neighbours faster: they are screened before the others."""
    return frozenset(name for config in starts(run) for name in config.names)


def _found(run: Run) -> tuple[Neighbour, ...]:
    control = next((e.compiled for e in run.events if isinstance(e, CandidateCompiled) and e.config == DEFAULT), None)
    if control is None or control.sketch is None:
        return ()
    environment = run.record("probe", ProbeRecord).environment
    try:
        return neighbours(run.index, control.program, control.sketch, environment, objective=run.options.objective)
    except StoreError as error:
        run.notice(f"programs like this one could not be looked up: {error.what}")
        return ()


def _neighbours(run: Run) -> Iterable[Neighbour]:
    return next((e.neighbours for e in run.events if isinstance(e, WarmStart)), ())


def _here(run: Run, neighbour: Neighbour) -> list[Config]:
    """The neighbour's configs without what isn't live here: knobs and values may be others in another version."""
    live = run.live
    kept = [
        Config.of({n: v for n, v in config.settings if n in live and _takes(live[n], v)})
        for config in neighbour.configs
    ]
    return [config for config in dict.fromkeys(kept) if config != DEFAULT]


def _takes(knob: Knob, value: str) -> bool:
    return value != UNSET and value in knob.values
