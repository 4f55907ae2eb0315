"""The sections of a run's report for whoever wants to know more: search, knobs, machine, memory, time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tuner.knobs.config import DEFAULT, Config
from tuner.report.blocks import Block, Cell, Code, Fold, Prose, Section, Table
from tuner.report.forest import Bar, ForestRow, bars, forest
from tuner.report.history import search_history
from tuner.report.levels import control_over_time, reading_over_time
from tuner.report.noise import disturbances, noise
from tuner.report.samples import control_levels, readings_over_time
from tuner.report.stages import spent_on, stage_rows
from tuner.report.view import RunView
from tuner.report.wording import bytes_text, clean, count, duration, ratio, reason, settings
from tuner.store.events import AnyEvent, CandidateCompiled, TrialFinished

__all__ = ["knobs_section", "machine_section", "memory_section", "search_section", "time_section"]

_BEST = 10  # trials in the table
_FLIPS = 10  # single settings in the plot
_ROWS = 200  # of one fold's table
_READINGS = (
    ("clock_mhz", "GPU clock", "MHz"),
    ("temperature_c", "GPU temperature", "°C"),
    ("other_cores", "cores busy with other processes", "cores"),
)


def search_section(view: RunView, events: Sequence[AnyEvent]) -> Section:
    """Every trial: what it found, and when."""
    began = events[0].time if events else 0.0
    plots = (search_history(view.trials, against="trial"), search_history(view.trials, against="time", began=began))
    blocks: list[Block] = [plot for plot in plots if plot is not None]
    timed = sorted((t for t in view.trials if t.value is not None and t.estimate), key=lambda t: t.value or 0.0)
    if timed:
        rows = tuple(_trial_row(trial) for trial in timed[:_BEST])
        counts = view.counts
        text = (
            f"{count(counts.timed, 'trial')} timed, {counts.deduplicated} shared another's samples, "
            f"{view.failed_total} failed. The fastest look better than they are, being the best of many."
        )
        head = ("trial", "stage", "speed-up", "settings")
        table = Table(caption="The fastest trials", head=head, rows=rows, align=">")
        summary = f"The fastest trials, {len(rows)} of {len(timed)}"
        blocks = [Prose(text=text), *blocks, Fold(summary=summary, blocks=(table,))]
    return Section(name="search", title="Search", blocks=tuple(blocks))


def _trial_row(trial: TrialFinished) -> tuple[Cell, ...]:
    label = f" ({trial.label})" if trial.label and trial.label not in ("default", "") else ""
    speed = ratio(trial.estimate) if trial.estimate else ""
    return (str(trial.number), trial.stage, speed, Code(f"{settings(trial.config)}{label}"))


def knobs_section(view: RunView) -> Section:
    """What each setting does alone; what left, and why; what failed."""
    blocks: list[Block] = []
    if view.probe:
        text = f"{count(view.counts.offered, 'knob')} offered, {view.counts.live} live at the end."
        blocks.append(Prose(text=text))
    flips = sorted(view.screen.flips if view.screen else (), key=lambda m: -abs(m.estimate.gain))
    flips = [m for m in flips if m.config != DEFAULT]
    default = {trial.fingerprint for trial in view.trials if trial.config == DEFAULT and trial.fingerprint}
    others = [m for m in flips if m.fingerprint not in default]
    if others:
        shown = sorted(others[:_FLIPS], key=lambda m: -m.estimate.gain)
        rest = f", {len(shown)} largest of {len(others)}" if len(others) > len(shown) else ""
        blocks.append(
            forest(
                [ForestRow(label=settings(m.config), estimate=m.estimate) for m in shown],
                title=f"Speed-up of single settings in the screening{rest}, with 95 % interval",
                caption="Within one process, without correction for their number: a screening, not a claim.",
            )
        )
    if flips:
        rows = tuple(
            (Code(settings(m.config)), "the default's program" if m.fingerprint in default else ratio(m.estimate))
            for m in (*others, *(m for m in flips if m.fingerprint in default))
        )[:_ROWS]
        table = Table(caption="Single settings, largest effect first", head=("setting", "speed-up"), rows=rows)
        blocks.append(Fold(summary=f"All {count(len(flips), 'single setting')} as numbers", blocks=(table,)))
    return Section(name="knobs", title="Knobs", blocks=(*blocks, *_left(view), *_failed(view)))


def _left(view: RunView) -> list[Block]:
    """By status, each knob that left with its reason; and those that lost values only."""
    blocks: list[Block] = []
    for status, number in view.counts.left.items():
        gone = [entry for entry in view.left if entry.status == status]
        rows = tuple((Code(entry.name), clean(entry.reason)) for entry in gone)
        table = Table(caption=f"Knobs that left: {status}", head=("knob", "why"), rows=rows)
        blocks.append(Fold(summary=f"{status}: {count(number, 'knob')}", blocks=(table,)))
    if view.narrowed:
        narrowed = tuple(
            (Code(e.name), Code(", ".join(v or "(empty)" for v in e.values)), f"{e.status}: {clean(e.reason)}")
            for e in view.narrowed
        )
        head = ("knob", "lost", "why")
        table = Table(caption="Knobs that stay, without some values or under another name", head=head, rows=narrowed)
        blocks.append(Fold(summary=f"changed: {count(len(narrowed), 'knob')}", blocks=(table,)))
    return blocks


def _failed(view: RunView) -> list[Block]:
    blocks: list[Block] = []
    for kind, entries in view.failures.items():
        blame = "" if kind.caused_by_config else ", no fault of the settings"
        rows = tuple(
            (
                str(entry.trial) if entry.trial >= 0 else "finalist",
                Code(settings(entry.config)),
                entry.failure.phase,
                reason(entry.failure),
            )
            for entry in entries[:_ROWS]
        )
        head = ("trial", "settings", "in", "why")
        more = f"; the first {_ROWS} are listed" if len(entries) > _ROWS else ""
        table = Table(caption=f"Failed: {kind.value}{more}", head=head, rows=rows, align=">")
        blocks.append(Fold(summary=f"failed, {kind.value}{blame}: {len(entries)}", blocks=(table,)))
    if view.session_failures:
        ended = tuple(
            (e.session, e.failure.kind.value, reason(e.failure)) for e in view.session_failures if e.failure is not None
        )
        table = Table(caption="Sessions that ended by themselves", head=("session", "class", "why"), rows=ended)
        blocks.append(Fold(summary=f"sessions that ended: {len(ended)}", blocks=(table,)))
    return blocks


def machine_section(view: RunView, events: Sequence[AnyEvent]) -> Section:
    """How noisy it was, how the default's own time moved, what the machine did meanwhile."""
    blocks: list[Block] = []
    if rows := noise(view):
        head = ("level", "standard deviation", "of what")
        blocks.append(Table(caption="Noise, level by level", head=head, rows=tuple(rows), align="<>"))
    began = events[0].time if events else 0.0
    level = control_over_time(control_levels(events, view.objective), began=began)
    if level is not None:
        blocks.append(level)
    for reading, name, unit in _READINGS:
        drawn = reading_over_time(readings_over_time(events, reading), began=began, name=name, unit=unit)
        if drawn is not None:
            blocks.append(drawn)
    if view.disturbed:
        told = tuple((str(number), clean(why)) for number, why in disturbances(view)[:_ROWS])
        table = Table(caption="What disturbed rounds", head=("rounds", "why"), rows=told, align=">")
        text = f"{sum(view.disturbed.values())} of {count(view.rounds, 'round')} disturbed"
        blocks.append(Fold(summary=text, blocks=(table,)))
    return Section(name="machine", title="Noise and the machine", blocks=tuple(blocks))


