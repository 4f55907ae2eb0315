"""What the compiler knows, and variants of the step compiled, kept and let go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tuner.protocol.failure import Failure

__all__ = [
    "HANDLE",
    "CacheModule",
    "Compile",
    "CompileReply",
    "Compiled",
    "Lower",
    "Lowered",
    "OptionValue",
    "Probe",
    "ProbeReply",
    "Release",
    "Released",
    "Sketch",
    "Variant",
]

OptionValue = bool | int | float | str

HANDLE = {"json": "handle"}
"""In a request's JSON, "id" is the request's number: a handle that stands beside it is called "handle"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lower:
    """Trace and lower the step with no options; nothing compiles, nothing runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """`program`: as `Compiled.first_program` of the control would be."""

    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Ask the compiler about option names, and optionally about values; nothing ever compiles.

    `values` maps a name to the values to check for type errors.
    """

    names: tuple[str, ...]
    values: dict[str, tuple[OptionValue, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReply:
    """`types`: name → bool|int32|int64|float|enum|string|message, or None: no such option.

    `bad_values`: name → {value as text: first line of the compiler's complaint}.
    """

    types: dict[str, str | None]
    bad_values: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What to compile: the option-lane part of a config. `id` is the handle for every later call.

    `jax_config`: configuration values that hold while tracing and compiling (e.g. jax_default_matmul_precision).
    `profile`: base64 of an aggregated PGLE profile.
    """

    id: str
    compiler_options: dict[str, OptionValue] = field(default_factory=dict)
    jax_config: dict[str, OptionValue] = field(default_factory=dict)
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile:
    """Compile the variants, `threads` at once; each is then ready to be timed under its id. `function`, here and in
    other requests: one of `Loaded.others` in place of the step; each has handles of its own."""

    variants: tuple[Variant, ...]
    threads: int = 1
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """What a program is made of, as far as it tells which other programs are like it.

    `operations`: how often each StableHLO operation stands in its lowered text; of several steps, of all. A loop's body
    counts once. `collective_bytes`: what each kind of collective gives, in bytes of one device, by the optimised
    module; a loop's body once. `mesh`: axis → size, of the meshes on which its arguments are. `devices`: of the whole
    program. `input_bytes`: of its arguments.
    """

    operations: dict[str, int]
    collective_bytes: dict[str, int] = field(default_factory=dict)
    mesh: dict[str, int] = field(default_factory=dict)
    devices: int = 1
    input_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """`program`: hash of StableHLO + shapes + shardings + donation; `code`: hash of what the compiler made
    (canonical optimised HLO, and machine code where it can be read). `peak_bytes` is the compiler's own estimate, for
    one device. `schedule`: hash of the collectives in the order of the module, with channels and groups; "" without
    any. `ranks_differ`: ranks of a gang whose code is not that of rank 0, though all communicate alike (autotuning).

    `first_program`: the program of the very first call, where that is another one than all later calls run (the step's
    outputs are placed otherwise than its first arguments); else "". `sketch`: of the first program that a session
    compiles, the control; None for all later ones.

    `collective_bytes`: by kind, what its collectives in one computation (a loop's body, the entry) give on one device,
    together, in the computation where that is most: as much as can be combined into one.
    """

    id: str
    program: str
    code: str
    code_covers: Literal["hlo", "hlo+codegen"]
    lower_s: float
    compile_s: float
    peak_bytes: int | None
    collectives: dict[str, int] = field(default_factory=dict)
    cache_hit: bool | None = None
    schedule: str = ""
    ranks_differ: tuple[int, ...] = ()
    first_program: str = ""
    sketch: Sketch | None = None
    collective_bytes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheModule:
    """A module that was looked for in the persistent compilation cache under `key`. `fields`: 16 hex digits of each
    part of the key by the name that jax gives it ("XLA flags", "accelerator_config", …), empty where jax doesn't tell.
    `rank`: of a gang, who looked for it.
    """

    module: str
    key: str
    hit: bool
    fields: dict[str, str] = field(default_factory=dict)
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileReply:
    """One entry a variant, in the order asked. `cache_requests`/`cache_hits`: persistent-cache events during this call.

    `modules`: everything that this process has looked for in the persistent cache since the last such reply, what the
    workload compiled while it was built included.
    """

    results: tuple[Compiled | Failure, ...]
    cache_requests: int = 0
    cache_hits: int = 0
    modules: tuple[CacheModule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Free these handles and their executables. `live_executables` after it comes back."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    live_executables: int
