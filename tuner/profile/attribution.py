"""Finds the operations of kernels inside CUDA graphs, which lose their names there, by the order of launches.

Another trace of the same program, without graphs, has the names, but its step is slower. A device is given the same
work in the same order in both, whatever of it runs side by side then. Where there is no such trace, the program's own
schedule has that order too, and less to tell kernels by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tuner.profile.categories import COPIES
from tuner.profile.hlo import Module
from tuner.profile.intervals import Interval
from tuner.profile.schedule import COPY, scheduled, stem
from tuner.profile.timeline import Event, Timeline

__all__ = ["attributed", "attributed_by_schedule", "coverage"]

_AHEAD = 200  # how far a difference may reach
_AGREE = 3  # names that agree end it

_Pairs = list[tuple[int, int]]


def attributed(as_run: Timeline, named: Timeline) -> Timeline:
    """`as_run` with the operations that `named` knows; times stay those of `as_run`. Kernels are matched by name within
    a step, in order; those without a partner stay as they are."""
    if not named.steps:
        return as_run
    devices = {
        device: _joined(as_run.steps, events, _in(named.steps[-1], named.devices.get(device, ())), kind=_kind)
        for device, events in as_run.devices.items()
    }
    return msgspec.structs.replace(as_run, devices=devices)


def attributed_by_schedule(as_run: Timeline, modules: Mapping[str, Module]) -> Timeline:
    """The same with operations out of the programs' schedules, for kernels in graphs that have none yet."""
    graphs = any(event.graph and not event.op for of in as_run.devices.values() for event in of)
    pattern = scheduled(modules) if graphs else ()
    devices = {
        device: _joined(as_run.steps, events, pattern, kind=_stem) if pattern else events
        for device, events in as_run.devices.items()
    }
    return msgspec.structs.replace(as_run, devices=devices)


def coverage(line: Timeline) -> float:
    """Share of device time, loops and unnamed copies left out, whose operation is known; 1.0 if nothing ran."""
    events = [e for of in line.devices.values() for e in of if not e.control and (e.op or e.category not in COPIES)]
    whole = sum(e.end - e.start for e in events)
    return sum(e.end - e.start for e in events if e.op) / whole if whole else 1.0


def _joined(
    steps: Sequence[Interval], events: Sequence[Event], pattern: Sequence[Event], *, kind: Callable[[Event], str]
) -> tuple[Event, ...]:
    joined = list(events)
    theirs = _as_launched(pattern)
    names = tuple(kind(pattern[i]) for i in theirs)
    known: dict[tuple[str, ...], _Pairs] = {}  # most steps run the same
    for step in steps:
        inside = [i for i, e in enumerate(events) if step[0] <= e.start < step[1]]
        ours = [inside[i] for i in _as_launched([events[i] for i in inside])]
        run = tuple(kind(events[i]) for i in ours)
        if run not in known:
            known[run] = _matched(run, names)
        for own, other in known[run]:
            event, by = events[ours[own]], pattern[theirs[other]]
            if by.op and not event.op:
                joined[ours[own]] = _named(event, by)
    return tuple(joined)


def _as_launched(events: Sequence[Event]) -> list[int]:
    """Their positions in the order in which the device was given them, as far as that is known."""
    return sorted(range(len(events)), key=lambda i: (events[i].launched, events[i].start))


def _kind(event: Event) -> str:
    """What it is called in either trace: a copy inside a graph is a kernel of the driver's."""
    if event.category != "copy on device":
        return event.name
    return "memset" if event.name.lower().startswith("memset") else COPY


def _stem(event: Event) -> str:
    return stem(event.name) if event.category != "copy on device" else _kind(event)


def _matched(ours: Sequence[str], theirs: Sequence[str]) -> _Pairs:
    """Equal names in order, and as many others between two of them as stand there in both: where an operation got
    another kernel, its place tells. After a difference both go on at the nearest place where some names agree: a step
    repeats itself, so that the longest stretch that agrees may well be another layer's."""
    pairs: _Pairs = []
    i = j = 0
    while i < len(ours) and j < len(theirs):
        if ours[i] == theirs[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
            continue
        here, there = ours[i : i + _AHEAD], theirs[j : j + _AHEAD]
        over = _passed_over(here, there)
        more, other = over or (len(here), len(there))
        at_the_end = i + more == len(ours) and j + other == len(theirs)
        if more == other and (over or at_the_end):
            pairs += [(i + k, j + k) for k in range(more)]
        i, j = i + more, j + other
    return pairs


def _passed_over(ours: Sequence[str], theirs: Sequence[str]) -> tuple[int, int] | None:
    """How many names to pass over so that the next ones agree: as few as can be, and as equally many of both."""
    for both in range(1, len(ours) + len(theirs) - 1):
        few, most = max(0, both - len(theirs)), min(both, len(ours))
        for more in sorted(range(few, most + 1), key=lambda k: abs(2 * k - both)):
            here, there = ours[more : more + _AGREE], theirs[both - more : both - more + _AGREE]
            if here and here == there:
                return more, both - more
    return None


def _named(event: Event, by: Event) -> Event:
    return msgspec.structs.replace(
        event,
        op=by.op,
        module=by.module,
        category=event.category if event.category in COPIES else by.category,
        scope=by.scope,
        source=by.source,
        control=by.control,
    )


def _in(step: Interval, events: Sequence[Event]) -> list[Event]:
    return [event for event in events if step[0] <= event.start < step[1]]
