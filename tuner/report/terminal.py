"""The result of a run as text for people: a terminal of any width, a pipe or a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tuner.knobs import KnobStatus
from tuner.measure.objective import Objective
from tuner.measure.types import Verdict
from tuner.report.commands import show_command
from tuner.report.headline import headline, next_step
from tuner.report.layout import Page
from tuner.report.noise import claims, draws, noise, resolved
from tuner.report.others import checked, said
from tuner.report.stages import spent_on, stage_rows
from tuner.report.view import FailedCandidate, RunView
from tuner.report.where import where_lines
from tuner.report.wording import clean, count, ratio, reason, setting, settings, some

__all__ = ["render_result"]

_VERDICT_STYLE = {
    Verdict.FASTER: "bold green",
    Verdict.SAME: "bold",
    Verdict.UNCLEAR: "bold yellow",
    Verdict.UNSTABLE: "bold yellow",
}
_REASONS = 3  # of each class of failure, and of each class of knobs that left
_NAMES = 4


def render_result(
    view: RunView, *, width: int = 100, color: bool = False, files: Mapping[str, str] | None = None
) -> str:
    """The whole result, verdict first. `files`: those that are there, None for those that were recorded.

    Without `color` the text holds no escape codes. Settings, paths and commands are never cut or broken.
    """
    known = view.files if files is None else files
    page = Page(width)
    style = _VERDICT_STYLE[view.confirm.verdict] if view.confirm else "bold yellow"
    page.prose(headline(view), style=style)
    _about(page, view)
    _kept(page, view)
    _emitted(page, view)
    _finalists(page, view)
    _steps(page, view)
    _others(page, view)
    _claims(page, view)
    _noise(page, view)
    where_lines(page, view)
    _failed(page, view)
    _knobs(page, view)
    _stages(page, view)
    _notices(page, view)
    if known:
        page.heading("files")
        page.rows([(name, path) for name, path in known.items() if path], styles=("", "cyan"), wrap=False)
    _next(page, view, known)
    return page.text(color=color)


def _about(page: Page, view: RunView) -> None:
    rows = [("workload", view.workload), ("run", view.run)]
    if view.objective != Objective():
        rows.append(("objective", f"{view.objective.name}, in ms {view.objective.per}"))
    if view.probe:
        identity = view.probe.environment.identity
        rows.append(("on", ", ".join(f"{key} {value}" for key, value in identity.items())))
    page.blank()
    page.rows([(name, value) for name, value in rows if value], indent=0, styles=("dim",))


def _kept(page: Page, view: RunView) -> None:
    """The settings that will be emitted, each with what is lost without it."""
    if view.confirm is None or view.confirm.verdict is not Verdict.FASTER:
        return
    page.heading("settings", "what to set, and the speed-up lost when only this one is left out")
    rows = []
    for name, value in view.confirm.chosen.settings:
        effect = view.effects.get(name)
        rows.append((setting(name, value), ratio(effect.estimate) if effect else "effect not measured"))
    page.rows(rows, styles=("bold", ""))
    if view.minimise and view.minimise.dropped:
        page.heading("dropped", "of the search's winner: not shown to matter")
        winner = view.minimise.winner.config if view.minimise.winner else None
        groups: dict[str, list[str]] = {}
        for name, why in view.minimise.dropped.items():
            groups.setdefault(why, []).append(setting(name, winner.get(name)) if winner else name)
        for why, gone in groups.items():
            for text in gone:
                page.line(text, indent=2)
            page.prose(why, indent=6)


def _emitted(page: Page, view: RunView) -> None:
    if view.seal and view.confirm and view.confirm.verdict is Verdict.FASTER:
        page.heading("environment", "what the bundle's files set, text for text as it was sealed")
        for name, value in view.seal.environment.items():
            page.line(f"{name}={value}", indent=2)


def _finalists(page: Page, view: RunView) -> None:
    """Every config that was put to the proof, unless the headline has said it all."""
    finalists = view.confirm.finalists if view.confirm else ()
    if not finalists or (len(finalists) == 1 and view.confirm and view.confirm.verdict is Verdict.FASTER):
        return
    page.heading("finalists", "against the defaults, in fresh processes")
    for finalist in finalists:
        failure = finalist.failure
        said = f"failed, {failure.kind.value}: {reason(failure)}" if failure else ""
        page.line(settings(finalist.config), indent=2)
        page.prose(said or f"{finalist.verdict.value} {ratio(finalist.estimate)}", indent=6)


def _steps(page: Page, view: RunView) -> None:
    """Of a workload of several steps, what becomes of each one."""
    finalists = view.confirm.finalists if view.confirm else ()
    chosen = next((f for f in finalists if view.confirm and f.config == view.confirm.chosen), None)
    shown = chosen or next(iter(finalists), None)
    if shown is None or not shown.steps:
        return
    page.heading("steps", f"each one's own speed-up under {settings(shown.config)}, from the same processes")
    weights = view.objective.weights
    page.rows([(name, f"weight {weights.get(name, 1.0):g}", ratio(own)) for name, own in shown.steps.items()])


def _claims(page: Page, view: RunView) -> None:
    """The two claims apart: a compile is a draw, and production loads one of them."""
    if rows := claims(view):
        page.heading("claims", "against the defaults, in fresh processes")
        page.rows(rows)


def _noise(page: Page, view: RunView) -> None:
    """Each level by itself; how far compiles differ; whether the resolution was kept."""
    rows = noise(view)
    if not rows:
        return
    page.heading("noise", "standard deviations, level by level")
    page.rows(rows, align="<>")
    rest = [*draws(view), *([("resolution", kept)] if (kept := resolved(view)) else [])]
    page.rows(rest)


def _others(page: Page, view: RunView) -> None:
    """The program's other functions: settings that act on the process act on them."""
    finalist = checked(view)
    if finalist is not None:
        page.heading("other functions", "of the program under these settings, in one pair of fresh processes")
        page.rows([(other.name, said(other)) for other in finalist.others])


