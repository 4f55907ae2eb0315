"""One round: the order in which its arms are timed, and the gain of each against the control of the same round."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from tuner.protocol.messages import Block

__all__ = ["controls_for", "log_ratios", "schedule"]


def controls_for(arms: int) -> int:
    """Control blocks in a round of `arms` arms: one for a single arm, else 1 + √arms.

    The control's own noise is shared by all arms between two of its blocks, so control blocks are worth more than one
    arm's; with √arms gaps of √arms arms each, time spent on controls and drift between them stay in balance.
    """
    return 1 if arms == 1 else 1 + round(math.sqrt(arms))


def schedule(arms: Sequence[str], *, control: str, rng: np.random.Generator) -> list[str]:
    """A random order of `arms` with control blocks spread evenly among them.

    Two arms and more stand between a first and a last control block; a single arm comes before or after its one
    control block at random, so that drift within the round cancels over rounds. Raises ValueError for no arms, for
    one named twice, or if the control is among them.
    """
    if not arms:
        raise ValueError("a round needs at least one arm besides the control")
    if control in arms or len(set(arms)) != len(arms):
        raise ValueError(f"arms must be different from each other and from the control {control!r}: {list(arms)!r}")
    order = [arms[i] for i in rng.permutation(len(arms))]
    if len(order) == 1:
        return [control, *order] if rng.random() < 0.5 else [*order, control]
    gaps = controls_for(len(order)) - 1
    cuts = [round(i * len(order) / gaps) for i in range(gaps + 1)]
    between = (order[start:end] for start, end in pairwise(cuts))
    return [control, *(name for part in between for name in (*part, control))]


def log_ratios(round_blocks: Sequence[Block], control: str) -> dict[str, float]:
    """Gain of every arm of one round: −log(what its block says of a step / the control's at that moment), in order of
    appearance. That is the mean time of a step, or what the block's `value_s` tells instead.

    The control's log time is interpolated linearly in elapsed time between the middles of the round's control blocks
    (outside of them the nearest block counts), which removes a drift that is linear between two control blocks.
    Elapsed time is that of the blocks themselves. Several blocks of one arm give their median.

    Raises ValueError for a round without a control block and for a time that is zero, negative or not finite.
    """
    places: dict[str, list[float]] = defaultdict(list)
    levels: dict[str, list[float]] = defaultdict(list)
    elapsed = 0.0
    for block in round_blocks:
        places[block.id].append(elapsed + block.first_s + block.seconds / 2)
        levels[block.id].append(_log_time(block))
        elapsed += block.first_s + block.seconds
    if control not in levels:
        raise ValueError(f"the round has no block of the control {control!r}: nothing to compare with")
    gains = {}
    for name in levels:
        if name != control:
            expected = np.interp(places[name], places[control], levels[control])
            gains[name] = float(median(expected - np.asarray(levels[name])))
    return gains


def _log_time(block: Block) -> float:
    """log of what the block says of a step, in seconds."""
    if block.steps < 1:
        raise ValueError(f"the block of {block.id!r} has {block.steps} steps")
    for name, seconds in (("took", block.step_s), ("was preceded by a step of", block.first_s)):
        if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and name == "took"):
            raise ValueError(f"the block of {block.id!r} {name} {seconds!r} s: that is no time")
    return math.log(block.step_s)
