"""Where a step's time went, under the default and under the winner: the report's section, and a few lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.knobs.config import DEFAULT
from tuner.profile.types import Breakdown, Finding, KernelRow, OpRow, PartRow, RankRow, Roofline, StepProfile
from tuner.report.blocks import Block, Cell, Code, Commands, Fold, Prose, Section, Table
from tuner.report.commands import profile_command
from tuner.report.layout import Page
from tuner.report.roofs import roofs
from tuner.report.stacked import stacked
from tuner.report.view import RunView
from tuner.report.wording import si_text
from tuner.store.events import Profiled

__all__ = [
    "RANK_HEAD",
    "alike_text",
    "beyond_settings",
    "launch_text",
    "parts_text",
    "profile_blocks",
    "profile_lines",
    "rank_cells",
    "roof_text",
    "traced_text",
    "where_lines",
    "where_section",
]

_OPS, _FEW_OPS = 25, 8
_KERNELS = 12
_FEW_RANKS, _MOST_RANKS = 3, 16
_SCOPES = 25
_SCALED = 0.0005
_AS_FAST = 1.01
_NAME = 40
_SETTINGS = "knobs"


def where_section(view: RunView) -> Section:
    """Of a run with a verdict that profiled nothing, how that is done; empty before there is one."""
    sides = [(_side(p), p.profile) for p in _in_order(view.profiles) if p.profile is not None]
    blocks: list[Block] = []
    if sides:
        blocks = profile_blocks(sides)
        blocks.insert(0, Prose(text="Each in a process of its own, in which nothing was timed any more."))
    elif view.confirm is not None:
        found = view.run if view.confirm.chosen != DEFAULT else ""
        command = profile_command(view.workload, run=found, command=view.command)
        blocks = [Prose(text="This run took no profile. By itself:"), Commands(lines=(command,))]
    return Section(name="where", title="Where the time went", blocks=tuple(blocks))


def profile_blocks(sides: Sequence[tuple[str, StepProfile]]) -> list[Block]:
    """One profile, or several side by side, each with the name of its side."""
    blocks: list[Block] = []
    for name, profile in sides:
        blocks.append(Prose(text=f"{name}: {_verdict(profile)}. A step takes {traced_text(profile.breakdown)}."))
        if profile.parts:
            blocks.append(Prose(text=f"{parts_text(profile.parts)}."))
    caption = "Means over the traced steps and devices. Every moment of a step is in exactly one part."
    notes = dict.fromkeys(p.breakdown.note for _, p in sides if p.breakdown.note)
    blocks.append(
        stacked(
            [(name, profile.breakdown.parts) for name, profile in sides],
            title="What a step is made of, in ms" + (", before and after" if len(sides) > 1 else ""),
            caption=" ".join([caption, *(f"{note[:1].upper()}{note[1:]}." for note in notes)]),
        )
    )
    names = list(dict.fromkeys(part for _, p in sides for part in p.breakdown.parts))
    rows = tuple((part, *(_cell(p.breakdown.parts.get(part)) for _, p in sides)) for part in names)
    sums = ("a step", *(_cell(p.breakdown.step_ms) for _, p in sides))
    traced = ("a step in the trace", *(_cell(p.breakdown.traced_ms or None) for _, p in sides))
    hidden = ("collectives hidden behind work", *(_cell(p.breakdown.hidden_ms) for _, p in sides))
    more = [sums, traced] if any(p.breakdown.traced_ms for _, p in sides) else [sums]
    more += [hidden] if any(p.breakdown.hidden_ms for _, p in sides) else []
    called = ("calling a step, on the host", *(_cell(p.breakdown.dispatch_ms or None) for _, p in sides))
    more += [called] if any(p.breakdown.dispatch_ms for _, p in sides) else []
    head = ("part", *(f"{name}, ms" for name, _ in sides))
    table = Table(caption="Parts of a step", head=head, rows=(*rows, *more), align="<" + ">" * len(sides))
    blocks.append(Fold(summary="The parts as numbers", blocks=(table,)))
    blocks += roofs(sides)
    blocks += [_ranks(name if len(sides) > 1 else "", profile.ranks) for name, profile in sides if profile.ranks]
    for name, profile in sides:
        blocks += _details(name, profile)
    if found := _of_program([profile for _, profile in sides]):
        rows_of = tuple((f.kind, f.text, Code(f.where) if f.where else "") for f in found)
        caption = "What a change of the program could mend"
        blocks.append(Table(caption=caption, head=("kind", "found", "where"), rows=rows_of))
    return blocks


def beyond_settings(view: RunView) -> list[str]:
    """What no setting mends, a phrase each with file and line; [] if nothing was profiled."""
    return [found.told for found in _of_program([p.profile for p in _in_order(view.profiles) if p.profile is not None])]


def _of_program(profiles: Sequence[StepProfile]) -> list[Finding]:
    """Each once, though both sides have it: as the first one tells it."""
    found = {(f.kind, f.where): f for profile in reversed(profiles) for f in profile.findings if f.kind != _SETTINGS}
    return list(found.values())


def _in_order(profiles: Sequence[Profiled]) -> list[Profiled]:
    """The default first."""
    return sorted(profiles, key=lambda p: p.config != DEFAULT)


def _side(profiled: Profiled) -> str:
    return "default" if profiled.config == DEFAULT else "winner"


def parts_text(rows: Sequence[PartRow]) -> str:
    """Of a workload of several steps what the profile is of, and which of them matter."""
    told = ", ".join(f"{row.name} {100 * row.share:.0f} % ({row.weight:g} of {row.ms:.3g} ms)" for row in rows)
    return f"One run of each step is shown, whatever their weights; of the workload's time {told}"


def _verdict(profile: StepProfile) -> str:
    bound = "it isn't clear what bounds it" if profile.bound == "unknown" else f"{profile.bound}-bound"
    return f"{bound} ({profile.evidence}); {roof_text(profile.roofline)}"


def roof_text(roofline: Roofline) -> str:
    """FLOPs and bytes of a step, and how near that is to what the device can do."""
    counted = f"{si_text(roofline.flops)}FLOP and {si_text(roofline.bytes)}B a step"
    if roofline.share is None:
        return counted
    return f"{counted}, {100 * roofline.share:.0f} % of the roof while at work"


def traced_text(breakdown: Breakdown) -> str:
    """How long a step is, and what of the breakdown comes of that rather than of the trace."""
    if not breakdown.traced_ms or breakdown.traced_ms == breakdown.step_ms:
        return f"{breakdown.step_ms:.4g} ms"
    told = f"{breakdown.step_ms:.4g} ms, in the trace {breakdown.traced_ms:.4g} ms"
    if breakdown.tracer_ms:
        told += f", where the tracer made work itself {breakdown.tracer_ms:.2g} ms longer (taken out by thread blocks)"
    if abs(breakdown.scale - 1) > _SCALED:
        slower = breakdown.platform == "gpu" and breakdown.scale < 1
        lower = slower and 0 < breakdown.under_ms <= _AS_FAST * breakdown.step_ms  # the tracer slows no steps in a row
        why = ", since clocks were lower where it was traced" if lower else ""
        return f"{told}: work is scaled by {breakdown.scale:.3f} to fit{why}"
    return f"{told}: what the tracer adds is left out of the gaps" if breakdown.traced_ms > breakdown.step_ms else told


def launch_text(row: OpRow | KernelRow) -> str:
    """Registers and occupancy, where they are known."""
    told = [f"{row.registers} registers"] if row.registers is not None else []
    told += [f"occupancy {100 * row.occupancy:.0f} %"] if row.occupancy is not None else []
    return ", ".join(told)


RANK_HEAD = ("step", "work", "exposed collectives", "paused", "waits for")


def rank_cells(row: RankRow) -> tuple[str, ...]:
    """What `RANK_HEAD` names, ms."""
    waits = [f"rank {rank}: {ms:.3g}" for rank, ms in sorted(row.waits_ms.items(), key=lambda item: -item[1])]
    shown = [*waits[:_FEW_RANKS], *(["…"] if len(waits) > _FEW_RANKS else [])]
    times = (row.step_ms, row.work_ms, row.exposed_ms, row.gaps_ms)
    return *(f"{ms:.4g}" for ms in times), ", ".join(shown)


def alike_text(row: KernelRow) -> str:
    """How many operations a kernel runs for."""
    return f"{row.ops} operations" if row.ops > 1 else ""


def _lasts(*ms: float) -> str:
    """Times in the unit that suits the longest."""
    factor, unit = (1.0, "ms") if max(ms) >= 0.1 else (1e3, "us")
    return f"{' / '.join(f'{factor * one:.3g}' for one in ms)} {unit}"


def _cell(ms: float | None) -> str:
    return "" if ms is None else f"{ms:.4g}"


def _ranks(name: str, rows: Sequence[RankRow]) -> Block:
    """A table, folded where it is long."""
    caption = f"Ranks{f', {name}' if name else ''}: ms of a step"
    cells = tuple((str(row.rank), *rank_cells(row)) for row in rows)
    table = Table(caption=caption, head=("rank", *RANK_HEAD), rows=cells, align=">>>>><")
    return (
        table
        if len(rows) <= _MOST_RANKS
        else Fold(summary=f"{len(rows)} ranks{f', {name}' if name else ''}", blocks=(table,))
    )


def _details(name: str, profile: StepProfile) -> list[Block]:
    breakdown = profile.breakdown
    blocks: list[Block] = []
    if breakdown.by_kernel:
        kernels = tuple(_kernel(row) for row in breakdown.by_kernel[:_KERNELS])
        head = ("kernel", "share", "time", "what it is")
        table = Table(caption=f"Kernels of a step, {name}", head=head, rows=kernels, align="<>><")
        blocks.append(Fold(summary=f"Kernels, {name}", blocks=(table,)))
    if breakdown.ops:
        most = _FEW_OPS if breakdown.by_kernel else _OPS  # of many that are alike a few tell enough
        rows = tuple(_row(row) for row in breakdown.ops[:most])
        head = ("operation", "share", "self / total", "what it is")
        table = Table(caption=f"Operations of a step, {name}", head=head, rows=rows, align="<>><")
        blocks.append(Fold(summary=f"Operations, {name}", blocks=(table,)))
    if breakdown.scopes:
        scopes = tuple(
            (Code(row.name), f"{row.self_ms:.4g}", f"{row.total_ms:.4g}", f"{100 * row.share:.1f} %")
            for row in breakdown.scopes[:_SCOPES]
        )
        table = Table(
            caption=f"Named scopes of a step, {name}",
            head=("scope", "self, ms", "total, ms", "share"),
            rows=scopes,
            align="<>>>",
        )
        blocks.append(Fold(summary=f"Named scopes, {name}", blocks=(table,)))
    return blocks


def _row(row: OpRow) -> tuple[Cell, ...]:
    name = Code(row.name if len(row.name) <= _NAME else f"{row.name[: _NAME - 1]}…")
    return name, f"{100 * row.share:.1f} %", _lasts(row.self_ms, row.total_ms), _about(row)


def _kernel(row: KernelRow) -> tuple[Cell, ...]:
    name = Code(row.name if len(row.name) <= _NAME else f"{row.name[: _NAME - 1]}…")
    calls = f"{row.calls:.3g} {'call' if row.calls == 1 else 'calls'}"
    about = ", ".join(filter(None, (row.category, calls, alike_text(row), launch_text(row))))
    return name, f"{100 * row.share:.1f} %", _lasts(row.self_ms), about


def _about(row: OpRow) -> str:
    """Everything else that is known of an operation."""
    told = [row.category, f"{row.calls:.3g} {'call' if row.calls == 1 else 'calls'}"]
    told += [f"{si_text(row.flops)}FLOP"] if row.flops else []
    told += [f"{si_text(row.bytes)}B"] if row.bytes else []
    told += [f"{100 * row.roof:.0f} % of the roof ({row.bound})"] if row.roof is not None else []
    return ", ".join([*told, *filter(None, (launch_text(row), row.scope, Path(row.source).name if row.source else ""))])


def where_lines(page: Page, view: RunView) -> None:
    """A few lines on each side; nothing if nothing was profiled."""
    sides = [(_side(p), p.profile) for p in _in_order(view.profiles) if p.profile is not None]
    if not sides:
        return
    page.heading("where the time went", "each in a process of its own, in which nothing was timed any more")
    for name, profile in sides:
        page.line(name, indent=2)
        profile_lines(page, profile, indent=6)


def profile_lines(page: Page, profile: StepProfile, *, indent: int = 0) -> None:
    """The verdict, the largest parts, and what was found."""
    page.prose(_verdict(profile), indent=indent)
    if profile.parts:
        page.prose(parts_text(profile.parts), indent=indent)
    page.prose(_parts(profile.breakdown), indent=indent)
    for finding in profile.findings:
        page.prose(finding.told, indent=indent)


def _parts(breakdown: Breakdown) -> str:
    ranked = sorted(breakdown.parts.items(), key=lambda item: -item[1])
    told = [f"{name} {100 * ms / breakdown.step_ms:.0f} %" for name, ms in ranked if ms >= 0.01 * breakdown.step_ms]
    hidden = f"; collectives hidden behind work {breakdown.hidden_ms:.3g} ms" if breakdown.hidden_ms else ""
    return f"{breakdown.step_ms:.4g} ms: {', '.join(told)}{hidden}"
