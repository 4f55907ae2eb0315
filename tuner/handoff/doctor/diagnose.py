"""All checks, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tuner.handoff.doctor import hardware, result, software, variables
from tuner.handoff.doctor.facts import Facts
from tuner.handoff.doctor.finding import Finding

__all__ = ["diagnose"]

_CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    software.versions,
    software.found_devices,
    hardware.use,
    hardware.clocks,
    software.profiler,
    hardware.host,
    variables.flags,
    variables.look_alikes,
    variables.inherited_pins,
    result.cache,
    hardware.disks,
    result.workload,
)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """What is to be said of `facts`, good and bad."""
    return tuple(finding for check in _CHECKS for finding in check(facts))
