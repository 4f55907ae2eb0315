"""Finds the operations of kernels inside CUDA graphs, which lose their names there, by the order of launches.

Another trace of the same program, without graphs, has the names, but its step is slower. A device is given the same
work in the same order in both, whatever of it runs side by side then. Where there is no such trace, the program's own
schedule has that order too, and less to tell kernels by. What would have an operation begin before what it reads is
not believed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from tuner.profile.categories import COPIES, family, kernel_category
from tuner.profile.dependencies import Producers, doubtful, producers
from tuner.profile.hlo import Module
from tuner.profile.intervals import Interval
from tuner.profile.matching import Pairs, matched
from tuner.profile.schedule import COPY, scheduled, stem
from tuner.profile.timeline import Event, Timeline

__all__ = ["attributed", "attributed_by_schedule", "coverage"]

_MEMSET = "memset"
_BEFORE = re.compile(r"Memset|.*compute_dot_do_o")  # beside a library's own kernel
_AFTER = re.compile(r".*splitKreduce|.*convert_dq_to")
_LIBRARY = ("matrix multiply", "convolution", "Fourier transform", "library")


def attributed(as_run: Timeline, named: Timeline, modules: Mapping[str, Module]) -> Timeline:
    """`as_run` with the operations that `named` knows; times stay those of `as_run`. Kernels are matched by name within
    a step, in order; those without a partner stay as they are."""
    if not named.steps:
        return as_run
    reads = producers(modules)
    devices = {
        device: _joined(as_run.steps, events, _in(named.steps[-1], named.devices.get(device, ())), reads, kind=_kind)
        for device, events in as_run.devices.items()
    }
    return msgspec.structs.replace(as_run, devices=devices)


def attributed_by_schedule(as_run: Timeline, modules: Mapping[str, Module]) -> Timeline:
    """The same with operations out of the programs' schedules, for kernels that have none yet, or one that the program
    calls otherwise: of a fusion that runs beside others a trace has the name that it had before."""

    def lacks(event: Event) -> bool:
        module = modules.get(event.module)
        return not event.op if module is None else module.instruction(event.op) is None

    every = [event for of in as_run.devices.values() for event in of]
    wanted = as_run.platform == "gpu" and any((event.graph or event.op) and lacks(event) for event in every)
    pattern = scheduled(modules, kernels=frozenset(stem(event.name) for event in every)) if wanted else ()
    if not pattern:
        return as_run
    reads = producers(modules)
    names = frozenset(event.name for event in pattern)

    def kind(event: Event) -> str:
        known = stem(event.name)
        return known if known in names else _kind(event) if event.category in COPIES else family(event.category)

    devices = {}
    for device, events in as_run.devices.items():
        calls = [i for i, event in enumerate(events) if not _BEFORE.match(event.name) and not _AFTER.match(event.name)]
        told = _joined(as_run.steps, [events[i] for i in calls], pattern, reads, kind=kind, lacks=lacks)
        found = dict(zip(calls, told, strict=True))
        devices[device] = _with_aids([found.get(i, event) for i, event in enumerate(events)])
    return msgspec.structs.replace(as_run, devices=devices)


def _with_aids(events: Sequence[Event]) -> tuple[Event, ...]:
    """What a library runs before and after a call's own kernel, with the operation of that."""
    told = list(events)
    order = _as_launched(events)
    for pattern, places in ((_BEFORE, order[::-1]), (_AFTER, order)):
        for beside, i in itertools.pairwise(places):
            event, by = told[i], told[beside]
            if pattern.match(event.name) and not event.op and by.op and family(by.category) in _LIBRARY:
                told[i] = _named(event, by)
    return tuple(told)


def coverage(line: Timeline) -> float:
    """Share of device time, loops and unnamed copies left out, whose operation is known; 1.0 if nothing ran."""
    events = [e for of in line.devices.values() for e in of if not e.control and (e.op or e.category not in COPIES)]
    whole = sum(e.end - e.start for e in events)
    return sum(e.end - e.start for e in events if e.op) / whole if whole else 1.0


def _joined(
    steps: Sequence[Interval],
    events: Sequence[Event],
    pattern: Sequence[Event],
    reads: Producers,
    *,
    kind: Callable[[Event], str],
    lacks: Callable[[Event], bool] = lambda event: not event.op,
) -> tuple[Event, ...]:
    joined = list(events)
    theirs = [pattern[i] for i in _as_launched(pattern)]
    names = tuple(kind(event) for event in theirs)
    known: dict[tuple[str, ...], list[Pairs]] = {}  # most steps run the same
    for step in steps:
        inside = [i for i, e in enumerate(events) if step[0] <= e.start < step[1]]
        places = [inside[i] for i in _as_launched([events[i] for i in inside])]
        ours = [events[i] for i in places]
        run = tuple(kind(event) for event in ours)
        if run not in known:
            known[run] = matched(run, names, between=partial(_between, ours, theirs))
        for own, other in _believed(ours, theirs, known[run], reads):
            event, by = ours[own], theirs[other]
            if by.op and lacks(event):
                joined[places[own]] = _named(event, by)
    return tuple(joined)


def _believed(ours: Sequence[Event], theirs: Sequence[Event], found: Sequence[Pairs], reads: Producers) -> Pairs:
    """The pairs of all stretches that agree with what operations read."""
    given = sorted((other, own, number) for number, pairs in enumerate(found) for own, other in pairs)
    named = [(number, ours[own], theirs[other]) for other, own, number in given if theirs[other].op]
    out = doubtful(named, reads)
    return [
        (own, other) for other, own, number in given if (number, (theirs[other].module, theirs[other].op)) not in out
    ]


def _between(ours: Sequence[Event], theirs: Sequence[Event], here: Sequence[int], there: Sequence[int]) -> Pairs:
    """Which of `here` and `there`, between two that agree, belong together: where an operation got other kernels, their
    place tells, if as many of the same kind of work stand in both, or all that stands there is one call of a library,
    which may run several."""
    here = [i for i in here if not _copies(ours[i])]
    there = [j for j in there if not _copies(theirs[j])]
    if len({(theirs[j].module, theirs[j].op) for j in there}) == 1 and family(theirs[there[0]].category) in _LIBRARY:
        return [(i, there[0]) for i in here if _alike(ours[i], theirs[there[0]])]
    if len(here) == len(there) and all(_alike(ours[i], theirs[j]) for i, j in zip(here, there, strict=True)):
        return list(zip(here, there, strict=True))
    return []


def _copies(event: Event) -> bool:
    return event.category == "copy on device" or event.name == COPY


def _alike(event: Event, by: Event) -> bool:
    """Whether the kernel does what the operation of `by` does, as far as their names tell."""
    ours = family(event.category)
    return ours in (family(by.category), family(kernel_category(by.name))) or by.category == "library"


def _as_launched(events: Sequence[Event]) -> list[int]:
    """Their positions in the order in which the device was given them, as far as that is known."""
    return sorted(range(len(events)), key=lambda i: (events[i].launched, events[i].start))


def _kind(event: Event) -> str:
    """What it is called in either trace: a copy inside a graph is a kernel of the driver's."""
    if event.category != "copy on device":
        return event.name
    return _MEMSET if event.name.lower().startswith(_MEMSET) else COPY


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
