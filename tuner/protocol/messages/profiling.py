"""Traces, profiles for the compiler, and the device's ceilings."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.protocol.messages.compiling import HANDLE, Variant
from tuner.protocol.messages.session import Recompiled

__all__ = ["Ceilings", "CeilingsReply", "Pgle", "PgleReply", "Profile", "ProfileReply", "TraceLabel", "TraceLine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pgle:
    """Take a PGLE profile of `variant` (command buffers off), aggregated over `runs` at `percentile`."""

    variant: Variant
    runs: int = 3
    percentile: int = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class PgleReply:
    """`profile`: base64, empty if the trace held nothing to aggregate; `instructions`: entries in it. `traces`: what
    each run alone gave, base64, "" where it gave nothing. `hlo`: base64 of the profiled module's optimised text, packed
    by zlib: the instructions that the entries are of. `wrapped`: what the text doesn't show of it, the name of the
    instruction that an asynchronous start was made of, by the start's name: entries are under that one."""

    profile: str
    instructions: int
    traces: tuple[str, ...] = ()
    hlo: str = ""
    wrapped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Trace `steps` steps of `id`, each waited for, into `folder` (XProf/TensorBoard layout, a Perfetto file beside).
    `block`: before that, time blocks of so many consecutive steps without a trace, as a round does; 0: none. Each comes
    after `warm_up` steps in a row, as the traced ones do: the device is to be under load for as long in both.
    `python`: trace calls of Python functions too, which slows the host down. `nsight`: take no trace, but mark the
    steps for Nsight Systems, under which the worker runs."""

    id: str = field(metadata=HANDLE)
    steps: int
    folder: str
    block: int = 0
    warm_up: int = 1
    python: bool = False
    nsight: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLabel:
    """What events of one kind share. `op`, `module`, `scope`: as the trace has them. `details`: a kernel's launch or a
    copy's kind and size, as text. `graph`: it ran inside a CUDA graph. `device`: whose work a thread of the host did,
    where the host's own processor is the devices."""

    name: str
    op: str = ""
    module: str = ""
    scope: str = ""
    details: str = ""
    graph: bool = False
    device: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """Events of one stream of a device or one thread of the host, each a number of `ProfileReply.labels` with its start
    and duration in ns; starts count from the trace's earliest event. `launched`: each one's place in the order in which
    the device was given its work, over all its streams; empty where the trace doesn't tell."""

    plane: str
    name: str
    labels: tuple[int, ...]
    starts_ns: tuple[int, ...]
    durations_ns: tuple[int, ...]
    launched: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReply:
    """`xplane`: the trace file, "" if none was to be taken; `seconds`: wall time of the traced steps. `plain_s`: of one
    of consecutive steps without a trace, just before (the median of some blocks), of a workload of several one of each;
    `each_s`: how much of that each takes, by name, empty for one step; `under_s`: of such a block within
    the trace; `dispatch_s`: what the host takes to call one while the device has nothing to do; 0 where they weren't
    timed. `perfetto`, `memory`: the trace for Perfetto and the device memory profile (pprof), "" if there is none.
    `hlo`: the optimised HLO's files by module. `lines`: what of the trace says where time goes: operations, copies,
    step marks, compiles and calls of jitted functions, Python functions where asked. `recompiled`: what the step's own
    code compiled in the blocks without a trace. `ranks`: of a gang, where this is rank 0's, those of the others in
    order."""

    xplane: str
    seconds: float
    plain_s: float = 0.0
    under_s: float = 0.0
    dispatch_s: float = 0.0
    each_s: dict[str, float] = field(default_factory=dict)
    perfetto: str = ""
    memory: str = ""
    hlo: dict[str, str] = field(default_factory=dict)
    labels: tuple[TraceLabel, ...] = ()
    lines: tuple[TraceLine, ...] = ()
    recompiled: tuple[Recompiled, ...] = ()
    ranks: tuple[ProfileReply, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Measure what this device can do at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingsReply:
    """`flops_per_s`: of large matrix products by element type, one device; types that it can't multiply are left out;
    "vector": of arithmetic outside products, in float32. `bytes_per_s`: reads and writes of a large copy. `unsteady`:
    what repeats did not agree on, by the same names and "memory"."""

    flops_per_s: dict[str, float]
    bytes_per_s: float
    unsteady: tuple[str, ...] = ()
