"""From a profile to what can be done: which knob groups act on the bottleneck, and what no setting can mend."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from tuner.profile.breakdown import HOST_GAPS
from tuner.profile.costs import ModuleCosts
from tuner.profile.hlo import Computation, Instruction, Module
from tuner.profile.roofline import bound_shares, cost_of
from tuner.profile.timeline import Event, Timeline
from tuner.profile.types import Bound, Breakdown, Finding, Roofline
from tuner.protocol.messages import Recompiled

__all__ = ["diagnose", "groups_for"]

_MATTERS = 0.02  # of the step
_COPY_SHARE = 0.01
_F32_SHARE = 0.2
_GAIN = 1.5  # how much faster products must be in the narrower type
_LARGE_CONSTANT = 1 << 20
_TINY_KERNEL_US = 15.0
_SHORT_US = 5.0  # a CPU's operation this short leaves its threads nothing to share
_MOSTLY_SHORT = 0.5  # of the step
_IDLE = 0.4
_BESIDE = 0.25  # of the step, from which on what isn't the first bound is worth trying for, and naming

_BY_BOUND: Mapping[Bound, tuple[str, ...]] = {
    "launch": ("launch", "fusion", "loops"),
    "communication": ("schedule", "collectives", "pgle", "nccl"),
    "memory": ("fusion", "memory", "schedule", "precision"),
    "host": ("launch", "threads"),
}
_BY_CATEGORY: Mapping[str, tuple[str, ...]] = {
    "matrix multiply": ("gemm", "library", "autotune", "precision"),
    "attention": ("gemm", "cudnn", "library", "autotune"),
    "convolution": ("cudnn", "library", "autotune"),
    "elementwise": ("fusion", "codegen", "hlo"),
    "Fourier transform": ("library",),
    "reduction": ("fusion", "library", "codegen"),
    "data movement": ("fusion", "hlo", "codegen"),
    "loop control": ("loops", "launch", "threads"),
    "copy on device": ("fusion", "memory"),
    "collective": ("schedule", "collectives", "pgle", "nccl"),
}


def groups_for(breakdown: Breakdown, bound: Bound) -> tuple[str, ...]:
    """Knob groups in the order in which they are worth trying: those that act on what holds the step back (where that
    is work itself, on the kind that takes longest), on what else holds back a good part of it, and on the other kinds
    of work, the longest first."""
    long = [name for name, ms in breakdown.parts.items() if ms >= _MATTERS * breakdown.step_ms > 0]
    kinds = [_BY_CATEGORY.get(name, ()) for name in sorted(long, key=lambda name: -breakdown.parts[name])]
    shares = sorted(bound_shares(breakdown).items(), key=lambda item: -item[1])
    beside = [_BY_BOUND.get(other, ()) for other, share in shares if share >= _BESIDE]
    first = _BY_BOUND.get(bound) or next(filter(None, kinds), ())
    return tuple(dict.fromkeys(itertools.chain(first, *beside, *kinds)))


def diagnose(
    breakdown: Breakdown,
    roofline: Roofline,
    *,
    bound: Bound,
    modules: Mapping[str, Module],
    costs: Mapping[str, ModuleCosts],
    trace: Timeline,
    recompiled: Sequence[Recompiled] = (),
) -> tuple[Finding, ...]:
    """What was found, what no setting can mend first. `trace`: one with Python functions, where there is one.
    `recompiled`: what the step's own code compiled in blocks of steps without a trace."""
    found = [
        *_callbacks(breakdown),
        *_transfers(breakdown, trace),
        *(_recompiles(breakdown, trace) or _now_and_then(recompiled)),
        *_constants(modules),
        *_wide_products(breakdown, roofline, costs),
        *_tiny(breakdown),
    ]
    if groups := groups_for(breakdown, bound):
        found.append(Finding(kind="knobs", text=f"what acts on this: {', '.join(groups)}", groups=groups))
    return tuple(found)


