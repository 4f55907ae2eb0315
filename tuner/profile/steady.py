"""Whether a trace and the clock can be of one step: on a machine that does other things too, they disagree.

A tracer makes the host slower and work seldom (on cards, work in a trace is at most a twelfth longer than the whole
step without one, and a traced step never shorter than an untraced one). What goes beyond that is no property of
the program: a moment in which something else ran was counted as work, or lies in the time of the untraced steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from tuner.profile.intervals import Interval, clipped, length
from tuner.profile.timeline import Timeline, timeline
from tuner.protocol.messages import ProfileReply

__all__ = ["doubt", "doubt_of", "steadied"]

_LONGER = 1.2  # work in the trace, over the step without it
_SHORTER = 0.85  # a step in the trace, over the same without it
_ALIKE = 1.25  # steps whose work is so near the least are steps that nothing came in between


def steadied(line: Timeline, step_s: float) -> Timeline:
    """The timeline with those of its steps alone that nothing else came in between, where the work of all can't be that
    of a step that takes `step_s` without a trace; else `line` itself. Where `step_s` is 0 it isn't known."""
    work = _work(line)
    if not line.devices or not work or not _too_long(work, step_s):
        return line
    kept = tuple(step for step, ns in zip(line.steps, work, strict=True) if ns <= _ALIKE * min(work))
    return msgspec.structs.replace(line, steps=kept)


def doubt(line: Timeline, step_s: float) -> str:
    """Why the steps in `line` can't be those that take `step_s` without a trace; "" if they can."""
    work = _work(line)
    if not line.devices or not work or step_s <= 0:
        return ""
    ms, whole_s = 1e-6 * fmean(work), 1e-9 * fmean(end - start for start, end in line.steps)
    if _too_long(work, step_s):
        said = f"the work of a step takes {ms:.3g} ms in the trace, and the whole step {1e3 * step_s:.3g} ms without"
    elif whole_s < _SHORTER * step_s:
        said = f"a step takes {1e3 * step_s:.3g} ms without the tracer, and only {1e3 * whole_s:.3g} ms with it"
    else:
        return ""
    return f"{said}: something else ran on this machine meanwhile"


def doubt_of(reply: ProfileReply) -> str:
    """As `doubt`, of a trace as the worker gave it."""
    line = timeline(reply.labels, reply.lines, {})
    return doubt(steadied(line, reply.plain_s), reply.plain_s)


def _too_long(work: Sequence[float], step_s: float) -> bool:
    return step_s > 0 and fmean(work) > _LONGER * 1e9 * step_s


def _work(line: Timeline) -> list[float]:
    """Of each step how long a device was at work, ns."""
    return [fmean(_at_work(line, step)) for step in line.steps] if line.devices else []


def _at_work(line: Timeline, step: Interval) -> list[float]:
    return [length(clipped((e.interval for e in events), step)) for events in line.devices.values()]
