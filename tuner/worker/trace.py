"""Reads a profiler's trace, and keeps of it what says where time goes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jax

from tuner.protocol.messages import TraceLabel, TraceLine

__all__ = ["STEP", "read_trace"]

STEP = "tune_step"
"""Marks each step in a trace."""

_DEVICE = "/device:"
# A device's plane has other lines too: sums of what its streams hold, counters, the profiler's own cost.
_STREAM = "Stream #"
# What a stream has beside work: the allocator's doings.
_NO_WORK = ("memalloc_details", "MemFree_details", "MemoryResidency_details")
_DETAILS = ("kernel_details", "memcpy_details", "Memset_details", "memset_details")
_GRAPHS = ("cuda_graph_id", "cuda_graph_exec_id")
# Of the host: calls of jitted functions, compiles, launches of graphs, copies between host and device.
_HOST = ("PjitFunction", "backend_compile", "cuGraphLaunch", "pure_callback", "BufferFromHost", "ToLiteral")
_PYTHON = "$"  # how the names of traced Python functions begin


def read_trace(path: Path, *, python: bool) -> tuple[tuple[TraceLabel, ...], tuple[TraceLine, ...]]:
    """Labels and lines of the trace in `path`. Without `python` calls of Python functions are left out."""
    labels: dict[TraceLabel, int] = {}
    raw: list[tuple[str, str, list[int], list[float], list[float]]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the binding's own types
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            device = plane.name.startswith(_DEVICE)
            for line in plane.lines:
                if device and not line.name.startswith(_STREAM):
                    continue
                numbers: list[int] = []
                starts: list[float] = []
                durations: list[float] = []
                for event in line.events:
                    label = _label(event, device=device, python=python)
                    if label is not None:
                        numbers.append(labels.setdefault(label, len(labels)))
                        starts.append(event.start_ns)
                        durations.append(event.duration_ns)
                if numbers:
                    raw.append((plane.name, line.name, numbers, starts, durations))
    zero = min((min(starts) for _, _, _, starts, _ in raw), default=0.0)
    lines = tuple(
        TraceLine(
            plane=plane,
            name=name,
            labels=tuple(numbers),
            starts_ns=tuple(round(start - zero) for start in starts),
            durations_ns=tuple(round(duration) for duration in durations),
        )
        for plane, name, numbers, starts, durations in raw
    )
    return tuple(labels), lines


def _label(event: Any, *, device: bool, python: bool) -> TraceLabel | None:
    """What the event is, None if it is of no use."""
    name: str = event.name
    if name.startswith("end: ") or (name.startswith(_PYTHON) and not python):
        return None
    if name == STEP or name.startswith(_PYTHON):
        return TraceLabel(name=name)
    stats = {key: value for key, value in event.stats if key is not None}
    if device and any(key in stats for key in _NO_WORK):
        return None
    if not device and "hlo_op" not in stats:
        return TraceLabel(name=name) if name.startswith(_HOST) else None
    return TraceLabel(
        name=name,
        op=str(stats.get("hlo_op", "")),
        module=str(stats.get("hlo_module", "")),
        scope=str(stats.get("tf_op", "")),
        details=next((str(stats[key]) for key in _DETAILS if key in stats), ""),
        graph=any(key in stats for key in _GRAPHS),
    )
