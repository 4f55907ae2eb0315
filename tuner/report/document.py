"""RunDocument: what ``tune run --json`` prints, as a versioned type."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tuner.knobs.config import DEFAULT
from tuner.measure.types import Estimate, Verdict
from tuner.report.document_parts import (
    CandidatesPart,
    CountsPart,
    DrawsPart,
    EffectPart,
    EnvironmentPart,
    FailurePart,
    FinalistPart,
    Interval,
    LeftPart,
    NextPart,
    NoisePart,
    OtherPart,
    ProfilePart,
    SealedPart,
    TimePart,
    UnfinishedPart,
)
from tuner.report.headline import headline, next_step
from tuner.report.noise import levels
from tuner.report.view import RunView
from tuner.report.wording import clean, interval, speedup
from tuner.store.records import OtherFunction

__all__ = ["FILES", "KNOBS", "SCHEMA", "RunDocument", "document", "interval_json", "plain", "speedup_json"]

FILES = ("env", "shell", "json", "events", "table")
"""The files that every document names, with null for one that wasn't written."""
SCHEMA: Literal["tuner/run/1"] = "tuner/run/1"
KNOBS = ("offered", "live", "unsupported", "inapplicable", "inert")


class RunDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run. Times are seconds unless the name says ms; gains are speed-ups (1.05: 5 % faster) with [low, high].

    `options`: those that change what a run means; `inherited`: variables of its environment that bear on speed.
    `verdict`: faster | same | unclear, null before there is one. `speedup`, `speedup_ci`: the best finalist
    against the defaults, in fresh processes. `control_ms`, `best_ms`: the objective's value with the defaults, and with
    that finalist, in milliseconds of what `per` says ("a step", "a step at p99", "a unit of work"). `weights`: of a
    workload of several steps, how often a unit of work runs each.
    `settings`: what to set, name → value as emitted; empty means the defaults. `effects`: name → what that setting does
    by itself. `resolution`: the smallest gain that the budget could resolve by the plan, as a fraction; `resolved`:
    the one that the pairs could. `sealed`: the other claim, null without a bundle that holds a gain. `stages`: name →
    seconds, for stages that ended. `emitted`: the environment that the bundle sets. A number that could not be computed
    is null. `profiles`: of the default and of the winner, as far as there was time.
    """

    schema: Literal["tuner/run/1"] = SCHEMA
    run: str
    workload: str
    command: str
    options: dict[str, str]
    inherited: dict[str, str]
    tuner: str
    program: str | None
    environment: EnvironmentPart | None
    state: Literal["finished", "interrupted", "stopped", "unfinished"]
    summary: str
    verdict: Verdict | None
    speedup: float | None
    speedup_ci: Interval
    objective: str = "mean"
    per: str = "a step"
    weights: dict[str, float] = {}
    control_ms: float | None
    best_ms: float | None
    pairs: int
    settings: dict[str, str]
    effects: dict[str, EffectPart]
    emitted: dict[str, str]
    finalists: list[FinalistPart]
    resolution: float | None
    resolved: float | None = None
    noise: NoisePart = NoisePart()
    draws: list[DrawsPart] = []
    sealed: SealedPart | None = None
    counts: CountsPart
    left: list[LeftPart]
    failures: list[FailurePart]
    stages: dict[str, float]
    unfinished: UnfinishedPart | None
    time: TimePart
    notices: list[str]
    files: dict[str, str | None]
    next: NextPart
    profiles: list[ProfilePart] = []


def document(view: RunView, files: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The `RunDocument` of a run as plain JSON values: no NaN, no infinity. `files`: those that are
    there, None for those that were recorded."""
    known = view.files if files is None else files
    confirm, step = view.confirm, next_step(view, known)
    estimate = confirm.estimate if confirm else None
    baseline_ms = _step_ms(view.baseline.control_ms if view.baseline else None)
    value = RunDocument(
        run=view.run,
        workload=view.workload,
        command=shlex.join(view.command),
        options=view.options,
        inherited=view.inherited,
        tuner=view.tuner,
        program=view.baseline.program if view.baseline else None,
        environment=_environment(view),
        state=_state(view),
        summary=headline(view),
        verdict=confirm.verdict if confirm else None,
        speedup=speedup_json(estimate),
        speedup_ci=interval_json(estimate),
        objective=view.objective.name,
        per=view.objective.per,
        weights=view.objective.weights,
        control_ms=_step_ms(confirm.control_ms if confirm else None) or baseline_ms,
        best_ms=_step_ms(confirm.best_ms if confirm else None),
        pairs=confirm.pairs if confirm else 0,
        settings=(confirm.chosen if confirm else DEFAULT).as_dict(),
        effects={
            name: EffectPart(ratio=speedup_json(e.estimate), interval=interval_json(e.estimate))
            for name, e in view.effects.items()
        },
        emitted=view.seal.environment if view.seal else {},
        finalists=_finalists(view),
        resolution=_finite(view.baseline.resolution) if view.baseline else None,
        resolved=_finite(confirm.resolution) if confirm else None,
        noise=_noise(view),
        draws=[
            DrawsPart(settings=d.config.as_dict(), ms=list(d.ms), programs=d.programs, spread=d.spread)
            for d in (confirm.draws if confirm else ())
        ],
        sealed=_sealed(view),
        counts=_counts(view),
        left=[
            LeftPart(name=s.name, status=s.status, reason=s.reason, values=list(s.values))
            for s in (*view.left, *view.narrowed)
        ],
        failures=_failures(view),
        stages={stage: _finite(seconds) or 0.0 for stage, seconds in view.stages.items()},
        unfinished=UnfinishedPart(stage=view.unfinished, seconds=view.unfinished_s) if view.unfinished else None,
        time=TimePart(
            total=view.spent.total_s,
            compile=view.spent.compile_s,
            steps=view.spent.steps_s,
            starts=view.spent.processes_s,
            other=view.spent.other_s,
            checks=view.spent.checks_s,
            profiles=view.spent.profiles_s,
        ),
        notices=list(view.notices),
        files={**dict.fromkeys(FILES), **known},
        next=NextPart(command=step.command or None, purpose=step.purpose),
        profiles=[
            ProfilePart(
                settings=p.config.as_dict(), profile=p.profile, failure=p.failure.kind.value if p.failure else None
            )
            for p in view.profiles
        ],
    )
    return plain(value)


