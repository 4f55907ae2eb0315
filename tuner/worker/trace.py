"""Reads a profiler's trace, and keeps of it what says where time goes."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

from tuner.protocol.messages import TraceLabel, TraceLine

__all__ = ["STEP", "launch_order", "read_trace"]

STEP = "tune_step"
"""Marks each step in a trace."""

_DEVICE = "/device:"
# A device's plane has other lines too: sums of what its streams hold, counters, the profiler's own cost.
_STREAM = "Stream #"
# What a stream has beside work: the allocator's doings.
_NO_WORK = ("memalloc_details", "MemFree_details", "MemoryResidency_details")
_DETAILS = ("kernel_details", "memcpy_details", "Memset_details", "memset_details")
_GRAPHS = ("cuda_graph_id", "cuda_graph_exec_id")
_LAUNCH, _NODE = "correlation_id", "cuda_graph_node_id"
_ORDINAL = "device_ordinal"
_NODES = 1 << 32  # of a node's number this much counts within its graph
# The names that were traced, as jax joins them: one of the two, by version.
_SCOPES = ("name", "tf_op")
# Of the host: calls of jitted functions, compiles, launches of graphs, copies between host and device.
_HOST = ("PjitFunction", "backend_compile", "cuGraphLaunch", "pure_callback", "BufferFromHost", "ToLiteral")
_PYTHON = "$"  # how the names of traced Python functions begin


@dataclass
class _Line:
    """`launches`: of each event the number of its launch, and of its node where it was launched with a graph."""

    plane: str
    name: str
    labels: list[int] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    launches: list[tuple[int, int]] = field(default_factory=list)
    launched: tuple[int, ...] = ()

    def drop_before(self, begin: float) -> None:
        """Leave out what had ended by then."""
        kept = [i for i, start in enumerate(self.starts) if start + self.durations[i] > begin]
        self.labels = [self.labels[i] for i in kept]
        self.starts = [self.starts[i] for i in kept]
        self.durations = [self.durations[i] for i in kept]
        self.launches = [self.launches[i] for i in kept]


def read_trace(path: Path, *, python: bool) -> tuple[tuple[TraceLabel, ...], tuple[TraceLine, ...]]:
    """Labels and lines of the trace in `path`, from the first marked step on. Without `python` calls of Python
    functions are left out."""
    labels: dict[TraceLabel, int] = {}
    found: list[_Line] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the binding's own types
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            device = plane.name.startswith(_DEVICE)
            lines = [line for line in plane.lines if not device or line.name.startswith(_STREAM)]
            found += [_line(plane.name, line, labels, device=device, python=python) for line in lines]
    mark = labels.get(TraceLabel(name=STEP), -1)
    begin = min(
        (start for line in found for i, start in zip(line.labels, line.starts, strict=True) if i == mark), default=0
    )
    for line in found:
        line.drop_before(begin)
    found = [line for line in found if line.labels]
    for plane in {line.plane for line in found if line.plane.startswith(_DEVICE)}:
        _number([line for line in found if line.plane == plane])
    zero = min((min(line.starts) for line in found), default=0.0)
    return tuple(labels), tuple(
        TraceLine(
            plane=line.plane,
            name=line.name,
            labels=tuple(line.labels),
            starts_ns=tuple(round(start - zero) for start in line.starts),
            durations_ns=tuple(round(duration) for duration in line.durations),
            launched=line.launched,
        )
        for line in found
    )


def _line(plane: str, line: Any, labels: dict[TraceLabel, int], *, device: bool, python: bool) -> _Line:
    kept = _Line(plane, line.name)
    for event in line.events:
        name: str = event.name
        if name.startswith("end: ") or (name.startswith(_PYTHON) and not python):
            continue
        stats = {key: value for key, value in event.stats if key is not None}
        label = _label(name, stats, device=device)
        if label is not None:
            kept.labels.append(labels.setdefault(label, len(labels)))
            kept.starts.append(event.start_ns)
            kept.durations.append(event.duration_ns)
            kept.launches.append((int(stats.get(_LAUNCH, 0)), int(stats.get(_NODE, 0))))
    return kept


def _label(name: str, stats: Mapping[str, Any], *, device: bool) -> TraceLabel | None:
    """What the event is, None if it is of no use."""
    if name == STEP or name.startswith(_PYTHON):
        return TraceLabel(name=name)
    if device and any(key in stats for key in _NO_WORK):
        return None
    if not device and "hlo_op" not in stats:
        return TraceLabel(name=name) if name.startswith(_HOST) else None
    return TraceLabel(
        name=name,
        op=str(stats.get("hlo_op", "")),
        module=str(stats.get("hlo_module", "")),
        scope=next((str(stats[key]) for key in _SCOPES if key in stats), ""),
        details=next((str(stats[key]) for key in _DETAILS if key in stats), ""),
        graph=any(key in stats for key in _GRAPHS),
        device=0 if device else int(stats.get(_ORDINAL, 0)),
    )


def _number(lines: Sequence[_Line]) -> None:
    """Number the events of a device's streams in the order of their launches, if the trace tells it of all."""
    places = [(start, launch) for line in lines for start, launch in zip(line.starts, line.launches, strict=True)]
    if not all(number for _, (number, _) in places):
        return
    order = iter(launch_order(places))
    for line in lines:
        line.launched = tuple(next(order) for _ in line.labels)


def launch_order(events: Sequence[tuple[float, tuple[int, int]]]) -> list[int]:
    """Each event's place in the order of launches, from its start and its (launch, node).

    Launches are numbered one after another, and so are the nodes of a graph as it is built, whatever runs side by side
    later. A graph with a loop in it runs a node several times: its events keep the order in which they ran.
    """
    launches: dict[int, list[int]] = {}
    for i, (_, (number, _)) in enumerate(events):
        launches.setdefault(number, []).append(i)
    order = [0] * len(events)
    place = 0
    for _, inside in sorted(launches.items()):
        inside.sort(key=lambda i: events[i][0])
        nodes = [events[i][1][1] for i in inside]
        if len(set(nodes)) == len(nodes):
            inside = _as_built([(events[i][1][1], events[i][0], i) for i in inside])
        for i in inside:
            order[i] = place
            place += 1
    return order


def _as_built(nodes: Iterable[tuple[int, float, int]]) -> list[int]:
    """The third of each (number, start, …) of one launch of a graph, in the order in which the graph's work was given.

    What a library does is a graph inside the graph. It has a number there that no event shows, and its own nodes are
    numbered after all those around it: where numbers are missing and time steps back, there they begin. They go among
    the others by their starts.
    """
    rest = sorted(nodes)
    merged: list[tuple[float, int]] = []
    while rest:
        steps = [rest[k - 1][1] - rest[k][1] for k in range(1, len(rest))]
        back = max(steps, default=0.0)
        cut = steps.index(back) + 1 if back > 0 else len(rest)
        first = 0 if rest[0][0] >= _NODES and not merged else rest[0][0]
        if (rest[cut - 1][0] - first) % _NODES < cut:
            cut = len(rest)  # no number is missing before it
        merged = _merged(merged, [(start, i) for _, start, i in rest[:cut]])
        rest = rest[cut:]
    return [i for _, i in merged]


def _merged(one: Sequence[tuple[float, int]], other: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Both, each in its own order, by what comes first of what is left of each."""
    left, right = deque(one), deque(other)
    merged = []
    while left and right:
        merged.append((left if left[0][0] <= right[0][0] else right).popleft())
    return [*merged, *left, *right]
