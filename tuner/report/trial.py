"""One trial whole, and the list of those that failed: what ``tune show`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tuner.errors import UsageError
from tuner.knobs import DEFAULT
from tuner.measure.objective import Objective
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Compiled, LeafStats
from tuner.report.document import interval_json, plain, speedup_json
from tuner.report.guide import facts_text
from tuner.report.layout import Page
from tuner.report.noise import levels
from tuner.report.view import FailedCandidate, RunView
from tuner.report.wording import bytes_text, clean, count, duration, ended, flags, percent, ratio, settings
from tuner.store.events import AnyEvent, CandidateCompiled, NumericsCompared, ProfileJudged, TrialFinished
from tuner.store.records import Tolerance

__all__ = ["TrialView", "WorstLeaf", "failed_document", "render_failed", "render_trial", "trial_document", "trial_view"]


class WorstLeaf(msgspec.Struct, frozen=True, kw_only=True):
    """The output leaf nearest to, or farthest beyond, its tolerance.

    `share`: its largest number as a share of what is allowed, above 1 beyond it, None where no tolerance is known.
    """

    leaf: LeafStats
    tolerance: Tolerance | None
    share: float | None


class TrialView(msgspec.Struct, frozen=True, kw_only=True):
    """A trial with what else the log says of its config in its session; None where it says nothing."""

    run: str
    objective: Objective
    trial: TrialFinished
    compiled: CandidateCompiled | None
    numerics: NumericsCompared | None
    worst: WorstLeaf | None
    noise: dict[str, float | None] = {}
    default: CandidateCompiled | None = None
    guide: ProfileJudged | None = None


def trial_view(events: Sequence[AnyEvent], number: int) -> TrialView:
    """Everything about trial `number`. Raises UsageError if the run has none."""
    view = RunView.of(events)
    trial = next((trial for trial in reversed(view.trials) if trial.number == number), None)
    if trial is None:
        known = [trial.number for trial in view.trials]
        there = f"its trials are {min(known)} to {max(known)}" if known else "it has no trials yet"
        raise UsageError(f"this run has no trial {number}: {there}", where=view.run)
    compiled = numerics = default = guide = None
    for event in events:
        if default is None and isinstance(event, CandidateCompiled) and event.config == DEFAULT:
            default = event
        match event:
            case CandidateCompiled(session=trial.session, config=trial.config):
                compiled = event
            case NumericsCompared(session=trial.session, config=trial.config, purpose="gate"):
                numerics = event
            case ProfileJudged(session=trial.session, config=trial.config):
                guide = event
    worst = None
    if numerics is not None:
        limits = view.baseline.limits(strict=numerics.strict) if view.baseline else ()
        worst = _worst(numerics.reply.leaves, limits)
    return TrialView(
        run=view.run,
        objective=view.objective,
        trial=trial,
        compiled=compiled,
        numerics=numerics,
        worst=worst,
        noise=levels(view),
        default=default,
        guide=guide,
    )


def _worst(leaves: Sequence[LeafStats], tolerances: Sequence[Tolerance]) -> WorstLeaf | None:
    allowed = {(t.path, t.steps): t for t in tolerances}

    def judged(leaf: LeafStats) -> WorstLeaf:
        tolerance = allowed.get((leaf.path, leaf.steps))
        if tolerance is None:
            return WorstLeaf(leaf=leaf, tolerance=None, share=None)
        pairs = (
            (leaf.l2, tolerance.l2),
            (leaf.slope, tolerance.slope),
            (leaf.moved_l2, tolerance.moved_l2),
            (leaf.moved_slope, tolerance.moved_slope),
        )
        shares = [_share(value, most) for value, most in pairs if value is not None and most is not None]
        return WorstLeaf(leaf=leaf, tolerance=tolerance, share=max(shares))

    # Masks that differ are worse than any number; leaves without a tolerance are ranked by their own numbers.
    def badness(worst: WorstLeaf) -> tuple[bool, float, float]:
        return not worst.leaf.masks_equal, worst.share or 0.0, max(worst.leaf.l2, worst.leaf.slope)

    return max(map(judged, leaves), key=badness, default=None)


def _share(value: float, allowed: float) -> float:
    if allowed > 0:
        return value / allowed
    return float("inf") if value > 0 else 0.0


def render_trial(events: Sequence[AnyEvent], number: int, *, width: int = 100, color: bool = False) -> str:
    """What ``tune show TRIAL`` prints. Raises UsageError if there is no such trial."""
    found = trial_view(events, number)
    trial = found.trial
    page = Page(width)
    state = "failed" if trial.failure else ratio(trial.estimate) if trial.estimate else "not timed"
    page.prose(f"trial {trial.number} of run {found.run}: {state}", style="bold red" if trial.failure else "bold")
    page.heading("settings", "" if flags(trial.config) else "the defaults")
    for line in flags(trial.config):
        page.line(line, indent=2, style="cyan")
    page.blank()
    page.rows(_facts(found), indent=0, styles=("dim",))
    if trial.failure:
        _failure(page, trial.failure)
    return page.text(color=color)


def _facts(found: TrialView) -> list[tuple[str, str]]:
    trial, estimate = found.trial, found.trial.estimate
    rows = [("stage", trial.stage), ("session", trial.session)]
    if trial.label:
        rows.append(("label", trial.label))
    if trial.value is not None:
        rounds = f", {count(estimate.n, 'round')}, {percent(estimate.level)} interval" if estimate else ""
        rows.append(("value", f"{trial.value + 0.0:+.5f} log ratio to the home control (negative is faster){rounds}"))
        if found.objective != Objective():
            rows.append(("objective", f"{found.objective.name}, in ms {found.objective.per}"))
    if known := [f"{percent(sd)} a {level}" for level, sd in found.noise.items() if sd is not None]:
        rows.append(("noise", f"{', '.join(known)} (standard deviations in this run)"))
    if trial.shared_with >= 0:
        rows.append(("samples", f"those of trial {trial.shared_with}, which has the same fingerprint"))
    if trial.fingerprint:
        rows.append(("fingerprint", trial.fingerprint))
    if found.compiled:
        made = found.compiled.compiled
        peak = f", peak memory {bytes_text(made.peak_bytes)}" if made.peak_bytes is not None else ""
        rows.append(("compile", f"{duration(made.compile_s)} after {duration(made.lower_s)} of lowering{peak}"))
        if made.collectives:
            rows.append(("collectives", _collectives(made, found.default.compiled if found.default else None)))
        if made.ranks_differ:
            ranks = ", ".join(map(str, made.ranks_differ))
            rows.append(("ranks", f"other code than rank 0's, with the same collectives, on {ranks}: autotuning"))
    if found.guide:
        rows.append(("profile", _profile(found.guide)))
    if found.numerics:
        rows.append(("numerics", _numerics(found.numerics, found.worst)))
    return rows


def _collectives(made: Compiled, default: Compiled | None) -> str:
    """What was made of the communication, and whether the settings changed it: not all that is asked for is done."""
    text = _counted(made)
    if default is None or not made.schedule or not default.schedule:
        return text
    if made.schedule == default.schedule:
        return f"{text}; the default's, in the default's order"
    if made.collectives == default.collectives:
        return f"{text}, as many as the default's, in another order or form"
    return f"{text}; the default's are {_counted(default)}"


def _profile(guide: ProfileJudged) -> str:
    """What the PGLE profile covers, and what became of it."""
    told = [facts_text(guide.facts)] if guide.facts else []
    if guide.cause:
        return "; ".join([*told, f"not used: {clean(guide.cause)}"])
    said = "the compiler says that it uses it" if guide.said else "the compiler says nothing of it"
    return "; ".join([*told, said, "another schedule than without" if guide.changed else "the same as without"])


def _counted(made: Compiled) -> str:
    return ", ".join(f"{n} {name}" for name, n in sorted(made.collectives.items())) or "none"


def _numerics(compared: NumericsCompared, worst: WorstLeaf | None) -> str:
    text = {True: "passed", False: "refused", None: "not judged"}[compared.passed]
    if compared.reason:
        text += f": {clean(compared.reason)}"
    if worst:
        leaf, tolerance = worst.leaf, worst.tolerance
        limits = [f" of {limit:.2g} allowed" for limit in (tolerance.l2, tolerance.slope)] if tolerance else ["", ""]
        masks = "" if leaf.masks_equal else ", NaN or infinity in other places"
        moved = ""
        if tolerance and tolerance.moved_l2 is not None and leaf.moved_l2 is not None:
            moved = f", of its update L2 {leaf.moved_l2:.2g} of {tolerance.moved_l2:.2g} allowed"
        if tolerance and tolerance.moved_slope is not None and leaf.moved_slope is not None:
            moved += f", slope {leaf.moved_slope:.2g} of {tolerance.moved_slope:.2g} allowed"
        text += (
            f"; worst leaf {leaf.path} ({leaf.dtype}) after {count(leaf.steps, 'step')}: "
            f"relative L2 {leaf.l2:.2g}{limits[0]}, slope {leaf.slope:.2g}{limits[1]}{moved}{masks}"
        )
    if compared.reply.check is not None:
        said = clean(compared.reply.check_message)
        text += f"; the workload's own check {'passed' if compared.reply.check else 'failed'}{said and f': {said}'}"
    return text


def _failure(page: Page, failure: Failure) -> None:
    page.heading("failure")
    rows = [("class", failure.kind.value), ("phase", failure.phase), ("ended", ended(failure))]
    page.rows([row for row in (*rows, ("message", clean(failure.message))) if row[1]], styles=("dim",))
    logs = (
        ("first log lines", failure.log_head),
        ("last log lines", failure.log_tail),
        ("traceback", tuple(failure.traceback.splitlines())),
    )
    for title, lines in logs:
        if lines:
            page.heading(title)
            for line in lines:
                page.line(clean(line), indent=2)
    if failure.command:
        page.heading("repeat it")
        page.line(failure.command, indent=2, style="cyan")


def trial_document(events: Sequence[AnyEvent], number: int) -> dict[str, Any]:
    """What ``tune show TRIAL --json`` prints, schema tuner/trial/1. Raises UsageError if there is no such trial.

    `value` is the log ratio to the home control of what the objective makes small (negative is faster); the rest as in
    the run's document.
    """
    found = trial_view(events, number)
    trial = found.trial
    return plain(
        {
            "schema": "tuner/trial/1",
            "run": found.run,
            "trial": trial.number,
            "stage": trial.stage,
            "session": trial.session,
            "label": trial.label,
            "settings": trial.config.as_dict(),
            "objective": found.objective.name,
            "per": found.objective.per,
            "value": trial.value,
            "speedup": speedup_json(trial.estimate),
            "speedup_ci": interval_json(trial.estimate),
            "n": trial.estimate.n if trial.estimate else None,
            "fingerprint": trial.fingerprint,
            "shared_with": trial.shared_with if trial.shared_with >= 0 else None,
            "compile": _compile_json(found.compiled) if found.compiled else None,
            "profile": _profile_json(found.guide) if found.guide else None,
            "numerics": _numerics_json(found.numerics, found.worst) if found.numerics else None,
            "failure": trial.failure,
        }
    )


def _compile_json(compiled: CandidateCompiled) -> dict[str, Any]:
    made = compiled.compiled
    return {
        "lower_s": made.lower_s,
        "compile_s": made.compile_s,
        "peak_bytes": made.peak_bytes,
        "collectives": made.collectives,
    }


def _profile_json(guide: ProfileJudged) -> dict[str, Any]:
    return {
        "runs": guide.runs,
        "percentile": guide.percentile,
        "facts": guide.facts,
        "cause": clean(guide.cause),
        "said": guide.said,
        "changed": guide.changed,
    }


def _numerics_json(compared: NumericsCompared, worst: WorstLeaf | None) -> dict[str, Any]:
    """`worst`: the worst leaf with what its tolerance allows, null where none is known. `second_chance`: the dtype of
    the high-precision reference that decided, null if none was asked."""
    allowed = worst.tolerance if worst else None
    limits = {
        "l2_allowed": allowed.l2 if allowed else None,
        "slope_allowed": allowed.slope if allowed else None,
        "moved_l2_allowed": allowed.moved_l2 if allowed else None,
        "moved_slope_allowed": allowed.moved_slope if allowed else None,
    }
    return {
        "passed": compared.passed,
        "reason": clean(compared.reason),
        "check": compared.reply.check,
        "second_chance": compared.precise.precision if compared.precise else None,
        "worst": {**msgspec.to_builtins(worst.leaf), **limits} if worst else None,
    }


def render_failed(events: Sequence[AnyEvent], *, width: int = 100, color: bool = False) -> str:
    """What ``tune show --failed`` prints: every failure by class, with its settings, message and how it ended; and the
    sessions that ended without a candidate being the cause."""
    view = RunView.of(events)
    page = Page(width)
    number = count(view.failed_total, "candidate") if view.failures else "no candidate"
    page.prose(f"{number} failed{f' in run {view.run}' if view.run else ''}", style="bold" if view.failures else "")
    for kind, entries in view.failures.items():
        blame = "" if kind.caused_by_config else "no fault of the settings"
        page.heading(f"{kind.value} ({len(entries)})", blame)
        for entry in entries:
            _failed_row(page, f"{_whose(entry)}  {settings(entry.config)}", entry.failure)
    if view.session_failures:
        page.heading(f"sessions that ended by themselves ({len(view.session_failures)})")
        for closed in view.session_failures:
            if closed.failure is not None:
                _failed_row(page, f"{closed.session}  {closed.failure.kind.value}", closed.failure)
    first = next((entry.trial for entries in view.failures.values() for entry in entries), -1)
    if first >= 0:
        page.heading("next", "one of them with its log and the command to repeat it")
        page.line(f"tune show {first}", indent=2, style="cyan")
    return page.text(color=color)


def _whose(entry: FailedCandidate) -> str:
    return f"trial {entry.trial}" if entry.trial >= 0 else "finalist"


def _failed_row(page: Page, who: str, failure: Failure) -> None:
    where = f"in {failure.phase}" if failure.phase else ""
    page.line(who, indent=2)
    said = "; ".join(filter(None, (", ".join(filter(None, (where, ended(failure)))), clean(failure.message))))
    page.prose(said, indent=6, style="red")


def failed_document(events: Sequence[AnyEvent]) -> dict[str, Any]:
    """What ``tune show --failed --json`` prints, schema tuner/failed/1."""
    view = RunView.of(events)
    return plain(
        {
            "schema": "tuner/failed/1",
            "run": view.run,
            "counts": view.counts.failed,
            "failed": [
                {
                    "trial": entry.trial if entry.trial >= 0 else None,
                    "stage": entry.stage,
                    "session": entry.session,
                    "settings": entry.config.as_dict(),
                    "caused_by_config": entry.failure.kind.caused_by_config,
                    "failure": entry.failure,
                }
                for entries in view.failures.values()
                for entry in entries
            ],
            "sessions": [{"session": closed.session, "failure": closed.failure} for closed in view.session_failures],
        }
    )