def _failed(page: Page, view: RunView) -> None:
    if not view.failures and not view.session_failures:
        return
    command = show_command("--failed", run="", command=view.command)
    candidates = f"{count(view.failed_total, 'candidate')}; each one: {command}"
    page.heading("failed", candidates if view.failures else "no candidate, but sessions ended by themselves")
    rows = []
    for kind, entries in view.failures.items():
        blame = "" if kind.caused_by_config else " (no fault of the settings)"
        rows.append((kind.value + blame, str(len(entries)), _reasons(entries)))
    if view.session_failures:
        ends = [
            f"{event.session}, {event.failure.kind.value}: {reason(event.failure)}"
            for event in view.session_failures
            if event.failure
        ]
        rows.append(("sessions that ended", str(len(ends)), "; ".join(_top(ends))))
    page.rows(rows, align="<>", styles=("red",))


def _reasons(entries: Sequence[FailedCandidate]) -> str:
    """The most frequent messages; one that a single candidate gave names it."""
    messages: dict[str, list[FailedCandidate]] = {}
    for entry in entries:
        messages.setdefault(reason(entry.failure), []).append(entry)
    ranked = sorted(messages.items(), key=lambda item: -len(item[1]))
    texts = []
    for message, who in ranked[:_REASONS]:
        whose = settings(who[0].config) if len(who) == 1 else f"{len(who)} times"
        texts.append(f"{whose}: {message}")
    return "; ".join(texts + _rest(ranked))


def _top(texts: Iterable[str]) -> list[str]:
    """The most frequent texts, with how often each came if they differ, and how many other ones there are."""
    ranked = Counter(texts).most_common()
    shown = [text if number == 1 or len(ranked) == 1 else f"{text} ({number})" for text, number in ranked[:_REASONS]]
    return shown + _rest(ranked)


def _rest(ranked: Sequence[object]) -> list[str]:
    """How many reasons are not told."""
    return [f"and {count(len(ranked) - _REASONS, 'more reason')}"] if len(ranked) > _REASONS else []


def _knobs(page: Page, view: RunView) -> None:
    if not view.probe:
        return
    offered, live = view.counts.offered, view.counts.live
    page.heading("knobs", f"{offered} offered, {live} live at the end; each one: tune knobs")
    rows = []
    for status, number in view.counts.left.items():
        of = [entry for entry in view.left if entry.status == status]
        rows.append((status, str(number), _named(of)))
    for entry in view.narrowed:
        lost = f" loses {', '.join(value or '(empty)' for value in entry.values)}" if entry.values else ""
        rows.append((entry.status, "", f"{entry.name}{lost}: {clean(entry.reason)}"))
    page.rows(rows, align="<>")


def _named(left: Sequence[KnobStatus]) -> str:
    """Who left and why: names are told with each reason that differs."""
    groups: dict[str, list[str]] = {}
    for entry in left:
        groups.setdefault(clean(entry.reason), []).append(entry.name)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    texts = [f"{some(names, _NAMES)}: {why}" for why, names in ranked[:_REASONS]]
    return "; ".join(
        texts + ([f"and {count(len(ranked) - _REASONS, 'more reason')}"] if len(ranked) > _REASONS else [])
    )


def _stages(page: Page, view: RunView) -> None:
    page.heading("time", spent_on(view))
    page.rows(stage_rows(view), align="<>", styles=("", "", "dim"))


def _notices(page: Page, view: RunView) -> None:
    if view.notices:
        page.heading("notices")
        for text in view.notices:
            page.rows([("–", clean(text))])


def _next(page: Page, view: RunView, files: Mapping[str, str]) -> None:
    step = next_step(view, files)
    if step.command:
        page.heading("next", step.purpose)
        page.line(step.command, indent=2, style="cyan")
    else:
        page.blank()
        page.rows([("next", step.purpose)], indent=0, styles=("bold",))