def _callbacks(breakdown: Breakdown) -> list[Finding]:
    rows = [row for row in breakdown.ops if row.category == "host callback"]
    if not rows:
        return []
    text = f"the step calls back into Python: {_percent(sum(r.share for r in rows))} of it"
    return [Finding(kind="callback", text=text, where=rows[0].source)]


def _transfers(breakdown: Breakdown, trace: Timeline) -> list[Finding]:
    found = []
    for category in ("copy host to device", "copy device to host"):
        rows = [row for row in breakdown.ops if row.category == category]
        share = sum(row.share for row in rows)
        if share < _COPY_SHARE:
            continue
        calls = sum(row.calls for row in rows)
        text = f"{calls:.3g} {category.replace('copy', 'copies')} inside the step: {_percent(share)} of it"
        first = next((e for of in trace.devices.values() for e in of if e.category == category), None)
        found.append(Finding(kind="transfer", text=text, where=rows[0].source or _frame(trace, first)))
    return found


def _recompiles(breakdown: Breakdown, trace: Timeline) -> list[Finding]:
    if not breakdown.compiles:
        return []
    inside = [e for e in trace.host if any(start <= e.start < end for start, end in trace.steps)]
    compiles = [e for e in inside if e.name.startswith("backend_compile")]
    names = dict.fromkeys(name for compile_ in compiles if (name := _caller(inside, compile_)))
    what = f" ({', '.join(names)})" if names else ""
    text = (
        f"{breakdown.compiles} compiles in {breakdown.steps} steady steps{what}, {breakdown.compile_ms:.3g} ms: "
        "shapes, static arguments or the jitted function itself are new each time"
    )
    return [Finding(kind="recompiles", text=text, where=_frame(trace, compiles[0] if compiles else None))]


def _now_and_then(recompiled: Sequence[Recompiled]) -> list[Finding]:
    """Compiles that come too seldom for a trace of a few steps."""
    if not recompiled:
        return []
    names = ", ".join(dict.fromkeys(one.name for one in recompiled))
    text = (
        f"{sum(one.compiles for one in recompiled)} compiles in steady steps ({names}), none of them in those that "
        "were traced: shapes, static arguments or the jitted function itself are new now and then"
    )
    return [Finding(kind="recompiles", text=text, where=recompiled[0].where)]


def _caller(host: Sequence[Event], compile_: Event) -> str:
    """The jitted function whose call compiles: the innermost around it."""
    around = [
        e for e in host if e.start <= compile_.start and compile_.end <= e.end and e.name.startswith("PjitFunction")
    ]
    return max(around, key=lambda e: e.start).name[len("PjitFunction(") : -1] if around else ""


def _frame(trace: Timeline, event: Event | None) -> str:
    """The innermost Python function of the user's around an event, as the trace names it: file and line."""
    if event is None:
        return ""
    around = [f for f in trace.functions if f.start <= event.start < f.end and not _ours(f.name)]
    return max(around, key=lambda f: f.start).name[1:] if around else ""


def _ours(name: str) -> bool:
    """Functions of jax, of its libraries and of the tracing itself. A trace has files without folders."""
    file = name[1:].split(":")[0]
    return not file.endswith(".py") or file in _LIBRARY_FILES


_LIBRARY_FILES = frozenset(
    f"{name}.py"
    for name in [
        *("api", "api_util", "array", "callback", "compiler", "compilation_cache", "contextlib", "core", "dispatch"),
        *("ffi", "functools", "linear_util", "mlir", "partial_eval", "pjit", "profile", "profiler", "pxla", "stages"),
        *("sharding_impls", "source_info_util", "state", "states", "traceback_util", "tree_util", "util", "wait"),
        *("cache_key", "config", "monitoring", "threading", "loop", "pipe", "main", "xla_bridge", "indexing", "lax"),
        *(
            "lax_numpy",
            "ufuncs",
            "array_methods",
            "array_constructors",
            "numpy_like",
            "basearray",
            "wrapper",
            "session",
        ),
    ]
)


