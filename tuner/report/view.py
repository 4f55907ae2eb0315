"""RunView: everything a report says about one run, computed from its events alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

import msgspec

from tuner.knobs.config import DEFAULT, Config
from tuner.knobs.status import KnobStatus
from tuner.measure.objective import Objective
from tuner.measure.types import Verdict
from tuner.protocol.failure import Failure, FailureClass
from tuner.report.spent import Spent, clocked, spent
from tuner.store.events import (
    AnyEvent,
    CandidateCompiled,
    Interruption,
    Notice,
    PairTimed,
    Profiled,
    Resumed,
    RoundTimed,
    RunFinished,
    RunStarted,
    SessionClosed,
    SessionStarted,
    StageFinished,
    TrialFinished,
)
from tuner.store.records import (
    BaselineRecord,
    ConfirmRecord,
    Effect,
    MinimiseRecord,
    PresetsRecord,
    ProbeRecord,
    ReportRecord,
    ScreenRecord,
    SealRecord,
    SearchRecord,
    StageRecord,
)

__all__ = ["STAGES", "Counts", "FailedCandidate", "RunView", "gone"]

STAGES: tuple[str, ...] = tuple(kind.__struct_config__.tag for kind in get_args(StageRecord))
"""Every stage, in the order of the pipeline."""

_ENDED_WELL = (0, 4)  # 4: no gain although one was required

R = TypeVar("R", bound=msgspec.Struct)


class FailedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A config that failed. `trial`: its number, -1 for a finalist that failed in fresh processes (no one session)."""

    config: Config
    failure: Failure
    session: str
    trial: int
    stage: str


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """`left`: status → knobs that are gone for it. `live`: knobs still in the space after the last stage that said so.

    `compiled`: distinct (session, config) pairs, controls included. `deduplicated`: trials that share an earlier
    trial's samples. `timed`: trials with samples of their own. `failed`: class → candidates.
    """

    offered: int
    live: int
    left: dict[str, int]
    compiled: int
    deduplicated: int
    timed: int
    failed: dict[str, int]


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """One run, finished or not. A record is None while its stage has not ended.

    `stages`: stage → seconds, for those that ended; `unfinished`: the stage under way when the events end ("" if the
    run ended), `unfinished_s` its seconds so far. `interrupted`: it was Ctrl-C that ended the events.
    `profiles`: of the sides that were profiled, those included that failed.
    `failures`: by class, the most frequent first. `session_failures`: sessions that ended by themselves, except where
    a candidate is known to be the cause. `left`: knobs that are gone, each once; `narrowed`: live ones that lost values
    or go by another name. `pairs`: pairs of fresh processes timed so far. `rounds`: all that were
    timed; `disturbed`: what disturbed them → how many.
    """

    run: str
    workload: str
    command: tuple[str, ...]
    tuner: str
    options: dict[str, str]
    inherited: dict[str, str]
    probe: ProbeRecord | None
    baseline: BaselineRecord | None
    presets: PresetsRecord | None
    screen: ScreenRecord | None
    search: SearchRecord | None
    minimise: MinimiseRecord | None
    confirm: ConfirmRecord | None
    seal: SealRecord | None
    report: ReportRecord | None
    stages: dict[str, float]
    unfinished: str
    unfinished_s: float
    interrupted: bool
    exit_code: int | None
    trials: tuple[TrialFinished, ...]
    pairs: int
    rounds: int
    disturbed: dict[str, int]
    failures: dict[FailureClass, tuple[FailedCandidate, ...]]
    session_failures: tuple[SessionClosed, ...]
    notices: tuple[str, ...]
    left: tuple[KnobStatus, ...]
    narrowed: tuple[KnobStatus, ...]
    counts: Counts
    spent: Spent
    profiles: tuple[Profiled, ...] = ()

    @classmethod
    def of(cls, events: Sequence[AnyEvent]) -> RunView:
        """The view of a run's events, however far they go."""
        kinds = _by_kind(events)
        started = next(reversed(_of(kinds, RunStarted)), None)
        finished = _of(kinds, StageFinished)
        records = {event.stage: event.record for event in finished}
        probe, screen = _record(records, ProbeRecord), _record(records, ScreenRecord)
        confirm = _record(records, ConfirmRecord)
        trials = tuple(_of(kinds, TrialFinished))
        failed = _failed(trials, confirm)
        statuses = (*(probe.left if probe else ()), *(screen.left if screen else ()))
        live = frozenset(screen.live if screen else probe.live if probe else ())
        left = gone(statuses, live)
        elapsed, since_stage = clocked(events)
        interruption, exit_code = _ending(events)
        stages = {event.stage: event.seconds for event in finished}
        return cls(
            run=started.run if started else "",
            workload=started.workload if started else "",
            command=started.command if started else (),
            tuner=started.tuner if started else "",
            options=started.options if started else {},
            inherited=started.inherited if started else {},
            probe=probe,
            baseline=_record(records, BaselineRecord),
            presets=_record(records, PresetsRecord),
            screen=screen,
            search=_record(records, SearchRecord),
            minimise=_record(records, MinimiseRecord),
            confirm=confirm,
            seal=_record(records, SealRecord),
            report=_record(records, ReportRecord),
            stages={stage: stages[stage] for stage in STAGES if stage in stages},
            unfinished=_unfinished(records, interruption, exit_code),
            unfinished_s=since_stage,
            interrupted=bool(interruption),
            exit_code=exit_code,
            trials=trials,
            pairs=len({event.index for event in _of(kinds, PairTimed)}),
            rounds=len(_of(kinds, RoundTimed)),
            disturbed=dict(Counter(event.disturbed for event in _of(kinds, RoundTimed) if event.disturbed)),
            failures=_by_class(failed),
            session_failures=_session_failures(_of(kinds, SessionClosed), failed),
            notices=_notices(_of(kinds, Notice), records),
            left=tuple(left.values()),
            narrowed=tuple(status for status in statuses if status.name not in left),
            counts=Counts(
                offered=len(probe.offered) if probe else 0,
                live=len(live),
                left=dict(Counter(status.status for status in left.values()).most_common()),
                compiled=len({(event.session, event.config) for event in _of(kinds, CandidateCompiled)}),
                deduplicated=sum(trial.shared_with >= 0 for trial in trials),
                timed=sum(trial.value is not None and trial.shared_with < 0 for trial in trials),
                failed=dict(Counter(entry.failure.kind.value for entry in failed).most_common()),
            ),
            spent=spent(events, max(elapsed, sum(stages.values()))),
            profiles=_profiles(_of(kinds, Profiled), confirm),
        )

    @property
    def objective(self) -> Objective:
        """What the run makes small; as asked for while nothing was measured yet."""
        if self.baseline is not None:
            return self.baseline.objective
        return msgspec.convert({"name": self.options.get("objective", "mean")}, Objective)

    @property
    def files(self) -> dict[str, str]:
        """The run's files by name, where it wrote them: they need not be there any more."""
        return self.report.files if self.report else {}

    @property
    def best_trial(self) -> TrialFinished | None:
        """The fastest trial that sets anything, None if none was timed."""
        timed = [trial for trial in self.tried if trial.value is not None]
        return min(timed, key=lambda trial: trial.value or 0.0, default=None)

    @property
    def effects(self) -> dict[str, Effect]:
        """By name, what each emitted setting does by itself; empty if what was chosen was not minimised."""
        confirm, minimise = self.confirm, self.minimise
        if confirm is None or confirm.verdict is not Verdict.FASTER or minimise is None or minimise.reduced is None:
            return {}
        if minimise.reduced.config == confirm.chosen:
            return {e.name: e for e in minimise.effects}
        if minimise.winner is not None and minimise.winner.config == confirm.chosen:
            return {e.name: e for e in minimise.winner_effects}
        return {}

    @property
    def tried(self) -> list[TrialFinished]:
        """The trials that set anything."""
        return [trial for trial in self.trials if trial.config != DEFAULT]

    @property
    def all_failed(self) -> bool:
        """True if candidates were tried and none could be timed."""
        return bool(self.tried) and all(trial.value is None for trial in self.tried)

    @property
    def failed_total(self) -> int:
        return sum(self.counts.failed.values())


