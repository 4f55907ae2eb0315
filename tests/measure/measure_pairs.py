"""A simulated confirmation: pairs of processes whose noise is known, with turns fixed or chosen as the tuner does."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from measure_samples import noise

from tuner.measure import (
    ASSUMED_PROCESS_SD,
    USUAL_TURNS,
    Pair,
    PairCost,
    noise_levels,
    process_sd_with,
    turns_worth,
)
from tuner.measure.confirmation import FALSE_FASTER, critical_t

LOOKS = (6, 8, 10, 12)
CHOICE = 3
MARGIN = 0.005


class Ended(msgspec.Struct, frozen=True):
    """Averages over many confirmations: how many found a gain above 0, seconds of one, and the variance of the gain
    that was found times those seconds: what precision cost."""

    faster: float
    seconds: float
    cost: float


def confirmations(
    runs: int,
    *,
    gain: float,
    round_sd: float,
    process_sd: float,
    cost: PairCost,
    adaptive: bool,
    kind: str = "normal",
    seed: int = 0,
) -> Ended:
    """One finalist that is faster by `gain`; its sides' bounds are `confirm`'s, at the looks of a full plan."""
    rng = np.random.default_rng(seed)
    scale = 1.0 if kind == "normal" else float(np.std(noise(np.random.default_rng(9), (20_000,), kind)))
    bounds = {n: critical_t(LOOKS, i, FALSE_FASTER) for i, n in enumerate(LOOKS)}
    found, seconds, faster = [], [], 0
    for _ in range(runs):
        pairs: list[Pair] = []
        turns, spent = USUAL_TURNS, 0.0
        while len(pairs) < LOOKS[-1]:
            own = process_sd / scale * float(noise(rng, (1,), kind)[0])
            ratios = -gain + own + round_sd / scale * noise(rng, (turns,), kind, autocorrelation=0.1)
            centre = float(np.median(ratios))
            spread = 1.4826 * float(np.median(np.abs(ratios - centre)))
            pairs.append(Pair(log_ratio=centre, spread=spread, turns=turns))
            spent += cost.seconds(turns)
            gains = -np.array([p.log_ratio for p in pairs])
            if len(pairs) in bounds:
                t = gains.mean() / gains.std(ddof=1) * math.sqrt(len(gains))
                if t > bounds[len(pairs)]:
                    faster += 1
                    break
            if adaptive and (len(pairs) == CHOICE or len(pairs) in LOOKS):
                levels = noise_levels([pairs])
                assert levels is not None
                process = process_sd_with(levels, ASSUMED_PROCESS_SD)
                turns = turns_worth(levels.round, process, cost=cost, margin=MARGIN)
        found.append(float(gains.mean()))
        seconds.append(spent)
    mean_s = float(np.mean(seconds))
    return Ended(faster / runs, mean_s, float(np.mean((np.array(found) - gain) ** 2)) * mean_s)
