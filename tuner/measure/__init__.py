"""Samples to ratios, racing, verdicts, noise and numerics: pure functions, no I/O, no clock.

Random numbers come only from a generator that the caller passes. The model, the error budgets and what breaks them
are in this folder's README. Names are imported when they are first used: whoever needs `Estimate` alone doesn't pay
for scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.measure.blocks import WARM_UP_STEPS, block_form, even_forms, shorter, steps_to_tell
    from tuner.measure.confirmation import LOOKS, ConfirmState, confirm
    from tuner.measure.estimates import combine, difference, estimate
    from tuner.measure.levels import (
        ASSUMED_PROCESS_SD,
        USUAL_TURNS,
        Pair,
        PairCost,
        PairPlan,
        noise_levels,
        pair_levels,
        pair_of,
        plan_pairs,
        process_sd_with,
        turns_within,
        turns_worth,
    )
    from tuner.measure.minimise import allowed_loss, not_inferior, smallest_not_inferior
    from tuner.measure.noise import (
        ControlNoise,
        control_noise,
        opens_apart,
        resolution,
        spread,
        steady_after,
        steps_per_block,
    )
    from tuner.measure.numerics import COARSE_NUDGE, epsilon, judge, second_chance, tolerances
    from tuner.measure.objective import OBJECTIVES, BlockForm, Objective
    from tuner.measure.racing import RaceState, race
    from tuner.measure.ranks import stragglers
    from tuner.measure.ratios import log_ratios, schedule
    from tuner.measure.stability import Instability, instability, upheld
    from tuner.measure.ties import tie_break
    from tuner.measure.types import Estimate, Gains, Levels, Limits, Tolerance, Verdict
    from tuner.measure.verdicts import verdict

__all__ = [
    "ASSUMED_PROCESS_SD",
    "COARSE_NUDGE",
    "LOOKS",
    "OBJECTIVES",
    "USUAL_TURNS",
    "WARM_UP_STEPS",
    "BlockForm",
    "ConfirmState",
    "ControlNoise",
    "Estimate",
    "Gains",
    "Instability",
    "Levels",
    "Limits",
    "Objective",
    "Pair",
    "PairCost",
    "PairPlan",
    "RaceState",
    "Tolerance",
    "Verdict",
    "allowed_loss",
    "block_form",
    "combine",
    "confirm",
    "control_noise",
    "difference",
    "epsilon",
    "estimate",
    "even_forms",
    "instability",
    "judge",
    "log_ratios",
    "noise_levels",
    "not_inferior",
    "opens_apart",
    "pair_levels",
    "pair_of",
    "plan_pairs",
    "process_sd_with",
    "race",
    "resolution",
    "schedule",
    "second_chance",
    "shorter",
    "smallest_not_inferior",
    "spread",
    "steady_after",
    "steps_per_block",
    "steps_to_tell",
    "stragglers",
    "tie_break",
    "tolerances",
    "turns_within",
    "turns_worth",
    "upheld",
    "verdict",
]

_HOMES = {
    "ASSUMED_PROCESS_SD": "levels",
    "LOOKS": "confirmation",
    "USUAL_TURNS": "levels",
    "OBJECTIVES": "objective",
    "WARM_UP_STEPS": "blocks",
    "BlockForm": "objective",
    "ConfirmState": "confirmation",
    "ControlNoise": "noise",
    "Estimate": "types",
    "Gains": "types",
    "Instability": "stability",
    "Levels": "types",
    "Objective": "objective",
    "Pair": "levels",
    "PairCost": "levels",
    "PairPlan": "levels",
    "RaceState": "racing",
    "Limits": "types",
    "Tolerance": "types",
    "Verdict": "types",
    "allowed_loss": "minimise",
    "block_form": "blocks",
    "combine": "estimates",
    "confirm": "confirmation",
    "control_noise": "noise",
    "difference": "estimates",
    "even_forms": "blocks",
    "estimate": "estimates",
    "instability": "stability",
    "judge": "numerics",
    "COARSE_NUDGE": "numerics",
    "epsilon": "numerics",
    "second_chance": "numerics",
    "log_ratios": "ratios",
    "noise_levels": "levels",
    "not_inferior": "minimise",
    "opens_apart": "noise",
    "pair_levels": "levels",
    "pair_of": "levels",
    "plan_pairs": "levels",
    "process_sd_with": "levels",
    "race": "racing",
    "resolution": "noise",
    "schedule": "ratios",
    "shorter": "blocks",
    "smallest_not_inferior": "minimise",
    "spread": "noise",
    "steady_after": "noise",
    "steps_per_block": "noise",
    "steps_to_tell": "blocks",
    "stragglers": "ranks",
    "tie_break": "ties",
    "tolerances": "numerics",
    "turns_within": "levels",
    "turns_worth": "levels",
    "upheld": "stability",
    "verdict": "verdicts",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
