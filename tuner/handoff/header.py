"""What stands at the head of an emitted file: what it holds, where that was measured, the gain, how to load it."""

from __future__ import annotations

import math

from tuner.handoff.contents import Manifest
from tuner.measure.types import Estimate, Verdict

__all__ = ["header"]

_WHY_DEFAULT = {
    Verdict.SAME: "the best setting that was found is no faster than the default by the margin that was asked for",
    Verdict.UNCLEAR: "the measurements could not tell the best setting that was found from the default",
}


def header(manifest: Manifest) -> tuple[str, ...]:
    """Comment lines, without comment signs, that are the same in every dialect."""
    environment = manifest.environment
    return (
        f"Settings for {manifest.workload}, from tune {manifest.tuner}, run {manifest.run}",
        "Measured on " + ", ".join(f"{name} {value}" for name, value in sorted(environment.identity.items())),
        *_finding(manifest),
        *_named("Held for the whole run: ", manifest.held),
        *(f"Note: {notice}" for notice in manifest.notices),
    )


def _finding(manifest: Manifest) -> tuple[str, ...]:
    if manifest.verdict is not Verdict.FASTER:
        reason = _WHY_DEFAULT[manifest.verdict]
        return (f"Verdict {manifest.verdict.value}: {reason}. This holds the default.",)
    step = f"{manifest.best_ms:.4g} ms a step, the default {manifest.control_ms:.4g} ms"
    gain = f"Verdict faster: {_interval(manifest.estimate)}; {step}" if manifest.estimate else f"Verdict faster; {step}"
    return (gain, *_named("Settings: ", manifest.settings))


def _interval(estimate: Estimate) -> str:
    low, high = math.exp(estimate.low), math.exp(estimate.high)
    return (
        f"{estimate.speedup:.3f}x the default's speed, {estimate.level:.0%} interval {low:.3f}x to {high:.3f}x, "
        f"from {estimate.n} pairs of fresh processes"
    )


def _named(lead: str, settings: dict[str, str]) -> tuple[str, ...]:
    if not settings:
        return ()
    return (lead + ", ".join(f"{name}={value or '<empty>'}" for name, value in settings.items()),)
