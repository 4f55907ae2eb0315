"""A comparison as a paper: what differs in speed, in what, and how far that can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.knobs.applies import NEEDS_JAX
from tuner.knobs.knob import UNSET
from tuner.measure.types import Estimate
from tuner.report.blocks import Block, Cell, Code, Fold, Paper, Prose, Section, Table, Tone
from tuner.report.comparison import Against, Comparison, Group, Mean, differences
from tuner.report.curve import varied_knob
from tuner.report.forest import ForestRow, forest
from tuner.report.sides import UNCHANGED, Side
from tuner.report.wording import count, ratio, setting

__all__ = ["comparison_paper", "found"]

_HOW = (
    "The runs were not timed side by side. A ratio to the default that ran beside it is free of what the machine did "
    "that day, so gains over each run's own default are compared; their errors add in quadrature. Intervals hold with "
    "95 % each, not all together."
)
_DRIFT = (
    "Absolute times of different occasions. Clocks, temperature and neighbours may have changed in between, which no "
    "interval here covers: take a difference seriously only where it is far larger than drift, or measure both again "
    "in one run."
)


def comparison_paper(comparison: Comparison) -> Paper:
    """The whole comparison, the answer first."""
    entries = comparison.against
    number = len(comparison.groups)
    over_all = [_over_all(mean, mean.relative, number) for mean in comparison.means if mean.relative]
    sentences = over_all or [found(entry) for entry in entries]
    if not entries:
        sentences = ["settings alone are compared" if comparison.settings_only else "each workload stands alone"]
    return Paper.of(
        f"tune: {count(len(comparison.sides), 'side')} compared",
        "; ".join(sentences[:3]) + (f"; and {len(sentences) - 3} more" if len(sentences) > 3 else ""),
        tone=_tone(entries),
        facts=[("base", ", ".join(group.sides[0].label for group in comparison.groups))],
        sections=[
            *(_gains(group) for group in comparison.groups),
            Section(name="means", title="Over all workloads", blocks=tuple(_means(comparison))),
            Section(name="environments", title="Environments", blocks=tuple(_environments(entries))),
            Section(name="settings", title="Settings", blocks=tuple(_all_settings(comparison))),
            Section(name="jax", title="Across versions of jax", blocks=tuple(_versions(entries))),
            Section(name="times", title="Step times", blocks=tuple(_times(comparison))),
            Section(
                name="knob", title="By a knob", blocks=tuple(b for g in comparison.groups for b in varied_knob(g.sides))
            ),
            Section(name="how", title="How this is compared", blocks=(Prose(text=_HOW),) if entries else ()),
        ],
    )


def found(entry: Against) -> str:
    """One comparison in a phrase."""
    who = f"{entry.other.label} against {entry.base.label}"
    if entry.once:
        return f"{who}: one and the same run, nothing to compare but its forms"
    if entry.gain is None:
        return f"{who}: gains can't be compared, {_lacking(entry)}"
    unlike = f", in other environments ({', '.join(entry.unlike)})" if entry.unlike else ""
    if _both_default(entry):
        told = _told_undecided(entry)
        return f"{who}: both keep the defaults{f' ({told})' if told else ''}{unlike}"
    return f"{who}: {ratio(entry.gain)} in gain over the default, {_judged(entry)}{unlike}"


def _judged(entry: Against) -> str:
    """No better or worse where a side only keeps the defaults because it could not tell."""
    if told := _told_undecided(entry):
        return f"of what is emitted alone: {told}, which keeps the defaults"
    return _said(entry.gain) if entry.gain else ""


def _told_undecided(entry: Against) -> str:
    return " and ".join(f"{s.label} {s.verdict.value}" for s in entry.undecided if s.verdict)


def _both_default(entry: Against) -> bool:
    """Then their ratio is 1 by definition, not by measurement."""
    return entry.base.gain == UNCHANGED == entry.other.gain


def _over_all(mean: Mean, relative: Estimate, workloads: int) -> str:
    who = f"{' and '.join(mean.labels)} against the bases, over {workloads} workloads"
    return f"{who}: {ratio(relative)} in gain over the default, {_said(relative)}"


def _lacking(entry: Against) -> str:
    if entry.base.per != entry.other.per:
        return "the objectives differ"
    lacking = [side.label for side in (entry.base, entry.other) if side.gain is None]
    return f"{' and '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no verdict"


def _said(estimate: Estimate) -> str:
    if estimate.low > 0:
        return "better"
    if estimate.high < 0:
        return "worse"
    return "no difference shown" if estimate.low < estimate.high else "no difference"


def _tone(entries: Sequence[Against]) -> Tone:
    known = [entry.gain for entry in entries if entry.gain is not None and not entry.undecided]
    if any(estimate.high < 0 for estimate in known):
        return "bad"
    if len(known) < len(entries):
        return "warn"
    return "good" if known and all(estimate.low > 0 for estimate in known) else "plain"


def _gains(group: Group) -> Section:
    rows: list[tuple[Cell, ...]] = []
    against = {entry.other.label: _versus(entry) for entry in group.against}
    for side in group.sides:
        versus = against.get(side.label, "the base")
        rows.append((Code(side.label), _verdict(side), _gain(side), str(side.pairs or ""), versus))
    head = ("side", "verdict", "over its own default", "pairs", "against the base")
    blocks: list[Block] = []
    known = [side for side in group.sides if side.gain is not None]
    if len(known) > 1:
        blocks.append(
            forest(
                [ForestRow(label=side.label, estimate=side.gain) for side in known],
                title=f"{group.workload}: speed-up of what each side emits over its own default, with 95 % interval",
                caption="A side that keeps the defaults stands at 1x by definition.",
            )
        )
    caption = f"{group.workload}: gains over each side's own default"
    blocks.append(Table(caption=caption, head=head, rows=tuple(rows), align="<<<>"))
    if any(not entry.step for entry in group.against):
        text = "Not the same step: the programs differ, so gains are compared, and times are not of the same thing."
        blocks.append(Prose(text=text, tone="warn"))
    return Section(name=f"gains-{_slug(group.workload)}", title=f"Gains, {group.workload}", blocks=tuple(blocks))


def _versus(entry: Against) -> str:
    if entry.once:
        return "the same run"
    if entry.gain is None:
        return "can't be told"
    return "both keep the defaults" if _both_default(entry) else ratio(entry.gain)


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text) or "unnamed"


def _verdict(side: Side) -> str:
    return side.verdict.value if side.verdict else "no verdict"


def _gain(side: Side) -> str:
    if side.gain is None:
        return "unknown"
    if side.gain != UNCHANGED:
        return ratio(side.gain)
    seen = f"; the best finalist was {ratio(side.measured)}" if side.measured else ""
    return f"1x, keeps the defaults{seen}"


def _means(comparison: Comparison) -> list[Block]:
    if not comparison.means:
        return []
    rows: list[tuple[Cell, ...]] = []
    for mean in comparison.means:
        speed = ratio(mean.speedup) if mean.speedup else f"not averaged: {mean.why}"
        versus = "the base" if mean.place == 0 else ratio(mean.relative) if mean.relative else "not averaged"
        rows.append((Code(", ".join(mean.labels)), speed, versus))
    number = count(len(comparison.groups), "workload")
    text = f"Geometric means over {number}, each with the same weight. They speak of these workloads, not of others."
    head = ("sides", "over their own defaults", "against the bases")
    return [Prose(text=text), Table(caption="Geometric means", head=head, rows=tuple(rows))]


def _environments(entries: Sequence[Against]) -> list[Block]:
    blocks: list[Block] = []
    for entry in entries:
        pair = f"{entry.other.label} and {entry.base.label}"
        if entry.unlike:
            text = f"{pair} were measured in different environments: neither result holds in the other."
            blocks += [Prose(text=text, tone="warn"), _side_by_side("Identity that differs", entry, entry.unlike)]
        if entry.circumstances:
            table = _side_by_side("Circumstances that differ", entry, entry.circumstances)
            blocks.append(Fold(summary=f"{pair}: other circumstances", blocks=(table,)))
    untold = dict.fromkeys(s.label for entry in entries for s in (entry.base, entry.other) if not s.identity)
    if untold:
        blocks.insert(0, Prose(text=f"Not known where it was measured: {', '.join(untold)}.", tone="warn"))
    elif entries and not any(entry.unlike for entry in entries):
        blocks.insert(0, Prose(text="All compared sides were measured in equal environments."))
    return blocks


def _side_by_side(caption: str, entry: Against, named: dict[str, tuple[str, str]]) -> Table:
    rows = tuple((name, Code(a or "–"), Code(b or "–")) for name, (a, b) in named.items())
    return Table(caption=caption, head=("name", entry.base.label, entry.other.label), rows=rows)


def _all_settings(comparison: Comparison) -> list[Block]:
    """Workload by workload, with those beside them that hold settings alone."""
    rows = [(*group.sides, *comparison.settings_only) for group in comparison.groups] or [comparison.settings_only]
    return [block for sides in rows if len(sides) > 1 for block in _settings(sides)]


def _settings(sides: Sequence[Side]) -> list[Block]:
    """What differs, side by side; what all have in common, folded."""
    names = sorted({name for side in sides for name in side.settings})
    if not names:
        return [Prose(text=f"{_and(sides)} keep the defaults.")]
    values = {name: [side.settings.get(name, UNSET) for side in sides] for name in names}
    differ = [name for name in names if len(set(values[name])) > 1]
    head = ("setting", *(side.label for side in sides))
    blocks: list[Block] = []
    if differ:
        rows = tuple((Code(name), *(Code(v) if v else "(empty)" for v in values[name])) for name in differ)
        blocks.append(Table(caption="Settings that differ", head=head, rows=rows))
    else:
        blocks.append(Prose(text=f"{_and(sides)} emit the same settings."))
    if common := [name for name in names if name not in differ]:
        same = tuple((Code(setting(name, values[name][0])),) for name in common)
        table = Table(caption="Settings that all have", head=("setting",), rows=same)
        blocks.append(Fold(summary=count(len(common), "setting") + " in common", blocks=(table,)))
    options = differences(sides[0].options, sides[1].options) if len(sides) == 2 and sides[1].options else {}
    if options and sides[0].options:
        rows = tuple((name, Code(a or "–"), Code(b or "–")) for name, (a, b) in options.items())
        blocks.append(Table(caption="Options of the runs that differ", head=("option", *head[1:]), rows=rows))
    return blocks


def _and(sides: Sequence[Side]) -> str:
    return f"{', '.join(side.label for side in sides[:-1])} and {sides[-1].label}"


def _versions(entries: Sequence[Against]) -> list[Block]:
    """What became of knobs between two versions of jax."""
    blocks: list[Block] = []
    for entry in entries:
        base, other = entry.base, entry.other
        if not base.jax or not other.jax or base.jax == other.jax:
            continue
        before, after = _gain(base), _gain(other)
        text = f"jax {base.jax} → {other.jax}, {base.label} → {other.label}: gain before {before}, after {after}."
        blocks.append(Prose(text=text))
        lost = [name for name in base.settings if name in _lacked(other)]
        if lost:
            names = ", ".join(setting(name, base.settings[name]) for name in lost)
            text = f"Settings of {base.label} that jax {other.jax} no longer has: {names}."
            blocks.append(Prose(text=text, tone="warn"))
        for title, here, there in (("gone", other, base), ("new", base, other)):
            rows = tuple((Code(name), why) for name, why in _lacked(here).items() if name not in _lacked(there))
            if rows and (here.left and there.left):
                table = Table(caption=f"Knobs that are {title} in jax {other.jax}", head=("knob", "why"), rows=rows)
                blocks.append(Fold(summary=f"{count(len(rows), 'knob')} {title} in jax {other.jax}", blocks=(table,)))
    return blocks


def _lacked(side: Side) -> dict[str, str]:
    """Knobs that aren't there in this side's version of jax, or are of no use in it, each with why."""
    return {
        name: why
        for name, (status, why) in side.left.items()
        if status == "unsupported" or (status == "inapplicable" and why.startswith(NEEDS_JAX))
    }


def _times(comparison: Comparison) -> list[Block]:
    rows: list[tuple[Cell, ...]] = []
    for group in comparison.groups:
        of = {entry.other.label: entry for entry in group.against}
        for side in group.sides:
            entry = of.get(side.label)
            tuned = ratio(entry.time) if entry and entry.time else ""
            default = ratio(entry.default) if entry and entry.default else ""
            control = f"{side.control_ms:.4g}" if side.control_ms else ""
            best = f"{side.best_ms:.4g}" if side.best_ms else ""
            rows.append((Code(side.label), side.per, control, best, default, tuned))
    if not rows:
        return []
    head = ("side", "ms of", "default", "tuned", "default against base's", "tuned against base's")
    table = Table(caption="Milliseconds, and speed-ups from absolute times", head=head, rows=tuple(rows), align="<<>>")
    return [Prose(text=_DRIFT, tone="warn"), table] if comparison.against else [table]
