"""A session's begin and end: who the worker is, what is loaded, how far a rank has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["PROTOCOL", "Close", "Closed", "Gang", "Hello", "Load", "Loaded", "Progress", "Recompiled"]

PROTOCOL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First line of a worker. Of one that belongs to a gang: `rank` of how many (`size`), the `host` that it is on, and
    an `address` there that a coordination service can listen on."""

    nonce: str
    pid: int
    python: str
    protocol: int = PROTOCOL
    rank: int = 0
    size: int = 1
    host: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A worker's place in a gang: one program over `size` processes, each with its share of the devices.

    `coordinator`: host:port of the coordination service, which rank 0 starts. `neighbours`: how many ranks are on this
    host, of which this one is number `seat`: the devices that a process here sees are divided among them. `divide_cpu`:
    so are the devices that XLA makes of a CPU. `heartbeat_s`: after so long without a sign of life a rank is dead.
    `fills_cache`: this rank writes what it compiles into the persistent cache, in a folder ``rank-N`` of its own there;
    otherwise jax lets rank 0 write alone.
    """

    rank: int
    size: int
    coordinator: str
    seat: int
    neighbours: int
    divide_cpu: bool = False
    heartbeat_s: int = 10
    fills_cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a rank is, told unasked while it answers a request: ``{"progress": {…}}``.

    `subject`: the handle under way. `steps`: steps begun since the start of the session. `waiting`: for what the other
    ranks have to say.
    """

    op: str
    subject: str = ""
    steps: int = 0
    waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Import jax and the workload, build the state once. `platform` None takes jax's default platform.

    `environ`: variables to set (None: remove) before jax is imported, for a rank whose launcher may not have handed
    them on; those in `pins` only where they are missing.
    """

    workload: str
    argv: tuple[str, ...] = ()
    platform: str | None = None
    knobs: dict[str, str | int | float | bool] = field(default_factory=dict)
    gang: Gang | None = None
    environ: dict[str, str | None] = field(default_factory=dict)
    pins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompiled:
    """A function that the workload compiled more than once. `where`: file and line of its call that was last compiled
    for. `seconds`: in the compiler.

    Of a function that a script jits, as far as it ran (0, "" elsewhere): `calls` in all; `late`: compiles in the later
    half of them; `inside`: compiles from the first call of the step on; `shapes`: different ones, static arguments
    among them, and `differs`, in what; `step`: it is what is tuned, in the shape `tuned`.
    """

    name: str
    where: str
    compiles: int
    seconds: float
    calls: int = 0
    late: int = 0
    inside: int = 0
    shapes: int = 0
    differs: str = ""
    step: bool = False
    tuned: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the session found.

    `versions`: python, jax, jaxlib, numpy, each installed PJRT plugin package, "zstandard" ("yes"/"no").
    `xla_flags`: text at device initialisation; `xla_flags_after`: text once the workload was imported and built.
    `carried`: for each input leaf that is threaded, "input path <- output path".
    `pgle_collectives` is left to the compile reply. `devices`: one string each, e.g. "NVIDIA H100 80GB HBM3".
    `others`: names of the program's other jitted functions that can be checked.
    `weights`: of a workload of several steps, how often a unit of work runs each; empty for one step.
    `recompiled`: what was compiled again and again until here.
    """

    source: Literal["build", "script"]
    step_name: str
    platform: str
    device_kind: str
    device_count: int
    process_count: int
    versions: dict[str, str]
    devices: tuple[str, ...]
    xla_flags: str
    xla_flags_after: str
    environ_changed: dict[str, str | None]
    knobs_declared: dict[str, tuple[str, ...]]
    carried: tuple[str, ...]
    inputs: tuple[str, ...]
    input_bytes: int
    device_memory_bytes: int | None
    has_check: bool
    work: float | None
    import_s: float
    init_s: float
    build_s: float
    notices: tuple[str, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    recompiled: tuple[Recompiled, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """End the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    pass
