"""Recorded sessions: a run's events, indexed by session and config, so that a replay can draw on them."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.knobs.config import Config
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Block, Compiled, NumericsReply
from tuner.store.events import (
    AnyEvent,
    CandidateCompiled,
    NumericsCompared,
    PreciseReference,
    RoundTimed,
    SessionClosed,
    SessionStarted,
    StageFinished,
    TrialFinished,
)
from tuner.store.records import ProbeRecord

__all__ = ["Label", "RecordedRound", "RecordedRun", "Recording"]

Label = Config | str
"""Whom a recorded block belongs to: a config, or the bare handle of what was compiled outside the space (a twin)."""

RecordedRound = dict[Label, list[Block]]
"""One round's blocks by owner, in the order timed."""


class Recording:
    """What one session left in the log."""

    def __init__(self, started: SessionStarted) -> None:
        self.started = started
        self.compiled: dict[Config, Compiled] = {}
        self.gates: dict[Config, list[NumericsReply]] = {}
        self.nulls: list[NumericsReply] = []
        self.coarse: list[NumericsReply] = []
        self.precise: dict[Config, list[NumericsReply]] = {}
        self.references: list[PreciseReference] = []
        self.rounds: list[RecordedRound] = []
        self._owners: dict[str, Config] = {}

    @property
    def config(self) -> Config:
        """The session's own environment-lane setting."""
        return self.started.config

    def take(self, event: AnyEvent) -> None:
        """Add one event of this session."""
        if isinstance(event, CandidateCompiled):
            self.compiled[event.config] = event.compiled
            self._owners[event.compiled.id] = event.config
        elif isinstance(event, NumericsCompared) and not event.function:
            if event.purpose == "gate":
                self.gates.setdefault(event.config, []).append(event.reply)
            else:
                (self.nulls if event.purpose == "null" else self.coarse).append(event.reply)
            if event.precise is not None:
                self.precise.setdefault(event.config, []).append(event.precise)
        elif isinstance(event, PreciseReference):
            self.references.append(event)
        elif isinstance(event, RoundTimed) and not event.function:
            self.rounds.append(self._by_owner(event))

    def _by_owner(self, event: RoundTimed) -> RecordedRound:
        blocks: RecordedRound = {}
        for block in event.blocks:
            own: Label = self.config if block.id == event.control else self._owners.get(block.id, block.id)
            blocks.setdefault(own, []).append(block)
        return blocks


class RecordedRun:
    """All sessions of a run by name, how its candidates failed, and the option types that its probe found.

    `failures`: by config and phase, whichever session it was. `endings`: the failures that ended a session.
    """

    def __init__(self, events: Iterable[AnyEvent]) -> None:
        self.sessions: dict[str, Recording] = {}
        self.failures: dict[tuple[Config, str], Failure] = {}
        self.endings: list[Failure] = []
        self.option_types: dict[str, str] = {}
        for event in events:
            self._take(event)

    def configs(self) -> list[Config]:
        """Every config that was compiled or failed, sorted."""
        compiled = {c for recording in self.sessions.values() for c in recording.compiled}
        return sorted(compiled | {config for config, _ in self.failures})

    def labels(self) -> set[Label]:
        """All that was timed."""
        return {label for recording in self.sessions.values() for one in recording.rounds for label in one}

    def tiers(self, own: Recording) -> list[list[Recording]]:
        """The recordings, nearest to `own` first: itself, those of the same setting, the rest."""
        others = [r for r in self.sessions.values() if r is not own]
        same = [r for r in others if r.config == own.config]
        return [[own], same, [r for r in others if r.config != own.config]]

    def _take(self, event: AnyEvent) -> None:
        if isinstance(event, SessionStarted):
            self.sessions[event.session] = Recording(event)
        elif isinstance(event, (CandidateCompiled, NumericsCompared, PreciseReference, RoundTimed)):
            if event.session in self.sessions:
                self.sessions[event.session].take(event)
        elif isinstance(event, TrialFinished):
            if event.failure is not None:
                self.failures.setdefault((event.config, event.failure.phase), event.failure)
        elif isinstance(event, SessionClosed):
            if event.failure is not None:
                self.endings.append(event.failure)
        elif isinstance(event, StageFinished) and isinstance(event.record, ProbeRecord):
            self.option_types = event.record.option_types