def _constants(modules: Mapping[str, Module]) -> list[Finding]:
    large = [
        (instruction.bytes, instruction.source or _used(computation, instruction))
        for module in modules.values()
        for computation in module.computations.values()
        for instruction in computation.instructions.values()
        if instruction.opcode == "constant" and instruction.bytes >= _LARGE_CONSTANT
    ]
    if not large:
        return []
    _, where = max(large)
    many = f"{len(large)} large constant{'' if len(large) == 1 else 's'}"
    text = (
        f"{many} in the program, {sum(s for s, _ in large) / 2**20:.3g} MiB: arrays that the step closes over or that "
        "the compiler folds; they cost compile time and memory. Pass them as arguments"
    )
    return [Finding(kind="constants", text=text, where=where or next((w for _, w in large if w), ""))]


def _used(computation: Computation, constant: Instruction) -> str:
    """The line that a constant is first used by: it has none of its own."""
    reached = {constant.name}
    for instruction in computation.instructions.values():  # in an order in which they can run
        if reached.isdisjoint(instruction.operands):
            continue
        if instruction.source:
            return instruction.source
        reached.add(instruction.name)
    return ""


def _wide_products(breakdown: Breakdown, roofline: Roofline, costs: Mapping[str, ModuleCosts]) -> list[Finding]:
    """Products in float32 where the device is much faster in bfloat16, and arithmetic is what they wait for."""
    peaks = roofline.ceiling.flops_per_s if roofline.ceiling else {}
    wide, narrow = peaks.get("f32"), peaks.get("bf16")
    if not wide or not narrow or narrow < _GAIN * wide:
        return []
    if roofline.ceiling and {"f32", "bf16"} & {*roofline.ceiling.unsteady}:
        return []
    near = [row for row in breakdown.ops if row.bound == "compute"]
    rows = [row for row in near if (cost := cost_of(row, costs)) is not None and cost.dtype == "f32"]
    share = sum(row.share for row in rows)
    if share < _F32_SHARE:
        return []
    text = (
        f"{_percent(share)} of the step are products in float32 near the roof of arithmetic; this device multiplies "
        f"bfloat16 {narrow / wide:.1f} times as fast, if the results allow it"
    )
    return [Finding(kind="float32", text=text, where=rows[0].source, groups=("precision",))]


def _tiny(breakdown: Breakdown) -> list[Finding]:
    """Too little work to keep the device busy, or at each operation to be worth its launch."""
    step = breakdown.step_ms
    if not step or breakdown.doubt or breakdown.compiles:
        return []
    if not breakdown.kernels or breakdown.kernel_us >= _TINY_KERNEL_US:
        return []
    idle = 1.0 - breakdown.busy_ms / step
    half = f"half of its {breakdown.kernels:.0f} operations take less than {breakdown.kernel_us:.3g} us"
    if idle >= _IDLE:
        waits = breakdown.parts.get(HOST_GAPS, 0.0) / step
        why = f"the device is idle for {_percent(idle)} of a step ({_percent(waits)} waiting for the host), and {half}"
        cure = "A larger batch, or several steps in one jitted call, would pay more than any setting"
    elif (launch := bound_shares(breakdown).get("launch", 0.0)) >= _BESIDE:
        half = f"{_percent(launch)} of the step are launches and kernels no longer than one; {half}"
        why, cure = half, "A larger batch, or fewer and larger operations, would pay more than any setting"
    elif breakdown.platform == "cpu" and (short := _short(breakdown)) >= _MOSTLY_SHORT:
        why = f"{_percent(short)} of the step are operations of less than {_SHORT_US:g} us each; {half}"
        cure = "A larger batch, or fewer and larger operations, would pay more than any setting"
    else:
        return []
    return [Finding(kind="tiny", text=f"too little work: {why}. {cure}")]


def _short(breakdown: Breakdown) -> float:
    """The share of the step that operations take which are over before threads could share them."""
    return sum(row.share for row in breakdown.ops if row.calls and 1e3 * row.self_ms / row.calls < _SHORT_US)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
