"""What stands at the head of an emitted file: what it holds, where that was measured, the gain, how to load it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tuner.handoff.contents import Best, Manifest
from tuner.knobs import LAYOUT, PER_DEVICE, PROFILE_FLAG
from tuner.measure.types import Estimate, Verdict
from tuner.protocol.messages import OptionValue
from tuner.protocol.xla_flags import Flag, file_of, parse

__all__ = ["header"]

_WHY_DEFAULT = {
    Verdict.SAME: "the best setting that was found is no faster than the default by the margin that was asked for",
    Verdict.UNSTABLE: "the machine was too unstable for a verdict",
    Verdict.UNCLEAR: "the measurements could not tell the best setting that was found from the default",
}

_IN_CACHE = (
    "PGLE: what was compiled with the profile is in the sealed cache, which JAX_COMPILATION_CACHE_DIR must name. A "
    "step that isn't found there runs without profile and command buffers, slower than by default. Other functions, "
    "called once, may warn that no PGLE version of them is cached: harmless"
)
_BY_ITSELF = (
    "PGLE: jax traces the first calls of each jitted function and recompiles it then. No other profiler may run "
    "meanwhile, and what is compiled ahead of time (lower().compile()) is not recompiled"
)


def header(manifest: Manifest, best: Best) -> tuple[str, ...]:
    """Comment lines, without comment signs, that are the same in every dialect."""
    environment = manifest.environment
    return (
        f"Settings for {manifest.workload}, from tune {manifest.tuner}, run {manifest.run}",
        "Measured on " + ", ".join(f"{name} {value}" for name, value in sorted(environment.identity.items())),
        *_finding(manifest),
        *_named("Held for the whole run: ", manifest.held),
        *_inherited(manifest),
        *_layout(manifest),
        *_pgle(manifest),
        *_named("Arguments for the workload's build(), which no variable carries: ", best.workload_knobs),
        *(f"Note: {notice}" for notice in manifest.notices),
    )


def _finding(manifest: Manifest) -> tuple[str, ...]:
    if manifest.verdict is not Verdict.FASTER:
        reason = _WHY_DEFAULT[manifest.verdict]
        return (f"Verdict {manifest.verdict.value}: {reason}. This holds the default.",)
    times = [f"{ms:.4g} ms" for ms in (manifest.best_ms, manifest.control_ms) if ms is not None]
    step = f"{times[0]} {manifest.objective.per}, the default {times[1]}" if len(times) == 2 else "step times unknown"
    gain = f"Verdict faster: {_interval(manifest.estimate)}; {step}" if manifest.estimate else f"Verdict faster; {step}"
    return (gain, *_sealed(manifest), *_named("Settings: ", manifest.settings))


def _sealed(manifest: Manifest) -> tuple[str, ...]:
    """The other claim: that was the settings in a fresh compile, this is the executable that lies in the cache."""
    if not manifest.cache:
        return ()
    if manifest.sealed is not None:
        return (f"The sealed executable by itself: {_interval(manifest.sealed)}",)
    if manifest.sealed_note:
        return (f"The sealed executable was not measured by itself: {manifest.sealed_note}",)
    return ()


def _interval(estimate: Estimate) -> str:
    low, high = math.exp(estimate.low), math.exp(estimate.high)
    return (
        f"{estimate.speedup:.3f}x the default's speed, {estimate.level:.0%} interval {low:.3f}x to {high:.3f}x, "
        f"from {estimate.n} pairs of fresh processes"
    )


def _inherited(manifest: Manifest) -> tuple[str, ...]:
    """Flags in XLA_FLAGS that nobody tuned: they were set where it was measured, and are part of the sealed text."""
    tuned = {*manifest.settings, *manifest.held, *((PROFILE_FLAG,) if manifest.pgle == "file" else ())}
    flags = [flag.raw for flag in _flags(manifest.env.get("XLA_FLAGS", "")) if flag.name not in tuned]
    return (f"Inherited where it was measured, and part of XLA_FLAGS: {' '.join(flags)}",) if flags else ()


def _layout(manifest: Manifest) -> tuple[str, ...]:
    if PER_DEVICE not in (manifest.settings.get(LAYOUT), manifest.held.get(LAYOUT)):
        return ()
    return ("Start one process per device, with jax.distributed: no variable carries the layout",)


def _pgle(manifest: Manifest) -> tuple[str, ...]:
    """What a program has to see to, so that the profile acts on it."""
    match manifest.pgle:
        case "cache":
            return (_IN_CACHE,)
        case "file":
            flags = {flag.name: flag.value for flag in _flags(manifest.env.get("XLA_FLAGS", ""))}
            return (
                f"PGLE: the profile must lie at {flags.get(PROFILE_FLAG)}; profile.pb in the bundle is a copy of it",
            )
        case "auto":
            return (_BY_ITSELF,)
    return ()


def _flags(text: str) -> tuple[Flag, ...]:
    """The flags of a sealed text; one that names a file holds none by itself."""
    return () if file_of(text) is not None else parse(text)


def _named(lead: str, settings: Mapping[str, OptionValue]) -> tuple[str, ...]:
    if not settings:
        return ()
    return (lead + ", ".join(f"{n}={'<empty>' if v == '' else v}" for n, v in settings.items()),)