def plain(value: Any) -> dict[str, Any]:
    """`value` as plain JSON values: tuples become lists, and a number that isn't finite null."""
    built: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return built


def speedup_json(estimate: Estimate | None) -> float | None:
    """exp(gain), null if there is no estimate or it isn't finite."""
    return _finite(speedup(estimate.gain)) if estimate else None


def interval_json(estimate: Estimate | None) -> Interval:
    """[low, high] as speed-ups, null unless both are finite."""
    return interval(estimate) if estimate else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _step_ms(value: float | None) -> float | None:
    """A value of the objective; zero, a negative one or one that isn't finite was never measured."""
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _state(view: RunView) -> Literal["finished", "interrupted", "stopped", "unfinished"]:
    if view.interrupted:
        return "interrupted"
    if not view.unfinished:
        return "finished"
    return "unfinished" if view.exit_code is None else "stopped"


def _environment(view: RunView) -> EnvironmentPart | None:
    if view.probe is None:
        return None
    environment = view.probe.environment
    return EnvironmentPart(key=environment.key, identity=environment.identity, context=environment.context)


def _finalists(view: RunView) -> list[FinalistPart]:
    return [
        FinalistPart(
            settings=finalist.config.as_dict(),
            verdict=finalist.verdict,
            speedup=speedup_json(finalist.estimate),
            speedup_ci=interval_json(finalist.estimate),
            ratios=[_finite(speedup(-value)) for value in finalist.log_ratios],
            failure=finalist.failure.kind.value if finalist.failure else None,
            steps={n: EffectPart(ratio=speedup_json(e), interval=interval_json(e)) for n, e in finalist.steps.items()},
            others=[_other(other) for other in finalist.others],
        )
        for finalist in (view.confirm.finalists if view.confirm else ())
    ]


def _other(other: OtherFunction) -> OtherPart:
    return OtherPart(
        name=other.name,
        same=other.passed,
        reason=clean(other.reason or (other.failure.message if other.failure else "")),
        speedup=speedup_json(other.gain),
        speedup_ci=interval_json(other.gain),
        peak_bytes=other.peak_bytes,
        default_peak_bytes=other.default_peak_bytes,
        failure=other.failure.kind.value if other.failure else None,
    )


def _noise(view: RunView) -> NoisePart:
    confirm, baseline = view.confirm, view.baseline
    return NoisePart(
        **levels(view),
        assumed=baseline.process_noise if baseline else None,
        drift=_finite(baseline.drift) if baseline else None,
        rounds=view.rounds,
        disturbed=sum(view.disturbed.values()),
        pairs_redone=confirm.redone if confirm else 0,
        pairs_disturbed=confirm.disturbed if confirm else 0,
        unstable=confirm.unstable if confirm else "",
    )


def _sealed(view: RunView) -> SealedPart | None:
    seal = view.seal
    if seal is None or view.confirm is None or view.confirm.verdict is not Verdict.FASTER:
        return None
    return SealedPart(
        speedup=speedup_json(seal.sealed),
        speedup_ci=interval_json(seal.sealed),
        ms=_step_ms(seal.sealed_ms),
        pairs=seal.sealed_pairs,
        note=seal.sealed_note,
        draws_ms=list(seal.draws_ms),
    )


def _counts(view: RunView) -> CountsPart:
    counts = view.counts
    return CountsPart(
        knobs={**dict.fromkeys(KNOBS, 0), "offered": counts.offered, "live": counts.live, **counts.left},
        candidates=CandidatesPart(
            compiled=counts.compiled,
            deduplicated=counts.deduplicated,
            timed=counts.timed,
            failed=counts.failed,
        ),
    )


def _failures(view: RunView) -> list[FailurePart]:
    return [
        FailurePart(
            settings=entry.config.as_dict(),
            failure=kind.value,
            phase=entry.failure.phase,
            message=clean(entry.failure.message),
            trial=entry.trial if entry.trial >= 0 else None,
            stage=entry.stage,
        )
        for kind, entries in view.failures.items()
        for entry in entries
    ]
