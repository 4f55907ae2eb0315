"""Run: what the stages share: options, space, event log, budget, random numbers, and all that was found so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from tuner.knobs import DEFAULT, Config, Facts, Knob, SearchSpace, forced_cpu_devices
from tuner.machine import Device, Host, Sampler, calm
from tuner.measure import Objective
from tuner.pipeline.budget import Budget
from tuner.pipeline.options import RunOptions
from tuner.pipeline.workload_file import WorkloadFile
from tuner.protocol.messages import Block, Loaded
from tuner.report.listener import Listener, Status
from tuner.report.spent import clocked
from tuner.session import Deadlines, SessionFactory
from tuner.store.events import (
    AnyEvent,
    CandidateCompiled,
    EffectHidden,
    Notice,
    Profiled,
    RoundTimed,
    SessionStarted,
    StageFinished,
    TrialFinished,
)
from tuner.store.folder import RunFolder
from tuner.store.index import Index
from tuner.store.log import EventLog
from tuner.store.records import BaselineRecord, ProbeRecord, ScreenRecord, SealRecord, StageRecord
from tuner.store.study import StudyMirror

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
        devices: Sequence[Device],
        host: Host,
        folder: RunFolder,
        log: EventLog,
        index: Index,
        study: StudyMirror,
        listener: Listener,
        factory: SessionFactory,
        conditions: Sampler | None,
        clock: Callable[[], float],
    ) -> None:
        self.options = options
        self.workload = workload
        self.space = space
        self.held = held
        self.workload_knobs = workload_knobs
        self.inherited = inherited
        self.devices = devices
        self.host = host
        self.folder = folder
        self.log = log
        self.index = index
        self.study = study
        self.listener = listener
        self.factory = factory
        self.conditions = conditions
        self.rng = np.random.default_rng(options.seed)
        self.events: list[AnyEvent] = []
        self.records: dict[str, StageRecord] = {}
        self.trials: dict[Config, TrialFinished] = {}
        self.peaks: dict[Config, int | None] = {}
        self.work: dict[str, float] = {}
        self.sessions_started = 0
        # Configs of which there is a profile; one that failed may be had in a process that is alone on the device.
        self.profiled: set[Config] = set()
        self.cut_s = 0.0
        self._baseline_readings: list[dict[str, float]] = []
        self._clock = clock
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
                # Knobs that left stay known: what the user holds must still be rendered.
                live = event.record.knobs
                names = {n for k in live for n in (k.name, *k.aliases)}
                rest = tuple(k for k in self.space.knobs if k.name not in names)
                self.space = msgspec.structs.replace(self.space, knobs=live + rest)
        elif isinstance(event, EffectHidden):
            self.space = self.space.unshown(event.config.names)
        elif isinstance(event, CandidateCompiled):
            self.peaks[event.config] = event.compiled.peak_bytes
        elif isinstance(event, TrialFinished):
            self.trials[event.config] = event
        elif isinstance(event, Profiled) and event.profile is not None:
            self.profiled.add(event.config)
        elif isinstance(event, SessionStarted):
            self.sessions_started += 1
            self.work[event.session] = event.loaded.work or 1.0
        elif isinstance(event, RoundTimed) and event.stage == "baseline" and event.conditions:
            self._baseline_readings.append(event.conditions)

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

    def publish(self) -> None:
        """Bring the SQL index and the Optuna study up to date. The log has everything, so trouble is only a notice."""
        for trouble in (self.index.record(self.events), self.study.record(self.events)):
            if trouble:
                self.notice(trouble)

    def resume(self) -> None:
        """Go on from what was remembered: the seconds that finished stages took are spent, and those of the one that
        was cut short, by the log's own times. A result that was sealed without the command that is to seal it now is
        sealed again."""
        sealed = self.records.get("seal")
        own = sealed.command if isinstance(sealed, SealRecord) else None
        if sealed and self.options.seal_with and (own is None or own.command != self.options.seal_with):
            del self.records["seal"]
            self.records.pop("report", None)
        took = {e.stage: e.seconds for e in self.events if isinstance(e, StageFinished)}
        spent = sum(seconds for stage, seconds in took.items() if stage in self.records)
        _, self.cut_s = clocked(self.events)
        self.budget = Budget(self.options.budget_s, clock=self._clock, spent_s=spent + self.cut_s)
        if "baseline" in self.records:
            self.plan(self.record("baseline", BaselineRecord))

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

    def plan(self, baseline: BaselineRecord) -> None:
        """Take what the baseline reserved and skipped into the budget."""
        self.budget.reserve(baseline.reserve_s)
        for stage in baseline.skipped:
            self.budget.skip(stage)

    @property
    def calm(self) -> dict[str, float]:
        """What is usual here: the readings that the baseline's rounds had most of; {} before it."""
        return calm(self._baseline_readings)

    def sample(self) -> dict[str, float]:
        """The machine's readings at this moment; {} where nothing samples it."""
        return self.conditions.sample() if self.conditions else {}

    @property
    def loaded(self) -> Loaded:
        """What the home session found when it first started."""
        return next(e.loaded for e in self.events if isinstance(e, SessionStarted))

    @property
    def device_count(self) -> int:
        """Devices of the program: as the home session found them, before it as the driver or the flags tell."""
        started = next((e.loaded for e in self.events if isinstance(e, SessionStarted)), None)
        if started is not None:
            return started.device_count
        return len(self.devices) or forced_cpu_devices(self.inherited)

    @property
    def facts(self) -> Facts:
        """What knobs' and presets' `when` is held against."""
        loaded = self.loaded
        return Facts(
            platform=loaded.platform,
            device_count=loaded.device_count,
            capability=next((d.capability for d in self.devices if d.capability), None),
            jax=loaded.versions["jax"],
            collectives=next(
                (
                    tuple(e.compiled.collectives)
                    for e in self.events
                    if isinstance(e, CandidateCompiled) and e.config == DEFAULT
                ),
                None,
            ),
        )

    @property
    def deadlines(self) -> Deadlines:
        """How long each phase of a session may take, by the control's own times as far as they are known."""
        limits = Deadlines()
        for event in self.events:
            if isinstance(event, SessionStarted) and event.role == "home":
                loaded = event.loaded
                limits = limits.with_control(load_s=loaded.import_s + loaded.init_s + loaded.build_s)
            elif isinstance(event, CandidateCompiled) and event.config == DEFAULT:
                limits = limits.with_control(compile_s=event.compiled.lower_s + event.compiled.compile_s)
        if "baseline" in self.records:
            limits = limits.with_control(step_s=self.record("baseline", BaselineRecord).step_s)
        return limits

    def room_for(self, sessions: int) -> bool:
        """True if the device's memory holds `sessions` states and steps at once (always on a CPU)."""
        loaded = self.loaded
        if loaded.device_memory_bytes is None:
            return True
        step = self.record("baseline", BaselineRecord).peak_bytes or 0
        # The step's own peak counts its arguments once; the runtime and its libraries take about a gigabyte more.
        return (
            sessions * (max(step, loaded.input_bytes) + loaded.input_bytes + 2**30) < 0.9 * loaded.device_memory_bytes
        )

    @property
    def objective(self) -> Objective:
        """What is made small."""
        return Objective(name=self.options.objective, weights=self.loaded.weights)

    def value_s(self, session: str, block: Block) -> float:
        """The objective's value for a block of this session."""
        return self.objective.value_s(block, work=self.work[session])

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
