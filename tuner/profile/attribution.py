"""Joins two traces of one program by the order of their kernels: as it runs, and with every kernel attributed.

Inside a CUDA graph kernels lose the names of their operations; without graphs they keep them, but the step is slower.
The same kernels run in the same order in both, device by device.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import msgspec

from tuner.profile.intervals import Interval
from tuner.profile.timeline import Event, Timeline

__all__ = ["attributed", "coverage"]


def attributed(as_run: Timeline, named: Timeline) -> Timeline:
    """`as_run` with the operations that `named` knows; times stay those of `as_run`. Kernels are matched by name within
    a step, in order; those without a partner stay as they are."""
    if not named.steps:
        return as_run
    devices = {
        device: _joined(as_run.steps, events, _in(named.steps[-1], named.devices.get(device, ())))
        for device, events in as_run.devices.items()
    }
    return msgspec.structs.replace(as_run, devices=devices)


def coverage(line: Timeline) -> float:
    """Share of device time, loops left out, whose operation is known; 1.0 if nothing ran."""
    events = [e for of in line.devices.values() for e in of if not e.control and not e.name.startswith("Mem")]
    whole = sum(e.end - e.start for e in events)
    return sum(e.end - e.start for e in events if e.op) / whole if whole else 1.0


def _joined(steps: Sequence[Interval], events: Sequence[Event], pattern: Sequence[Event]) -> tuple[Event, ...]:
    joined: list[Event] = []
    seen: set[int] = set()
    for step in steps:
        inside = [(i, e) for i, e in enumerate(events) if step[0] <= e.start < step[1]]
        seen |= {i for i, _ in inside}
        joined += _matched([e for _, e in inside], pattern)
    joined += [e for i, e in enumerate(events) if i not in seen]
    return tuple(sorted(joined, key=lambda e: e.start))


def _matched(events: Sequence[Event], pattern: Sequence[Event]) -> list[Event]:
    """What both begin with and end with is matched first: searching the rest is slow, and it is mostly empty."""
    ours, theirs = [e.name for e in events], [e.name for e in pattern]
    both = min(len(ours), len(theirs))
    head = next((k for k in range(both) if ours[k] != theirs[k]), both)
    tail = next((k for k in range(both - head) if ours[-1 - k] != theirs[-1 - k]), both - head)
    pairs = [(k, k) for k in range(head)]
    middle = SequenceMatcher(None, ours[head : len(ours) - tail], theirs[head : len(theirs) - tail], autojunk=False)
    pairs += [(head + m.a + k, head + m.b + k) for m in middle.get_matching_blocks() for k in range(m.size)]
    pairs += [(len(ours) - k, len(theirs) - k) for k in range(tail, 0, -1)]
    result = list(events)
    for own, other in pairs:
        if not events[own].op and pattern[other].op:
            result[own] = _named(events[own], pattern[other])
    return result


def _named(event: Event, by: Event) -> Event:
    return msgspec.structs.replace(
        event,
        op=by.op,
        module=by.module,
        category=by.category,
        scope=by.scope,
        source=by.source,
        control=by.control,
    )


def _in(step: Interval, events: Sequence[Event]) -> list[Event]:
    return [event for event in events if step[0] <= event.start < step[1]]
