"""Candidates grouped by how they communicated, whatever they had asked for: what ``tune show --ran`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tuner.knobs import DEFAULT
from tuner.report.document import interval_json, plain, speedup_json
from tuner.report.layout import Page
from tuner.report.view import RunView
from tuner.report.wording import clean, count, ratio, settings
from tuner.store.events import AnyEvent, CandidateCompiled, NcclRead, TrialFinished

__all__ = ["SCHEMA", "Ran", "groups", "ran_document", "render_ran"]

SCHEMA = "tuner/ran/1"


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """Trials whose programs have the same collectives in the same order, carried out alike. `collectives`: how many of
    each kind. `nccl`: algorithm and protocol by operation and size, as NCCL tells them; {} where it doesn't. `asked`:
    by trial, what was asked for and not done. `default`: the default is among them."""

    collectives: dict[str, int]
    channels: int | None
    nccl: dict[str, str]
    trials: tuple[TrialFinished, ...]
    asked: dict[int, tuple[str, ...]]
    default: bool


def groups(events: Sequence[AnyEvent]) -> tuple[Ran, ...]:
    """The groups of a run's compiled trials, the default's first, then by size; () if they have no collectives."""
    compiled = {(e.session, e.config): e.compiled for e in events if isinstance(e, CandidateCompiled)}
    read = {e.session: e for e in events if isinstance(e, NcclRead)}
    found: dict[tuple[Any, ...], list[TrialFinished]] = {}
    trials = {e.number: e for e in events if isinstance(e, TrialFinished)}
    for trial in trials.values():
        made = compiled.get((trial.session, trial.config))
        if made is None or not made.collectives:
            continue
        said = read.get(trial.session)
        how = (said.channels, tuple(sorted(said.ran.items()))) if said else (None, ())
        found.setdefault((made.schedule, tuple(made.collectives.items()), *how), []).append(trial)
    made_groups = [
        Ran(
            collectives=dict(kinds),
            channels=channels,
            nccl=dict(ran),
            trials=tuple(members),
            asked={t.number: read[t.session].asked for t in members if t.session in read and read[t.session].asked},
            default=any(t.config == DEFAULT for t in members),
        )
        for (_, kinds, channels, ran), members in found.items()
    ]
    return tuple(sorted(made_groups, key=lambda group: (not group.default, -len(group.trials))))


def render_ran(events: Sequence[AnyEvent], *, width: int = 100, color: bool = False) -> str:
    """Each group's communication, then what had asked for it, the fastest first."""
    found, view = groups(events), RunView.of(events)
    page = Page(width)
    if not found:
        page.prose(f"no candidate of run {view.run} communicates: its program has no collectives", style="bold")
        return page.text(color=color)
    page.prose(f"{count(len(found), 'way', 'ways')} of communicating in run {view.run}", style="bold")
    for group in found:
        page.heading(_title(group), "the default's" if group.default else "")
        for trial in sorted(group.trials, key=_slowness):
            page.line(f"trial {trial.number}  {_result(trial)}  {settings(trial.config)}", indent=2)
            for text in group.asked.get(trial.number, ()):
                page.prose(clean(text), indent=6, style="yellow")
    return page.text(color=color)


def _title(group: Ran) -> str:
    told = [", ".join(f"{number} {kind}" for kind, number in sorted(group.collectives.items()))]
    told += [f"{how} for {what} bytes" for what, how in sorted(group.nccl.items())[:3]]
    told += [f"{group.channels} channels"] if group.channels is not None else []
    return "; ".join(told)


def _slowness(trial: TrialFinished) -> tuple[bool, float, int]:
    return trial.value is None, trial.value or 0.0, trial.number


def _result(trial: TrialFinished) -> str:
    if trial.failure is not None:
        return f"failed ({trial.failure.kind.value})"
    return ratio(trial.estimate) if trial.estimate else "not timed"


def ran_document(events: Sequence[AnyEvent]) -> dict[str, Any]:
    """What ``tune show --ran --json`` prints, schema tuner/ran/1."""
    return plain(
        {
            "schema": SCHEMA,
            "run": RunView.of(events).run,
            "groups": [
                {
                    "default": group.default,
                    "collectives": group.collectives,
                    "channels": group.channels,
                    "nccl": group.nccl,
                    "trials": [
                        {
                            "trial": trial.number,
                            "settings": trial.config.as_dict(),
                            "speedup": speedup_json(trial.estimate),
                            "speedup_ci": interval_json(trial.estimate),
                            "failure": trial.failure.kind if trial.failure else None,
                            "requested_and_ran": list(group.asked.get(trial.number, ())),
                        }
                        for trial in sorted(group.trials, key=_slowness)
                    ],
                }
                for group in groups(events)
            ],
        }
    )