def _by_kind(events: Iterable[AnyEvent]) -> dict[type, list[Any]]:
    """Class → its events in their order, found in one pass: a log may hold a hundred thousand."""
    found: dict[type, list[Any]] = {}
    for event in events:
        found.setdefault(type(event), []).append(event)
    return found


def _of(kinds: Mapping[type, list[Any]], kind: type[R]) -> list[R]:
    return kinds.get(kind, [])


def _record(records: Mapping[str, StageRecord], kind: type[R]) -> R | None:
    return next((record for record in records.values() if isinstance(record, kind)), None)


def _profiles(found: Sequence[Profiled], confirm: ConfirmRecord | None) -> tuple[Profiled, ...]:
    """Those of the default and of what was chosen; a finalist that was not is no side of the result."""
    return tuple(p for p in found if confirm is None or p.config in (DEFAULT, confirm.chosen))


def _failed(trials: Sequence[TrialFinished], confirm: ConfirmRecord | None) -> list[FailedCandidate]:
    """Trials in the order finished, then finalists that held in the session and failed in a fresh process."""
    failed = [
        FailedCandidate(config=t.config, failure=t.failure, session=t.session, trial=t.number, stage=t.stage)
        for t in trials
        if t.failure is not None
    ]
    failed += [
        FailedCandidate(config=f.config, failure=f.failure, session="", trial=-1, stage="confirm")
        for f in (confirm.finalists if confirm else ())
        if f.failure is not None
    ]
    return failed


