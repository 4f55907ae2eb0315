"""A run as a paper: what to do, how sure that is, and everything behind it, in the order in which it is wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.knobs.config import DEFAULT
from tuner.knobs.pgle import EXPECT_PGLE
from tuner.measure.objective import Objective
from tuner.measure.types import Verdict
from tuner.report.blocks import Block, Cell, Code, Commands, Fold, Link, Paper, Prose, Section, Table, Tone
from tuner.report.details import knobs_section, machine_section, memory_section, search_section, time_section
from tuner.report.forest import ForestRow, forest
from tuner.report.headline import headline, next_step
from tuner.report.levels import step_times
from tuner.report.noise import claims, draws, resolved
from tuner.report.others import checked, said
from tuner.report.provenance import provenance_section
from tuner.report.samples import pair_samples
from tuner.report.view import RunView
from tuner.report.where import beyond_settings, where_section
from tuner.report.wording import change, clean, count, percent, ratio, reason, sentence, setting, settings
from tuner.store.events import AnyEvent
from tuner.store.records import Finalist, SealRecord

__all__ = ["run_paper"]

_TONES: dict[Verdict, Tone] = {
    Verdict.FASTER: "good",
    Verdict.SAME: "plain",
    Verdict.UNCLEAR: "warn",
    Verdict.UNSTABLE: "bad",
}
_FINDINGS = 3  # in the section of what to do; all are told where the time went
_FILES = {
    "env": "for docker --env-file, systemd and the like",
    "shell": "to be sourced by a shell",
    "json": "for programs; holds the compile options of the one function too, where that is enough",
    "bundle": "all of it, sealed with a warm compilation cache",
}


def run_paper(
    events: Sequence[AnyEvent], *, files: Mapping[str, str] | None = None, beside: Path | None = None
) -> Paper:
    """The report on a run, however far it came. `files`: those that are there, None for those that were recorded.

    `beside`: the folder that the report will lie in, which links start from; None: links hold absolute paths.
    """
    view = RunView.of(events)
    known = view.files if files is None else files
    confirm = view.confirm
    tone: Tone = _TONES.get(confirm.verdict, "warn") if confirm else "warn"
    identity = view.probe.environment.identity if view.probe else {}
    objective = "" if view.objective == Objective() else f"{view.objective.name}, in ms {view.objective.per}"
    return Paper.of(
        f"tune: {Path(view.workload).name or 'a run'}, run {view.run or 'without a name'}",
        headline(view),
        tone="bad" if view.all_failed else tone,
        facts=[
            ("workload", view.workload),
            ("run", view.run),
            ("objective", objective),
            ("on", _where(identity)),
        ],
        sections=[
            Section(name="do", title="What to do", blocks=(*_what_to_do(view, known, beside), *_beyond(view))),
            Section(name="sure", title="How sure that is", blocks=tuple(_how_sure(view))),
            Section(name="settings", title="Settings kept", blocks=tuple(_settings(view))),
            Section(name="times", title="Step times", blocks=tuple(_times(view, events))),
            where_section(view),
            search_section(view, events),
            knobs_section(view),
            machine_section(view, events),
            memory_section(view, events),
            time_section(view),
            Section(name="notices", title="Notices", blocks=tuple(Prose(text=clean(text)) for text in view.notices)),
            provenance_section(view, events, known, linked=lambda path: linked(path, beside)),
        ],
    )


def linked(path: str, beside: Path | None) -> Link:
    """A link to `path` that works from the folder `beside`, and is named from there where it lies inside; an absolute
    one without it."""
    absolute = Path(path).absolute()
    target = absolute.as_posix() if beside is None else Path(os.path.relpath(absolute, beside.absolute())).as_posix()
    return Link(path if target.startswith(("..", "/")) else target, target)


def _where(identity: Mapping[str, str]) -> str:
    names = ("device_count", "device_kind", "cpu")
    device = " ".join(dict.fromkeys(identity[n] for n in names if identity.get(n) and identity[n] != "1"))
    return ", ".join(filter(None, (device, f"jax {identity['jax']}" if identity.get("jax") else "")))


def _what_to_do(view: RunView, files: Mapping[str, str], beside: Path | None) -> list[Block]:
    step = next_step(view, files)
    blocks: list[Block] = []
    faster = view.confirm is not None and view.confirm.verdict is Verdict.FASTER
    if step.command:
        lead = "Set what was found," if faster and "shell" in files else "This"
        blocks += [Prose(text=f"{lead} {step.purpose}:"), Commands(lines=(step.command,))]
    else:
        blocks.append(Prose(text=f"{sentence(step.purpose)}."))
    if not faster or view.confirm is None:
        return blocks
    if view.seal:
        environment = tuple((Code(name), Code(text)) for name, text in view.seal.environment.items())
        blocks.append(
            Table(caption="What the files set, as it was sealed", head=("variable", "value"), rows=environment)
        )
        blocks += _cache(view.seal)
    else:
        kept = tuple(setting(name, text) for name, text in view.confirm.chosen.settings)
        blocks += [Prose(text="No bundle was sealed yet; the settings are:"), Commands(lines=kept)]
    there = tuple((linked(files[name], beside), use) for name, use in _FILES.items() if files.get(name))
    if there:
        blocks.append(Table(caption="Files to take along", head=("file", "use"), rows=there))
    return blocks


def _beyond(view: RunView) -> list[Block]:
    """What would gain where settings don't."""
    return [Prose(text=f"In the program itself: {told}.") for told in beyond_settings(view)[:_FINDINGS]]


