"""Run: what the stages share: options, space, event log, budget, random numbers, and all that was found so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np

from tuner.errors import TunerError
from tuner.knobs import Config, Knob, SearchSpace
from tuner.machine import Conditions
from tuner.measure import Estimate
from tuner.pipeline.budget import Budget
from tuner.pipeline.options import RunOptions
from tuner.pipeline.workload_file import WorkloadFile
from tuner.report.listener import Listener, Status
from tuner.session import SessionFactory
from tuner.store.events import AnyEvent, Notice, OffsetMeasured, SessionStarted, StageFinished, TrialFinished
from tuner.store.folder import RunFolder
from tuner.store.index import Index
from tuner.store.log import EventLog
from tuner.store.records import ProbeRecord, ScreenRecord, StageRecord

__all__ = ["Run"]

R = TypeVar("R")


class Run:
    """One invocation of `tune`. Stages read and write here; every change of state is an event first.

    `remember` folds an event into the state, and is all that resuming needs: the log's events are remembered in order.
    """

    def __init__(
        self,
        *,
        options: RunOptions,
        workload: WorkloadFile,
        space: SearchSpace,
        held: Config,
        workload_knobs: Mapping[str, str | int | float | bool],
        inherited: Mapping[str, str],
        folder: RunFolder,
        log: EventLog,
        index: Index | None,
        listener: Listener,
        factory: SessionFactory,
        conditions: Conditions | None,
        clock: Callable[[], float],
    ) -> None:
        self.options = options
        self.workload = workload
        self.space = space
        self.held = held
        self.workload_knobs = workload_knobs
        self.inherited = inherited
        self.folder = folder
        self.log = log
        self.index = index
        self.listener = listener
        self.factory = factory
        self.conditions = conditions
        self.rng = np.random.default_rng(options.seed)
        self.events: list[AnyEvent] = []
        self.records: dict[str, StageRecord] = {}
        self.trials: dict[Config, TrialFinished] = {}
        self.offsets: dict[Config, Estimate] = {}
        self.sessions_started = 0
        self.budget = Budget(options.budget_s, clock=clock)

    # -- events ------------------------------------------------------------------------------------------------------

    def emit(self, event: AnyEvent) -> None:
        """Append `event` (it is on disk when this returns), remember it, show it."""
        stored = self.log.append(event)
        self.remember(stored)
        self.listener.on_event(stored)

    def remember(self, event: AnyEvent) -> None:
        """Fold one event into the state."""
        self.events.append(event)
        if isinstance(event, StageFinished):
            self.records[event.stage] = event.record
            if isinstance(event.record, ProbeRecord):
                self.space = msgspec.structs.replace(self.space, knobs=event.record.knobs)
        elif isinstance(event, TrialFinished):
            self.trials[event.config] = event
        elif isinstance(event, OffsetMeasured):
            self.offsets[event.config] = event.estimate
        elif isinstance(event, SessionStarted):
            self.sessions_started += 1

    def notice(self, text: str) -> None:
        """Tell the user something, once."""
        if not any(isinstance(e, Notice) and e.text == text for e in self.events):
            self.emit(Notice(text=text))

    def status(self, stage: str, text: str, *, done: int = 0, total: int = 0) -> None:
        """Show where `stage` stands."""
        self.listener.on_status(
            Status(
                stage=stage,
                text=text,
                done=done,
                total=total,
                elapsed_s=self.budget.elapsed_s,
                budget_s=self.options.budget_s,
            )
        )

    def index_events(self, events: Iterable[AnyEvent]) -> None:
        """Write `events` to the SQL index. The log has them already, so trouble there is a notice, not an end."""
        if self.index is None:
            return
        try:
            self.index.record(self.folder.id, list(events))
        except TunerError as error:
            self.notice(f"the index could not be written ({error.what}); the event log has everything")

    # -- what was found ----------------------------------------------------------------------------------------------

    def record(self, stage: str, kind: type[R]) -> R:
        """The record of a finished stage."""
        record: Any = self.records[stage]
        if not isinstance(record, kind):
            raise TypeError(f"stage {stage!r} left a {type(record).__name__}, not a {kind.__name__}")
        return record

    def trial_number(self) -> int:
        """The next trial's number."""
        return max((t.number for t in self.trials.values()), default=-1) + 1

    def sharing(self, fingerprint: str) -> TrialFinished | None:
        """The finished trial that has this fingerprint, if any: its samples are shared."""
        for trial in self.trials.values():
            if trial.fingerprint == fingerprint and trial.estimate is not None and trial.shared_with < 0:
                return trial
        return None

    @property
    def margin(self) -> float:
        """δ on the log scale."""
        return float(np.log1p(self.options.min_gain))

    @property
    def live(self) -> dict[str, Knob]:
        """The knobs that the probe left, with the values that the screen left, by name."""
        knobs = {k.name: k for k in self.record("probe", ProbeRecord).knobs}
        if "screen" in self.records:
            kept = self.record("screen", ScreenRecord).live
            knobs = {n: msgspec.structs.replace(k, values=kept[n]) for n, k in knobs.items() if n in kept}
        return knobs
