"""What a tracer adds to kernels themselves, taken out again.

NVIDIA's tracing library times a kernel by code that it puts into it (so NVIDIA says), which costs a little in each
thread block. It shows where there are millions of short ones: on an H200 steps of which one kernel of 8.4 million
blocks takes most followed each other every 7.30 ms under the tracer and every 6.81 ms without, 0.06 ns a block; the
step's other kernels were as fast as memory lets them be. Clocks that are lower in the trace make kernels longer too,
whatever their blocks are. What tells one from the other is a block of steps in a row under the tracer: it takes longer
than the same without only if the tracer is the cause, since the device was under load for as long before either.
"""

from __future__ import annotations

import math
import re

import msgspec

from tuner.profile.timeline import Event, Timeline

__all__ = ["lightened", "thread_blocks"]

_GRID = re.compile(r"\bgrid:(\d+),(\d+),(\d+)")
_MOST_NS = 0.1  # that a block can cost
_EXPLAINS = 0.5  # of what is too much, by the clock
_MOST_SHARE = 0.5  # of a kernel


def thread_blocks(event: Event) -> int:
    """How many a kernel has, 0 where the trace doesn't say."""
    found = _GRID.search(event.details)
    return math.prod(int(n) for n in found.groups()) if found else 0


def lightened(line: Timeline, excess_ms: float, *, step_s: float, under_s: float) -> Timeline:
    """The timeline without what the tracer added to each kernel by its thread blocks, if that is why a step's work is
    `excess_ms` longer in it than the whole step without: if steps in a row take as much longer under the tracer
    (`under_s`) than without (`step_s`), and the step has blocks enough. Else `line` itself."""
    if line.platform != "gpu" or not line.steps or excess_ms <= 0 or step_s <= 0:
        return line
    if 1e3 * (under_s - step_s) < _EXPLAINS * excess_ms:
        return line
    inside = [e for of in line.devices.values() for e in of if any(s <= e.start < t for s, t in line.steps)]
    whole = sum(map(thread_blocks, inside)) / (len(line.steps) * max(1, len(line.devices)))
    if 1e6 * excess_ms > _MOST_NS * whole:
        return line
    each_ns = 1e6 * excess_ms / whole
    devices = {name: tuple(_shorter(event, each_ns) for event in of) for name, of in line.devices.items()}
    return msgspec.structs.replace(line, devices=devices)


def _shorter(event: Event, each_ns: float) -> Event:
    lasts = event.end - event.start
    less = min(each_ns * thread_blocks(event), _MOST_SHARE * lasts)
    return msgspec.structs.replace(event, end=event.end - less) if less > 0 else event