def memory_section(view: RunView, events: Sequence[AnyEvent]) -> Section:
    """Memory and compile time of the default and of what was chosen, and what the sealed cache saves."""
    chosen = view.confirm.chosen if view.confirm else DEFAULT
    compiled: dict[Config, list[CandidateCompiled]] = {}
    for event in events:
        if isinstance(event, CandidateCompiled) and event.config in (DEFAULT, chosen):
            compiled.setdefault(event.config, []).append(event)
    rows = tuple(
        (Code("default" if config == DEFAULT else settings(config)), *_compile_cells(made))
        for config, made in compiled.items()
    )
    blocks: list[Block] = []
    if rows:
        head = ("settings", "peak memory", "compile", "compiles")
        caption = "Memory by the compiler's own count; compile time: the median of those that no cache answered"
        blocks.append(Table(caption=caption, head=head, rows=rows, align="<>>>"))
    if seal := view.seal:
        cold, warm = duration(seal.first_step_cold_s), duration(seal.first_step_warm_s)
        hits = f"{seal.cache_hits} of {count(seal.cache_requests, 'compile')}"
        if seal.cache_requests:
            text = f"The first step takes {cold} with a cold cache and {warm} from the sealed one, which had {hits}."
            blocks.append(Prose(text=text))
        if own := seal.command:
            found = f"{own.hits} of {count(own.requests, 'compile')} in the sealed cache"
            took = f"{duration(own.cold_s)} the first time, {duration(own.warm_s)} from the cache"
            blocks.append(Prose(text=f"The command of production, {own.command}, found {found}; it ran for {took}."))
    return Section(name="memory", title="Memory and compile time", blocks=tuple(blocks))


def _compile_cells(made: Sequence[CandidateCompiled]) -> tuple[str, str, str]:
    peaks = [e.compiled.peak_bytes for e in made if e.compiled.peak_bytes is not None]
    seconds = [e.compiled.compile_s for e in made if not e.compiled.cache_hit]
    took = duration(median(seconds)) if seconds else "unknown"
    return bytes_text(max(peaks)) if peaks else "unknown", took, str(len(seconds))


def time_section(view: RunView) -> Section:
    """The stages, and what the time went into."""
    if not view.stages and not view.unfinished_s:
        return Section(name="time", title="Time", blocks=())
    spans = [*view.stages.items(), *([(view.unfinished, view.unfinished_s)] if view.unfinished else [])]
    drawn = bars(
        [Bar(label=stage, seconds=seconds) for stage, seconds in spans],
        title="Seconds that each stage took",
        caption=f"By the clock, {spent_on(view)}.",
    )
    rows = tuple(stage_rows(view))
    table = Table(caption="What each stage found", head=("stage", "time", "found"), rows=rows, align="<>")
    return Section(name="time", title="Time by stage", blocks=(drawn, table))
