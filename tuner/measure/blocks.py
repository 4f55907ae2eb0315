"""Blocks: how many steps one has, so that its mean or its quantile can be told, within the time there is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from tuner.measure.noise import steps_per_block
from tuner.measure.objective import BlockForm, Objective

__all__ = ["WARM_UP_STEPS", "block_form", "even_forms", "shorter", "steps_to_tell"]

K = TypeVar("K")

WARM_UP_STEPS = 50
"""Steps discarded before steps are timed one by one: clocks, caches and the allocator settle on the new arm."""

_SHORTEST = 4
"""A block is cut into so many parts at most: what begins and ends it would weigh too much on less."""

_BEYOND = 3
"""Steps that should lie on either side of a quantile, so that one stall alone doesn't decide it."""


def steps_to_tell(quantile: float) -> int:
    """The fewest steps from which `quantile` can be told: about three lie on either side of it. 300 for the 0.99
    quantile, 6 for the median."""
    return math.ceil(_BEYOND / min(quantile, 1 - quantile) - 1e-9)


def block_form(objective: Objective, step_s: float, *, target_s: float, most_s: float) -> BlockForm:
    """The form of a block for steps of `step_s` seconds (those timed one by one, if they will be).

    Of mean times: `target_s` of consecutive steps. Of a quantile: fifty steps first, then `target_s` of steps, at least
    fifty and as many as tell it; if the whole would take more than `most_s`, as many as fit, a third of them
    at most discarded.
    A quantile's block of fewer than `steps_to_tell` steps is the caller's to speak of. Raises ValueError unless the
    times are positive and finite.
    """
    filling = steps_per_block(step_s, target_s=target_s)
    quantile = objective.quantile
    if quantile is None:
        return BlockForm(steps=filling)
    wanted = max(filling, WARM_UP_STEPS, steps_to_tell(quantile))
    fitting = steps_per_block(step_s, target_s=most_s)
    if WARM_UP_STEPS + wanted <= fitting:
        return BlockForm(steps=wanted, warm_up=WARM_UP_STEPS, quantile=quantile)
    warm_up = max(1, min(WARM_UP_STEPS, fitting // 3))
    return BlockForm(steps=max(1, fitting - warm_up), warm_up=warm_up, quantile=quantile)


def shorter(steps: int, noise: float, wanted: float) -> int:
    """Of `steps` steps a block, whose rounds have a `noise` (standard deviation), as few as should have `wanted`: steps
    vary alone, so that of a share f of them the noise is √f⁻¹ times as large. A quarter at least.

    Four to six rounds tell a candidate from what it needn't be told from closer; longer blocks than that takes would
    tell it no sooner. Raises ValueError unless `wanted` is positive.
    """
    if not wanted > 0:
        raise ValueError(f"the noise that is wanted must be positive, not {wanted!r}")
    share = min(1.0, max(1 / _SHORTEST, (noise / wanted) ** 2))
    return max(1, math.ceil(share * steps - 1e-9))


def even_forms(form: BlockForm, step_s: Mapping[K, float]) -> dict[K, BlockForm]:
    """For arms whose steps take so many seconds: blocks that last as long as the slowest one's of `form`.

    What switching to an arm costs (threads that wake, caches that fill, handing over the first step and waiting for the
    last) then weighs the same on all; with as many steps for each it would weigh most on the fastest. Quantiles need
    their number of steps: their forms stay.
    """
    if form.quantile is not None:
        return dict.fromkeys(step_s, form)
    longest = form.steps * max(step_s.values(), default=0.0)
    return {
        key: msgspec.structs.replace(form, steps=max(form.steps, round(longest / seconds)))
        for key, seconds in step_s.items()
    }
