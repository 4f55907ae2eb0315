"""Samples to ratios, racing, verdicts, noise and numerics: pure functions, no I/O, no clock.

Random numbers come only from a generator that the caller passes. The model, the error budgets and what breaks them
are in this folder's README. Names are imported when they are first used: whoever needs `Estimate` alone doesn't pay
for scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.measure.confirmation import LOOKS, ConfirmState, confirm
    from tuner.measure.estimates import combine, difference, estimate
    from tuner.measure.minimise import allowed_loss, not_inferior, smallest_not_inferior
    from tuner.measure.noise import ControlNoise, control_noise, resolution, steady_after, steps_per_block
    from tuner.measure.numerics import judge, tolerances
    from tuner.measure.racing import RaceState, race
    from tuner.measure.ratios import log_ratios, schedule
    from tuner.measure.types import Estimate, Gains, Tolerance, Verdict
    from tuner.measure.verdicts import verdict

__all__ = [
    "LOOKS",
    "ConfirmState",
    "ControlNoise",
    "Estimate",
    "Gains",
    "RaceState",
    "Tolerance",
    "Verdict",
    "allowed_loss",
    "combine",
    "confirm",
    "control_noise",
    "difference",
    "estimate",
    "judge",
    "log_ratios",
    "not_inferior",
    "race",
    "resolution",
    "schedule",
    "smallest_not_inferior",
    "steady_after",
    "steps_per_block",
    "tolerances",
    "verdict",
]

_HOMES = {
    "LOOKS": "confirmation",
    "ConfirmState": "confirmation",
    "ControlNoise": "noise",
    "Estimate": "types",
    "Gains": "types",
    "RaceState": "racing",
    "Tolerance": "types",
    "Verdict": "types",
    "allowed_loss": "minimise",
    "combine": "estimates",
    "confirm": "confirmation",
    "control_noise": "noise",
    "difference": "estimates",
    "estimate": "estimates",
    "judge": "numerics",
    "log_ratios": "ratios",
    "not_inferior": "minimise",
    "race": "racing",
    "resolution": "noise",
    "schedule": "ratios",
    "smallest_not_inferior": "minimise",
    "steady_after": "noise",
    "steps_per_block": "noise",
    "tolerances": "numerics",
    "verdict": "verdicts",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
