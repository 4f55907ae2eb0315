"""The messages between parent and worker: one JSON object a line.

Request ``{"id": 7, "op": "round", …fields}``; reply ``{"id": 7, "ok": {…fields}}`` or ``{"id": 7, "failure": {…}}``.
The worker opens with a `Hello` that carries the parent's nonce; whatever stands on the pipe before it is skipped.
Times are seconds, sizes bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tuner.protocol.failure import Failure

__all__ = [
    "PROTOCOL",
    "Arm",
    "Block",
    "CacheModule",
    "Ceilings",
    "CeilingsReply",
    "Close",
    "Closed",
    "Compile",
    "CompileReply",
    "Compiled",
    "Gang",
    "Hello",
    "LeafStats",
    "Load",
    "Loaded",
    "Lower",
    "Lowered",
    "Numerics",
    "NumericsReply",
    "OptionValue",
    "Pgle",
    "PgleReply",
    "Probe",
    "ProbeReply",
    "Profile",
    "ProfileReply",
    "Progress",
    "Recompiled",
    "Release",
    "Released",
    "Round",
    "RoundReply",
    "Sketch",
    "TraceLabel",
    "TraceLine",
    "Variant",
]

PROTOCOL = 1

OptionValue = bool | int | float | str

# In a request's JSON, "id" is the request's number: a handle that stands beside it is called "handle".
_HANDLE = {"json": "handle"}


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
class Arm:
    """A candidate to be timed for `steps` consecutive steps, after `warm_up` discarded ones.

    `quantile`: time each step by itself, to its last output, and tell this quantile of the times (0.99). Of several
    steps each runs `steps` times then; otherwise the one with the largest weight does, the others in proportion.
    """

    id: str
    steps: int
    warm_up: int = 1
    quantile: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Time the arms in the given order. `reset`: restore the state from its host copy first."""

    arms: tuple[Arm, ...]
    reset: bool = True
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`steps` steps took `seconds`, until every output leaf was ready; `first_s`: the discarded ones before them.

    `value_s`: what was asked for where that isn't seconds / steps: the quantile of the steps' times, or, over several
    steps, the sum of their times by weight. `parts`: each step's own time (or quantile) where there are several.
    `ranks_s`: of a gang, what each rank says of a step; the rest of the block is the slowest rank's.
    """

    id: str
    steps: int
    seconds: float
    first_s: float
    value_s: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    ranks_s: tuple[float, ...] = ()

    @property
    def step_s(self) -> float:
        """What the block says of a step: its mean time, the quantile, or the weighted sum."""
        return self.seconds / self.steps if self.value_s is None else self.value_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReply:
    """One entry an arm, in the order timed."""

    blocks: tuple[Block | Failure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """Run `id` from the initial state for 1 and for `steps` steps and compare with (or become) the reference.

    `reference`: file of the reference outputs. `save`: write them instead of comparing.
    `nudge`: 0, or which random draw moves every floating input leaf by a rounding error first (null set), by
    `nudge_size` times as much. `precise`: the reference is (to be) computed in a wider floating dtype: `save` then runs
    the step's own trace in float64, or in float32 with the highest matmul precision, whatever was compiled as `id`.
    """

    id: str = field(metadata=_HANDLE)
    steps: int
    reference: str
    save: bool = False
    nudge: int = 0
    nudge_size: float = 1.0
    precise: bool = False
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafStats:
    """Candidate against reference for one output leaf after `steps` steps.

    `l2`: ‖c − r‖ / ‖r‖ over finite entries. `slope`: largest |⟨c − r, r⟩| / ‖r‖² over all slices along all axes,
    slices with norm below the leaf's RMS slice norm measured against that. `masks_equal`: NaN, +inf and -inf sit at
    the same places. Both numbers are 0.0 for equal integer leaves; for unequal ones `l2` is the share that differs.
    `shape`: the leaf's, () for a scalar and where it wasn't told.

    Of a leaf that takes an input's place, after the last step (else None, False): `travel`: how far the reference moved
    from where it began, ‖r − s‖ / ‖r‖. `moved_l2`, `moved_slope`: as `l2` and `slope`, with r − s in place of r.
    `still`: the candidate is its input bit for bit, while the reference is not. Where a nudge displaced an input, its
    displacement is taken off the output before anything is compared.
    """

    path: str
    dtype: str
    size: int
    steps: int
    l2: float
    slope: float
    masks_equal: bool
    shape: tuple[int, ...] = ()
    travel: float | None = None
    moved_l2: float | None = None
    moved_slope: float | None = None
    still: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericsReply:
    """`check`: what the workload's own ``check(reference, candidate)`` said, None without one and for a precise
    reference, of which `precision` names the dtype that it was computed in ("" for the control's own outputs)."""

    leaves: tuple[LeafStats, ...]
    check: bool | None = None
    check_message: str = ""
    precision: str = ""


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

    id: str = field(metadata=_HANDLE)
    steps: int
    folder: str
    block: int = 0
    warm_up: int = 1
    python: bool = False
    nsight: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLabel:
    """What events of one kind share. `op`, `module`, `scope`: as the trace has them. `details`: a kernel's launch or a
    copy's kind and size, as text. `graph`: it ran inside a CUDA graph."""

    name: str
    op: str = ""
    module: str = ""
    scope: str = ""
    details: str = ""
    graph: bool = False


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
    of consecutive steps without a trace, just before (the median of some blocks); `under_s`: of such a block within
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Free these handles and their executables. `live_executables` after it comes back."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    live_executables: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """End the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    pass
