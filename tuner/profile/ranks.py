"""The ranks of a gang side by side: how long each is at work, and which waits for which in their collectives.

A collective ends on all its ranks at once, or nearly so, and begins on each when that rank comes to it. So of one
collective in one step the rank that is in it the shortest came last, and what the others take longer is their waiting
for it: no common clock is needed. Permutations, in which each waits for its neighbour, are left out. What counts is the
median over the traced steps: a rank that is late in one step of several was disturbed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from tuner.profile.breakdown import HOST_GAPS, LAUNCH_GAPS, break_down
from tuner.profile.groups import rank_groups
from tuner.profile.hlo import Module
from tuner.profile.intervals import Interval, clipped, intersection, length
from tuner.profile.timeline import Event, Timeline, timeline
from tuner.profile.types import Finding, RankRow
from tuner.profile.untraced import untraced
from tuner.protocol.messages import ProfileReply

__all__ = ["compare_ranks", "late_ranks"]

_MATTERS = 0.05  # of a step
_ITS_DOING = 0.6  # of all waiting, from which on one rank is to blame
_NS = 1e6  # in a millisecond
_Visit = tuple[str, str, int]  # module, operation or kernel, and the how many-eth time in its step


def compare_ranks(replies: Sequence[ProfileReply], modules: Mapping[str, Module]) -> tuple[RankRow, ...]:
    """A row a rank, in order; () for a single one. `modules`: rank 0's, by name: the ranks run one program."""
    if len(replies) < 2:
        return ()
    lines = [timeline(reply.labels, reply.lines, modules) for reply in replies]
    steps = min(len(line.steps) for line in lines)
    visits = [[_visits(line, step) for step in line.steps[:steps]] for line in lines]
    waits = [_waits([of[number] for of in visits], modules) for number in range(steps)]
    ranks = range(len(replies))
    rows = []
    for rank, (line, reply) in enumerate(zip(lines, replies, strict=True)):
        found = untraced(break_down(line, modules), reply.plain_s, dispatch_s=reply.dispatch_s)
        usual = {other: median([step.get((rank, other), 0.0) for step in waits] or [0.0]) for other in ranks}
        gaps = sum(found.parts.get(name, 0.0) for name in (HOST_GAPS, LAUNCH_GAPS))
        rows.append(
            RankRow(
                rank=rank,
                step_ms=found.step_ms,
                traced_ms=found.traced_ms,
                busy_ms=found.busy_ms,
                work_ms=found.busy_ms - found.exposed_ms,
                gaps_ms=gaps,
                exposed_ms=found.exposed_ms,
                hidden_ms=found.hidden_ms,
                waits_ms={other: ns / _NS for other, ns in usual.items() if ns > 0},
                collective=_longest(visits[rank]),
            )
        )
    return tuple(rows)


class _Stay:
    """One rank in one collective, over its devices, ns: how long it was in it, and how much of that nothing hid."""

    def __init__(self) -> None:
        self.lasts: list[float] = []
        self.bare: list[float] = []


def _visits(line: Timeline, step: Interval) -> dict[_Visit, _Stay]:
    """A rank's collectives of one step, in the order of each device."""
    found: dict[_Visit, _Stay] = {}
    for events in line.devices.values():
        inside = [e for e in events if step[0] <= (e.start + e.end) / 2 < step[1]]
        work = [e.interval for e in inside if e.category != "collective" and not e.control]
        times: Counter[tuple[str, str]] = Counter()
        for event in inside:
            if event.category != "collective":
                continue
            name = _name(event)
            stay = found.setdefault((*name, times[name]), _Stay())
            times[name] += 1
            own = clipped([event.interval], step)
            stay.lasts.append(length(own))
            stay.bare.append(length(own) - length(intersection(own, work)))
    return found


def _name(event: Event) -> tuple[str, str]:
    return (event.module, event.op) if event.op else ("", event.name)


def _waits(by_rank: Sequence[Mapping[_Visit, _Stay]], modules: Mapping[str, Module]) -> dict[tuple[int, int], float]:
    """In one step: (who waits, for whom) → ns that nothing hid."""
    found: dict[tuple[int, int], float] = {}
    for visit in by_rank[0]:
        module = modules.get(visit[0])
        for group in rank_groups(module.instruction(visit[1]) if module else None, len(by_rank)):
            stays = {rank: stay for rank in group if (stay := by_rank[rank].get(visit)) is not None}
            lasts = {rank: fmean(stay.lasts) for rank, stay in stays.items()}
            if len(stays) < len(group):
                continue
            last = min(group, key=lasts.__getitem__)
            for rank, stay in stays.items():
                if (more := min(lasts[rank] - lasts[last], fmean(stay.bare))) > 0:
                    found[rank, last] = found.get((rank, last), 0.0) + more
    return found


def _longest(steps: Sequence[Mapping[_Visit, _Stay]]) -> str:
    """The collective that this rank is in the longest."""
    whole: Counter[str] = Counter()
    for step in steps:
        for (_, name, _), stay in step.items():
            whole[name] += round(fmean(stay.lasts))
    return whole.most_common(1)[0][0] if whole else ""


def late_ranks(rows: Sequence[RankRow]) -> list[Finding]:
    """Ranks that keep the others waiting, the worst first; else, where ranks wait in turns for each other, that."""
    if len(rows) < 2:
        return []
    step_ms = max(row.step_ms for row in rows)
    late = {row.rank: _others_wait(rows, row.rank) for row in rows}
    whole = sum(late.values())
    found = []
    for rank, ms in sorted(late.items(), key=lambda item: -item[1]):
        if step_ms > 0 and ms >= _MATTERS * step_ms and ms >= _ITS_DOING * whole:
            found.append(Finding(kind="straggler", text=_straggler(rows, rank, step_ms)))
    if not found and step_ms > 0 and whole >= 2 * _MATTERS * step_ms:
        text = (
            f"the ranks wait for each other, {_percent(whole / step_ms)} of a step, and none of them is always the "
            "last: their work is unevenly divided, or something else runs on their hosts"
        )
        found.append(Finding(kind="uneven", text=text))
    return found


def _straggler(rows: Sequence[RankRow], rank: int, step_ms: float) -> str:
    waiting = [row for row in rows if row.waits_ms.get(rank, 0.0) >= _MATTERS * step_ms]
    most = max(waiting or rows, key=lambda row: row.waits_ms.get(rank, 0.0))
    who = f"{'rank' if len(waiting) == 1 else 'ranks'} {', '.join(str(row.rank) for row in waiting)}"
    verb = "waits" if len(waiting) == 1 else "wait"
    ms = most.waits_ms.get(rank, 0.0)
    own = rows[rank]
    return (
        f"{who} {verb} for rank {rank}, up to {ms:.3g} ms of each step ({_percent(ms / step_ms)})"
        f"{f' in {most.collective}' if most.collective else ''}: rank {rank} is at work for {own.work_ms:.3g} ms and "
        f"paused for {own.gaps_ms:.3g} ms, rank {most.rank} {most.work_ms:.3g} and {most.gaps_ms:.3g}. No setting of "
        "collectives makes up for that"
    )


def _others_wait(rows: Sequence[RankRow], rank: int) -> float:
    """How long another rank waits for this one, on average."""
    return fmean(row.waits_ms.get(rank, 0.0) for row in rows if row.rank != rank)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