def _cache(seal: SealRecord) -> list[Block]:
    """Where the compiled step lies, and what has to be seen to where the files are moved."""
    if not seal.cache_requests:
        return []
    if EXPECT_PGLE in seal.environment:
        text = (
            "The files name the bundle's jax_cache: there lies the step that was compiled with the profile. Where they "
            "are used elsewhere, let JAX_COMPILATION_CACHE_DIR name it there: a step that isn't found runs slower than "
            "by default."
        )
        return [Prose(text=text, tone="warn")]
    text = (
        "The compiled step lies in the bundle's jax_cache. The file for a shell points JAX_COMPILATION_CACHE_DIR "
        "there; with another file, set it yourself."
    )
    return [Prose(text=text)]


def _how_sure(view: RunView) -> list[Block]:
    confirm = view.confirm
    if confirm is None:
        return [Prose(text="Nothing was confirmed in fresh processes, so nothing is claimed.", tone="warn")]
    blocks: list[Block] = []
    if confirm.unstable:
        blocks.append(Prose(text=f"This machine is unstable: {confirm.unstable}.", tone="bad"))
    if not confirm.finalists:
        why = "No candidate was worth confirming" if view.tried else "Nothing was tried"
        return [*blocks, Prose(text=f"{why}, so nothing was compared in fresh processes.")]
    margin = min_gain(view)
    how = "alive together and taking turns" if confirm.alive_together else "one after another, in random order"
    blocks.append(
        Prose(
            text=f"Judged by {count(confirm.pairs, 'pair')} of fresh processes in the form that is emitted, {how}; "
            "nothing that was measured in the search counts. Intervals hold with 95 %, over all looks and finalists "
            "together. Faster means: the whole interval lies above 1x and the estimate reaches "
            f"{percent(margin)}; same: every interval excludes such a gain."
        )
    )
    rows = [_forest_row(f, chosen=f.config == confirm.chosen) for f in confirm.finalists]
    blocks.append(
        forest(
            rows,
            title="Speed-up of each finalist over the default, in fresh processes, with 95 % interval",
            caption=f"The shaded band is a gain below {percent(margin)}, too small to matter.",
            margin=margin,
        )
    )
    blocks.append(_finalists(view, confirm.finalists))
    if rows_of_claims := claims(view):
        blocks.append(Table(caption="Two claims, kept apart", head=("claim", "speed-up"), rows=tuple(rows_of_claims)))
    if kept := resolved(view):
        blocks.append(Prose(text=f"Smallest gain that could be told: {kept}."))
    if found := draws(view):
        caption = "What fresh compiles of the same settings made of a step"
        coded = tuple((text if text == "default" else Code(text), told) for text, told in found)
        blocks.append(Table(caption=caption, head=("settings", "compiles"), rows=coded))
    return [*blocks, *_steps(view), *_others(view)]


def min_gain(view: RunView) -> float:
    """The smallest gain worth having, as a fraction."""
    return float(view.options.get("min_gain") or 0.005)


def _forest_row(finalist: Finalist, *, chosen: bool) -> ForestRow:
    known = None if finalist.failure else finalist.estimate
    return ForestRow(label=settings(finalist.config), estimate=known, tone="good" if chosen else "plain")