def _by_class(failed: Sequence[FailedCandidate]) -> dict[FailureClass, tuple[FailedCandidate, ...]]:
    kinds = Counter(entry.failure.kind for entry in failed).most_common()
    return {kind: tuple(entry for entry in failed if entry.failure.kind == kind) for kind, _ in kinds}


def _session_failures(closed: Iterable[SessionClosed], failed: Sequence[FailedCandidate]) -> tuple[SessionClosed, ...]:
    explained = {(entry.failure.kind, entry.failure.message) for entry in failed}
    return tuple(
        event
        for event in closed
        if event.failure is not None
        and event.failure.kind is not FailureClass.INTERRUPTED  # we ended it
        and (event.failure.kind, event.failure.message) not in explained
    )


def _notices(given: Iterable[Notice], records: Mapping[str, StageRecord]) -> tuple[str, ...]:
    """Each notice once, in the order first given."""
    texts = [event.text for event in given]
    for record in records.values():
        if isinstance(record, (ProbeRecord, SealRecord)):
            texts += record.notices
    return tuple(dict.fromkeys(texts))


def gone(left: Iterable[KnobStatus], live: Container[str]) -> dict[str, KnobStatus]:
    """By name, each knob of `left` that is not live, once; one that lost its values one by one left with the last."""
    entries: dict[str, list[KnobStatus]] = {}
    for status in left:
        if status.name not in live and status.status != "renamed":
            entries.setdefault(status.name, []).append(status)
    return {name: _merged(of) for name, of in entries.items()}


def _merged(entries: Sequence[KnobStatus]) -> KnobStatus:
    whole = next((entry for entry in entries if not entry.values), None)
    if whole or len(entries) == 1:
        return whole or entries[0]
    reasons = (f"{', '.join(v or '(empty)' for v in e.values)}: {e.status}, {e.reason}" for e in entries)
    return KnobStatus(
        name=entries[-1].name,
        status=entries[-1].status,
        reason="; ".join(reasons),
        values=tuple(value for entry in entries for value in entry.values),
    )


def _ending(events: Sequence[AnyEvent]) -> tuple[str, int | None]:
    """The stage that Ctrl-C ended and the exit code, as far as nothing has gone on since."""
    interruption, exit_code = "", None
    for event in events:
        match event:
            case RunStarted() | Resumed() | SessionStarted():
                interruption, exit_code = "", None
            case Interruption():
                interruption = event.stage
            case StageFinished() if event.stage == interruption:
                interruption = ""
            case RunFinished():
                exit_code = event.exit_code
    return interruption, exit_code


def _unfinished(records: Mapping[str, StageRecord], interruption: str, exit_code: int | None) -> str:
    """The stage under way: the one after the last that ended, unless all that a result needs is there."""
    if interruption or exit_code in _ENDED_WELL:
        return interruption
    done = max((STAGES.index(stage) for stage in records if stage in STAGES), default=-1)
    stage = STAGES[done + 1] if done + 1 < len(STAGES) else ""
    # A report is written from inside its own stage: that alone leaves nothing open.
    return "" if exit_code is None and stage == "report" else stage