def _finalists(view: RunView, finalists: Sequence[Finalist]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for f in finalists:
        said_of = f"failed, {f.failure.kind.value}: {reason(f.failure)}" if f.failure else f.verdict.value
        chosen = view.confirm is not None and f.config == view.confirm.chosen and f.config != DEFAULT
        times = "" if f.failure else change(f.control_ms, f.best_ms, view.objective)
        speed = "" if f.failure else ratio(f.estimate)
        rows.append((Code(settings(f.config)), f"{said_of}{', chosen' if chosen else ''}", speed, times))
    head = ("finalist", "verdict", "speed-up", "default → finalist")
    return Table(caption="Finalists against the default", head=head, rows=tuple(rows))


def _steps(view: RunView) -> list[Block]:
    """Of a workload of several steps, what becomes of each."""
    finalists = view.confirm.finalists if view.confirm else ()
    chosen = next((f for f in finalists if view.confirm and f.config == view.confirm.chosen), None)
    shown = chosen or next(iter(finalists), None)
    if shown is None or not shown.steps:
        return []
    weights = view.objective.weights
    rows = tuple((name, f"{weights.get(name, 1.0):g}", ratio(own)) for name, own in shown.steps.items())
    caption = "Each step by itself, from the same processes; no part of the verdict"
    return [Table(caption=caption, head=("step", "weight", "speed-up"), rows=rows, align="<>")]


def _others(view: RunView) -> list[Block]:
    finalist = checked(view)
    if finalist is None:
        return []
    caption = "Other functions of the program under these settings, in one pair of fresh processes"
    return [Table(caption=caption, head=("function", "found"), rows=tuple((o.name, said(o)) for o in finalist.others))]


def _settings(view: RunView) -> list[Block]:
    confirm, minimise = view.confirm, view.minimise
    if confirm is None or confirm.verdict is not Verdict.FASTER:
        return []
    effects = view.effects
    rows = [(setting(n, v), effects[n].estimate if n in effects else None) for n, v in confirm.chosen.settings]
    blocks: list[Block] = [Prose(text="The speed-up that is lost when only this one setting is left out.")]
    if any(estimate for _, estimate in rows):
        blocks.append(
            forest(
                [ForestRow(label=text, estimate=e, tone="good") for text, e in rows],
                title="Effect of each kept setting: the speed-up lost without it, with 95 % interval",
                caption="Measured while minimising, in one process each; selection makes these somewhat optimistic.",
                margin=min_gain(view),
            )
        )
    why = {knob.name: knob.why for knob in view.probe.knobs} if view.probe else {}
    told = tuple(
        (Code(text), ratio(e) if e else "not measured by itself", why.get(name, ""))
        for (text, e), (name, _) in zip(rows, confirm.chosen.settings, strict=True)
    )
    blocks.append(Table(caption="Settings kept", head=("setting", "effect", "what it does"), rows=told))
    if minimise and minimise.dropped:
        winner = minimise.winner.config if minimise.winner else DEFAULT
        gone = tuple((Code(setting(name, winner.get(name))), why) for name, why in minimise.dropped.items())
        table = Table(caption="Dropped from the search's winner", head=("setting", "why"), rows=gone)
        blocks.append(Fold(summary=f"{count(len(gone), 'setting')} dropped: not shown to matter", blocks=(table,)))
    return blocks


def _times(view: RunView, events: Sequence[AnyEvent]) -> list[Block]:
    finalists = view.confirm.finalists if view.confirm else ()
    chosen = next((f for f in finalists if view.confirm and f.config == view.confirm.chosen), None)
    shown = chosen or next((f for f in finalists if f.failure is None), None)
    if shown is None:
        return []
    pairs = pair_samples(events, shown.config, view.objective)
    drawn = step_times(pairs, unit=view.objective.per, who="winner" if chosen else "finalist")
    if drawn is None:
        return []
    rows = tuple(
        (
            str(pair.index + 1),
            f"{pair.control_level:.4g}",
            f"{pair.finalist_level:.4g}",
            f"{pair.control_level / pair.finalist_level:.4f}x" if pair.finalist_level > 0 else "",
            str(max(len(pair.control_ms), 1)),
            pair.disturbed,
        )
        for pair in pairs
    )
    head = ("pair", "default, ms", "finalist, ms", "ratio", "blocks", "disturbed by")
    table = Table(caption="Each pair of fresh processes", head=head, rows=rows, align=">>>>><")
    return [
        Prose(
            text=f"The default beside {'the winner' if chosen else settings(shown.config)}, "
            f"in milliseconds {view.objective.per}."
        ),
        drawn,
        Fold(summary="The pairs as numbers", blocks=(table,)),
    ]
